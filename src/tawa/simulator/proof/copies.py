"""What moves bytes: accesses to shared memory by threads, TMA in both directions, cp.async."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, SSAValue

from tawa.ir import hopper
from tawa.ir.types import LayoutAttr
from tawa.layouts.register import RegisterLayout
from tawa.layouts.transpose import given, taken
from tawa.simulator.proof.counting import carries_scalar
from tawa.simulator.proof.decode import Decoder, Step, compute, concrete, fresh, run_steps
from tawa.simulator.proof.effects import alone, barrier_of, elected, together
from tawa.simulator.proof.globals import box_of
from tawa.simulator.proof.machine import Agent
from tawa.simulator.proof.memory import Access, Bucket
from tawa.simulator.proof.regions import Footprint
from tawa.simulator.proof.rules import Unproved, Violation
from tawa.simulator.proof.scalars import Scalar


@dataclass(eq=False, slots=True)
class Groups:
    """Asynchronous copies of one thread: those not yet committed, and the groups in order."""

    open: int = 0
    reads: list[int] = field(default_factory=list[int])
    writes: list[int] = field(default_factory=list[int])
    open_write: int = 0
    written: int = 0
    last: Operation | None = None

    def commit(self) -> None:
        """Close the group."""
        self.reads.append(self.open)
        self.writes.append(self.open_write)
        self.open = self.open_write = 0


def bucket_of(agent: Agent, block: int, place: Footprint, slot: int, op: Operation) -> Bucket:
    """Return the bucket of a slot. Raises Violation past the end of the buffer."""
    buffer = place.buffer
    if not 0 <= slot < buffer.slots:
        sentence = f"{agent.label} uses slot {slot} of {buffer.label}, which has {buffer.slots}."
        raise Violation("form", sentence, op)
    memory = agent.world.blocks[block].memory
    key = buffer.bucket(slot)
    bucket = memory.get(key)
    if bucket is None:
        name = f"slot {slot} of {buffer.label}" if buffer.alone else f"memory of {buffer.label}"
        bucket = memory[key] = Bucket(name)
    return bucket


def touch_shared(
    agent: Agent, place: Footprint, slot: int, mask: int, write: bool, op: Operation, what: str
) -> None:
    """Access shared memory by the threads of an agent."""
    if not mask:
        return
    world = agent.world
    bucket = bucket_of(agent, agent.block, place, slot, op)
    turn = agent.turns[op] = agent.turns.get(op, 0) + 1
    event = world.event()
    mask <<= place.buffer.shift(slot)
    world.step(agent, op, f"{what}: {bucket.name}")
    access = Access(mask, event, write, False, agent, what, op, world.steps, turn)
    bucket.check(access)
    if write:
        bucket.put = None
    else:
        bucket.see(agent, place.buffer.number, op)
    agent.known |= event
    world.by_threads |= event
    if agent.single:
        agent.unfenced_one |= event
    else:
        agent.unfenced |= event
    bucket.record(access)


def _layout(value: SSAValue) -> RegisterLayout | None:
    kind = value.type
    if isinstance(kind, TensorType) and isinstance(kind.encoding, LayoutAttr):
        return kind.encoding.data
    return None


def _share(place: Footprint, layout: RegisterLayout | None) -> Callable[[Agent], int]:
    """Return the function agent -> mask of what its warps hold of a view."""
    if layout is None:
        return lambda agent: place.mask()
    base = layout

    def share(agent: Agent) -> int:
        return place.share(base, agent.warps)

    return share


def shared_store_rule(decoder: Decoder, store: hopper.SharedStore) -> Step:
    """Threads write registers to a view; a scalar's value is kept for those who read it."""
    place, slot = decoder.view(store.view)
    layout = _layout(store.value)
    share = _share(place, layout)
    check = decoder.touch(decoder, store)
    # Bytes that other buffers share may have changed by the time they are read.
    kept = carries_scalar(store.value) and place.buffer.alone
    scalar = decoder.number(store.value) if kept else -1

    def run(agent: Agent) -> None:
        if check is not None:
            check.run(agent)
        index = concrete(agent, slot, "slot", store)
        touch_shared(agent, place, index, share(agent), True, store, "shared_store")
        if scalar >= 0:
            content: dict[tuple[int, int], Scalar] = agent.home.scalars
            content[place.buffer.number, index] = agent.env[scalar]

    return Step(run)


def shared_transpose_rule(decoder: Decoder, move: hopper.SharedTranspose) -> Step:
    """Each warp copies its part of one tile to another."""
    source, from_slot = decoder.view(move.source)
    target, to_slot = decoder.view(move.view)
    rows, columns = source.shape
    warps = _role_of(move).warps.data
    parts = taken((rows, columns), warps), given((rows, columns), warps)

    def run(agent: Agent) -> None:
        together(agent, move)
        have = source.share(parts[0], agent.warps)
        made = target.share(parts[1], agent.warps)
        index = concrete(agent, from_slot, "slot", move)
        touch_shared(agent, source, index, have, False, move, "shared_transpose")
        index = concrete(agent, to_slot, "slot", move)
        touch_shared(agent, target, index, made, True, move, "shared_transpose")

    return Step(run)


def _role_of(operation: Operation) -> hopper.Role:
    parent = operation.parent_op()
    while not isinstance(parent, hopper.Role):
        if parent is None:
            raise Violation("form", f"{operation.name} stands outside roles.", operation)
        parent = parent.parent_op()
    return parent


def shared_load_rule(decoder: Decoder, load: hopper.SharedLoad) -> Step:
    """Threads read a view into registers."""
    place, slot = decoder.view(load.view)
    layout = _layout(load.result)
    share = _share(place, layout)
    check = decoder.touch(decoder, load)
    out = decoder.number(load.result) if load.result in decoder.needed else -1
    other = fresh(load, out)

    def run(agent: Agent) -> None:
        if check is not None:
            check.run(agent)
        index = concrete(agent, slot, "slot", load)
        touch_shared(agent, place, index, share(agent), False, load, "shared_load")
        if out >= 0:
            content: dict[tuple[int, int], Scalar] = agent.home.scalars
            known = content.get((place.buffer.number, index)) if place.buffer.alone else None
            if known is None:
                other.run(agent)
            else:
                agent.env[out] = known

    return Step(run)


def fma_dot_rule(decoder: Decoder, dot: hopper.FmaDot) -> Step:
    """Threads read both operands; which parts is the instruction's business: all of them."""
    operands = [decoder.view(dot.a), decoder.view(dot.b)]
    check = decoder.touch(decoder, dot)

    def run(agent: Agent) -> None:
        if check is not None:
            check.run(agent)
        for place, slot in operands:
            index = concrete(agent, slot, "slot", dot)
            touch_shared(agent, place, index, place.mask(), False, dot, "fma_dot")

    return Step(run)


# --- TMA ------------------------------------------------------------------------------------------


def tma_load_rule(decoder: Decoder, load: hopper.TmaLoad) -> Step:
    """One thread starts a copy; its bytes complete on a barrier, of every block it is sent to."""
    place, slot = decoder.view(load.view)
    array, index = decoder.arrays[load.barriers], decoder.number(load.slot)
    parts = load.multicast.data if load.multicast is not None else 1
    offsets = tuple(decoder.number(value) for value in load.offsets)
    followed = load in decoder.followed
    rows = place.row_count
    if rows % parts:
        sentence = f"a tile of {rows} rows is sent in {parts} parts."
        raise Violation("form", sentence, load)

    def run(agent: Agent) -> None:
        alone(agent, load)
        world = agent.world
        if parts > 1 and parts != world.cluster:
            sentence = f"{agent.label} sends to {parts} blocks of a cluster of {world.cluster}."
            raise Violation("form", sentence, load)
        where = concrete(agent, slot, "slot", load)
        number = concrete(agent, index, "slot", load)
        share = rows // parts
        part = agent.block * share if parts > 1 else 0
        mask = place.rows(part, part + share) << place.buffer.shift(where)
        event = world.event()
        if followed:
            world.globals.access(agent, load, event, box_of(load, agent.env, offsets))
        for block in range(parts) if parts > 1 else (agent.block,):
            bucket = bucket_of(agent, block, place, where, load)
            world.step(agent, load, f"tma_load: {bucket.name}")
            access = Access(mask, event, True, True, agent, "tma_load", load, world.steps)
            bucket.check(access)
            bucket.record(access)
            if block != agent.block:
                world.remote.append((event, block, f"a multicast copy of {agent.label}", load))
            barrier = barrier_of(agent, block, array, number, load)
            bucket.put = (array, barrier.put) if place.buffer.alone else None
            barrier.deliver(world, agent, place.bytes // parts, event, load)
        world.flying.append((event, agent, load))

    return Step(run)


def tma_store_rule(decoder: Decoder, store: hopper.TmaStore) -> Step:
    """The elected threads start copies out of a view."""
    place, slot = decoder.view(store.view)
    by, rows = store.by.data, place.row_count
    offsets = tuple(decoder.number(value) for value in store.offsets)
    followed = store in decoder.followed

    def run(agent: Agent) -> None:
        if not elected(agent, by, store):
            return
        world = agent.world
        shares = agent.home.groups[agent.role] if by == "warpgroup" else 1
        if rows % shares or by not in ("thread", "warpgroup", "role"):
            sentence = f'a view of {rows} rows is stored by "{by}" in {shares} shares.'
            raise Violation("form", sentence, store)
        share = rows // shares
        first = agent.group * share if shares > 1 else 0
        where = concrete(agent, slot, "slot", store)
        bucket = bucket_of(agent, agent.block, place, where, store)
        mask = place.rows(first, first + share) << place.buffer.shift(where)
        world.step(agent, store, f"tma_store: {bucket.name}")
        event = world.event()
        access = Access(mask, event, False, True, agent, "tma_store", store, world.steps)
        bucket.check(access)
        bucket.record(access)
        groups: Groups = agent.bulk
        groups.open |= event
        written = world.event()
        groups.open_write |= written
        if followed:
            world.globals.access(agent, store, written, box_of(store, agent.env, offsets))
        groups.last = store

    return Step(run)


def bulk_commit_rule(decoder: Decoder, commit: hopper.BulkCommit) -> Step:
    """Close the group of the elected threads."""
    by = commit.by.data

    def run(agent: Agent) -> None:
        if elected(agent, by, commit):
            agent.world.step(agent, commit, "commits its TMA stores")
            agent.bulk.commit()

    return Step(run)


def bulk_wait_rule(decoder: Decoder, wait: hopper.BulkWait) -> Step:
    """Wait for all but the newest groups of the elected threads."""
    by, pending = wait.by.data, wait.pending.data
    read = bool(wait.read.value.data)

    def run(agent: Agent) -> None:
        if not elected(agent, by, wait):
            return
        groups: Groups = agent.bulk
        finished = max(0, len(groups.reads) - pending)
        agent.world.step(agent, wait, f"waited for {finished} groups of TMA stores")
        for group in range(finished):
            agent.known |= groups.reads[group]
            if not read:
                agent.known |= groups.writes[group]
        if not read:
            groups.written = max(groups.written, finished)

    return Step(run)


# --- cp.async -------------------------------------------------------------------------------------


def copy_async_rule(decoder: Decoder, copy: hopper.CopyAsync) -> Step:
    """Every thread starts copies; they count as the thread's own accesses once waited for."""
    place, slot = decoder.view(copy.view)
    layout = _layout(copy.pointer)
    if layout is None:
        raise Unproved("a cp.async of pointers without a layout", copy)
    share = _share(place, layout)

    followed = copy in decoder.followed

    def run(agent: Agent) -> None:
        together(agent, copy)
        world = agent.world
        where = concrete(agent, slot, "slot", copy)
        bucket = bucket_of(agent, agent.block, place, where, copy)
        mask = share(agent) << place.buffer.shift(where)
        world.step(agent, copy, f"copy_async: {bucket.name}")
        event = world.event()
        turn = agent.turns[copy] = agent.turns.get(copy, 0) + 1
        access = Access(mask, event, True, False, agent, "copy_async", copy, world.steps, turn)
        bucket.check(access)
        bucket.record(access)
        world.by_threads |= event
        agent.copies.open |= event
        if followed:
            world.globals.access(agent, copy, event, None)
        agent.copies.last = copy

    return Step(run)


def copy_async_commit_rule(decoder: Decoder, commit: hopper.CopyAsyncCommit) -> Step:
    """Close each thread's group."""

    def run(agent: Agent) -> None:
        agent.world.step(agent, commit, "commits its cp.async")
        agent.copies.commit()

    return Step(run)


def copy_async_wait_rule(decoder: Decoder, wait: hopper.CopyAsyncWait) -> Step:
    """Wait for all but the newest groups of each thread."""
    pending = wait.pending.data

    def run(agent: Agent) -> None:
        groups: Groups = agent.copies
        finished = max(0, len(groups.reads) - pending)
        agent.world.step(agent, wait, f"waited for {finished} groups of cp.async")
        for group in range(groups.written, finished):
            agent.known |= groups.reads[group]
            agent.unfenced |= groups.reads[group]
        groups.written = max(groups.written, finished)

    return Step(run)


# --- global memory by threads ---------------------------------------------------------------------


def global_rule(decoder: Decoder, operation: Operation) -> Step | None:
    """A load, store or atomic by threads: its registers must be at rest, its result is unknown."""
    steps = [step for step in (decoder.touch(decoder, operation),) if step is not None]
    if operation in decoder.followed:
        steps.append(Step(_follow(operation)))
    if any(result in decoder.needed for result in operation.results):
        steps.append(compute(decoder, operation))
    if len(steps) < 2:
        return steps[0] if steps else None
    return Step(run_steps(steps), True)


def _follow(operation: Operation) -> Callable[[Agent], None]:
    def run(agent: Agent) -> None:
        world = agent.world
        event = world.event()
        world.by_threads |= event
        agent.known |= event
        world.globals.access(agent, operation, event, None)

    return run
