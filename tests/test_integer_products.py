"""Products of 8-bit integers run on the tensor cores: exact, in every order of their operands."""

from __future__ import annotations

import numpy as np
import pytest

import tawa
import tawa.language as tl
from tawa.layouts.fragments import instruction_n


@tawa.jit
def matmul(
    a_desc, b_desc, c_desc, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, A_K: tl.constexpr, B_K: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * BM
    column = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.int32)
    for k in range(0, K, BK):
        a = a_desc.load([row, k]) if A_K else a_desc.load([k, row]).T
        b = b_desc.load([column, k]).T if B_K else b_desc.load([k, column])
        acc = tl.dot(a, b, acc)
    c_desc.store([row, column], acc)


@tawa.jit
def dequantized(
    a_ptr, b_ptr, scale_ptr, c_ptr, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.int32)
    for k in range(0, K, BK):
        a_at = a_ptr + rows[:, None] * K + (k + inner)[None, :]
        b_at = b_ptr + columns[None, :] * K + (k + inner)[:, None]
        a = tl.load(a_at, mask=(rows[:, None] < M) & ((k + inner)[None, :] < K), other=0)
        b = tl.load(b_at, mask=(columns[None, :] < N) & ((k + inner)[:, None] < K), other=0)
        acc += tl.dot(a, b)
    scale = tl.load(scale_ptr + columns, mask=columns < N, other=0.0)
    c_at = c_ptr + rows[:, None] * N + columns[None, :]
    c = acc.to(tl.float32) * scale[None, :]
    tl.store(c_at, c.to(tl.float16), mask=(rows[:, None] < M) & (columns[None, :] < N))


def integers(rng, kind, *shape):
    """Return numbers over the whole range of an 8-bit type."""
    limits = np.iinfo(kind)
    return rng.integers(limits.min, limits.max, shape, dtype=kind, endpoint=True)


def launch_of(rng, kind, tile, a_k, b_k):
    bm, bn, bk = tile
    a, b = integers(rng, kind, 2 * bm, 3 * bk), integers(rng, kind, 3 * bk, bn)
    c = np.full((2 * bm, bn), -1, np.int32)
    describe = tawa.TensorDescriptor.from_tensor
    a_desc = describe(a, [bm, bk]) if a_k else describe(np.ascontiguousarray(a.T), [bk, bm])
    b_desc = describe(np.ascontiguousarray(b.T), [bn, bk]) if b_k else describe(b, [bk, bn])
    values = {"BM": bm, "BN": bn, "BK": bk, "A_K": a_k, "B_K": b_k}
    exact = a.astype(np.int64) @ b.astype(np.int64)
    return (a_desc, b_desc, describe(c, [bm, bn]), a.shape[1]), values, c, exact


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize("a_k", [True, False])
@pytest.mark.parametrize("b_k", [True, False])
def test_every_order_is_exact_by_wgmma(kind, a_k, b_k):
    rng = np.random.default_rng(5)
    arguments, values, c, exact = launch_of(rng, kind, (64, 64, 64), a_k, b_k)
    matmul[2, 1](*arguments, **values)
    assert np.array_equal(c, exact)
    kernel = matmul.compile(*arguments, grid=(2, 1), **values)
    name = {np.int8: "s8", np.uint8: "u8"}[kind]
    assert f"wgmma.mma_async.sync.aligned.m64n64k32.s32.{name}.{name}" in kernel.asm["cuda"]
    assert not any("tensor cores" in note.feature for note in kernel.declined)


def test_a_tile_too_small_for_wgmma_takes_mma():
    rng = np.random.default_rng(6)
    arguments, values, c, exact = launch_of(rng, np.int8, (16, 32, 64), True, True)
    matmul[2, 1](*arguments, **values)
    assert np.array_equal(c, exact)
    kernel = matmul.compile(*arguments, grid=(2, 1), **values)
    assert "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32" in kernel.asm["cuda"]


def test_pointers_with_scales():
    rng = np.random.default_rng(7)
    m, n, k = 100, 72, 144
    a, b = integers(rng, np.int8, m, k), integers(rng, np.int8, n, k)
    scale = rng.uniform(1e-4, 1e-3, n).astype(np.float32)
    c = np.full((m, n), np.nan, np.float16)
    arguments = (a, b, scale, c, m, n, k)
    values = {"BM": 64, "BN": 64, "BK": 64}
    dequantized[2, 2](*arguments, **values)
    exact = a.astype(np.int64) @ b.T.astype(np.int64)
    assert np.array_equal(c, (exact.astype(np.float32) * scale).astype(np.float16))
    assert "wgmma" in dequantized.compile(*arguments, grid=(2, 2), **values).asm["cuda"]


def test_sums_wrap_as_32_bits_do():
    """Sums of 2 ** 31 take more of K than a test has, so this one starts near."""

    @tawa.jit
    def above(a_desc, b_desc, c_desc, start, BK: tl.constexpr):
        acc = tl.full((64, 64), 1, tl.int32) * start
        for k in range(0, 2 * BK, BK):
            acc = tl.dot(a_desc.load([0, k]), b_desc.load([0, k]).T, acc)
        c_desc.store([0, 0], acc)

    a = np.full((64, 128), -128, np.int8)
    c = np.zeros((64, 64), np.int32)
    describe = tawa.TensorDescriptor.from_tensor
    start = 2**31 - 1
    above[1,](describe(a, [64, 64]), describe(a, [64, 64]), describe(c, [64, 64]), start, BK=64)
    wrapped = (start + 128 * 128 * 128 + 2**31) % 2**32 - 2**31
    assert (c == wrapped).all()


@pytest.mark.parametrize(("n", "width"), [(8, 8), (24, 24), (40, 8), (56, 8), (72, 24), (104, 8)])
def test_integer_instructions_have_fewer_widths(n, width):
    assert instruction_n(n, integer=True) == width
    assert instruction_n(n) == n
