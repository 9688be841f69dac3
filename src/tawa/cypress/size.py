"""Integers that only a call knows: extents of tensors, indices of loops, and arithmetic on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from tawa.cypress.place import here
from tawa.errors import MappingError

Int: TypeAlias = "int | Size"

_FOLD: Mapping[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
}


@dataclass(frozen=True, slots=True, eq=False)
class Size:
    """A run-time integer: a leaf has a `name` (unique in its program), else `op` of two others."""

    name: str = ""
    op: str = ""
    left: Int = 0
    right: Int = 0

    def __str__(self) -> str:
        """Return the expression; what is equal by structure has one text."""
        return self.name.partition("#")[0] if self.name else f"({self.left} {self.op} {self.right})"

    __repr__ = __str__

    @property
    def key(self) -> str:
        """The expression with unique names."""
        return self.name or f"({key(self.left)} {self.op} {key(self.right)})"

    def __add__(self, other: Int) -> Int:
        """Return self + other."""
        return combine("+", self, other)

    def __radd__(self, other: int) -> Int:
        """Return other + self."""
        return combine("+", other, self)

    def __sub__(self, other: Int) -> Int:
        """Return self - other."""
        return combine("-", self, other)

    def __rsub__(self, other: int) -> Int:
        """Return other - self."""
        return combine("-", other, self)

    def __mul__(self, other: Int) -> Int:
        """Return self * other."""
        return combine("*", self, other)

    def __rmul__(self, other: int) -> Int:
        """Return other * self."""
        return combine("*", other, self)

    def __floordiv__(self, other: Int) -> Int:
        """Return self // other."""
        return combine("//", self, other)

    def __rfloordiv__(self, other: int) -> Int:
        """Return other // self."""
        return combine("//", other, self)

    def __rmod__(self, other: int) -> Int:
        """Return other % self."""
        return combine("%", other, self)

    def __mod__(self, other: Int) -> Int:
        """Return self % other."""
        return combine("%", self, other)

    def _refuse(self, *_: Any) -> Any:
        raise MappingError(
            f"Python asks for the value of {self}, which only a call knows",
            place=here(),
            why="a variant is traced once for all sizes: no if, while, int() or comparison can "
            "depend on an extent or an index",
            remedy="loop with cy.srange, or choose by a tunable",
        )

    __bool__ = __index__ = __int__ = __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _refuse
    __hash__ = object.__hash__


def key(value: Int) -> str:
    """Return text that is equal where two sizes are the same expression."""
    return value.key if isinstance(value, Size) else str(value)


def combine(op: str, left: Int, right: Int) -> Int:
    """Return an operation, folded where numbers say the result."""
    for side in (left, right):
        given: Any = side
        if isinstance(given, bool) or not isinstance(given, int | Size):
            raise MappingError(
                f"{side!r} is no size",
                place=here(),
                why="extents and indices are integers, and + - * // % make others of them",
            )
    if isinstance(left, int) and isinstance(right, int):
        return _FOLD[op](left, right)
    if isinstance(right, int):
        if op in "+-":
            right = right if op == "+" else -right
            if isinstance(left, Size) and left.op == "+" and isinstance(left.right, int):
                left, right = left.left, left.right + right
            return Size("", "+", left, right) if right else left
        if right == 1 and op in ("*", "//"):
            return left
    if op in ("//", "%") and not (isinstance(right, int) and right > 0 and _natural(left)):
        raise MappingError(
            f"({left}) {op} ({right})",
            place=here(),
            why="what is divided is never negative, and what divides is a number of 1 or more",
            remedy="divide before subtracting; part a tensor into blocks of a known extent",
        )
    if isinstance(right, int) and right == 0 and op == "*":
        return 0
    if isinstance(left, int):
        if left == 0 and op != "-":
            return right if op == "+" else 0
        if left == 1 and op == "*":
            return right
    return Size("", op, left, right)


def _natural(value: Int) -> bool:
    """Tell whether a size is put together of what is never negative, without differences."""
    if isinstance(value, int):
        return value >= 0
    return bool(value.name) or (value.op != "-" and _natural(value.left) and _natural(value.right))


def cdiv(value: Int, divisor: Int) -> Int:
    """Divide and round up."""
    exact = quotient(value, divisor) if isinstance(divisor, int) else None
    return combine("//", value + divisor - 1, divisor) if exact is None else exact


def quotient(value: Int, divisor: int) -> Int | None:
    """Return value / divisor where its terms show that it is whole, else None."""
    if isinstance(value, int):
        return value // divisor if value % divisor == 0 else None
    left = quotient(value.left, divisor) if value.op else None
    if value.op == "*":
        right = quotient(value.right, divisor)
        if left is not None:
            return combine("*", left, value.right)
        return None if right is None else combine("*", value.left, right)
    if left is None or value.op not in "+-":
        return None
    right = quotient(value.right, divisor)
    return None if right is None else combine(value.op, left, right)


def evaluate(value: Int, known: Mapping[str, int]) -> int:
    """Return the number, of the leaves' numbers by name."""
    if isinstance(value, int):
        return value
    if value.name:
        return known[value.name]
    return _FOLD[value.op](evaluate(value.left, known), evaluate(value.right, known))


def most(value: Int) -> int | None:
    """Return the most that an expression of one extent can be, or None where it grows with it.

    With an extent that is larger by a multiple of all that it is divided by, sums of quotients
    grow by one amount, wherever they are: where that is none, one period shows all values.
    """
    if isinstance(value, int):
        return value
    names, period = leaves(value), _period(value)
    if len(names) != 1 or period is None or any(".shape[" not in name for name in names):
        return None
    (name,) = names
    found = [evaluate(value, {name: size}) for size in range(2 * period)]
    return max(found) if found[:period] == found[period:] else None


def _period(value: Int) -> int | None:
    """Return the product of what is divided by, None where extents multiply or divide."""
    if isinstance(value, int) or value.name:
        return 1
    left, right = _period(value.left), _period(value.right)
    numbers = [each for each in (value.left, value.right) if isinstance(each, int)]
    if left is None or right is None or (value.op not in "+-" and not numbers):
        return None
    divided = value.op in ("//", "%") and isinstance(value.right, int)
    return left * right * (value.right if divided and isinstance(value.right, int) else 1)


def leaves(value: Int) -> set[str]:
    """Return the names in an expression."""
    if isinstance(value, int):
        return set()
    return {value.name} if value.name else leaves(value.left) | leaves(value.right)


def affine(value: Int) -> dict[str, int] | None:
    """Return the coefficients by name ("" is the constant), or None where it is not affine.

    What is made of extents alone is a constant of a call: it goes by its text.
    """
    if isinstance(value, int):
        return {"": value}
    if value.name:
        return {value.name: 1}
    if all(".shape[" in name for name in leaves(value)):
        return {key(value): 1}
    left, right = affine(value.left), affine(value.right)
    if left is None or right is None:
        return None
    match value.op:
        case "+" | "-":
            sign = 1 if value.op == "+" else -1
            return {n: left.get(n, 0) + sign * right.get(n, 0) for n in {*left, *right}}
        case "*" if not set(right) - {""}:
            return {n: c * right[""] for n, c in left.items()}
        case "*" if not set(left) - {""}:
            return {n: c * left[""] for n, c in right.items()}
        case _:
            return None


def sizes_of(arrays: Mapping[str, Any]) -> dict[str, int]:
    """Return the extents of a program's arrays, by the names of their sizes."""
    return {
        f"{name}.shape[{dim}]": int(size)
        for name, array in arrays.items()
        for dim, size in enumerate(array.shape)
    }
