"""Inline PTX of the user's: one device function a text, called for `pack` elements at a time."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from xdsl.ir import Operation, SSAValue

from tawa.codegen.elements import Element, element_of
from tawa.codegen.emit.arithmetic import aligned, reinterpret
from tawa.codegen.emit.emitter import Array, Emitter, Handler, Tensor, Uniform, atom, bare
from tawa.codegen.wrappers.core import Wrapper
from tawa.ir import tile
from tawa.ir.inline_asm import WIDTHS, Register, Registers, registers_of, substituted
from tawa.ir.types import is_tensor

_C_TYPES = {"h": "u16", "r": "u32", "l": "u64", "f": "float", "d": "double"}


def inline_asm(e: Emitter, op: tile.Asm | tile.AsmEffect) -> None:
    """Write the calls for all elements that a thread holds."""
    pack = op.pack.data
    laid = registers_of(
        op.constraints.data,
        pack,
        [result.type for result in op.results],
        [value.type for value in op.inputs],
    )
    wrapper = _wrapper(op, laid)
    if not op.results or not is_tensor(op.results[0]):
        scalars = [_as_tensor(e, value) for value in op.inputs]
        made = _call(e, wrapper, laid, scalars, "0", range(pack), 1)
        for index, result in enumerate(op.results):
            register = next(r for r in laid.outputs if r.value == index)
            element = element_of(result.type)
            bits = _element(made[laid.outputs.index(register)], register, 0, element)
            e.define(result, _computed(e, bits, register, element), name=True)
        return
    tensors = [aligned(e, value, op.results[0]) for value in op.inputs]
    for tensor in tensors:
        e.use_accessors(tensor.element)
    targets = [e.array(result) for result in op.results]
    count = targets[0].count
    step = max(pack, *(target.element.packed for target in targets))
    rest = count % step
    if whole := count - rest:
        with e.unrolled("r", whole, step) as r:
            _group(e, wrapper, laid, tensors, targets, r, pack, step)
    if rest:
        with e.scope():
            _group(e, wrapper, laid, tensors, targets, str(whole), pack, step)


def _as_tensor(e: Emitter, value: SSAValue) -> Tensor:
    return Uniform(e.scalar(value).text, element_of(value.type), 1)


def _wrapper(op: tile.Asm | tile.AsmEffect, laid: Registers) -> Wrapper:
    """Return the function around the text: results by reference, then inputs."""
    numbers = [f"%{i}" for i in range(len(laid.outputs))]
    outputs = [f'"={r.letter}"(y{i})' for i, r in enumerate(laid.outputs)]
    inputs: list[str] = []
    begun: list[str] = []
    for i, register in enumerate(laid.inputs):
        if register.tied is None:
            numbers.append(f"%{len(outputs) + len(inputs)}")
            inputs.append(f'"{register.letter}"(x{i})')
        else:
            numbers.append(f"%{register.tied}")
            outputs[register.tied] = outputs[register.tied].replace("=", "+", 1)
            begun.append(f"y{register.tied} = x{i};")
    quoted = op.text.data.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    text = substituted(quoted, numbers)
    effect = isinstance(op, tile.AsmEffect)
    clobbers = ' : "memory"' if laid.memory else ""
    statement = (
        f'asm{" volatile" * effect}("{text}" : {", ".join(outputs)} : {", ".join(inputs)}'
        f"{clobbers});"
    )
    name = sha256(f"{statement} {begun}".encode()).hexdigest()[:12]
    parameters = [f"{_C_TYPES[r.letter]}& y{i}" for i, r in enumerate(laid.outputs)]
    parameters += [f"{_C_TYPES[r.letter]} x{i}" for i, r in enumerate(laid.inputs)]
    head = f"void inline_{name}({', '.join(parameters)})"
    return Wrapper(head, "\n".join([*begun, statement]), "", "convergent" if effect else "pure")


def _group(
    e: Emitter,
    wrapper: Wrapper,
    laid: Registers,
    tensors: Sequence[Tensor],
    targets: Sequence[Array],
    r: str,
    pack: int,
    step: int,
) -> None:
    """Write the calls for `step` elements from `r` on; past the end of all, the last one again."""
    count = targets[0].count
    calls = [
        _call(e, wrapper, laid, tensors, r, range(first, first + pack), count)
        for first in range(0, step, pack)
    ]
    for index, target in enumerate(targets):
        registers = [(i, g) for i, g in enumerate(laid.outputs) if g.value == index]
        element = target.element
        places = [(call, i, g, k) for call in calls for i, g in registers for k in range(g.count)]
        for first in range(0, step, element.packed):
            if r.isdigit() and int(r) + first >= count:
                break
            each = places[first : first + element.packed]
            call, i, register, _ = each[0]
            if register.count == element.packed > 1 and register.letter == "r":
                word = call[i]
            elif element.packed > 1:
                bits = [_element(call[i], g, k, element) for call, i, g, k in each]
                word = e.pack_expression(element, bits, bits=True)
            else:
                word = _computed(e, call[i], register, element)
            at = _plus(r, first) if element.packed == 1 else _word(r, first, element.packed)
            e.line(f"{target.name}[{bare(at)}] = {word};")


def _plus(r: str, offset: int) -> str:
    if r.isdigit():
        return str(int(r) + offset)
    return f"({r} + {offset})" if offset else r


def _word(r: str, offset: int, packed: int) -> str:
    if r.isdigit():
        return str((int(r) + offset) // packed)
    return f"{r} / {packed} + {offset // packed}" if offset else f"{r} / {packed}"


def _call(
    e: Emitter,
    wrapper: Wrapper,
    laid: Registers,
    tensors: Sequence[Tensor],
    r: str,
    offsets: range,
    count: int,
) -> list[str]:
    """Write one call, and return the variables that its results are in."""
    made = [e.names.fresh("made") for _ in laid.outputs]
    for name, register in zip(made, laid.outputs):
        e.line(f"{_C_TYPES[register.letter]} {name};")
    given = [
        _register(e, tensors[g.value], g, r, offsets[g.first : g.first + g.count], count)
        for g in laid.inputs
    ]
    e.do(wrapper, *made, *given)
    return made


def _register(
    e: Emitter, tensor: Tensor, register: Register, r: str, offsets: range, count: int
) -> str:
    """Return the expression of an input's register."""
    element = tensor.element
    last = count - 1 - int(r) if r.isdigit() else offsets[-1]
    if (
        isinstance(tensor, Array)
        and register.count == element.packed > 1
        and offsets[0] % element.packed == 0
    ):
        return f"{tensor.name}[{_word(r, offsets[0], element.packed)}]"
    items = [tensor.at(_plus(r, min(offset, last))) for offset in offsets]
    if register.letter in "fd":
        same = element.name == {"f": "f32", "d": "f64"}[register.letter]
        wanted = _unsigned(WIDTHS[register.letter])
        return (
            items[0]
            if same
            else reinterpret(
                e, f"({wanted.storage}){atom(items[0])}", wanted, _float(register.letter)
            )
        )
    whole = _C_TYPES[register.letter]
    bits = [_bits(e, item, element) for item in items]
    parts = [
        f"({whole}){atom(text)}" if element.bits != WIDTHS[register.letter] else text
        for text in bits
    ]
    shifted = [f"{part} << {i * element.bits}" if i else part for i, part in enumerate(parts)]
    return " | ".join(shifted)


def _unsigned(bits: int) -> Element:
    kind = "u64" if bits == 64 else "u32"
    return Element(f"u{bits}", bits, f"u{bits}", kind, kind)


def _float(letter: str) -> Element:
    kind = {"f": "float", "d": "double"}[letter]
    return Element(f"f{WIDTHS[letter]}", WIDTHS[letter], kind, kind, kind)


def _bits(e: Emitter, text: str, element: Element) -> str:
    """Return an element's bits as an unsigned number of its width."""
    if element.bits == 1:
        return text
    bits = reinterpret(e, text, element, _unsigned(element.bits))
    return bits if element.bits >= 32 else f"(u{element.bits}){atom(bits)}"


def _element(name: str, register: Register, index: int, element: Element) -> str:
    """Return the bits of one element of a result's register."""
    if register.letter in "fd" or not (index or element.bits < WIDTHS[register.letter]):
        return name
    moved = f"({name} >> {index * element.bits})" if index else name
    return f"(u{max(element.bits, 8)}){moved}"


def _computed(e: Emitter, text: str, register: Register, element: Element) -> str:
    """Return a register that holds one element in the element's compute type."""
    if register.letter in "fd":
        return reinterpret(e, text, _float(register.letter), element)
    if element.bits == 1:
        return f"({text} & 1) != 0"
    if element.bits > WIDTHS[register.letter]:
        text = f"({_unsigned(element.bits).storage}){text}"
    return reinterpret(e, text, _unsigned(max(32, element.bits)), element)


RULES: dict[type[Operation], Handler] = {tile.Asm: inline_asm, tile.AsmEffect: inline_asm}
