# Kernels without annotations have parameters of unknown type.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""Launches for groups of few channels, which are summed in registers, in strips of pixels."""

from __future__ import annotations

from math import ceil, prod
from typing import Any

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
    """Return the launches that pack filters by taps and convolve in strips.

    An input's gradient is a convolution of dy, its pixels a stride apart, with filters whose taps
    are in the other order.
    """
    problem, sizes, w = operands.problem, variant.config.all_kwargs(), operands.w
    g, back, y = problem.geometry, problem.back, look(operands.y).shape
    options = {**sizes, "WINDOW": g.taps, "AFTER": problem.epilogue, "SUM": problem.sum}
    options |= {"CHANNELS": g.channels, "FILTERS": g.filters}
    shape, steps = (1, 1, g.window, g.co), (0, 0, 1, g.window)
    if back is not None:
        (fh, fw), (down, across) = back.size[1:], back.stride[1:]
        each = zip(back.size[1:], back.dilation[1:], back.padding[1:])
        pads = ((size - 1) * spread - before for size, spread, before in each)
        options["WINDOW"] = Taps(fh, fw, 1, 1, *pads, *back.dilation[1:])
        options |= {"APART_H": down, "APART_W": across, "BACK": True}
        window = fh * fw * g.filters
        shape = (fh * fw, g.channels, g.groups, g.filters)
        steps = (g.filters, window, g.channels * window, 1)
    taps = empty_beside(operands.y, (prod(shape),), look(w).dtype)
    count = y[0] * y[1] * ceil(y[2] / sizes["STRIP"])
    arrays = (operands.x, taps, operands.y, operands.residual, operands.scale, operands.bias)
    numbers = (count, g.h, g.w, *y[1:], *problem.strides[:3])
    grid = (ceil(count / sizes["BLOCK_R"]), ceil(y[3] / sizes["BLOCK_C"]))
    launch = Launch(conv_depthwise.conv_depthwise, grid, (*arrays, *numbers), options)
    return [rearrange(w, shape, steps, taps), launch]


def weight_strips(
    g: Geometry, x: Any, dy: Any, part: Any, tile: Tile, shares: tuple[int, int]
) -> Launch:
    """Return the launch of dw's parts, [parts, taps, channels of a group, filters]."""
    strip = strip_of(g.wo)
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
    return ceil(g.n * g.ho * ceil(g.wo / strip_of(g.wo)) / tile.rows)


def strip_tiles(g: Geometry, target: Target) -> list[Tile]:
    """Return the tiles of dw worth trying: strips by channels, dealt out in parts."""
    found: list[Tile] = []
    for rows, columns in _SIZES:
        programs = ceil(g.co / columns) * g.fh * g.channels
        for waves in (4, 8):
            share = max(1, waves * target.multiprocessors // programs)
            found.append(Tile(rows, columns, share, strips=True))
    return list(dict.fromkeys(found))
