# Kernels without annotations have parameters of unknown type.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""Launches for groups of few channels, which are summed in registers, in strips of pixels."""

from __future__ import annotations

from math import ceil
from typing import Any

import tawa
from tawa.kernels import conv_depthwise
from tawa.kernels.arrays import View, empty_beside, fits_tma, look
from tawa.kernels.conv_geometry import Geometry, Taps
from tawa.kernels.conv_operands import Operands, strides_of
from tawa.kernels.conv_packing import rearrange
from tawa.kernels.conv_variants import Tile, Variant, strip_of
from tawa.kernels.prepare import Launch
from tawa.target import Target

_SIZES = ((8, 32), (32, 32), (8, 64), (16, 64))
"""Strips by channels of a program."""


def in_strips(g: Geometry) -> bool:
    """Tell whether gradients may be summed in registers."""
    return g.groups > 1 and g.volume is None


def fit(g: Geometry, x: View, dy: View) -> bool:
    """Tell whether TMA steps over groups of x and of dy; else strips are all that takes them."""
    return fits_tma(x, (g.channels, 1)) and fits_tma(dy, (g.filters, 1))


def strips(operands: Operands, variant: Variant) -> list[Launch]:
    """Return the launches that pack filters by taps and convolve in strips."""
    problem, sizes = operands.problem, variant.config.all_kwargs()
    g = problem.geometry
    taps = empty_beside(operands.y, (g.co * g.window,), look(operands.w).dtype)
    steps = (0, 0, 1, g.window)
    first = rearrange(operands.w, (1, 1, g.window, g.co), steps, taps)
    count = g.n * g.ho * ceil(g.wo / sizes["STRIP"])
    arrays = (operands.x, taps, operands.y, operands.residual, operands.scale, operands.bias)
    numbers = (count, g.h, g.w, g.ho, g.wo, g.co, *problem.strides[:3])
    options = {**sizes, "WINDOW": g.taps, "AFTER": problem.epilogue, "SUM": problem.sum}
    options |= {"CHANNELS": g.channels, "FILTERS": g.filters}
    grid = (ceil(count / sizes["BLOCK_R"]), ceil(g.co / sizes["BLOCK_C"]))
    return [first, Launch(conv_depthwise.conv_depthwise, grid, (*arrays, *numbers), options)]


def input_strips(g: Geometry, dy: Any, w: Any, dx: Any, variant: Variant) -> list[Launch]:
    """Return the launches of dx: a convolution of dy, its pixels a stride apart, with filters whose
    taps are in the other order.
    """
    count = g.fh * g.fw
    taps = empty_beside(dx, (g.co * g.window,), look(w).dtype)
    steps = (g.channels, g.window, g.filters * g.window, 1)
    first = rearrange(w, (count, g.filters, g.groups, g.channels), steps, taps)
    down, across = g.stride
    strip = across * max(1, min(8, g.w) // across)
    count = g.n * g.h * ceil(g.w / strip)
    fh, fw = g.fh, g.fw
    pads = (fh - 1) * g.dilation[0] - g.padding[0], (fw - 1) * g.dilation[1] - g.padding[2]
    options = {**variant.config.all_kwargs(), "STRIP": strip}
    options |= {"WINDOW": Taps(fh, fw, 1, 1, *pads, *g.dilation)}
    options |= {"CHANNELS": g.filters, "FILTERS": g.channels, "APART_H": down, "APART_W": across}
    options["BACK"] = True
    numbers = (count, g.ho, g.wo, g.h, g.w, g.c, g.ho * g.wo * g.co, g.wo * g.co, g.co)
    grid = (ceil(count / options["BLOCK_R"]), ceil(g.c / options["BLOCK_C"]))
    given = (dy, taps, dx, None, None, None, *numbers)
    return [first, Launch(conv_depthwise.conv_depthwise, grid, given, options)]


def weight_strips(
    g: Geometry, x: Any, dy: Any, part: Any, tile: Tile, shares: tuple[int, int]
) -> Launch:
    """Return the launch of dw's parts, [parts, taps, channels of a group, filters]."""
    strip = strip_of(g)
    count = g.n * g.ho * ceil(g.wo / strip)
    options = {"BLOCK_R": tile.rows, "BLOCK_C": tile.columns, "STRIP": strip, "WINDOW": g.taps}
    options |= {"CHANNELS": g.channels, "FILTERS": g.filters, "EVEN": g.wo % strip == 0}
    blocks, share = shares
    numbers = (blocks, share, count, g.h, g.w, g.ho, g.wo, g.co, *strides_of(look(x))[:3])
    grid = (ceil(g.co / tile.columns), g.fh * g.channels, ceil(blocks / share))
    kernel, given = conv_depthwise.conv_depthwise_weights, (x, dy, part, *numbers)
    return Launch(kernel, grid, given, {**options, "specialize": False})


def blocks_of(g: Geometry, tile: Tile) -> int:
    """Return how many blocks of strips the filters' gradient is a sum over."""
    return ceil(g.n * g.ho * ceil(g.wo / strip_of(g)) / tile.rows)


def input_variants_in_strips() -> list[Variant]:
    """Return the variants of dx worth trying: strips by channels."""
    sizes = ({"BLOCK_R": rows, "BLOCK_C": columns} for rows, columns in _SIZES)
    return [Variant("direct", tawa.Config(each, specialize=False)) for each in sizes]


def strip_tiles(g: Geometry, target: Target) -> list[Tile]:
    """Return the tiles of dw worth trying: strips by channels, dealt out in parts."""
    found: list[Tile] = []
    for rows, columns in _SIZES:
        programs = ceil(g.co / columns) * g.fh * g.channels
        for waves in (4, 8):
            share = max(1, waves * target.multiprocessors // programs)
            found.append(Tile(rows, columns, share, strips=True))
    return list(dict.fromkeys(found))
