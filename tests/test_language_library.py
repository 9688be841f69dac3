"""The library of the language: device functions, sorting, what a program knows of itself."""

import math

import numpy as np
import pytest
from scipy import special

import tawa
import tawa.language as tl
from codegen_emulator import emulate, needs_compiler
from frontend_kernels import of
from tawa.codegen.generate import generate
from tawa.errors import TypeMismatch
from tawa.frontend import build
from tawa.language.extra import cuda, libdevice
from tawa.passes import pipeline
from tawa.plan.plan import Plan
from tawa.runtime import nvrtc
from tawa.simulator.tile import run_tile
from tawa.target import Target


def one_argument(x_ptr, out_ptr, FUNCTION: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out_ptr + at, FUNCTION(tl.load(x_ptr + at)))


def two_arguments(x_ptr, y_ptr, out_ptr, FUNCTION: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out_ptr + at, FUNCTION(tl.load(x_ptr + at), tl.load(y_ptr + at)))


UNIT = np.linspace(-0.9, 0.9, 32)
WIDE = np.concatenate([np.linspace(-4, 4, 29), [2.5, -3.5, 0.5]])
POSITIVE = np.linspace(0.1, 9, 32)
ONE = {
    "acos": (np.arccos, UNIT),
    "acosh": (np.arccosh, POSITIVE + 1),
    "asin": (np.arcsin, UNIT),
    "asinh": (np.arcsinh, WIDE),
    "atan": (np.arctan, WIDE),
    "atanh": (np.arctanh, UNIT),
    "cbrt": (np.cbrt, WIDE),
    "cosh": (np.cosh, WIDE),
    "erfc": (np.vectorize(math.erfc), WIDE),
    "exp10": (lambda x: 10.0**x, WIDE),
    "expm1": (np.expm1, WIDE),
    "fast_cosf": (np.cos, UNIT),
    "fast_exp10f": (lambda x: 10.0**x, UNIT),
    "fast_expf": (np.exp, WIDE),
    "fast_log10f": (np.log10, POSITIVE),
    "fast_log2f": (np.log2, POSITIVE),
    "fast_logf": (np.log, POSITIVE),
    "fast_sinf": (np.sin, UNIT),
    "fast_tanf": (np.tan, UNIT),
    "fast_tanhf": (np.tanh, WIDE),
    "lgamma": (np.vectorize(math.lgamma), POSITIVE),
    "logb": (lambda x: np.floor(np.log2(np.abs(x))), POSITIVE),
    "log10": (np.log10, POSITIVE),
    "log1p": (np.log1p, UNIT),
    "nearbyint": (np.rint, WIDE),
    "normcdf": (np.vectorize(lambda x: 0.5 * math.erfc(-x / math.sqrt(2))), WIDE),
    "rcp_rn": (lambda x: 1 / x, POSITIVE),
    "rint": (np.rint, WIDE),
    "round": (lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x), WIDE),
    "rsqrt_rn": (lambda x: 1 / np.sqrt(x), POSITIVE),
    "saturatef": (lambda x: np.clip(x, 0, 1), WIDE),
    "sinh": (np.sinh, WIDE),
    "tan": (np.tan, UNIT),
    "tgamma": (np.vectorize(math.gamma), POSITIVE),
    "trunc": (np.trunc, WIDE),
}
TWO = {
    "add_rn": np.add,
    "atan2": np.arctan2,
    "copysign": np.copysign,
    "fast_dividef": np.divide,
    "fast_powf": lambda x, y: np.exp2(y * np.log2(x)),
    "fdim": lambda x, y: np.maximum(x - y, 0),
    "fmod": np.fmod,
    "hypot": np.hypot,
    "mul_rn": np.multiply,
    "nextafter": lambda x, y: np.nextafter(np.float32(x), np.float32(y)),
    "pow": np.power,
    "remainder": np.vectorize(math.remainder),
    "sub_rn": np.subtract,
}
OF_CUDA_ALONE = {
    "cyl_bessel_i0": (special.i0, WIDE),
    "cyl_bessel_i1": (special.i1, WIDE),
    "erfcx": (special.erfcx, np.concatenate([WIDE[:31], [1e4]])),
    "erfinv": (special.erfinv, np.concatenate([UNIT[:30], [1e-12, 1.0]])),
}
"""Functions of one argument that C does not have."""


def given(name):
    """Return the kernel's inputs and what NumPy says of them."""
    if name in ONE | OF_CUDA_ALONE:
        meaning, x = (ONE | OF_CUDA_ALONE)[name]
        x = x.astype(np.float32)
        return {"x_ptr": x}, meaning(x.astype(np.float64))
    rng = np.random.default_rng(3)
    x, y = (rng.integers(-9, 10, 32).astype(np.float32) / 2 for _ in range(2))
    y = np.where(y == 0, 1, y).astype(np.float32)
    with np.errstate(all="ignore"):
        return {"x_ptr": x, "y_ptr": y}, TWO[name](x.astype(np.float64), y.astype(np.float64))


def kernel_of(name):
    function = getattr(libdevice, name)
    if name in ONE | OF_CUDA_ALONE:
        return build(one_argument, of(x_ptr="f32*", out_ptr="f32*", FUNCTION=function, N=32), {})
    signature = of(x_ptr="f32*", y_ptr="f32*", out_ptr="f32*", FUNCTION=function, N=32)
    return build(two_arguments, signature, {})


@pytest.mark.parametrize("name", sorted(ONE | TWO | OF_CUDA_ALONE))
def test_device_function(name):
    inputs, expected = given(name)
    out = np.zeros(32, np.float32)
    with np.errstate(all="ignore"):
        run_tile(kernel_of(name), (1, 1, 1), {**inputs, "out_ptr": out})
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)


def every_function(x_ptr, y_ptr, out_ptr, FUNCTIONS: tl.constexpr, UNARY: tl.constexpr):
    at = tl.arange(0, 32)
    for i in tl.static_range(len(FUNCTIONS)):
        x = tl.load(x_ptr + 32 * i + at)
        if i < UNARY:
            tl.store(out_ptr + 32 * i + at, FUNCTIONS[i](x))
        else:
            tl.store(out_ptr + 32 * i + at, FUNCTIONS[i](x, tl.load(y_ptr + 32 * i + at)))


@needs_compiler
def test_device_functions_are_those_of_the_c_library():
    """What the generated text calls gives what NumPy gives, where C has it."""
    names = [*sorted(ONE), *sorted(TWO)]
    chosen = tuple(getattr(libdevice, name) for name in names)
    signature = of(x_ptr="f32*", y_ptr="f32*", out_ptr="f32*", FUNCTIONS=chosen, UNARY=len(ONE))
    kernel = build(every_function, signature, {})
    pipeline.run(pipeline.HOPPER, kernel, Plan(), Target())
    x, y, out = (np.zeros((len(names), 32), np.float32) for _ in range(3))
    for row, name in enumerate(names):
        inputs, _ = given(name)
        x[row], y[row] = inputs["x_ptr"], inputs.get("y_ptr", 0)
    emulate(generate(kernel), {"x_ptr": x, "y_ptr": y, "out_ptr": out}, (1, 1, 1))
    for row, name in enumerate(names):
        np.testing.assert_allclose(out[row], given(name)[1], rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")
@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_device_functions_are_those_of_cuda(kind):
    fast = [name for name in [*ONE, *TWO] if name.startswith("fast_") and kind == "f32"]
    unary = [*sorted(OF_CUDA_ALONE), "logb", *(name for name in fast if name in ONE)]
    binary = ["add_rn", "mul_rn", "sub_rn", *(name for name in fast if name in TWO)]
    chosen = tuple(getattr(libdevice, name) for name in [*unary, *binary])
    kinds = dict.fromkeys(("x_ptr", "y_ptr", "out_ptr"), f"{kind}*")
    kernel = build(every_function, of(**kinds, FUNCTIONS=chosen, UNARY=len(unary)), {})
    pipeline.run(pipeline.HOPPER, kernel, Plan(), Target())
    assert "warning" not in nvrtc.build(generate(kernel), "functions").log


@pytest.mark.parametrize("name", ["fast_sinf", "fast_powf", "fast_dividef"])
def test_approximations_are_of_float32(name):
    kernel, kinds = (one_argument, "x_ptr") if name in ONE else (two_arguments, "x_ptr y_ptr")
    given = dict.fromkeys([*kinds.split(), "out_ptr"], "f64*")
    with pytest.raises(TypeMismatch, match=name):
        build(kernel, of(**given, FUNCTION=getattr(libdevice, name), N=32), {})


def bits(x_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.load(x_ptr + at)
    whole = at * 77 - 900
    tl.store(out_ptr + at, libdevice.popc(whole))
    tl.store(out_ptr + N + at, libdevice.clz(whole))
    tl.store(out_ptr + 2 * N + at, libdevice.ffs(whole))
    tl.store(out_ptr + 3 * N + at, libdevice.float2int_rn(x))
    tl.store(out_ptr + 4 * N + at, libdevice.float_as_int(x))
    tl.store(out_ptr + 5 * N + at, libdevice.llround(x).to(tl.int32))
    tl.store(out_ptr + 6 * N + at, libdevice.float_as_int(libdevice.ldexp(x, at - 9)))


def test_device_functions_of_bits():
    x, out = WIDE.astype(np.float32), np.zeros((7, 32), np.int32)
    kernel = build(bits, of(x_ptr="f32*", out_ptr="i32*", N=32), {})
    run_tile(kernel, (1, 1, 1), {"x_ptr": x, "out_ptr": out})
    whole = [(n * 77 - 900) % 2**32 for n in range(32)]
    np.testing.assert_array_equal(out[0], [n.bit_count() for n in whole])
    np.testing.assert_array_equal(out[1], [32 - n.bit_length() for n in whole])
    np.testing.assert_array_equal(out[2], [(n & -n).bit_length() for n in whole])
    np.testing.assert_array_equal(out[3], np.rint(x))
    np.testing.assert_array_equal(out[4], x.view(np.int32))
    np.testing.assert_array_equal(out[5], ONE["round"][0](x))
    np.testing.assert_array_equal(out[6], np.ldexp(x, np.arange(32) - 9).view(np.int32))


def what_floats_are(x_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.load(x_ptr + at)
    nan, infinite = libdevice.isnan(x), libdevice.isinf(x)
    finite, negative = libdevice.isfinited(x), libdevice.signbit(x)
    code = nan.to(tl.int32) + 2 * infinite.to(tl.int32) + 4 * finite.to(tl.int32)
    tl.store(out_ptr + at, code + 8 * negative.to(tl.int32))
    exponent = libdevice.ilogb(x)
    tl.store(out_ptr + N + at, exponent)
    part = libdevice.ldexp(x, tl.where(finite & (x != 0), -exponent, 0))
    tl.store(out_ptr + 2 * N + at, (part * 1024).to(tl.int32))


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_what_floats_are(kind):
    dtype = {"f32": np.float32, "f64": np.float64}[kind]
    least = np.finfo(dtype).smallest_subnormal
    x = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 6 * least, -2.5, 3], dtype)
    out = np.zeros((3, 8), np.int32)
    kernel = build(what_floats_are, of(x_ptr=f"{kind}*", out_ptr="i32*", N=8), {})
    run_tile(kernel, (1, 1, 1), {"x_ptr": x, "out_ptr": out})
    nan, inf, finite = np.isnan(x), np.isinf(x), np.isfinite(x)
    np.testing.assert_array_equal(out[0], nan + 2 * inf + 4 * finite + 8 * np.signbit(x))
    low, high = np.iinfo(np.int32).min, np.iinfo(np.int32).max
    exponents = np.frexp(x[5:])[1] - 1
    np.testing.assert_array_equal(out[1], [low, low, low, high, high, *exponents])
    np.testing.assert_array_equal(out[2][5:], np.ldexp(x[5:], -exponents) * 1024)


def sorting(x_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    row, column = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    at = row * N + column
    x = tl.load(x_ptr + at)
    tl.store(out_ptr + at, tl.sort(x))
    tl.store(out_ptr + M * N + at, x.sort(descending=True))
    tl.store(out_ptr + 2 * M * N + at, tl.flip(x))
    tl.store(out_ptr + 3 * M * N + at, x.flip(0))
    tl.store(out_ptr + 4 * M * N + row * K + tl.arange(0, K)[None, :], tl.topk(x, K))


@pytest.mark.parametrize(
    ("dtype", "level"),
    [pytest.param("i32", "tile", marks=pytest.mark.long), ("f16", "hopper")],
)
def test_sort_topk_and_flip(dtype, level):
    kind = {"i32": np.int32, "f16": np.float16}[dtype]
    x = np.random.default_rng(0).integers(-50, 50, (2, 8)).astype(kind)
    out = np.zeros((5, 2, 8), kind)
    tawa.simulate(tawa.jit(sorting), x, out, grid=(1,), level=level, M=2, N=8, K=2)
    np.testing.assert_array_equal(out[0], np.sort(x))
    np.testing.assert_array_equal(out[1], np.sort(x)[:, ::-1])
    np.testing.assert_array_equal(out[2], x[:, ::-1])
    np.testing.assert_array_equal(out[3], x[::-1])
    np.testing.assert_array_equal(out[4].ravel()[:4].reshape(2, 2), np.sort(x)[:, ::-1][:, :2])


def sorts(out_ptr, DIM: tl.constexpr):
    tl.store(out_ptr, tl.sum(tl.sort(tl.arange(0, 8), DIM), 0))


def flips(out_ptr, DIM: tl.constexpr):
    tl.store(out_ptr, tl.sum(tl.flip(tl.arange(0, 8), DIM), 0))


@pytest.mark.parametrize("function", [sorts, flips])
@pytest.mark.parametrize("dim", [1, 2, -2])
def test_there_is_no_such_dimension(function, dim):
    with pytest.raises(TypeMismatch, match=r"tl\.(sort|flip)"):
        build(function, of(out_ptr="i32*", DIM=dim), {})


def test_sorting_loses_nothing_to_nan():
    x = np.array([[3, np.nan, 1, -2, np.nan, 0, 5, 4]], np.float32)
    out = np.zeros((5, 1, 8), np.float32)
    signature = of(x_ptr="f32*", out_ptr="f32*", M=1, N=8, K=2)
    run_tile(build(sorting, signature, {}), (1, 1, 1), {"x_ptr": x, "out_ptr": out})
    for order in out[:2]:
        assert sorted(order[~np.isnan(order)]) == [-2, 0, 1, 3, 4, 5]


def launched(out_ptr):
    cuda.gdc_wait()
    tl.store(out_ptr, cuda.num_threads() + 1000 * cuda.num_warps())
    cuda.gdc_launch_dependents()


def test_dependent_launches_and_warps():
    out = np.zeros(1, np.int32)
    run_tile(build(launched, of(out_ptr="i32*"), {"num_warps": 8}), (1, 1, 1), {"out_ptr": out})
    assert out[0] == 8256
