"""The rest of a sum by a number is no step in a ring where no slot is made of it: a kernel that
branches on it was not proved, though it has no ring at all.
"""

import numpy as np

import tawa
import tawa.language as tl


@tawa.jit
def every_other(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    acc = tl.zeros((B,), tl.float32)
    for a in range(n):
        for b in range(a, n):
            if (a + b) % 2 == 0:
                acc += tl.load(x + b * B + i) * a
    tl.store(out + i, acc)


def test_a_branch_on_the_rest_of_a_sum_of_indices():
    x = np.random.default_rng(0).normal(size=(5, 64)).astype(np.float32)
    out = np.zeros(64, np.float32)
    every_other.compile(x, out, 5, B=64)  # proved
    every_other[1,](x, out, 5, B=64)
    expected = sum(x[b] * a for a in range(5) for b in range(a, 5) if (a + b) % 2 == 0)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)
