"""Loops and branches of a kernel that is being built: `range`, `while_`, `if_`."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from inspect import signature
from typing import Any, cast

from xdsl.dialects import scf
from xdsl.ir import Block, Operation, SSAValue

import tawa.language as tl
from tawa.errors import DefinitionError, TypeMismatch
from tawa.ir.build import arithmetic
from tawa.ir.build.binding import suggest
from tawa.ir.build.control import Branch, Loop, Yields
from tawa.ir.build.handles import Operand, Value
from tawa.ir.build.loops import bounds, end_for, end_while
from tawa.ir.build.regions import Carried, emit_if
from tawa.ir.build.statements import Statements, hint
from tawa.ir.build.types import ir_scalar
from tawa.ir.build.values import Tensor, describe, name_value

Carry = Sequence[Operand] | Mapping[str, Operand]


class ControlFlow(Statements):
    """Statements with regions; see `KernelBuilder`."""

    @contextmanager
    def range(
        self,
        start: Operand,
        end: Operand,
        step: Operand = 1,
        *,
        carry: Carry = (),
        name: str = "",
        **asked: Any,
    ) -> Generator[Loop]:
        """Build a loop over `range(start, end, step)`; its body is the block of the `with`.

        `carry` are the values it carries, by name or in order. `asked` are the hints of `tl.range`
        (``num_stages``, ``warp_specialize`` ...).
        """
        place = self._begin(name)
        known = signature(tl.range).parameters
        for word in asked:
            if word not in known or word in ("arg1", "arg2", "step"):
                raise DefinitionError(
                    f"a loop has no hint {word!r}",
                    place=place,
                    remedy=suggest(word, known, "see tl.range for those it has"),
                )
        over = bounds(self._builder, *(self._lift(v) for v in (start, end, step)))
        block = Block(arg_types=[ir_scalar(over.kind)])
        name_value(block.args[0], hint(name))
        yields, carried = self._yields("loop"), self._carry(carry, block)
        values = self._arguments(carried)
        with self._inside(block):
            index = over.index(self._builder, Tensor(block.args[0]))
            loop = Loop(yields, values, self._value(index))
            yield loop
        self._builder.place = place
        carried.yielded = [value.ssa for value in yields.close(values)]
        self._end_loop(loop, end_for(self._builder, over, block, carried, asked, name))

    @contextmanager
    def while_(
        self, carry: Carry, condition: Callable[..., Operand], *, name: str = ""
    ) -> Generator[Loop]:
        """Build a loop that runs while `condition` of what it carries holds."""
        place = self._begin(name)
        test, block = Block(), Block()
        yields, carried = self._yields("loop"), self._carry(carry, block, test)
        with self._inside(test):
            tested = [self._value(Tensor(each[-1])) for each in carried.arguments]
            holds = arithmetic.to_bool(self._builder, self._lift(condition(*tested)))
            if holds.is_block:
                raise TypeMismatch(
                    f"the condition of this loop is {describe(holds)}",
                    place=place,
                    why="control flow follows one truth value for the whole program",
                )
        values = self._arguments(carried)
        with self._inside(block):
            loop = Loop(yields, values, None)
            yield loop
        self._builder.place = place
        carried.yielded = [value.ssa for value in yields.close(values)]
        self._end_loop(loop, end_while(self._builder, holds, test, block, carried, name))

    @contextmanager
    def if_(self, condition: Operand) -> Generator[Branch]:
        """Build a branch: what the `with` holds runs where `condition`, a scalar, is true.

        `with branch.otherwise():` behind it builds the other side.
        """
        place = self._begin()
        chosen = arithmetic.to_bool(self._builder, self._lift(condition))
        if chosen.is_block:
            raise TypeMismatch(
                f"the condition of this branch is {describe(chosen)}",
                place=place,
                why="control flow follows one truth value for the whole program",
                remedy="choose element by element with where(condition, one, other)",
            )
        block, yields = Block(), self._yields("branch")
        branch = Branch(yields, lambda branch: self._other_side(branch, chosen, block))
        with self._inside(block, loop=False):
            yield branch
        self._builder.place = place
        branch.given = yields.close(None)
        if branch.given:
            self._state.lone.append(branch)
        emit_if(self._builder, chosen, (block, []), (Block(), []))

    @contextmanager
    def _other_side(self, branch: Branch, chosen: Tensor, block: Block) -> Generator[None]:
        place, outer = self._begin(), self._builder.block
        made = outer.last_op
        if not isinstance(made, scf.IfOp) or made.true_region.blocks.first is not block:
            raise DefinitionError(
                "the other side of a branch does not stand behind the first",
                place=place,
                why=f"statements stand between it and the branch at line "
                f"{branch.yields.place.line}, or it has its other side already",
            )
        other, first = Block(), branch.yields
        branch.yields = self._yields("branch")
        with self._inside(other, loop=False):
            yield
        self._builder.place = first.place
        given, alternative = branch.given, branch.yields.close(None)
        if [value.type for value in given] != [value.type for value in alternative]:
            raise TypeMismatch(
                f"the sides of a branch yield ({', '.join(map(describe, given))}) and "
                f"({', '.join(map(describe, alternative))})",
                place=branch.yields.place,
                why="which one runs is known only at run time",
                remedy="yield as many values of the same types on both sides",
            )
        self._state.lone = [each for each in self._state.lone if each is not branch]
        block.detach_op(cast(Operation, block.last_op))
        made.true_region.detach_block(block)
        made.detach()
        made.erase()
        sides = [[value.ssa for value in side] for side in (given, alternative)]
        results = emit_if(self._builder, chosen, (block, sides[0]), (other, sides[1]))
        for result, value in zip(results, given):
            name_value(result, value.ssa.name_hint or "")
        branch.end(tuple(self._value(Tensor(result)) for result in results))

    @contextmanager
    def _inside(self, block: Block, loop: bool = True) -> Generator[None]:
        self._context.loops += loop
        with self._builder.into(block):
            yield
        self._context.loops -= loop

    def _yields(self, what: str) -> Yields:
        def given(value: Operand) -> Value:
            self._begin()
            return self._value(arithmetic.to_tensor(self._builder, self._lift(value)))

        return Yields(self._builder, what, given)

    def _carry(self, carry: Carry, *blocks: Block) -> Carried:
        """Add arguments for carried values to blocks, named as given or as the values are."""
        named = dict(carry) if isinstance(carry, Mapping) else None
        values = list(named.values()) if named is not None else list(cast(Sequence[Operand], carry))
        initial = [arithmetic.to_tensor(self._builder, self._lift(v)).ssa for v in values]
        names = list(named) if named is not None else [value.name_hint or "" for value in initial]
        arguments = [
            [block.insert_arg(value.type, len(block.args)) for block in blocks] for value in initial
        ]
        for name, group in zip(names, arguments):
            for argument in group:
                name_value(argument, name)
        return Carried(initial, arguments, [])

    def _arguments(self, carried: Carried) -> tuple[Value, ...]:
        return tuple(self._value(Tensor(group[0])) for group in carried.arguments)

    def _end_loop(self, loop: Loop, results: Sequence[SSAValue]) -> None:
        for value, old in zip(results, loop.carried):
            name_value(value, old.ssa.name_hint or "")
        loop.end(tuple(self._value(Tensor(value)) for value in results))
