"""Words: shapes whose items are dimensions and row variables, which stand for any more items."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TypeAlias, cast

from tawa.integers import Expr, Symbol
from tawa.integers.expressions import of_atom


class Row:
    """A variable for a word of any rank; `name` is a hint for printing."""

    __slots__ = ("name", "uid")

    def __init__(self, name: str, uid: int) -> None:
        self.name = name
        self.uid = uid

    def __repr__(self) -> str:
        return f"..{self.name or self.uid}"


Word: TypeAlias = tuple[Expr | Row, ...]


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a source text: 1-based line and columns, the end not included."""

    line: int
    column: int
    end: int

    def __str__(self) -> str:
        return f"{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Source:
    """Why a constraint is there.

    `call` numbers the application that asks; `operator` at `place` is what is applied; `at` is
    the argument, `name` what it is called, and `bound` where that parameter is declared.
    """

    call: int
    operator: str
    place: Span
    at: Span
    name: str = ""
    bound: Span | None = None
    word: Word | None = None


class Fresh:
    """Makes variables that are told apart by a number."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def number(self) -> int:
        """Return a number that was not given before."""
        return next(self._numbers)

    def row(self, name: str = "") -> Row:
        """Return a new row variable."""
        return Row(name, next(self._numbers))

    def symbol(self, name: str = "", kind: str = "size") -> Symbol:
        """Return a new unknown: a `size` is never negative, an `int` may be."""
        return Symbol(name, (next(self._numbers), kind))

    def dim(self, name: str = "", kind: str = "size") -> Expr:
        """Return a new unknown as an expression."""
        return of_atom(self.symbol(name, kind))

    def dims(self, count: int) -> tuple[Expr, ...]:
        """Return new unknown sizes."""
        return tuple([self.dim() for _ in range(count)])


def number_of(symbol: Symbol) -> int:
    """Return the number by which a symbol is told from others."""
    return _key(symbol)[0]


def is_size(symbol: Symbol) -> bool:
    """Tell whether a symbol is a size of a tensor, so never negative."""
    return kind_of(symbol) == "size"


def kind_of(symbol: Symbol) -> str:
    """Return the kind with which a symbol was made."""
    return _key(symbol)[1]


def _key(symbol: Symbol) -> tuple[int, str]:
    return cast("tuple[int, str]", symbol.key)


def is_known(word: Word) -> bool:
    """Tell whether a word's rank is known."""
    return not any(isinstance(item, Row) for item in word)


def rows_in(word: Word) -> list[Row]:
    """Return the row variables of a word, in order."""
    return [item for item in word if isinstance(item, Row)]


def dims_in(word: Word) -> list[Expr]:
    """Return the dimensions of a word, in order."""
    return [item for item in word if not isinstance(item, Row)]
