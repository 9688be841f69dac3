"""Between which numbers an integer lies, in every program and every trip.

Index arithmetic is taken not to overflow, as everywhere in the tile language.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects import scf
from xdsl.dialects.builtin import IntAttr, IntegerType
from xdsl.ir import Attribute, BlockArgument, SSAValue

from tawa.analysis.polynomial import keeps_number
from tawa.ir import hopper, tile
from tawa.ir.types import bit_width, element_type, is_signed, shape_of

_DEPTH = 32


@dataclass(frozen=True, slots=True)
class Range:
    """The least and the greatest number, both included; None where there is no bound known."""

    low: int | None = None
    high: int | None = None

    @property
    def is_natural(self) -> bool:
        """Whether no number is negative."""
        return self.low is not None and self.low >= 0


ANY = Range()


def range_of(value: SSAValue, depth: int = _DEPTH) -> Range:
    """Return the range of an integer, or of all elements of a tensor of integers."""
    kind = element_type(value.type)
    if depth == 0 or not _is_integer(kind):
        return ANY
    found = _range(value, depth - 1)
    if is_signed(kind):
        return found
    # What is not signed wraps instead: a bound holds only if the type can hold both.
    whole = Range(0, (1 << bit_width(kind)) - 1)
    fits = found.is_natural and found.high is not None and found.high <= (whole.high or 0)
    return found if fits else whole


def _is_integer(kind: Attribute) -> bool:
    return isinstance(kind, IntegerType)


def _range(value: SSAValue, depth: int) -> Range:
    if isinstance(value, BlockArgument):
        return _counter(value, depth)
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
            return range_of(op.operands[0], depth)
        case tile.Cast() as op if keeps_number(op):
            return range_of(op.value, depth)
        case tile.Elementwise() as op:
            return _combined(op, depth)
        case _:
            return ANY


def _counter(value: BlockArgument, depth: int) -> Range:
    """Return the range of what counts a loop's trips."""
    loop = value.block.parent_op()
    if not isinstance(loop, scf.ForOp) or value.index:
        return ANY
    step = range_of(loop.step, depth).low
    if step is None or step <= 0:
        return ANY
    high = range_of(loop.ub, depth).high
    return Range(range_of(loop.lb, depth).low, None if high is None else high - 1)


def _combined(op: tile.Elementwise, depth: int) -> Range:
    parts = [range_of(item, depth) for item in op.inputs]
    match op.function.data, parts:
        case "add", [a, b]:
            return Range(_sum(a.low, b.low), _sum(a.high, b.high))
        case "sub", [a, b]:
            return Range(_sum(a.low, _minus(b.high)), _sum(a.high, _minus(b.low)))
        case "mul", [a, b]:
            return _product(a, b)
        case "idiv", [a, b] if a.is_natural and b.low is not None and b.low > 0:
            assert a.low is not None, "a natural number has a bound"
            least = 0 if b.high is None else a.low // b.high
            return Range(least, None if a.high is None else a.high // b.low)
        case "irem", [a, b] if a.is_natural and b.low is not None and b.low > 0:
            highs = [bound for bound in (a.high, _sum(b.high, -1)) if bound is not None]
            return Range(0, min(highs, default=None))
        case "min", [a, b]:
            highs = [bound for bound in (a.high, b.high) if bound is not None]
            low = None if a.low is None or b.low is None else min(a.low, b.low)
            return Range(low, min(highs, default=None))
        case "max", [a, b]:
            lows = [bound for bound in (a.low, b.low) if bound is not None]
            high = None if a.high is None or b.high is None else max(a.high, b.high)
            return Range(max(lows, default=None), high)
        case "select", [_, a, b]:
            low = None if a.low is None or b.low is None else min(a.low, b.low)
            high = None if a.high is None or b.high is None else max(a.high, b.high)
            return Range(low, high)
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
        return Range(a.low * b.low, high)
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
