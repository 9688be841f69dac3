"""A condition of a launch whose numbers are not the true ones does not hold."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tawa.errors import LaunchError
from tawa.runtime import exact
from tawa.runtime.expressions import Names, value_of
from tawa.runtime.guards import Guards

ORDER = ("x", "y")
LEAST, MOST = -(1 << 63), (1 << 63) - 1
NEAR = st.sampled_from([LEAST, LEAST + 1, -(1 << 62), -(1 << 32), 1 << 32, 1 << 62, MOST])
NUMBERS = st.one_of(st.integers(-20, 20), NEAR, st.integers(LEAST, MOST))


def decide(condition: str, x: int, y: int, grid: tuple[int, ...] = (4,), demand: bool = False):
    asked = SimpleNamespace(condition=condition, refusal="it counts too far")
    kernel: Any = SimpleNamespace(
        name="k",
        signature={},
        guards=() if demand else (asked,),
        demands=(asked,) if demand else (),
    )
    guards = Guards(kernel, Names(ORDER, (), ()), tuple(map(value_of, ORDER)))
    return guards.hold((x, y, *grid), (x, y), grid)


@pytest.mark.parametrize(
    "text",
    [
        "128*divide(x, y)",
        "4*divide(x, y)",
        "-1*divide(x, y)",
        "remainder(x, y)",
        "128*divide(program(0), y)",
        "where(y == 0, 1, divide(x, y))",
        "program(0) // y",
        "x // y",
        "minimum(x, 128*divide(program(0), 4*y))",
        "2*program(0) + 128*remainder(program(0), y)",
    ],
)
@pytest.mark.parametrize("asked", ["never_negative({})", "always_within({}, -99999, 99999)"])
def test_nothing_divided_by_zero_holds(text: str, asked: str):
    condition = asked.format(text)
    assert not decide(condition, 5, 0)
    if not text.startswith("-"):
        assert decide(condition, 5, 3)


@pytest.mark.parametrize(
    "text",
    [
        "x*y*program(0)*program(0)",
        "x*y + program(0)*x*y*2",
        "(program(0) + x) << 62",
        "divide(x*4*y, 1)",
        "divide(x, 1)*y*8",
        "maximum(1, x)*y*8",
        "where(x > 0, x, 1)*y*8",
        "x*x*y",
    ],
)
def test_nothing_beyond_64_bits_holds(text: str):
    condition = f"never_negative({text})"
    assert not decide(condition, 1 << 31, 1 << 31)
    assert decide(condition, 1, 1, (1,))


def test_loops_of_numbers_beyond_64_bits_prove_nothing():
    condition = "never_negative(iteration(0), (divide(x, 1), 4*maximum(y, 1), 1))"
    assert not decide(condition, 0, 1 << 62)
    assert decide(condition, 0, 2)


def test_other_conditions_divide_too():
    assert not decide("x // y == 0", 1, 0)
    assert decide("x // y == 0", 1, 2)


def test_a_demand_refuses_only_what_it_knows():
    assert decide("always_within(divide(x, y), 0, 9)", 1, 0, demand=True)
    assert decide("always_within(program(0) >> y, 0, 9)", 1, -1, demand=True)
    with pytest.raises(LaunchError, match="k: it counts too far"):
        decide("always_within(divide(x, y), 0, 9)", 100, 1, demand=True)


@pytest.mark.parametrize("text", ["x*y*program(0)", "maximum(x*y, 0)", "where(x > 0, x*y, 1)"])
def test_a_demand_refuses_numbers_that_wrap(text: str):
    condition = f"always_within(({text} < 0), 0, 0)"
    assert decide(condition, 1 << 31, 1 << 30, demand=True)
    with pytest.raises(LaunchError, match="numbers leave 64 bits, so that perhaps it counts"):
        decide(condition, 1 << 62, 1 << 62, demand=True)


@given(st.sampled_from(["+", "-", "*", "//", "%", "<<", ">>"]), NUMBERS, NUMBERS)
def test_operators_are_pythons_or_raise(name: str, a: int, b: int):
    undefined = b == 0 if name in ("//", "%") else name in ("<<", ">>") and b < 0
    if undefined or (name == "<<" and b > 200):
        right = None
    else:
        right = eval(f"a {name} b", {"a": a, "b": b})
    try:
        found = int(np.asarray(eval(f"a {name} b", {"a": exact.whole(a), "b": exact.whole(b)})))
    except ArithmeticError:
        # Where a shift clears all bits, or a quotient of the least number, it may say so of a
        # right number.
        assert right is None or not LEAST <= right <= MOST or abs(b) > 63 or a == LEAST
    else:
        assert found == right


@given(NUMBERS, NUMBERS)
def test_c_division_is_exact_or_raises(a: int, b: int):
    try:
        quotient, rest = int(exact.divide(a, b)), int(exact.remainder(a, b))
    except ArithmeticError:
        assert b == 0 or LEAST in (a, b) or abs(a) > (1 << 63) - (1 << 14)
    else:
        assert quotient * b + rest == a
        assert abs(rest) < abs(b)
        assert rest * a >= 0


LINEAR = [
    "x - 3*program(0)",
    "x*program(0) - y*program(1) + 7",
    "x*program(0)*program(1) + y*program(2)",
    "maximum(x, 1)*program(2) - (y - program(0))*3",
    "program(0)*program(0) - x",
    "divide(program(0), 3)*x + y",
    "program(0)*program(0) - x*program(0) + y",
    "y - x*remainder(program(0), 3)",
]
"""The last four are looked at in every program."""


@given(
    st.sampled_from(LINEAR),
    st.integers(-9, 9),
    st.integers(-9, 9),
    st.tuples(*[st.integers(1, 5)] * 3),
    st.integers(2, 4),
)
def test_few_programs_tell_of_all(text: str, x: int, y: int, grid: tuple[int, ...], unit: int):
    names = {"x": x, "y": y, "maximum": max, "divide": lambda a, b: int(a / b)}
    names["remainder"] = lambda a, b: a % b  # of what is not negative
    found = [eval(text, {**names, "program": each.__getitem__}) for each in np.ndindex(*grid)]
    assert decide(f"never_negative({text})", x, y, grid) == (min(found) >= 0)
    assert decide(f"always_within({text}, -20, 20)", x, y, grid) == (max(map(abs, found)) <= 20)
    assert decide(f"always_multiple({text}, {unit})", x, y, grid) == all(
        number % unit == 0 for number in found
    )


def test_quotients_and_squares_are_looked_at_in_every_program():
    """What holds in programs 0, 1 and the last does not hold in program 2."""
    assert not decide("always_multiple(divide(program(0), 2)*x, 8)", 3, 0, (17,))
    assert not decide("never_negative(program(0)*program(0) - x*program(0) + y)", 4, 3, (9,))


def test_a_grid_is_not_listed_for_a_linear_number(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delattr(np, "arange")
    assert decide("never_negative(x*program(0) + y*program(1))", 2, 3, (1 << 30, 1 << 15))
    assert not decide("always_multiple(x*program(0)*program(1), 64)", 96, 0, (1 << 30, 2))
    assert not decide("always_multiple(x*program(0), 4)", 1 << 40, 0, (1 << 30,))  # 70 bits
    assert not decide("never_negative(1 - program(0))", 0, 0, (1 << 31,))
