"""Structured control flow: what branches and loop bodies yield, and how values come out of them.

Loops: bounds of one signed type, a step that is positive; how a body becomes an operation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from xdsl.dialects import scf
from xdsl.dialects.builtin import BoolAttr, IntAttr, StringAttr
from xdsl.ir import Attribute, Block, BlockArgument, Region, SSAValue
from xdsl.traits import is_side_effect_free

from tawa.ir import LABEL
from tawa.ir.build import arithmetic
from tawa.ir.build.arithmetic import invert
from tawa.ir.build.builder import Builder
from tawa.ir.build.promotion import promote_integers
from tawa.ir.build.values import Const, Tensor, Value, describe
from tawa.language.dtypes import dtype, int32, int64


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


# --- loops ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bounds:
    """What `scf.for` counts: `start` to `end` by `step`, all of `kind`.

    `seen` is the type that the body sees the index in. A loop that counts down runs from the far
    end, and its index is `mirror` less the one counted.
    """

    start: Tensor
    end: Tensor
    step: Tensor
    kind: dtype
    seen: dtype
    mirror: Tensor | None = None

    def index(self, builder: Builder, counted: Tensor) -> Tensor:
        """Return the index as the body sees it."""
        if self.mirror is not None:
            counted = arithmetic.binary(builder, "-", self.mirror, counted)
        return arithmetic.cast(builder, counted, self.seen)


def bounds(builder: Builder, start: Value, end: Value, by: Value) -> Bounds:
    """Return the bounds of a loop over `range(start, end, by)`; raises TypeMismatch."""
    number = arithmetic.as_number(by)
    if number == 0:
        raise builder.mismatch("the step of this loop is 0", why="it never ends")
    # The size of the least number of 64 bits is one more than the greatest.
    down = number if number is not None and -(1 << 63) < number < 0 else 0
    size: Value = Const(-down) if down else by
    values = [arithmetic.to_tensor(builder, v) for v in (start, end, size)]
    for value in values:
        if value.is_block or not value.dtype.is_int():
            raise builder.mismatch(
                f"a bound of this loop is {describe(value)}",
                why="start, end and step are integer scalars",
            )
    kind = reduce(promote_integers, (value.dtype for value in values))
    if kind.is_int_unsigned() or kind.int_bitwidth < 32:
        # scf.for counts signed integers; 64 bits hold every uint32.
        kind = int64 if kind.is_int_unsigned() and kind.int_bitwidth >= 32 else int32
    first, last, width = (arithmetic.to_type(builder, v, kind) for v in (start, end, size))
    seen = reduce(promote_integers, (value.dtype for value in values), int32)
    if not down:
        return Bounds(first, last, width, kind, seen)
    mirror = arithmetic.binary(builder, "+", last, first)
    return Bounds(last, first, width, kind, seen, mirror)


def hints(asked: Mapping[str, object]) -> dict[str, Attribute]:
    """Return what the author asks of a loop (num_stages ...) as attributes, unset ones left out."""
    found: dict[str, Attribute] = {}
    for name, hint in asked.items():
        if isinstance(hint, bool):
            found |= {name: BoolAttr.from_bool(True)} if hint else {}
        elif isinstance(hint, int):
            found[name] = IntAttr(hint)
    return found


def end_for(
    builder: Builder,
    over: Bounds,
    block: Block,
    carried: Carried,
    asked: Mapping[str, object],
    name: str = "",
) -> list[SSAValue]:
    """Emit the counted loop whose body is `block`; return what is carried, after it."""
    left = carried.drop_invariant()
    block.add_op(scf.YieldOp(*take(carried.yielded, left)))
    limits = (over.start.ssa, over.end.ssa, over.step.ssa)
    made = scf.ForOp(*limits, take(carried.initial, left), block)
    made.attributes.update(hints(asked))
    return _emit(builder, made, carried, left, name)


def end_while(
    builder: Builder, condition: Tensor, test: Block, block: Block, carried: Carried, name: str = ""
) -> list[SSAValue]:
    """Emit the loop that runs `block` while `test` gives `condition`; return as `end_for`."""
    left = carried.drop_invariant()
    test.add_op(scf.ConditionOp(condition.ssa, *test.args))
    block.add_op(scf.YieldOp(*take(carried.yielded, left)))
    initial = take(carried.initial, left)
    made = scf.WhileOp(initial, types_of(initial), Region([test]), Region([block]))
    return _emit(builder, made, carried, left, name)


def _emit(
    builder: Builder, made: scf.ForOp | scf.WhileOp, carried: Carried, left: list[int], name: str
) -> list[SSAValue]:
    if name:
        made.attributes[LABEL] = StringAttr(name)
    builder.emit(made)
    after: dict[int, SSAValue] = dict(zip(left, made.results))
    return [after.get(index, initial) for index, initial in enumerate(carried.initial)]
