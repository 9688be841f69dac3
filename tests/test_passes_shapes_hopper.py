"""Shapes of programs all the way: hopper IR under seeded schedules leaves memory as the oracle."""

from __future__ import annotations

import pytest

from tawa.ir import parse
from tawa.passes import pipeline
from tawa.passes.simplify import simplify_kernel
from tawa.plan.pins import Pins
from tawa.plan.planner import plan_for
from tawa.simulator.hopper import run_hopper
from tawa.simulator.tile import run_tile
from tawa.target import H200
from tile_shapes import SHAPES, inputs, outputs, text_of

PLANS = {
    "planned": Pins(),
    "one block a tile": Pins(persistent=False),
    "one slot": Pins(depth=1, mma_depth=1),
    "ordinary": Pins(specialize=False),
}


# Without a load there are no rings to pin. Two plans of each shape run always.
CASES = [
    pytest.param(name, pins, marks=() if place in (0, 1 + number % 3) else pytest.mark.long)
    for number, name in enumerate(SHAPES)
    for place, pins in enumerate(PLANS)
    if name != "atomic tile counter" and (name, pins) != ("no load", "one slot")
]


@pytest.mark.parametrize(("name", "pins"), CASES)
def test_hopper_run_is_the_oracle(name: str, pins: str) -> None:
    kernel = parse(text_of(name))
    simplify_kernel(kernel)
    plan = plan_for(kernel, H200, PLANS[pins])
    pipeline.run((*pipeline.AREF, *pipeline.HOPPER), kernel, plan, H200)
    expected, actual = inputs(name, 5), inputs(name, 5)
    run_tile(parse(text_of(name)), SHAPES[name].grid, expected)
    run_hopper(kernel, SHAPES[name].grid, actual, seed=5, multiprocessors=2)
    assert outputs(actual) == outputs(expected)
