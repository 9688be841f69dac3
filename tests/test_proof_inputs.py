"""The proof against brute force over inputs: what it accepts goes wrong for none of them."""

from __future__ import annotations

import pytest

from proof_inputs import Concrete, Expr, For, If, Program, Ring, Statement, Turn, faults
from proof_inputs_drawn import draw
from proof_inputs_text import text
from proof_inputs_trial import tried
from ring_text import refused


@pytest.mark.parametrize("first", [24, 32])
def test_what_is_accepted_goes_wrong_for_no_input(first: int) -> None:
    for number in range(first, first + 8):
        found = tried(number)
        assert not found.bad, f"program {number}: {found.bad}"


RING = Ring(1, 1, (0,), False)
K13: Expr = ("and", ("eq", "F", 13), ("gt", "K", 6))


def two(
    load: Statement, mma: Statement, ring: Ring = RING, arguments: tuple[str, ...] = ("K", "F")
) -> Program:
    return Program(arguments, (ring,), ((mma,), (load,)))


def loop(end: Expr, *body: Statement, start: Expr = 0, step: int = 1, trip: str = "t") -> For:
    return For(trip, start, end, step, body or (Turn(0),))


PART: Expr = ("irem", "K", 4)
LESS: Expr = ("select", ("and", ("gt", "F", 6), ("lt", "K", 0)), ("add", "F", -1), "F")
APART: Expr = ("sub", "F", ("max", 1, "K"))
NOUGHT: Expr = ("eq", ("add", "F", "K"), 0)
TWICE: Expr = ("eq", "K", ("sub", "F", "K"))

UNLIKE = {
    "an arrival left out where two numbers meet": (
        two(loop(PART), loop(PART, Turn(0, "arrive", K13))), (7, 13), "a hang",
    ),
    "once": (two(Turn(0), Turn(0, "arrive", K13)), (7, 13), "?"),
    "a trip less where another number is below zero": (
        two(loop("F", step=4), loop(LESS, step=4)), (-1, 9), "?",
    ),
    "a wait left out where two numbers cancel out": (
        two(loop(APART, step=4), loop(APART, Turn(0, "wait", NOUGHT), step=4)),
        (-2, 2), "a hang",
    ),
    "another bound, alike for all that is more": (
        two(
            If(TWICE, (loop(("irem", "F", 4), start="F"),)),
            If(TWICE, (loop(("irem", "K", 4), start="F"),)),
        ),
        (-2, -4), "a hang",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNLIKE)
def test_roles_that_differ_where_two_numbers_meet_are_found(name: str) -> None:
    program, given, what = UNLIKE[name]
    assert Concrete(program).fault(given) == what
    assert refused(text(program)) not in ("", "unproved")
    (_, load) = program.roles
    right = Program(program.arguments, program.rings, (load, load))
    assert not list(faults(right))
    assert not refused(text(right))


def late(start: int) -> tuple[Statement, ...]:
    """A loop whose ninth trip is another, after a condition that leaves it few trips."""
    inside = loop(("max", 0, ("sub", "t", ("mul", "F", 8))), start=start, trip="u")
    ninth = If(("eq", "t", 8), (inside,))
    return If(("gt", "K", 2), (Turn(0),)), loop(("idiv", "K", 5), ninth)


def test_code_in_a_trip_that_no_run_made_is_not_dead() -> None:
    program = Program(("K", "F"), (RING,), (late(0), late(1)))
    assert Concrete(program).fault((45, 0)) == "a hang"
    assert refused(text(program))


def test_a_program_is_the_same_in_every_process() -> None:
    assert draw(3) == draw(3)
