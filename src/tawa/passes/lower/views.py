"""Views: tensors that are tiles in shared memory, read there by instructions that can.

A tensor loaded from a view may be transposed, lose unit dimensions or count its rows by other
dimensions without moving a byte; `as_view` finds the view behind such a chain. A value that
outlives the loan of its slot is not a view any more: its registers are used.
"""

from __future__ import annotations

from xdsl.ir import Attribute, Operation, SSAValue

from tawa.errors import ShapeUnsupported
from tawa.ir import hopper, tile
from tawa.ir.types import SharedLayoutAttr, ViewType, int_array, shape_of
from tawa.ir.walk import all_of, home_of
from tawa.layouts.access import matrix_access, vector_access
from tawa.layouts.register import RegisterLayout
from tawa.layouts.shared import SharedLayout
from tawa.passes.lower.emit import Emitter


def view_kind(view: SSAValue) -> ViewType:
    """Return the type of a view."""
    kind = view.type
    assert isinstance(kind, ViewType)
    return kind


def root_slot(view: SSAValue) -> hopper.Slot:
    """Return the slot operation a view is a part of."""
    owner = view.owner
    while not isinstance(owner, hopper.Slot):
        assert isinstance(owner, (hopper.TransposeView, hopper.SliceView, hopper.ReshapeView))
        owner = owner.view.owner
    return owner


def as_view(emitter: Emitter, value: SSAValue, use: Operation) -> SSAValue | None:
    """Return the view that holds `value` and may be read at `use`, or None."""
    match value.owner:
        case hopper.SharedLoad() as load if still_lent(load, use):
            return load.view
        case tile.Transpose() as transpose:
            inner = as_view(emitter, transpose.value, use)
            return inner and transpose_view(
                emitter, inner, tuple(item.data for item in transpose.permutation)
            )
        case tile.Reshape() | tile.ExpandDims() as reshape:
            after = shape_of(reshape.result.type)
            inner = as_view(emitter, reshape.value, use)
            if inner is None or _reshaped(view_kind(inner), after) is None:
                return None
            return reshape_view(emitter, inner, after)
        case _:
            return None


def transpose_view(emitter: Emitter, view: SSAValue, permutation: tuple[int, ...]) -> SSAValue:
    """Return the view whose dimension i is dimension `permutation[i]` of `view`."""
    kind = view_kind(view)
    layout = SharedLayoutAttr(kind.layout.data.transposed(permutation))
    within = SharedLayoutAttr(kind.within.data.transposed(permutation))
    made = ViewType(kind.element, layout, within)
    return emitter.made(hopper.TransposeView, [view], made, permutation=int_array(permutation))


def still_lent(load: hopper.SharedLoad, use: Operation) -> bool:
    """Tell whether no release of the slot stands between its load and `use`.

    A release in a block that does not enclose `use` counts as one in between.
    """
    block = home_of(load)
    stop = block.find_ancestor_op_in_block(use)
    slot = root_slot(load.view)
    rewritten = {arrive.slot for arrive in _arrives(slot.index)}
    operation = load.next_op
    while operation is not None and operation is not stop:
        if slot.index in rewritten and any(
            inner.slot is slot.index for inner in all_of(operation, hopper.Arrive)
        ):
            return False
        operation = operation.next_op
    return operation is stop and stop is not None


def _arrives(index: SSAValue) -> list[hopper.Arrive]:
    return [use.operation for use in index.uses if isinstance(use.operation, hopper.Arrive)]


def whole_buffer(emitter: Emitter, buffer: hopper.Shared) -> SSAValue:
    """Return the only tile of a one-slot buffer."""
    return slot_view(emitter, buffer, emitter.constant(0))


def store_shared(emitter: Emitter, value: SSAValue, view: SSAValue) -> hopper.SharedStore:
    """Write registers to a view; `via` is settled when layouts are known."""
    return emitter.put(hopper.SharedStore.make(value, view, via="plain"))


def via_of(held: RegisterLayout, placed: SharedLayout, matrix: str) -> str:
    """Return how registers and a shared tile meet: `matrix` (ldmatrix, stmatrix) or "plain".

    Raises `ShapeUnsupported` where no access fits both layouts.
    """
    if placed.bits <= 16 and matrix_access(held, placed) is not None:
        return matrix
    if vector_access(held, placed) is not None:
        return "plain"
    raise ShapeUnsupported(
        f"no access of registers {held} to shared memory {placed}.",
        why="its panels hold no whole periods of the swizzle.",
        remedy="use block extents that are powers of two, or multiples of 64 columns.",
    )


def slot_view(emitter: Emitter, buffer: hopper.Shared, index: SSAValue) -> SSAValue:
    """Return the tile in slot `index` of a buffer."""
    kind = buffer.result.type
    layout = SharedLayoutAttr(kind.layout.data)
    made, hint = ViewType(kind.element, layout, layout), buffer.label.data.split("@")[0]
    return emitter.made(hopper.Slot, [buffer.result, index], made, hint)


def load_view(
    emitter: Emitter, view: SSAValue, kind: Attribute, hint: str | None = None
) -> SSAValue:
    """Read a view as a value of type `kind`; its layout, if it is a tensor, is chosen later."""
    return emitter.made(hopper.SharedLoad, [view], kind, hint, via="plain")


def reshape_view(emitter: Emitter, view: SSAValue, shape: tuple[int, ...]) -> SSAValue:
    """Return a view of the same bytes with another shape: unit dimensions more or less, or rows
    counted by other dimensions.
    """
    kind = view_kind(view)
    layout = _reshaped(kind, shape)
    assert layout is not None, "asked for by who knows that the bytes stay"
    new = SharedLayoutAttr(layout)
    within = new if kind.within == kind.layout else kind.within
    return emitter.made(hopper.ReshapeView, [view], ViewType(kind.element, new, within))


def _reshaped(kind: ViewType, shape: tuple[int, ...]) -> SharedLayout | None:
    """Return the placement of a view under another shape, None where bytes would have to move."""
    layout = kind.layout.data
    if [x for x in layout.shape if x != 1] == [x for x in shape if x != 1]:
        kept = [dim for dim in layout.order if layout.shape[dim] != 1]
        ranks = {dim: rank for rank, dim in enumerate(sorted(kept))}
        places = [dim for dim, extent in enumerate(shape) if extent != 1]
        units = [dim for dim, extent in enumerate(shape) if extent == 1]
        order = (*units, *(places[ranks[dim]] for dim in kept))
        return SharedLayout(shape, order, layout.bits, layout.swizzle)
    # Rows lie one after the other, whatever dimensions count them; panels are cut from the last.
    natural = layout.order == tuple(range(len(layout.order)))
    if kind.within != kind.layout or not natural or layout.shape[-1:] != shape[-1:]:
        return None
    return SharedLayout(shape, tuple(range(len(shape))), layout.bits, layout.swizzle)


def slice_view(emitter: Emitter, view: SSAValue, dim: int, start: int, extent: int) -> SSAValue:
    """Return the part of a view from `start`, `extent` long, along `dim`."""
    kind = view_kind(view)
    layout = kind.layout.data
    shape = tuple(extent if index == dim else size for index, size in enumerate(layout.shape))
    part = SharedLayout(shape, layout.order, layout.bits, layout.swizzle)
    starts = int_array([start if index == dim else 0 for index in range(len(shape))])
    made = ViewType(kind.element, SharedLayoutAttr(part), kind.within)
    return emitter.made(hopper.SliceView, [view], made, start=starts)
