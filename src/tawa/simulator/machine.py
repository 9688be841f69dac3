"""The state of a launch of hopper IR: clusters of blocks, their roles, and what they own.

How many blocks a launch has, and what the kernel's `launch` attribute says about it.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeAlias

import numpy as np
from xdsl.dialects.builtin import IntAttr, IntegerAttr
from xdsl.ir import Operation

from tawa.errors import ProtocolError
from tawa.ir import hopper, tile
from tawa.simulator.barriers import Mbarrier, NamedBarrier, RegisterPool
from tawa.simulator.clocks import Clock, Clocks
from tawa.simulator.memory import GlobalMemory
from tawa.simulator.races import GlobalRaces, Snapshot
from tawa.simulator.scheduler import Blocked, Need, Scheduler, Task
from tawa.simulator.shared import SharedMemory
from tawa.simulator.tile import checked_grid
from tawa.simulator.trace import Trace
from tawa.target import H200

Grid = tuple[int, int, int]


@dataclass(eq=False, slots=True)
class Machine:
    """What all blocks of a launch share. `grid` is the user's, `blocks` the launch's."""

    memory: GlobalMemory
    races: GlobalRaces
    scheduler: Scheduler
    trace: Trace
    grid: Grid
    blocks: Grid
    threads: int
    registers: int
    shared: int
    cluster: int
    taken: int = 0
    """Programs that blocks have asked for, beyond the first of each."""

    def next_program(self) -> int:
        """Return the next program nobody has taken."""
        self.taken += 1
        return prod(self.blocks) + self.taken - 1


@dataclass(eq=False, slots=True)
class _Learned:
    """What a cluster got to know from another by an atomic: known to who knows (row, clock)."""

    row: int
    clock: int
    snapshot: Snapshot


@dataclass(eq=False, slots=True)
class Cluster:
    """The blocks that run together, and the clocks of all their warps."""

    machine: Machine
    number: int
    clocks: Clocks
    blocks: list[Block] = field(default_factory=list["Block"])
    learned: list[_Learned] = field(default_factory=list[_Learned])
    arrived: int = 0
    generation: int = 0
    queue: list[Task] = field(default_factory=list[Task])

    def sync(self, operation: Operation, relaxed: bool) -> Blocked | None:
        """One block has come to the cluster barrier; return its wait, None for the last. A
        `relaxed` meeting publishes the barriers that were fenced, and nothing else.
        """
        self.arrived += 1
        if self.arrived == len(self.blocks):
            self.arrived = 0
            self.generation += 1
            if relaxed:
                self._publish_barriers()
            else:
                self.clocks.meet(slice(None))
            self.machine.scheduler.wake(self.queue)
            return None
        generation = self.generation

        def need() -> Need:
            arrived = f"{self.arrived}/{len(self.blocks)}"
            return Need("cluster barrier", "-", arrived, f"for {arrived} blocks of the cluster")

        return Blocked(lambda: self.generation > generation, self.queue, need, operation)

    def _publish_barriers(self) -> None:
        for block in self.blocks:
            for barrier in block.barriers.values():
                if barrier.made is not None and barrier.fenced:
                    self.clocks.learn(slice(None), *barrier.made)

    def knows(self, known: Clock, cluster: int, column: int, clock: int) -> bool:
        """Tell whether who knows `known` of this cluster knows an event of any cluster."""
        if cluster == self.number:
            return column < known.size and bool(known[column] >= clock)
        for entry in self.learned:
            if known[entry.row] < entry.clock:
                continue
            theirs = entry.snapshot.get(cluster)
            if theirs is not None and column < theirs.size and theirs[column] >= clock:
                return True
        return False

    def snapshot(self, rows: slice, clock: Clock) -> Snapshot:
        """Return all that `rows` know of every cluster; `clock` is their own knowledge."""
        known: Snapshot = {self.number: clock}
        for entry in self.learned:
            if (self.clocks.now[rows, entry.row] >= entry.clock).any():
                merge_snapshot(known, entry.snapshot)
        return known

    def learn(self, rows: slice, snapshot: Snapshot) -> None:
        """Let `rows` know what a snapshot knows."""
        if (own := snapshot.get(self.number)) is not None:
            self.clocks.acquire(rows, own)
        foreign = {number: clock for number, clock in snapshot.items() if number != self.number}
        if foreign:
            for row in self.clocks.numbers(rows).tolist():
                self.learned.append(_Learned(row, int(self.clocks.now[row, row]), foreign))


def merge_snapshot(into: Snapshot, other: Snapshot) -> None:
    """Add the knowledge of one snapshot to another."""
    for number, clock in other.items():
        mine = into.get(number)
        if mine is None:
            into[number] = clock
            continue
        size = max(mine.size, clock.size)
        merged = np.zeros(size, np.int32)
        merged[: mine.size] = mine
        np.maximum(merged[: clock.size], clock, out=merged[: clock.size])
        into[number] = merged


@dataclass(eq=False, slots=True)
class Block:
    """One thread block: its place in the launch, its memory and its barriers."""

    cluster: Cluster
    index: Grid
    rank: int
    first_row: int
    shared: SharedMemory
    pool: RegisterPool
    barriers: dict[int, Mbarrier] = field(default_factory=dict[int, Mbarrier])
    named: dict[int, NamedBarrier] = field(default_factory=dict[int, NamedBarrier])
    reserved: list[tuple[int, int, str]] = field(default_factory=list[tuple[int, int, str]])
    running: int = 0
    ended: bool = False
    queue: list[Task] = field(default_factory=list[Task])
    tma_time: float = 0.0
    mma_time: float = 0.0

    @property
    def label(self) -> str:
        """The block's name in reports."""
        return f"block {self.index}"

    @property
    def machine(self) -> Machine:
        """The launch."""
        return self.cluster.machine

    def named_barrier(self, number: int) -> NamedBarrier:
        """Return a hardware barrier by id."""
        if number not in self.named:
            self.named[number] = NamedBarrier(number, self.machine.scheduler)
        return self.named[number]

    def reserve(self, low: int, size: int, label: str) -> None:
        """Claim bytes for barriers, or check that a buffer lies outside of them and in bounds."""
        if low < 0 or low + size > self.shared.data.size:
            raise ProtocolError(
                f"{label} ends at byte {low + size} of shared memory",
                why=f"the launch has {self.shared.data.size} bytes",
            )
        for start, stop, other in self.reserved:
            if low < stop and start < low + size:
                raise ProtocolError(
                    f"{label} and the barriers {other} overlap in shared memory",
                    why=f"bytes {low}..{low + size - 1} and {start}..{stop - 1}",
                )


Coroutine: TypeAlias = Generator[Any, None, None]


# --- launches -------------------------------------------------------------------------------------


def launch_number(kernel: tile.Kernel, name: str, default: int) -> int:
    """Return an entry of the kernel's `launch` attribute, `default` where it has none."""
    found = None if kernel.launch is None else kernel.launch.data.get(name)
    match found:
        case IntAttr():
            return found.data
        case IntegerAttr():
            return int(found.value.data)
        case _:
            return default


def is_persistent(kernel: tile.Kernel) -> bool:
    """Tell whether a kernel's blocks walk over the programs of the user's grid themselves."""
    if kernel.launch is not None and "persistent" in kernel.launch.data:
        return bool(launch_number(kernel, "persistent", 0))
    return any(isinstance(op, hopper.GridExtent) for op in kernel.walk())


def launch_blocks(
    kernel: tile.Kernel,
    grid: tuple[int, ...],
    multiprocessors: int = H200.multiprocessors,
    cluster: int | None = None,
) -> tuple[int, int, int]:
    """Return the grid of blocks that a launch of hopper IR has, given the user's grid.

    A persistent kernel gets as many blocks as all multiprocessors hold (whole clusters), at most
    one for each program; any other one for each program, rounded up to whole clusters along x.
    `cluster` blocks make up a cluster; by default what the kernel's `launch` attribute says.
    """
    x, y, z = checked_grid(grid)
    cluster = launch_number(kernel, "cluster", 1) if cluster is None else cluster
    if is_persistent(kernel):
        multiprocessors *= launch_number(kernel, "blocks", 1)
        count = min(max(1, multiprocessors // cluster), -(-x * y * z // cluster))
        return count * cluster, 1, 1
    return -(-x // cluster) * cluster, y, z
