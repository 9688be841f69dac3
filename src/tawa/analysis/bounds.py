"""Which elements of a tile a mask lets through, where it is a conjunction of bounds of dimensions.

``(row + i < M) & (row + i >= 0)`` lets the elements i of a dimension through from ``-row`` on and
before ``M - row``, however the comparisons are written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from xdsl.dialects.builtin import IntAttr
from xdsl.ir import SSAValue

from tawa.analysis.index import IndexForm, moved
from tawa.analysis.polynomial import ONE, Polynomial
from tawa.analysis.remember import remembered
from tawa.analysis.rows import upper_bound
from tawa.ir import tile

_DOWN = Polynomial.constant(-1)

Comparisons: TypeAlias = dict[tuple[IndexForm, IndexForm], None]
"""Pairs of which the first is below the second, in the order of the program, each of them once."""


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
    comparisons = _comparisons(mask, {})
    if comparisons is None:
        return Refusal("the mask is not a conjunction of bounds")
    bounds: dict[int, Bounds] = {}
    for small, large in comparisons:
        if (found := _bound(small, large)) is None:
            return Refusal("a bound of the mask does not follow one dimension of the tile")
        dim, bound = found
        if bound.let_through(shape[dim]):
            continue
        if (both := bounds.get(dim, Bounds()).and_also(bound)) is None:
            return Refusal(f"the mask bounds dimension {dim} twice")
        bounds[dim] = both
    return bounds


@remembered
def _comparisons(mask: SSAValue, known: dict[SSAValue, Comparisons | None]) -> Comparisons | None:
    """Return the comparisons whose conjunction a mask is, in its dimensions."""
    found: Comparisons = {}
    match mask.owner:
        case tile.Constant(value=IntAttr(data=1)):
            return found
        case tile.Elementwise() as op if op.function.data == "and":
            for item in op.inputs:
                if (inner := _comparisons(item, known)) is None:
                    return None
                found |= inner
            return found
        case tile.Broadcast() | tile.ExpandDims() | tile.Transpose() as op:
            if (inner := _comparisons(op.value, known)) is None:
                return None
            for small, large in inner:
                low, high = moved(op, small), moved(op, large)
                if low is None or high is None:
                    return None
                found[low, high] = None
            return found
        case _:
            compared = upper_bound(mask)
            return None if compared is None else {compared: None}


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
