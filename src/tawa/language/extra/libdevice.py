"""Device-library functions of float32 that the language has no other name for, and aliases."""

from __future__ import annotations

from typing import Any

from tawa.language.math import (
    abs,
    ceil,
    cos,
    div_rn,
    erf,
    exp,
    exp2,
    floor,
    fma,
    log,
    log2,
    rsqrt,
    sin,
    sqrt,
)
from tawa.language.stub import builtin
from tawa.language.tensors import tensor


@builtin
def tanh(arg0: tensor) -> tensor:
    """Compute the hyperbolic tangent."""
    ...


@builtin
def fmod(arg0: Any, arg1: Any) -> tensor:
    """Compute the remainder of a division of floats, with the sign of the dividend."""
    ...


__all__ = [
    "abs",
    "ceil",
    "cos",
    "div_rn",
    "erf",
    "exp",
    "exp2",
    "floor",
    "fma",
    "fmod",
    "log",
    "log2",
    "rsqrt",
    "sin",
    "sqrt",
    "tanh",
]
