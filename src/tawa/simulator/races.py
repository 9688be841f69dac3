"""Races on global memory: who wrote and read each element of the arrays a launch writes.

Memory that no operation of the kernel may write is not watched. Arguments that alias share one
shadow. Two stores of the same bits do not race, in whatever order they come; atomics race only with
plain accesses, and so do volatile loads: they are relaxed ones (PTX ISA, "ld.volatile"). Atomics
with acquire or release order carry knowledge from cluster to cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from tawa.errors import ProtocolError
from tawa.ir import aref, hopper, line_of, tile
from tawa.simulator.clocks import Clock
from tawa.simulator.memory import Segment
from tawa.simulator.values import place_of

_CLOCK_BITS, _COLUMN_BITS = 28, 15

_STORES = (
    tile.Store,
    tile.Atomic,
    tile.CompareExchange,
    tile.DescStore,
    tile.DescAtomic,
    hopper.TmaStore,
)


def written_arguments(kernel: tile.Kernel) -> set[str]:
    """Return the names of the arguments that some operation of the kernel may write through.

    Everything the address of a store is computed from counts, through loops and branches too.
    """
    entry, names = kernel.body.block, kernel.argument_names
    found: set[str] = set()
    seen: set[SSAValue] = set()
    stores = [op for op in kernel.walk() if isinstance(op, _STORES)]
    todo = [op.operands[0] for op in stores]
    while todo:
        value = todo.pop()
        if value in seen:
            continue
        seen.add(value)
        if isinstance(value, BlockArgument) and value.block is entry:
            found.add(names[value.index])
            continue
        owner = value.owner.parent_op() if isinstance(value.owner, Block) else value.owner
        if owner is None:
            continue
        todo.extend(owner.operands)
        for region in owner.regions:
            todo.extend(
                v for block in region.blocks if block.last_op for v in block.last_op.operands
            )
    # A pointer that travels through an aref comes from whatever was put in.
    if any(isinstance(value.owner, aref.GetEnter) for value in seen):
        return set(names)
    return found


@dataclass(eq=False, slots=True)
class _Shadow:
    """The last write, atomic and read of each `unit` bytes from machine address `low` to `high`."""

    low: int
    high: int
    unit: int
    writes: NDArray[np.int64]
    atomics: NDArray[np.int64]
    reads: dict[int, NDArray[np.int32]] = field(default_factory=dict[int, NDArray[np.int32]])
    polls: dict[int, NDArray[np.int32]] = field(default_factory=dict[int, NDArray[np.int32]])
    who: dict[int, tuple[str, Operation]] = field(default_factory=dict[int, tuple[str, Operation]])

    def refine(self) -> None:
        """Go over to one entry a byte: elements smaller than the unit are accessed."""
        self.writes = np.repeat(self.writes, self.unit)
        self.atomics = np.repeat(self.atomics, self.unit)
        self.reads = {key: np.repeat(clocks, self.unit) for key, clocks in self.reads.items()}
        self.polls = {key: np.repeat(clocks, self.unit) for key, clocks in self.polls.items()}
        self.unit = 1


def _pack(cluster: int, column: int) -> int:
    return (cluster << _COLUMN_BITS | column) << _CLOCK_BITS


def _unpack(event: int) -> tuple[int, int, int]:
    agent, clock = event >> _CLOCK_BITS, event & ((1 << _CLOCK_BITS) - 1)
    return agent >> _COLUMN_BITS, agent & ((1 << _COLUMN_BITS) - 1), clock


@dataclass(frozen=True, slots=True)
class Event:
    """Who makes an access: its role, the event (cluster, column, clock) that it is, and whether
    another event is known to have happened before it.
    """

    role: str
    cluster: int
    column: int
    clock: int
    knows: Callable[[int, int, int], bool]


Snapshot: TypeAlias = dict[int, Clock]


class GlobalRaces:
    """The shadows of a launch."""

    def __init__(self, segments: Iterable[Segment], written: set[str]) -> None:
        self._shadows: dict[str, _Shadow] = {}
        self.released: dict[int, Snapshot] = {}
        everything = [segment for segment in segments if segment.data.size]
        bounds = sorted(
            (segment.real, segment.real + segment.data.size)
            for segment in everything
            if segment.name in written
        )
        merged: list[tuple[int, int]] = []
        for low, high in bounds:
            if merged and low < merged[-1][1]:
                merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
            else:
                merged.append((low, high))
        for low, high in merged:
            inside = [s for s in everything if s.real < high and low < s.real + s.data.size]
            low = min(low, *(s.real for s in inside))
            high = max(high, *(s.real + s.data.size for s in inside))
            # One size of element at its own multiples, as nearly always: one entry an element.
            sizes = {segment.size for segment in inside}
            unit = max(sizes)
            if len(sizes) > 1 or any((s.real - s.low - low) % unit for s in inside):
                unit = 1
            count = -(-(high - low) // unit)
            shadow = _Shadow(low, high, unit, np.zeros(count, np.int64), np.zeros(count, np.int64))
            self._shadows.update({segment.name: shadow for segment in inside})

    def watches(self, segment: Segment) -> bool:
        """Tell whether accesses to an argument matter."""
        return segment.name in self._shadows

    def access(
        self,
        segment: Segment,
        index: NDArray[np.int64],
        size: int,
        kind: str,
        operation: Operation,
        event: Event,
    ) -> None:
        """Record an access of elements of `size` bytes; raises ProtocolError for a race."""
        shadow = self._shadows[segment.name]
        phase = -segment.low % size
        if size % shadow.unit:
            shadow.refine()
        first = (segment.real - shadow.low + phase + index.ravel() * size) // shadow.unit
        parts = size // shadow.unit
        at = (first[:, None] + np.arange(parts)).ravel() if parts > 1 else first
        if kind in ("write", "atomic"):
            self._compare_reads(shadow.reads, shadow, at, operation, event)
        if kind == "write":
            self._compare_reads(shadow.polls, shadow, at, operation, event)
        if kind in ("read", "write"):
            self._compare(shadow.atomics, shadow, at, operation, event, kind)
        if kind != "rewrite":
            self._compare(shadow.writes, shadow, at, operation, event, kind)
        key = _pack(event.cluster, event.column)
        shadow.who[key] = (event.role, operation)
        match kind:
            case "read" | "poll":
                reads = shadow.reads if kind == "read" else shadow.polls
                if key not in reads:
                    reads[key] = np.zeros(shadow.writes.size, np.int32)
                reads[key][at] = event.clock
            case "write" | "rewrite":
                shadow.writes[at] = key | event.clock
            case _:
                shadow.atomics[at] = key | event.clock

    def _compare(
        self,
        events: NDArray[np.int64],
        shadow: _Shadow,
        at: NDArray[np.int64],
        operation: Operation,
        event: Event,
        kind: str,
    ) -> None:
        found = events[at]
        if not found.any():
            return
        for packed in np.unique(found).tolist():
            if packed and not event.knows(*_unpack(packed)):
                raise self._race(shadow, packed, "write", kind, operation, event)

    def _compare_reads(
        self,
        reads: dict[int, NDArray[np.int32]],
        shadow: _Shadow,
        at: NDArray[np.int64],
        operation: Operation,
        event: Event,
    ) -> None:
        for key, clocks in reads.items():
            latest = int(clocks[at].max(initial=0))
            if latest and not event.knows(*_unpack(key | latest)):
                raise self._race(shadow, key | latest, "read", "write", operation, event)

    def _race(
        self, shadow: _Shadow, packed: int, old: str, new: str, operation: Operation, event: Event
    ) -> ProtocolError:
        role, earlier = shadow.who[packed & ~((1 << _CLOCK_BITS) - 1)]
        line = line_of(earlier)
        place = f" at line {line}" if line else ""
        names = ", ".join(sorted(n for n, s in self._shadows.items() if s is shadow))
        return ProtocolError(
            f"race on global memory of {names}\n"
            f"  first:  {old} by {role} ({earlier.name}{place})\n"
            f"  second: {new} by {event.role} ({operation.name})",
            place=place_of(operation),
            why="nothing orders the two",
            remedy="programs of one launch must not touch what another writes, unless an atomic "
            "orders them",
        )
