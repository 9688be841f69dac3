"""Every distribution: its draws have the known moments, its density sums to one."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tawa import ppl

EULER = 0.5772156649015329
N = 40_000


def test_every_scalar_distribution_is_here():
    from tawa.ppl.frontend.family import Distribution
    from tawa.ppl.math import distributions

    known = {n for n, f in vars(distributions).items() if isinstance(f, Distribution)}
    others = {"Categorical", "CategoricalLogits", "Flat", "HalfFlat"}
    assert known - others == {row[0] for row in ROWS}


# name, parameters, where the density is integrated, mean, variance (None: infinite)
ROWS = [
    ("Normal", (1.0, 2.0), (-12, 14), 1.0, 4.0),
    ("Cauchy", (0.5, 1.0), (-4000, 4000), None, None),
    ("Laplace", (0.5, 1.5), (-30, 31), 0.5, 4.5),
    ("Logistic", (0.5, 0.5), (-15, 16), 0.5, math.pi**2 / 12),
    ("Gumbel", (0.5, 0.5), (-4, 14), 0.5 + 0.5 * EULER, math.pi**2 / 24),
    ("StudentT", (5.0, 1.0, 2.0), (-60, 62), 1.0, 4.0 * 5 / 3),
    ("HalfNormal", (2.0,), (-3, 14), 2 * math.sqrt(2 / math.pi), 4 * (1 - 2 / math.pi)),
    ("HalfCauchy", (1.0,), (-3, 4000), None, None),
    ("HalfStudentT", (6.0, 1.0), (-1, 40), None, None),
    ("LogNormal", (0.0, 0.5), (-1, 20), math.exp(0.125), math.expm1(0.25) * math.exp(0.25)),
    ("Exponential", (0.5,), (-3, 40), 2.0, 4.0),
    ("Gamma", (2.5, 0.5), (-3, 50), 5.0, 10.0),
    ("Gamma", (0.5, 1.0), (-1, 15), 0.5, 0.5),
    ("InverseGamma", (4.0, 3.0), (-1, 40), 1.0, 0.5),
    ("ChiSquared", (3.0,), (-1, 40), 3.0, 6.0),
    ("Weibull", (2.0, 1.5), (-1, 10), 1.5 * math.gamma(1.5), 2.25 * (1 - math.gamma(1.5) ** 2)),
    ("Pareto", (1.0, 5.0), (0, 20), 1.25, 5 / (16 * 3)),
    ("Beta", (2.0, 3.0), (-1, 2), 0.4, 0.04),
    ("Uniform", (-1.0, 3.0), (-2, 4), 1.0, 16 / 12),
    ("Bernoulli", (0.3,), (0, 1), 0.3, 0.21),
    ("BernoulliLogit", (-1.0,), (0, 1), 1 / (1 + math.e), math.e / (1 + math.e) ** 2),
    ("Binomial", (50, 0.3), (-3, 53), 15.0, 10.5),
    ("Binomial", (5, 0.8), (-3, 8), 4.0, 0.8),
    ("Poisson", (3.5,), (-3, 30), 3.5, 3.5),
    ("Poisson", (60.0,), (-3, 150), 60.0, 60.0),
    ("Geometric", (0.3,), (-3, 60), 0.7 / 0.3, 0.7 / 0.09),
    ("NegativeBinomial", (4.0, 0.4), (-3, 60), 6.0, 15.0),
    ("DiscreteUniform", (2, 6), (0, 9), 4.0, 2.0),
]


def with_parameters(family, given):
    discrete = family.result in ("int", "bool")
    whole = discrete and family.name not in ("Bernoulli", "BernoulliLogit")
    count = len(given)
    first, second = given[0], given[1] if count > 1 else None
    third = given[2] if count > 2 else None

    @ppl.model
    def model(low, high):
        if count == 1:
            d = ppl.sample(family(first))
        elif count == 2:
            d = ppl.sample(family(first, second))
        else:
            d = ppl.sample(family(first, second, third))
        if discrete:
            x = ppl.sample(ppl.DiscreteUniform(low, high))
        else:
            x = ppl.sample(ppl.Uniform(float(low), float(high)))
        place = x if whole or not discrete else x == 1
        if count == 1:
            ppl.observe(family(first), place)
        elif count == 2:
            ppl.observe(family(first, second), place)
        else:
            ppl.observe(family(first, second, third), place)
        return d

    return model


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}{row[1]}")
def test_moments_and_mass(row):
    name, given, (low, high), mean, variance = row
    family = getattr(ppl, name)
    post = ppl.infer(
        with_parameters(family, given),
        low,
        high,
        method="importance",
        draws=N,
        seed=11,
        dtype="float64",
    )
    count = high - low + 1 if family.result in ("int", "bool") else high - low
    weights = np.exp(post.log_weights) * count
    error = weights.std() / math.sqrt(N)
    assert abs(weights.mean() - 1.0) < 4 * error + 2e-3
    draws = post.value.astype(float).ravel()
    if mean is not None:
        # Resampling by a weight that is independent of the draw leaves its distribution alone.
        size = post.statistics["effective"]
        assert abs(draws.mean() - mean) < 4.5 * math.sqrt(variance / size)
        assert abs(draws.var() / variance - 1.0) < 30 / math.sqrt(size)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_counts_have_their_probabilities(dtype):
    """Draws by search and by splitting, of rare and of frequent events; chi-square over counts."""

    @ppl.model
    def model(rate):
        some = ppl.sample(ppl.Binomial(40, 0.3))
        most = ppl.sample(ppl.Binomial(100, 0.97))
        split = ppl.sample(ppl.Binomial(300, 0.4))
        few, many = ppl.sample(ppl.Poisson(rate)), ppl.sample(ppl.Poisson(20.0 * rate))
        return some, most, split, few, many

    def binomial(n, p):
        return [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]

    def poisson(rate):
        return [math.exp(k * math.log(rate) - rate - math.lgamma(k + 1)) for k in range(200)]

    chances = [binomial(40, 0.3), binomial(100, 0.97), binomial(300, 0.4)]
    chances += [poisson(3.0), poisson(60.0)]
    options = {"method": "importance", "draws": N, "seed": 3, "dtype": dtype}
    for draws, chance in zip(ppl.infer(model, 3.0, **options).value, chances, strict=True):
        expected = N * np.array(chance)
        seen = np.bincount(draws[0], minlength=len(expected))
        assert len(seen) == len(expected)
        usual = expected > 10
        square = ((seen - expected)[usual] ** 2 / expected[usual]).sum()
        square += (seen[~usual].sum() - expected[~usual].sum()) ** 2 / expected[~usual].sum()
        freedom = usual.sum()
        assert square < freedom + 4.5 * math.sqrt(2 * freedom)


def test_categorical_and_dirichlet_and_multivariate():
    @ppl.model
    def model(weights, factor):
        k = ppl.sample(ppl.Categorical(weights))
        m = ppl.sample(ppl.CategoricalLogits(ppl.map(lambda w: ppl.log(w), weights)))
        p = ppl.sample(ppl.Dirichlet([1.0, 2.0, 5.0]))
        x = ppl.sample(ppl.MultivariateNormal([1.0, -1.0], scale_tril=factor))
        return k, m, p, x

    weights, factor = np.array([0.0, 0.3, 0.5, 0.2]), np.array([[1.0, 0.0], [0.5, 2.0]])
    post = ppl.infer(model, weights, factor, method="importance", draws=N, seed=2)
    k, m, p, x = (part[0] for part in post.value)
    for draws in (k, m):
        np.testing.assert_allclose(np.bincount(draws, minlength=4) / N, weights, atol=0.012)
    np.testing.assert_allclose(p.mean(axis=0), [1 / 8, 2 / 8, 5 / 8], atol=0.005)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-5)
    np.testing.assert_allclose(x.mean(axis=0), [1.0, -1.0], atol=0.05)
    np.testing.assert_allclose(np.cov(x.T), factor @ factor.T, atol=0.15)


def test_density_of_dirichlet_and_multivariate_normal():
    @ppl.model
    def model(p, x, factor):
        ppl.observe(ppl.Dirichlet([1.0, 2.0, 5.0]), p)
        ppl.observe(ppl.MultivariateNormal([1.0, -1.0], scale_tril=factor), x)

    p, x, factor = np.array([0.2, 0.3, 0.5]), np.array([0.3, 0.1]), np.array([[1.0, 0], [0.5, 2]])
    got = ppl.infer(model, p, x, factor, method="importance", draws=1, dtype="float64")
    beta = math.lgamma(1) + math.lgamma(2) + math.lgamma(5) - math.lgamma(8)
    want = math.log(0.3) + 4 * math.log(0.5) - beta
    covariance = factor @ factor.T
    d = x - [1.0, -1.0]
    want += -0.5 * d @ np.linalg.solve(covariance, d) - math.log(2 * math.pi)
    want -= 0.5 * math.log(np.linalg.det(covariance))
    assert got.log_evidence == pytest.approx(want, abs=1e-12)


@pytest.mark.parametrize("rate", [1e9, 1e10, 1e20, math.inf])
def test_counts_that_do_not_fit_are_the_largest_that_do(rate):
    """They were of either sign, and from 1e20 on drawn for ever."""

    @ppl.model
    def model(rate):
        return ppl.sample(ppl.Poisson(rate)), ppl.sample(ppl.NegativeBinomial(2.0, 1.0 / rate))

    count, other = ppl.infer(model, rate, method="importance", draws=20, seed=1).value
    np.testing.assert_allclose(count, min(rate, 2e9), rtol=1e-3)
    assert np.all((other >= 0) & (other <= 2.1e9))
