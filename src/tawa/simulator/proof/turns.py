"""Trips of a long loop, whole turns of all rings left out of their middle.

What the loop carries must be after a turn what it was before, else a trip beyond the gap would
begin with other values than it has: then no trip is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Turns:
    """The trips to run of `trips`, which may have one gap, of whole turns of `turn` trips.
    `carried` are the places in the environment of what the loop carries but does not count.
    """

    trips: Sequence[int]
    turn: int
    env: list[Any]
    carried: tuple[int, ...]

    def __iter__(self) -> Iterator[int]:
        if isinstance(self.trips, range):
            return iter(self.trips)
        return self._turns()

    def _turns(self) -> Iterator[int]:
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
