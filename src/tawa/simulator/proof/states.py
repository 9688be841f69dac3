"""The state of a run: saved, restored, and told from other states.

What changes while agents act are the fields of a few kinds of objects; all fields of these are
kept, so that none can be forgotten. What follows from the program alone (scripts, scalars) stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, TypeAlias, TypeVar, cast

from tawa.simulator.proof.globals import GlobalAccess
from tawa.simulator.proof.memory import Access

Made = TypeVar("Made")
Values: TypeAlias = tuple[Any, ...]
Kept: TypeAlias = tuple[Values, int]
"""The values of an object's fields, and the number of what they tell."""

Saved: TypeAlias = list[Kept]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of object: its fields that change, the places of those that tell states apart."""

    names: tuple[str, ...]
    told: tuple[int, ...]
    read: Callable[[Any], Values]


# Fields that nothing changes, and those that tell nothing about what can still happen: reports, and
# what follows from how far the agents are.
_SAME = frozenset(
    (
        *("label", "name", "block", "role", "group", "warps", "leader", "first", "origin"),
        *("world", "home", "script", "engine", "bulk", "copies"),
    )
)
_UNTOLD = frozenset(
    (
        *("blocked", "queue", "reading", "last", "made", "held", "flying", "remote"),
        *("turns", "started", "finished"),
        *("read", "read_later", "wrote", "wrote_later"),
    )
)


@dataclass(eq=False, slots=True)
class Shared:
    """Tables that belong to no agent and no barrier."""

    made: dict[int, int]
    held: dict[Any, Any]
    landings: list[Any]
    flying: list[Any]
    remote: list[Any]
    accesses: dict[Any, Any]


class States:
    """The objects of a run that change, and the states it was seen in."""

    def __init__(self) -> None:
        self.seen: set[tuple[int, ...]] = set()
        self._objects: list[tuple[Any, Kind]] = []
        self._fresh: Saved = []  # each object as it was made
        self._last: Saved = []  # as it was when it was last looked at
        self._kinds: dict[type, Kind] = {}
        self._numbers: dict[Values, int] = {}

    def add(self, item: Made) -> Made:
        """Follow an object, a dataclass, from now on."""
        kind = self._kinds.get(type(item))
        if kind is None:
            kind = self._kinds[type(item)] = _kind(item)
        self._objects.append((item, kind))
        self._fresh.append(self._kept(kind, kind.read(item)))
        self._last.append(self._fresh[-1])
        return item

    def add_all(self, items: Iterable[object]) -> None:
        """Follow objects, each once."""
        for item in {id(item): item for item in items if item is not None}.values():
            self.add(item)

    def save(self) -> Saved:
        """Return what all objects are now."""
        last = self._last
        for place, (item, kind) in enumerate(self._objects):
            values = kind.read(item)
            if values != last[place][0]:
                last[place] = self._kept(kind, values)
        return last.copy()

    def restore(self, saved: Saved) -> None:
        """Bring back a state. Objects that it did not have yet are as they were made."""
        self._last = [*saved, *self._fresh[len(saved) :]]
        for (item, kind), (values, _) in zip(self._objects, self._last, strict=True):
            if kind.read(item) != values:
                for name, value in zip(kind.names, values, strict=True):
                    _put(item, name, value)

    def is_new(self) -> bool:
        """Tell whether the state at hand is met for the first time."""
        state = tuple(number for _, number in self.save())
        if state in self.seen:
            return False
        self.seen.add(state)
        return True

    def _kept(self, kind: Kind, values: Values) -> Kept:
        told = tuple(_plain(values[place]) for place in kind.told)
        return tuple(map(_copy, values)), self._numbers.setdefault(told, len(self._numbers))


def _kind(item: object) -> Kind:
    names = [field.name for field in fields(cast(Any, item)) if field.name not in _SAME]
    told = tuple(place for place, name in enumerate(names) if name not in _UNTOLD)
    return Kind(tuple(names), told, _reader(names))


def _reader(names: list[str]) -> Callable[[Any], Values]:
    """Return the function that reads some fields of an object."""
    read: Callable[[Any], Any] = attrgetter(*names)

    def read_one(item: Any) -> Values:
        return (read(item),)

    return read if len(names) > 1 else read_one


def _copy(value: Any) -> Any:
    if isinstance(value, (list, dict, set)):
        return cast(Any, value).copy()
    return value


def _put(item: object, name: str, value: Any) -> None:
    """Set a field. Tables stay the objects that they are: others hold them as well."""
    if not isinstance(value, (list, dict, set)):
        setattr(item, name, value)
        return
    table = getattr(item, name)
    table.clear()
    if isinstance(value, list):
        table.extend(value)
    else:
        table.update(value)


def _plain(value: Any) -> Any:
    """Return a value that equals another exactly if what it stands for is the same."""
    match value:
        case list():
            return tuple(map(_name, cast("list[Any]", value)))
        case dict():
            items = cast("dict[Any, Any]", value).items()
            return frozenset(
                _name(item) if hasattr(item, "event") else (key, item) for key, item in items
            )
        case set():
            return frozenset(cast("set[Any]", value))
        case _:
            return value


def _name(value: Any) -> Any:
    return value.event if isinstance(value, (Access, GlobalAccess)) else value
