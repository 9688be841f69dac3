"""The typing rules of Triton 3.6 for operators: which type two operands meet in.

Pure functions of element types. To the arithmetic and bitwise operators and `tl.where` a Python
number (a literal or any compile-time constant) is weak: it takes the other operand's type unless
its own kind (bool < int < float) is higher. In comparisons and in the functions of two elements it
has its own type (`literal_type`). Everything else follows C: the wider integer wins, unsigned wins
at equal width; a float wins over an integer.
"""

from __future__ import annotations

import math

from tawa.language.dtypes import (
    bfloat16,
    dtype,
    float16,
    float32,
    float64,
    int1,
    int32,
    int64,
    uint32,
    uint64,
)


class PromotionError(Exception):
    """Two types have no common type; the text says why."""


def literal_type(value: bool | int | float) -> dtype:
    """Return the type a Python number has on its own.

    Integers: int32, then uint32, int64, uint64 by size. Floats: float32 where it can hold them.
    """
    if isinstance(value, bool):
        return int1
    if isinstance(value, int):
        return _integer_literal(value)
    magnitude = abs(value)
    special = value != value or magnitude in (0.0, float("inf"))
    fits = special or 2**-126 <= magnitude <= (2 - 2**-23) * 2.0**127
    return float32 if fits else float64


def _integer_literal(value: int) -> dtype:
    for low, high, kind in (
        (-(2**31), 2**31, int32),
        (2**31, 2**32, uint32),
        (-(2**63), 2**63, int64),
        (2**63, 2**64, uint64),
    ):
        if low <= value < high:
            return kind
    raise PromotionError(f"the integer {value} needs more than 64 bits")


def is_value_of(number: bool | int | float, element: dtype) -> bool:
    """Tell whether a type surely holds a number as it is: in range, and without rounding.

    Of floats the numbers are taken that float16 has as normal ones, as far as `element`'s
    significand goes; of 8-bit floats, which differ in what else they have, zero alone.
    """
    if element.is_bool():
        return number in (0, 1)
    if element.is_int():
        low, high = element.get_int_min_value(), element.get_int_max_value()
        return low <= number <= high and number == int(number)
    if number == 0 or element.is_fp8():
        return number == 0
    if not math.isfinite(number):
        return True
    significand, exponent = math.frexp(number)
    return (
        -13 <= exponent <= 15 and (significand * 2 ** (element.fp_mantissa_width + 1)).is_integer()
    )


def promote_integers(one: dtype, other: dtype) -> dtype:
    """Return the common type of two integer types, by C's usual arithmetic conversions."""
    if one.int_signedness == other.int_signedness:
        return one if one.int_bitwidth > other.int_bitwidth else other
    unsigned, signed = (one, other) if one.is_int_unsigned() else (other, one)
    return unsigned if unsigned.int_bitwidth >= signed.int_bitwidth else signed


def promote(
    one: dtype, one_weak: bool, other: dtype, other_weak: bool, division: bool = False
) -> dtype:
    """Return the type in which an arithmetic operator computes.

    `division` is set for ``/``, ``//`` and ``%``: 16-bit floats then compute in float32, and
    integers of different signedness are refused with PromotionError.
    """
    if one_weak != other_weak:
        weak, strong = (one, other) if one_weak else (other, one)
        if weak.kind().value <= strong.kind().value:
            wide = division and strong in (float16, bfloat16)
            return float32 if wide else strong
    if one.is_floating() or other.is_floating():
        return _promote_floats(one, other, division)
    if division and one.int_signedness != other.int_signedness:
        raise PromotionError(
            f"/, // and % of {one.name} and {other.name} would mix signed and unsigned"
        )
    return promote_integers(one, other)


def _promote_floats(one: dtype, other: dtype, division: bool) -> dtype:
    pair = (one, other)
    if float64 in pair:
        return float64
    if float32 in pair:
        return float32
    if float16 in pair:
        return float32 if division else float16
    if bfloat16 in pair:
        return bfloat16 if one == other and not division else float32
    if one.is_fp8() and other.is_fp8():
        return one if one == other else float16
    raise PromotionError(f"{one.name} and {other.name} have no common type")
