"""What agents wait on: mbarriers, named barriers and the register pool of a block."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from xdsl.ir import Operation

from tawa.simulator.proof.machine import Agent, Blocked, Waiting, World
from tawa.simulator.proof.rules import Contest, Contested, Row, Violation
from tawa.simulator.proof.tables import new_dict, new_list


@dataclass(eq=False, slots=True)
class Mbarrier:
    """One mbarrier of one block. `done` counts completed phases; the current phase is `done`.

    `known` and `fenced` gather what the arrivals of the current phase know; `completions` keeps
    that of each completed phase and `bits` its event; `waits` the events of the waits for a phase,
    `takers` the numbers of the agents that waited for it, as bits, where it is `shared` by several
    roles that wait. Whoever knows `usable` knows
    that it was initialised, by `init`, and fenced, by `ready`. At a `contested` one the order of
    the agents matters (see `contest`).
    """

    contested: ClassVar[bool] = False

    name: str
    block: int
    arrivals: int
    array: int = 0
    slot: int = 0
    size: int = 1
    shared: bool = False
    init: int = 0
    ready: int = 0
    usable: int = -1
    pending: int = 0
    due: int = 0
    expected: int = 0
    delivered: int = 0
    done: int = 0
    known: int = 0
    fenced: int = 0
    completions: list[tuple[int, int]] = field(default_factory=new_list)
    bits: list[int] = field(default_factory=new_list)
    waits: dict[int, int] = field(default_factory=new_dict)
    takers: dict[int, int] = field(default_factory=new_dict)
    queue: list[Agent] = field(default_factory=new_list)

    @property
    def key(self) -> Contested:
        """Which barrier it is, in every run."""
        return "mbarrier", self.block, self.array, self.slot

    @property
    def put(self) -> int:
        """Number, in the ring, of the put that fills this slot in the current phase."""
        return self.done * self.size + self.slot

    def check(self, agent: Agent, operation: Operation, asynchronous: bool) -> None:
        """Raise Violation unless the barrier is initialised in the agent's eyes."""
        if not self.init:
            raise Violation("barrier initialised", f"{self.name} is never initialised.", operation)
        if not agent.known & self.init:
            sentence = (
                f"{agent.label} may use {self.name} before it is initialised: no synchronization "
                f"of the {'cluster' if agent.block != self.block else 'block'} stands between."
            )
            raise Violation("barrier initialised", sentence, operation)
        if (asynchronous or agent.block != self.block) and not agent.known & self.ready:
            sentence = (
                f"{self.name} is used by {'TMA' if asynchronous else 'another block'} without "
                "a fence_barrier_init after its initialisation that it knows of."
            )
            raise Violation("barrier fenced", sentence, operation)

    def _belongs(self, agent: Agent, operation: Operation, what: str) -> None:
        if self.done and not agent.known & self.bits[self.done - 1]:
            sentence = (
                f"{what} of {agent.label} at {self.name} is not ordered after the completion of "
                f"phase {self.done - 1}, for which {agent.label} has not waited: it may count for "
                "that phase."
            )
            rows = self.rows(agent, what)
            raise Contest("arrivals of one phase", sentence, operation, self.key, rows)

    def rows(self, agent: Agent, what: str) -> tuple[Row, ...]:
        """Return the barrier's state as a line of the trace."""
        need = f"{self.arrivals - self.pending}/{self.arrivals}"
        return (
            Row(agent.world.steps, agent.label, 0, f"{what} at {self.name}", str(self.done), need),
        )

    def arrive(
        self, world: World, agent: Agent, count: int, known: int, operation: Operation
    ) -> None:
        """Arrive `count` times, releasing `known`."""
        had = agent.known
        if had & self.usable != self.usable:
            self.check(agent, operation, False)
        if self.done and not had & self.bits[-1]:
            self._belongs(agent, operation, "an arrival")
        if self.pending < count:
            raise self._too_many(agent, count, operation)
        self.pending -= count
        self.known |= known
        self.fenced |= agent.fenced & known
        if not self.pending and not self.due:
            self._settle(world, operation)

    def _too_many(self, agent: Agent, count: int, operation: Operation) -> Violation:
        sentence = (
            f"{self.name} gets more than its {self.arrivals} arrivals in phase {self.done}: "
            f"{self.arrivals - self.pending + count}, with {self.due} bytes still due."
        )
        return Violation("arrival count", sentence, operation, self.rows(agent, "arrives"))

    def arrive_later(
        self, world: World, agent: Agent, count: int, event: int, operation: Operation
    ) -> None:
        """Arrive `count` times once copies by threads are done; `event` is their completion."""
        self.check(agent, operation, False)
        self._belongs(agent, operation, "an arrival of copies")
        if self.pending < count:
            raise self._too_many(agent, count, operation)
        self.pending -= count
        known = agent.known
        self.known |= event | (known ^ known & world.by_threads)
        self._settle(world, operation)

    def expect(self, count: int) -> None:
        """Add bytes to what the current phase waits for."""
        self.due += count
        self.expected += count

    def deliver(
        self, world: World, agent: Agent, count: int, event: int, operation: Operation
    ) -> None:
        """Bytes of a copy land; `event` is the copy's completion."""
        had = agent.known
        if had & self.usable != self.usable:
            self.check(agent, operation, True)
        if self.done and not had & self.bits[-1]:
            self._belongs(agent, operation, "a copy")
        self.due -= count
        self.delivered += count
        # A copy lands after it was started: whoever sees its bytes knows that the waits before its
        # start are over. Accesses by threads are not released by that: they are taken out. (This is
        # `had & ~world.by_threads` in half of the time: complements of long numbers are negative.)
        self.known |= event | (had ^ had & world.by_threads)
        if not self.pending and not self.due:
            self._settle(world, operation)

    def _settle(self, world: World, operation: Operation) -> None:
        """Complete the phase when nothing is due."""
        if self.pending or self.due:
            return
        before = self.done - 1
        late = self.waits.get(before, 0) & ~self.known
        if late:
            waiter = next(one.label for one in world.agents if one.waits.get(self) == before)
            sentence = (
                f"phase {self.done} of {self.name} may complete before {waiter} has seen phase "
                f"{before}: their parities are told apart by nothing else."
            )
            raise Contest("one phase at a time", sentence, operation, self.key)
        self._complete(world)

    def _complete(self, world: World) -> None:
        bit = world.event_of(self, self.done)
        self.bits.append(bit)
        self.completions.append((self.known | bit, self.fenced))
        self.done += 1
        self.pending, self.known, self.fenced = self.arrivals, 0, 0
        self.expected = self.delivered = 0
        world.wake(self.queue)

    def wait(self, world: World, agent: Agent, parity: int, operation: Operation) -> Blocked | None:
        """Wait for the first phase of this parity that the agent does not know to be over."""
        known = agent.known
        if known & self.usable != self.usable:
            self.check(agent, operation, False)
        last, done, bits = agent.waits.get(self), self.done, self.bits
        seen = 0 if last is None else last + 1
        while seen < done and known & bits[seen]:
            seen += 1
        target = seen - 1 if (seen - 1) & 1 == parity else seen
        if done > target + 1:
            sentence = (
                f"{agent.label} waits for {_phase(target)} of {self.name} (parity {parity}), but "
                f"phase {target + 1} may complete before it looks: the wait can miss its phase."
            )
            raise Contest("one phase at a time", sentence, operation, self.key)
        if done <= target:
            return Blocked(self.queue, lambda: self._waiting(target, parity, operation))
        self._take(world, agent, target, last)
        return None

    def _take(self, world: World, agent: Agent, target: int, last: int | None) -> None:
        """An agent sees that a phase is over, after the `last` that it saw."""
        bit = world.event()
        if target >= 0:
            known, fenced = self.completions[target]
            agent.known |= known | bit
            agent.fenced |= fenced
        else:
            agent.known |= bit
        waits = self.waits
        waits[target] = waits.get(target, 0) | bit
        if self.shared:
            takers = self.takers
            takers[target] = takers.get(target, 0) | 1 << agent.number
        if last != target:
            agent.waits[self] = target
            agent.gets[self.array] = agent.gets.get(self.array, 0) + 1

    def _waiting(self, target: int, parity: int, operation: Operation) -> Waiting:
        arrived = f"{self.arrivals - self.pending}/{self.arrivals}"
        sentence = f"phase {target} of {self.name}, which has {arrived} arrivals"
        need = arrived
        if self.due:
            need += f", {self.delivered} of {self.expected} bytes"
            sentence += f" and {self.delivered} of the {self.expected} bytes it expects"
        return Waiting(self.name, f"{target} (parity {parity})", need, sentence, operation)


def _phase(number: int) -> str:
    return f"phase {number}" if number >= 0 else "the phase before the first"


@dataclass(eq=False, slots=True)
class NamedBarrier:
    """One of a block's hardware barriers; it counts threads."""

    contested: ClassVar[bool] = False

    number: int
    block: int = 0
    threads: int = 0
    arrived: int = 0
    done: int = 0
    known: int = 0
    fenced: int = 0
    bits: list[int] = field(default_factory=new_list)
    completions: list[tuple[int, int]] = field(default_factory=new_list)
    queue: list[Agent] = field(default_factory=new_list)

    def arrive(self, world: World, agent: Agent, threads: int, operation: Operation) -> int:
        """Announce the agent's threads; return the generation that waits for them."""
        if self.arrived and self.threads != threads:
            sentence = (
                f"named barrier {self.number} is used with {self.threads} and with {threads} "
                "threads at once."
            )
            raise Violation("named barrier", sentence, operation)
        if self.done and not agent.known & self.bits[-1]:
            self._belongs(agent, operation)
        generation = self.done
        self.threads = threads
        self.arrived += agent.threads
        self.known |= agent.known
        self.fenced |= agent.fenced
        if self.arrived > threads:
            sentence = (
                f"named barrier {self.number} counts {threads} threads, but {self.arrived} come to "
                "it."
            )
            raise Violation("named barrier", sentence, operation)
        if self.arrived == threads:
            bit = world.event_of(self, self.done)
            self.bits.append(bit)
            self.completions.append((self.known | bit, self.fenced))
            self.done += 1
            self.arrived = self.known = self.fenced = 0
            world.wake(self.queue)
        return generation

    @property
    def key(self) -> Contested:
        """Which barrier it is, in every run."""
        return "named", self.block, self.number, 0

    def _belongs(self, agent: Agent, operation: Operation) -> None:
        if self.done and not agent.known & self.bits[self.done - 1]:
            sentence = (
                f"{agent.label} may come to named barrier {self.number} before its meeting "
                f"{self.done - 1} is over."
            )
            raise Contest("named barrier", sentence, operation, self.key)

    def sync(
        self, world: World, agent: Agent, threads: int, operation: Operation
    ) -> Blocked | None:
        """Arrive, then wait for the others."""
        meeting = agent.meeting
        if meeting < 0:
            meeting = agent.meeting = self.arrive(world, agent, threads, operation)
        if self.done <= meeting:
            return Blocked(self.queue, lambda: self._waiting(meeting, operation))
        known, fenced = self.completions[meeting]
        agent.known |= known
        agent.fenced |= fenced
        agent.meeting = -1
        return None

    def _waiting(self, meeting: int, operation: Operation) -> Waiting:
        need = f"{self.arrived}/{self.threads} threads"
        what = f"named barrier {self.number}"
        sentence = f"{what}, to which {self.arrived} of {self.threads} threads have come"
        return Waiting(what, str(meeting), need, sentence, operation)


class Named(dict[int, NamedBarrier]):
    """The hardware barriers of a block, made when they are first used."""

    def __init__(self, make: Callable[[int], NamedBarrier]) -> None:
        super().__init__()
        self.make = make

    def __missing__(self, number: int) -> NamedBarrier:
        made = self[number] = self.make(number)
        return made


@dataclass(eq=False, slots=True)
class Pool:
    """The registers of a block that no warp holds; `setmaxnreg` takes from it and gives to it.

    Who gives before it waits for anything gives in every order, so that whoever takes is served in
    the end whatever the order. Where one gives `late`, the order of those who take may matter.
    """

    contested: ClassVar[bool] = False

    block: int = 0
    free: int = 0
    queue: list[Agent] = field(default_factory=new_list)

    @property
    def key(self) -> Contested:
        """Which pool it is, in every run."""
        return "registers", self.block, 0, 0

    def give_late(self, agent: Agent, operation: Operation) -> None:
        """Raise Contest where the order in which registers are taken may matter."""
        sentence = (
            f"{agent.label} gives registers back after it has waited: who takes those that are "
            "free before may decide whether it gets there."
        )
        raise Contest("register budget", sentence, operation, self.key)

    def move(self, world: World, agent: Agent, count: int, operation: Operation) -> Blocked | None:
        """Change the agent's registers a thread to `count`, waiting for free ones."""
        need = (count - agent.registers) * agent.threads
        if need > self.free:
            sentence = (
                f"{count} registers a thread: {need} more in all, and {self.free} are free of "
                "those that the block was launched with"
            )
            waiting = Waiting("registers", "-", f"{self.free}/{need}", sentence, operation)
            return Blocked(self.queue, lambda: waiting)
        self.free -= need
        agent.registers = count
        world.wake(self.queue)
        return None
