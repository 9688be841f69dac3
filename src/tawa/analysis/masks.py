"""What masks let through, and what elements of a tile can reach.

Row dependence: which stores an element of a tile can reach, and under which mask.

A wrapped index, ``(start + i) % M``, makes rows past M repeat earlier rows. Reading zeros there
instead is the same program if those rows only ever reach stores whose mask refuses them: the value
of row i must flow only into row i, through element-wise statements, one side of a dot, loops and
reductions along other dimensions, and end in stores masked by ``start + i < M``, or in atomics
masked so whose result nobody uses.

Which elements of a tile a mask lets through, where it is a conjunction of bounds of dimensions.

``(row + i < M) & (row + i >= 0)`` lets the elements i of a dimension through from ``-row`` on and
before ``M - row``, however the comparisons are written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from xdsl.dialects import scf
from xdsl.dialects.builtin import IntAttr
from xdsl.ir import SSAValue

from tawa.analysis.index import IndexForm, index_form, is_invariant, moved
from tawa.analysis.polynomial import ONE, Polynomial
from tawa.analysis.ranges import remembered
from tawa.ir import tile
from tawa.ir.types import shape_of


def conjuncts(mask: SSAValue) -> list[SSAValue]:
    """Return the comparisons whose conjunction `mask` is, through broadcasts, each of them once."""
    return list(_conjuncts(mask, {}))


@remembered
def _conjuncts(mask: SSAValue, known: dict[SSAValue, dict[SSAValue, None]]) -> dict[SSAValue, None]:
    match mask.owner:
        case tile.Elementwise() as op if op.function.data == "and":
            return {part: None for item in op.inputs for part in _conjuncts(item, known)}
        case tile.Broadcast() | tile.ExpandDims() as op:
            inner = _conjuncts(op.value, known)
            return inner if len(inner) > 1 else {mask: None}
        case _:
            return {mask: None}


def _one_like(form: IndexForm) -> IndexForm:
    return IndexForm(Polynomial.constant(1), tuple(Polynomial.constant(0) for _ in form.steps))


def reaches_only_masked_stores(
    value: SSAValue, dim: int, start: Polynomial, bound: Polynomial
) -> bool:
    """Tell whether rows i of dimension `dim` with start + i >= bound reach no store."""
    return _Walk(start, bound).follow(value, dim)


class _Walk:
    """The forward walk; `seen` makes loops finite."""

    def __init__(self, start: Polynomial, bound: Polynomial) -> None:
        self.start = start
        self.bound = bound
        self.seen: set[tuple[SSAValue, int]] = set()

    def follow(self, value: SSAValue, dim: int) -> bool:
        if (value, dim) in self.seen:
            return True
        self.seen.add((value, dim))
        return all(self._use(use.operation, use.index, value, dim) for use in value.uses)

    def _use(self, op: object, index: int, value: SSAValue, dim: int) -> bool:
        match op:
            case tile.Elementwise() | tile.Cast() | tile.Bitcast():
                return self.follow(op.results[0], dim)
            case tile.ExpandDims():
                return self.follow(op.result, dim + (dim >= op.axis.data))
            case tile.Broadcast():
                return shape_of(value.type)[dim] > 1 and self.follow(op.result, dim)
            case tile.Transpose():
                order = [axis.data for axis in op.permutation]
                return self.follow(op.result, order.index(dim))
            case tile.Dot():
                return self._dot(op, index, dim)
            case tile.Reduce():
                axis = op.axis.data
                return dim != axis and all(self.follow(r, dim - (dim > axis)) for r in op.res)
            case scf.ForOp():
                place = index - 3
                return place >= 0 and self._loop(op, place, dim)
            case scf.YieldOp():
                return self._yield(op, index, dim)
            case tile.Store():
                return index != 0 and op.mask is not None and self._masked(op.mask, dim)
            case tile.Atomic() if op.result.first_use is None:
                return index != 0 and op.mask is not None and self._masked(op.mask, dim)
            case _:
                return False

    def _dot(self, op: tile.Dot, index: int, dim: int) -> bool:
        rank = len(shape_of(op.result.type))
        contracted = rank - 1 if index == 0 else rank - 2
        return (index == 2 or dim != contracted) and self.follow(op.result, dim)

    def _loop(self, op: scf.ForOp, place: int, dim: int) -> bool:
        inside = op.body.block.args[place + 1]
        return self.follow(inside, dim) and self.follow(op.results[place], dim)

    def _yield(self, op: scf.YieldOp, index: int, dim: int) -> bool:
        match op.parent_op():
            case scf.ForOp() as loop:
                # In another iteration `start` must still be the number the rows were read by.
                fixed = is_invariant(self.start, loop) and is_invariant(self.bound, loop)
                return fixed and self._loop(loop, index, dim)
            case scf.IfOp() as branch:
                return self.follow(branch.results[index], dim)
            case _:
                return False

    def _masked(self, mask: SSAValue, dim: int) -> bool:
        for low, high in filter(None, _comparisons(mask, {})):
            if low.single_dim == dim and high.is_scalar:
                slack = (self.bound - self.start) - (high.offset - low.offset)
                constant = slack.as_constant
                if constant is not None and constant >= 0:
                    return True
        return False


# --- bounds of dimensions -------------------------------------------------------------------------


_DOWN = Polynomial.constant(-1)

Comparison: TypeAlias = tuple[IndexForm, IndexForm]
Comparisons: TypeAlias = dict[Comparison | None, None]
"""Pairs of which the first is below the second, in the order of the program, each of them once;
None for what compares otherwise.
"""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an access stays a pointer access."""

    reason: str


@dataclass(frozen=True, slots=True)
class Bounds:
    """The elements i of a dimension that a mask lets through: first <= i < end (None: any)."""

    first: Polynomial | None = None
    end: Polynomial | None = None

    def and_also(self, other: Bounds) -> Bounds | None:
        """Return what both let through, None where one side has two bounds that are not alike."""
        pairs = (self.first, other.first), (self.end, other.end)
        if any(None not in pair and pair[0] != pair[1] for pair in pairs):
            return None
        first, end = (one if one is not None else two for one, two in pairs)
        return Bounds(first, end)

    def let_through(self, extent: int) -> bool:
        """Tell whether this surely lets all of so many elements through."""
        first = 0 if self.first is None else self.first.as_constant
        end = extent if self.end is None else self.end.as_constant
        return first is not None and first <= 0 and end is not None and end >= extent


def bounds_of(mask: SSAValue, shape: tuple[int, ...]) -> dict[int, Bounds] | Refusal:
    """Return what a mask says of each dimension that it bounds."""
    bounds: dict[int, Bounds] = {}
    for pair in _comparisons(mask, {}):
        if pair is None:
            return Refusal("the mask is not a conjunction of bounds")
        if (found := _bound(*pair)) is None:
            return Refusal("a bound of the mask does not follow one dimension of the tile")
        dim, bound = found
        if bound.let_through(shape[dim]):
            continue
        if (both := bounds.get(dim, Bounds()).and_also(bound)) is None:
            return Refusal(f"the mask bounds dimension {dim} twice")
        bounds[dim] = both
    return bounds


@remembered
def _comparisons(mask: SSAValue, known: dict[SSAValue, Comparisons]) -> Comparisons:
    """Return the comparisons whose conjunction a mask is, in its dimensions."""
    match mask.owner:
        case tile.Constant(value=IntAttr(data=1)):
            return {}
        case tile.Elementwise() as op if op.function.data == "and":
            return {pair: None for item in op.inputs for pair in _comparisons(item, known)}
        case tile.Broadcast() | tile.ExpandDims() | tile.Transpose() as op:
            return {_moved(op, pair): None for pair in _comparisons(op.value, known)}
        case tile.Elementwise() as op if op.function.data in ("lt", "gt", "le", "ge"):
            return {_compared(op): None}
        case _:
            return {None: None}


def _moved(
    op: tile.Broadcast | tile.ExpandDims | tile.Transpose, pair: Comparison | None
) -> Comparison | None:
    low, high = (moved(op, form) for form in pair or (None, None))
    return None if low is None or high is None else (low, high)


def _compared(op: tile.Elementwise) -> Comparison | None:
    left, right = (index_form(item) for item in op.inputs)
    if left is None or right is None:
        return None
    match op.function.data:
        case "lt":
            return left, right
        case "gt":
            return right, left
        case "le":
            return left, right.plus(_one_like(right))
        case _:
            return right, left.plus(_one_like(left))


def _bound(small: IndexForm, large: IndexForm) -> tuple[int, Bounds] | None:
    """Return the dimension that ``small < large`` bounds, and how, if it bounds one."""
    if any(form.wrapped or form.repeated for form in (small, large)):
        return None
    gap = large.plus(small.scaled(_DOWN))
    moving = [dim for dim, step in enumerate(gap.steps) if not step.is_zero]
    if len(moving) != 1:
        return None
    (dim,) = moving
    if gap.steps[dim] == ONE:
        return dim, Bounds(first=ONE - gap.offset)
    return (dim, Bounds(end=gap.offset)) if gap.steps[dim] == _DOWN else None
