# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# (lambdas of the subset: what a parameter is, the model's compiler infers)
"""Supports of distributions, and the smooth maps of the reals onto them, with log Jacobians."""

from __future__ import annotations

from typing import Any

from tawa.ppl.frontend.family import Support
from tawa.ppl.frontend.words import exp, fma, log, log1p, put, select
from tawa.ppl.frontend.words import repeat as times


def log1pexp(x: Any) -> Any:
    """log(1 + exp(x)) without overflow."""
    return select(x > 0.0, x, 0.0) + log1p(exp(-abs(x)))


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    return 1.0 / (1.0 + exp(-x))


def _real(z: Any) -> Any:
    return z, 0.0


def _positive(z: Any) -> Any:
    return exp(z), z


def _unit(z: Any) -> Any:
    return sigmoid(z), -log1pexp(z) - log1pexp(-z)


def _interval(z: Any, low: Any, high: Any) -> Any:
    width = high - low
    return fma(width, sigmoid(z), low), log(width) - log1pexp(z) - log1pexp(-z)


def _above(z: Any, low: Any, shape: Any) -> Any:
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
    x = z
    jacobian = 0.0
    for k in range(1, len(z)):
        x = put(x, k, x[k - 1] + exp(z[k]))
        jacobian = jacobian + z[k]
    return x, jacobian


def partial(n: Any, correlation: Any) -> Any:
    """Return a Cholesky factor of a correlation, and the log Jacobian of the map to it.

    `correlation(i, j)` is the partial correlation of variables i > j given those before j, the log
    of 1 less its square, and the log of its derivative. Lewandowski, Kurowicka and Joe 2009.
    """
    factor = times(n, lambda: times(n, lambda: 0.0))
    jacobian = 0.0
    for i in range(n):
        row = factor[i]
        rest = 0.0  # the log of what is left of the row's length, squared
        for j in range(i):
            r, less, slope = correlation(i, j)
            row = put(row, j, r * exp(0.5 * rest))
            jacobian = jacobian + slope + 0.5 * rest
            rest = rest + less
        factor = put(factor, i, put(row, i, exp(0.5 * rest)))
    return factor, jacobian


def _correlation(z: Any, size: Any) -> Any:
    def tanh(i: Any, j: Any) -> Any:
        y = z[i * (i - 1) // 2 + j]
        less = 2.0 * (0.6931471805599453 - y - log1pexp(-2.0 * y))
        return 2.0 * sigmoid(2.0 * y) - 1.0, less, less

    return partial(len(size), tanh)


REAL = Support("real", _real)
POSITIVE = Support("positive", _positive)
UNIT = Support("unit interval", _unit)
SIMPLEX = Support("simplex", _simplex, lambda shape: shape[0] - 1)
REALS = Support("real vector", _real, lambda shape: shape[0])
WHOLE = Support("whole numbers", None)
INTERVAL = Support("interval", _interval)
ORDERED = Support("ordered vector", _ordered, lambda shape: shape[0])
CORRELATION = Support(
    "Cholesky factor of a correlation", _correlation, lambda shape: shape[0] * (shape[0] - 1) // 2
)
ABOVE = Support("above the scale", _above)
