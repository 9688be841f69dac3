"""Bounds of columns, two of them broadcast together, passed for bounds of rows: rows that wrapped
were read as zeros, and stored.
"""

import numpy as np

import tawa
import tawa.language as tl


@tawa.jit
def kernel(x, w, out, M, K, B: tl.constexpr, BK: tl.constexpr):
    start = tl.program_id(0) * B
    rows, columns = (start + tl.arange(0, B)) % M, start + tl.arange(0, B)
    acc = tl.zeros((B, B), tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        a = tl.load(x + rows[:, None] * K + k[None, :])
        b = tl.load(w + k[:, None] * B + tl.arange(0, B)[None, :])
        acc = tl.dot(a, b, acc)
    inside = (columns < M) & (columns >= 0)
    tl.store(out + rows[:, None] * M + columns[None, :], acc, mask=inside[None, :])


def test_wrapped_rows_are_read() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((96, 64)).astype(np.float16)
    w = rng.standard_normal((64, 64)).astype(np.float16)
    out = np.zeros((96, 96), np.float32)
    kernel[(2,)](x, w, out, 96, 64, B=64, BK=64)
    product = x.astype(np.float32) @ w.astype(np.float32)
    # The second block computes rows 64 to 95, then 0 to 31 again, of columns 64 to 95.
    wanted = np.zeros_like(out)
    wanted[:64, :64] = product[:64]
    wanted[np.r_[64:96, 0:32], 64:] = product[np.r_[64:96, 0:32], :32]
    np.testing.assert_allclose(out, wanted, atol=1e-2)
