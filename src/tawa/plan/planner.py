"""The planner: from tile IR, a resource model, a target and pins to a ranked list of plans.

It decides in this order: roles; consumers (from the products' rows and registers); persistence;
rings and their depths (from shared memory); pipelining; stores. What it declines has a named
reason; a pin that cannot be honoured raises. The passes carry the chosen plan out.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from xdsl.dialects import scf

from tawa.analysis.hardware import is_host_made
from tawa.analysis.memory import met_in_loops
from tawa.analysis.roles import Partition, Payload, partition
from tawa.analysis.stages import takes_turned_product
from tawa.analysis.statements import NEXT_PROGRAM, enclosing_loops, name_of, name_statements
from tawa.errors import OverBudget, PlanError
from tawa.ir import tile
from tawa.ir.types import i32, shape_of
from tawa.ir.walk import all_of
from tawa.plan.consumers import (
    check_apart,
    check_turns,
    choose_consumers,
    computes_apart,
    gains_by_turns,
    ordinary_warps,
    share_columns,
)
from tawa.plan.loops import plan_kept, plan_loops, steadier
from tawa.plan.order import (
    beside,
    beside_for_short_products,
    beside_for_synchronous_products,
    check_grouped,
    check_walk,
    choose_cluster,
    choose_group,
    choose_grouped,
    choose_persistence,
    choose_walk,
    may_ask,
    shared_by,
    suffices,
)
from tawa.plan.pins import Pins, check_keys, fits
from tawa.plan.plan import (
    FULL_SPEED,
    ArefPlan,
    Declined,
    OperandPlan,
    Plan,
    RolePlan,
    StorePlan,
    TensorPlan,
    Walk,
)
from tawa.plan.problem import Problem, number_of
from tawa.plan.resources import (
    COPYING,
    aliases,
    check_register_sum,
    check_shared,
    kept_buffers,
    producer_need,
    scratch_bytes,
    split_registers,
    stored_operands,
    tile_bytes,
    total,
)
from tawa.plan.rings import (
    Rings,
    arrange_rings,
    check_own_rings,
    copied_ahead,
    tiles_of,
    with_rings,
)
from tawa.plan.staging import check_staged, refuse_clustered, refuse_unstaged, slots_of
from tawa.plan.time import estimate
from tawa.plan.transposes import ROLE, TRANSPOSERS, check_transposed, find_transposed, notes
from tawa.plan.unhonoured import (
    check_counts,
    check_direct,
    check_operands,
    check_split,
    check_tensors,
    is_plain,
    refuse_loops,
    refuse_roles,
    refuse_stores,
)
from tawa.target import H200, Target

NO_PINS = Pins()


def rank_plans(
    kernel: tile.Kernel,
    target: Target = H200,
    pins: Pins = NO_PINS,
    notes: tuple[Declined, ...] = (),
) -> tuple[Plan, ...]:
    """Return at most six plans for a simplified kernel, best first.

    `notes` are what earlier passes declined, for the reasons of refused pins. Raises PlanError for
    a pin that cannot be honoured, OverBudget when what is asked for does not fit a block.
    """
    target = target.within(pins.ceiling)
    problem = Problem(kernel, target, pins, name_statements(kernel), partition(kernel))
    if pins.plan is not None:
        return (_take(problem, pins.plan),)
    if pins.blocks is not None:
        problem = shared_by(problem, pins.blocks)
    if pins.specialize is False:
        refuse_roles(pins, "specialize=False")
    _check_pins(problem)
    problem = replace(problem, partition=_without_direct(problem))
    refuse_stores(problem, notes)
    refuse_unstaged(problem)
    if reason := _why_ordinary(problem):
        if pins.specialize:
            raise PlanError("the kernel cannot be specialized", why=reason)
        refuse_roles(pins, reason)
        return _ordinary(problem, Declined("specialization", reason))
    refuse_loops(problem)
    try:
        made = _specialized_plans(problem)
    except OverBudget as error:
        # A store that leaves no room for a slot goes without its stage.
        made = _parts(_from_registers(problem)) if pins.store is None else []
        if not made:
            if pins != NO_PINS:
                raise
            refused = Declined("specialization", f"{error.what}: {error.why}")
            return _ordinary(problem, refused, *_slower(problem, error))
    best = min(made, key=lambda plan: estimate(kernel, plan, problem.statements).total)
    plans = [*_better(problem, best), best]
    plans += [other for plan in plans for other in steadier(plan, pins)]
    if pins == NO_PINS:
        refused = Declined("specialization", "the specialized plans were rejected")
        plans += _ordinary(problem, refused)
    return tuple(plans)


def plan_for(kernel: tile.Kernel, target: Target = H200, pins: Pins = NO_PINS) -> Plan:
    """Return the best plan."""
    return rank_plans(kernel, target, pins)[0]


def _check_pins(problem: Problem) -> None:
    pins = problem.pins
    loads = tuple(name for payload in problem.partition.payloads for name in payload.names)
    sent = tuple(name_of(operation) for operation in problem.partition.sent)
    loops = tuple(name for name, op in problem.statements.items() if isinstance(op, scf.ForOp))
    check_keys(pins.depth, loads + sent, "depth")
    check_keys(pins.mma_depth, loops, "mma_depth")
    check_keys(pins.direct, _takeable(problem), "direct")
    check_keys(pins.operands, tuple(map(name_of, problem.dots)), "operands")
    tensors = [
        each.name_hint
        for loop in problem.statements.values()
        if isinstance(loop, scf.ForOp)
        for each in loop.body.block.args[1:]
        if shape_of(each.type)
    ]
    check_keys(pins.shared, tuple(dict.fromkeys(filter(None, tensors))), "shared")


def _takeable(problem: Problem) -> tuple[str, ...]:
    """Return the loads that threads can make by themselves."""
    loads = [each for each in problem.statements.values() if isinstance(each, tile.DescLoad)]
    return tuple(name_of(each) for each in loads if is_plain(each))


def _direct(problem: Problem) -> tuple[str, ...]:
    keys = problem.pins.direct or ()
    return tuple(n for n in _takeable(problem) if any(fits(key, n) for key in keys))


def _without_direct(problem: Problem) -> Partition:
    """Return what the producer does beside the loads that threads are to make by themselves."""
    taken = {problem.statements[name] for name in _direct(problem)}
    left = (
        Payload(tuple(load for load in payload.loads if load not in taken))
        for payload in problem.partition.payloads
    )
    return replace(problem.partition, payloads=tuple(each for each in left if each.loads))


def _take(problem: Problem, given: Plan | str) -> Plan:
    """Check a whole plan given by the user against the kernel."""
    from tawa.plan.text import parse_plan

    plan = parse_plan(given) if isinstance(given, str) else given
    check_counts(plan)
    problem = shared_by(problem, plan.blocks)
    allowed = {name for payload in problem.partition.payloads for name in payload.names}
    allowed |= {name_of(operation) for operation in problem.partition.sent}
    if not plan.specialized:
        allowed = copied_ahead(problem)
    asked = {ring.payload for ring in rings_of_walk(plan.walk)}
    if missing := asked - {ring.payload for ring in plan.arefs}:
        raise PlanError(
            f"the plan has no ring {next(iter(missing))[0]}",
            why=f"walk={plan.walk}: the consumers learn through it which tile comes next",
            remedy=f"write aref {next(iter(missing))[0]} depth=2",
        )
    allowed |= {name for names in asked for name in names}
    reasons = dict(problem.partition.declined)
    for ring in plan.arefs:
        for name in (*ring.payload, *(name for also in ring.also for name in also)):
            if name not in allowed:
                why = reasons.get(f"asynchronous load {name}", "the kernel has no such load")
                raise PlanError(f"the plan sends {name} through an aref", why=why)
            by_threads = isinstance(problem.statements.get(name), tile.Load)
            if ring.via != ROLE and by_threads != (ring.via == "copy_async"):
                raise PlanError(
                    f"the plan moves {name} via={ring.via}",
                    why="TMA follows descriptors, cp.async pointers",
                    remedy=f"write via={'copy_async' if by_threads else 'tma'}",
                )
    for name in (*(loop.loop for loop in plan.loops), *(store.store for store in plan.stores)):
        if name not in problem.statements:
            raise PlanError(
                f"the plan speaks of {name}", why=f"the kernel has: {', '.join(problem.statements)}"
            )
    check_direct(problem, plan)
    check_operands(problem, plan)
    check_tensors(problem.kernel, plan)
    check_split(problem, plan)
    check_own_rings(problem, plan)
    check_transposed(problem, plan)
    check_staged(problem, plan)
    check_apart(problem, plan)
    if all(role.instances == 1 for role in plan.roles):
        sharing = max((role.warps // 4 for role in plan.consumers), default=1)
        check_turns(problem, plan.arrangement, sharing)
    choose_cluster(problem, plan.cluster, plan.persistent and plan.specialized)
    check_walk(problem, plan)
    check_grouped(plan.grouped, plan.group)
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
    copying = producer_need(load for payload in payloads for load in payload.loads)
    if copying > COPYING[-1]:
        return f"a producer's threads would hold {copying} registers of addresses and masks to copy"
    if problem.dots:
        return ""
    if not any(enclosing_loops(payload.loads[0]) for payload in payloads):
        return "nothing to overlap: no product, and no loop around a load"
    sent = {load for payload in payloads for load in payload.loads}
    for load in all_of(problem.kernel, tile.DescLoad):
        if load not in sent and enclosing_loops(load):
            return f"no product, and each iteration would wait for {name_of(load)}"
    return ""


def _slower(problem: Problem, error: OverBudget) -> list[Declined]:
    """Return a warning where products in a loop go without roles for what they would need."""
    if not any(map(enclosing_loops, problem.dots)):
        return []
    fate = "its products run without roles, several times slower than those of smaller tiles"
    return [Declined(FULL_SPEED, f"{fate}: {error.what} ({error.why}); {error.remedy}")]


def _ordinary(problem: Problem, *declined: Declined) -> tuple[Plan, ...]:
    """Return the plans of an ordinary kernel: one that copies ahead, where there are products to
    copy for, one without, and one that takes less shared memory.
    """
    # What is asked for by name runs where a guard does not hold: it has none.
    may_guard = problem.pins.specialize is not False
    plan = Plan(
        warps=ordinary_warps(problem),
        stores=_stores(problem, 1),
        direct=_direct(problem),
        loops=plan_kept(problem),
        operands=_pinned_operands(problem),
        tensors=_tensors(problem),
        declined=(*problem.declined, *declined),
        guards=_named(problem, met_in_loops(problem.kernel)) if may_guard else (),
    )
    spare = plan.stores
    if problem.pins.store is None:
        spare = tuple(StorePlan(store.store, "registers") for store in plan.stores)
    ahead = with_rings(problem, plan)
    first = () if ahead is None else (ahead,)
    check_tensors(problem.kernel, plan)
    return *first, plan, replace(plan, stores=spare, sharing=True)


# --- the specialized plan -----------------------------------------------------------------------


def _specialized_plans(problem: Problem) -> list[Plan]:
    """Return a plan for each number of consumers that fits.

    Tiles that lie the wrong way round are transposed by a role of their own where there is room for
    it, else by the consumers.
    """
    transposing, declined = find_transposed(problem)
    if transposing.transposed:
        declined.extend(notes(transposing))
        try:
            made = [_specialized(transposing, *choice) for choice in choose_consumers(transposing)]
            return [replace(plan, declined=(*plan.declined, *declined)) for plan in made]
        except OverBudget as error:
            declined = [Declined("transposing tiles on the way", f"{error.what}: {error.why}")]
    made = [_specialized(problem, *choice) for choice in choose_consumers(problem)]
    return [replace(plan, declined=(*plan.declined, *declined)) for plan in made]


def _specialized(problem: Problem, consumers: int, needed: int) -> Plan:
    apart = computes_apart(problem)
    across = problem.pins.split == "columns" or share_columns(problem, consumers)
    shares = consumers if across and not apart else 1
    loads = [load for payload in problem.partition.payloads for load in payload.loads]
    transposing = bool(problem.transposed)
    pinned: dict[str, int] = dict(problem.pins.registers or {})
    budgets = split_registers(
        consumers, needed, problem.target, producer_need(loads), transposer=transposing
    )
    if ROLE in pinned and not transposing:
        raise PlanError(
            f"registers={{{ROLE!r}: {pinned[ROLE]}}}",
            why="no tile of this kernel is transposed on its way to a product",
            remedy="drop the pin",
        )
    mma = pinned.get("mma", budgets.consumer)
    roles = (
        RolePlan("load", 4, pinned.get("load", budgets.producer)),
        *(
            [RolePlan(ROLE, TRANSPOSERS, pinned.get(ROLE, budgets.transposer))]
            if budgets.transposer
            else []
        ),
        RolePlan("mma", 4, mma, instances=consumers)
        if apart
        else RolePlan("mma", 4 * consumers, mma),
    )
    declined = list(problem.declined)
    persistent = choose_persistence(problem, declined)
    cluster = choose_cluster(problem, problem.pins.cluster, persistent)
    group = choose_group(problem, persistent)
    instances = consumers if apart else 1
    if staged := slots_of(problem) if problem.pins.store == "slot" else {}:
        refuse_clustered("store='slot'", cluster)
    rings = _rings(problem, persistent, instances, shares, staged)
    own = problem.pins.store is not None or cluster > 1
    if not own and not rings.fit and (staged := slots_of(problem)):
        declined.append(Declined("a stage of the store's own", "the rings leave no room for it"))
        rings = _rings(problem, persistent, instances, shares, staged)
    plan = Plan(
        roles=roles,
        arefs=rings.arefs,
        loops=plan_loops(problem, rings, (1 if apart else consumers) * problem.blocks),
        stores=_stores(problem, rings.parts, staged),
        direct=_direct(problem),
        operands=_operands(problem),
        tensors=_tensors(problem),
        arrangement=problem.pins.arrangement or "cooperative",
        warps=sum(role.warps * role.instances for role in roles),
        persistent=persistent,
        group=group,
        grouped=choose_grouped(problem, group),
        cluster=cluster,
        blocks=problem.blocks,
        guards=_named(problem, problem.partition.guards),
        split=problem.pins.split or "rows",
    )
    walk = choose_walk(problem, plan)
    plan = replace(plan, walk=walk, arefs=(*plan.arefs, *rings_of_walk(walk)))
    check_apart(problem, plan)
    check_operands(problem, plan)
    check_tensors(problem.kernel, plan)
    check_register_sum(plan, problem.target)
    check_shared(plan, problem.statements, problem.target)
    declined.extend(_unmet(problem, consumers, rings))
    return replace(plan, declined=tuple(declined))


def rings_of_walk(walk: Walk) -> tuple[ArefPlan, ...]:
    """Return the ring through which consumers learn the next tile: the producer is one ahead."""
    return (ArefPlan((NEXT_PROGRAM,), 2),) if walk == "dynamic" else ()


def _named(problem: Problem, pairs: frozenset[tuple[int, int]]) -> tuple[tuple[str, str], ...]:
    names = problem.kernel.argument_names
    return tuple((names[a], names[b]) for a, b in sorted(pairs))


# --- rings, loops, stores -----------------------------------------------------------------------


def _rings(
    problem: Problem, persistent: bool, instances: int, shares: int, staged: Mapping[str, str]
) -> Rings:
    stores = [
        problem.statements[store.store]
        for store in _stores(problem, 1)
        if store.via == "tma" and store.store not in staged
    ] * instances  # each has a stage of its own
    tiles, transposed = tiles_of(problem.partition), aliases(problem.transposed)
    stored = stored_operands(_operands(problem), problem.statements, {*tiles, *transposed})
    scratch = scratch_bytes(problem.statements.values(), tiles, transposed, stored)
    scratch += total(stored.values())
    kept = kept_buffers((each, problem.pins.shared or ()) for each in problem.statements.values())
    target = problem.target
    room = target.shared_per_block - target.shared_beside - scratch - total(kept) * instances
    if persistent and may_ask(problem):
        room -= sum(ring.depth * (tile_bytes(i32) + 16) for ring in rings_of_walk("dynamic"))
    beside = instances > 1
    given = problem.partition, problem.transposed, stores, persistent, room, problem.pins
    return arrange_rings(*given, beside, shares)


def _tensors(problem: Problem) -> tuple[TensorPlan, ...]:
    pinned = problem.pins.tensors or ()
    pairs = pinned.items() if isinstance(pinned, Mapping) else pinned
    return tuple(TensorPlan(name, layout) for name, layout in pairs)


def _pinned_operands(problem: Problem) -> tuple[OperandPlan, ...]:
    pinned = problem.pins.operands or ()
    pairs = pinned.items() if isinstance(pinned, Mapping) else pinned
    names = [name_of(dot) for dot in problem.dots]
    return tuple(OperandPlan(name, way) for name in names for k, way in pairs if fits(k, name))


def _operands(problem: Problem) -> tuple[OperandPlan, ...]:
    """Return the products whose first operand is pinned, or stays in shared memory.

    What a product gave, transposed, must go there on its way to other threads. wgmma reads it
    there; fetched back it would hold registers until the product is done.
    """
    pinned = _pinned_operands(problem)
    turned = [name_of(dot) for dot in problem.dots if takes_turned_product(dot)]
    free = [name for name in turned if name not in {each.product for each in pinned}]
    return (*pinned, *(OperandPlan(name, "shared") for name in free))


def _stores(
    problem: Problem, parts: int, staged: Mapping[str, str] | None = None
) -> tuple[StorePlan, ...]:
    found: list[StorePlan] = []
    for name, operation in problem.statements.items():
        match operation:
            case tile.DescStore() | tile.DescAtomic():
                by_tma = problem.pins.store != "registers" and is_host_made(operation.desc)
            case tile.Store():
                by_tma = False
            case _:
                continue
        if by_tma and staged and name in staged:
            found.append(StorePlan(name, "tma", 1, "first", staged[name]))
        elif by_tma:
            places = problem.pins.places or 1
            # What is added to, others add to.
            kept = "" if isinstance(operation, tile.DescAtomic) else "first"
            found.append(StorePlan(name, "tma", parts, kept, places=places))
        else:
            found.append(StorePlan(name, "registers"))
    return tuple(found)


# --- what was asked for and not done ------------------------------------------------------------


def _unmet(problem: Problem, consumers: int, rings: Rings) -> list[Declined]:
    hints = problem.hints
    found: list[Declined] = []
    warps = hints.get("num_warps")
    if warps is not None and warps != 4 * consumers:
        found.append(
            Declined(
                f"num_warps={warps}", f"{consumers} consumer warpgroups and a producer's warps"
            )
        )
    stages = hints.get("num_stages")
    depths = set(rings.depths.values())
    if stages is not None and depths and stages not in depths:
        found.append(
            Declined(f"num_stages={stages}", f"depth {max(depths)} is what shared memory allows")
        )
    for loop, depth in rings.depths.items():
        hint = number_of(loop.attributes.get("num_stages"))
        if hint is not None and hint != depth:
            feature = f"num_stages={hint} of {name_of(loop)}"
            found.append(Declined(feature, f"depth {depth} is what shared memory allows"))
    if (limit := hints.get("maxnreg")) is not None:
        found.append(Declined(f"maxnreg={limit}", "each role has its own register budget"))
    if hints.get("num_ctas", 1) > 1 and problem.pins.cluster is None:
        found.append(Declined(f"num_ctas={hints['num_ctas']}", "clusters are a pin: cluster=2"))
    return found


def _better(problem: Problem, best: Plan) -> list[Plan]:
    """Return plans that fill the gaps of `best`: by turns, or by a second block."""
    found: list[Plan] = []
    if (part := beside_for_short_products(problem, best)) is not None:
        plans = [other for plan in _parts(part) for other in steadier(plan, problem.pins) or [plan]]
        found += [plan for plan in plans if suffices(part, plan, carried=True)][:1]
    for part in beside_for_synchronous_products(problem, best):
        if plans := [plan for plan in _parts(part) if suffices(part, plan)]:
            return plans[:1]
    if gains_by_turns(problem, best):
        return [*found, replace(best, arrangement="pingpong")]
    if (part := beside(problem, best)) is not None:
        found += [plan for plan in _parts(part) if suffices(part, plan)][:1]
    return found


def _from_registers(problem: Problem) -> Problem:
    """Return the problem of a kernel whose stores leave from registers."""
    return replace(problem, pins=replace(problem.pins, store="registers"))


def _parts(part: Problem) -> list[Plan]:
    """Return the plans of a block that has less, none where they do not fit."""
    with suppress(OverBudget):
        return _specialized_plans(part)
    return []
