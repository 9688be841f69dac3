# Kernels without annotations have parameters of unknown type.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""From the result's gradient to the input's: a product for each parity of the input's pixels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, gcd, prod
from typing import Any, TypeVar

import tawa
from tawa.errors import ArgumentError
from tawa.kernels import conv_backward
from tawa.kernels.arrays import empty_beside, fits_tma, look
from tawa.kernels.conv_geometry import Geometry, ceil_to
from tawa.kernels.conv_operands import check_gradient
from tawa.kernels.conv_packing import fill, rearrange
from tawa.kernels.conv_prepare import add_up, by_rows
from tawa.kernels.conv_strips import fit, in_strips, input_strips, strip_tiles
from tawa.kernels.conv_variants import (
    MERGED,
    TILES,
    Axes,
    Box,
    Tile,
    boxes,
    likely,
    once,
    product_seconds,
    uneven,
)
from tawa.kernels.conv_views import Windows, depth_of
from tawa.kernels.prepare import Launch
from tawa.layouts.windows import Window
from tawa.runtime.arrays import View
from tawa.target import H200, Target

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Back:
    """How dy is read for dx: `met` are its windows where TMA counts them, else boxes are cut.

    `axes` are those of a parity's pixels, of which there are `parities` in all groups; each is a
    sum of `steps` of `depth` channels of dy.
    """

    view: str
    met: Window
    axes: Axes
    depth: int
    channels: int
    parities: int
    steps: int
    size: int  # bytes of an element

    def box(self, rows: int, columns: int) -> Box:
        """Return the box of a tile of so many pixels and channels."""
        if self.view != "groups":
            return (1, 1, rows)
        seconds = self.steps * product_seconds(rows, columns, self.depth, self.size)
        return boxes(rows, self.axes, seconds, H200)

    def programs(self, rows: int, columns: int) -> int:
        """Return how many tiles dx has."""
        across = ceil(self.channels / columns)
        return self.axes.tiles(self.box(rows, columns)) * across * self.parities

    def tiles(
        self, target: Target, most: int, waves: Sequence[float] = (0.5, 1, 2, 3)
    ) -> list[Tile]:
        """Return the likeliest tiles, sums dealt out so that they fill so many waves."""
        sizes = (each for each in TILES if each[1] == 32 or each[1] < 2 * self.channels)
        programs = {Tile(*each, 1): self.programs(*each) for each in sizes}
        how = self.steps, self.depth, self.size, target
        return likely(programs, *how, added=False, most=most, waves=waves)


def _reading_back(g: Geometry, dy: View, w: View) -> _Back:
    """Return how dy is read; raises `ArgumentError` where arrays do not fit, or TMA reads none."""
    n, *pixels, _ = g.images
    window, size, k = g.over, dy.itemsize, g.filters
    check_gradient(dy, g, "w", w)
    met = _back(window, pixels)
    parity = tuple(ceil(extent / step) for extent, step in zip(pixels, window.stride))
    taps = prod(window.size)
    why = met.objection
    if not why and g.groups > 1:
        why = uneven(k, size)
    if why and g.volume is not None:
        raise ArgumentError(f"the input's gradient over {window} of volumes of {pixels}", why=why)
    view = "groups" if why else "window" if met.axes == 2 else "volume"
    (high, wide), reach = parity[-2:], (met.size[-2], met.size[-1])
    cut = Axes(n, high, wide, (1, 1), reach, k * size)
    depth = depth_of(Windows(view, dy.shape, (), taps, k, g.groups > 1 and not why), size)
    return _Back(
        view,
        met,
        cut if why else Axes(1, 1, n * prod(parity)),
        depth,
        g.channels,
        prod(window.stride) * g.groups,
        ceil(taps / prod(window.stride)) * ceil(k / depth),
        size,
    )


def input_tiles(g: Geometry, dy: Any, w: Any, target: Target = H200, most: int = 8) -> list[Tile]:
    """Return the tiles of dx that are worth trying, the likely best first."""
    grown, filters = look(dy), look(w)
    merged = _merged_tiles(g, grown, filters, target)
    slow = merged + (strip_tiles(g, target, dealt=False) if in_strips(g) else [])
    if in_strips(g) and not fit(g, filters, grown):
        check_gradient(grown, g, "w", filters, by_tma=False)
        return slow
    back = _reading_back(g, grown, filters)
    return merged + back.tiles(target, most - len(slow)) + slow[len(merged) :]


def _merged_tiles(g: Geometry, dy: View, w: View, target: Target) -> list[Tile]:
    """Return the likeliest tiles of groups that stand side by side; none where they do not, or
    where TMA counts no windows of them.
    """
    count = g.abreast(MERGED)
    wide = g.merged(count)
    if count == 1 or g.volume is not None or not fit(wide, w, dy):
        return []
    back = _reading_back(wide, dy, w)
    if back.view != "window":
        return []
    return [replace(tile, merged=count) for tile in back.tiles(target, 3, (0,))]


def input_launches(g: Geometry, dy: Any, w: Any, dx: Any, tile: Tile | None = None) -> list[Launch]:
    """Return the launches that compute dx, where w's channels are filled up after those of that.

    A sum that few tiles have is dealt out, and another launch adds its parts. `tile` is by default
    the likeliest of `input_tiles`. Raises `ArgumentError`.
    """
    window = g.over
    n, *pixels, c = shape = g.images
    if tile is None:
        tile = input_tiles(g, dy, w)[0]
    if tile.strips:
        return input_strips(g, dy, w, dx, tile)
    launches, merged, beyond = list[Launch](), None, (None,) * 4
    if tile.merged > 1:
        alone, g = g, g.merged(tile.merged)
        launches.append(fill(w, alone, g, dx))
        w, merged = launches[0].arguments[1], launches[0].options["MERGED"]
        beyond = (dy, w, g.ho, g.wo)
    back, wide = _reading_back(g, look(dy), look(w)), g.channels
    if not fits_tma(look(w), (g.channels, 1)):
        wide = ceil_to(g.channels, 16 // back.size)
        count = g.co * g.fh * g.fw
        filled = empty_beside(dx, (count * wide,), look(w).dtype)
        strides = (g.channels, 0, 0, 1)
        launches.append(rearrange(w, (count, 1, 1, g.channels), strides, filled, wide))
        w = filled
    groups, view, axes, depth, channels = g.groups, back.view, back.axes, back.depth, back.channels
    parity = tuple(ceil(extent / step) for extent, step in zip(pixels, window.stride))
    k, taps = g.filters, prod(window.size)
    rows, columns, parts = tile.rows, tile.columns, tile.parts
    box = back.box(rows, columns)
    if view == "groups":
        lies = (n, g.ho, g.wo, groups, k)
        seen, least = by_rows(dy, lies, [*box, 1, depth]), (0, 0, 0)
    else:
        seen, least = tawa.WindowDescriptor.over(dy, back.met, [rows, depth]), back.met.lower
    whole = parts * back.parities == groups and fits_tma(look(dx), (channels, 1))
    elements = prod(shape)
    out = dx if parts == 1 else empty_beside(dx, (parts * elements,), "f32")
    if whole:
        full = (axes.images, axes.rows, axes.columns, groups, channels)
        out = by_rows(dx, full, [*box, 1, columns])
    options: dict[str, Any] = {"BLOCK_I": box[0], "BLOCK_H": box[1], "BLOCK_W": box[2]}
    options |= {"BLOCK_N": columns, "BLOCK_K": depth, "VIEW": view, "GROUPS": groups}
    options |= {"PARTS": parts, "WHOLE": whole, "MERGED": merged}
    three = Window(
        _three(window.size, 1),
        _three(window.stride, 1),
        _three(window.padding, (0, 0)),
        _three(window.dilation, 1),
    )
    apart = tuple(s // gcd(s, d) for s, d in zip(three.stride, three.dilation))
    options |= {"WINDOW": three, "APART": apart, "LEAST": _three(least, 0)}
    filters = by_rows(w, (groups, k, taps, wide), [1, depth, 1, columns])
    deep, slices = _three(parity, 1)[0], _three(pixels, 1)[0]
    tiles = (ceil(axes.rows / box[1]), ceil(axes.columns / box[2]))
    numbers = (*tiles, deep, *parity[-2:], n, slices, *pixels[-2:], channels, k, *beyond)
    grid = (axes.tiles(box), ceil(channels / columns), back.parities * parts)
    given = (seen, filters, out, *numbers)
    options |= once(grid, H200)
    launches.append(Launch(conv_backward.conv_input_gradient, grid, given, options))
    if parts == 1:
        return launches
    lies = (elements // c, 1, c), parts, elements, (c, 0, 1)
    return [*launches, add_up(out, dx, *lies)]


def _three(values: Sequence[T], neutral: T) -> tuple[T, ...]:
    """Return values of three axes, those of the last as they are given."""
    return (*(neutral,) * (3 - len(values)), *values)[-3:]


def _back(window: Window, pixels: Sequence[int]) -> Window:
    """Return the windows, of stride 1, in which the pixels of a parity of dx see dy.

    Pixel i of a parity sees window i + (parity + padding - tap * dilation) / stride of each tap for
    which that is whole: the windows reach from the least of these places to the last.
    """
    sizes: list[int] = []
    sides: list[tuple[int, int]] = []
    for axis, extent in enumerate(pixels):
        step, (before, _) = window.stride[axis], window.padding[axis]
        taps = range(before, before - window.taps[axis] - 1, -window.dilation[axis])
        met = [(p + at) // step for p in range(step) for at in taps if not (p + at) % step]
        sizes.append(max(met) - min(met) + 1)
        more = ceil(extent / step) - window.count(axis, extent)
        sides.append((-min(met), more + max(met)))
    once = (1,) * len(sizes)
    return Window(tuple(sizes), once, tuple(sides), once)
