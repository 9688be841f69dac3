"""Every pin on every kind of kernel: the plan is as pinned, or the refusal says why."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import combinations
from typing import Any

import pytest

from lower_kernels import CASES
from tawa.errors import OverBudget, PlanError
from tawa.frontend import build
from tawa.ir import tile
from tawa.passes import pipeline
from tawa.plan.pins import Pins
from tawa.plan.plan import Declined, Plan
from tawa.plan.planner import rank_plans
from tawa.target import H200

VALUES: dict[str, list[Any]] = {
    "specialize": [True, False],
    "consumers": [1, 2, 3],
    "arrangement": ["cooperative", "pingpong"],
    "depth": [1, 2, 3],
    "mma_depth": [1, 2],
    "schedule": ["none", "fine", "coarse"],
    "persistent": [True, False],
    "blocks": [1, 2],
    "cluster": [1, 2],
    "registers": [{"load": 40, "mma": 160}, {"load": 24, "mma": 240}],
    "group": [0, 4],
    "store": ["tma", "registers"],
    "parts": [1, 2, 4],
    "places": [1, 2],
    "shared": ["acc", ["acc", "m_i"]],
    "direct": ["a", "k"],
    "operands": [{"acc": "registers"}, {"acc": "shared"}],
}
ALONE = [{name: value} for name, values in VALUES.items() for value in values]
PAIRS = [{a: VALUES[a][-1], b: VALUES[b][-1]} for a, b in combinations(VALUES, 2)]
KERNELS = ("matmul 128x256", "attention", "pointers", "add", "no loop", "in place")
MORE = ("batched", "two products", "many tiles", "under an if", "reduce into")


@cache
def simplified(name: str) -> tuple[tile.Kernel, tuple[Declined, ...]]:
    case = CASES[name]
    kernel = build(case.function, case.signature, case.options)
    return kernel, pipeline.run(pipeline.TILE, kernel, Plan(), H200)


def otherwise(pins: Pins, plan: Plan) -> Iterator[str]:
    """Yield what of a plan is not as it was pinned."""
    same = ("arrangement", "persistent", "blocks", "cluster", "group")
    for name in same:
        if getattr(pins, name) not in (None, getattr(plan, name)):
            yield name
    groups = sum(role.warps // 4 * role.instances for role in plan.roles if role.label == "mma")
    budgets = dict(pins.registers or ())
    held = {
        "specialize": plan.specialized == pins.specialize,
        "consumers": groups == pins.consumers,
        "depth": all(ring.depth == pins.depth for ring in plan.arefs),
        "mma_depth": all(loop.mma_depth == pins.mma_depth for loop in plan.loops),
        "schedule": all(loop.schedule == pins.schedule for loop in plan.loops),
        "registers": all(role.registers == budgets.get(role.label) for role in plan.roles),
        "store": all(store.via == pins.store for store in plan.stores),
        "parts": all(store.parts == pins.parts for store in plan.stores if store.via == "tma"),
        "places": all(store.places == pins.places for store in plan.stores if store.via == "tma"),
    }
    carried = {name for loop in plan.loops for name in loop.shared}
    held |= {
        "shared": carried == {*(pins.shared or ())},
        "direct": {name.split("@")[0] for name in plan.direct} == {*(pins.direct or ())},
        "operands": {n.product.split("@")[0]: n.a for n in plan.operands}
        == dict(pins.operands or ()),
    }
    yield from (name for name in pins.given if not held.get(name, True))


def check(name: str, pinned: dict[str, Any]) -> None:
    kernel, notes = simplified(name)
    pins = Pins(**pinned)
    try:
        plans = rank_plans(kernel, H200, pins, notes)
    except (PlanError, OverBudget) as error:
        refusal = error
    else:
        assert [list(otherwise(pins, plan)) for plan in plans] == [[]] * len(plans)
        return
    assert refusal.why


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("pinned", ALONE, ids=str)
def test_a_pin_is_held_or_refused(name: str, pinned: dict[str, Any]) -> None:
    check(name, pinned)


@pytest.mark.long
@pytest.mark.parametrize("name", [*KERNELS, *MORE])
@pytest.mark.parametrize("pinned", [*ALONE, *PAIRS], ids=str)
def test_pins_are_held_or_refused(name: str, pinned: dict[str, Any]) -> None:
    check(name, pinned)
