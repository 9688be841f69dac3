"""A box of TMA begins at a multiple of 16 bytes: an H200 stops with an illegal instruction if not.

PTX names no such rule for tiled copies. Pointers become descriptors only under a guard.
"""

from __future__ import annotations

import numpy as np
import pytest

import tawa
import tawa.language as tl


@tawa.jit
def shifted(a, b, c, shift, K, N, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns, depth = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        x = tl.load(a + rows[:, None] * 512 + (shift + k + depth)[None, :])
        y = tl.load(b + (k + depth)[:, None] * N + columns[None, :])
        acc = tl.dot(x, y, acc)
    tl.store(c + rows[:, None] * N + columns[None, :], acc)


def arrays():
    rng = np.random.default_rng(0)
    a = rng.integers(-2, 3, (64, 512)).astype(np.float16)
    b = rng.integers(-2, 3, (128, 64)).astype(np.float16)
    return a, b, np.zeros((64, 64), np.float32)


@pytest.mark.parametrize("shift", [0, 1, 2, 8, 9, 16, 24, 31])
def test_every_shift_is_right(shift):
    a, b, c = arrays()
    shifted[1,](a, b, c, shift, 128, 64, BM=64, BN=64, BK=64)
    want = a[:, shift : shift + 128].astype(np.float64) @ b.astype(np.float64)
    assert (c == want).all()


def test_what_is_known_when_compiling():
    sizes = {"BM": 64, "BN": 64, "BK": 64}
    for shift, guarded in ((16, False), (8, False), (4, True)):
        kernel = shifted.compile(*arrays(), shift, 128, 64, grid=(1,), **sizes)
        found = [g.condition for g in kernel.guards if "always_multiple" in g.condition]
        assert found == (["always_multiple((shift), 8)"] if guarded else []), shift
    one = shifted.compile(*arrays(), 1, 128, 64, grid=(1,), **sizes)
    (why,) = (note.reason for note in one.declined if note.feature.startswith("descriptor for x"))
    assert why == "a box may begin at an address that is no multiple of 16 bytes"
