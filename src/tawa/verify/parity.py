"""Lemma 3b: a wait that knows the parity of a phase alone waits for that phase.

A wait for completion n of a barrier of a ring of D, done in the order of the numbers, is mistaken
only if completion n + D comes before it has seen n. So an arrival of completion n + D must come
after the wait: in the order of its agent, or because it waits itself for what comes after the wait,
and so on. `least` says how many waits an agent has at least behind it before each of its arrivals.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

Pair = tuple[int, int, int]
"""An agent, the ring that it waits for, the ring that it arrives at."""


@dataclass(frozen=True, slots=True)
class Parity:
    """Rings by number: `depths`, and `leads`, how many waits the first phases answer at once."""

    depths: Sequence[int]
    leads: Mapping[int, int]
    waiters: Mapping[int, Sequence[int]]
    arrivers: Mapping[int, Sequence[int]]
    least: Mapping[Pair, int]
    """Waits done less numbers arrived, when an arrival is made: the least there is."""

    several: Container[int] = ()
    """Rings at which several threads arrive for one phase."""

    def mistaken(self) -> list[tuple[int, int]]:
        """Return the (ring, agent) of waits that may take one phase for another."""
        return [
            (ring, agent)
            for ring, agents in self.waiters.items()
            for agent in agents
            if not self._is_behind(ring, self.arrivers.get(ring, ()), [agent])
        ]

    def hasty(self) -> list[tuple[int, int]]:
        """Return the (ring, agent) of arrivals that may be counted for the phase before theirs: a
        barrier counts arrivals, whoever makes them, so each waits, perhaps by way of others, for
        what came after the completion a revolution ago.
        """
        return [
            (ring, agent)
            for ring, agents in self.arrivers.items()
            if ring in self.several
            for agent in agents
            if not self._is_behind(ring, [agent], self.waiters.get(ring, ()))
        ]

    def _is_behind(self, ring: int, arriving: Sequence[int], waiting: Sequence[int]) -> bool:
        """Tell whether arrivals of some agents at a number come after a wait of one of others for
        the number a revolution before; follow what they come after, counting from the arrival.
        """
        behind: dict[tuple[int, int], int] = {}
        arrivals: list[tuple[int, int, int]] = [(agent, ring, 0) for agent in arriving]
        steps = 0
        while arrivals and steps < 4 * (len(self.least) + 1):
            steps += 1
            agent, at, number = arrivals.pop(0)
            for (who, waited, arrived), least in self.least.items():
                if who != agent or arrived != at:
                    continue
                # Arrival m comes after wait m + least - 1.
                seen = number + least - 1
                if seen <= behind.get((who, waited), seen - 1):
                    continue
                behind[who, waited] = seen
                if waited not in self.leads:
                    continue
                done = seen - self.leads[waited]
                arrivals += [(other, waited, done) for other in self.arrivers.get(waited, ())]
        needed = self.leads.get(ring, 0) - self.depths[ring]
        return any(behind.get((agent, ring), needed - 1) >= needed for agent in waiting)
