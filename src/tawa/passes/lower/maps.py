"""Tensor maps: what TMA must be told of each descriptor access, once for each box.

Purpose: declare a `hopper.tensor_map` at the top of the kernel for a descriptor and a tile.
Before -> after: ``tile.desc_load %d[..]`` -> ``%d_map = hopper.tensor_map %d {swizzle = 128}`` with
the box one panel wide and at most 256 rows.
Requires: the descriptor is a kernel argument, or a `tile.make_desc` of pure functions of arguments.
Declines when: `depends on the program`: a descriptor whose base, extents or strides are not the
host's to compute (such accesses become pointer accesses).
"""

from __future__ import annotations

from functools import partial

from xdsl.ir import Operation, SSAValue

from tawa.ir import hopper
from tawa.ir.types import DescType, TensorMapType, int_array
from tawa.layouts.shared import SharedLayout
from tawa.passes.lower.context import Lowering
from tawa.passes.lower.emit import Emitter, recomputed
from tawa.passes.lower.views import slice_view, view_kind


def box_of(layout: SharedLayout, rows: int, limit: int) -> tuple[int, ...]:
    """Return the box that moves one panel of at most `rows` rows of the second-last dimension.

    Every extent is at most `limit` (256) elements: the tile is then several boxes, each of elements
    that lie one after the other: parts of one row, or whole rows (of a panel).
    """
    extents = list(layout.shape)
    extents[-1] = layout.panel
    if len(extents) > 1:
        extents[-2] = min(extents[-2], rows)
    whole = True
    for dim in reversed(range(len(extents))):
        extents[dim] = _divisor(extents[dim], limit) if whole else 1
        whole = whole and extents[dim] == (
            layout.panel if dim == len(extents) - 1 else layout.shape[dim]
        )
    return tuple(extents)


def _divisor(extent: int, limit: int) -> int:
    """Return the largest part of at most `limit` that divides `extent`."""
    return next(part for part in range(min(extent, limit), 0, -1) if extent % part == 0)


def tensor_map(
    lowering: Lowering, desc: SSAValue, layout: SharedLayout, rows: int | None = None
) -> hopper.TensorMap:
    """Return the map for tiles placed as `layout`, declaring it when it is not there yet."""
    desc = _hoist(lowering, desc)
    kind = desc.type
    assert isinstance(kind, DescType)
    box = box_of(layout, rows or layout.shape[-2 if len(layout.shape) > 1 else 0], _limit(lowering))
    for operation in lowering.kernel.body.block.ops:
        match operation:
            case hopper.TensorMap() if (
                operation.desc is desc
                and operation.swizzle.data == layout.swizzle
                and _box(operation) == box
            ):
                return operation
            case _:
                continue
    made = hopper.TensorMap.make(
        desc, results=[TensorMapType(kind.element, int_array(box))], swizzle=layout.swizzle
    )
    stem = (desc.name_hint or "tensor").removesuffix("_desc")
    return lowering.set_up(hopper.TensorMap).put(made, f"{stem}_map")


def _limit(lowering: Lowering) -> int:
    return lowering.target.tma_box_extent


def _box(operation: hopper.TensorMap) -> tuple[int, ...]:
    kind = operation.result.type
    return kind.box_shape


def _hoist(lowering: Lowering, desc: SSAValue) -> SSAValue:
    """Return `desc` as a value at the top of the kernel, recomputing it there if need be."""
    block = lowering.kernel.body.block
    put = partial(_find_or_put, lowering)
    return recomputed(desc, lambda owner: owner.parent is block, put, {})


def _find_or_put(lowering: Lowering, wanted: Operation) -> Operation:
    """Insert a set-up operation unless an equal one is there."""
    for operation in lowering.kernel.body.block.ops:
        if (
            type(operation) is type(wanted)
            and list(operation.operands) == list(wanted.operands)
            and operation.attributes == wanted.attributes
            and operation.properties == wanted.properties
            and operation.result_types == wanted.result_types
        ):
            return operation
    return lowering.set_up_scalars().put(wanted)


def load_boxes(
    emitter: Emitter, map_: hopper.TensorMap, offsets: list[SSAValue], view: SSAValue
) -> list[tuple[list[SSAValue], SSAValue]]:
    """Return the (offsets, view) of each copy: several where an extent exceeds the box's limit.

    One copy moves all panels side by side; parts along other dimensions are slices of the view.
    """
    box = _box(map_)
    parts: list[tuple[list[SSAValue], SSAValue]] = [(offsets, view)]
    for dim in range(len(box) - 1):
        parts = [piece for part in parts for piece in _cut(emitter, part, dim, box[dim])]
    return parts


def _cut(
    emitter: Emitter, part: tuple[list[SSAValue], SSAValue], dim: int, extent: int
) -> list[tuple[list[SSAValue], SSAValue]]:
    offsets, view = part
    kind = view_kind(view)
    if kind.shape[dim] <= extent:
        return [part]
    pieces: list[tuple[list[SSAValue], SSAValue]] = []
    for start in range(0, kind.shape[dim], extent):
        moved = list(offsets)
        if start:
            moved[dim] = emitter.apply("add", offsets[dim], emitter.constant(start))
        pieces.append((moved, slice_view(emitter, view, dim, start, extent)))
    return pieces
