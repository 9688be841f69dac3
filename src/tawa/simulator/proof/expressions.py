"""Expressions over unknowns: what a scalar is that is no number yet."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from tawa.simulator.proof.functions import FUNCTIONS

Scalar: TypeAlias = "int | Expr"
Facts: TypeAlias = "tuple[Facts, Scalar, Scalar] | None"
"""What holds at a place of a program: one scalar is more than another, and what held before."""

_COMMUTE = frozenset({"add", "mul", "min", "max", "and", "or", "xor", "eq", "ne"})


class Expr:
    """An unknown (no arguments) or a function of scalars. Equal expressions are one object.

    `parts` are the arguments that are no numbers, `meaning` computes it from all. Of a word of
    memory, `address` is what its address is made of (`words`).
    """

    __slots__ = ("address", "args", "function", "meaning", "parts", "serial", "unknown")

    def __init__(self, function: str, args: tuple[object, ...], unknown: bool, serial: int) -> None:
        self.function = function
        self.args = args
        self.parts = tuple([item for item in args if isinstance(item, Expr)])
        self.meaning: Any = FUNCTIONS.get(function)
        self.unknown = unknown
        self.serial = serial
        self.address: Any = None

    def __repr__(self) -> str:
        return f"{self.function}({', '.join(map(str, self.args))})"


_NONE = frozenset[Expr]()


class Expressions:
    """The expressions of all runs of a kernel, each once: those of the same parts are one object.
    `units` are the numbers that unknowns are multiples of, `words` the unknowns that are words of
    memory.
    """

    def __init__(self) -> None:
        self._made: dict[tuple[str, tuple[object, ...]], Expr] = {}
        self._parts: dict[tuple[Scalar, ...], list[object]] = {}
        self._open: dict[tuple[Scalar, ...], list[Expr]] = {}
        self._unknowns: dict[object, frozenset[Expr]] = {}
        self.units: dict[Expr, int] = {}
        self.words: set[Expr] = set()

    def unknown(self, kind: str, key: tuple[object, ...], unit: int) -> Expr:
        """Return the unknown of a kind and key."""
        found = self._made.get((kind, key))
        if found is None:
            found = self._made[kind, key] = Expr(kind, key, True, len(self._made))
            self.units[found] = unit
        return found

    def apply(self, function: str, args: tuple[Scalar, ...]) -> Expr:
        """Return a function of scalars, an unknown where the function is not one of integers."""
        found = self._made.get((function, args))
        if found is None:
            found = self._made[function, args] = self._make(function, args)
        return found

    def parts_of(self, scalars: tuple[Scalar, ...]) -> list[object]:
        """Return all that scalars are made of, each once, worked out when it is first asked for."""
        found = self._parts.get(scalars)
        if found is None:
            found = self._parts[scalars] = parts_of(scalars)
        return found

    def unknown_parts_of(self, scalars: tuple[Scalar, ...]) -> list[Expr]:
        """Return the unknowns among all that scalars are made of, in this order."""
        found = self._open.get(scalars)
        if found is None:
            parts = self.parts_of(scalars)
            found = [item for item in parts if isinstance(item, Expr) and item.unknown]
            self._open[scalars] = found
        return found

    def unknowns_of(self, scalar: object) -> frozenset[Expr]:
        """Return the unknowns that a scalar is made of: of what it is computed from first, without
        recursion, since a while loop's are thousands deep. What has those of one part shares them.
        """
        if not isinstance(scalar, Expr):
            return _NONE
        known = self._unknowns
        path = [] if scalar in known else [scalar]
        while path:
            item = path[-1]
            if item.unknown:
                known[path.pop()] = frozenset((item,))
                continue
            for part in item.parts:
                if part not in known:
                    path.append(part)
                    break
            else:
                known[path.pop()] = _joint([known[part] for part in item.parts])
        return known[scalar]

    def _make(self, function: str, args: tuple[Scalar, ...]) -> Expr:
        if function == "not":
            return self.apply("xor", (args[0], 1))
        if function in _COMMUTE and _follows(*args):
            return self.apply(function, args[::-1])
        return Expr(function, args, function not in FUNCTIONS, len(self._made))


def _joint(sets: list[frozenset[Expr]]) -> frozenset[Expr]:
    """Return all of some sets: the largest one itself where it holds the others."""
    largest = max(sets, key=len, default=_NONE)
    if all(each <= largest for each in sets):
        return largest
    return largest.union(*sets)


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


def _follows(one: Scalar, other: Scalar) -> bool:
    """Tell whether two arguments that commute stand the other way round: numbers first, then by
    age.
    """
    if isinstance(one, Expr) and isinstance(other, Expr):
        return one.serial > other.serial
    return isinstance(one, Expr)
