"""Read-modify-write of memory: one for each element, by the one thread that owns it.

Where an order is asked for, a tile's elements are changed relaxed between two fences: one a thread
instead of one an element. Sums whose old values nobody uses go in vectors of neighbours.
"""

from __future__ import annotations

from collections.abc import Callable

from xdsl.ir import Operation, SSAValue

from tawa.codegen.elements import Element
from tawa.codegen.emit.emitter import Emitter, Handler, Scalar
from tawa.codegen.emit.global_memory import (
    all_of,
    memory_element,
    replica_guard,
    run_length,
    scaled,
)
from tawa.codegen.wrappers import arithmetic, memory
from tawa.codegen.wrappers import memory as w
from tawa.errors import InternalError
from tawa.ir import tile
from tawa.ir.types import is_tensor, layout_of

_At = Callable[[SSAValue, str], str]
_Call = Callable[[_At, str], str]


def _bits_of(e: Emitter, element: Element, value: str) -> str:
    """Return a value in the type atomics take: small floats as their bits."""
    return e.call(arithmetic.narrow(element.name), value) if element.is_small_float else value


def atomic(e: Emitter, op: tile.Atomic) -> None:
    """Write one read-modify-write for each element, by one thread; the old values are returned."""
    element = memory_element(op.pointer)
    order, fence = op.order.data, memory.fence(op.scope.data)
    words = _reduced_words(e, op, element)
    fenced = words or (is_tensor(op.result) and layout_of(op.result.type).register_count > 1)
    if fenced and order in ("release", "acq_rel"):
        e.do(fence)
    if words:
        _reduce(e, op, element, words)
    else:
        _each(e, op, element, "relaxed" if fenced else order)
    if fenced and order in ("acquire", "acq_rel"):
        e.do(fence)


def _each(e: Emitter, op: tile.Atomic, element: Element, order: str) -> None:
    """Write one instruction for each element."""
    wrapper = w.atomic(op.function.data, element.name, order, op.scope.data)

    def call(address: str, value: str) -> str:
        return _old(e, element, e.call(wrapper, address, _bits_of(e, element, value)))

    def each(at: _At, r: str) -> str:
        return call(at(op.pointer, r), at(op.value, r))

    _atomics(e, op.result, op.pointer, op.mask, element, each)


def _reduced_words(e: Emitter, op: tile.Atomic, element: Element) -> int:
    """Return how many words one instruction may add to memory; 0 where elements go one by one."""
    if op.function.data != "add" or element.name not in memory.REDUCED:
        return 0
    if not is_tensor(op.result) or op.result.first_use is not None:
        return 0
    run = run_length(e, op, op.pointer, op.mask)
    count = layout_of(op.result.type).register_count
    for words in (4, 2, 1):
        elements = words * element.packed
        if run % elements == 0 and count % elements == 0:
            return words
    return 0


def _reduce(e: Emitter, op: tile.Atomic, element: Element, words: int) -> None:
    """Write the additions of a tile whose old elements nobody uses, `words` at a time."""
    guard = replica_guard(e, op.pointer)
    pointers, array = e.tensor(op.pointer), e.materialized(op.value)
    mask = None if op.mask is None else e.tensor(op.mask)
    wrapper = memory.reduction(element.name, words, op.scope.data)
    width = words * element.packed
    count = layout_of(op.result.type).register_count
    with e.when(guard), e.unrolled("part", count // width) as part:
        first = scaled(part, width)
        start = f"{array.name} + {scaled(part, words)}" if part != "0" else array.name
        with e.when("" if mask is None else mask.at(first)):
            e.do(wrapper, pointers.at(first), start)


def compare_exchange(e: Emitter, op: tile.CompareExchange) -> None:
    """Write one compare-and-exchange for each element."""
    element = memory_element(op.pointer)
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
    """Write the loop over elements; replicas do not act twice: what the owner got, it alone has."""
    used = result.first_use is not None
    guard = replica_guard(e, pointer)
    if is_tensor(result):
        _atomic_tensor(e, result, mask, element, call, guard, used)
        return

    def at(value: SSAValue, r: str) -> str:
        return e.scalar(value).text

    if not used:
        with e.when(all_of(guard, "" if mask is None else e.scalar(mask).text)):
            e.line(f"{call(at, '0')};")
        return
    name = e.fresh(result, "old")
    if guard:
        raise InternalError("an atomic whose result all threads use must be broadcast by lowering")
    e.line(f"{element.compute} {name} = 0;")
    with e.when("" if mask is None else e.scalar(mask).text):
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
        with e.when(all_of(guard, "" if mask is None else at(mask, r))):
            e.line(f"{name}[{r}] = {call(at, r)};" if used else f"{call(at, r)};")
    if used:
        e.fill(e.array(result), lambda r: f"{name}[{r}]")


RULES: dict[type[Operation], Handler] = {
    tile.Atomic: atomic,
    tile.CompareExchange: compare_exchange,
}
