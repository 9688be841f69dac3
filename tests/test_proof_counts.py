"""Which trip counts that were not made a loop is to be run with."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from ring_text import kernel, loop
from tawa.ir import parse
from tawa.simulator.proof.counts import Counts
from tawa.simulator.proof.explore import Exploration
from tawa.simulator.proof.read import read_kernel
from tawa.target import H200

NEAR, FAR = [*range(6)], 40


def wanted(makes: set[int], missing: list[int], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What a loop is to be run with of some trip counts, if it may make those alone."""
    text = kernel({"r": 2}, loop("load", "r", 2, "%K"), loop("mma", "r", 2, "%K"))
    counts = Exploration(read_kernel(parse(text), H200)).counts
    monkeypatch.setattr(counts, "_near", NEAR)

    def may_make(self: Counts, _: object, least: int, most: int | None) -> bool:
        return any(least <= count and (most is None or count <= most) for count in makes)

    monkeypatch.setattr(Counts, "_may_make", may_make)
    some_loop: Any = None
    return counts._wanted(some_loop, missing)


@pytest.mark.parametrize("seed", range(40))
def test_what_a_loop_may_make_is_wanted(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    makes = {count for count in range(FAR) if random.random() < random.choice((0.02, 0.2, 0.7))}
    missing = sorted(random.sample(NEAR, random.randint(1, len(NEAR))))
    found = wanted(makes, missing, monkeypatch)
    *below, top = missing
    if top in makes:
        assert found == missing
        return
    beyond = [count for count in sorted(makes) if count > top]
    if below and any(below[0] <= count <= below[-1] for count in makes):
        assert found[: len(below)] == below
        found = found[len(below) :]
    # More trips than are asked for stand for the largest number of those, and for no other.
    assert found == (beyond[:1] if top == NEAR[-1] else [])
