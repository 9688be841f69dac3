"""What a producer does with a slot: TMA copies into it, or registers stored to it.

Purpose: lower `aref.put_exit` once its slot is known.
Before -> after: a tile from `tile.desc_load` becomes its share of one `hopper.expect` and a
`hopper.tma_load`; a tile of another slot, transposed, becomes `hopper.shared_transpose` and an
arrive by each warp; a computed tensor becomes `hopper.shared_store`, `hopper.proxy_fence` and an
arrive by each warp; a tile from a `tile.load` marked `contiguous` becomes `hopper.copy_async`, and
one `hopper.copy_async_arrive` follows all copies to the slot; a scalar is stored by one thread.
Requires: the slot was entered. Ensures: exactly the arrivals that `count_arrivals` counts.
Declines when: never.

Tiles put to a ring transposed: by one copy in shared memory where the hardware can.

Purpose: find what a role puts that is a tile of another slot with its dimensions exchanged.
Before -> after:
    %v = hopper.shared_load %view              hopper.shared_transpose %view, %slot_view
    %t = tile.transpose %v             ->
    aref.put_exit %slot(%t)
Requires: the source slot is still lent. Ensures: nothing of the tile passes through registers that
need a layout.
Declines when: the elements are not 8 bits wide, the order is neither the plain nor the interleaved
one, or the warps cannot share the tile: registers are stored then.

Blocks of a cluster share the loads they have in common.

Purpose: each block loads its part of a tile that all of the cluster need, and sends it to all.
Before -> after, in a cluster of 2:
    hopper.tma_load %b_map[%n, %k], %b, ..      hopper.tma_load .. {multicast = 2}, half the box
    hopper.arrive %freed[%slot]             ->  hopper.arrive %freed[%slot] {cluster = 2}
    %freed {arrivals = 2}                       %freed {arrivals = 4}
Requires: arrivals counted, all blocks of a cluster in step (the planner's licence). Ensures: a slot
is refilled only when every block has freed it, since a block writes its neighbours' slots too.
Declines when, by ring: threads read its slots (their release would need a fence of the cluster,
which costs more than the load saves); by load: its place depends on the block, or its rows do not
split. Raises `PlanError` when no load is left to share.
"""

from __future__ import annotations

from math import prod

from xdsl.dialects.builtin import IntAttr, TensorType
from xdsl.ir import Operation, SSAValue

from tawa.analysis.cluster import Neighbours
from tawa.analysis.statements import VIEWS
from tawa.errors import DescriptorError, PlanError
from tawa.ir import aref, hopper, place_of, tile
from tawa.ir.types import shape_of
from tawa.ir.walk import walk
from tawa.layouts.fragments import axes
from tawa.layouts.register import RegisterLayout
from tawa.layouts.shared import SharedLayout
from tawa.layouts.transpose import sides
from tawa.passes.lower.context import Lowering, Ring
from tawa.passes.lower.emit import Emitter, ask_launch, erase
from tawa.passes.lower.exchange import store_scalar
from tawa.passes.lower.maps import load_boxes, tensor_map
from tawa.passes.lower.relate import propose
from tawa.passes.lower.views import as_view, reshape_view, slot_view, store_shared, view_kind


def publish(
    lowering: Lowering, role: hopper.Role, exit_: aref.PutExit, ring: Ring, slot: SSAValue
) -> None:
    """Emit, before `exit_`, all that fills `slot` of `ring` with its values."""
    pairs = list(zip(ring.buffers, exit_.values, strict=True))
    copied = [(buffer, value) for buffer, value in pairs if _source(value) is not None]
    stored = [(buffer, value) for buffer, value in pairs if _source(value) is None]
    emitter = Emitter.before(exit_)
    if copied:
        _copy(lowering, emitter, ring, slot, copied)
    tensors = [pair for pair in stored if isinstance(pair[1].type, TensorType)]
    scalars = [pair for pair in stored if not isinstance(pair[1].type, TensorType)]
    if tensors:
        started = [
            _fill(emitter, at, slot_view(emitter, buffer, slot), exit_, role)
            for buffer, at in tensors
        ]
        if any(started):
            emitter.put(hopper.CopyAsyncArrive.make(ring.filled.result, slot))
        if not all(started):
            emitter.put(hopper.ProxyFence())
            emitter.put(_arrive(ring, slot, "warp"))
    if scalars:
        one = emitter.one_thread()
        for buffer, value in scalars:
            store_scalar(one, value, slot_view(one, buffer, slot), role)
        one.put(_arrive(ring, slot, "thread"))
    exit_.operands = [exit_.slot]
    for value in [value for _, value in copied] + [v for _, v in tensors if _is_copy(v)]:
        _erase_chain(value)


def by_one_thread(enter: aref.PutEnter) -> bool:
    """Tell whether one thread fills the slot: by copies, or with scalars."""
    exits = [use.operation for use in enter.slot.uses]
    return all(
        _source(value) is not None or not isinstance(value.type, TensorType)
        for exit_ in exits
        if isinstance(exit_, aref.PutExit)
        for value in exit_.values
    )


def arrivals_of_put(role: hopper.Role, ring: Ring) -> int:
    """Return how often `role` arrives at a filled barrier of `ring` for one slot."""
    kinds: dict[str, int] = {}
    for operation in walk(role):
        match operation:
            case hopper.Expect() if operation.barriers is ring.filled.result:
                kinds["expect"] = 1
            case hopper.CopyAsyncArrive() if operation.barriers is ring.filled.result:
                kinds["copies"] = 32 * role.warps.data
            case hopper.Arrive() if operation.barriers is ring.filled.result:
                by = operation.by.data
                kinds[by] = role.warps.data if by == "warp" else 1
            case _:
                continue
    return sum(kinds.values())


def _source(value: SSAValue) -> tile.DescLoad | None:
    """Return the descriptor load a value comes from, through reshapes that keep the bytes."""
    match value.owner:
        case tile.DescLoad() as load:
            return load
        case tile.Reshape() as reshape if _same_bytes(reshape):
            return _source(reshape.value)
        case _:
            return None


def _same_bytes(reshape: tile.Reshape) -> bool:
    """Tell whether a reshape only adds or drops unit dimensions."""
    before, after = shape_of(reshape.value.type), shape_of(reshape.result.type)
    return [x for x in before if x != 1] == [x for x in after if x != 1]


def _erase_chain(value: SSAValue) -> None:
    """Remove a load (and reshapes of it) that nothing else uses."""
    owner = value.owner
    loads = (tile.DescLoad, tile.Load, tile.Reshape)
    while isinstance(owner, loads) and owner.result.first_use is None:
        below = owner.value.owner if isinstance(owner, tile.Reshape) else None
        erase(owner)
        owner = below


def _is_copy(value: SSAValue) -> bool:
    """Tell whether cp.async brings a value: an earlier pass has marked its load."""
    return isinstance(value.owner, tile.Load) and "contiguous" in value.owner.attributes


def _fill(
    emitter: Emitter, value: SSAValue, view: SSAValue, exit_: aref.PutExit, role: hopper.Role
) -> bool:
    """Store a tile to its slot, or start its copies; return whether copies were started."""
    load = value.owner
    if copy := transposition(emitter, value, view, exit_, role.warps.data):
        emitter.put(copy)
        return False
    if not isinstance(load, tile.Load) or not _is_copy(value):
        store_shared(emitter, value, view)
        return False
    copy = hopper.CopyAsync.make(load.pointer, load.mask, view)
    copy.attributes["contiguous"] = load.attributes["contiguous"]
    emitter.put(copy)
    return True


def _arrive(ring: Ring, slot: SSAValue, by: str) -> hopper.Arrive:
    return hopper.Arrive.make(ring.filled.result, slot, by=by)


def _copy(
    lowering: Lowering,
    emitter: Emitter,
    ring: Ring,
    slot: SSAValue,
    copied: list[tuple[hopper.Shared, SSAValue]],
) -> None:
    """One expect with the bytes of all tiles, then their copies, by one thread."""
    one = emitter.one_thread()
    # A transaction counts the full box, its part outside the tensor included.
    total = sum(buffer.result.type.layout.data.bytes for buffer, _ in copied)
    one.put(hopper.Expect.make(ring.filled.result, slot, bytes=total))
    for buffer, value in copied:
        load = _source(value)
        assert load is not None
        view = _reshaped(one, slot_view(one, buffer, slot), shape_of(load.result.type))
        issue_copy(lowering, one, load, view, ring.filled, slot)


def issue_copy(
    lowering: Lowering,
    emitter: Emitter,
    load: tile.DescLoad,
    view: SSAValue,
    barriers: hopper.Barriers,
    slot: SSAValue,
) -> None:
    """Emit the TMA copies of `load` into `view`, completing on `barriers[slot]`."""
    kind = view_kind(view)
    check_box(lowering, load, kind.layout.data)
    map_ = tensor_map(lowering, load.desc, kind.layout.data)
    eviction = load.eviction.data if load.eviction is not None else ""
    eviction = lowering.plan.load_eviction or {"evict_first": "first", "evict_last": "last"}.get(
        eviction, ""
    )
    for offsets, part in load_boxes(emitter, map_, list(load.offsets), view):
        copy = hopper.TmaLoad.make(
            map_.result, offsets, part, barriers.result, slot, eviction=eviction or None
        )
        emitter.put(copy).location = load.location  # of several loads each has its own


def check_box(lowering: Lowering, access: Operation, layout: SharedLayout) -> None:
    """Refuse a tile whose rows TMA cannot move. Raises `DescriptorError`."""
    row = layout.shape[-1] * layout.bits // 8
    unit = lowering.target.tma_alignment
    if row % unit:
        shape = "x".join(map(str, layout.shape))
        raise DescriptorError(
            f"a {shape} block of {layout.bits}-bit elements cannot be moved by TMA.",
            place=place_of(access),
            why=f"its rows are {row} bytes, not a multiple of {unit}.",
            remedy=f"make the last extent a multiple of {unit * 8 // layout.bits}, "
            "or load through pointers.",
        )


def _reshaped(emitter: Emitter, view: SSAValue, shape: tuple[int, ...]) -> SSAValue:
    """Return the view under `shape`, which differs from its own in unit dimensions only."""
    kind = view_kind(view)
    if kind.shape == shape or prod(kind.shape) != prod(shape):
        return view
    return reshape_view(emitter, view, shape)


# --- tiles put transposed -------------------------------------------------------------------------


_RUN = 16


def transposition(
    emitter: Emitter, value: SSAValue, view: SSAValue, use: Operation, warps: int
) -> hopper.SharedTranspose | None:
    """Return the copy that fills `view` with `value` at `use`; None where none does."""
    shape = shape_of(value.type)
    if len(shape) != 2 or shape[1] % _RUN:
        return None
    # One thread that holds the tile row by row: its registers count the places in `view`.
    layout = RegisterLayout(
        shape,
        axes(
            (2, (0, 1)), (2, (0, 2)), (4, (0, 4)), (shape[1] // _RUN, (0, _RUN)), (shape[0], (1, 0))
        ),
        (),
        (),
    )
    source = value
    while isinstance(source.owner, VIEWS):
        found = as_view(emitter, source, use) if layout.shape == shape[::-1] else None
        if found is not None and (order := _order(layout)) is not None:
            return _transposed(found, view, order, warps)
        inner = source.owner.operands[0]
        back = dict(propose(source.owner, source, layout))
        if inner not in back:
            return None
        source, layout = inner, back[inner]
    found, order = as_view(emitter, source, use), _order(layout)
    if found is None or order is None:
        return None
    return _transposed(found, view, order, warps)


def _order(layout: RegisterLayout) -> bool | None:
    """Return whether rows stand interleaved; None where they stand in no order that can be had."""
    if len(layout.shape) != 2:
        return None
    rows, columns = layout.shape
    for interleaved, steps in ((False, (1, 2, 4)), (True, (1, 8, 2))):
        run = zip((2, 2, 4), steps)
        wanted = (
            *((n, (step, 0)) for n, step in run),
            (rows // _RUN, (_RUN, 0)),
            (columns, (0, 1)),
        )
        if layout.registers == axes(*wanted):
            return interleaved
    return None


def _transposed(
    source: SSAValue, view: SSAValue, interleaved: bool, warps: int
) -> hopper.SharedTranspose | None:
    have, made = view_kind(source), view_kind(view)
    if have.within != have.layout or sides(have.layout.data, made.layout.data, warps) is None:
        return None
    return hopper.SharedTranspose.make(source, view, interleaved=interleaved)


# --- loads that a cluster shares ------------------------------------------------------------------


# What TMA's destinations are aligned to. A part need not start where the swizzle's pattern does:
# that follows the address (CUDA programming guide, "Tensor memory access", swizzle modes).
_DESTINATION = 128


def share_loads(lowering: Lowering) -> None:
    """Multicast the loads whose place is the same in all blocks of the cluster."""
    kernel, blocks = lowering.kernel, lowering.plan.cluster
    if blocks == 1:
        return
    neighbours = _neighbours(lowering, blocks)
    differing = neighbours.differing
    shared = [_share_ring(lowering, ring, differing) for ring in lowering.rings.values()]
    if neighbours.assumed:
        ask_launch(kernel, "cluster_guards", neighbours.conditions(kernel))
    if not any(shared):
        raise PlanError(
            f"cluster={blocks}: no load is the same in all blocks of a cluster.",
            why="; ".join(f"{note.feature}: {note.reason}" for note in lowering.notes),
            remedy="leave cluster unset.",
        )


def _neighbours(lowering: Lowering, blocks: int) -> Neighbours:
    """Return what differs between neighbours.

    Only if nothing were shared otherwise are sizes assumed to be even; the launcher checks them.
    """
    strict = Neighbours(lowering.kernel, blocks)
    if any(_common(ring, strict.differing) for ring in lowering.rings.values()):
        return strict
    return Neighbours(lowering.kernel, blocks, assume=True)


def _common(ring: Ring, differing: set[SSAValue]) -> list[hopper.TmaLoad]:
    """Return the loads of a ring whose place is the same in all blocks of a cluster."""
    loads = [use.operation for use in ring.filled.result.uses]
    found = [op for op in loads if isinstance(op, hopper.TmaLoad)]
    return [op for op in found if not any(offset in differing for offset in op.offsets)]


def _share_ring(lowering: Lowering, ring: Ring, differing: set[SSAValue]) -> bool:
    """Share the loads of one ring; tell whether there were any."""
    blocks = lowering.plan.cluster
    arrives = [use.operation for use in ring.freed.result.uses]
    arrives = [op for op in arrives if isinstance(op, hopper.Arrive)]
    feature = f"multicast of {ring.label}"
    if any(op.by.data != "warpgroup" for op in arrives):
        lowering.note(feature, "threads read its slots")
        return False
    chosen = _common(ring, differing)
    if not chosen:
        lowering.note(feature, "its loads differ between the blocks of a cluster")
        return False
    chosen = [op for op in chosen if _splits(op, blocks)]
    if not chosen:
        reason = f"its rows do not split into {blocks} parts of a multiple of {_DESTINATION} bytes"
        lowering.note(feature, reason)
        return False
    for load in chosen:
        _multicast(lowering, load, blocks)
    for arrive in arrives:
        arrive.attributes["cluster"] = IntAttr(blocks)
    ring.freed.attributes["arrivals"] = IntAttr(ring.freed.arrivals.data * blocks)
    return True


def _rows(load: hopper.TmaLoad) -> int:
    """Return the rows a load can be split by; 0 when its leading dimensions are in the way."""
    kind = load.view.type
    if len(kind.shape) < 2 or any(extent != 1 for extent in kind.shape[:-2]):
        return 0
    return kind.shape[-2]


def _splits(load: hopper.TmaLoad, blocks: int) -> bool:
    """Tell whether every block can load the same number of rows to an aligned place."""
    kind, rows = load.view.type, _rows(load)
    layout = kind.within.data
    line = layout.panel * layout.bits // 8
    return rows > 0 and rows % blocks == 0 and rows // blocks * line % _DESTINATION == 0


def _multicast(lowering: Lowering, load: hopper.TmaLoad, blocks: int) -> None:
    kind, old = load.view.type, load.map.owner
    assert isinstance(old, hopper.TensorMap)
    layout = kind.within.data
    new = tensor_map(lowering, old.desc, layout, rows=_rows(load) // blocks)
    load.operands[0] = new.result
    load.attributes["multicast"] = IntAttr(blocks)
    if not old.result.first_use:
        erase(old)
