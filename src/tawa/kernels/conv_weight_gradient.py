# Kernels without annotations have parameters of unknown type.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""From the result's gradient to the filters': products over pixels, dealt out and added."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from math import ceil, gcd, prod
from typing import Any

import tawa
from tawa.errors import ArgumentError
from tawa.kernels import conv_backward, conv_depthwise
from tawa.kernels.arrays import empty_beside, fits_tma, look
from tawa.kernels.conv_geometry import Geometry, Packing, ceil_to, packing
from tawa.kernels.conv_operands import check_gradient, strides_of
from tawa.kernels.conv_packing import pack
from tawa.kernels.conv_prepare import add_up, by_rows
from tawa.kernels.conv_variants import (
    CACHED,
    LAUNCH,
    MERGED,
    TILES,
    Axes,
    Box,
    Variant,
    boxes,
    product_seconds,
    strip_of,
)
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
    def steps(self) -> int:
        """How many boxes the sum is over."""
        return self.axes.tiles(self.box)


def _reading(g: Geometry, x: View, dy: View, target: Target) -> _Reading:
    """Return the first view of x that takes the geometry; raises `ArgumentError`."""
    check_gradient(dy, g, "x", x)
    if not fits_tma(dy, (g.filters, 1)):
        raise ArgumentError(
            f"dy has {g.filters} channels a group at address {dy.address % 16} mod 16",
            why="TMA steps by multiples of 16 bytes",
            remedy="fill the channels up with zeros",
        )
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


def weight_variants(
    g: Geometry, x: Any, dy: Any, target: Target = H200, most: int = 10
) -> list[Variant]:
    """Return the variants of dw that are worth trying, the likely best first: "products" of tiles
    of filters by elements of x at each of ABREAST taps, which dy is read once for; "merged", of
    groups side by side; or "direct", strips of pixels by channels summed in registers.
    """
    view, grown = look(x), look(dy)
    slow = _strips(g, target) if g.groups > 1 and g.volume is None else []
    counts = [
        count
        for count in {1: 0, g.abreast(MERGED): 0}
        if fits_tma(view, (g.channels * count, 1)) and fits_tma(grown, (g.filters * count, 1))
    ]
    if not counts and slow:
        check_gradient(grown, g, "x", view)
        return slow
    found: dict[Variant, float] = {}
    for count in counts or (1,):
        wide = g.merged(count)
        read = _reading(wide, view, grown, target)
        found |= _products("merged" if count > 1 else "products", wide, read, view.itemsize, target)
    best = sorted(found, key=lambda variant: found[variant])
    return best[: most - len(slow[1::2])] + slow[1::2]


def _products(
    form: str, g: Geometry, read: _Reading, size: int, target: Target
) -> dict[Variant, float]:
    """Return the seconds of tiles that are not mostly empty, of elements of `size` bytes. More
    parts fill more waves of multiprocessors, and have more to store and to add.
    """
    found: dict[Variant, float] = {}
    units, steps, k, taps = target.multiprocessors, read.steps, read.seen.k, read.seen.taps
    for (rows, columns), abreast in product(TILES, (1, 2, 3)):
        if (rows > MERGED and rows >= 2 * g.filters) or (columns > 32 and columns >= 2 * k):
            continue
        held = _HELD if rows == MERGED else 2 * _HELD
        if taps % abreast or (abreast > 1 and abreast * rows * columns > held):
            continue
        count = ceil(g.filters / rows) * ceil(k / columns) * taps // abreast * g.groups
        fetched = (rows + abreast * columns) * _PIXELS * size * units / CACHED
        step = max(abreast * product_seconds(rows, columns, _PIXELS, size), fetched)
        stored = count * rows * columns * abreast * 4
        for wave in (0.5, 1, 2, 3):
            share = ceil(steps / max(1, int(wave * units / count)))
            parts = ceil(steps / share)
            seconds = ceil(count * parts / units) * (share * step + LAUNCH)
            if read.packed is not None or form == "merged" or parts > 1:
                seconds += 2 * parts * stored / CACHED + LAUNCH
            sizes = {"BLOCK_M": rows, "BLOCK_N": columns, "ABREAST": abreast}
            # A stage of each tap's would take the place of two steps of the ring.
            pins: dict[str, Any] = {"store": "registers"} if abreast > 1 else {}
            found[Variant(form, tawa.Config(sizes, **pins), parts)] = seconds
    return found


def _strips(g: Geometry, target: Target) -> list[Variant]:
    """Return strips by channels, dealt out in parts."""
    found: list[Variant] = []
    for rows, columns in ((8, 32), (32, 32), (8, 64), (16, 64)):
        programs = ceil(g.co / columns) * g.fh * g.channels
        sizes = {"BLOCK_R": rows, "BLOCK_C": columns, "STRIP": strip_of(g.wo)}
        for waves in (4, 8):
            parts = max(1, waves * target.multiprocessors // programs)
            found.append(Variant("direct", tawa.Config(sizes, specialize=False), parts))
    return list(dict.fromkeys(found))


def weight_launches(
    g: Geometry, x: Any, dy: Any, dw: Any, variant: Variant | None = None, target: Target = H200
) -> list[Launch]:
    """Return the launches that compute dw: x's copy where it is padded first, parts, their sum.

    `variant` is by default the likeliest of `weight_variants`. Raises `ArgumentError`.
    """
    if not g.n:
        check_gradient(look(dy), g, "x", look(x))
        return [add_up(dw, dw, _of(g), 0, 0, (0, 0, 0))]  # nothing is read
    if variant is None:
        variant = weight_variants(g, x, dy, target)[0]
    if variant.form == "direct":
        return _in_strips(g, x, dy, dw, variant)
    merged = g.abreast(MERGED) if variant.form == "merged" else 1
    seen_x, given, g = look(x), g, g.merged(merged)
    read = _reading(g, seen_x, look(dy), target)
    seen, axes, box, together = read.seen, read.axes, read.box, read.together
    launches: list[Launch] = []
    column, base = g.channels, x
    if read.packed is not None:
        column = read.packed.images.column
        base = empty_beside(dw, (read.packed.images.elements,), seen_x.dtype)
        launches.append(pack(x, g, read.packed, base))
    sizes = variant.config.all_kwargs()
    rows, columns, abreast = sizes["BLOCK_M"], sizes["BLOCK_N"], sizes["ABREAST"]
    tiles, across = read.steps, ceil(seen.k / columns)
    share = ceil(tiles / variant.splits)
    parts = ceil(tiles / share)
    whole = read.packed is None and parts == merged == 1 and fits_tma(look(dw), (seen.k, 1))
    pitch = seen.k if whole else ceil_to(seen.k, 4)
    # Of a part: elements from a group, a filter, a tap and an element of it to the next.
    lies = (g.filters * seen.taps * pitch, seen.taps * pitch, pitch, 1)
    size = g.co * seen.taps * pitch
    part = dw if whole else empty_beside(dw, (parts * size,), "f32")
    shape = (parts, g.groups, g.filters, seen.taps, seen.k)
    sums = tawa.TensorDescriptor(part, shape, (size, *lies), [1, 1, rows, 1, columns])
    full = (axes.images, axes.rows, axes.columns, g.groups, g.filters)
    grown = by_rows(dy, full, [*box, 1, rows])
    options = sizes | dict(zip(("BLOCK_I", "BLOCK_H", "BLOCK_W"), box))
    options |= {"GROUPS": g.groups, "VIEW": seen.view, "CHANNELS": g.channels, "WINDOW": g.over}
    numbers = (tiles, ceil(axes.rows / box[1]), ceil(axes.columns / box[2]), across, share)
    grid = (ceil(g.filters / rows), seen.taps // abreast * across, parts * g.groups)
    first = (seen.descriptor(base, box, columns), grown, sums, *numbers)
    if prod(grid) <= target.multiprocessors:  # nobody asks for another tile
        options["persistent"] = False
    launches.append(Launch(conv_backward.conv_weight_gradient, grid, first, options))
    if whole:
        return launches
    options = {"TOGETHER": together, "COLUMN": column}
    options |= {"MERGED": merged, "FILTERS": given.filters}
    return [*launches, add_up(part, dw, _of(given), parts, size, lies[1:], **options)]


def _in_strips(g: Geometry, x: Any, dy: Any, dw: Any, variant: Variant) -> list[Launch]:
    """Return the launches of dw's parts, [parts, taps, channels of a group, filters], and their
    sum.
    """
    *lies, channel = strides_of(look(x))
    if channel != 1:
        raise ArgumentError(
            f"channels of x lie {channel} elements apart", why="they are read at once"
        )
    options = variant.config.all_kwargs()
    count = g.n * g.ho * ceil(g.wo / options["STRIP"])
    blocks = ceil(count / options["BLOCK_R"])
    share = ceil(blocks / variant.splits)
    parts, size = ceil(blocks / share), g.co * g.window
    part = empty_beside(dw, (parts * size,), "f32")
    numbers = (blocks, share, count, g.h, g.w, g.ho, g.wo, g.co, *lies)
    grid = (ceil(g.co / options["BLOCK_C"]), g.fh * g.channels, parts)
    options |= {"WINDOW": g.over, "CHANNELS": g.channels, "FILTERS": g.filters}
    options["EVEN"] = g.wo % options["STRIP"] == 0
    kernel = conv_depthwise.conv_depthwise_weights
    steps = (1, g.channels * g.co, g.co)
    return [
        Launch(kernel, grid, (x, dy, part, *numbers), options),
        add_up(part, dw, _of(g), parts, size, steps, TURNED=True),
    ]


def _of(g: Geometry) -> tuple[int, int, int]:
    """Return the filters, taps and channels of dw."""
    return g.co, g.fh * g.fw, g.channels
