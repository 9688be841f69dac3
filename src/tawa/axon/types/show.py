"""Types and schemes as text: names for what has none, constraints after `where`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeGuard

from tawa.axon.shapes import constraints as c
from tawa.axon.shapes.words import Row, Word
from tawa.axon.types.kinds import (
    DEFAULT,
    Arrow,
    Each,
    ElementVar,
    Int,
    ListOf,
    Options,
    Product,
    Scheme,
    Shape,
    Tensor,
    Text,
    Type,
    TypeVar,
    spine,
    variables,
)
from tawa.integers import Condition, Expr, Symbol, render
from tawa.integers.conditions import render_condition, symbols_of

_LETTERS = "defghijklmnopqrstuvwxyzabc"  # d for dimension


@dataclass
class Names:
    """Names of variables, made as they are met; `hints` are what signatures call them."""

    hints: Mapping[Row | Symbol, str] = field(default_factory=dict[Row | Symbol, str])
    rows: dict[Row, str] = field(default_factory=dict[Row, str])
    dims: dict[Symbol, str] = field(default_factory=dict[Symbol, str])
    types: dict[TypeVar, str] = field(default_factory=dict[TypeVar, str])
    parameters: dict[Row, str] = field(default_factory=dict[Row, str])

    def row(self, row: Row) -> str:
        """Return the name of a row variable."""
        if row not in self.rows:
            hint = row.name or _plain(self.hints.get(row, "")) or self.parameters.get(row, "r")
            self.rows[row] = _free(hint, set(self.rows.values()))
        return self.rows[row]

    def dim(self, expr: Expr) -> str:
        """Return a dimension as text."""
        for symbol in sorted(expr.symbols, key=lambda s: s.order):
            self.name(symbol)
        return render(expr, self.dims)

    def name(self, symbol: Symbol) -> str:
        """Return the name of a dimension variable."""
        if symbol not in self.dims:
            hint = symbol.name or _plain(self.hints.get(symbol, "")) or "d"
            self.dims[symbol] = _free(hint, set(self.dims.values()))
        return self.dims[symbol]

    def word(self, word: Word, brackets: bool = True) -> str:
        """Return a word as text, without brackets where it is one row variable."""
        items = [f"..{self.row(i)}" if isinstance(i, Row) else self.dim(i) for i in word]
        if len(word) == 1 and isinstance(word[0], Row) and brackets:
            return items[0]
        return f"[{', '.join(items)}]"

    def condition(self, condition: Condition) -> str:
        """Return a condition as text."""
        for symbol in sorted(symbols_of(condition), key=lambda s: s.order):
            self.name(symbol)
        return render_condition(condition, self.dims).replace("==", "=")

    def type(self, kind: Type, level: int = 0) -> str:
        """Return a type as text; `level` 1 is within a product, 2 left of an arrow."""
        match kind:
            case TypeVar():
                if kind not in self.types:
                    hint = kind.name if kind.name.startswith("'") else "'a"
                    self.types[kind] = _free(hint, set(self.types.values()))
                return self.types[kind]
            case Tensor(element, word):
                name = DEFAULT[element.kind] if isinstance(element, ElementVar) else element
                return name + (self.word(word, brackets=False) if word else "")
            case Int(value):
                text = self.dim(value)
                return f"int {text}" if text.isalnum() else f"int ({text})"
            case Shape(word):
                return f"shape {self.word(word)}"
            case Each(word):
                return f"each {self.word(word)}"
            case Arrow():
                arguments, result = spine(kind)
                left = [self.type(argument, 2) for argument in arguments]
                text = " -> ".join([*left, self.type(result)])
                return f"({text})" if level else text
            case Product(items):
                text = " * ".join(self.type(item, 1) for item in items)
                return f"({text})" if level or len(items) < 2 else text
            case ListOf(item):
                return f"{self.type(item, 1)} list"
            case Options(fields):
                inner = ", ".join(f"{name} : {self.type(kind)}" for name, kind, _ in fields)
                return f"{{{inner}}}"
            case Text():
                return "text"

    def constraint(self, constraint: c.Base) -> str:
        """Return a constraint that waits as text."""
        word, dim = self.word, self.dim
        match constraint:
            case c.SameWord(_, left, right):
                return f"{word(left)} = {word(right)}"
            case c.Computed(_, result, function, words):
                return f"{word(result)} = {function}({', '.join(map(word, words))})"
            case c.Product(_, size, inner):
                return f"{dim(size)} = prod {word(inner)}"
            case c.Rank(_, size, inner):
                return f"{dim(size)} = rank {word(inner)}"
            case c.At(_, size, inner, index):
                return f"{dim(size)} = {word(inner)} at {dim(index)}"
            case c.Axis(_, index, before, after):
                return f"axis({dim(index)}, {word(before)}, {word(after)})"
            case c.Pointwise(_, conditions, symbols, words):
                shown = {s: word(w) for s, w in zip(symbols, words)}
                for symbol in {s for each in conditions for s in symbols_of(each)} - set(symbols):
                    shown[symbol] = self.name(symbol)
                texts = [render_condition(each, shown) for each in conditions]
                return ", ".join(texts).replace("==", "=")
            case c.Holds(_, condition):
                return self.condition(condition)
            case c.SameDim(_, left, right):
                return f"{dim(left)} = {dim(right)}"
            case _:
                raise AssertionError(type(constraint))


def _plain(hint: str) -> str:
    """Return a hint of a signature; one with a digit is no name for users."""
    return hint if hint.isalpha() else ""


def _free(hint: str, taken: set[str]) -> str:
    if hint not in taken:
        return hint
    mark = "'" if hint.startswith("'") else ""
    letters = [letter for letter in _LETTERS if f"{mark}{letter}" not in taken]
    if mark:
        letters.sort()
    if letters:
        return f"{mark}{letters[0]}"
    return next(f"{hint}{n}" for n in range(1, len(taken) + 2) if f"{hint}{n}" not in taken)


def show(kind: Type) -> str:
    """Return a type as text."""
    return Names().type(kind)


def name_parameters(names: Names, kind: Type, patterns: Sequence[str | tuple[str, ...]]) -> None:
    """Let row variables that stand alone take the names of their parameters."""
    for pattern in patterns:
        if not isinstance(kind, Arrow):
            return
        argument = kind.argument
        if isinstance(pattern, str):
            pairs: Iterable[tuple[str, Type]] = [(pattern, argument)]
        else:
            pairs = zip(pattern, argument.items) if isinstance(argument, Product) else ()
        for name, each in pairs:
            if isinstance(each, Tensor):
                rows = [item for item in each.word if isinstance(item, Row)]
                if len(rows) == 1:
                    names.parameters.setdefault(rows[0], name)
        kind = kind.result


def show_scheme(scheme: Scheme, guards: Sequence[Condition], names: Names) -> str:
    """Return a scheme as text; `guards` are its conditions on sizes, simplified."""
    text = names.type(scheme.type)
    waiting = [item for item in scheme.constraints if not isinstance(item, c.Holds)]
    waiting = _joined(waiting, {v for v in variables(scheme.type) if isinstance(v, Row)})
    where = [names.constraint(item) for item in waiting]
    requires = [names.condition(guard) for guard in guards]
    text += f"    where {', '.join(dict.fromkeys(where))}" if where else ""
    return text + (f"    requires {', '.join(requires)}" if requires else "")


def _is_broadcast(constraint: c.Base) -> TypeGuard[c.Computed]:
    return isinstance(constraint, c.Computed) and constraint.function == "broadcast"


def _joined(waiting: list[c.Base], named: set[Row]) -> list[c.Base]:
    """Put a broadcast that is used in one other broadcast alone into that one."""
    out = list(waiting)
    for inner in waiting:
        if not _is_broadcast(inner) or len(inner.result) != 1:
            continue
        (row,) = inner.result
        if not isinstance(row, Row) or row in named:
            continue
        users = [o for o in out if o is not inner and row in c.rows_of(o)]
        if len(users) == 1 and _is_broadcast(user := users[0]) and (row,) in user.words:
            words: list[Word] = []
            for word in user.words:
                words.extend(inner.words if word == (row,) else [word])
            out[out.index(user)] = replace(user, words=tuple(words))
            out.remove(inner)
    return out
