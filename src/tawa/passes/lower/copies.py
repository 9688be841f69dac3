"""Let the copies of a producer lag: a slot is published some trips after its copies were started.

Purpose: keep the cp.async copies of several slots in flight.
Before -> after:
    scf.for .. (%slot ..) {                  scf.for .. (%slot .. %trip) {
      hopper.copy_async .. [%slot]             hopper.copy_async .. [%slot]
      hopper.copy_async_commit                 hopper.copy_async_commit
      hopper.copy_async_wait {0}       ->      hopper.copy_async_wait {L}; hopper.proxy_fence
      hopper.proxy_fence                       scf.if %trip >= L { hopper.arrive %f[%slot - L] }
      hopper.arrive %filled[%slot]           }
    }                                        hopper.copy_async_wait {0}; hopper.proxy_fence
                                             scf.if %trips >= L { hopper.arrive %f[%end - L] } ..
Requires: rings lowered. Ensures: each slot is published once, after its copies, for every trip
count. A consumer that waits for a slot must get it before it frees the slots the producer needs to
go on: L is at most the slots of the shallowest ring of the loop, less those a consumer holds.
Declines when: never; where a loop also turns rings in loops or branches inside it, L is 0.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects import scf
from xdsl.dialects.builtin import IntAttr
from xdsl.ir import BlockArgument, Operation, SSAValue

from tawa.ir import hopper
from tawa.passes.lower.context import Lowering, Ring
from tawa.passes.lower.dots import trip_counter
from tawa.passes.lower.emit import Emitter, erase, new_region

MOST = 4
"""Slots in flight beyond the one being started: more cover no more latency."""


@dataclass(frozen=True, slots=True)
class _Group:
    """What follows the copies into one slot: commit, wait, fence and arrive."""

    wait: hopper.CopyAsyncWait
    fence: hopper.ProxyFence
    arrive: hopper.Arrive


def let_copies_lag(lowering: Lowering, role: hopper.Role) -> None:
    """Let the copies of each innermost loop of `role` lag as far as its rings allow."""
    for loop in [op for op in role.walk() if isinstance(op, scf.ForOp)]:
        groups = _groups(loop)
        if groups and (lag := _lag(lowering, loop, groups)):
            _let_lag(lowering, loop, groups, lag)


def _groups(loop: scf.ForOp) -> list[_Group]:
    """Return the groups of copies directly in a loop; none where there are others inside."""
    found: list[_Group] = []
    for operation in loop.body.block.ops:
        if any(isinstance(inner, hopper.CopyAsyncWait) for inner in operation.walk()):
            if operation.regions:
                return []
            fence = operation.next_op
            arrive = fence.next_op if fence is not None else None
            assert isinstance(operation, hopper.CopyAsyncWait)
            assert isinstance(fence, hopper.ProxyFence), "copies are fenced"
            assert isinstance(arrive, hopper.Arrive), "copies are published"
            found.append(_Group(operation, fence, arrive))
    return found


def _lag(lowering: Lowering, loop: scf.ForOp, groups: list[_Group]) -> int:
    """Return how many trips publishing may come after copying."""
    block = loop.body.block
    rings: dict[SSAValue, Ring] = {ring.freed.result: ring for ring in lowering.rings.values()}
    waited: list[Ring] = []
    for operation in loop.walk():
        if not isinstance(operation, hopper.Wait) or operation.barriers not in rings:
            continue
        if not _is_in_every_trip(operation, loop):
            return 0
        waited.append(rings[operation.barriers])
    carried = all(
        isinstance(group.arrive.slot, BlockArgument) and group.arrive.slot.owner is block
        for group in groups
    )
    if not carried or len(set(map(id, waited))) != len(waited):
        return 0
    held = _held(lowering)
    return max(0, min(MOST, *(ring.depth - 1 - held for ring in waited)))


def _is_in_every_trip(operation: Operation, loop: scf.ForOp) -> bool:
    """Tell whether an operation stands directly in a loop, or in one of its elected threads."""
    parent = operation.parent_op()
    if isinstance(parent, hopper.OneThread):
        parent = parent.parent_op()
    return parent is loop


def _held(lowering: Lowering) -> int:
    """Return how many slots of a ring a consumer may hold beyond the one it waits for."""
    depths = [loop.mma_depth - 1 + (loop.schedule == "coarse") for loop in lowering.plan.loops]
    return max(depths, default=0)


def _let_lag(lowering: Lowering, loop: scf.ForOp, groups: list[_Group], lag: int) -> None:
    block = loop.body.block
    trip = trip_counter(lowering, loop)
    wide = block.parent_op()
    assert isinstance(wide, scf.ForOp)
    trips = wide.results[lowering.trips[block].index - 1]
    after = Emitter.after(wide)
    after.put(hopper.CopyAsyncWait(attributes={"pending": IntAttr(0)}))
    after.put(hopper.ProxyFence())
    depths: dict[SSAValue, int] = {
        ring.filled.result: ring.depth for ring in lowering.rings.values()
    }
    for number in range(lag, 0, -1):
        left = after.apply("ge", trips, after.constant(number))
        for group in groups:
            slot = group.arrive.slot
            assert isinstance(slot, BlockArgument)
            depth = depths[group.arrive.barriers]
            old = _earlier(after, wide.results[slot.index - 1], number, depth)
            _arrive_if(after, left, group.arrive, old)
    for group in groups:
        # Groups are counted by thread: those of `lag` trips are younger than the one published.
        group.wait.attributes["pending"] = IntAttr(lag * len(groups))
        before = Emitter.before(group.arrive)
        due = before.apply("ge", trip, before.constant(lag))
        old = _earlier(before, group.arrive.slot, lag, depths[group.arrive.barriers])
        _arrive_if(before, due, group.arrive, old)
        erase(group.arrive)


def _earlier(emitter: Emitter, slot: SSAValue, steps: int, depth: int) -> SSAValue:
    """Return the slot `steps` turns before `slot` in a ring of `depth`."""
    count = emitter.constant(steps)
    wraps = emitter.apply("lt", slot, count)
    below = emitter.apply("add", slot, emitter.constant(depth - steps))
    return emitter.apply("select", wraps, below, emitter.apply("sub", slot, count), hint="lagging")


def _arrive_if(emitter: Emitter, condition: SSAValue, like: hopper.Arrive, slot: SSAValue) -> None:
    arrive = hopper.Arrive(operands=[like.barriers, slot], attributes=dict(like.attributes))
    arrive.location = like.location
    emitter.put(scf.IfOp(condition, [], new_region(arrive, scf.YieldOp())))
