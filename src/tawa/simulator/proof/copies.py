"""What moves bytes on its own: TMA in both directions, cp.async."""

from __future__ import annotations

from dataclasses import dataclass, field

from xdsl.ir import Operation

from tawa.ir import hopper
from tawa.simulator.proof.accesses import (
    WARPGROUP,
    are_alike,
    layout_of,
    located,
    share_of,
)
from tawa.simulator.proof.decode import Decoder
from tawa.simulator.proof.effects import barrier_at, by_all, by_one, elected
from tawa.simulator.proof.form import role_of
from tawa.simulator.proof.globals import box_of
from tawa.simulator.proof.machine import Action, Agent, Blocked, Script
from tawa.simulator.proof.memory import Access, Bucket
from tawa.simulator.proof.regions import Moved
from tawa.simulator.proof.rules import Unproved, Violation
from tawa.simulator.proof.steps import Step
from tawa.simulator.proof.tables import new_list


@dataclass(eq=False, slots=True)
class Groups:
    """Asynchronous copies of one thread: those not yet committed, and the groups in order. `places`
    are those that cp.async fills and no arrival stands for yet.
    """

    open: int = 0
    reads: list[int] = field(default_factory=new_list)
    writes: list[int] = field(default_factory=new_list)
    open_write: int = 0
    written: int = 0
    places: list[Bucket] = field(default_factory=new_list)
    last: Operation | None = None

    def commit(self) -> None:
        """Close the group."""
        self.reads.append(self.open)
        self.writes.append(self.open_write)
        self.open = self.open_write = 0

    def hand_over(self) -> int:
        """Return what was started since the last time; whoever is told of it waits for it."""
        events, self.open = self.open, 0
        self.places.clear()
        return events


# --- TMA ------------------------------------------------------------------------------------------


def tma_load_rule(decoder: Decoder, load: hopper.TmaLoad) -> Step:
    """One thread starts a copy; its bytes complete on a barrier, of every block it is sent to."""
    view = decoder.view(load.view)
    place, buffer = view[0], view[0].buffer
    array, index = decoder.arrays[load.barriers], decoder.number(load.slot)
    parts = load.multicast.data if load.multicast is not None else 1
    offsets = tuple(decoder.number(value) for value in load.offsets)
    followed = load in decoder.followed
    rows = place.row_count
    if rows % parts:
        sentence = f"a tile of {rows} rows is sent in {parts} parts."
        raise Violation("form", sentence, load)
    share = rows // parts
    masks = [Moved(place.rows(part * share, part * share + share)) for part in range(parts)]
    count = place.bytes // parts

    def run(script: Script) -> Action:
        cluster = script.world.cluster
        if parts > 1 and parts != cluster:
            sentence = f"{script.label} sends to {parts} blocks of a cluster of {cluster}."
            raise Violation("form", sentence, load)
        number, _ = barrier_at(script, array, index, load)
        where, shift = located(script, view, load)
        moved = [mask.by(shift) for mask in masks]
        box = box_of(load, script.env, offsets) if followed else None
        program = script.program

        def act(agent: Agent) -> None:
            if not agent.single:
                raise by_all(agent, load)
            world = agent.world
            targets = world.blocks if parts > 1 else (agent.home,)
            mask = moved[agent.block if parts > 1 else 0]
            # Each block's bytes land on their own: to wait for one block's tells nothing of others.
            landings = [world.event() for _ in targets] if parts > 1 else (world.event(),)
            if followed:
                world.globals.access(agent, load, sum(landings), box, program)
            for event, home in zip(landings, targets):
                bucket, barrier = home.memory[where], home.arrays[array][number]
                world.step(agent, load, "tma_load: {}", bucket.name)
                access = Access(mask, event, True, True, agent, "tma_load", load, world.steps)
                bucket.check(access, agent)
                bucket.record(access)
                if home is not agent.home:
                    block = barrier.block
                    world.remote.append((event, block, f"a multicast copy of {agent.label}", load))
                bucket.put = (array, barrier.put) if buffer.alone else None
                barrier.deliver(world, agent, count, event, load)
                world.flying.append((event, agent, load))

        return act

    return Step(run, by=None if followed else (view[1], index))


def tma_store_rule(decoder: Decoder, store: hopper.TmaStore) -> Step:
    """The elected threads start copies out of a view."""
    view = decoder.view(store.view)
    place, _ = view
    by, rows = store.by.data, place.row_count
    role = role_of(store)
    shares = -(-role.warps.data // WARPGROUP) if by == "warpgroup" else 1
    offsets = tuple(decoder.number(value) for value in store.offsets)
    followed = store in decoder.followed
    if rows % shares or by not in ("thread", "warpgroup", "role"):
        sentence = f'a view of {rows} rows is stored by "{by}" in {shares} shares.'
        raise Violation("form", sentence, store)
    share = rows // shares
    masks = [Moved(place.rows(part * share, part * share + share)) for part in range(shares)]
    elect = elected(by, store)

    def run(script: Script) -> Action:
        where, shift = located(script, view, store)
        moved = [mask.by(shift) for mask in masks]
        box = box_of(store, script.env, offsets) if followed else None
        program = script.program

        def act(agent: Agent) -> None:
            if not elect(agent):
                return
            world = agent.world
            bucket, mask = agent.home.memory[where], moved[agent.group if shares > 1 else 0]
            world.step(agent, store, "tma_store: {}", bucket.name)
            event = world.event()
            access = Access(mask, event, False, True, agent, "tma_store", store, world.steps)
            bucket.check(access, agent)
            bucket.record(access)
            groups: Groups = agent.bulk
            groups.open |= event
            written = world.event()
            groups.open_write |= written
            if followed:
                world.globals.access(agent, store, written, box, program)
            groups.last = store

        return act

    return Step(run, by=None if followed else (view[1],))


def bulk_commit_rule(decoder: Decoder, commit: hopper.BulkCommit) -> Step:
    """Close the group of the elected threads."""
    elect = elected(commit.by.data, commit)

    def act(agent: Agent) -> None:
        if elect(agent):
            agent.world.step(agent, commit, "commits its TMA stores")
            agent.bulk.commit()

    return Step(lambda script: act, by=())


def bulk_wait_rule(decoder: Decoder, wait: hopper.BulkWait) -> Step:
    """Wait for all but the newest groups of the elected threads."""
    elect, pending = elected(wait.by.data, wait), wait.pending.data
    read = bool(wait.read.value.data)

    def act(agent: Agent) -> None:
        if not elect(agent):
            return
        groups: Groups = agent.bulk
        finished = max(0, len(groups.reads) - pending)
        agent.world.step(agent, wait, "waited for {} groups of TMA stores", finished)
        for group in range(finished):
            agent.known |= groups.reads[group]
            if not read:
                agent.known |= groups.writes[group]
        if not read:
            groups.written = max(groups.written, finished)

    return Step(lambda script: act, by=())


# --- cp.async -------------------------------------------------------------------------------------


def copy_async_rule(decoder: Decoder, copy: hopper.CopyAsync) -> Step:
    """Every thread starts copies; they count as the thread's own accesses once waited for."""
    view = decoder.view(copy.view)
    place, _ = view
    layout = layout_of(copy.pointer)
    if layout is None:
        raise Unproved("a cp.async of pointers without a layout", copy)
    share, alike = share_of(place, layout), are_alike(place, layout, copy)
    followed = copy in decoder.followed

    def run(script: Script) -> Action:
        where, shift = located(script, view, copy)
        program = script.program

        def act(agent: Agent) -> None:
            if agent.single:
                raise by_one(agent, copy)
            world, turn = agent.world, agent.turn(copy)
            bucket, mask = agent.home.memory[where], share(agent, shift)
            world.step(agent, copy, "copy_async: {}", bucket.name)
            event = world.event()
            steps = world.steps
            access = Access(mask, event, True, False, agent, "copy_async", copy, steps, turn, alike)
            bucket.check(access, agent)
            bucket.record(access)
            world.by_threads |= event
            world.copied |= event
            agent.copies.open |= event
            bucket.put = None
            if place.buffer.alone:
                agent.copies.places.append(bucket)
            if followed:
                world.globals.access(agent, copy, event, None, program)
            agent.copies.last = copy

        return act

    return Step(run, by=None if followed else (view[1],))


def copy_async_arrive_rule(decoder: Decoder, arrive: hopper.CopyAsyncArrive) -> Step:
    """An arrival for each thread when its copies are done."""
    array, slot = decoder.arrays[arrive.barriers], decoder.number(arrive.slot)

    def run(script: Script) -> Action:
        index, _ = barrier_at(script, array, slot, arrive)

        def act(agent: Agent) -> Blocked | None:
            if agent.single:
                raise by_one(agent, arrive)
            world, barrier = agent.world, agent.home.arrays[array][index]
            if barrier.contested and (held := world.hold(agent, arrive)):
                return held
            agent.fills(array, index)
            for bucket in agent.copies.places:
                bucket.put = array, barrier.put
            copies = agent.copies.hand_over()
            world.step(agent, arrive, "leaves its arrival at {} to its copies", barrier.name)
            if copies:
                world.flying.append((copies, agent, agent.copies.last))
            barrier.arrive_later(world, agent, agent.threads, copies, arrive)
            return None

        return act

    return Step(run, by=(slot,))
