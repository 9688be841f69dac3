"""The table of element functions: the one place that says what `tile.elementwise "add"` means.

Each row gives the number of operands, the result type, the NumPy meaning (the oracle's and the
simulator's) and the CUDA expression. 16-bit floats are computed in f32 and rounded once, which for
these functions equals native arithmetic (f32 has more than 2p + 2 bits for p = 11); integers wrap.
"""

# The rows are lambdas over whatever array they are given; annotating each would hide the table.
# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Result = Literal["same", "bool", "select"]


@dataclass(frozen=True, slots=True)
class Function:
    """One row: `numpy` takes the module and operands, `cuda_*` are expressions in {0}, {1}, {2}.

    An empty CUDA text means: no such function for that class of element (integer, float). `result`
    is "same" (type of the first operand), "bool" (i1) or "select" (type of the second).
    """

    name: str
    arity: int
    numpy: Callable[..., Any]
    cuda_int: str = ""
    cuda_float: str = ""
    result: Result = "same"
    commutative: bool = False


def _divide(np: Any, a: Any, b: Any) -> Any:
    """C division: towards zero; by zero gives 0 rather than a trap (undefined on the device)."""
    safe = np.where(b == 0, np.ones_like(b), b)
    quotient = np.where(b == 0, np.zeros_like(a), a // safe)
    inexact = (quotient * safe != a) & ((a < 0) != (safe < 0)) & (b != 0)
    return (quotient + inexact).astype(a.dtype)


def _remainder(np: Any, a: Any, b: Any) -> Any:
    return (a - _divide(np, a, b) * b).astype(a.dtype)


def _each(np: Any, a: Any, one: Callable[[float], float]) -> Any:
    flat = np.ravel(a).astype(np.float64).tolist()
    return np.array([one(x) for x in flat]).astype(a.dtype).reshape(np.shape(a))


def _gamma(np: Any, a: Any, logarithm: bool) -> Any:
    def one(x: float) -> float:
        if x <= 0 and (math.isinf(x) or x == math.floor(x)):  # a pole, or minus infinity
            return math.inf if logarithm or x == 0 else math.nan
        try:
            return math.lgamma(x) if logarithm else math.gamma(x)
        except OverflowError:
            return math.inf

    return _each(np, a, one)


def _logb(np: Any, a: Any) -> Any:
    """The exponent of the first digit that is not 0: -inf of 0, inf of an infinity."""
    exponent = np.frexp(a)[1].astype(a.dtype) - 1
    of_none = np.where(a == 0, -np.inf, np.abs(a))  # an infinity or NaN
    return np.where((a == 0) | ~np.isfinite(a), of_none, exponent).astype(a.dtype)


def _erfinv(np: Any, a: Any) -> Any:
    from statistics import NormalDist

    def one(x: float) -> float:
        if not abs(x) < 1:
            return math.copysign(math.inf, x) if abs(x) == 1 else math.nan
        found = NormalDist().inv_cdf((x + 1) / 2) / math.sqrt(2)
        # x + 1 has lost digits of a small x, for which one step of Newton's finds them again.
        return found + (x - math.erf(found)) * math.exp(found * found) * math.sqrt(math.pi) / 2

    return _each(np, a, one)


def _erfcx(np: Any, a: Any) -> Any:
    def one(x: float) -> float:
        if x < 20:
            return math.exp(min(x * x, 709.0)) * math.erfc(x) if x > -26 else math.inf
        rest = 1.0  # a continued fraction: erfc itself is soon less than any float
        for step in range(20, 0, -1):
            rest = x + step / 2 / rest
        return 1 / (rest * math.sqrt(math.pi))

    return _each(np, a, one)


def _bessel(np: Any, a: Any, order: int) -> Any:
    """The modified function I: a mean over a circle, which few points give exactly."""
    x = np.minimum(np.abs(np.ravel(a)).astype(np.float64), 750.0)  # more is infinite
    angle = np.arange(2048) * (2 * np.pi / 2048)
    mean = np.exp(x[:, None] * (np.cos(angle) - 1)) @ np.cos(order * angle) / 2048
    with np.errstate(over="ignore"):
        grown = mean * np.exp(x) * np.sign(np.ravel(a)) ** order
    return np.where(np.isnan(np.ravel(a)), np.nan, grown).astype(a.dtype).reshape(np.shape(a))


def _round(np: Any, a: Any) -> Any:
    """To the nearest whole number, halves away from zero."""
    whole = np.trunc(a)
    away = np.abs(a - whole) >= 0.5
    return np.where(away, whole + np.copysign(1, a), whole).astype(a.dtype)


def _ieee_remainder(np: Any, a: Any, b: Any) -> Any:
    """a - b * n, n the whole number nearest to a / b (C's remainder), exact."""
    with np.errstate(invalid="ignore"):
        low = np.fmod(np.abs(a), np.abs(b))  # exact, and what is left is one step at most
        odd = np.fmod(np.abs(a), 2 * np.abs(b)) >= np.abs(b)
        size = np.where(np.isinf(b), np.inf, np.abs(b))
        twice = np.where(np.isinf(size), 0, 2 * low - size)
        step = np.where((twice > 0) | ((twice == 0) & odd), size, 0)
    return np.copysign(1, a).astype(a.dtype) * (low - step).astype(a.dtype)


def _mulhi(np: Any, a: Any, b: Any) -> Any:
    """The upper half of the product at twice the width."""
    bits = a.dtype.itemsize * 8
    if bits < 64:
        wide = np.int64 if a.dtype.kind == "i" else np.uint64
        return (a.astype(wide) * b.astype(wide) >> wide(bits)).astype(a.dtype)
    exact = np.asarray(np.asarray(a).astype(object) * np.asarray(b).astype(object) >> bits)
    return exact.astype(a.dtype)


def _fma(np: Any, a: Any, b: Any, c: Any) -> Any:
    """f32: the product is exact in f64, so the sum is rounded almost as if once."""
    if a.dtype != np.float32:
        return a * b + c
    return (a.astype(np.float64) * b + c).astype(np.float32)


_CHOICE = "({0} ? {1} : {2})"
_ROWS = (
    Function("add", 2, lambda np, a, b: a + b, "{0} + {1}", "{0} + {1}", commutative=True),
    Function("sub", 2, lambda np, a, b: a - b, "{0} - {1}", "{0} - {1}"),
    Function("mul", 2, lambda np, a, b: a * b, "{0} * {1}", "{0} * {1}", commutative=True),
    Function("div", 2, lambda np, a, b: a / b, "", "divide_full({0}, {1})"),
    Function("div_rn", 2, lambda np, a, b: a / b, "", "divide_rn({0}, {1})"),
    Function("idiv", 2, _divide, "{0} / {1}", ""),
    Function("irem", 2, _remainder, "{0} % {1}", ""),
    Function("frem", 2, lambda np, a, b: np.fmod(a, b), "", "fmodf({0}, {1})"),
    Function("fma", 3, _fma, "{0} * {1} + {2}", "fmaf({0}, {1}, {2})"),
    Function("neg", 1, lambda np, a: -a, "-{0}", "-{0}"),
    Function("abs", 1, lambda np, a: np.abs(a), "({0} < 0 ? -{0} : {0})", "fabsf({0})"),
    # min and max give the operand that is not NaN (PTX min.f32); the _nan forms propagate NaN.
    Function("min", 2, lambda np, a, b: np.fmin(a, b), "min({0}, {1})", "fminf({0}, {1})"),
    Function("max", 2, lambda np, a, b: np.fmax(a, b), "max({0}, {1})", "fmaxf({0}, {1})"),
    Function("min_nan", 2, lambda np, a, b: np.minimum(a, b), "", "min_nan({0}, {1})"),
    Function("max_nan", 2, lambda np, a, b: np.maximum(a, b), "", "max_nan({0}, {1})"),
    Function("and", 2, lambda np, a, b: a & b, "{0} & {1}", commutative=True),
    Function("or", 2, lambda np, a, b: a | b, "{0} | {1}", commutative=True),
    Function("xor", 2, lambda np, a, b: a ^ b, "{0} ^ {1}", commutative=True),
    Function("not", 1, lambda np, a: ~a, "~{0}"),
    Function("shl", 2, lambda np, a, b: a << b, "{0} << {1}"),
    # The shift follows the signedness of the first operand's type.
    Function("shr", 2, lambda np, a, b: a >> b, "{0} >> {1}"),
    Function("mulhi", 2, _mulhi, "mulhi({0}, {1})"),
    Function("eq", 2, lambda np, a, b: a == b, "{0} == {1}", "{0} == {1}", "bool", True),
    Function("ne", 2, lambda np, a, b: a != b, "{0} != {1}", "{0} != {1}", "bool", True),
    Function("lt", 2, lambda np, a, b: a < b, "{0} < {1}", "{0} < {1}", "bool"),
    Function("le", 2, lambda np, a, b: a <= b, "{0} <= {1}", "{0} <= {1}", "bool"),
    Function("gt", 2, lambda np, a, b: a > b, "{0} > {1}", "{0} > {1}", "bool"),
    Function("ge", 2, lambda np, a, b: a >= b, "{0} >= {1}", "{0} >= {1}", "bool"),
    Function("select", 3, lambda np, c, a, b: np.where(c, a, b), _CHOICE, _CHOICE, "select"),
    Function("exp", 1, lambda np, a: np.exp(a), "", "exp2_approx({0} * 1.44269504088896341f)"),
    Function("exp2", 1, lambda np, a: np.exp2(a), "", "exp2_approx({0})"),
    Function("log", 1, lambda np, a: np.log(a), "", "logf({0})"),
    Function("log2", 1, lambda np, a: np.log2(a), "", "log2f({0})"),
    Function("sin", 1, lambda np, a: np.sin(a), "", "sinf({0})"),
    Function("cos", 1, lambda np, a: np.cos(a), "", "cosf({0})"),
    Function("tanh", 1, lambda np, a: np.tanh(a), "", "tanhf({0})"),
    Function("erf", 1, lambda np, a: _each(np, a, math.erf), "", "erff({0})"),
    Function("sqrt", 1, lambda np, a: np.sqrt(a), "", "sqrt_approx({0})"),
    Function("sqrt_rn", 1, lambda np, a: np.sqrt(a), "", "sqrtf({0})"),
    Function("rsqrt", 1, lambda np, a: 1 / np.sqrt(a), "", "rsqrtf({0})"),
    Function("floor", 1, lambda np, a: np.floor(a), "", "floorf({0})"),
    Function("ceil", 1, lambda np, a: np.ceil(a), "", "ceilf({0})"),
    Function("trunc", 1, lambda np, a: np.trunc(a), "", "truncf({0})"),
    Function("rint", 1, lambda np, a: np.rint(a), "", "rintf({0})"),
    Function("round", 1, _round, "", "roundf({0})"),
    # The rest of the device library.
    Function("exp10", 1, lambda np, a: np.power(a.dtype.type(10), a), "", "powf(10.0f, {0})"),
    Function("expm1", 1, lambda np, a: np.expm1(a), "", "expm1f({0})"),
    Function("log10", 1, lambda np, a: np.log10(a), "", "log10f({0})"),
    Function("log1p", 1, lambda np, a: np.log1p(a), "", "log1pf({0})"),
    Function("tan", 1, lambda np, a: np.tan(a), "", "tanf({0})"),
    Function("asin", 1, lambda np, a: np.arcsin(a), "", "asinf({0})"),
    Function("acos", 1, lambda np, a: np.arccos(a), "", "acosf({0})"),
    Function("atan", 1, lambda np, a: np.arctan(a), "", "atanf({0})"),
    Function("atan2", 2, lambda np, a, b: np.arctan2(a, b), "", "atan2f({0}, {1})"),
    Function("sinh", 1, lambda np, a: np.sinh(a), "", "sinhf({0})"),
    Function("cosh", 1, lambda np, a: np.cosh(a), "", "coshf({0})"),
    Function("asinh", 1, lambda np, a: np.arcsinh(a), "", "asinhf({0})"),
    Function("acosh", 1, lambda np, a: np.arccosh(a), "", "acoshf({0})"),
    Function("atanh", 1, lambda np, a: np.arctanh(a), "", "atanhf({0})"),
    Function("cbrt", 1, lambda np, a: np.cbrt(a), "", "cbrtf({0})"),
    Function("erfc", 1, lambda np, a: _each(np, a, math.erfc), "", "erfcf({0})"),
    Function("lgamma", 1, lambda np, a: _gamma(np, a, True), "", "lgammaf({0})"),
    Function("tgamma", 1, lambda np, a: _gamma(np, a, False), "", "tgammaf({0})"),
    Function("pow", 2, lambda np, a, b: np.power(a, b), "", "powf({0}, {1})"),
    Function("hypot", 2, lambda np, a, b: np.hypot(a, b), "", "hypotf({0}, {1})"),
    Function("copysign", 2, lambda np, a, b: np.copysign(a, b), "", "copysignf({0}, {1})"),
    Function("nextafter", 2, lambda np, a, b: np.nextafter(a, b), "", "nextafterf({0}, {1})"),
    Function("logb", 1, _logb, "", "logbf({0})"),
    Function("erfinv", 1, _erfinv, "", "erfinvf({0})"),
    Function("erfcx", 1, _erfcx, "", "erfcxf({0})"),
    Function("cyl_bessel_i0", 1, lambda np, a: _bessel(np, a, 0), "", "cyl_bessel_i0f({0})"),
    Function("cyl_bessel_i1", 1, lambda np, a: _bessel(np, a, 1), "", "cyl_bessel_i1f({0})"),
    # Approximations by a few instructions, of float32 alone (CUDA math API, "intrinsics").
    Function("fast_exp10", 1, lambda np, a: np.power(a.dtype.type(10), a), "", "__exp10f({0})"),
    Function("fast_log", 1, lambda np, a: np.log(a), "", "log2_approx({0}) * 0.693147181f"),
    Function("fast_log2", 1, lambda np, a: np.log2(a), "", "log2_approx({0})"),
    Function("fast_log10", 1, lambda np, a: np.log10(a), "", "log2_approx({0}) * 0.301029996f"),
    Function("fast_sin", 1, lambda np, a: np.sin(a), "", "__sinf({0})"),
    Function("fast_cos", 1, lambda np, a: np.cos(a), "", "__cosf({0})"),
    Function("fast_tan", 1, lambda np, a: np.tan(a), "", "__tanf({0})"),
    Function(
        "fast_pow",
        2,
        lambda np, a, b: np.exp2(b * np.log2(a)),
        "",
        "exp2_approx({1} * log2_approx({0}))",
    ),
    # What is rounded by itself: ptxas makes no fma of it.
    Function("add_rn", 2, lambda np, a, b: a + b, "", "__fadd_rn({0}, {1})", commutative=True),
    Function("sub_rn", 2, lambda np, a, b: a - b, "", "__fsub_rn({0}, {1})"),
    Function("mul_rn", 2, lambda np, a, b: a * b, "", "__fmul_rn({0}, {1})", commutative=True),
    Function("remainder", 2, _ieee_remainder, "", "remainderf({0}, {1})"),
)

FUNCTIONS: dict[str, Function] = {row.name: row for row in _ROWS}

ORDERS = ("lt", "le", "gt", "ge")
OPPOSITE = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}
"""Comparisons, and those of integers that hold where they do not."""
TURNED = {"eq": "eq", "ne": "ne", "lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}
"""Comparisons with their operands exchanged."""
