"""The values of the scalars that must recur: with which trips began, and with which loops ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tawa.simulator.proof.expressions import Expr
from tawa.simulator.proof.scalars import Scalars, itself

Places: TypeAlias = tuple[tuple[int, ...], ...]
"""Groups of scalars that depend on one another, by their places in the environment."""

Values: TypeAlias = tuple[int | None, ...]


@dataclass(eq=False, slots=True)
class Orbit:
    """The values with which trips of a loop began, and those with which the loop ended."""

    begun: set[Values] = field(default_factory=set[Values])
    ended: set[Values] = field(default_factory=set[Values])


class Turning:
    """Notes with which values of the scalars that must recur the trips of a loop begin, and with
    which it ends: in groups, by their places.
    """

    __slots__ = ("env", "groups", "scalars")

    def __init__(
        self, scalars: Scalars, env: list[Any], groups: list[tuple[tuple[int, ...], Orbit]]
    ) -> None:
        self.scalars = scalars
        self.env = env
        self.groups = groups

    def step(self) -> None:
        """Note that a trip begins."""
        for group, orbit in self.groups:
            orbit.begun.add(self._values(group))

    def end(self) -> None:
        """Note that the loop ends."""
        for group, orbit in self.groups:
            values = self._values(group)
            if None not in values:
                orbit.ended.add(values)

    def _values(self, group: tuple[int, ...]) -> Values:
        env = self.env
        items = [env[place] for place in group]
        return tuple([item if item.__class__ is int else self._value(item) for item in items])

    def _value(self, item: Expr) -> int | None:
        number = self.scalars.value(item)
        self.scalars.answered(itself, (item,), number)
        return number
