"""Constants as C++ text, rounded to the type that they are constants of."""

from __future__ import annotations

import math
import struct

from tawa.codegen.elements import Element
from tawa.errors import InternalError
from tawa.ir import tile
from tawa.ir.types import IntAttr, Real


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
