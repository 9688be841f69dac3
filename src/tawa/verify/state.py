"""Where all agents are, at one time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tawa.verify.cursors import Facts
from tawa.verify.decisions import Known, Labels, Loop

Env: TypeAlias = dict[int, Facts]
"""By scalar: what it is known to stand for."""
HOLDS, HANDED = 1, 2
"""Of a turn: an agent holds it, an instance has handed it on."""


@dataclass(slots=True)
class State:
    """Where all agents are. Numbers of a ring are counted from where its origin was last set."""

    at: list[int]
    labels: list[Labels]
    loops: list[tuple[Loop, ...]]
    waits: list[int]
    units: list[int]
    early: list[frozenset[tuple[int, int]]]
    """By arriver: (number, arrivals) of numbers whose turn has not come."""
    ahead: list[int]
    """By pair of a wait and an arrival of one agent: waits done less numbers arrived."""
    exact: list[bool]
    """By ring: whether its origin is still the beginning."""
    turn: list[int]
    """By agent: whether its warpgroup, or its instance, holds the turn."""
    known: Known
    env: list[Env]
    parked: list[dict[int, Env]]
    """What instances that are not at work know, counted from the beginning of the tile."""
    active: list[int]
    announced: frozenset[int] = frozenset()
    """Named barriers that have been announced and not yet taken."""

    def copy(self, known: Known) -> State:
        """Return a state that goes its own way."""
        return State(
            list(self.at),
            list(self.labels),
            list(self.loops),
            list(self.waits),
            list(self.units),
            list(self.early),
            list(self.ahead),
            list(self.exact),
            list(self.turn),
            known,
            [dict(each) for each in self.env],
            [dict(each) for each in self.parked],
            list(self.active),
            self.announced,
        )

    def key(self) -> tuple[object, ...]:
        """Return all but what scalars stand for."""
        return (
            tuple(self.at),
            tuple(self.labels),
            tuple(self.waits),
            tuple(self.units),
            tuple(self.early),
            tuple(self.ahead),
            tuple(self.exact),
            tuple(self.turn),
            frozenset(self.known.items()),
            tuple(self.active),
            self.announced,
        )


__all__ = ["HANDED", "HOLDS", "Env", "State"]
