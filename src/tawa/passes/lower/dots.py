"""Products: each `tile.dot` becomes the best instruction that takes it.

Purpose: choose wgmma, mma.sync or fused multiply-add, and bring the operands where it wants them.
Before -> after:
    %a, %b : views of slots                     %acc' = hopper.wgmma %a_view, %b_view, %acc if %more
    %acc' = tile.dot %a, %b, %acc       ->      (later) fence, commit and wait by `waits`
Requires: rings lowered (slots are views). Ensures: no `tile.dot` is left; a product whose
accumulator starts at zero takes it as zero by predicate (right for loops of no iteration: the
constant stays). Declines when: named in the notes: `wgmma: ...` with the rule, and the instruction
taken instead.

Operands of products: where wgmma finds them.

Views of slots are read in place where the instruction can (K contiguous, or 16-bit elements).
Operand A may be in registers that a loop computes anew; operand B that is computed, or lies the
wrong way round, is stored first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd

from xdsl.dialects import scf
from xdsl.dialects.builtin import Float32Type
from xdsl.ir import Attribute, Block, BlockArgument, Operation, OpResult, SSAValue

from tawa.analysis.contiguity import Contiguity
from tawa.analysis.hardware import K_BYTES, is_zero, tensor_core_objection
from tawa.analysis.stages import loop_without
from tawa.analysis.statements import name_of
from tawa.errors import PlanError, ShapeUnsupported
from tawa.ir import hopper, place_of, tile
from tawa.ir.types import Real, ViewType, bit_width, element_type, i1, shape_of, spell, with_shape
from tawa.ir.walk import all_of, terminator, walk, yielded
from tawa.layouts.fragments import share_out
from tawa.layouts.shared import SharedLayout
from tawa.passes.lower.access import contiguous_axis
from tawa.passes.lower.context import Lowering, role_of
from tawa.passes.lower.emit import Emitter, append_operands, replace, widen_for
from tawa.passes.lower.views import (
    as_view,
    root_slot,
    slice_view,
    store_shared,
    view_kind,
    whole_buffer,
)

_WARPGROUP = 4


@dataclass(frozen=True, slots=True)
class Product:
    """The facts of one dot that decide its instruction."""

    m: int
    n: int
    k: int
    a: Attribute
    b: Attribute
    acc: Attribute
    precision: str
    warps: int
    by_columns: bool

    @property
    def bits(self) -> int:
        """Width of the operands' elements."""
        return bit_width(self.a)


def lower_dots(lowering: Lowering) -> None:
    """Replace every dot of the kernel. Raises `PlanError` for an operand that has no choice."""
    for role in lowering.roles:
        for dot in all_of(role, tile.Dot):
            _lower_dot(lowering, dot)


def facts_of(lowering: Lowering, dot: tile.Dot, warps: int) -> Product:
    """Return the facts of a dot. Raises `ShapeUnsupported` for a batch of products."""
    shape_a, shape_b = shape_of(dot.a.type), shape_of(dot.b.type)
    if len(shape_a) != 2:
        raise ShapeUnsupported(
            f"a dot of {spell(dot.a.type)} and {spell(dot.b.type)}",
            place=place_of(dot),
            why="the tensor cores multiply matrices of two dimensions.",
            remedy="loop over the batch, or give it an axis of the grid.",
        )
    return Product(
        shape_a[0],
        shape_b[1],
        shape_a[1],
        element_type(dot.a.type),
        element_type(dot.b.type),
        element_type(dot.acc.type),
        dot.precision.data,
        warps,
        lowering.by_columns,
    )


def _tensor_core_objection(product: Product) -> str:
    types = product.a, product.b, product.acc
    return tensor_core_objection(*types, product.k, product.precision)


def wgmma_objection(product: Product) -> str:
    """Return the rule by which wgmma does not take a product, or nothing."""
    if objection := _tensor_core_objection(product):
        return objection
    if product.warps % _WARPGROUP:
        return f"{product.warps} warps are not whole warpgroups"
    if product.m % 64:
        return f"M = {product.m} is not a multiple of 64"
    _, across = share_out(product.m, product.warps, product.by_columns)
    if product.n % (8 * across):
        return f"N = {product.n} is not a multiple of {8 * across}"
    return ""


def mma_objection(product: Product) -> str:
    """Return the rule by which mma.sync does not take a product, or nothing."""
    if objection := _tensor_core_objection(product):
        return objection
    if product.m % 16 or product.n % 8:
        return f"{product.m} x {product.n} is not made of 16 x 8 fragments"
    return ""


def _lower_dot(lowering: Lowering, dot: tile.Dot) -> None:
    product = facts_of(lowering, dot, role_of(dot).warps.data)
    objection = wgmma_objection(product)
    if not objection:
        _emit_wgmma(lowering, dot, product)
        return
    name = name_of(dot)
    if place := lowering.operand_plan(dot):
        raise PlanError(
            f"operand {name} a={place}",
            why=f"wgmma does not take this product: {objection}",
            remedy="leave it out",
        )
    if not (also := mma_objection(product)):
        lowering.note(f"wgmma for {name}", f"{objection}; mma.sync is used")
        _emit_mma(dot, product)
        return
    lowering.note(f"tensor cores for {name}", f"{also}; fused multiply-add is used")
    _emit_fma(lowering, dot)


# --- wgmma --------------------------------------------------------------------------------------


def _emit_wgmma(lowering: Lowering, dot: tile.Dot, product: Product) -> None:
    emitter = Emitter.before(dot)
    acc = _widened(emitter, dot.acc)
    if 0 <= dot.max_imprecise.data <= product.k and product.bits == 8:
        replace(dot, [_narrowed(emitter, _promoted(lowering, dot, acc), dot.result.type)])
        return
    a = operand_a(lowering, emitter, dot)
    b = operand_b(lowering, emitter, dot)
    accumulate = _accumulate(lowering, dot) if acc is dot.acc else None
    wgmma = emitter.put(hopper.Wgmma.make(a, b, acc, accumulate, results=[acc.type]))
    replace(dot, [_narrowed(emitter, wgmma.result, dot.result.type)])


def _promoted(lowering: Lowering, dot: tile.Dot, acc: SSAValue) -> SSAValue:
    """Sum an 8-bit product in runs of at most `max_imprecise` of K, each added to `acc` in fp32.

    wgmma keeps fewer bits than fp32 while it accumulates 8-bit products; the additions do not.
    """
    emitter = Emitter.before(dot)
    a = operand_a_view(lowering, emitter, dot)
    b = operand_b(lowering, emitter, dot)
    k = view_kind(b).shape[0]
    run = promotion_run(k, dot.max_imprecise.data)
    for start in range(0, k, run):
        zero = emitter.put(tile.Constant.make(results=[acc.type], value=Real(0.0))).result
        part = hopper.Wgmma.make(
            slice_view(emitter, a, 1, start, run),
            slice_view(emitter, b, 0, start, run),
            zero,
            [emitter.constant(0, i1, "from_zero")],
            results=[acc.type],
        )
        acc = emitter.apply("add", acc, emitter.put(part).result)
    return acc


def promotion_run(k: int, most: int) -> int:
    """Return the K of one run: whole steps of wgmma, at most `most` (one step at least)."""
    steps = k // K_BYTES
    return K_BYTES * next(
        run for run in range(max(1, min(steps, most // K_BYTES)), 0, -1) if steps % run == 0
    )


def _widened(emitter: Emitter, acc: SSAValue) -> SSAValue:
    """Return an accumulator of 32 bits: fp16 sums are made in fp32 and rounded once a product."""
    if bit_width(element_type(acc.type)) == 32:
        return acc
    wide = with_shape(shape_of(acc.type), Float32Type())
    return emitter.put(tile.Cast.make(acc, results=[wide])).result


def _narrowed(emitter: Emitter, result: SSAValue, kind: Attribute) -> SSAValue:
    if result.type == kind:
        return result
    return emitter.put(tile.Cast.make(result, results=[kind])).result


# --- the accumulator's start --------------------------------------------------------------------


def _accumulate(lowering: Lowering, dot: tile.Dot) -> SSAValue | None:
    """Return the predicate (i1) "add to the accumulator", None where it always is.

    False for a product that starts from zero; "not the first iteration" for one whose loop starts
    the accumulator at zero and touches it nowhere else.
    """
    acc = dot.acc
    if is_zero(acc):
        return Emitter.before(dot).constant(0, i1, "from_zero")
    if (
        not isinstance(acc, BlockArgument)
        or acc.owner is not dot.parent
        or acc.has_more_than_one_use()
    ):
        return None
    loop = acc.owner.parent_op()
    if not isinstance(loop, scf.ForOp) or acc.index == 0:
        return None
    if not is_zero(loop.iter_args[acc.index - 1]):
        return None
    iteration = trip_counter(lowering, loop)
    emitter = Emitter.before(dot)
    return emitter.apply("gt", iteration, emitter.constant(0), hint="more")


def trip_counter(lowering: Lowering, loop: scf.ForOp) -> SSAValue:
    """Return the loop-carried count of finished iterations (i32), adding it when it is not there.

    The loop operation may be rebuilt; its body block stays.
    """
    block = loop.body.block
    if block in lowering.iterations:
        return lowering.iterations[block]
    wide = widen_for(loop, [Emitter.before(loop).constant(0)])
    wide.results[-1].name_hint = "iteration_end"
    iteration = block.args[-1]
    iteration.name_hint = "iteration"
    lowering.iterations[block] = iteration
    end = terminator(block)
    emitter = Emitter.before(end)
    append_operands(
        end, [emitter.apply("add", iteration, emitter.constant(1), hint="next_iteration")]
    )
    return iteration


# --- other instructions -------------------------------------------------------------------------


def _emit_mma(dot: tile.Dot, product: Product) -> None:
    emitter = Emitter.before(dot)
    acc = _widened(emitter, dot.acc)
    mma = emitter.put(
        hopper.Mma.make(dot.a, dot.b, acc, results=[acc.type], precision=product.precision)
    )
    replace(dot, [_narrowed(emitter, mma.result, dot.result.type)])


def _emit_fma(lowering: Lowering, dot: tile.Dot) -> None:
    emitter = Emitter.before(dot)
    views: list[SSAValue] = []
    for value, which in ((dot.a, "a"), (dot.b, "b")):
        view = as_view(emitter, value, dot)
        if view is None:
            # Rows are read one element at a time; no swizzle is needed for that.
            shape = shape_of(value.type)
            element = element_type(value.type)
            layout = SharedLayout(shape, (0, 1), max(8, bit_width(element)), 0)
            label = f"{name_of(dot)} {which}"
            view = stage(lowering, emitter, value, layout, label, by_threads=True)
        views.append(view)
    fma = emitter.put(hopper.FmaDot.make(*views, dot.acc, results=[dot.result.type]))
    replace(dot, [fma.result])


def narrow_panels(lowering: Lowering) -> None:
    """Settle the bytes of K that a panel of 8-bit tiles may hold: 128, or what runs divide into."""
    runs = [
        promotion_run(shape_of(op.a.type)[-1], op.max_imprecise.data)
        for op in walk(lowering.kernel)
        if isinstance(op, tile.Dot) and bit_width(element_type(op.a.type)) == 8
        if op.max_imprecise.data <= shape_of(op.a.type)[-1]
    ]
    lowering.widest_run = min((gcd(128, run) for run in runs), default=128)


# --- operands -------------------------------------------------------------------------------------


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
    lowering: Lowering,
    emitter: Emitter,
    value: SSAValue,
    layout: SharedLayout,
    label: str,
    *,
    by_threads: bool = False,
) -> SSAValue:
    """Store a computed tensor to a buffer of its own, visible to wgmma; return the view.

    Products of one block that read the same tensor the same way share the buffer. What threads
    read, `by_threads`, needs no fence of the proxy.
    """
    known = (value, emitter.block, layout, by_threads)
    if (view := lowering.staged.get(known)) is not None:
        return view
    role = role_of(value.owner if isinstance(value.owner, Operation) else _parent(value.owner))
    buffer = _done_with(lowering, emitter, layout, value) if lowering.plan.sharing else None
    buffer = buffer or lowering.new_buffer(label, layout, element_type(value.type))
    view = whole_buffer(emitter, buffer)
    # The first barrier: all warps are done with what the buffer held. The second: all have written.
    emitter.put(lowering.role_barrier(role))
    store_shared(emitter, value, view)
    if not by_threads:
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
        staged, block, placed, _ = known
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
