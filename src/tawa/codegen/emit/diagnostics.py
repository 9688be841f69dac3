"""What a kernel tells the outside: prints, assertions, and promises that leave no text."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import PurePath

from xdsl.dialects.builtin import FileLineColLoc
from xdsl.ir import Operation, SSAValue

from tawa.codegen.elements import Element
from tawa.codegen.emit.emitter import Array, Emitter, Handler, Mapped
from tawa.codegen.emit.global_memory import replica_guard
from tawa.codegen.wrappers import arithmetic
from tawa.codegen.wrappers.core import Wrapper
from tawa.ir import tile
from tawa.ir.types import is_tensor

_PLACE = "blockIdx.x, blockIdx.y, blockIdx.z"
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


def _in_hex(e: Emitter, element: Element, text: str, bits: str | None) -> tuple[str, str]:
    """Return the format and argument of a value's `bits`; `text` is in the compute type."""
    mark = f"0x%0{max(1, element.bits // 4)}{'ll' if element.bits == 64 else ''}x"
    if bits is not None or not element.is_float:
        narrow = f"(u{element.bits})" if element.bits in (8, 16) else ""
        return mark, f"({element.unsigned}){narrow}({bits or text})"
    if element.is_small_float:
        return mark, f"(u32){e.call(arithmetic.narrow(element.name), text)}"
    read = "__double_as_longlong" if element.bits == 64 else "__float_as_uint"
    return mark, f"{read}({text})"


@contextmanager
def _each(e: Emitter, value: SSAValue) -> Generator[tuple[Element, str, str | None]]:
    """Write what follows for each element that a thread holds.

    Gives the element in its compute type, and its bits where they are at hand.
    """
    if not is_tensor(value):
        scalar = e.scalar(value)
        yield scalar.element, scalar.text, None
        return
    tensor = e.tensor(value)
    e.use_accessors(tensor.element)
    with e.unrolled("r", tensor.count) as r:
        match tensor:
            case Array() | Mapped() if tensor.element.packed > 1:
                bits = tensor.bits_at(r)
            case _:
                bits = None
        yield tensor.element, tensor.at(r), bits


def device_print(e: Emitter, op: tile.Print) -> None:
    """Print a prefix and each value, once however many threads hold it."""
    prefix = f"pid (%d, %d, %d) {_quoted(op.prefix.data)}"
    if not op.values:
        with e.when("" if e.one_thread else f"{e.thread} == 0"):
            e.line(f'printf("{prefix}\\n", {_PLACE});')
    for value in op.values:
        guard = replica_guard(e, value)
        with e.when(guard), _each(e, value) as (element, text, bits):
            mark, argument = (
                _formatted(element, text) if op.hex is None else _in_hex(e, element, text, bits)
            )
            e.line(f'printf("{prefix}{mark}\\n", {_PLACE}, {argument});')


def device_assert(e: Emitter, op: tile.Assert) -> None:
    """Stop the kernel with a message where the condition is false."""
    if is_tensor(op.condition):
        holds = e.names.fresh("holds")
        e.line(f"bool {holds} = true;")
        with _each(e, op.condition) as (_, text, _):
            e.line(f"{holds} &= {text};")
    else:
        holds = e.scalar(op.condition).text
    with e.block(f"if (!({holds}))"):
        said = f"pid (%d, %d, %d) device_assert failed: {_quoted(op.message.data)}"
        e.line(f'printf("{_where(op)}{said}\\n", {_PLACE});')
        e.do(TRAP)


def _where(op: Operation) -> str:
    """Return the place in the user's text, as compilers write it."""
    match op.location:
        case FileLineColLoc() as place if place.line.data:
            return f"{_quoted(PurePath(place.filename.data).name)}:{place.line.data}: "
        case _:
            return ""


RULES: dict[type[Operation], Handler] = {
    tile.Assume: assume,
    tile.Print: device_print,
    tile.Assert: device_assert,
}
