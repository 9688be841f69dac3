"""Descriptor stores leave by TMA: registers to a swizzled stage, and from there to memory.

Purpose: lower each `tile.desc_store` to the epilogue that drains while the program goes on.
Before -> after:
                                    hopper.bulk_wait {read}; hopper.named_barrier    (stage is free)
    tile.desc_store %d[..], %v  ->  hopper.shared_store "stmatrix" %v, %stage
                                    hopper.proxy_fence; hopper.named_barrier     (all have written)
                                    hopper.tma_store; hopper.bulk_commit
and at the end of the role ``hopper.bulk_wait {read = false}``. With `parts` in the plan the columns
go one sub-tile after the other through a smaller stage.
Requires: layouts converted. Ensures: a warpgroup that owns its rows stores them by itself; else one
thread of the role stores the tile. A later load of the role sees what was stored before it.
Declines when: `parts` that do not divide the columns into whole panels (one part is used).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import SSAValue

from tawa.analysis.naming import name_of
from tawa.ir import hopper, tile
from tawa.ir.types import element_type, int_array, layout_of, shape_of, with_shape
from tawa.layouts.fragments import permuted
from tawa.layouts.register import RegisterLayout
from tawa.passes.lower.context import Lowering
from tawa.passes.lower.convert import with_layout
from tawa.passes.lower.emit import Emitter, erase
from tawa.passes.lower.maps import load_boxes, tensor_map
from tawa.passes.lower.order import bulk_wait
from tawa.passes.lower.placement import choose_layout
from tawa.passes.lower.relate import reshaped, split_of
from tawa.passes.lower.views import whole_buffer

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
    stores = [op for op in role.walk() if isinstance(op, (tile.DescStore, tile.DescAtomic))]
    if not stores:
        return
    whos = {store: _who(role, layout_of(store.value.type)) for store in stores}
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
    for wait in [op for op in role.walk() if isinstance(op, hopper.BulkWait)]:
        if wait.by.data == "all":
            for who in everyone:
                Emitter.before(wait).put(bulk_wait(who.by, read=bool(wait.read.value.data)))
            erase(wait)


def _who(role: hopper.Role, layout: RegisterLayout) -> _Who:
    """Let each warpgroup store for itself where it owns an equal run of the tile's rows."""
    warps = role.warps.data
    groups = warps // _WARPGROUP
    whole = _Who("role", 1)
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
    parts = _columns(lowering, emitter, store, plan.parts)
    shape = shape_of(parts[0].type)
    width, height = shape[-1], shape[-2] if len(shape) > 1 else 1
    layout = choose_layout(shape, element_type(store.value.type))
    buffer = lowering.new_buffer(f"{name_of(store)} stage", layout, element_type(store.value.type))
    buffer.result.name_hint = f"{store.desc.name_hint or 'store'}_stage"
    map_ = tensor_map(lowering, store.desc, layout, height // who.shares)
    how = {"eviction": StringAttr(plan.eviction)} if plan.eviction else {}
    if isinstance(store, tile.DescAtomic):
        how["reduce"] = store.function
    for index, value in enumerate(parts):
        # Bulk groups belong to the thread that committed them: it waits, then all meet.
        emitter.put(bulk_wait(who.by, read=True, pending=0 if index else pending))
        emitter.put(who.barrier(lowering, role))
        view = whole_buffer(emitter, buffer)
        emitter.put(
            hopper.SharedStore(
                operands=[value, view],
                attributes={"via": StringAttr("plain")},
            )
        )
        emitter.put(hopper.ProxyFence())
        emitter.put(who.barrier(lowering, role))
        offsets = list(store.offsets)
        if index:
            offsets[-1] = emitter.apply("add", offsets[-1], emitter.constant(index * width))
        pieces = [(offsets, view)] if who.shares > 1 else load_boxes(emitter, map_, offsets, view)
        for where, piece in pieces:
            emitter.put(
                hopper.TmaStore(
                    operands=[map_.result, where, piece],
                    attributes={"by": StringAttr(who.by), **how},
                )
            )
        emitter.put(hopper.BulkCommit(attributes={"by": StringAttr(who.by)}))
    erase(store)


def _columns(lowering: Lowering, emitter: Emitter, store: _Store, parts: int) -> list[SSAValue]:
    """Split the stored tensor into `parts` runs of columns, without moving data."""
    value = store.value
    width = shape_of(value.type)[-1]
    panel = choose_layout(shape_of(value.type), element_type(value.type)).panel
    if parts == 1:
        return [value]
    power_of_two = parts & (parts - 1) == 0
    if not power_of_two or width % (parts * panel) or len(shape_of(value.type)) < 2:
        lowering.note(
            f"{parts} parts of {name_of(store)}",
            f"{width} columns are not 2, 4 ... times whole panels of {panel}",
        )
        return [value]
    values = [value]
    while len(values) < parts:
        halves = [_halve(emitter, each) for each in values]
        if any(half is None for half in halves):
            lowering.note(f"{parts} parts of {name_of(store)}", "columns are spread over threads")
            return [value]
        values = [part for half in halves if half is not None for part in half]
    return values


def _halve(emitter: Emitter, value: SSAValue) -> tuple[SSAValue, SSAValue] | None:
    """Return the left and right half of the columns: reshape, transpose and split of registers."""
    *outer, columns = shape_of(value.type)
    layout = layout_of(value.type)
    element = element_type(value.type)
    folded = reshaped(layout, (*outer, 2, columns // 2))
    if folded is None:
        return None
    order = (*range(len(outer)), len(outer) + 1, len(outer))
    turned = permuted(folded, order)
    half = split_of(turned)
    if half is None:
        return None
    kind = with_layout(with_shape(folded.shape, element), folded)
    apart = emitter.put(tile.Reshape(operands=[value], result_types=[kind])).result
    kind = with_layout(with_shape(turned.shape, element), turned)
    last = emitter.put(
        tile.Transpose(
            operands=[apart],
            attributes={"permutation": int_array(order)},
            result_types=[kind],
        )
    ).result
    kind = with_layout(with_shape(half.shape, element), half)
    split = emitter.put(tile.Split(operands=[last], result_types=[kind, kind]))
    return split.first, split.second
