"""How functions of one number go on is what they do, far from zero on either side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from proof_inputs import For, If, Program, Ring, Turn
from proof_inputs_text import text
from ring_text import refused
from tawa.simulator.proof import tails
from tawa.simulator.proof.tails import Tail


class Function(NamedTuple):
    """A function, and how it goes on, on the left and on the right; None where nobody says."""

    at: Callable[[int], int]
    sides: tuple[Tail | None, Tail | None]
    text: str


def made(
    at: Callable[[int], int], make: Callable[..., Tail | None], text: str, *parts: Function
) -> Function:
    left, right = (
        None if None in found else make(*found)
        for found in (tuple(part.sides[side] for part in parts) for side in (0, 1))
    )
    return Function(at, (left, right), text)


X = Function(lambda x: x, (Tail(-1, gain=1), Tail(1, gain=1)), "x")


def total(parts: list[tuple[int, Function]], number: int) -> Function:
    functions = [function for _, function in parts]
    factors = [factor for factor, _ in parts]

    def make(*found: Tail) -> Tail:
        return tails.total(found[0].side, list(zip(factors, found, strict=True)), number)

    def at(x: int) -> int:
        return sum(factor * function.at(x) for factor, function in parts) + number

    text = " + ".join(f"{factor} * {function.text}" for factor, function in parts)
    return made(at, make, f"({text} + {number})", *functions)


def down(one: Function, by: int) -> Function:
    return made(
        lambda x: one.at(x) // by, lambda t: tails.down(t, by), f"({one.text} // {by})", one
    )


def rounded(one: Function, by: int) -> Function:
    return made(
        lambda x: int(one.at(x) < 0 and one.at(x) % by != 0),
        lambda t: tails.rounded(t, by),
        f"rounded({one.text}, {by})",
        one,
    )


def positive(one: Function) -> Function:
    return made(lambda x: int(one.at(x) > 0), tails.positive, f"({one.text} > 0)", one)


def zero(one: Function) -> Function:
    return made(lambda x: int(one.at(x) == 0), tails.zero, f"({one.text} == 0)", one)


def above(one: Function) -> Function:
    return made(lambda x: max(one.at(x), 0), tails.above, f"max({one.text}, 0)", one)


def unlike(one: Function, other: Function) -> Function:
    return made(
        lambda x: int(one.at(x) != other.at(x)),
        tails.unlike,
        f"({one.text} != {other.text})",
        one,
        other,
    )


def times(one: Function, other: Function) -> Function:
    return made(
        lambda x: one.at(x) * other.at(x), tails.times, f"({one.text} * {other.text})", one, other
    )


by = st.sampled_from((1, 2, 3, 4, 8))
factors = st.sampled_from((-3, -2, -1, 1, 2, 4))


def larger(inner: st.SearchStrategy[Function]) -> st.SearchStrategy[Function]:
    return st.one_of(
        st.builds(
            total,
            st.lists(st.tuples(factors, inner), min_size=1, max_size=2),
            st.integers(-20, 20),
        ),
        st.builds(down, inner, by),
        st.builds(rounded, inner, by),
        st.builds(positive, inner),
        st.builds(zero, inner),
        st.builds(above, inner),
        st.builds(unlike, inner, inner),
        st.builds(times, inner, inner),
    )


functions = st.recursive(st.just(X), larger, max_leaves=8)


@settings(max_examples=500)
@given(functions)
def test_functions_go_on_as_they_are_said_to(function: Function) -> None:
    for tail in function.sides:
        if tail is None:
            continue
        assume(tail.period <= 1 << 12)
        assume(tail.bound <= 1 << 16)
        for far in (*range(1, 40), 97, 500, 1000):
            x = tail.side * (tail.bound + far)
            ahead = x + tail.side * tail.period
            gained = tail.side * tail.gain
            assert function.at(ahead) == function.at(x) + gained, (function.text, tail, x)
            off = abs(function.at(x) * tail.period - tail.gain * x)
            assert off <= tail.error * tail.period, (function.text, tail, x)
            assert tail.value in (None, function.at(x)), (function.text, tail, x)


@pytest.mark.parametrize(
    ("function", "bound", "period", "gain"),
    [
        (down(down(X, 8), 8), 0, 64, 1),
        (down(total([(64, down(X, 64))], 0), 64), 0, 64, 1),
        (down(total([(2, X)], 1), 4), 0, 2, 1),
        (positive(total([(1, down(X, 8))], -5)), 48, 1, 0),
        (rounded(X, 8), 1, 1, 0),
        (total([(1, X), (-8, down(X, 8))], 0), 0, 8, 0),
    ],
    ids=["nested", "multiple", "of a multiple", "compared", "rounded", "remainder"],
)
def test_no_further_than_that(function: Function, bound: int, period: int, gain: int) -> None:
    right = function.sides[1]
    assert right is not None
    assert (right.period, right.gain) == (period, gain)
    assert right.bound <= bound


def test_what_repeats_times_what_gains_is_not_said() -> None:
    odd = total([(1, X), (-2, down(X, 2))], 0)
    assert times(odd, X).sides == (None, None)
    assert positive(times(odd, X)).sides == (None, None)


# --- roles that ask in unlike ways ----------------------------------------------------------------

TURN = Turn(0)
UP = ("max", "K", 0)


def quotient(value: Any, *by: int) -> Any:
    for each in by:
        value = ("idiv", value, each)
    return value


def judged(one: Any, other: Any, *around: Any) -> str:
    """What is said of two roles that turn a ring once under unlike conditions, and under others
    that both of them ask.
    """

    def made(condition: Any) -> tuple[Any, ...]:
        body: tuple[Any, ...] = (If(condition, (TURN,)),)
        for each in around:
            body = (If(each, body),)
        return body

    program = Program(("K",), (Ring(2, 0, (1,), True),), (made(one), made(other)))
    return refused(text(program))


@pytest.mark.parametrize(
    ("one", "other", "around"),
    [
        (
            ("gt", quotient(UP, 8, 8, 8), 3),
            ("gt", quotient(("add", quotient(UP, 8, 8), 4), 8), 3),
            (),
        ),
        (("gt", quotient(UP, 64), 40), ("gt", quotient(("add", UP, 63), 64), 40), ()),
        (
            ("eq", ("irem", "K", 8), 0),
            ("eq", ("irem", "K", 4), 0),
            (("gt", "K", 5000),),
        ),
        (
            ("eq", ("irem", "K", 8), 0),
            ("eq", ("irem", "K", 4), 0),
            (("gt", "K", 90_000),),
        ),
    ],
    ids=["nested quotients", "constants of quotients", "far conditions", "further than is looked"],
)
def test_roles_that_part_far_out_are_not_proved(one: Any, other: Any, around: Any) -> None:
    assert judged(one, other, *around)
    assert judged(other, one, *around)
    assert not judged(one, one, *around)


@pytest.mark.parametrize("turned", [False, True])
def test_one_of_two_conditions_is_the_numbers_between(turned: bool) -> None:
    """Whether two are unlike is a number, like all that is computed."""
    roles = (
        ("xor", ("gt", "K", 64), ("gt", "K", 320)),
        ("and", ("gt", "K", 64), ("le", "K", 320)),
    )
    loops = tuple((For("t", 0, "K", 64, (If(c, (TURN,)),)),) for c in roles[:: -1 if turned else 1])
    assert not refused(text(Program(("K",), (Ring(2, 0, (1,), True),), loops)))
