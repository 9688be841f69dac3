"""How loops are pipelined: the products left in flight from one iteration to the next."""

from __future__ import annotations

from dataclasses import replace

from xdsl.dialects import scf

from tawa.analysis.stages import find_stages
from tawa.analysis.statements import enclosing_loops, name_of
from tawa.errors import PlanError
from tawa.ir import tile
from tawa.ir.walk import terminator
from tawa.plan.pins import Pins, pick
from tawa.plan.plan import LoopPlan, Plan
from tawa.plan.problem import Problem
from tawa.plan.resources import carried_in_shared
from tawa.plan.rings import Rings


def plan_loops(problem: Problem, rings: Rings, consumers: int) -> tuple[LoopPlan, ...]:
    """Return a plan for each loop with products directly in it, or with tensors that it carries in
    shared memory, in program order.

    `consumers` warpgroups take turns at the tensor cores.
    """
    found: list[LoopPlan] = []
    for name, operation in problem.statements.items():
        if isinstance(operation, scf.ForOp):
            dots = [
                dot for dot in problem.dots if next(iter(enclosing_loops(dot)), None) is operation
            ]
            kept = _kept(problem, operation)
            if dots:
                made = _plan_loop(problem, name, operation, dots, rings, consumers, kept)
                found.append(replace(made, shared=kept))
            elif kept:
                found.append(LoopPlan(name, shared=kept))
    return tuple(found)


def plan_kept(problem: Problem) -> tuple[LoopPlan, ...]:
    """Return a plan for each loop of an ordinary kernel that carries tensors in shared memory."""
    loops = [(n, op) for n, op in problem.statements.items() if isinstance(op, scf.ForOp)]
    return tuple(LoopPlan(n, shared=kept) for n, op in loops if (kept := _kept(problem, op)))


def _kept(problem: Problem, loop: scf.ForOp) -> tuple[str, ...]:
    """Return the tensors that a loop is to carry in shared memory, by their names."""
    carried = carried_in_shared(loop, problem.pins.shared or ())
    return tuple(dict.fromkeys(each.name_hint for each in carried if each.name_hint))


def _plan_loop(
    problem: Problem,
    name: str,
    loop: scf.ForOp,
    dots: list[tile.Dot],
    rings: Rings,
    consumers: int,
    kept: tuple[str, ...],
) -> LoopPlan:
    depth = rings.depths.get(loop, 0)
    schedule = problem.pins.schedule
    if schedule in (None, "coarse"):
        unshaped = find_stages(loop).reason
        if not (refused := unshaped or _why_not_overlapped(problem, name, depth, kept)):
            return LoopPlan(name, "coarse", 1, pins=True)
        if schedule == "coarse" and not (unshaped and _some_coarse(problem)):
            raise PlanError(f"schedule='coarse' of '{name}'", why=refused)
        schedule = "fine"
    reason = _why_drained(loop, dots, rings, kept)
    if depth < 2:
        reason = reason or f"the ring has {depth} slots, and each product in flight holds one"
    pinned = pick(problem.pins.mma_depth, (name,), "mma_depth")
    if pinned is None:
        # With two consumers one keeps the tensor cores busy while the other waits; a slot more to
        # load into is then worth more than a product in flight, unless there are four.
        enough = depth >= (4 if consumers > 1 else 3)
        deep = enough and not reason and schedule != "none"
        return LoopPlan(name, schedule, 2 if deep else 1)
    if pinned < 1 or (pinned > 1 and (reason or pinned > depth)):
        raise PlanError(
            f"mma_depth={pinned} of '{name}'",
            why=reason
            or f"D = {depth} slots must be at least P = {pinned}, else the ring cannot advance",
            remedy="lower mma_depth=, or raise depth=",
        )
    return LoopPlan(name, schedule, pinned)


def _why_not_overlapped(problem: Problem, name: str, depth: int, kept: tuple[str, ...]) -> str:
    """Return why two iterations of a loop cannot be under way at once, or nothing."""
    if kept:
        return (
            f"it carries others in the place of {', '.join(kept)}, which shared memory is to hold"
        )
    if depth < 2:
        return f"its rings have {depth} slots, and two iterations are under way at once"
    if (pick(problem.pins.mma_depth, (name,), "mma_depth") or 1) > 1:
        return "mma_depth is pinned: products of several iterations stay in flight instead"
    return ""


def _some_coarse(problem: Problem) -> bool:
    """Tell whether some loop of the kernel has the shape for a coarse schedule."""
    loops = problem.loops
    return any(not find_stages(loop).reason for loop in loops)


def _why_drained(loop: scf.ForOp, dots: list[tile.Dot], rings: Rings, kept: tuple[str, ...]) -> str:
    """Return why all products must be complete at the end of an iteration, or nothing."""
    carried = zip(loop.body.block.args[1:], terminator(loop.body.block).operands, strict=True)
    stored = {value for argument, value in carried if argument.name_hint in kept}
    for dot in dots:
        if dot.parent is not loop.body.block:
            return f"{name_of(dot)} stands under a branch"
        if dot.result in stored:
            return f"the result of {name_of(dot)} is stored in shared memory"
        if any(use.operation.name != "scf.yield" for use in dot.result.uses):
            return f"the result of {name_of(dot)} is used in the iteration that makes it"
        if dot.a not in rings.tiles or dot.b not in rings.tiles:
            return f"an operand of {name_of(dot)} is computed in registers"
    return ""


def steadier(best: Plan, pins: Pins) -> list[Plan]:
    """Return a plan that asks for less, should the best not build: one product in flight, one
    iteration of a loop under way, and a slot less where a ring has more than two.
    """
    loops, arefs = best.loops, best.arefs
    if pins.schedule is None:
        coarse = [loop for loop in loops if loop.schedule == "coarse"]
        loops = tuple(LoopPlan(loop.loop) if loop in coarse else loop for loop in loops)
    if pins.mma_depth is None:
        loops = tuple(replace(loop, mma_depth=1) for loop in loops)
    if pins.depth is None:
        arefs = tuple(
            replace(ring, depth=ring.depth - 1 if ring.depth > 2 else ring.depth) for ring in arefs
        )
    other = replace(best, loops=loops, arefs=arefs)
    return [other] if other != best else []
