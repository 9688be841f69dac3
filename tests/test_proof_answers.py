"""Runs that would only repeat another are known by what they will be asked, and not made."""

from __future__ import annotations

from contextlib import suppress

import pytest

from proof_kernels import text
from tawa.ir import parse
from tawa.simulator.proof.answers import Answers, Course, Repeated
from tawa.simulator.proof.configuration import Configuration
from tawa.simulator.proof.explore import Exploration
from tawa.simulator.proof.expressions import Expressions
from tawa.simulator.proof.read import read_kernel
from tawa.simulator.proof.run import Run
from tawa.simulator.proof.scalars import Scalars, truth
from tawa.target import H200


@pytest.fixture
def claims(monkeypatch) -> list[tuple[Course, Run | None]]:
    """Lets runs go on that are known to repeat another, and says which they were: each must come
    where a run ended that was asked the same.
    """
    found: list[tuple[Course, Run | None]] = []
    look, execute = Course.look_ahead, Run.execute

    def look_ahead(course: Course, scalars: Scalars) -> None:
        try:
            look(course, scalars)
        except Repeated:
            found.append((course, None))

    def run(one: Run) -> None:
        execute(one)
        if any(one.scalars.course is course for course, _ in found):
            assert one.scalars.course is not None
            assert one.scalars.course.at.complete
            found.append((one.scalars.course, one))

    monkeypatch.setattr(Course, "look_ahead", look_ahead)
    monkeypatch.setattr(Run, "execute", run)
    return found


@pytest.mark.parametrize(
    "name",
    [
        "attention packed 1",
        "attention few queries",
        "attention split keys",
        "attention gathered pages",
        "flash 128 causal split",
        "flash 64 three in turns",
        "gradients in turns",
        "instances residual depth 1",
        "library split 0",
        "library stream 1",
        "shape atomic tile counter",
    ],
)
def test_what_is_known_to_repeat_does(name, claims):
    Exploration(read_kernel(parse(text(name)), H200)).explore()
    assert [one for _, one in claims if one is not None]


# --- one run after another ------------------------------------------------------------------------


class Runs:
    """Runs of a program, which asks its scalars what `ask` says."""

    def __init__(self, ask) -> None:
        self.ask = ask
        self.answers = Answers()
        self.expressions = Expressions()

    def repeats(self, ends: bool = True, **given: int) -> bool:
        """Tell whether a run with these arguments is known to repeat another before it begins; else
        make it, to its end or not.
        """
        configuration = Configuration({}, given={("argument", k): n for k, n in given.items()})
        scalars = Scalars(configuration, answers=self.answers, expressions=self.expressions)
        course = scalars.course
        assert course is not None
        try:
            course.look_ahead(scalars)
        except Repeated:
            return True
        with suppress(Repeated):
            self.ask(scalars)
            course.at.complete = ends
        return False


def asked(scalars: Scalars, condition) -> int:
    known = scalars.value(condition)
    scalars.answered(truth, (condition,), known)
    return known


def two_questions(scalars: Scalars) -> None:
    a, b = (scalars.unknown("argument", name) for name in "ab")
    if asked(scalars, scalars.apply("lt", a, 10)):
        asked(scalars, scalars.apply("lt", scalars.apply("add", a, b), 12))


def test_equal_answers_are_one_run():
    runs = Runs(two_questions)
    assert not runs.repeats(a=1, b=2)
    assert runs.repeats(a=9, b=2)
    assert not runs.repeats(a=9, b=3)
    assert not runs.repeats(a=10, b=0)
    assert runs.repeats(a=11, b=50)
    assert runs.repeats(a=11), "what is not asked need not be known"
    assert not runs.repeats(b=1), "what is asked must be"


def test_a_run_that_came_to_no_end_stands_for_none():
    runs = Runs(two_questions)
    assert not runs.repeats(ends=False, a=1, b=2)
    assert not runs.repeats(a=1, b=2)
    assert runs.repeats(a=1, b=2)


def two_words(scalars: Scalars) -> None:
    a, b = (scalars.unknown("argument", name) for name in "ab")
    pointer = scalars.unknown("pointer", 0)
    words = [
        scalars.apply("load", scalars.apply("tile.ptr_add ", pointer, place)) for place in (a, b)
    ]
    for place in (a, b):
        asked(scalars, scalars.apply("ge", place, 0))
    for word in words:
        if scalars.value(word) is None:
            scalars.settle((word,), truth, 1 if word is words[0] else 0, False)
        asked(scalars, word)


def test_words_of_one_address_are_not_two():
    runs = Runs(two_words)
    assert not runs.repeats(a=3, b=4)
    assert not runs.repeats(a=3, b=3), "one word cannot be 1 and 0"
    assert not runs.repeats(a=5, b=6), "nobody knows the words there"
