"""Inputs that tell questions apart: columns of inputs are computed as single ones are."""

from __future__ import annotations

import numpy as np
import pytest

from tawa.simulator.proof.columns import OUTCOMES, VECTORS
from tawa.simulator.proof.functions import FUNCTIONS

FLAGS = frozenset({"select"})


def columns(count: int, flag: bool = False) -> list[np.ndarray]:
    random = np.random.default_rng(count)
    found = [random.integers(-9, 10, 400) for _ in range(count)]
    return [found[0] > 0, *found[1:]] if flag else found


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda each: each.__name__)
def test_what_is_asked_of_columns(outcome) -> None:
    given = columns(outcome.__code__.co_argcount)
    one_by_one = [outcome(*map(int, row)) for row in zip(*given, strict=True)]
    assert np.array_equal(np.asarray(OUTCOMES[outcome](*given)).astype(int), one_by_one)


@pytest.mark.parametrize("name", VECTORS)
def test_functions_of_columns(name: str) -> None:
    given = columns(3 if name in FLAGS else 2, name in FLAGS)
    if name in ("idiv", "irem"):
        given[1][given[1] == 0] = 3  # what divides by 0 is never compared
    one_by_one = [FUNCTIONS[name](*map(int, row)) for row in zip(*given, strict=True)]
    assert np.array_equal(np.asarray(VECTORS[name](*given)).astype(int), one_by_one)
