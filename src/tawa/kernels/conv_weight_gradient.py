# Kernels without annotations have parameters of unknown type.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""From the result's gradient to the filters': products over pixels, dealt out and added."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil, gcd
from typing import Any

import tawa
from tawa.errors import ArgumentError
from tawa.kernels import conv_backward
from tawa.kernels.arrays import empty_beside, fits_tma, look
from tawa.kernels.conv_geometry import Geometry, Packing, ceil_to, packing
from tawa.kernels.conv_operands import check_gradient, strides_of
from tawa.kernels.conv_packing import pack
from tawa.kernels.conv_prepare import add_up, by_rows
from tawa.kernels.conv_strips import blocks_of, fit, in_strips, strip_tiles, weight_strips
from tawa.kernels.conv_variants import MERGED, TILES, Axes, Box, Tile, boxes, likely, once
from tawa.kernels.conv_views import Windows, packed_view, refusal, windows
from tawa.kernels.prepare import Launch
from tawa.runtime.arrays import View
from tawa.target import H200, Target

_PIXELS = 64  # of a step
_HELD = 128 * 128  # sums that a consumer warpgroup keeps in registers


@dataclass(frozen=True, slots=True)
class _Reading:
    """How x is read for dw: `together` taps lie in a row of the view; boxes are cut from `axes`."""

    seen: Windows
    axes: Axes
    box: Box
    together: int = 1
    packed: Packing | None = None

    @property
    def whole(self) -> bool:
        """Whether a sum that is not dealt out is dw as it lies."""
        return self.packed is None


def _reading(g: Geometry, x: View, dy: View, target: Target) -> _Reading:
    """Return the first view of x that takes the geometry; raises `ArgumentError`."""
    check_gradient(dy, g, "x", x)
    x, together, packed = replace(x, strides=strides_of(x)), 1, None
    if not refusal("rows", g, x):
        seen, together = windows("rows", g, x), g.fw
    elif not (reason := refusal("window", g, x)):
        seen = windows("window", g, x)
    elif not refusal("taps", g, x):
        seen = windows("taps", g, x)
    elif g.groups > 1 or g.dilation != (1, 1) or g.volume is not None:
        raise ArgumentError(
            f"no filters' gradient of images {g.images} over {g.over} in {g.groups} groups",
            why=f"in place: {reason}; a padded copy has neither dilation nor groups, nor slices",
            remedy="fill channels up with zeros, or copy the arrays to dense memory",
        )
    else:
        packed = packing("padded", g, x.itemsize)
        seen, together = packed_view("padded", g, packed), g.fw
    axes = Axes(*seen.cut(g))
    box = boxes(_PIXELS, axes, 1e-6, target)
    if seen.view == "taps":
        rows = gcd(g.ho, 64)
        box = (64 // min(64, rows * gcd(g.wo, 64)), min(rows, 64 // gcd(g.wo, 64)), gcd(g.wo, 64))
    return _Reading(seen, axes, box, together, packed)


def weight_tiles(g: Geometry, x: Any, dy: Any, target: Target = H200, most: int = 10) -> list[Tile]:
    """Return the tiles of dw that are worth trying, the likely best first."""
    view, grown = look(x), look(dy)
    counts = [count for count in {1: 0, g.abreast(MERGED): 0} if fit(g.merged(count), view, grown)]
    if not counts and in_strips(g):
        check_gradient(grown, g, "x", view, by_tma=False)
        return strip_tiles(g, target)
    slow = strip_tiles(g, target)[1::2] if in_strips(g) else []
    programs, steps, added = dict[Tile, int](), 0, False
    for count in counts or (1,):
        wide = g.merged(count)
        read = _reading(wide, view, grown, target)
        steps, added = read.axes.tiles(read.box), not read.whole
        k, taps = read.seen.k, read.seen.taps
        for tile in _sizes(wide.filters, k, taps):
            across = ceil(wide.filters / tile.rows) * ceil(k / tile.columns)
            programs[replace(tile, merged=count)] = across * taps // tile.abreast * wide.groups
    how = steps, _PIXELS, view.itemsize, target
    return likely(programs, *how, added=added, most=most - len(slow)) + slow


def _sizes(filters: int, k: int, taps: int) -> Iterator[Tile]:
    """Yield the tiles of so many filters by elements of x at each tap that are not mostly empty."""
    for rows, columns in TILES:
        if (rows > MERGED and rows >= 2 * filters) or (columns > 32 and columns >= 2 * k):
            continue
        held = _HELD if rows == MERGED else 2 * _HELD
        for abreast in (1, 2, 3):
            if taps % abreast == 0 and (abreast == 1 or abreast * rows * columns <= held):
                yield Tile(rows, columns, 1, abreast)


def weight_launches(
    g: Geometry, x: Any, dy: Any, dw: Any, tile: Tile | None = None, target: Target = H200
) -> list[Launch]:
    """Return the launches that compute dw: x's copy where it is padded first, parts, their sum.

    `tile` is by default the likeliest of `weight_tiles`. Raises `ArgumentError`.
    """
    if not g.n:
        check_gradient(look(dy), g, "x", look(x), by_tma=False)
        return [add_up(dw, dw, _of(g), 0, 0, (0, 0, 0))]  # nothing is read
    if tile is None:
        tile = weight_tiles(g, x, dy, target)[0]
    if tile.strips:
        return _in_strips(g, x, dy, dw, tile)
    seen_x, given, g = look(x), g, g.merged(tile.merged)
    read = _reading(g, seen_x, look(dy), target)
    seen, axes, box, together = read.seen, read.axes, read.box, read.together
    launches: list[Launch] = []
    column, base = g.channels, x
    if read.packed is not None:
        column = read.packed.images.column
        base = empty_beside(dw, (read.packed.images.elements,), seen_x.dtype)
        launches.append(pack(x, g, read.packed, base))
    rows, columns = tile.rows, tile.columns
    tiles, across = axes.tiles(box), ceil(seen.k / columns)
    share = ceil(tiles / tile.parts)
    parts = ceil(tiles / share)
    whole = read.whole and parts == tile.merged == 1 and fits_tma(look(dw), (seen.k, 1))
    pitch = seen.k if whole else ceil_to(seen.k, 4)
    # Of a part: elements from a group, a filter, a tap and an element of it to the next.
    lies = (g.filters * seen.taps * pitch, seen.taps * pitch, pitch, 1)
    size = g.co * seen.taps * pitch
    part = dw if whole else empty_beside(dw, (parts * size,), "f32")
    shape = (parts, g.groups, g.filters, seen.taps, seen.k)
    sums = tawa.TensorDescriptor(part, shape, (size, *lies), [1, 1, rows, 1, columns])
    full = (axes.images, axes.rows, axes.columns, g.groups, g.filters)
    grown = by_rows(dy, full, [*box, 1, rows])
    options: dict[str, Any] = {"BLOCK_I": box[0], "BLOCK_H": box[1], "BLOCK_W": box[2]}
    options |= {"BLOCK_M": rows, "BLOCK_N": columns, "GROUPS": g.groups, "VIEW": seen.view}
    options |= {"CHANNELS": g.channels, "WINDOW": g.taps, "ABREAST": tile.abreast}
    if tile.abreast > 1:  # a stage of each tap's would take the place of two steps of the ring
        options["store"] = "registers"
    numbers = (tiles, ceil(axes.rows / box[1]), ceil(axes.columns / box[2]), across, share)
    grid = (ceil(g.filters / rows), seen.taps // tile.abreast * across, parts * g.groups)
    first = (seen.descriptor(base, box, columns), grown, sums, *numbers)
    options |= once(grid, target)
    launches.append(Launch(conv_backward.conv_weight_gradient, grid, first, options))
    if whole:
        return launches
    options = {"TOGETHER": together, "COLUMN": column}
    options |= {"MERGED": tile.merged, "FILTERS": given.filters}
    return [*launches, add_up(part, dw, _of(given), parts, size, lies[1:], **options)]


def _in_strips(g: Geometry, x: Any, dy: Any, dw: Any, tile: Tile) -> list[Launch]:
    if (channel := strides_of(look(x))[-1]) != 1:
        raise ArgumentError(
            f"channels of x lie {channel} elements apart", why="they are read at once"
        )
    blocks = blocks_of(g, tile)
    share = ceil(blocks / tile.parts)
    parts, size = ceil(blocks / share), g.co * g.window
    part = empty_beside(dw, (parts * size,), "f32")
    steps = (1, g.channels * g.co, g.co)
    added = add_up(part, dw, _of(g), parts, size, steps, TURNED=True)
    return [weight_strips(g, x, dy, part, tile, (blocks, share)), added]


def _of(g: Geometry) -> tuple[int, int, int]:
    """Return the filters, taps and channels of dw."""
    return g.co, g.fh * g.fw, g.channels
