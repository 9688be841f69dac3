"""Barriers at which the order of the agents matters: what the hardware does, come what may.

Elsewhere the rules of conflict-freedom say to which phase an arrival belongs and which phase a
wait means. Here an arrival counts for the phase it finds, a wait is over while the parity is its
own, and what comes on its own (bytes of a copy, arrivals from another block) comes at any time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

from xdsl.ir import Operation

from tawa.simulator.proof.barriers import Mbarrier, NamedBarrier, Pool
from tawa.simulator.proof.globals import GlobalAccess, GlobalMemory, Roots
from tawa.simulator.proof.machine import Agent, Blocked, World
from tawa.simulator.proof.memory import Access, Bucket
from tawa.simulator.proof.rules import Violation
from tawa.simulator.proof.scalars import Scalars


@dataclass(frozen=True, slots=True)
class Landing:
    """What has been sent to a contested barrier and has not come: arrivals or bytes. `event` tells
    it from others.
    """

    barrier: ContestedBarrier
    agent: Agent
    event: int
    arrivals: int
    bytes: int
    known: int
    fenced: int
    operation: Operation


class Scheduler(Protocol):
    """What contested barriers ask of their run."""

    landings: list[Landing]
    sources: dict[tuple[Bucket, int, int], frozenset[int]]

    def hold(
        self, agent: Agent, operation: Operation, ready: Callable[[], bool] | None = None
    ) -> Blocked | None:
        """Return None when it is the agent's turn; else it waits for it, and until `ready`."""
        ...

    def event(self) -> int:
        """Return a new event."""
        ...


class ContestedBarrier(Mbarrier):
    """An mbarrier with the hardware's own rules. Whoever sees a phase over knows what the arrivals
    of all phases up to it knew: each is an atomic change of one word (PTX, "observation order").
    """

    __slots__ = ()
    contested: ClassVar[bool] = True

    def _belongs(self, agent: Agent, operation: Operation, what: str) -> None:
        """An arrival belongs to the phase it finds."""

    def arrive(
        self, world: World, agent: Agent, count: int, known: int, operation: Operation
    ) -> None:
        """Arrive now, or, from another block, at some time."""
        if agent.block == self.block:
            super().arrive(world, agent, count, known, operation)
            return
        self.check(agent, operation, False)
        self._send(agent, count, 0, known, agent.fenced & known, operation)

    def arrive_later(
        self, world: World, agent: Agent, count: int, event: int, operation: Operation
    ) -> None:
        """Copies by threads are done, and arrive, at some time."""
        self.check(agent, operation, False)
        known = event | (agent.known & ~world.by_threads)
        self._send(agent, count, 0, known, 0, operation)

    def deliver(
        self, world: World, agent: Agent, count: int, event: int, operation: Operation
    ) -> None:
        """The bytes of a copy land at some time."""
        self.check(agent, operation, True)
        known = event | (agent.known & ~world.by_threads)
        self._send(agent, 0, count, known, 0, operation)

    def _send(
        self, agent: Agent, arrivals: int, count: int, known: int, fenced: int, op: Operation
    ) -> None:
        scheduler: Scheduler = agent.world
        event = scheduler.event()
        scheduler.landings.append(Landing(self, agent, event, arrivals, count, known, fenced, op))

    def land(self, world: World, item: Landing) -> None:
        """Let something come. Raises Violation where the phase has no room for it."""
        if self.pending < item.arrivals:
            raise self._too_many(item.agent, item.arrivals, item.operation)
        self.pending -= item.arrivals
        self.due -= item.bytes
        self.delivered += item.bytes
        self.known |= item.known
        self.fenced |= item.fenced
        self._settle(world, item.operation)

    def _settle(self, world: World, operation: Operation) -> None:
        if self.pending or self.due:
            return
        if self.completions:
            known, fenced = self.completions[-1]
            self.known |= known
            self.fenced |= fenced
        self._complete(world)

    def wait(self, world: World, agent: Agent, parity: int, operation: Operation) -> Blocked | None:
        """Wait until the phase that was completed last has this parity."""
        self.check(agent, operation, False)
        scheduler: Scheduler = agent.world
        held = scheduler.hold(agent, operation, lambda: self.done & 1 != parity)
        if held is not None:
            return held
        if self.done & 1 == parity:
            phase = self.done
            return Blocked(self.queue, lambda: self._waiting(phase, parity, operation))
        self._take(world, agent, self.done - 1, agent.waits.get(self))
        return None


class ContestedMeeting(NamedBarrier):
    """A named barrier to which agents come in any order: each counts for the meeting it finds."""

    __slots__ = ()
    contested: ClassVar[bool] = True

    def _belongs(self, agent: Agent, operation: Operation) -> None:
        """An agent belongs to the meeting it finds."""

    def sync(
        self, world: World, agent: Agent, threads: int, operation: Operation
    ) -> Blocked | None:
        """Come in turn, then wait for the others."""
        scheduler: Scheduler = agent.world
        if agent.meeting < 0 and (held := scheduler.hold(agent, operation)) is not None:
            return held
        return super().sync(world, agent, threads, operation)


class ContestedPool(Pool):
    """Registers that are taken in any order."""

    __slots__ = ()
    contested: ClassVar[bool] = True

    def give_late(self, agent: Agent, operation: Operation) -> None:
        """All orders are run."""

    def move(self, world: World, agent: Agent, count: int, operation: Operation) -> Blocked | None:
        """Take or give in turn."""
        scheduler: Scheduler = agent.world
        need = (count - agent.registers) * agent.threads
        held = scheduler.hold(agent, operation, lambda: need <= self.free)
        return super().move(world, agent, count, operation) if held is None else held


class OrderedBucket(Bucket):
    """Shared memory in which a read sees the same writes in every order."""

    __slots__ = ()

    def check(self, access: Access, agent: Agent) -> None:
        """Raise Violation for a race, or where another order gives a read other bytes."""
        super().check(access, agent)
        if access.write:
            return
        scheduler: Scheduler = agent.world
        found = frozenset(old.event for old in self.writes.values() if old.mask & access.mask)
        key = self, access.event, access.mask
        if scheduler.sources.setdefault(key, found) != found:
            sentence = (
                f"{agent.label} reads {self.name} ({access.what}) as one put left it or as "
                "another: the order of the roles decides."
            )
            raise Violation("matching trips", sentence, access.operation)


class OrderedGlobals(GlobalMemory):
    """Global memory in which two accesses that meet come the same way round in every order."""

    def __init__(self, followed: dict[Operation, Roots], scalars: Scalars) -> None:
        super().__init__(followed, scalars)
        self.seen: set[tuple[int, int]] = set()

    def _ordered(self, before: GlobalAccess, after: GlobalAccess) -> bool:
        self.seen.add((before.event, after.event))
        turned = (after.event, before.event) in self.seen
        return super()._ordered(before, after) and not turned
