"""What roles wait on: mbarriers, named barriers and the register pool of a block."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from xdsl.ir import Operation

from tawa.errors import ProtocolError
from tawa.simulator.clocks import Clock, Clocks
from tawa.simulator.scheduler import Blocked, Need, Scheduler, Task
from tawa.simulator.values import place_of

_TX_LIMIT = (1 << 20) - 1  # PTX ISA, "mbarrier", range of the tx-count


def _no_clock() -> Clock:
    return np.zeros(0, np.int32)


def join(first: Clock, second: Clock) -> Clock:
    """Return all that two clocks know."""
    if first.size < second.size:
        first, second = second, first
    out = first.copy()
    np.maximum(out[: second.size], second, out=out[: second.size])
    return out


@dataclass(eq=False, slots=True)
class Mbarrier:
    """One mbarrier: arrivals still due and bytes still due are counted apart.

    `phase` counts completed phases; a wait for parity p is over when the current phase has the
    other parity. `made` is the (column, clock) of the init, None before it.
    """

    name: str
    arrivals: int
    scheduler: Scheduler
    pending: int = 0
    bytes: int = 0
    phase: int = 0
    made: tuple[int, int] | None = None
    fenced: bool = False
    clock: Clock = field(default_factory=_no_clock)
    done: Clock = field(default_factory=_no_clock)
    time: float = 0.0
    done_time: float = 0.0
    queue: list[Task] = field(default_factory=list[Task])

    def init(self, column: int, clock: int) -> None:
        """mbarrier.init: a whole phase is due."""
        self.pending, self.made = self.arrivals, (column, clock)

    def completed(self, parity: int) -> bool:
        """Tell whether the phase of this parity has completed (try_wait.parity)."""
        return self.phase & 1 != parity

    def arrive(self, count: int, clock: Clock, time: float, operation: Operation) -> None:
        """Arrive `count` times."""
        self.clock = join(self.clock, clock)
        self.time = max(self.time, time)
        for _ in range(count):
            if self.pending == 0:
                raise ProtocolError(
                    f"{self.name} gets more than {self.arrivals} arrivals in phase {self.phase}",
                    place=place_of(operation),
                    why=f"{self.bytes} bytes of the phase are still due, so it has not completed",
                )
            self.pending -= 1
            self._complete_if_whole()

    def expect(self, count: int, operation: Operation) -> None:
        """Add bytes to what the current phase waits for."""
        self._add(count, operation)

    def deliver(self, count: int, clock: Clock, time: float, operation: Operation) -> None:
        """Bytes have landed (complete_tx)."""
        self.clock = join(self.clock, clock)
        self.time = max(self.time, time)
        self._add(-count, operation)
        self._complete_if_whole()

    def _add(self, count: int, operation: Operation) -> None:
        self.bytes += count
        if abs(self.bytes) > _TX_LIMIT:
            raise ProtocolError(
                f"{self.name}: {self.bytes} bytes are due in one phase",
                place=place_of(operation),
                why=f"the transaction count of an mbarrier holds at most {_TX_LIMIT}",
            )

    def _complete_if_whole(self) -> None:
        if self.pending or self.bytes:
            return
        self.phase += 1
        self.pending = self.arrivals
        self.done, self.done_time = self.clock, self.time
        self.scheduler.wake(self.queue)

    def wait(self, parity: int, operation: Operation) -> Blocked:
        """Return the condition that the phase of `parity` has completed."""
        return Blocked(
            lambda: self.completed(parity), self.queue, lambda: self._need(parity), operation
        )

    def _need(self, parity: int) -> Need:
        arrived = f"{self.arrivals - self.pending}/{self.arrivals}"
        sentence = (
            f"for phase {self.phase} of {self.name}, which has {arrived} arrivals"
            + (f" and lacks {self.bytes} bytes" if self.bytes > 0 else "")
            + (f" and has {-self.bytes} bytes that nobody expected" if self.bytes < 0 else "")
        )
        due = f" {self.bytes} bytes due" if self.bytes else ""
        return Need(self.name, f"{self.phase} (parity {parity})", arrived + due, sentence)

    def leftover(self) -> str:
        """Return what is owed at exit, or the empty string."""
        if self.made is None or (self.pending == self.arrivals and not self.bytes):
            return ""
        return (
            f"{self.name} ends inside phase {self.phase}: {self.arrivals - self.pending} of "
            f"{self.arrivals} arrivals, {self.bytes} bytes due"
        )


@dataclass(eq=False, slots=True)
class NamedBarrier:
    """One of the block's sixteen hardware barriers, counted in threads (PTX ISA, "bar")."""

    number: int
    scheduler: Scheduler
    threads: int = 0
    arrived: int = 0
    generation: int = 0
    clock: Clock = field(default_factory=_no_clock)
    done: Clock = field(default_factory=_no_clock)
    time: float = 0.0
    done_time: float = 0.0
    queue: list[Task] = field(default_factory=list[Task])

    def arrive(
        self, count: int, threads: int, clock: Clock, time: float, operation: Operation
    ) -> int:
        """Announce `count` threads of `threads`; return the generation that waits for them."""
        if self.arrived and self.threads != threads:
            raise ProtocolError(
                f"named barrier {self.number} is used with {self.threads} and {threads} threads",
                place=place_of(operation),
                why=f"{self.arrived} threads of the first use still wait",
            )
        self.threads, generation = threads, self.generation
        self.arrived += count
        self.clock, self.time = join(self.clock, clock), max(self.time, time)
        if self.arrived > threads:
            raise ProtocolError(
                f"named barrier {self.number} gets {self.arrived} threads, not {threads}",
                place=place_of(operation),
                why="more threads arrive than the barrier counts",
            )
        if self.arrived == threads:
            self.arrived = 0
            self.generation += 1
            self.done, self.done_time = self.clock, self.time
            self.scheduler.wake(self.queue)
        return generation

    def wait(self, generation: int, operation: Operation) -> Blocked:
        """Return the condition that a generation is complete."""

        def need() -> Need:
            arrived = f"{self.arrived}/{self.threads}"
            return Need(
                f"named barrier {self.number}",
                str(generation),
                arrived,
                f"at named barrier {self.number} with {arrived} threads",
            )

        return Blocked(lambda: self.generation > generation, self.queue, need, operation)


@dataclass(eq=False, slots=True)
class RegisterPool:
    """The block's registers that no warp holds (PTX ISA, "setmaxnreg")."""

    scheduler: Scheduler
    free: int = 0
    queue: list[Task] = field(default_factory=list[Task])

    def give(self, count: int) -> None:
        """Put registers back."""
        self.free += count
        self.scheduler.wake(self.queue)

    def wait(self, count: int, operation: Operation) -> Blocked:
        """Return the condition that `count` registers are free."""

        def need() -> Need:
            arrived = f"{self.free}/{count}"
            return Need("registers", "-", arrived, f"for {count} registers, {self.free} are free")

        return Blocked(lambda: self.free >= count, self.queue, need, operation)


def check_made(
    barrier: Mbarrier, clocks: Clocks, row: int, asynchronous: bool, operation: Operation
) -> None:
    """Raise ProtocolError unless `row` may use the barrier: initialised, ordered and visible."""
    if barrier.made is None:
        raise ProtocolError(
            f"{barrier.name} is used before it is initialised", place=place_of(operation)
        )
    column, clock = barrier.made
    if clocks.now[row, column] < clock:
        raise ProtocolError(
            f"{barrier.name} is used by a thread that may run before its initialisation",
            place=place_of(operation),
            why="nothing orders mbarrier.init before this use",
            remedy="synchronise the block between the initialisation and the roles",
        )
    if asynchronous and not barrier.fenced:
        raise ProtocolError(
            f"{barrier.name} is used by TMA or another block without fence.mbarrier_init",
            place=place_of(operation),
            why="the async proxy need not see the initialisation (PTX ISA, fence.mbarrier_init)",
        )
