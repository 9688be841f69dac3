"""The core syntax tree. Every node has the place of its text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tawa.axon.shapes.words import Span

# Dimensions, words and relations of types.


@dataclass(frozen=True, slots=True)
class Number:
    """A number in a dimension."""

    value: int
    place: Span


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable: a dimension, or a row where `row`; `each` marks what differs in a list."""

    name: str
    place: Span
    row: bool = False
    each: bool = False


@dataclass(frozen=True, slots=True)
class Operation:
    """A function or operator of dimensions or words: `+ - * // % sum prod rank at broadcast ...`"""

    name: str
    inputs: tuple[Size, ...]
    place: Span


@dataclass(frozen=True, slots=True)
class Listed:
    """A word in brackets."""

    items: tuple[Size, ...]
    place: Span


Size: TypeAlias = Number | Variable | Operation | Listed


@dataclass(frozen=True, slots=True)
class Relation:
    """`left sign right`, sign one of `= >= <=`; or a predicate, which has no right side."""

    sign: str
    left: Size
    right: Size | None
    place: Span


@dataclass(frozen=True, slots=True)
class TypeNode:
    """A type: `kind` is one of tensor, var, fun, tuple, int, shape, each, list, text, options."""

    kind: str
    place: Span
    name: str = ""
    parts: tuple[TypeNode, ...] = ()
    sizes: tuple[Size, ...] = ()
    options: tuple[tuple[str, TypeNode, Tree | None], ...] = ()
    where: tuple[Relation, ...] = ()


# Expressions.


@dataclass(frozen=True, slots=True)
class Name:
    """A variable or an operator of the library."""

    name: str
    place: Span


@dataclass(frozen=True, slots=True)
class Literal:
    """A number, a text or a truth value."""

    value: int | float | str
    place: Span


@dataclass(frozen=True, slots=True)
class Call:
    """A function applied to one argument."""

    function: Tree
    argument: Tree
    place: Span


@dataclass(frozen=True, slots=True)
class Binary:
    """An operator between two expressions; `at` is the operator's place."""

    operator: str
    left: Tree
    right: Tree
    place: Span
    at: Span


@dataclass(frozen=True, slots=True)
class Group:
    """A tuple or a list; both are written-out sequences."""

    items: tuple[Tree, ...]
    place: Span
    is_list: bool = False


@dataclass(frozen=True, slots=True)
class Record:
    """Options: names with values."""

    fields: tuple[tuple[str, Tree], ...]
    place: Span


@dataclass(frozen=True, slots=True)
class Lambda:
    """A function without a name."""

    pattern: Pattern
    body: Tree
    place: Span


@dataclass(frozen=True, slots=True)
class Let:
    """Declarations and the value that uses them."""

    declarations: tuple[Declaration, ...]
    body: Tree
    place: Span


@dataclass(frozen=True, slots=True)
class Annotated:
    """An expression with its type."""

    value: Tree
    type: TypeNode
    place: Span


Tree: TypeAlias = Name | Literal | Call | Binary | Group | Record | Lambda | Let | Annotated


@dataclass(frozen=True, slots=True)
class Pattern:
    """What a value is bound to: a name, or a tuple of patterns; either with a type."""

    place: Span
    name: str = ""
    parts: tuple[Pattern, ...] = ()
    type: TypeNode | None = None


@dataclass(frozen=True, slots=True)
class Val:
    """`val pattern = value`."""

    pattern: Pattern
    value: Tree
    place: Span


@dataclass(frozen=True, slots=True)
class Fun:
    """`fun name : forall promised. parameters : result requires ... = body`."""

    name: str
    parameters: tuple[Pattern, ...]
    body: Tree
    place: Span
    promised: tuple[str, ...] = ()
    result: TypeNode | None = None
    requires: tuple[Relation, ...] = ()


Declaration: TypeAlias = Val | Fun
