"""Expressions as lists of functions of places, to be computed for many numbers.

Runs ask alike questions again and again: which number gives this loop three trips, or closes this
condition. What was computed is kept, by the form of the question, from run to run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

Function: TypeAlias = Callable[..., int]

Operation: TypeAlias = tuple[Function, int, int, int, tuple[int, ...]]
"""A function, the place of its value and those of its two arguments, or of those of another number.
"""


@dataclass(frozen=True, slots=True)
class Formula:
    """Values computed from numbers for unknowns: the unknowns stand first, then `rest`: constants,
    and room for what `operations` compute, in order; `wanted` are the places of the values.
    """

    operations: tuple[Operation, ...]
    rest: tuple[int, ...]
    wanted: tuple[int, ...]

    def __call__(self, numbers: list[int]) -> list[int]:
        """Return the values for these numbers."""
        known = [*numbers, *self.rest]
        for function, out, one, two, several in self.operations:
            if several:
                known[out] = function(*[known[place] for place in several])
            else:
                known[out] = function(known[one], known[two])
        return [known[place] for place in self.wanted]


Outcomes: TypeAlias = dict[int, int]


@dataclass(eq=False, slots=True)
class Question:
    """What `outcome` is of a formula's values; `kept` holds what was computed, by the numbers of
    all unknowns and the place of the one that varies.
    """

    formula: Formula
    outcome: Function
    kept: dict[tuple[tuple[int, ...], int], Outcomes] = field(
        default_factory=dict[tuple[tuple[int, ...], int], Outcomes]
    )

    def probe(self, numbers: list[int], place: int) -> Callable[[int], int]:
        """Return the function of the number at one place, those at the others being given."""
        others = (*numbers[:place], 0, *numbers[place + 1 :])
        outcomes = self.kept.setdefault((others, place), {})
        trial = list(numbers)
        formula, outcome = self.formula, self.outcome

        def probe(number: int) -> int:
            found = outcomes.get(number)
            if found is None:
                trial[place] = number
                found = outcomes[number] = outcome(*formula(trial))
            return found

        return probe


@dataclass(eq=False, slots=True)
class Questions:
    """The questions asked so far about a kernel."""

    asked: dict[tuple[Formula, Function], Question] = field(
        default_factory=dict[tuple[Formula, Function], Question]
    )

    def ask(self, formula: Formula, outcome: Function) -> Question:
        """Return the question of this form."""
        found = self.asked.get((formula, outcome))
        if found is None:
            found = self.asked[formula, outcome] = Question(formula, outcome)
        return found
