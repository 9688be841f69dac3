"""Scans over warps: a part of the line for each warp, then what comes before each part.

Purpose: let all warps of a role work on a scan along a line that one warp would hold.
Before -> after (W warps have no other line):
    %s = tile.scan %x axis 0          %p = tile.scan of %x as [W, N / W], axis 1  (within a warp)
    (x of N elements)          ->     %e = tile.scan of the last of each part     (W elements)
                                      %s = %e of the part before, combined with %p; N again
Requires: tile operations that have no layouts yet. Ensures: the same combination, associated
otherwise. Declines when: there are lines enough for the warps, or fewer than 32 elements a warp.

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
from math import gcd

from xdsl.dialects.builtin import IntAttr
from xdsl.ir import Attribute, SSAValue

from tawa.ir import hopper, tile
from tawa.ir.types import bit_width, element_type, i32, is_float, scalar, shape_of, with_shape
from tawa.ir.walk import all_of
from tawa.passes.lower.emit import Emitter, combining, replace

_LANES = 32


def spread_scans(role: hopper.Role) -> None:
    """Give every warp of `role` a part of each scan whose lines are fewer than the warps."""
    for scan in all_of(role.body, tile.Scan):
        shape, axis = shape_of(scan.inputs[0].type), scan.axis.data
        warps = role.warps.data
        for dim, extent in enumerate(shape):
            warps //= gcd(warps, extent) if dim != axis else 1
        if warps > 1 and shape[axis] % (_LANES * warps) == 0:
            _spread(scan, warps)


def _spread(scan: tile.Scan, parts: int) -> None:
    emitter = Emitter.before(scan)
    axis, shape = scan.axis.data, shape_of(scan.inputs[0].type)
    backwards = scan.reverse is not None and bool(scan.reverse.value.data)
    length = shape[axis] // parts
    cut = (*shape[:axis], parts, length, *shape[axis + 1 :])
    inside = _scan(emitter, scan, [emitter.reshape(v, cut) for v in scan.inputs], axis + 1)
    last = 0 if backwards else length - 1
    totals = [_element(emitter, value, axis + 1, last) for value in inside]
    ends = _scan(emitter, scan, totals, axis)
    before = [_neighbour(emitter, value, axis, 1 if backwards else -1) for value in ends]
    wide = [emitter.along(value, axis + 1, cut) for value in before]
    whole = _combined(emitter, scan, wide, inside)
    first = _index(emitter, axis, cut)
    is_first = emitter.apply(
        "eq", first, emitter.constant(parts - 1 if backwards else 0, first.type)
    )
    chosen = [emitter.apply("select", is_first, a, b) for a, b in zip(inside, whole)]
    replace(scan, [emitter.reshape(value, shape) for value in chosen])


def _scan(
    emitter: Emitter, like: tile.Scan, values: Sequence[SSAValue], axis: int
) -> list[SSAValue]:
    made = tile.Scan(
        operands=[values],
        attributes={"axis": IntAttr(axis), "reverse": like.reverse},
        result_types=[[value.type for value in values]],
        regions=[like.body.clone()],
    )
    return list(emitter.put(made).res)


def _combined(
    emitter: Emitter, like: tile.Scan, left: Sequence[SSAValue], right: Sequence[SSAValue]
) -> list[SSAValue]:
    """Combine two tensors element by element: as a reduction of pairs."""
    pairs: list[SSAValue] = []
    for one, other in zip(left, right):
        kind = with_shape((*shape_of(one.type), 2), element_type(one.type))
        pairs.append(emitter.made(tile.Join, [one, other], kind))
    return emitter.reduce(pairs, len(shape_of(left[0].type)), like.body)


def _element(emitter: Emitter, value: SSAValue, axis: int, at: int) -> SSAValue:
    """Return the elements at place `at` of an axis, which goes."""
    index = _index(emitter, axis, shape_of(value.type))
    return _picked(
        emitter, value, axis, emitter.apply("eq", index, emitter.constant(at, index.type))
    )


def _neighbour(emitter: Emitter, value: SSAValue, axis: int, step: int) -> SSAValue:
    """Return each element's neighbour `step` places on along an axis; bits of zero at its end."""
    shape = shape_of(value.type)
    square = (*shape[:axis], shape[axis], *shape[axis:])
    rows = emitter.along(value, axis, square)
    here, there = _index(emitter, axis, square), _index(emitter, axis + 1, square)
    wanted = emitter.apply("add", here, emitter.constant(step, here.type))
    return _picked(emitter, rows, axis + 1, emitter.apply("eq", there, wanted))


def _picked(emitter: Emitter, value: SSAValue, axis: int, mask: SSAValue) -> SSAValue:
    """Return along an axis the one element that `mask` shows, bit for bit."""
    kind = element_type(value.type)
    whole = scalar(f"i{bit_width(kind)}") if is_float(kind) else kind
    bits = _bits(emitter, value, whole)
    shown = emitter.apply("select", mask, bits, emitter.constant(0, bits.type))
    (found,) = emitter.reduce([shown], axis, combining("or", whole))
    return _bits(emitter, found, kind)


def _bits(emitter: Emitter, value: SSAValue, kind: Attribute) -> SSAValue:
    if element_type(value.type) == kind:
        return value
    return emitter.made(tile.Bitcast, [value], with_shape(shape_of(value.type), kind))


def _index(emitter: Emitter, dim: int, shape: tuple[int, ...]) -> SSAValue:
    """Return 0, 1, 2 .. along `dim` of a tensor of that shape."""
    return emitter.spread(emitter.line(shape[dim]), dim, shape)


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
