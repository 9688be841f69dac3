"""Shared memory: slots and views as addresses, and moves between registers and tiles.

Elements by number: gathered from shared memory, or counted by the votes of a warp.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from xdsl.ir import SSAValue

from tawa.codegen.elements import element_of
from tawa.codegen.emit.emitter import Array, Emitter, View, atom, slot_address, sum_of
from tawa.codegen.emit.global_memory import replica_guard
from tawa.codegen.emit.tensors import thread_offsets
from tawa.codegen.wrappers import arithmetic
from tawa.codegen.wrappers import memory as w
from tawa.errors import InternalError
from tawa.ir import hopper, tile
from tawa.ir.types import ViewType, element_type, layout_of
from tawa.layouts.access import Access, matrix_access, vector_access
from tawa.layouts.indexing import fit, formula_of
from tawa.layouts.register import RegisterLayout
from tawa.layouts.shared import SharedLayout
from tawa.layouts.transpose import Side, sides


def slot(e: Emitter, op: hopper.Slot) -> None:
    """Name the address of a tile of a ring."""
    buffer = e.buffer(op.buffer)
    _name(e, op.result, slot_address(buffer.at, e.scalar(op.index).text, buffer.slot_bytes))


def _name(e: Emitter, result: SSAValue, address: str) -> None:
    name = e.fresh(result, "tile")
    e.line(f"const u32 {name} = {address};")
    e.bind(result, View(name))


def same_bytes(e: Emitter, op: hopper.TransposeView | hopper.ReshapeView) -> None:
    """A transposed or reshaped view: the same address, read by another layout."""
    e.bind(op.result, View(e.view(op.view)))


def slice_view(e: Emitter, op: hopper.SliceView) -> None:
    """A part of a view: an offset. It must not cut a period of the swizzle."""
    within = op.view.type.within.data
    start = tuple(item.data for item in op.start)
    offset = within.offset(start)
    if within.swizzle and offset % (8 * within.swizzle):
        raise InternalError(f"a slice at {start} cuts the swizzle of {within}")
    if offset == 0:
        e.bind(op.result, View(e.view(op.view)))
        return
    _name(e, op.result, f"{e.view(op.view)} + {offset}")


def _access(via: str, value: SSAValue, view: SSAValue) -> Access:
    """Return the accesses of a move; `via` "plain" or a matrix instruction."""
    kind = view.type
    if not isinstance(kind, ViewType):
        raise InternalError(f"a shared access to {kind}")
    layout, within = layout_of(value.type), kind.within.data
    found = vector_access(layout, within) if via == "plain" else matrix_access(layout, within)
    if found is None:
        raise InternalError(f"no {via} access of {layout} to {within}")
    return found


def _formula(values: tuple[int, ...], variable: str) -> str:
    return formula_of(values, "offsets").render(variable)


def place_of(e: Emitter, access: Access, base: str) -> Callable[[str], str]:
    """Name the thread's part of the addresses of a move; return the address by access."""
    lanes = _formula(access.lanes, e.lane) if any(access.lanes) else "0"
    warps = _formula(access.warps, e.warp) if any(access.warps) else "0"
    thread = sum_of(lanes, warps)
    place = e.names.fresh("place")
    mask = str(access.chunk_mask)
    if access.commutes and access.chunk_mask:
        swizzled = e.call(w.SWIZZLED, thread, template=mask)
        e.line(f"const u32 {place} = {base} + {swizzled};")
    else:
        e.line(f"const u32 {place} = {thread if access.chunk_mask else sum_of(base, thread)};")

    def address(part: str) -> str:
        if not access.chunk_mask:
            return sum_of(place, _formula(access.accesses, part))
        if access.commutes:
            if (found := fit(access.chunks())) is not None:
                chunk = found.render(part)
            else:
                moved = e.call(w.SWIZZLED, _formula(access.accesses, part), template=mask)
                chunk = f"{moved} & {mask}"
            inside = place if chunk == "0" else f"({place} ^ ({chunk}))"
            return sum_of(inside, _formula(access.rests(), part))
        offset = sum_of(place, _formula(access.accesses, part))
        if access.pitch:
            panels = f"{access.pitch}, {access.rows}, {access.swizzle}"
            offset = e.call(w.PANELLED, offset, template=panels)
        return f"{base} + {e.call(w.SWIZZLED, offset, template=mask)}"

    return address


@contextmanager
def _addresses(e: Emitter, access: Access, base: str) -> Generator[tuple[str, str]]:
    """Write the loop over accesses; gives its variable and the address expression."""
    address = place_of(e, access, base)
    with e.unrolled("part", len(access.accesses)) as part:
        yield part, address(part)


def _word(name: str, part: str, words: int, index: int) -> str:
    if part == "0":
        return f"{name}[{index}]"
    scaled = part if words == 1 else f"{part} * {words}"
    return f"{name}[{scaled}]" if index == 0 else f"{name}[{scaled} + {index}]"


def _start(name: str, part: str, words: int) -> str:
    if part == "0":
        return name
    return f"{name} + {part}" if words == 1 else f"{name} + {part} * {words}"


def store(e: Emitter, op: hopper.SharedStore) -> None:
    """Write a register tile to a shared one."""
    access = _access(op.via.data, op.value, op.view)
    array = e.materialized(op.value)
    _check_type(array, op.view)
    base = e.view(op.view)
    packed = array.element.packed
    words = max(1, access.elements // packed)
    guard = replica_guard(e, op.value) if op.owners else ""
    with e.when(guard), _addresses(e, access, base) as (part, address):
        if access.matrices:
            items = [_word(array.name, part, words, index) for index in range(words)]
            e.do(w.stmatrix(access.matrices, transposed=access.transposed), address, *items)
        elif access.elements < packed:
            e.do(w.shared_store_narrow(array.element.bits), address, _narrow(e, array, part))
        else:
            e.do(
                w.shared_store(array.element.word, words), address, _start(array.name, part, words)
            )


def _narrow(e: Emitter, array: Array, part: str) -> str:
    e.use_accessors(array.element)
    accessor = "half_at" if array.element.bits == 16 else "byte_at"
    return f"{accessor}({array.name}, {part})"


def _check_type(array: Array, view: SSAValue) -> None:
    kind = view.type
    if isinstance(kind, ViewType) and element_of(kind.element) != array.element:
        raise InternalError(f"a shared access of {array.element.name} to {kind.element}")


def load(e: Emitter, op: hopper.SharedLoad) -> None:
    """Read a shared tile into registers."""
    access = _access(op.via.data, op.result, op.view)
    array = e.array(op.result)
    _check_type(array, op.view)
    clear(e, access, array)
    with _addresses(e, access, e.view(op.view)) as (part, address):
        move(e, access, array, part, address)


def clear(e: Emitter, access: Access, array: Array) -> None:
    """Set an array to zero where the accesses that fill it bring less than a word."""
    if not access.matrices and access.elements < array.element.packed:
        with e.unrolled("r", array.words) as r:
            e.line(f"{array.name}[{r}] = 0;")


def move(e: Emitter, access: Access, array: Array, part: str, address: str) -> None:
    """Read what one access brings, the `part`-th of an array that was cleared before."""
    element = array.element
    words = max(1, access.elements // element.packed)
    if access.matrices:
        items = [_word(array.name, part, words, index) for index in range(words)]
        e.do(w.ldmatrix(access.matrices, transposed=access.transposed), address, *items)
    elif access.elements >= element.packed:
        e.do(w.shared_load(element.word, words), _start(array.name, part, words), address)
    else:
        value = e.call(w.shared_load_narrow(element.bits), address)
        if part == "0":
            e.line(f"{array.name}[0] = {value};")
            return
        shift = f"{part} % {element.packed} * {element.bits}"
        e.line(f"{array.name}[{part} / {element.packed}] |= {value} << ({shift});")


# --- transposition in shared memory ---------------------------------------------------------------


def transpose(e: Emitter, op: hopper.SharedTranspose) -> None:
    """Each warp moves its blocks of a tile from one view to the other."""
    found = sides(_layout(op.source), _layout(op.view), e.role.warps)
    if found is None:
        raise InternalError(f"no transposition of {op.source.type} to {op.view.type}")
    source, target = found
    interleaved = bool(op.interleaved)
    row = e.lane if interleaved else e.call(w.TAKEN_ROW, e.lane)
    taken = _place(e, source, e.view(op.source), "taken", row, "")
    given = _place(e, target, e.view(op.view), "given", e.call(w.GIVEN_ROW, e.lane), e.lane)
    first, second = e.names.fresh("first"), e.names.fresh("second")
    swaps = "false" if interleaved else "true"
    e.line(f"const u32 {first} = {e.call(w.BYTE_SELECTOR, e.lane, template=swaps)};")
    e.line(f"const u32 {second} = {first} ^ 0x1111u;")
    with e.unrolled("part", len(source.blocks)) as part, e.scope():
        words = [e.names.fresh("word") for _ in range(4)]
        e.line(f"u32 {', '.join(words)};")
        e.do(w.ldmatrix(4, transposed=True), _address(source, taken, part), *words)
        made = [
            e.call(w.PERMUTE_BYTES, low, high, which)
            for low, high in (words[:2], words[2:])
            for which in (first, second)
        ]
        e.do(w.stmatrix(4), _address(target, given, part), *made)


def _layout(view: SSAValue) -> SharedLayout:
    kind = view.type
    if not isinstance(kind, ViewType) or kind.within != kind.layout:
        raise InternalError(f"a transposition of {kind}, which is no whole tile")
    return kind.layout.data


def _place(e: Emitter, side: Side, base: str, name: str, row: str, lane: str) -> str:
    """Name the address of this thread's row in its warp's first block.

    `lane` is given where lanes from 16 on take the second 16 bytes of a row.
    """
    second = f"{lane} / 16 * 16" if lane else "0"
    offset = sum_of(f"{row} * {side.row_bytes}", second, _formula(side.warps, e.warp))
    if side.chunk_mask:
        offset = e.call(w.SWIZZLED, offset, template=str(side.chunk_mask))
    named = e.names.fresh(name)
    e.line(f"const u32 {named} = {base} + {offset};")
    return named


def _address(side: Side, place: str, part: str) -> str:
    """Return where a block begins: chunk bits are exclusive-ored, the rest is added."""
    chunk = _formula(tuple(block & side.chunk_mask for block in side.blocks), part)
    rest = _formula(tuple(block & ~side.chunk_mask for block in side.blocks), part)
    return sum_of(place if chunk == "0" else f"({place} ^ ({chunk}))", rest)


# --- elements by number ---------------------------------------------------------------------------


_LANES = 32


def gather(e: Emitter, op: hopper.SharedGather) -> None:
    """Write the loads of a gather, an element each."""
    kind = op.view.type
    if kind.within.data.swizzle:
        raise InternalError(f"a gather from {kind}")
    within, axis, layout = kind.within.data, op.axis.data, layout_of(op.result.type)
    extent = within.shape[axis]

    def step(dim: int) -> int:
        return within.offset(tuple(int(d == dim) for d in range(len(within.shape))))

    def place(where: tuple[int, ...]) -> int:
        return sum(at * step(dim) for dim, at in enumerate(where) if dim != axis)

    registers = formula_of([place(where) for where in layout.register_table], "registers")
    base = thread_offsets(e, layout, place)
    index = e.tensor(op.index)
    e.use_accessors(index.element)
    array, element = e.array(op.result), element_of(element_type(op.result.type))
    start = e.names.fresh("place")
    e.line(f"const u32 {start} = {e.view(op.view)} + {base};")
    narrow = element.bits < 32
    load = w.shared_load_narrow(max(8, element.bits)) if narrow else w.shared_load_one(element.word)

    def at(register: str) -> str:
        chosen = f"((u32){atom(index.at(register))} & {extent - 1}u) * {step(axis)}u"
        return e.call(load, sum_of(start, registers.render(register), chosen))

    e.fill(array, at, bits=narrow)


def histogram(e: Emitter, op: tile.Histogram) -> None:
    """Write the counts of one row, which a warp holds: 32 elements at a time."""
    layout, target = layout_of(op.value.type), layout_of(op.result.type)
    axis, bins = len(layout.shape) - 1, target.shape[-1]
    lanes = _distinct_lanes(layout, axis)
    _check_counts(target, axis)
    value = e.tensor(op.value)
    mask = None if op.mask is None else e.tensor(op.mask)
    for tensor in (value, *([] if mask is None else [mask])):
        e.use_accessors(tensor.element)
    counts = e.array(op.result)
    with e.unrolled("r", counts.count) as r:
        e.line(f"{counts.name}[{r}] = 0;")
    counted = e.names.fresh("counted")
    with e.unrolled("r", layout.register_count) as r:
        e.line(f"const int {counted} = {value.at(r)};")
        live = [f"(u32){counted} < {bins}u"]
        live += [] if mask is None else [atom(mask.at(r))]
        live += [] if lanes == _LANES else [f"{e.lane} < {lanes}"]
        given = counts.name, counted, " && ".join(live), e.lane
        e.do(arithmetic.COUNT_BINS, *given, template=str(bins))


def _distinct_lanes(layout: RegisterLayout, axis: int) -> int:
    """Return how many lanes hold elements of their own, the first ones; the others repeat them."""
    places = [place[axis] for place in layout.lane_table]
    lanes = len(set(places))
    held = {
        tuple(map(sum, zip(lane, register)))
        for lane in layout.lane_table
        for register in layout.register_table
    }
    once = len(held) == lanes * layout.register_count == layout.shape[axis]
    if not once or len(set(places[:lanes])) != lanes:
        raise InternalError(f"a row to be counted does not lie in one warp: {layout}")
    return lanes


def _check_counts(layout: RegisterLayout, axis: int) -> None:
    lanes = min(_LANES, layout.shape[axis])
    natural = [lane % lanes for lane in range(_LANES)]
    rounds = [_LANES * register for register in range(layout.register_count)]
    lies = [place[axis] for place in layout.lane_table], [p[axis] for p in layout.register_table]
    if lies != (natural, rounds):
        raise InternalError(f"counts lie otherwise than one a lane: {layout}")


RULES = {
    hopper.Slot: slot,
    hopper.TransposeView: same_bytes,
    hopper.ReshapeView: same_bytes,
    hopper.SliceView: slice_view,
    hopper.SharedStore: store,
    hopper.SharedLoad: load,
    hopper.SharedTranspose: transpose,
    hopper.SharedGather: gather,
    tile.Histogram: histogram,
}
