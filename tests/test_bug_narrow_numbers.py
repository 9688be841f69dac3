"""Arithmetic of narrow and unsigned types wraps: it was taken for that of indices.

A column number cast to int8 made TMA load the wrong columns, masks of int8 were asked as if of
int32, and whether something is nonzero was taken for a multiple of what it came from. The least
number has no positive counterpart: `abs` and division by -1 were undefined in the generated text.
"""

import numpy as np
import pytest

import tawa
import tawa.language as tl
from codegen_emulator import emulate, needs_compiler
from tawa.ir import parse

LEAST = -(1 << 31)


@tawa.jit
def columns_of_int8(a, b, o, B: tl.constexpr):
    i = tl.arange(0, B)
    acc = tl.zeros((B, B), tl.float32)
    for k in range(0, 256, B):
        at = (k + i).to(tl.int8).to(tl.int32) + 128
        columns = tl.load(a + i[:, None] * 256 + at[None, :])
        acc = acc * 2 + tl.dot(columns, tl.load(b + at[:, None] * B + i[None, :]))
    tl.store(o + i[:, None] * B + i[None, :], acc)


@tawa.jit
def rows_of_uint8(a, b, o, B: tl.constexpr):
    i = tl.arange(0, B)
    acc = tl.zeros((B, B), tl.float32)
    for k in range(0, 512, B):
        at = (k + 32).to(tl.uint8).to(tl.int32) * 3 // 4 + i
        columns = tl.load(a + i[:, None] * 256 + at[None, :])
        acc = acc * 2 + tl.dot(columns, tl.load(b + at[:, None] * B + i[None, :]))
    tl.store(o + i[:, None] * B + i[None, :], acc)


@tawa.jit
def masks_of_int8(a, b, o, B: tl.constexpr):
    i = tl.arange(0, B)
    acc = tl.zeros((B, B), tl.float32)
    for k in range(0, 256, B):
        tile = tl.dot(
            tl.load(a + i[:, None] * 256 + (k + i)[None, :]),
            tl.load(b + (k + i)[:, None] * B + i[None, :]),
        )
        seen = i[:, None].to(tl.int8) + 100 >= (k + i)[None, :].to(tl.int8)
        acc += tl.where(seen, tile, 0.0)
    tl.store(o + i[:, None] * B + i[None, :], acc)


@tawa.jit
def below_zero_unsigned(o, n, N: tl.constexpr):
    i = tl.arange(0, N)
    wide = (n.to(tl.uint32) - 8).to(tl.int64)  # of 3: 2**32 - 5
    found = 0
    if wide > 100:
        found = 1
    tl.store(o + i, found, mask=wide + i > 0)


@tawa.jit
def truth_is_no_multiple(o, n):
    found = 0
    if (n * 16).to(tl.int1) == 1:
        found = 1
    tl.store(o, found)


@tawa.jit
def least(o, n):
    m = 0 - n - 1
    found = 0
    if tl.abs(m) < 0:
        found += 1
    if 0 - m < 0:
        found += 2
    if m // (-1) < 0:
        found += 4
    tl.store(o, found)


def both(kernel, arguments, **options):
    """Return what the last argument is after a simulated and after an emulated run."""
    arrays = [each.copy() if isinstance(each, np.ndarray) else each for each in arguments]
    tawa.simulate(kernel, *arrays, grid=(1,), **options)
    compiled = kernel.compile(*arguments, grid=(1,), **options)
    names = kernel.fn.__code__.co_varnames
    emulate(parse(compiled.asm["hopper"]), dict(zip(names, arguments)), (1, 1, 1))
    return arrays, arguments


def oracle(kernel, arguments, **options):
    arrays = [each.copy() if isinstance(each, np.ndarray) else each for each in arguments]
    tawa.simulate(kernel, *arrays, grid=(1,), level="tile", **options)
    return arrays


@needs_compiler
@pytest.mark.parametrize("kernel", [columns_of_int8, rows_of_uint8, masks_of_int8])
def test_products(kernel):
    random = np.random.default_rng(0)
    a = random.integers(-2, 3, (64, 256)).astype(np.float16)
    b = random.integers(-2, 3, (256, 64)).astype(np.float16)
    arguments = [a, b, np.zeros((64, 64), np.float32)]
    want = oracle(kernel, arguments, B=64)[2]
    if kernel is columns_of_int8:
        expected = np.zeros((64, 64), np.float32)
        for k in range(0, 256, 64):
            at = (np.arange(k, k + 64).astype(np.int8)).astype(int) + 128
            expected = expected * 2 + a[:, at].astype(np.float32) @ b[at].astype(np.float32)
        np.testing.assert_array_equal(want, expected)
    simulated, emulated = both(kernel, arguments, B=64)
    np.testing.assert_array_equal(simulated[2], want)
    np.testing.assert_array_equal(emulated[2], want)


@needs_compiler
@pytest.mark.parametrize(
    ("kernel", "n", "want", "options"),
    [
        (below_zero_unsigned, 3, 1, {"N": 64}),
        (below_zero_unsigned, 9, 0, {"N": 64}),
        (truth_is_no_multiple, 5, 1, {}),
        (least, -1 - LEAST, 7, {}),
        (least, 5, 0, {}),
    ],
)
def test_scalars(kernel, n, want, options):
    arguments = [np.full(64, want, np.int32), n]
    for arrays in both(kernel, arguments, **options):
        assert (arrays[0] == want).all()
