"""Layouts: each tensor gets the register layout that its most demanding neighbour wants.

Purpose: decide, for every tensor value of a role, which thread holds which element.
Before -> after: ``tensor<128x256xf32>`` -> ``tensor<128x256xf32, #hopper.layout<"...">>`` (types
are set by `convert`, which also inserts the conversions between neighbours that disagree).
Anchors, strongest first: 8-bit register operands that an accumulator's threads hold already, up to
their conversion from wider elements; accumulators of products; tensors whose layout the plan says
(`tensor` lines); register operands of products; matrices to be transposed; scans and
histograms; reductions in loops along short axes; loads, then stores (coalesced); all else
(`anchors`). A row that is repeated along a tile is read as the tile's threads need it where that
takes each a few accesses: to read it once and hand it round would take two barriers.
From each anchor its layout floods through element functions, reshapes and loop-carried values to
all that have none yet. *Cheap* values (constants, ranges, splats and functions of them) get none:
they are recomputed in whatever layout a user wants.
Requires: dots lowered. Declines when: never.

Rows that are read from memory and repeated along a tile: which loads, and what they cost.

Tiles that are read in one order and written in another: each thread turns blocks of neighbours.

A thread that holds a block of a tile, neighbours along both dimensions, moves whole vectors on both
sides and turns the block by naming its registers otherwise. On one side at least that is shared
memory: what is read from global memory in one order and written in another is exchanged there as
soon as it is read, so that both sides move whole lines of global memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd, prod

from xdsl.dialects import scf
from xdsl.ir import Operation, SSAValue

from tawa.analysis.contiguity import Contiguity
from tawa.analysis.statements import enclosing_loops, is_volatile
from tawa.errors import PlanError
from tawa.ir import hopper, tile
from tawa.ir.types import bit_width, element_type, is_tensor, parse_layout, shape_of
from tawa.ir.walk import reach, walk
from tawa.layouts.fragments import Span, blocks, permuted
from tawa.layouts.register import LANES, RegisterLayout
from tawa.passes.lower.access import contiguous_axis
from tawa.passes.lower.anchors import (
    Assignment,
    coalesced,
    copy_seeds,
    count_seeds,
    load_seeds,
    operand_seeds,
    packed_operands,
    product_seeds,
    row_seeds,
    scan_seeds,
    store_seeds,
)
from tawa.passes.lower.context import Lowering
from tawa.passes.lower.relate import ELEMENTWISE, propose, ties
from tawa.passes.lower.views import view_kind

_CHEAP = (
    tile.Constant, tile.Arange, tile.Splat, tile.ExpandDims, tile.Broadcast, tile.Transpose,
    tile.Elementwise, tile.Cast, tile.Bitcast, tile.PtrAdd,
)  # fmt: skip
_FEW = 4
"""Accesses by which a thread may read its part of a row that others read as well."""
_SECTOR = 32  # bytes: the unit of global memory traffic


def assign_layouts(lowering: Lowering, role: hopper.Role) -> Assignment:
    """Choose a layout for every tensor of `role`."""
    chosen = Assignment(role.warps.data, lowering.by_columns)
    chosen.cheap = set(cheap_values(role))
    operations = walk(role.body)
    _measure(chosen, operations)
    chosen.of.update(packed_operands(chosen, operations))
    for value, layout in product_seeds(chosen, operations):
        _flood(chosen, value, layout)
    for value, layout in _planned(lowering, chosen, _values(operations)):
        _flood(chosen, value, layout)
    for value, layout in operand_seeds(chosen, operations):
        _flood(chosen, value, layout)
    for seeds in (transpose_seeds, copy_seeds, scan_seeds, count_seeds, row_seeds):
        for value, layout in seeds(chosen, operations):
            _flood(chosen, value, layout)
    late = {load for load in spread_loads(operations) if load.result not in chosen.of}
    so_far = dict(chosen.of)
    _settle(chosen, operations, late)
    if early := [load for load in late if accesses(load, chosen.of[load.result]) > _FEW]:
        chosen.of = so_far
        _settle(chosen, operations, late.difference(early))
    _anchor_stores(lowering, chosen, operations)
    return chosen


def _planned(
    lowering: Lowering, chosen: Assignment, values: Iterator[SSAValue]
) -> Iterator[tuple[SSAValue, RegisterLayout]]:
    """Tensors whose layout the plan says; raises PlanError for one that an instruction has not."""
    said = {each: parse_layout(each.layout) for each in lowering.plan.tensors}
    for value in values if said else ():
        for each, layout in said.items():
            if (each.tensor, layout.shape) != (value.name_hint, shape_of(value.type)):
                continue
            lowering.placed.add(each)
            known, why = chosen.of.get(value, layout), ""
            if layout.warp_count != chosen.warps:
                why = f"it is of {layout.warp_count} warps, and {chosen.warps} hold the tensor"
            elif _threads_of(known) != _threads_of(layout):
                why = f"an instruction, or the plan, has it as {known}"
            if why:
                where = f"tensor {each.tensor} layout={each.layout}"
                raise PlanError(where, why=why, remedy="leave it out, or write another layout")
            yield value, layout


def _threads_of(layout: RegisterLayout) -> tuple[object, ...]:
    """Return which thread has which element, in whatever register."""
    return frozenset(layout.register_table), layout.lane_table, layout.warp_table


def check_placed(lowering: Lowering) -> None:
    """Refuse a plan that says the layout of a tensor that no role computes."""
    for each in lowering.plan.tensors:
        if each not in lowering.placed:
            where = f"tensor {each.tensor} layout={each.layout}"
            raise PlanError(where, why="no role holds it", remedy="leave it out")


def _settle(chosen: Assignment, operations: list[Operation], late: set[tile.Load]) -> None:
    """Give layouts to what accesses memory and to all else, last of all to what is read `late`."""
    first = [operation for operation in operations if operation not in late]
    for seeds in (load_seeds, store_seeds):
        for value, layout in seeds(chosen, first):
            _flood(chosen, value, layout)
    values = [value for value in _values(operations) if value not in chosen.cheap]
    whole = [value for value in values if sum(extent > 1 for extent in shape_of(value.type)) > 1]
    _flood_defaults(chosen, whole if late else values)
    for value, layout in load_seeds(chosen, operations):
        _flood(chosen, value, layout)
    _flood_defaults(chosen, values)


def _flood_defaults(chosen: Assignment, values: list[SSAValue]) -> None:
    for value in values:
        if value not in chosen.of:
            _flood(chosen, value, chosen.default(shape_of(value.type)))


def _values(operations: list[Operation]) -> Iterator[SSAValue]:
    for operation in operations:
        yield from (result for result in operation.results if is_tensor(result))
        if isinstance(operation, (scf.ForOp, scf.WhileOp)):
            for region in operation.regions:
                yield from (arg for arg in region.block.args if is_tensor(arg))


def cheap_values(role: hopper.Role) -> Iterator[SSAValue]:
    """Yield tensors that are recomputed rather than converted."""
    cheap: set[SSAValue] = set()
    for operation in walk(role.body):
        if type(operation) not in _CHEAP:
            continue
        tensors = [operand for operand in operation.operands if is_tensor(operand)]
        if all(operand in cheap for operand in tensors):
            found = [result for result in operation.results if is_tensor(result)]
            cheap.update(found)
            yield from found


def _measure(chosen: Assignment, operations: list[Operation]) -> None:
    """Note the element that a thread's vector is made of, for each shape, and the most elements
    that one memory operation may move at once.

    It is the narrowest that is moved, unless what is written in the innermost loop is wider: of
    that a thread would write two vectors side by side, each instruction half of every sector.
    """
    facts = Contiguity()
    written: dict[tuple[int, ...], tuple[int, int]] = {}
    deepest: dict[tuple[int, ...], int] = {}
    for operation in operations:
        match operation:
            case tile.Load():
                moved = operation.result
            case tile.Store() | tile.Atomic():
                moved = operation.value
            case _:
                continue
        if not is_tensor(moved) or not is_tensor(operation.pointer):
            continue
        shape = shape_of(moved.type)
        bits = max(8, bit_width(element_type(moved.type)))
        depth = len(list(enclosing_loops(operation)))
        deepest[shape] = max(depth, deepest.get(shape, 0))
        if not isinstance(operation, tile.Load):
            written[shape] = max((depth, bits), written.get(shape, (0, 0)))
        if isinstance(operation, tile.Atomic):
            continue
        chosen.vectors[shape] = min(bits, chosen.vectors.get(shape, 128))
        run = facts.run(operation.pointer, operation.mask, contiguous_axis(operation.pointer))
        chosen.runs[shape] = max(run, chosen.runs.get(shape, 1))
    for shape, (depth, bits) in written.items():
        if depth == deepest[shape]:
            chosen.vectors[shape] = max(bits, chosen.vectors.get(shape, bits))


def _flood(chosen: Assignment, start: SSAValue, layout: RegisterLayout) -> None:
    """Give `start` and all that is tied to it a layout, stopping at what has one."""
    pending = [(start, layout)]
    while pending:
        value, wanted = pending.pop()
        if value in chosen.of or value in chosen.cheap or not is_tensor(value):
            continue
        chosen.of[value] = wanted
        pending.extend((other, wanted) for other in ties(value))
        related = [value.owner, *(use.operation for use in value.uses)]
        for operation in related:
            # A load of what is transposed has its addresses in another layout than its result.
            transposed = isinstance(operation, tile.Load) and operation in chosen.at
            if isinstance(operation, Operation) and not transposed:
                pending.extend(propose(operation, value, wanted))


def _anchor_stores(lowering: Lowering, chosen: Assignment, operations: list[Operation]) -> None:
    """Settle the layout each store uses: the value's own where that fills sectors."""
    facts = Contiguity()
    for operation in operations:
        if not isinstance(operation, tile.Store) or not is_tensor(operation.pointer):
            continue
        if operation in chosen.at:  # what it writes was transposed
            continue
        axis = contiguous_axis(operation.pointer)
        run = facts.run(operation.pointer, operation.mask, axis)
        wanted = coalesced(chosen, operation.pointer, run)
        own = chosen.of.get(operation.value)
        if own is not None and (
            operation in lowering.direct or _fills_sectors(own, operation.value, operation.pointer)
        ):
            wanted = own
        chosen.at[operation] = wanted


def _fills_sectors(layout: RegisterLayout, value: SSAValue, pointer: SSAValue) -> bool:
    """Tell whether neighbouring lanes of a warp write whole 32-byte sectors in one instruction.

    One-dimensional tiles count as filling: what a conversion saves, its barrier costs.
    """
    if len(layout.shape) == 1:
        return True
    bits = max(8, bit_width(element_type(value.type)))
    axis = contiguous_axis(pointer)
    run = 1
    for group in (layout.registers, layout.lanes):
        for each in group:
            if each.step[axis] == run and sum(map(bool, each.step)) == 1:
                run *= each.extent
    return run * bits >= min(_SECTOR * 8, layout.shape[axis] * bits)


# --- rows that are read from memory and repeated --------------------------------------------------


def spread_loads(operations: list[Operation]) -> list[tile.Load]:
    """Return the loads of rows that, as they are or after functions of them, are broadcast."""
    return [
        operation
        for operation in operations
        if isinstance(operation, tile.Load)
        and is_tensor(operation.result)
        and not is_volatile(operation)
        and sum(extent > 1 for extent in shape_of(operation.result.type)) < 2
        and _is_broadcast(operation.result)
    ]


def _is_broadcast(row: SSAValue) -> bool:
    def following(value: SSAValue) -> Iterator[SSAValue]:
        yield from ties(value)
        for use in value.uses:
            user = use.operation
            if isinstance(user, (tile.ExpandDims, *ELEMENTWISE)) and not isinstance(
                user, tile.Load
            ):
                yield from user.results

    uses = (use.operation for value in reach([row], following) for use in value.uses)
    return any(isinstance(user, tile.Broadcast) for user in uses)


def accesses(load: tile.Load, layout: RegisterLayout) -> int:
    """Return by how many instructions a thread reads its part of a row held in `layout`."""
    each = max(8, bit_width(element_type(load.result.type))) // 8
    width = Contiguity().width(load.pointer, load.mask, layout, each)
    return layout.register_count // width


# --- blocks that threads transpose ----------------------------------------------------------------


_SQUARE = 2  # of 32 bits: two are a vector either way, and no lanes meet in a bank
_WORD = 32  # bits of a bank of shared memory
_LINE = 128  # bytes
_VECTOR = 16  # bytes: the widest access of one thread


def transpose_seeds(
    chosen: Assignment, operations: list[Operation]
) -> Iterator[tuple[SSAValue, RegisterLayout]]:
    """Matrices of 32 bits that are transposed from shared memory to shared memory, in squares of
    two by two; tiles of narrower elements that are transposed from global memory to global memory.
    """
    facts = Contiguity()
    for operation in operations:
        match operation:
            case hopper.SharedStore() if is_tensor(operation.value):
                yield from _transpose_shared(chosen, operation)
            case tile.Store() if is_tensor(operation.value):
                yield from _transpose_global(chosen, operation, facts)
            case _:
                continue


def _transpose_shared(
    chosen: Assignment, store: hopper.SharedStore
) -> Iterator[tuple[SSAValue, RegisterLayout]]:
    read = next((r for r, _ in _reads(store.value) if isinstance(r, hopper.SharedLoad)), None)
    if read is None or bit_width(element_type(store.value.type)) != 32:
        return
    there, here = _order_of(read.view), _order_of(store.view)
    if there == here or len(there) != 2:
        return
    along, across = Span(there[-1], _SQUARE, 2), Span(there[0], _SQUARE, 4)
    found = blocks(shape_of(store.value.type), chosen.warps, along, across)
    if found is not None:
        yield read.result, found[0]
        chosen.at[store] = found[1]


def _order_of(view: SSAValue) -> tuple[int, ...]:
    kind = view_kind(view)
    return kind.within.data.order


def _transpose_global(
    chosen: Assignment, store: tile.Store, facts: Contiguity
) -> Iterator[tuple[SSAValue, RegisterLayout]]:
    """Where a store writes in another order than what it writes was read in, hold what was read as
    blocks, and all else as the store wants it.

    Elements of 32 bits are words of a bank already: to turn them one by one costs nothing.
    """
    reads = [(r, order) for r, order in _reads(store.value) if isinstance(r, tile.Load)]
    if any(read.result in chosen.of for read, _ in reads) or store in chosen.at:
        return
    dim = contiguous_axis(store.pointer)
    wanted = coalesced(chosen, store.pointer, facts.run(store.pointer, store.mask, dim))
    for read, order in reads:
        if not is_tensor(read.pointer) or order.index(contiguous_axis(read.pointer)) == dim:
            continue
        if min(_bits(read.result), _bits(store.value)) >= _WORD:
            continue
        held = _held(chosen, read, order[dim], facts)
        if held is not None:
            chosen.at[read] = held
            chosen.at[store] = wanted
            yield from ((value, held) for value in read.operands if is_tensor(value))
            yield read.result, permuted(wanted, tuple(map(order.index, range(len(order)))))


def _bits(value: SSAValue) -> int:
    return max(8, bit_width(element_type(value.type)))


def _held(
    chosen: Assignment, read: tile.Load, across: int, facts: Contiguity
) -> RegisterLayout | None:
    """Return the layout to read a tile in that is transposed along `across`: vectors, as many lanes
    as whole lines take, and in each thread what is a vector across. None where there are no
    vectors.
    """
    shape, size = shape_of(read.result.type), _bits(read.result) // 8
    along = contiguous_axis(read.pointer)
    share = prod(shape) // (LANES * chosen.warps)
    run = gcd(min(_VECTOR // size, facts.run(read.pointer, read.mask, along)), shape[along])
    inside = gcd(_VECTOR // size, shape[across])
    while run * inside > share and max(run, inside) > 1:
        if inside >= run:
            inside //= 2
        else:
            run //= 2
    if run == 1 or inside * size < _WORD // 8:
        return None
    lanes = gcd(LANES, max(1, min(shape[along], _LINE // size) // run))
    spans = Span(along, run, lanes), Span(across, inside, LANES // lanes)
    found = blocks(shape, chosen.warps, *spans, across_first=True)  # fewer meet in a bank
    return None if found is None else found[0]


def _reads(value: SSAValue) -> Iterator[tuple[hopper.SharedLoad | tile.Load, tuple[int, ...]]]:
    """Yield the reads that functions of single elements made a value of, each with the dimension
    of its own that each dimension of the value is; each pair once, by however many ways.
    """
    pending = [(value, tuple(range(len(shape_of(value.type)))))]
    seen: set[tuple[SSAValue, tuple[int, ...]]] = set()
    while pending:
        current, order = pending.pop()
        if (current, order) in seen:
            continue
        seen.add((current, order))
        match current.owner:
            case hopper.SharedLoad() | tile.Load() as read:
                yield read, order
            case tile.Transpose() as op:
                inner = tuple(op.permutation.data[dim].data for dim in order)
                pending.append((op.value, inner))
            case tile.Elementwise() | tile.Cast() | tile.Bitcast() as function:
                pending.extend(
                    (operand, order) for operand in function.operands if is_tensor(operand)
                )
            case _:
                pass
