"""A sum in flight that a branch reads and the loop goes on with: waited for before the branch.

The wait stood in the branch, so that on the other path the sum had no name that a wait covered; the
proof refused what came of it. Found by fuzzing.
"""

from __future__ import annotations

import numpy as np
import pytest

import tawa
import tawa.language as tl


@tawa.jit
def sums(a_desc, b_desc, mid_desc, out_desc, n, upto, BM: tl.constexpr, BN: tl.constexpr):
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range(n):
        acc = tl.dot(a_desc.load([0, i * 64]), b_desc.load([i * 64, 0]), acc)
        if i < upto:
            mid_desc.store([i * BM, 0], acc.to(tl.float16))
    out_desc.store([0, 0], acc)


@pytest.mark.parametrize("pins", [{}, {"consumers": 1}, {"depth": 1, "mma_depth": 1}])
@pytest.mark.parametrize(("iterations", "upto"), [(0, 1), (1, 0), (3, 1), (4, 9)])
@pytest.mark.short("0-1-pins2", "1-0-pins0", "3-1-pins1", "4-9-pins0", "4-9-pins1")
def test_sums_so_far(iterations, upto, pins):
    rng = np.random.default_rng(iterations)
    a = rng.integers(-2, 3, (128, 64 * max(iterations, 1))).astype(np.float16)
    b = rng.integers(-2, 3, (64 * max(iterations, 1), 64)).astype(np.float16)
    mid = np.full((128 * max(iterations, 1), 64), 7, np.float16)
    out = np.full((128, 64), 7, np.float32)
    described = tawa.TensorDescriptor.from_tensor
    given = [described(x, y) for x, y in ((a, [128, 64]), (b, [64, 64]), (mid, [128, 64]))]
    grid, how = (1,), {"BM": 128, "BN": 64, **pins}
    sums[grid](*given, described(out, [128, 64]), iterations, upto, **how)
    kernel = sums.compile(*given, described(out, [128, 64]), iterations, upto, grid=grid, **how)
    assert kernel.plan.specialized
    want = np.zeros((128, 64))
    for i in range(iterations):
        part = slice(64 * i, 64 * i + 64)
        want += a[:, part].astype(np.float64) @ b[part].astype(np.float64)
        seen = want if i < upto else np.full_like(want, 7)
        assert (mid[128 * i : 128 * i + 128] == seen).all()
    assert (out == want).all()
