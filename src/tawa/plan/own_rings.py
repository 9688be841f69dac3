"""Rings that an ordinary kernel fills and takes from itself, some iterations ahead: by cp.async, or
by TMA where a plan says so.

Roles let loads run past what the program does meanwhile. Where they must not (a store may write
what they read), the loop of a product can still load ahead of itself, as long as nothing in it
writes memory: its threads copy the tiles of later iterations while the products of this one run.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from xdsl.dialects import scf
from xdsl.traits import IsTerminator

from tawa.analysis.hardware import Run, copy_run, is_host_made
from tawa.analysis.liveness import needed_by
from tawa.analysis.roles import fed_dots, first_use, tile_uses
from tawa.analysis.statements import children, has_effect, is_volatile, name_of
from tawa.errors import OverBudget, PlanError
from tawa.ir import tile
from tawa.ir.types import shape_of
from tawa.ir.walk import walk
from tawa.plan.plan import ArefPlan, LoopPlan, Plan
from tawa.plan.problem import Problem
from tawa.plan.resources import check_shared

Load: TypeAlias = tile.Load | tile.DescLoad

DEPTHS = (4, 3)
"""Slots to try: three iterations ahead of the products, or two."""


def with_rings(problem: Problem, plan: Plan) -> Plan | None:
    """Return an ordinary plan with rings for the tiles of its products, None where there are none
    or they do not fit.
    """
    payloads = _payloads(problem, tile.Load)
    if not payloads or problem.pins.depth or problem.pins.mma_depth or problem.pins.shared:
        return None
    loops = tuple(LoopPlan(name_of(loop), "fine", _in_flight(loop, payloads)) for loop in payloads)
    for depth in DEPTHS:
        rings = tuple(
            ArefPlan(tuple(map(name_of, loads)), depth, (), "copy_async")
            for loads in payloads.values()
        )
        made = replace(plan, arefs=rings, loops=loops)
        try:
            check_shared(made, problem.statements, problem.target)
        except OverBudget:
            continue
        return made
    return None


def check_own_rings(problem: Problem, plan: Plan) -> None:
    """Refuse an ordinary plan with a ring of fewer slots than its loop has in use at a time: that
    of the product that runs, and that of the copy made ahead.
    """
    flying = {loop.loop: loop.mma_depth for loop in plan.loops}
    for loop, loads in _all_payloads(problem) if not plan.specialized else ():
        names = {name_of(load) for load in loads}
        least = max(flying.get(name_of(loop), 1), 2)
        for ring in plan.arefs:
            if names.intersection(ring.payload) and ring.depth < least:
                raise PlanError(
                    f"aref {ring.label} depth={ring.depth}",
                    why="the tile of a later iteration is copied while products read the slots of "
                    f"this and those before: {least} at a time in {name_of(loop)}",
                    remedy=f"write depth={least} or more, or lower mma_depth",
                )


def copied_ahead(problem: Problem) -> set[str]:
    """Return the loads that an ordinary kernel can send through rings of its own."""
    return {name_of(load) for _, loads in _all_payloads(problem) for load in loads}


def _all_payloads(problem: Problem) -> list[tuple[scf.ForOp, list[Load]]]:
    return [*_payloads(problem, tile.Load).items(), *_payloads(problem, tile.DescLoad).items()]


def _payloads(problem: Problem, kind: type[Load]) -> dict[scf.ForOp, list[Load]]:
    return {
        loop: payload
        for loop in problem.statements.values()
        if isinstance(loop, scf.ForOp) and (payload := _payload(loop, kind))
    }


def _payload(loop: scf.ForOp, kind: type[Load]) -> list[Load]:
    """Return the tiles of loads of one kind that can be copied ahead in a loop."""
    body = list(children(loop))
    if any(has_effect(inner) or is_volatile(inner) for op in body for inner in walk(op)):
        return []
    loads = [op for op in body if isinstance(op, kind) and _is_copied(op, loop)]
    if kind is tile.DescLoad:  # what uses them is moved behind the last of a ring
        return loads
    first = min((body.index(first_use(load)) for load in loads), default=0)
    return [load for load in loads if body.index(load) < first]


def _is_copied(load: Load, loop: scf.ForOp) -> bool:
    """Tell whether a tile can be copied in a loop that computes its address from no other tile:
    by TMA, or by threads for products.
    """
    if any(user.has_trait(IsTerminator) for user in tile_uses(load)):
        return False
    inside = [op for op in needed_by(load) if op is not load and loop.is_ancestor(op)]
    if any(isinstance(op, (tile.Load, tile.DescLoad, tile.Dot)) for op in inside):
        return False
    if isinstance(load, tile.DescLoad):
        return is_host_made(load.desc)
    two = len(shape_of(load.result.type)) == 2 and bool(fed_dots(load))
    return two and isinstance(copy_run(load), Run)


def _in_flight(loop: scf.ForOp, payloads: dict[scf.ForOp, list[Load]]) -> int:
    """Return P: two where nothing but tiles of the ring stands between one product and the next."""
    loaded = {load.result for load in payloads[loop]}
    dots = [op for op in children(loop) if isinstance(op, tile.Dot)]
    whole = all(
        dot.a in loaded
        and dot.b in loaded
        and all(use.operation.has_trait(IsTerminator) for use in dot.result.uses)
        for dot in dots
    )
    return 2 if dots and whole else 1
