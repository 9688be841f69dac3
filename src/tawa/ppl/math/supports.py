"""Supports of distributions, and the smooth maps of the reals onto them with their log Jacobians."""

from __future__ import annotations

from typing import Any

from tawa.ppl.frontend.family import Support
from tawa.ppl.frontend.surface import exp, expm1, fma, log, log1p, put, select, sqrt
from tawa.ppl.frontend.surface import map as each
from tawa.ppl.frontend.surface import repeat as times


def log1pexp(x: Any) -> Any:
    """log(1 + exp(x)) without overflow."""
    return select(x > 0.0, x, 0.0) + log1p(exp(-abs(x)))


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    return 1.0 / (1.0 + exp(-x))


def to_real(z: Any, *parameters: Any) -> Any:
    """The identity."""
    return z, 0.0


def _real(z: Any) -> Any:
    return z, 0.0


def _positive(z: Any) -> Any:
    return exp(z), z


def _unit(z: Any) -> Any:
    return sigmoid(z), -log1pexp(z) - log1pexp(-z)


def _interval(z: Any, low: Any, high: Any) -> Any:
    width = high - low
    return fma(width, sigmoid(z), low), log(width) - log1pexp(z) - log1pexp(-z)


def _above(z: Any, low: Any) -> Any:
    return low + exp(z), z


def _simplex(z: Any) -> Any:
    # Stick breaking: z = 0 is the middle of the simplex.
    n = len(z)
    rest = 1.0
    jacobian = 0.0
    parts = times(n + 1, lambda: 0.0)
    for k in range(n):
        u = z[k] - log(float(n - k))
        share = sigmoid(u)
        jacobian = jacobian + log(rest) - log1pexp(u) - log1pexp(-u)
        parts = put(parts, k, rest * share)
        rest = rest * (1.0 - share)
    return put(parts, n, rest), jacobian


def _ordered(z: Any) -> Any:
    n = len(z)
    values = each(lambda item: item, z)
    jacobian = 0.0
    last = z[0]
    for k in range(1, n):
        last = last + exp(z[k])
        values = put(values, k, last)
        jacobian = jacobian + z[k]
    return values, jacobian


def tanh(x: Any) -> Any:
    """The hyperbolic tangent."""
    a = abs(x)
    e = expm1(-2.0 * a)
    t = -e / (e + 2.0)
    return select(x < 0.0, -t, t)


def _correlation(z: Any, size: Any) -> Any:
    # Canonical partial correlations tanh(z), row after row; each row has length one.
    n = len(size)
    factor = times(n, lambda: times(n, lambda: 0.0))
    factor = put(factor, 0, put(factor[0], 0, 1.0))
    jacobian = 0.0
    at = 0
    for i in range(1, n):
        row = times(n, lambda: 0.0)
        rest = 1.0
        for j in range(i):
            x = z[at]
            t = tanh(x)
            # The derivative of tanh is 1 - tanh**2, here from both tails without cancellation.
            slope = 1.3862943611198906 - 2.0 * (log1pexp(2.0 * x) - x)
            jacobian = jacobian + slope + 0.5 * log(rest)
            row = put(row, j, t * sqrt(rest))
            rest = rest * (1.0 - t * t)
            at = at + 1
        row = put(row, i, sqrt(rest))
        factor = put(factor, i, row)
    return factor, jacobian


REAL = Support("real", _real)
POSITIVE = Support("positive", _positive)
UNIT = Support("unit interval", _unit)
SIMPLEX = Support("simplex", _simplex, lambda shape: shape[0] - 1)
ORDERED = Support("ordered", _ordered, lambda shape: shape[0])
REALS = Support("real vector", _real, lambda shape: shape[0])
WHOLE = Support("whole numbers", None)


def _uniform_support(z: Any, low: Any, high: Any) -> Any:
    return _interval(z, low, high)


def _pareto_support(z: Any, scale: Any, shape: Any) -> Any:
    return _above(z, scale)


INTERVAL = Support("interval", _uniform_support)
ABOVE = Support("above the scale", _pareto_support)
CORRELATION = Support(
    "Cholesky factor of a correlation", _correlation, lambda shape: shape[0] * (shape[0] - 1) // 2
)
