"""Kernels that leave nothing to do: an empty one, and one whose results nothing uses."""

import numpy as np
import pytest

import tawa
import tawa.language as tl


@tawa.jit
def empty(x):
    pass


@tawa.jit
def unused(x, n):
    value = tl.load(x + tl.arange(0, 16)) + n
    tl.debug_barrier()
    if n > 3:
        value += 1


@pytest.mark.parametrize(("kernel", "rest"), [(empty, ()), (unused, (5,))])
def test_they_run(kernel, rest) -> None:
    x = np.arange(16, dtype=np.float32)
    kernel[(2,)](x, *rest)
    assert (x == np.arange(16)).all()
