"""What an expression of a model can be while the model is lowered.

Static values are Python's own: numbers, None, tuples, functions. What depends on data or on a
random choice is a `Value` of the IR, or a part of an array.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tawa.ppl.ir.core import Type, Value


@dataclass(frozen=True, slots=True)
class Variable:
    """An array of the lane's memory: what it holds changes."""

    name: str
    type: Type


@dataclass(frozen=True, slots=True)
class View:
    """The part of an array that some leading indices choose."""

    array: Value | Variable
    at: tuple[Value, ...] = ()

    @property
    def type(self) -> Type:
        """Element kind, and the shape that is left."""
        return Type(self.array.type.kind, self.array.type.shape[len(self.at) :])


@dataclass(frozen=True, slots=True)
class Columns:
    """A vector of records: one array for each field. `shape` is a record of the fields' places."""

    arrays: tuple[Value, ...]
    template: Any
    count: int


@dataclass(frozen=True, slots=True)
class Sequence:
    """Something to go through: how many items, and how to make one."""

    count: Value | int
    item: Callable[[Value], Any]


@dataclass(frozen=True, slots=True)
class Bounded:
    """The first `count` rows of arrays: what `filter` gives."""

    rows: Value | Columns
    count: Value


@dataclass(frozen=True, slots=True)
class Lane:
    """What an algorithm is given: its attributes are the lane's variables, which are declared
    where they are first assigned, and the numbers that all lanes share. Models never see one.
    """

    shared: dict[str, Value]


@dataclass(frozen=True, slots=True)
class List:
    """A list: the number of its first cell, and the template and types of an item."""

    place: Value
    item: Any
    types: tuple[Type, ...]


@dataclass(frozen=True, slots=True)
class Hole:
    """The place of the n-th value in a record that was taken apart."""

    index: int


def is_record(given: Any) -> bool:
    """Whether something is a record (it narrows no type: items stay Any)."""
    return isinstance(given, tuple)


def flatten(given: Any, leaves: list[Any]) -> Any:
    """Take a record apart: append its numbers and values to `leaves`, return its template."""
    if isinstance(given, tuple):
        return tuple(flatten(item, leaves) for item in given)  # type: ignore[reportUnknownVariableType]
    if isinstance(given, Columns):
        at = len(leaves)
        leaves.extend(given.arrays)
        holes = tuple(Hole(at + k) for k in range(len(given.arrays)))
        return Columns(holes, given.template, given.count)  # type: ignore[arg-type]
    if isinstance(given, List):
        leaves.append(given.place)
        return List(Hole(len(leaves) - 1), given.item, given.types)  # type: ignore[arg-type]
    if isinstance(given, (Value, View, bool, int, float)):
        leaves.append(given)
        return Hole(len(leaves) - 1)
    return given


def rebuild(template: Any, leaves: list[Any] | tuple[Any, ...]) -> Any:
    """Put a record together again from its template and its leaves."""
    match template:
        case Hole(index):
            return leaves[index]
        case tuple():
            return tuple(rebuild(item, leaves) for item in template)  # type: ignore[reportUnknownVariableType]
        case Columns(arrays, inner, count):
            return Columns(tuple(rebuild(item, leaves) for item in arrays), inner, count)
        case List(place, item, types):
            return List(rebuild(place, leaves), item, types)
        case _:
            return template
