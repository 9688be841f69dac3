"""The planner: from tile IR, a resource model, a target and pins to a ranked list of plans.

It decides in this order: whether to specialise; consumers (from the products' rows and registers);
persistence; rings and their depths (from shared memory); pipelining; stores. What it declines has a
named reason; a pin that cannot be honoured raises. The passes carry the chosen plan out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from xdsl.dialects import scf
from xdsl.dialects.builtin import IntAttr, IntegerAttr
from xdsl.ir import Attribute, Operation

from tawa.analysis.effects import ATOMICS, enclosing_loops, is_volatile
from tawa.analysis.liveness import needed_by
from tawa.analysis.naming import name_of, name_statements
from tawa.analysis.roles import Partition, is_host_made, partition
from tawa.errors import OverBudget, PlanError
from tawa.ir import tile
from tawa.ir.types import shape_of
from tawa.plan.pins import Pins, check_keys, pick
from tawa.plan.plan import Declined, LoopPlan, Plan, RolePlan, StorePlan
from tawa.plan.resources import (
    carried_need,
    check_register_sum,
    check_shared,
    register_need,
    scratch_bytes,
    split_registers,
)
from tawa.plan.rings import Rings, arrange_rings, tiles_of
from tawa.plan.time import estimate
from tawa.target import H200, Target

NO_PINS = Pins()
GROUP = 8
"""Rows of tiles walked together so that their operands meet in L2 (measured best of 4, 8, 16)."""


def rank_plans(
    kernel: tile.Kernel, target: Target = H200, pins: Pins = NO_PINS
) -> tuple[Plan, ...]:
    """Return at most three plans for a simplified kernel, best first.

    Raises PlanError for a pin that cannot be honoured, OverBudget when what the pins ask for, or
    the kernel itself, does not fit a block.
    """
    problem = Problem(kernel, target, pins, name_statements(kernel), partition(kernel))
    if pins.plan is not None:
        return (_take(problem, pins.plan),)
    _check_pins(problem)
    if reason := _why_ordinary(problem):
        if pins.specialize:
            raise PlanError("the kernel cannot be specialized", why=reason)
        return (_ordinary(problem, Declined("specialization", reason)),)
    try:
        made = [_specialized(problem, *choice) for choice in _consumers(problem)]
    except OverBudget as error:
        if pins != NO_PINS:
            raise
        return (_ordinary(problem, Declined("specialization", f"{error.what}: {error.why}")),)
    best = min(made, key=lambda plan: estimate(kernel, plan, problem.statements).total)
    plans = [best, *_steadier(best, pins)]
    if pins == NO_PINS:
        refused = Declined("specialization", "the specialized plans were rejected")
        plans.append(_ordinary(problem, refused))
    return tuple(plans)


def plan_for(kernel: tile.Kernel, target: Target = H200, pins: Pins = NO_PINS) -> Plan:
    """Return the best plan."""
    return rank_plans(kernel, target, pins)[0]


@dataclass(frozen=True, slots=True)
class Problem:
    """What a plan is made for, with the facts found once."""

    kernel: tile.Kernel
    target: Target
    pins: Pins
    statements: Mapping[str, Operation]
    partition: Partition

    @property
    def dots(self) -> list[tile.Dot]:
        """The products, in program order."""
        return [op for op in self.statements.values() if isinstance(op, tile.Dot)]

    @property
    def declined(self) -> tuple[Declined, ...]:
        """The loads the partition leaves with the consumer."""
        return tuple(Declined(what, why) for what, why in self.partition.declined)


def _check_pins(problem: Problem) -> None:
    pins = problem.pins
    loads = tuple(name for payload in problem.partition.payloads for name in payload.names)
    sent = tuple(name_of(operation) for operation in problem.partition.sent)
    loops = tuple(name for name, op in problem.statements.items() if isinstance(op, scf.ForOp))
    check_keys(pins.depth, loads + sent, "depth")
    check_keys(pins.mma_depth, loops, "mma_depth")
    if pins.arrangement == "pingpong":
        raise PlanError(
            "arrangement='pingpong' is not available",
            why="consumers that take turns on different tiles are not built yet",
            remedy="leave arrangement out, or use 'cooperative'",
        )
    if pins.schedule == "coarse":
        raise PlanError(
            "schedule='coarse' is not available",
            why="the software pipeliner across trips is not built yet",
            remedy="leave schedule out, or use 'fine' or 'none'",
        )
    if pins.cluster not in (None, 1, 2):
        raise PlanError(
            f"cluster={pins.cluster}", why="blocks share loads alone or in pairs: 1 or 2"
        )


def _take(problem: Problem, given: Plan | str) -> Plan:
    """Check a whole plan given by the user against the kernel."""
    from tawa.plan.text import parse_plan

    plan = parse_plan(given) if isinstance(given, str) else given
    allowed = {name for payload in problem.partition.payloads for name in payload.names}
    allowed |= {name_of(operation) for operation in problem.partition.sent}
    reasons = dict(problem.partition.declined)
    for ring in plan.arefs:
        for name in (*ring.payload, *(name for also in ring.also for name in also)):
            if name not in allowed:
                why = reasons.get(f"asynchronous load {name}", "the kernel has no such load")
                raise PlanError(f"the plan sends {name} through an aref", why=why)
    for name in (*(loop.loop for loop in plan.loops), *(store.store for store in plan.stores)):
        if name not in problem.statements:
            raise PlanError(
                f"the plan speaks of {name}",
                why=f"the kernel has: {', '.join(problem.statements)}",
            )
    check_shared(plan, problem.statements, problem.target)
    if plan.specialized:
        check_register_sum(plan, problem.target)
    return plan


# --- specialise or not --------------------------------------------------------------------------


def _why_ordinary(problem: Problem) -> str:
    """Return the reason not to specialise, or nothing."""
    if problem.pins.specialize is False:
        return "specialize=False"
    payloads = problem.partition.payloads
    if not payloads:
        reasons = [reason for _, reason in problem.partition.declined]
        return ": ".join(["no asynchronous load", *reasons[:1]])
    in_loop = any(enclosing_loops(payload.loads[0]) for payload in payloads)
    if not in_loop and not problem.dots:
        return "nothing to overlap: no product, and no loop around a load"
    return ""


def _ordinary(problem: Problem, *declined: Declined) -> Plan:
    return Plan(
        warps=_ordinary_warps(problem),
        stores=_stores(problem, 1),
        declined=(*problem.declined, *declined),
    )


def _ordinary_warps(problem: Problem) -> int:
    """Return the warps of an ordinary kernel: as wished, or as many as its products need."""
    wish = _wishes(problem).get("num_warps", 4)
    warps = wish if wish in (1, 2, 4, 8, 16) else 4
    if not problem.dots:
        return warps
    loads = [op for op in problem.statements.values() if isinstance(op, tile.DescLoad)]
    warps = max(4, warps)
    while warps < 16 and register_need(problem.kernel, warps, loads) > 240:
        warps *= 2
    return warps


def _wishes(problem: Problem) -> dict[str, int]:
    """Return Triton's options that are set."""
    found: dict[str, int] = {}
    for key, value in problem.kernel.options.data.items():
        number = _number(value)
        if number is not None:
            found[key] = number
    return found


def _number(value: Attribute) -> int | None:
    match value:
        case IntAttr():
            return value.data
        case IntegerAttr():
            return value.value.data
        case _:
            return None


# --- the specialized plan -----------------------------------------------------------------------


def _specialized(problem: Problem, consumers: int, needed: int) -> Plan:
    producer, budget = split_registers(consumers, needed, problem.target)
    pinned: dict[str, int] = dict(problem.pins.registers or {})
    roles = (
        RolePlan("load", 4, pinned.get("load", producer)),
        RolePlan("mma", 4 * consumers, pinned.get("mma", budget)),
    )
    declined = list(problem.declined)
    persistent = _persistence(problem, declined)
    rings = _rings(problem, persistent)
    plan = Plan(
        roles=roles,
        arefs=rings.arefs,
        loops=_loops(problem, rings),
        stores=_stores(problem, rings.parts),
        warps=4 * (1 + consumers),
        persistent=persistent,
        group=_group(problem, persistent),
        cluster=problem.pins.cluster or 1,
        guards=_guards(problem),
    )
    check_register_sum(plan, problem.target)
    check_shared(plan, problem.statements, problem.target)
    declined.extend(_unmet(problem, consumers, rings))
    return replace(plan, declined=tuple(declined))


def _guards(problem: Problem) -> tuple[tuple[str, str], ...]:
    names = problem.kernel.argument_names
    return tuple((names[a], names[b]) for a, b in sorted(problem.partition.guards))


def _rows(problem: Problem) -> list[int]:
    return [shape_of(dot.result.type)[-2] for dot in problem.dots]


def _consumers(problem: Problem) -> list[tuple[int, int]]:
    """Return the numbers of consumer warpgroups that fit, each with the registers a thread needs.

    A product of M rows is shared by warpgroups of 64 rows each time. In order of preference: more
    than one warpgroup lets one issue while the other waits, three are for rows that two cannot
    share.
    """
    rows = _rows(problem)
    choices = [n for n in (3, 2, 1) if all(m % (64 * n) == 0 for m in rows)] or [1]
    if not rows:
        choices = [1, 2]
    elif 2 in choices and 3 in choices and all(m // 64 % 2 == 0 for m in rows):
        choices = [2, 3, 1]
    pinned = problem.pins.consumers
    if pinned is not None:
        _check_consumers(pinned, choices, rows)
        choices = [pinned]
    loads = [load for payload in problem.partition.payloads for load in payload.loads]
    needs = {n: register_need(problem.kernel, 4 * n, loads) for n in choices}
    budgets = {n: split_registers(n, needs[n], problem.target)[1] for n in choices}
    if fitting := [(n, needs[n]) for n in choices if needs[n] <= budgets[n]]:
        return fitting
    best = min(choices, key=lambda n: needs[n] / budgets[n])
    held, listed = carried_need(problem.kernel, 4 * best)
    if held + 24 > budgets[best]:
        raise OverBudget(
            f"the consumer needs more than {held} registers a thread",
            why=f"{best} warpgroups have {budgets[best]} each; held through the loop: "
            + ", ".join(listed),
            remedy="use smaller blocks",
        )
    return [(best, needs[best])]


def _check_consumers(pinned: int, choices: list[int], rows: list[int]) -> None:
    if pinned in choices:
        return
    raise PlanError(
        f"consumers={pinned}",
        why=f"a warpgroup takes a multiple of 64 rows of a product; the products have {rows} rows, "
        f"so {sorted(choices)} warpgroups can share them",
        remedy="change the block size, or the pin",
    )


# --- persistence --------------------------------------------------------------------------------


def _why_not_persistent(problem: Problem) -> str:
    """Return the reason why programs must stay one block each, or nothing."""
    for operation in problem.kernel.walk():
        match operation:
            case _ if isinstance(operation, ATOMICS) and operation.results[0].uses:
                return f"programs may communicate: the result of {name_of(operation)} is used"
            case tile.Load() if is_volatile(operation):
                return f"programs may communicate: {name_of(operation)} is volatile"
            case scf.WhileOp() if _reads_to_go_on(operation):
                return f"programs may communicate: {name_of(operation)} waits for memory"
            case tile.NumPrograms():
                return "the kernel loops over its tiles itself"
            case scf.ForOp() if isinstance(operation.lb.owner, tile.ProgramId):
                return "the kernel loops over its tiles itself"
            case _:
                pass
    return ""


def _reads_to_go_on(loop: scf.WhileOp) -> bool:
    """Tell whether a condition reads memory (needed_by follows values the loop carries)."""
    end = loop.before_region.block.last_op
    assert end is not None, "a loop's condition ends with a terminator"
    return any(isinstance(op, (tile.Load, tile.DescLoad)) for op in needed_by(loop))


def _persistence(problem: Problem, declined: list[Declined]) -> bool:
    reason = _why_not_persistent(problem)
    if problem.pins.persistent:
        if reason:
            raise PlanError("persistent=True", why=reason)
        return True
    if problem.pins.persistent is False:
        return False
    if reason:
        declined.append(Declined("persistence", reason))
    return not reason


def _group(problem: Problem, persistent: bool) -> int:
    """Return the rows of tiles walked together, 0 for the grid's own order.

    Groups pay where some loads follow axis 0 alone and others axis 1 alone, as the operands of a
    product do; where all follow one axis (keys of a head), its neighbours are neighbours already.
    """
    axes = {op.axis.data for op in problem.kernel.walk() if isinstance(op, tile.ProgramId)}
    plain = {0, 1} <= axes and persistent
    if problem.pins.group is None:
        followed = {
            frozenset(op.axis.data for op in needed_by(load) if isinstance(op, tile.ProgramId))
            for payload in problem.partition.payloads
            for load in payload.loads
        }
        crossed = any(0 in axes and 1 not in axes for axes in followed) and any(
            1 in axes and 0 not in axes for axes in followed
        )
        return GROUP if plain and crossed else 0
    if problem.pins.group and not plain:
        raise PlanError(
            f"group={problem.pins.group}",
            why="tiles are reordered in a persistent kernel over a grid of two or more dimensions; "
            f"this one uses axes {sorted(axes)}, persistent: {persistent}",
        )
    return problem.pins.group


# --- rings, loops, stores -----------------------------------------------------------------------


def _rings(problem: Problem, persistent: bool) -> Rings:
    stores = [
        problem.statements[store.store] for store in _stores(problem, 1) if store.via == "tma"
    ]
    scratch = scratch_bytes(problem.statements.values(), tiles_of(problem.partition))
    room = problem.target.shared_per_block - scratch
    return arrange_rings(problem.partition, stores, persistent, room, problem.pins)


def _stores(problem: Problem, parts: int) -> tuple[StorePlan, ...]:
    found: list[StorePlan] = []
    for name, operation in problem.statements.items():
        match operation:
            case tile.DescStore() | tile.DescAtomic():
                by_tma = problem.pins.store != "registers" and is_host_made(operation.desc)
            case tile.Store():
                by_tma = False
            case _:
                continue
        if by_tma:
            found.append(StorePlan(name, "tma", parts, "first"))
        else:
            found.append(StorePlan(name, "registers"))
    return tuple(found)


def _loops(problem: Problem, rings: Rings) -> tuple[LoopPlan, ...]:
    found: list[LoopPlan] = []
    for name, operation in problem.statements.items():
        if isinstance(operation, scf.ForOp):
            dots = [
                dot for dot in problem.dots if next(iter(enclosing_loops(dot)), None) is operation
            ]
            if dots:
                found.append(_plan_loop(problem, name, operation, dots, rings))
    return tuple(found)


def _plan_loop(
    problem: Problem, name: str, loop: scf.ForOp, dots: list[tile.Dot], rings: Rings
) -> LoopPlan:
    schedule = problem.pins.schedule or "fine"
    depth = rings.depths.get(loop, 0)
    reason = _why_drained(loop, dots, rings)
    if depth < 2:
        reason = reason or f"the ring has {depth} slots, and each product in flight holds one"
    pinned = pick(problem.pins.mma_depth, (name,), "mma_depth")
    if pinned is None:
        deep = depth >= 3 and not reason and schedule != "none"
        return LoopPlan(name, schedule, 2 if deep else 1)
    if pinned < 1 or (pinned > 1 and (reason or pinned > depth)):
        raise PlanError(
            f"mma_depth={pinned} for {name}",
            why=reason
            or f"D = {depth} slots must be at least P = {pinned}, else the ring cannot turn",
            remedy="lower mma_depth=, or raise depth=",
        )
    return LoopPlan(name, schedule, pinned)


def _why_drained(loop: scf.ForOp, dots: list[tile.Dot], rings: Rings) -> str:
    """Return why all products must be complete at the end of a trip, or nothing."""
    for dot in dots:
        if dot.parent is not loop.body.block:
            return f"{name_of(dot)} stands under a branch"
        if any(use.operation.name != "scf.yield" for use in dot.result.uses):
            return f"the result of {name_of(dot)} is used in the trip that makes it"
        if dot.a not in rings.tiles or dot.b not in rings.tiles:
            return f"an operand of {name_of(dot)} is computed in registers"
    return ""


# --- what was asked for and not done ------------------------------------------------------------


def _unmet(problem: Problem, consumers: int, rings: Rings) -> list[Declined]:
    wishes = _wishes(problem)
    found: list[Declined] = []
    warps = wishes.get("num_warps")
    if warps is not None and warps != 4 * consumers:
        found.append(
            Declined(
                f"num_warps={warps}", f"{consumers} consumer warpgroups and a producer's warps"
            )
        )
    stages = wishes.get("num_stages")
    depths = set(rings.depths.values())
    if stages is not None and depths and stages not in depths:
        found.append(
            Declined(f"num_stages={stages}", f"depth {max(depths)} is what shared memory allows")
        )
    for loop, depth in rings.depths.items():
        wish = _number(loop.attributes["num_stages"]) if "num_stages" in loop.attributes else None
        if wish is not None and wish != depth:
            feature = f"num_stages={wish} of {name_of(loop)}"
            found.append(Declined(feature, f"depth {depth} is what shared memory allows"))
    if (limit := wishes.get("maxnreg")) is not None:
        found.append(Declined(f"maxnreg={limit}", "each role has its own register budget"))
    if wishes.get("num_ctas", 1) > 1 and problem.pins.cluster is None:
        found.append(Declined(f"num_ctas={wishes['num_ctas']}", "clusters are a pin: cluster=2"))
    return found


def _steadier(best: Plan, pins: Pins) -> list[Plan]:
    """Return a plan that asks for less, should the best not build: one product in flight, and a
    slot less where a ring has more than two.
    """
    loops, arefs = best.loops, best.arefs
    if pins.mma_depth is None:
        loops = tuple(replace(loop, mma_depth=1) for loop in loops)
    if pins.depth is None:
        arefs = tuple(
            replace(ring, depth=ring.depth - 1 if ring.depth > 2 else ring.depth) for ring in arefs
        )
    other = replace(best, loops=loops, arefs=arefs)
    return [other] if other != best else []
