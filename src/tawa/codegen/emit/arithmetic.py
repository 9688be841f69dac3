"""Constants, element functions and casts, of scalars and of tensors in registers."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from xdsl.ir import SSAValue

from tawa.analysis.statements import VIEWS
from tawa.codegen.elements import Element, element_of
from tawa.codegen.emit.emitter import Array, Emitter, Mapped, Scalar, Tensor, Uniform, atom, bare
from tawa.codegen.wrappers import arithmetic
from tawa.codegen.wrappers.arithmetic import ANY_LANE
from tawa.errors import InternalError
from tawa.ir import hopper, tile
from tawa.ir.functions import FUNCTIONS
from tawa.ir.types import IntAttr, Real, element_type, is_tensor, layout_of

_CALLED = re.compile(r"\b([a-z_]\w*)\(")
# Signed arithmetic that may overflow: written in the unsigned type, where C++ wraps.
_WRAPPING = {"add": "+", "sub": "-", "mul": "*", "shl": "<<"}
# The library's functions of float are called as those of double with an f behind.
_OF_FLOAT = re.compile(r"\b([a-z]\w*)f\(")
_DOUBLE_FORMS = {
    "div": "{0} / {1}",
    "div_rn": "{0} / {1}",
    "exp": "exp({0})",
    "exp2": "exp2({0})",
    "sqrt": "sqrt({0})",
    **{f"{name}_rn": f"__d{name}_rn({{0}}, {{1}})" for name in ("add", "sub", "mul")},
}


def constant(e: Emitter, op: tile.Constant) -> None:
    """Bind a constant; no text."""
    element = element_of(element_type(op.result.type))
    text = literal(op, element)
    if is_tensor(op.result):
        e.bind(op.result, Uniform(text, element, layout_of(op.result.type).register_count))
        return
    e.bind(op.result, Scalar(text, element))


def apply(e: Emitter, name: str, element: Element, operands: list[str]) -> str:
    """Return the expression of an element function over operands in their compute type.

    `element` is the type computed in: the first operand's, or of `select` the second's.
    """
    row = FUNCTIONS[name]
    if name == "not" and element.bits == 1:
        return f"!{atom(operands[0])}"
    if _wraps(name, element):
        return _wrap(name, element, operands)
    template = row.cuda_float if element.is_float else row.cuda_int
    if element.name == "f64":
        template = _DOUBLE_FORMS.get(name, template)
        template = _OF_FLOAT.sub(r"\1(", template)
    if not template:
        raise InternalError(f"no {name} of {element.name} in the table of functions")
    for called in _CALLED.findall(template):
        if called in arithmetic.FUNCTIONS:
            e.call(arithmetic.FUNCTIONS[called])
        elif called == "mulhi":
            e.call(arithmetic.mulhi(element.compute))
    return template.format(*(_operand(template, i, text) for i, text in enumerate(operands)))


def _operand(template: str, index: int, text: str) -> str:
    """Return an operand, in parentheses unless it stands alone as a function's argument."""
    alone = re.search(rf"[(,]\s*\{{{index}\}}\s*[,)]", template)
    return (
        text
        if alone and template.count(f"{{{index}}}") == 1 and "?" not in template
        else atom(text)
    )


def _wrap(name: str, element: Element, operands: list[str]) -> str:
    """Return wrapping arithmetic: computed in the unsigned type, converted back by the user."""
    unsigned = element.unsigned
    items = [_unsigned(text, unsigned) for text in operands]
    if name == "neg":
        return f"0u - {items[0]}"
    if name == "abs":
        return f"({atom(operands[0])} < 0 ? 0u - {items[0]} : {items[0]})"
    if name == "fma":
        return f"{items[0]} * {items[1]} + {items[2]}"
    if name == "shl":
        return f"{items[0]} << {atom(operands[1])}"
    sign = _WRAPPING[name]
    if name == "add" and operands[1].startswith("-") and operands[1][1:].isdigit():
        return f"{atom(operands[0])} - {operands[1][1:]}u"
    # One unsigned operand makes the whole operation unsigned.
    for index in (1, 0):
        if operands[index].removesuffix("ll").isdigit():
            items[1 - index] = atom(operands[1 - index])
            break
    else:
        items[1] = atom(operands[1])
    return f"{items[0]} {sign} {items[1]}"


def _unsigned(text: str, unsigned: str) -> str:
    digits = text.removesuffix("ll")
    if digits.isdigit():
        return f"{digits}{'u' if unsigned == 'u32' else 'ull'}"
    return f"{unsigned}({text})"


def _wraps(name: str, element: Element) -> bool:
    """Tell whether a function may overflow the signed type it would be computed in."""
    integer = not element.is_float and element.bits > 1
    narrow = element.is_signed or element.bits < 32
    return integer and narrow and (name in _WRAPPING or name in ("neg", "abs", "fma"))


def nested(text: str, element: Element, name: str) -> str:
    """Return an expression as a value of its element's C type, for use within another."""
    if element.bits in (8, 16) and not element.is_float:
        return f"({element.storage})({text})"
    return f"{element.storage}({text})" if _wraps(name, element) else text


def rounded(e: Emitter, text: str, element: Element) -> str:
    """Return a float expression rounded to a small float type, still as float."""
    if not element.is_small_float:
        return text
    bits = e.call(arithmetic.narrow(element.name), text)
    return e.call(arithmetic.widen(element.name), bits)


def elementwise(e: Emitter, op: tile.Elementwise) -> None:
    """Write one element function: an expression, or an unrolled loop over registers."""
    name = op.function.data
    inputs = list(op.inputs)
    kind = element_of(element_type(inputs[1 if name == "select" else 0].type))
    if not is_tensor(op.result):
        operands = [e.scalar(value) for value in inputs]
        reads = frozenset[str]().union(*(operand.reads for operand in operands))
        texts = [operand.text for operand in operands]
        text = apply(e, name, kind, texts) if op.natural is None else _natural(e, op, texts)
        result = element_of(op.result.type)
        final = rounded(e, text, result)
        e.define(
            op.result, final, reads, nested=final if result != kind else nested(final, kind, name)
        )
        return
    tensors = [aligned(e, value, op.result) for value in inputs]
    for tensor in tensors:
        e.use_accessors(tensor.element)
    target = e.array(op.result)
    scaled = next((v for v in inputs if e.storage.same(op.result, v)), None)
    if op.skip_ones is not None and scaled is not None:
        at = inputs.index(scaled)
        multiply_unless_ones(e, op, target, tensors[at], tensors[1 - at], inputs[1 - at])
        return
    halves = target.element == kind and kind.is_small_float and kind.bits == 16
    if halves and name in arithmetic.PAIRED and target.count % 2 == 0:
        _pairs(e, name, target, tensors)
        return

    def element(r: str) -> str:
        return apply(e, name, kind, [tensor.at(r) for tensor in tensors])

    equal = _equal(e, op.result, target)
    if equal > 1:
        _once_for_equal(e, target, equal, element)
    else:
        e.fill(target, element)
    ask_early(e, op, target)


def _equal(e: Emitter, result: SSAValue, target: Array) -> int:
    """Return how many neighbouring registers are known to hold one whole number or truth value.

    NVRTC finds out the same of values that are computed alike, but not of a comparison with a
    bound that is a multiple of something.
    """
    if target.element.packed > 1 or target.element.is_float:
        return 1
    equal = e.module.contiguity.equal([result], layout_of(result.type))
    return equal if target.count % equal == 0 else 1


def _once_for_equal(e: Emitter, target: Array, equal: int, element: Callable[[str], str]) -> None:
    """Write one element for every `equal` registers, and copies of it."""
    with e.unrolled("part", target.count // equal) as part:
        first = "0" if part == "0" else f"({part} * {equal})"
        e.line(f"{target.name}[{bare(first)}] = {element(first)};")
        for copy in range(1, equal):
            place = str(copy) if part == "0" else f"{part} * {equal} + {copy}"
            e.line(f"{target.name}[{place}] = {target.name}[{bare(first)}];")


def _pairs(e: Emitter, name: str, target: Array, tensors: list[Tensor]) -> None:
    """Write a function of floats of 16 bits, a word of two at a time."""
    wrapper = arithmetic.paired(name, target.element.name)
    with e.unrolled("r", target.count, 2) as r:
        words = [_word(e, tensor, r) for tensor in tensors]
        e.line(f"{target.name}[{'0' if r == '0' else f'{r} / 2'}] = {e.call(wrapper, *words)};")


def _word(e: Emitter, tensor: Tensor, r: str) -> str:
    """Return registers `r` and the next one of a tensor of 16-bit floats as a word."""
    if isinstance(tensor, Array):
        return f"{tensor.name}[{'0' if r == '0' else f'{r} / 2'}]"
    places = (r, "1" if r == "0" else f"({r} + 1)")
    if isinstance(tensor, Mapped) and None not in (bits := [tensor.bits_at(p) for p in places]):
        return e.pack_expression(tensor.element, [item or "" for item in bits], bits=True)
    return e.pack_expression(tensor.element, [tensor.at(place) for place in places])


def _natural(e: Emitter, op: tile.Elementwise, operands: list[str]) -> str:
    """Return a quotient or remainder of numbers that are not negative.

    A divisor that is the least of a constant and something else mostly is the constant.
    """
    quotient = op.function.data == "idiv"
    if operands[1].isdigit():
        return f"u32({operands[0]}) {'/' if quotient else '%'} {operands[1]}u"
    divisor = op.inputs[1].owner
    if isinstance(divisor, tile.Elementwise) and divisor.function.data == "min":
        most = [
            text for text in (e.scalar(value).text for value in divisor.inputs) if text.isdigit()
        ]
        if most and int(most[0]):
            wrapper = arithmetic.DIVIDE_MOST if quotient else arithmetic.REMAINDER_MOST
            return e.call(wrapper, *operands, template=most[0])
    wrapper = arithmetic.DIVIDE_NATURAL if quotient else arithmetic.REMAINDER_NATURAL
    return e.call(wrapper, *operands)


def aligned(e: Emitter, value: SSAValue, like: SSAValue) -> Tensor:
    """Return an operand's registers in the order of the result's layout."""
    found = e.tensor(value)
    have, want = layout_of(value.type), layout_of(like.type)
    if isinstance(found, Uniform) or have == want:
        return found
    raise InternalError(f"operands of one operation in layouts {have} and {want}")


# --- casts --------------------------------------------------------------------------------------


def convert(text: str, source: Element, target: Element) -> str:
    """Return an expression converted between compute types, wrapped or rounded to `target`."""
    if source == target:
        return text
    if target.bits == 1:
        return f"{atom(text)} != 0"
    if target.is_small_float:
        return text if source.compute == "float" else f"(float){atom(text)}"
    if target.is_float:
        return text if source.compute == target.compute else f"({target.compute}){atom(text)}"
    if source.is_float:
        return _to_integer(text, source, target)
    return f"({target.storage}){atom(text)}"


def _to_integer(text: str, source: Element, target: Element) -> str:
    """Return a float as an integer by the device's function: C++ leaves out what is out of range.

    There is none for 8 and 16 bits: the low bits of an int are kept.
    """
    wide = {"u32": "uint", "i64": "ll", "u64": "ull"}.get(target.compute, "int")
    whole = f"__{source.compute}2{wide}_rz({text})"
    return whole if target.bits >= 32 else f"({target.storage}){whole}"


def _each(
    e: Emitter, op: tile.Cast | tile.Bitcast, change: Callable[[str, Element, Element], str]
) -> None:
    """Write the change of each element's expression from its type to the result's."""
    source, target = (element_of(element_type(each.type)) for each in (op.value, op.result))
    if not is_tensor(op.result):
        scalar = e.scalar(op.value)
        e.define(op.result, change(scalar.text, source, target), scalar.reads)
        return
    tensor, array = aligned(e, op.value, op.result), e.array(op.result)
    e.use_accessors(source)
    e.fill(array, lambda r: change(tensor.at(r), source, target))


def cast(e: Emitter, op: tile.Cast) -> None:
    """Write a conversion of elements; packing to a narrow type converts pairs at once."""

    def change(text: str, source: Element, target: Element) -> str:
        found = convert(text, source, target)
        return found if is_tensor(op.result) or source == target else rounded(e, found, target)

    _each(e, op, change)


_REINTERPRET = {
    ("float", "int"): "__float_as_int({})",
    ("float", "u32"): "__float_as_uint({})",
    ("int", "float"): "__int_as_float({})",
    ("u32", "float"): "__uint_as_float({})",
    ("double", "i64"): "__double_as_longlong({})",
    ("double", "u64"): "(u64)__double_as_longlong({})",
    ("i64", "double"): "__longlong_as_double({})",
    ("u64", "double"): "__longlong_as_double((i64){})",
}


def reinterpret(e: Emitter, text: str, source: Element, target: Element) -> str:
    """Return the bits of an expression read as another type of the same width."""
    if source.is_small_float:
        text = e.call(arithmetic.narrow(source.name), text)
        source = Element(f"u{source.bits}", source.bits, source.storage, "int", "u32")
    if target.is_small_float:
        return e.call(arithmetic.widen(target.name), f"({target.storage}){atom(text)}")
    form = _REINTERPRET.get((source.compute, target.compute))
    return form.format(text) if form else f"({target.storage}){atom(text)}"


def bitcast(e: Emitter, op: tile.Bitcast) -> None:
    """Write a reinterpretation of bits."""
    _each(e, op, partial(reinterpret, e))


def uninitialized(e: Emitter, op: hopper.Uninitialized) -> None:
    """Declare registers and write nothing."""
    e.array(op.result)


def pin(e: Emitter, op: hopper.Pin) -> None:
    """Write an empty asm for each register: ptxas may not move the computation past it."""
    for value, result in zip(op.values, op.res):
        e.pin(e.in_place(value, result))


RULES = {
    tile.Constant: constant,
    tile.Elementwise: elementwise,
    tile.Cast: cast,
    tile.Bitcast: bitcast,
    hopper.Uninitialized: uninitialized,
    hopper.Pin: pin,
}


# --- constants ------------------------------------------------------------------------------------


def integer_literal(value: int, element: Element) -> str:
    """Return an integer constant of an element type."""
    if element.bits == 1:
        return "true" if value else "false"
    if element.name in ("u32", "u64", "ptr"):
        return f"{value % (1 << element.bits)}{'u' if element.bits == 32 else 'ull'}"
    limit = 1 << (element.bits - 1)
    if element.is_signed:
        value = (value + limit) % (2 * limit) - limit
    if element.bits == 64:
        return f"{value}ll" if value > -(2**63) else "(-9223372036854775807ll - 1)"
    return str(value) if value > -(2**31) else "(-2147483647 - 1)"


def float_literal(value: float, element: Element) -> str:
    """Return a floating constant, rounded to the element type."""
    if math.isnan(value):
        return "__int_as_float(0x7fc00000)"
    if math.isinf(value):
        return "__int_as_float(0x7f800000)" if value > 0 else "__int_as_float(0xff800000)"
    if element.bits == 64:
        return repr(float(value))
    rounded = round_float(value, element)
    if math.isinf(rounded):
        return float_literal(rounded, element)
    return f"{rounded!r}f"


_MANTISSA = {"f16": (10, -14), "bf16": (7, -126), "f8e4m3": (3, -6), "f8e5m2": (2, -14)}
_LARGEST = {"f16": 65504.0, "f8e4m3": 448.0, "f8e5m2": 57344.0}


def round_float(value: float, element: Element) -> float:
    """Return `value` rounded to nearest even in an element type; fp8 saturates."""
    single = _to_single(value)
    if element.name not in _MANTISSA or value == 0 or math.isinf(single):
        return single
    bits, least = _MANTISSA[element.name]
    exponent = max(math.frexp(value)[1] - 1, least)
    unit = math.ldexp(1.0, exponent - bits)
    rounded = round(value / unit) * unit
    largest = _LARGEST.get(element.name, 3.3895313892515355e38)
    if abs(rounded) <= largest:
        return rounded
    return math.copysign(largest if element.bits == 8 else math.inf, value)


def _to_single(value: float) -> float:
    try:
        return struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def literal(op: tile.Constant, element: Element) -> str:
    """Return a constant operation's value in the compute type of its element."""
    match op.value:
        case IntAttr():
            number: float = op.value.data
        case Real():
            number = op.value.data
        case other:
            raise InternalError(f"a constant {other}")
    if element.is_float:
        return float_literal(float(number), element)
    return integer_literal(int(number), element)


# --- multiplications by ones ----------------------------------------------------------------------


def multiply_unless_ones(
    e: Emitter, op: tile.Elementwise, target: Array, scaled: Tensor, factor: Tensor, rows: SSAValue
) -> None:
    """Multiply registers in place by factors, unless all factors of the warp are one."""
    factors = _rows_of(rows)
    answer = e.answers.get(factors)
    if answer is None or factors.owner.parent is not op.parent:
        layout = layout_of(op.result.type)
        first = {row[:-1]: r for r, row in reversed([*enumerate(layout.register_table)])}
        answer = _any_but_ones(e, [factor.at(str(r)) for r in sorted(first.values())])
    with e.block(f"if ({answer})"):
        e.fill(target, lambda r: f"{scaled.at(r)} * {factor.at(r)}")


def ask_early(e: Emitter, op: tile.Elementwise, target: Array) -> None:
    """Where factors are made that may all be one, ask at once: the answer is there when needed."""
    if any(use.skip_ones is not None and use.parent is op.parent for use in _products(op.result)):
        name = e.names.fresh("rises")
        registers = layout_of(op.result.type).register_count
        answer = _any_but_ones(e, [target.at(str(r)) for r in range(registers)])
        e.line(f"const bool {name} = {answer};")
        e.answers[op.result] = name


def _any_but_ones(e: Emitter, factors: Iterable[str]) -> str:
    return e.call(ANY_LANE, " | ".join(f"{text} != 1.0f" for text in factors))


def _rows_of(value: SSAValue) -> SSAValue:
    """Return what a tensor repeats, below broadcasts and views."""
    while isinstance(value.owner, (tile.Broadcast, *VIEWS)):
        value = value.owner.operands[0]
    return value


def _products(value: SSAValue) -> Iterator[tile.Elementwise]:
    """Yield the multiplications by a value or what repeats it."""
    for use in value.uses:
        match use.operation:
            case tile.Elementwise(function=function) as user if function.data == "mul":
                yield user
            case tile.Broadcast() as view:
                yield from _products(view.result)
            case view if isinstance(view, VIEWS):
                yield from _products(view.results[0])
            case _:
                pass
