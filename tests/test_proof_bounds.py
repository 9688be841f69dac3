"""What scalars are at least: conditions that hold for every input."""

from __future__ import annotations

import pytest

from tawa.simulator.proof.bounds import at_least, surely_holds
from tawa.simulator.proof.configuration import Configuration
from tawa.simulator.proof.scalars import Scalars

SCALARS = Scalars(Configuration({}))
BLOCK, EXTENT = SCALARS.unknown("block_id", 0), SCALARS.unknown("grid_extent", 0)
LENGTH = SCALARS.unknown("argument", 3)


def of(function, *args):
    return SCALARS.apply(function, *args)


@pytest.mark.parametrize(
    ("scalar", "least"),
    [
        (7, 7),
        (BLOCK, 0),
        (EXTENT, 1),
        (LENGTH, None),
        (of("add", of("mul", BLOCK, 64), 64), 64),
        (of("irem", BLOCK, LENGTH), 0),
        (of("idiv", BLOCK, EXTENT), 0),
        (of("idiv", BLOCK, LENGTH), None),
        (of("min", EXTENT, 9), 1),
        (of("max", LENGTH, 2), 2),
        (of("select", LENGTH, EXTENT, 3), 1),
        (of("mul", LENGTH, BLOCK), None),
        (of("sub", BLOCK, 1), None),
    ],
)
def test_the_least(scalar, least):
    assert at_least(scalar) == least


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        (of("lt", 0, of("add", BLOCK, 1)), True),
        (of("lt", 0, BLOCK), False),
        (of("le", 0, BLOCK), True),
        (of("gt", EXTENT, 0), True),
        (of("ge", EXTENT, 2), False),
        (of("lt", BLOCK, 1000), False),
        (of("lt", 0, LENGTH), False),
    ],
)
def test_conditions(condition, holds):
    assert surely_holds(condition) is holds
