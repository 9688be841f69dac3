"""Purpose: compute a tile whose sums find no room in registers in two halves, one after the other.

Before -> after::

    %acc = scf.for .. {                         scf.for %half = 0 to 256 step 128 {
      %a = tile.desc_load %A[%m, %k]  (256)       %acc = scf.for .. {
      %b = tile.desc_load %B[%n, %k]                %a = tile.desc_load %A[%m + %half, %k]  (128)
      tile.dot %a, %b, %acc (256x128)    ->         %b = tile.desc_load %B[%n, %k]
    }                                               tile.dot %a, %b, %acc (128x128)
    tile.desc_store %C[%m, %n], %acc              }
                                                  tile.desc_store %C[%m + %half, %n], %acc
                                                }

A dimension of a sum is followed through all that is computed with it, to where its indices begin
(ranges, blocks of descriptors) and where they end (stores).

Requires: tile IR, as the planner reads it. Ensures: each element is computed and stored once, as
before. Declines when: something depends on the whole dimension (a reduction along it, a reshape); a
store, or another use of a descriptor, does not follow it; a store stands in a loop, where the order
of tiles that overlap would be another; or a half could read what the other one stored: the launch
asks only for what the producer loads.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects import scf
from xdsl.ir import Block, Operation, OpResult, Region, SSAValue

from tawa.analysis.memory import roots_of
from tawa.analysis.roles import partition
from tawa.analysis.statements import READS, accessed, enclosing_loops, has_effect, name_of
from tawa.ir import tile
from tawa.ir.types import DescType, element_type, i32, shape_of, with_shape
from tawa.ir.walk import all_of, marked_pure, walk
from tawa.passes.fold import constant, elementwise
from tawa.passes.lower.emit import Emitter, retype
from tawa.passes.lower.relate import ties

_STORES = (tile.Store, tile.DescStore)
_BY_ELEMENT = (tile.Elementwise, tile.Cast, tile.Bitcast, tile.PtrAdd, tile.Load, tile.Store)

Place = tuple[SSAValue, int]
"""A dimension of a tensor."""


class _Stays(Exception):  # noqa: N818
    """Why a dimension cannot be cut."""


def in_halves(kernel: tile.Kernel) -> tuple[list[tile.Kernel], str]:
    """Return kernels that compute their tiles in two halves in turn, by rows and by columns of the
    first product in a loop, and why others cannot.
    """
    made: list[tile.Kernel] = []
    reasons: list[str] = []
    for back, name in ((2, "rows"), (1, "columns")):
        work = kernel.clone()
        _part_sources(work)
        dot = next(dot for dot in all_of(work, tile.Dot) if enclosing_loops(dot))
        try:
            _cut(work, _followed(dot.result, len(shape_of(dot.result.type)) - back))
            _check_order(work)
        except _Stays as reason:
            reasons.append(f"{name}: {reason}")
        else:
            made.append(work)
    return made, "; ".join(reasons)


def _part_sources(kernel: tile.Kernel) -> None:
    """Give each use of a range or a filled tensor its own: one may be of rows and of columns."""
    for source in all_of(kernel, tile.Constant, tile.Arange, tile.Splat):
        if not shape_of(source.result.type):
            continue
        for use in list(source.result.uses)[1:]:
            use.operation.operands[use.index] = Emitter.before(source).put(source.clone()).result


def _followed(start: SSAValue, dim: int) -> dict[SSAValue, int]:
    """Return every tensor that has the dimension `dim` of `start`, and which of its own it is."""
    extent = shape_of(start.type)[dim]
    found: dict[SSAValue, int] = {}
    pending = [(start, dim)]
    while pending:
        value, at = pending.pop()
        if value in found:
            if found[value] != at:
                raise _Stays("a tensor has the dimension twice")
            continue
        if shape_of(value.type)[at] != extent or extent % 2:
            raise _Stays("it has several extents")
        found[value] = at
        pending += [(other, at) for other in ties(value)]
        if isinstance(value, OpResult):
            pending += _related(value.owner, None, at)
        for use in value.uses:
            pending += _related(use.operation, use.index, at)
    return found


def _related(operation: Operation, index: int | None, dim: int) -> Iterator[Place]:
    """Yield the dimensions of other tensors that dimension `dim` of operand `index`, or of the
    results, is. Raises `_Stays` where more than each element of it is needed.
    """
    match operation:
        case tile.Constant() | tile.Arange() | tile.Splat() | tile.DescLoad() | tile.DescStore():
            return
        case scf.ForOp() | scf.IfOp() | scf.WhileOp() | scf.YieldOp() | scf.ConditionOp():
            return  # ties
        case _ if isinstance(operation, _BY_ELEMENT):
            values = (*operation.operands, *operation.results)
            yield from ((value, dim) for value in values if shape_of(value.type))
        case tile.ExpandDims():
            axis = operation.axis.data
            yield operation.value, dim - (dim > axis) if index is None else dim
            yield operation.result, dim if index is None else dim + (dim >= axis)
        case tile.Broadcast():
            yield operation.result, dim
            if shape_of(operation.value.type)[dim] > 1:
                yield operation.value, dim
        case tile.Transpose():
            forward = [item.data for item in operation.permutation]
            yield operation.value, forward[dim] if index is None else dim
            yield operation.result, dim if index is None else forward.index(dim)
        case tile.Reduce():
            axis = operation.axis.data
            whole = dim + (dim >= axis) if index is None else dim
            if whole == axis:
                raise _Stays(f"{name_of(operation)} is along it")
            yield from ((value, whole) for value in operation.inputs)
            yield from ((value, whole - (whole > axis)) for value in operation.res)
        case tile.Dot():
            yield from _of_product(operation, index, dim)
        case _:
            raise _Stays(f"{name_of(operation)} needs it whole")


def _of_product(dot: tile.Dot, index: int | None, dim: int) -> Iterator[Place]:
    rank = len(shape_of(dot.result.type))
    row, column = rank - 2, rank - 1
    if (index == 0 and dim == column) or (index == 1 and dim == row):
        raise _Stays(f"{name_of(dot)} sums over it")
    yield from ((value, dim) for value in (dot.acc, dot.result))
    if dim != column:
        yield dot.a, dim
    if dim != row:
        yield dot.b, dim


def _cut(kernel: tile.Kernel, found: dict[SSAValue, int]) -> None:
    """Halve the tensors `found` and compute the halves in a loop."""
    operations = walk(kernel)
    for operation in operations:
        leaves = isinstance(operation, _STORES) and operation.value in found
        if has_effect(operation) and not operation.regions and not leaves:
            raise _Stays(f"{name_of(operation)} does not follow it")
    blocks = _blocks(operations, found)
    extent = shape_of(next(iter(found)).type)[next(iter(found.values()))]
    half = _loop(kernel, extent)
    for value, dim in found.items():
        shape = list(shape_of(value.type))
        shape[dim] //= 2
        retype(value, with_shape(shape, element_type(value.type)))
        match value.owner:
            case tile.DescLoad() as load:
                _move(load, dim, half)
            case tile.Arange() as indices:
                _count_on(indices, half)
            case _:
                pass
    for store in all_of(kernel, tile.DescStore):
        _move(store, found[store.value], half)
    for desc, dim in blocks.items():
        kind = desc.type
        assert isinstance(kind, DescType)
        shape = list(kind.block_shape)
        shape[dim] //= 2
        block = with_shape(shape, kind.element)
        retype(desc, DescType(block, kind.window))  # pyright: ignore[reportArgumentType]


def _blocks(operations: list[Operation], found: dict[SSAValue, int]) -> dict[SSAValue, int]:
    """Return the descriptors whose blocks are cut, and along which dimension."""
    blocks: dict[SSAValue, int] = {}
    for operation in operations:
        if isinstance(operation, tile.DescLoad | tile.DescStore):
            value = operation.results[0] if operation.results else operation.operands[-1]
            dim = found.get(value, -1)
            windows = operation.desc.type.window is not None
            if blocks.setdefault(operation.desc, dim) != dim or (windows and dim >= 0):
                raise _Stays(f"{name_of(operation)} goes through a descriptor of whole blocks")
    return {desc: dim for desc, dim in blocks.items() if dim >= 0}


def _loop(kernel: tile.Kernel, extent: int) -> SSAValue:
    """Put the program in a loop over the two halves; return where a half begins.

    What is one scalar for both stays before it.
    """
    body, inner = kernel.body.block, Block(arg_types=[i32])
    kept: set[Operation] = set()
    for operation in list(body.ops):
        sources = [value.owner for value in operation.operands]
        alike = all(isinstance(owner, Block) or owner in kept for owner in sources)
        tensors = any(shape_of(result.type) for result in operation.results)
        if alike and marked_pure(operation) and not operation.regions and not tensors:
            kept.add(operation)
            continue
        operation.detach()
        inner.add_op(operation)
    inner.add_op(scf.YieldOp())
    bounds = [constant(number, i32) for number in (0, extent, extent // 2)]
    body.add_ops(bounds)
    start, end, step = (each.result for each in bounds)
    body.add_op(scf.ForOp(start, end, step, [], Region(inner)))
    inner.args[0].name_hint = "half"
    return inner.args[0]


def _move(access: tile.DescLoad | tile.DescStore, dim: int, half: SSAValue) -> None:
    place = 1 + dim  # the descriptor is the first operand
    access.operands[place] = Emitter.before(access).apply("add", access.operands[place], half)


def _count_on(indices: tile.Arange, half: SSAValue) -> None:
    """Let a range begin where its half does."""
    following = indices.next_op
    assert following is not None, "a range is used after it"
    emitter = Emitter.before(following)
    start = emitter.splat(half, shape_of(indices.result.type))
    moved = elementwise("add", indices.result, start)
    emitter.put(moved)
    indices.result.replace_uses_with_if(moved.result, lambda use: use.operation is not moved)


def _check_order(kernel: tile.Kernel) -> None:
    """Raise `_Stays` unless a launch asks that no half can see what the other one stored."""
    asked = partition(kernel).guards
    for store in all_of(kernel, *_STORES):
        if len(enclosing_loops(store)) > 1:
            raise _Stays(f"{name_of(store)} stands in a loop, whose tiles may overlap")
        for other in all_of(kernel, *READS, *_STORES):
            written, met = roots_of(accessed(store)), roots_of(accessed(other))
            if other is store:
                continue
            if written is None or met is None:
                raise _Stays(f"nobody knows where {name_of(other)} goes")
            if any((a, b) not in asked and (b, a) not in asked for a in met for b in written):
                raise _Stays(f"{name_of(other)} may meet what {name_of(store)} stores")
