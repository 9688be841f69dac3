"""Conditions that are decided by the same condition around them: code that no input reaches.

if tl.load(flag) > 1: ..
else:
    if tl.load(flag) > 1: ..     # never: nobody writes flag
"""

from __future__ import annotations

from xdsl.dialects import scf
from xdsl.ir import Operation, OpResult, SSAValue
from xdsl.traits import Pure

from tawa.ir import hopper, tile
from tawa.simulator.proof.globals import Roots, may_change


def is_closed(branch: scf.IfOp, side: int, written: Roots) -> bool:
    """Tell whether a condition around a branch says that this side of it is not taken.

    `written` are the arguments through which the kernel writes memory.
    """
    region = branch.parent_region()
    while region is not None:
        around = region.parent
        if around is None or isinstance(around, hopper.Role):
            return False
        if (
            isinstance(around, scf.IfOp)
            and around.regions.index(region) != side
            and _same(around.cond, branch.cond, written)
        ):
            return True
        region = around.parent_region()
    return False


def _same(one: SSAValue, other: SSAValue, written: Roots) -> bool:
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
        and one.attributes == other.attributes
        and one.properties == other.properties
    )
