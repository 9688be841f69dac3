"""Expressions over unknowns: what a scalar is that is no number yet."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

Scalar: TypeAlias = "int | Expr"


class Expr:
    """An unknown (no arguments) or a function of scalars. Equal expressions are one object."""

    __slots__ = ("args", "function", "serial", "unknown")

    def __init__(self, function: str, args: tuple[object, ...], unknown: bool, serial: int) -> None:
        self.function = function
        self.args = args
        self.unknown = unknown
        self.serial = serial

    def __repr__(self) -> str:
        return f"{self.function}({', '.join(map(str, self.args))})"


def parts_of(scalars: Iterable[object]) -> list[object]:
    """Return all that scalars are made of, each once: a while loop's are thousands deep."""
    found: dict[object, None] = {}
    left = [*scalars][::-1]
    while left:
        item = left.pop()
        if item not in found:
            found[item] = None
            if isinstance(item, Expr) and not item.unknown:
                left += item.args[::-1]
    return list(found)


def follows(one: Scalar, other: Scalar) -> bool:
    """Tell whether two arguments that commute stand the other way round: numbers first, then by
    age.
    """
    if isinstance(one, Expr) and isinstance(other, Expr):
        return one.serial > other.serial
    return isinstance(one, Expr)
