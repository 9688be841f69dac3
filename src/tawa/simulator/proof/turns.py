"""Trips of a long loop: whole turns of all rings left out of their middle, and those that repeat.

What the loop carries must be after a turn what it was before, else a trip beyond the gap would
begin with other values than it has: then no trip is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tawa.simulator.proof.scalars import Scalars

_PATIENCE = 64  # trips after which it is looked for whether they repeat


@dataclass(frozen=True, slots=True)
class Turns:
    """The trips to run of `trips`, which have one gap, of whole turns of `turn` trips.
    `carried` are the places in the environment of what the loop carries but does not count.
    """

    trips: Sequence[int]
    turn: int
    env: list[Any]
    carried: tuple[int, ...]

    def __iter__(self) -> Iterator[int]:
        trips = self.trips
        gap = next(place for place, trip in enumerate(trips) if place != trip)
        before = self._values()
        for trip in range(gap):
            if trip == gap - self.turn:
                before = self._values()
            yield trip
        yield from trips[gap:] if before == self._values() else range(gap, trips[-1] + 1)

    def _values(self) -> list[int | None]:
        found = (self.env[place] for place in self.carried)
        return [item if isinstance(item, int) else None for item in found]


@dataclass(slots=True)
class Cycle:
    """Whether a loop that ends by what it carries, in `places`, can end still: not where that is
    what it was some trips ago and nothing was chosen or read since, as all trips to come do then
    what those did.
    """

    scalars: Scalars
    env: list[Any]
    places: tuple[int, ...]
    kept: tuple[int | None, ...] = ()
    made: int = -1
    until: int = _PATIENCE

    def closes(self, trip: int) -> bool:
        """Tell whether a trip begins as one before it did (by the method of Brent)."""
        if trip < _PATIENCE:
            return False
        made = self.scalars.made()
        carried = tuple([self.scalars.value(self.env[place]) for place in self.places])
        if made == self.made and carried == self.kept and None not in carried:
            return True
        if made != self.made or trip >= self.until:
            self.made, self.kept, self.until = made, carried, 2 * trip
        return False
