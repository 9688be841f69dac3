"""Operands of products: where wgmma finds them.

Views of slots are read in place where the instruction can (K contiguous, or 16-bit elements).
Operand A may be in registers that a loop computes anew; operand B that is computed, or lies the
wrong way round, is stored first.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects import scf
from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue

from tawa.analysis.contiguity import Contiguity
from tawa.analysis.stages import loop_without
from tawa.analysis.statements import name_of
from tawa.ir import hopper, tile
from tawa.ir.types import ViewType, bit_width, element_type, shape_of, spell
from tawa.ir.walk import all_of, yielded
from tawa.layouts.fragments import share_out
from tawa.layouts.shared import SharedLayout
from tawa.passes.lower.access import contiguous_axis
from tawa.passes.lower.context import Lowering, role_of
from tawa.passes.lower.emit import Emitter
from tawa.passes.lower.views import as_view, root_slot, store_shared, view_kind, whole_buffer

_RUN = 16
"""Bytes of the widest access of a thread."""
_REPEATED = (tile.Constant, tile.Splat, tile.Broadcast)
"""What is made in whatever layout the rest has."""


def takes(layout: SharedLayout, k: int, bits: int, run: int = 0) -> bool:
    """Tell whether wgmma reads a shared tile: swizzled rows, K contiguous unless 16 bits wide.

    `run` is how many columns each warpgroup takes of it, where not all: contiguous ones must not
    cross from panel to panel, unless they are whole panels.
    """
    if len(layout.shape) != 2 or not layout.swizzle:
        return False
    if layout.order[-1] == k:
        return True
    return bits == 16 and (not run or run % layout.panel == 0 or layout.panel % run == 0)


def _run(lowering: Lowering, dot: tile.Dot) -> int:
    """Return how many columns of B each warpgroup takes, 0 where all take all."""
    rows, columns = shape_of(dot.result.type)
    _, across = share_out(rows, role_of(dot).warps.data, lowering.by_columns)
    return columns // across if across > 1 else 0


def operand_a(lowering: Lowering, emitter: Emitter, dot: tile.Dot) -> SSAValue:
    """Return operand A: the view of it where wgmma reads that, else its registers.

    A plan may say otherwise (`OperandPlan`), of 16-bit elements, the only ones that registers hold
    as they lie in memory. Registers that stay the same round a loop are stored once before it.
    ptxas 13.0 takes the registers of an operand for free once the product has read them: with a
    branch in the loop it gave them to other values, and later iterations multiplied those.

    What threads load as it lies in memory, in runs along K, or along M where wgmma takes that, is
    stored as well: a thread's part of a fragment is runs of 4 bytes along K, four times the
    accesses, and single elements along M.
    """
    hint = lowering.operand_plan(dot)
    view = as_view(emitter, dot.a, dot)
    bits = bit_width(element_type(dot.a.type))
    if hint == "registers" and bits == 16:
        return dot.a
    if view is not None and takes(view_kind(view).layout.data, 1, bits):
        return view
    if (loop := loop_without(dot.a, dot)) is not None:
        return _stored(lowering, Emitter.before(loop), dot)
    order = _loaded_order(dot.a)
    return _stored(lowering, emitter, dot, order or (0, 1)) if hint == "shared" or order else dot.a


def _loaded_order(value: SSAValue) -> tuple[int, int] | None:
    """Return the order of memory of an operand that threads load in runs, transposed or not."""
    source = value
    while isinstance(source.owner, tile.Transpose):
        source = source.owner.value
    if _loaded(source) is None:
        return None
    if _runs_along(value, 1):
        return (0, 1)
    narrow = bit_width(element_type(value.type)) == 16
    return (1, 0) if narrow and _runs_along(value, 0) else None


def _runs_along(value: SSAValue, axis: int) -> bool:
    """Tell whether threads hold a tile in runs of `_RUN` bytes along `axis`: as they load it, in
    this iteration or the one before, or as a slot has it; transposed and computed with or not.
    """
    match value.owner:
        case tile.Transpose(value=transposed, permutation=order):
            return _runs_along(transposed, order.data[axis].data)
        case tile.Elementwise() | tile.Cast() | tile.Bitcast() as made:
            tiles = [part for part in made.operands if not isinstance(part.owner, _REPEATED)]
            return bool(tiles) and all(_runs_along(part, axis) for part in tiles)
        case hopper.SharedLoad(view=view):
            return view_kind(view).layout.data.order[-1] == axis
        case _:
            load = _loaded(value)
    if load is None or contiguous_axis(load.pointer) != axis:
        return False
    run = Contiguity().run(load.pointer, load.mask, axis)
    return run * bit_width(element_type(load.result.type)) >= 8 * _RUN


def _loaded(value: SSAValue) -> tile.Load | None:
    """Return the load whose tile a value is, handed on by a loop or not."""
    match value.owner:
        case tile.Load() as load:
            return load
        case scf.ForOp() as loop if isinstance(value, OpResult):
            return _loaded_in(loop, value.index)
        case Block() as block if isinstance(value, BlockArgument) and value.index:
            loop = block.parent_op()
            return _loaded_in(loop, value.index - 1) if isinstance(loop, scf.ForOp) else None
        case _:
            return None


def _loaded_in(loop: scf.ForOp, index: int) -> tile.Load | None:
    """Return the load in a loop's body of what it carries at `index`."""
    made = yielded(loop.body.block, index).owner
    return made if isinstance(made, tile.Load) else None


def operand_a_view(lowering: Lowering, emitter: Emitter, dot: tile.Dot) -> SSAValue:
    """Return the view of operand A; registers are stored to shared memory first."""
    found = operand_a(lowering, emitter, dot)
    return _stored(lowering, emitter, dot) if found is dot.a else found


def _stored(
    lowering: Lowering, emitter: Emitter, dot: tile.Dot, order: tuple[int, int] = (0, 1)
) -> SSAValue:
    element, shape = element_type(dot.a.type), shape_of(dot.a.type)
    layout = lowering.placement(shape, element, order)
    if not takes(layout, 1, bit_width(element)):
        layout = lowering.placement(shape, element)
    return stage(lowering, emitter, dot.a, layout, f"{name_of(dot)} operand a")


def operand_b(lowering: Lowering, emitter: Emitter, dot: tile.Dot) -> SSAValue:
    """Return the view of operand B; a computed one is stored to shared memory first."""
    view = as_view(emitter, dot.b, dot)
    element = element_type(dot.b.type)
    bits, shape, run = bit_width(element), shape_of(dot.b.type), _run(lowering, dot)
    if view is not None and takes(view_kind(view).layout.data, 0, bits, run):
        return view
    if view is not None:
        lowering.note(
            f"B of {name_of(dot)} in place",
            f"wgmma does not read {spell(element)} stored as {view_kind(view).layout.data}"
            f"{f', {run} columns a warpgroup' if run else ''}; the tile is stored once more, "
            "through registers",
        )
    # 16-bit operands may be contiguous along N, if its rows can be swizzled: they are, unless
    # threads hold runs along K, which they would write an element at a time.
    layout = lowering.placement(shape, element, (1, 0) if _runs_along(dot.b, 0) else (0, 1))
    if not takes(layout, 0, bits, run):
        layout = lowering.placement(shape, element, (1, 0))
    return stage(lowering, emitter, dot.b, layout, f"{name_of(dot)} operand")


def stage(
    lowering: Lowering, emitter: Emitter, value: SSAValue, layout: SharedLayout, label: str
) -> SSAValue:
    """Store a computed tensor to a buffer of its own, visible to wgmma; return the view.

    Products of one block that read the same tensor the same way share the buffer.
    """
    known = (value, emitter.block, layout)
    if (view := lowering.staged.get(known)) is not None:
        return view
    role = role_of(value.owner if isinstance(value.owner, Operation) else _parent(value.owner))
    buffer = _done_with(lowering, emitter, layout, value) if lowering.plan.sharing else None
    buffer = buffer or lowering.new_buffer(label, layout, element_type(value.type))
    view = whole_buffer(emitter, buffer)
    # The first barrier: all warps are done with what the buffer held. The second: all have written.
    emitter.put(lowering.role_barrier(role))
    store_shared(emitter, value, view)
    emitter.put(hopper.ProxyFence())
    emitter.put(lowering.role_barrier(role))
    lowering.staged[known] = view
    return view


def _done_with(
    lowering: Lowering, emitter: Emitter, layout: SharedLayout, value: SSAValue
) -> hopper.Shared | None:
    """Return the buffer of an operand of the same block that nothing reads from here on.

    Each iteration stores it anew, and the waits for its products stand before the barrier ahead of
    what is stored over it.
    """
    for known, view in lowering.staged.items():
        staged, block, placed = known
        alike = placed == layout and element_type(staged.type) == element_type(value.type)
        if not alike or block is not emitter.block:
            continue
        waits = any(staged in dot.operands for dot in all_of(block, tile.Dot))
        if not waits and all(emitter.comes_after(reader) for reader in _readers(view)):
            del lowering.staged[known]
            buffer = root_slot(view).buffer.owner
            assert isinstance(buffer, hopper.Shared), "what is staged has a buffer of its own"
            return buffer
    return None


def _readers(view: SSAValue) -> Iterator[Operation]:
    """Give what reads or writes a view, or a view of it."""
    for use in view.uses:
        yield use.operation
        for result in use.operation.results:
            if isinstance(result.type, ViewType):
                yield from _readers(result)


def _parent(block: Block) -> Operation:
    parent = block.parent_op()
    assert parent is not None
    return parent
