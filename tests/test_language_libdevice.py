"""Functions of the device library that are written in the language: against Python's integers,
Fractions and math."""

import math
from fractions import Fraction

import numpy as np
import pytest

import tawa
import tawa.language as tl
from tawa.language.extra import libdevice


@tawa.jit
def one(x, out, F: tl.constexpr, B: tl.constexpr):
    o = tl.arange(0, B)
    tl.store(out + o, F(tl.load(x + o)))


@tawa.jit
def two(x, y, out, F: tl.constexpr, B: tl.constexpr):
    o = tl.arange(0, B)
    tl.store(out + o, F(tl.load(x + o), tl.load(y + o)))


@tawa.jit
def three(x, y, z, out, F: tl.constexpr, B: tl.constexpr):
    o = tl.arange(0, B)
    tl.store(out + o, F(tl.load(x + o), tl.load(y + o), tl.load(z + o)))


def result(kernel, name, arrays, dtype):
    out = np.zeros(len(arrays[0]), dtype)
    kernel[1,](*arrays, out, F=getattr(libdevice, name), B=len(out))
    return out


def integers(dtype, seed):
    """Numbers of all sizes, and the least and largest."""
    bits = 8 * np.dtype(dtype).itemsize
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, 1 << 63, 64, dtype=np.uint64) * 2 + rng.integers(0, 2, 64).astype("u8")
    numbers = (drawn >> rng.integers(0, 64, 64).astype("u8")).astype(f"u{bits // 8}").view(dtype)
    numbers[:4] = np.iinfo(dtype).min, np.iinfo(dtype).max, 0, 1
    return numbers


WAYS = {"rd": math.floor, "rn": round, "ru": math.ceil, "rz": math.trunc}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("target", ["uint", "ll", "ull", "int"])
@pytest.mark.parametrize("source", ["float", "double"])
def test_floats_to_integers(source, target, way):
    if (source, target) == ("float", "int"):
        name, low, high, kind = "float2int", -(2**30), 2**30, np.int32
    else:
        name = f"{source}2{target}"
        unsigned, bits = target.startswith("u"), 64 if "ll" in target else 32
        low, high = 0 if unsigned else -(1 << (bits - 2)), 1 << (bits - 1 if unsigned else bits - 2)
        kind = np.int64 if bits == 64 else np.int32
    rng = np.random.default_rng(0)
    values = np.concatenate([rng.uniform(max(low, -9), 9, 32), rng.uniform(low, high, 32)])
    values[:8] = [0.5, 1.5, 2.5, 3.0, 0.0, 0.25, 0.75, 7.5]
    x = values.astype(np.float32 if source == "float" else np.float64)
    found = result(one, f"{name}_{way}", [x], kind)
    expected = [WAYS[way](Fraction(float(each))) for each in x]
    assert [int(each) % 2**64 for each in found] == [each % 2**64 for each in expected] or [
        int(each) % 2**32 for each in found
    ] == [each % 2**32 for each in expected]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("source", ["int", "uint", "double"])
def test_to_float32(source, way):
    if source == "double":
        x = np.random.default_rng(0).normal(size=64) * 10.0 ** np.arange(-32, 32)
        x[:4] = 0.0, 1e300, -1e300, 1 + 2.0**-40
    else:
        x = integers(np.int32 if source == "int" else np.uint32, 1)
    found = result(one, f"{source}2float_{way}", [x], np.float32)
    for number, given in zip(found, x):
        exact = Fraction(float(given)) if source == "double" else Fraction(int(given))
        near = np.float32(float(given))
        least, most = np.float32("-inf"), np.float32("inf")
        off = (
            0
            if np.isfinite(near) and Fraction(float(near)) == exact
            else (1 if near > exact else -1)
        )
        if off and (way == "rd" or (way == "rz" and exact > 0)) and off > 0:
            near = np.nextafter(near, least)
        if off and (way == "ru" or (way == "rz" and exact < 0)) and off < 0:
            near = np.nextafter(near, most)
        assert number == near, (given, number, near)


def signed(value, bits):
    value %= 1 << bits
    return value - (1 << bits) if value >> (bits - 1) else value


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64, np.uint64])
def test_high_halves(dtype):
    x, y = integers(dtype, 2), integers(dtype, 3)
    bits = 8 * x.itemsize
    expected = [(int(a) * int(b)) >> bits for a, b in zip(x, y)]
    assert [int(each) for each in result(two, "mulhi", [x, y], dtype)] == expected


@pytest.mark.parametrize("dtype", [np.int32, np.uint32])
def test_means_distances_and_short_products(dtype):
    x, y, z = integers(dtype, 4), integers(dtype, 5), integers(np.uint32, 6)

    def same(name, expected):
        found = result(two, name, [x, y], dtype)
        assert [int(each) % 2**32 for each in found] == [each % 2**32 for each in expected], name

    pairs = [(int(a), int(b)) for a, b in zip(x, y)]
    same("hadd", [(a + b) // 2 for a, b in pairs])
    same("rhadd", [-(-(a + b) // 2) for a, b in pairs])
    low = (lambda a: signed(a, 24)) if dtype is np.int32 else (lambda a: a % 2**24)
    same("mul24", [low(a) * low(b) for a, b in pairs])
    found = result(three, "sad", [x, y, z], dtype)
    expected = [(abs(a - b) + int(c)) % 2**32 for (a, b), c in zip(pairs, z)]
    assert [int(each) % 2**32 for each in found] == expected


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_bits_in_reverse(dtype):
    x = integers(dtype, 7)
    bits = 8 * x.itemsize
    expected = [int(f"{int(a) % (1 << bits):0{bits}b}"[::-1], 2) for a in x]
    assert [int(a) % (1 << bits) for a in result(one, "brev", [x], dtype)] == expected


def test_chosen_bytes():
    x, y, s = integers(np.int32, 8), integers(np.int32, 9), integers(np.int32, 10)
    found = result(three, "byte_perm", [x, y, s], np.int32)
    for a, b, c, r in zip(x, y, s, found):
        held = (int(a) % 2**32).to_bytes(4, "little") + (int(b) % 2**32).to_bytes(4, "little")
        chosen = bytes(held[(int(c) >> (4 * i)) & 7] for i in range(4))
        assert (int(r) % 2**32).to_bytes(4, "little") == chosen


def test_bits_of_floats():
    x = np.random.default_rng(0).normal(size=64)
    high = result(one, "double2hiint", [x], np.int32)
    low = result(one, "double2loint", [x], np.int32)
    assert np.array_equal(high, (x.view(np.int64) >> 32).astype(np.int32))
    assert np.array_equal(low, x.view(np.int64).astype(np.int32))
    assert np.array_equal(result(two, "hiloint2double", [high, low], np.float64), x)
    bits = result(one, "double_as_longlong", [x], np.int64)
    assert np.array_equal(bits, x.view(np.int64))
    assert np.array_equal(result(one, "longlong_as_double", [bits], np.float64), x)
    y = x.astype(np.float32)
    assert np.array_equal(result(one, "float_as_uint", [y], np.int32), y.view(np.int32))
    assert np.array_equal(result(one, "uint_as_float", [y.view(np.uint32)], np.float32), y)
    wide = integers(np.uint64, 11)
    assert np.array_equal(result(one, "ull2double_rn", [wide], np.float64), wide.astype("f8"))
    assert np.array_equal(
        result(one, "ll2float_rn", [wide.view("i8")], np.float32), wide.view("i8").astype("f4")
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_functions_of_floats(dtype):
    x, y, z, w = (np.random.default_rng(1).normal(size=(4, 64)) * 7).astype(dtype)
    close = {"rtol": 3e-6 if dtype is np.float32 else 1e-13}
    x[:6] = 0, 1, 0.5, -1.5, 2.5, 100
    turns = x.astype(np.float64)
    sine, cosine = result(one, "sinpi", [x], dtype), result(one, "cospi", [x], dtype)
    np.testing.assert_allclose(
        sine, np.sin(np.pi * (turns % 2)), atol=3e-6 if dtype is np.float32 else 1e-13
    )
    np.testing.assert_allclose(
        cosine, np.cos(np.pi * (turns % 2)), atol=3e-6 if dtype is np.float32 else 1e-13
    )
    assert not np.any(sine[[0, 1, 5]])
    assert not np.any(cosine[2:5])
    np.testing.assert_allclose(result(one, "rcbrt", [y], dtype), 1 / np.cbrt(y), **close)
    np.testing.assert_allclose(result(two, "rhypot", [y, z], dtype), 1 / np.hypot(y, z), **close)
    length = np.sqrt(y.astype("f8") ** 2 + z.astype("f8") ** 2 + w.astype("f8") ** 2)
    np.testing.assert_allclose(result(three, "norm3d", [y, z, w], dtype), length, **close)
    np.testing.assert_allclose(result(three, "rnorm3d", [y, z, w], dtype), 1 / length, **close)
    powers = np.arange(-32, 32, dtype=np.int32)
    assert np.array_equal(result(two, "scalbn", [y, powers], dtype), np.ldexp(y, powers))


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64, np.uint64])
def test_counts_of_bits(dtype):
    x = integers(dtype, 12)
    bits = 8 * x.itemsize
    numbers = [int(a) % (1 << bits) for a in x]
    ones = [f"{a:b}".count("1") for a in numbers]
    assert result(one, "popc", [x], np.int32).tolist() == ones
    above = [bits - a.bit_length() for a in numbers]
    assert result(one, "clz", [x], np.int32).tolist() == above
    lowest = [(a & -a).bit_length() for a in numbers]
    assert result(one, "ffs", [x], np.int32).tolist() == lowest


@tawa.jit
def with_constants(x, out, n):
    o = tl.arange(0, 8)
    v = tl.load(x + o)
    tl.store(out + o, libdevice.byte_perm(v, v + 1, 0x5410))
    tl.store(out + 8 + o, libdevice.mulhi(-5, v))
    tl.store(out + 16 + o, libdevice.popc(n) + 10 * libdevice.clz(n) + v * 0)
    tl.store(out + 24 + o, libdevice.sad(3, v, n))


def test_constants_among_the_arguments():
    """A scalar argument that is 1 is a constant, too."""
    x, out = np.array([-(2**31), 2**31 - 2, 0, 1, -1, 9, -7, 99], np.int32), np.zeros(32, np.int32)
    with_constants[1,](x, out, 1)
    numbers = [int(a) for a in x]
    wanted = [a % 2**16 + ((a + 1) % 2**16 << 16) for a in numbers]
    wanted += [(-5 * a) >> 32 for a in numbers] + [1 + 310] * 8 + [abs(a - 3) + 1 for a in numbers]
    assert out.tolist() == [signed(a, 32) for a in wanted]


def test_high_half_of_integers_of_two_widths():
    x, y = integers(np.int32, 13), integers(np.int64, 14)
    found = result(two, "mulhi", [x, y], np.int64)
    assert [int(each) for each in found] == [(int(a) * int(b)) >> 64 for a, b in zip(x, y)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_turns_of_the_largest_floats(dtype):
    x = np.array([1, -1, 0.6, -0.6] * 4, dtype) * np.finfo(dtype).max
    assert not np.any(result(one, "sinpi", [x], dtype))
    assert np.all(result(one, "cospi", [x], dtype) == 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_lengths_beyond_the_floats(dtype):
    """One over a length that no float holds, or that is among the largest, is no zero."""
    most, least = np.finfo(dtype).max, np.finfo(dtype).tiny
    x = np.array([most, most / 3, most / 2, 1.5, least, 0, np.inf, 3 * least] * 2, dtype)
    y = np.array([most, most / 4, 0, -2, least, 0, 1, -4 * least] * 2, dtype)
    wide = np.longdouble
    lengths = [np.hypot(x.astype(wide), y.astype(wide))]
    lengths.append(np.hypot(lengths[0], x.astype(wide)))
    with np.errstate(all="ignore"):
        expected = [(1 / length).astype(dtype) for length in lengths]
    found = result(two, "rhypot", [x, y], dtype), result(three, "rnorm3d", [x, y, x], dtype)
    assert np.count_nonzero(found[0]) == 14
    np.testing.assert_allclose(found[0], expected[0], rtol=3 * np.finfo(dtype).eps)
    np.testing.assert_allclose(found[1], expected[1], rtol=3 * np.finfo(dtype).eps)
