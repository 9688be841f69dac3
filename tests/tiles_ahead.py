"""Pointers that nobody knows anything about, and matrices for them: tests of loads iterations
ahead.
"""

from __future__ import annotations

import numpy as np

import tawa
import tawa.language as tl


@tawa.jit
def places(x_ptr, w_ptr, B: tl.constexpr, N: tl.constexpr, BK: tl.constexpr):
    """Return where the first tiles of x (B, BK) and w (BK, N) stand, and the tile x[:, :N].

    What the pointers point to is hidden, so that no load may leave its place among the stores.
    """
    x_base = x_ptr.to(tl.int64).to(tl.pointer_type(tl.float16))
    w_base = w_ptr.to(tl.int64).to(tl.pointer_type(tl.float16))
    rows = tl.arange(0, B)
    columns = tl.arange(0, N)
    depth = tl.arange(0, BK)
    x_at = x_base + rows[:, None] * N + depth[None, :]
    w_at = w_base + depth[:, None] * N + columns[None, :]
    return x_at, w_at, x_base + rows[:, None] * N + columns[None, :]


def matrices(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return x (64, 256) of whole numbers, and w (256, 256), a permutation: products are exact."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-1, 2, (64, 256)).astype(np.float16)
    w = np.zeros((256, 256), np.float16)
    w[np.arange(256), rng.permutation(256)] = 1
    return x, w
