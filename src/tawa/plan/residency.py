"""How many blocks share a multiprocessor.

A kernel whose products have rows for one warpgroup alone leaves the tensor cores idle while that
warpgroup does its other work: scales what they gave, widens what they take. A second block, with
half of the shared memory and of the registers, fills the gaps; its producer, stores and tails
overlap as well. So it does where consumers widen weights, whatever their number, and where the
producer's threads copy: at the start of a tile they find out addresses, at its end they wait for
their last copies. Where nothing stands between the products one warpgroup keeps them busy, and deep
rings are worth more.

Products by mma.sync and by multiply-adds run while their warp waits: where one warpgroup computes
them, as many blocks share a multiprocessor as registers and rings of two slots allow, up to `MOST`.
Products by wgmma are in flight beside one another, however short, and deep rings are worth more.

Warpgroups that share a tile and have work between products that are shorter than the wait for them
wait most of the time, in turns or not. Two blocks of one such warpgroup each wait as often for
twice the work, and not for one another.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import replace

from xdsl.dialects import scf
from xdsl.ir import Operation, SSAValue

from tawa.analysis.hardware import by_multiply_adds
from tawa.analysis.stages import takes_turns
from tawa.analysis.statements import enclosing_loops
from tawa.analysis.transposed import fills_wgmma
from tawa.ir import tile
from tawa.ir.types import element_type
from tawa.plan.plan import Plan
from tawa.plan.problem import Problem
from tawa.plan.resources import aliases, carried_need, register_need
from tawa.plan.time import dot_cycles

BLOCKS = 2
"""Three would leave a consumer 136 registers: a sum of 64 x 128 and its product take 128."""
MOST = 4
"""Blocks of synchronous products: with eight warps each they fill the schedulers to a half, and
leave a consumer 88 registers. Five would leave it 56."""
ROOM = 80
"""Registers beside what loops carry that such consumers get on with, from built kernels."""
SHORT = 112
"""Cycles of a product that takes about as long as the wait for it, issue and drain."""

SPARE = 8
"""Registers by which the model must come out low, where nobody else can lend any."""


def beside(problem: Problem, plan: Plan) -> Problem | None:
    """Return the problem of a block that shares its multiprocessor with another, None where `plan`
    gains nothing by that.
    """
    if problem.pins.blocks is not None or plan.cluster > 1:
        return None
    if _copies(plan) or _widens(problem):
        return shared_by(problem, BLOCKS)
    if sum(role.warps * role.instances for role in plan.consumers) != 4:
        return None
    loops = [op for op in problem.statements.values() if isinstance(op, scf.ForOp)]
    if not any(takes_turns(loop, _is_dot) for loop in loops):
        return None
    return shared_by(problem, BLOCKS)


def beside_for_short_products(problem: Problem, plan: Plan) -> Problem | None:
    """Return the problem of a block that shares its multiprocessor with another where the products
    of each iteration are too short for warpgroups that share a tile, None where they are not.
    """
    pins = problem.pins
    asked = (pins.blocks, pins.consumers, pins.arrangement, pins.schedule, pins.cluster)
    groups = sum(role.warps // 4 for role in plan.consumers)
    if any(pin is not None for pin in asked) or plan.cluster > 1 or groups != 2:
        return None
    if any(role.instances > 1 for role in plan.roles):
        return None
    loops = [op for op in problem.statements.values() if isinstance(op, scf.ForOp)]
    iterations = [
        iteration for loop in loops if (iteration := takes_turns(loop, _is_dot)) is not None
    ]
    dots = [
        dot for iteration in iterations for dot in iteration.products if isinstance(dot, tile.Dot)
    ]
    if not dots or any(len(iteration.products) < 3 for iteration in iterations):
        return None
    if max(map(dot_cycles, dots)) / groups >= SHORT:
        return None
    return shared_by(problem, BLOCKS)


def beside_for_synchronous_products(problem: Problem, plan: Plan) -> Iterator[Problem]:
    """Give the problems of blocks that share a multiprocessor with others, most blocks first, where
    one warpgroup computes products and none of them by wgmma.
    """
    if problem.pins.blocks is not None or plan.cluster > 1 or not problem.dots:
        return
    if sum(role.warps * role.instances for role in plan.consumers) != 4:
        return
    if not any(fills_wgmma(dot) and not by_multiply_adds(dot) for dot in problem.dots):
        for blocks in range(MOST, BLOCKS - 1, -1):
            yield shared_by(problem, blocks)


def shared_by(problem: Problem, blocks: int) -> Problem:
    """Return the problem of one of `blocks` blocks that share a multiprocessor."""
    return replace(problem, target=problem.target.shared_by(blocks), blocks=blocks)


def suffices(problem: Problem, plan: Plan, carried: bool = False) -> bool:
    """Tell whether a plan for a part of a multiprocessor has the registers it needs, and slots to
    load ahead; `carried`: for what its loops carry and some room, and slots where a loop iterates.
    """
    loads = [load for payload in problem.partition.payloads for load in payload.loads]
    shallow = [ring for ring in plan.arefs if ring.depth < 2]
    if any(not carried or enclosing_loops(problem.statements[ring.payload[0]]) for ring in shallow):
        return False
    # The model counts addresses of stores, and all steps of a conversion, as if they were held at
    # once: where these are what it counts, what loops carry and some room has been enough.
    counted = carried or _copies(plan) or _widens(problem)
    spare = 0 if counted else SPARE
    return all(
        register_need(problem.kernel, role.warps, loads) + spare <= role.registers
        or (
            counted
            and carried_need(problem.kernel, role.warps, problem.kept)[0] + ROOM <= role.registers
        )
        for role in plan.consumers
    )


def _copies(plan: Plan) -> bool:
    """Tell whether a producer's threads copy tiles."""
    return any(ring.via == "copy_async" for ring in plan.arefs)


def _widens(problem: Problem) -> bool:
    """Tell whether consumers make an operand of a product from a loaded tile of another type, no
    product in between: weights of few bits.
    """
    loads = {load for payload in problem.partition.payloads for load in payload.loads}
    tiles = aliases(loads)
    return any(
        operand not in tiles and _comes_from(operand, loads)
        for dot in problem.dots
        for operand in (dot.a, dot.b)
    )


def _comes_from(value: SSAValue, loads: Container[Operation]) -> bool:
    """Tell whether a value is computed, in one block, from loads of another type and no product."""
    found, pending, seen = False, [value.owner], set[object]()
    while pending:
        owner = pending.pop()
        if owner in seen or not isinstance(owner, Operation):
            continue
        seen.add(owner)
        if isinstance(owner, tile.Dot):
            return False
        if owner in loads:
            kinds = (element_type(each.type) for each in (owner.results[0], value))
            found = found or len(set(kinds)) > 1
        elif owner.parent is value.owner.parent:  # pyright: ignore
            pending.extend(operand.owner for operand in owner.operands)
    return found


def _is_dot(operation: Operation) -> bool:
    return isinstance(operation, tile.Dot)
