"""How many blocks share a multiprocessor.

A kernel whose products have rows for one warpgroup alone leaves the tensor cores idle while that
warpgroup does its other work: scales what they gave, widens what they take. A second block, with
half of the shared memory and of the registers, fills the gaps; its producer, stores and tails
overlap as well. So it does where the producer's threads copy: at the start of a tile they find out
addresses, at its end they wait for their last copies. Where nothing stands between the products one
warpgroup keeps them busy, and deep rings are worth more.
"""

from __future__ import annotations

from dataclasses import replace

from xdsl.dialects import scf
from xdsl.ir import Operation

from tawa.analysis.turns import takes_turns
from tawa.ir import tile
from tawa.plan.plan import Plan
from tawa.plan.problem import Problem
from tawa.plan.resources import register_need

BLOCKS = 2
"""Three would leave a consumer 136 registers: a sum of 64 x 128 and its product take 128."""

SPARE = 8
"""Registers by which the model must come out low, where nobody else can lend any."""


def beside(problem: Problem, plan: Plan) -> Problem | None:
    """Return the problem of a block that shares its multiprocessor with another, None where `plan`
    gains nothing by that.
    """
    if problem.pins.blocks is not None or plan.cluster > 1:
        return None
    if any(ring.via == "copy_async" for ring in plan.arefs):
        return shared_by(problem, BLOCKS)
    if sum(role.warps * role.instances for role in plan.consumers) != 4:
        return None
    loops = [op for op in problem.statements.values() if isinstance(op, scf.ForOp)]
    if not any(takes_turns(loop, _is_dot) for loop in loops):
        return None
    return shared_by(problem, BLOCKS)


def shared_by(problem: Problem, blocks: int) -> Problem:
    """Return the problem of one of `blocks` blocks that share a multiprocessor."""
    return replace(problem, target=problem.target.shared_by(blocks), blocks=blocks)


def suffices(problem: Problem, plan: Plan) -> bool:
    """Tell whether a plan for a part of a multiprocessor has the registers it needs, and slots to
    load ahead.
    """
    loads = [load for payload in problem.partition.payloads for load in payload.loads]
    needed = max(register_need(problem.kernel, role.warps, loads) for role in plan.consumers)
    least = min((role.registers for role in plan.consumers), default=0)
    return needed + SPARE <= least and all(ring.depth > 1 for ring in plan.arefs)


def _is_dot(operation: Operation) -> bool:
    return isinstance(operation, tile.Dot)
