"""Conditions that are decided by those around them, or by the range of a number: code that no input
reaches. Nothing is taken from a run, whose numbers say nothing about other inputs; ranges know that
numbers wrap, and what a launch is asked (`within`).

if tl.load(flag) > 1: ..
else:
    if tl.load(flag) > 1: ..     # never: nobody writes flag
    if tl.load(flag) == 2: ..    # never either: comparisons of one number with constants
    if tl.program_id(0) < 0: ..  # nor this, of a number that is not negative
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from xdsl.dialects import scf
from xdsl.ir import Operation, OpResult, SSAValue
from xdsl.traits import Pure

from tawa.analysis.naming import unlabelled
from tawa.analysis.ranges import range_of
from tawa.ir import hopper, tile
from tawa.ir.functions import OPPOSITE, TURNED
from tawa.simulator.proof.counting import constant_of, negated
from tawa.simulator.proof.globals import Roots, may_change

_EQUAL = frozenset({"eq", "le", "ge"})  # what holds of a number and itself
_BITS = {"i32": 32, "i64": 64}


@dataclass(frozen=True, slots=True)
class Fact:
    """What holds where a side of a condition is taken: that `value`, a condition, is `holds`."""

    value: SSAValue
    holds: bool

    @classmethod
    def of(cls, branch: scf.IfOp, side: int) -> Fact:
        """Return what holds on a side of a branch."""
        return cls.that(branch.cond, side == 0)

    @classmethod
    def that(cls, value: SSAValue, holds: bool) -> Fact:
        """Return that a condition holds, or does not: of what it negates, where it negates."""
        while (inner := negated(value)) is not None:
            value, holds = inner, not holds
        return cls(value, holds)

    def is_of_one_number(self, written: Roots) -> bool:
        """Tell whether a whole number is compared with itself, and said to be what it is not."""
        operation = self.value.owner
        if not isinstance(operation, tile.Elementwise) or operation.function.data not in OPPOSITE:
            return False
        one, other = operation.inputs
        equal = operation.function.data in _EQUAL
        return str(one.type) in _BITS and equal != self.holds and is_same(one, other, written)

    def compared(self) -> tuple[SSAValue, str, int] | None:
        """Return a number and the comparison with a constant that holds of it, if it is one."""
        operation = self.value.owner
        if not isinstance(operation, tile.Elementwise) or len(operation.operands) != 2:
            return None
        function, (one, other) = operation.function.data, operation.operands
        bits = _BITS.get(str(one.type))
        if function not in OPPOSITE or bits is None:
            return None
        if constant_of(one) is not None:
            one, other, function = other, one, TURNED[function]
        constant = constant_of(other)
        if constant is None or not -(1 << bits - 1) <= constant < 1 << bits - 1:
            return None
        return one, function if self.holds else OPPOSITE[function], constant


def is_closed(branch: scf.IfOp, side: int, written: Roots) -> bool:
    """Tell whether no input takes this side of a branch: conditions around it say so, or the range
    of the number that it compares with a constant.

    `written` are the arguments through which the kernel writes memory.
    """
    wanted = Fact.of(branch, side)
    around = list(_around(branch))
    if any(
        fact.holds != wanted.holds and is_same(fact.value, wanted.value, written) for fact in around
    ):
        return True
    if wanted.is_of_one_number(written):
        return True
    compared = wanted.compared()
    if compared is None:
        return False
    number, function, constant = compared
    facts = [found for fact in around if (found := fact.compared()) is not None]
    alike = [(how, than) for other, how, than in facts if is_same(other, number, written)]
    held = range_of(number)
    known = [("ge", held.low), ("le", held.high)]
    return _is_empty([*alike, *known, (function, constant)])


def _around(branch: scf.IfOp) -> Iterator[Fact]:
    """Yield what holds where a branch stands."""
    region = branch.parent_region()
    while region is not None:
        around = region.parent
        if around is None or isinstance(around, hopper.Role):
            return
        if isinstance(around, scf.IfOp):
            yield Fact.of(around, around.regions.index(region))
        region = around.parent_region()


def _is_empty(comparisons: list[tuple[str, int]]) -> bool:
    """Tell whether no whole number compares so with all of these."""
    low, high = -inf, inf
    unlike: set[float] = set()
    for function, number in comparisons:
        match function:
            case "ne":
                unlike.add(number)
            case "eq":
                low, high = max(low, number), min(high, number)
            case "lt" | "le":
                high = min(high, number - (function == "lt"))
            case _:
                low = max(low, number + (function == "gt"))
    while low in unlike:
        low += 1
    return low > high


def is_same(one: SSAValue, other: SSAValue, written: Roots) -> bool:
    """Tell whether two values are one function of the same values: equal wherever both are."""
    work = [(one, other)]
    while work:
        first, second = work.pop()
        if first is second:
            continue
        if not isinstance(first, OpResult) or not isinstance(second, OpResult):
            return False
        if first.index != second.index or not _alike(first.op, second.op, written):
            return False
        work += zip(first.op.operands, second.op.operands)
    return True


def _alike(one: Operation, other: Operation, written: Roots) -> bool:
    """Tell whether two operations give the same for the same operands, and have as many."""
    settled = one.has_trait(Pure)
    if isinstance(one, tile.Load):
        settled = not may_change(one, written)
    return (
        settled
        and not one.regions
        and type(one) is type(other)
        and len(one.operands) == len(other.operands)
        and unlabelled(one) == unlabelled(other)
        and one.properties == other.properties
    )
