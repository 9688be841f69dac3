"""Loops that are known to make one trip, or none."""

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


@pytest.mark.parametrize("trips", [1, 2])
def test_a_dead_product_of_the_only_trip_is_not_made(trips: int) -> None:
    draw = np.random.default_rng(0)
    a, b = (draw.integers(-3, 4, (2, 64, 64)).astype(ml_dtypes.bfloat16) for _ in range(2))
    c = np.full((2, 64, 64), -1, np.float32)
    compiled = states[1,](a, b, c, N=trips)
    expected = np.full((2, 64, 64), -1, np.float32)
    expected[0] = 0
    if trips == 2:
        expected[1] = a[0].astype(np.float32) @ b[0].astype(np.float32)
    assert np.array_equal(c, expected)
    assert ("wgmma" in compiled.asm["cuda"]) == (trips == 2)
    assert compiled.launch.threads == (128 if trips == 1 else 256)


@tawa.jit
def counted(x, n, first: tl.constexpr, end: tl.constexpr, STEP: tl.constexpr):
    by = n if STEP == 0 else STEP
    total, index = 0, 100
    for i in range(first, end, by):
        for j in range(i, i + 1):
            total += 10 * i + j
        index = i
    tl.store(x, total)
    tl.store(x + 1, index)


@pytest.mark.parametrize(
    ("first", "end", "step", "known"),
    [
        (3, 4, 1, True),
        (3, 10, 7, True),
        (3, 10, 6, True),
        (4, 4, 1, True),
        (5, 3, 2, True),
        (3, 1, -2, True),
        (10, 0, -3, False),
        (0, 1, -3, False),
        (10, 0, 3, False),
        (0, 5, 5, False),
    ],
)
def test_loops_count_as_pythons(first: int, end: int, step: int, known: bool) -> None:
    x = np.zeros(2, np.int32)
    counted[1,](x, step, first=first, end=end, STEP=step if known else 0)
    numbers = list(range(first, end, step))
    assert x.tolist() == [sum(11 * i for i in numbers), numbers[-1] if numbers else 100]
