"""Shared-memory operands of wgmma: the descriptor of a view and where each step begins.

Sources: PTX ISA, "Strides" and "Matrix Descriptor Format" of wgmma. For a swizzle of S bytes the
tensor cores read *atoms* of 8 rows x S bytes. K-major (the reduction dimension contiguous): rows of
the atom are M or N; the stride offset, 8 rows, leads to the next 8 of them; the leading offset is
unused and a step of 32 bytes stays inside the atom. MN-major (transposed): rows of the atom are K;
the leading offset is the distance between panels, the stride offset the next 8 of K.
"""

from __future__ import annotations

from dataclasses import dataclass

from tawa.errors import ShapeUnsupported
from tawa.layouts.register import Coordinate
from tawa.layouts.shared import SharedLayout

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
