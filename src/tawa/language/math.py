"""Functions of elements. Those of one float take float32 or float64: cast 16-bit values first."""

from __future__ import annotations

from enum import Enum
from typing import Any, TypeVar

from tawa.language.stub import builtin

T = TypeVar("T")  # what comes in comes out: a tensor, in a kernel


class PropagateNan(Enum):
    """Whether a minimum or maximum with a NaN is the other operand (NONE) or NaN (ALL)."""

    NONE = 0
    ALL = 0xFFFF


@builtin
def add(x: Any, y: Any, sanitize_overflow: bool = True) -> Any:
    """Add, as ``x + y``."""
    ...


@builtin
def sub(x: Any, y: Any, sanitize_overflow: bool = True) -> Any:
    """Subtract, as ``x - y``."""
    ...


@builtin
def mul(x: Any, y: Any, sanitize_overflow: bool = True) -> Any:
    """Multiply, as ``x * y``."""
    ...


@builtin
def minimum(x: Any, y: Any, propagate_nan: PropagateNan = PropagateNan.NONE) -> Any:
    """Take the smaller of two elements."""
    ...


@builtin
def maximum(x: Any, y: Any, propagate_nan: PropagateNan = PropagateNan.NONE) -> Any:
    """Take the larger of two elements."""
    ...


@builtin
def clamp(x: T, min: Any, max: Any, propagate_nan: PropagateNan = PropagateNan.NONE) -> T:
    """Bring `x` into the range from `min` to `max`."""
    ...


@builtin
def cdiv(x: Any, div: Any) -> Any:
    """Divide integers and round up: ``(x + div - 1) // div``."""
    ...


@builtin
def abs(x: T) -> T:
    """Take the absolute value."""
    ...


@builtin
def exp(x: T) -> T:
    """Compute e to the power of x."""
    ...


@builtin
def exp2(x: T) -> T:
    """Compute 2 to the power of x."""
    ...


@builtin
def log(x: T) -> T:
    """Compute the natural logarithm."""
    ...


@builtin
def log2(x: T) -> T:
    """Compute the logarithm to base 2."""
    ...


@builtin
def sin(x: T) -> T:
    """Compute the sine."""
    ...


@builtin
def cos(x: T) -> T:
    """Compute the cosine."""
    ...


@builtin
def erf(x: T) -> T:
    """Compute the error function."""
    ...


@builtin
def sqrt(x: T) -> T:
    """Compute the square root, fast."""
    ...


@builtin
def sqrt_rn(x: T) -> T:
    """Compute the square root of float32, rounded to nearest."""
    ...


@builtin
def rsqrt(x: T) -> T:
    """Compute one over the square root."""
    ...


@builtin
def floor(x: T) -> T:
    """Round down to a whole number."""
    ...


@builtin
def ceil(x: T) -> T:
    """Round up to a whole number."""
    ...


@builtin
def sigmoid(x: T) -> T:
    """Compute ``1 / (1 + exp(-x))``."""
    ...


@builtin
def softmax(
    x: T, dim: int | None = None, keep_dims: bool = False, ieee_rounding: bool = False
) -> T:
    """Compute the softmax along `dim` (0 unless given)."""
    ...


@builtin
def fma(x: T, y: Any, z: Any) -> T:
    """Compute ``x * y + z``, rounded once."""
    ...


@builtin
def fdiv(x: T, y: Any, ieee_rounding: bool = False, approx: bool = False) -> T:
    """Divide floats, fast (2 units in the last place); with `ieee_rounding` to nearest."""
    ...


@builtin
def div_rn(x: T, y: Any) -> T:
    """Divide float32, rounded to nearest."""
    ...


@builtin
def umulhi(x: T, y: Any) -> T:
    """Give the high half of the product of two integers read as unsigned."""
    ...
