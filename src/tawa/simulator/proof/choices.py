"""What a run chooses: the numbers of unknowns with which loops and conditions come out as its
configuration wants, and whether a run that chooses so repeats another.

All that a run chooses follows from its configuration and from what was asked before. So it can be
*rehearsed*: what earlier runs asked, one thing after the other, is answered and chosen as the run
would, without doing anything in between. Where that comes to the end of one of them, nothing is
left to be run.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from itertools import chain

from tawa.simulator.proof.answers import Answers, Asker, Loop, Question, Repeated, is_same_word
from tawa.simulator.proof.configuration import Configuration, Site
from tawa.simulator.proof.expressions import Expr, Scalar
from tawa.simulator.proof.model import Model
from tawa.simulator.proof.numbers import itself, trip_count
from tawa.simulator.proof.rules import Endless, Unproved
from tawa.simulator.proof.scalars import Scalars, truth

PATIENCE = 64
"""Trips of a while loop after which the outcomes chosen in it, which keep it turning, change."""


class Choices:
    """The choices of a run under a configuration, of what its scalars are."""

    def __init__(self, configuration: Configuration, scalars: Scalars) -> None:
        self.configuration, self.scalars = configuration, scalars

    def trips(self, site: Site, low: Scalar, high: Scalar, by: Scalar, again: bool = True) -> int:
        """Return how many trips a loop makes: as its bounds give them, or as they are wanted.
        `again` tells whether every run asks for them that comes here.
        """
        value = self.scalars.value
        if self.configuration.free and isinstance(high, Expr):
            self._set_free(site, low, high, by)
        a, b, c = value(low), value(high), value(by)
        if c is None:
            # A step that is not positive is the author's mistake; any that is will do.
            self.scalars.settle((by,), _positive, 1, False)
            a, b, c = value(low), value(high), value(by)
        if a is None or b is None or c is None:
            wish = self.configuration.wish(site)
            reached = self.scalars.settle(
                (high, low, by), trip_count, wish, self.configuration.ragged
            )
            self.configuration.reached(site, reached)
            a, b, c = value(low), value(high), value(by)
        if c is not None and c <= 0 and isinstance(by, Expr):
            raise Endless(f"a loop runs from {a} to {b} by {c}", site.operation)
        if a is None or b is None or c is None or c <= 0:
            raise Unproved(f"a loop runs from {a} to {b} by {c}", site.operation)
        count = trip_count(b, a, c)
        asker = (site, None) if again and not self.configuration.survey else None
        self.scalars.answered(trip_count, (high, low, by), count, asker)
        return count

    def _set_free(self, site: Site, low: Scalar, high: Expr, by: Scalar) -> None:
        """Take the end of a loop as an unknown of its own, whatever it is computed from."""
        scalars = self.scalars
        if high in scalars.assigned:
            return
        if scalars.open((low, by)):
            scalars.settle((low, by), _anything, 0, False)
        first, step = scalars.value(low), scalars.value(by)
        if first is None or step is None:
            raise Unproved(f"a loop runs from {first} by {step}", site.operation)
        wish = self.configuration.wish(site)
        scalars.assign(high, first + wish * step)
        self.configuration.reached(site, wish)

    def condition(self, site: Site, scalar: Scalar, inside: Loop | None) -> bool:
        """Return a condition: what it is, or what is wanted. `inside` is a loop that runs where it
        holds.
        """
        known = self.scalars.value(scalar)
        if known is None:
            wish = self.configuration.wish(site)
            if wish and inside is not None and self._is_open(inside):
                known = self._enter(scalar, inside)
            else:
                known = self.scalars.decide(scalar, wish, self.configuration.ragged)
            self.configuration.reached(site, known)
        holds = bool(known)
        if scalar.__class__ is not int:
            # A survey asks of both sides of a choice what others ask of the one that they take.
            asker = None if self.configuration.survey else (site, inside)
            self.scalars.answered(truth, (scalar,), int(holds), asker)
        return holds

    def answer(self, question: Question, by: Asker) -> int:
        """Answer what a loop or condition asks, as a run would."""
        (outcome, scalars), (site, inside) = question, by
        if outcome is trip_count:
            high, low, step = scalars
            return self.trips(site, low, high, step)
        return int(self.condition(site, scalars[0], inside))

    def _is_open(self, loop: Loop) -> bool:
        return not self.configuration.free and bool(self.scalars.open(loop[1]))

    def _enter(self, condition: Scalar, loop: Loop) -> int:
        """Choose the trips of a loop together with the condition around it, whose own choice would
        leave the fewest that it allows. Return the condition's outcome.
        """
        site, bounds = loop
        wish = self.configuration.wish(site)
        scalars = (condition, *bounds)
        reached = self.scalars.settle(scalars, _trips_if, wish, self.configuration.ragged)
        self.configuration.reached(site, max(0, reached))
        return int(reached >= 0)


def rehearse(model: Model, wanted: Configuration, begin: Answers) -> None:
    """Raise Repeated where it is known beforehand that a run would do what an earlier one did.

    Of all answers, which `begin` there, one is followed after the other; where that cannot be,
    nothing is known. A survey is made for what it asks, and given numbers are looked up as they
    are (`Course.look_ahead`).
    """
    if wanted.survey or wanted.given or wanted.seed or not begin.next:
        return
    scalars = Scalars(wanted, model.numbers, model.questions, None, model.expressions)
    try:
        follow(Choices(wanted, scalars), begin)
    finally:
        wanted.outcomes.clear()


def follow(choices: Choices, at: Answers) -> None:
    """Answer what was asked from here on. Raises Repeated where that comes to an end."""
    seen = Counter[Site]()
    with suppress(Endless, Unproved):
        while not at.complete:
            question = at.asked or next(iter(at.next), None)
            if question is None or not _is_plain(choices.scalars, question):
                return
            if at.by is not None:
                site, _ = at.by
                seen[site] += 1
                if seen[site] > PATIENCE:
                    return
                answer = choices.answer(question, at.by)
            else:
                numbers = [choices.scalars.value(item) for item in question[1]]
                if len(at.next) > 1 or (None in numbers and question[0] is not itself):
                    return
                answer = None if None in numbers else question[0](*numbers)
            found = at.next[question].get(answer)
            if found is None:
                return
            at = found
        raise Repeated


def _is_plain(scalars: Scalars, question: Question) -> bool:
    """Tell whether a question is of no word of memory: which words are one a run finds out."""
    expressions, (outcome, asked) = scalars.expressions, question
    if not expressions.words:
        return True
    unknowns = chain.from_iterable(map(expressions.unknowns_of, asked))
    return outcome is not is_same_word and expressions.words.isdisjoint(unknowns)


def _trips_if(held: int, low: int, high: int, by: int) -> int:
    return trip_count(high, low, by) if held else -1


def _anything(*_: int) -> int:
    return 0


def _positive(value: int) -> int:
    return int(value > 0)
