"""Layouts: each tensor gets the register layout that its most demanding neighbour wants.

Purpose: decide, for every tensor value of a role, which thread holds which element.
Before -> after: ``tensor<128x256xf32>`` -> ``tensor<128x256xf32, #hopper.layout<"...">>`` (types
are set by `convert`, which also inserts the conversions between neighbours that disagree).
Anchors, strongest first: 8-bit register operands that an accumulator's threads hold already, up to
their conversion from wider elements; accumulators of products; register operands of products;
loads, then stores (coalesced); scans; all else. From each anchor its layout floods through element
functions, reshapes and loop-carried values to all that have none yet. *Cheap* values (constants,
ranges, splats and functions of them) get none: they are recomputed in whatever layout a user wants.
Requires: dots lowered. Declines when: never.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import gcd, prod

from xdsl.dialects import scf
from xdsl.dialects.builtin import IntAttr
from xdsl.ir import Operation, SSAValue

from tawa.ir import hopper, tile
from tawa.ir.types import bit_width, element_type, shape_of
from tawa.layouts import fragments
from tawa.layouts.convert import register_map
from tawa.layouts.register import Axis, RegisterLayout
from tawa.passes.lower.access import contiguous_axis
from tawa.passes.lower.context import Lowering
from tawa.passes.lower.relate import is_tensor, propose, ties

_CHEAP = (
    tile.Constant,
    tile.Arange,
    tile.Splat,
    tile.ExpandDims,
    tile.Broadcast,
    tile.Transpose,
    tile.Elementwise,
    tile.Cast,
    tile.Bitcast,
    tile.PtrAdd,
)
_SECTOR = 32  # bytes: the unit of global memory traffic
_VECTOR = 16  # bytes: the widest access of one thread


@dataclass(slots=True)
class Assignment:
    """The layouts chosen for one role.

    `of` maps every tensor value that is not cheap to its layout; `at` gives the layout in which an
    operation wants its operands where that is not a result's (stores, products).
    """

    warps: int
    of: dict[SSAValue, RegisterLayout] = field(default_factory=dict[SSAValue, RegisterLayout])
    at: dict[Operation, RegisterLayout] = field(default_factory=dict[Operation, RegisterLayout])
    cheap: set[SSAValue] = field(default_factory=set[SSAValue])
    vectors: dict[tuple[int, ...], int] = field(default_factory=dict[tuple[int, ...], int])

    def default(
        self, shape: tuple[int, ...], order: tuple[int, ...] | None = None
    ) -> RegisterLayout:
        """Return a coalesced layout of `shape`: 16 bytes a thread of the narrowest element."""
        bits = self.vectors.get(shape, 32)
        threads = 32 * self.warps
        vector = max(1, min(_VECTOR * 8 // bits, prod(shape) // threads))
        return fragments.blocked(shape, self.warps, vector, order)


def assign_layouts(lowering: Lowering, role: hopper.Role) -> Assignment:
    """Choose a layout for every tensor of `role`."""
    chosen = Assignment(role.warps.data)
    chosen.cheap = set(cheap_values(role))
    operations = list(role.body.walk())
    _measure(chosen, operations)
    chosen.of.update(_packed_operands(chosen, operations))
    for value, layout in _product_seeds(chosen, operations):
        _flood(chosen, value, layout)
    for value, layout in _operand_seeds(chosen, operations):
        _flood(chosen, value, layout)
    for seeds in (_copy_seeds, _load_seeds, _store_seeds, _scan_seeds):
        for value, layout in seeds(chosen, operations):
            _flood(chosen, value, layout)
    _anchor_stores(lowering, chosen, operations)
    for value in _values(operations):
        if value not in chosen.of and value not in chosen.cheap:
            _flood(chosen, value, chosen.default(shape_of(value.type)))
    return chosen


def _values(operations: list[Operation]) -> Iterator[SSAValue]:
    for operation in operations:
        yield from (result for result in operation.results if is_tensor(result))
        if isinstance(operation, (scf.ForOp, scf.WhileOp)):
            for region in operation.regions:
                yield from (arg for arg in region.block.args if is_tensor(arg))


def cheap_values(role: hopper.Role) -> Iterator[SSAValue]:
    """Yield tensors that are recomputed rather than converted."""
    cheap: set[SSAValue] = set()
    for operation in role.body.walk():
        if not isinstance(operation, _CHEAP):
            continue
        tensors = [operand for operand in operation.operands if is_tensor(operand)]
        if all(operand in cheap for operand in tensors):
            found = [result for result in operation.results if is_tensor(result)]
            cheap.update(found)
            yield from found


def _measure(chosen: Assignment, operations: list[Operation]) -> None:
    """Note the narrowest element that memory operations move, for each shape."""
    for operation in operations:
        match operation:
            case tile.Load():
                moved = operation.result
            case tile.Store():
                moved = operation.value
            case _:
                continue
        if is_tensor(moved):
            shape = shape_of(moved.type)
            bits = max(8, bit_width(element_type(moved.type)))
            chosen.vectors[shape] = min(bits, chosen.vectors.get(shape, 128))


def _flood(chosen: Assignment, start: SSAValue, layout: RegisterLayout) -> None:
    """Give `start` and all that is tied to it a layout, stopping at what has one."""
    pending = [(start, layout)]
    while pending:
        value, wanted = pending.pop()
        if value in chosen.of or value in chosen.cheap or not is_tensor(value):
            continue
        chosen.of[value] = wanted
        pending.extend((other, wanted) for other in ties(value))
        if isinstance(value.owner, Operation):
            pending.extend(propose(value.owner, value, wanted))
        for use in value.uses:
            pending.extend(propose(use.operation, value, wanted))


# --- anchors ------------------------------------------------------------------------------------


def _product_seeds(
    chosen: Assignment, operations: list[Operation]
) -> Iterator[tuple[SSAValue, RegisterLayout]]:
    for operation in operations:
        match operation:
            case hopper.Wgmma():
                m, n = shape_of(operation.result.type)
                layout = fragments.wgmma_accumulator(m, n, chosen.warps)
            case hopper.Mma():
                m, n = shape_of(operation.result.type)
                layout = fragments.mma_accumulator(m, n, chosen.warps)
            case hopper.FmaDot():
                layout = chosen.default(shape_of(operation.result.type))
            case _:
                continue
        chosen.at[operation] = layout
        yield operation.result, layout
        yield operation.acc, layout


def operand_layouts(
    operation: Operation, accumulator: RegisterLayout, warps: int
) -> dict[int, RegisterLayout]:
    """Return the fragments a product wants its register operands in, by operand index."""
    match operation:
        case hopper.Wgmma() if is_tensor(operation.a):
            m, k = shape_of(operation.a.type)
            bits = bit_width(element_type(operation.a.type))
            return {0: fragments.wgmma_operand(m, k, warps, bits)}
        case hopper.Mma():
            bits = bit_width(element_type(operation.a.type))
            m, k = shape_of(operation.a.type)
            n = shape_of(operation.b.type)[1]
            return {
                0: fragments.mma_operand_a(m, k, accumulator, bits),
                1: fragments.mma_operand_b(k, n, accumulator, bits),
            }
        case _:
            return {}


def _packed_operands(
    chosen: Assignment, operations: list[Operation]
) -> dict[SSAValue, RegisterLayout]:
    """Return the layouts of 8-bit operands that are accumulators converted, in other registers.

    Wide elements change places by being named otherwise, packed ones by instructions: the change
    comes before the conversion, where each thread already holds what it needs.
    """
    found: dict[SSAValue, RegisterLayout] = {}
    for operation in operations:
        if not isinstance(operation, hopper.Wgmma) or not is_tensor(operation.a):
            continue
        if bit_width(element_type(operation.a.type)) != 8:
            continue
        wanted = operand_layouts(operation, _accumulator(operation, chosen.warps), chosen.warps)[0]
        found.update(_trace(chosen, operation.a, wanted) or {})
    return found


def _accumulator(operation: hopper.Wgmma, warps: int) -> RegisterLayout:
    m, n = shape_of(operation.result.type)
    return fragments.wgmma_accumulator(m, n, warps)


def _trace(
    chosen: Assignment, start: SSAValue, layout: RegisterLayout
) -> dict[SSAValue, RegisterLayout] | None:
    """Follow an operand through views and loops to conversions from wider elements.

    None where it comes from elsewhere, or from other threads than an accumulator's.
    """
    found: dict[SSAValue, RegisterLayout] = {}
    pending = [(start, layout)]
    while pending:
        value, wanted = pending.pop()
        if value in found or value in chosen.cheap:
            continue
        found[value] = wanted
        pending.extend((other, wanted) for other in ties(value))
        match value.owner:
            case tile.Cast() as cast if bit_width(element_type(cast.value.type)) > 8:
                if not _by_accumulators(wanted, chosen.warps):
                    return None
            case tile.Reshape() | tile.Transpose() as view:
                inner = [item for item in propose(view, value, wanted) if item[0] is view.value]
                if not inner:
                    return None
                pending.extend(inner)
            case Operation() if not isinstance(value.owner, (scf.ForOp, scf.IfOp, scf.WhileOp)):
                return None
            case _:
                pass
    return found


def _by_accumulators(layout: RegisterLayout, warps: int) -> bool:
    """Tell whether each thread holds of a matrix what it holds of an accumulator of its shape."""
    if len(layout.shape) != 2 or layout.shape[1] % 8:
        return False
    held = fragments.wgmma_accumulator(*layout.shape, warps)
    return register_map(held, layout) is not None


def _operand_seeds(
    chosen: Assignment, operations: list[Operation]
) -> Iterator[tuple[SSAValue, RegisterLayout]]:
    for operation in operations:
        if operation not in chosen.at:
            continue
        wanted = operand_layouts(operation, chosen.at[operation], chosen.warps)
        yield from ((operation.operands[index], layout) for index, layout in wanted.items())


def _copy_seeds(
    chosen: Assignment, operations: list[Operation]
) -> Iterator[tuple[SSAValue, RegisterLayout]]:
    """Neighbouring lanes copy neighbours in memory, each as much as one instruction moves."""
    for operation in operations:
        if not isinstance(operation, hopper.CopyAsync):
            continue
        layout = fragments.blocked(
            shape_of(operation.pointer.type), chosen.warps, _run_of(operation)
        )
        chosen.at[operation] = layout
        yield operation.pointer, layout
        if operation.mask is not None:
            yield operation.mask, layout


def _run_of(copy: hopper.CopyAsync) -> int:
    """Return the elements each instruction moves, 1 where nothing says so."""
    match copy.attributes.get("contiguous"):
        case IntAttr(data=int() as count):
            return count
        case _:
            return 1


def _load_seeds(
    chosen: Assignment, operations: list[Operation]
) -> Iterator[tuple[SSAValue, RegisterLayout]]:
    for operation in operations:
        if not isinstance(operation, (tile.Load, tile.Atomic, tile.CompareExchange)):
            continue
        if is_tensor(operation.result):
            yield operation.result, _coalesced(chosen, operation.pointer)


def _store_seeds(
    chosen: Assignment, operations: list[Operation]
) -> Iterator[tuple[SSAValue, RegisterLayout]]:
    for operation in operations:
        if isinstance(operation, tile.Store) and is_tensor(operation.value):
            yield operation.value, _coalesced(chosen, operation.pointer)


def _scan_seeds(
    chosen: Assignment, operations: list[Operation]
) -> Iterator[tuple[SSAValue, RegisterLayout]]:
    for operation in operations:
        if isinstance(operation, tile.Scan):
            shape = shape_of(operation.inputs[0].type)
            layout = scan_layout(shape, operation.axis.data, chosen.warps)
            chosen.at[operation] = layout
            yield from ((value, layout) for value in (*operation.inputs, *operation.res))


def scan_layout(shape: tuple[int, ...], axis: int, warps: int) -> RegisterLayout:
    """Return a layout that keeps `axis` inside one warp, so that a scan needs no shared memory."""
    rows = tuple(extent for dim, extent in enumerate(shape) if dim != axis)
    line = fragments.blocked((shape[axis],), 1, max(1, shape[axis] // 32))

    def put(step: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(step[0] if dim == axis else 0 for dim in range(len(shape)))

    def rest(step: tuple[int, ...]) -> tuple[int, ...]:
        return (*step[:axis], 0, *step[axis:])

    over = _rows_by_warp(rows, warps)
    held = tuple(Axis(a.extent, rest(a.step)) for a in over.registers)
    return RegisterLayout(
        shape,
        (*(Axis(a.extent, put(a.step)) for a in line.registers), *held),
        tuple(Axis(a.extent, put(a.step)) for a in line.lanes),
        tuple(Axis(a.extent, rest(a.step)) for a in over.warps),
    )


def _rows_by_warp(rows: tuple[int, ...], warps: int) -> RegisterLayout:
    """Spread `rows` over warps alone: each lane of a warp sees all of the warp's rows."""
    held: list[Axis] = []
    over: list[Axis] = []
    left = warps
    for dim in range(len(rows)):
        share = gcd(left, rows[dim])
        left //= share
        held.append(Axis(rows[dim] // share, tuple(int(d == dim) for d in range(len(rows)))))
        step = rows[dim] // share
        over.append(Axis(share, tuple(step if d == dim else 0 for d in range(len(rows)))))
    over.append(Axis(left, (0,) * len(rows)))
    return RegisterLayout(
        rows,
        tuple(axis for axis in held if axis.extent > 1),
        (),
        tuple(axis for axis in over if axis.extent > 1),
    )


def _coalesced(chosen: Assignment, pointer: SSAValue) -> RegisterLayout:
    """Return the layout in which an access through `pointer` moves whole sectors."""
    shape = shape_of(pointer.type)
    axis = contiguous_axis(pointer)
    order = (*(dim for dim in range(len(shape)) if dim != axis), axis)
    return chosen.default(shape, order)


def _anchor_stores(lowering: Lowering, chosen: Assignment, operations: list[Operation]) -> None:
    """Settle the layout each store uses: the value's own where that fills sectors."""
    for operation in operations:
        if not isinstance(operation, tile.Store) or not is_tensor(operation.pointer):
            continue
        wanted = _coalesced(chosen, operation.pointer)
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
