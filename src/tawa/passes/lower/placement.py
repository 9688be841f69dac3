"""How a tile lies in shared memory: the order of its dimensions and the swizzle."""

from __future__ import annotations

from math import prod

from xdsl.ir import Attribute

from tawa.ir.types import bit_width
from tawa.layouts.access import vector_access
from tawa.layouts.register import RegisterLayout
from tawa.layouts.shared import SharedLayout

_WORD = 32  # bits of a bank


def choose_layout(
    shape: tuple[int, ...],
    element: Attribute,
    order: tuple[int, ...] | None = None,
    widest: int = 128,
) -> SharedLayout:
    """Return the placement of a tile that TMA, wgmma and ldmatrix all read without bank conflicts.

    The swizzle is the widest of 128, 64 and 32 bytes, at most `widest`, that divides the contiguous
    extent; none when rows are shorter or not a multiple of 32 bytes, or where panels would cut its
    period of 8 rows.
    """
    order = order if order is not None else tuple(range(len(shape)))
    bits = max(8, bit_width(element))
    row = shape[order[-1]] * bits // 8
    rows = prod(shape[dim] for dim in order[:-1])
    fits = (
        width
        for width in (128, 64, 32)
        if width <= widest
        and len(shape) > 1
        and row % width == 0
        and (row == width or rows % 8 == 0)
    )
    return SharedLayout(shape, order, bits, next(fits, 0))


def scratch_layout(
    element: Attribute, held: RegisterLayout, wanted: RegisterLayout
) -> SharedLayout:
    """Return a placement that both register layouts reach: swizzled, or else row by row.

    Narrow elements lie in the order in which they are `wanted`, by registers or else by lanes.
    """
    rank = len(held.shape)
    order = tuple(range(rank))
    steps = [axis.step for axis in (*wanted.registers[:1], *wanted.lanes[:1])]
    unit = next((step for step in steps if sorted(step) == [0] * (rank - 1) + [1]), None)
    if unit is not None and bit_width(element) < _WORD:
        order = (*(dim for dim in order if not unit[dim]), unit.index(1))
    layout = choose_layout(held.shape, element, order)
    if all(vector_access(each, layout) is not None for each in (held, wanted)):
        return layout
    return SharedLayout(layout.shape, layout.order, layout.bits, 0)
