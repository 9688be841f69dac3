"""Shared-memory layouts: where a tile's elements lie, and what TMA and wgmma must be told of it.

A tile is stored row by row in *panels*: each panel holds `panel` elements of the contiguous
dimension (one swizzle width) and all rows. Inside a panel, the 16-byte chunk c of row r lies at
chunk ``c ^ ((r / repeat) % chunks)`` (CUDA driver API, tensor map swizzle modes; PTX ISA, "Strides"
of wgmma matrix descriptors). `swizzle` 0 stores rows one after the other without panels.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

Coordinate = tuple[int, ...]


def split_columns(columns: int, bits: int, parts: int, shares: int = 1) -> tuple[int, ...] | None:
    """Return the widths of `parts` runs of columns: whole panels of 128 bytes, fewer in the last.

    None where there are not as many panels, or they do not come out in `parts`. Of columns in
    `shares` equal ones each part has a run of every share; the widths of those are returned. None
    where not all are whole panels, or together wider than the parts of columns in one.
    """
    panel = 128 * 8 // bits
    if shares > 1 and parts > 1:
        whole, runs = (split_columns(columns // each, bits, parts) for each in (1, shares))
        if whole is None or runs is None or columns % shares or shares * runs[0] != whole[0]:
            return None
        return runs if all(width % panel == 0 for width in runs) else None
    panels = -(-columns // panel)
    each = -(-panels // parts) * panel
    if parts == 1:
        return (columns,)
    if panels < parts or -(-columns // each) != parts:
        return None
    return (*(each for _ in range(parts - 1)), columns - each * (parts - 1))


@dataclass(frozen=True, slots=True)
class SharedLayout:
    """Placement of one tile (one slot) in shared memory.

    `shape` is the logical shape as the program sees it, `order` the dimensions from slowest to
    fastest in memory: (0, 1) is row-major, (1, 0) a transposed view of the same bytes.
    `bits` is the element width, `swizzle` one of 0, 32, 64, 128 (bytes).
    """

    shape: Coordinate
    order: Coordinate
    bits: int
    swizzle: int

    @property
    def bytes(self) -> int:
        """Size of the tile in bytes."""
        return prod(self.shape) * self.bits // 8

    @property
    def stored_shape(self) -> Coordinate:
        """The shape in memory order, slowest first."""
        return tuple(self.shape[dim] for dim in self.order)

    @property
    def panel(self) -> int:
        """Elements of the contiguous dimension in one panel."""
        width = self.stored_shape[-1]
        return min(width, self.swizzle * 8 // self.bits) if self.swizzle else width

    @property
    def alignment(self) -> int:
        """Bytes the tile's base must be aligned to: the span over which the swizzle repeats."""
        return max(128, 8 * self.swizzle)

    def transposed(self, permutation: Coordinate) -> SharedLayout:
        """Return the view whose dimension i is dimension `permutation[i]` of this one."""
        position = {dim: place for place, dim in enumerate(permutation)}
        return SharedLayout(
            tuple(self.shape[dim] for dim in permutation),
            tuple(position[dim] for dim in self.order),
            self.bits,
            self.swizzle,
        )

    @property
    def rows(self) -> int:
        """How many rows lie one after the other: all dimensions but the contiguous one."""
        return prod(self.stored_shape[:-1])

    def stored(self, where: Coordinate) -> tuple[int, int]:
        """Return an element's row, counted through all dimensions but the last, and column."""
        row = 0
        for dim in self.order[:-1]:
            row = row * self.shape[dim] + where[dim]
        return row, where[self.order[-1]]

    def offset(self, where: Coordinate) -> int:
        """Return the byte offset of an element from the base of the tile."""
        row, column = self.stored(where)
        if not self.swizzle:
            return (row * self.stored_shape[-1] + column) * self.bits // 8
        rows = self.rows
        panel, inside = divmod(column, self.panel)
        byte = inside * self.bits // 8
        chunks = self.swizzle // 16
        chunk = (byte // 16) ^ ((row // (8 // chunks)) % chunks)
        return (panel * rows + row) * self.swizzle + chunk * 16 + byte % 16

    def __str__(self) -> str:
        shape = "x".join(map(str, self.shape))
        return f"{shape} order({','.join(map(str, self.order))}) {self.bits}b swizzle{self.swizzle}"
