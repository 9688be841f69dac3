# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# (lambdas of the subset: what a parameter is, the model's compiler infers)
"""The distributions of vectors and matrices: draws and log densities in the subset.

A simplex, unit rows of a factor and its zeros are taken as they are given.
"""

from __future__ import annotations

from typing import Any

from tawa.ppl.frontend.family import Distribution
from tawa.ppl.frontend.surface import written
from tawa.ppl.frontend.words import cholesky, lgamma, log, log1p, put, select, solve_lower
from tawa.ppl.frontend.words import map as each
from tawa.ppl.frontend.words import reduce as fold
from tawa.ppl.frontend.words import repeat as times
from tawa.ppl.math import supports as on
from tawa.ppl.math.distributions import (
    HALF_LOG_TWO_PI,
    LOG_PI,
    at_normal,
    draw_beta,
    parameters,
    standard_gamma,
    standard_normal,
    when,
    xlogy,
)


def _dirichlet(x: Any, concentration: Any) -> Any:
    terms = each(lambda p, a: xlogy(a - 1.0, p) - lgamma(a), x, concentration)
    return sum(terms) + lgamma(sum(concentration))


def _draw_dirichlet(concentration: Any) -> Any:
    parts = each(lambda a: standard_gamma(a), concentration)
    total = sum(parts)
    return each(lambda part: part / total, parts)


def _multivariate_normal(x: Any, loc: Any, factor: Any) -> Any:
    u = solve_lower(factor, each(lambda a, b: a - b, x, loc))
    n = len(x)
    half_log_determinant = 0.0
    for i in range(n):
        half_log_determinant = half_log_determinant + log(factor[i, i])
    return -0.5 * fold(lambda t, v: t + v * v, u, 0.0) - half_log_determinant - n * HALF_LOG_TWO_PI


def _draw_multivariate_normal(loc: Any, factor: Any) -> Any:
    z = times(len(loc), lambda: standard_normal())
    step = factor @ z
    return each(lambda a, b: a + b, loc, step)


def ascending(x: Any) -> Any:
    """Whether each number of a vector is above the one before it."""
    rises = True
    for k in range(1, len(x)):
        rises = rises & (x[k - 1] < x[k])
    return rises


def _draw_ordered(size: Any, loc: Any, scale: Any) -> Any:
    x = each(lambda k: standard_normal(), size)
    ordered = x
    for i in range(len(x)):
        rank = 0
        for k in range(len(x)):
            before = (x[k] < x[i]) | ((x[k] == x[i]) & (k < i))
            rank = rank + select(before, 1, 0)
        ordered = put(ordered, rank, loc + scale * x[i])
    return ordered


def _ordered_normal(x: Any, size: Any, loc: Any, scale: Any) -> Any:
    total = lgamma(float(len(x)) + 1.0)
    for k in range(len(x)):
        total = total + at_normal((x[k] - loc) / scale) - log(scale)
    return when(ascending(x), total)


def _draw_lkj(size: Any, concentration: Any) -> Any:
    n = len(size)

    def drawn(i: Any, j: Any) -> Any:
        a = concentration + 0.5 * float(n - 2 - j)
        r = 2.0 * draw_beta(a, a) - 1.0
        return r, log1p(-r * r), 0.0

    factor, _ = on.partial(n, drawn)
    return factor


def _lkj(factor: Any, size: Any, concentration: Any) -> Any:
    n = len(size)
    total = float(n - 1) * lgamma(concentration + 0.5 * float(n - 1))
    inside = factor[0, 0] > 0.0
    for k in range(1, n):
        total = total - 0.5 * float(k) * LOG_PI - lgamma(concentration + 0.5 * float(n - 1 - k))
        inside = inside & (factor[k, k] > 0.0)
        diagonal = select(factor[k, k] > 0.0, factor[k, k], 1.0)
        total = total + (float(n - 1 - k) + 2.0 * (concentration - 1.0)) * log(diagonal)
    return when(inside, total)


def _vector(name: str, text: str, support: Any, draw: Any, density: Any) -> Distribution:
    def shape(*shapes: tuple[int, ...]) -> tuple[int, ...]:
        return shapes[0]

    return Distribution(name, parameters(text), "vector", support, draw, density, shape)


Dirichlet = _vector("Dirichlet", "concentration:vector", on.SIMPLEX, _draw_dirichlet, _dirichlet)
OrderedNormal = _vector(
    "OrderedNormal", "size:size loc:=0 scale:=1", on.ORDERED, _draw_ordered, _ordered_normal
)
LKJCholesky = Distribution(
    "LKJCholesky",
    parameters("size:size concentration:=1"),
    "matrix",
    on.CORRELATION,
    _draw_lkj,
    _lkj,
    lambda size, _: size * 2,
)
_MultivariateNormal = _vector(
    "MultivariateNormal",
    "loc:vector scale_tril:matrix",
    on.REALS,
    _draw_multivariate_normal,
    _multivariate_normal,
)


@written
def MultivariateNormal(  # noqa: N802 (a family, as its neighbours are)
    loc: Any, covariance_matrix: Any = None, scale_tril: Any = None
) -> Any:
    """A normal vector by its covariance, or by the Cholesky factor of it, as torch names them."""
    if (scale_tril is None) == (covariance_matrix is None):
        return None  # of both, as of none, there is no distribution
    return _MultivariateNormal(
        loc, cholesky(covariance_matrix) if scale_tril is None else scale_tril
    )
