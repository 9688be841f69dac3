"""Loops count as Python's, whatever is known of their bounds."""

import numpy as np
import pytest

import tawa
import tawa.language as tl


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
