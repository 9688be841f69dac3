"""Which bytes of shared memory an access touches, and by which warp: masks of four-byte words.

A view is followed back to the slot it is part of; its words are counted from the slot's first.
What a register layout says of warps is the layout's own business (`tawa.layouts`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, SSAValue

from tawa.ir import hopper
from tawa.ir.types import BufferType, LayoutAttr, ViewType
from tawa.layouts.fragments import wgmma_tiling
from tawa.layouts.register import RegisterLayout
from tawa.layouts.shared import SharedLayout
from tawa.layouts.transpose import given, taken
from tawa.verify.rules import Refused, rule

WARPGROUP = 4
"""Warps of a warpgroup."""

_WORD = 4
_Change = tuple[str, tuple[int, ...]]
_Offsets = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Place:
    """A view: a part of the slot `index` of a buffer, cut out and turned by `changes`."""

    buffer: SSAValue
    index: SSAValue
    layout: SharedLayout
    changes: tuple[_Change, ...]

    @property
    def slots(self) -> int:
        """Number of slots of the buffer."""
        kind = self.buffer.type
        assert isinstance(kind, BufferType)
        return kind.slots.data

    @property
    def first_byte(self) -> int:
        """Where in its slot the view's first element lies, in bytes."""
        return int(_placed(self.layout, self.changes).flat[0])


def place_of(view: SSAValue, user: Operation) -> Place:
    """Follow a view back to its slot. Raises Refused where it is not a part of one slot."""
    changes: list[_Change] = []
    value = view
    while not isinstance(value.owner, hopper.Slot):
        match value.owner:
            case hopper.TransposeView() as change:
                order = tuple(item.data for item in change.permutation)
                changes.append(("transpose", order))
            case hopper.SliceView() as change:
                starts = (item.data for item in change.start)
                ends = zip(starts, view_shape(value), strict=True)
                changes.append(("slice", tuple(number for pair in ends for number in pair)))
            case hopper.ReshapeView() as change:
                changes.append(("reshape", view_shape(value)))
            case _:
                raise Refused(rule("form"), "a view is not a part of one slot", user)
        value = change.view
    kind = value.type
    assert isinstance(kind, ViewType)
    return Place(value.owner.buffer, value.owner.index, kind.within.data, tuple(reversed(changes)))


def bytes_of(view: SSAValue) -> int:
    """Return the bytes of a view."""
    kind = view.type
    assert isinstance(kind, ViewType)
    return kind.layout.data.bytes


Shares = tuple[int, ...]
"""What each warp of a role touches: a mask of the words of a slot."""


def shares_of(place: Place, layout: RegisterLayout | None, warps: int) -> Shares:
    """Return what each warp of a role holds of a view: without a layout, all of it."""
    if layout is None:
        return (_whole(place.layout, place.changes),) * warps
    return tuple(_held(place.layout, place.changes, layout, warp) for warp in range(warps))


def shares_of_rows(place: Place, parts: list[list[tuple[int, int]]], warps: int) -> Shares:
    """Return what each warp touches where warpgroup g touches the ranges of rows of `parts[g]`."""
    masks = [0] * warps
    for group, ranges in enumerate(parts):
        for low, high in ranges:
            for warp in range(WARPGROUP * group, min(warps, WARPGROUP * (group + 1))):
                masks[warp] |= _rows(place.layout, place.changes, low, high)
    return tuple(masks)


def rows_of(view: SSAValue) -> int:
    """Return in how many rows a tile can be shared out."""
    shape = view_shape(view)
    return shape[_row_axis(shape)]


def rows_of_product(wgmma: hopper.Wgmma, groups: int) -> list[list[tuple[int, int]]]:
    """Return which rows of A each warpgroup reads."""
    kind = wgmma.result.type
    assert isinstance(kind, TensorType)
    layout = register_layout(wgmma.result)
    tiling = wgmma_tiling(layout) if layout is not None else None
    if tiling is None or len(tiling.groups) != groups:
        return [[(0, kind.get_shape()[0])]] * groups
    return [
        sorted({(top + row, top + row + 64) for row, _ in tiling.blocks})
        for top, _ in tiling.groups
    ]


def register_layout(value: SSAValue) -> RegisterLayout | None:
    """Return the layout of a tensor over warps, None where it has none."""
    kind = value.type
    if isinstance(kind, TensorType) and isinstance(kind.encoding, LayoutAttr):
        return kind.encoding.data
    return None


def transposing_layouts(
    shape: tuple[int, ...], warps: int
) -> tuple[RegisterLayout, RegisterLayout]:
    """Return what warps take of the source of a `SharedTranspose` and what they give."""
    rows, columns = shape
    return taken((rows, columns), warps), given((rows, columns), warps)


@lru_cache(maxsize=4096)
def meeting_distance(one: Shares, other: Shares) -> int:
    """Return how far apart the warps are that touch the same words: -1 where none do, 0 where only
    a warp and itself, 1 where warps of one warpgroup, 2 where others do.
    """
    found = -1
    for a, mine in enumerate(one):
        if not mine:
            continue
        for b, its in enumerate(other):
            if mine & its:
                apart = 0 if a == b else 1 if a // WARPGROUP == b // WARPGROUP else 2
                found = max(found, apart)
    return found


def are_known(shares: Shares, arriving: set[int], level: int) -> bool:
    """Tell whether for each warp that accesses something a thread arrives that knows of it."""
    for warp, mask in enumerate(shares):
        if not mask:
            continue
        if level == 2:
            known = bool(arriving)
        elif level == 1:
            known = any(each // WARPGROUP == warp // WARPGROUP for each in arriving)
        else:
            known = level == 0 and warp in arriving
        if not known:
            return False
    return True


def view_shape(view: SSAValue) -> tuple[int, ...]:
    """Return the logical shape of a view."""
    kind = view.type
    assert isinstance(kind, ViewType)
    return kind.shape


def _row_axis(shape: tuple[int, ...]) -> int:
    """Return the dimension a tile is shared out by: the first of several elements but the last."""
    return next((axis for axis, extent in enumerate(shape[:-1]) if extent > 1), 0)


@lru_cache(maxsize=512)
def _placed(layout: SharedLayout, changes: tuple[_Change, ...]) -> _Offsets:
    """Return the byte offsets of a view's elements, in its shape."""
    offsets = _element_offsets(layout)
    for kind, numbers in changes:
        match kind:
            case "transpose":
                offsets = offsets.transpose(numbers)
            case "slice":
                cuts = zip(numbers[::2], numbers[1::2], strict=True)
                offsets = offsets[tuple(slice(low, low + extent) for low, extent in cuts)]
            case _:
                offsets = offsets.reshape(numbers)
    return offsets


@lru_cache(maxsize=256)
def _element_offsets(layout: SharedLayout) -> _Offsets:
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


def _mask(offsets: _Offsets, size: int) -> int:
    if not offsets.size:
        return 0
    first = np.asarray(offsets).reshape(-1) // _WORD
    words = np.zeros(int(first.max()) + max(1, size // _WORD) + 1, np.uint8)
    for part in range(max(1, size // _WORD)):
        words[first + part] = 1
    return int.from_bytes(np.packbits(words, bitorder="little").tobytes(), "little")


@lru_cache(maxsize=512)
def _whole(layout: SharedLayout, changes: tuple[_Change, ...]) -> int:
    return _mask(_placed(layout, changes), max(1, layout.bits // 8))


@lru_cache(maxsize=1024)
def _rows(layout: SharedLayout, changes: tuple[_Change, ...], low: int, high: int) -> int:
    offsets = _placed(layout, changes)
    cut = (slice(None),) * _row_axis(offsets.shape) + (slice(low, high),)
    return _mask(offsets[cut], max(1, layout.bits // 8))


@lru_cache(maxsize=2048)
def _held(
    layout: SharedLayout, changes: tuple[_Change, ...], registers: RegisterLayout, warp: int
) -> int:
    """Return the mask of what a warp holds of a view in a register layout."""
    offsets, size = _placed(layout, changes), max(1, layout.bits // 8)
    rank = len(registers.shape)
    if offsets.ndim != rank:
        return _mask(offsets, size)
    total = np.zeros((1, rank), np.int64)
    chosen = [registers.warp_table[warp % registers.warp_count]]
    for table in (registers.register_table, registers.lane_table, chosen):
        part = np.asarray(table, np.int64).reshape(-1, rank)
        total = (total[:, None] + part[None]).reshape(-1, rank)
    places = total[np.all(total < np.asarray(offsets.shape), axis=1)]
    return _mask(offsets[tuple(places.T)], size)
