"""Loads, stores and atomics through pointers, and asynchronous copies from them.

Neighbouring registers move together where they are neighbours in memory, aligned to their size
and masked alike: an analysis shows it, or the operation's attribute `contiguous` says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from xdsl.dialects.builtin import IntAttr
from xdsl.ir import Operation, SSAValue

from tawa.codegen.elements import Element, element_of
from tawa.codegen.emit.emitter import Array, Emitter, Handler, Scalar, Tensor, atom, variable_type
from tawa.codegen.emit.tensors import pointee_bytes
from tawa.codegen.wrappers import arithmetic
from tawa.codegen.wrappers import memory as w
from tawa.errors import InternalError
from tawa.ir import tile
from tawa.ir.types import PtrType, element_type, is_tensor, layout_of
from tawa.layouts.convert import Digits, owns

Modes: TypeAlias = Mapping[str, Any]
"""Cache operator, eviction priority and volatility of an access, as wrappers take them."""


def _modes(op: tile.Load | tile.Store) -> Modes:
    said = {"cache": op.cache, "eviction": op.eviction}
    modes: dict[str, Any] = {name: each.data for name, each in said.items() if each is not None}
    if isinstance(op, tile.Load) and op.volatile is not None and op.volatile.value.data:
        modes["volatile"] = True
    return modes


def memory_element(pointer: SSAValue) -> Element:
    """Return the element of what a pointer points to; i1 is stored as a byte."""
    kind = element_type(pointer.type)
    if not isinstance(kind, PtrType):
        raise InternalError(f"an access through {kind}")
    return element_of(kind.element)


def run_length(e: Emitter, op: Operation, pointer: SSAValue, mask: SSAValue | None) -> int:
    """Return how many neighbouring registers are neighbours in memory and masked alike: what the
    operation's attribute says, else what the analysis finds.
    """
    match op.attributes.get("contiguous"):
        case IntAttr(data=int() as said):
            return said
        case _:
            pass
    return e.module.contiguity.width(pointer, mask, layout_of(pointer.type), pointee_bytes(pointer))


def _width(e: Emitter, op: tile.Load | tile.Store, element: Element, count: int) -> int:
    """Return how many elements one access moves: whole words, at most 16 bytes; a store also two
    bytes.
    """
    if element.bits == 1:
        return 1
    run = run_length(e, op, op.pointer, op.mask)
    least = 16 if isinstance(op, tile.Store) else 32
    return next(
        (
            width
            for width in (16, 8, 4, 2)
            if run % width == 0 and count % width == 0 and least <= width * element.bits <= 128
        ),
        1,
    )


def replica_guard(e: Emitter, value: SSAValue) -> str:
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


def all_of(*conditions: str) -> str:
    """Return the conjunction of the conditions that are not empty."""
    return " && ".join(
        atom(text) if "||" in text or "?" in text else text for text in conditions if text
    )


# --- loads --------------------------------------------------------------------------------------


def load(e: Emitter, op: tile.Load) -> None:
    """Write a load; masked-off elements take `other`, or zero."""
    element = memory_element(op.pointer)
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
        read = [value for value in (op.pointer, op.mask, op.other) if value is not None]
        equal = e.module.contiguity.equal(read, layout_of(op.pointer.type))
        if "volatile" in modes or array.count % equal:
            equal = 1
        _load_single(e, array, element, modes, pointers, mask, other, equal)
        return
    words = width // element.packed
    wrapper = w.global_load(element.word, words, **modes)
    with e.unrolled("part", array.count // width) as part:
        first = scaled(part, width)
        start = f"{array.name} + {scaled(part, words)}" if part != "0" else array.name
        with e.when("" if mask is None else mask.at(first)):
            e.do(wrapper, start, pointers.at(first))
        if mask is not None:
            with e.otherwise():
                _other_words(e, array, part, words, width, other)


def scaled(part: str, factor: int) -> str:
    """Return the number of an access times what each moves, as an atom."""
    if part == "0":
        return "0"
    return f"({part} * {factor})" if factor != 1 else part


def _other_words(
    e: Emitter, array: Array, part: str, words: int, width: int, other: Tensor | None
) -> None:
    """Write the words of one masked-off vector access."""
    packed = array.element.packed
    for word in range(words):
        index = _offset(scaled(part, words), word)
        if other is None:
            e.line(f"{array.name}[{index}] = 0;")
            continue
        base = scaled(part, width)
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
        return _widened(element, _bits(e, element, modes, address))
    return e.call(w.global_load_one(element.word, **modes), address)


def _bits(e: Emitter, element: Element, modes: Modes, address: str) -> str:
    """Return the load of one narrow element as its bits."""
    volatile = "volatile" in modes
    return e.call(w.global_load_narrow(max(8, element.bits), volatile=volatile), address)


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
    equal: int,
) -> None:
    """Write loads of one element each, one for `equal` registers that all get the same; then pack
    them where the array is packed.
    """
    direct = element.packed == 1
    # Narrow floats stay bits: to widen them here would wait for the memory.
    bits = element.is_small_float
    one = _bits if bits else _single
    name = array.name if direct else e.names.fresh("loaded")
    if not direct:
        e.line(f"{'u32' if bits else element.compute} {name}[{array.count}];")
    with e.unrolled("r", array.count // equal) as part:
        r = scaled(part, equal)
        first = f"{name}[{_offset(r, 0)}]"
        if mask is not None:
            masked = "0" if other is None else other.at(r)
            if bits and other is not None:
                masked = e.call(arithmetic.narrow(element.name), masked)
            e.line(f"{first} = {masked};")
        with e.when("" if mask is None else mask.at(r)):
            e.line(f"{first} = {one(e, element, modes, pointers.at(r))};")
        for copy in range(1, equal):
            e.line(f"{name}[{_offset(r, copy)}] = {first};")
    if not direct:
        e.fill(array, lambda r: f"{name}[{r}]", bits=bits)


def _load_scalar(e: Emitter, op: tile.Load, element: Element, modes: Modes) -> None:
    name = e.fresh(op.result, "loaded")
    e.use_accessors(element)
    other = "0" if op.other is None else e.scalar(op.other).text
    kind = variable_type(element) if element.bits >= 32 else element.compute
    e.line(f"{kind} {name}{'' if op.mask is None else f' = {other}'};")
    with e.when("" if op.mask is None else e.scalar(op.mask).text):
        e.line(f"{name} = {_single(e, element, modes, e.scalar(op.pointer).text)};")
    e.bind(op.result, Scalar(name, element))


# --- stores -------------------------------------------------------------------------------------


def store(e: Emitter, op: tile.Store) -> None:
    """Write a store where the mask is true, by one thread for each element."""
    element = memory_element(op.pointer)
    modes = _modes(op)
    guard = replica_guard(e, op.value if is_tensor(op.value) else op.pointer)
    if not is_tensor(op.pointer):
        with e.when(all_of(guard, "" if op.mask is None else e.scalar(op.mask).text)):
            _store_one(e, element, modes, e.scalar(op.pointer).text, e.scalar(op.value).text)
        return
    pointers, value = e.tensor(op.pointer), e.tensor(op.value)
    mask = None if op.mask is None else e.tensor(op.mask)
    e.use_accessors(element)
    count = pointers.count
    width = _width(e, op, element, count)
    array = e.materialized(op.value) if width > 1 else None
    with e.when(guard), e.unrolled("part", count // width) as part:
        first = scaled(part, width)
        with e.when("" if mask is None else mask.at(first)):
            if array is None:
                _store_one(e, element, modes, pointers.at(first), value.at(first))
            else:
                _store_words(e, array, modes, pointers.at(first), part, width)


def _store_words(
    e: Emitter, array: Array, modes: Modes, address: str, part: str, width: int
) -> None:
    """Write the store of one vector of words, or of half a word."""
    words = width // array.element.packed
    if not words:
        e.module.call(arithmetic.HALF)
        e.do(w.global_store_narrow(16), address, f"half_at({array.name}, {part})")
        return
    start = f"{array.name} + {scaled(part, words)}" if part != "0" else array.name
    e.do(w.global_store(array.element.word, words, **modes), address, start)


def _store_one(e: Emitter, element: Element, modes: Modes, address: str, value: str) -> None:
    """Write the store of one element given in its compute type."""
    if element.bits < 32:
        bits = max(8, element.bits)
        if element.is_small_float:
            value = e.call(arithmetic.narrow(element.name), value)
        e.do(w.global_store_narrow(bits), address, value)
        return
    e.do(w.global_store_one(element.word, **modes), address, value)


RULES: dict[type[Operation], Handler] = {tile.Load: load, tile.Store: store}
