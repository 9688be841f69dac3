"""Models that statisticians write, against exact answers or sums over a grid."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tawa import ppl

NUTS = {"method": "nuts", "chains": 8, "draws": 1000, "warmup": 500, "seed": 1}


def within(draws, want, spread, effective):
    """Whether means are as wanted, within four standard errors."""
    error = np.asarray(spread) / math.sqrt(effective)
    np.testing.assert_array_less(np.abs(np.asarray(draws) - want), 4 * error)


def test_counts_with_too_many_zeros():
    @ppl.model
    def inflated(y):
        share = ppl.sample(ppl.Beta(1.0, 1.0))
        rate = ppl.sample(ppl.Gamma(2.0, 1.0))
        for v in y:
            count = ppl.log1p(-share) + ppl.log_prob(ppl.Poisson(rate), v)
            if v == 0:
                ppl.factor(ppl.logsumexp([ppl.log(share), count]))
            else:
                ppl.factor(count)

    y = np.array([0, 0, 0, 0, 3, 0, 2, 0, 5, 1, 0, 0, 4, 0, 2])
    post = ppl.infer(inflated, y, **NUTS)
    share, rate = np.meshgrid(np.linspace(0.002, 0.998, 400), np.linspace(0.01, 9, 500))
    logp = np.log(rate) - rate
    for v in y:
        count = np.log1p(-share) + v * np.log(rate) - rate - math.lgamma(v + 1)
        logp += np.logaddexp(np.log(share), count) if v == 0 else count
    weight = np.exp(logp - logp.max())
    for name, grid in (("share", share), ("rate", rate)):
        mean = np.average(grid, weights=weight)
        spread = math.sqrt(np.average((grid - mean) ** 2, weights=weight))
        within(post[name].mean(), mean, spread, post.ess(name))


def test_survival_with_censored_times():
    @ppl.model
    def survival(time, died):
        rate = ppl.sample(ppl.Gamma(1.0, 1.0))
        for k in range(len(time)):
            if died[k]:
                ppl.observe(ppl.Exponential(rate), time[k])
            else:
                ppl.factor(-rate * time[k])

    time = np.array([1.2, 0.4, 2.0, 3.0, 0.9, 2.5])
    died = np.array([True, True, False, True, True, False])
    post = ppl.infer(survival, time, died, **NUTS)
    shape, scale = 1 + died.sum(), 1 + time.sum()
    within(post["rate"].mean(), shape / scale, math.sqrt(shape) / scale, post.ess("rate"))


@pytest.mark.parametrize(
    ("method", "options", "effective"),
    [
        ("importance", {"draws": 200_000}, 10_000),
        ("mh", {"chains": 16, "draws": 2000, "warmup": 500, "thin": 5}, 2000),
    ],
)
def test_where_a_rate_changes(method, options, effective):
    @ppl.model
    def change(y):
        at = ppl.sample(ppl.DiscreteUniform(1, 9))
        before = ppl.sample(ppl.Gamma(2.0, 1.0))
        after = ppl.sample(ppl.Gamma(2.0, 0.5))
        for k in range(len(y)):
            rate = before
            if k >= at:
                rate = after
            ppl.observe(ppl.Poisson(rate), y[k])

    y = np.array([1, 0, 2, 1, 1, 5, 6, 4, 7, 5])

    def part(values, rate):
        shape = 2 + values.sum()
        return 2 * math.log(rate) + math.lgamma(shape) - shape * math.log(len(values) + rate)

    logp = np.array([part(y[:k], 1.0) + part(y[k:], 0.5) for k in range(1, 10)])
    want = np.exp(logp - logp.max()) / np.exp(logp - logp.max()).sum()
    post = ppl.infer(change, y, method=method, seed=2, **options)
    found = np.array([(post["at"] == k).mean() for k in range(1, 10)])
    within(found, want, np.sqrt(want * (1 - want)) + 1e-4, effective)


@pytest.mark.parametrize(("method", "options"), [("smc", {"particles": 40_000}), ("nuts", {})])
def test_stochastic_volatility(method, options):
    """Beside the filter on a grid of the hidden state."""

    @ppl.model
    def volatility(y):
        h = 0.0
        for v in y:
            h = 0.9 * h + 0.5 * ppl.sample(ppl.Normal(0.0, 1.0), name="e")
            ppl.observe(ppl.Normal(0.0, ppl.exp(0.5 * h)), v)
        return h

    y = np.array([0.3, -1.0, 0.5, 2.0, -0.1, 0.2, -0.7, 1.1])
    h = np.linspace(-6, 6, 801)

    def normal(x, scale):
        return np.exp(-0.5 * (x / scale) ** 2) / (scale * math.sqrt(2 * math.pi))

    move = normal(h[:, None] - 0.9 * h, 0.5) * (h[1] - h[0])
    state, evidence = move[:, 400], 0.0
    for number, v in enumerate(y):
        state = (move @ state if number else state) * normal(v, np.exp(h / 2))
        evidence += math.log(state.sum())
        state = state / state.sum()
    mean = (state * h).sum()
    spread = math.sqrt((state * (h - mean) ** 2).sum())
    run = {**NUTS, **options} if method == "nuts" else {"method": method, "seed": 1, **options}
    post = ppl.infer(volatility, y, **run)
    within(post.value.mean(), mean, spread, 2000)
    if method == "smc":
        assert abs(post.log_evidence - evidence) < 0.03


def test_shares_of_counted_kinds():
    @ppl.model
    def kinds(y):
        p = ppl.sample(ppl.Dirichlet([1.0, 1.0, 1.0, 1.0]))
        ppl.factor(sum(y * ppl.log(p)))

    y = np.array([3.0, 0.0, 5.0, 2.0])
    post = ppl.infer(kinds, y, **NUTS)
    want = (y + 1) / (y.sum() + 4)
    spread = np.sqrt(want * (1 - want) / (y.sum() + 5))
    within(post["p"].mean((0, 1)), want, spread, 3000)
