"""Nested loops that both load: the inner does an iteration ahead, once, and the outer does not."""

from __future__ import annotations

import numpy as np
import pytest

import tawa
import tawa.language as tl
from tawa.plan.plan import Plan
from tiles_ahead import matrices, places

SIZES = {"B": 64, "N": 256, "BK": 16}


@tawa.jit
def nested(x_ptr, w_ptr, K, M, steps, B: tl.constexpr, N: tl.constexpr, BK: tl.constexpr):
    """x[:, :N] = the sum of x[:, part] w[part] over M (K + 1) parts, several times."""
    x_of, w_of, x_out = places(x_ptr, w_ptr, B, N, BK)
    for _ in range(steps):
        acc = tl.zeros((B, N), tl.float32)
        for m in range(0, M):
            x_at = x_of + m * ((K + 1) * BK)
            w_at = w_of + m * ((K + 1) * BK * N)
            tl.multiple_of(x_at, [16, 16])
            tl.multiple_of(w_at, [16, 16])
            acc += tl.dot(tl.load(x_at), tl.load(w_at))
            if m != 1:
                for k in range(1, K + 1):
                    x_of_k = x_at + k * BK
                    w_of_k = w_at + k * (BK * N)
                    tl.multiple_of(x_of_k, [16, 16])
                    tl.multiple_of(w_of_k, [16, 16])
                    acc += tl.dot(tl.load(x_of_k), tl.load(w_of_k))
        tl.store(x_out, acc.to(tl.float16))


def _wanted(x: np.ndarray, w: np.ndarray, inner: int, outer: int, steps: int) -> np.ndarray:
    parts = [m * (inner + 1) + k for m in range(outer) for k in range(inner + 1) if not k or m != 1]
    columns = [part * 16 + column for part in parts for column in range(16)]
    for _ in range(steps):
        x = x[:, columns] @ w[columns]
    return x


@pytest.mark.parametrize(("inner", "outer"), [(0, 0), (0, 3), (1, 1), (1, 4), (2, 3), (3, 4)])
@pytest.mark.short("0-0", "1-1", "1-4", "2-3")
def test_the_inner_runs_ahead(inner: int, outer: int) -> None:
    x, w = matrices(inner)
    wanted = _wanted(x, w, inner, outer, 2)
    kernel = nested.compile(x, w, inner, outer, 2, grid=(1,), plan=str(Plan(warps=16)), **SIZES)
    ahead = [one.reason for one in kernel.declined if "an iteration ahead" in one.feature]
    assert ahead == ["a loop stands in it, whose text would be there twice"]
    nested[1,](x, w, inner, outer, 2, plan=str(Plan(warps=16)), **SIZES)
    assert np.array_equal(x, wanted)
