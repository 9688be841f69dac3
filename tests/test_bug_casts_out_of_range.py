"""Floats that do not fit an integer: towards zero, saturated to int32, and of that the low bits.

The simulator saturated to int8, where the GPU keeps the low bits of an int32.
"""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

import tawa
import tawa.language as tl
from codegen_emulator import emulate, needs_compiler

SOURCES = (np.float32, np.float64, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2)
TARGETS = (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64)
N = 64


@tawa.jit
def convert(x, o8, p8, o16, p16, o32, p32, o64, p64, N: tl.constexpr):
    i = tl.arange(0, N)
    values = tl.load(x + i)
    tl.store(o8 + i, values.to(tl.int8))
    tl.store(p8 + i, values.to(tl.uint8))
    tl.store(o16 + i, values.to(tl.int16))
    tl.store(p16 + i, values.to(tl.uint16))
    tl.store(o32 + i, values.to(tl.int32))
    tl.store(p32 + i, values.to(tl.uint32))
    tl.store(o64 + i, values.to(tl.int64))
    tl.store(p64 + i, values.to(tl.uint64))


@tawa.jit
def stored(x, o8, p8, o16, p16, o32, p32, o64, p64, N: tl.constexpr):
    """The same conversions, of scalars, by stores."""
    for i in range(N):
        value = tl.load(x + i)
        tl.store(o8 + i, value)
        tl.store(p8 + i, value)
        tl.store(o16 + i, value)
        tl.store(p16 + i, value)
        tl.store(o32 + i, value)
        tl.store(p32 + i, value)
        tl.store(o64 + i, value)
        tl.store(p64 + i, value)


def numbers(dtype) -> np.ndarray:
    edges = [2.0**k for k in (7, 8, 15, 16, 31, 32, 33, 63, 64)]
    values = [0.0, -0.0, 0.5, -0.5, 1.9, -1.9, 200.7, 300.0, 7e4, 1e30, math.inf, math.nan]
    values += [*edges, *(edge - 1 for edge in edges), *(-edge for edge in edges)]
    values += [-edge - 1 for edge in edges]
    with np.errstate(over="ignore", invalid="ignore"):
        return np.array((values + [-math.inf, -1.0] + [1.0] * N)[:N], np.float64).astype(dtype)


def meant(x: np.ndarray, target) -> np.ndarray:
    """What PTX says of cvt.rzi, element by element in exact arithmetic."""
    limits = np.iinfo(target if np.iinfo(target).bits >= 32 else np.int32)
    widest = max(x.dtype.itemsize, limits.bits // 8) == 8
    found: list[int] = []
    for value in map(float, x):
        if math.isnan(value):
            number = (limits.min or 1 << limits.bits - 1) if widest else 0
        elif math.isinf(value):
            number = limits.max if value > 0 else limits.min
        else:
            number = max(limits.min, min(limits.max, math.trunc(value)))
        bits = np.iinfo(target).bits
        number &= (1 << bits) - 1
        found.append(number - (1 << bits) if number > np.iinfo(target).max else number)
    return np.array(found, target)


def arguments(dtype) -> dict[str, np.ndarray]:
    names = ("o8", "p8", "o16", "p16", "o32", "p32", "o64", "p64")
    empty = {name: np.zeros(N, target) for name, target in zip(names, TARGETS, strict=True)}
    return {"x": numbers(dtype), **empty}


def check(given: dict[str, np.ndarray], x: np.ndarray) -> None:
    for array in list(given.values())[1:]:
        np.testing.assert_array_equal(array, meant(x, array.dtype.type), str(array.dtype))


@pytest.mark.parametrize("kernel", [convert, stored])
@pytest.mark.parametrize("dtype", SOURCES)
def test_the_simulator(dtype, kernel) -> None:
    for level in ("tile", "hopper"):
        given = arguments(dtype)
        tawa.simulate(kernel, *given.values(), N=N, grid=(1,), level=level)
        check(given, numbers(dtype))


@needs_compiler
@pytest.mark.parametrize("kernel", [convert, stored])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_the_text(dtype, kernel) -> None:
    given = arguments(dtype)
    compiled = kernel.compile(*given.values(), N=N)
    emulate(compiled.asm.program("hopper"), given, (1, 1, 1))
    check(given, numbers(dtype))


def test_what_int8_means() -> None:
    x = np.array([128.0, 300.0, -129.0, 1e30, -1e30, np.nan], np.float32)
    assert meant(x, np.int8).tolist() == [-128, 44, 127, -1, 0, 0]
    assert meant(np.array([-1.0, 256.0], np.float32), np.uint8).tolist() == [255, 0]


# --- constants -----------------------------------------------------------------------------------


@tawa.jit
def constants(o8, p8, o16, V: tl.constexpr):
    i = tl.arange(0, 8)
    tl.store(o8 + i, tl.full((8,), V, tl.float32).to(tl.int8))
    tl.store(p8 + i, tl.cast(V, tl.uint8))
    tl.store(o16 + i, (tl.full((8,), V, tl.float32) * 2.0).to(tl.int16))


@pytest.mark.parametrize("value", [300.0, -1.0, 128.9, 4e9, -4e9, float("inf"), float("nan")])
def test_folded_constants_mean_the_same(value) -> None:
    for level in ("tile", "hopper"):
        o8, p8, o16 = np.zeros(8, np.int8), np.zeros(8, np.uint8), np.zeros(8, np.int16)
        tawa.simulate(constants, o8, p8, o16, V=value, grid=(1,), level=level)
        x = np.full(8, value, np.float32)
        np.testing.assert_array_equal(o8, meant(x, np.int8))
        np.testing.assert_array_equal(p8, meant(x, np.uint8))
        np.testing.assert_array_equal(o16, meant(x * 2, np.int16))


@tawa.jit
def kept(o8, V: tl.constexpr):
    tl.store(o8, V)


@pytest.mark.parametrize("value", [300.0, float("nan")])
def test_a_constant_is_stored_as_what_it_is_cast_to(value) -> None:
    """Triton takes it; it was refused."""
    for level in ("tile", "hopper"):
        o8 = np.full(1, 7, np.int8)
        tawa.simulate(kept, o8, V=value, grid=(1,), level=level)
        np.testing.assert_array_equal(o8, meant(np.full(1, value, np.float32), np.int8))
