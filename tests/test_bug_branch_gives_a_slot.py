"""A branch that gives the tile of a slot itself: its slot is freed after the branch, not in it."""

from __future__ import annotations

import numpy as np

import tawa
import tawa.language as tl


@tawa.jit
def chosen(a, b, c, n, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n_ = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for s in range(0, K, BK):
        x = tl.load(a + m[:, None] * K + (s + k)[None, :])
        y = tl.load(b + (s + k)[:, None] * BN + n_[None, :])
        if s < n:
            z = x
        else:
            z = -x
        acc = tl.dot(z, y, acc)
    tl.store(c + m[:, None] * BN + n_[None, :], acc)


def test_the_slot_is_freed_after_what_the_branch_gives_is_read() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, size).astype(np.float16) for size in ((64, 256), (256, 64)))
    c = np.zeros((64, 64), np.float32)
    sizes = {"BM": 64, "BN": 64, "BK": 64}
    made = chosen.compile(a, b, c, 128, 256, **sizes)
    assert made.plan.specialized
    tawa.simulate(chosen, a, b, c, 128, 256, grid=(1,), level="hopper", **sizes)
    signs = np.where(np.arange(256) < 128, 1, -1).astype(np.float32)
    np.testing.assert_array_equal(c, (a * signs) @ b.astype(np.float32))
