"""Walks over programs of unlike cost: each is computed once, in any grid by any blocks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tawa.language as tl
from codegen_emulator import emulate, needs_compiler
from lower_kernels import Case, fresh, product, tile_kernel
from tawa.codegen.generate import generate
from tawa.codegen.parameters import CounterParameter
from tawa.errors import PlanError, ProtocolError
from tawa.frontend import build
from tawa.ir import hopper, tile
from tawa.passes import pipeline
from tawa.plan.pins import Pins
from tawa.plan.plan import Plan
from tawa.plan.planner import plan_for
from tawa.plan.text import parse_plan
from tawa.runtime.counters import Counters
from tawa.simulator import simulate
from tawa.target import H200
from tawa.verify import verify


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
@pytest.mark.parametrize("walk", ["serpentine", "dynamic"])
def test_every_program_once(m: int, n: int, blocks: int, walk: str) -> None:
    case = small(m, n, walk=walk)
    kernel, plan = lowered(case)
    assert plan.walk == walk
    expected, reference = fresh(case)
    simulate(tile_kernel(case), case.grid, reference, level="tile")
    arrays, arguments = fresh(case)
    simulate(kernel, case.grid, arguments, late="random", multiprocessors=blocks)
    want, got = (np.asarray(x["c_desc"], np.float64) for x in (expected, arrays))
    assert np.array_equal(want, got)


def test_in_aref_ir() -> None:
    case = small(320, 128)
    kernel = build(case.function, case.signature, {})
    pipeline.run(pipeline.TILE, kernel, Plan(), H200)
    pipeline.run(pipeline.AREF, kernel, plan_for(kernel, H200, case.pins), H200)
    expected, reference = fresh(case)
    simulate(tile_kernel(case), case.grid, reference, level="tile")
    arrays, arguments = fresh(case)
    simulate(kernel, case.grid, arguments, level="aref", multiprocessors=2)
    want, got = (np.asarray(x["c_desc"], np.float64) for x in (expected, arrays))
    assert np.array_equal(want, got)


@needs_compiler
@pytest.mark.parametrize("blocks", [1, 3])
def test_the_text_asks_until_none_is_left(blocks: int) -> None:
    case = small(320, 64)
    kernel, _ = lowered(case)
    source = generate(kernel)
    assert CounterParameter() in source.parameters
    expected, reference = fresh(case)
    simulate(tile_kernel(case), case.grid, reference, level="tile")
    arrays, arguments = fresh(case)
    emulate(source, arguments | arrays, case.grid, blocks=blocks)
    want, got = (np.asarray(x["c_desc"], np.float64) for x in (expected, arrays))
    assert np.array_equal(want, got)


@pytest.mark.parametrize("walk", ["serpentine", "dynamic"])
def test_the_protocol_is_proved(walk: str) -> None:
    verdict = verify(lowered(small(256, 128, walk=walk))[0], H200)
    assert verdict.ok, verdict


def test_a_consumer_that_goes_its_own_way_is_refused() -> None:
    """The number that is sent decides how often both roles come round: without it they differ."""
    kernel, _ = lowered(small(256, 128))
    ask = next(op for op in kernel.walk() if isinstance(op, hopper.NextProgram))
    store = next(op for op in kernel.walk() if isinstance(op, hopper.SharedStore))
    splat = store.value.owner
    assert isinstance(splat, tile.Splat)
    other = hopper.NextProgram(operands=list(ask.operands), result_types=[ask.result.type])
    splat.parent.insert_op_before(other, splat)
    splat.operands[0] = other.result
    with pytest.raises(ProtocolError, match="load waits for next_program freed; mma ended"):
        verify(kernel, H200)


def test_programs_of_one_cost_go_forward() -> None:
    assert lowered(product())[1].walk == "forward"
    assert lowered(product(walk="serpentine"))[1].walk == "serpentine"
    assert lowered(product(walk="dynamic"))[1].walk == "dynamic"
    assert lowered(small(256, 128))[1].walk == "dynamic"
    assert lowered(small(256, 128, walk="forward"))[1].walk == "forward"
    assert lowered(small(256, 128, persistent=False))[1].walk == "forward"


@pytest.mark.parametrize("walk", ["serpentine", "dynamic"])
def test_one_tile_a_block_has_no_order(walk: str) -> None:
    with pytest.raises(PlanError, match=f"walk='{walk}'") as caught:
        lowered(small(256, 128, walk=walk, persistent=False))
    assert caught.value.remedy == "leave walk out"
    plan = lowered(small(256, 128, walk=walk))[1]
    given = str(replace(plan, persistent=False))
    assert parse_plan(str(plan)) == plan
    with pytest.raises(PlanError, match=f"walk='{walk}'"):
        lowered(replace(small(256, 128), pins=Pins(plan=given)))


def test_a_whole_plan_of_its_own() -> None:
    plan = lowered(small(256, 128))[1]
    assert lowered(replace(small(256, 128), pins=Pins(plan=str(plan))))[1] == plan
    without = replace(plan, arefs=tuple(a for a in plan.arefs if a.label != "next_program"))
    with pytest.raises(PlanError, match="no ring next_program"):
        lowered(replace(small(256, 128), pins=Pins(plan=str(without))))


def test_clusters_take_their_tiles_together() -> None:
    with pytest.raises(PlanError, match="walk='dynamic'"):
        lowered(product(walk="dynamic", cluster=2))


def test_streams_have_counters_of_their_own() -> None:
    capturing: set[int] = set()
    counters = Counters(lambda stream: stream in capturing, count=4)
    first, second = counters(10), counters(11)
    assert first != second
    assert (counters(10), counters(11)) == (first, second)
    capturing.add(10)
    recorded = counters(10)
    assert recorded not in (first, second)
    assert counters(10) not in (first, second, recorded)
    capturing.clear()
    assert counters(10) == first
    assert counters(12) == second  # four are given out: the one idle longest is given again
