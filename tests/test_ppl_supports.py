"""Ordered vectors and Cholesky factors of correlations: draws, densities, Jacobians."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, stats

from tawa import ppl
from tawa.errors import ModelError


@ppl.model
def ordered():
    return ppl.sample(ppl.OrderedNormal(3, 0.5, 2.0))


@ppl.model
def correlated(concentration):
    return ppl.sample(ppl.LKJCholesky(3, concentration))


def correlations(factors):
    return factors @ np.swapaxes(factors, -1, -2)


def jacobian(forward, z):
    """The log of the absolute determinant of a map of n numbers, by central differences."""
    step = 1e-6 * np.eye(len(z))
    slopes = [(forward(z + h) - forward(z - h)) / 2e-6 for h in step]
    return np.linalg.slogdet(np.array(slopes))[1]


def ordered_of(z):
    return np.cumsum([z[0], *np.exp(z[1:])])


def below_diagonal(z):
    """The free items of a factor of three variables, of partial correlations tanh(z)."""
    a, b, c = np.tanh(z)
    return np.array([a, b, c * math.sqrt(1 - b * b)])


def test_density_of_an_ordered_vector():
    z = np.array([0.3, -0.4, 0.9])
    with ppl.inspect(ordered) as stages:
        want = math.log(6) + stats.norm(0.5, 2.0).logpdf(ordered_of(z)).sum()
        assert stages.log_density(z) == pytest.approx(want + jacobian(ordered_of, z), abs=1e-8)


@pytest.mark.parametrize("concentration", [0.6, 1.0, 2.5])
def test_density_of_a_correlation(concentration):
    """The density of a correlation is a power of its determinant (Lewandowski and others 2009)."""
    z = np.array([0.3, -0.4, 0.9])
    with ppl.inspect(correlated, concentration) as stages:
        got = stages.log_density(z) - jacobian(below_diagonal, z)
    a, b, c = below_diagonal(z)
    last = math.sqrt(1 - b * b - c * c)
    second = math.sqrt(1 - a * a)
    # From the factor's items to correlations: the second of the last row is times `second`.
    determinant = (second * last) ** 2
    want = (concentration - 1) * math.log(determinant) + math.log(second)

    def mass(r, concentration):
        return (1 - r * r) ** (concentration - 1)

    # The partial correlations are independent: of a pair with none and with one before it.
    whole = [
        integrate.quad(mass, -1, 1, args=(concentration + more,))[0] for more in (0.5, 0.5, 0.0)
    ]
    assert got == pytest.approx(want - math.log(np.prod(whole)), abs=1e-7)


@pytest.mark.parametrize(("model", "given"), [(ordered, ()), (correlated, (1.7,))])
def test_gradients_are_central_differences(model, given):
    z = np.array([0.3, -0.8, 1.1])
    with ppl.inspect(model, *given) as stages:
        step = 1e-5 * np.eye(3)
        want = [(stages.log_density(z + h) - stages.log_density(z - h)) / 2e-5 for h in step]
        np.testing.assert_allclose(stages.gradient(z), want, rtol=2e-6, atol=2e-7)


def test_a_correlation_that_rounds_to_one_has_a_density():
    """Beta(1.5, 1.5) of (1 + tanh z) / 2: far out the log of its density falls by 3 a unit of z."""

    @ppl.model
    def pair():
        return ppl.sample(ppl.LKJCholesky(2, 1.5))

    with ppl.inspect(pair) as stages:
        for z in (-40.0, 40.0):  # tanh is 1
            want = math.log(16 / math.pi) - 3 * abs(z)
            assert stages.log_density([z]) == pytest.approx(want, abs=1e-9)
            np.testing.assert_allclose(stages.gradient([z]), [-math.copysign(3, z)], atol=1e-12)


@pytest.mark.parametrize("method", ["importance", "nuts"])
def test_ordered_numbers_are_those_of_a_sort(method):
    options = {"draws": 40_000} if method == "importance" else {"chains": 4, "draws": 1000}
    post = ppl.infer(ordered, method=method, seed=1, **options)
    x = post.value.reshape(-1, 3)
    assert (np.diff(x) > 0).all()
    want = np.sort(np.random.default_rng(0).normal(0.5, 2.0, (200_000, 3)))
    size = len(x) if method == "importance" else 1500  # effective draws of 4,000
    error = want.std(0) / math.sqrt(size)
    assert (abs(x.mean(0) - want.mean(0)) < 4.5 * error).all()
    np.testing.assert_allclose(x.std(0), want.std(0), rtol=0.08)


@pytest.mark.parametrize("method", ["importance", "nuts"])
def test_correlations_have_the_moments_of_their_distribution(method):
    """Each is 2 beta(a, a) - 1, of a = concentration + 1 / 2: its variance is 1 / (2a + 1)."""
    options = {"draws": 40_000} if method == "importance" else {"chains": 4, "draws": 1000}
    factors = ppl.infer(correlated, 2.0, method=method, seed=2, **options).value.reshape(-1, 3, 3)
    np.testing.assert_allclose(np.triu(factors, 1), 0.0)
    found = correlations(factors.astype(float))
    np.testing.assert_allclose(found[:, range(3), range(3)], 1.0, atol=1e-5)
    for i, j in ((1, 0), (2, 0), (2, 1)):
        r = found[:, i, j]
        assert abs(r.mean()) < 0.03
        assert r.var() == pytest.approx(1 / 6, rel=0.09)


@ppl.model
def wrong(size):
    return ppl.sample(ppl.LKJCholesky(size, 1.0))


@pytest.mark.parametrize("size", [1, True, 2.0])
def test_a_size_that_is_none_is_refused(size):
    with pytest.raises(ModelError, match="size of LKJCholesky is a whole number of 2 or more"):
        ppl.infer(wrong, size, method="importance")
