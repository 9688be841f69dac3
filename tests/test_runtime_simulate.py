"""Kernels on NumPy arrays: the launch runs hopper IR in the simulator, other levels on request."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tawa
import tawa.language as tl
from tawa.errors import ArgumentError, DescriptorError, PlanError
from tawa.runtime import dispatch, jit, nvrtc


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("TAWA_CACHE_DIR", str(tmp_path))


@tawa.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask)
    tl.store(out + offsets, total, mask=mask)


@tawa.jit
def matmul(
    a_desc, b_desc, c_desc, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    m = tl.program_id(0) * BLOCK_M
    n = tl.program_id(1) * BLOCK_N
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        acc = tl.dot(a_desc.load([m, k]), b_desc.load([k, n]), acc)
    c_desc.store([m, n], acc.to(tl.bfloat16))


BLOCKS = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64}


def matrices(m, n, k):
    random = np.random.default_rng(0)
    a = random.integers(-4, 5, (m, k)).astype(ml_dtypes.bfloat16)
    b = random.integers(-4, 5, (k, n)).astype(ml_dtypes.bfloat16)
    c = np.full((m, n), np.nan, ml_dtypes.bfloat16)
    expected = (a.astype(np.float32) @ b.astype(np.float32)).astype(ml_dtypes.bfloat16)
    return a, b, c, expected


def describe(*arrays):
    return [tawa.TensorDescriptor.from_tensor(array, [64, 64]) for array in arrays]


def test_a_launch_on_numpy_arrays():
    x, y = np.arange(300, dtype=np.float32), np.ones(300, np.float32)
    out = np.full(300, np.nan, np.float32)
    kernel = add[lambda meta: (tawa.cdiv(meta["n"], meta["BLOCK"]),)](x, y, out, 300, BLOCK=128)
    np.testing.assert_array_equal(out, x + y)
    assert kernel.proof.ok


def test_a_launch_with_descriptors():
    a, b, c, expected = matrices(128, 64, 96)
    matmul[(2, 1)](*describe(a, b, c), 96, **BLOCKS)
    np.testing.assert_array_equal(c, expected)


@pytest.mark.parametrize("level", ["tile", "aref", "hopper"])
def test_every_level_gives_the_same(level):
    a, b, c, expected = matrices(64, 128, 192)
    how = {"grid": (1, 2), "level": level, "seed": 3, "persistent": False}
    tawa.simulate(matmul, *describe(a, b, c), 192, **how, **BLOCKS)
    np.testing.assert_array_equal(c, expected)


def test_a_grid_of_no_programs_does_nothing():
    out = np.full(8, np.nan, np.float32)
    add[(0,)](out, out, out, 8, BLOCK=128)
    assert np.isnan(out).all()


def test_a_kernel_is_read_back_from_disk():
    a, b, c, expected = matrices(64, 64, 64)
    kernels = [tawa.jit(matmul.fn)[(1, 1)](*describe(a, b, c), 64, **BLOCKS) for _ in range(2)]
    assert list(kernels[1].timings) == ["disk cache"]
    assert kernels[1].plan == kernels[0].plan
    np.testing.assert_array_equal(c, expected)


def test_compile_with_placeholders_and_explain():
    arrays = [tawa.array((256, 256), "bf16") for _ in range(3)]
    report = matmul.explain(*describe(*arrays), 256, **BLOCKS)
    assert report.startswith("kernel matmul\n")
    assert "a_desc: descriptor of bf16[64x64]" in report
    with pytest.raises(ArgumentError, match="cannot be launched with placeholders"):
        matmul[(1, 1)](*describe(*arrays), 256, **BLOCKS)


def test_the_simulator_refuses_what_tma_would():
    a, b, c, _ = matrices(64, 64, 65)
    with pytest.raises(
        DescriptorError, match=r"a_desc: TMA needs strides .* got 130 \(65 x bf16\)"
    ):
        matmul[(1, 1)](*describe(a, b, c), 65, **BLOCKS)
    assert np.isnan(c.astype(np.float32)).all()


def test_one_array_passed_twice_keeps_the_order_of_the_program():
    a = np.eye(64, dtype=ml_dtypes.bfloat16)
    b = np.arange(64 * 64).reshape(64, 64).astype(ml_dtypes.bfloat16)
    expected = b.copy()
    matmul[(1, 1)](*describe(a, b, b), 64, **BLOCKS)
    np.testing.assert_array_equal(b, expected)


@tawa.jit
def window(x, out, rows, columns, stride, B: tl.constexpr):
    r, c = tl.arange(0, B), tl.arange(0, B)
    tile = tl.load(x + (r + rows)[:, None] * stride + (c + columns)[None, :])
    tl.store(out + r[:, None] * B + c[None, :], tile)


@pytest.mark.parametrize("level", ["tile", "aref", "hopper"])
def test_the_plain_kernel_runs_where_a_guard_fails(level):
    """A row before the tensor, brought back by the column: no descriptor can say that."""
    x = np.arange(256 * 64).reshape(256, 64).astype(np.float32)
    out = np.zeros((64, 64), np.float32)
    tawa.simulate(window, x, out, -64, 128 * 64, 64, grid=(1,), level=level, B=64)
    np.testing.assert_array_equal(out, x[64:128])


@pytest.mark.parametrize("level", ["aref", "hopper"])
def test_clusters_at_every_level(level):
    a, b, c, expected = matrices(128, 64, 128)
    how = {"grid": (2, 1), "level": level, "cluster": 2, "persistent": False}
    trace = tawa.simulate(matmul, *describe(a, b, c), 128, **how, **BLOCKS)
    np.testing.assert_array_equal(c, expected)
    assert trace.spans


def test_persistent_clusters_ask_for_their_rank():
    a, b, c, expected = matrices(256, 64, 128)
    how = {"grid": (4, 1), "level": "aref", "cluster": 2, "persistent": True}
    tawa.simulate(matmul, *describe(a, b, c), 128, **how, **BLOCKS)
    np.testing.assert_array_equal(c, expected)


def test_what_was_just_compiled_is_not_read_again():
    """Reading IR takes as long as a compilation; the one at hand is what its text says."""
    from tawa import ir
    from tawa.ir.text import text_of

    a, b, c, _ = matrices(64, 64, 128)
    asm = matmul.compile(*describe(a, b, c), 128, **BLOCKS).asm
    program = asm.program("hopper")
    assert asm.program("hopper") is program
    assert text_of(program) == text_of(ir.parse(asm.text("hopper")))
    asm.forget_programs()
    assert asm.program("hopper") is not program
    assert text_of(asm.program("hopper")) == text_of(program)


def test_every_adversarial_schedule_gives_the_same(tmp_path):
    from tawa.simulator.scheduler import adversarial

    a, b, c, expected = matrices(64, 128, 192)
    how = {"grid": (1, 2), **BLOCKS}
    program = matmul.compile(*describe(a, b, c), 192, **how).asm.program("hopper")
    names = adversarial(program)
    assert {"random", "late", "early", "starve=load", "starve=mma+late"} <= set(names)
    for seed, schedule in enumerate(names):
        c[:] = np.nan
        file = tmp_path / f"{seed}.json"
        arguments = *describe(a, b, c), 192
        tawa.simulate(matmul, *arguments, seed=seed, schedule=schedule, timeline=file, **how)
        np.testing.assert_array_equal(c, expected)
        assert file.stat().st_size > 1000


def test_words_of_the_pin_reach_the_compiler():
    a, b, c, expected = matrices(64, 64, 128)
    tawa.simulate(matmul, *describe(a, b, c), 128, grid=(1, 1), schedule="none", **BLOCKS)
    np.testing.assert_array_equal(c, expected)


@pytest.mark.parametrize("schedule", ["fair", "starve=", "late+early", "starve=load+starve=mma"])
def test_schedules_that_mean_nothing(schedule):
    a, b, c, _ = matrices(64, 64, 64)
    with pytest.raises(ArgumentError, match="schedule="):
        tawa.simulate(matmul, *describe(a, b, c), 64, grid=(1, 1), schedule=schedule, **BLOCKS)


def test_a_role_that_is_not_there():
    a, b, c, _ = matrices(64, 64, 64)
    with pytest.raises(ArgumentError, match="its roles are load, mma"):
        tawa.simulate(matmul, *describe(a, b, c), 64, grid=(1, 1), schedule="starve=x", **BLOCKS)


def test_a_grid_that_is_no_whole_number_of_clusters_is_refused():
    @tawa.jit
    def product(a_desc, b_desc, c_desc, K, BLOCK: tl.constexpr):
        row, column = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
        acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
        for k in range(0, K, BLOCK):
            acc = tl.dot(a_desc.load([row, k]), b_desc.load([k, column]), acc)
        c_desc.store([row, column], acc.to(tl.float16))

    a, b = np.ones((192, 64), np.float16), np.ones((64, 64), np.float16)
    c = np.zeros((192, 64), np.float16)
    arguments = [tawa.TensorDescriptor.from_tensor(x, [64, 64]) for x in (a, b, c)]
    pins = {"BLOCK": 64, "cluster": 2, "persistent": False}
    with pytest.raises(PlanError, match="must be a multiple of the cluster"):
        tawa.simulate(product, *arguments, 64, grid=(3, 1), **pins)
    assert not c.any()


def test_a_launch_builds_no_cubin_and_takes_one_that_is_there(monkeypatch):
    monkeypatch.setattr(jit, "runs_cubin", dispatch.runs_cubin)

    @tawa.jit
    def double(x, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(x + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)

    x = np.ones(64, np.float32)
    assert "cubin" not in double[(1,)](x, 64, BLOCK=64).asm
    asked = double.compile(x, 64, BLOCK=64)
    assert ("cubin" in asked.asm) == nvrtc.is_available()
    built = double.compile(x, 64, BLOCK=32)
    assert double[(2,)](x, 64, BLOCK=32) is built
    assert (x == 4).all()
