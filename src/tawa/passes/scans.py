"""Purpose: let all warps share the prefix combinations along a long axis.

Before -> after (N elements seen as A rows of B)::

    %s = tile.scan "add" %x {axis = 0}        %x2 = tile.reshape %x : [A, B]
                                              %in = tile.scan "add" %x2 {axis = 1}
                                       ->     %t = tile.reduce "add" %x2 axis 1 : [A]
                                              %b = tile.reduce "add" (j < i ? %t[j] : 0) axis 1
                                              %s = tile.reshape (%b beside %in, added) : [N]

One warp alone scans a line: of a long one each lane would hold a hundred elements, and the other
warps would repeat its work.
Requires: tile IR. Ensures: the same combinations, bracketed otherwise. Declines when: the axis is
short or not a multiple of 128, or the combination is none of those with a neutral element.
Not run under ``strict``.
"""

from __future__ import annotations

from math import prod

from xdsl.dialects.builtin import BoolAttr, IntAttr
from xdsl.ir import Attribute, Region, SSAValue

from tawa.ir import tile
from tawa.ir.types import element_type, i32, is_float, shape_of, with_shape
from tawa.passes.fold import constant, elementwise
from tawa.passes.point import Point
from tawa.plan.plan import Declined, Plan
from tawa.target import Target

_LINE = 128  # elements a warp takes in one round: four for each lane
_ROWS = 64  # rows are combined all with all
_LONG = 1024  # from here on one warp is too few, however many lines there are
_ALONE = 256  # the same where there are fewer lines than warps
_FEW = 4


def split_scans(kernel: tile.Kernel, plan: Plan, target: Target) -> tuple[Declined, ...]:
    """Rewrite each scan of a long axis."""
    for scan in [op for op in kernel.walk() if isinstance(op, tile.Scan)]:
        neutral = _neutral(scan)
        if neutral is not None and (line := _line(scan)):
            _split(scan, line, neutral)
    return ()


def _line(scan: tile.Scan) -> int:
    """Return into how many elements a row is cut, 0 where the axis is left whole."""
    shape = shape_of(scan.inputs[0].type)
    length = shape[scan.axis.data]
    lines = prod(shape) // length
    if length % _LINE or length < (_ALONE if lines < _FEW else _LONG):
        return 0
    line = _LINE
    while length // line > _ROWS or length % line:
        line *= 2
    return line if length > line else 0


def _neutral(scan: tile.Scan) -> int | None:
    """Return what combines with anything to that itself, where the combination has it."""
    match list(scan.body.block.ops):
        case [tile.Elementwise() as combine, tile.Yield()] if len(scan.inputs) == 1:
            if set(combine.inputs) != set(scan.body.block.args):
                return None
        case _:
            return None
    function = combine.function.data
    if is_float(element_type(scan.inputs[0].type)):
        return {"add": 0, "mul": 1}.get(function)
    return {"add": 0, "mul": 1, "and": -1, "or": 0, "xor": 0}.get(function)


def _split(scan: tile.Scan, line: int, neutral: int) -> None:
    axis, point = scan.axis.data, Point(scan)
    backwards = scan.reverse is not None and bool(scan.reverse.value.data)
    (value,) = scan.inputs
    shape, element = shape_of(value.type), element_type(value.type)
    rows = shape[axis] // line
    cut = (*shape[:axis], rows, line, *shape[axis + 1 :])
    kind = with_shape(cut, element)
    seen = point.put(tile.Reshape.build(operands=[value], result_types=[kind]))
    inside = point.put(
        tile.Scan.build(
            operands=[[seen]],
            attributes={
                "axis": IntAttr(axis + 1),
                "reverse": BoolAttr.from_bool(True) if backwards else None,
            },
            result_types=[[kind]],
            regions=[_body(scan)],
        )
    )
    totals = _reduced(point, scan, seen, axis + 1)
    # [.., i, j, ..]: row i takes the totals of the rows before it.
    square = (*shape[:axis], rows, rows, *shape[axis + 1 :])
    each = _repeated(point, totals, axis, square)
    order = "gt" if backwards else "lt"
    earlier = point.put(
        elementwise(order, _count(point, rows, axis + 1, square), _count(point, rows, axis, square))
    )
    nothing = point.put(constant(neutral, with_shape(square, element)))
    chosen = point.put(elementwise("select", earlier, each, nothing))
    before = _reduced(point, scan, chosen, axis + 1)
    spread = _repeated(point, before, axis + 1, cut)
    combine = scan.body.block.first_op
    assert isinstance(combine, tile.Elementwise), "a combination of one function"
    pair = (inside, spread) if backwards else (spread, inside)
    whole = point.put(elementwise(combine.function.data, *pair))
    result = point.put(tile.Reshape.build(operands=[whole], result_types=[value.type]))
    result.name_hint = scan.res[0].name_hint
    scan.res[0].replace_all_uses_with(result)
    scan.detach()
    scan.erase()


def _body(scan: tile.Scan) -> Region:
    body = Region()
    scan.body.clone_into(body)
    return body


def _reduced(point: Point, scan: tile.Scan, value: SSAValue, axis: int) -> SSAValue:
    shape = shape_of(value.type)
    kind = with_shape((*shape[:axis], *shape[axis + 1 :]), element_type(value.type))
    attributes: dict[str, Attribute] = {"axis": IntAttr(axis)}
    return point.put(
        tile.Reduce.build(
            operands=[[value]],
            attributes=attributes,
            result_types=[[kind]],
            regions=[_body(scan)],
        )
    )


def _repeated(point: Point, value: SSAValue, axis: int, shape: tuple[int, ...]) -> SSAValue:
    """Return `value` with a new dimension at `axis`, repeated to `shape`."""
    element = element_type(value.type)
    thin = with_shape((*shape[:axis], 1, *shape[axis + 1 :]), element)
    expanded = point.put(
        tile.ExpandDims.build(
            operands=[value], attributes={"axis": IntAttr(axis)}, result_types=[thin]
        )
    )
    whole = with_shape(shape, element)
    return point.put(tile.Broadcast.build(operands=[expanded], result_types=[whole]))


def _count(point: Point, length: int, axis: int, shape: tuple[int, ...]) -> SSAValue:
    """Return the index along `axis` in every element of a tensor of `shape`."""
    flat = with_shape((length,), i32)
    index = point.put(tile.Arange.build(attributes={"start": IntAttr(0)}, result_types=[flat]))
    thin = tuple(length if dim == axis else 1 for dim in range(len(shape)))
    seen = point.put(tile.Reshape.build(operands=[index], result_types=[with_shape(thin, i32)]))
    return point.put(tile.Broadcast.build(operands=[seen], result_types=[with_shape(shape, i32)]))
