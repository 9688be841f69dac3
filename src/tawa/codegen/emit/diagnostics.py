"""What a kernel tells the outside: prints, assertions, and promises that leave no text."""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from tawa.codegen.elements import Element
from tawa.codegen.emit.emitter import Emitter, Handler
from tawa.codegen.emit.global_memory import replica_guard
from tawa.codegen.storage import is_tensor
from tawa.codegen.wrappers.core import Wrapper
from tawa.ir import tile

_FORMAT = {"i32": "%d", "u32": "%u", "i64": "%lld", "u64": "%llu", "ptr": "%llx"}
TRAP = Wrapper("void trap()", "__trap();", "trap", "sync")


def assume(e: Emitter, op: Operation) -> None:
    """A promise to the analyses; nothing is checked."""


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("\n", "\\n")
    return escaped


def _formatted(element: Element, text: str) -> tuple[str, str]:
    if element.is_float:
        return "%f", f"(double)({text})"
    if element.name in _FORMAT:
        return _FORMAT[element.name], text
    return "%d", f"(int)({text})"


def _items(e: Emitter, value: SSAValue) -> list[tuple[Element, str]]:
    if not is_tensor(value):
        scalar = e.scalar(value)
        return [(scalar.element, scalar.text)]
    tensor = e.tensor(value)
    e.use_accessors(tensor.element)
    return [(tensor.element, tensor.at(str(r))) for r in range(tensor.count)]


def device_print(e: Emitter, op: Operation) -> None:
    """Print a prefix and each value, once however many threads hold it."""
    assert isinstance(op, tile.Print)
    prefix = f"pid (%d, %d, %d) {_quoted(op.prefix.data)}"
    place = "blockIdx.x, blockIdx.y, blockIdx.z"
    if not op.values:
        with e.block("" if e.one_thread else f"if ({e.thread} == 0)"):
            e.line(f'printf("{prefix}\\n", {place});')
    for value in op.values:
        items, guard = _items(e, value), replica_guard(e, value)
        with e.block(f"if ({guard})" if guard else ""):
            for element, text in items:
                mark, argument = _formatted(element, text)
                e.line(f'printf("{prefix}{mark}\\n", {place}, {argument});')


def device_assert(e: Emitter, op: Operation) -> None:
    """Stop the kernel with a message where the condition is false."""
    assert isinstance(op, tile.Assert)
    message = _quoted(op.message.data)
    for _, text in _items(e, op.condition):
        with e.block(f"if (!({text}))"):
            e.line(f'printf("assertion failed: {message}\\n");')
            e.do(TRAP)


RULES: dict[type[Operation], Handler] = {
    tile.Assume: assume,
    tile.Print: device_print,
    tile.Assert: device_assert,
}
