"""Kernels that hang elsewhere, each named by its public thread: here they end, or are refused.

The kernels are written anew in the tile language, in the shape that the thread reports.
"""

from __future__ import annotations

import numpy as np
import pytest

import tawa
import tawa.language as tl
from known_failures import (
    BF16,
    blank,
    blocks,
    declined,
    integers,
    long,
    operations,
    producer_loads,
    result,
    tried,
)
from tawa.errors import OverBudget, PlanError
from tawa.ir import hopper

# --- tilelang#2566: a pipelined loop of one iteration
# ------------------------------------------------


def gemv(x, w_desc, out, BK: tl.constexpr, BN: tl.constexpr, TRIPS: tl.constexpr, S: tl.constexpr):
    n = tl.program_id(0) * BN
    acc = tl.zeros((BN,), tl.float32)
    for k in tl.range(0, TRIPS, num_stages=S):
        w = w_desc.load([k * BK, n])
        v = tl.load(x + k * BK + tl.arange(0, BK))
        acc += tl.sum(v[:, None].to(tl.float32) * w.to(tl.float32), 0)
    tl.store(out + n + tl.arange(0, BN), acc)


@pytest.mark.parametrize("stages", [*long(1), 3])
@pytest.mark.parametrize("iterations", [1, 2])
def test_tilelang_2566_one_trip_of_a_split_gemv(iterations, stages):
    x, w = integers(64 * iterations, dtype=BF16), integers(64 * iterations, 256, dtype=BF16)
    arguments = {"x": x, "w_desc": blocks(w, 64, 128), "out": blank(256)}
    constants = {"BK": 64, "BN": 128, "TRIPS": iterations, "S": stages}
    kernel = tried(gemv, arguments | constants, (2,))
    assert kernel.plan.specialized
    got = result(gemv, arguments | constants, (2,), "out")
    np.testing.assert_array_equal(got, x.astype(np.float64) @ w.astype(np.float64))


def matmul(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        a = a_desc.load([m, k])
        b = b_desc.load([k, n])
        acc = tl.dot(a, b, acc)
    c_desc.store([m, n], acc.to(tl.float16))


def product(m, n, k, bm, bn, bk):
    a, b, c = integers(m, max(k, 8)), integers(max(k, 8), n), blank(m, n, dtype=np.float16)
    descs = {"a_desc": blocks(a, bm, bk), "b_desc": blocks(b, bk, bn), "c_desc": blocks(c, bm, bn)}
    return descs | {"K": k, "BM": bm, "BN": bn, "BK": bk}


@pytest.mark.parametrize("depth", [1, *long(2), 4])
@pytest.mark.parametrize("k", [*long(0), 8, *long(64)])
def test_tilelang_2566_one_trip_of_a_gemm(k, depth):
    tried(matmul, product(128, 128, k, 128, 128, 64), (1, 1), depth=depth)


# --- tilelang#2567: a length that is no multiple of anything ------------------------------------


def attention_backward(q_desc, k_desc, do_desc, lse, delta, dk_desc, n, B: tl.constexpr):
    """The keys' gradient: tiles by TMA, and a value a row that TMA cannot take at length 250."""
    key = k_desc.load([tl.program_id(0) * B, 0])
    dk = tl.zeros((B, 64), tl.float32)
    for row in range(0, n, B):
        q = q_desc.load([row, 0])
        do = do_desc.load([row, 0])
        rows = row + tl.arange(0, B)
        top = tl.load(lse + rows, mask=rows < n, other=0.0)
        mean = tl.load(delta + rows, mask=rows < n, other=0.0)
        p = tl.exp2(tl.dot(q, key.T) - top[:, None])
        p = tl.where(rows[:, None] < n, p, 0.0)
        ds = p * (tl.dot(do, key.T) - mean[:, None])
        dk = tl.dot(ds.to(tl.float16).T, q, dk)
    dk_desc.store([tl.program_id(0) * B, 0], dk.to(tl.float16))


@pytest.mark.parametrize("length", [250, *long(252, 256)])
def test_tilelang_2567_an_unaligned_length(length):
    q, k, do = (integers(length, 64, low=0, high=2) * (i != 1) for i in range(3))
    k[:, :4] = integers(length, 4, low=-1, high=2)  # products of a few, so that powers are exact
    arguments = {
        "q_desc": blocks(q, 64, 64),
        "k_desc": blocks(k, 64, 64),
        "do_desc": blocks(do, 64, 64),
        "lse": integers(length, dtype=np.float32, low=0, high=3),
        "delta": integers(length, dtype=np.float32),
        "dk_desc": blocks(blank(length, 64, dtype=np.float16), 64, 64),
    }
    kernel = tried(attention_backward, arguments | {"n": length, "B": 64}, (4,), close=1e-3)
    assert kernel.plan.specialized


# --- tilelang#2559: registers of two blocks on a multiprocessor ---------------------------------


def test_tilelang_2559_registers_are_those_of_one_block():
    """Reallocation counts on a whole multiprocessor: the bound says one block, the sum is kept."""
    kernel = tawa.jit(matmul).compile(**product(256, 128, 64, 128, 128, 64))
    assert f"__launch_bounds__({kernel.launch.threads}, 1)" in kernel.asm.text("cuda")
    roles = kernel.resources.roles
    given = sum(role.warps // 4 * role.budget for role in roles)
    assert given <= kernel.launch.threads // 128 * kernel.resources.registers_at_launch


def test_tilelang_2559_more_registers_than_there_are():
    arguments = product(256, 128, 64, 128, 128, 64)
    with pytest.raises((PlanError, OverBudget), match="register"):
        tawa.jit(matmul).compile(**arguments, consumers=2, registers={"load": 40, "mma": 240})


# --- triton#7561: arrivals counted before the number of warps was settled -----------------------


@pytest.mark.parametrize("warps", [*long(2), 4, *long(8)])
@pytest.mark.parametrize("consumers", [1, 2, 3])
def test_triton_7561_arrivals_are_those_of_the_final_warps(consumers, warps):
    rows = 64 * consumers
    arguments = product(rows, 64, 192, rows, 64, 64)
    kernel = tried(matmul, arguments, (1, 1), consumers=consumers, num_warps=warps)
    freed = [op for op in operations(kernel, hopper.Barriers) if "freed" in op.label.data]
    assert [op.arrivals.data for op in freed] == [consumers] * len(freed)
    assert [role.warps for role in kernel.plan.roles] == [4, 4 * consumers]


# --- emmy#217: the loads stranded on the wrong side of the split --------------------------------


def norm_gate_up(x_desc, g_desc, u_desc, out_desc, K, PARTS, B: tl.constexpr):
    """Row norm, two projections and their gate, over a loop in a loop."""
    row, column = tl.program_id(0) * B, tl.program_id(1) * B
    gate, up = tl.zeros((B, B), tl.float32), tl.zeros((B, B), tl.float32)
    squares = tl.zeros((B,), tl.float32)
    for k in range(0, K, B * PARTS):
        for part in range(PARTS):
            x = x_desc.load([row, k + part * B])
            g = g_desc.load([k + part * B, column])
            u = u_desc.load([k + part * B, column])
            squares += tl.sum(x.to(tl.float32) * x.to(tl.float32), 1)
            gate = tl.dot(x, g, gate)
            up = tl.dot(x, u, up)
    scale = 1.0 / (1.0 + squares)
    gate, up = gate * scale[:, None], up * scale[:, None]
    out = gate / (1.0 + tl.exp2(-gate)) * up
    out_desc.store([row, column], out.to(tl.float16))


def test_emmy_217_the_producer_has_the_loads():
    x, g, u = integers(64, 256), integers(256, 64), integers(256, 64, low=-1, high=2)
    arguments = {
        "x_desc": blocks(x, 64, 64),
        "g_desc": blocks(g, 64, 64),
        "u_desc": blocks(u, 64, 64),
        "out_desc": blocks(blank(64, 64, dtype=np.float16), 64, 64),
    }
    kernel = tried(norm_gate_up, arguments | {"K": 256, "PARTS": 2, "B": 64}, (1, 1), close=1e-3)
    assert kernel.plan.specialized
    assert producer_loads(kernel) == 3


# --- emmy#217, once more: what was never timed is never taken -----------------------------------


def test_emmy_217_a_configuration_that_was_not_timed_is_not_deployed(monkeypatch, tmp_path):
    from runtime_fakes import FakeDriver, GpuArray, install
    from tawa.runtime import autotune
    from tawa.runtime.store import DiskStore

    def copy(x, out, N: tl.constexpr):
        at = tl.arange(0, N)
        tl.store(out + at, tl.load(x + at))

    install(monkeypatch, FakeDriver(parameters=2))
    monkeypatch.setattr(autotune.Timer, "time", lambda self, run: (run(), [1.0])[1])
    configs = [tawa.Config({"N": n}) for n in (50, 64, 1 << 21)]  # the middle one alone builds
    tuner = autotune.Autotuner(tawa.jit(copy), configs, [], store=DiskStore(tmp_path))
    kernel = tuner[(1,)](GpuArray((64,)), GpuArray((64,)))
    assert tuner.best_config.kwargs == {"N": 64}
    assert kernel.proof.ok
    (tuning,) = tuner.tunings.values()
    assert set(tuning.times) == {configs[1]}
    assert len(tuning.skipped) == 2


# --- vllm#26026, fb-triton#2614: a role that has nothing to do for a tile -----------------------


def ragged(a_desc, b_desc, c_desc, iterations, tiles, B: tl.constexpr):
    """Tiles of unlike length, some empty, walked by a kernel that is persistent by itself."""
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0)):
        acc = tl.zeros((B, B), tl.float32)
        for k in range(tl.load(iterations + tile)):
            a = a_desc.load([tile * B, k * B])
            b = b_desc.load([k * B, 0])
            acc = tl.dot(a, b, acc)
        c_desc.store([tile * B, 0], acc.to(tl.float16))


@pytest.mark.parametrize(
    "iterations", [(0, 3, 1, 0), *long((0, 0, 0, 0), (2, 0, 0, 5), (1, 1, 1, 1))]
)
def test_vllm_26026_tiles_without_work(iterations):
    arguments = {
        "a_desc": blocks(integers(256, 320), 64, 64),
        "b_desc": blocks(integers(320, 64), 64, 64),
        "c_desc": blocks(blank(256, 64, dtype=np.float16), 64, 64),
        "iterations": np.array(iterations, np.int32),
    }
    tried(ragged, arguments | {"tiles": 4, "B": 64}, (2,))


# --- cutlass#1801: stream-K ---------------------------------------------------------------------


def stream_k(a_desc, b_desc, out_desc, units, share, steps: tl.constexpr, B: tl.constexpr):
    """Each program takes `share` steps of products, across the borders of tiles."""
    unit = tl.program_id(0) * share
    last = tl.minimum(unit + share, units)
    while unit < last:
        tile = unit // steps
        end = tl.minimum(last, (tile + 1) * steps)
        acc = tl.zeros((B, B), tl.float32)
        for step in range(unit, end):
            k = (step % steps) * B
            a = a_desc.load([tile * B, k])
            b = b_desc.load([k, 0])
            acc = tl.dot(a, b, acc)
        out_desc.atomic_add([tile * B, 0], acc)
        unit = end


@pytest.mark.parametrize("share", [2, *long(1, 5)])
def test_cutlass_1801_tilelang_2548_stream_k(share):
    arguments = {
        "a_desc": blocks(integers(192, 192), 64, 64),
        "b_desc": blocks(integers(192, 64), 64, 64),
        "out_desc": blocks(np.zeros((192, 64), np.float32), 64, 64),
    }
    counts = {"units": 9, "share": share, "steps": 3, "B": 64}
    tried(stream_k, arguments | counts, (-(-9 // share),))
    got = result(stream_k, arguments | counts, (-(-9 // share),), "out_desc")
    a, b = (arguments[name].base.astype(np.float64) for name in ("a_desc", "b_desc"))
    np.testing.assert_array_equal(got, a @ b)


# --- cutlass#2365, #2879: a copy whose bytes never arrive ---------------------------------------


def test_cutlass_2365_boxes_that_hang_over_the_edge_count_in_full():
    """The copy engine counts the bytes it fills with zeros: 40 rows of 64, 72 columns of 128."""
    tried(matmul, product(40, 72, 24, 64, 128, 64), (1, 1))


# --- triton#7108, #7136, #6624: the tutorials' kernels, which leave Hopper out ------------------


def tutorial(a_desc, b_desc, c_desc, M, N, K, B: tl.constexpr, FLATTEN: tl.constexpr):
    tiles_n = tl.cdiv(N, B)
    tiles = tl.cdiv(M, B) * tiles_n
    step = tl.num_programs(0)
    for tile in tl.range(tl.program_id(0), tiles, step, flatten=FLATTEN, warp_specialize=True):
        m, n = tile // tiles_n * B, tile % tiles_n * B
        acc = tl.zeros((B, B), tl.float32)
        for k in range(tl.cdiv(K, B)):
            a = a_desc.load([m, k * B])
            b = b_desc.load([n, k * B])
            acc = tl.dot(a, b.T, acc)
        c_desc.store([m, n], acc.to(tl.float16))


@pytest.mark.parametrize("flatten", [True, False])
def test_triton_7108_7136_6624_the_persistent_tutorial_is_specialized(flatten):
    arguments = {
        "a_desc": blocks(integers(192, 136), 64, 64),
        "b_desc": blocks(integers(128, 136), 64, 64),
        "c_desc": blocks(blank(192, 128, dtype=np.float16), 64, 64),
    }
    sizes = {"M": 192, "N": 128, "K": 136, "B": 64, "FLATTEN": flatten}
    kernel = tried(tutorial, arguments | sizes, (2,))
    assert kernel.plan.specialized
    assert "specialization" not in declined(kernel)
