"""Loads, stores and atomics through pointers, and asynchronous copies from them.

Neighbouring registers move together where they are neighbours in memory, aligned to their size
and masked alike: an analysis shows it, or the operation's attribute `contiguous` says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from xdsl.dialects.builtin import IntAttr
from xdsl.ir import Operation, SSAValue

from tawa.codegen.elements import Element, element_of
from tawa.codegen.emit.emitter import Emitter, Handler, variable_type
from tawa.codegen.emit.tensors import pointee_bytes, thread_offsets
from tawa.codegen.emit.values import Array, Scalar, Tensor, atom
from tawa.codegen.storage import is_tensor
from tawa.codegen.wrappers import arithmetic, tma
from tawa.codegen.wrappers import memory as w
from tawa.errors import InternalError
from tawa.ir import hopper, tile
from tawa.ir.types import PtrType, ViewType, element_type, layout_of
from tawa.layouts.access import linear, vector_access
from tawa.layouts.convert import Digits, owns
from tawa.layouts.indexing import fit

_CACHE = {".ca": "ca", ".cg": "cg", ".cs": "cs", ".cv": "cv", ".wb": "wb", ".wt": "wt"}
_EVICTION = {"evict_first": "first", "evict_last": "last", "first": "first", "last": "last"}


@dataclass(frozen=True, slots=True)
class Modes:
    """Cache operator, eviction priority and volatility of an access."""

    cache: str = ""
    eviction: str = ""
    volatile: bool = False


def _modes(op: tile.Load | tile.Store) -> Modes:
    cache = op.cache.data if op.cache is not None else ""
    eviction = op.eviction.data if op.eviction is not None else ""
    volatile = (
        isinstance(op, tile.Load) and op.volatile is not None and bool(op.volatile.value.data)
    )
    return Modes(
        _CACHE.get(cache if cache.startswith(".") else f".{cache}", ""),
        _EVICTION.get(eviction, ""),
        volatile,
    )


def _memory_element(pointer: SSAValue) -> Element:
    """Return the element of what a pointer points to; i1 is stored as a byte."""
    kind = element_type(pointer.type)
    if not isinstance(kind, PtrType):
        raise InternalError(f"an access through {kind}")
    return element_of(kind.element)


def _contiguous(e: Emitter, op: Operation, pointer: SSAValue, mask: SSAValue | None) -> int:
    """Return how many neighbouring registers are neighbours in memory and masked alike: what the
    operation's attribute says, else what the analysis finds.
    """
    match op.attributes.get("contiguous"):
        case IntAttr(data=int() as said):
            return said
        case _:
            pass
    return e.module.contiguity.width(pointer, mask, layout_of(pointer.type), pointee_bytes(pointer))


def _width(
    e: Emitter,
    op: tile.Load | tile.Store,
    element: Element,
    count: int,
) -> int:
    """Return how many elements one access moves: whole words, at most 16 bytes."""
    if element.bits == 1:
        return 1
    run = _contiguous(e, op, op.pointer, op.mask)
    return next(
        (
            width
            for width in (16, 8, 4, 2)
            if run % width == 0 and count % width == 0 and 32 <= width * element.bits <= 128
        ),
        1,
    )


def _replica_guard(e: Emitter, value: SSAValue) -> str:
    """Return the condition under which this thread owns its elements of a replicated tensor."""
    if not is_tensor(value):
        return "" if e.one_thread else f"{e.thread} == 0"
    lanes, warps = owns(layout_of(value.type))
    layout = layout_of(value.type)
    terms = [_digit(e.lane, digits) for digits in lanes]
    terms += [_digit(e.warp, digits) for digits in warps]
    covered = 1
    for axis in layout.lanes:
        covered *= axis.extent
    if covered < 32:
        terms.append(f"{e.lane} < {covered}")
    if layout.warp_count < e.role.warps:
        terms.append(f"{e.warp} < {layout.warp_count}")
    return " && ".join(terms)


def _digit(name: str, digits: Digits) -> str:
    divisor, extent = digits
    text = name if divisor == 1 else f"{name} / {divisor}"
    return f"{text} % {extent} == 0"


def _both(*conditions: str) -> str:
    return " && ".join(
        atom(text) if "||" in text or "?" in text else text for text in conditions if text
    )


# --- loads --------------------------------------------------------------------------------------


def load(e: Emitter, op: Operation) -> None:
    """Write a load; masked-off elements take `other`, or zero."""
    assert isinstance(op, tile.Load)
    element = _memory_element(op.pointer)
    modes = _modes(op)
    if not is_tensor(op.result):
        _load_scalar(e, op, element, modes)
        return
    pointers = e.tensor(op.pointer)
    mask = None if op.mask is None else e.tensor(op.mask)
    other = None if op.other is None else e.tensor(op.other)
    array = e.array(op.result)
    e.use_accessors(element)
    width = _width(e, op, element, array.count)
    if width == 1:
        _load_single(e, array, element, modes, pointers, mask, other)
        return
    words = width // element.packed
    wrapper = w.global_load(
        element.word, words, cache=modes.cache, eviction=modes.eviction, volatile=modes.volatile
    )
    with e.unrolled("part", array.count // width) as part:
        first = _scaled(part, width)
        start = f"{array.name} + {_scaled(part, words)}" if part != "0" else array.name
        with e.block("" if mask is None else f"if ({mask.at(first)})"):
            e.do(wrapper, start, pointers.at(first))
        if mask is not None:
            with e.otherwise():
                _other_words(e, array, part, words, width, other)


def _scaled(part: str, factor: int) -> str:
    if part == "0":
        return "0"
    return f"({part} * {factor})" if factor != 1 else part


def _other_words(
    e: Emitter, array: Array, part: str, words: int, width: int, other: Tensor | None
) -> None:
    """Write the words of one masked-off vector access."""
    packed = array.element.packed
    for word in range(words):
        index = _offset(_scaled(part, words), word)
        if other is None:
            e.line(f"{array.name}[{index}] = 0;")
            continue
        base = _scaled(part, width)
        items = [other.at(f"({_offset(base, word * packed + i)})") for i in range(packed)]
        e.line(f"{array.name}[{index}] = {e.pack_expression(array.element, items)};")


def _offset(base: str, more: int) -> str:
    plain = base[1:-1] if base.startswith("(") else base
    if not more:
        return plain
    return str(more) if plain == "0" else f"{plain} + {more}"


def _single(e: Emitter, element: Element, modes: Modes, address: str) -> str:
    """Return the load of one element in its compute type."""
    if element.bits < 32:
        loaded = e.call(
            w.global_load_narrow(max(8, element.bits), volatile=modes.volatile), address
        )
        return _widened(element, loaded)
    wrapper = w.global_load_one(
        element.word, cache=modes.cache, eviction=modes.eviction, volatile=modes.volatile
    )
    return e.call(wrapper, address)


def _widened(element: Element, bits: str) -> str:
    """Return the bits of a narrow element as its compute type."""
    if element.is_small_float:
        return f"{element.name}_to_float({bits})"
    return f"{bits} != 0" if element.bits == 1 else f"({element.storage}){bits}"


def _load_single(
    e: Emitter,
    array: Array,
    element: Element,
    modes: Modes,
    pointers: Tensor,
    mask: Tensor | None,
    other: Tensor | None,
) -> None:
    """Write loads of one element each, then pack them where the array is packed."""
    direct = element.packed == 1
    name = array.name if direct else e.names.fresh("loaded")
    if not direct:
        e.line(f"{element.compute} {name}[{array.count}];")
    with e.unrolled("r", array.count) as r:
        if mask is not None:
            e.line(f"{name}[{r}] = {'0' if other is None else other.at(r)};")
        with e.block("" if mask is None else f"if ({mask.at(r)})"):
            e.line(f"{name}[{r}] = {_single(e, element, modes, pointers.at(r))};")
    if not direct:
        e.fill(array, lambda r: f"{name}[{r}]")


def _load_scalar(e: Emitter, op: tile.Load, element: Element, modes: Modes) -> None:
    name = e.fresh(op.result, "loaded")
    e.use_accessors(element)
    other = "0" if op.other is None else e.scalar(op.other).text
    kind = variable_type(element) if element.bits >= 32 else element.compute
    e.line(f"{kind} {name}{'' if op.mask is None else f' = {other}'};")
    condition = "" if op.mask is None else f"if ({e.scalar(op.mask).text})"
    with e.block(condition):
        e.line(f"{name} = {_single(e, element, modes, e.scalar(op.pointer).text)};")
    e.bind(op.result, Scalar(name, element))


# --- stores -------------------------------------------------------------------------------------


def store(e: Emitter, op: Operation) -> None:
    """Write a store where the mask is true, by one thread for each element."""
    assert isinstance(op, tile.Store)
    element = _memory_element(op.pointer)
    modes = _modes(op)
    guard = _replica_guard(e, op.value if is_tensor(op.value) else op.pointer)
    if not is_tensor(op.pointer):
        mask = "" if op.mask is None else e.scalar(op.mask).text
        condition = _both(guard, mask)
        with e.block(f"if ({condition})" if condition else ""):
            _store_one(e, element, modes, e.scalar(op.pointer).text, e.scalar(op.value).text)
        return
    pointers, value = e.tensor(op.pointer), e.tensor(op.value)
    mask_tensor = None if op.mask is None else e.tensor(op.mask)
    e.use_accessors(element)
    count = pointers.count
    width = _width(e, op, element, count)
    array = e.materialized(op.value) if width > 1 else None
    with e.block(f"if ({guard})" if guard else ""), e.unrolled("part", count // width) as part:
        first = _scaled(part, width)
        condition = "" if mask_tensor is None else mask_tensor.at(first)
        with e.block(f"if ({condition})" if condition else ""):
            if array is None:
                _store_one(e, element, modes, pointers.at(first), value.at(first))
            else:
                _store_words(e, array, modes, pointers.at(first), part, width)


def _store_words(
    e: Emitter, array: Array, modes: Modes, address: str, part: str, width: int
) -> None:
    """Write the store of one vector of words."""
    words = width // array.element.packed
    start = f"{array.name} + {_scaled(part, words)}" if part != "0" else array.name
    wrapper = w.global_store(array.element.word, words, cache=modes.cache, eviction=modes.eviction)
    e.do(wrapper, address, start)


def _store_one(e: Emitter, element: Element, modes: Modes, address: str, value: str) -> None:
    """Write the store of one element given in its compute type."""
    if element.bits < 32:
        bits = max(8, element.bits)
        if element.is_small_float:
            value = e.call(arithmetic.narrow(element.name), value)
        e.do(w.global_store_narrow(bits), address, value)
        return
    e.do(
        w.global_store_one(element.word, cache=modes.cache, eviction=modes.eviction), address, value
    )


# --- atomics ------------------------------------------------------------------------------------

_At = Callable[[SSAValue, str], str]
_Call = Callable[[_At, str], str]


def _bits_of(e: Emitter, element: Element, value: str) -> str:
    """Return a value in the type atomics take: small floats as their bits."""
    return e.call(arithmetic.narrow(element.name), value) if element.is_small_float else value


def atomic(e: Emitter, op: Operation) -> None:
    """Write one read-modify-write for each element, by one thread; the old values are returned."""
    assert isinstance(op, tile.Atomic)
    element = _memory_element(op.pointer)
    wrapper = w.atomic(op.function.data, element.name, op.order.data, op.scope.data)

    def call(address: str, value: str) -> str:
        return _old(e, element, e.call(wrapper, address, _bits_of(e, element, value)))

    def each(at: _At, r: str) -> str:
        return call(at(op.pointer, r), at(op.value, r))

    _atomics(e, op.result, op.pointer, op.mask, element, each)


def compare_exchange(e: Emitter, op: Operation) -> None:
    """Write one compare-and-exchange for each element."""
    assert isinstance(op, tile.CompareExchange)
    element = _memory_element(op.pointer)
    wrapper = w.compare_exchange(element.name, op.order.data, op.scope.data)

    def call(at: _At, r: str) -> str:
        items = [_bits_of(e, element, at(value, r)) for value in (op.expected, op.value)]
        return _old(e, element, e.call(wrapper, at(op.pointer, r), *items))

    _atomics(e, op.result, op.pointer, None, element, call)


def _old(e: Emitter, element: Element, text: str) -> str:
    return e.call(arithmetic.widen(element.name), text) if element.is_small_float else text


def _atomics(
    e: Emitter,
    result: SSAValue,
    pointer: SSAValue,
    mask: SSAValue | None,
    element: Element,
    call: _Call,
) -> None:
    """Write the loop over elements; replicas must not act twice, and share what the owner got."""
    used = result.first_use is not None
    guard = _replica_guard(e, pointer)
    if is_tensor(result):
        _atomic_tensor(e, result, mask, element, call, guard, used)
        return

    def at(value: SSAValue, r: str) -> str:
        return e.scalar(value).text

    if not used:
        condition = _both(guard, "" if mask is None else e.scalar(mask).text)
        with e.block(f"if ({condition})" if condition else ""):
            e.line(f"{call(at, '0')};")
        return
    name = e.fresh(result, "old")
    if guard:
        raise InternalError("an atomic whose result all threads use must be broadcast by lowering")
    condition = _both(guard, "" if mask is None else e.scalar(mask).text)
    e.line(f"{element.compute} {name} = 0;")
    with e.block(f"if ({condition})" if condition else ""):
        e.line(f"{name} = {call(at, '0')};")
    e.bind(result, Scalar(name, element))


def _atomic_tensor(
    e: Emitter,
    result: SSAValue,
    mask: SSAValue | None,
    element: Element,
    call: _Call,
    guard: str,
    used: bool,
) -> None:
    if used and guard:
        raise InternalError("an atomic of a replicated tensor whose result is used")

    def at(value: SSAValue, r: str) -> str:
        return e.tensor(value).at(r)

    e.use_accessors(element)
    count = layout_of(result.type).register_count
    name = e.names.fresh("old")
    if used:
        e.line(f"{element.compute} {name}[{count}];")
    with e.unrolled("r", count) as r:
        if used:
            e.line(f"{name}[{r}] = 0;")
        condition = _both(guard, "" if mask is None else at(mask, r))
        with e.block(f"if ({condition})" if condition else ""):
            e.line(f"{name}[{r}] = {call(at, r)};" if used else f"{call(at, r)};")
    if used:
        e.fill(e.array(result), lambda r: f"{name}[{r}]")


# --- cp.async -----------------------------------------------------------------------------------


def copy_async(e: Emitter, op: Operation) -> None:
    """Write each thread's asynchronous copies; what the mask leaves out becomes zero."""
    assert isinstance(op, hopper.CopyAsync)
    kind = op.view.type
    if not isinstance(kind, ViewType):
        raise InternalError(f"a copy to {kind}")
    layout, within = layout_of(op.pointer.type), kind.within.data
    access = vector_access(layout, within)
    size = pointee_bytes(op.pointer)
    if access is None:
        raise InternalError(f"no copy of {layout} to {within}")
    run = min(_contiguous(e, op, op.pointer, op.mask), access.elements)
    width = next((n for n in (16, 8, 4) if n % size == 0 and run % (n // size) == 0), 0)
    if not width:
        raise InternalError(f"cp.async moves 4 bytes at least, the pointers run over {run * size}")
    each = width // size
    pointers = e.tensor(op.pointer)
    mask = None if op.mask is None else e.tensor(op.mask)
    column = [linear(within, place) for place in layout.register_table[::each]]
    formula = fit(column)
    if formula is None:
        raise InternalError(f"copies to offsets {column}")
    thread = thread_offsets(e, layout, lambda place: linear(within, place))
    place = e.names.fresh("place")
    e.line(f"const u32 {place} = {thread};")
    base = e.view(op.view)
    with e.unrolled("part", len(column)) as part:
        first = _scaled(part, each)
        offset = formula.render(part)
        address = place if offset == "0" else f"{place} + {offset}"
        if within.swizzle:
            address = e.call(w.SWIZZLED, address, template=str(within.swizzle - 16))
        count = str(width) if mask is None else f"{mask.at(first)} ? {width} : 0"
        e.do(tma.copy_async(width), f"{base} + {address}", pointers.at(first), count)


RULES: dict[type[Operation], Handler] = {
    tile.Load: load,
    tile.Store: store,
    tile.Atomic: atomic,
    tile.CompareExchange: compare_exchange,
    hopper.CopyAsync: copy_async,
}
