"""Loops written with while that count: ``while k < K: ...; k += T``.

The trips of such a loop follow from its bounds, as those of a ``for`` do; with another condition
beside (``while k < K and more``) they are so many at most. Without this the first
test of ``k < K`` alone would bind K, to any number that makes it true, and the loop would run from
that: too often, or never as often as its rings are deep.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.dialects import scf
from xdsl.dialects.builtin import IntAttr
from xdsl.ir import BlockArgument, Operation, SSAValue

from tawa.ir import tile
from tawa.ir.control import terminator

_BELOW = {"lt": 0, "le": 1}
_ABOVE = {"gt": 0, "ge": 1}


@dataclass(frozen=True, slots=True)
class Counted:
    """A count from `start` to before `end` + `more`, `step` at a time: a number > 0, or a value
    that the loop does not change.
    """

    start: SSAValue
    end: SSAValue
    more: int
    step: SSAValue | int


def counted(loop: scf.WhileOp) -> Counted | None:
    """Return what a loop counts, None where it does anything else."""
    test = terminator(loop.before_region.block)
    found = (_counted(loop, condition) for condition in _all_of(test.operands[0]))
    return next((each for each in found if each is not None), None)


def _all_of(condition: SSAValue) -> Iterator[SSAValue]:
    """Yield the conditions that must all hold."""
    match condition.owner:
        case tile.Elementwise(function=function, inputs=(one, other)) if function.data == "and":
            yield from _all_of(one)
            yield from _all_of(other)
        case _:
            yield condition


def _counted(loop: scf.WhileOp, condition: SSAValue) -> Counted | None:
    before, after = loop.before_region.block, loop.after_region.block
    test, end = terminator(before), terminator(after)
    match condition.owner:
        case tile.Elementwise(function=function, inputs=(low, high)) if function.data in _BELOW:
            more = _BELOW[function.data]
        case tile.Elementwise(function=function, inputs=(high, low)) if function.data in _ABOVE:
            more = _ABOVE[function.data]
        case _:
            return None
    if not isinstance(low, BlockArgument) or low.owner is not before or _inside(high, loop):
        return None
    passed = [inner for value, inner in zip(test.operands[1:], after.args) if value is low]
    match end.operands[low.index].owner:
        case tile.Elementwise(function=function, inputs=(one, other)) if function.data == "add":
            by = other if one in passed else one
        case _:
            return None
    step = _step(by)
    if not ({one, other} & set(passed)) or _inside(by, loop) or step == 0:
        return None
    return Counted(loop.arguments[low.index], high, more, step)


def _step(value: SSAValue) -> SSAValue | int:
    """Return a positive constant as a number, 0 for another; what is no constant stays."""
    match value.owner:
        case tile.Constant(value=IntAttr() as number):
            return max(0, number.data)
        case _:
            return value


def _inside(value: SSAValue, loop: Operation) -> bool:
    return loop.is_ancestor(value.owner)
