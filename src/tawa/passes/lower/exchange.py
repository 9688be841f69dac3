"""Exchange between threads through scratch memory: whole tensors, single words, elements by index.

Purpose: give every thread what it asks for of what other threads of its role hold.
Before -> after:
    %y = %x in another layout        hopper.named_barrier (role); hopper.shared_store %x, %scratch
                               ->    hopper.named_barrier (role); %y = hopper.shared_load %scratch
    %y = tile.gather %x, %i    ->    the same, with %y = hopper.shared_gather %scratch, %i
    %old = tile.atomic "add"         hopper.named_barrier (role)
                               ->    hopper.one_thread { %x = tile.atomic; hopper.shared_store %x }
                                     hopper.named_barrier (role); %old = hopper.shared_load
    %old = tile.atomic %tile   ->    %x = tile.atomic %tile, then as at first: only owners store it
The first barrier keeps the role's previous use of the scratch apart, the second orders the stores
before the loads. A scalar is stored and loaded as a tensor of one element that every thread of the
role holds, so that nothing after this knows of scalar memory accesses.
Requires: roles formed; of tensors, layouts. Ensures: no `tile.gather` is left; an atomic happens
once for each element, though several threads hold its result.
Declines when: never. Roles that run on one thread need none of this, nor do unused results.
"""

from __future__ import annotations

from collections.abc import Callable

from xdsl.dialects.builtin import StringAttr, TensorType, UnitAttr
from xdsl.ir import Attribute, Block, Region, SSAValue

from tawa.ir import hopper, tile
from tawa.ir.types import (
    LayoutAttr,
    PtrType,
    Tensor,
    bit_width,
    element_type,
    i1,
    is_tensor,
    layout_of,
    scalar,
    shape_of,
    with_shape,
)
from tawa.ir.walk import all_of, walk
from tawa.layouts.convert import by_memory, is_replicated
from tawa.layouts.fragments import runs_first
from tawa.layouts.register import Axis, Coordinate, RegisterLayout
from tawa.layouts.shared import SharedLayout
from tawa.passes.lower.context import Lowering
from tawa.passes.lower.emit import Emitter, replace
from tawa.passes.lower.placement import scratch_layout
from tawa.passes.lower.views import load_view, store_shared, whole_buffer


def with_layout(kind: Attribute, layout: RegisterLayout) -> TensorType[Attribute]:
    """Return a tensor type with `layout` as its encoding."""
    return TensorType(element_type(kind), list(shape_of(kind)), LayoutAttr(layout))


def same_layout(a: RegisterLayout, b: RegisterLayout) -> bool:
    """Tell whether two layouts are the same map, however written."""
    return a == b or (
        a.shape == b.shape
        and a.register_table == b.register_table
        and a.lane_table == b.lane_table
        and a.warp_table == b.warp_table
    )


def within_warps(source: RegisterLayout, wanted: RegisterLayout) -> bool:
    """Tell whether each warp already holds all that it shall hold."""
    if source.warp_count != wanted.warp_count:
        return False

    def held(layout: RegisterLayout, warp: int) -> set[Coordinate]:
        base = layout.warp_table[warp]
        lines = {tuple(map(sum, zip(base, lane))) for lane in layout.lane_table}
        return {
            tuple(x + y for x, y in zip(line, register))
            for line in lines
            for register in layout.register_table
        }

    # Layouts are sums, so what warp w lacks is what warp 0 lacks, moved by the warps' steps.
    if source.warp_table == wanted.warp_table:
        return held(wanted, 0) <= held(source, 0)
    return all(held(wanted, warp) <= held(source, warp) for warp in range(source.warp_count))


def moved(
    lowering: Lowering, role: hopper.Role, emitter: Emitter, value: SSAValue, wanted: RegisterLayout
) -> SSAValue:
    """Move a tensor to the threads that hold it in `wanted`: by shuffles, or through memory."""
    source, movable = layout_of(value.type), not isinstance(element_type(value.type), PtrType)
    if not within_warps(source, wanted) or (movable and by_memory(source, wanted)):
        return exchange(lowering, role, emitter, [value], wanted)[0]
    kind = with_layout(value.type, wanted)
    return emitter.made(hopper.ConvertLayout, [value], kind, value.name_hint)


def exchange(
    lowering: Lowering,
    role: hopper.Role,
    emitter: Emitter,
    values: list[SSAValue],
    wanted: RegisterLayout,
) -> list[SSAValue]:
    """Move tensors between a role's warps through scratch memory, under one pair of barriers."""
    carried = [as_bytes(emitter, value) for value in values]
    kinds = [element_type(value.type) for value in carried]
    layouts = [
        scratch_layout(kind, layout_of(value.type), wanted) for value, kind in zip(carried, kinds)
    ]
    carried = [_in_runs(emitter, *each) for each in zip(carried, layouts)]

    def write(views: list[SSAValue]) -> None:
        for value, view in zip(carried, views):
            store_shared(emitter, value, view)

    views = _written(lowering, role, emitter, list(zip(layouts, kinds)), write)
    loaded: list[SSAValue] = []
    for value, view, carrier in zip(values, views, carried):
        result = load_view(emitter, view, with_layout(carrier.type, wanted), value.name_hint)
        loaded.append(as_bits(emitter, result) if element_type(value.type) == i1 else result)
    return loaded


def _written(
    lowering: Lowering,
    role: hopper.Role,
    emitter: Emitter,
    tiles: list[tuple[SharedLayout, Attribute]],
    write: Callable[[list[SSAValue]], None],
) -> list[SSAValue]:
    """Return views of scratch buffers that `write` has filled, from where all threads may read."""
    buffers = scratch(lowering, role, tiles)
    emitter.put(lowering.role_barrier(role))
    views = [whole_buffer(emitter, buffer) for buffer in buffers]
    write(views)
    emitter.put(lowering.role_barrier(role))
    return views


def _in_runs(emitter: Emitter, value: SSAValue, within: SharedLayout) -> SSAValue:
    """Name a tensor's registers so that those come first that are neighbours in memory."""
    kind = with_layout(value.type, runs_first(layout_of(value.type), within.order[-1]))
    return value if kind == value.type else emitter.made(hopper.ConvertLayout, [value], kind)


def scratch(
    lowering: Lowering, role: hopper.Role, tiles: list[tuple[SharedLayout, Attribute]]
) -> list[hopper.Shared]:
    """Declare buffers in the role's scratch memory that are in use together."""
    label = f"scratch of {role.label.data}"
    buffers = [lowering.new_buffer(label, layout, element) for layout, element in tiles]
    lowering.scratch.setdefault(role, []).append(buffers)
    return buffers


def as_bytes(emitter: Emitter, value: SSAValue) -> SSAValue:
    """Return truth values as bytes, which is what memory holds; anything else as it is."""
    if element_type(value.type) != i1:
        return value
    wide = with_layout(with_shape(shape_of(value.type), scalar("i8")), layout_of(value.type))
    return emitter.made(tile.Cast, [value], wide)


def as_bits(emitter: Emitter, value: SSAValue) -> SSAValue:
    """Return bytes as the truth values that they stand for."""
    bits = with_layout(with_shape(shape_of(value.type), i1), layout_of(value.type))
    ne, zero = StringAttr("ne"), emitter.constant(0, value.type)
    return emitter.made(tile.Elementwise, [[value, zero]], bits, function=ne)


# --- scalars --------------------------------------------------------------------------------------


def stored_as(kind: Attribute) -> Attribute:
    """Return the element type a scalar has in memory: a truth value takes a byte."""
    return scalar("u8") if kind == i1 else kind


def word_layout(kind: Attribute) -> SharedLayout:
    """Return the placement of one scalar."""
    return SharedLayout((1,), (0,), bit_width(stored_as(kind)), 0)


def _one(kind: Attribute, warps: int) -> Tensor:
    """Return the type of a tensor of one element that all threads hold."""
    lanes, over = (Axis(32, (0,)),), (Axis(warps, (0,)),) if warps > 1 else ()
    return Tensor(kind, [1], LayoutAttr(RegisterLayout((1,), (), lanes, over)))


def store_scalar(emitter: Emitter, value: SSAValue, view: SSAValue, role: hopper.Role) -> None:
    """Write a scalar to a view of one element; for one thread."""
    value = emitter.cast(value, stored_as(value.type))
    held = emitter.made(tile.Splat, [value], _one(value.type, role.warps.data))
    store_shared(emitter, held, view)


def load_scalar(
    emitter: Emitter, view: SSAValue, kind: Attribute, role: hopper.Role, hint: str | None = None
) -> SSAValue:
    """Read a scalar of type `kind` from a view of one element, by every thread."""
    element = stored_as(kind)
    loaded = load_view(emitter, view, _one(element, role.warps.data))
    # One element reduced is that element: the way from a tensor to a scalar.
    body = Block(arg_types=[element, element])
    body.add_op(tile.Yield.make([body.args[0]]))
    (taken,) = emitter.reduce([loaded], 0, Region(body))
    taken.name_hint = hint
    if kind != i1:
        return taken
    return emitter.apply("ne", taken, emitter.constant(0, element), hint=hint)


# --- gathers --------------------------------------------------------------------------------------


def expand_gathers(lowering: Lowering, role: hopper.Role) -> None:
    """Let the gathers of `role` read what all threads have written to scratch memory."""
    for gather in all_of(role.body, tile.Gather):
        emitter = Emitter.before(gather)
        value = as_bytes(emitter, gather.value)
        kind, shape = element_type(value.type), shape_of(value.type)
        # Rows one after the other: an element's address is a sum of its coordinates' steps.
        layout = SharedLayout(shape, tuple(range(len(shape))), bit_width(kind), 0)

        def write(views: list[SSAValue], value: SSAValue = value, to: Emitter = emitter) -> None:
            store_shared(to, value, views[0])

        (view,) = _written(lowering, role, emitter, [(layout, kind)], write)
        result = gather.result.type
        made = with_layout(with_shape(shape_of(result), kind), layout_of(result))
        taken = emitter.made(hopper.SharedGather, [view, gather.index], made, axis=gather.axis)
        taken.name_hint = gather.result.name_hint
        replace(gather, [as_bits(emitter, taken) if value is not gather.value else taken])


# --- atomics --------------------------------------------------------------------------------------


def broadcast_atomics(lowering: Lowering, role: hopper.Role) -> None:
    """Let one thread of `role` perform each scalar atomic whose result is used."""
    if role in lowering.single:
        return
    for operation in walk(role.body):
        if not isinstance(operation, (tile.Atomic, tile.CompareExchange, hopper.NextProgram)):
            continue
        if not is_tensor(operation.result) and operation.result.first_use is not None:
            _broadcast(lowering, role, operation)


def share_atomics(lowering: Lowering, role: hopper.Role) -> None:
    """Tell all who hold an element of a tile what its owner got for it."""
    for atomic in walk(role.body):
        if not isinstance(atomic, (tile.Atomic, tile.CompareExchange)):
            continue
        result = atomic.result
        if not is_tensor(result) or result.first_use is None:
            continue
        layout = layout_of(result.type)
        if is_replicated(layout, role.warps.data):
            following = atomic.next_op
            assert following is not None, "a result that is used is not the last"
            uses = list(result.uses)
            (shared,) = exchange(lowering, role, Emitter.before(following), [result], layout)
            for use in result.uses:
                if isinstance(use.operation, hopper.SharedStore):
                    use.operation.owners = UnitAttr()
            for use in uses:
                use.operation.operands[use.index] = shared


def _broadcast(
    lowering: Lowering,
    role: hopper.Role,
    atomic: tile.Atomic | tile.CompareExchange | hopper.NextProgram,
) -> None:
    kind, emitter = atomic.result.type, Emitter.before(atomic)

    def write(views: list[SSAValue]) -> None:
        one = emitter.one_thread()
        store_scalar(one, one.put(atomic.clone()).result, views[0], role)

    word = [(word_layout(kind), stored_as(kind))]
    (view,) = _written(lowering, role, emitter, word, write)
    replace(atomic, [load_scalar(emitter, view, kind, role)])
