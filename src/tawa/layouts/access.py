"""How threads reach a shared tile: vector accesses and 8x8 matrices, derived from both layouts.

Offsets split into a part of the thread and a part of the register. Without swizzle that sum is the
offset; the swizzle of S bytes then exchanges bits, ``x ^ (x >> 3 & S - 16)``: bits 7.. (the row)
into bits 4.. (the 16-byte chunk). Where the parts add without carries into either, the exchange of
the sum is the exclusive or of those of its parts: an access costs one, with a constant.

Sources: PTX ISA, "stmatrix", "ldmatrix" (row l % 8 of matrix l / 8 is addressed by lane l; its
elements 2(l % 4) and 2(l % 4) + 1 of row l / 4 are lane l's).

Shared-memory operands of wgmma: the descriptor of a view and where each step begins.

Sources: PTX ISA, "Strides" and "Matrix Descriptor Format" of wgmma. For a swizzle of S bytes the
tensor cores read *atoms* of 8 rows x S bytes. K-major (the reduction dimension contiguous): rows of
the atom are M or N; the stride offset, 8 rows, leads to the next 8 of them; the leading offset is
unused and a step of 32 bytes stays inside the atom. MN-major (transposed): rows of the atom are K;
the leading offset is the distance between panels, the stride offset the next 8 of K.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tawa.errors import ShapeUnsupported
from tawa.layouts.indexing import fit
from tawa.layouts.register import Coordinate, RegisterLayout
from tawa.layouts.shared import SharedLayout


@dataclass(frozen=True, slots=True)
class Access:
    """Byte offsets of the accesses of all threads, before the swizzle.

    The access `i` of lane l of warp w is at ``lanes[l] + warps[w] + accesses[i]``; `elements` are
    moved by each (by each lane of it, for matrices). `commutes`: the swizzle may be applied to the
    thread's part and the access' alone, whose chunk bits are then exclusive-ored. `pitch` not 0:
    columns carry from one panel to the next, so offsets are those of rows `pitch` bytes apart
    without panels, of which there are `rows`.
    """

    lanes: tuple[int, ...]
    warps: tuple[int, ...]
    accesses: tuple[int, ...]
    elements: int
    swizzle: int
    commutes: bool
    matrices: int = 0
    transposed: bool = False
    pitch: int = 0
    rows: int = 0

    @property
    def chunk_mask(self) -> int:
        """The bits of an offset that the swizzle changes."""
        return self.swizzle - 16 if self.swizzle else 0

    def chunks(self) -> tuple[int, ...]:
        """What each access, swizzled, exclusive-ors into the thread's swizzled offset."""
        return tuple((offset ^ offset >> 3) & self.chunk_mask for offset in self.accesses)

    def rests(self) -> tuple[int, ...]:
        """What each access adds after that."""
        return tuple(offset & ~self.chunk_mask for offset in self.accesses)

    def address(self, lane: int, warp: int, access: int) -> int:
        """Return the swizzled byte offset: the definition that generated code is tested against."""
        offset = self.lanes[lane] + self.warps[warp] + self.accesses[access]
        if self.pitch:
            row, column = divmod(offset, self.pitch)
            panel, inside = divmod(column, self.swizzle)
            offset = (panel * self.rows + row) * self.swizzle + inside
        return offset ^ (offset >> 3 & self.chunk_mask)


def linear(within: SharedLayout, where: Coordinate) -> int:
    """Return the byte offset of an element as if its tile were not swizzled."""
    row, column = within.stored(where)
    size = within.bits // 8
    if not within.swizzle:
        return (row * within.stored_shape[-1] + column) * size
    panel, inside = divmod(column, within.panel)
    return (panel * within.rows + row) * within.swizzle + inside * size


def _thread_parts(
    layout: RegisterLayout, within: SharedLayout, lanes: tuple[Coordinate, ...]
) -> tuple[tuple[int, ...], tuple[int, ...], int] | None:
    """Return offsets by lane and by warp, and the most columns they reach into a panel.

    None where their columns carry from one panel to the next, so that offsets do not add up.
    """
    column = within.order[-1]
    panel = within.panel if within.swizzle else within.stored_shape[-1] + 1
    reach = max(where[column] % panel for where in lanes) + max(
        where[column] % panel for where in layout.warp_table
    )
    if reach >= panel:
        return None
    return (
        tuple(linear(within, where) for where in lanes),
        tuple(linear(within, where) for where in layout.warp_table),
        reach,
    )


def _commutes(
    lanes: tuple[int, ...], warps: tuple[int, ...], accesses: tuple[int, ...], swizzle: int
) -> bool:
    """Tell whether the row bits of each sum are the exclusive or of its parts', and chunk bits add
    without carries: then its exchange is the exclusive or of theirs.
    """
    if not swizzle:
        return True
    mask = swizzle - 16
    rows, period = mask << 3, 16 * swizzle
    threads = {(lane + warp) % period for lane in lanes for warp in warps}
    moved = {offset % period for offset in accesses}
    if any((thread ^ offset ^ thread + offset) & rows for thread in threads for offset in moved):
        return False
    taken = 0
    low = 0
    for part in (lanes, warps):
        bits = 0
        for offset in part:
            bits |= offset & mask
        low += max(offset & 15 for offset in part)
        if taken & bits:
            return False
        taken |= bits
    own = 0
    for offset in accesses:
        own |= offset & mask
    low += max(offset & 15 for offset in accesses)
    return not own & taken and low < 16


def _whole(within: SharedLayout) -> bool:
    """Tell whether panels hold whole swizzle periods, so that offsets' bits are row and chunk."""
    if not within.swizzle:
        return True
    one_panel = within.panel == within.stored_shape[-1]
    return within.panel * within.bits // 8 == within.swizzle and (one_panel or within.rows % 8 == 0)


def vector_access(layout: RegisterLayout, within: SharedLayout) -> Access | None:
    """Return the widest plain accesses of a register tile to a shared one.

    Neighbouring registers that are neighbours in memory move together, up to 16 bytes. None where
    panels hold no whole periods of the swizzle.
    """
    if not _whole(within):
        return None
    lanes, warps, places, pitch = _in_panels(layout, within) or _in_rows(layout, within)
    size = within.bits // 8
    width = next(
        width
        for width in (16, 8, 4, 2, 1)
        if width * size <= 16
        and (width == 1 or width * size >= 4)
        and _runs(places, width, size)
        and not any(offset % (width * size) for part in (lanes, warps) for offset in part)
    )
    accesses = places[::width]
    if pitch:
        rows = within.rows
        return Access(lanes, warps, accesses, width, within.swizzle, False, pitch=pitch, rows=rows)
    commutes = _commutes(lanes, warps, accesses, within.swizzle)
    return Access(lanes, warps, accesses, width, within.swizzle, commutes)


_Offsets: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int]


def _in_panels(layout: RegisterLayout, within: SharedLayout) -> _Offsets | None:
    """Return offsets by lane, warp and register that add up; None where columns carry."""
    parts = _thread_parts(layout, within, layout.lane_table)
    if parts is None:
        return None
    lanes, warps, reach = parts
    column = within.order[-1]
    registers = layout.register_table
    panel = within.panel if within.swizzle else within.stored_shape[-1] + 1
    if within.swizzle and any(where[column] % panel + reach >= panel for where in registers):
        return None
    places = tuple(linear(within, where) for where in registers)
    if within.swizzle and fit(places) is None:  # registers run over panels in no regular way
        return None
    return lanes, warps, places, 0


def _in_rows(layout: RegisterLayout, within: SharedLayout) -> _Offsets:
    """Return offsets as if rows were not cut into panels, which always add up, and their pitch."""
    pitch = _pitch(within)

    def offsets(table: tuple[Coordinate, ...]) -> tuple[int, ...]:
        return tuple(in_rows(within, where, pitch) for where in table)

    lanes, warps = offsets(layout.lane_table), offsets(layout.warp_table)
    return lanes, warps, offsets(layout.register_table), pitch


def _pitch(within: SharedLayout) -> int:
    return 1 << (within.stored_shape[-1] * within.bits // 8 - 1).bit_length()


def in_rows(within: SharedLayout, where: Coordinate, pitch: int) -> int:
    """Return the byte offset of an element as if rows lay `pitch` bytes apart, without panels."""
    row, column = within.stored(where)
    return row * pitch + column * within.bits // 8


def _runs(places: tuple[int, ...], width: int, size: int) -> bool:
    """Tell whether registers fall into aligned runs of `width` neighbours in memory."""
    if len(places) % width:
        return False
    return all(
        place == places[index - index % width] + index % width * size
        and places[index - index % width] % (width * size) == 0
        for index, place in enumerate(places)
    )


def _step(dim: int, rank: int, count: int) -> Coordinate:
    return tuple(count if index == dim else 0 for index in range(rank))


def _plus(one: Coordinate, other: Coordinate) -> Coordinate:
    return tuple(a + b for a, b in zip(one, other))


def matrix_access(layout: RegisterLayout, within: SharedLayout) -> Access | None:
    """Return the stmatrix or ldmatrix accesses of a register tile to a shared one.

    A register word must hold one row's neighbours and lanes lie as in an 8x8 matrix, along the
    contiguous dimension, or, for 16-bit elements, across it (`transposed`). None otherwise.
    """
    rank = len(layout.shape)
    column = within.order[-1]
    packed = 32 // within.bits
    words = layout.register_count // packed if packed else 0
    if rank < 2 or not packed or not words or not _whole(within):
        return None
    for row in range(rank):
        if row == column:
            continue
        for transposed in (False, True) if packed == 2 else (False,):
            along, across = (row, column) if transposed else (column, row)
            if not _fragment(layout, packed, along, across):
                continue
            return _matrices(layout, within, row, packed, transposed)
    return None


def _fragment(layout: RegisterLayout, packed: int, along: int, across: int) -> bool:
    """Tell whether words run `along` one dimension and lanes are a quad by eight rows."""
    rank = len(layout.shape)
    lanes = tuple(
        _plus(_step(along, rank, lane % 4 * packed), _step(across, rank, lane // 4))
        for lane in range(32)
    )
    registers = layout.register_table
    return layout.lane_table == lanes and all(
        where == _plus(registers[index - index % packed], _step(along, rank, index % packed))
        for index, where in enumerate(registers)
    )


def _matrices(
    layout: RegisterLayout, within: SharedLayout, row: int, packed: int, transposed: bool
) -> Access | None:
    """Group words into the most matrices a single instruction moves."""
    rank = len(layout.shape)
    starts = layout.register_table[::packed]
    for count in (4, 2, 1):
        if len(starts) % count:
            continue
        heads = starts[::count]
        inside = [tuple(a - b for a, b in zip(starts[m], heads[0])) for m in range(count)]
        regular = all(
            starts[index] == _plus(heads[index // count], inside[index % count])
            for index in range(len(starts))
        )
        if not regular:
            continue
        lanes = tuple(
            _plus(inside[lane // 8 % count], _step(row, rank, lane % 8)) for lane in range(32)
        )
        access = _matrix_offsets(layout, within, lanes, heads, packed, count, transposed)
        if access is not None:
            return access
    return None


def _matrix_offsets(
    layout: RegisterLayout,
    within: SharedLayout,
    lanes: tuple[Coordinate, ...],
    heads: tuple[Coordinate, ...],
    packed: int,
    count: int,
    transposed: bool,
) -> Access | None:
    parts = _thread_parts(layout, within, lanes)
    if parts is None:
        return None
    by_lane, by_warp, reach = parts
    column = within.order[-1]
    panel = within.panel if within.swizzle else within.stored_shape[-1] + 1
    if within.swizzle and any(where[column] % panel + reach >= panel for where in heads):
        return None
    accesses = tuple(linear(within, where) for where in heads)
    if fit(accesses) is None:
        return None
    if any(offset % 16 for part in (by_lane, by_warp, accesses) for offset in part):
        return None
    commutes = _commutes(by_lane, by_warp, accesses, within.swizzle)
    return Access(
        by_lane, by_warp, accesses, packed * count, within.swizzle, commutes, count, transposed
    )


# --- operands of wgmma ----------------------------------------------------------------------------


MODES = {128: 1, 64: 2, 32: 3}
"""Swizzle bytes to the descriptor's two mode bits."""

STEP_BYTES = 32
"""Bytes of the reduction dimension that one wgmma consumes."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A view as a wgmma operand.

    `within` places the view's elements (the layout of the whole slot); dimension `k_dim` is the
    reduction. `transposed` is the instruction's transpose bit: the operand is MN-major.
    """

    within: SharedLayout
    k_dim: int
    transposed: bool
    leading: int
    stride: int

    @property
    def mode(self) -> int:
        """The descriptor's swizzle mode bits."""
        return MODES[self.within.swizzle]

    @property
    def panel(self) -> int:
        """How many of M or N lie in one panel where they lie along, else 8: N's unit."""
        return 8 * self.within.swizzle // self.within.bits if self.transposed else 8

    def check(self, mn: int, extent: int) -> None:
        """Raise ShapeUnsupported where an instruction that reads `extent` from `mn` leaves a panel
        inside of which it begins: panels lie apart, and it would read on.
        """
        inside = mn % self.panel
        if inside and inside + extent > self.panel:
            raise ShapeUnsupported(
                f"a wgmma operand read from {mn} to {mn + extent} of {self.within}",
                why=f"panels of {self.panel} lie apart, and it begins inside of one and leaves it",
                remedy="choose a block size of whole panels for each warpgroup",
            )

    def offset(self, mn: int, k: int) -> int:
        """Return the byte offset of element (mn, k), a multiple of 8 by a multiple of a step."""
        where: Coordinate = (k, mn) if self.k_dim == 0 else (mn, k)
        return self.within.offset(where)


def operand(within: SharedLayout, k_dim: int) -> Operand:
    """Return how wgmma reads a rank-2 view placed by `within`; `k_dim` is its reduction dimension.

    Raises ShapeUnsupported for layouts the tensor cores cannot read.
    """
    if len(within.shape) != 2 or within.swizzle not in MODES:
        raise ShapeUnsupported(
            f"a wgmma operand stored as {within}",
            why="wgmma reads rank-2 tiles in 32-, 64- or 128-byte swizzled panels",
            remedy="make the contiguous dimension at least 32 bytes wide",
        )
    transposed = within.order[-1] != k_dim
    if transposed and within.bits != 16:
        raise ShapeUnsupported(
            f"a wgmma operand stored as {within}, contiguous along M or N",
            why="only 16-bit types may be transposed on the way to the tensor cores",
            remedy="store the operand with its reduction dimension contiguous",
        )
    rows = within.stored_shape[0]
    atom = 8 * within.swizzle
    leading = rows * within.swizzle if transposed else 16
    return Operand(within, k_dim, transposed, leading, atom)
