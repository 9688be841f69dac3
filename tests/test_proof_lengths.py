"""A loop inside is given the trip counts that it was not seen to make, where some input gives them:
what a condition around it binds leaves its own wishes no choice.
"""

from __future__ import annotations

import pytest

from ring_text import fails, kernel, loop, of, refused
from tawa.ir import parse
from tawa.simulator.proof.explore import Exploration
from tawa.simulator.proof.read import read_kernel
from tawa.target import H200

DEPTH = 3


def guarded(role: str, end: str) -> str:
    """``if F == K - 1: for k in range(end)``: the condition binds K, and so the loop's bound."""
    return (
        of(f"%{role}_l", "sub", "%K", "%c1")
        + of(f"%{role}_h", "eq", "%F", f"%{role}_l", result="i1")
        + f"scf.if %{role}_h {{\n"
        + of(f"%{role}_end", "max", "%K", end)
        + loop(role, "r", DEPTH, f"%{role}_end")
        + "}\n"
    )


def rings(least: str) -> str:
    """The role "mma" makes `least` trips at least."""
    load, mma = guarded("load", "%c0"), guarded("mma", least)
    return kernel({"r": DEPTH}, load, mma, arguments=("K", "F"))


def test_a_loop_whose_bound_a_condition_binds_makes_every_number_of_trips():
    exploration = Exploration(read_kernel(parse(rings("%c0")), H200))
    exploration.explore()
    assert len(exploration.counts.made) == 2
    assert all(set(range(DEPTH + 2)) <= made for made in exploration.counts.made.values())


@pytest.mark.parametrize("least", [1, 2, 3, 4])
def test_few_trips_that_only_other_choices_give_are_run(least):
    text = rings(f"%c{least}")
    assert [fails(text, K=k, F=k - 1) for k in range(6)] == [k < least for k in range(6)]
    assert "which has 0/128 arrivals: nobody can go on" in refused(text)


def test_the_right_one_is_accepted():
    assert refused(rings("%c0")) == ""
