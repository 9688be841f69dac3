"""Elementary functions in the subset, with `fma` where it is written and nowhere else.

Each is a `Function` of the IR for f32 and for f64. Errors: about one unit in the last place for
exp, log, sinturn, costurn; two or three for log1p, expm1; lgamma, digamma and erf of f32 are
computed in f64; those of f64 are right to about 1e-14, absolute where the value is near zero.
"""

from __future__ import annotations

from typing import Any

from tawa.ppl.frontend.words import bits, cast, fma, is_double, select, word
from tawa.ppl.frontend.words import exp as exp_word
from tawa.ppl.frontend.words import log as log_word
from tawa.ppl.math.coefficients import (
    COS_F32,
    COS_F64,
    DIGAMMA,
    ERF_SMALL,
    ERFC_LARGE,
    EXP_F32,
    EXP_F64,
    HALF_LOG_TWO_PI,
    LN2_F32,
    LN2_F64,
    LOG2E,
    LOG_F32,
    LOG_F64,
    SIN_F32,
    SIN_F64,
    STIRLING,
)

INF = float("inf")
NAN = float("nan")


def polynomial(coefficients: Any, x: Any) -> Any:
    """Horner's rule, the highest power first."""
    result = coefficients[0]
    for k in coefficients[1:]:
        result = fma(result, x, k)
    return result


def power_of_two(n: Any, like: Any) -> Any:
    """2 ** n for n that gives a normal number."""
    if is_double(like):
        return bits(word("shl", cast(n + 1023, "i64"), cast(52, "i64")), "f64")
    return bits(word("shl", n + 127, 23), "f32")


def exp(x: Any) -> Any:
    """2 ** n times exp of a rest of at most log(2) / 2."""
    if is_double(x):
        low, high, ln2, coefficients = -746.0, 710.0, LN2_F64, EXP_F64
    else:
        low, high, ln2, coefficients = -104.0, 89.0, LN2_F32, EXP_F32
    x = select(x < low, low, x)
    x = select(x > high, high, x)
    n = word("rint", x * LOG2E)
    r = fma(n, -ln2[1], fma(n, -ln2[0], x))
    p = fma(r * r, polynomial(coefficients, r), r) + 1.0
    whole = cast(n, "i32")
    half = whole // 2
    return p * power_of_two(half, x) * power_of_two(whole - half, x)


def log(x: Any) -> Any:
    """n log(2) plus the logarithm of a number between sqrt(1/2) and sqrt(2)."""
    if is_double(x):
        small = x < 2.2250738585072014e-308
        y = select(small, x * 18014398509481984.0, x)
        raw = bits(y, "i64") + (0x3FF0000000000000 - 0x3FE6A09E667F3BCD)
        k = cast(word("lshr", raw, 52), "i32") - select(small, 1023 + 54, 1023)
        m = bits((raw & 0xFFFFFFFFFFFFF) + 0x3FE6A09E667F3BCD, "f64")
        ln2, coefficients = LN2_F64, LOG_F64
    else:
        small = x < 1.1754943508222875e-38
        y = select(small, x * 33554432.0, x)
        raw = bits(y, "i32") + (0x3F800000 - 0x3F3504F3)
        k = word("lshr", raw, 23) - select(small, 127 + 25, 127)
        m = bits((raw & 0x7FFFFF) + 0x3F3504F3, "f32")
        ln2, coefficients = LN2_F32, LOG_F32
    f = m - 1.0
    s = f / (f + 2.0)
    z = s * s
    half = 0.5 * f * f
    tail = z * polynomial(coefficients, z)
    n = cast(k, "f64") if is_double(x) else cast(k, "f32")
    result = fma(n, ln2[0], -(half - fma(s, half + tail, n * ln2[1]) - f))
    result = select(x == 0.0, -INF, result)
    result = select(x == INF, INF, result)
    return select(x >= 0.0, result, NAN)


def log1p(x: Any) -> Any:
    """log(u) for u = 1 + x, rounded, and what u lacks of 1 + x, over u."""
    u = 1.0 + x
    missing = (x - (u - 1.0)) * (1.0 / u)
    return log_word(u) + select(missing == missing, missing, 0.0)


def expm1(x: Any) -> Any:
    """(u - 1) (x / log(u)) for u = exp(x), rounded: the errors of u cancel (Kahan)."""
    u = exp_word(x)
    less = u - 1.0
    result = less * (x / log_word(u))
    result = select(less == -1.0, -1.0, result)
    return select(u == 1.0, x, select(u == INF, u, result))


def _quarter(x: Any, quarters: Any) -> Any:
    q = word("rint", 4.0 * x)
    r = fma(q, -0.25, x)
    z = r * r
    if is_double(x):
        sine, cosine = r * polynomial(SIN_F64, z), fma(z, polynomial(COS_F64, z), 1.0)
    else:
        sine, cosine = r * polynomial(SIN_F32, z), fma(z, polynomial(COS_F32, z), 1.0)
    k = (cast(q, "i32") + quarters) & 3
    size = select((k & 1) == 1, cosine, sine)
    return select(k >= 2, -size, size)


def sinturn(x: Any) -> Any:
    """A polynomial on an eighth of a turn on both sides of a quarter."""
    return _quarter(x, 0)


def costurn(x: Any) -> Any:
    """The sine a quarter of a turn further."""
    return _quarter(x, 1)


def lgamma(x: Any) -> Any:
    """Stirling's series at 8 or more, reached by the product of smaller arguments."""
    y = cast(x, "f64")
    product = cast(1.0, "f64")
    while (y < 8.0) & (y > 0.0):
        product = product * y
        y = y + 1.0
    w = 1.0 / y
    series = w * polynomial(STIRLING, w * w)
    result = (y - 0.5) * log_word(y) - y + HALF_LOG_TWO_PI + series - log_word(product)
    result = select(y == INF, INF, result)
    result = select(y > 0.0, result, NAN)
    return result if is_double(x) else cast(result, "f32")


def digamma(x: Any) -> Any:
    """The derivative of Stirling's series, and the sum of reciprocals up to it."""
    y = cast(x, "f64")
    total = cast(0.0, "f64")
    while (y < 8.0) & (y > 0.0):
        total = total + 1.0 / y
        y = y + 1.0
    w = 1.0 / y
    z = w * w
    result = log_word(y) - 0.5 * w - z * polynomial(DIGAMMA, z) - total
    result = select(y > 0.0, result, NAN)
    return result if is_double(x) else cast(result, "f32")


def erf(x: Any) -> Any:
    """A polynomial up to 1; beyond, 1 - exp(-x**2) times a polynomial in (x - 2) / (x + 2)."""
    y = cast(x, "f64")
    a = abs(y)
    inner = y * polynomial(ERF_SMALL, y * y)
    b = select(a > 6.5, 6.5, a)
    outer = 1.0 - exp_word(-b * b) * polynomial(ERFC_LARGE, (b - 2.0) / (b + 2.0))
    result = select(a < 1.0, inner, select(y < 0.0, -outer, outer))
    return result if is_double(x) else cast(result, "f32")


ROUNDS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
M0, M1 = 0xD2511F53 - (1 << 32), 0xCD9E8D57 - (1 << 32)
W0, W1 = 0x9E3779B9 - (1 << 32), 0xBB67AE85 - (1 << 32)


def philox(k0: Any, k1: Any, c0: Any, c1: Any, c2: Any, c3: Any) -> Any:
    """Philox 4x32 of ten rounds (Salmon et al., SC 2011): four random words."""
    for _ in ROUNDS:
        p0, p1 = word("mul", c0, M0), word("mul", c2, M1)
        h0, h1 = word("mulhi", c0, M0), word("mulhi", c2, M1)
        c0, c1, c2, c3 = h1 ^ c1 ^ k0, p1, h0 ^ c3 ^ k1, p0
        k0, k1 = k0 + W0, k1 + W1
    return c0, c1, c2, c3
