"""Transposing a tile of 8-bit elements from one place in shared memory to another, by warps.

wgmma reads 8-bit operands with the reduction dimension contiguous only. A tile that lies the other
way round, [R, C] with C contiguous and R the reduction, is copied to [C, R] in *blocks* of 32 rows
by 16 columns: one ldmatrix.x4.trans, four byte permutations and one stmatrix.x4 of a warp.

ldmatrix.trans gives lane l, of each 8x8 matrix of byte pairs, rows 2q and 2q + 1 (q = l % 4) of the
columns 2g and 2g + 1 (g = l / 4). Two matrices that hold rows 4q .. 4q + 3 (or, interleaved, 2q,
2q + 1, 8 + 2q, 9 + 2q: what a lane holds of an accumulator's columns) then give, byte by byte, one
word of column 2g and one of column 2g + 1: a row of four lanes is 16 rows of the source in the
order wgmma wants them. Which matrix a row comes in, and which column a word goes out first, is
chosen by lane so that the eight rows of each 8x8 matrix differ modulo 8: every swizzle spreads such
rows over all banks. Sources: PTX ISA, "ldmatrix", "stmatrix", "prmt".
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, prod

from tawa.layouts.access import linear
from tawa.layouts.register import LANES, Axis, RegisterLayout
from tawa.layouts.shared import SharedLayout

ROWS, COLUMNS = 32, 16
"""Extent of the block that one warp moves at once."""

INTERLEAVED = (0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15)
"""The rows of a run of 16 in the order in which `interleaved` writes them."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """How the blocks of a tile are shared out: `down` and `across` warps, blocks of one warp.

    Warp w has block row ``w / across`` and every `down`-th after it, block column ``w % across``
    and every `across`-th after it. `blocks` lists (row, column) of warp 0, rows fastest.
    """

    down: int
    across: int
    blocks: tuple[tuple[int, int], ...]


def share_blocks(shape: tuple[int, ...], warps: int) -> Blocks | None:
    """Share the blocks of a [R, C] tile evenly out to `warps`; None where they do not divide."""
    if len(shape) != 2 or shape[0] % ROWS or shape[1] % COLUMNS:
        return None
    rows, columns = shape[0] // ROWS, shape[1] // COLUMNS
    across = gcd(warps, columns)
    down = warps // across
    if rows % down:
        return None
    blocks = tuple((r, c) for c in range(0, columns, across) for r in range(0, rows, down))
    return Blocks(down, across, blocks)


def taken(shape: tuple[int, int], warps: int) -> RegisterLayout:
    """Return which elements of the [R, C] source each warp copies, as a register layout."""
    found = share_blocks(shape, warps)
    assert found is not None, "the lowering has checked that the blocks divide"
    rows, columns = shape[0] // ROWS // found.down, shape[1] // COLUMNS // found.across
    return RegisterLayout(
        shape,
        (
            Axis(COLUMNS, (0, 1)),
            Axis(rows, (ROWS * found.down, 0)),
            Axis(columns, (0, COLUMNS * found.across)),
        ),
        (Axis(LANES, (1, 0)),),
        (Axis(found.across, (0, COLUMNS)), Axis(found.down, (ROWS, 0))),
    )


def given(shape: tuple[int, int], warps: int) -> RegisterLayout:
    """Return which elements of the [C, R] target each warp writes; `shape` is the source's."""
    return taken(shape, warps).mapped(shape[::-1], lambda step: step[::-1])


@dataclass(frozen=True, slots=True)
class Side:
    """Byte offsets before the swizzle, on one side of the copy.

    The block `i` of warp w is at ``warps[w] + blocks[i]`` plus its lane's row times `row_bytes`.
    """

    row_bytes: int
    warps: tuple[int, ...]
    blocks: tuple[int, ...]
    swizzle: int

    @property
    def chunk_mask(self) -> int:
        """The bits of an offset that the swizzle changes."""
        return self.swizzle - 16 if self.swizzle else 0


def sides(source: SharedLayout, target: SharedLayout, warps: int) -> tuple[Side, Side] | None:
    """Return both sides of a transposition of whole tiles; None where the blocks do not fit it."""
    if source.bits != 8 or source.order != (0, 1) or target.order != (0, 1):
        return None
    found = share_blocks(source.shape, warps)
    if found is None or target.shape != source.shape[::-1]:
        return None
    at = [(w // found.across * ROWS, w % found.across * COLUMNS) for w in range(warps)]
    blocks = [(row * ROWS, column * COLUMNS) for row, column in found.blocks]
    made = (
        _side(source, at, blocks, ROWS),
        _side(target, [_flip(w) for w in at], [_flip(b) for b in blocks], COLUMNS),
    )
    return None if made[0] is None or made[1] is None else (made[0], made[1])


def _flip(place: tuple[int, int]) -> tuple[int, int]:
    return place[1], place[0]


def _side(
    layout: SharedLayout, at: list[tuple[int, int]], blocks: list[tuple[int, int]], rows: int
) -> Side | None:
    """Return the offsets of one side, checked: they add up, and the swizzle takes them apart.

    The rows of a block fill the row bits that the swizzle reads; warps and blocks must leave these
    alone, and must not carry into the chunk bits of one another.
    """
    row_bytes = layout.swizzle or layout.shape[1]
    side = Side(
        row_bytes,
        tuple(linear(layout, place) for place in at),
        tuple(linear(layout, place) for place in blocks),
        layout.swizzle,
    )
    for place, base in zip(at, side.warps, strict=True):
        for block, more in zip(blocks, side.blocks, strict=True):
            where = (place[0] + block[0], place[1] + block[1])
            if linear(layout, where) != base + more:
                return None
    if not layout.swizzle:
        return side
    mask = side.chunk_mask
    # The target's second 16 bytes take the lowest chunk bit.
    own = 16 if rows == COLUMNS else 0
    whole = prod(layout.shape[:-1]) % 8 == 0 and layout.panel == layout.swizzle
    free = not any(part & (mask << 3 | own) for part in (*side.warps, *side.blocks))
    apart = not any(a & b & mask for a in side.warps for b in side.blocks)
    return side if whole and free and apart else None
