"""`KernelBuilder`: a kernel of tile IR, made by calls instead of Python source.

The operations are those of the language, by its names, with its rules of types and broadcasting:
`tawa.ir.build.operations`, which the frontend calls too. What is added here is what source text
has by its form: where values can be used, names of statements, places for errors.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from inspect import signature
from typing import Any, cast

from xdsl.dialects import scf
from xdsl.dialects.builtin import DictionaryAttr, TensorType
from xdsl.ir import Attribute, Block, Operation, SSAValue

import tawa.language as tl
from tawa.errors import DefinitionError, DescriptorError, TypeMismatch
from tawa.ir import tile
from tawa.ir.build import arithmetic
from tawa.ir.build.binding import suggest
from tawa.ir.build.control import Branch, Loop, Yields
from tawa.ir.build.finish import facts_of, finish
from tawa.ir.build.handles import Desc, Operand, Value
from tawa.ir.build.regions import Carried, bounds, emit_if, end_for, end_while
from tawa.ir.build.statements import Statements, hint, is_name
from tawa.ir.build.values import Const, Tensor, caller, describe, ir_scalar, name_value
from tawa.ir.types import SCALARS, DescType, PtrType, is_float
from tawa.language.dtypes import dtype
from tawa.layouts.windows import Window

Carry = Sequence[Operand] | Mapping[str, Operand]


class KernelBuilder(Statements):
    """Builds one kernel: arguments first, then its statements in order, then `finish`.

    `options` are those of a launch that change what is compiled (``debug``, ``num_warps``, ...).
    Every error of the builder is the caller's and points at its line: `DefinitionError` for the
    form, `TypeMismatch`, `ShapeUnsupported`, `DescriptorError` as for kernels written in Python.

    >>> k = KernelBuilder("double")
    >>> x, out = k.pointer("x", "f32"), k.pointer("out", "f32")
    >>> where = k.arange(0, 64)
    >>> k.store(out + where, k.load(x + where, name="x") * 2)
    >>> k.finish().argument_names
    ['x', 'out']
    """

    # --- arguments --------------------------------------------------------------------------

    def pointer(self, name: str, element: dtype | str, *, aligned: bool = True) -> Value:
        """Add an argument: the address of an array, `aligned` to 16 bytes; a launch checks it."""
        kind = PtrType(SCALARS[self._short(element)])
        return Value(self._argument(name, kind, facts_of(name, 16 if aligned else 1)), self)

    def scalar(self, name: str, element: dtype | str, *, divisible: int = 1) -> Value:
        """Add an argument: a number. `divisible` by 16 or 8 is promised; a launch checks it."""
        kind = SCALARS[self._short(element)]
        if divisible not in (1, 8, 16) or (divisible > 1 and is_float(kind)):
            raise DefinitionError(
                f"{name} is said to be divisible by {divisible}",
                place=caller(),
                why="what the compiler makes use of is divisibility of integers by 8 and by 16",
                remedy="say 16 or 8 where it holds, else leave it out",
            )
        return Value(self._argument(name, kind, facts_of(name, divisible)), self)

    def descriptor(
        self,
        name: str,
        element: dtype | str,
        block_shape: Sequence[int],
        padding: str = "zero",
        *,
        ragged: bool = False,
        window: Window | None = None,
    ) -> Desc:
        """Add an argument: a tensor in global memory, accessed in tiles of `block_shape`; with
        `window` images, of which a tile [windows, channels] is what windows see through a tap.

        `padding`: what a load reads outside of the tensor, "zero" or "nan". `ragged`: its rows may
        end inside 16 bytes; TMA writes these whole, so threads store to it. A launch refuses such
        a tensor for a descriptor that is not ragged.
        """
        if padding not in ("zero", "nan") or not 1 <= len(block_shape) <= 5:
            raise DescriptorError(
                f"the descriptor {name} has block_shape={list(block_shape)}, padding={padding!r}",
                place=caller(),
                why='a descriptor has 1 to 5 dimensions, and the padding "zero" or "nan"',
            )
        if window is not None and (window.objection or len(block_shape) != 2):
            raise DescriptorError(
                f"TMA counts no windows of {window} in blocks of {list(block_shape)}",
                place=caller(),
                why=window.objection or "a block is [windows, channels]",
            )
        kind = DescType(TensorType(SCALARS[self._short(element)], list(block_shape)), window)
        made = self._argument(name, kind, facts_of(name, padding=padding, ragged=ragged))
        return Desc(made, padding=padding, maker=self)

    def _argument(self, name: str, kind: Attribute, facts: DictionaryAttr) -> SSAValue:
        place, block = self._begin(), self._builder.block
        known = [str(each.data["name"]) for each in self._state.facts]
        if not is_name(name) or str(facts.data["name"]) in known:
            raise DefinitionError(
                f"{name!r} cannot name an argument of {self._name}",
                place=place,
                why="names of arguments are identifiers, each of one argument",
            )
        if block is not self._builder.around[0]:
            raise DefinitionError(
                f"the argument {name} is added inside a loop or branch",
                place=place,
                why="arguments belong to the whole kernel",
                remedy="add it before the first statement",
            )
        made = block.insert_arg(kind, len(block.args))
        name_value(made, name)
        self._state.facts.append(facts)
        return made

    # --- statements -------------------------------------------------------------------------

    def constant(self, number: bool | int | float, element: dtype | str) -> Value:
        """Return a scalar constant of a type."""
        self._begin()
        kind = self._dtype(self._short(element))
        assert kind is not None, "a type that is spelled in IR is one of the language"
        return self._value(arithmetic.to_type(self._builder, Const(number), kind))

    def program_id(self, axis: int) -> Value:
        """Return the index of this program along an axis of the grid (int32)."""
        return self.call("program_id", axis)

    def num_programs(self, axis: int) -> Value:
        """Return the number of programs along an axis of the grid (int32)."""
        return self.call("num_programs", axis)

    def arange(self, start: int, end: int) -> Value:
        """Return the tensor start, start + 1 .. end - 1 (int32)."""
        return self.call("arange", start, end)

    def full(self, shape: Sequence[int], value: Operand, element: dtype | str) -> Value:
        """Return a tensor filled with a number or a scalar."""
        return self.call("full", tuple(shape), value, element)

    def zeros(self, shape: Sequence[int], element: dtype | str) -> Value:
        """Return a tensor of zeros."""
        return self.call("zeros", tuple(shape), element)

    def where(self, condition: Operand, one: Operand, other: Operand) -> Value:
        """Choose element by element."""
        return self.call("where", condition, one, other)

    def minimum(self, one: Operand, other: Operand) -> Value:
        """Return the lesser, element by element."""
        return self.call("minimum", one, other)

    def maximum(self, one: Operand, other: Operand) -> Value:
        """Return the greater, element by element."""
        return self.call("maximum", one, other)

    def cdiv(self, value: Operand, divisor: Operand) -> Value:
        """Divide integers and round up."""
        return self.call("cdiv", value, divisor)

    def load(
        self,
        pointer: Value,
        mask: Operand | None = None,
        other: Operand | None = None,
        *,
        name: str = "",
        **how: Any,
    ) -> Value:
        """Load from an address or a tensor of them; `other` stands where `mask` is false.

        `how` are the further parameters of `tl.load`: eviction_policy, cache_modifier, volatile.
        """
        return self.call("load", pointer, mask, other, name=name, **how)

    def store(
        self,
        pointer: Value,
        value: Operand,
        mask: Operand | None = None,
        *,
        name: str = "",
        **how: Any,
    ) -> None:
        """Store to an address or a tensor of them where `mask` is true."""
        self.call("store", pointer, value, mask, name=name, **how)

    def atomic(
        self,
        function: str,
        pointer: Value,
        value: Operand,
        mask: Operand | None = None,
        *,
        name: str = "",
        **how: Any,
    ) -> Value:
        """Combine into memory by add, max, min, and, or, xor, xchg; returns what was there."""
        return self.call(f"atomic_{function}", pointer, value, mask, name=name, **how)

    def make_descriptor(
        self,
        base: Value,
        shape: Sequence[Operand],
        strides: Sequence[Operand],
        block_shape: Sequence[int],
        padding: str = "zero",
    ) -> Desc:
        """Describe a tensor in global memory, to access it in tiles; the last stride is 1."""
        parts = (tuple(shape), tuple(strides), tuple(block_shape))
        return self.call("make_tensor_descriptor", base, *parts, padding)

    def dot(
        self,
        a: Value,
        b: Value,
        acc: Operand | None = None,
        *,
        precision: str | None = None,
        out_dtype: dtype | str | None = None,
        name: str = "",
    ) -> Value:
        """Return a @ b + acc of shapes [.., M, K] and [.., K, N], as `tl.dot`."""
        how: dict[str, Any] = {} if out_dtype is None else {"out_dtype": out_dtype}
        return self.call("dot", a, b, acc, input_precision=precision, name=name, **how)

    def reduce(
        self,
        value: Value | Sequence[Value],
        axis: int | None,
        combine: str | Callable[..., Any],
        *,
        keep_dims: bool = False,
        name: str = "",
    ) -> Any:
        """Combine along an axis (None: all). `combine` is "add", "mul", "maximum", "minimum", or a
        function of two elements; of a tuple of tensors it takes the left elements, then the right
        ones, and gives a tuple.
        """
        several = tuple(value) if not isinstance(value, Value) else value
        return self.call("reduce", several, axis, combine, keep_dims, name=name)

    def scan(
        self,
        value: Value | Sequence[Value],
        axis: int,
        combine: str | Callable[..., Any],
        *,
        reverse: bool = False,
        name: str = "",
    ) -> Any:
        """Give inclusive prefix combinations along an axis; `combine` as in `reduce`."""
        several = tuple(value) if not isinstance(value, Value) else value
        return self.call("associative_scan", several, axis, combine, reverse, name=name)

    # --- loops and branches -----------------------------------------------------------------

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

    # --- the end ----------------------------------------------------------------------------

    def finish(self) -> tile.Kernel:
        """Return the kernel, verified; the builder takes no statements after it."""
        place = self._begin()
        if len(self._builder.around) > 1:
            raise DefinitionError(
                f"{self._name} is finished inside a loop or branch",
                place=place,
                remedy="finish it after the `with`",
            )
        if self._state.lone:
            first = self._state.lone[0].yields.place
            raise DefinitionError(
                "a branch of one side yields values",
                place=first,
                why="where the other side runs there are none",
                remedy="yield values from `with branch.otherwise():` as well",
            )
        block = self._builder.block
        self._state.kernel = finish(self._name, block, self._state.facts, self._options)
        return self._state.kernel
