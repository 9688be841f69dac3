"""Rules of hopper IR's asynchronous copies: TMA and cp.async.

Asynchronous copies are recorded (and checked for races) when they start, with what their thread
knows then; their bytes move in an event that the scheduler runs at any later time.

Rules of hopper IR's tiles in shared memory: views of them, and ordinary reads and writes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from xdsl.ir import Operation

from tawa.errors import InternalError, LaunchError, ProtocolError
from tawa.ir import hopper
from tawa.layouts.transpose import INTERLEAVED, given, taken
from tawa.simulator.barriers import Mbarrier, check_made
from tawa.simulator.clocks import Clock
from tawa.simulator.decode import Binary, Decoder, Frame, Rule, Step, Wait, pure
from tawa.simulator.footprints import owners, register_owners, touch
from tawa.simulator.machine import Block
from tawa.simulator.memory import Descriptor
from tawa.simulator.role import BulkGroups, BulkStore, Role
from tawa.simulator.rules import combination, pointee
from tawa.simulator.scheduler import Blocked, Need
from tawa.simulator.shared import Access, View
from tawa.simulator.sync_rules import acting, pick
from tawa.simulator.trace import tma_time
from tawa.simulator.values import Array, gathered, place_of

# --- TMA --------------------------------------------------------------------------------------


def _check_map(operation: hopper.TmaLoad | hopper.TmaStore) -> tuple[int, ...]:
    """Return the box; raises InternalError if map and view disagree on where elements lie."""
    source, view = operation.map.type, operation.view.type
    layout, owner = view.layout.data, operation.map.owner
    if isinstance(owner, hopper.TensorMap) and owner.swizzle.data != layout.swizzle:
        raise InternalError(
            f"{operation.name}: the map swizzles by {owner.swizzle.data} bytes, the view by "
            f"{layout.swizzle}",
            place=place_of(operation),
        )
    if layout.order != tuple(range(len(layout.shape))):
        raise InternalError(
            f"{operation.name} into a transposed view ({layout})",
            place=place_of(operation),
            why="TMA writes rows as they lie in memory",
        )
    return source.box_shape


def _block_shape(
    shape: tuple[int, ...], box: tuple[int, ...], operation: Operation
) -> tuple[int, ...]:
    """Return a tile's shape with the map's rank; raises ProtocolError if boxes do not fill it."""
    small = [extent for extent in shape if extent != 1]
    full: list[int] = []
    for extent in reversed(box):
        full.insert(0, small.pop() if small and (extent != 1 or not full) else 1)
    rows_fit = all(a == b for a, b in zip(full[:-1], box[:-1]))
    if small or not rows_fit or full[-1] % box[-1] or prod(full) != prod(shape):
        raise ProtocolError(
            f"{operation.name} moves a tile of {shape} by boxes of {box}",
            place=place_of(operation),
            why="boxes lie side by side along the last dimension and agree in the others",
        )
    return tuple(full)


def _check_start(at: Sequence[int], size: int, operation: Operation) -> None:
    """Raise LaunchError where a box does not begin at a multiple of 16 bytes of its rows.

    PTX does not say so; an H200 stops with an illegal instruction.
    """
    if at[-1] * size % 16:
        raise LaunchError(
            f"{operation.name} begins at column {at[-1]} of {size} bytes each",
            place=place_of(operation),
            why="TMA takes boxes that begin at a multiple of 16 bytes along the fastest dimension",
            remedy="begin at such a column, or load through pointers",
        )


def _timed(block: Block, role: Role, count: int, name: str) -> float:
    """Account for a copy on the block's TMA unit; return when its bytes have landed."""
    busy, latency = tma_time(count)
    start = max(role.time, block.tma_time)
    block.tma_time = start + busy
    end = start + busy + latency
    block.machine.trace.add(role.label, "TMA", start, end, name, block.label)
    return start + busy + latency


def _tma_load(decoder: Decoder, operation: hopper.TmaLoad) -> Step:
    box = _check_map(operation)
    source, view, barriers, slot = decoder.numbered(
        (operation.map, operation.view, operation.barriers, operation.slot)
    )
    offsets = decoder.numbered(operation.offsets)
    parts = operation.multicast.data if operation.multicast is not None else 1

    def load(role: Role, frame: Frame) -> None:
        values, row = frame.values, role.single(operation)
        desc: Descriptor = values[source]
        tile: View = values[view]
        local = pick(values[barriers], values[slot], "barrier", operation)
        at = [int(values[offset]) for offset in offsets]
        if parts > 1:
            place, axis, first = tile.place.share(role.block.rank, parts)
            at[axis + len(box) - len(tile.place.shape)] += first
            tile = View(tile.label, tile.base, place, tile.dtype, tile.layout)
        shape = _block_shape(tile.place.shape, box, operation)
        _check_start(at[: len(box)], desc.dtype.itemsize, operation)
        clocks = role.clocks
        known = clocks.now[row].copy()
        column, clock = clocks.operation(row)
        targets = [(role.block, local)]
        if parts > 1:
            blocks = role.block.cluster.blocks[:parts]
            targets = [(b, role.remote(local, b.rank, operation)) for b in blocks]
        for block, barrier in targets:
            check_made(barrier, clocks, row, True, operation)
            access = _engine_access(role, tile, True, column, clock, operation)
            block.shared.access(access, row)
        done = clocks.release(row)
        done[column] = clock
        count = prod(shape) * desc.dtype.itemsize
        end = _timed(role.block, role, count, f"load {tile.label}")
        segment = role.memory.segment(desc.address, operation)
        watch = role.watch_engine(segment, known, column, clock)

        def land() -> None:
            data = role.memory.read_block(desc, tuple(at), shape, operation, watch)
            for block, barrier in targets:
                block.shared.write(tile, data.reshape(tile.place.shape))
                barrier.deliver(count, done, end, operation)

        role.scheduler.post(f"load of {tile.label} by {role.where}", land)

    return acting(load)


def _engine_access(
    role: Role, tile: View, write: bool, column: int, clock: int, operation: Operation
) -> Access:
    columns, clocks = np.array([column]), np.array([clock], np.int32)
    return Access(tile.spans(), write, True, columns, clocks, role.where, operation)


def _tma_store(decoder: Decoder, operation: hopper.TmaStore) -> Step:
    box = _check_map(operation)
    target, view = decoder.numbered((operation.map, operation.view))
    offsets, by = decoder.numbered(operation.offsets), operation.by.data
    reduce = operation.reduce.data if operation.reduce is not None else ""

    def store(role: Role, frame: Frame) -> None:
        values = frame.values
        whole: View = values[view]
        desc: Descriptor = values[target]
        combine = combination(reduce, desc.dtype) if reduce else None
        rows = role.elected(by, operation)
        for part, row in enumerate(rows):
            place, axis, first = whole.place.share(part, len(rows))
            tile = View(whole.label, whole.base, place, whole.dtype, whole.layout)
            at = [int(values[offset]) for offset in offsets]
            at[axis + len(at) - len(place.shape)] += first
            shape = _block_shape(place.shape, box, operation)
            _check_start(at, desc.dtype.itemsize, operation)
            _start_store(role, row, tile, desc, tuple(at), shape, combine, operation)

    return acting(store)


def _start_store(
    role: Role,
    row: int,
    tile: View,
    desc: Descriptor,
    at: tuple[int, ...],
    shape: tuple[int, ...],
    combine: Callable[[Any, Any], Any] | None,
    operation: Operation,
) -> None:
    """Start one thread's store: it reads shared memory at one time, writes global at a later."""
    clocks, scheduler = role.clocks, role.scheduler
    known = clocks.now[row].copy()
    read, written = clocks.operation(row), clocks.operation(row)
    role.block.shared.access(_engine_access(role, tile, False, *read, operation), row)
    clocks.release(row)
    flight = BulkStore(read, written)
    flight.time = _timed(role.block, role, prod(shape) * desc.dtype.itemsize, f"store {tile.label}")
    role.bulk.setdefault(row, BulkGroups()).open.append(flight)
    segment = role.memory.segment(desc.address, operation)
    watch = role.watch_engine(segment, known, *written)

    def read_shared() -> None:
        data = role.block.shared.read(tile, role.where, operation).reshape(shape)
        flight.has_read = True
        scheduler.wake(role.queue)
        scheduler.post(f"store of {tile.label} by {role.where}", lambda: write(data))

    def write(data: Array) -> None:
        role.memory.write_block(desc, at, data, operation, watch, combine, by_tma=True)
        flight.has_written = True
        scheduler.wake(role.queue)

    scheduler.post(f"store of {tile.label} by {role.where}", read_shared)


def _bulk_commit(decoder: Decoder, operation: hopper.BulkCommit) -> Step:
    by = operation.by.data

    def commit(role: Role, frame: Frame) -> None:
        for row in role.elected(by, operation):
            groups = role.bulk.setdefault(row, BulkGroups())
            groups.groups.append(groups.open)
            groups.open = []

    return acting(commit)


def _bulk_wait(decoder: Decoder, operation: hopper.BulkWait) -> Step:
    by, pending, read = operation.by.data, operation.pending.data, bool(operation.read.value.data)

    def wait(role: Role, _: Frame) -> Wait:
        due: list[tuple[int, list[BulkStore]]] = []
        for row in role.elected(by, operation):
            groups = role.bulk.setdefault(row, BulkGroups()).groups
            count = max(0, len(groups) - pending)
            due.append((row, [store for group in groups[:count] for store in group]))
            if not read:
                del groups[:count]
        flights = [store for _, stores in due for store in stores]

        def ready() -> bool:
            return all(store.has_read if read else store.has_written for store in flights)

        def need() -> Need:
            open_ = sum(not (s.has_read if read else s.has_written) for s in flights)
            return Need("TMA stores", "-", f"{open_} unfinished", "for its TMA stores")

        if not ready():
            yield Blocked(ready, role.queue, need, operation)
        for row, stores in due:
            for store in stores:
                role.clocks.learn(row, *store.read)
                if not read:
                    role.clocks.learn(row, *store.written)
        role.stall(max((store.time for store in flights), default=0.0), "wait for stores")

    return acting(wait)


# --- cp.async ---------------------------------------------------------------------------------


def _copy_async(decoder: Decoder, operation: hopper.CopyAsync) -> Step:
    pointer, view = decoder.numbered((operation.pointer, operation.view))
    mask = decoder.number(operation.mask) if operation.mask is not None else -1
    dtype = pointee(operation.pointer.type)
    held = register_owners(operation.pointer.type)

    def copy(role: Role, frame: Frame) -> None:
        values, copies = frame.values, role.copies
        tile: View = values[view]
        live = values[mask] if mask >= 0 else None
        copies.started += 1
        copies.flying.add(copies.started)
        number, addresses = copies.started, values[pointer]
        touch(role, tile, True, held, operation, kind=2, number=number)
        size = tile.place.index.size * dtype.itemsize
        copies.time = _timed(role.block, role, size, f"copy {tile.label}")
        zero = np.zeros((), dtype)

        def land() -> None:
            data = role.memory.gather(addresses, dtype, live, zero, operation, role.watch)
            role.block.shared.write(tile, data)
            copies.land(number)
            role.scheduler.wake(role.queue)

        role.scheduler.post(f"copy of {tile.label} by {role.where}", land)

    return acting(copy)


def _copy_arrive(decoder: Decoder, operation: hopper.CopyAsyncArrive) -> Step:
    barriers, slot = decoder.numbered((operation.barriers, operation.slot))

    def arrive(role: Role, frame: Frame) -> None:
        values, copies, clocks = frame.values, role.copies, role.clocks
        barrier: Mbarrier = pick(values[barriers], values[slot], "barrier", operation)
        if role.one:
            raise ProtocolError(f"{operation.name} by one thread", place=place_of(operation))
        copies.told = number = copies.started
        for row in clocks.numbers(role.rows).tolist():
            check_made(barrier, clocks, row, False, operation)
            # The arrival releases the copies, and what its thread was told; nothing else of it.
            clock = clocks.now[row].copy()
            clock[[row, row + clocks.rows]] = 0
            clock[row + 2 * clocks.rows] = number
            _when_done(role, barrier, clock, operation)

    return acting(arrive)


def _when_done(role: Role, barrier: Mbarrier, clock: Clock, operation: Operation) -> None:
    """Let the threads of a warp arrive some time after all copies started so far are done."""
    copies, time = role.copies, role.copies.time

    def arrive() -> None:
        barrier.arrive(32, clock, time, operation)

    def post() -> None:
        role.scheduler.post(f"arrival of copies by {role.where}", arrive)

    if copies.flying:
        copies.arrivals.append((copies.flying.copy(), post))
    else:
        post()


COPY_RULES: dict[type[Operation], Rule] = {
    hopper.TmaLoad: _tma_load,
    hopper.TmaStore: _tma_store,
    hopper.BulkCommit: _bulk_commit,
    hopper.BulkWait: _bulk_wait,
    hopper.CopyAsync: _copy_async,
    hopper.CopyAsyncArrive: _copy_arrive,
}
"""TMA and cp.async, by class."""


# --- views of shared memory -----------------------------------------------------------------------


def _slot(operation: hopper.Slot) -> Binary:
    return lambda views, index: pick(views, index, "slot", operation)


def _seen(key: Any, kind: Any, change: Callable[[Array], Array]) -> Callable[[View], View]:
    """Return the function that gives the bytes of a view as one of type `kind`."""

    def see(view: View) -> View:
        place = view.place.derive(key, change)
        return View(view.label, view.base, place, view.dtype, kind.layout.data)

    return see


def _transpose_view(operation: hopper.TransposeView) -> Callable[[View], View]:
    order = tuple(item.data for item in operation.permutation)
    kind = operation.result.type
    return _seen(("transpose", order), kind, lambda offsets: np.transpose(offsets, order))


def _slice_view(operation: hopper.SliceView) -> Callable[[View], View]:
    kind = operation.result.type
    start, shape = tuple(item.data for item in operation.start), kind.shape
    slices = tuple(slice(low, low + extent) for low, extent in zip(start, shape))
    return _seen(("slice", start, shape), kind, lambda offsets: offsets[slices])


def _reshape_view(operation: hopper.ReshapeView) -> Callable[[View], View]:
    kind = operation.result.type
    return _seen(("reshape", kind.shape), kind, lambda offsets: offsets.reshape(kind.shape))


def _shared_load(decoder: Decoder, operation: hopper.SharedLoad) -> Step:
    view, out = decoder.number(operation.view), decoder.number(operation.result)
    held = register_owners(operation.result.type)

    def load(role: Role, frame: Frame) -> None:
        source: View = frame.values[view]
        touch(role, source, False, held, operation)
        frame.values[out] = role.block.shared.read(source, role.where, operation)

    return acting(load)


def _shared_gather(decoder: Decoder, operation: hopper.SharedGather) -> Step:
    view, out = decoder.number(operation.view), decoder.number(operation.result)
    index, axis = decoder.reader(operation.index, operation), operation.axis.data

    def load(role: Role, frame: Frame) -> None:
        source: View = frame.values[view]
        touch(role, source, False, None, operation)
        data = role.block.shared.read(source, role.where, operation)
        frame.values[out] = gathered(data, index(frame.values), axis)

    return acting(load)


def _shared_store(decoder: Decoder, operation: hopper.SharedStore) -> Step:
    view = decoder.number(operation.view)
    value = decoder.reader(operation.value, operation)
    held = register_owners(operation.value.type)

    def store(role: Role, frame: Frame) -> None:
        target: View = frame.values[view]
        touch(role, target, True, held, operation)
        role.block.shared.write(target, value(frame.values))

    return acting(store)


def _shared_transpose(decoder: Decoder, operation: hopper.SharedTranspose) -> Step:
    source, target = decoder.number(operation.source), decoder.number(operation.view)
    kind = operation.source.type
    rows, columns = kind.shape
    runs = np.arange(rows).reshape(-1, len(INTERLEAVED))
    order = runs[:, list(INTERLEAVED) if bool(operation.interleaved) else slice(None)].ravel()

    def transpose(role: Role, frame: Frame) -> None:
        have: View = frame.values[source]
        made: View = frame.values[target]
        shared = role.block.shared
        touch(role, have, False, owners(taken((rows, columns), role.warps)), operation)
        data = shared.read(have, role.where, operation)
        touch(role, made, True, owners(given((rows, columns), role.warps)), operation)
        shared.write(made, data[order].T)

    return acting(transpose)


VIEW_RULES: dict[type[Operation], Rule] = {
    hopper.Slot: pure(_slot),
    hopper.TransposeView: pure(_transpose_view),
    hopper.SliceView: pure(_slice_view),
    hopper.ReshapeView: pure(_reshape_view),
    hopper.SharedLoad: _shared_load,
    hopper.SharedGather: _shared_gather,
    hopper.SharedStore: _shared_store,
    hopper.SharedTranspose: _shared_transpose,
}
"""Views and register traffic, by class."""
