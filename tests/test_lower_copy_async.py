"""Copies by threads: loads through pointers that no descriptor describes are the producer's."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import tawa.language as tl
from codegen_emulator import emulate, needs_compiler
from lower_kernels import integers
from mutants import drops
from tawa.errors import PlanError, ProtocolError
from tawa.frontend import build
from tawa.frontend.signature import ConstantArg, DescriptorArg, PointerArg, ScalarArg
from tawa.ir import hopper, tile
from tawa.passes import pipeline
from tawa.plan.pins import Pins
from tawa.plan.plan import Plan
from tawa.plan.planner import rank_plans
from tawa.plan.text import parse_plan, print_plan
from tawa.simulator import simulate
from tawa.simulator.memory import HostDescriptor
from tawa.target import H200
from tawa.verify import verify

BM, BN, BK = 128, 64, 64
NO_PINS = Pins()


def gather(a_ptr, rows_ptr, b_desc, c_ptr, K, am, cm, BM: tl.constexpr, BN: tl.constexpr,
           BK: tl.constexpr):  # fmt: skip
    """Rows of A by an index vector; B by TMA: two rings of two mechanisms."""
    om = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN
    rows = tl.load(rows_ptr + om)
    ok = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        inside = (k + ok)[None, :] < K
        a = tl.load(a_ptr + rows[:, None] * am + (k + ok)[None, :], mask=inside, other=0.0)
        b = b_desc.load([k, n])
        acc = tl.dot(a, b, acc)
    on = n + tl.arange(0, BN)
    tl.store(c_ptr + om[:, None] * cm + on[None, :], acc.to(tl.float16))


def gather_both(a_ptr, rows_ptr, b_ptr, c_ptr, K, am, cm, BM: tl.constexpr, BN: tl.constexpr,
                BK: tl.constexpr):  # fmt: skip
    """Rows of A and of B^T by index vectors, pointers carried round the loop; B runs along K."""
    om = tl.program_id(0) * BM + tl.arange(0, BM)
    on = tl.program_id(1) * BN + tl.arange(0, BN)
    ok = tl.arange(0, BK)
    a_ptrs = a_ptr + tl.load(rows_ptr + om)[:, None] * am + ok[None, :]
    b_ptrs = b_ptr + tl.load(rows_ptr + on)[None, :] * am + ok[:, None]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        a = tl.load(a_ptrs, mask=ok[None, :] < K - k, other=0.0)
        b = tl.load(b_ptrs, mask=ok[:, None] < K - k, other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BK
        b_ptrs += BK
    tl.store(c_ptr + om[:, None] * cm + on[None, :], acc.to(tl.float16))


def banded(a_ptr, rows_ptr, b_desc, c_ptr, K, am, cm, BM: tl.constexpr, BN: tl.constexpr,
           BK: tl.constexpr):  # fmt: skip
    """A mask with a lower bound, which no descriptor has."""
    om = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN
    ok = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        inside = ((k + ok)[None, :] >= 16) & (om[:, None] >= 3) & ((k + ok)[None, :] < K)
        a = tl.load(a_ptr + om[:, None] * am + (k + ok)[None, :], mask=inside, other=0.0)
        b = b_desc.load([k, n])
        acc = tl.dot(a, b, acc)
    on = n + tl.arange(0, BN)
    tl.store(c_ptr + om[:, None] * cm + on[None, :], acc.to(tl.float16))


def filled_with_ones(a_ptr, rows_ptr, b_desc, c_ptr, K, am, cm, BM: tl.constexpr,
                     BN: tl.constexpr, BK: tl.constexpr):  # fmt: skip
    om = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN
    rows = tl.load(rows_ptr + om)
    ok = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        inside = (k + ok)[None, :] < K
        a = tl.load(a_ptr + rows[:, None] * am + (k + ok)[None, :], mask=inside, other=1.0)
        acc = tl.dot(a, b_desc.load([k, n]), acc)
    on = n + tl.arange(0, BN)
    tl.store(c_ptr + om[:, None] * cm + on[None, :], acc.to(tl.float16))


def signature(function, divisible=True):
    found = {"a_ptr": PointerArg("f16", True), "rows_ptr": PointerArg("i32", True)}
    found |= (
        {"b_ptr": PointerArg("f16", True)}
        if function is gather_both
        else {"b_desc": DescriptorArg("f16", (BK, BN))}
    )
    found |= {"c_ptr": PointerArg("f16", True), "K": ScalarArg("i32", divisible)}
    found |= {"am": ScalarArg("i32", divisible), "cm": ScalarArg("i32", divisible)}
    return found | {"BM": ConstantArg(BM), "BN": ConstantArg(BN), "BK": ConstantArg(BK)}


def arguments(function, k: int, m=2 * BM, n=2 * BN):
    width = max(16, -(-k // 16) * 16)
    random = np.random.default_rng(k)
    a = integers((m, width), "f16")
    given = {"a_ptr": a, "rows_ptr": random.permutation(m).astype(np.int32)}
    if function is gather_both:
        given["b_ptr"] = integers((m, width), "f16")
    else:
        b = integers((width, n), "f16")
        given["b_desc"] = (
            HostDescriptor(b, (k, n), (n, 1), (BK, BN))
            if k
            else HostDescriptor(b, b.shape, (n, 1), (BK, BN))
        )
    given["c_ptr"] = np.full((m, n), np.nan, np.float16)
    return given | {"K": k, "am": width, "cm": n}


def planned(function, pins=NO_PINS, divisible=True) -> tuple[tile.Kernel, Plan]:
    kernel = build(function, signature(function, divisible), {})
    pipeline.run(pipeline.TILE, kernel, Plan(), H200)
    return kernel, rank_plans(kernel, H200, pins)[0]


@cache
def lowered(function, **pins) -> tile.Kernel:
    kernel, plan = planned(function, Pins(**pins))
    pipeline.run((*pipeline.AREF, *pipeline.HOPPER), kernel, plan, H200)
    return kernel


def paged(q_desc, k_ptr, v_ptr, rows_ptr, o_desc, n, ks, BM: tl.constexpr, BN: tl.constexpr):
    """Attention whose keys and values lie in rows given by an index: a copy ring for each."""
    row = tl.program_id(0) * BM
    q = q_desc.load([row, 0])
    top = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, 64), tl.float32)
    d = tl.arange(0, 64)
    for j in range(0, n, BN):
        rows = tl.load(rows_ptr + j + tl.arange(0, BN))
        k = tl.load(k_ptr + rows[None, :] * ks + d[:, None])
        s = tl.dot(q, k)
        new = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2(s - new[:, None])
        scale = tl.exp2(top - new)
        total = total * scale + tl.sum(p, 1)
        v = tl.load(v_ptr + rows[:, None] * ks + d[None, :])
        acc = tl.dot(p.to(tl.float16), v, acc * scale[:, None])
        top = new
    o_desc.store([row, 0], (acc / total[:, None]).to(tl.float16))


def paged_signature():
    found = {name: PointerArg("f16", True) for name in ("k_ptr", "v_ptr")}
    found |= {name: DescriptorArg("f16", (128, 64)) for name in ("q_desc", "o_desc")}
    found |= {"rows_ptr": PointerArg("i32", True), "n": ScalarArg("i32")}
    return found | {"ks": ScalarArg("i32", True), "BM": ConstantArg(128), "BN": ConstantArg(64)}


def paged_arguments(n: int):
    random, rows = np.random.default_rng(n), max(512, n + 64)
    arrays = {
        "q_desc": random.integers(-1, 2, (128, 64)).astype(np.float16),
        "k_ptr": random.integers(-1, 2, (rows, 64)).astype(np.float16),
        "v_ptr": random.integers(-2, 3, (rows, 64)).astype(np.float16),
        "rows_ptr": random.permutation(rows).astype(np.int32),
        "o_desc": np.zeros((128, 64), np.float16),
    }
    given: dict[str, object] = {"n": n, "ks": 64}
    for name, array in arrays.items():
        host = HostDescriptor(array, array.shape, (64, 1), (128, 64))
        given[name] = host if name.endswith("desc") else array
    return given, arrays["o_desc"]


KERNELS = [gather, gather_both, banded]


@pytest.mark.parametrize("function", KERNELS)
def test_the_producer_copies(function) -> None:
    _, plan = planned(function)
    assert plan.specialized
    kinds = {ring.via for ring in plan.arefs}
    assert kinds == ({"copy_async"} if function is gather_both else {"copy_async", "tma"})
    assert plan.roles[0].registers == (88 if function is gather_both else 72)
    assert parse_plan(print_plan(plan)) == plan
    assert "via=copy_async" in print_plan(plan)
    producer, consumer = [op for op in lowered(function).walk() if isinstance(op, hopper.Role)]
    assert any(isinstance(op, hopper.CopyAsync) for op in producer.walk())
    assert not any(isinstance(op, hopper.CopyAsync) for op in consumer.walk())
    assert not any(isinstance(op, tile.Load) for op in consumer.walk())


@pytest.mark.parametrize("function", KERNELS)
@pytest.mark.short("gather_both", "banded")
def test_every_trip_count_is_right(function) -> None:
    kernel = lowered(function)
    depth = max(ring.depth for ring in planned(function)[1].arefs)
    oracle = build(function, signature(function), {})
    for iterations in range(depth + 3):
        for k in {BK * iterations, max(0, BK * iterations - 32)}:
            expected, actual = arguments(function, k), arguments(function, k)
            simulate(oracle, (2, 2, 1), expected, level="tile")
            simulate(kernel, (2, 2, 1), actual, seed=iterations, late="late")
            assert np.array_equal(actual["c_ptr"], expected["c_ptr"]), k


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
@pytest.mark.parametrize("function", [gather, gather_both])
def test_every_depth_is_right(function, depth: int) -> None:
    pins = {"depth": depth, "mma_depth": 1 if depth < 3 else 2}
    kernel = lowered(function, **pins)
    assert verify(kernel, H200).ok
    for iterations in (0, 1, 2, depth + 2):
        k = BK * iterations
        expected, actual = arguments(function, k), arguments(function, k)
        simulate(build(function, signature(function), {}), (2, 2, 1), expected, level="tile")
        simulate(kernel, (2, 2, 1), actual, seed=iterations, late="late")
        assert np.array_equal(actual["c_ptr"], expected["c_ptr"]), k


@pytest.mark.parametrize("function", KERNELS)
@pytest.mark.short("gather_both", "banded")
def test_each_missing_synchronization_is_refused(function) -> None:
    kernel = lowered(function, depth=4)
    assert verify(kernel, H200).ok
    for mutant in drops(kernel):
        if mutant.harmless:
            continue
        try:
            verify(mutant.make(), H200)
        except ProtocolError:
            continue
        pytest.fail(f"{mutant.name} is not caught")


@pytest.mark.parametrize("function", KERNELS)
def test_the_build_is_clean(function) -> None:
    from tawa.codegen.generate import generate
    from tawa.runtime import nvrtc

    if not nvrtc.is_available():
        pytest.skip("NVRTC is not installed")
    cubin = nvrtc.build(generate(lowered(function)), "copies")
    assert "warning" not in cubin.log
    assert cubin.spill_bytes == 0


def test_what_stays_with_the_consumer() -> None:
    def reason(function, divisible: bool = True) -> str:
        _, plan = planned(function, divisible=divisible)
        return next(item.reason for item in plan.declined if "load a@" in item.feature)

    assert "only 2 bytes" in reason(gather, divisible=False)
    assert "masked-off elements are not zero" in reason(filled_with_ones)


def test_a_plan_names_the_mechanism() -> None:
    _, plan = planned(gather)
    text = print_plan(plan).replace(" via=copy_async", "")
    with pytest.raises(PlanError, match=r"cp\.async pointers"):
        planned(gather, Pins(plan=text))


def test_words_of_unknown_alignment_are_copied_one_by_one() -> None:
    given = signature(gather_both, divisible=False)
    given |= {name: PointerArg("f32") for name in ("a_ptr", "b_ptr")}
    given |= {"BK": ConstantArg(32)}
    kernel = build(gather_both, given, {})
    pipeline.run(pipeline.TILE, kernel, Plan(), H200)
    plan = rank_plans(kernel, H200)[0]
    assert plan.arefs[0].via == "copy_async"
    pipeline.run((*pipeline.AREF, *pipeline.HOPPER), kernel, plan, H200)
    assert verify(kernel, H200).ok


@pytest.mark.parametrize("depth", [2, 3, 4])
@pytest.mark.short("2", "4")
def test_two_copy_rings_under_an_overlapped_loop(depth: int) -> None:
    oracle = build(paged, paged_signature(), {})
    kernel = oracle.clone()
    pipeline.run(pipeline.TILE, kernel, Plan(), H200)
    plan = rank_plans(kernel, H200, Pins(depth=depth))[0]
    assert [ring.via for ring in plan.arefs] == ["tma", "copy_async", "copy_async"]
    assert plan.loops[0].schedule == "coarse"
    pipeline.run((*pipeline.AREF, *pipeline.HOPPER), kernel, plan, H200)
    assert verify(kernel, H200).ok
    for n in (0, 64, 128, 448):
        (expected, want), (actual, got) = paged_arguments(n), paged_arguments(n)
        simulate(oracle, (1, 1, 1), expected, level="tile")
        simulate(kernel, (1, 1, 1), actual, seed=n, late="late")
        assert np.array_equal(got, want, equal_nan=True), n


def summed(a_ptr, rows_ptr, b_desc, c_ptr, K, am, cm, BM: tl.constexpr, BN: tl.constexpr,
           BK: tl.constexpr):  # fmt: skip
    """Threads read what copies by threads bring, and so does wgmma."""
    om = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN
    rows = tl.load(rows_ptr + om)
    ok = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    sums = tl.zeros((BM,), dtype=tl.float32)
    for k in range(0, K, BK):
        inside = (k + ok)[None, :] < K
        a = tl.load(a_ptr + rows[:, None] * am + (k + ok)[None, :], mask=inside, other=0.0)
        acc = tl.dot(a, b_desc.load([k, n]), acc)
        sums += tl.sum(a.to(tl.float32), 1)
    on = n + tl.arange(0, BN)
    tl.store(c_ptr + om[:, None] * cm + on[None, :], (acc + sums[:, None]).to(tl.float16))


def test_slots_that_no_engine_fills_are_given_back_without_a_fence() -> None:
    """A fence of the proxy orders what threads read before TMA writes, not before wgmma reads."""
    kernel = lowered(summed, specialize=False)
    assert verify(kernel, H200).ok
    (role,) = [op for op in kernel.walk() if isinstance(op, hopper.Role)]
    gives = [op for op in role.walk() if isinstance(op, hopper.Arrive)]
    assert gives
    assert not any(isinstance(op.prev_op, hopper.ProxyFence) for op in gives)
    for k in (0, 64, 208):
        expected, actual = arguments(summed, k), arguments(summed, k)
        simulate(build(summed, signature(summed), {}), (2, 2, 1), expected, level="tile")
        simulate(kernel, (2, 2, 1), actual, seed=k, late="late")
        assert np.array_equal(actual["c_ptr"], expected["c_ptr"]), k


@needs_compiler
@pytest.mark.parametrize(
    "function",
    [gather, *(pytest.param(each, marks=pytest.mark.long) for each in (gather_both, banded))],
)
def test_generated_addresses(function) -> None:
    expected, actual = arguments(function, 208), arguments(function, 208)
    simulate(build(function, signature(function), {}), (2, 2, 1), expected, level="tile")
    if function is not gather_both:
        actual["b_desc"] = actual["b_desc"].base[:208]
    emulate(lowered(function), actual, (2, 2, 1), blocks=2)
    assert np.array_equal(actual["c_ptr"], expected["c_ptr"])
