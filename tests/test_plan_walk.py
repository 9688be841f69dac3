"""Serpentine walks: programs of unlike cost, each computed once, in any grid by any blocks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tawa.language as tl
from lower_kernels import Case, fresh, product, tile_kernel
from tawa.errors import PlanError
from tawa.frontend import build
from tawa.ir import tile
from tawa.passes import pipeline
from tawa.plan.pins import Pins
from tawa.plan.plan import Plan
from tawa.plan.planner import plan_for
from tawa.plan.text import parse_plan
from tawa.simulator import simulate
from tawa.simulator.proof import prove
from tawa.target import H200


def triangular(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM
    n = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.minimum(K, m), BK):
        acc = tl.dot(a_desc.load([m, k]), b_desc.load([k, n]), acc)
    c_desc.store([m, n], acc.to(c_desc.dtype))


def lowered(case: Case) -> tuple[tile.Kernel, Plan]:
    kernel = build(case.function, case.signature, {})
    pipeline.run(pipeline.TILE, kernel, Plan(), H200)
    plan = plan_for(kernel, H200, case.pins)
    pipeline.run((*pipeline.AREF, *pipeline.HOPPER), kernel, plan, H200)
    return kernel, plan


def small(m: int, n: int, **pins: object) -> Case:
    return product(triangular, bm=64, bn=64, m=m, n=n, k=m, **pins)


@pytest.mark.parametrize(("m", "n"), [(64, 64), (320, 64), (256, 128), (448, 128)])
@pytest.mark.parametrize("blocks", [1, 2, 3, 5])
def test_every_program_once(m: int, n: int, blocks: int) -> None:
    case = small(m, n)
    kernel, plan = lowered(case)
    assert plan.walk == "serpentine"
    expected, reference = fresh(case)
    simulate(tile_kernel(case), case.grid, reference, level="tile")
    arrays, arguments = fresh(case)
    simulate(kernel, case.grid, arguments, late="random", multiprocessors=blocks)
    want, got = (np.asarray(x["c_desc"], np.float64) for x in (expected, arrays))
    assert np.array_equal(want, got)


def test_the_protocol_is_proved() -> None:
    verdict = prove(lowered(small(256, 128))[0], H200)
    assert verdict.ok, verdict


def test_programs_of_one_cost_go_forward() -> None:
    assert lowered(product())[1].walk == "forward"
    assert lowered(product(walk="serpentine"))[1].walk == "serpentine"
    assert lowered(small(256, 128, walk="forward"))[1].walk == "forward"
    assert lowered(small(256, 128, persistent=False))[1].walk == "forward"


def test_one_tile_a_block_has_no_rounds() -> None:
    with pytest.raises(PlanError, match="walk='serpentine'") as caught:
        lowered(small(256, 128, walk="serpentine", persistent=False))
    assert caught.value.remedy == "leave walk out"
    plan = lowered(small(256, 128))[1]
    given = str(replace(plan, persistent=False))
    assert parse_plan(str(plan)) == plan
    with pytest.raises(PlanError, match="walk='serpentine'"):
        lowered(replace(small(256, 128), pins=Pins(plan=given)))
