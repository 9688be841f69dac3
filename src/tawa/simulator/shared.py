"""Shared memory of one block: bytes, tiles in them, and the races on them.

Memory starts as poison. Every access is kept as a record until a later write of the same bytes is
known to come after it; a new access is compared with the records it overlaps, by bytes and not by
buffer, so that two buffers at one place race too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation

from tawa.errors import ProtocolError
from tawa.ir import line_of
from tawa.layouts.shared import SharedLayout
from tawa.simulator.clocks import Clock, Clocks, Rows
from tawa.simulator.values import Array, DType, place_of

Spans: TypeAlias = tuple[tuple[int, int], ...]


def element_offsets(layout: SharedLayout) -> NDArray[np.int64]:
    """Return the byte offset of every element from the tile's base, in the tile's shape."""
    extents = layout.stored_shape
    size = layout.bits // 8
    rows, width = prod(extents[:-1]), extents[-1]
    row = np.arange(rows, dtype=np.int64)[:, None]
    column = np.arange(width, dtype=np.int64)[None, :]
    if layout.swizzle:
        chunks = layout.swizzle // 16
        panel, inside = np.divmod(column, layout.panel)
        byte = inside * size
        chunk = (byte // 16) ^ ((row // (8 // chunks)) % chunks)
        offsets = (panel * rows + row) * layout.swizzle + chunk * 16 + byte % 16
    else:
        offsets = (row * width + column) * size
    stored = offsets.reshape(extents)
    return np.transpose(stored, np.argsort(layout.order))


def _merge(starts: NDArray[np.int64], size: int) -> Spans:
    """Return the byte ranges that elements of `size` bytes at `starts` cover."""
    ordered = np.unique(starts)
    breaks = np.flatnonzero(np.diff(ordered) > size)
    lows = ordered[np.concatenate([[0], breaks + 1])]
    highs = ordered[np.concatenate([breaks, [ordered.size - 1]])] + size
    return tuple(zip(lows.tolist(), highs.tolist()))


@dataclass(eq=False)
class Placement:
    """Where the elements of a tile lie from the base of its slot; views make new placements."""

    offsets: NDArray[np.int64]
    size: int
    made: dict[Any, Placement] = field(default_factory=dict[Any, "Placement"])
    cache: dict[Any, Spans] = field(default_factory=dict[Any, Spans])

    def __post_init__(self) -> None:
        self.shape: tuple[int, ...] = self.offsets.shape
        self.index = np.ascontiguousarray(self.offsets // self.size)
        self.spans = _merge(self.offsets.ravel(), self.size)
        self.end = self.spans[-1][1]

    def derive(self, key: Any, change: Callable[[Array], Array]) -> Placement:
        """Return the placement of a view, made once for each key."""
        if key not in self.made:
            self.made[key] = Placement(change(self.offsets), self.size)
        return self.made[key]

    def share(self, part: int, parts: int) -> tuple[Placement, int, int]:
        """Return the part-th of equal shares of the rows, the axis of the rows, the first row.

        The rows are the dimension before the last.
        """
        axis = max(0, len(self.shape) - 2)
        count = self.shape[axis] // parts
        start = part * count
        slices = (slice(None),) * axis + (slice(start, start + count),)
        place = self.derive(("share", part, parts), lambda offsets: offsets[slices])
        return place, axis, start


@lru_cache(maxsize=256)
def placement(layout: SharedLayout) -> Placement:
    """Return the placement of a whole tile."""
    return Placement(element_offsets(layout), layout.bits // 8)


@dataclass(frozen=True, slots=True)
class View:
    """A tile in a block's shared memory at run time: `base` in bytes, in buffer `label`."""

    label: str
    base: int
    place: Placement
    dtype: DType
    layout: SharedLayout

    def spans(self) -> Spans:
        """Return the byte ranges of the tile."""
        return tuple((low + self.base, high + self.base) for low, high in self.place.spans)


@dataclass(frozen=True, slots=True)
class Footprint:
    """Which bytes of a tile each warp touches: `owners` is [warps, *shape] of bool.

    `first` is the warp of the role that event 0 of an access stands for, `warps` how many an event
    stands for. `key` tells layouts apart: footprints of equal key, place and base are equal.
    """

    key: object
    place: Placement
    base: int
    first: int
    warps: int
    owners: NDArray[np.bool_] = field(compare=False, repr=False)

    def __call__(self, event: int) -> NDArray[np.int64]:
        """Return the bytes that an event touches."""
        start = self.first + event * self.warps
        held = self.owners[start : start + self.warps].any(axis=0)
        starts = self.place.offsets[held] + self.base
        return (starts[:, None] + np.arange(self.place.size)).ravel()

    def spans(self, events: int) -> Spans:
        """Return the byte ranges that the first `events` events touch together."""
        key = ("spans", self.key, self.first, events * self.warps)
        if key not in self.place.cache:
            held = self.owners[self.first : self.first + events * self.warps].any(axis=0)
            self.place.cache[key] = _merge(self.place.offsets[held], self.place.size)
        return tuple((a + self.base, b + self.base) for a, b in self.place.cache[key])


@dataclass(eq=False, slots=True)
class Access:
    """One access: its bytes, and the events (column, clock) that together are it.

    `part(i)` gives the byte offsets that event i touches; None: each touches all bytes. Accesses of
    one `batch` are one operation's, which writes the same values wherever its threads overlap.
    """

    spans: Spans
    write: bool
    asynchronous: bool
    columns: NDArray[np.intp]
    clocks: Clock
    role: str
    operation: Operation
    part: Footprint | None = None
    batch: object = None

    def __str__(self) -> str:
        kind = ("async " if self.asynchronous else "") + ("write" if self.write else "read")
        line = line_of(self.operation)
        place = f" at line {line}" if line else ""
        low, high = self.spans[0][0], self.spans[-1][1]
        return f"{kind} of bytes {low}..{high - 1} by {self.role} ({self.operation.name}{place})"


def _overlap(first: Spans, second: Spans) -> bool:
    """Tell whether two sorted lists of byte ranges meet."""
    if first[-1][1] <= second[0][0] or second[-1][1] <= first[0][0]:
        return False
    if len(first) == 1 and len(second) == 1:
        return True
    a, b = np.array(first), np.array(second)
    # The first range of `b` that ends after each of `a` begins is the only one that can meet it.
    after = np.searchsorted(b[:, 1], a[:, 0], side="right")
    inside = after < len(b)
    return bool((b[after[inside], 0] < a[inside, 1]).any())


def _covers(outer: Spans, inner: Spans) -> bool:
    """Tell whether every range of `inner` lies in a range of `outer`."""
    if outer == inner:
        return True
    a, b = np.array(outer), np.array(inner)
    at = np.searchsorted(a[:, 1], b[:, 1], side="left")
    inside = at < len(a)
    return bool(inside.all() and (a[at, 0] <= b[:, 0]).all())


def _same_events(new: Access, old: Access) -> bool:
    """Tell whether each event of `old` comes before the same event of `new` by program order."""
    return (
        new.asynchronous == old.asynchronous
        and new.part == old.part
        and new.columns.size == old.columns.size
        and bool((new.columns == old.columns).all())
    )


class SharedMemory:
    """The dynamic shared memory of one block."""

    def __init__(self, size: int, clocks: Clocks, block: str) -> None:
        self.data: NDArray[np.uint8] = np.full(-(-size // 16) * 16, 0xFF, np.uint8)
        self.written: NDArray[np.bool_] = np.zeros(self.data.size, np.bool_)
        self.clocks = clocks
        self.block = block
        self.records: list[Access] = []

    # --- data ---------------------------------------------------------------------------------

    def read(self, view: View, role: str, operation: Operation) -> Array:
        """Return the tile's content; raises ProtocolError where nothing was ever written."""
        for low, high in view.spans():
            if not self.written[low:high].all():
                missing = low + int(np.argmin(self.written[low:high]))
                raise ProtocolError(
                    f"{role} reads {view.label} in shared memory before anything was written there",
                    place=place_of(operation),
                    why=f"byte {missing} of {self.block} holds no value ({operation.name})",
                    remedy="the read must wait for the write",
                )
        return self._typed(view)[view.place.index]

    def write(self, view: View, value: Array) -> None:
        """Set the tile's content."""
        for low, high in view.spans():
            self.written[low:high] = True
        self._typed(view)[view.place.index] = value

    def _typed(self, view: View) -> Array:
        return self.data[view.base : view.base + view.place.end].view(view.dtype)

    # --- races --------------------------------------------------------------------------------

    def access(self, new: Access, rows: Rows) -> None:
        """Record an access made by `rows`; raises ProtocolError if it races with an earlier one."""
        kept: list[Access] = []
        for old in self.records:
            if not _overlap(old.spans, new.spans):
                kept.append(old)
                continue
            if new.batch is not None and old.batch is new.batch:
                kept.append(old)
                continue
            ordered = self._ordered(old, new, rows)
            if not ordered and (old.write or new.write):
                self._check_exactly(old, new, rows)
            if not self._replaces(new, old, rows):
                kept.append(old)
        kept.append(new)
        self.records = kept

    def _columns(self, old: Access, new: Access) -> NDArray[np.intp]:
        # R1 (proxies): an access through the generic proxy comes before one of the async proxy only
        # if its own thread has fenced it (PTX ISA, "proxies"); the other way a barrier is enough.
        crosses = new.asynchronous and not old.asynchronous
        return old.columns + self.clocks.rows if crosses else old.columns

    def _ordered(self, old: Access, new: Access, rows: Rows) -> bool:
        return bool(self.clocks.known(rows, self._columns(old, new), old.clocks).all())

    def _replaces(self, new: Access, old: Access, rows: Rows) -> bool:
        """Tell whether a check against `new` makes one against `old` needless."""
        if not _covers(new.spans, old.spans) or old.write > new.write:
            return False
        return _same_events(new, old) or (new.write and self._ordered(old, new, rows))

    def _check_exactly(self, old: Access, new: Access, rows: Rows) -> None:
        """Compare byte by byte, and raise if an unordered pair of events shares a byte."""
        known = self.clocks.known(rows, self._columns(old, new), old.clocks)
        for number, row in enumerate(known):
            unknown = np.flatnonzero(~row)
            if not unknown.size:
                continue
            mine = self._mask(new, [number * new.columns.size // known.shape[0]])
            if (mine & self._mask(old, unknown.tolist())).any():
                raise self._race(old, new, rows)

    def _mask(self, access: Access, events: Iterable[int]) -> NDArray[np.bool_]:
        mask = np.zeros(self.data.size, np.bool_)
        if access.part is None:
            for low, high in access.spans:
                mask[low:high] = True
            return mask
        for event in events:
            mask[access.part(event)] = True
        return mask

    def _race(self, old: Access, new: Access, rows: Rows) -> ProtocolError:
        crosses = new.asynchronous and not old.asynchronous
        unfenced = crosses and bool(self.clocks.known(rows, old.columns, old.clocks).all())
        why = "nothing orders the two"
        remedy = "the second must wait for the first"
        if unfenced:
            why = "a barrier orders the two, but the async proxy need not see the first"
            remedy = "put a proxy fence after the first, before its thread arrives"
        return ProtocolError(
            f"race on shared memory of {self.block}\n  first:  {old}\n  second: {new}",
            place=place_of(new.operation),
            why=why,
            remedy=remedy,
        )
