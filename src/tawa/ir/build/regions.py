"""Structured control flow: what branches and loop bodies yield, and how values come out of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from xdsl.dialects import scf
from xdsl.ir import Attribute, Block, BlockArgument, SSAValue
from xdsl.traits import is_side_effect_free

from tawa.ir.build.arithmetic import invert
from tawa.ir.build.builder import Builder
from tawa.ir.build.values import Tensor


def only_computes(block: Block) -> bool:
    """Tell whether running a block in vain does no harm: no access to memory, no effect."""
    return all(is_side_effect_free(operation) for operation in block.ops)


def splice(builder: Builder, block: Block) -> None:
    """Move the operations of a block to the current place."""
    for operation in list(block.ops):
        operation.detach()
        builder.block.add_op(operation)


def emit_if(
    builder: Builder,
    condition: Tensor,
    then: tuple[Block, Sequence[SSAValue]],
    other: tuple[Block, Sequence[SSAValue]],
) -> list[SSAValue]:
    """Emit an `scf.if` whose branches yield values; equal values on both sides need no result."""
    pairs = [(a, b) for a, b in zip(then[1], other[1]) if a is not b]
    if not then[0].ops and not pairs:
        # An early return leaves nothing to do on its side: keep the other one alone.
        then, other = other, then
        condition = invert(builder, condition)
    then[0].add_op(scf.YieldOp(*(a for a, _ in pairs)))
    alternative: list[Block] | None = None
    if other[0].ops or pairs:
        other[0].add_op(scf.YieldOp(*(b for _, b in pairs)))
        alternative = [other[0]]
    types = [a.type for a, _ in pairs]
    made = builder.emit(scf.IfOp(condition.ssa, types, [then[0]], alternative))
    results = iter(made.results)
    return [a if a is b else next(results) for a, b in zip(then[1], other[1])]


@dataclass(slots=True)
class Carried:
    """The values a loop carries: before it, at the top of its body, and at the end of an
    iteration.
    """

    initial: list[SSAValue]
    arguments: list[list[BlockArgument]]
    yielded: list[SSAValue]

    def drop_invariant(self) -> list[int]:
        """Drop what every iteration hands on unchanged; return the positions that are left.

        `arguments[i]` are the block arguments that stand for value i: one in a `for`, two (of
        condition and body) in a `while`. Invariant ones are replaced by the value before the loop.
        """
        left = list(range(len(self.initial)))
        while (found := next(filter(self._is_invariant, left), None)) is not None:
            left.remove(found)
            for argument in self.arguments[found]:
                argument.replace_all_uses_with(self.initial[found])
                self.yielded = [
                    self.initial[found] if value is argument else value for value in self.yielded
                ]
                argument.block.erase_arg(argument)
        return left

    def _is_invariant(self, index: int) -> bool:
        value = self.yielded[index]
        return value is self.initial[index] or any(
            value is argument for argument in self.arguments[index]
        )


def take(values: Sequence[SSAValue], positions: Iterable[int]) -> list[SSAValue]:
    """Return the values at some positions."""
    return [values[position] for position in positions]


def types_of(values: Iterable[SSAValue]) -> list[Attribute]:
    """Return the types of values."""
    return [value.type for value in values]
