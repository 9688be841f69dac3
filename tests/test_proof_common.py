"""What roles ask unlike must follow from what all of them ask; else a kernel is unproved."""

from __future__ import annotations

import pytest

from proof_inputs import Expr, For, If, Program, Ring, Statement, Turn
from proof_inputs_trial import Trial, judged, tried
from proof_kernels import text as kernel_text
from tawa.ir import parse
from tawa.simulator.proof.explore import Exploration
from tawa.simulator.proof.read import read_kernel
from tawa.simulator.proof.sharing import role_of
from tawa.target import H200

RING = Ring(2, 1, (0,), True)


def two(load: tuple[Statement, ...], mma: tuple[Statement, ...], *arguments: str) -> Program:
    return Program(arguments, (RING,), (mma, load))


def loop(end: Expr, start: Expr = 0, step: int = 1, *body: Statement) -> For:
    return For("t", start, end, step, body or (Turn(0),))


def peeled(low: Expr, high: Expr, step: int) -> If:
    """The first trip of a loop by itself."""
    return If(("lt", low, high), (Turn(0), loop(high, ("add", low, step), step)))


def ahead(high: Expr, step: int) -> For:
    """A loop that asks in each trip whether there is another, and puts for it."""
    another = If(("lt", ("add", "t", step), high), (Turn(0),))
    return For("t", 0, high, step, (another,))


LENGTH: Expr = ("min", "K", ("max", "L", ("mul", "F", 3)))

ALIKE = {
    "said in another way": (
        (If(("lt", "K", 5), (Turn(0),)),), (If(("xor", ("ge", "K", 5), ("eq", 0, 0)), (Turn(0),)),),
    ),
    "the first trip peeled off": ((loop(LENGTH, 0, 4),), (peeled(0, LENGTH, 4),)),
    "and of a loop that begins anywhere": (
        (loop(LENGTH, "L", 4),), (peeled("L", LENGTH, 4),),
    ),
    "the next trip's turn": (
        (loop(LENGTH, 0, 4),), (If(("gt", LENGTH, 0), (Turn(0),)), ahead(LENGTH, 4)),
    ),
    "by what follows from trips": (
        (loop("K"), If(("gt", "K", 3), (Turn(0),))),
        (loop("K"), If(("gt", ("idiv", ("max", "K", 0), 4), 0), (Turn(0),))),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ALIKE)
def test_what_follows_is_proved(name):
    load, mma = ALIKE[name]
    assert judged(two(load, mma, "K", "L", "F")) == ("", None)


CORNER: Expr = ("and", ("eq", "F", 1013), ("and", ("gt", "K", 6), ("lt", "L", -900)))
LESS: Expr = ("select", CORNER, ("sub", "K", 1), "K")
UNLIKE = {
    "a turn left out where three numbers meet": (
        (loop("K"),), (loop("K", 0, 1, Turn(0, "arrive", CORNER)),),
    ),
    "a trip less where three numbers meet": ((loop("K"),), (loop(LESS),)),
    "a condition that all ask, and one that one asks as well": (
        (If(("gt", "K", "L"), (Turn(0),)),),
        (If(("xor", ("gt", "K", "L"), CORNER), (Turn(0),)),),
    ),
    "in a trip that few loops make": (
        (loop(("irem", "K", 40)),),
        (loop(("irem", "K", 40), 0, 1,
              Turn(0, "wait", ("and", ("eq", "t", 35), ("eq", "F", 1013)))),),
    ),
    "more trips than are run": ((loop("K"),), (loop(("min", "K", 4000)),)),
}  # fmt: skip


@pytest.mark.parametrize("name", UNLIKE)
def test_what_does_not_follow_is_not_proved(name):
    load, mma = UNLIKE[name]
    assert judged(two(load, mma, "K", "L", "F"))[0]


# Programs that go wrong for some input and were proved once: for unlike questions about several
# numbers, in late trips, in loops that runs with free ends alone had come to.
@pytest.mark.parametrize("number", [19, 116, 123, 591, 1170, 2319])
def test_random_programs_that_were_proved_though_wrong(number):
    assert tried(number).outcome in (Trial.SUSPECT, Trial.FOUND)


@pytest.mark.parametrize(
    "name",
    [
        "instances residual depth 2",
        "flash 64 causal split coarse",
        "attention window",
    ],
)
def test_all_that_passes_make_follows(name):
    exploration = Exploration(read_kernel(parse(kernel_text(name)), H200))
    exploration.explore()
    surveys = exploration.surveys
    assert surveys.unlike()
    assert not surveys.undecided(exploration.reach)
    # What one role asks alone follows from nothing.
    for question in surveys.unlike():
        for who in list(askers := surveys._askers[question]):
            if role_of(who) is not exploration.model.roles[0].operation:
                del askers[who]
    assert surveys.undecided(exploration.reach)
