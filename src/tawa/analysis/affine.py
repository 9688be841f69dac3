"""Affine forms of integers, and proofs that two accesses never touch the same element.

A scalar is a constant plus a sum of coefficient times symbol; symbols are the values no rule takes
apart: arguments, program ids, loop variables, anything read from memory. Coordinates are far below
2^31, so that no overflow is assumed (a coordinate that wrapped would be outside every tensor);
`tawa.analysis.polynomial` says of which arithmetic.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from xdsl.dialects import scf
from xdsl.dialects.builtin import IntAttr
from xdsl.ir import BlockArgument, Operation, SSAValue

from tawa.analysis.polynomial import keeps_number, keeps_sum
from tawa.analysis.remember import remembered
from tawa.ir import tile
from tawa.ir.types import is_float, shape_of


@dataclass(frozen=True, slots=True)
class Affine:
    """`constant` + the sum of coefficient * symbol over `terms` (no coefficient is 0)."""

    constant: int
    terms: tuple[tuple[SSAValue, int], ...] = ()

    def __add__(self, other: Affine) -> Affine:
        total = dict(self.terms)
        for symbol, coefficient in other.terms:
            total[symbol] = total.get(symbol, 0) + coefficient
        terms = tuple((symbol, factor) for symbol, factor in total.items() if factor)
        return Affine(self.constant + other.constant, terms)

    def __mul__(self, factor: int) -> Affine:
        if factor == 0:
            return Affine(0)
        terms = tuple((symbol, coefficient * factor) for symbol, coefficient in self.terms)
        return Affine(self.constant * factor, terms)

    def __sub__(self, other: Affine) -> Affine:
        return self + other * -1

    @property
    def known(self) -> int | None:
        """The number, when there is no symbol."""
        return None if self.terms else self.constant


_Known: TypeAlias = dict[SSAValue, Affine]


def affine_of(value: SSAValue) -> Affine:
    """Return the affine form of an integer scalar; at worst the value itself as a symbol."""
    return _affine(value, {})


@remembered
def _affine(value: SSAValue, known: _Known) -> Affine:
    owner = value.owner
    if shape_of(value.type) or is_float(value.type):
        return Affine(0, ((value, 1),))
    match owner:
        case tile.Constant(value=IntAttr() as number):
            return Affine(number.data)
        case tile.Cast() if keeps_number(owner):
            return _affine(owner.value, known)
        case tile.Elementwise() if keeps_sum(owner):
            return _affine_elementwise(owner, known)
        case _:
            return Affine(0, ((value, 1),))


def _affine_elementwise(operation: tile.Elementwise, known: _Known) -> Affine:
    symbol = Affine(0, ((operation.result, 1),))
    inputs = list(operation.inputs)
    match operation.function.data:
        case "add":
            return _affine(inputs[0], known) + _affine(inputs[1], known)
        case "sub":
            return _affine(inputs[0], known) - _affine(inputs[1], known)
        case "neg":
            return _affine(inputs[0], known) * -1
        case "mul":
            a, b = _affine(inputs[0], known), _affine(inputs[1], known)
            if b.known is not None:
                return a * b.known
            return b * a.known if a.known is not None else symbol
        case "shl":
            bits = _affine(inputs[1], known).known
            return _affine(inputs[0], known) * (1 << bits) if bits is not None else symbol
        case _:
            return symbol


def trip_count(loop: scf.ForOp) -> int | None:
    """Return how often a loop runs, when its bounds differ by a known number."""
    span = (affine_of(loop.ub) - affine_of(loop.lb)).known
    step = affine_of(loop.step).known
    if span is None or step is None or step <= 0:
        return None
    return max(0, -(-span // step))


Range = tuple[int, int]
"""The least and the greatest value, both included."""


def _range_of(symbol: SSAValue) -> Range | None:
    """Return the range of a loop variable with known bounds."""
    if not isinstance(symbol, BlockArgument) or symbol.index != 0:
        return None
    loop = symbol.owner.parent_op()
    if not isinstance(loop, scf.ForOp):
        return None
    first, count = affine_of(loop.lb).known, trip_count(loop)
    step = affine_of(loop.step).known
    if first is None or count is None or step is None or count == 0:
        return None
    return first, first + (count - 1) * step


def _bounds(form: Affine) -> Range | None:
    low = high = form.constant
    for symbol, factor in form.terms:
        if (span := _range_of(symbol)) is None:
            return None
        ends = (span[0] * factor, span[1] * factor)
        low, high = low + min(ends), high + max(ends)
    return low, high


def _varies_in(symbol: SSAValue, loops: Collection[Operation]) -> bool:
    """Tell whether a symbol may differ between two trips of one of `loops`."""
    return any(loop.is_ancestor(symbol.owner) for loop in loops)


def difference(a: Affine, b: Affine, loops: Collection[Operation]) -> Range | None:
    """Return the range of `a - b` where the two stand in any trips of the common `loops`.

    Symbols that do not change in those loops cancel; the others stand for two unrelated values.
    """
    fixed = {
        form: Affine(form.constant, tuple(t for t in form.terms if not _varies_in(t[0], loops)))
        for form in (a, b)
    }
    moving = {form: form - fixed[form] for form in (a, b)}
    steady = (fixed[a] - fixed[b]).known
    first, second = _bounds(moving[a]), _bounds(moving[b])
    if steady is None or first is None or second is None:
        return None
    return steady + first[0] - second[1], steady + first[1] - second[0]


@dataclass(frozen=True, slots=True)
class Box:
    """A block of a tensor: an affine offset and an extent along each dimension, in elements."""

    offsets: tuple[Affine, ...]
    extents: tuple[int, ...]


def disjoint(a: Box, b: Box, loops: Collection[Operation]) -> bool:
    """Tell whether two blocks of one tensor never share an element, in any trips of `loops`."""
    for mine, theirs, width_a, width_b in zip(a.offsets, b.offsets, a.extents, b.extents):
        span = difference(mine, theirs, loops)
        if span is not None and (span[0] >= width_b or span[1] <= -width_a):
            return True
    return False


def disjoint_in_other_trips(a: Box, b: Box, loops: Sequence[Operation]) -> bool:
    """Tell whether two blocks of one tensor never share an element where the two stand in unlike
    trips of at least one of `loops`, innermost first.
    """
    return disjoint(a, b, loops) or all(
        _parted_by(a, b, loop, loops[:place]) for place, loop in enumerate(loops)
    )


def _parted_by(a: Box, b: Box, loop: Operation, inside: Sequence[Operation]) -> bool:
    """Tell whether blocks in unlike trips of a loop, in any of those `inside`, are disjoint: where
    a trip moves both by as much as they are wide.
    """
    if not isinstance(loop, scf.ForOp):
        return False
    counter, step = loop.body.block.args[0], affine_of(loop.step).known
    for mine, theirs, width_a, width_b in zip(a.offsets, b.offsets, a.extents, b.extents):
        factor = dict(mine.terms).get(counter, 0)
        if factor != dict(theirs.terms).get(counter, 0):
            continue
        moved = Affine(0, ((counter, factor),) * bool(factor))
        span = difference(mine - moved, theirs - moved, (loop, *inside))
        by = abs(factor) * (1 if step is None else step)
        if span is not None and span[0] + by >= width_b and span[1] - by <= -width_a:
            return True
    return False
