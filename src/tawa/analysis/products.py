"""Which products the tensor cores take, by types and precision (PTX ISA, wgmma and mma shapes)."""

from __future__ import annotations

from xdsl.ir import Attribute

from tawa.ir import tile
from tawa.ir.types import bit_width, element_type, is_float, shape_of, spell

K_BYTES = 32
"""Bytes of K one tensor-core step takes."""


def tensor_core_objection(
    a: Attribute, b: Attribute, acc: Attribute, k: int, precision: str
) -> str:
    """Return why no tensor-core instruction takes operands and a sum of these element types, `k`
    steps at a `precision`, or nothing.
    """
    bits, left, right = bit_width(a), spell(a), spell(b)
    if bits == 64 or (not is_float(a) and bits != 8):
        return f"{left} operands"
    mixed = bits == 16 or not is_float(a)
    if bits != bit_width(b) or (mixed and left != right):
        return f"operands of types {left} and {right}"
    if bits == 32 and precision != "tf32":
        return f"input_precision {precision}"
    step = K_BYTES * 8 // bits
    if k % step:
        return f"K = {k} is not a multiple of {step}"
    if is_float(acc) != is_float(a):
        return f"accumulator of type {spell(acc)}"
    return ""


def by_multiply_adds(dot: tile.Dot) -> bool:
    """Tell whether a product is one that threads make, whatever its rows and columns."""
    a, b, acc = (element_type(value.type) for value in (dot.a, dot.b, dot.acc))
    return bool(tensor_core_objection(a, b, acc, shape_of(dot.a.type)[-1], dot.precision.data))
