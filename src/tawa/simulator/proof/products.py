"""wgmma: groups in flight and the bytes they read.

The wgmmas of a warpgroup form one queue; they finish in order, each group as a whole and for all
four warps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation

from tawa.ir import hopper, tile
from tawa.ir.types import LayoutAttr
from tawa.layouts.fragments import wgmma_tiling
from tawa.simulator.proof.accesses import WARPGROUP, located
from tawa.simulator.proof.decode import Decoder
from tawa.simulator.proof.effects import by_one
from tawa.simulator.proof.form import role_of
from tawa.simulator.proof.machine import Action, Agent, Blocked, Script, Waiting, World
from tawa.simulator.proof.memory import Access, Bucket, Place
from tawa.simulator.proof.regions import Moved
from tawa.simulator.proof.registers import Places, Registers, own, release
from tawa.simulator.proof.roles import enclosing
from tawa.simulator.proof.rules import Violation
from tawa.simulator.proof.steps import Step

Reading: TypeAlias = tuple[Bucket, Access]


@dataclass(eq=False, slots=True)
class Engine:
    """The queue of wgmmas of one warpgroup: the event of each, what it reads, how many agents
    issued it, and what they knew then. A wgmma runs when all warps have started it, so that whoever
    waits for it knows that the other warps came so far: their waits are over. Their accesses are
    another matter.
    """

    size: int
    events: list[int] = field(default_factory=lambda: [])
    issued: list[int] = field(default_factory=lambda: [])
    known: list[int] = field(default_factory=lambda: [])
    reading: list[list[Reading]] = field(default_factory=lambda: [])
    queue: list[Agent] = field(default_factory=lambda: [])

    def start(self, world: World, index: int) -> int:
        """Put a wgmma in the queue, whose first warp starts it; return its event."""
        event = world.event_of(self, index)
        self.events.append(event)
        self.issued.append(0)
        self.known.append(event)
        return event


def rows_of(wgmma: hopper.Wgmma, groups: int) -> list[list[tuple[int, int]]]:
    """Return, for each warpgroup, the ranges of rows of A it reads."""
    kind = wgmma.result.type
    assert isinstance(kind, TensorType)
    rows = kind.get_shape()[0]
    tiling = wgmma_tiling(kind.encoding.data) if isinstance(kind.encoding, LayoutAttr) else None
    if tiling is None or len(tiling.groups) != groups:
        return [[(0, rows)]] * groups
    return [
        sorted({(top + row, top + row + 64) for row, _ in tiling.blocks})
        for top, _ in tiling.groups
    ]


def wgmma_rule(decoder: Decoder, wgmma: hopper.Wgmma) -> Step:
    """Start a product: it reads its views from now on and owns its registers."""
    in_registers = isinstance(wgmma.a.type, TensorType)
    views = [decoder.view(view) for view in ([wgmma.b] if in_registers else [wgmma.b, wgmma.a])]
    flag = wgmma.accumulate
    places = Places(
        decoder.number(wgmma.acc),
        decoder.number(wgmma.result),
        decoder.number(wgmma.a) if in_registers else -1,
        decoder.number(flag) if flag is not None else -1,
        isinstance(wgmma.acc.owner, (tile.Constant, hopper.Uninitialized)),
    )
    groups = -(-role_of(wgmma).warps.data // WARPGROUP)
    # By warpgroup: all of B, and of A the rows of its part of the result.
    masks = [[[Moved(place.mask())] for _ in range(groups)] for place, _ in views[:1]]
    for place, _ in views[1:]:
        ranges = rows_of(wgmma, groups)
        masks.append([[Moved(place.rows(*rows)) for rows in part] for part in ranges])

    def prepare(script: Script) -> None:
        registers = script.registers
        index: int = registers.issued
        registers.issued += 1
        registers.last = wgmma
        if script.follows:
            own(script, wgmma, places, index)

    def run(script: Script) -> Action:
        prepare(script)
        reads: list[tuple[Place, int, list[list[int]]]] = []
        for view, parts in zip(views, masks, strict=True):
            place, shift = located(script, view, wgmma)
            moved = [[mask.by(shift) for mask in part] for part in parts]
            reads.append((place, view[0].buffer.number, moved))

        def start(agent: Agent, engine: Engine, index: int) -> None:
            world, found = agent.world, list[Reading]()
            event, steps = engine.start(world, index), world.steps
            for place, _, parts in reads:
                bucket = agent.home.memory[place]
                for mask in parts[agent.group]:
                    access = Access(mask, event, False, True, agent, "wgmma", wgmma, steps)
                    found.append((bucket, access))
            engine.reading.append(found)

        def act(agent: Agent) -> None:
            if agent.single:
                raise by_one(agent, wgmma)
            engine: Engine | None = agent.engine
            if engine is None:
                raise _no_engine(agent, wgmma)
            world, index = agent.world, agent.started
            agent.started += 1
            world.steps += 1
            if world.steps > world.watched:
                world.watch(agent, wgmma, "wgmma {} starts", index)
            first = index == len(engine.events)
            if first:
                start(agent, engine, index)
            if agent.leader:
                for place, number, _ in reads:
                    agent.home.memory[place].see(agent, number, wgmma)
            for bucket, access in engine.reading[index]:
                bucket.check(access, agent)
                if first:
                    bucket.record(access)
            issued = engine.issued[index] = engine.issued[index] + 1
            known = agent.known
            engine.known[index] |= known ^ known & world.by_threads
            if issued == engine.size:
                world.wake(engine.queue)

        return act

    return Step(run, by=tuple(place for _, place in views), prepares=prepare)


def _no_engine(agent: Agent | Script, operation: Operation) -> Violation:
    """Return what is wrong where the warps of an agent are of no whole warpgroup."""
    sentence = f"{operation.name} in {agent.label}, whose warps are not whole warpgroups."
    return Violation("whole warpgroups", sentence, operation)


def _wrong(operation: Operation) -> Callable[[Script, Operation], Violation] | None:
    """Return what is wrong with the place of an operation of whole warpgroups, in every run."""
    role = role_of(operation)
    if any(isinstance(around, hopper.OneThread) for around in enclosing(operation)):
        return by_one
    whole = role.first_warp.data % WARPGROUP == 0 and role.warps.data % WARPGROUP == 0
    return None if whole else _no_engine


def _told(operation: Operation, what: str, prepare: Callable[[Script], None] | None = None) -> Step:
    """Return the step of what changes nothing that agents know: it stands in traces."""
    wrong = _wrong(operation)

    def act(agent: Agent) -> None:
        agent.world.step(agent, operation, what)

    def run(script: Script) -> Action | None:
        if prepare is not None:
            prepare(script)
        if wrong is not None:
            raise wrong(script, operation)
        return None if script.world.trace is None else act

    return Step(run, by=(), prepares=prepare)


def wgmma_fence_rule(decoder: Decoder, fence: hopper.WgmmaFence) -> Step:
    """Its place is a rule of the text (`fences`); all warps of a warpgroup execute it."""
    return _told(fence, "fences wgmma")


def wgmma_commit_rule(decoder: Decoder, commit: hopper.WgmmaCommit) -> Step:
    """Close the group."""

    def prepare(script: Script) -> None:
        script.registers.groups.append(script.registers.issued)

    return _told(commit, "commits wgmmas", prepare)


def _unstarted(index: int, wait: Operation) -> Waiting:
    what = "the other warps of its warpgroup"
    return Waiting(what, "-", "-", f"{what}, which have not started wgmma {index}", wait)


def wgmma_wait_rule(decoder: Decoder, wait: hopper.WgmmaWait) -> Step:
    """Wait for all but the newest groups; the named values are readable afterwards."""
    pending = wait.pending.data
    pairs = tuple(
        (decoder.number(value), decoder.number(result), result.name_hint or "a value")
        for value, result in zip(wait.values, wait.res, strict=True)
    )

    def prepare(script: Script) -> None:
        registers: Registers = script.registers
        groups, start = registers.groups, registers.finished
        finished = len(groups) - pending
        end = groups[finished - 1] if finished > 0 else 0
        registers.finished = max(start, end)
        registers.waits.append((start, end))
        if script.follows:
            release(script, wait, pairs, end)

    def act(agent: Agent) -> Blocked | None:
        if agent.single:
            raise by_one(agent, wait)
        engine: Engine | None = agent.engine
        if engine is None:
            raise _no_engine(agent, wait)
        issued, size = engine.issued, engine.size
        start, end = agent.script.registers.waits[agent.finished]
        for index in range(start, end):
            if issued[index] < size:
                return Blocked(engine.queue, partial(_unstarted, index, wait))
        for known in engine.known[start:end]:
            agent.known |= known
        agent.finished += 1
        world = agent.world
        world.steps += 1
        if world.steps > world.watched:
            world.watch(agent, wait, "waited for wgmmas up to {}", end)
        return None

    def run(script: Script) -> Action:
        prepare(script)
        return act

    return Step(run, by=(), prepares=prepare)
