"""TMA copies and bulk groups.

A tile is moved as a grid of boxes: along the contiguous dimension one a panel, along the others
whatever the tensor map's box leaves.

cp.async: each thread's asynchronous copies from pointers to a shared tile.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from itertools import product

from xdsl.dialects import scf
from xdsl.ir import SSAValue

from tawa.codegen.emit.emitter import Emitter, atom, sum_of
from tawa.codegen.emit.global_memory import run_length, scaled
from tawa.codegen.emit.tensors import pointee_bytes, thread_offsets
from tawa.codegen.wrappers import memory
from tawa.codegen.wrappers import tma as w
from tawa.codegen.wrappers.barriers import CLUSTER_RANK
from tawa.errors import InternalError
from tawa.ir import hopper
from tawa.ir.types import DescType, ViewType, layout_of
from tawa.ir.walk import all_of
from tawa.layouts.access import in_rows, linear, vector_access
from tawa.layouts.indexing import Formula, formula_of
from tawa.layouts.register import Coordinate
from tawa.layouts.shared import SharedLayout
from tawa.layouts.windows import Window


def _boxes(
    kind: ViewType, box: Coordinate, part: Coordinate
) -> tuple[list[Coordinate], SharedLayout]:
    """Return where each box of a tile's `part` starts, fastest dimension fastest.

    The view must lie in memory in the order of the descriptor's dimensions.
    """
    layout, within = kind.layout.data, kind.within.data
    if layout.order != tuple(range(len(layout.shape))):
        raise InternalError(f"a TMA copy of a transposed view {layout}")
    if len(box) != len(part) or any(size % unit for size, unit in zip(part, box)):
        raise InternalError(f"a tile of {part} in boxes of {box}")
    ranges = [range(0, size, unit) for size, unit in zip(part, box)]
    return list(product(*ranges)), within


def _tile(kind: ViewType, rank: int) -> Coordinate:
    """Return a view's shape with unit dimensions added in front up to the box's rank."""
    shape = kind.shape
    if len(shape) > rank and any(extent != 1 for extent in shape[: len(shape) - rank]):
        raise InternalError(f"a view of shape {shape} and a box of rank {rank}")
    return (1,) * (rank - len(shape)) + shape[max(0, len(shape) - rank) :]


def _share(tile: Coordinate, parts: int) -> tuple[Coordinate, int]:
    """Split a tile's rows (its first dimension that is not 1) into equal parts."""
    dim = next((d for d, extent in enumerate(tile[:-1]) if extent > 1), 0)
    if tile[dim] % parts:
        raise InternalError(f"{tile[dim]} rows in {parts} parts")
    return tuple(e // parts if d == dim else e for d, e in enumerate(tile)), dim


def _offset(within: SharedLayout, start: Coordinate) -> int:
    """Return the byte offset of a box, whose start may have more unit dimensions than the view.

    TMA is told where the box's first row lies; where in that row its first chunk lies follows from
    the address, also where the row is not the first of the swizzle's pattern.
    """
    rank = len(within.shape)
    padded = (0,) * (rank - len(start)) + start[max(0, len(start) - rank) :]
    return linear(within, padded)


def _window_of(value: SSAValue) -> Window | None:
    """Return the windows that a tensor map is of."""
    if not isinstance(value.owner, hopper.TensorMap):
        raise InternalError(f"a TMA copy through {value.owner}")
    desc = value.owner.desc.type
    return desc.window if isinstance(desc, DescType) else None


def _coordinates(
    e: Emitter, offsets: list[SSAValue], starts: list[Coordinate], share: str, dim: int, size: int
) -> list[tuple[str, Formula]]:
    """Return each dimension's coordinate, slowest first: its text and what the box adds."""
    found: list[tuple[str, Formula]] = []
    for index, offset in enumerate(offsets):
        text = e.scalar(offset).text
        text = atom(text) if " " in text and not text.isidentifier() else text
        if share and index == dim:
            text = f"{text} + {share} * {size}"
        found.append((text, formula_of([start[index] for start in starts], "boxes")))
    return found


def _first_windows(e: Emitter, op: hopper.TmaLoad, window: Window, places: list[str]) -> list[str]:
    """Return the coordinates, fastest first, of the window and channel that a box begins with, and
    the place in the window: the arguments of `.im2col`.
    """
    channel, first = places
    numbers = [atom(e.scalar(number).text) for number in op.offsets[2:]]
    taps, counts = numbers[: window.axes], numbers[window.axes :]
    found = e.windows.get((first, *counts)) or _pixels(e, window, first, counts)
    places_in = reversed(list(zip(taps, window.dilation)))
    in_window = [text if step == 1 else f"{text} * {step}" for text, step in places_in]
    return [channel, *found, *in_window]


@contextmanager
def windows_before(e: Emitter, loop: scf.ForOp) -> Generator[None]:
    """Compute, before a loop, the coordinates of the windows that it loads time and again.

    The number of a window is divided by how many an image has, which takes as long as the products
    of a small tile, and which no compiler moves past a wait that might not end.
    """
    known = dict(e.windows)
    for op in all_of(loop, hopper.TmaLoad):
        first, _, *numbers = op.offsets
        if (window := _window_of(op.map)) is None:
            continue
        counts = numbers[window.axes :]
        if all(value in e.values for value in (first, *counts)):
            start, *by = (atom(e.scalar(value).text) for value in (first, *counts))
            if (start, *by) not in e.windows:
                e.windows[start, *by] = _pixels(e, window, start, by)
    yield
    e.windows = known


def _pixels(e: Emitter, window: Window, first: str, counts: Sequence[str]) -> list[str]:
    """Write the coordinates, fastest first, of the pixel and image that a window begins with."""
    rest = e.names.fresh("window")
    e.line(f"u32 {rest} = {first};")
    found: list[str] = []
    axes = zip(counts, window.stride, window.lower)
    for count, step, before in reversed(list(axes)):
        place = f"(int)({rest} % (u32){count})"
        place = place if step == 1 else f"{place} * {step}"
        name = e.names.fresh("x")
        e.line(
            f"const int {name} = {place} + {before};" if before else f"const int {name} = {place};"
        )
        e.line(f"{rest} /= (u32){count};")
        found.append(name)
    return [*found, f"(int){rest}"]


def tma_load(e: Emitter, op: hopper.TmaLoad) -> None:
    """One thread starts the copies of all boxes of a tile, or of this block's part of it."""
    e.elected("thread")
    kind, box = op.view.type, op.map.type.box_shape
    tile = _tile(kind, len(box))
    blocks = op.multicast.data if op.multicast is not None else 1
    part, dim = _share(tile, blocks) if blocks > 1 else (tile, 0)
    starts, within = _boxes(kind, box, part)
    eviction = op.eviction.data if op.eviction is not None else ""
    window = _window_of(op.map)
    rank = len(box) if window is None else window.rank
    wrapper = w.tma_load(rank, windows=window is not None, multicast=blocks > 1, eviction=eviction)
    share = e.call(CLUSTER_RANK) if blocks > 1 else ""
    to = e.view(op.view)
    if blocks > 1:
        one = tuple(extent if d == dim else 0 for d, extent in enumerate(part))
        to += f" + {share} * {_offset(within, one)}"
    places = _coordinates(e, list(op.offsets[: len(box)]), starts, share, dim, part[dim])
    offsets = formula_of([_offset(within, start) for start in starts], "boxes")
    barrier = e.barrier(op.barriers, op.slot)
    with e.unrolled("box", len(starts)) as number:
        coordinates = [sum_of(text, each.render(number)) for text, each in reversed(places)]
        if window is not None:
            coordinates = _first_windows(e, op, window, coordinates)
        mask = [f"{(1 << blocks) - 1}"] if blocks > 1 else []
        there = sum_of(to, offsets.render(number))
        e.do(wrapper, there, e.map(op.map), barrier, *coordinates, *mask)


def tma_store(e: Emitter, op: hopper.TmaStore) -> None:
    """The elected threads start the copies of all boxes of a tile, each warpgroup of its rows."""
    kind, box = op.view.type, op.map.type.box_shape
    tile = _tile(kind, len(box))
    groups = e.role.warpgroups if op.by.data == "warpgroup" else 1
    if op.by.data == "warp":
        groups = e.role.warps
    part, dim = _share(tile, groups) if groups > 1 else (tile, 0)
    starts, within = _boxes(kind, box, part)
    wrapper = w.tma_store(
        len(box),
        eviction=op.eviction.data if op.eviction is not None else "",
        reduce=op.reduce.data if op.reduce is not None else "",
    )
    condition = e.elected(op.by.data)
    share = "" if groups == 1 else e.warp if op.by.data == "warp" else e.warpgroup
    source = e.view(op.view)
    if share:
        one = tuple(extent if d == dim else 0 for d, extent in enumerate(part))
        source += f" + {share} * {_offset(within, one)}"
    places = _coordinates(e, list(op.offsets), starts, share, dim, part[dim])
    offsets = formula_of([_offset(within, start) for start in starts], "boxes")
    with e.when(condition), e.unrolled("box", len(starts)) as number:
        coordinates = [sum_of(text, each.render(number)) for text, each in reversed(places)]
        e.do(wrapper, e.map(op.map), sum_of(source, offsets.render(number)), *coordinates)


def bulk_commit(e: Emitter, op: hopper.BulkCommit) -> None:
    """The elected threads close their group of stores."""
    with e.when(e.elected(op.by.data)):
        e.do(w.BULK_COMMIT)


def bulk_wait(e: Emitter, op: hopper.BulkWait) -> None:
    """The elected threads wait for their groups of stores."""
    wrapper = w.BULK_WAIT_READ if op.read.value.data else w.BULK_WAIT
    with e.when(e.elected(op.by.data)):
        e.do(wrapper, template=str(op.pending.data))


# --- cp.async -------------------------------------------------------------------------------------


def copy_async(e: Emitter, op: hopper.CopyAsync) -> None:
    """Write each thread's asynchronous copies; what the mask leaves out becomes zero."""
    layout, within = layout_of(op.pointer.type), op.view.type.within.data
    access = vector_access(layout, within)
    size = pointee_bytes(op.pointer)
    if access is None:
        raise InternalError(f"no copy of {layout} to {within}")
    run = min(run_length(e, op, op.pointer, op.mask), access.elements)
    width = next((n for n in (16, 8, 4) if n % size == 0 and run % (n // size) == 0), 0)
    if not width:
        raise InternalError(f"cp.async moves 4 bytes at least, the pointers run over {run * size}")
    each = width // size
    pointers = e.tensor(op.pointer)
    mask = None if op.mask is None else e.tensor(op.mask)

    def offset_of(place: tuple[int, ...]) -> int:
        return in_rows(within, place, access.pitch) if access.pitch else linear(within, place)

    column = [offset_of(place) for place in layout.register_table[::each]]
    formula = formula_of(column, "copies")
    thread = thread_offsets(e, layout, offset_of)
    place = e.names.fresh("place")
    e.line(f"const u32 {place} = {thread};")
    base = e.view(op.view)
    with e.unrolled("part", len(column)) as part:
        first = scaled(part, each)
        address = sum_of(place, formula.render(part))
        if access.pitch:
            panels = f"{access.pitch}, {access.rows}, {access.swizzle}"
            address = e.call(memory.PANELLED, address, template=panels)
        if within.swizzle:
            address = e.call(memory.SWIZZLED, address, template=str(within.swizzle - 16))
        count = str(width) if mask is None else f"{mask.at(first)} ? {width} : 0"
        e.do(w.copy_async(width), f"{base} + {address}", pointers.at(first), count)


def copies_arrive(e: Emitter, op: hopper.CopyAsyncArrive) -> None:
    """Every thread leaves its arrival to its copies."""
    e.do(w.COPY_ARRIVE, e.barrier(op.barriers, op.slot))


RULES = {
    hopper.TmaLoad: tma_load,
    hopper.TmaStore: tma_store,
    hopper.BulkCommit: bulk_commit,
    hopper.BulkWait: bulk_wait,
    hopper.CopyAsync: copy_async,
    hopper.CopyAsyncArrive: copies_arrive,
}
