"""Where NaN that a kernel stores comes from a load without `other`, the simulator names it."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import tawa
import tawa.language as tl
from tawa.errors import LaunchError
from tawa.simulator.undefined import UndefinedValue

every_level = pytest.mark.parametrize("level", ["tile", "aref", "hopper"])


@tawa.jit
def softmax(x, bias, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    row = tl.load(x + i, mask=i < n)
    more = tl.load(bias + i, mask=i < n)
    e = tl.exp(row - tl.max(row))
    tl.device_print("once")
    tl.store(y + i, more + e / tl.sum(e), mask=i < n)


def _arrays(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.ones(count, np.float32), np.ones(count, np.float32), np.full(count, np.nan, "f4")


@every_level
def test_the_load_is_named(level, capsys):
    x, bias, y = _arrays(20)
    with pytest.warns(UndefinedValue) as caught:
        tawa.simulate(softmax, x, bias, y, 20, 32, grid=(1,), level=level)
    (warning,) = caught
    line = softmax.fn.__code__.co_firstlineno + 3
    assert (warning.filename, warning.lineno) == (__file__, line)
    assert str(warning.message) == (
        "stored elements depend on what a load masks out and gives no value: 20 of y\n"
        f"  at {__file__}:{line}\n"
        "        row = tl.load(x + i, mask=i < n)\n"
        "              ^\n"
        "  why: without `other` they are undefined on the GPU; the simulator makes them NaN\n"
        "  do:  pass other=, or mask what is computed from them"
    )
    assert np.isnan(y).all()
    assert capsys.readouterr().out.count("once") == 1


def test_a_launch_warns_too():
    x, bias, y = _arrays(20)
    with pytest.warns(UndefinedValue, match="20 of y"):
        softmax[(1,)](x, bias, y, 20, B=32)


@pytest.fixture
def no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@every_level
@pytest.mark.usefixtures("no_warning")
def test_where_nothing_is_masked_out(level):
    x, bias, y = _arrays(32)
    tawa.simulate(softmax, x, bias, y, 32, 32, grid=(1,), level=level)
    np.testing.assert_allclose(y, 1 + 1 / 32)


@tawa.jit
def double(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(y + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


@every_level
@pytest.mark.usefixtures("no_warning")
def test_nan_of_the_data_is_the_users(level):
    x, y = np.array([1, np.nan, 3], np.float16), np.full(4, np.nan, np.float16)
    tawa.simulate(double, x, y, 3, 8, grid=(1,), level=level)
    np.testing.assert_array_equal(y, np.array([2, np.nan, 6, np.nan], np.float16))


@tawa.jit
def both(x, n, B: tl.constexpr):
    i = tl.arange(0, B)
    total = tl.sum(tl.load(x + i, mask=i < n)) + tl.sum(tl.load(x + B + i, mask=i < n))
    tl.store(x, total)


@every_level
def test_two_loads_in_place(level):
    """NaN stays whichever of the two gives zero: both are named, once for their line."""
    x = np.ones(32, np.float32)
    with pytest.warns(UndefinedValue, match="1 of x") as caught:
        tawa.simulate(both, x, 5, 16, grid=(1,), level=level)
    assert str(caught[0].message).count(" at ") == 2
    assert np.isnan(x[0])
    assert (x[1:] == 1).all()


@tawa.jit
def gather(index, x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    at = tl.load(index + i, mask=i < n)
    tl.store(y + i, tl.load(x + at))


@every_level
def test_an_address_without_a_value(level):
    index, x, y = np.zeros(20, np.int32), np.zeros(8, np.float32), np.zeros(32, np.float32)
    line = gather.fn.__code__.co_firstlineno + 3
    said = f"they may come from line {line}, where a load has a mask and no `other`"
    with pytest.raises(LaunchError, match=said):
        tawa.simulate(gather, index, x, y, 20, 32, grid=(1,), level=level)
