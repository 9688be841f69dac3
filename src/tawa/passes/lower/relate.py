"""How the layouts of an operation's values determine one another.

`propose(operation, value)` lists the values tied to `value` by `operation` and the layout each
takes when `value` has a given one; `ties` does the same for values that control flow makes the same
registers (loop-carried, yielded). A broadcast relates only from its result, a reduction only from
its operands: the other direction has many answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from xdsl.ir import Operation, SSAValue

from tawa.ir import hopper, tile
from tawa.ir.types import is_tensor, shape_of
from tawa.ir.walk import handed_on, passed_on
from tawa.layouts.convert import projected
from tawa.layouts.fragments import permuted, with_dimension, without_dimension
from tawa.layouts.register import Axis, Coordinate, RegisterLayout

ELEMENTWISE = (
    tile.Elementwise, tile.Cast, tile.Bitcast, tile.Asm, tile.AsmEffect, tile.PtrAdd, tile.Load,
    tile.Atomic, tile.CompareExchange, tile.Scan, hopper.Pin,
)  # fmt: skip


def narrow(layout: RegisterLayout, shape: Coordinate) -> RegisterLayout:
    """Return the layout of a broadcast's operand: constant along dimensions of extent 1."""
    return projected(layout, shape).folded()


def reshaped(layout: RegisterLayout, shape: Coordinate) -> RegisterLayout | None:
    """Return the layout of a row-major reshape, None where a step would carry over."""
    strides = tuple(prod(layout.shape[dim + 1 :]) for dim in range(len(layout.shape)))

    def move(items: tuple[Axis, ...]) -> tuple[Axis, ...] | None:
        moved: list[Axis] = []
        for axis in items:
            linear = sum(step * stride for step, stride in zip(axis.step, strides))
            pieces = _unravel(axis.extent, linear, shape)
            if pieces is None:
                return None
            moved.extend(pieces)
        return tuple(moved)

    groups = [move(items) for items in (layout.registers, layout.lanes, layout.warps)]
    if any(group is None for group in groups):
        return None
    registers, lanes, warps = (group or () for group in groups)
    made = RegisterLayout(shape, registers, lanes, warps)
    every = (*registers, *lanes, *warps)
    reach = [1 + sum((a.extent - 1) * a.step[d] for a in every) for d in range(len(shape))]
    return made if all(r <= extent for r, extent in zip(reach, shape)) else None


def _unravel(extent: int, linear: int, shape: Coordinate) -> list[Axis] | None:
    """Split a digit of row-major stride `linear` into digits inside one dimension each."""
    zero = (0,) * len(shape)
    if linear == 0:
        return [Axis(extent, zero)]
    pieces: list[Axis] = []
    stride = 1
    for dim in reversed(range(len(shape))):
        above = stride * shape[dim]
        if extent > 1 and linear < above:
            if linear % stride:
                return None
            inside = min(extent, max(1, above // linear))
            if extent % inside or (inside < extent and above % linear):
                return None
            pieces.append(
                Axis(inside, tuple(linear // stride if d == dim else 0 for d in range(len(shape))))
            )
            extent //= inside
            linear *= inside
        stride = above
    return pieces if extent == 1 else None


def joined(layout: RegisterLayout) -> RegisterLayout:
    """Return the layout of two tensors of `layout` stacked along a new last dimension."""
    grown = with_dimension(layout, len(layout.shape))
    last = (*(0 for _ in layout.shape), 1)
    return RegisterLayout(
        (*layout.shape, 2), (Axis(2, last), *grown.registers), grown.lanes, grown.warps
    )


def split_of(layout: RegisterLayout) -> RegisterLayout | None:
    """Return the layout of the halves of a split, None unless registers tell them apart."""
    dim = len(layout.shape) - 1
    if any(axis.step[dim] for axis in (*layout.lanes, *layout.warps)):
        return None
    return without_dimension(layout, dim)


def propose(
    operation: Operation, value: SSAValue, layout: RegisterLayout
) -> Iterator[tuple[SSAValue, RegisterLayout]]:
    """Yield what `operation` says of its other values when `value` has `layout`."""
    match operation:
        case _ if isinstance(operation, ELEMENTWISE):
            for other in (*operation.operands, *operation.results):
                if is_tensor(other) and shape_of(other.type) == layout.shape:
                    yield other, layout
        case tile.ExpandDims() if value is operation.value:
            yield operation.result, with_dimension(layout, operation.axis.data)
        case tile.ExpandDims():
            yield operation.value, without_dimension(layout, operation.axis.data)
        case tile.Broadcast() if value is operation.result:
            yield operation.value, narrow(layout, shape_of(operation.value.type))
        case tile.Transpose():
            forward = tuple(item.data for item in operation.permutation)
            if value is operation.value:
                yield operation.result, permuted(layout, forward)
            else:
                back = tuple(forward.index(dim) for dim in range(len(forward)))
                yield operation.value, permuted(layout, back)
        case tile.Reshape():
            other = operation.result if value is operation.value else operation.value
            if (new := reshaped(layout, shape_of(other.type))) is not None:
                yield other, new
        case tile.Join():
            yield from _propose_join(operation, value, layout)
        case tile.Split():
            yield from _propose_split(operation, value, layout)
        case tile.Gather() if value is not operation.value:
            yield operation.index, layout
            yield operation.result, layout
        case tile.Reduce() if value in operation.inputs:
            yield from ((other, layout) for other in operation.inputs)
            for result in operation.res:
                if is_tensor(result):
                    yield result, without_dimension(layout, operation.axis.data)
        case _:
            return


def _propose_join(
    operation: tile.Join, value: SSAValue, layout: RegisterLayout
) -> Iterator[tuple[SSAValue, RegisterLayout]]:
    part = layout
    if value is operation.result:
        half = split_of(layout)
        if half is None:
            return
        part = half
    yield operation.first, part
    yield operation.second, part
    yield operation.result, joined(part)


def _propose_split(
    operation: tile.Split, value: SSAValue, layout: RegisterLayout
) -> Iterator[tuple[SSAValue, RegisterLayout]]:
    if value is operation.value:
        part = split_of(layout)
        if part is None:
            return
    else:
        part = layout
        yield operation.value, joined(part)
    yield operation.first, part
    yield operation.second, part


def ties(value: SSAValue) -> Iterator[SSAValue]:
    """Yield the values that control flow makes the same registers as `value`."""
    yield from passed_on(value)
    for use in value.uses:
        yield from handed_on(use.operation, use.index)
