"""Masks that are conjunctions of bounds however they are written: always true, carried, wide."""

import ml_dtypes
import numpy as np
import pytest

import tawa
import tawa.language as tl


@tawa.jit
def product(
    a, b, c, M, N, K, by, HOW: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    if HOW == "wide":
        m, n, k = m.to(tl.int64), n.to(tl.int64), k.to(tl.int64)
    if HOW == "backwards":
        k += (tl.cdiv(K, BK) - 1) * BK
    p, q = a + K * m[:, None] + k[None, :], b + K * n[None, :] + k[:, None]
    acc = tl.zeros((BM, BN), tl.float32)
    j = k
    for s in range(0, tl.cdiv(K, BK)):
        inside = (k < 1 << 20) if HOW == "always" else k < K
        if HOW == "always":
            inside = inside & (s * BK + tl.arange(0, BK) < K)
        x = tl.load(p, mask=(m[:, None] < M) & inside[None, :], other=0.0)
        y = tl.load(q, mask=(n[None, :] < N) & inside[:, None], other=0.0)
        acc = tl.dot(x, y, acc)
        if HOW == "backwards":
            p, q, k = p - BK, q - BK, k - BK
        elif HOW == "halves":
            k = BK // 2 + k
            p, q, k = p + BK, q + BK, k + BK // 2
        elif HOW == "by another":
            j += by
            p, q, k = p + BK, q + BK, k + (j - k)
        else:
            p, q, k = p + BK, q + BK, k + BK
    tl.store(c + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))


@pytest.mark.parametrize("sizes", [(100, 56, 200), (64, 64, 128), (7, 8, 24)])
@pytest.mark.parametrize("how", ["always", "carried", "wide", "halves", "backwards", "by another"])
def test_products_of_masked_tiles(how: str, sizes: tuple[int, int, int]) -> None:
    rows, columns, depth = sizes
    draw = np.random.default_rng(0)
    a = draw.integers(-3, 4, (rows, depth)).astype(ml_dtypes.bfloat16)
    b = draw.integers(-3, 4, (columns, depth)).astype(ml_dtypes.bfloat16)
    c = np.full((rows, columns), -1, np.float32)
    grid = (-(-rows // 64), -(-columns // 64))
    compiled = product[grid](a, b, c, rows, columns, depth, 64, HOW=how, BM=64, BN=64, BK=64)
    assert np.array_equal(c, a.astype(np.float32) @ b.astype(np.float32).T)
    if how in ("carried", "wide", "halves") and sizes != (7, 8, 24):
        assert "tma_load" in compiled.asm["cuda"], compiled.declined


@tawa.jit
def summed(h, c, HOW: tl.constexpr):
    d, e = tl.arange(0, 64), tl.arange(0, 64)
    acc = tl.zeros((64, 64), tl.float32)
    for s in range(0, 8):
        o = s * 64 + e
        if HOW == "true":
            x = tl.load(h + d[:, None] * 512 + o[None, :], mask=(d < 64)[:, None], other=0.0)
        else:
            x = tl.load(h + d[:, None] * 512 + o[None, :], mask=(d < 0)[:, None], other=0.0)
        acc = tl.dot(x, x, acc)
    tl.store(c + d[:, None] * 64 + e[None, :], acc)


@pytest.mark.parametrize("how", ["true", "false"])
def test_masks_that_are_constants(how: str) -> None:
    h = np.random.default_rng(0).integers(-3, 4, (64, 512)).astype(ml_dtypes.bfloat16)
    c = np.full((64, 64), -1, np.float32)
    compiled = summed[1,](h, c, HOW=how)
    tiles = h.astype(np.float32).reshape(64, 8, 64).transpose(1, 0, 2)
    expected = sum(tile @ tile for tile in tiles) if how == "true" else np.zeros((64, 64))
    assert np.array_equal(c, expected)
    assert ("tma_load" in compiled.asm["cuda"]) == (how == "true")
