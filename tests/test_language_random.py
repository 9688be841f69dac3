"""Random numbers: the words are Philox's, whatever the tile, and spread as they should."""

from __future__ import annotations

import numpy as np
import pytest

import tawa
import tawa.language as tl
from codegen_emulator import emulate, needs_compiler

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


@pytest.mark.parametrize(("seed", "block"), [(0, 128), (12345, 512), (2**40 + 7, 128)])
@pytest.mark.short("12345-512", "1099511627783-128")
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


@tawa.jit
def turned(u, cosine, sine, N: tl.constexpr):
    i = tl.arange(0, N)
    first, second = tl.pair_uniform_to_normal(i.to(tl.float32) * 0 + EXP_HALF, tl.load(u + i))
    tl.store(cosine + i, first)
    tl.store(sine + i, second)


EXP_HALF = tl.constexpr(0.6065306597126334)  # sqrt(-2 log u) is 1


def turns() -> np.ndarray:
    edges = np.arange(33) / 32
    near = [np.nextafter(np.float32(e), np.float32(d)) for e in edges for d in (-1, 2)]
    many = np.random.default_rng(0).random(8192 - 99 - 3)
    ends = [0.0, 2.0**-31, 1 - 2.0**-24]
    return np.concatenate([edges, near, ends, many]).astype(np.float32)


@pytest.mark.parametrize("run", ["simulated", pytest.param("emulated", marks=needs_compiler)])
def test_sine_and_cosine_of_turns_are_near_those_of_exact_arithmetic(run):
    u = np.abs(turns())
    given = {"u": u, "cosine": np.zeros_like(u), "sine": np.zeros_like(u)}
    if run == "simulated":
        tawa.simulate(turned, *given.values(), N=u.size, grid=(1,), level="tile")
    else:
        compiled = turned.compile(*given.values(), N=u.size)
        emulate(compiled.asm.program("hopper"), given, (1, 1, 1))
    radius = np.sqrt(-2 * np.log(np.float64(np.float32(EXP_HALF.value))))
    angle = 2 * np.pi * u.astype(np.float64)
    for found, function in ((given["cosine"], np.cos), (given["sine"], np.sin)):
        # 2e-7 of the functions, and the roundings of the radius and of the product.
        assert np.abs(found - radius * function(angle)).max() < 4e-7


@tawa.jit
def noise(o, seed, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(o + i, tl.randn(seed, i))


def test_normal_numbers_are_near_those_of_exact_arithmetic():
    n = 4096
    o = np.zeros(n, np.float32)
    tawa.simulate(noise, o, 7, N=n, grid=(1,), level="tile")
    words = np.array([philox(i, 7)[:2] for i in range(n)], np.uint32).view(np.int32)
    u, v = np.where(words < 0, -words - 1, words).astype(np.float32).T * np.float32(
        4.6566127342e-10
    )
    wanted = np.sqrt(-2 * np.log(np.maximum(u, np.float32(1e-7)).astype(np.float64)))
    wanted *= np.cos(2 * np.pi * v.astype(np.float64))
    assert np.abs(o - wanted).max() < 3e-6


def test_they_need_no_slow_path():
    """The reduction of any angle by pi keeps its digits in local memory."""
    compiled = noise.compile(np.zeros(1024, np.float32), 5, N=1024)
    if "cubin" not in compiled.asm.ready:
        pytest.skip("needs NVRTC")
    assert compiled.resources.stack == 0
    assert "LDL" not in compiled.asm.text("sass")


@tawa.jit
def uniform(x, y, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(y + at, tl.random.uint_to_uniform_float(tl.load(x + at)))


@pytest.mark.parametrize("kind", [np.int32, np.uint32, np.int64, np.uint64])
def test_integers_of_either_width_are_below_one(kind):
    limits, bits = np.iinfo(kind), 8 * np.dtype(kind).itemsize
    x = np.array([limits.min, limits.max, 0, 1 << bits - 2], kind)
    y = np.zeros(4, np.float32)
    uniform[1,](x, y, N=4)
    largest = 1 - 2**-24 if limits.min else 0  # the bits of the unsigned ones are those of 0 and -1
    assert y.tolist() == pytest.approx([largest, largest, 0, 0.5], abs=1e-7)
    assert y.max() < 1
