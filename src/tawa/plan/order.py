"""In which order programs run: one block each, or tile after tile, in groups that meet in L2, in
clusters that share loads.

Persistence needs a licence: in a kernel whose programs wait for one another, a block that computes
them one after the other could wait for itself.

How many blocks share a multiprocessor.

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

from tawa.analysis.cluster import influenced, obstacles
from tawa.analysis.hardware import by_multiply_adds
from tawa.analysis.liveness import needed_by
from tawa.analysis.stages import takes_turns
from tawa.analysis.statements import ATOMICS, READS, enclosing_loops, is_volatile, name_of
from tawa.analysis.transposed import fills_wgmma
from tawa.errors import PlanError
from tawa.ir import tile
from tawa.ir.types import element_type
from tawa.ir.walk import all_of, decisive, walk
from tawa.plan.consumers import computes_apart
from tawa.plan.plan import Declined, Grouped, Plan, Walk
from tawa.plan.problem import Problem
from tawa.plan.resources import aliases, carried_need, register_need
from tawa.plan.time import dot_cycles

GROUP = 8
"""Rows of tiles walked together so that their operands meet in L2 (Tawa, section 5: 8)."""

_CLUSTERS = (2, 4, 8)
"""Blocks of a cluster: what every Hopper GPU places (CUDA programming guide, "Thread Block
Clusters": 8 are portable), and what tiles split into."""


def _why_not_persistent(problem: Problem) -> str:
    """Return the reason why programs must stay one block each, or nothing."""
    for operation in walk(problem.kernel):
        match operation:
            case tile.Load() if is_volatile(operation):
                return f"programs may communicate: {name_of(operation)} is volatile"
            case scf.WhileOp() if _reads_to_go_on(operation):
                return f"programs may communicate: {name_of(operation)} waits for memory"
            case tile.Print() | tile.Assert():
                return "device_print and device_assert name the program: a block would have several"
            case tile.NumPrograms() if _steers_loops(problem, operation):
                return "the kernel loops over its tiles itself"
            case scf.ForOp() if isinstance(operation.lb.owner, tile.ProgramId):
                return "the kernel loops over its tiles itself"
            case _:
                pass
    return ""


def _steers_loops(problem: Problem, count: tile.NumPrograms) -> bool:
    """Tell whether the number of programs decides how often a loop runs, or over what."""
    known = influenced([count.result])
    loops = all_of(problem.kernel, scf.ForOp, scf.WhileOp)
    return any(value in known for loop in loops for value in decisive(loop))


def _reads_to_go_on(loop: scf.WhileOp) -> bool:
    """Tell whether a condition reads memory (needed_by follows values the loop carries)."""
    return any(isinstance(op, (*READS, *ATOMICS)) for op in needed_by(loop))


def _why_alone(problem: Problem) -> str:
    """Return why programs are better off with a block each, or nothing.

    Who has the result of an atomic goes on in one of several ways, such as the last to arrive that
    adds up what the others left: no licence is missing, but nobody asked for it.
    """
    for operation in walk(problem.kernel):
        if isinstance(operation, ATOMICS) and operation.results[0].uses:
            return f"what a program does depends on {name_of(operation)}"
    return ""


def choose_persistence(problem: Problem, declined: list[Declined]) -> bool:
    """Tell whether blocks compute tile after tile; adds the reason to `declined` where not.

    Raises PlanError when it is pinned without a licence.
    """
    reason = _why_not_persistent(problem)
    if problem.pins.persistent:
        if reason:
            raise PlanError("persistent=True", why=reason)
        return True
    if problem.pins.persistent is False:
        return False
    reason = reason or _why_alone(problem)
    if reason:
        declined.append(Declined("persistence", reason))
    return not reason


def choose_group(problem: Problem, persistent: bool) -> int:
    """Return the rows of tiles walked together, 0 for the grid's own order.

    Groups pay where some loads follow axis 0 alone and others axis 1 alone, as the operands of a
    product do; where all follow one axis (keys of a head), its neighbours are neighbours already.
    """
    axes = {op.axis.data for op in walk(problem.kernel) if isinstance(op, tile.ProgramId)}
    plain = {0, 1} <= axes and persistent
    if problem.pins.group is None:
        followed = {
            frozenset(op.axis.data for op in needed_by(load) if isinstance(op, tile.ProgramId))
            for load in problem.partition.loads
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


def choose_grouped(problem: Problem, group: int) -> Grouped:
    """Return whether rows or columns of tiles are walked together: rows, unless pinned.

    Neighbours in a group of rows load the same columns' operand at about the same time, which the
    path to L2 merges; in a group of columns, the rows' operand. Raises PlanError for a pin that
    cannot be honoured.
    """
    pinned = problem.pins.grouped or "rows"
    check_grouped(pinned, group)
    return pinned


def check_grouped(grouped: Grouped, group: int) -> None:
    """Raise PlanError where columns are to be walked together and nothing is."""
    if grouped == "columns" and not group:
        raise PlanError(
            "grouped='columns'",
            why="no tiles are walked together: group is 0",
            remedy="give group=, of a persistent kernel over two axes, or leave grouped out",
        )


def choose_walk(problem: Problem, plan: Plan) -> Walk:
    """Return the order of a block's tiles: whichever comes next where their costs differ.

    They differ where the iterations of a loop depend on the program. To go back and forth is a pin:
    it gains where costs fall over the whole grid, and loses where the pattern is shorter than a
    round. Raises PlanError for a pin that cannot be honoured.
    """
    pinned = problem.pins.walk
    if pinned is not None:
        check_walk(problem, replace(plan, walk=pinned))
        return pinned
    if not plan.persistent:
        return "forward"
    return "dynamic" if may_ask(problem) and not _why_not_dynamic(problem, plan) else "forward"


def may_ask(problem: Problem) -> bool:
    """Tell whether the blocks of a persistent kernel may ask for their tiles one by one."""
    if problem.pins.walk is not None:
        return problem.pins.walk == "dynamic"
    ids = [op.result for op in walk(problem.kernel) if isinstance(op, tile.ProgramId)]
    varying = influenced(ids)
    return any(
        bound in varying
        for loop in problem.statements.values()
        if isinstance(loop, scf.ForOp)
        for bound in (loop.lb, loop.ub, loop.step)
    )


def check_walk(problem: Problem, plan: Plan) -> None:
    """Raise PlanError where a block's tiles cannot come in this order."""
    why = ""
    if plan.walk != "forward" and not plan.persistent:
        why = "a block that is not persistent computes one tile"
    elif plan.walk == "dynamic":
        why = _why_not_dynamic(problem, plan)
    if why:
        raise PlanError(f"walk={plan.walk!r}", why=why, remedy="leave walk out")


def _why_not_dynamic(problem: Problem, plan: Plan) -> str:
    """Return why the producer cannot ask for tiles one by one, or nothing."""
    if plan.cluster > 1:
        return "the blocks of a cluster take their tiles together"
    if computes_apart(problem) or any(role.instances > 1 for role in plan.roles):
        return "consumers with tiles of their own know beforehand which are theirs"
    alone = any(role.label == "transpose" for role in plan.roles)
    by_one = ("tma", "transpose") if alone else ("tma",)
    if any(ring.via not in by_one for ring in plan.arefs):
        return "one thread asks, and this producer's threads all move tiles"
    return ""


def choose_cluster(problem: Problem, cluster: int | None, persistent: bool) -> int:
    """Return the blocks of a cluster: those that are pinned, else one.

    Raises PlanError where blocks could not share loads, with the reason and the remedy.
    """
    if cluster in (None, 1):
        return 1
    what = f"cluster={cluster}"
    if cluster not in _CLUSTERS:
        sizes = ", ".join(map(str, _CLUSTERS))
        raise PlanError(what, why=f"the blocks that share loads are {sizes}, or 1 alone")
    loads = problem.partition.loads
    if found := next(obstacles(problem.kernel, loads, persistent), None):
        raise PlanError(what, why=found.reason, remedy=found.remedy)
    return cluster


# --- blocks that share a multiprocessor -----------------------------------------------------------


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
    loops = problem.loops
    if not any(takes_turns(loop) for loop in loops):
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
    loops = problem.loops
    iterations = [iteration for loop in loops if (iteration := takes_turns(loop)) is not None]
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
    loads = problem.partition.loads
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
    loads = set(problem.partition.loads)
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
