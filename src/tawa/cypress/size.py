"""Integers that only a call knows: extents of tensors, indices of loops, and arithmetic on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from tawa.cypress.place import here
from tawa.errors import MappingError
from tawa.integers.expressions import Expr, Symbol, lift, of_atom, render

Int: TypeAlias = "int | Size"

_OPERATORS: Mapping[str, Callable[[Expr, Expr], Expr]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
}


def _operation(op: str, turned: bool = False) -> Callable[[Size, Int], Int]:
    def combined(self: Size, other: Int) -> Int:
        return combine(op, other, self) if turned else combine(op, self, other)

    return combined


@dataclass(frozen=True, slots=True, eq=False)
class Size:
    """A run-time integer: an expression in normal form, of whose value Python knows nothing.

    Extents and indices are never negative.
    """

    expr: Expr

    def __str__(self) -> str:
        """Return the expression; what is equal has one text."""
        return render(self.expr)

    __repr__ = __str__
    __add__, __radd__ = _operation("+"), _operation("+", turned=True)
    __sub__, __rsub__ = _operation("-"), _operation("-", turned=True)
    __mul__, __rmul__ = _operation("*"), _operation("*", turned=True)
    __floordiv__, __rfloordiv__ = _operation("//"), _operation("//", turned=True)
    __mod__, __rmod__ = _operation("%"), _operation("%", turned=True)

    @property
    def symbol(self) -> Symbol:
        """The index or the extent that this is; of other expressions there is none."""
        ((symbol,),) = self.expr.terms
        assert isinstance(symbol, Symbol)
        return symbol

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


def extent(tensor: str, dim: int) -> Size:
    """Return the extent of a dimension of one of the program's tensors."""
    return Size(of_atom(Symbol(f"{tensor}.shape[{dim}]", (tensor, dim))))


def number(name: str) -> Size:
    """Return an integer that a call gives the program."""
    return Size(of_atom(Symbol(name, (name,))))


def index(name: str, number: int) -> Size:
    """Return the index of a loop; `number` tells it from others of its name."""
    return Size(of_atom(Symbol(name, number)))


def key(value: Int) -> Expr:
    """Return the expression, which is equal where two sizes are."""
    return value.expr if isinstance(value, Size) else lift(value)


def sized(expr: Expr) -> Int:
    """Return an expression as a size, or as the number that it is."""
    return Size(expr) if expr.value is None else expr.value


def combine(op: str, left: Int, right: Int) -> Int:
    """Return an operation, in normal form."""
    for side in (left, right):
        given: Any = side
        if isinstance(given, bool) or not isinstance(given, int | Size):
            raise MappingError(
                f"{side!r} is no size",
                place=here(),
                why="extents and indices are integers, and + - * // % make others of them",
            )
    if op in ("//", "%") and not (isinstance(right, int) and right > 0):
        raise MappingError(
            f"({left}) {op} ({right})",
            place=here(),
            why="what divides is a number of 1 or more",
            remedy="part a tensor into blocks of a known extent",
        )
    # In normal form what is divided is never negative: (i - 1) // 2 is (i + 1) // 2 - 1.
    return sized(_OPERATORS[op](key(left), key(right)))


def cdiv(value: Int, divisor: Int) -> Int:
    """Divide and round up."""
    return combine("//", value + divisor - 1, divisor)


def divides(divisor: int, value: Int) -> bool:
    """Tell whether a number divides each term of a size."""
    return all(factor % divisor == 0 for factor in key(value).terms.values())


def evaluate(value: Int, known: Mapping[Symbol, int]) -> int:
    """Return the number, of the numbers of extents and indices."""
    return key(value).evaluate(known)


def leaves(value: Int) -> frozenset[Symbol]:
    """Return the extents and indices in an expression."""
    return key(value).symbols


def is_extent(symbol: Symbol) -> bool:
    """Tell whether a call knows the number: it is an extent or is given, and no index."""
    return isinstance(symbol.key, tuple)


def affine(value: Int, indices: frozenset[Symbol]) -> dict[Symbol, int] | None:
    """Return the coefficients of indices, or None where it is not affine in them."""
    found: dict[Symbol, int] = {}
    for monomial, factor in key(value).terms.items():
        moving = {s for atom in monomial for s in of_atom(atom).symbols} & indices
        if moving and monomial != tuple(moving):
            return None
        found |= dict.fromkeys(moving, factor)
    return found


def sizes_of(arrays: Mapping[str, Any]) -> dict[Symbol, int]:
    """Return the extents of a program's arrays, and the integers among its numbers."""
    extents = {
        extent(name, dim).symbol: int(size)
        for name, array in arrays.items()
        for dim, size in enumerate(getattr(array, "shape", ()))
    }
    numbers = {name: n for name, n in arrays.items() if not getattr(n, "shape", ())}
    return extents | {number(name).symbol: int(n) for name, n in numbers.items() if n == int(n)}
