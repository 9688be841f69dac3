"""What the roles act on during one run: agents, barriers, named barriers and the register pool.

An *agent* stands for warps that do the same and that nothing orders among themselves. Knowledge is
a set of events, kept as the bits of an integer: an agent knows an event exactly if it happened
before whatever the agent does next. `known` orders accesses by threads, and completions of
asynchronous work; `fenced` holds those accesses by threads that also happened before what the
async proxy does next.

Arguments for "one run decides". Every wait is shown to name one phase only (the next cannot
complete before it: rule "one phase at a time"), every arrival to belong to one phase only (rule
"arrivals of one phase"), and counts are fixed. Then whether a wait is answered does not depend on
the order in which agents run, and a run that ends proves that all end; the knowledge passed along
is the same in all of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from xdsl.ir import Operation

from tawa.ir import line_of
from tawa.simulator.proof.rules import Row, Violation
from tawa.simulator.proof.scalars import Scalars

WARP = 32


@dataclass(frozen=True, slots=True)
class Blocked:
    """What an agent waits for, as the trace shows it."""

    what: str
    phase: str
    need: str
    sentence: str
    operation: Operation
    queue: list[Agent]


@dataclass(eq=False, slots=True)
class Agent:
    """Warps of one warpgroup of a role. `leader` holds the elected thread of its warpgroup,
    `first` that of the role, `origin` thread 0 of the block.
    """

    label: str
    block: int
    role: int
    group: int
    warps: tuple[int, ...]
    leader: bool
    first: bool
    origin: bool
    number: int = 0
    env: list[Any] = field(default_factory=list[Any])
    known: int = 0
    fenced: int = 0
    unfenced: int = 0
    unfenced_one: int = 0
    steps: int = 0
    seen: dict[Mbarrier, int] = field(default_factory=lambda: {})
    waits: dict[Mbarrier, int] = field(default_factory=lambda: {})
    gets: dict[int, int] = field(default_factory=dict[int, int])
    puts: dict[tuple[Operation, int, int], tuple[int, int]] = field(default_factory=lambda: {})
    meeting: int = -1
    program_index: int = 0
    registers: int = 0
    single: bool = False
    program: Generator[Blocked, None, None] | None = None
    blocked: Blocked | None = None
    turns: dict[Operation, int] = field(default_factory=dict[Operation, int])
    world: Any = None  # the Run it is part of: typed where it is used
    home: Any = None  # the BlockState it runs on
    products: Any = None
    bulk: Any = None
    copies: Any = None

    @property
    def threads(self) -> int:
        """Threads of the agent that execute an operation now: one inside `OneThread`."""
        return 1 if self.single else WARP * len(self.warps)

    def knows(self, event: int) -> bool:
        """Tell whether an event (a single bit) happened before what the agent does next."""
        return bool(self.known & event)


class World:
    """One run: its agents, its events, and the numbers its unknowns are bound to."""

    def __init__(self, scalars: Scalars, trace: bool = False) -> None:
        self.scalars = scalars
        self.agents: list[Agent] = []
        self.ready: deque[Agent] = deque()
        self.events = 0
        self.steps = 0
        self.by_threads = 0
        self.remote: list[tuple[int, int, str, Operation]] = []
        self.trace: list[Row] | None = [] if trace else None

    def event(self) -> int:
        """Return a new event, as a bit."""
        self.events += 1
        return 1 << (self.events - 1)

    def wake(self, queue: list[Agent]) -> None:
        """Let the agents of a queue try again."""
        if queue:
            self.ready.extend(queue)
            queue.clear()

    def step(self, agent: Agent, operation: Operation, what: str, phase: object = "-") -> None:
        """Count a step, and keep it where a trace is asked for."""
        agent.steps += 1
        self.steps += 1
        if self.trace is not None:
            row = Row(self.steps, agent.label, line_of(operation), what, str(phase))
            self.trace.append(row)

    def run(self, start: Callable[[Agent], Generator[Blocked, None, None]]) -> None:
        """Run all agents until each has ended. Raises Violation "no hang"."""
        for agent in self.agents:
            agent.program = start(agent)
        self.ready.extend(self.agents)
        while self.ready:
            agent = self.ready.popleft()
            assert agent.program is not None
            agent.blocked = next(agent.program, None)
            if agent.blocked is not None:
                agent.blocked.queue.append(agent)
        stuck = [agent for agent in self.agents if agent.blocked is not None]
        if stuck:
            raise self._hang(stuck)

    def _hang(self, stuck: list[Agent]) -> Violation:
        rows: dict[tuple[str, str], Row] = {}
        sentences: dict[tuple[str, str], str] = {}
        for agent in stuck:
            item = agent.blocked
            assert item is not None
            row = Row(
                agent.steps,
                agent.label,
                line_of(item.operation),
                f"waits for {item.what}",
                item.phase,
                item.need,
            )
            rows.setdefault((agent.label, item.what), row)
            text = f"{agent.label} waits for {item.sentence}"
            sentences.setdefault((agent.label, item.what), text)
        text = "; ".join(sentences.values()) + ": nobody can go on."
        first = stuck[0].blocked
        assert first is not None
        return Violation("no hang", text, first.operation, tuple(rows.values()))


@dataclass(eq=False, slots=True)
class Mbarrier:
    """One mbarrier of one block. `done` counts completed phases; the current phase is `done`.

    `known` and `fenced` gather what the arrivals of the current phase know; `completions` keeps
    that of each completed phase and `bits` its event; `waits` the events of the waits for a phase,
    `takers` the numbers of the agents that waited for it.
    """

    name: str
    block: int
    arrivals: int
    array: int = 0
    slot: int = 0
    size: int = 1
    init: int = 0
    ready: int = 0
    pending: int = 0
    due: int = 0
    expected: int = 0
    delivered: int = 0
    done: int = 0
    known: int = 0
    fenced: int = 0
    completions: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    bits: list[int] = field(default_factory=list[int])
    waits: dict[int, int] = field(default_factory=dict[int, int])
    waiters: dict[int, str] = field(default_factory=dict[int, str])
    takers: dict[int, set[int]] = field(default_factory=dict[int, set[int]])
    queue: list[Agent] = field(default_factory=list[Agent])

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
            raise Violation("arrivals of one phase", sentence, operation, self.rows(agent, what))

    def rows(self, agent: Agent, what: str) -> tuple[Row, ...]:
        """Return the barrier's state as a line of the trace."""
        need = f"{self.arrivals - self.pending}/{self.arrivals}"
        return (Row(agent.steps, agent.label, 0, f"{what} at {self.name}", str(self.done), need),)

    def arrive(
        self, world: World, agent: Agent, count: int, known: int, operation: Operation
    ) -> None:
        """Arrive `count` times, releasing `known`."""
        self.check(agent, operation, False)
        self._belongs(agent, operation, "an arrival")
        if self.pending < count:
            sentence = (
                f"{self.name} gets more than its {self.arrivals} arrivals in phase {self.done}: "
                f"{self.arrivals - self.pending + count}, with {self.due} bytes still due."
            )
            raise Violation("arrival count", sentence, operation, self.rows(agent, "arrives"))
        self.pending -= count
        self.known |= known
        self.fenced |= agent.fenced & known
        self._settle(world, operation)

    def expect(self, count: int) -> None:
        """Add bytes to what the current phase waits for."""
        self.due += count
        self.expected += count

    def deliver(
        self, world: World, agent: Agent, count: int, event: int, operation: Operation
    ) -> None:
        """Bytes of a copy land; `event` is the copy's completion."""
        self.check(agent, operation, True)
        self._belongs(agent, operation, "a copy")
        self.due -= count
        self.delivered += count
        # A copy lands after it was started: whoever sees its bytes knows that the waits before its
        # start are over. Accesses by threads are not released by that.
        self.known |= event | (agent.known & ~world.by_threads)
        self._settle(world, operation)

    def _settle(self, world: World, operation: Operation) -> None:
        """Complete the phase when nothing is due."""
        if self.pending or self.due:
            return
        late = self.waits.get(self.done - 1, 0) & ~self.known
        if late:
            waiter = self.waiters[self.done - 1]
            sentence = (
                f"phase {self.done} of {self.name} may complete before {waiter} has seen phase "
                f"{self.done - 1}: their parities are told apart by nothing else."
            )
            raise Violation("one phase at a time", sentence, operation)
        bit = world.event()
        self.bits.append(bit)
        self.completions.append((self.known | bit, self.fenced))
        self.done += 1
        self.pending, self.known, self.fenced = self.arrivals, 0, 0
        self.expected = self.delivered = 0
        world.wake(self.queue)

    def wait(self, world: World, agent: Agent, parity: int, operation: Operation) -> Blocked | None:
        """Wait for the first phase of this parity that the agent does not know to be over."""
        self.check(agent, operation, False)
        seen = agent.seen.get(self, 0)
        while seen < self.done and agent.known & self.bits[seen]:
            seen += 1
        agent.seen[self] = seen
        target = seen - 1 if (seen - 1) & 1 == parity else seen
        if self.done > target + 1:
            sentence = (
                f"{agent.label} waits for phase {target} of {self.name} (parity {parity}), but "
                f"phase {target + 1} may complete before it looks: the wait can miss its phase."
            )
            raise Violation("one phase at a time", sentence, operation)
        if self.done <= target:
            return self._blocked(agent, target, parity, operation)
        if target >= 0:
            known, fenced = self.completions[target]
            agent.known |= known
            agent.fenced |= fenced
        bit = world.event()
        agent.known |= bit
        self.waits[target] = self.waits.get(target, 0) | bit
        self.waiters[target] = agent.label
        self.takers.setdefault(target, set()).add(agent.number)
        if agent.waits.get(self) != target:
            agent.gets[self.array] = agent.gets.get(self.array, 0) + 1
        agent.waits[self] = target
        return None

    def _blocked(self, agent: Agent, target: int, parity: int, operation: Operation) -> Blocked:
        arrived = f"{self.arrivals - self.pending}/{self.arrivals}"
        sentence = f"phase {target} of {self.name}, which has {arrived} arrivals"
        need = arrived
        if self.due:
            need += f", {self.delivered} of {self.expected} bytes"
            sentence += f" and {self.delivered} of the {self.expected} bytes it expects"
        return Blocked(
            self.name, f"{target} (parity {parity})", need, sentence, operation, self.queue
        )


@dataclass(eq=False, slots=True)
class NamedBarrier:
    """One of a block's hardware barriers; it counts threads."""

    number: int
    threads: int = 0
    arrived: int = 0
    done: int = 0
    known: int = 0
    fenced: int = 0
    bits: list[int] = field(default_factory=list[int])
    completions: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    queue: list[Agent] = field(default_factory=list[Agent])

    def arrive(self, world: World, agent: Agent, threads: int, operation: Operation) -> int:
        """Announce the agent's threads; return the generation that waits for them."""
        name = f"named barrier {self.number}"
        if self.arrived and self.threads != threads:
            sentence = f"{name} is used with {self.threads} and with {threads} threads at once."
            raise Violation("named barrier", sentence, operation)
        if self.done and not agent.known & self.bits[self.done - 1]:
            sentence = (
                f"{agent.label} may come to {name} before its meeting {self.done - 1} is over."
            )
            raise Violation("named barrier", sentence, operation)
        generation = self.done
        self.threads = threads
        self.arrived += agent.threads
        self.known |= agent.known
        self.fenced |= agent.fenced
        if self.arrived > threads:
            sentence = f"{name} counts {threads} threads, but {self.arrived} come to it."
            raise Violation("named barrier", sentence, operation)
        if self.arrived == threads:
            bit = world.event()
            self.bits.append(bit)
            self.completions.append((self.known | bit, self.fenced))
            self.done += 1
            self.arrived = self.known = self.fenced = 0
            world.wake(self.queue)
        return generation

    def sync(
        self, world: World, agent: Agent, threads: int, operation: Operation
    ) -> Blocked | None:
        """Arrive, then wait for the others."""
        if agent.meeting < 0:
            agent.meeting = self.arrive(world, agent, threads, operation)
        if self.done <= agent.meeting:
            need = f"{self.arrived}/{self.threads} threads"
            what = f"named barrier {self.number}"
            sentence = f"{what}, to which {self.arrived} of {self.threads} threads have come"
            return Blocked(what, str(agent.meeting), need, sentence, operation, self.queue)
        known, fenced = self.completions[agent.meeting]
        agent.known |= known
        agent.fenced |= fenced
        agent.meeting = -1
        return None


@dataclass(eq=False, slots=True)
class Pool:
    """The registers of a block that no warp holds; `setmaxnreg` takes from it and gives to it."""

    free: int = 0
    queue: list[Agent] = field(default_factory=list[Agent])

    def move(self, world: World, agent: Agent, count: int, operation: Operation) -> Blocked | None:
        """Change the agent's registers a thread to `count`, waiting for free ones."""
        need = (count - agent.registers) * agent.threads
        if need > self.free:
            sentence = (
                f"{count} registers a thread: {need} more in all, and {self.free} are free of "
                "those that the block was launched with"
            )
            have = f"{self.free}/{need}"
            return Blocked("registers", "-", have, sentence, operation, self.queue)
        self.free -= need
        agent.registers = count
        world.wake(self.queue)
        return None
