"""Clusters: who may run in pairs of blocks, and that pairs compute what single blocks do."""

from __future__ import annotations

import numpy as np
import pytest

import tawa.language as tl
from lower_kernels import Case, fresh, product, tile_kernel
from tawa.errors import PlanError
from tawa.frontend import build
from tawa.frontend.signature import ConstantArg, DescriptorArg, PointerArg, ScalarArg
from tawa.ir import hopper, tile
from tawa.passes import pipeline
from tawa.plan.pins import Pins
from tawa.plan.plan import Plan
from tawa.plan.planner import plan_for
from tawa.simulator import simulate
from tawa.target import H200
from tawa.verify import verify


def lowered(case: Case) -> tuple[tile.Kernel, Plan]:
    kernel = build(case.function, case.signature, {})
    pipeline.run(pipeline.TILE, kernel, Plan(), H200)
    plan = plan_for(kernel, H200, case.pins)
    pipeline.run((*pipeline.AREF, *pipeline.HOPPER), kernel, plan, H200)
    return kernel, plan


def _check(case: Case, cluster: int = 2) -> None:
    kernel, plan = lowered(case)
    assert plan.cluster == cluster
    shared = any(isinstance(op, hopper.TmaLoad) and op.multicast for op in kernel.walk())
    assert shared == (cluster == 2)
    expected, reference = fresh(case)
    simulate(tile_kernel(case), case.grid, reference, level="tile")
    for late in ("late", "random"):
        arrays, arguments = fresh(case)
        simulate(kernel, case.grid, arguments, late=late, multiprocessors=4)
        for name in expected:
            want, got = (np.asarray(x[name], np.float64) for x in (expected, arrays))
            assert np.array_equal(want, got, equal_nan=True), name


@pytest.mark.parametrize("m", [100, 256, 300])
@pytest.mark.parametrize("k", [0, 40, 200])
def test_pairs_compute_what_single_blocks_do(m: int, k: int) -> None:
    _check(product(m=m, k=k, cluster=2))


def test_blocks_of_a_kernel_that_is_not_persistent() -> None:
    _check(product(m=200, cluster=2, persistent=False))


def test_three_rows_in_groups() -> None:
    _check(product(m=520, n=300, cluster=2, group=2))


@pytest.mark.parametrize("grouped", ["rows", "columns"])
def test_tiles_in_groups_of_either_axis(grouped: str) -> None:
    _check(product(m=520, n=300, cluster=2, group=2, grouped=grouped))


def test_columns_of_tiles_walked_together_without_pairs() -> None:
    assert lowered(product(cluster=2))[1].grouped == lowered(product())[1].grouped == "rows"
    alone = product(m=520, n=800, group=3, grouped="columns")
    assert lowered(alone)[1].grouped == "columns"
    _check(alone, cluster=1)


def test_columns_are_grouped_only_in_groups() -> None:
    with pytest.raises(PlanError, match="no tiles are walked together"):
        lowered(product(group=0, grouped="columns"))


def test_the_protocol_of_pairs_is_proved() -> None:
    verdict = verify(lowered(product(bn=256, cluster=2))[0], H200)
    assert verdict.ok, verdict


# --- refusals -----------------------------------------------------------------------------------


def triangular(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM
    n = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, m, BK):
        acc = tl.dot(a_desc.load([m, k]), b_desc.load([k, n]), acc)
    c_desc.store([m, n], acc.to(c_desc.dtype))


def guarded(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM
    n = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        if k > m:
            acc = tl.dot(a_desc.load([m, k]), b_desc.load([k, n]), acc)
    c_desc.store([m, n], acc.to(c_desc.dtype))


def columns(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    n = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(a_desc.load([0, k]), b_desc.load([k, n]), acc)
    c_desc.store([0, n], acc.to(c_desc.dtype))


def biased(a_desc, b_desc, c_desc, K, x_ptr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM
    n = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(a_desc.load([m, k]), b_desc.load([k, n]), acc)
    bias = tl.load(x_ptr + m + tl.arange(0, BM))
    c_desc.store([m, n], (acc + bias[:, None]).to(c_desc.dtype))


def ragged(a_desc, b_desc, c_desc, K, x_ptr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM
    n = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.load(x_ptr).to(tl.int32), BK):
        acc = tl.dot(a_desc.load([m, k]), b_desc.load([k, n]), acc)
    c_desc.store([m, n], acc.to(c_desc.dtype))


def searching(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM
    n = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    k = 0
    while k < m:
        acc = tl.dot(a_desc.load([m, k]), b_desc.load([k, n]), acc)
        k += BK
    c_desc.store([m, n], acc.to(c_desc.dtype))


def _plan(function: object, **pins: object) -> Plan:
    signature = {
        "a_desc": DescriptorArg("bf16", (128, 64)),
        "b_desc": DescriptorArg("bf16", (64, 128)),
        "c_desc": DescriptorArg("bf16", (128, 128)),
        "K": ScalarArg("i32"),
    }
    if function in (biased, ragged):
        signature["x_ptr"] = PointerArg("f32", True)
    signature |= {"BM": ConstantArg(128), "BN": ConstantArg(128), "BK": ConstantArg(64)}
    kernel = build(function, signature, {})
    pipeline.run(pipeline.TILE_PLAIN, kernel, Plan(), H200)
    return plan_for(kernel, H200, Pins(**pins))


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (triangular, r"trip count of for k@\d+.* depends on program_id\(0\)"),
        (searching, r"trip count of while@\d+.* depends on program_id\(0\)"),
        (guarded, r"condition under which a_desc.* depends on program_id\(0\)"),
        (columns, r"program_id\(0\), which the kernel does not use"),
        (biased, r"bias@\d+ reads through a pointer that depends on program_id\(0\)"),
        (ragged, r"trip count of for k@\d+.* depends on memory"),
    ],
)
def test_kernels_whose_blocks_would_fall_out_of_step(function: object, reason: str) -> None:
    assert _plan(function).cluster == 1
    with pytest.raises(PlanError, match=reason):
        _plan(function, cluster=2)


def test_the_other_axis_may_bound_the_loop() -> None:
    def columns_of_a_triangle(
        a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
    ):
        m = tl.program_id(0) * BM
        n = tl.program_id(1) * BN
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(0, n, BK):
            acc = tl.dot(a_desc.load([m, k]), b_desc.load([k, n]), acc)
        c_desc.store([m, n], acc.to(c_desc.dtype))

    assert _plan(columns_of_a_triangle, cluster=2).cluster == 2


def test_a_kernel_without_a_producer() -> None:
    with pytest.raises(PlanError, match="loads of a producer"):
        _plan(triangular, cluster=2, specialize=False)


def test_pointers_stay_inside_where_no_program_is_past_the_last() -> None:
    assert _plan(biased, cluster=2, persistent=False).cluster == 2


def test_a_size_that_is_not_built() -> None:
    with pytest.raises(PlanError, match="are 2, 4, 8, or 1 alone"):
        _plan(triangular, cluster=3)


def test_a_whole_plan_is_checked_too() -> None:
    from dataclasses import replace

    plan = replace(_plan(triangular), cluster=2)
    with pytest.raises(PlanError, match="in step"):
        _plan(triangular, plan=plan)
