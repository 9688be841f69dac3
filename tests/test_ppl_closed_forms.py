"""Posteriors that are known: conjugate models, enumeration, forward algorithm, Kalman filter."""

from __future__ import annotations

import json
import math
import random
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import ppl_models as models
from tawa import ppl

DATA = np.array([0.8, 1.9, 0.4, 1.2, 1.6])
COUNTS = np.array([3, 1, 4, 2, 2])
FLIPS = np.array([1, 0, 1, 1, 0, 1, 1])


@ppl.model
def normal_mean(y):
    x = ppl.sample(ppl.Normal(0.5, 2.0))
    ppl.map(lambda v: ppl.observe(ppl.Normal(x, 1.5), v), y)
    return x


@ppl.model
def normal_precision(y):
    x = ppl.sample(ppl.Gamma(3.0, 2.0))
    ppl.map(lambda v: ppl.observe(ppl.Normal(1.0, 1.0 / ppl.sqrt(x)), v), y)
    return x


@ppl.model
def normal_variance(y):
    x = ppl.sample(ppl.InverseGamma(4.0, 2.0))
    for v in y:
        ppl.observe(ppl.Normal(1.0, ppl.sqrt(x)), v)
    return x


@ppl.model
def poisson_rate(y):
    x = ppl.sample(ppl.Gamma(2.0, 0.5))
    for v in y:
        ppl.observe(ppl.Poisson(x), v)
    return x


@ppl.model
def exponential_rate(y):
    x = ppl.sample(ppl.Gamma(2.0, 1.0))
    for v in y:
        ppl.observe(ppl.Exponential(x), v)
    return x


@ppl.model
def coin(y):
    x = ppl.sample(ppl.Beta(2.0, 3.0))
    for v in y:
        ppl.observe(ppl.Bernoulli(x), v)
    return x


@ppl.model
def binomial(y):
    x = ppl.sample(ppl.Beta(2.0, 3.0))
    for v in y:
        ppl.observe(ppl.Binomial(10, x), v)
    return x


@ppl.model
def geometric(y):
    x = ppl.sample(ppl.Beta(2.0, 3.0))
    for v in y:
        ppl.observe(ppl.Geometric(x), v)
    return x


@ppl.model
def negative_binomial(y):
    x = ppl.sample(ppl.Beta(3.0, 2.0))
    for v in y:
        ppl.observe(ppl.NegativeBinomial(4.0, x), v)
    return x


@ppl.model
def pareto_shape(y):
    x = ppl.sample(ppl.Gamma(2.0, 1.0))
    for v in y:
        ppl.observe(ppl.Pareto(0.2, x), v)
    return x


@ppl.model
def weibull_scale(y):
    # Of shape 2: the inverse square of the scale has a gamma prior.
    x = ppl.sample(ppl.Gamma(3.0, 2.0))
    for v in y:
        ppl.observe(ppl.Weibull(2.0, 1.0 / ppl.sqrt(x)), v)
    return x


@ppl.model
def inverse_gamma_scale(y):
    x = ppl.sample(ppl.Gamma(2.0, 2.0))
    for v in y:
        ppl.observe(ppl.InverseGamma(2.5, x), v)
    return x


@ppl.model
def lognormal_mean(y):
    x = ppl.sample(ppl.Normal(0.5, 2.0))
    for v in y:
        ppl.observe(ppl.LogNormal(x, 1.5), v)
    return x


@ppl.model
def uniform_bound(y):
    x = ppl.sample(ppl.Pareto(2.0, 3.0))
    for v in y:
        ppl.observe(ppl.Uniform(0.0, x), v)
    return x


@ppl.model
def shares(y):
    x = ppl.sample(ppl.Dirichlet([1.0, 2.0, 3.0, 1.5, 2.5]))
    for v in y:
        ppl.observe(ppl.Categorical(x), v)
    return x[2]


@ppl.model
def chi_squared_precision(y):
    x = ppl.sample(ppl.ChiSquared(4.0))
    for v in y:
        ppl.observe(ppl.Normal(1.0, 1.0 / ppl.sqrt(x)), v)
    return x


@ppl.model
def gamma_rate(y):
    x = ppl.sample(ppl.Gamma(2.0, 1.0))
    for v in y:
        ppl.observe(ppl.Gamma(2.5, x), v)
    return x


@ppl.model
def vector_mean(y):
    x = ppl.sample(ppl.MultivariateNormal([0.5, 0.5], scale_tril=[[2.0, 0.0], [1.2, 1.6]]))
    for v in y:
        ppl.observe(ppl.Normal(x[1], 1.5), v)
    return x[1]


@ppl.model
def exponential_prior(y):
    x = ppl.sample(ppl.Exponential(2.0))
    for v in y:
        ppl.observe(ppl.Poisson(x), v)
    return x


@ppl.model
def lognormal_median(y):
    x = ppl.sample(ppl.LogNormal(0.5, 2.0))
    for v in y:
        ppl.observe(ppl.LogNormal(ppl.log(x), 1.5), v)
    return ppl.log(x)


def gaussian(values, spread=1.5):
    precision = 1 / 4 + len(values) / spread**2
    return (0.5 / 4 + values.sum() / spread**2) / precision, 1 / precision


def gamma(a, b):
    return a / b, a / b**2


def beta(a, b):
    return a / (a + b), a * b / (a + b) ** 2 / (a + b + 1)


SQUARES = float(((DATA - 1) ** 2).sum())
A = 4.0 + 2.5
B = 2.0 + SQUARES / 2
CONJUGATE = [
    (normal_mean, DATA, gaussian(DATA)),
    (normal_precision, DATA, gamma(3 + 2.5, 2 + SQUARES / 2)),
    (normal_variance, DATA, (B / (A - 1), B**2 / (A - 1) ** 2 / (A - 2))),
    (poisson_rate, COUNTS, gamma(2 + COUNTS.sum(), 0.5 + 5)),
    (exponential_rate, DATA, gamma(2 + 5, 1 + DATA.sum())),
    (coin, FLIPS, beta(2 + 5, 3 + 2)),
    (binomial, COUNTS, beta(2 + COUNTS.sum(), 3 + 50 - COUNTS.sum())),
    (geometric, COUNTS, beta(2 + 5, 3 + COUNTS.sum())),
    (negative_binomial, COUNTS, beta(3 + 20, 2 + COUNTS.sum())),
    (pareto_shape, DATA, gamma(2 + 5, 1 + np.log(DATA / 0.2).sum())),
    (weibull_scale, DATA, gamma(3 + 5, 2 + (DATA**2).sum())),
    (inverse_gamma_scale, DATA, gamma(2 + 12.5, 2 + (1 / DATA).sum())),
    (lognormal_mean, DATA, gaussian(np.log(DATA))),
    (uniform_bound, DATA, (8 * 2 / 7, 8 * 4 / 49 / 6)),
    (shares, COUNTS, beta(3 + 2, 10 + 5 - 5)),
    (chi_squared_precision, DATA, gamma(2 + 2.5, 0.5 + SQUARES / 2)),
    (gamma_rate, DATA, gamma(2 + 12.5, 1 + DATA.sum())),
    (vector_mean, DATA, gaussian(DATA)),
    (exponential_prior, COUNTS, gamma(1 + COUNTS.sum(), 2 + 5)),
    (lognormal_median, DATA, gaussian(np.log(DATA))),
]
assert len(CONJUGATE) == 20
METHODS = {
    "importance": {"draws": 60_000},
    "mh": {"chains": 40, "draws": 1000, "warmup": 50, "thin": 3},
    "smc": {"particles": 60_000},
    "hmc": {"chains": 40, "draws": 500, "warmup": 300, "steps": 8},
    "nuts": {"chains": 40, "draws": 500, "warmup": 300},
}


@pytest.mark.parametrize(
    ("number", "method"),
    [
        pytest.param(k, m, marks=[] if (k + j) % 5 == 0 else [pytest.mark.long])
        for k in range(len(CONJUGATE))
        for j, m in enumerate(METHODS)
    ],
)
def test_conjugate(number, method):
    model, data, (mean, variance) = CONJUGATE[number]
    post = ppl.infer(model, data, method=method, seed=5, **METHODS[method])
    draws = post.value.astype(float)
    if method in ("importance", "smc"):
        size = float(np.min(post.statistics["effective"])) / 2
    else:
        size = float(np.min(post.ess("x")))
        assert post.rhat() < 1.02
    assert size > 1000
    assert abs(draws.mean() - mean) < 4 * math.sqrt(variance / size)
    assert abs(draws.var() / variance - 1) < 4 * math.sqrt(8 / size)


def test_evidence_of_a_conjugate_model():
    precision = 1 / 4 + 5 / 1.5**2
    mean, _ = gaussian(DATA)
    exponent = (0.25 / 4 + (DATA**2).sum() / 1.5**2 - mean**2 * precision) / 2
    want = -2.5 * math.log(2 * math.pi * 1.5**2) - 0.5 * math.log(4 * precision) - exponent
    for method in ("importance", "smc"):
        found = [
            ppl.infer(normal_mean, DATA, method=method, seed=s, **METHODS[method]).log_evidence
            for s in range(6)
        ]
        error = max(np.std(found) / math.sqrt(6), 1e-3)
        assert abs(np.mean(found) - want) < 4 * error


def forward(ys, transition, emission):
    alpha, log = np.array([0.5, 0.5]), 0.0
    for y in ys:
        alpha = alpha @ transition * emission[:, y]
        log += math.log(alpha.sum())
        alpha /= alpha.sum()
    return alpha, log


def filtered(ys):
    mean, variance, log = 0.0, 1.0, 0.0
    for y in ys:
        mean, variance = 0.9 * mean, 0.81 * variance + 0.25
        s = variance + 1.0
        log += -0.5 * math.log(2 * math.pi * s) - 0.5 * (y - mean) ** 2 / s
        gain = variance / s
        mean, variance = mean + gain * (y - mean), variance * (1 - gain)
    return mean, variance, log


def test_hmm_against_the_forward_algorithm():
    given = (models.EMISSIONS, models.TRANSITION, models.EMISSION)
    alpha, log = forward(*given)
    found = [
        ppl.infer(models.hmm, *given, method="smc", particles=20_000, seed=s) for s in range(8)
    ]
    states = np.array([post.value.mean() for post in found])
    logs = np.array([post.log_evidence for post in found])
    assert abs(states.mean() - alpha[1]) < 4 * states.std() / math.sqrt(7)
    assert abs(logs.mean() - log) < 4 * logs.std() / math.sqrt(7) + 1e-4


def test_linear_gaussian_states_against_kalman():
    mean, variance, log = filtered(models.SERIES)
    found = [
        ppl.infer(models.kalman, models.SERIES, method="smc", particles=20_000, seed=s)
        for s in range(8)
    ]
    means = np.array([post.value.mean() for post in found])
    logs = np.array([post.log_evidence for post in found])
    assert abs(means.mean() - mean) < 4 * means.std() / math.sqrt(7)
    assert abs(logs.mean() - log) < 4 * logs.std() / math.sqrt(7) + 1e-4
    post = ppl.infer(models.kalman, models.SERIES, method="nuts", chains=32, draws=500, seed=1)
    assert abs(post.value.mean() - mean) < 4 * math.sqrt(variance / post.ess("x_2").min())


def test_birth_death_against_its_distribution():
    """Kendall 1948: P(0) and the geometric tail of a linear birth-death process."""
    time, birth, death = 2.0, 0.6, 0.3
    e = math.exp((birth - death) * time)
    a = death * (e - 1) / (birth * e - death)
    b = birth * (e - 1) / (birth * e - death)
    n = 200_000
    post = ppl.infer(
        models.birth_death, time, birth, death, method="importance", draws=n, stack=1000, seed=4
    )
    counts = np.bincount(post.value.ravel(), minlength=8)[:8] / n
    want = np.array([a] + [(1 - a) * (1 - b) * b ** (k - 1) for k in range(1, 8)])
    assert np.all(np.abs(counts - want) < 4 * np.sqrt(want * (1 - want) / n))


def random_program(number: int):
    """Return the source of a finite program and what computes its distribution by enumeration."""
    choose = random.Random(number)
    lines: list[str] = []
    names: list[str] = []

    def chance():
        if names and choose.random() < 0.7:
            a, b = choose.choice(names), choose.choice(names)
            low, high = round(choose.uniform(0.1, 0.9), 2), round(choose.uniform(0.1, 0.9), 2)
            return f"({low} if {a} + {b} > {choose.randint(0, 2)} else {high})"
        return str(round(choose.uniform(0.1, 0.9), 2))

    def block(indent: str, depth: int, inside: bool) -> None:
        for _ in range(choose.randint(1, 3)):
            kind = choose.random()
            if kind < 0.45 and not inside:
                name = f"v{len(names)}"
                lines.append(f"{indent}{name} = 0 + ppl.sample(ppl.Bernoulli({chance()}))")
                names.append(name)
            elif kind < 0.6 and names and depth < 2:
                lines.append(f"{indent}if {choose.choice(names)} == {choose.randint(0, 1)}:")
                target = choose.choice(names)
                lines.append(f"{indent}    {target} = 1 - {target}")
                lines.append(f"{indent}    if ppl.sample(ppl.Bernoulli({chance()})):")
                lines.append(f"{indent}        {target} = {target} + 1")
                block(indent + "    ", depth + 1, True)
            elif names:
                lines.append(
                    f"{indent}ppl.observe(ppl.Bernoulli({chance()}), {choose.choice(names)} == 1)"
                )

    while len(names) < 2:
        block("    ", 0, False)
    lines.append("    return " + " + ".join(f"{2**k} * {n}" for k, n in enumerate(names)))
    return "def program():\n" + "\n".join(lines)


class Enumeration:
    """Runs a program's Python text on every sequence of choices."""

    def __init__(self, text: str) -> None:
        self.code = compile(text, "program", "exec")

    def distribution(self):
        found: dict[int, float] = {}
        waiting: list[tuple[int, ...]] = [()]
        while waiting:
            script = waiting.pop()
            weight, seen = [1.0], [0]

            def sample(p, script=script, weight=weight, seen=seen):
                at = seen[0]
                seen[0] += 1
                if at == len(script):
                    raise IndexError
                weight[0] *= p if script[at] else 1 - p
                return script[at]

            def observe(p, value, weight=weight):
                weight[0] *= p if value else 1 - p

            words = type("ppl", (), {})
            words.sample, words.observe, words.Bernoulli = sample, observe, staticmethod(float)
            scope = {"ppl": words}
            exec(self.code, scope)
            try:
                value = scope["program"]()
            except IndexError:
                waiting += [(*script, 0), (*script, 1)]
                continue
            found[value] = found.get(value, 0.0) + weight[0]
        return found


def check_program(number: int, tmp_path: Path, method: str) -> None:
    text = random_program(number)
    path = tmp_path / f"program{number}.py"
    path.write_text("from tawa import ppl\n\n\n" + text)
    scope: dict = {"__name__": f"program{number}"}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    masses = Enumeration(text).distribution()
    total = sum(masses.values())
    n = 20_000
    options = {"draws": n} if method == "importance" else {"particles": n}
    post = ppl.infer(ppl.model(scope["program"]), method=method, seed=number, **options)
    size = float(np.min(post.statistics["effective"])) / 3
    assert abs(post.log_evidence - math.log(total)) < 6 / math.sqrt(size)
    values, seen = np.unique(post.value, return_counts=True)
    counts = dict.fromkeys(masses, 0.0) | dict(zip(values.tolist(), (seen / n).tolist()))
    assert counts.keys() == masses.keys()
    for value, mass in masses.items():
        p = mass / total
        assert abs(counts[value] - p) < 5 * math.sqrt(p * (1 - p) / size) + 1e-9, (value, text)


@pytest.mark.parametrize("number", range(12))
def test_random_finite_programs_against_enumeration(number, tmp_path):
    check_program(number, tmp_path, ("importance", "smc")[number % 2])


@pytest.mark.long
@pytest.mark.parametrize("number", range(12, 1000))
def test_more_random_finite_programs(number, tmp_path):
    check_program(number, tmp_path, ("importance", "smc")[number % 2])


@pytest.mark.parametrize("method", ["nuts", "hmc"])
@pytest.mark.short("nuts")
def test_eight_schools_of_posteriordb(method):
    path = Path(__file__).parent / "data" / "posteriordb_reference.json"
    stored = json.loads(path.read_text())["eight_schools-eight_schools_noncentered"]
    post = ppl.infer(
        models.schools,
        models.Y,
        models.SIGMA,
        method=method,
        chains=64,
        draws=800,
        warmup=500,
        seed=2,
    )
    assert post.rhat() < 1.01
    for name, (mean, deviation, size) in stored.items():
        plain, _, index = name.rstrip("]").partition("[")
        draws = post[plain][:, :, int(index) - 1] if index else post[plain]
        ess = post.ess(plain)[int(index) - 1] if index else post.ess(plain)
        assert ess > 4000
        error = deviation * math.sqrt(1 / ess + 1 / size)
        assert abs(draws.mean() - mean) < 4 * error, name
        assert abs(draws.std() / deviation - 1) < 0.1, name


def unlikeness_of_ranks(method, model, draw, runs):
    """Simulation-based calibration (Talts et al. 2018): chi-square of 8 bins of ranks.

    `draw` gives the truth of what the model returns, and data drawn with it.
    """
    rng = np.random.default_rng(0)
    bins, size = 8, 31
    counts = np.zeros(bins)
    infer = partial(ppl.infer, model, method=method)
    if method == "nuts":
        draws_of = partial(infer, chains=1, draws=size, thin=4, warmup=100)
    elif method == "mh":
        draws_of = partial(infer, chains=1, draws=size, thin=60, warmup=300)
    else:
        draws_of = partial(infer, particles=2000)
    for run in range(runs):
        truth, data = draw(rng)
        draws = draws_of(data, seed=run, threads=1).value.ravel()
        draws = draws if method != "smc" else rng.choice(draws, size)
        counts[int(np.sum(draws < truth)) * bins // (size + 1)] += 1
    return float(((counts - runs / bins) ** 2 / (runs / bins)).sum())


BOUND = 29.9  # a chi-square of 7 degrees of freedom is above it once in 10,000 times


def _from(prior, likelihood):
    def draw(rng):
        truth = prior(rng)
        return truth, likelihood(rng, truth)

    return draw


@ppl.model
def ordered_pair(y):
    x = ppl.sample(ppl.OrderedNormal(2, 0.5, 2.0))
    ppl.map(lambda m, v: ppl.observe(ppl.Normal(m, 1.5), v), x, y)
    return x[0]


@ppl.model
def correlated_pairs(y):
    factor = ppl.sample(ppl.LKJCholesky(2, 1.5))
    ppl.map(lambda row: ppl.observe(ppl.MultivariateNormal([0.0, 0.0], scale_tril=factor), row), y)
    return factor[1, 0]


def draw_ordered_pair(rng):
    x = np.sort(rng.normal(0.5, 2.0, 2))
    return x[0], rng.normal(x, 1.5)


def draw_correlated_pairs(rng):
    r = 2 * rng.beta(1.5, 1.5) - 1
    return r, rng.multivariate_normal([0, 0], [[1, r], [r, 1]], 6)


CALIBRATED = [
    (normal_mean, _from(lambda r: r.normal(0.5, 2.0), lambda r, x: r.normal(x, 1.5, 5))),
    (normal_precision, _from(lambda r: r.gamma(3, 1 / 2), lambda r, x: r.normal(1, x**-0.5, 5))),
    (normal_variance, _from(lambda r: 2 / r.gamma(4), lambda r, x: r.normal(1, x**0.5, 5))),
    (poisson_rate, _from(lambda r: r.gamma(2, 2), lambda r, x: r.poisson(x, 5))),
    (exponential_rate, _from(lambda r: r.gamma(2), lambda r, x: r.exponential(1 / x, 5))),
    (coin, _from(lambda r: r.beta(2, 3), lambda r, x: r.binomial(1, x, 7))),
    (binomial, _from(lambda r: r.beta(2, 3), lambda r, x: r.binomial(10, x, 5))),
    (geometric, _from(lambda r: r.beta(2, 3), lambda r, x: r.geometric(x, 5) - 1)),
    (pareto_shape, _from(lambda r: r.gamma(2), lambda r, x: 0.2 * (1 + r.pareto(x, 5)))),
    (lognormal_mean, _from(lambda r: r.normal(0.5, 2), lambda r, x: r.lognormal(x, 1.5, 5))),
    (ordered_pair, draw_ordered_pair),
    (correlated_pairs, draw_correlated_pairs),
]


@pytest.mark.long
@pytest.mark.parametrize("method", ["nuts", "mh", "smc"])
@pytest.mark.parametrize("number", range(len(CALIBRATED)))
def test_ranks_of_the_truth_are_uniform(method, number):
    assert unlikeness_of_ranks(method, *CALIBRATED[number], runs=320) < BOUND


def test_ranks_of_the_truth_are_uniform_in_a_few_runs():
    assert unlikeness_of_ranks("nuts", *CALIBRATED[0], runs=200) < BOUND


@pytest.mark.parametrize(("bias", "spread"), [(0.0, 3.0), (0.0, 0.7), (0.7, 1.5)])
def test_ranks_show_a_model_that_is_not_that_of_the_data(bias, spread):
    """Noise twice as wide as the model's, half as wide, and data that are shifted."""
    draw = _from(lambda r: r.normal(0.5, 2.0), lambda r, x: r.normal(x + bias, spread, 5))
    assert unlikeness_of_ranks("nuts", normal_mean, draw, runs=200) > BOUND


@ppl.model
def vectors_in_branches(y):
    a = ppl.sample(ppl.Normal(0.0, 1.0))
    v = [a, 2.0 * a] if a > 0 else [0.5, a]
    w = ppl.map(lambda q: q * 2, v)
    for i in range(len(y)):
        v = [v[1], v[0] + w[i]]
        ppl.observe(ppl.Normal(v[0], 1.0), y[i])
    return v


@ppl.model
def recursion_over_data(xs):
    def go(i, total):
        if i >= len(xs):
            return total
        step = ppl.sample(ppl.Normal(xs[i], 1.0))
        ppl.observe(ppl.Normal(step, 1.0), 0.0)
        return go(i + 1, total + step)

    return go(0, 0.0)


def test_methods_agree_on_vectors_in_branches():
    """Against the integral over a on a grid."""
    y = np.array([0.3, 1.0])
    a = np.linspace(-8, 8, 20_001)
    v = np.where(a > 0, [a, 2 * a], [0.5 + 0 * a, a])
    w = 2 * v
    first, second = v[1], v[0] + w[0]
    log = -0.5 * a**2 - 0.5 * (y[0] - first) ** 2 - 0.5 * (y[1] - second) ** 2
    weight = np.exp(log - log.max())
    mean = float((a * weight).sum() / weight.sum())
    deviation = math.sqrt(float(((a - mean) ** 2 * weight).sum() / weight.sum()))
    for method, options in METHODS.items():
        post = ppl.infer(vectors_in_branches, y, method=method, seed=1, **options)
        draws = post["a"].astype(float)
        size = post.ess("a") if method in ("mh", "hmc", "nuts") else 15_000
        assert abs(draws.mean() - mean) < 4.5 * deviation / math.sqrt(size), method


def test_methods_agree_on_recursion_over_data():
    xs = np.array([0.3, 1.0, 0.2])
    for method in ("importance", "smc", "mh"):
        post = ppl.infer(recursion_over_data, xs, method=method, seed=1, **METHODS[method])
        size = 15_000 if method != "mh" else 3_000
        assert abs(post.value.mean() - xs.sum() / 2) < 4 * math.sqrt(1.5 / size), method
