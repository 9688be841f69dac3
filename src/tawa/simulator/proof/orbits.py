"""The values of the scalars that must recur: with which trips began, and with which loops ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from xdsl.ir import Operation

from tawa.simulator.proof.expressions import Expr
from tawa.simulator.proof.places import Read, reader
from tawa.simulator.proof.scalars import Scalars, itself

Values: TypeAlias = tuple[int | None, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Group:
    """Scalars that a loop carries and that depend on one another, by their places in the
    environment.
    """

    loop: Operation
    places: tuple[int, ...]
    read: Read

    @staticmethod
    def of(loop: Operation, places: tuple[int, ...]) -> Group:
        """Return the group of some places."""
        return Group(loop, places, reader(places))


@dataclass(eq=False, slots=True)
class Orbit:
    """The values with which trips of a loop began, and those with which the loop ended."""

    begun: set[Values] = field(default_factory=lambda: set())
    ended: set[Values] = field(default_factory=lambda: set())


class Turning:
    """Notes with which values of the scalars that must recur the trips of a loop begin, and with
    which it ends: in groups, by their places.
    """

    __slots__ = ("env", "groups", "scalars")

    def __init__(self, scalars: Scalars, env: list[Any], groups: list[tuple[Read, Orbit]]) -> None:
        self.scalars = scalars
        self.env = env
        self.groups = groups

    def step(self) -> None:
        """Note that a trip begins."""
        for read, orbit in self.groups:
            orbit.begun.add(self._values(read))

    def end(self) -> None:
        """Note that the loop ends."""
        for read, orbit in self.groups:
            values = self._values(read)
            if None not in values:
                orbit.ended.add(values)

    def _values(self, read: Read) -> Values:
        items = read(self.env)
        for item in items:
            if item.__class__ is not int:
                return tuple([self._value(item) for item in items])
        return items

    def _value(self, item: Expr | int) -> int | None:
        if isinstance(item, int):
            return item
        number = self.scalars.value(item)
        self.scalars.answered(itself, (item,), number)
        return number
