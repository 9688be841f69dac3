"""Histograms over warps: each warp counts a part of the vector, then the counts are added.

Purpose: let all warps of a role work on a histogram that one warp would count.
Before -> after (W warps):
    %h = tile.histogram %x            %p = tile.histogram of %x as [W, N / W]    (within a warp)
    (x of N elements)          ->     %h = tile.reduce %p axis 0, by "add"
Requires: tile operations that have no layouts yet. Ensures: the same counts.
Declines when: there are fewer than 32 elements for each of two warps.
"""

from __future__ import annotations

from math import gcd

from xdsl.ir import SSAValue

from tawa.ir import hopper, tile
from tawa.ir.types import i32, shape_of, with_shape
from tawa.ir.walk import all_of
from tawa.passes.lower.emit import Emitter, combining, replace

_LANES = 32


def spread_histograms(role: hopper.Role) -> None:
    """Give every warp of `role` a part of each histogram."""
    for histogram in all_of(role.body, tile.Histogram):
        (count,) = shape_of(histogram.value.type)
        parts = gcd(role.warps.data, count // _LANES)
        if parts > 1:
            _spread(histogram, parts)


def _spread(histogram: tile.Histogram, parts: int) -> None:
    emitter = Emitter.before(histogram)
    (count,), bins = shape_of(histogram.value.type), shape_of(histogram.result.type)

    def cut(value: SSAValue) -> SSAValue:
        return emitter.reshape(value, (parts, count // parts))

    mask = [] if histogram.mask is None else [cut(histogram.mask)]
    kind = with_shape((parts, *bins), i32)
    counted = emitter.made(tile.Histogram, [cut(histogram.value), mask], kind)
    replace(histogram, emitter.reduce([counted], 0, combining("add", i32)))
