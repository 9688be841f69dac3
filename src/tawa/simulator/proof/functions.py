"""The integer functions that the proof computes, as the machine does."""

from __future__ import annotations

from collections.abc import Callable


def _divide(a: int, b: int) -> int:
    if b == 0:
        return 0
    if a >= 0 and b > 0:
        return a // b
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _remainder(a: int, b: int) -> int:
    return a - _divide(a, b) * b


def _shift_right(a: int, b: int) -> int:
    return a >> b if 0 <= b < 64 else 0


def _shift_left(a: int, b: int) -> int:
    return a << b if 0 <= b < 64 else 0


def _equal(a: int, b: int) -> int:
    return 1 if a == b else 0


def _unlike(a: int, b: int) -> int:
    return 1 if a != b else 0


def _below(a: int, b: int) -> int:
    return 1 if a < b else 0


def _up_to(a: int, b: int) -> int:
    return 1 if a <= b else 0


def _above(a: int, b: int) -> int:
    return 1 if a > b else 0


def _from(a: int, b: int) -> int:
    return 1 if a >= b else 0


def _smaller(a: int, b: int) -> int:
    return b if b < a else a


def _larger(a: int, b: int) -> int:
    return b if b > a else a


def _select(condition: int, a: int, b: int) -> int:
    return a if condition else b


def _fma(a: int, b: int, c: int) -> int:
    return a * b + c


FUNCTIONS: dict[str, Callable[..., int]] = {
    "add": int.__add__,
    "sub": int.__sub__,
    "mul": int.__mul__,
    "idiv": _divide,
    "irem": _remainder,
    "neg": int.__neg__,
    "abs": int.__abs__,
    "min": _smaller,
    "max": _larger,
    "and": int.__and__,
    "or": int.__or__,
    "xor": int.__xor__,
    "shl": _shift_left,
    "shr": _shift_right,
    "eq": _equal,
    "ne": _unlike,
    "lt": _below,
    "le": _up_to,
    "gt": _above,
    "ge": _from,
    "select": _select,
    "fma": _fma,
}
