"""Trip counts that no input gives a loop, by its bounds and the conditions around it."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest
from xdsl.dialects import scf

from bound_text import CONSTANTS, Bounds, Tree, drawn_bounds
from ring_text import kernel
from tawa.ir import parse
from tawa.simulator.proof.census import Census
from tawa.simulator.proof.spans import Spans, Terms

MOST = 9
ARGUMENTS = ("K", "F")


def possible(bounds: Bounds, units: dict[str, int] | None = None) -> list[int]:
    """The trip counts up to `MOST` that are not excluded."""
    text = kernel({"r": 2}, bounds.text("load", 2), "", ARGUMENTS, CONSTANTS)
    parsed = parse(text)
    census = Census(parsed)
    loop = census.of(scf.ForOp)[-1]
    named = dict(zip(ARGUMENTS, parsed.body.block.args, strict=True))
    multiples = {named[name]: unit for name, unit in (units or {}).items()}
    spans = Spans(Terms(multiples, census.places, {}))
    return [count for count in range(MOST + 1) if spans.may_make(loop, count, count)]


ALL = [*range(MOST + 1)]
FOUR: Tree = ("mul", ("idiv", "F", 4), 4)
STEP: Tree = ("add", "F", 1)
TILE: Tree = ("mul", 128, ("idiv", ("max", 0, ("min", "K", ("add", "F", 1))), 128))
COUNTS = {
    "anything": (Bounds("K"), ALL),
    "a part of a length": (Bounds(("min", ("add", FOUR, 8), "K"), FOUR, 2), ALL[:5]),
    "its parts in a row": (Bounds(("min", "K", ("add", FOUR, 4)), FOUR), ALL[:5]),
    "the rest of a tile": (Bounds(("min", "K", ("add", "F", 128)), TILE, 128), ALL[:3]),
    "after a first trip": (
        Bounds(("min", "K", ("add", "F", 128)), ("add", TILE, 128), 128),
        ALL[:2],
    ),
    "no fewer": (Bounds(("max", "K", 3)), ALL[3:]),
    "one of two": (Bounds(("max", ("min", "K", 2), ("min", "F", 4))), ALL[:5]),
    "a remainder": (Bounds(("irem", "K", 4)), ALL[:4]),
    "bits": (Bounds(("and", "K", 3)), ALL[:4]),
    "shifted": (Bounds(("shr", ("and", "K", 15), 2)), ALL[:4]),
    "in pairs": (Bounds(("mul", "K", 2)), ALL[::2]),
    "unlike ends": (Bounds(("add", "K", 1), "F", under=[(("ne", "F", "K"), True)]), [0, *ALL[2:]]),
    "alike ends": (Bounds(("add", "K", 1), "F", under=[(("eq", "F", "K"), True)]), [1]),
    "above": (Bounds("K", under=[(("gt", "K", 6), True)]), ALL[7:]),
    "not above": (Bounds("K", under=[(("gt", "K", 6), False)]), ALL[:7]),
    "both": (Bounds("K", under=[(("both", ("gt", "K", 2), ("lt", "K", 5)), True)]), [3, 4]),
    "not either": (
        Bounds("K", under=[(("either", ("le", "K", 2), ("ge", "K", 5)), False)]),
        [3, 4],
    ),
    "either": (Bounds("K", under=[(("either", ("le", "K", 2), ("ge", "K", 5)), True)]), ALL),
    "few long steps": (Bounds("K", 0, "F", under=[(("lt", ("mul", 2, "F"), "K"), False)]), ALL[:3]),
    "no long step": (Bounds("K", 0, STEP, under=[(("lt", ("mul", 2, STEP), "K"), False)]), ALL[:3]),
    "the tile's number": (Bounds("T", tiles=4), ALL[:4]),
    "twice that": (Bounds(("mul", "T", 2), tiles=4), [0, 2, 4, 6]),
    "what a difference leaves": (Bounds(("sub", ("mul", "K", "F"), ("mul", "F", "K"))), [0]),
}


@pytest.mark.parametrize("name", COUNTS)
def test_what_is_excluded(name):
    bounds, counts = COUNTS[name]
    assert possible(bounds) == counts


def test_multiples_of_a_unit():
    assert possible(Bounds("K"), {"K": 4}) == [0, 4, 8]
    assert possible(Bounds(("idiv", "K", 4)), {"K": 4}) == ALL
    assert possible(Bounds(("add", "K", "F"), "F", 2), {"K": 4}) == [0, 2, 4, 6, 8]


@pytest.mark.parametrize("first", range(0, 80, 20))
def test_nothing_that_an_input_gives(first):
    numbers = (*range(-3, 10), 12, 16, 33)
    for seed in range(first, first + 20):
        bounds = drawn_bounds(Random(seed), ARGUMENTS)
        tiles = range(bounds.tiles or 1)
        given = ({"K": k, "F": f, "T": tile} for k, f, tile in product(numbers, numbers, tiles))
        found = {bounds.trips(each) for each in given} & {*ALL}
        assert found <= {*possible(bounds)}, (seed, bounds)
