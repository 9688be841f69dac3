"""`argmax` and `argmin` pass a NaN over, as `max` and `min` do; it depended on the order in which
elements were combined whether it won.
"""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

import tawa
import tawa.language as tl
from codegen_emulator import emulate, needs_compiler

NAN, INF = float("nan"), float("inf")


@tawa.jit
def places(x, largest, smallest, low, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr):
    r, c = tl.arange(0, M), tl.arange(0, N)
    values = tl.load(x + r[:, None] * N + c[None, :])
    left = c if AXIS == 0 else r
    tl.store(largest + left, tl.argmax(values, AXIS))
    tl.store(smallest + left, tl.argmin(values, AXIS, tie_break_left=False))
    least, _ = tl.min(values, AXIS, return_indices=True)
    tl.store(low + left, least)


@tawa.jit
def whole(x, o, N: tl.constexpr):
    values = tl.load(x + tl.arange(0, N))
    most, where = tl.max(values, 0, return_indices=True)
    tl.store(o, where)
    tl.store(o + 1, tl.argmin(values, 0))
    tl.store(o + 2, (most != most).to(tl.int32))


def place_of(row: np.ndarray, best) -> int:
    numbers = [i for i, value in enumerate(row) if value == value]
    if not numbers:
        return 0
    return min(i for i in numbers if row[i] == best(row[j] for j in numbers))


def rows() -> np.ndarray:
    """Every arrangement of a few numbers over 4 columns, and long rows with NaNs anywhere."""
    few = list(itertools.product([NAN, -INF, 1.0, 2.0], repeat=4))
    random = np.random.default_rng(0)
    long = random.integers(-3, 4, (256, 60)).astype(np.float64)
    long[random.random(long.shape) < random.random((256, 1)) ** 3] = NAN
    return np.concatenate([np.array(few), long], axis=1)[random.permutation(256)]


def check(x, largest, smallest, low) -> None:
    assert largest.tolist() == [place_of(row, max) for row in x]
    assert smallest.tolist() == [place_of(row, min) for row in x]
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(low, np.fmin.reduce(x, axis=1))


def arguments(x, axis):
    count = len(x)
    held = np.ascontiguousarray(x.T) if axis == 0 else x
    empty = (np.zeros(count, np.int32), np.zeros(count, np.int32), np.zeros(count, x.dtype))
    return held, *empty


@pytest.mark.parametrize(
    ("dtype", "axis"),
    [(np.float32, 0), (np.float32, 1), (np.float16, 1), (ml_dtypes.bfloat16, 1), (np.float64, 1)],
)
@pytest.mark.short("float32-0", "float32-1", "float16-1")
def test_no_order_lets_a_nan_win(dtype, axis) -> None:
    x = rows().astype(dtype)
    for level in ("tile", "hopper"):
        given = arguments(x, axis)
        sizes = {"M": given[0].shape[0], "N": given[0].shape[1], "AXIS": axis}
        tawa.simulate(places, *given, **sizes, grid=(1,), level=level)
        check(x, *given[1:])


@needs_compiler
@pytest.mark.parametrize("axis", [0, 1])
def test_the_text_gives_the_same(axis) -> None:
    x = rows().astype(np.float32)
    given = arguments(x, axis)
    sizes = {"M": given[0].shape[0], "N": given[0].shape[1], "AXIS": axis}
    compiled = places.compile(*given, **sizes)
    names = ("x", "largest", "smallest", "low")
    emulate(compiled.asm.program("hopper"), dict(zip(names, given, strict=True)), (1, 1, 1))
    check(x, *given[1:])


@pytest.mark.parametrize("numbers", [[], [3], [5, 900], [0], [1023]])
def test_of_a_long_row(numbers) -> None:
    x = np.full(1024, NAN, np.float32)
    x[numbers] = -1.0
    for level in ("tile", "hopper"):
        o = np.full(3, -1, np.int32)
        tawa.simulate(whole, x, o, N=1024, grid=(1,), level=level)
        first = numbers[0] if numbers else 0
        assert o.tolist() == [first, first, int(not numbers)]
