"""Runs that would only repeat another are known by what they will be asked, and not made."""

from __future__ import annotations

from contextlib import suppress

import pytest

from proof_kernels import text
from tawa.ir import hopper, parse
from tawa.simulator.proof import choices
from tawa.simulator.proof.answers import Answers, Course, Repeated
from tawa.simulator.proof.choices import Choices
from tawa.simulator.proof.configuration import Configuration, Site
from tawa.simulator.proof.explore import Exploration
from tawa.simulator.proof.expressions import Expr, Expressions
from tawa.simulator.proof.numbers import itself
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

    monkeypatch.setattr(choices, "follow", lambda *_: None)  # which would know it before
    monkeypatch.setattr(Course, "look_ahead", look_ahead)
    monkeypatch.setattr(Run, "execute", run)
    return found


KERNELS = (
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
)


REHEARSED = (
    "attention few queries",
    "attention split keys",
    "instances residual depth 1",
    "library split 0",
    "library stream 1",
    "shape atomic tile counter",
)


@pytest.mark.parametrize("name", KERNELS)
def test_what_is_known_to_repeat_does(name, claims):
    Exploration(read_kernel(parse(text(name)), H200)).explore()
    assert [one for _, one in claims if one is not None]


@pytest.mark.parametrize("name", REHEARSED)
def test_what_is_rehearsed_is_what_is_run(name, monkeypatch):
    """Each run that is rehearsed to the end of an earlier one is made: it chooses the same, and is
    found to repeat one as well.
    """
    rehearsed: list[Choices] = []
    confirmed: list[Run] = []
    execute, way = Run.execute, choices.follow

    def followed(one: Choices, at: Answers) -> None:
        rehearsed.clear()
        try:
            way(one, at)
        except Repeated:
            rehearsed.append(one)

    def run(one: Run) -> None:
        if not rehearsed:
            return execute(one)
        outcomes = rehearsed.pop().configuration.outcomes
        with pytest.raises(Repeated):
            execute(one)
        for site, made in one.configuration.outcomes.items():
            assert outcomes.get(site, [])[: len(made)] == made
        confirmed.append(one)
        raise Repeated

    monkeypatch.setattr(choices, "follow", followed)
    monkeypatch.setattr(Run, "execute", run)
    Exploration(read_kernel(parse(text(name)), H200)).explore()
    assert confirmed


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


# --- what is rehearsed ----------------------------------------------------------------------------


class Chosen:
    """Runs of a program that chooses, which asks what `ask` says of the arguments a and b."""

    def __init__(self, ask) -> None:
        self.ask = ask
        self.answers = Answers()
        self.expressions = Expressions()

    def _choices(self, answers: Answers | None, **wishes) -> Choices:
        kinds = {"if": (1,), "inner": (1,), "while": (1,), **wishes}
        configuration = Configuration(kinds, survey=bool(kinds.pop("survey", False)))
        scalars = Scalars(configuration, answers=answers, expressions=self.expressions)
        return Choices(configuration, scalars)

    def run(self, **wishes) -> None:
        found = self._choices(self.answers, **wishes)
        self.ask(found)
        assert found.scalars.course is not None
        found.scalars.course.at.complete = True

    def repeats(self, **wishes) -> bool:
        """Tell whether a run with these wishes is rehearsed to the end of another."""
        try:
            choices.follow(self._choices(None, **wishes), self.answers)
        except Repeated:
            return True
        return False


IF, FOR = Site(hopper.WgmmaCommit(), "if"), Site(hopper.WgmmaCommit(), "inner")
WHILE = Site(hopper.WgmmaCommit(), "while")


def arguments(found: Choices) -> list[Expr]:
    return [found.scalars.unknown("argument", name) for name in "ab"]


def branch_and_loop(found: Choices) -> None:
    a, b = arguments(found)
    if found.condition(IF, found.scalars.apply("lt", a, 10), None):
        found.trips(FOR, 0, b, 1)


def test_choices_that_come_out_alike_are_one_run():
    runs = Chosen(branch_and_loop)
    assert not runs.repeats()
    runs.run(inner=(3,))
    assert runs.repeats(inner=(3,))
    assert not runs.repeats(inner=(4,)), "another number of trips"
    assert not runs.repeats(**{"if": (0,)}), "the other side"
    runs.run(**{"if": (0,)})
    assert runs.repeats(**{"if": (0,)}, inner=(7,)), "no loop is on that side"


@pytest.mark.parametrize("what", ["a condition", "a loop"])
def test_surveys_do_not_say_how_others_choose(what):
    def ask(found: Choices) -> None:
        a, b = arguments(found)
        if what == "a loop":
            found.trips(FOR, 0, b, 1)
        else:
            found.condition(IF, found.scalars.apply("lt", a, 10), None)

    runs = Chosen(ask)
    runs.run(survey=True)
    assert not runs.repeats()
    runs = Chosen(ask)
    runs.run()
    assert runs.repeats()


def loop_after_another(found: Choices) -> None:
    a, b = arguments(found)
    if found.scalars.open((b,)):
        found.trips(FOR, 0, a, 1, again=False)
    found.trips(FOR, 0, b, 1, again=False)


def test_what_not_every_run_asks_is_not_rehearsed():
    runs = Chosen(loop_after_another)
    runs.run(inner=(3,))
    assert not runs.repeats(inner=(3,))


def word_of_memory(found: Choices) -> None:
    pointer = found.scalars.unknown("pointer", 0)
    word = found.scalars.apply("load", found.scalars.apply("tile.ptr_add ", pointer, 1))
    found.condition(IF, word, None)


def test_words_of_memory_are_not_rehearsed():
    runs = Chosen(word_of_memory)
    runs.run()
    assert not runs.repeats()


@pytest.mark.parametrize("trips", [choices.PATIENCE, choices.PATIENCE + 1])
def test_long_while_loops_are_not_rehearsed(trips):
    """A run changes its wishes there."""

    def ask(found: Choices) -> None:
        a, _ = arguments(found)
        for trip in range(trips):
            found.condition(WHILE, found.scalars.apply("gt", a, trip), None)

    runs = Chosen(ask)
    runs.run()
    assert runs.repeats() is (trips <= choices.PATIENCE)


@pytest.mark.parametrize(("outcome", "repeats"), [(truth, False), (itself, True)])
def test_what_is_open_and_no_choice(outcome, repeats):
    """Whether it holds is not known then, and ends a rehearsal. What it is may stay open: a run
    that knows of a select what it is chooses otherwise from there on.
    """

    def ask(found: Choices) -> None:
        a, b = arguments(found)
        found.scalars.answered(outcome, (a,), found.scalars.value(a))
        found.condition(IF, b, None)

    runs = Chosen(ask)
    runs.run()
    assert runs.repeats() is repeats
