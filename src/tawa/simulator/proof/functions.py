"""The integer functions that the proof computes, as the machine does."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import cast

from xdsl.dialects.builtin import AnyFloat, IntegerType, Signedness
from xdsl.ir import Attribute


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


def wrapped(value: int, bits: int, signed: bool) -> int:
    """Return a number as it is in so many bits."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if signed and value >> (bits - 1) else value


# Those of `operator` are called in half the time that those of `int` take.
_EXACT: dict[str, Callable[..., int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
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

_COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")
_PLAIN = ("i1", "i32", "i64", "index")
NARROW = {"i8": 8, "i16": 16, "ui8": 8, "ui16": 16, "ui32": 32, "ui64": 64}
"""The types of integers that wrap, and how many bits they have."""


def _narrow(meaning: Callable[..., int], kind: str, compares: bool) -> Callable[..., int]:
    bits, signed = NARROW[kind], kind.startswith("i")

    def narrow(*args: int) -> int:
        found = meaning(*[wrapped(item, bits, signed) for item in args])
        return found if compares else wrapped(found, bits, signed)

    return narrow


FUNCTIONS: dict[str, Callable[..., int]] = {
    **_EXACT,
    **{
        f"{name} {kind}": _narrow(meaning, kind, name in _COMPARE)
        for name, meaning in _EXACT.items()
        for kind in NARROW
    },
    **{f"cast {kind}": _narrow(int.__pos__, kind, False) for kind in NARROW},
}
"""What the proof computes, by name: of integers without end, and of those of a type that wraps."""

NAMES = {meaning: name for name, meaning in FUNCTIONS.items()}


_SIGNS = {Signedness.SIGNLESS: "i", Signedness.SIGNED: "si", Signedness.UNSIGNED: "ui"}


def spelled(kind: Attribute) -> str:
    """Return a type as it is printed. A printer takes ten times as long for a number's, which is
    asked of each operation.
    """
    if isinstance(kind, IntegerType):
        integer = cast(IntegerType, kind)  # its type parameters are of no interest here
        return f"{_SIGNS[integer.signedness.data]}{integer.width.data}"
    return kind.name if isinstance(kind, AnyFloat) else str(kind)


def name_of(function: str, element: Attribute) -> str:
    """Return what the proof calls a function of elements of a type.

    Integers with a sign of 32 bits and more are taken not to overflow. What floats give is not
    computed, only that equal arguments give equal results: of NaN no comparison but "ne" holds.
    """
    kind = spelled(element)
    return function if function == "select" or kind in _PLAIN else f"{function} {kind}"


def cast_name(source: Attribute, target: Attribute) -> str:
    """Return what the proof calls a cast: nothing where it keeps the number."""
    old, new = spelled(source), spelled(target)
    integers = (old in _PLAIN or old in NARROW) and (new in _PLAIN or new in NARROW)
    keeps = integers and new != "i1" and (new in _PLAIN or old == "i1")
    return "" if keeps else f"cast {new}"
