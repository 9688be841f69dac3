"""The integer functions that the proof computes, as the machine does."""

from __future__ import annotations

from collections.abc import Callable


def _divide(a: int, b: int) -> int:
    if b == 0:
        return 0
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _remainder(a: int, b: int) -> int:
    return a - _divide(a, b) * b


def _shift_right(a: int, b: int) -> int:
    return a >> b if 0 <= b < 64 else 0


def _shift_left(a: int, b: int) -> int:
    return a << b if 0 <= b < 64 else 0


def _compare(test: Callable[[int, int], bool]) -> Callable[..., int]:
    def compare(a: int, b: int) -> int:
        return int(test(a, b))

    return compare


def _smaller(a: int, b: int) -> int:
    return min(a, b)


def _larger(a: int, b: int) -> int:
    return max(a, b)


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
    "eq": _compare(int.__eq__),
    "ne": _compare(int.__ne__),
    "lt": _compare(int.__lt__),
    "le": _compare(int.__le__),
    "gt": _compare(int.__gt__),
    "ge": _compare(int.__ge__),
    "select": _select,
    "fma": _fma,
}
