"""Which bytes of shared memory an access touches, as bit masks of four-byte words.

A *bucket* is memory that is checked on its own: one slot of a buffer that overlaps no other, or a
whole group of overlapping buffers. Masks count from the start of the bucket.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from tawa.ir import hopper
from tawa.ir.types import BarriersType, BufferType, ViewType
from tawa.layouts.register import RegisterLayout
from tawa.layouts.shared import SharedLayout
from tawa.simulator.proof.rules import Unproved, Violation

WORD = 4
_BARRIER_BYTES = 8

Offsets = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Change:
    """One step from a tile to a view of it: "transpose", "slice" or "reshape"."""

    kind: str
    numbers: tuple[int, ...]
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the elements of a view lie in its slot."""

    layout: SharedLayout
    changes: tuple[Change, ...]


@lru_cache(maxsize=256)
def element_offsets(layout: SharedLayout) -> Offsets:
    """Return the byte offset of each element of a tile, in the tile's logical shape."""
    extents = layout.stored_shape
    columns = np.arange(extents[-1], dtype=np.int64)
    rows = np.arange(prod(extents[:-1]), dtype=np.int64)[:, None]
    if layout.swizzle:
        panel, inside = np.divmod(columns, layout.panel)
        byte = inside * layout.bits // 8
        chunks = layout.swizzle // 16
        chunk = (byte // 16) ^ ((rows // (8 // chunks)) % chunks)
        stored = (panel * len(rows) + rows) * layout.swizzle + chunk * 16 + byte % 16
    else:
        stored = (rows * extents[-1] + columns) * layout.bits // 8
    position = {dim: place for place, dim in enumerate(layout.order)}
    return stored.reshape(extents).transpose([position[dim] for dim in range(len(extents))])


def mask_of(offsets: Offsets, size: int) -> int:
    """Return the mask of elements of `size` bytes at byte `offsets`."""
    first = np.asarray(offsets).reshape(-1) // WORD
    words = np.zeros(int(first.max()) + max(1, size // WORD) + 1, np.uint8)
    for part in range(max(1, size // WORD)):
        words[first + part] = 1
    return int.from_bytes(np.packbits(words, bitorder="little").tobytes(), "little")


@lru_cache(maxsize=256)
def whole_mask(words: int) -> int:
    """Return the mask of so many words: one object, which is soon seen to equal itself."""
    return (1 << words) - 1


@lru_cache(maxsize=1024)
def share_mask(view: Placement, layout: RegisterLayout, warps: tuple[int, ...]) -> int:
    """Return the mask of the elements of a view that some warps hold in a register layout."""
    offsets, size = _placed(view)
    rank = len(layout.shape)
    if offsets.ndim != rank:
        return mask_of(offsets, size)
    total = np.zeros((1, rank), np.int64)
    chosen = [layout.warp_table[warp % layout.warp_count] for warp in warps]
    for table in (layout.register_table, layout.lane_table, chosen):
        part = np.asarray(table, np.int64).reshape(-1, rank)
        total = (total[:, None] + part[None]).reshape(-1, rank)
    inside = np.all(total < np.asarray(offsets.shape), axis=1)
    places = total[inside]
    return mask_of(offsets[tuple(places.T)], size) if len(places) else 0


@lru_cache(maxsize=1024)
def part_mask(view: Placement, axis: int, start: int, stop: int) -> int:
    """Return the mask of the part [start, stop) of a view along `axis`."""
    offsets, size = _placed(view)
    return mask_of(offsets[(slice(None),) * axis + (slice(start, stop),)], size)


@lru_cache(maxsize=256)
def _placed(view: Placement) -> tuple[Offsets, int]:
    """Return the byte offsets of a view's elements, in its shape, and their size."""
    offsets = element_offsets(view.layout)
    for change in view.changes:
        match change.kind:
            case "transpose":
                offsets = offsets.transpose(change.numbers)
            case "slice":
                ends = zip(change.numbers, change.shape, strict=True)
                offsets = offsets[tuple(slice(low, low + extent) for low, extent in ends)]
            case _:
                offsets = offsets.reshape(change.shape)
    return offsets, max(1, view.layout.bits // 8)


@dataclass(frozen=True)
class Buffer:
    """A shared buffer: its bucket is `number` itself, or that of its overlapping group."""

    label: str
    number: int
    start: int
    stop: int
    slots: int
    slot_bytes: int
    group: int
    group_start: int
    layout: SharedLayout

    @cached_property
    def alone(self) -> bool:
        """Whether the buffer overlaps no other, so that each slot is a bucket."""
        return self.group < 0

    @cached_property
    def buckets(self) -> tuple[tuple[int, int], ...]:
        """The key of the bucket of each slot."""
        slots = range(self.slots)
        return tuple((self.number, slot) if self.alone else (-1, self.group) for slot in slots)

    @cached_property
    def shifts(self) -> tuple[int, ...]:
        """By how many words masks of each slot are moved inside their bucket."""
        if self.alone:
            return (0,) * self.slots
        begin = self.start - self.group_start
        return tuple((begin + slot * self.slot_bytes) // WORD for slot in range(self.slots))


class Moved:
    """A mask, moved by words: one object for each distance."""

    __slots__ = ("_found", "mask")

    def __init__(self, mask: int) -> None:
        self.mask = mask
        self._found: dict[int, int] = {0: mask}

    def by(self, shift: int) -> int:
        """Return the mask moved by so many words."""
        found = self._found.get(shift)
        if found is None:
            found = self._found[shift] = self.mask << shift
        return found


@dataclass(frozen=True, slots=True)
class Footprint:
    """The static part of a view: its buffer, the number of its slot, and its bytes."""

    buffer: Buffer
    index: SSAValue
    view: Placement
    shape: tuple[int, ...]
    bytes: int
    whole: bool

    def mask(self) -> int:
        """Return the mask of the whole view."""
        if self.whole:
            return whole_mask(-(-self.buffer.layout.bytes // WORD))
        return mask_of(*_placed(self.view))

    @property
    def first_byte(self) -> int:
        """Where in its slot the view's first element lies, in bytes."""
        offsets, _ = _placed(self.view)
        return int(offsets.flat[0])

    @property
    def row_axis(self) -> int:
        """The dimension a tile is shared out by: the first of several elements but the last."""
        return next((axis for axis, extent in enumerate(self.shape[:-1]) if extent > 1), 0)

    @property
    def row_count(self) -> int:
        """Number of rows a tile can be shared out in."""
        return self.shape[self.row_axis]

    def rows(self, start: int, stop: int) -> int:
        """Return the mask of rows [start, stop)."""
        if (start, stop) == (0, self.row_count):
            return self.mask()
        return part_mask(self.view, self.row_axis, start, stop)

    def share(self, layout: RegisterLayout, warps: tuple[int, ...]) -> int:
        """Return the mask of what `warps` hold of the view."""
        return share_mask(self.view, layout, warps)


def footprint(view: SSAValue, buffers: dict[SSAValue, Buffer]) -> Footprint:
    """Follow a view back to its slot. Raises Unproved where it has no single one."""
    changes: list[Change] = []
    value, kind = view, view.type
    assert isinstance(kind, ViewType)
    while not isinstance(value.owner, hopper.Slot):
        match value.owner:
            case hopper.TransposeView() as change:
                numbers = tuple(item.data for item in change.permutation)
                changes.append(Change("transpose", numbers, _shape(value)))
            case hopper.SliceView() as change:
                numbers = tuple(item.data for item in change.start)
                changes.append(Change("slice", numbers, _shape(value)))
            case hopper.ReshapeView() as change:
                changes.append(Change("reshape", (), _shape(value)))
            case _:
                raise Unproved("a view that is not part of one slot", None)
        value = change.view
    slot = value.owner
    buffer = buffers[slot.buffer]
    whole = all(change.kind != "slice" for change in changes)
    key = Placement(_layout(value), tuple(reversed(changes)))
    return Footprint(buffer, slot.index, key, kind.shape, kind.layout.data.bytes, whole)


def _shape(view: SSAValue) -> tuple[int, ...]:
    kind = view.type
    assert isinstance(kind, ViewType)
    return kind.shape


def _layout(view: SSAValue) -> SharedLayout:
    kind = view.type
    assert isinstance(kind, ViewType)
    return kind.within.data


def collect_buffers(
    shared: list[hopper.Shared], barriers: list[hopper.Barriers], limit: int
) -> dict[SSAValue, Buffer]:
    """Place all buffers; refuse barriers that share bytes with anything, and what is too long."""
    spans: list[tuple[int, int, hopper.Shared]] = []
    for operation in shared:
        kind = operation.result.type
        assert isinstance(kind, BufferType)
        spans.append((operation.offset.data, operation.offset.data + kind.bytes, operation))
    _check_barriers([(low, high, op.label.data) for low, high, op in spans], barriers, limit)
    groups = _groups([(low, high) for low, high, _ in spans])
    found: dict[SSAValue, Buffer] = {}
    for number, (low, high, operation) in enumerate(spans):
        kind = operation.result.type
        assert isinstance(kind, BufferType)
        group = groups[number]
        members = [item for item, other in enumerate(groups) if other == group]
        found[operation.result] = Buffer(
            operation.label.data,
            number,
            low,
            high,
            kind.slots.data,
            kind.slot_bytes,
            group if len(members) > 1 else -1,
            min(spans[item][0] for item in members),
            kind.layout.data,
        )
    return found


def _groups(spans: list[tuple[int, int]]) -> list[int]:
    """Number the groups of spans that overlap, directly or through others."""
    groups = list(range(len(spans)))
    reach, current = -1, -1
    for index in sorted(range(len(spans)), key=lambda item: spans[item]):
        low, high = spans[index]
        current = current if low < reach else index
        groups[index] = current
        reach = max(reach, high) if low < reach else high
    return groups


def _check_barriers(
    spans: list[tuple[int, int, str]], barriers: list[hopper.Barriers], limit: int
) -> None:
    taken = list(spans)
    for _, high, label in spans:
        if limit and high > limit:
            sentence = f"buffer {label} ends at byte {high}, the block has {limit}."
            raise Violation("form", sentence)
    for operation in barriers:
        kind = operation.result.type
        assert isinstance(kind, BarriersType)
        low, label = operation.offset.data, operation.label.data
        high = low + _BARRIER_BYTES * kind.count.data
        if low % _BARRIER_BYTES:
            raise Violation("barriers in place", f"{label} stands at byte {low}.", operation)
        if limit and high > limit:
            sentence = f"{label} ends at byte {high}, the block has {limit}."
            raise Violation("barriers in place", sentence, operation)
        for other_low, other_high, other in taken:
            if low < other_high and other_low < high:
                sentence = f"{label} (bytes {low} to {high}) overlaps {other}."
                raise Violation("barriers in place", sentence, operation)
        taken.append((low, high, label))
