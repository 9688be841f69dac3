"""Where a Python number has its own type, and where it takes that of the tensor beside it."""

import ml_dtypes
import numpy as np
import pytest

import tawa.language as tl
from frontend_kernels import of
from tawa.frontend import build
from tawa.ir.build.promotion import is_value_of
from tawa.simulator.tile import run_tile

TYPES = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "i8": np.int8, "u8": np.uint8}
TYPES |= {"u32": np.uint32, "i32": np.int32, "f32": np.float32, "f64": np.float64}


def run(kernel, **arrays):
    names = {np.dtype(kind): name for name, kind in TYPES.items()}
    program = build(kernel, of(**{k: f"{names[a.dtype]}*" for k, a in arrays.items()}), {})
    run_tile(program, (1, 1, 1), arrays)


@pytest.mark.parametrize("kind", ["bf16", "f16"])
def test_a_comparison_does_not_round_its_number(kind):
    """Of three neighbours of 0.1 in 16 bits: which are below, at most, and equal to 0.1."""

    def kernel(x, out):
        r = tl.arange(0, 4)
        v = tl.load(x + r)
        tl.store(out + r, v < 0.1)
        tl.store(out + 4 + r, 0.1 >= v)  # noqa: SIM300
        tl.store(out + 8 + r, v == 0.1)
        tl.store(out + 12 + r, v > 257)  # which bfloat16 has not either

    x = np.array([0.1, 0.1, 0.1, 258], TYPES[kind])
    x.view(np.uint16)[:3] += np.array([-1, 0, 1], np.int16).astype(np.uint16)
    out = np.full(16, -1, np.int32)
    run(kernel, x=x, out=out)
    wide = x.astype(np.float64)
    expected = [wide < 0.1, wide <= 0.1, wide == 0.1, wide > 257]
    np.testing.assert_array_equal(out, np.concatenate(expected))


def test_a_float64_is_compared_with_what_float32_has_of_a_number():
    """As `tl.maximum` takes it; a number that float32 does not reach is a float64 itself."""

    def kernel(x, out):
        r = tl.arange(0, 4)
        v = tl.load(x + r)
        tl.store(out + r, v < 0.1)
        tl.store(out + 4 + r, v == tl.maximum(v, 0.1))
        tl.store(out + 8 + r, v > 1e-300)
        tl.store(out + 12 + r, v > 0.5)

    x, out = np.array([0.1, np.float32(0.1), 1e-300, 0.75]), np.zeros(16, np.int32)
    run(kernel, x=x, out=out)
    short = np.float64(np.float32(0.1))
    expected = [x < short, x >= short, x > 1e-300, x > 0.5]
    np.testing.assert_array_equal(out, np.concatenate(expected))


def test_integers_compare_with_numbers_beyond_their_type():
    """C's conversions: int8 and uint8 become int32, -1 beside uint32 becomes uint32."""

    def kernel(signed, small, wide, out):
        r = tl.arange(0, 2)
        a, b, c = tl.load(signed + r), tl.load(small + r), tl.load(wide + r)
        tl.store(out + r, a == 255)
        tl.store(out + 2 + r, a < 128)
        tl.store(out + 4 + r, b == -1)
        tl.store(out + 6 + r, b > -1000)
        tl.store(out + 8 + r, c == -1)

    out = np.full(10, 7, np.int32)
    whole = np.array([-1, 3], np.int8)
    run(kernel, signed=whole, small=whole.view(np.uint8), wide=whole.astype(np.uint32), out=out)
    np.testing.assert_array_equal(out, [0, 0, 1, 1, 0, 0, 1, 1, 1, 0])


def test_what_goes_to_memory_is_converted():
    def kernel(wide, small, out):
        r = tl.arange(0, 4)
        tl.store(wide + r, -1)
        tl.store(out + r, tl.load(small + r, mask=r < 2, other=-2).to(tl.int32))
        tl.store(out + 4 + r, tl.load(out + r, mask=r < 2, other=float("-inf")))
        tl.atomic_xchg(wide + 4 + r, -3)
        tl.store(out + 8 + r, tl.full((4,), 0x80000001, tl.int32))

    wide, out = np.zeros(8, np.uint32), np.zeros(12, np.int32)
    run(kernel, wide=wide, small=np.arange(4, dtype=np.uint8), out=out)
    np.testing.assert_array_equal(wide, [2**32 - 1] * 4 + [2**32 - 3] * 4)
    np.testing.assert_array_equal(out, [0, 1, 254, 254, 0, 1, *[-(2**31)] * 2, *[1 - 2**31] * 4])


def test_functions_take_numbers_by_their_own_type():
    def kernel(short, half, small, out):
        r = tl.arange(0, 4)
        a, h, s = tl.load(short + r), tl.load(half + r), tl.load(small + r)
        tl.static_assert(tl.maximum(a, a).dtype == tl.float32)
        tl.static_assert(tl.maximum(h, h).dtype == tl.float16)
        tl.static_assert(tl.maximum(h, 0.0).dtype == tl.float32)
        tl.static_assert(tl.clamp(h, -1.0, 1.0).dtype == tl.float32)
        tl.static_assert(tl.minimum(s, 255).dtype == tl.int32)
        tl.static_assert(tl.fma(h, 0.5, h).dtype == tl.float32)
        tl.static_assert((h * 0.5).dtype == tl.float16)
        tl.static_assert(tl.where(r < 2, h, 0.0).dtype == tl.float16)
        tl.store(out + r, tl.softmax(h))
        tl.store(out + 4 + r, tl.softmax(a))

    x, out = np.array([0.5, -1, 2, 0.25]), np.zeros(8, np.float32)
    run(
        kernel,
        short=x.astype(TYPES["bf16"]),
        half=x.astype(np.float16),
        small=np.zeros(4, np.int8),
        out=out,
    )
    np.testing.assert_allclose(out, np.tile(np.exp(x) / np.exp(x).sum(), 2), rtol=1e-6)


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_is_value_of_is_exact(kind):
    """What is said to be held is: against ml_dtypes, over numbers of each exponent."""
    element, dtype = getattr(tl, kind), np.dtype(getattr(ml_dtypes, kind, None) or kind)
    numbers = [(1 + k / 4096) * 2.0**e for e in range(-20, 20) for k in (0, 1, 2, 4, 32, 512, 513)]
    with np.errstate(over="ignore"):
        held = np.array(numbers).astype(dtype).astype(np.float64) == numbers
    said = [is_value_of(number, element) for number in numbers]
    assert not any(s and not h for s, h in zip(said, held))
    usual = [-13 <= np.frexp(number)[1] <= 15 for number in numbers]
    assert [s for s, u in zip(said, usual) if u] == [h for h, u in zip(held, usual) if u]
