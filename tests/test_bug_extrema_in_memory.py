"""Atomic extrema of floats compare bits, on the GPU as in the simulator: NaN and zeros."""

import numpy as np
import pytest

import tawa
import tawa.language as tl
from codegen_emulator import emulate, needs_compiler

N = 128
NUMBERS = np.array([0.0, -0.0, 1.5, -1.5, np.inf, -np.inf, np.nan, -np.nan, 1e-40, -1e-40])


@tawa.jit
def extrema(low, high, x, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.atomic_min(low + i, tl.load(x + i))
    tl.atomic_max(high + i, tl.load(x + i))


def order(x):
    """IEEE 754's totalOrder, which Triton's two integer atomics give."""
    bits = x.view(f"i{x.itemsize}")
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)


def pairs(dtype):
    """Each number with each."""
    held, x = (each.ravel().astype(dtype) for each in np.meshgrid(NUMBERS, NUMBERS))
    return np.resize(held, N), np.resize(x, N)


def check(low, high, held, x):
    bits = f"i{x.itemsize}"
    more = order(x) > order(held)
    np.testing.assert_array_equal(high.view(bits), np.where(more, x, held).view(bits))
    np.testing.assert_array_equal(low.view(bits), np.where(more, held, x).view(bits))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("run", ["simulated", pytest.param("emulated", marks=needs_compiler)])
def test_bits_decide(dtype, run):
    held, x = pairs(dtype)
    low, high = held.copy(), held.copy()
    given = {"low": low, "high": high, "x": x}
    if run == "simulated":
        extrema[(1,)](**given, N=N)
    else:
        program = extrema.compile(**given, N=N).asm.program("hopper")
        emulate(program, given, (1, 1, 1))
    check(low, high, held, x)
