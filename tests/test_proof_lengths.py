"""A loop inside is given the trip counts that it was not seen to make, where some input gives them:
what a condition around it binds leaves its own wishes no choice.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from random import Random

import pytest

from bound_text import CONSTANTS, Bounds, Tree, drawn_bounds
from ring_text import fails, kernel, loop, of, refused
from tawa.errors import UnprovedProtocol
from tawa.ir import parse
from tawa.simulator.proof import prove
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


# --- roles that make unlike numbers of trips where one makes so many ------------------------------

ARGUMENTS = ("K", "F", "G")
PART: Tree = ("mul", 4, ("idiv", "K", 4))
SPLIT: Tree = ("idiv", ("add", "K", ("sub", "F", 1)), "F")
BOUND = {
    "two conditions": Bounds(
        ("max", "K", 0), under=[(("eq", "F", ("sub", "K", 1)), True), (("eq", "G", "F"), True)]
    ),
    "a condition that fails": Bounds("K", under=[(("ne", ("add", "K", "F"), "G"), False)]),
    "both of two": Bounds("K", under=[(("both", ("eq", "F", "K"), ("ge", "F", "G")), True)]),
    "a product": Bounds(("idiv", ("mul", "K", "F"), 4), under=[(("eq", "K", "F"), True)]),
    "the least of three": Bounds(
        ("min", "K", ("min", "F", "G")), under=[(("eq", "G", ("add", "K", "F")), True)]
    ),
    "the largest of three": Bounds(
        ("max", ("sub", "K", 9), ("max", "F", ("sub", "G", "K"))), under=[(("lt", "G", "F"), True)]
    ),
    "one rest of many": Bounds(
        ("add", 1, ("idiv", ("irem", ("add", ("mul", 13, "K"), 6), 128), 127))
    ),
    "the rest of a quotient": Bounds(("min", ("add", PART, 4), "K"), PART),
    "a part of a split": Bounds(
        ("min", "K", ("mul", SPLIT, ("add", "G", 1))), ("mul", SPLIT, "G"), 2
    ),
    "tiles": Bounds(("sub", "K", "T"), under=[(("eq", "F", ("sub", "K", 1)), True)], tiles=3),
    "tiles of parts": Bounds(
        ("min", "K", ("mul", 4, ("add", "T", 1))),
        ("mul", 4, "T"),
        tiles=3,
        under=[(("eq", "F", "K"), True)],
    ),
}


def other(bounds: Bounds, count: int, how: str) -> Bounds:
    """The same loop, but one trip more where it makes so many, or at least or at most so many."""
    long: Tree = ("mul", bounds.step, count)
    match how:
        case "least":
            return replace(bounds, end=("max", bounds.end, ("add", bounds.low, ("add", long, 1))))
        case "most":
            return replace(bounds, end=("min", bounds.end, ("add", bounds.low, long)))
        case _:
            length: Tree = ("max", ("sub", bounds.end, bounds.low), 0)
            trips = ("idiv", ("add", length, ("sub", bounds.step, 1)), bounds.step)
            apart = ("sub", trips, count)
            more = ("mul", bounds.step, ("max", 0, ("sub", 1, ("mul", apart, apart))))
            return replace(bounds, end=("add", ("max", bounds.end, bounds.low), more))


def two(load: Bounds, mma: Bounds, depth: int) -> str:
    rings = load.text("load", depth), mma.text("mma", depth)
    return kernel({"r": depth}, *rings, ARGUMENTS, CONSTANTS)


def disagree(load: Bounds, mma: Bounds, most: int) -> bool:
    """Whether the first makes `most` trips or fewer, and the second not as many."""
    numbers = (*range(-2, 10), 16)
    for each in product(numbers, repeat=len(ARGUMENTS)):
        for tile in range(load.tiles or 1):
            given = {**dict(zip(ARGUMENTS, each, strict=True)), "T": tile}
            one, another = load.trips(given), mma.trips(given)
            if one is not None and one <= most and one != another:
                return True
    return False


@pytest.mark.parametrize("name", BOUND)
@pytest.mark.parametrize("how", ["least", "most", "just"])
def test_roles_that_disagree_on_a_count_are_refused(name, how):
    bounds, depth = BOUND[name], 2
    found = [
        count
        for count in range(depth + 2)
        if disagree(bounds, again := other(bounds, count, how), depth + 1)
        and not refused(two(bounds, again, depth))
    ]
    assert found == []


@pytest.mark.parametrize("seed", range(16))
def test_random_roles_that_disagree_are_refused(seed):
    random = Random(seed)
    bounds, depth = drawn_bounds(random, ARGUMENTS), random.choice((1, 2, 3))
    again = other(bounds, random.randrange(depth + 2), random.choice(("least", "most", "just")))
    if disagree(bounds, again, depth + 1):
        assert refused(two(bounds, again, depth))


def left(bounds: Bounds, depth: int) -> dict[int, list[int]]:
    """What is left of two roles that have the same loop, by role."""
    exploration = Exploration(read_kernel(parse(two(bounds, bounds, depth)), H200))
    exploration.explore()
    return dict(enumerate(exploration.counts.left.values()))


# Inputs that give each count are numbers of more than one or two unknowns at a time.
NOT_FOUND = ("a product", "the least of three", "the largest of three")


@pytest.mark.parametrize("name", BOUND)
def test_roles_that_agree_are_accepted(name):
    found = left(BOUND[name], 2)
    assert bool(found) is (name in NOT_FOUND)


def test_what_is_not_found_is_said_of_roles_that_agree():
    load = BOUND["the least of three"]
    proof = prove(parse(two(load, load, 2)), H200)
    assert "; no input was found for trip counts: 2 3 in line" in proof.verdict


def test_what_is_not_found_is_unproved_of_roles_that_do_not():
    load = BOUND["the least of three"]
    mma = replace(load, end=("add", load.end, 0))  # as many, told in another way
    with pytest.raises(UnprovedProtocol, match="with which a loop makes 2 trips"):
        prove(parse(two(load, mma, 2)), H200)
