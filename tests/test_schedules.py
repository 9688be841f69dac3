"""Lowered kernels under adversarial schedules: each role starved in turn, asynchronous work at
random, as late and as early as legal; and every trip count from 0 to past twice round the ring.
"""

from __future__ import annotations

import numpy as np
import pytest

from lower_kernels import CASES, fresh, lowered, product, tile_kernel
from tawa.frontend import build
from tawa.passes import pipeline
from tawa.plan.pins import Pins
from tawa.plan.plan import Plan
from tawa.plan.planner import rank_plans
from tawa.simulator import simulate
from tawa.simulator.schedules import adversarial
from tawa.target import H200

SHORT = ("matmul BK 32", "under an if", "row sums", "in place", "add")


def same(case, want, got, how) -> None:
    for name in want:
        expected, actual = (np.asarray(x[name], np.float64) for x in (want, got))
        if case.exact:
            assert np.array_equal(expected, actual, equal_nan=True), (name, how)
        else:
            assert np.allclose(expected, actual, rtol=1e-3, atol=1e-3, equal_nan=True), (name, how)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in SHORT else pytest.mark.long)
        for name in CASES
        if name != "counter"  # which program gets which ticket is the schedule's
    ],
)
def test_every_schedule_gives_the_oracle(name: str) -> None:
    case = CASES[name]
    want, arguments = fresh(case)
    simulate(tile_kernel(case), case.grid, arguments, level="tile")
    kernel = lowered(name)[0]
    for seed, schedule in enumerate(adversarial(kernel)):
        got, arguments = fresh(case)
        how = {"seed": seed, "schedule": schedule, "multiprocessors": 2}
        simulate(kernel, case.grid, arguments, **how)
        same(case, want, got, schedule)


@pytest.mark.parametrize("depth", [2, pytest.param(3, marks=pytest.mark.long)])
def test_every_trip_count(depth: int) -> None:
    case = product(bm=64, bn=32, bk=16, m=72, n=40, k=16, depth=depth)
    kernel = build(case.function, case.signature, {})
    oracle = build(case.function, case.signature, {})
    pipeline.run(pipeline.TILE, kernel, Plan(), H200)
    plan = rank_plans(kernel, H200, Pins(depth=depth))[0]
    pipeline.run((*pipeline.AREF, *pipeline.HOPPER), kernel, plan, H200)
    schedules = adversarial(kernel)
    for trips in range(2 * depth + 3):
        for tail in (0, 8):
            extent = max(0, 16 * trips - tail)
            sized = product(bm=64, bn=32, bk=16, m=72, n=40, k=extent)
            want, arguments = fresh(sized)
            simulate(oracle, sized.grid, arguments, level="tile")
            got, arguments = fresh(sized)
            schedule = schedules[(trips + tail) % len(schedules)]
            how = {"seed": trips, "schedule": schedule, "multiprocessors": 2}
            simulate(kernel, sized.grid, arguments, **how)
            same(sized, want, got, (trips, tail, schedule))
