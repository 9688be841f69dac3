"""Functions of the device library that round in a direction, held against exact fractions."""

from fractions import Fraction

import numpy as np
import pytest

import tawa
import tawa.language as tl
from tawa.language.extra import libdevice

EXACT = {
    "add": lambda a, b, c: a + b,
    "sub": lambda a, b, c: a - b,
    "mul": lambda a, b, c: a * b,
    "div": lambda a, b, c: a / b,
    "fma": lambda a, b, c: a * b + c,
    "rcp": lambda a, b, c: 1 / a,
}
COUNT = {"fma": 3, "rcp": 1, "sqrt": 1}
KINDS = (np.float32, np.float64)


@tawa.jit
def kernel(x, y, z, out, F: tl.constexpr, INPUTS: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    args = (tl.load(x + at), tl.load(y + at), tl.load(z + at))
    tl.store(out + at, F(*args[:INPUTS]))


def results(name, inputs):
    """Return what the function gives rounded down, up and towards zero."""
    made = []
    for way in ("rd", "ru", "rz"):
        out = np.zeros_like(inputs[0])
        function = getattr(libdevice, f"{name}_{way}")
        with np.errstate(all="ignore"):
            kernel[(1,)](*inputs, out, function, COUNT.get(name, 2), len(out))
        made.append(out)
    return made


def numbers(kind, seed, low=-3):
    """Return floats of many sizes, with equal and opposite ones among them."""
    rng = np.random.default_rng(seed)
    made = rng.normal(size=64) * 2.0 ** rng.integers(low, 4, 64)
    made[:8] = np.arange(1, 9)
    return made.astype(kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", EXACT)
def test_results_lie_on_either_side(name, kind):
    inputs = [numbers(kind, seed) for seed in range(3)]
    inputs[2][::2] = -(inputs[0] * inputs[1])[::2]  # what is left of fma is its rounding alone
    down, up, zero = results(name, inputs)
    exact = [EXACT[name](*map(Fraction, row)) for row in zip(*(i.tolist() for i in inputs))]
    for low, high, near, truth in zip(down, up, zero, exact):
        assert Fraction(float(low)) <= truth <= Fraction(float(high))
        assert high == (low if Fraction(float(low)) == truth else np.nextafter(low, kind(np.inf)))
        assert near == (low if truth > 0 else high)


@pytest.mark.parametrize("kind", KINDS)
def test_square_roots(kind):
    x = np.abs(numbers(kind, 7))
    down, up, zero = results("sqrt", [x, x, x])
    for low, high, number in zip(down, up, map(Fraction, x.tolist())):
        square = Fraction(float(low)) ** 2
        assert square <= number <= Fraction(float(high)) ** 2
        assert high == (low if square == number else np.nextafter(low, kind(np.inf)))
    assert np.array_equal(down, zero)


def test_zeros_and_what_is_beyond_numbers():
    most, one, nothing = np.finfo(np.float32).max, 1.0, 0.0
    x = np.array([most, -most, one, nothing, one, -one, np.inf, np.nan], np.float32)
    y = np.array([most, -most, -one, nothing, nothing, nothing, one, one], np.float32)
    down, up, zero = results("add", [x, y, y])
    assert down[:2].tolist() == [most, -np.inf]
    assert up[:2].tolist() == [np.inf, -most]
    assert zero[:2].tolist() == [most, -most]
    assert np.signbit([down[2], up[2], zero[2], down[3]]).tolist() == [True, False, False, False]
    assert all(made[6] == np.inf and np.isnan(made[7]) for made in (down, up, zero))
    for made in results("div", [x, y, y]):
        assert made[4:6].tolist() == [np.inf, -np.inf]
        assert np.isnan(made[3])


def test_both_types_meet():
    x, y = numbers(np.float32, 8), numbers(np.float64, 9)
    out = np.zeros_like(y)
    kernel[(1,)](x, y, y, out, libdevice.mul_rz, 2, 64)
    assert np.all(np.abs(out) <= np.abs(x.astype(np.float64) * y))
