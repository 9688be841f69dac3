"""The device library: functions of float32 and float64, aliases, and functions of bits."""

# The written bodies are tile code, which pyright cannot type: it is typed where it is compiled.
# pyright: basic, reportUnsupportedDunderAll=false, reportOperatorIssue=false, reportAttributeAccessIssue=false, reportCallIssue=false, reportArgumentType=false, reportAssignmentType=false

from __future__ import annotations

from functools import partial
from typing import Any

from tawa.language import dtypes
from tawa.language import primitives as tl
from tawa.language.extra.bits import brev as brev
from tawa.language.extra.bits import byte_perm as byte_perm
from tawa.language.extra.bits import clz as clz
from tawa.language.extra.bits import double2hiint as double2hiint
from tawa.language.extra.bits import double2loint as double2loint
from tawa.language.extra.bits import double_as_longlong as double_as_longlong
from tawa.language.extra.bits import ffs as ffs
from tawa.language.extra.bits import float_as_int as float_as_int
from tawa.language.extra.bits import float_as_uint as float_as_uint
from tawa.language.extra.bits import hadd as hadd
from tawa.language.extra.bits import hiloint2double as hiloint2double
from tawa.language.extra.bits import int_as_float as int_as_float
from tawa.language.extra.bits import longlong_as_double as longlong_as_double
from tawa.language.extra.bits import mul24 as mul24
from tawa.language.extra.bits import mulhi as mulhi
from tawa.language.extra.bits import popc as popc
from tawa.language.extra.bits import rhadd as rhadd
from tawa.language.extra.bits import sad as sad
from tawa.language.extra.bits import uint_as_float as uint_as_float
from tawa.language.math import abs as abs
from tawa.language.math import ceil as ceil
from tawa.language.math import cos as cos
from tawa.language.math import div_rn as div_rn
from tawa.language.math import erf as erf
from tawa.language.math import exp as exp
from tawa.language.math import exp2 as exp2
from tawa.language.math import floor as floor
from tawa.language.math import fma as fma
from tawa.language.math import log as log
from tawa.language.math import log2 as log2
from tawa.language.math import rsqrt as rsqrt
from tawa.language.math import sin as sin
from tawa.language.math import sqrt as sqrt
from tawa.language.math import sqrt_rn as sqrt_rn
from tawa.language.stub import builtin
from tawa.language.written import Written


def _of(count: int, name: str, does: str) -> Any:
    """Make the stub of a function of one to three floats."""

    def one(arg0: Any) -> Any: ...
    def two(arg0: Any, arg1: Any) -> Any: ...
    def three(arg0: Any, arg1: Any, arg2: Any) -> Any: ...

    function: Any = (one, two, three)[count - 1]
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{does}."
    return builtin(function)


_one, _two, _three = partial(_of, 1), partial(_of, 2), partial(_of, 3)


def _rounded(make: Any, name: str, does: str) -> tuple[Any, Any, Any]:
    """Make the stubs of a function that rounds down, up and towards zero."""
    ways = {"rd": "down", "ru": "up", "rz": "towards zero"}
    down, up, zero = (make(f"{name}_{way}", f"{does}, rounded {to}") for way, to in ways.items())
    return down, up, zero


tanh = _one("tanh", "Compute the hyperbolic tangent")
sinh = _one("sinh", "Compute the hyperbolic sine")
cosh = _one("cosh", "Compute the hyperbolic cosine")
asinh = _one("asinh", "Compute the inverse of the hyperbolic sine")
acosh = _one("acosh", "Compute the inverse of the hyperbolic cosine")
atanh = _one("atanh", "Compute the inverse of the hyperbolic tangent")
tan = _one("tan", "Compute the tangent")
asin = _one("asin", "Compute the arc sine")
acos = _one("acos", "Compute the arc cosine")
atan = _one("atan", "Compute the arc tangent")
atan2 = _two("atan2", "Compute the angle of the point (`arg1`, `arg0`)")
exp10 = _one("exp10", "Compute 10 to a power")
expm1 = _one("expm1", "Compute ``exp(x) - 1``, exact near 0")
log10 = _one("log10", "Compute the logarithm to base 10")
log1p = _one("log1p", "Compute ``log(1 + x)``, exact near 0")
cbrt = _one("cbrt", "Compute the cube root")
erfc = _one("erfc", "Compute ``1 - erf(x)``, exact for large x")
lgamma = _one("lgamma", "Compute the logarithm of the absolute value of the gamma function")
tgamma = _one("tgamma", "Compute the gamma function")
trunc = _one("trunc", "Round to a whole number, towards zero")
rint = _one("rint", "Round to the nearest whole number, halves to the even one")
nearbyint = _one("nearbyint", "Round to the nearest whole number, halves to the even one")
round = _one("round", "Round to the nearest whole number, halves away from zero")
fmod = _two("fmod", "Compute the remainder of a division of floats, signed as the dividend")
remainder = _two("remainder", "Compute the remainder to the nearest whole quotient")
hypot = _two("hypot", "Compute the length of a vector of two components")
copysign = _two("copysign", "Give `arg0` the sign of `arg1`")
nextafter = _two("nextafter", "Give the float next to `arg0` towards `arg1`")
logb = _one("logb", "Give the exponent of a float, as a float: -inf of 0")
erfinv = _one("erfinv", "Compute the inverse of the error function")
erfcx = _one("erfcx", "Compute ``exp(x * x) * erfc(x)``, finite for any large x")
cyl_bessel_i0 = _one("cyl_bessel_i0", "Compute the modified Bessel function of order 0")
cyl_bessel_i1 = _one("cyl_bessel_i1", "Compute the modified Bessel function of order 1")
add_rn = _two("add_rn", "Add floats, rounded by itself: it becomes part of no fma")
sub_rn = _two("sub_rn", "Subtract floats, rounded by itself: it becomes part of no fma")
mul_rn = _two("mul_rn", "Multiply floats, rounded by itself: it becomes part of no fma")
add_rd, add_ru, add_rz = _rounded(_two, "add", "Add floats")
sub_rd, sub_ru, sub_rz = _rounded(_two, "sub", "Subtract floats")
mul_rd, mul_ru, mul_rz = _rounded(_two, "mul", "Multiply floats")
div_rd, div_ru, div_rz = _rounded(_two, "div", "Divide floats")
fma_rd, fma_ru, fma_rz = _rounded(_three, "fma", "Multiply and add with one rounding")
rcp_rd, rcp_ru, rcp_rz = _rounded(_one, "rcp", "Compute one over a float")
sqrt_rd, sqrt_ru, sqrt_rz = _rounded(_one, "sqrt", "Compute the square root")
fma_rn = fma
pow = _two("pow", "Raise a float to a power, a float or an integer")

fast_expf = _one("fast_expf", "Compute e to the power of x, as `exp`")
fast_exp10f = _one("fast_exp10f", "Compute 10 to a power, by an approximation")
fast_logf = _one("fast_logf", "Compute the natural logarithm, by an approximation")
fast_log2f = _one("fast_log2f", "Compute the logarithm to base 2, by an approximation")
fast_log10f = _one("fast_log10f", "Compute the logarithm to base 10, by an approximation")
fast_sinf = _one("fast_sinf", "Compute the sine, by an approximation")
fast_cosf = _one("fast_cosf", "Compute the cosine, by an approximation")
fast_tanf = _one("fast_tanf", "Compute the tangent, by an approximation")
fast_tanhf = _one("fast_tanhf", "Compute the hyperbolic tangent, as `tanh`")
fast_dividef = _two("fast_dividef", "Divide floats, as `/`")
fast_powf = _two("fast_powf", "Raise a float to a power, ``exp2(y * log2(x))`` by approximations")


@Written
def isnan(arg0):
    """Tell where a float is NaN."""
    return arg0 != arg0


@Written
def isinf(arg0):
    """Tell where a float is infinite, of either sign."""
    return tl.abs(arg0) == float("inf")


@Written
def finitef(arg0):
    """Tell where a float is neither infinite nor NaN."""
    return tl.abs(arg0) < float("inf")


isfinited = finitef


@Written
def signbit(arg0):
    """Tell where a float is negative, -0 and negative NaN included."""
    return arg0.to(tl.int64 if arg0.dtype.primitive_bitwidth == 64 else tl.int32, bitcast=True) < 0


@Written
def saturatef(arg0):
    """Bring a float32 into the range from 0 to 1."""
    return tl.clamp(arg0, 0.0, 1.0)


@Written
def fdim(arg0, arg1):
    """Compute ``x - y`` where it is positive, else 0."""
    return tl.where(arg0 <= arg1, 0.0, arg0 - arg1)


@Written
def ldexp(arg0, arg1):
    """Multiply a float by 2 to an int32 power."""
    half = arg1 >> 1
    return arg0 * tl.exp2(half.to(arg0.dtype)) * tl.exp2((arg1 - half).to(arg0.dtype))


@Written
def ilogb(arg0):
    """Give the exponent of a float as an int32: the least of 0 and NaN, the most of infinities."""
    return tl.where(arg0 == arg0, logb(arg0).to(tl.int32), -2147483648)


@Written
def normcdf(arg0):
    """Compute the distribution function of the normal distribution."""
    return 0.5 * erfc(arg0 * -0.7071067811865476)


@Written
def rsqrt_rn(arg0):
    """Compute one over the square root of a float32, each step rounded to nearest."""
    return tl.div_rn(arg0 * 0 + 1.0, tl.sqrt_rn(arg0))


@Written
def rcp_rn(arg0):
    """Compute one over a float32, rounded to nearest."""
    return tl.div_rn(arg0 * 0 + 1.0, arg0)


@Written
def llrint(arg0):
    """Round to the nearest int64, halves to the even one."""
    return rint(arg0).to(tl.int64)


@Written
def llround(arg0):
    """Round to the nearest int64, halves away from zero."""
    return round(arg0).to(tl.int64)


def _to_integers(name: str, kind: Any, signed: Any) -> tuple[Any, Any, Any, Any]:
    """Make the functions that round floats to `kind`, and give its bits as `signed`."""

    def after(whole):
        def function(arg0):
            return whole(arg0).to(kind).to(signed, bitcast=True)

        return function

    functions = map(after, (tl.floor, rint, tl.ceil, tl.to_tensor))
    return _ways(name, f"Round a float to the bits of {kind.name}", *functions)


def _to_float32(name: str, source: str) -> tuple[Any, Any, Any, Any]:
    """Make the functions that round to float32 what a float64 holds exactly."""

    def nearest(arg0):
        return arg0.to(dtypes.float64).to(tl.float32)

    def down(arg0):
        near = arg0.to(dtypes.float64).to(tl.float32)
        return tl.where(near > arg0.to(dtypes.float64), nextafter(near, float("-inf")), near)

    def up(arg0):
        near = arg0.to(dtypes.float64).to(tl.float32)
        return tl.where(near < arg0.to(dtypes.float64), nextafter(near, float("inf")), near)

    def zero(arg0):
        near = arg0.to(dtypes.float64).to(tl.float32)
        return tl.where(tl.abs(near) > tl.abs(arg0.to(dtypes.float64)), nextafter(near, 0.0), near)

    return _ways(name, f"Round {source} to a float32", down, nearest, up, zero)


def _ways(name: str, does: str, *functions: Any) -> tuple[Any, Any, Any, Any]:
    ways = {"rd": "down", "rn": "to nearest", "ru": "up", "rz": "towards zero"}
    for function, (way, words) in zip(functions, ways.items()):
        function.__name__ = function.__qualname__ = f"{name}_{way}"
        function.__doc__ = f"{does}, {words}."
    down, nearest, up, zero = map(Written, functions)
    return down, nearest, up, zero


float2int_rd, float2int_rn, float2int_ru, float2int_rz = _to_integers(
    "float2int", dtypes.int32, dtypes.int32
)
float2uint_rd, float2uint_rn, float2uint_ru, float2uint_rz = _to_integers(
    "float2uint", dtypes.uint32, dtypes.int32
)
float2ll_rd, float2ll_rn, float2ll_ru, float2ll_rz = _to_integers(
    "float2ll", dtypes.int64, dtypes.int64
)
float2ull_rd, float2ull_rn, float2ull_ru, float2ull_rz = _to_integers(
    "float2ull", dtypes.uint64, dtypes.int64
)
double2int_rd, double2int_rn, double2int_ru, double2int_rz = _to_integers(
    "double2int", dtypes.int32, dtypes.int32
)
double2uint_rd, double2uint_rn, double2uint_ru, double2uint_rz = _to_integers(
    "double2uint", dtypes.uint32, dtypes.int32
)
double2ll_rd, double2ll_rn, double2ll_ru, double2ll_rz = _to_integers(
    "double2ll", dtypes.int64, dtypes.int64
)
double2ull_rd, double2ull_rn, double2ull_ru, double2ull_rz = _to_integers(
    "double2ull", dtypes.uint64, dtypes.int64
)
int2float_rd, int2float_rn, int2float_ru, int2float_rz = _to_float32("int2float", "an int32")
uint2float_rd, uint2float_rn, uint2float_ru, uint2float_rz = _to_float32("uint2float", "a uint32")
double2float_rd, double2float_rn, double2float_ru, double2float_rz = _to_float32(
    "double2float", "a float64"
)


def _to_nearest(name: str, kind: Any) -> Any:
    def function(arg0):
        return arg0.to(kind)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Round an integer to the nearest {kind.name}."
    return Written(function)


ll2float_rn, ull2float_rn = (_to_nearest(f"{n}2float_rn", dtypes.float32) for n in ("ll", "ull"))
int2double_rn, uint2double_rn, ll2double_rn, ull2double_rn = (
    _to_nearest(f"{n}2double_rn", dtypes.float64) for n in ("int", "uint", "ll", "ull")
)


scalbn = ldexp


@Written
def rcbrt(arg0):
    """Compute one over the cube root."""
    return 1.0 / cbrt(arg0)


@Written
def _quarters(x):
    """Give the quarter of a turn that pi times `x` is in, and the sine and cosine of the rest."""
    x = x - rint(x * 0.5) * 2.0
    halves = rint(x * 2.0)
    rest = (x - halves * 0.5) * 3.141592653589793
    return halves - tl.floor(halves * 0.25) * 4.0, tl.sin(rest), tl.cos(rest)


@Written
def sinpi(arg0):
    """Compute the sine of pi times x, 0 of whole numbers."""
    quarter, sine, cosine = _quarters(arg0)
    value = tl.where((quarter == 1.0) | (quarter == 3.0), cosine, sine)
    return tl.where(quarter >= 2.0, -value, value)


@Written
def cospi(arg0):
    """Compute the cosine of pi times x, 0 in the middle of two whole numbers."""
    quarter, sine, cosine = _quarters(arg0)
    value = tl.where((quarter == 1.0) | (quarter == 3.0), sine, cosine)
    return tl.where((quarter == 1.0) | (quarter == 2.0), -value, value)


@Written
def norm3d(arg0, arg1, arg2):
    """Compute the length of a vector of three components."""
    return hypot(hypot(arg0, arg1), arg2)


@Written
def norm4d(arg0, arg1, arg2, arg3):
    """Compute the length of a vector of four components."""
    return hypot(hypot(arg0, arg1), hypot(arg2, arg3))


@Written
def _over(length, *parts):
    """Compute one over a length, which may be beyond the floats: then over that of quarters."""
    largest = tl.abs(parts[0])
    for part in parts[1:]:
        largest = tl.maximum(largest, tl.abs(part))
    scale = tl.where(largest > 1.0, 0.25, 1.0)
    inner = length(*[part * scale for part in parts])
    return tl.fdiv(scale, inner, ieee_rounding=True)


@Written
def rhypot(arg0, arg1):
    """Compute one over the length of a vector of two components."""
    return _over(hypot, arg0, arg1)


@Written
def rnorm3d(arg0, arg1, arg2):
    """Compute one over the length of a vector of three components."""
    return _over(norm3d, arg0, arg1, arg2)


@Written
def rnorm4d(arg0, arg1, arg2, arg3):
    """Compute one over the length of a vector of four components."""
    return _over(norm4d, arg0, arg1, arg2, arg3)


__all__ = sorted(
    name
    for name, thing in globals().items()
    if not name.startswith("_") and (isinstance(thing, Written) or hasattr(thing, "__wrapped__"))
)
