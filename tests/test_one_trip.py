"""Loops that are known to make one iteration: what only a second iteration would read is not
computed.
"""

import ml_dtypes
import numpy as np
import pytest

import tawa
import tawa.language as tl


@tawa.jit
def states(a, b, c, N: tl.constexpr):
    i = tl.arange(0, 64)
    at = i[:, None] * 64 + i[None, :]
    state = tl.zeros((64, 64), tl.float32)
    for t in range(0, N):
        tl.store(c + t * 4096 + at, state)
        state = tl.dot(tl.load(a + t * 4096 + at), tl.load(b + t * 4096 + at), state)


@pytest.mark.parametrize("iterations", [1, 2])
def test_a_dead_product_of_the_only_trip_is_not_made(iterations: int) -> None:
    draw = np.random.default_rng(0)
    a, b = (draw.integers(-3, 4, (2, 64, 64)).astype(ml_dtypes.bfloat16) for _ in range(2))
    c = np.full((2, 64, 64), -1, np.float32)
    compiled = states[1,](a, b, c, N=iterations)
    expected = np.full((2, 64, 64), -1, np.float32)
    expected[0] = 0
    if iterations == 2:
        expected[1] = a[0].astype(np.float32) @ b[0].astype(np.float32)
    assert np.array_equal(c, expected)
    assert ("wgmma" in compiled.asm["cuda"]) == (iterations == 2)
    assert compiled.launch.threads == (128 if iterations == 1 else 256)


@tawa.jit
def kept(x, n, END: tl.constexpr):
    last, count = 0, 0
    for i in range(0, END, n):
        last += 3
        count = last + i
    tl.store(x, count)


def test_what_is_read_after_the_loop_stays() -> None:
    for step in (1, 5):
        x = np.zeros(1, np.int32)
        kept[1,](x, step, END=5)
        assert x[0] == (19 if step == 1 else 3)
