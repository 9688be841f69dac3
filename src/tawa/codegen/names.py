"""Names in generated text: the user's where there are any, each used once."""

from __future__ import annotations

import re

from tawa.syntax import in_ascii

# What a variable may not be called: the keywords of C++ up to C++23 and its alternative tokens,
# macros and built-in variables, and the names of the text's own making.
_CPP = (
    "alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t "
    "char16_t char32_t class co_await co_return co_yield compl concept const const_cast "
    "consteval constexpr constinit continue decltype default delete do double dynamic_cast else "
    "enum explicit export extern false float for friend goto if inline int long mutable "
    "namespace new noexcept not not_eq nullptr operator or or_eq private protected public "
    "register reinterpret_cast requires return short signed sizeof static static_assert "
    "static_cast struct switch template this thread_local throw true try typedef typeid "
    "typename typeof union unsigned using virtual void volatile wchar_t while xor xor_eq"
)
_MACROS = "NULL assert va_arg va_copy va_end va_list va_start"
_OWN = (
    "min max memory shared thread warp warpgroup lane u8 u16 u32 u64 i64 threadIdx blockIdx "
    "gridDim blockDim warpSize TensorMap printf r step block box part line"
)
RESERVED = frozenset(f"{_CPP} {_MACROS} {_OWN}".split(" "))

# What NVRTC declares at file scope, where a kernel's name stands: CUDA Math API (functions of
# doubles; those of floats end in f), standard library, types.
_MATH = (
    "acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh cospi cyl_bessel_i0 "
    "cyl_bessel_i1 erf erfc erfcinv erfcx erfinv exp exp10 exp2 expm1 fabs fdim fdivide floor "
    "fma fmax fmin fmod frexp hypot ilogb j0 j1 jn ldexp lgamma log log10 log1p log2 logb lrint "
    "lround llrint llround modf nan nearbyint nextafter norm norm3d norm4d normcdf normcdfinv "
    "pow powi rcbrt remainder remquo rhypot rint rnorm rnorm3d rnorm4d round rsqrt saturate "
    "scalbln scalbn sin sincos sincospi sinh sinpi sqrt tan tanh tgamma trunc y0 y1 yn"
)
_LIBRARY = (
    "abs clock clock64 clock_t dim3 free labs llabs llmax llmin main malloc memcpy memset "
    "ptrdiff_t rsqrt size_t std ullmax ullmin umax umin isfinite isinf isnan signbit"
)
PREDECLARED = frozenset(
    (*_LIBRARY.split(" "), *_MATH.split(" "), *(f"{name}f" for name in _MATH.split(" ")))
)
# Prefixes of NVRTC's macros and of the types and functions it declares.
_SYSTEM = re.compile(r"NV_|CUDART|CUDA_|cuda[A-Z]|make_\w+\d$")


def identifier(text: str) -> str:
    """Return `text` as a C identifier; empty where nothing of it can stay."""
    clean = re.sub(r"\W+", "_", in_ascii(text)).strip("_")
    if not clean or clean[0].isdigit():
        return f"v{clean}" if clean else ""
    return clean


class Names:
    """Hands out names unique within one function, none of them in `taken`."""

    def __init__(self, taken: frozenset[str] = RESERVED) -> None:
        self._taken = set(taken)
        self._numbers: dict[str, int] = {}  # of each stem the last number that was tried

    def child(self, *more: str) -> Names:
        """Return the names of a scope inside this one: nothing taken here is given out there."""
        return Names(frozenset(self._taken | set(more)))

    def fresh(self, hint: str, otherwise: str = "v") -> str:
        """Return `hint` as an identifier, numbered where it is taken."""
        stem = identifier(hint) or otherwise
        stem = f"v_{stem}" if _SYSTEM.match(stem) else stem
        name, number = stem, self._numbers.get(stem, 1)
        while name in self._taken:
            number += 1
            name = f"{stem}_{number}"
        self._numbers[stem] = number
        self._taken.add(name)
        return name
