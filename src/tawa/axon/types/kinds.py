"""Types of values, and of element types."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from tawa.axon.shapes.constraints import Base
from tawa.axon.shapes.words import Row, Word
from tawa.axon.syntax.tree import Tree
from tawa.integers import Expr, Symbol

FLOATS = ("f64", "f32", "f16", "bf16")
INTEGERS = ("i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8")
CLASSES = {
    "any": (*FLOATS, *INTEGERS, "bool"),
    "number": (*FLOATS, *INTEGERS),
    "float": FLOATS,
    "int": INTEGERS,
}
# By the first letter of a variable: 'f is a float, 'i an integer, 'n a number, others any type.
CLASS_OF_LETTER = {"f": "float", "i": "int", "n": "number"}
DEFAULT = {"any": "f32", "number": "f32", "float": "f32", "int": "i64"}


class ElementVar:
    """An element type that is not known; it is one of `CLASSES[kind]`."""

    __slots__ = ("kind", "uid")

    def __init__(self, kind: str, uid: int) -> None:
        self.kind = kind
        self.uid = uid


class TypeVar:
    """A type that is not known."""

    __slots__ = ("name", "uid")

    def __init__(self, uid: int, name: str = "") -> None:
        self.uid = uid
        self.name = name


Element: TypeAlias = ElementVar | str


@dataclass(frozen=True, slots=True)
class Tensor:
    """An array: element type and shape."""

    element: Element
    word: Word


@dataclass(frozen=True, slots=True)
class Int:
    """The integer that is `value`: a number that shapes can be made of."""

    value: Expr


@dataclass(frozen=True, slots=True)
class Shape:
    """A list of integers: `word`."""

    word: Word


@dataclass(frozen=True, slots=True)
class Each:
    """An integer for each axis: a list of them, or one for all."""

    word: Word


@dataclass(frozen=True, slots=True)
class Arrow:
    """A function."""

    argument: Type
    result: Type


@dataclass(frozen=True, slots=True)
class Product:
    """A tuple, or a list that is written out."""

    items: tuple[Type, ...]


@dataclass(frozen=True, slots=True)
class ListOf:
    """A written-out list of `count` items; the sizes `each` differ, and sum up to `totals`."""

    item: Type
    each: tuple[Symbol, ...]
    totals: tuple[Expr, ...]
    count: Expr


@dataclass(frozen=True, slots=True)
class Options:
    """Named options; one with a default may be left out."""

    fields: tuple[tuple[str, Type, Tree | None], ...]


@dataclass(frozen=True, slots=True)
class Text:
    """A text, which only directs an operator."""


Type: TypeAlias = TypeVar | Tensor | Int | Shape | Each | Arrow | Product | ListOf | Options | Text


def spine(kind: Type) -> tuple[list[Type], Type]:
    """Return the arguments of a curried function, and its result. It may have thousands."""
    arguments: list[Type] = []
    while isinstance(kind, Arrow):
        arguments.append(kind.argument)
        kind = kind.result
    return arguments, kind


def arrows(arguments: list[Type], result: Type) -> Type:
    """Return the curried function of arguments and a result."""
    for argument in reversed(arguments):
        result = Arrow(argument, result)
    return result


@dataclass(frozen=True, slots=True)
class Scheme:
    """A type for all values of some variables, as far as constraints hold.

    Every variable in `general` is replaced where the scheme is used.
    """

    type: Type
    general: frozenset[TypeVar | ElementVar | Row | Symbol] = frozenset()
    constraints: tuple[Base, ...] = ()


@dataclass(frozen=True, slots=True)
class Rename:
    """How variables are replaced."""

    variable: Callable[[TypeVar], Type]
    element: Callable[[ElementVar], Element]
    row: Callable[[Row], Word]
    dim: Callable[[Expr], Expr]

    def word(self, word: Word) -> Word:
        """Return a word with its variables replaced."""
        out: list[Expr | Row] = []
        for item in word:
            if isinstance(item, Row):
                out.extend(self.row(item))
            else:
                out.append(self.dim(item))
        return tuple(out)

    def type(self, kind: Type) -> Type:
        """Return a type with its variables replaced."""
        match kind:
            case TypeVar():
                return self.variable(kind)
            case Tensor(element, word):
                fresh = element if isinstance(element, str) else self.element(element)
                return Tensor(fresh, self.word(word))
            case Int(value):
                return Int(self.dim(value))
            case Shape(word):
                return Shape(self.word(word))
            case Each(word):
                return Each(self.word(word))
            case Arrow():
                arguments, result = spine(kind)
                return arrows([self.type(item) for item in arguments], self.type(result))
            case Product(items):
                return Product(tuple([self.type(item) for item in items]))
            case ListOf(item, each, totals, count):
                fresh_totals = tuple([self.dim(total) for total in totals])
                return ListOf(self.type(item), each, fresh_totals, self.dim(count))
            case Options(fields):
                return Options(tuple([(n, self.type(kind), d) for n, kind, d in fields]))
            case Text():
                return kind


def variables(kind: Type) -> Iterator[TypeVar | ElementVar | Row | Symbol]:
    """Yield the variables of a type, in order, as often as they occur."""
    match kind:
        case TypeVar():
            yield kind
        case Tensor(element, word):
            if isinstance(element, ElementVar):
                yield element
            yield from _of_word(word)
        case Int(value):
            yield from sorted(value.symbols, key=lambda s: s.order)
        case Shape(word) | Each(word):
            yield from _of_word(word)
        case Arrow():
            arguments, result = spine(kind)
            for argument in arguments:
                yield from variables(argument)
            yield from variables(result)
        case Product(items):
            for item in items:
                yield from variables(item)
        case ListOf(item, each, totals, count):
            yield from (v for v in variables(item) if v not in each)
            yield from _of_word((*totals, count))
        case Options(fields):
            for _, field, _ in fields:
                yield from variables(field)
        case Text():
            return


def _of_word(word: Word) -> Iterator[Any]:
    for item in word:
        if isinstance(item, Row):
            yield item
        else:
            yield from sorted(item.symbols, key=lambda s: s.order)
