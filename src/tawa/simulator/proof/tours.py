"""The runs of a kernel that came to their end, by the numbers they had and what they entered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.ir import Operation

from tawa.simulator.proof.cells import Given
from tawa.simulator.proof.configuration import Configuration
from tawa.simulator.proof.run import Entry, Run
from tawa.simulator.proof.scalars import Name


@dataclass(frozen=True, slots=True)
class Tour:
    """A run that came to its end: its numbers, and the loops and conditions it entered."""

    configuration: Configuration
    steps: int
    given: Given
    entered: frozenset[Entry]


class Tours:
    """The runs of a kernel, one for each choice of numbers; runs with free ends are none."""

    def __init__(self) -> None:
        self._tours: dict[frozenset[tuple[Name, int]], Tour] = {}

    def note(self, run: Run) -> None:
        """Keep the numbers of a run and what it entered."""
        given = {name: run.scalars.bound[item] for name, item in run.scalars.names().items()}
        tour = Tour(run.configuration, run.steps, given, frozenset(run.entered))
        self._tours.setdefault(frozenset(given.items()), tour)

    def beyond(self, entered: set[Entry]) -> list[Given]:
        """Return the numbers of the runs that went wherever one did."""
        return [tour.given for tour in self._tours.values() if tour.entered >= entered]

    def farthest(self, known: set[Entry]) -> Tour | None:
        """Return the run that entered most of what is not known, of alike ones the shortest."""
        found = max(
            self._tours.values(),
            key=lambda tour: (len(tour.entered - known), -tour.steps),
            default=None,
        )
        return None if found is None or found.entered <= known else found

    def shortest(self, loop: Operation) -> Tour | None:
        """Return the shortest run in which a loop made a trip."""
        tours = (tour for tour in self._tours.values() if (loop, 0) in tour.entered)
        return min(tours, key=lambda tour: tour.steps, default=None)

    def arguments(self) -> Iterator[Name]:
        """Yield the arguments that some run asked for."""
        names = dict.fromkeys(name for tour in self._tours.values() for name in tour.given)
        return (name for name in names if name[0] == "argument")
