"""Descriptor stores leave by TMA: registers to a swizzled stage, and from there to memory.

Purpose: lower each `tile.desc_store` to the epilogue that drains while the program goes on.
Before -> after:
                                    hopper.bulk_wait {read}; hopper.named_barrier    (stage is free)
    tile.desc_store %d[..], %v  ->  hopper.shared_store "stmatrix" %v, %stage
                                    hopper.proxy_fence; hopper.named_barrier     (all have written)
                                    hopper.tma_store; hopper.bulk_commit
and at the end of the role ``hopper.bulk_wait {read = false}``. With `parts` in the plan the columns
go one sub-tile after the other through smaller stages, `places` of them in turn: a part waits for
the one that had its place. The last may be narrower, and then lies there in a layout of its own. A
`stage` in the plan names a load in whose slot the tile lies while it is stored; the slot is freed
when the copy has read it.
Requires: layouts converted. Ensures: a warpgroup that owns its rows stores them by itself; else one
thread of the role stores the tile. A later load of the role sees what was stored before it.
Declines when: the columns do not make `parts` runs of whole panels (one part is used).

Descriptor loads outside rings: a one-slot buffer that the role itself fills and waits for.

Purpose: lower each `tile.desc_load` of a role that both loads and computes.
Before -> after:
    %x = tile.desc_load %d[..]      hopper.proxy_fence; hopper.named_barrier  (buffer is free)
                              ->    hopper.one_thread { hopper.expect; hopper.tma_load }
                                    hopper.wait %loaded[0], %phase; %x = hopper.shared_load
Where the plan says so (`sharing`), loads of one kind whose tiles are never needed at once fill one
buffer.
Requires: rings lowered. Ensures: the phase runs through all enclosing control flow.
Declines when: never (what TMA cannot move is expanded to pointers before).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import TypeAlias

from xdsl.dialects.builtin import IntAttr
from xdsl.ir import Attribute, Block, Operation, SSAValue

from tawa.analysis.statements import name_of, views_of
from tawa.errors import InternalError
from tawa.ir import hopper, tile
from tawa.ir.types import bit_width, element_type, layout_of, shape_of, with_shape
from tawa.ir.walk import all_of, home_of, walk
from tawa.layouts.fragments import narrowed
from tawa.layouts.register import RegisterLayout
from tawa.layouts.shared import SharedLayout, split_columns
from tawa.passes.lower.context import Lowering
from tawa.passes.lower.emit import Carrier, Emitter, State, erase, replace
from tawa.passes.lower.exchange import with_layout
from tawa.passes.lower.maps import load_boxes, tensor_map
from tawa.passes.lower.order import bulk_wait
from tawa.passes.lower.placement import choose_layout
from tawa.passes.lower.puts import check_box, issue_copy
from tawa.passes.lower.reduces import reshape
from tawa.passes.lower.relate import reshaped
from tawa.passes.lower.views import (
    load_view,
    slice_view,
    slot_view,
    store_shared,
    view_kind,
    whole_buffer,
)

_WARPGROUP = 4
_SWIZZLE_ROWS = 8  # a share must start where the swizzle pattern does


_Store: TypeAlias = tile.DescStore | tile.DescAtomic


@dataclass(frozen=True, slots=True)
class _Who:
    """Who stores: each warpgroup its rows, or one thread of the role the whole tile."""

    by: str
    shares: int

    def barrier(self, lowering: Lowering, role: hopper.Role) -> hopper.NamedBarrier:
        """Return the barrier at which those meet whose rows are stored together."""
        by_group = self.by == "warpgroup"
        return lowering.group_barrier(role) if by_group else lowering.role_barrier(role)


def lower_stores(lowering: Lowering, role: hopper.Role) -> None:
    """Replace the descriptor stores of `role`, and keep later loads in the program's order."""
    stores = all_of(role, tile.DescStore, tile.DescAtomic)
    if not stores:
        return
    whos = {store: _who(lowering, role, store) for store in stores}
    everyone = sorted(set(whos.values()), key=lambda who: who.by)
    _name_waiters(role, everyone)
    pending = {store: _left_reading(store, stores, whos) for store in stores}
    for store in stores:
        _lower_store(lowering, role, store, whos[store], pending[store])
    for who in everyone:
        Emitter.at_end(role.body.block).put(bulk_wait(who.by, read=False))


def _left_reading(store: _Store, stores: list[_Store], whos: dict[_Store, _Who]) -> int:
    """Return how many groups may still read their stages when the stage of `store` is reused.

    Each store has a stage of its own; where all stand in one block, those of the others were
    committed after it.
    """
    mine = [other for other in stores if whos[other] == whos[store]]
    one_block = all(other.parent is store.parent for other in mine)
    return len(mine) - 1 if one_block else 0


def _name_waiters(role: hopper.Role, everyone: list[_Who]) -> None:
    """Let those wait who store, where the order of the program demands it."""
    for wait in all_of(role, hopper.BulkWait):
        if wait.by.data == "all":
            for who in everyone:
                Emitter.before(wait).put(bulk_wait(who.by, read=bool(wait.read.value.data)))
            erase(wait)


def _who(lowering: Lowering, role: hopper.Role, store: _Store) -> _Who:
    """Let each warpgroup store for itself where it owns an equal run of the tile's rows.

    Not where parts of unlike widths take turns in one place: there its rows of one part lie where
    another's of the next do.
    """
    layout, warps = layout_of(store.value.type), role.warps.data
    groups = warps // _WARPGROUP
    whole = _Who("role", 1)
    parts = _columns(lowering, store, lowering.store_plan(store).parts)
    if groups > 1 and len({part.layout for part in parts}) > 1:
        return whole
    if warps % _WARPGROUP or len(layout.shape) < 2 or layout.shape[-2] % groups:
        return whole
    if any(extent != 1 for extent in layout.shape[:-2]):
        return whole
    share = layout.shape[-2] // groups
    if share % _SWIZZLE_ROWS:
        return whole
    lines = {r[-2] for r in layout.register_table}
    lines = {line + lane[-2] for line in lines for lane in layout.lane_table}
    for group in range(groups):
        warps_of = layout.warp_table[group * _WARPGROUP : (group + 1) * _WARPGROUP]
        rows = {line + warp[-2] for line in lines for warp in warps_of}
        if min(rows) < group * share or max(rows) >= (group + 1) * share:
            return whole
    return _Who("warpgroup", groups)


def _lower_store(
    lowering: Lowering, role: hopper.Role, store: _Store, who: _Who, pending: int
) -> None:
    plan = lowering.store_plan(store)
    emitter = Emitter.before(store)
    parts = _columns(lowering, store, plan.parts)
    stages = _Stages(lowering, store, min(plan.places, len(parts)))
    lent = _lent(lowering, role, store) if plan.stage else None
    reduce = store.function if isinstance(store, tile.DescAtomic) else None
    how = {"by": who.by, "eviction": plan.eviction or None, "reduce": reduce}
    under_way: int | None = None  # groups that may still read their stages, None before any wait
    for index, part in enumerate(parts):
        since = _groups_since(index, len(parts), stages.places, pending)
        if under_way is None or under_way > since:
            # Bulk groups belong to the thread that committed them: it waits, then all meet.
            if lent is None:  # a slot lent has been waited for
                emitter.put(bulk_wait(who.by, read=True, pending=since))
            emitter.put(who.barrier(lowering, role))
            under_way = since
        under_way += 1
        value = part.value(emitter)
        shape = shape_of(value.type)
        height = shape[-2] if len(shape) > 1 else 1
        view = lent.result if lent else whole_buffer(emitter, stages.of(index, shape))
        layout = view_kind(view).layout.data
        map_ = tensor_map(lowering, store.desc, layout, height // who.shares)
        store_shared(emitter, value, view)
        emitter.put(hopper.ProxyFence())
        emitter.put(who.barrier(lowering, role))
        for piece, column in _runs(emitter, view, part):
            offsets = list(store.offsets)
            if column:
                offsets[-1] = emitter.apply("add", offsets[-1], emitter.constant(column))
            boxes = [(offsets, piece)]
            if who.shares == 1:
                boxes = load_boxes(emitter, map_, offsets, piece)
            for where, box in boxes:
                emitter.put(hopper.TmaStore.make(map_.result, where, box, attributes=how))
        emitter.put(hopper.BulkCommit.make(by=who.by))
    if lent:
        _give_back(lowering, role, store, who, lent)
    erase(store)


def _lent(lowering: Lowering, role: hopper.Role, store: _Store) -> hopper.Slot:
    """Return the slot that the plan sends a store through: got in its block, freed after it."""
    stage = lowering.store_plan(store).stage
    (ring,) = (ring for ring in lowering.rings.values() if ring.label == stage)
    slots = [
        op
        for op in walk(role)
        if isinstance(op, hopper.Slot) and op.buffer is ring.buffers[0].result
    ]
    placed = choose_layout(shape_of(store.value.type), element_type(store.value.type))
    for slot in slots:
        if slot.parent is store.parent and view_kind(slot.result).layout.data == placed:
            return slot
    raise InternalError(f"{name_of(store)} finds no slot of {stage} placed as {placed}")


def _give_back(
    lowering: Lowering, role: hopper.Role, store: _Store, who: _Who, slot: hopper.Slot
) -> None:
    """Wait until the copies have read the slot, before it is freed."""
    arrive = store.next_op
    while not (isinstance(arrive, hopper.Arrive) and arrive.slot is slot.index):
        assert arrive is not None, "a slot that a store goes through is freed after it"
        arrive = arrive.next_op
    emitter = Emitter.before(arrive)
    emitter.put(bulk_wait(who.by, read=True))
    if who.shares == 1:
        # One thread has waited for the tile that all of the role have written.
        emitter.put(who.barrier(lowering, role))


def _groups_since(index: int, parts: int, places: int, others: int) -> int:
    """Return how many groups were committed after the part that last had the place of part `index`.

    Of the first `places` parts that was one of the tile before; at least `others` groups of other
    stores lie between.
    """
    if index >= places:
        return places - 1
    before = index + (parts - 1 - index) // places * places
    return parts - 1 - before + others + index


class _Stages:
    """The buffers a store's parts go through: places in turn, a buffer for each width of a part."""

    def __init__(self, lowering: Lowering, store: _Store, places: int) -> None:
        self._lowering = lowering
        self._store = store
        self.places = places
        self._made: list[dict[tuple[int, ...], hopper.Shared]] = [{} for _ in range(places)]

    def of(self, index: int, shape: tuple[int, ...]) -> hopper.Shared:
        """Return the buffer for part number `index`, of `shape`."""
        made = self._made[index % self.places]
        if shape not in made:
            element = element_type(self._store.value.type)
            layout = choose_layout(shape, element)
            label = f"{name_of(self._store)} stage"
            buffer = self._lowering.new_buffer(label, layout, element)
            buffer.result.name_hint = f"{self._store.desc.name_hint or 'store'}_stage"
            if made:
                self._lowering.over[buffer] = next(iter(made.values()))
            made[shape] = buffer
        return made[shape]


@dataclass(frozen=True, slots=True)
class _Part:
    """Columns of a stored tensor, all of them where `layout` is None. `cast` makes the tensor, if
    that can wait until a part is stored.

    Of columns that warps share out, `shares` equal runs, a part has those from `start` on of each
    run: `layout` is that of a tensor whose runs are a dimension of their own.
    """

    whole: SSAValue
    cast: tile.Cast | None = None
    start: int = 0
    layout: RegisterLayout | None = None
    shares: int = 1

    def value(self, emitter: Emitter) -> SSAValue:
        """Return the part, without moving data. Elements are converted part by part, so that no
        more than one part of them is held beside what they are made from.
        """
        if self.layout is None:
            return self.whole
        source = self.cast.value if self.cast is not None else self.whole
        apart = _in_runs(layout_of(source.type), self.shares)
        assert apart is not None, "a part was made of these runs"
        if self.shares > 1:
            source = reshape(emitter, source, apart)
        kind = with_layout(with_shape(self.layout.shape, element_type(source.type)), self.layout)
        start = IntAttr(self.start)
        columns = emitter.made(hopper.Columns, [source], kind, start=start)
        if self.shares > 1:
            columns = reshape(emitter, columns, self._flat())
        if self.cast is None:
            return columns
        kind = with_layout(
            with_shape(self._flat().shape, element_type(self.whole.type)), self._flat()
        )
        return emitter.made(tile.Cast, [columns], kind, None, **self.cast.attributes)

    def _flat(self) -> RegisterLayout:
        """Return the layout of the part with its runs side by side."""
        assert self.layout is not None
        if self.shares == 1:
            return self.layout
        *rows, shares, columns = self.layout.shape
        made = reshaped(self.layout, (*rows, shares * columns))
        assert made is not None, "runs side by side are digits of one dimension"
        return made


def _in_runs(layout: RegisterLayout, shares: int) -> RegisterLayout | None:
    """Return the layout of a tensor whose columns are `shares` runs, a dimension of their own."""
    *rows, columns = layout.shape
    return layout if shares == 1 else reshaped(layout, (*rows, shares, columns // shares))


def _runs(emitter: Emitter, view: SSAValue, part: _Part) -> Iterator[tuple[SSAValue, int]]:
    """Give what a part's stage holds of each run of columns, and the column where it begins."""
    if part.shares == 1:
        yield view, part.start
        return
    shape = view_kind(view).shape
    width, whole = shape[-1] // part.shares, shape_of(part.whole.type)[-1] // part.shares
    for share in range(part.shares):
        piece = slice_view(emitter, view, len(shape) - 1, share * width, width)
        yield piece, share * whole + part.start


def _columns(lowering: Lowering, store: _Store, parts: int) -> list[_Part]:
    """Split the stored tensor into `parts` runs of columns; into one where it cannot be."""
    value = store.value
    if parts == 1:
        return [_Part(value)]
    whole = layout_of(value.type)
    columns = whole.shape[-1]
    shares = prod(axis.extent for axis in whole.warps if axis.step[-1])
    feature = f"{parts} parts of {name_of(store)}"
    bits = max(8, bit_width(element_type(value.type)))
    widths = split_columns(columns, bits, parts, shares)
    if widths is None or len(whole.shape) < 2:
        lowering.note(feature, f"{columns} columns are not that many runs of 128 bytes")
        return [_Part(value)]
    apart = _in_runs(whole, shares)
    layouts = [apart and narrowed(apart, width) for width in widths]
    if any(layout is None for layout in layouts):
        lowering.note(feature, "columns are spread over threads")
        return [_Part(value)]
    cast = _late_cast(store)
    starts = accumulate(widths[:-1], initial=0)
    return [_Part(value, cast, start, layout, shares) for start, layout in zip(starts, layouts)]


def _late_cast(store: _Store) -> tile.Cast | None:
    """Return the conversion of a stored tensor, where its operand may as well live until then."""
    cast = store.value.owner
    if not isinstance(cast, tile.Cast) or cast.parent is not store.parent:
        return None
    alone = all(value.has_one_use() for value in (cast.value, cast.result))
    between = cast.next_op
    while between is not None and between is not store and not between.regions:
        between = between.next_op
    return cast if alone and between is store else None


# --- descriptor loads outside rings ---------------------------------------------------------------


def lower_loads(lowering: Lowering, role: hopper.Role) -> None:
    """Replace the descriptor loads of `role` by TMA copies into buffers of its own."""
    loads = all_of(role, tile.DescLoad)
    if not loads:
        return
    first = next(op for op in role.body.block.ops if not isinstance(op, hopper.SetRegisters))
    zero = Emitter.before(first).constant(0, hint="zero")
    homes = {load: load for load in loads}
    if lowering.plan.sharing:
        homes = _shared_homes(lowering, role, loads)
    made = {home: _home(lowering, home) for home in dict.fromkeys(homes.values())}
    state: State = {(home, "phase"): zero for home in made}

    def touched(operation: Operation) -> list[tuple[Operation, str]]:
        return [(homes[operation], "phase")] if isinstance(operation, tile.DescLoad) else []

    def visit(operation: Operation, state: State) -> None:
        if isinstance(operation, tile.DescLoad):
            home = homes[operation]
            _lower_load(lowering, role, operation, made[home], zero, state, (home, "phase"))

    Carrier(touched, visit, _nothing, _nothing).run(role.body.block, state)


def _nothing(_where: Operation | Block, _state: State) -> None:
    return


def _shared_homes(
    lowering: Lowering, role: hopper.Role, loads: list[tile.DescLoad]
) -> dict[Operation, tile.DescLoad]:
    """Return whose buffer each load fills: that of an earlier one of its kind that is done with."""
    order = {operation: place for place, operation in enumerate(walk(role))}
    ends: dict[tuple[SharedLayout, Attribute], dict[tile.DescLoad, int]] = {}
    found: dict[Operation, tile.DescLoad] = {}
    for load in loads:
        free = ends.setdefault(_kind(lowering, load), {})
        home = next((home for home, end in free.items() if end < order[load]), load)
        found[load] = home
        free[home] = _last_use(load, order)
    return found


def _last_use(load: tile.DescLoad, order: dict[Operation, int]) -> int:
    """Return the place of the last statement that may read a tile where it lies."""
    block = home_of(load)
    last = order[load]
    for use in (use for view in views_of(load.result) for use in view.uses):
        user = block.find_ancestor_op_in_block(use.operation)
        assert user is not None, "a value is used where its definition is seen"
        last = max(last, *(order[inner] for inner in walk(user)))
    return last


def _kind(lowering: Lowering, load: tile.DescLoad) -> tuple[SharedLayout, Attribute]:
    shape, element = shape_of(load.result.type), element_type(load.result.type)
    return lowering.placement(shape, element), element


@dataclass(frozen=True, slots=True)
class _Home:
    """Where tiles are loaded to, and the barrier that says they are there."""

    buffer: hopper.Shared
    loaded: hopper.Barriers


def _home(lowering: Lowering, load: tile.DescLoad) -> _Home:
    layout, element = _kind(lowering, load)
    name = name_of(load)
    buffer = lowering.new_buffer(name, layout, element)
    return _Home(buffer, lowering.new_barriers(f"{name} loaded", 1, "loaded"))


def _lower_load(
    lowering: Lowering,
    role: hopper.Role,
    load: tile.DescLoad,
    home: _Home,
    zero: SSAValue,
    state: State,
    key: tuple[Operation, str],
) -> None:
    layout, _ = _kind(lowering, load)
    check_box(lowering, load, layout)
    buffer, loaded = home.buffer, home.loaded
    emitter = Emitter.before(load)
    # Reads by threads come before a write by TMA only through a proxy fence of each reader.
    emitter.put(hopper.ProxyFence())
    emitter.put(lowering.role_barrier(role))
    one = emitter.one_thread()
    one.put(hopper.Expect.make(loaded.result, zero, bytes=layout.bytes))
    issue_copy(lowering, one, load, slot_view(one, buffer, zero), loaded, zero)
    phase = state[key]
    emitter.put(hopper.Wait.make(loaded.result, zero, phase))
    view = slot_view(emitter, buffer, zero)
    value = load_view(emitter, view, load.result.type, load.result.name_hint)
    state[key] = emitter.apply("xor", phase, emitter.constant(1), hint="next_phase")
    replace(load, [value])
