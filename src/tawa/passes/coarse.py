"""Purpose: let the products of two iterations overlap: T of one, U of the one before (coarse).

Before -> after::

    %k = aref.get_enter ..                    iteration j of the new loop:
    %s = tile.dot %q, %k         (T)            %k = aref.get_enter ..
    aref.get_exit                               %s = tile.dot %q, %k          T of j
    %p = ..                      (C)            %v = aref.get_enter ..
    %v = aref.get_enter ..               ->     %x2 = tile.dot %p', %v, %x    U of j - 1
    %x2 = tile.dot %p, %v, %x    (U)            aref.get_exit                 K's
    aref.get_exit                               %p = ..                       C of j, under U
                                                hopper.pin %p
                                                aref.get_exit                 V's
                                                %x3 = "mul"(%x2, ..)          rescale

Where rings are shallow, what fills them follows the order in which slots are taken.
Stages come from `analysis.stages`; the order issues all products first, so that what computes runs
under the products it does not wait for. Waits and releases are placed later, by `lower.waits`.

Requires: aref IR, roles distributed. Ensures: the same values; each ring is got and freed in the
same order as before.
Declines when: the products of an iteration do not feed one another, a loop makes one iteration at
most, or a ring has too few slots.

Producers fill slots in the order in which a pipelined consumer empties them.

Before -> after, for a consumer whose iteration j takes K of j and V of j - 1 (`passes.coarse`)::

    scf.for .. {                       K of the first iteration
      put K of j                       scf.for .. {
      put V of j             ->          put K of j
    }                                    put V of j - 1
                                       }
                                       V of the last iteration

In the order of the text K of the next iteration waits behind V, whose slot is freed late: the
products of that iteration would begin with the latency of a load. (H200, attention at head dim 256,
where two slots of each fit: +1 to 4 percent.) Rings of more slots than that have one to load into
meanwhile; those that several loops turn keep the order of the text, which is proved faster.

Cheap statements that several stages use are made once in each of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects import scf
from xdsl.ir import Block, Operation, OpResult, SSAValue

from tawa.analysis.polynomial import polynomial
from tawa.analysis.stages import Stages, borrowed, defined_in, find_stages, statements
from tawa.analysis.statements import VIEWS, is_pure, name_of, readers, views_of
from tawa.ir import aref, tile
from tawa.ir.types import shape_of
from tawa.ir.walk import all_of, has, terminator
from tawa.passes.software_pipeline import Schedule, pipeline_loop
from tawa.plan.plan import Declined, LoopPlan, Plan
from tawa.target import Target


def overlap_products(kernel: tile.Kernel, plan: Plan, target: Target) -> tuple[Declined, ...]:
    """Pipeline the loops whose plan is coarse."""
    plans = {loop.loop: loop for loop in plan.loops if loop.schedule == "coarse"}
    notes: list[Declined] = []
    roles = [op for op in kernel.body.block.ops if isinstance(op, aref.Role)]
    taken: list[Taken] = []
    for role in roles:
        for loop in all_of(role, scf.ForOp):
            hint = plans.get(name_of(loop))
            if hint is None or not has(loop, tile.Dot):
                continue
            match _pipeline_coarse(loop, hint):
                case Taken() as rings:
                    taken.append(rings)
                case reason:
                    notes.append(Declined(f"schedule=coarse of {hint.loop}", reason))
    skew_puts(roles, taken)
    return tuple(notes)


def _pipeline_coarse(loop: scf.ForOp, plan: LoopPlan) -> Taken | str:
    """Pipeline one loop with the coarse schedule; return the reason where that is not done, else
    when it takes which tiles.
    """
    if _makes_one_iteration(loop):
        return "the loop makes one iteration at most: no other overlaps with it"
    settle_carried(loop)
    stages = find_stages(loop)
    if not stages.reason:
        part_stages(loop, stages)
        stages = find_stages(loop)
    if reason := stages.reason or _why_too_few_slots(loop, stages):
        return reason
    order, breaks = coarse_order(loop, stages)
    pipeline_loop(loop, Schedule(tuple(order), stages.of, breaks if plan.pins else ()))
    gets = (op for op in stages.of if isinstance(op, aref.GetEnter))
    return Taken(plan.loop, {op.aref: stages.of[op] for op in gets})


def _makes_one_iteration(loop: scf.ForOp) -> bool:
    """Tell whether a loop goes no further than its step: on the diagonal of a causal mask."""
    span = (polynomial(loop.ub) - polynomial(loop.lb)).as_constant
    step = polynomial(loop.step).as_constant
    return span is not None and step is not None and 0 < span <= step


# --- preparing a body -----------------------------------------------------------------------------


def settle_carried(loop: scf.ForOp) -> None:
    """Give each carried value a statement of the body that makes it.

    A value from outside, or the loop's index, that is carried to the next iteration is named again.
    """
    block = loop.body.block
    end = terminator(block)
    for index, value in enumerate(end.operands):
        argument = block.args[index + 1]
        carried = value in block.args and value is not block.args[0]
        if value is argument or carried or defined_in(value, block):
            continue
        again = tile.Bitcast.make(value, results=[value.type])
        block.insert_op_before(again, end)
        end.operands[index] = again.result


def _why_too_few_slots(loop: scf.ForOp, stages: Stages) -> str:
    """Return why a ring has not the slots that the stages hold at once, or nothing."""
    pairs = borrowed(loop.body.block)
    held: dict[SSAValue, int] = {}
    for free, get in pairs.items():
        span = 1 + stages.of[free] - stages.of[get]
        held[get.aref] = held.get(get.aref, 0) + span
    for ring, slots in held.items():
        create = ring.owner
        assert isinstance(create, aref.Create)
        if create.depth.data < slots:
            return f"ring {create.label.data} has {create.depth.data} slots, {slots} are held"
    gets = {op for op in stages.of if isinstance(op, aref.GetEnter)}
    if gets != set(pairs.values()) or any(
        isinstance(op, aref.GetExit) and op not in pairs for op in stages.of
    ):
        return "a slot got in one iteration is freed in another"
    return ""


# --- the coarse order -----------------------------------------------------------------------------


def coarse_order(loop: scf.ForOp, stages: Stages) -> tuple[list[Operation], tuple[int, ...]]:
    """Return the order of an iteration, and where values are pinned in it (see `Schedule.breaks`).

    First every product is issued, those of early stages first, each with what it needs; then
    statements follow by the last product whose result they need in this iteration.
    """
    block = loop.body.block
    ops = statements(block)
    number = {op: index for index, op in enumerate(ops)}
    meets = _meetings(block, ops, stages)
    dots = sorted(
        (op for op in ops if isinstance(op, tile.Dot)), key=lambda op: (stages.of[op], number[op])
    )
    order: list[Operation] = []
    placed: set[Operation] = set()

    def place(operation: Operation) -> None:
        if operation in placed:
            return
        placed.add(operation)
        for before in sorted(meets[operation], key=lambda op: number[op]):
            place(before)
        order.append(operation)

    for dot in dots:
        place(dot)
    issued: dict[Operation, int] = {
        dot: index for index, dot in enumerate(sorted(dots, key=order.index), 1)
    }
    phase: dict[Operation, int] = {}

    def phase_of(operation: Operation) -> int:
        if operation not in phase:
            before = max((phase_of(op) for op in meets[operation]), default=0)
            phase[operation] = max(before, issued.get(operation, 0))
        return phase[operation]

    def settled(operation: Operation) -> int:
        return max(phase_of(operation), _operand_phase(operation, stages, issued))

    rest = [op for op in ops if op not in placed]
    rest.sort(
        key=lambda op: (settled(op), not isinstance(op, aref.GetExit), stages.of[op], number[op])
    )
    breaks: list[int] = []
    last = 0
    for operation in rest:
        current = settled(operation)
        if last and current > last:
            breaks.append(len(order))
        last = current
        place(operation)
    return order, tuple(breaks)


def _operand_phase(operation: Operation, stages: Stages, issued: Mapping[Operation, int]) -> int:
    """Return the phase in which the registers that `operation` writes are free.

    A product of the iteration before may still read them: the conversion that fills a register
    operand waits for it, or the operand would be held, and copied, twice.
    """
    if not isinstance(operation, (tile.Cast, *VIEWS)):
        return 0
    uses = [use for view in views_of(operation.results[0]) for use in view.uses]
    uses = [use for use in uses if not isinstance(use.operation, VIEWS)]
    dots = [use.operation for use in uses if isinstance(use.operation, tile.Dot)]
    if len(dots) != len(uses) or any(use.index != 0 for use in uses):
        return 0
    return max((issued[dot] for dot in dots if stages.of[dot] > stages.of[operation]), default=0)


def _meetings(
    block: Block, ops: Sequence[Operation], stages: Stages
) -> dict[Operation, set[Operation]]:
    """Return, for each statement, those that must stand before it in the same iteration."""
    meets = {op: set(stages.met_by(op)) for op in ops}
    pairs = borrowed(block)
    for free, get in pairs.items():
        for value in get.values:
            users = (block.find_ancestor_op_in_block(user) for user in readers(value))
            met = {user for user in users if user is not None and user is not free}
            meets[free] |= {user for user in met if stages.of.get(user) == stages.of[free]}
        if stages.of[get] == stages.of[free]:
            meets[free].add(get)
    last: dict[object, Operation] = {}
    for operation in ops:
        match operation:
            case aref.GetEnter():
                chain: object = ("get", operation.aref)
            case aref.GetExit():
                chain = ("free", operation.aref)
            case _ if not is_pure(operation) and not isinstance(operation, tile.Dot):
                chain = "memory"
            case _:
                continue
        if chain in last and stages.of[last[chain]] == stages.of[operation]:
            meets[operation].add(last[chain])
        last[chain] = operation
    return meets


# --- what fills rings for a pipelined loop --------------------------------------------------------


_FEW_SLOTS = 2


@dataclass(frozen=True, slots=True)
class Taken:
    """The stage in which a pipelined loop takes the tiles of each ring."""

    loop: str
    stages: Mapping[SSAValue, int]


def skew_puts(roles: Sequence[aref.Role], taken: Sequence[Taken]) -> None:
    """Pipeline the loops that fill rings for a pipelined loop, if that is all they do."""
    turned = Counter(ring for each in taken for ring in each.stages)
    for each in taken:
        if all(turned[ring] == 1 and _depth(ring) <= _FEW_SLOTS for ring in each.stages):
            for role in roles:
                _skew(role, each)


def _depth(ring: SSAValue) -> int:
    assert isinstance(ring.owner, aref.Create), "a ring is created before the roles"
    return ring.owner.depth.data


def _skew(role: aref.Role, taken: Taken) -> None:
    for loop in all_of(role, scf.ForOp):
        if name_of(loop) != taken.loop:
            continue
        stage = _put_stages(loop, taken.stages)
        if stage is None or len(set(stage.values())) < 2:
            continue
        part_stages(loop, Stages(stage, {}, frozenset(op for op in stage if is_pure(op))))
        parted = _put_stages(loop, taken.stages)
        assert parted is not None, "copies of pure statements"
        order = sorted(parted, key=parted.__getitem__)  # stable: the program's order in a stage
        pipeline_loop(loop, Schedule(tuple(order), parted))


def _put_stages(loop: scf.ForOp, taken: Mapping[SSAValue, int]) -> dict[Operation, int] | None:
    """Return the stage of each statement, None where some are no puts of rings that are taken."""
    if len(loop.body.block.args) > 1:
        return None
    found: dict[Operation, int] = {}
    ops = statements(loop.body.block)
    for operation in ops:
        match operation:
            case aref.PutEnter() if operation.aref in taken:
                found[operation] = taken[operation.aref]
            case aref.PutExit(slot=OpResult(owner=owner)) if owner in found:
                found[operation] = found[owner]
            case tile.DescLoad():
                pass
            case _ if is_pure(operation) and not operation.regions:
                pass
            case _:
                return None
    for operation in reversed(ops):
        if operation in found:
            continue
        users = [use.operation for value in operation.results for use in value.uses]
        at = [found.get(user) for user in users]
        if not at or None in at:
            return None
        found[operation] = min(stage for stage in at if stage is not None)
    return {operation: found[operation] for operation in ops}


# --- what several stages use ----------------------------------------------------------------------


_REMADE = (tile.Constant, tile.Splat, tile.Arange, tile.ExpandDims, tile.Broadcast, *VIEWS)


def part_stages(loop: scf.ForOp, stages: Stages) -> None:
    """Make what is cheap and used in several stages once for each of them, not carry it along."""
    block = loop.body.block
    users_stage = dict(stages.of)
    for operation in reversed(statements(block)):
        cheap = operation in stages.free and (
            isinstance(operation, _REMADE) or not any(shape_of(v.type) for v in operation.results)
        )
        if not cheap:
            continue
        uses = [use for value in operation.results for use in value.uses]
        at: dict[int, set[Operation]] = {}
        for use in uses:
            user = block.find_ancestor_op_in_block(use.operation)
            if user is not None and user in users_stage:
                at.setdefault(users_stage[user], set()).add(user)
        for number in sorted(at)[1:]:
            copy = operation.clone()
            block.insert_op_before(copy, operation)
            users_stage[copy] = number
            for old, new in zip(operation.results, copy.results):
                _use_instead(old, new, at[number], block)


def _use_instead(old: SSAValue, new: SSAValue, users: set[Operation], block: Block) -> None:
    old.replace_uses_with_if(
        new, lambda use: block.find_ancestor_op_in_block(use.operation) in users
    )
