"""Columns of numbers are computed as single numbers are, however large these get."""

from __future__ import annotations

import numpy as np
import pytest

from tawa.simulator.proof.columns import Columns
from tawa.simulator.proof.functions import FUNCTIONS
from tawa.simulator.proof.numbers import trip_count

FIRST = [-(1 << 40), -7, 0, 3, 1 << 20, 1 << 40]
PLACES = {"select": (1, 0, 1), "fma": (0, 1, 0), "neg": (0,), "abs": (0,)}
NAMES = [name for name in FUNCTIONS if name.split()[-1] not in ("i8", "ui8", "i16", "ui16", "ui64")]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("second", [5, -3, 1 << 41])
def test_a_column_is_its_numbers(name: str, second: int) -> None:
    places = PLACES.get(name.split()[0], (0,) if name.startswith("cast") else (0, 1))
    columns = Columns([np.array(FIRST), second, 0], len(FIRST))
    columns.compute(name, places, 2, lambda: np.ones(len(FIRST), np.bool_), 0)
    given = [[first, second] for first in FIRST]
    one_by_one = [FUNCTIONS[name](*[row[place] for place in places]) for row in given]
    assert np.broadcast_to(columns.all[2], len(FIRST)).tolist() == one_by_one


def test_numbers_without_end_go_on_as_such() -> None:
    columns = Columns([np.array(FIRST), 1 << 40, 0, 0], len(FIRST))
    everywhere = np.ones(len(FIRST), np.bool_)
    columns.compute("mul", (0, 1), 2, lambda: everywhere, 0)
    columns.compute("idiv", (2, 1), 3, lambda: everywhere, 0)
    assert columns.all[3].tolist() == FIRST
    trips = columns.ask(trip_count, (2, 3, 1)).tolist()
    assert trips == [trip_count(first << 40, first, 1 << 40) for first in FIRST]


def test_what_did_not_change_is_not_computed() -> None:
    columns = Columns([np.array([1, 2]), 3, 0], 2)
    columns.compute("shl", (0, 1), 2, lambda: np.array([False, True]), 4)
    assert columns.all[2].tolist() == [4, 16]
