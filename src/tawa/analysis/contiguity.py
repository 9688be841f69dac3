"""How regular a tensor is along each dimension (`tawa.analysis.contiguity`): what vector accesses
need.

Pointers count in elements of what they point to. Loop-carried values are assumed to be what they
start as, and weakened until the assumption holds. What the author promises (`tl.multiple_of`,
`tl.max_contiguous`, `tl.max_constancy`: attributes of an operation) is believed.

The regularity of values along a dimension, and what functions make of it.

For each dimension three numbers (after the axis analysis of Triton): within aligned blocks of
`contiguity` elements values rise by one; the first of each such block is a multiple of
`divisibility`; within aligned blocks of `constancy` elements values are equal. A scalar has
`divisibility` alone. Numbers may wrap: blocks that begin at multiples of their size do so between
blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd, lcm
from typing import Any

from xdsl.dialects import scf
from xdsl.dialects.builtin import ArrayAttr, IntAttr, IntegerType
from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue

from tawa.analysis.polynomial import divisor
from tawa.analysis.ranges import Known, range_of
from tawa.ir import hopper, tile
from tawa.ir.types import PtrType, bit_width, element_type, is_signed, shape_of
from tawa.ir.walk import yielded
from tawa.layouts.register import Axis, RegisterLayout

_ROUNDS = 4
HINTS = ("multiple_of", "max_contiguous", "max_constancy")
"""The attributes that hold what an author promises, a number for each dimension."""


class Contiguity:
    """Answers for the values of one kernel; remembers what it has worked out.

    `assumed` scalars are taken to be multiples of a number (addresses, of so many elements).
    """

    def __init__(self, assumed: Mapping[SSAValue, int] | None = None) -> None:
        self._known: dict[SSAValue, Regularity] = {
            value: (Run(1, multiple, 1),) for value, multiple in (assumed or {}).items()
        }
        self._ranges = Known()

    def width(
        self, pointer: SSAValue, mask: SSAValue | None, layout: RegisterLayout, bytes_each: int
    ) -> int:
        """Return how many neighbouring registers one access may move (1, 2, 4 .. 16).

        They must be neighbours in memory, aligned to their size, at most 16 bytes, and all masked
        alike.
        """
        if not layout.registers:
            return 1
        first = layout.registers[0]
        dim = next((d for d, step in enumerate(first.step) if step), None)
        if dim is None or sum(map(abs, first.step)) != 1:
            return 1
        others = [
            axis.step[dim]
            for axis in (*layout.registers[1:], *layout.lanes, *layout.warps)
            if axis.extent > 1
        ]
        run = self.of(pointer)[dim]
        limit = gcd(first.extent, run.contiguity, *others)
        if mask is not None:
            limit = gcd(limit, self.of(mask)[dim].constancy)
        return next(
            width
            for width in (16, 8, 4, 2, 1)
            if limit % width == 0
            and run.starts(width) % width == 0
            and (width == 1 or width * bytes_each <= 16)
        )

    def equal(self, values: list[SSAValue], layout: RegisterLayout) -> int:
        """Return how many neighbouring registers, from every multiple of it on, hold the same of
        each of `values` in all threads.
        """
        kinds = [self.of(value) for value in values if shape_of(value.type)]
        same = [gcd(*(kind[dim].constancy for kind in kinds)) for dim in range(len(layout.shape))]
        axes = (*layout.registers, *layout.lanes, *layout.warps)
        if not kinds or not all(_within(axes, dim, block) for dim, block in enumerate(same)):
            return 1
        found = 1
        for axis in layout.registers:
            moved = [dim for dim, step in enumerate(axis.step) if step]
            if len(moved) != 1:
                break
            step = abs(axis.step[moved[0]])
            inside = same[moved[0]] // step if same[moved[0]] % step == 0 else 1
            found *= gcd(axis.extent, max(1, inside))
            if inside < axis.extent:
                break
        return found

    def run(self, pointer: SSAValue, mask: SSAValue | None, dim: int) -> int:
        """Return how many neighbours along `dim` one access may move (1, 2, 4 .. 16), however
        registers hold them.
        """
        run = self.of(pointer)[dim]
        limit = run.contiguity
        if mask is not None and shape_of(mask.type):
            limit = gcd(limit, self.of(mask)[dim].constancy)
        return next(
            width
            for width in (16, 8, 4, 2, 1)
            if limit % width == 0 and run.starts(width) % width == 0
        )

    def of(self, value: SSAValue) -> Regularity:
        """Return the regularity of a scalar or tensor."""
        if value not in self._known:
            self._known[value] = _promised(value, self._compute(value))
        return self._known[value]

    def _compute(self, value: SSAValue) -> Regularity:
        rank = len(shape_of(value.type))
        if isinstance(value, BlockArgument):
            return self._argument(value, rank)
        match value.owner:
            case tile.Constant() as op:
                return uniform(_magnitude(op.value), shape_of(value.type))
            case tile.Splat() as op:
                return uniform(self.of(op.value)[0].divisibility, shape_of(value.type))
            case tile.Arange() as op:
                start = abs(op.start.data) or UNBOUNDED
                return (Run(shape_of(value.type)[0], start, 1),)
            case tile.ExpandDims() as op:
                inner = self.of(op.value)
                axis = op.axis.data
                divides = gcd(*(run.every() for run in inner))
                return (*inner[:axis], Run(1, divides, 1), *inner[axis:])
            case tile.Broadcast() as op:
                return broadcast(self.of(op.value), shape_of(op.value.type), shape_of(value.type))
            case tile.Transpose() as op:
                inner = self.of(op.value)
                return tuple(inner[item.data] for item in op.permutation)
            case tile.Cast() as op if not (_counts(op.value.type) and _counts(value.type)):
                return of_any_function(self.of(op.value))
            case tile.Cast() | hopper.ConvertLayout() as op:
                return self.of(op.value)
            case tile.Bitcast() as op if _strides(op.value) == _strides(value) > 0:
                return self.of(op.value)
            case hopper.SharedLoad() as op if (stored := _exchanged(op)) is not None:
                return self.of(stored)
            case tile.PtrAdd() as op:
                return total(self.of(op.pointer), self.of(op.offset))
            case tile.Elementwise() as op:
                return self._elementwise(op)
            case scf.ForOp() as op:
                return self.of(op.body.block.args[list(op.results).index(value) + 1])  # pyright: ignore
            case scf.IfOp() as op:
                place = list(op.results).index(value)  # pyright: ignore[reportArgumentType]
                return meet(*(self.of(yielded(side.block, place)) for side in op.regions))
            case _:
                return nothing(rank)

    def _elementwise(self, op: tile.Elementwise) -> Regularity:
        parts = [self.of(value) for value in op.inputs]
        match op.function.data:
            case "add" | "sub" | "mul" | "irem" | "idiv" if not _counts(op.results[0].type):
                return of_any_function(*parts)  # what floats are rounded to is no number's multiple
            case "irem" | "idiv" if self._truncates(op.inputs[0]):
                return of_any_function(*parts)
            case "add":
                return total(*parts)
            case "sub":
                return difference(*parts)
            case "mul":
                return product(*parts)
            case "irem":
                return remainder(*parts)
            case "idiv" | "lt" | "ge":
                return told_by_blocks(*parts)
            case "gt" | "le":
                return told_by_blocks(parts[1], parts[0])
            case "min" | "max":
                return extremum(*parts)
            case "select":
                both = meet(parts[1], parts[2])
                return chosen(parts[0], both) if shape_of(op.inputs[0].type) else both
            case _:
                return of_any_function(*parts)

    def _truncates(self, dividend: SSAValue) -> bool:
        """Tell whether quotients may be cut towards zero from below: blocks begin elsewhere."""
        kind = element_type(dividend.type)
        return is_signed(kind) and not range_of(dividend, self._ranges).is_natural

    # --- arguments ----------------------------------------------------------------------------

    def _argument(self, value: BlockArgument, rank: int) -> Regularity:
        parent = value.owner.parent_op()
        match parent:
            case tile.Kernel():
                return (Run(1, _fact(value), 1),)
            case scf.ForOp() if value.index == 0:
                start, step = self.of(parent.lb)[0], self.of(parent.step)[0]
                return (Run(1, gcd(start.divisibility, step.divisibility), 1),)
            case scf.ForOp():
                return self._carried(value, parent, rank)
            case _:
                return nothing(rank)

    def _carried(self, value: BlockArgument, loop: scf.ForOp, rank: int) -> Regularity:
        """Find what holds before and after every iteration, starting from what holds at first."""
        place = value.index - 1
        guess = self.of(loop.iter_args[place])
        back = yielded(loop.body.block, place)
        for _ in range(_ROUNDS):
            trial = Contiguity()
            trial._known = {**self._known, value: guess}
            trial._ranges = self._ranges
            weaker = meet(guess, trial.of(back))
            if weaker == guess:
                return guess
            guess = weaker
        return nothing(rank)


def _exchanged(load: hopper.SharedLoad) -> SSAValue | None:
    """Return the tensor that a load reads back from scratch memory, through which it went from
    thread to thread.
    """
    users = [use.operation for use in load.view.uses]
    others = [user for user in users if not isinstance(user, hopper.SharedLoad)]
    store = others[0] if len(others) == 1 else None
    if not isinstance(store, hopper.SharedStore):
        return None
    return store.value if shape_of(store.value.type) == shape_of(load.result.type) else None


def _strides(value: SSAValue) -> int:
    """Return the bytes from a pointer to the next element; 0 of what is no pointer."""
    kind = element_type(value.type)
    return max(8, bit_width(kind.element)) // 8 if isinstance(kind, PtrType) else 0


def _within(axes: tuple[Axis, ...], dim: int, block: int) -> bool:
    """Tell whether aligned blocks of `block` elements along `dim` are told apart by the steps that
    are multiples of it alone: the others add up to less.
    """
    small = [(axis.extent, abs(axis.step[dim])) for axis in axes if axis.step[dim] % block]
    rest = sum((min(extent, -(-block // step)) - 1) * step for extent, step in small)
    return rest < block and all(block % step == 0 for _, step in small)


def _fact(value: BlockArgument) -> int:
    """Return what the specialization key promises of an argument, in elements for a pointer."""
    known, size = divisor(value), _strides(value)
    return max(1, known // size) if size else known


def _promised(value: SSAValue, found: Regularity) -> Regularity:
    """Return what is found out together with what the author promises."""
    owner = value.owner
    if not isinstance(owner, Operation) or not any(name in owner.attributes for name in HINTS):
        return found
    multiples, runs, equals = (
        promised_numbers(owner.attributes.get(name), len(found)) for name in HINTS
    )
    kind = element_type(value.type)
    size = max(1, bit_width(kind.element) // 8) if isinstance(kind, PtrType) else 1
    return tuple(
        Run(
            max(run.contiguity, contiguity),
            # Of addresses it is bytes that are multiples.
            lcm(run.divisibility, multiple // size if multiple % size == 0 else 1),
            max(run.constancy, constancy),
        )
        for run, multiple, contiguity, constancy in zip(found, multiples, runs, equals)
    )


def promised_numbers(hint: Attribute | None, rank: int) -> list[int]:
    """Return a promise's numbers, one for each of `rank` dimensions; ones where there is none."""
    if not isinstance(hint, ArrayAttr):
        return [1] * rank
    items: list[Any] = list(hint.data)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    numbers = [int(item.data) for item in items]
    return numbers if len(numbers) == rank else [1] * rank


def _magnitude(value: Attribute) -> int:
    """Return what divides a constant; anything divides zero."""
    match value:
        case IntAttr(data=int() as number):
            return abs(number) or UNBOUNDED
        case _:
            return 1


def _counts(kind: Attribute) -> bool:
    """Tell whether elements are integers, or addresses; a truth value does not count."""
    kind = element_type(kind)
    wide = bit_width(kind) > 1
    return wide and isinstance(kind, (IntegerType, PtrType))


# --- regularity along a dimension -----------------------------------------------------------------


UNBOUNDED = 1 << 30
"""The divisibility of zero."""


@dataclass(frozen=True, slots=True)
class Run:
    """The regularity along one dimension."""

    contiguity: int
    divisibility: int
    constancy: int

    def every(self) -> int:
        """Return what divides every value, not only the first of each block."""
        return self.divisibility if self.contiguity == 1 else 1

    def starts(self, block: int) -> int:
        """Return what divides the first value of every aligned block of `block` elements."""
        return self.divisibility if block >= self.contiguity else gcd(self.divisibility, block)


Regularity = tuple[Run, ...]
"""One `Run` for each dimension; a scalar has one, as if it had a dimension of extent 1."""


def nothing(rank: int) -> Regularity:
    """Return what holds of any tensor."""
    return (Run(1, 1, 1),) * max(1, rank)


def uniform(divisibility: int, shape: tuple[int, ...]) -> Regularity:
    """Return what holds of a tensor of equal numbers."""
    return tuple(Run(1, divisibility, extent) for extent in shape) or (Run(1, divisibility, 1),)


def meet(one: Regularity, other: Regularity) -> Regularity:
    """Return what holds of both."""
    return tuple(
        Run(
            block := gcd(a.contiguity, b.contiguity),
            gcd(a.starts(block), b.starts(block)),
            gcd(a.constancy, b.constancy),
        )
        for a, b in zip(one, other)
    )


def of_any_function(*parts: Regularity) -> Regularity:
    """Return what holds of any function of some values: equal where all of them are."""
    return tuple(Run(1, 1, gcd(*(run.constancy for run in runs))) for runs in zip(*parts))


def broadcast(inner: Regularity, source: tuple[int, ...], target: tuple[int, ...]) -> Regularity:
    """Return what holds where dimensions of extent 1 are repeated."""
    return tuple(
        Run(1, run.divisibility, new) if old != new else run
        for run, old, new in zip(inner, source, target)
    )


def total(left: Regularity, right: Regularity) -> Regularity:
    """Return what holds of sums."""
    runs: list[Run] = []
    for a, b in zip(left, right):
        block = max(gcd(a.contiguity, b.constancy), gcd(a.constancy, b.contiguity))
        divides = gcd(a.starts(block), b.starts(block))
        runs.append(Run(block, divides, gcd(a.constancy, b.constancy)))
    return tuple(runs)


def difference(left: Regularity, right: Regularity) -> Regularity:
    """Return what holds of left - right."""
    runs: list[Run] = []
    for a, b in zip(left, right):
        block = gcd(a.contiguity, b.constancy)
        runs.append(Run(block, gcd(a.starts(block), b.every()), gcd(a.constancy, b.constancy)))
    return tuple(runs)


def product(left: Regularity, right: Regularity) -> Regularity:
    """Return what holds of products."""
    return tuple(
        Run(1, _capped(a.every() * b.every()), gcd(a.constancy, b.constancy))
        for a, b in zip(left, right)
    )


def _capped(divisor: int) -> int:
    """Return the largest divisor known of what `divisor` divides, also where numbers wrap."""
    return gcd(divisor, UNBOUNDED) if divisor > UNBOUNDED else divisor


def extremum(left: Regularity, right: Regularity) -> Regularity:
    """Return what holds of the smaller, or the larger, of two values."""
    return tuple(
        Run(1, gcd(a.every(), b.every()), gcd(a.constancy, b.constancy))
        for a, b in zip(left, right)
    )


def remainder(left: Regularity, right: Regularity) -> Regularity:
    """Return what holds of left % right, not negative: blocks that start at a multiple of their
    size do not wrap at a multiple of it.
    """
    runs: list[Run] = []
    for a, b in zip(left, right):
        block = _inside(a, b)
        divides = gcd(a.starts(block), b.every())
        runs.append(Run(block, divides, gcd(a.constancy, b.constancy)))
    return tuple(runs)


def told_by_blocks(left: Regularity, right: Regularity) -> Regularity:
    """Return what holds of left // right, not negative, and of left < right: a block of left that
    starts at a multiple of its size has one answer, where right is such a multiple too.
    """
    return tuple(
        Run(1, 1, max(_inside(a, b), gcd(a.constancy, b.constancy))) for a, b in zip(left, right)
    )


def _inside(a: Run, b: Run) -> int:
    """Return the size of blocks that rise in `a`, between two multiples of their size, over one
    value of `b` that is such a multiple.
    """
    return gcd(a.contiguity, b.constancy, a.divisibility, b.every())


def chosen(condition: Regularity, both: Regularity) -> Regularity:
    """Return what holds where conditions choose between values of which `both` holds."""
    runs: list[Run] = []
    for c, b in zip(condition, both):
        block = gcd(b.contiguity, c.constancy)
        runs.append(Run(block, b.starts(block), gcd(b.constancy, c.constancy)))
    return tuple(runs)
