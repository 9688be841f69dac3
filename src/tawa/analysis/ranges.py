"""Between which numbers an integer lies, in every program and every iteration.

Arithmetic wraps, as on the device: what may pass its type may be any number of the type. So a
comparison that ranges decide has one answer, whatever the arguments and however many programs.

Questions about values that ask the same of their operands: what is used twice is asked once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, TypeVar

from xdsl.dialects import scf
from xdsl.dialects.builtin import ArrayAttr, IntAttr, IntegerType
from xdsl.ir import Attribute, BlockArgument, SSAValue

from tawa.ir import hopper, tile
from tawa.ir.types import bit_width, element_type, is_signed, shape_of
from tawa.target import PROGRAMS

_DEPTH = 32


@dataclass(frozen=True, slots=True)
class Range:
    """The least and the greatest number, both included."""

    low: int
    high: int

    @property
    def is_natural(self) -> bool:
        """Whether no number is negative."""
        return self.low >= 0

    def holds(self, other: Range) -> bool:
        """Tell whether every number of another range lies in this one."""
        return self.low <= other.low and other.high <= self.high


@dataclass(eq=False, slots=True)
class Known:
    """Ranges found so far, with how deep the search for each went, `_DEPTH` where it came to its
    end; `cut` tells whether one at hand did not. Good as long as the program is not changed.
    """

    ranges: dict[SSAValue, tuple[int, Range]] = field(default_factory=lambda: {})
    cut: bool = False


def range_of(value: SSAValue, known: Known | None = None) -> Range:
    """Return the range of an integer, or of all elements of a tensor of integers.

    What is found on the way is looked up in `known`, and kept there.
    """
    return _range_of(value, _DEPTH, Known() if known is None else known)


def range_of_type(kind: Attribute) -> Range:
    """Return the numbers of an integer type, or of the elements of a tensor of one."""
    kind = element_type(kind)
    bits = bit_width(kind)
    half = 1 << (bits - 1)
    return Range(-half, half - 1) if is_signed(kind) else Range(0, 2 * half - 1)


def may_wrap(value: SSAValue) -> bool:
    """Tell whether a value may not be what the numbers it is computed from give."""
    exact = _range(value, _DEPTH, Known())
    return exact is None or not range_of_type(value.type).holds(exact)


def _range_of(value: SSAValue, depth: int, known: Known) -> Range:
    """Return the range by at most `depth` operations in a row, each value once if that is enough,
    else once a depth at most.
    """
    found = known.ranges.get(value)
    if found is None or found[0] < depth:
        outside, known.cut = known.cut, not depth
        whole = range_of_type(value.type)
        exact = _range(value, depth - 1, known) if depth else None
        held = exact if exact is not None and whole.holds(exact) else whole
        found = known.ranges[value] = depth if known.cut else _DEPTH, held
        known.cut |= outside
    elif found[0] < _DEPTH:
        known.cut = True
    return found[1]


def _range(value: SSAValue, depth: int, known: Known) -> Range | None:
    """Return where a value lies if nothing wraps in its own type, None where nothing is known."""
    if isinstance(value, BlockArgument):
        return _counter(value, depth, known)
    match value.owner:
        case tile.Constant(value=IntAttr() as number):
            return Range(number.data, number.data)
        case tile.Arange() as op:
            return Range(op.start.data, op.start.data + shape_of(value.type)[0] - 1)
        case tile.ProgramId(axis=axis) | hopper.BlockId(axis=axis):
            return Range(0, PROGRAMS[axis.data] - 1)
        case (
            tile.NumPrograms(axis=axis) | hopper.GridExtent(axis=axis) | hopper.NumBlocks(axis=axis)
        ):
            return Range(1, PROGRAMS[axis.data])
        case (
            tile.Splat() | tile.Broadcast() | tile.ExpandDims() | tile.Transpose() | tile.Reshape()
        ) as op:
            return _range_of(op.operands[0], depth, known)
        case tile.Cast() as op if isinstance(element_type(op.value.type), IntegerType):
            return _range_of(op.value, depth, known)
        case tile.Elementwise(within=ArrayAttr(data=(IntAttr(data=low), IntAttr(data=high)))):
            return Range(low, high)
        case tile.Elementwise() as op:
            return _combined(op, depth, known)
        case _:
            return None


def _counter(value: BlockArgument, depth: int, known: Known) -> Range | None:
    """Return the range of what counts iterations: from a start on, by steps, below an end."""
    loop = value.block.parent_op()
    if not isinstance(loop, scf.ForOp) or value.index:
        return None
    start, end, step = (_range_of(bound, depth, known) for bound in (loop.lb, loop.ub, loop.step))
    if step.low <= 0:
        return None
    last = max(start.low, end.high - 1)
    if start.low == start.high and step.low == step.high:
        last -= (last - start.low) % step.low
    return Range(start.low, last)


# --- functions ------------------------------------------------------------------------------------


def _combined(op: tile.Elementwise, depth: int, known: Known) -> Range | None:
    if not all(isinstance(element_type(item.type), IntegerType) for item in op.inputs):
        return None
    parts = [_range_of(item, depth, known) for item in op.inputs]
    match op.function.data, parts:
        case "add", [a, b]:
            return Range(a.low + b.low, a.high + b.high)
        case "sub", [a, b]:
            return Range(a.low - b.high, a.high - b.low)
        case "neg", [a]:
            return Range(-a.high, -a.low)
        case "mul", [a, b]:
            return _hull(x * y for x in (a.low, a.high) for y in (b.low, b.high))
        case "idiv", [a, b]:
            return _quotient(a, b)
        case "irem", [a, b]:
            return _remainder(a, b)
        case "and", [a, b]:
            highs = [item.high for item in (a, b) if item.is_natural]
            return Range(0, min(highs)) if highs else None
        case "min", [a, b]:
            return Range(min(a.low, b.low), min(a.high, b.high))
        case "max", [a, b]:
            return Range(max(a.low, b.low), max(a.high, b.high))
        case "select", [_, a, b]:
            return Range(min(a.low, b.low), max(a.high, b.high))
        case _:
            return None


def _hull(numbers: Iterable[int]) -> Range:
    found = list(numbers)
    return Range(min(found), max(found))


def _quotient(a: Range, b: Range) -> Range:
    """Return the range of quotients towards zero; by zero one is 0, as the oracle has it."""
    divisors = {each for each in (b.low, b.high, -1, 1) if each and b.low <= each <= b.high}
    ends = [_divide(x, y) for x in (a.low, a.high) for y in divisors]
    return _hull([*ends, 0] if b.low <= 0 <= b.high else ends)


def _divide(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _remainder(a: Range, b: Range) -> Range:
    """Return the range of remainders, which have the sign of the dividend; by zero one is it."""
    low, high = min(a.low, 0), max(a.high, 0)
    if b.low <= 0 <= b.high:
        return Range(low, high)
    most = max(abs(b.low), abs(b.high)) - 1
    return Range(max(low, -most), min(high, most))


def compare(function: str, a: Range, b: Range) -> bool | None:
    """Return what a comparison (lt, le, gt, ge) of numbers of two ranges is, None if it depends."""
    match function:
        case "gt" | "ge":
            return compare({"gt": "lt", "ge": "le"}[function], b, a)
        case "lt" | "le":
            strict = function == "lt"
            if a.high + strict <= b.low:
                return True
            return False if a.low + strict > b.high else None
        case _:
            return None


# --- questions asked once -------------------------------------------------------------------------


Answer = TypeVar("Answer")
Table = TypeVar("Table", bound=dict[SSAValue, Any])


def remembered(ask: Callable[[SSAValue, Table], Answer]) -> Callable[[SSAValue, Table], Answer]:
    """Return a question that looks a value up in its second argument, and keeps the answer there.

    Without it values used twice, again and again, take exponential time.
    """

    @wraps(ask)
    def remember(value: SSAValue, known: Table) -> Answer:
        if value not in known:
            known[value] = ask(value, known)
        return known[value]

    return remember
