# Kernels without annotations have parameters of unknown type.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""Launches that pack images and filters, or lay them out in another order."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import Any

from tawa.kernels import conv_merged, conv_pack
from tawa.kernels.arrays import empty_beside, look
from tawa.kernels.conv_geometry import Geometry, Packed, Packing
from tawa.kernels.conv_operands import strides_of
from tawa.kernels.prepare import Launch

# Elements that a program packs: 32 a thread, all in flight at once.
_PACKED_AT_ONCE = 4096
_FILLED = 1024


def pack(x: Any, g: Geometry, how: Packing, out: Any) -> Launch:
    """Return the launch that packs images."""
    seen = replace(g, fh=how.window[0], fw=how.window[1], stride=how.stride)
    return _pack(x, strides_of(look(x)), seen, how.images, out)


def _pack(x: Any, strides: tuple[int, ...], g: Geometry, buffer: Packed, out: Any) -> Launch:
    """Return the launch that packs x by the windows of `g`."""
    columns, part = _fit(buffer)
    options = {
        "BLOCK_W": columns,
        "BLOCK_P": part,
        "CHANNELS": g.c,
        "COLUMN": buffer.column,
        "WINDOW": g.over,
    }
    sizes = (g.h, g.w, buffer.lines // g.n, buffer.columns, buffer.pitch)
    grid = (buffer.lines, ceil(buffer.columns / columns), ceil(buffer.column / part))
    return Launch(conv_pack.pack, grid, (x, out, *sizes, *strides), options)


def pack_filters(w: Any, g: Geometry, how: Packing, out: Any) -> Launch:
    """Return the launch that packs filters: to it they are images, of one output row or of all."""
    height, width = how.window
    seen = Geometry(g.co, g.fh, g.fw, g.c, g.co, height, width)
    return _pack(w, strides_of(look(w)), seen, how.filters, out)


def rearrange(
    x: Any,
    shape: tuple[int, int, int, int],
    strides: tuple[int, int, int, int],
    out: Any,
    column: int = 0,
) -> Launch:
    """Return the launch that copies x by rows, with zeros after the last axis up to `column`."""
    n, h, w, c = shape
    seen, column = Geometry(n, h, w, c, 1, 1, 1), column or c
    return _pack(x, strides, seen, Packed(n * h, w, c, column, w * column), out)


def fill(w: Any, lines: int, taps: int, merged: conv_merged.Merged, beside: Any) -> Launch:
    """Return the launch that lays w, so many `lines`, out with zeros. Its output, made beside an
    array, has a line for each of them, and for each pixel where such stand as one.
    """
    count = lines * merged.wide
    if merged.pixels:
        count *= merged.beside
    out = empty_beside(beside, (count,), look(w).dtype)
    options = {"BLOCK": _FILLED, "MERGED": merged}
    arguments = (w, out, count, lines, taps)
    return Launch(conv_merged.spread, (ceil(count / _FILLED),), arguments, options)


def _fit(buffer: Packed) -> tuple[int, int]:
    """Return the tile of columns by elements of a column that overhangs them least.

    A tile's edge costs about as much as eight elements beyond it.
    """

    def covered(extent: int, size: int) -> int:
        return ceil(extent / size) * (size + 8)

    parts = (128, 64, 56, 48, 40, 32, 24, 16, 8, 4)
    part = min(parts, key=lambda size: covered(buffer.column, size))
    most = 1 << (_PACKED_AT_ONCE // part).bit_length() - 1
    columns = min((most, most // 2, most // 4), key=lambda size: covered(buffer.columns, size))
    return columns, part
