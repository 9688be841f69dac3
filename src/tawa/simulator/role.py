"""The state of a role: its threads, and the asynchronous work they have started."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation

from tawa.errors import InternalError, ProtocolError
from tawa.simulator.barriers import Mbarrier
from tawa.simulator.clocks import Clock, Clocks
from tawa.simulator.machine import Block, Grid, merge_snapshot
from tawa.simulator.memory import GlobalMemory, Segment, Watch
from tawa.simulator.races import Event
from tawa.simulator.scheduler import Scheduler, Task
from tawa.simulator.values import Array, place_of


@dataclass(eq=False, slots=True)
class Fragment:
    """A tensor in registers that wgmma reads or writes.

    `array` is None until the product that makes it is done; `number` is that product in its role's
    order (0: none); `readable` after a wait that covers it; `born` is how many wgmma fences the
    role had passed when ordinary instructions wrote the registers (-1: they did not).
    """

    role: Role
    array: Array | None
    number: int = 0
    readable: bool = True
    born: int = -1

    def read(self, operation: Operation) -> Array:
        """Return the content for an ordinary instruction."""
        if not self.readable or self.array is None:
            raise ProtocolError(
                f"{self.role.where} reads an accumulator while a wgmma may still write it",
                place=place_of(operation),
                why=f"{operation.name} uses product {self.number} before a wgmma_wait that covers "
                "it and lists it",
                remedy="wait for the group first",
            )
        return self.array


@dataclass(eq=False, slots=True)
class BulkGroups:
    """The TMA stores of one thread: not yet committed, and the groups it has not waited for.

    Each store is (read, written): events (column, clock), with flags set when they have happened.
    """

    open: list[BulkStore] = field(default_factory=list["BulkStore"])
    groups: list[list[BulkStore]] = field(default_factory=list[list["BulkStore"]])


@dataclass(eq=False, slots=True)
class BulkStore:
    """One TMA store in flight: its two completions, each an event and when it happens."""

    read: tuple[int, int]
    written: tuple[int, int]
    has_read: bool = False
    has_written: bool = False
    time: float = 0.0


@dataclass(eq=False, slots=True)
class Product:
    """One wgmma in flight."""

    run: Callable[[], None]
    time: float


@dataclass(eq=False, slots=True)
class Copies:
    """The cp.async copies of a role: how many were started, the last that an arrival stands for,
    those in flight, and what happens when some are done: those still due, and what then.
    """

    started: int = 0
    told: int = 0
    flying: set[int] = field(default_factory=set[int])
    arrivals: list[tuple[set[int], Callable[[], None]]] = field(
        default_factory=list[tuple[set[int], Callable[[], None]]]
    )
    time: float = 0.0

    def land(self, number: int) -> None:
        """Copy `number` is done; so may be all that an arrival waits for."""
        self.flying.discard(number)
        for due, _ in self.arrivals:
            due.discard(number)
        ready = [then for due, then in self.arrivals if not due]
        self.arrivals = [item for item in self.arrivals if item[0]]
        for then in ready:
            then()


@dataclass(eq=False, slots=True)
class Role:
    """The world of a role: its threads, run in step, and the asynchronous work they started.

    `rows` are its warps in the cluster's clocks; `active` those that execute now (one thread inside
    a OneThread, which stands for its warp). `where` names the role in reports, with its block where
    there are several. `begun` says that all its threads have waited for the kernels before this
    one, `begun_alone` that its one thread has.
    """

    label: str
    block: Block
    first_warp: int
    warps: int
    registers: int
    held: int
    time: float = 0.0
    one: bool = False
    fences: int = 0
    issued: int = 0
    computed: int = 0
    products: list[Product] = field(default_factory=list[Product])
    groups: list[tuple[int, float]] = field(default_factory=list[tuple[int, float]])
    committed: int = 0
    waited: int = 0
    bulk: dict[int, BulkGroups] = field(default_factory=dict[int, BulkGroups])
    copies: Copies = field(default_factory=Copies)
    queue: list[Task] = field(default_factory=list[Task])
    engines: list[int] = field(default_factory=list[int])
    owners: NDArray[np.intp] | None = None
    begun: bool = False
    begun_alone: bool = False
    where: str = field(init=False)

    def __post_init__(self) -> None:
        several = np.prod(self.block.machine.blocks) > 1
        self.where = f"{self.label} of {self.block.label}" if several else self.label

    @property
    def parts(self) -> list[str]:
        """What the timeline draws its threads as: its warps together, or its warpgroups."""
        groups = self.warps // 4
        return [f"warpgroup {group}" for group in range(groups)] if groups > 1 else ["warps"]

    @property
    def first_row(self) -> int:
        """The row of the role's first warp."""
        return self.block.first_row + self.first_warp

    @property
    def rows(self) -> slice:
        """The rows of all warps of the role."""
        return slice(self.first_row, self.first_row + self.warps)

    @property
    def active(self) -> slice:
        """The rows that execute now."""
        first = self.first_row
        return slice(first, first + 1) if self.one else self.rows

    @property
    def clocks(self) -> Clocks:
        """The cluster's clocks."""
        return self.block.cluster.clocks

    @property
    def scheduler(self) -> Scheduler:
        """The launch's scheduler."""
        return self.block.machine.scheduler

    @property
    def memory(self) -> GlobalMemory:
        """Global memory (of `tawa.simulator.rules.World`)."""
        return self.block.machine.memory

    @property
    def program(self) -> Grid:
        """The block's index."""
        return self.block.index

    @property
    def grid(self) -> Grid:
        """The grid the user launched."""
        return self.block.machine.grid

    @property
    def threads(self) -> int:
        """Threads of the role."""
        return 32 * self.warps

    def elected(self, by: str, operation: Operation) -> list[int]:
        """Return the rows of the threads that `by` chooses, one entry for each thread."""
        rows, first = range(self.warps), self.first_row
        if self.one != (by == "thread"):
            raise InternalError(
                f'{operation.name} has by = "{by}" '
                + ("inside" if self.one else "outside")
                + " one_thread",
                place=place_of(operation),
                why='"thread" is the single thread of an enclosing one_thread',
            )
        match by:
            case "thread" | "role":
                return [first]
            case "warp":
                return [first + row for row in rows]
            case "warpgroup":
                self.check_warpgroups(operation)
                return [first + row for row in rows[::4]]
            case "all":
                return [first + row for row in rows for _ in range(32)]
            case _:
                raise InternalError(f'{operation.name} has by = "{by}"', place=place_of(operation))

    def single(self, operation: Operation) -> int:
        """Return the row of the one thread that may execute this operation."""
        if not self.one and self.threads > 1:
            raise ProtocolError(
                f"{operation.name} is executed by all {self.threads} threads of {self.where}",
                place=place_of(operation),
                why="it stands for one thread's instruction",
                remedy="put it inside hopper.one_thread",
            )
        return self.first_row

    def check_warpgroups(self, operation: Operation) -> None:
        """Raise InternalError unless the role consists of whole warpgroups."""
        if self.warps % 4 or self.one:
            raise InternalError(
                f"{operation.name} needs whole warpgroups, {self.where} has {self.warps} warps",
                place=place_of(operation),
            )

    def wait_for_kernels(self) -> None:
        """The kernels before this one have ended, as those know who execute this."""
        self.begun_alone = True
        self.begun = self.begun or not self.one

    def check_begun(self, operation: Operation) -> None:
        """Raise ProtocolError where a kernel launched early touches global memory too early."""
        if not (self.begun_alone if self.one else self.begun):
            raise ProtocolError(
                f"{operation.name} of {self.where} may run before the kernels before this one end",
                place=place_of(operation),
                why="the kernel is launched early, and these threads have not waited",
                remedy="put hopper.grid_wait above it",
            )

    def begin(self) -> None:
        """Give the role its tracks of the timeline, whether it takes time or not."""
        self.block.machine.trace.begin(self.label, self.parts, self.block.label)

    def stall(self, until: float, name: str) -> None:
        """Let virtual time pass up to when what the role waited for had happened."""
        if until > self.time:
            self.spent(until - self.time, name)

    def spent(self, duration: float, name: str) -> None:
        """Record that the role did one thing for a while."""
        trace, end = self.block.machine.trace, self.time + duration
        for engine in self.parts:
            trace.add(self.label, engine, self.time, end, name, self.block.label)
        self.time = end

    def remote(self, barrier: Mbarrier, rank: int, operation: Operation) -> Mbarrier:
        """Return the barrier at the same place in another block of the cluster (mapa)."""
        blocks = self.block.cluster.blocks
        if rank >= len(blocks):
            raise ProtocolError(
                f"{operation.name} addresses block {rank} of a cluster of {len(blocks)}",
                place=place_of(operation),
            )
        if blocks[rank] is self.block:
            return barrier
        offset = next(at for at, own in self.block.barriers.items() if own is barrier)
        if (found := blocks[rank].barriers.get(offset)) is None:
            raise ProtocolError(
                f"{barrier.name}: {blocks[rank].label} has not set up its barriers yet",
                place=place_of(operation),
                why="nothing orders its start before this",
                remedy="synchronise the cluster before the roles begin",
            )
        if blocks[rank].ended:
            raise ProtocolError(
                f"{operation.name} reaches {blocks[rank].label}, which has ended",
                place=place_of(operation),
                remedy="synchronise the cluster after the roles",
            )
        return found

    def engine(self, warpgroup: int) -> int:
        """Return the clock column of a warpgroup's wgmmas."""
        while len(self.engines) <= warpgroup:
            self.engines.append(self.clocks.column())
        return self.engines[warpgroup]

    # --- global memory --------------------------------------------------------------------------

    def event(self, known: Clock, column: int, clock: int) -> Event:
        """Return an access to global memory, started by who knows `known`."""
        cluster = self.block.cluster
        return Event(
            self.where,
            cluster.number,
            column,
            clock,
            lambda number, col, at: cluster.knows(known, number, col, at),
        )

    def watch_engine(self, segment: Segment, known: Clock, column: int, clock: int) -> Watch | None:
        """Return the watch of an asynchronous operation that began when its thread knew `known`.

        None where the launch never writes the segment.
        """
        races = self.block.machine.races
        if not races.watches(segment):
            return None
        event = self.event(known, column, clock)

        def watch(
            segment: Segment, index: Any, size: int, kind: str, operation: Operation, where: Any
        ) -> None:
            races.access(segment, np.asarray(index), size, kind, operation, event)

        return watch

    def watch(
        self, segment: Segment, index: Any, size: int, kind: str, operation: Operation, where: Any
    ) -> None:
        """Check an access of ordinary instructions to global memory for races.

        `owners`, set for the operation that runs, says which warp of the role makes the access of
        each element of its tile; without it the first warp stands for all.
        """
        races = self.block.machine.races
        if not races.watches(segment):
            return
        flat = np.asarray(index).ravel()
        owners = self.owners
        if kind == "atomic":
            self._meet_atomically(segment, flat, size, operation)
        if owners is None:
            owners = np.zeros(flat.size, np.intp)
        elif where is not None:
            owners = owners[where]
        for warp in np.unique(owners).tolist():
            row = self.active.start + warp
            clock = int(self.clocks.now[row, row])
            mine = flat[owners == warp]
            event = self.event(self.clocks.now[row], row, clock)
            races.access(segment, mine, size, kind, operation, event)

    def _meet_atomically(
        self, segment: Segment, index: NDArray[np.int64], size: int, operation: Operation
    ) -> None:
        """Acquire and release at an atomic: one location has one history of its own."""
        order = operation.attributes.get("order")
        order_name = getattr(order, "data", "relaxed")
        cluster, races = self.block.cluster, self.block.machine.races
        key = segment.real + int(index[0]) * size if index.size == 1 else -segment.real
        if order_name in ("acquire", "acq_rel") and key in races.released:
            cluster.learn(self.active, races.released[key])
        # An atomic of a role stands between barriers of its warps: they act as one.
        self.clocks.meet(self.active)
        if order_name in ("release", "acq_rel"):
            clock = self.clocks.release(self.active)
            known = cluster.snapshot(self.active, clock)
            merge_snapshot(known, races.released.get(key, {}))
            races.released[key] = known
