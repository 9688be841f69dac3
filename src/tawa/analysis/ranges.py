"""Between which numbers an integer lies, in every program and every trip.

Index arithmetic is taken not to overflow, as everywhere in the tile language.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from xdsl.dialects import scf
from xdsl.dialects.builtin import IntAttr, IntegerType
from xdsl.ir import Attribute, BlockArgument, SSAValue

from tawa.analysis.polynomial import keeps_number
from tawa.ir import hopper, tile
from tawa.ir.types import bit_width, element_type, is_signed, shape_of

_DEPTH = 32
_COMBINED = frozenset({"add", "sub", "mul", "idiv", "irem", "min", "max", "select"})


@dataclass(frozen=True, slots=True)
class Range:
    """The least and the greatest number, both included; None where there is no bound known.

    `reach` is how far from 0 a number may lie that has no bound: programs and trips are counted to
    65,536, and what is computed from them may wrap where that does not fit the type.
    """

    low: int | None = None
    high: int | None = None
    reach: int = field(default=1 << 16, compare=False)

    @property
    def size(self) -> int:
        """How far from 0 the number may lie."""
        known = [abs(bound) for bound in (self.low, self.high) if bound is not None]
        return max(known) if len(known) == 2 else max(self.reach, *known, 0)

    @property
    def is_natural(self) -> bool:
        """Whether no number is negative."""
        return self.low is not None and self.low >= 0


ANY = Range()

_Known: TypeAlias = dict[SSAValue, tuple[int, Range]]
"""Ranges found during one question, with how deep the search for each went."""


def range_of(value: SSAValue) -> Range:
    """Return the range of an integer, or of all elements of a tensor of integers."""
    return _range_of(value, _DEPTH, {})


def _range_of(value: SSAValue, depth: int, known: _Known) -> Range:
    """Return the range by at most `depth` operations in a row, each value once a depth at most."""
    kind = element_type(value.type)
    if depth == 0 or not _is_integer(kind):
        return ANY
    if (found := known.get(value)) is None or found[0] < depth:
        found = known[value] = depth, _held(_range(value, depth - 1, known), kind)
    return found[1]


def _is_integer(kind: Attribute) -> bool:
    return isinstance(kind, IntegerType)


def _held(found: Range, kind: Attribute) -> Range:
    """Return what is left of a range in a type: where a bound passes the type, the number wraps."""
    bits = bit_width(kind)
    if not is_signed(kind):
        whole = Range(0, (1 << bits) - 1)
        fits = found.is_natural and found.high is not None and found.high <= (whole.high or 0)
        return found if fits else whole
    return ANY if found.size >= 1 << (bits - 1) else found


def _range(value: SSAValue, depth: int, known: _Known) -> Range:
    if isinstance(value, BlockArgument):
        return _counter(value, depth, known)
    match value.owner:
        case tile.Constant(value=IntAttr() as number):
            return Range(number.data, number.data)
        case tile.Arange() as op:
            return Range(op.start.data, op.start.data + shape_of(value.type)[0] - 1)
        case tile.ProgramId() | hopper.GridExtent():
            return Range(0)
        case tile.NumPrograms():
            return Range(1)
        case (
            tile.Splat() | tile.Broadcast() | tile.ExpandDims() | tile.Transpose() | tile.Reshape()
        ) as op:
            return _range_of(op.operands[0], depth, known)
        case tile.Cast() as op if keeps_number(op):
            return _range_of(op.value, depth, known)
        case tile.Elementwise() as op:
            return _combined(op, depth, known)
        case _:
            return ANY


def _counter(value: BlockArgument, depth: int, known: _Known) -> Range:
    """Return the range of what counts a loop's trips."""
    loop = value.block.parent_op()
    if not isinstance(loop, scf.ForOp) or value.index:
        return ANY
    step = _range_of(loop.step, depth, known).low
    if step is None or step <= 0:
        return ANY
    high = _range_of(loop.ub, depth, known).high
    return Range(_range_of(loop.lb, depth, known).low, None if high is None else high - 1)


def _combined(op: tile.Elementwise, depth: int, known: _Known) -> Range:
    if op.function.data not in _COMBINED:
        return ANY
    parts = [_range_of(item, depth, known) for item in op.inputs]
    match op.function.data, parts:
        case "add", [a, b]:
            return Range(_sum(a.low, b.low), _sum(a.high, b.high), a.size + b.size)
        case "sub", [a, b]:
            low, high = _sum(a.low, _minus(b.high)), _sum(a.high, _minus(b.low))
            return Range(low, high, a.size + b.size)
        case "mul", [a, b]:
            return _product(a, b)
        case "idiv", [a, b] if a.is_natural and b.low is not None and b.low > 0:
            assert a.low is not None, "a natural number has a bound"
            least = 0 if b.high is None else a.low // b.high
            return Range(least, None if a.high is None else a.high // b.low, a.size // b.low)
        case "irem", [a, b] if a.is_natural and b.low is not None and b.low > 0:
            highs = [bound for bound in (a.high, _sum(b.high, -1)) if bound is not None]
            return Range(0, min(highs, default=None), a.size)
        case "min", [a, b]:
            highs = [bound for bound in (a.high, b.high) if bound is not None]
            low = None if a.low is None or b.low is None else min(a.low, b.low)
            return Range(low, min(highs, default=None), max(a.size, b.size))
        case "max", [a, b]:
            lows = [bound for bound in (a.low, b.low) if bound is not None]
            high = None if a.high is None or b.high is None else max(a.high, b.high)
            return Range(max(lows, default=None), high, max(a.size, b.size))
        case "select", [_, a, b]:
            low = None if a.low is None or b.low is None else min(a.low, b.low)
            high = None if a.high is None or b.high is None else max(a.high, b.high)
            return Range(low, high, max(a.size, b.size))
        case _:
            return ANY


def _sum(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def _minus(a: int | None) -> int | None:
    return None if a is None else -a


def _product(a: Range, b: Range) -> Range:
    """Return the range of a product: of natural numbers, or where all four bounds are known."""
    if a.is_natural and b.is_natural:
        assert a.low is not None, "a natural number has a bound"
        assert b.low is not None, "a natural number has a bound"
        high = None if a.high is None or b.high is None else a.high * b.high
        return Range(a.low * b.low, high, a.size * b.size)
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return ANY
    corners = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
    return Range(min(corners), max(corners))


def compare(function: str, a: Range, b: Range) -> bool | None:
    """Return what a comparison (lt, le, gt, ge) of numbers of two ranges is, None if it depends."""
    match function:
        case "gt" | "ge":
            return compare({"gt": "lt", "ge": "le"}[function], b, a)
        case "lt" | "le":
            strict = function == "lt"
            if a.high is not None and b.low is not None and a.high + strict <= b.low:
                return True
            if a.low is not None and b.high is not None and a.low + strict > b.high:
                return False
            return None
        case _:
            return None
