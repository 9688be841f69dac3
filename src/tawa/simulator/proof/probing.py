"""Expressions as lists of functions of places, to be computed for many numbers.

Runs ask alike questions again and again: which number gives this loop three trips, or closes this
condition. What was computed is kept, by the form of the question, from run to run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice, repeat
from typing import TypeAlias

from tawa.simulator.proof.expressions import Expr
from tawa.simulator.proof.numbers import NOWHERE, Look, number_below, number_for, numbers_to_try
from tawa.simulator.proof.reached import most_reached

Function: TypeAlias = Callable[..., int]

Operation: TypeAlias = tuple[Function, int, int, int, tuple[int, ...]]
"""A function, the place of its value and those of its two arguments, or of those of another number.
"""

Depending: TypeAlias = tuple[tuple[Operation, ...], set[int]]
"""The operations that depend on an unknown, and the places of divisors that do."""

_FEW = 3  # numbers from which on functions are computed of all of them at a time
_FIRST = 4  # numbers tried first of the first unknown: mostly one of them gives the wish


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

    def varying(self, place: int) -> Depending:
        """Return the operations that depend on the unknown at a place, and the divisors that do."""
        depends = {place}
        found: list[Operation] = []
        for operation in self.operations:
            _, out, one, two, several = operation
            if not depends.isdisjoint(several or (one, two)):
                depends.add(out)
                found.append(operation)
        return tuple(found), depends.intersection(self.divisors)


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


Answer: TypeAlias = tuple[int, tuple[int, ...]]
"""The outcome that was reached, and the numbers that give it."""


class Line:
    """The outcomes of a question by the number of one unknown, `place`, the others being given: it
    is NOWHERE where that divides by 0, as no launch that ends does. `known` is what they give.
    """

    __slots__ = (
        *("_divisors", "_known", "_operations", "_outcome_of", "_outcomes", "_place", "_wanted"),
        "never",
    )

    def __init__(
        self, formula: Formula, outcome: Function, varying: Depending, place: int, known: list[int]
    ) -> None:
        self._outcome_of, self._wanted = outcome, formula.wanted
        self._place, self._known = place, known
        self._operations, self._divisors = varying
        self._outcomes: dict[int, int] = {}
        divisors = formula.divisors
        self.never = 0 in [known[at] for at in divisors if at not in self._divisors]
        """Whether it divides by 0 whatever the number is."""

    def look(self, numbers: Sequence[int]) -> list[int]:
        """Return the outcomes of some numbers."""
        outcomes = self._outcomes
        missing = [number for number in numbers if number not in outcomes]
        if missing:
            if self.never:
                found = [NOWHERE] * len(missing)
            elif len(missing) < _FEW:
                found = [self._outcome(number) for number in missing]
            else:
                found = self._outcomes_of(missing)
            outcomes.update(zip(missing, found, strict=True))
        return [outcomes[number] for number in numbers]

    def _outcome(self, number: int) -> int:
        known = self._known
        known[self._place] = number
        compute(self._operations, known)
        if 0 in [known[at] for at in self._divisors]:
            return NOWHERE
        return self._outcome_of(*[known[at] for at in self._wanted])

    def _outcomes_of(self, numbers: list[int]) -> list[int]:
        """Compute one function after the other, each of all numbers: what does not vary stands for
        as many as there are.
        """
        columns: list[Iterable[int]] = [repeat(number) for number in self._known]
        columns[self._place] = numbers
        divisors = self._divisors
        exact = [number != 0 or self._place not in divisors for number in numbers]
        for function, out, one, two, several in self._operations:
            if several:
                found = list(map(function, *[columns[at] for at in several]))
            else:
                found = list(map(function, columns[one], columns[two]))
            columns[out] = found
            if out in divisors and 0 in found:
                exact = [was and number != 0 for was, number in zip(exact, found, strict=True)]
                if True not in exact:
                    return [NOWHERE] * len(numbers)
        values = map(self._outcome_of, *[columns[at] for at in self._wanted])
        outcomes = list(islice(values, len(numbers)))
        if False not in exact:
            return outcomes
        return [item if well else NOWHERE for item, well in zip(outcomes, exact, strict=True)]


@dataclass(eq=False, slots=True)
class Question:
    """What `outcome` is of a formula's values; `lines` holds what was computed, by the numbers of
    all unknowns and the place of the one that varies, `known` what all numbers give, `answers` what
    was found, `depending` what depends on the unknown at a place, and which divisors do.
    """

    formula: Formula
    outcome: Function
    lines: dict[tuple[tuple[int, ...], int], Line] = field(default_factory=lambda: {})
    known: dict[tuple[int, ...], list[int]] = field(default_factory=lambda: {})
    answers: dict[Wanted, Answer] = field(default_factory=lambda: {})
    depending: dict[int, Depending] = field(default_factory=lambda: {})

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
        wish, constants = wanted.wish, wanted.constants
        tries = {unit: numbers_to_try(wish, unit, constants) for unit in {*wanted.units}}
        most: dict[tuple[tuple[int, ...], int], int] | None = None
        for numbers in wanted.defaults:
            for place, unit in enumerate(wanted.units):
                if best is not None:
                    if most is None:
                        most = self._most(wanted, least, tries)
                    reached = most.get((numbers, place), wish)
                    if reached < wish and wish - reached >= abs(best[0] - wish):
                        continue  # nothing is nearer
                line = self.line(numbers, place)
                if line.never and best is not None:
                    continue  # nothing is further away
                look = _from(least[place], line.look)
                number = _late(look, wanted, unit)
                if number is None:
                    tried = tries[unit]
                    some = [tried] if best is not None else [tried[:_FIRST], tried[_FIRST:]]
                    number = number_for(look, wish, unit, some, constants[-1], wanted.ragged)
                (reached,) = look((number,))
                if reached != wish and self.outcome is int.__sub__:
                    number = number_below(look, wish, unit, number)
                    (reached,) = look((number,))
                if best is None or abs(reached - wish) < abs(best[0] - wish):
                    best = (reached, (*numbers[:place], number, *numbers[place + 1 :]))
                if reached == wish:
                    return best
        assert best is not None, "asked only where something is open"
        return best

    def _most(
        self, wanted: Wanted, least: tuple[int | None, ...], tries: dict[int, list[int]]
    ) -> dict[tuple[tuple[int, ...], int], int]:
        """Return what is reached at most, by the defaults and the place of the one that varies; no
        less than the wish where that is not known.
        """
        # Other numbers are looked at for a bound that holds a while, and for one bit.
        if wanted.late != 1 or wanted.wish <= 1:
            return {}
        found = most_reached(self.formula, self.outcome, wanted.defaults, wanted.units, tries)
        places = range(len(wanted.units))
        pairs = [(numbers, place) for numbers in wanted.defaults for place in places]
        most = zip(pairs, found or (), strict=False)
        return {pair: reached for pair, reached in most if least[pair[1]] is None}

    def line(self, numbers: tuple[int, ...], place: int) -> Line:
        """Return the outcomes by the number at one place, those at the others being given."""
        key = (*numbers[:place], 0, *numbers[place + 1 :]), place
        found = self.lines.get(key)
        if found is None:
            known = self.known.get(numbers)
            if known is None:
                known = self.known[numbers] = [*numbers, *self.formula.rest]
                compute(self.formula.operations, known)
            found = self.lines[key] = Line(
                self.formula, self.outcome, self.varying(place), place, known.copy()
            )
        return found

    def varying(self, place: int) -> Depending:
        """Return what depends on the unknown at a place."""
        found = self.depending.get(place)
        if found is None:
            found = self.depending[place] = self.formula.varying(place)
        return found


def _from(least: int | None, look: Look) -> Look:
    """Return the outcomes of numbers, NOWHERE for less than so much."""
    if least is None:
        return look

    def above(numbers: Sequence[int]) -> list[int]:
        outcomes = iter(look([number for number in numbers if number >= least]))
        return [next(outcomes) if number >= least else NOWHERE for number in numbers]

    return above


def _late(look: Look, wanted: Wanted, unit: int) -> int | None:
    """Return a number that gives the wish and, of a bound on a count, keeps it a while."""
    if wanted.late == 1:
        return None
    tried = (wanted.late * size // unit * unit for size in wanted.constants)
    return next((number for number in tried if look((number,)) == [wanted.wish]), None)


@dataclass(eq=False, slots=True)
class Questions:
    """The questions asked so far about a kernel, and what was settled by the answers: of which
    scalars, where what they are made of was known as far (see `Scalars.settle`).
    """

    asked: dict[tuple[Formula, Function], Question] = field(default_factory=lambda: {})
    settled: dict[tuple[object, ...], tuple[list[Expr], Answer]] = field(default_factory=lambda: {})

    def ask(self, formula: Formula, outcome: Function) -> Question:
        """Return the question of this form."""
        found = self.asked.get((formula, outcome))
        if found is None:
            found = self.asked[formula, outcome] = Question(formula, outcome)
        return found
