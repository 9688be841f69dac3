"""Where a mask is the same for a whole tile: conditions on scalars, from the extremes of indices.

A mask compares index tensors (``rows[:, None] >= columns[None, :]``). Each runs from a least to a
greatest value, affine in the scalars of the kernel; when the least of one side is no smaller than
the greatest of the other, the mask holds everywhere. Index arithmetic is taken not to overflow, as
in `tawa.analysis.polynomial`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from xdsl.dialects.builtin import IntAttr, IntegerType
from xdsl.ir import BlockArgument, SSAValue

from tawa.analysis.polynomial import Leaf, Polynomial, keeps_number, keeps_sum, polynomial
from tawa.analysis.remember import remembered
from tawa.ir import tile
from tawa.ir.functions import OPPOSITE
from tawa.ir.types import element_type, is_signed, shape_of


@dataclass(frozen=True, slots=True)
class NotNegative:
    """A polynomial of scalars that stand in the kernel is at least 0."""

    form: Polynomial


@dataclass(frozen=True, slots=True)
class Holds:
    """A scalar truth value is `truth`."""

    value: SSAValue
    truth: bool


@dataclass(frozen=True, slots=True)
class Every:
    """All of some conditions hold."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """At least one of some conditions holds."""

    parts: tuple[Condition, ...]


Condition: TypeAlias = NotNegative | Holds | Every | Either


@dataclass(frozen=True, slots=True)
class Extremes:
    """The least and the greatest element of an integer tensor."""

    least: Polynomial
    greatest: Polynomial

    def plus(self, other: Extremes) -> Extremes:
        """Return the extremes of a sum; of one index counted twice they are further out."""
        return Extremes(self.least + other.least, self.greatest + other.greatest)

    def times(self, factor: int) -> Extremes:
        """Return the extremes of a multiple."""
        ends = self.least.scaled(factor), self.greatest.scaled(factor)
        return Extremes(*(ends if factor >= 0 else ends[::-1]))


_MOST_PARTS = 64
_SUMS = frozenset({"add", "sub", "neg", "mul"})
_Known: TypeAlias = dict[SSAValue, Extremes | None]


def extremes(value: SSAValue) -> Extremes | None:
    """Return the extremes of an integer tensor or scalar, None where no rule gives them."""
    return _extremes(value, {})


@remembered
def _extremes(value: SSAValue, known: _Known) -> Extremes | None:
    if not isinstance(element_type(value.type), IntegerType):
        return None
    if not shape_of(value.type):
        form = _of_values(value)
        return Extremes(form, form)
    match value.owner:
        case tile.Constant(value=IntAttr() as number):
            return Extremes(*(Polynomial.constant(number.data),) * 2)
        case tile.Arange(start=IntAttr() as start) as op:
            last = start.data + shape_of(op.result.type)[0] - 1
            return Extremes(Polynomial.constant(start.data), Polynomial.constant(last))
        case tile.Splat() | tile.ExpandDims() | tile.Broadcast() | tile.Reshape() as op:
            return _extremes(op.value, known)
        case tile.Transpose() as op:
            return _extremes(op.value, known)
        case tile.Cast() as op if keeps_number(op):
            return _extremes(op.value, known)
        case tile.Elementwise() as op if op.function.data in _SUMS and keeps_sum(op):
            return _combined(op, known)
        case _:
            return None


def _combined(op: tile.Elementwise, known: _Known) -> Extremes | None:
    parts = [_extremes(item, known) for item in op.inputs]
    match op.function.data, parts:
        case "add", [Extremes() as a, Extremes() as b]:
            return a.plus(b)
        case "sub", [Extremes() as a, Extremes() as b]:
            return a.plus(b.times(-1))
        case "neg", [Extremes() as a]:
            return a.times(-1)
        case "mul", [Extremes() as a, Extremes() as b]:
            for one, other in ((a, b), (b, a)):
                if one.least == one.greatest and (factor := one.least.as_constant) is not None:
                    return other.times(factor)
            return None
        case _:
            return None


def _of_values(value: SSAValue) -> Polynomial:
    """Return a scalar as a polynomial in which what loops count and carry are values, not trips."""
    known: dict[SSAValue, Polynomial] = {}
    block = value.owner if isinstance(value, BlockArgument) else value.owner.parent_block()
    while block is not None:
        known |= {argument: Polynomial.atom(Leaf(argument)) for argument in block.args}
        block = block.parent_block()
    return polynomial(value, known)


def uniform_when(mask: SSAValue, truth: bool) -> Condition | None:
    """Return when every element of a mask surely is `truth`, None where nothing is known.

    The condition is sufficient: the mask may be `truth` everywhere without it. Nothing is said of
    masks of many parts: a part that is used twice is asked twice.
    """
    return _uniform_when(mask, truth) if _parts(mask, {}) <= _MOST_PARTS else None


@remembered
def _parts(mask: SSAValue, known: dict[SSAValue, int]) -> int:
    """Return how many comparisons a mask has when it is written out."""
    match mask.owner:
        case tile.Splat() | tile.ExpandDims() | tile.Broadcast() | tile.Reshape() as op:
            return _parts(op.value, known)
        case tile.Elementwise() as op if op.function.data in ("and", "or"):
            return sum(_parts(item, known) for item in op.inputs)
        case tile.Transpose() as op:
            return _parts(op.value, known)
        case _:
            return 1


def _uniform_when(mask: SSAValue, truth: bool) -> Condition | None:
    if not shape_of(mask.type):
        return Holds(mask, truth)
    match mask.owner:
        case tile.Splat() | tile.ExpandDims() | tile.Broadcast() | tile.Reshape() as op:
            return _uniform_when(op.value, truth)
        case tile.Transpose() as op:
            return _uniform_when(op.value, truth)
        case tile.Elementwise() as op if op.function.data in ("and", "or"):
            parts = [_uniform_when(item, truth) for item in op.inputs]
            known = tuple(part for part in parts if part is not None)
            if (op.function.data == "and") is truth:
                return Every(known) if len(known) == len(parts) else None
            return Either(known) if known else None
        case tile.Elementwise() as op:
            return _compared(op, truth)
        case _:
            return None


# a OP b, as (which side is the larger, how much larger it has to be).
_ORDER = {"ge": (0, 0), "gt": (0, 1), "le": (1, 0), "lt": (1, 1)}


def _compared(op: tile.Elementwise, truth: bool) -> Condition | None:
    function = op.function.data
    if function not in _ORDER:
        return None
    kind = element_type(op.inputs[0].type)
    if not is_signed(kind):
        return None
    place, more = _ORDER[function if truth else OPPOSITE[function]]
    large, small = extremes(op.inputs[place]), extremes(op.inputs[1 - place])
    if large is None or small is None:
        return None
    return NotNegative(large.least - small.greatest - Polynomial.constant(more))
