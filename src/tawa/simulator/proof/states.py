"""The state of a run: saved, restored, and told from other states.

What changes while agents act are the fields of a few kinds of objects; all fields of these are
kept, so that none can be forgotten. What follows from the program alone (scripts, scalars) stays.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, TypeAlias, TypeVar, cast

from tawa.simulator.proof.globals import GlobalAccess
from tawa.simulator.proof.memory import Access

Made = TypeVar("Made")
Values: TypeAlias = tuple[Any, ...]
Saved: TypeAlias = list[Values]

# Fields that tell nothing about what can still happen: what stays as it is, reports, and what
# follows from how far the agents are.
_SAME = (
    *("label", "name", "block", "role", "group", "warps", "leader", "first", "origin"),
    *("world", "home", "script", "engine", "bulk", "copies"),
)
_UNTOLD = frozenset(
    (*_SAME, "blocked", "queue", "waiters", "seen", "last", "made", "held", "flying", "remote")
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


@dataclass(eq=False, slots=True)
class Contents:
    """The scalars that lie in the shared memory of a block."""

    scalars: dict[Any, Any]


class States:
    """The objects of a run that change, and the states it was seen in."""

    def __init__(self) -> None:
        self.objects: list[Any] = []
        self.fresh: Saved = []  # each object as it was made
        self.seen: set[tuple[int, ...]] = set()
        self._kinds: dict[Values, int] = {}
        self._names: dict[type, tuple[str, ...]] = {}
        self._told: dict[type, tuple[int, ...]] = {}

    def add(self, item: Made) -> Made:
        """Follow an object, a dataclass, from now on."""
        kind = type(item)
        if kind not in self._names:
            names = tuple(field.name for field in fields(cast(Any, item)))
            self._names[kind] = names
            self._told[kind] = tuple(
                place for place, name in enumerate(names) if name not in _UNTOLD
            )
        self.objects.append(item)
        self.fresh.append(self._values(item))
        return item

    def add_all(self, items: Iterable[object]) -> None:
        """Follow objects, each once."""
        for item in {id(item): item for item in items if item is not None}.values():
            self.add(item)

    def save(self) -> Saved:
        """Return the values of all objects."""
        return [self._values(item) for item in self.objects]

    def restore(self, saved: Saved) -> None:
        """Bring back a state. Objects that it did not have yet are as they were made."""
        for item, values in zip(self.objects, [*saved, *self.fresh[len(saved) :]], strict=True):
            for name, value in zip(self._names[type(item)], values, strict=True):
                _put(item, name, value)

    def is_new(self) -> bool:
        """Tell whether the state at hand is met for the first time."""
        kinds = self._kinds
        state = tuple(kinds.setdefault(self._telling(item), len(kinds)) for item in self.objects)
        if state in self.seen:
            return False
        self.seen.add(state)
        return True

    def _values(self, item: object) -> Values:
        return tuple(_copy(getattr(item, name)) for name in self._names[type(item)])

    def _telling(self, item: object) -> Values:
        names = self._names[type(item)]
        return tuple(_plain(getattr(item, names[place])) for place in self._told[type(item)])


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
