"""Functions of elements. Those of one float take float32 or float64: cast 16-bit values first."""

from __future__ import annotations

from enum import Enum
from typing import Any

from tawa.language.stub import builtin
from tawa.language.tensors import tensor


class PropagateNan(Enum):
    """Whether a minimum or maximum with a NaN is the other operand (NONE) or NaN (ALL)."""

    NONE = 0
    ALL = 0xFFFF


@builtin
def add(x: Any, y: Any, sanitize_overflow: bool = True) -> tensor:
    """Add, as ``x + y``."""
    ...


@builtin
def sub(x: Any, y: Any, sanitize_overflow: bool = True) -> tensor:
    """Subtract, as ``x - y``."""
    ...


@builtin
def mul(x: Any, y: Any, sanitize_overflow: bool = True) -> tensor:
    """Multiply, as ``x * y``."""
    ...


@builtin
def minimum(x: Any, y: Any, propagate_nan: PropagateNan = PropagateNan.NONE) -> tensor:
    """Take the smaller of two elements."""
    ...


@builtin
def maximum(x: Any, y: Any, propagate_nan: PropagateNan = PropagateNan.NONE) -> tensor:
    """Take the larger of two elements."""
    ...


@builtin
def clamp(x: tensor, min: Any, max: Any, propagate_nan: PropagateNan = PropagateNan.NONE) -> tensor:
    """Bring `x` into the range from `min` to `max`."""
    ...


@builtin
def cdiv(x: Any, div: Any) -> tensor:
    """Divide integers and round up: ``(x + div - 1) // div``."""
    ...


@builtin
def abs(x: tensor) -> tensor:
    """Take the absolute value."""
    ...


@builtin
def exp(x: tensor) -> tensor:
    """Compute e to the power of x."""
    ...


@builtin
def exp2(x: tensor) -> tensor:
    """Compute 2 to the power of x."""
    ...


@builtin
def log(x: tensor) -> tensor:
    """Compute the natural logarithm."""
    ...


@builtin
def log2(x: tensor) -> tensor:
    """Compute the logarithm to base 2."""
    ...


@builtin
def sin(x: tensor) -> tensor:
    """Compute the sine."""
    ...


@builtin
def cos(x: tensor) -> tensor:
    """Compute the cosine."""
    ...


@builtin
def erf(x: tensor) -> tensor:
    """Compute the error function."""
    ...


@builtin
def sqrt(x: tensor) -> tensor:
    """Compute the square root, fast."""
    ...


@builtin
def sqrt_rn(x: tensor) -> tensor:
    """Compute the square root of float32, rounded to nearest."""
    ...


@builtin
def rsqrt(x: tensor) -> tensor:
    """Compute one over the square root."""
    ...


@builtin
def floor(x: tensor) -> tensor:
    """Round down to a whole number."""
    ...


@builtin
def ceil(x: tensor) -> tensor:
    """Round up to a whole number."""
    ...


@builtin
def sigmoid(x: tensor) -> tensor:
    """Compute ``1 / (1 + exp(-x))``."""
    ...


@builtin
def softmax(
    x: tensor, dim: int | None = None, keep_dims: bool = False, ieee_rounding: bool = False
) -> tensor:
    """Compute the softmax along `dim` (0 unless given)."""
    ...


@builtin
def fma(x: tensor, y: tensor, z: tensor) -> tensor:
    """Compute ``x * y + z``, rounded once."""
    ...


@builtin
def fdiv(x: tensor, y: tensor, ieee_rounding: bool = False) -> tensor:
    """Divide floats, fast; with `ieee_rounding` to nearest."""
    ...


@builtin
def div_rn(x: tensor, y: tensor) -> tensor:
    """Divide float32, rounded to nearest."""
    ...


@builtin
def umulhi(x: tensor, y: tensor) -> tensor:
    """Give the high half of the product of two integers read as unsigned."""
    ...
