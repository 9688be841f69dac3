"""What runs asked of their scalars, and what was answered, one after the other.

A run follows from its answers: the trips of loops, conditions, slots and phases, all numbers that
decide what is done or compared. So it need not go on when the numbers that it has chosen give each
question of an earlier run the answer that this one had, to its end: it would do the same. Earlier
questions are asked ahead whenever a number was chosen. What they ask must be known then: nothing
more is chosen in such a run, and words of memory that it will read are those that it was given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from tawa.simulator.proof.expressions import Expr, Scalar
from tawa.simulator.proof.words import placed

if TYPE_CHECKING:
    from tawa.simulator.proof.configuration import Site
    from tawa.simulator.proof.scalars import Scalars

Question: TypeAlias = tuple[Callable[..., int], tuple[Scalar, ...]]
"""What is asked of some scalars: the trips of a loop by its bounds, whether a condition holds."""


Loop: TypeAlias = "tuple[Site, tuple[Scalar, ...]]"
"""A loop, and its first number, its end and its step."""
Asker: TypeAlias = "tuple[Site, Loop | None]"
"""The loop or condition that asks, and a loop that runs where the condition holds."""


class Repeated(Exception):  # noqa: N818 - it is no error
    """A run would do to its end what another one did."""


@dataclass(eq=False, slots=True)
class Answers:
    """What runs asked next that had the same answers so far, by question and answer; `complete`
    where one of them came to its end. `asked` is what a loop or condition asked, `by` which.
    """

    next: dict[Question, dict[int | None, Answers]] = field(default_factory=lambda: {})
    complete: bool = False
    asked: Question | None = None
    by: Asker | None = None


def is_same_word(*_: int) -> int:
    """Ask whether two words of memory are one: the place of this is all that is wanted of it."""
    return 1


class Course:
    """How far a run has come among the answers of earlier ones."""

    __slots__ = ("at", "new")

    def __init__(self, begin: Answers) -> None:
        self.at = begin
        self.new = False  # numbers were chosen that earlier questions were not asked of

    def answered(
        self, scalars: Scalars, question: Question, answer: int | None, by: Asker | None
    ) -> None:
        """Note an answer. Raises Repeated where all that comes will be answered as it was."""
        if by is not None and self.at.by is None:
            self.at.asked, self.at.by = question, by
        answers = self.at.next.get(question)
        if answers is None:
            answers = self.at.next[question] = {}
        found = answers.get(answer)
        if found is None:
            found = answers[answer] = Answers()
            self.new = False  # nobody came this way
        self.at = found
        if self.new:
            self.look_ahead(scalars)

    def look_ahead(self, scalars: Scalars) -> None:
        """Raise Repeated where the numbers chosen so far answer all questions of an earlier run
        from here on as they were answered there.
        """
        self.new = False
        ahead = _Ahead(scalars)
        work = [self.at]
        while work:
            at = work.pop()
            if at.complete:
                raise Repeated
            for question, answers in at.next.items():
                answer = ahead.answer(question)
                if answer is not None and answer in answers:
                    work.append(answers[answer])


class _Ahead:
    """What scalars will be, by what is known now; None where they are open."""

    __slots__ = ("known", "scalars")

    def __init__(self, scalars: Scalars) -> None:
        self.scalars = scalars
        self.known = scalars.known()

    def answer(self, question: Question) -> int | None:
        """Return what a question will be answered."""
        outcome, scalars = question
        if outcome is is_same_word:
            one, other = [placed(item, self.number) for item in scalars if isinstance(item, Expr)]
            return int(one == other)
        known = self.known
        numbers: list[int] = []
        for item in scalars:
            number = item if item.__class__ is int else known.get(item)
            if number is None and (number := self.number(item)) is None:
                return None
            numbers.append(number)  # pyright: ignore[reportArgumentType]
        return outcome(*numbers)

    def number(self, scalar: Scalar) -> int | None:
        """Return what a scalar will be; without recursion: a while loop's are thousands deep."""
        if not isinstance(scalar, Expr):
            return scalar
        known: dict[Any, Any] = self.known
        path = [] if scalar in known else [scalar]
        while path:
            item = path[-1]
            for part in item.parts:
                if part not in known:
                    path.append(part)
                    break
                if known[part] is None and not item.unknown:
                    known[path.pop()] = None  # whatever the other parts are
                    break
            else:
                path.pop()
                args = item.args
                if item.unknown:
                    known[item] = self.scalars.to_be_given(item, self.number)
                elif len(args) == 2:
                    one, other = args
                    known[item] = item.meaning(known.get(one, one), known.get(other, other))
                else:
                    known[item] = item.meaning(*[known.get(part, part) for part in args])
        return known[scalar]
