"""Random numbers: the words are Philox's, whatever the tile, and spread as they should."""

from __future__ import annotations

import numpy as np
import pytest

import tawa
import tawa.language as tl

MASK = 0xFFFFFFFF


@tawa.jit
def draw(words, uniform, normal, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(words + at, tl.randint(seed, at))
    tl.store(uniform + at, tl.rand(seed, at))
    tl.store(normal + at, tl.randn(seed, at))


def philox(offset: int, seed: int) -> list[int]:
    counter, key = [offset, 0, 0, 0], [seed & MASK, seed >> 32 & MASK]
    for _ in range(10):
        even, odd = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        low, high = (even & MASK, odd & MASK), (even >> 32, odd >> 32)
        counter = [high[1] ^ counter[1] ^ key[0], low[1], high[0] ^ counter[3] ^ key[1], low[0]]
        key = [key[0] + 0x9E3779B9 & MASK, key[1] + 0xBB67AE85 & MASK]
    return counter


def test_the_reference_is_right():
    """The known answer of the authors' own test file for counter and key zero."""
    assert philox(0, 0) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


@pytest.mark.parametrize("seed", [0, 12345, 2**40 + 7])
@pytest.mark.parametrize("block", [128, 512])
def test_words_and_distributions(seed, block):
    n = 2048
    words, uniform, normal = (np.zeros(n, kind) for kind in (np.uint32, np.float32, np.float32))
    draw[n // block,](words, uniform, normal, seed, BLOCK=block)
    assert words.tolist() == [philox(i, seed)[0] for i in range(n)]
    assert uniform.min() >= 0
    assert uniform.max() < 1
    assert abs(uniform.mean() - 0.5) < 0.03
    assert abs(uniform.var() - 1 / 12) < 0.01
    assert abs(normal.mean()) < 0.1
    assert abs(normal.std() - 1) < 0.06


@tawa.jit
def dropout(x, out, n, p, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    kept = tl.rand(seed, at) > p
    value = tl.load(x + at, mask=at < n)
    tl.store(out + at, tl.where(kept, value / (1 - p), 0.0), mask=at < n)


def test_dropout():
    x, out = np.ones(1000, np.float32), np.full(1000, -1, np.float32)
    dropout[8,](x, out, 1000, 0.5, 123, BLOCK=128)
    assert set(out.tolist()) == {0.0, 2.0}
    assert 400 < (out > 0).sum() < 600
