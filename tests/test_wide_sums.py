"""Sums that the registers of one warpgroup do not hold are shared by columns, not spilled."""

import ml_dtypes
import numpy as np
import pytest

import tawa
import tawa.language as tl


@tawa.jit
def product(a, b, c, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for s in range(0, K, BK):
        x = tl.load(a + m[:, None] * K + (s + k)[None, :])
        y = tl.load(b + (s + k)[:, None] * N + n[None, :])
        acc = tl.dot(x, y, acc)
    tl.store(c + m[:, None] * N + n[None, :], acc.to(tl.bfloat16))


@tawa.jit
def weighed(q, k, o, n, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    """Rows of the first product meet: their greatest, and the second product's operand."""
    m, d, j = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D), tl.arange(0, BN)
    x = tl.load(q + m[:, None] * D + d[None, :])
    acc, top = tl.zeros((BM, D), tl.float32), tl.zeros((BM,), tl.float32)
    for s in range(0, n, BN):
        y = tl.load(k + (s + j)[:, None] * D + d[None, :])
        p = tl.dot(x, y.T)
        top = tl.maximum(top, tl.max(p, 1))
        acc = tl.dot(tl.minimum(p, 4.0).to(tl.bfloat16), y, acc)
    tl.store(o + m[:, None] * D + d[None, :], acc + top[:, None])


def arrays(*shapes: tuple[int, int]) -> list[np.ndarray]:
    draw = np.random.default_rng(0)
    return [draw.integers(-1, 2, shape).astype(ml_dtypes.bfloat16) for shape in shapes]


@pytest.mark.parametrize("kernel", ["product", "weighed"])
def test_two_warpgroups_share_columns(kernel: str) -> None:
    if kernel == "product":
        a, b, c = arrays((64, 128), (128, 512), (64, 512))
        compiled = product[1, 1](a, b, c, 512, 128, BM=64, BN=512, BK=64)
        assert np.array_equal(c, (a.astype("f4") @ b.astype("f4")).astype(c.dtype))
    else:
        q, k = arrays((64, 512), (128, 512))
        out = np.zeros((64, 512), np.float32)
        compiled = weighed[1,](q, k, out, 128, BM=64, BN=64, D=512)
        p = q.astype(np.float32) @ k.astype(np.float32).T
        wanted = np.minimum(p, 4).astype(k.dtype).astype("f4") @ k.astype(np.float32)
        assert np.array_equal(out, wanted + np.maximum(p.max(1), 0)[:, None])
    assert compiled.plan.specialized
    assert compiled.plan.arrangement == "cooperative"
    assert [role.warps for role in compiled.plan.consumers] == [8]
    assert compiled.resources.local_in_loops == 0
