"""pmmh and tempered, and what a posterior gives beyond draws."""

from __future__ import annotations

import math
import sys
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest

import ppl_models as models
import ppl_programs as programs
import test_ppl_closed_forms as closed
from tawa import ppl
from tawa.errors import GradientError, ModelError, WeightError
from tawa.ppl.infer.options import Options
from tawa.ppl.infer.smc import Filter
from tawa.ppl.infer.weights import Weights

SERIES = models.SERIES[:4]


def filtered(ys, a):
    """The log evidence of `states`, and the mean of its last state (Kalman)."""
    mean, variance, log = 0.0, 1.0, 0.0
    for y in ys:
        mean, variance = a * mean, a * a * variance + 0.25
        s = variance + 1.0
        log += -0.5 * math.log(2 * math.pi * s) - 0.5 * (y - mean) ** 2 / s
        gain = variance / s
        mean, variance = mean + gain * (y - mean), variance * (1 - gain)
    return log, mean


@ppl.model
def states(ys):
    a = ppl.sample(ppl.Uniform(0.0, 1.0))
    x = ppl.sample(ppl.Normal(0.0, 1.0))
    for y in ys:
        x = ppl.sample(ppl.Normal(a * x, 0.5))
        ppl.observe(ppl.Normal(x, 1.0), y)
    return x


def against_kalman(method, **options):
    grid = (np.arange(400) + 0.5) / 400
    logs, means = np.array([filtered(SERIES, a) for a in grid]).T
    weight = np.exp(logs - logs.max())
    weight /= weight.sum()
    mean = float((weight * grid).sum())
    deviation = math.sqrt(float((weight * (grid - mean) ** 2).sum()))
    post = ppl.infer(states, SERIES, method=method, seed=2, **options)
    size = post.ess("a") if method == "pmmh" else options["particles"] / 20
    assert size > 50
    draws = post["a"].astype(float)
    assert abs(draws.mean() - mean) < 4 * deviation / math.sqrt(size)
    assert abs(draws.std() / deviation - 1) < 4 / math.sqrt(size)
    assert abs(post.value.mean() - float((weight * means).sum())) < 4 * 0.55 / math.sqrt(size)
    return post, math.log(float(np.exp(logs - logs.max()).mean())) + logs.max()


def test_pmmh_against_kalman_on_a_grid():
    options = {"parameters": ("a",), "chains": 6, "particles": 20, "draws": 100, "warmup": 40}
    post, _ = against_kalman("pmmh", **options)
    assert np.all(post.statistics["accepted"] > 0.05)


def test_tempered_against_kalman_on_a_grid():
    post, evidence = against_kalman("tempered", particles=6000, steps=30, trace=8)
    assert abs(post.log_evidence - evidence) < 0.1
    assert post.statistics["heats"][-1] == 1.0


@pytest.mark.parametrize("number", [0, 3, 5])
@pytest.mark.short("3")
def test_tempered_on_conjugate_models(number):
    model, data, (mean, variance) = closed.CONJUGATE[number]
    post = ppl.infer(model, data, method="tempered", particles=6000, steps=10, trace=8, seed=5)
    draws, size = post.value.astype(float), 1500
    assert abs(draws.mean() - mean) < 4 * math.sqrt(variance / size)
    assert abs(draws.var() / variance - 1) < 4 * math.sqrt(8 / size)


@pytest.mark.parametrize(
    ("method", "model", "given", "options"),
    [
        (
            "pmmh",
            states,
            SERIES,
            {"parameters": ("a",), "chains": 2, "particles": 3, "draws": 2, "warmup": 1},
        ),
        ("tempered", closed.normal_mean, closed.DATA, {"particles": 4, "steps": 2, "trace": 8}),
    ],
)
def test_the_same_bits(method, model, given, options):
    runs = [
        ppl.infer(model, given, method=method, seed=4, **options, **where)
        for where in ({"device": "interpreter"}, {"threads": 2}, {"threads": 1, "cpu": "x86-64"})
    ]
    for other in runs[1:]:
        for name in runs[0].draws:
            np.testing.assert_array_equal(runs[0][name], other[name])
        np.testing.assert_array_equal(runs[0].value, other.value)


@ppl.model
def slope(x, y):
    """Intercept and slope at a place far from 0: all but a line in their plane is unlikely."""
    alpha = ppl.sample(ppl.Normal(0.0, 30.0))
    beta = ppl.sample(ppl.Normal(0.0, 3.0))
    for a, v in zip(x, y):
        ppl.observe(ppl.Normal(alpha + beta * a, 0.5), v)
    return alpha + 20.0 * beta


X = 20.0 + np.linspace(-1.0, 1.0, 12)


@pytest.mark.parametrize("method", ["hmc", "nuts"])
@pytest.mark.short("nuts")
def test_a_dense_mass_matrix_follows_correlations(method):
    """Means and deviations of the conjugate posterior, by steps ten times as long."""
    y = 1.0 + 0.4 * X + 0.1 * np.cos(7.0 * X)
    design = np.column_stack([np.ones_like(X), X])
    precision = design.T @ design / 0.25 + np.diag([1 / 900, 1 / 9])
    covariance = np.linalg.inv(precision)
    mean = covariance @ design.T @ y / 0.25
    options = {"method": method, "dtype": "float64", "chains": 8, "draws": 400, "warmup": 400}
    post = ppl.infer(slope, X, y, metric="dense", seed=3, **options)
    assert post.rhat() < 1.02
    for name, want, variance in zip(("alpha", "beta"), mean, covariance.diagonal(), strict=True):
        size = float(post.ess(name))
        assert size > 1000
        assert abs(post[name].mean() - want) < 4 * math.sqrt(variance / size)
        assert abs(post[name].var() / variance - 1) < 4 * math.sqrt(8 / size)
    plain = ppl.infer(slope, X, y, seed=3, **options).statistics["step_size"]
    assert post.statistics["step_size"].min() > 10 * plain.max()


@ppl.model
def nearly_one(scale):
    a = ppl.sample(ppl.Normal(0.0, 1.0))
    b = ppl.sample(ppl.Normal(0.0, 1.0))
    ppl.observe(ppl.Normal(a, scale), b)
    return a


def test_a_dense_mass_matrix_that_rounding_makes_singular_is_refused():
    options = {"metric": "dense", "chains": 2, "draws": 10, "warmup": 600, "seed": 1}
    with pytest.raises(GradientError, match="no Cholesky factor in") as caught:
        ppl.infer(nearly_one, 1e-4, dtype="float32", **options)
    assert 'dtype="float64"' in str(caught.value)
    assert ppl.infer(nearly_one, 1e-4, dtype="float64", **options).divergences == 0
    with pytest.raises(ModelError, match="metric='full' is not one of diagonal, dense"):
        ppl.infer(nearly_one, 1.0, metric="full")


def test_memory_of_smc_is_that_of_its_particles():
    """As for blackjax#929 and #1026: 100,000 particles, whatever the number of observations."""
    peaks: list[int] = []
    for length in (4, 40):
        ys = np.resize(models.SERIES, length)
        ppl.infer(models.kalman, ys, method="smc", particles=10)
        tracemalloc.start()
        ppl.infer(models.kalman, ys, method="smc", particles=100_000)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # The kept states are the result: 36 more of 4 bytes each, held twice at the end.
    assert peaks[0] < 200 * 100_000
    assert peaks[1] - peaks[0] < 3 * 36 * 4 * 100_000


def test_tempered_moves_programs_of_random_structure():
    """A sum that recursion made, given a noisy look at it: against many particles of the prior."""

    @ppl.model
    def grown(y):
        n = count(0.5)
        ppl.observe(ppl.Normal(n, 0.5), y)
        return n

    exact = np.array([0.5 ** (k + 1) * math.exp(-0.5 * ((k - 2.2) / 0.5) ** 2) for k in range(30)])
    exact /= exact.sum()
    post = ppl.infer(grown, 2.2, method="tempered", particles=6000, steps=20, stack=200, seed=1)
    found = np.bincount(post.value.ravel(), minlength=30)[:30] / 6000
    assert np.all(np.abs(found - exact) < 4 * np.sqrt(exact * (1 - exact) / 1500) + 1e-3)


def count(p):
    if ppl.sample(ppl.Bernoulli(p)):
        return 0
    return 1 + count(p)


@pytest.mark.parametrize(
    ("method", "option"),
    [("importance", "particles"), ("smc", "tiles"), ("smc", "draws"), ("nuts", "steps"),
     ("hmc", "depth"), ("tempered", "chains"), ("mh", "accept")],
)  # fmt: skip
def test_an_option_that_a_method_does_not_read_is_refused(method, option):
    with pytest.raises(ModelError, match=f"{option}= has no meaning for method='{method}'"):
        ppl.infer(states, SERIES, method=method, **{option: 4})


def test_pmmh_refuses_by_name():
    with pytest.raises(ModelError, match="pmmh needs parameters="):
        ppl.infer(states, models.SERIES, method="pmmh")
    with pytest.raises(ModelError, match="states has no site b"):
        ppl.infer(states, models.SERIES, method="pmmh", parameters=("a", "b"))
    given = (models.EMISSIONS, models.TRANSITION, models.EMISSION)
    with pytest.raises(GradientError, match="state is discrete"):
        ppl.infer(models.hmm, *given, method="pmmh", parameters=("state",))

    @ppl.model
    def impossible(y):
        a = ppl.sample(ppl.Uniform(0.0, 1.0))
        ppl.observe(ppl.Uniform(0.0, a), y)

    options = {"parameters": ("a",), "chains": 2, "particles": 4, "draws": 2, "warmup": 3}
    with pytest.raises(WeightError, match="no parameters of positive likelihood in 4 tries"):
        ppl.infer(impossible, 2.0, method="pmmh", **options)


def test_log_likelihood_is_that_of_each_observation():
    given = (models.Y, models.SIGMA)
    post = ppl.infer(models.schools, *given, chains=2, draws=50, warmup=100, seed=1)
    found = post.log_likelihood
    assert list(found) == ["observed"]
    u = (models.Y - post["theta"]) / models.SIGMA
    want = -0.5 * u**2 - np.log(models.SIGMA) - 0.5 * math.log(2 * math.pi)
    np.testing.assert_allclose(found["observed"], want, atol=3e-6)


def test_log_likelihood_of_discrete_sites_and_branches():
    @ppl.model
    def branched(y):
        k = ppl.sample(ppl.Bernoulli(0.5))
        x = ppl.sample(ppl.Normal(0.0, 1.0))
        if k:
            s = ppl.sample(ppl.Gamma(2.0, 1.0))
            ppl.observe(ppl.Normal(x, s), y, name="wide")
        ppl.observe(ppl.Normal(x, 1.0), 0.5)

    post = ppl.infer(branched, 1.0, method="mh", chains=2, draws=60, thin=5, seed=1)
    found = post.log_likelihood
    k, x, s = post["k"], post["x"], post["s"]
    assert 0 < k.mean() < 1
    np.testing.assert_array_equal(np.isnan(found["wide"]), ~k)
    want = -0.5 * ((1.0 - x) / s) ** 2 - np.log(s) - 0.5 * math.log(2 * math.pi)
    np.testing.assert_allclose(found["wide"][k], want[k], rtol=1e-5, atol=1e-5)


@ppl.model
def line(x, y):
    slope = ppl.sample(ppl.Normal(0.0, 2.0))
    ppl.map(lambda a, v: ppl.observe(ppl.Normal(slope * a, 0.5), v), x, y)
    return slope * x


def test_predict_draws_observations_for_other_data():
    x = np.array([0.5, 1.0, 2.0])
    post = ppl.infer(line, x, np.array([1.0, 2.1, 3.9]), chains=4, draws=2000, seed=1)
    new = np.array([3.0, -1.0])
    found = ppl.predict(line, post, new, np.zeros(2), seed=7)
    assert found["observed"].shape == (4, 2000, 2)
    np.testing.assert_allclose(found.value, post["slope"][..., None] * new, rtol=1e-6)
    spread = np.sqrt(0.25 + post["slope"].var() * new**2)
    mean = post["slope"].mean() * new
    assert np.all(np.abs(found["observed"].mean((0, 1)) - mean) < 4 * spread / math.sqrt(8000))
    assert np.all(np.abs(found["observed"].std((0, 1)) / spread - 1) < 0.04)
    again = ppl.predict(line, post, new, np.zeros(2), seed=7)
    np.testing.assert_array_equal(found["observed"], again["observed"])


def test_predict_refuses_by_name():
    given = (models.Y, models.SIGMA)
    post = ppl.infer(models.schools, *given, chains=2, draws=20, warmup=50, seed=1)
    with pytest.raises(ModelError, match=r"theta is float32\[8\] in the posterior and f32\[3\]"):
        ppl.predict(models.schools, post, models.Y[:3], models.SIGMA[:3])
    with pytest.raises(ModelError, match="line has no site of the posterior"):
        ppl.predict(line, post, models.Y, models.Y)
    born = ppl.infer(
        models.birth_death, 1.0, 0.6, 0.3, method="importance", draws=50, stack=400, seed=1
    )
    with pytest.raises(ModelError, match="wait has no kept draws"):
        _ = born.log_likelihood


@pytest.mark.parametrize(
    "options",
    [
        {"draws": -1}, {"draws": 0}, {"chains": 1.5}, {"warmup": -1}, {"threads": 0},
        {"steps": 0}, {"accept": 2.0}, {"step_size": -1.0}, {"step_size": "a"},
    ],
)  # fmt: skip
def test_numbers_that_options_cannot_be_are_named(options):
    (name,) = options
    with pytest.raises(ModelError, match=f"{name}=.* is not"):
        ppl.infer(states, SERIES, method="hmc", **options)


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_weights_are_added_up_and_chosen_among_by_groups(kind):
    """Three groups of several stretches: sums, evidence and choices against their definitions."""
    size, groups = 700, 3
    rng = np.random.default_rng(1)
    logs = rng.normal(0.0, 2.0, (groups, size)).astype(np.float32 if kind == "f32" else np.float64)
    logs[0, 5:9] = -np.inf, np.nan, -np.inf, np.nan
    logs[2] = -np.inf  # no weight at all: its lanes stay as they are
    exact = np.exp(np.where(np.isnan(logs), -np.inf, logs).astype(np.float64))
    with Weights(size, groups, kind, "cpu", {"logw": logs.reshape(1, -1)}) as weights:
        weighed = weights.weigh()
        means, effective = weighed.log_mean(), weighed.effective
        np.testing.assert_allclose(means[:2], np.log(exact[:2].mean(1)), rtol=1e-12)
        by_definition = exact[:2].sum(1) ** 2 / (exact[:2] ** 2).sum(1)
        np.testing.assert_allclose(effective[:2], by_definition, rtol=1e-6)
        assert means[2] == -np.inf
        assert effective[2] == 0.0
        weights.choose(weighed, 7, 3, np.array([True, False, True]))
        marks = np.arange(size) + weights.uniforms(7, 3)[0]
        chosen = weights.chosen.rows("chosen", 0, 1).reshape(groups, size)
    marks = marks / size * exact[0].sum()
    assert np.array_equal(chosen[0], np.searchsorted(np.cumsum(exact[0]), marks, side="right"))
    assert np.array_equal(chosen[1:].ravel(), np.arange(size, 3 * size))
    assert np.all(logs[0] == 0.0)
    assert np.all(logs[1] != 0.0)


def test_an_infinite_weight_is_all_the_weight():
    logs = np.array([[0.0, np.inf, 5.0, np.inf]])
    with Weights(4, 1, "f64", "cpu", {"logw": logs}) as weights:
        weighed = weights.weigh()
        assert weighed.effective[0] == 2.0
        assert weighed.log_mean()[0] == np.inf
        weights.choose(weighed, 0, 0, np.array([True]))
        assert weights.chosen.rows("chosen").tolist() == [[1, 1, 3, 3]]


@pytest.mark.parametrize(
    ("model", "given"), [(states, (SERIES,)), programs.PROGRAMS["survivors"][:2]]
)
def test_a_filter_that_runs_again_begins_anew(model, given):
    """What an earlier run left in the lanes changes nothing."""
    options = Options(particles=300, stack=400, draws=1)
    found = []
    for seeds in ((5,), (8, 5)):
        with Filter(model, given, options) as particles:
            end = [particles.run(seed) for seed in seeds][-1]
            found.append((end.log_evidence[0], end.kept[:, end.chosen]))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
    assert np.isfinite(found[0][0])


@pytest.mark.parametrize(
    "convert",
    [lambda posterior=None, prior=None: posterior, lambda data, *, name=None: data["posterior"]],
)
def test_draws_go_to_both_interfaces_of_arviz(convert, monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", SimpleNamespace(from_dict=convert))
    post = ppl.infer(states, SERIES, method="importance", draws=8)
    given = post.to_arviz()
    assert given.keys() == {"a", "x", "x_2"}
    np.testing.assert_array_equal(given["a"], post["a"])
