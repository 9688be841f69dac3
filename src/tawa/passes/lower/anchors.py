"""Anchors: the operations that want a tensor in a certain layout, and which.

`layouts` floods these layouts through the rest of a role, the strongest anchors first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import gcd, prod

from xdsl.dialects import scf
from xdsl.dialects.builtin import IntAttr
from xdsl.ir import Operation, SSAValue

from tawa.analysis.statements import enclosing_loops
from tawa.ir import hopper, tile
from tawa.ir.types import bit_width, element_type, is_tensor, shape_of
from tawa.ir.walk import walk
from tawa.layouts import fragments
from tawa.layouts.convert import register_map
from tawa.layouts.register import LANES, Axis, RegisterLayout
from tawa.passes.lower.access import contiguous_axis
from tawa.passes.lower.relate import propose, ties

_VECTOR = 16  # bytes: the widest access of one thread
_SECTOR = 32  # bytes: the unit of global memory traffic


@dataclass(slots=True)
class Assignment:
    """The layouts chosen for one role.

    `of` maps every tensor value that is not cheap to its layout; `at` gives the layout in which an
    operation wants its operands where that is not a result's (stores, products). `by_columns`: the
    warpgroups of a product have columns of their own.
    """

    warps: int
    by_columns: bool = False
    of: dict[SSAValue, RegisterLayout] = field(default_factory=dict[SSAValue, RegisterLayout])
    at: dict[Operation, RegisterLayout] = field(default_factory=dict[Operation, RegisterLayout])
    cheap: set[SSAValue] = field(default_factory=set[SSAValue])
    vectors: dict[tuple[int, ...], int] = field(default_factory=dict[tuple[int, ...], int])
    runs: dict[tuple[int, ...], int] = field(default_factory=dict[tuple[int, ...], int])

    def default(
        self, shape: tuple[int, ...], order: tuple[int, ...] | None = None, most: int = _VECTOR
    ) -> RegisterLayout:
        """Return a coalesced layout of `shape`: 16 bytes a thread of the narrowest element, or
        what one instruction can move where that is less, but no more than `most`.
        """
        bits = self.vectors.get(shape, 32)
        threads = 32 * self.warps
        widest = min(_VECTOR * 8 // bits, self.runs.get(shape, _VECTOR), most)
        vector = max(1, min(widest, prod(shape) // threads))
        return fragments.blocked(shape, self.warps, vector, order)


def product_seeds(
    chosen: Assignment, operations: list[Operation]
) -> Iterator[tuple[SSAValue, RegisterLayout]]:
    """Accumulators of products. Fused multiply-adds come last: they work in any layout, also in
    the one that a product of tensor cores gave their accumulator.
    """
    for operation in operations:
        match operation:
            case hopper.Wgmma():
                m, n = shape_of(operation.result.type)
                layout = fragments.wgmma_accumulator(m, n, chosen.warps, chosen.by_columns)
            case hopper.Mma():
                m, n = shape_of(operation.result.type)
                layout = fragments.mma_accumulator(m, n, chosen.warps)
            case _:
                continue
        chosen.at[operation] = layout
        yield operation.result, layout
        yield operation.acc, layout
    for operation in operations:
        if isinstance(operation, hopper.FmaDot):
            layout = chosen.of.get(operation.result) or chosen.of.get(operation.acc)
            layout = layout or _accumulator_of_fma(chosen, operation)
            chosen.at[operation] = layout
            yield operation.result, layout
            yield operation.acc, layout


def _accumulator_of_fma(chosen: Assignment, operation: hopper.FmaDot) -> RegisterLayout:
    m, n = shape_of(operation.result.type)
    vector = _VECTOR * 8 // bit_width(element_type(operation.result.type))
    layout = fragments.fma_accumulator(m, n, chosen.warps, vector)
    return layout or chosen.default((m, n))


def operand_layouts(
    chosen: Assignment, operation: Operation, accumulator: RegisterLayout
) -> dict[int, RegisterLayout]:
    """Return the fragments a product wants its register operands in, by operand index."""
    match operation:
        case hopper.Wgmma() if is_tensor(operation.a):
            m, k = shape_of(operation.a.type)
            bits = bit_width(element_type(operation.a.type))
            return {0: fragments.wgmma_operand(m, k, chosen.warps, bits, chosen.by_columns)}
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


def packed_operands(
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
        wanted = operand_layouts(chosen, operation, _accumulator(chosen, operation))[0]
        found.update(_trace(chosen, operation.a, wanted) or {})
    return found


def _accumulator(chosen: Assignment, operation: hopper.Wgmma) -> RegisterLayout:
    m, n = shape_of(operation.result.type)
    return fragments.wgmma_accumulator(m, n, chosen.warps, chosen.by_columns)


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
                if not _by_accumulators(chosen, wanted):
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


def _by_accumulators(chosen: Assignment, layout: RegisterLayout) -> bool:
    """Tell whether each thread holds of a matrix what it holds of an accumulator of its shape."""
    if len(layout.shape) != 2 or layout.shape[1] % 8:
        return False
    held = fragments.wgmma_accumulator(*layout.shape, chosen.warps, chosen.by_columns)
    return register_map(held, layout) is not None


def operand_seeds(
    chosen: Assignment, operations: list[Operation]
) -> Iterator[tuple[SSAValue, RegisterLayout]]:
    """Operands that products take from registers."""
    for operation in operations:
        if operation not in chosen.at:
            continue
        wanted = operand_layouts(chosen, operation, chosen.at[operation])
        yield from ((operation.operands[index], layout) for index, layout in wanted.items())


def copy_seeds(
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


def load_seeds(
    chosen: Assignment, operations: list[Operation]
) -> Iterator[tuple[SSAValue, RegisterLayout]]:
    """Loads from global memory, coalesced."""
    for operation in operations:
        if not isinstance(operation, (tile.Load, tile.Atomic, tile.CompareExchange)):
            continue
        if is_tensor(operation.result):
            yield operation.result, coalesced(chosen, operation.pointer)


def store_seeds(
    chosen: Assignment, operations: list[Operation]
) -> Iterator[tuple[SSAValue, RegisterLayout]]:
    """Stores to global memory, coalesced."""
    for operation in operations:
        if isinstance(operation, tile.Store) and is_tensor(operation.value):
            yield operation.value, coalesced(chosen, operation.pointer)


def scan_seeds(
    chosen: Assignment, operations: list[Operation]
) -> Iterator[tuple[SSAValue, RegisterLayout]]:
    """Scans, along whose axis one warp holds all, or each a part."""
    for operation in operations:
        if isinstance(operation, tile.Scan):
            shape = shape_of(operation.inputs[0].type)
            # Fewer rounds exchange less; of the widest a lane still moves no more than a sector.
            bits = [max(8, bit_width(element_type(value.type))) for value in operation.inputs]
            axis, sector = operation.axis.data, _SECTOR * 8 // max(bits)
            vector, lanes = min(_VECTOR * 8 // min(bits), sector), LANES
            if axis < len(shape) - 1:  # what lies together are elements of lines that do
                vector, lanes = shape[axis], LANES // gcd(LANES, sector, shape[-1])
            layout = scan_layout(shape, axis, chosen.warps, vector, lanes, spread=True)
            chosen.at[operation] = layout
            yield from ((value, layout) for value in (*operation.inputs, *operation.res))


def count_seeds(
    chosen: Assignment, operations: list[Operation]
) -> Iterator[tuple[SSAValue, RegisterLayout]]:
    """Histograms, whose rows and counts one warp holds each."""
    for operation in operations:
        if isinstance(operation, tile.Histogram):
            layout = count_layout(shape_of(operation.value.type), chosen.warps)
            chosen.at[operation] = layout
            yield from ((value, layout) for value in operation.operands)
            yield operation.result, count_layout(shape_of(operation.result.type), chosen.warps)


def row_seeds(
    chosen: Assignment, operations: list[Operation]
) -> Iterator[tuple[SSAValue, RegisterLayout]]:
    """Reductions in loops along an axis so short that a sector of memory holds all of it: one
    thread does, or its neighbours, of these tensors and of others of their shape in the loop, so
    that no iteration meets at a barrier. Accesses fill sectors still.
    """
    for operation in operations:
        if not isinstance(operation, tile.Reduce) or not (loops := enclosing_loops(operation)):
            continue
        shape, axis = shape_of(operation.inputs[0].type), operation.axis.data
        bits = max(max(8, bit_width(element_type(value.type))) for value in operation.inputs)
        if shape[axis] * bits > _SECTOR * 8 or not axis == len(shape) - 1 > 0:
            continue
        share = max(1, prod(shape) // (32 * chosen.warps))
        order = (*(dim for dim in range(len(shape)) if dim != axis), axis)
        layout = fragments.blocked(shape, chosen.warps, share, order)
        yield from ((value, layout) for value in operation.inputs)
        beside = (value for other in walk(loops[0]) for value in other.results)
        yield from ((value, layout) for value in beside if shape_of(value.type) == shape)
        if all(value in chosen.cheap for value in operation.inputs):
            chosen.at[operation] = layout
            over = fragments.without_dimension(layout, axis)
            yield from ((value, over) for value in operation.res)


def count_layout(shape: tuple[int, ...], warps: int) -> RegisterLayout:
    """Return a layout that keeps a row inside one warp, neighbours in neighbouring lanes."""
    return scan_layout(shape, len(shape) - 1, warps, 1)


def scan_layout(
    shape: tuple[int, ...],
    axis: int,
    warps: int,
    vector: int = 1 << 30,
    lanes: int = LANES,
    *,
    spread: bool = False,
) -> RegisterLayout:
    """Return a layout that keeps `axis` inside one warp, so that a scan needs no shared memory.

    A lane has at most `vector` neighbours before the next lane's begin, and at most `lanes` follow
    one another. Lanes left hold copies, or with `spread` other rows; warps beyond the rows hold
    copies, or with `spread` a part of the axis each, where each has a whole number of elements a
    lane and one warp's lanes can hold a number of each part.
    """
    rows = tuple(extent for dim, extent in enumerate(shape) if dim != axis)
    beyond = warps
    for extent in rows:
        beyond //= gcd(beyond, extent)
    parts = gcd(beyond, LANES) if spread else 1
    parts = parts if shape[axis] % (LANES * parts) == 0 else 1
    length = shape[axis] // parts
    line = fragments.blocked((length,), 1, max(1, min(vector, length // lanes)))

    def put(step: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(step[0] if dim == axis else 0 for dim in range(len(shape)))

    def rest(step: tuple[int, ...]) -> tuple[int, ...]:
        return (*step[:axis], 0, *step[axis:])

    along = tuple(a for a in line.lanes if any(a.step))
    over = _rows_by_warp(
        rows, warps // parts, LANES // prod(a.extent for a in along) if spread else 1
    )
    held = tuple(Axis(a.extent, rest(a.step)) for a in over.registers)
    inside = tuple(Axis(a.extent, put(a.step)) for a in (along if spread else line.lanes))
    return RegisterLayout(
        shape,
        (*(Axis(a.extent, put(a.step)) for a in line.registers), *held),
        (*inside, *(Axis(a.extent, rest(a.step)) for a in over.lanes)),
        (
            *(Axis(a.extent, rest(a.step)) for a in over.warps),
            *fragments.axes((parts, put((length,)))),
        ),
    )


def _rows_by_warp(rows: tuple[int, ...], warps: int, lanes: int) -> RegisterLayout:
    """Spread `rows` over warps, and those of a warp over `lanes` of its lanes."""

    def step(dim: int, count: int) -> tuple[int, ...]:
        return tuple(count if d == dim else 0 for d in range(len(rows)))

    shares: list[int] = []
    for extent in rows:
        shares.append(gcd(warps, extent))
        warps //= shares[-1]
    held: list[Axis] = []
    inside: list[Axis] = []
    for dim in reversed(range(len(rows))):
        within = rows[dim] // shares[dim]
        inside.append(Axis(gcd(lanes, within), step(dim, 1)))
        lanes //= inside[-1].extent
        held.insert(0, Axis(within // inside[-1].extent, step(dim, inside[-1].extent)))
    inside.append(Axis(lanes, step(0, 0)))
    over = [Axis(share, step(d, rows[d] // share)) for d, share in enumerate(shares)]
    over.append(Axis(warps, step(0, 0)))
    some = (tuple(axis for axis in part if axis.extent > 1) for part in (held, inside, over))
    return RegisterLayout(rows, *some)


def coalesced(chosen: Assignment, pointer: SSAValue, most: int = _VECTOR) -> RegisterLayout:
    """Return the layout in which an access through `pointer`, that moves at most `most` elements
    at once, moves whole sectors.
    """
    shape = shape_of(pointer.type)
    axis = contiguous_axis(pointer)
    order = (*(dim for dim in range(len(shape)) if dim != axis), axis)
    return chosen.default(shape, order, most)
