"""Gradients against central differences, in float64."""

from __future__ import annotations

import re

import numpy as np
import pytest

import ppl_models as models
from tawa import ppl
from tawa.errors import GradientError, ModelError
from tawa.ppl.frontend.program import lower
from tawa.ppl.frontend.words import read, run, write
from tawa.ppl.infer.chains import differentiated
from tawa.ppl.infer.options import Options
from tawa.ppl.ir.core import walk

X = np.array([0.0, 0.5, 1.3])
CASES = {
    "schools": (models.schools, (models.Y, models.SIGMA)),
    "kalman": (models.kalman, (models.SERIES,)),
    "mixture": (models.mixture, (models.SERIES,)),
    "line": (models.line, (X, np.array([0.3, 1.0, 2.2]))),
    "garch": (models.garch, (models.SERIES,)),
    "process": (models.process, (X, np.array([0.3, 1.0, -0.2]))),
    "shares": (models.shares, (np.array([0, 2, 2, 1]),)),
    "branches": (models.branches, (0.7,)),
}


@ppl.model
def nested(matrix, y):
    b = ppl.map(lambda row: ppl.sample(ppl.Normal(0.0, 1.0)), matrix)
    total = 0.0
    for i, row in enumerate(matrix):
        inner = b[i]
        for x in row:
            inner = inner * 0.5 + ppl.exp(-x * b[0]) * inner
        total = total + inner
    state = [total, b[1]]
    for _ in range(3):
        state = [state[1] * 0.5 + state[0], ppl.log1p(ppl.exp(state[0]))]
    ppl.observe(ppl.Cauchy(state[0], 1.0 + state[1] ** 2), y)
    ppl.factor(-max(b) + min(b[0], 0.3) + ppl.sqrt(1.0 + b @ b))
    return total


@ppl.model
def matrices(a, y):
    b = ppl.map(lambda row: ppl.sample(ppl.Laplace(0.1, 1.0)), a)
    mean = a @ b
    rest = ppl.map(lambda m, v: v - m, mean, y)
    size = ppl.reduce(lambda t, r: t + r * r, rest, 0.0)
    ppl.factor(-0.5 * size)
    ppl.factor(-ppl.expm1(0.1 * sum(b)))
    columns = ppl.map(lambda r, m: (r, m * r), rest, mean)
    ppl.factor(ppl.reduce(lambda t, c: t + 0.1 * c[0] * c[1], columns, 0.0))
    return b


@ppl.model
def factors(a, y):
    """Elements of a factor of a matrix that is not symmetric: its lower half alone counts."""
    n = len(y)
    b = ppl.map(lambda v: ppl.sample(ppl.Normal(0.0, 1.0)), y)
    matrix = [[a[i, j] + 0.1 * b[i] * b[j] for j in range(n)] for i in range(n)]
    factor = ppl.cholesky(matrix)
    x = ppl.solve_lower(factor, ppl.map(lambda v, u: v - u * u, y, b))
    again = ppl.solve_lower(factor, y)
    ppl.factor(-(x @ x) + 0.3 * x[2] * factor[3, 1] - ppl.log(factor[4, 4]) + again[3])
    return b


FACTORS = np.tril(np.random.default_rng(5).normal(size=(6, 6)), -1) * 0.3 + 2.0 * np.eye(6)
CASES["factors"] = (factors, (FACTORS, np.linspace(-1.0, 1.0, 6)))
CASES["nested"] = (nested, (np.array([[0.1, 0.4], [0.3, -0.2]]), 0.4))
CASES["matrices"] = (matrices, (np.array([[0.1, 0.4], [0.3, -0.2]]), np.array([0.4, 1.0])))


@pytest.mark.parametrize("name", CASES)
def test_gradient_is_the_central_difference(name):
    model, given = CASES[name]
    rng = np.random.default_rng(3)
    with ppl.inspect(model, *given) as stages:
        for _ in range(2):
            z = rng.uniform(-1, 1, stages.size)
            got = stages.gradient(z)
            want = np.zeros_like(z)
            for k in range(len(z)):
                h = np.zeros_like(z)
                h[k] = 1e-5
                want[k] = (stages.log_density(z + h) - stages.log_density(z - h)) / 2e-5
            np.testing.assert_allclose(got, want, rtol=2e-6, atol=2e-7)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_factors_and_solutions_are_those_of_numpy(dtype):
    @ppl.model(dtype=dtype)
    def model(matrix, right):
        factor = ppl.cholesky(matrix)
        return factor, ppl.solve_lower(factor, right)

    half = np.random.default_rng(6).normal(size=(7, 7))
    matrix, right = half @ half.T + np.eye(7), np.arange(7)
    value = ppl.infer(model, np.tril(matrix), right, method="importance", draws=1, seed=0).value
    factor, x = (np.asarray(item)[0, 0] for item in value)
    bound = 1e-5 if dtype == "float32" else 1e-13
    np.testing.assert_allclose(factor, np.linalg.cholesky(matrix), rtol=bound, atol=bound)
    np.testing.assert_allclose(x, np.linalg.solve(factor, right), rtol=bound, atol=20 * bound)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (lambda m, v: ppl.cholesky(v), "cholesky takes a matrix, not f32[3]"),
        (lambda m, v: ppl.cholesky(m), "cholesky takes a square matrix, not f32[2, 3]"),
        (lambda m, v: ppl.solve_lower(m @ v, v), "solve_lower takes a matrix, not f32[2]"),
        (lambda m, v: ppl.solve_lower([[1.0, 0.0], [0.0, 1.0]], v), "f32[2, 2] and f32[3] do not"),
    ],
)
def test_matrices_that_do_not_fit_are_refused(what, said):
    @ppl.model
    def model(m, v):
        return what(m, v)

    with pytest.raises(ModelError, match=re.escape(said)):
        ppl.infer(model, np.ones((2, 3)), np.ones(3), method="importance", draws=1)


def test_log_density_is_that_of_the_model():
    with ppl.inspect(models.schools, models.Y, models.SIGMA) as stages:
        z = np.linspace(-1, 1, 10)
        mu, tau, eta = z[0], np.exp(z[1]), z[2:]

        def normal(x, m, s):
            return -0.5 * ((x - m) / s) ** 2 - np.log(s) - 0.5 * np.log(2 * np.pi)

        want = normal(mu, 0, 5) + np.log(2 / np.pi / 5) - np.log1p((tau / 5) ** 2) + z[1]
        want += normal(eta, 0, 1).sum() + normal(models.Y, mu + tau * eta, models.SIGMA).sum()
        assert stages.log_density(z) == pytest.approx(want, rel=1e-12)


@ppl.model
def positive(y):
    x = ppl.sample(ppl.Normal(0.0, 1.0))
    ppl.factor(ppl.sqrt(x) - y * x)  # nor is the slope a number where half of the starts are
    return x


@pytest.mark.parametrize("method", ["hmc", "nuts"])
def test_a_start_is_tried_until_its_density_is_finite(method):
    """By the leapfrog of trajectories: the gradient, most of a program, stands in it once."""
    post = ppl.infer(positive, 1.0, method=method, chains=64, draws=20, warmup=50, seed=1)
    assert (post["x"] > 0.0).all()
    assert len(np.unique(post["x"])) > 500
    (composed,) = positive.programs.values()
    runs = [op.attrs["name"] for op in walk(composed.program.body) if op.code == "run"]
    assert runs.count("gradient") == 1
    positive.programs.clear()


@ppl.model
def sometimes(y):
    x = ppl.sample(ppl.Normal(0.0, 1.0))
    if x > 0.0:
        x = ppl.sample(ppl.Normal(0.0, 2.0))
    ppl.observe(ppl.Normal(x, 1.0), y)
    return x


@ppl.model
def converging(y):
    x = ppl.sample(ppl.Normal(0.0, 1.0))
    t = x
    while abs(t) > 0.1:
        t = t * 0.5
    ppl.observe(ppl.Normal(t, 1.0), y)
    return x


@pytest.mark.parametrize(
    ("model", "given", "what"),
    [
        (models.birth_death, (1.0, 0.5, 0.2), "birth_death calls itself"),
        (sometimes, (0.3,), "x_2 is not a site of every run"),
        (converging, (0.3,), "the log density depends on this loop"),
        (models.hmm, (models.EMISSIONS, models.TRANSITION, models.EMISSION), "state is discrete"),
    ],
)
def test_what_has_no_gradient_is_refused_by_name(model, given, what):
    with pytest.raises(GradientError, match=what) as caught:
        ppl.infer(model, *given, method="nuts")
    assert caught.value.place is not None


@pytest.mark.parametrize("scale", [1e-40, -1e-40, 1e-38, 3e38])
@pytest.mark.parametrize("device", ["cpu", "interpreter"])
def test_nothing_over_a_subnormal_number_is_nothing(scale, device):
    """Its reciprocal is infinite, and 0 times that is no number."""

    @ppl.model
    def flat(scale):
        x = ppl.sample(ppl.Normal(0.0, 1.0))
        ppl.factor(0.0 * x / scale)
        return x

    options = {"seed": 1, "draws": 3, "warmup": 2, "chains": 2, "steps": 2, "method": "hmc"}
    post = ppl.infer(flat, scale, device=device, **options)
    assert post.divergences == 0
    assert np.all(np.isfinite(post["x"]))
    assert np.all(np.diff(post["x"], axis=1) != 0)


def _looked(lane, procedure):
    for i in range(len(lane.z)):
        lane.z[i] = read("point", i, "real")
    run(procedure)
    for i in range(len(lane.g)):
        write("slope", i, lane.g[i])


@pytest.mark.parametrize("name", CASES)
def test_slopes_of_hmc_are_the_gradient(name):
    """Bit for bit, without a sum for the density."""
    model, given = CASES[name]
    found = []
    for procedure in ("gradient", "slopes"):
        composed = differentiated(lower(model, given, "f64"), "hmc")
        size = composed.program.variables["z"].size
        for buffer in ("point", "slope"):
            composed.buffer("f64", size, buffer)
        composed.algorithm(_looked, procedure)
        codes = walk(composed.program.procedures[procedure])
        sums = any(op.attrs.get("name") == "logw" for op in codes if op.code == "accumulate")
        assert sums == (procedure == "gradient")
        point = np.linspace(-0.5, 0.5, size).reshape(size, 1)
        found.append(composed.run(Options(dtype="f64"), 1, point=point)["slope"])
    np.testing.assert_array_equal(*found)
    assert np.all(found[0] != 0.0)
