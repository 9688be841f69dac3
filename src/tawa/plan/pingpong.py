"""Whether the warpgroups that share a tile gain by turns at the tensor cores.

Left to themselves they wait for the same tiles, issue their products at the same time and then all
do their other work: an iteration takes the products of all plus that work. In turns one works while
another's products run. Turns cost a named barrier each, and give nothing where the warpgroups meet
in every iteration anyway.
"""

from __future__ import annotations

from collections.abc import Collection

from xdsl.dialects import scf
from xdsl.ir import Operation, SSAValue

from tawa.analysis.stages import takes_turns
from tawa.ir import tile
from tawa.ir.types import shape_of
from tawa.ir.walk import walk
from tawa.layouts.fragments import share_out
from tawa.plan.plan import Plan
from tawa.plan.problem import Problem
from tawa.plan.rings import tiles_of
from tawa.plan.time import trip_cycles

BARRIERS = 100
"""Cycles of a turn's two named barriers, with what is issued between them."""
ENOUGH = 0.9
"""The share of the time that must be left, for the model to be trusted."""


def gains_by_turns(problem: Problem, plan: Plan) -> bool:
    """Tell whether the consumers of a cooperative plan should take turns, by the model of time."""
    groups = max((role.warps // 4 for role in plan.consumers), default=1)
    apart = any(role.instances > 1 for role in plan.roles)
    if problem.pins.arrangement is not None or groups == 1 or apart:
        return False
    loops = [op for op in problem.statements.values() if isinstance(op, scf.ForOp)]
    loops = [loop for loop in loops if takes_turns(loop, _is_dot) is not None]
    tiles = tiles_of(problem.partition)
    if not loops or any(_meet_anyway(loop, tiles, groups) for loop in loops):
        return False
    return all(_share_left(loop, groups) <= ENOUGH for loop in loops)


def _share_left(loop: scf.ForOp, groups: int) -> float:
    """Return the time of an iteration in turns over that without: one warp a scheduler issues at
    half of the rate of two.
    """
    products, work, loads = trip_cycles(loop.body.block)
    together = max(products + work, loads)
    return max(products, loads, (products + 2 * work) / groups + BARRIERS) / together


def _meet_anyway(loop: scf.ForOp, tiles: Collection[SSAValue], groups: int) -> bool:
    """Tell whether all warpgroups exchange tiles in every iteration: operands that are computed,
    tiles they load for themselves, sums over rows, and rows of which each has some columns.
    """
    for operation in walk(loop):
        match operation:
            case tile.Dot() if operation.b not in tiles:
                return True
            case tile.Dot() if share_out(shape_of(operation.result.type)[-2], 4 * groups)[1] > 1:
                return True
            case tile.Reduce() | tile.Scan() if operation.axis.data == 0:
                if len(shape_of(operation.operands[0].type)) > 1:
                    return True
            case tile.Load() | tile.DescLoad():
                shape = shape_of(operation.result.type)
                if len(shape) > 1 and operation.result not in tiles:
                    return True
            case _:
                continue
    return False


def _is_dot(operation: Operation) -> bool:
    return isinstance(operation, tile.Dot)
