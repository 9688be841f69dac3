"""Expressions as lists of functions of places, to be computed for many numbers.

Runs ask alike questions again and again: which number gives this loop three trips, or closes this
condition. What was computed is kept, by the form of the question, from run to run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from tawa.simulator.proof.numbers import NOWHERE, number_below, number_for

Function: TypeAlias = Callable[..., int]

Operation: TypeAlias = tuple[Function, int, int, int, tuple[int, ...]]
"""A function, the place of its value and those of its two arguments, or of those of another number.
"""


@dataclass(frozen=True, slots=True)
class Formula:
    """Values computed from numbers for unknowns: the unknowns stand first, then `rest`: constants,
    and room for what `operations` compute, in order; `wanted` are the places of the values,
    `divisors` of what is divided by.
    """

    operations: tuple[Operation, ...]
    rest: tuple[int, ...]
    wanted: tuple[int, ...]
    divisors: tuple[int, ...] = ()

    def __call__(self, numbers: Sequence[int]) -> tuple[list[int], bool]:
        """Return the values for these numbers, and whether nothing was divided by 0."""
        known = [*numbers, *self.rest]
        compute(self.operations, known)
        exact = 0 not in [known[at] for at in self.divisors]
        return [known[place] for place in self.wanted], exact

    def varying(self, place: int) -> tuple[Operation, ...]:
        """Return the operations that depend on the unknown at a place."""
        depends = {place}
        found: list[Operation] = []
        for operation in self.operations:
            _, out, one, two, several = operation
            if not depends.isdisjoint(several or (one, two)):
                depends.add(out)
                found.append(operation)
        return tuple(found)


def compute(operations: Iterable[Operation], known: list[int]) -> None:
    """Compute what operations give from what is known in other places."""
    for function, out, one, two, several in operations:
        if several:
            known[out] = function(*[known[place] for place in several])
        else:
            known[out] = function(known[one], known[two])


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is wanted of the numbers for unknowns: an outcome near `wish`; `ragged` prefers the
    smallest number that gives it. Each is a multiple of its unit, tried about `constants`, while
    the others are what one of `defaults` says; `late` is how long a bound on a count should hold.
    What is `least` in a launch is kept to where that gives the wish, or only `launched` numbers do.
    """

    wish: int
    ragged: bool
    late: int
    constants: tuple[int, ...]
    units: tuple[int, ...]
    defaults: tuple[tuple[int, ...], ...]
    least: tuple[int | None, ...]
    launched: bool


Outcomes: TypeAlias = dict[int, int]
Answer: TypeAlias = tuple[int, tuple[int, ...]]
"""The outcome that was reached, and the numbers that give it."""


@dataclass(eq=False, slots=True)
class Question:
    """What `outcome` is of a formula's values; `kept` holds what was computed, by the numbers of
    all unknowns and the place of the one that varies, `answers` what was found, `varying` what
    depends on the unknown at a place.
    """

    formula: Formula
    outcome: Function
    kept: dict[tuple[tuple[int, ...], int], Outcomes] = field(default_factory=lambda: {})
    answers: dict[Wanted, Answer] = field(default_factory=lambda: {})
    varying: dict[int, tuple[Operation, ...]] = field(default_factory=lambda: {})

    def answer(self, wanted: Wanted) -> Answer:
        """Return the first numbers that give the wish, else those that come nearest."""
        found = self.answers.get(wanted)
        if found is None:
            found = self.answers[wanted] = self._search(wanted)
        return found

    def _search(self, wanted: Wanted) -> Answer:
        best = self._nearest(wanted, wanted.least)
        if (
            best[0] != wanted.wish
            and not wanted.launched
            and any(least is not None for least in wanted.least)
        ):
            other = self._nearest(wanted, (None,) * len(wanted.least))
            best = min(best, other, key=lambda found: abs(found[0] - wanted.wish))
        if best[0] == NOWHERE:
            values, _ = self.formula(best[1])
            return self.outcome(*values), best[1]
        return best

    def _nearest(self, wanted: Wanted, least: tuple[int | None, ...]) -> Answer:
        """Return the first numbers that give the wish, else those that come nearest, where each is
        at least so much.
        """
        best: Answer | None = None
        wish, constants = wanted.wish, list(wanted.constants)
        for numbers in wanted.defaults:
            for place, unit in enumerate(wanted.units):
                probe = _from(least[place], self.probe(numbers, place))
                number = _late(probe, wanted, unit)
                if number is None:
                    number = number_for(probe, wish, unit, constants, wanted.ragged)
                if probe(number) != wish and self.outcome is int.__sub__:
                    number = number_below(probe, wish, unit, number)
                reached = probe(number)
                if best is None or abs(reached - wish) < abs(best[0] - wish):
                    best = (reached, (*numbers[:place], number, *numbers[place + 1 :]))
                if reached == wish:
                    return best
        assert best is not None, "asked only where something is open"
        return best

    def probe(self, numbers: tuple[int, ...], place: int) -> Callable[[int], int]:
        """Return the function of the number at one place, those at the others being given: it is
        NOWHERE where that divides by 0, as no launch that ends does.
        """
        others = (*numbers[:place], 0, *numbers[place + 1 :])
        outcomes = self.kept.setdefault((others, place), {})
        formula, outcome = self.formula, self.outcome
        operations = self.varying.get(place)
        if operations is None:
            operations = self.varying[place] = formula.varying(place)
        known: list[int] = []

        def probe(number: int) -> int:
            found = outcomes.get(number)
            if found is None:
                if not known:  # what does not vary is computed once, where anything is
                    known.extend((*others, *formula.rest))
                    compute(formula.operations, known)
                known[place] = number
                compute(operations, known)
                exact = 0 not in [known[at] for at in formula.divisors]
                values = [known[at] for at in formula.wanted]
                found = outcomes[number] = outcome(*values) if exact else NOWHERE
            return found

        return probe


def _from(least: int | None, probe: Callable[[int], int]) -> Callable[[int], int]:
    """Return a function that is NOWHERE for less than so much."""
    if least is None:
        return probe
    return lambda number: probe(number) if number >= least else NOWHERE


def _late(probe: Callable[[int], int], wanted: Wanted, unit: int) -> int | None:
    """Return a number that gives the wish and, of a bound on a count, keeps it a while."""
    if wanted.late == 1:
        return None
    tried = (wanted.late * size // unit * unit for size in wanted.constants)
    return next((number for number in tried if probe(number) == wanted.wish), None)


@dataclass(eq=False, slots=True)
class Questions:
    """The questions asked so far about a kernel."""

    asked: dict[tuple[Formula, Function], Question] = field(default_factory=lambda: {})

    def ask(self, formula: Formula, outcome: Function) -> Question:
        """Return the question of this form."""
        found = self.asked.get((formula, outcome))
        if found is None:
            found = self.asked[formula, outcome] = Question(formula, outcome)
        return found
