"""Which trip counts of the loops inside were run, and the runs that are tried for the others.

The theorem wants each loop that turns rings run with 0, 1, ... D+c+1 trips. Each is asked for as
many, but one number often bounds several loops and the first to ask chooses: the rest of a loop
whose first trip is peeled off makes one trip less, the last part of a split one what is left. So
when all else was run, each count that a loop was not seen to make is shown to be impossible
(`spans.py`), or inputs that give it are looked for (`lengths.py`) and run. What is left makes the
kernel unproved, or where all roles ask for the same trips is said in the verdict.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import TypeAlias

from xdsl.dialects import scf
from xdsl.ir import Operation

from tawa.ir import line_of
from tawa.simulator.proof.cells import Question
from tawa.simulator.proof.configuration import Configuration, alike, shortly
from tawa.simulator.proof.leaves import Steadiness
from tawa.simulator.proof.lengths import Lengths, Worked, lengths_of
from tawa.simulator.proof.model import Model
from tawa.simulator.proof.numbers import LARGE
from tawa.simulator.proof.run import Run
from tawa.simulator.proof.sharing import Sharing, role_of
from tawa.simulator.proof.spans import Spans, Terms

Bounds: TypeAlias = Mapping[Operation, Collection[Question]]
"""What the loops of a survey asked."""

_TRIED = 6  # inputs of one survey that should give a loop one trip count


class Counts:
    """The trips that loops inside have `made`, and those `left` that they may make, though
    no input was found that gives them.
    """

    def __init__(self, model: Model, sharing: Sharing) -> None:
        shape = model.shape
        self.made: dict[Operation, set[int]] = {}
        self.left: dict[Operation, list[int]] = {}
        self._near = [n for n in shape.counts() if n < shape.depth + shape.settle + 2]
        self._shape, self._long = shape, shape.long
        units = {each.value: each.unit for each in model.arguments}
        decoder = model.decoder
        places, known = decoder.census.places, decoder.polynomials
        self.spans = Spans(Terms(units, places, known, model.cluster))
        self._fixed, self._steady = decoder.uniform.fixed, decoder.uniform.steady
        self._sharing = sharing
        self._worked = Worked()
        self._asked: dict[Operation, list[tuple[Configuration, Lengths]]] = {}
        self._surveys: list[Bounds] = []

    def note(self, run: Run) -> None:
        """Keep what the loops of a run made, and what they asked if it was a survey."""
        for loop, lengths in lengths_of(run.scalars, run.bounds, self._worked):
            self._asked.setdefault(loop, []).append((run.configuration, lengths))
        if run.bounds:
            self._surveys.append(run.bounds)
        if not run.configuration.free:
            for loop, counts in run.turned.items():
                self.made.setdefault(loop, set()).update(counts)

    def is_surveyed(self, loop: Operation) -> bool:
        """Tell whether a survey met a loop."""
        return any(loop in asked for asked in self._surveys)

    def unmade(self) -> Iterator[tuple[Operation, list[int]]]:
        """Yield loops with trip counts that they may make, and were not seen to."""
        for loop, made in list(self.made.items()):
            missing = [count for count in self._near if count not in made]
            if loop not in self._fixed and (wanted := self._wanted(loop, missing)):
                yield loop, wanted

    def tries(self, loop: Operation, wanted: list[int]) -> Iterator[Configuration]:
        """Yield what should give a loop each of some numbers of trips, as long as it does not make
        it: by what surveys asked, and with the block that has as many in causal attention.
        """
        made = self.made[loop]
        for count in wanted:
            for configuration, lengths in self._asked.get(loop, ()):
                again = replace(configuration, survey=False, outcomes={})
                short = shortly(again, self._shape)
                for given, whole in islice(lengths.give(count, self._long), _TRIED):
                    if count in made:
                        break
                    yield replace(again if whole else short, given=given, outcomes={})
            for more in (0, 1):  # the rest of a loop whose first trip is peeled off makes one less
                if count not in made:
                    yield alike(self._shape.instances, count + more, "yes", 1, 1)

    def leave(self, loop: Operation, wanted: list[int]) -> None:
        """Note what a loop may make of what was tried for, and has not made: no input changes the
        trips of one that a survey met, and nowhere with an unknown in its bounds.
        """
        if loop not in self._asked and self.is_surveyed(loop):
            return
        made = self.made[loop]
        never = [n for n in wanted if n not in made and self._may_make(loop, n, n)]
        if never:
            self.left[loop] = never

    def describe(self) -> str:
        """Return what is left, for the verdict; nothing where nothing is."""
        found: dict[int, set[int]] = {}
        for loop, counts in self.left.items():
            found.setdefault(line_of(loop), set()).update(counts)
        told = [f"{_listed(counts)} in line {line}" for line, counts in sorted(found.items())]
        return f"; no input was found for trip counts: {', '.join(told)}" if told else ""

    def agree(self, loop: Operation) -> bool:
        """Tell whether the roles that turn the rings of a loop asked for the same trips in every
        survey that came to it, or no other role turns them; and it made trips in which conditions
        on their numbers were steady.
        """
        settled = self._steady.get(loop, Steadiness()).settled
        if settled and max(self.made[loop]) <= settled:
            return False
        if self._sharing.is_alone(loop):
            return True
        rings, mine = self._sharing.rings(loop), role_of(loop)
        surveys = [asked for asked in self._surveys if loop in asked]
        return bool(surveys) and all(self._is_shared(asked, rings, mine) for asked in surveys)

    def _is_shared(self, asked: Bounds, rings: set[object], mine: Operation | None) -> bool:
        """Tell whether loops of a role and of the others that turn rings asked the same."""
        inside: set[Question] = set()
        outside: set[Question] = set()
        for loop, questions in asked.items():
            if rings & self._sharing.rings(loop):
                (inside if role_of(loop) is mine else outside).update(questions)
        return inside == outside

    def _wanted(self, loop: Operation, missing: list[int]) -> list[int]:
        """Return what a loop may make of what it was not seen to; where that is not the largest
        that is asked for, the next that it may make instead.
        """
        *below, top = missing or [0]
        if not missing or self._may_make(loop, top, top):
            return missing
        if top == self._near[-1] and not self._may_make(loop, missing[0], None):
            return []
        if below and not self._may_make(loop, below[0], below[-1]):
            below = []
        least = top == self._near[-1] and self._least_from(loop, top)
        return [*below, least] if least else below

    def _least_from(self, loop: Operation, count: int) -> int | None:
        """Return the least number of trips from one on that a loop may make, None if it never makes
        as many.
        """
        if not self._may_make(loop, count, None):
            return None
        low, high = count, 2 * count + 1  # it may not make so many at most; or it may
        while high < LARGE and not self._may_make(loop, count, high):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            if self._may_make(loop, count, middle):
                high = middle
            else:
                low = middle
        return high

    def _may_make(self, loop: Operation, least: int, most: int | None) -> bool:
        return not isinstance(loop, scf.ForOp) or self.spans.may_make(loop, least, most)


def _listed(counts: set[int]) -> str:
    return " ".join(str(count) for count in sorted(counts))
