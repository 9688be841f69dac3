"""Quotients below zero, hashes by large factors and rounded floats were taken for regular.

Found by a review, with the emulation: threads took one quotient for several, a comparison that
holds was folded away. The simulator knows no registers, so it did not see the first.
"""

import numpy as np
import pytest

import tawa
import tawa.language as tl
from codegen_emulator import emulate, needs_compiler
from tawa.ir import parse


@tawa.jit
def quotients(out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, (i - 64) // 16 * 100 + (i - 64) % 16)


@tawa.jit
def hashed(out, n):
    found = 7
    if n * 1640531527 == 626627285:
        found = 3
    tl.store(out, found)


@tawa.jit
def rounded(out, n):
    k = ((n * 16).to(tl.float32) * 0.1).to(tl.int32)
    found = 7
    if k == 3:
        found = 3
    tl.store(out, found)


@needs_compiler
def test_quotients_below_zero() -> None:
    out, i = np.zeros(256, np.int32), np.arange(256) - 64
    compiled = quotients.compile(out, grid=(1,), N=256)
    emulate(parse(compiled.asm["hopper"]), {"out": out}, (1, 1, 1))
    np.testing.assert_array_equal(out, np.trunc(i / 16) * 100 + np.fmod(i, 16))


@pytest.mark.parametrize(("kernel", "n"), [(hashed, 3), (rounded, 2)])
def test_a_number_is_what_it_is(kernel, n: int) -> None:
    out = np.zeros(1, np.int32)
    tawa.simulate(kernel, out, n, grid=(1,))
    assert out[0] == 3
