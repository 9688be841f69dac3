"""Tiles transposed on their way: what the planner chooses, what plans may say, what it refuses."""

from dataclasses import replace

import numpy as np
import pytest

from codegen_emulator import emulate, needs_compiler
from lower_kernels import CASES, Case, fresh, lowered, matmul, matmul_tn, product, tile_kernel
from tawa.errors import PlanError
from tawa.ir import hopper
from tawa.passes import pipeline
from tawa.plan.pins import Pins
from tawa.plan.plan import Plan
from tawa.plan.planner import plan_for
from tawa.plan.resources import split_registers
from tawa.plan.text import parse_plan
from tawa.simulator import simulate
from tawa.target import H200
from tawa.verify import verify


def planned(case: Case, pins: Pins | None = None) -> Plan:
    kernel = tile_kernel(case)
    pipeline.run(pipeline.TILE, kernel, Plan(), H200)
    return plan_for(kernel, H200, case.pins if pins is None else pins)


def rings(plan: Plan) -> list[tuple[str, str]]:
    return [(ring.label.split("@")[0], ring.via) for ring in plan.arefs]


def test_what_is_read_as_it_lies_keeps_a_payload_of_its_own() -> None:
    plan = planned(CASES["matmul fp8 nn"])
    assert rings(plan) == [("a", "tma"), ("b", "tma"), ("b", "transpose")]
    assert [role.label for role in plan.roles] == ["load", "transpose", "mma"]
    assert any("in place" in item.feature for item in plan.declined)


def test_tiles_that_both_lie_the_wrong_way_round_travel_together() -> None:
    plan = planned(CASES["matmul fp8 tn"])
    assert [ring.via for ring in plan.arefs] == ["tma", "transpose"]
    assert {ring.payload for ring in plan.arefs} == {plan.arefs[0].payload}
    assert len(plan.arefs[0].payload) == 2


def test_nothing_is_transposed_for_16_bits_or_for_what_lies_right() -> None:
    for name in ("matmul 128x256", "matmul fp8", "matmul tn", "attention"):
        assert all(ring.via == "tma" for ring in planned(CASES[name]).arefs)


def test_weights_in_registers_ask_for_their_own_order() -> None:
    plan = planned(CASES["attention fp8"])
    assert [ring.interleaved for ring in plan.arefs if ring.via == "transpose"] == [True]
    assert "interleaved=yes" in str(plan)
    assert not any(ring.interleaved for ring in planned(CASES["matmul fp8 nn"]).arefs)


def test_one_copy_moves_a_tile_and_no_thread_reads_it_to_registers() -> None:
    for name, count in (("matmul fp8 nn", 1), ("matmul fp8 tn", 2), ("attention fp8", 1)):
        kernel, _, _ = lowered(name)
        copies = [op for op in kernel.walk() if isinstance(op, hopper.SharedTranspose)]
        assert len(copies) == count, name
        assert not any(isinstance(op, hopper.SharedLoad) for op in kernel.walk()), name
        assert [bool(op.interleaved) for op in copies] == [name.startswith("attention")] * count


def test_weights_change_places_before_they_are_converted() -> None:
    kernel, _, _ = lowered("attention fp8")
    moves = [op for op in kernel.walk() if isinstance(op, hopper.ConvertLayout)]
    assert moves
    assert all("xf32" in str(op.result.type) for op in moves)


def test_the_text_of_a_plan_reads_back() -> None:
    plan = planned(CASES["attention fp8"])
    assert parse_plan(str(plan)) == plan
    again = planned(CASES["attention fp8"], Pins(plan=str(plan)))
    assert (again.roles, again.arefs) == (plan.roles, plan.arefs)


def test_a_plan_may_leave_the_order_plain() -> None:
    text = str(planned(CASES["attention fp8"])).replace(" interleaved=yes", "")
    assert not any(r.interleaved for r in planned(CASES["attention fp8"], Pins(plan=text)).arefs)


@pytest.mark.parametrize(
    ("case", "change", "why"),
    [
        ("matmul fp8 nn", ("role transpose warps=4", "role transpose warps=8"), "4 warps"),
        ("matmul fp8", (" depth=", " via=transpose depth="), "no ring of the same payload"),
        ("matmul fp8 nn", ("via=transpose", "via=transpose interleaved=yes"), "not computed in"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(case: str, change: tuple[str, str], why: str) -> None:
    text = str(planned(CASES[case])).replace(*change)
    if "role transpose" not in text:
        text = text.replace("role mma", "role transpose warps=4 registers=32\nrole mma")
    with pytest.raises(PlanError, match=why):
        planned(CASES[case], Pins(plan=text))


def test_a_budget_for_a_role_that_is_not_there_is_refused() -> None:
    with pytest.raises(PlanError, match="no tile of this kernel is transposed"):
        planned(CASES["matmul fp8"], Pins(registers={"transpose": 32}))


def test_tiles_the_warps_cannot_share_stay_with_the_consumers() -> None:
    plan = planned(product(matmul, bn=48, bk=32, n=96, dtype="f8e4m3"))
    assert all(ring.via == "tma" for ring in plan.arefs)
    assert any("cannot share" in item.reason for item in plan.declined)


def test_where_shared_memory_is_short_the_consumers_transpose() -> None:
    plan = planned(product(matmul_tn, bn=256, bk=128, dtype="f8e4m3", depth=3))
    assert [ring.via for ring in plan.arefs] == ["tma"]
    assert any(item.feature == "transposing tiles on the way" for item in plan.declined)


def by_producer(name: str) -> Case:
    """A case whose plan has no role that transposes: the producer's threads do it."""
    lines = str(planned(CASES[name])).splitlines()
    text = "\n".join(line for line in lines if not line.startswith("role transpose"))
    return replace(CASES[name], pins=Pins(plan=text))


@pytest.mark.parametrize("name", ["attention fp8", "matmul fp8 tn"])
def test_the_producer_may_transpose(name: str) -> None:
    case = by_producer(name)
    kernel = tile_kernel(case)
    pipeline.run(pipeline.TILE, kernel, Plan(), H200)
    plan = plan_for(kernel, H200, case.pins)
    assert [role.label for role in plan.roles] == ["load", "mma"]
    pipeline.run(pipeline.AREF, kernel, plan, H200)
    pipeline.run(pipeline.HOPPER, kernel, plan, H200)
    assert verify(kernel, H200).ok
    expected, arguments = fresh(case)
    simulate(tile_kernel(case), case.grid, arguments, level="tile")
    for seed in range(2):
        actual, arguments = fresh(case)
        simulate(kernel, case.grid, arguments, level="hopper", seed=seed, multiprocessors=2)
        for array in expected:
            want, got = (np.asarray(x[array], np.float64) for x in (expected, actual))
            assert np.allclose(want, got, rtol=2e-3, atol=1e-5), (array, seed)


@needs_compiler
def test_what_the_producer_transposes_is_the_same_text_on_the_host() -> None:
    case = by_producer("attention fp8")
    kernel = tile_kernel(case)
    pipeline.run(pipeline.TILE, kernel, Plan(), H200)
    plan = plan_for(kernel, H200, case.pins)
    pipeline.run(pipeline.AREF, kernel, plan, H200)
    pipeline.run(pipeline.HOPPER, kernel, plan, H200)
    expected, arguments = fresh(case)
    simulate(tile_kernel(case), case.grid, arguments, level="tile")
    actual, arguments = fresh(case)
    emulate(kernel, arguments | actual, case.grid, blocks=2)
    want, got = (np.asarray(x["o_desc"], np.float64) for x in (expected, actual))
    assert np.allclose(want, got, rtol=2e-3, atol=1e-5)


def test_the_consumers_get_what_the_transposer_leaves() -> None:
    short = split_registers(2, 236, H200, transposer=True)
    assert (short.producer, short.transposer, short.consumer) == (24, 24, 232)
    enough = split_registers(2, 200, H200, transposer=True)
    assert (enough.transposer, enough.consumer) == (32, 224)
