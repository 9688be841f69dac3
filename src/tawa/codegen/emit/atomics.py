"""Read-modify-write of memory: one for each element, by the one thread that owns it."""

from __future__ import annotations

from collections.abc import Callable

from xdsl.ir import Operation, SSAValue

from tawa.codegen.elements import Element
from tawa.codegen.emit.emitter import Emitter, Handler
from tawa.codegen.emit.global_memory import all_of, memory_element, replica_guard
from tawa.codegen.emit.values import Scalar
from tawa.codegen.storage import is_tensor
from tawa.codegen.wrappers import arithmetic
from tawa.codegen.wrappers import memory as w
from tawa.errors import InternalError
from tawa.ir import tile
from tawa.ir.types import layout_of

_At = Callable[[SSAValue, str], str]
_Call = Callable[[_At, str], str]


def _bits_of(e: Emitter, element: Element, value: str) -> str:
    """Return a value in the type atomics take: small floats as their bits."""
    return e.call(arithmetic.narrow(element.name), value) if element.is_small_float else value


def atomic(e: Emitter, op: Operation) -> None:
    """Write one read-modify-write for each element, by one thread; the old values are returned."""
    assert isinstance(op, tile.Atomic)
    element = memory_element(op.pointer)
    wrapper = w.atomic(op.function.data, element.name, op.order.data, op.scope.data)

    def call(address: str, value: str) -> str:
        return _old(e, element, e.call(wrapper, address, _bits_of(e, element, value)))

    def each(at: _At, r: str) -> str:
        return call(at(op.pointer, r), at(op.value, r))

    _atomics(e, op.result, op.pointer, op.mask, element, each)


def compare_exchange(e: Emitter, op: Operation) -> None:
    """Write one compare-and-exchange for each element."""
    assert isinstance(op, tile.CompareExchange)
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
    """Write the loop over elements; replicas must not act twice, and share what the owner got."""
    used = result.first_use is not None
    guard = replica_guard(e, pointer)
    if is_tensor(result):
        _atomic_tensor(e, result, mask, element, call, guard, used)
        return

    def at(value: SSAValue, r: str) -> str:
        return e.scalar(value).text

    if not used:
        condition = all_of(guard, "" if mask is None else e.scalar(mask).text)
        with e.block(f"if ({condition})" if condition else ""):
            e.line(f"{call(at, '0')};")
        return
    name = e.fresh(result, "old")
    if guard:
        raise InternalError("an atomic whose result all threads use must be broadcast by lowering")
    condition = all_of(guard, "" if mask is None else e.scalar(mask).text)
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
        condition = all_of(guard, "" if mask is None else at(mask, r))
        with e.block(f"if ({condition})" if condition else ""):
            e.line(f"{name}[{r}] = {call(at, r)};" if used else f"{call(at, r)};")
    if used:
        e.fill(e.array(result), lambda r: f"{name}[{r}]")


RULES: dict[type[Operation], Handler] = {
    tile.Atomic: atomic,
    tile.CompareExchange: compare_exchange,
}
