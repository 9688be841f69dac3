"""How the registers of a block are shared out to its roles: setmaxnreg moves what it has."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import prod

from xdsl.ir import Operation, SSAValue

from tawa.analysis.hardware import Run, copy_run
from tawa.analysis.liveness import needed_by
from tawa.analysis.masks import conjuncts
from tawa.errors import PlanError
from tawa.ir import tile
from tawa.ir.types import shape_of
from tawa.plan.plan import Plan
from tawa.plan.resources import SLACK
from tawa.target import Target

COPYING = (56, 72, 88, 104, 128, 152, 176, 200)
"""Register budgets of a producer whose threads copy."""


TRANSPOSING = (32, 24)
"""Register budgets of a role that transposes tiles: four words in flight, addresses, barriers."""


@dataclass(frozen=True, slots=True)
class Budgets:
    """Registers a thread of each role; `transposer` 0 where no role transposes."""

    producer: int
    consumer: int
    transposer: int = 0


def producer_need(loads: Iterable[Operation]) -> int:
    """Return the registers a producer's thread needs to copy the tiles of `loads` by cp.async.

    Two a copy for its address, one for each number that its mask compares, two for a row number
    that the loop reads, of this iteration and the next; 0 where TMA moves all tiles.
    """
    need = 0
    rows: dict[Operation, int] = {}
    for load in loads:
        run = copy_run(load) if isinstance(load, tile.Load) else ""
        if isinstance(run, Run) and isinstance(load, tile.Load):
            copies = prod(shape_of(load.result.type)) // (run.elements * 128)
            need += copies * (2 + _compared(load, run.axis))
            rows |= {index: max(copies, rows.get(index, 0)) for index in _rows_of(load)}
    return SLACK + need + 2 * sum(rows.values()) if need else 0


def _rows_of(load: tile.Load) -> list[Operation]:
    """Return the loads of the same block that make the vectors in a load's addresses."""
    return [
        op
        for op in needed_by(load)
        if isinstance(op, tile.Load)
        and op.parent is load.parent
        and len(shape_of(op.result.type)) == 1
    ]


def _compared(load: tile.Load, axis: int) -> int:
    """Return how many numbers a copy's mask compares that differ from run to run, 1 at least."""
    found: set[SSAValue] = set()
    for part in conjuncts(load.mask) if load.mask is not None else ():
        value = part
        while isinstance(value.owner, tile.Broadcast | tile.ExpandDims):
            value = value.owner.operands[0]
        if isinstance(value.owner, tile.Elementwise) and not _along(part, axis):
            varying = (x for x in value.owner.inputs if shape_of(x.type))
            found.update(x for x in varying if not isinstance(x.owner, tile.Splat | tile.Constant))
    return max(1, len(found))


def _along(value: SSAValue, axis: int) -> bool:
    """Tell whether a part of a mask changes along dimension `axis` alone."""
    inner = value.owner.operands[0] if isinstance(value.owner, tile.Broadcast) else value
    return all(extent == 1 or dim == axis for dim, extent in enumerate(shape_of(inner.type)))


def split_registers(
    consumers: int,
    needed: int,
    target: Target,
    producer_needs: int = 0,
    *,
    transposer: bool = False,
) -> Budgets:
    """Return the register budgets a thread, for `consumers` warpgroups.

    setmaxnreg moves registers inside the block: the sum over warpgroups may not exceed what the
    kernel is launched with. A producer that starts TMA copies gets 40, or less where the consumers
    then get more of what would be lost to rounding, or need it; one whose threads copy gets what
    they need (`producer_needs`), less where the consumers need it. A `transposer` gets 32, or 24
    where the consumers need the rest.
    """
    if not transposer:
        pool = pool_of(1 + consumers, target)
        return _split(consumers, needed, target, producer_needs, pool)
    pool = pool_of(2 + consumers, target)
    found = Budgets(0, 0)
    for own in TRANSPOSING:
        made = _split(consumers, needed, target, producer_needs, pool - own)
        if made.consumer > found.consumer:
            found = replace(made, transposer=own)
        if needed <= found.consumer:
            break
    return found


def pool_of(groups: int, target: Target) -> int:
    """Return the sum of the registers a thread of `groups` warpgroups that share a block."""
    return target.registers_at_launch(128 * groups) * groups


def _split(consumers: int, needed: int, target: Target, producer_needs: int, pool: int) -> Budgets:
    """Share a pool between one producer and the consumers."""
    most = target.registers_max - 16  # 240: above it ptxas has no use for a budget
    best = Budgets(0, 0)
    choices = (40, 32, 24)
    if producer_needs:
        most_useful = next((n for n in COPYING if n >= producer_needs), COPYING[-1])
        choices = tuple(n for n in reversed(COPYING) if n <= most_useful)
    for producer in choices:
        left = (pool - producer) // consumers // 8 * 8
        budget = min(most, left)
        wasted = pool - producer - left * consumers
        if not best.producer or (
            budget > best.consumer and (wasted == 0 or needed > best.consumer)
        ):
            best = Budgets(producer, budget)
        if needed <= best.consumer and (wasted == 0 or budget == most):
            break
    if producer_needs:
        # What the consumers have no use for costs nothing: ptxas keeps more addresses in it.
        left = pool - best.consumer * consumers
        spare = max((n for n in COPYING if n <= left), default=0)
        best = replace(best, producer=max(best.producer, spare))
    return best


def moved_to_helpers(plan: Plan, target: Target) -> Plan | None:
    """Return a plan whose consumers give a step of their registers to the last role that serves
    them, which works most; None where no such role is, or the consumers have no more to give.
    """
    helpers = [role for role in plan.roles if role not in plan.consumers]
    step = target.register_unit
    if not helpers or any(r.registers - step < target.registers_min for r in plan.consumers):
        return None
    freed = sum(step * role.warps * role.instances for role in plan.consumers)
    gained = freed // helpers[-1].warps // step * step
    roles = tuple(
        replace(role, registers=role.registers - step)
        if role in plan.consumers
        else replace(role, registers=role.registers + gained * (role is helpers[-1]))
        for role in plan.roles
    )
    return replace(plan, roles=roles)


def check_register_sum(plan: Plan, target: Target) -> None:
    """Raise PlanError when the roles' budgets exceed what the block is launched with."""
    threads = sum(role.warps * role.instances for role in plan.roles) * 32
    each = target.registers_at_launch(threads)
    asked = sum(role.registers * role.warps * 32 * role.instances for role in plan.roles)
    for role in plan.roles:
        low, high = target.registers_min, target.registers_max
        if role.registers % target.register_unit or not low <= role.registers <= high:
            raise PlanError(
                f"registers of role {role.label}: {role.registers}",
                why=f"setmaxnreg takes multiples of {target.register_unit} in {low}..{high}",
                remedy="round the pinned value",
            )
    if asked > each * threads:
        listed = ", ".join(
            f"{role.label} {role.warps * role.instances} warps x {role.registers}"
            for role in plan.roles
        )
        raise PlanError(
            f"the roles' registers sum to {asked}, more than the block's {each * threads}",
            why=f"{threads} threads are launched with {each} registers each; {listed}. "
            "setmaxnreg would wait for ever",
            remedy="lower registers= of one role",
        )
