"""What the proof could not reach: a label that is equal to a number below zero, as losses leave
rows out; and inputs that it tried though no launch has them, with which a loop does not end.
"""

import numpy as np

import tawa
import tawa.language as tl


@tawa.jit
def rows_with_labels(x, out, labels, n, NONE: tl.constexpr, B: tl.constexpr):
    row = tl.program_id(0)
    x += row * n
    out += row * n
    if tl.load(labels + row) == NONE:
        for i in range(0, n, B):
            at = i + tl.arange(0, B)
            tl.store(out + at, 0.0, mask=at < n)
        return
    for i in range(0, n, B):
        at = i + tl.arange(0, B)
        values = tl.load(x + at, mask=at < n, other=float("-inf"))
        tl.store(out + at, values - tl.max(values, 0), mask=at < n)


def test_a_label_below_zero_is_reached() -> None:
    x = np.random.default_rng(0).standard_normal((3, 100)).astype(np.float32)
    out, labels = np.full_like(x, 7), np.array([3, -100, 0], np.int64)
    tawa.simulate(rows_with_labels, x, out, labels, 100, NONE=-100, B=64, grid=(3,))
    first, last = x[:, :64], x[:, 64:]
    want = np.concatenate([first - first.max(1)[:, None], last - last.max(1)[:, None]], 1)
    np.testing.assert_array_equal(out, np.where(labels[:, None] == -100, 0, want))


@tawa.jit
def whole_and_cut_tiles(a, b, out, first, iterations, each, B: tl.constexpr):
    """Iterations of several tiles, `each` a tile: none ends where that is no number above zero."""
    at = tl.arange(0, B)
    start = tl.program_id(0) * first
    last = start + iterations
    while start < last:
        end = tl.minimum(start + each - start % each, last)
        acc = tl.zeros((B, B), tl.float32)
        for k in range(start, end):
            block = k * B * B + at[:, None] * B + at[None, :]
            acc += tl.dot(tl.load(a + block), tl.load(b + block))
        tl.atomic_add(out + start // each * B * B + at[:, None] * B + at[None, :], acc)
        start = end


def test_numbers_with_which_a_loop_never_ends_are_no_launch() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((10, 32, 32)).astype(np.float16) for _ in range(2))
    out = np.zeros((4, 32, 32), np.float32)
    tawa.simulate(whole_and_cut_tiles, a, b, out, 5, 5, 3, B=32, grid=(2,))
    each = a.astype(np.float32) @ b.astype(np.float32)
    want = np.stack([each[i : i + 3].sum(0) for i in range(0, 10, 3)])
    np.testing.assert_allclose(out, want, rtol=1e-3, atol=1e-3)
