"""Scans over warps: a part of the line for each warp, then what comes before each part.

Purpose: expand each `tile.scan` whose axis is spread over warps.
Before -> after (W warps have no other line):
    %s = tile.scan %x axis 0          %p = tile.scan of %x as [W, N / W], axis 1  (within a warp)
    (x of N elements)          ->     %t = hopper.pick the last of each part      (W elements)
                                      scratch store, role barrier, scratch load
                                      %e = tile.scan %t                     (each warp, by lanes)
                                      %s = hopper.carry_in %e, %p
Requires: layouts converted. Ensures: the same combination, associated otherwise; every `tile.scan`
left stays within a warp. Declines when: never.

Histograms over warps: each warp counts a part of the vector, then the counts are added.

Purpose: let all warps of a role work on a histogram that one warp would count.
Before -> after (W warps):
    %h = tile.histogram %x            %p = tile.histogram of %x as [W, N / W]    (within a warp)
    (x of N elements)          ->     %h = tile.reduce %p axis 0, by "add"
Requires: tile operations that have no layouts yet. Ensures: the same counts.
Declines when: there are fewer than 32 elements for each of two warps.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod

from xdsl.dialects.builtin import IntAttr
from xdsl.ir import SSAValue

from tawa.ir import hopper, tile
from tawa.ir.types import element_type, i32, layout_of, shape_of, with_shape
from tawa.ir.walk import all_of
from tawa.layouts.fragments import without_dimension
from tawa.layouts.register import RegisterLayout
from tawa.passes.lower.context import Lowering
from tawa.passes.lower.emit import Emitter, combining, replace
from tawa.passes.lower.exchange import exchange, with_layout
from tawa.passes.lower.reduces import all_parts, by_lanes, reshape
from tawa.passes.lower.relate import reshaped

_LANES = 32


def expand_scans(lowering: Lowering, role: hopper.Role) -> None:
    """Expand the scans of `role` that cross warps."""
    for scan in all_of(role.body, tile.Scan):
        layout, axis = layout_of(scan.inputs[0].type), scan.axis.data
        parts = prod(step.extent for step in layout.warps if step.step[axis])
        if parts > 1:
            _expand(lowering, role, scan, layout, parts)


def _expand(
    lowering: Lowering, role: hopper.Role, scan: tile.Scan, layout: RegisterLayout, parts: int
) -> None:
    emitter = Emitter.before(scan)
    axis, shape = scan.axis.data, layout.shape
    backwards = scan.reverse is not None and bool(scan.reverse.value.data)
    length = shape[axis] // parts
    apart = reshaped(layout, (*shape[:axis], parts, length, *shape[axis + 1 :]))
    assert apart is not None, "a warp's part of a scan is a digit of its axis"
    inside = _scan(emitter, scan, [reshape(emitter, v, apart) for v in scan.inputs], axis + 1)
    over = without_dimension(apart, axis + 1)
    last = {"axis": IntAttr(axis + 1), "at": IntAttr(0 if backwards else length - 1)}
    totals = [
        emitter.made(hopper.Pick, [v], with_layout(with_shape(over.shape, kind), over), **last)
        for v in inside
        for kind in [element_type(v.type)]
    ]
    wanted = by_lanes(all_parts(layout, axis, (parts,)), axis, 1)
    assert wanted is not None, "lanes along the axis hold copies of what a warp's part comes to"
    ends = _scan(emitter, scan, exchange(lowering, role, emitter, totals, wanted), axis)
    whole = hopper.CarryIn.make(
        ends,
        inside,
        results=[[value.type for value in inside]],
        regions=[scan.body.clone()],
        axis=axis,
        reverse=scan.reverse,
    )
    replace(scan, [reshape(emitter, value, layout) for value in emitter.put(whole).res])


def _scan(
    emitter: Emitter, like: tile.Scan, values: Sequence[SSAValue], axis: int
) -> list[SSAValue]:
    made = tile.Scan.make(
        values,
        results=[[value.type for value in values]],
        regions=[like.body.clone()],
        axis=axis,
        reverse=like.reverse,
    )
    return list(emitter.put(made).res)


# --- histograms -----------------------------------------------------------------------------------


def spread_histograms(role: hopper.Role) -> None:
    """Give every warp of `role` a part of each histogram."""
    for histogram in all_of(role.body, tile.Histogram):
        (count,) = shape_of(histogram.value.type)
        parts = gcd(role.warps.data, count // _LANES)
        if parts > 1:
            _count_in_parts(histogram, parts)


def _count_in_parts(histogram: tile.Histogram, parts: int) -> None:
    emitter = Emitter.before(histogram)
    (count,), bins = shape_of(histogram.value.type), shape_of(histogram.result.type)

    def cut(value: SSAValue) -> SSAValue:
        return emitter.reshape(value, (parts, count // parts))

    mask = [] if histogram.mask is None else [cut(histogram.mask)]
    kind = with_shape((parts, *bins), i32)
    counted = emitter.made(tile.Histogram, [cut(histogram.value), mask], kind)
    replace(histogram, emitter.reduce([counted], 0, combining("add", i32)))
