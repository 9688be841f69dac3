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

from xdsl.dialects.builtin import IntAttr
from xdsl.ir import Block, Region, SSAValue

from tawa.ir import hopper, tile
from tawa.ir.types import element_type, i32, shape_of, with_shape
from tawa.ir.walk import all_of
from tawa.passes.fold import elementwise
from tawa.passes.lower.emit import Emitter, replace

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
        kind = with_shape((parts, count // parts), element_type(value.type))
        return emitter.put(tile.Reshape(operands=[value], result_types=[kind])).result

    mask = [] if histogram.mask is None else [cut(histogram.mask)]
    counted = tile.Histogram(
        operands=[cut(histogram.value), mask], result_types=[with_shape((parts, *bins), i32)]
    )
    body = Region(Block(arg_types=[i32, i32]))
    both = elementwise("add", *body.block.args)
    body.block.add_ops([both, tile.Yield(operands=[[both.result]])])
    total = tile.Reduce(
        operands=[[emitter.put(counted).result]],
        attributes={"axis": IntAttr(0)},
        result_types=[[histogram.result.type]],
        regions=[body],
    )
    replace(histogram, list(emitter.put(total).res))
