"""The language: what it has, what it refuses and where, and the text of its IR."""

from __future__ import annotations

import ast
import copy
import pickle
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import ppl_models as models
from tawa import ppl
from tawa.errors import InternalError, ModelError, StackError, TawaError, WeightError
from tawa.ppl.frontend import source
from tawa.ppl.infer.execute import OnHost
from tawa.ppl.ir.core import I32, Builder, Op, Program, Region, Value
from tawa.ppl.ir.verify import verify


def run(model, *given, **options):
    options = {"method": "importance", "draws": 4, "dtype": "float64", **options}
    return ppl.infer(model, *given, **options).value


def first(value):
    return value[0, 0]


@ppl.model
def words(x, k):
    odd = ppl.filter(lambda v: v % 2 == 1, k)
    pairs = ppl.map(lambda a, b: (a, b * 2.0), x, x)
    folded = ppl.reduce(lambda t, p: t + p[0] * p[1], pairs, 0.0)
    table = [[a * b for b in x] for a in x]
    power = 2.0**0.5 + x[0] ** 3 + x[1] ** -1
    low, high = min(x), max(x)
    text = ppl.put(x, 1, 9.0)
    a, b = divide(7, 2)
    return (
        ppl.reduce(lambda t, v: t + v, odd, 0),
        len(odd),
        folded,
        table[2, 1],
        sum(x[1:3]),
        power,
        (low, high),
        text,
        a + b,
        -7 // 2 + k[0] // -2 + k[1] % -3,
        x @ x,
        table @ x,
        1 if not ((x[0] > 0 and x[1] > 5) or k[0] == 1) else 2,
        1 < k[1] <= 7,
    )


def divide(a, b):
    return a // b, a % b


def test_words_mean_what_python_means():
    x, k = np.array([1.5, 2.0, -0.5]), np.array([7, 4, 3, 8, 5])
    got = run(words, x, k)
    table = np.outer(x, x)
    want = (
        15, 3, float((x * x * 2).sum()), table[2, 1], x[1:3].sum(), 2**0.5 + x[0] ** 3 + 0.5,
        (-0.5, 2.0), np.array([1.5, 9.0, -0.5]), 4, -7 // 2 + 7 // -2 + 4 % -3, x @ x, table @ x,
        1, True,
    )  # fmt: skip
    for part, expected in zip(got, want, strict=True):
        if isinstance(expected, tuple):
            assert tuple(first(p) for p in part) == expected
        elif isinstance(part, (int, float)):
            assert part == expected
        else:
            np.testing.assert_allclose(first(part), expected, rtol=1e-12)


@ppl.model
def fibonacci(n):
    def fib(k):
        if k < 2:
            return k
        return fib(k - 1) + fib(k - 2)

    return fib(n)


@ppl.model
def even_or_odd(n):
    def even(k):
        if k == 0:
            return True
        return odd(k - 1)

    def odd(k):
        if k == 0:
            return False
        return even(k - 1)

    return even(n)


@ppl.model
def walk(goal):
    place = 0.0
    steps = 0
    while abs(place) < goal:
        place += ppl.sample(ppl.Normal(0.0, 1.0))
        steps += 1
    return steps, place


@ppl.model
def trees(p):
    def size(depth):
        left = 1
        if ppl.sample(ppl.Bernoulli(p)):
            total = ppl.map(lambda k: size(depth + 1), (0, 1))
            left = left + total[0] + total[1]
        return left

    return size(0)


def test_recursion_and_loops():
    assert first(run(fibonacci, 12, stack=200)) == 144
    assert [first(run(even_or_odd, n, stack=200)) for n in (6, 7)] == [True, False]
    steps, place = run(walk, 3.0, draws=20_000)
    assert np.all(np.abs(place) >= 3.0)
    # Wald: the mean of steps is that of the squared end.
    assert steps.mean() == pytest.approx(float((place**2).mean()), rel=0.05)
    sizes = run(trees, 0.3, draws=100_000, stack=400)
    assert sizes.mean() == pytest.approx(1 / (1 - 0.6), rel=0.03)


@pytest.mark.parametrize("depth", [0, 1, 5, 31, 64])
def test_the_stack_runs_out_where_it_must(depth):
    @ppl.model
    def deep(n):
        def down(k):
            if k == 0:
                return 0
            return 1 + down(k - 1)

        return down(n)

    assert first(run(deep, depth, stack=depth + 1)) == depth
    if depth:
        with pytest.raises(StackError, match=f"depth {depth}"):
            run(deep, depth, stack=depth)


REFUSED = [
    ("return max()", "wrong arguments", "max()"),
    ("return ppl.repeat(3, 1.0)", "a function is needed here, not 1.0", "ppl.repeat(3, 1.0)"),
    ("x = [1, 2]\nx[0] = 3", "an item of a vector cannot be assigned", "x[0]"),
    ("return unknown", "unknown is not defined here", "unknown"),
    ("with y: pass", "with cannot stand in a model", "with y"),
    ("for i in y:\n    return i", "return cannot stand in a loop", "return i"),
    ("return y + [1.0, 2.0]", "shapes [2] and [3] differ", "y + [1.0"),
    ("return ppl.sample(3)", "a distribution is needed here", "ppl.sample(3)"),
    ("return ppl.sample(ppl.Normal((1.0, 2.0), 1.0))", "loc of Normal is a real", "ppl.Normal(("),
    ("return ppl.sample(ppl.Normal(y, [1.0, 2.0]))", "shapes [2] and [3] differ", "ppl.sample("),
    ("ppl.observe(ppl.Normal([1.0, 2.0], 1.0), y)", "shapes [2] and [3] differ", "ppl.observe("),
    ("return [0.0] * 3", "do:  write ppl.repeat(", "[0.0]"),
    ("return 3 * [0.0]", "do:  write ppl.repeat(", "3 *"),
    ("return [0.0] + [1.0]", "Python would repeat or join it", "[0.0]"),
    ("return f(y[0], b=1.0)", "f takes 1 arguments (a), not 1, b=", "f(y[0]"),
    ("return f(y[0], a=1.0)", "f takes 1 arguments (a), not 1, a=", "f(y[0]"),
    ("return ppl.sample(ppl.Gamma(1.0, 1.0), centered=False)", "no location and scale", "ppl.samp"),
    ("return ppl.Normal(sigma=2.0)", "Normal takes loc, scale", "ppl.Normal("),
    ("return y[3]", "index 3 is outside", "y[3]"),
    ("return (y[y > 0.0],)", "indices are whole numbers, not bool[3]", "y[y"),
    ("return 3 if y[0] > 0 else (1, 2)", "one branch gives 3", "3 if y"),
    ("return print(y)", "print has no meaning in a model\n", "print"),
    ("return math.log(y[0])", "do:  write ppl.log", "math.log"),
    ("return np.median(y)", "do:  compute it outside", "np.median"),
    ("ppl.observe(ppl.Poisson(1.0), y[0])", "Poisson has whole numbers, not", "ppl.observe("),
    ("ppl.observe(ppl.Bernoulli(0.5), 0.5)", "Bernoulli has booleans, not 0.5", "ppl.observe("),
    ("ppl.observe(ppl.Bernoulli(0.5), 2)", "Bernoulli has booleans, not 2", "ppl.observe("),
    ("ppl.observe(ppl.BernoulliLogit(0.5), y[0])", "do:  pass booleans: y == 1", "ppl.obs"),
    ("return ppl.Normal(0.0, 1.0).log_prob(y[0])", "do:  write ppl.log_prob(", "ppl.Normal"),
    ("return lambda: 3", "returns what is not a number", None),
    ("import os", "import cannot stand in a model", "import os"),
    ("return f(y[0])", "calls itself before it returns", "def f("),
]


@pytest.mark.parametrize(("body", "what", "caret"), REFUSED, ids=[row[0] for row in REFUSED])
def test_what_is_not_in_the_subset_is_refused_with_its_place(body, what, caret, tmp_path):
    text = "import math\nimport numpy as np\nfrom tawa import ppl\n"
    text += "def f(a):\n    return f(a) + 1.0\n@ppl.model\ndef m(y):\n"
    text += textwrap.indent(body, "    ") + "\n"
    path = tmp_path / "model.py"
    path.write_text(text)
    scope: dict = {"__name__": "refused"}
    exec(compile(text, str(path), "exec"), scope)
    with pytest.raises(ModelError) as caught:
        ppl.infer(scope["m"], np.array([1.0, 2.0, 3.0]), method="importance")
    assert what in str(caught.value)
    if caret is not None:
        place = caught.value.place
        assert place is not None
        line = path.read_text().splitlines()[place.line - 1]
        assert line[place.column :].startswith(caret)


@ppl.model
def rowwise(x, y):
    slope = ppl.map(lambda k: ppl.sample(ppl.Normal(0.5 * float(k), 2.0)), range(3))
    scale = ppl.sample(ppl.HalfNormal(1.0))
    ppl.map(lambda m, v: ppl.observe(ppl.Normal(m, scale), v), x @ slope, y)
    ppl.map(lambda m, v: ppl.observe(ppl.BernoulliLogit(m), v > 0.0), x @ slope, y)


@ppl.model
def vectorized(x, y):
    slope = ppl.sample(ppl.Normal([0.0, 0.5, 1.0], 2.0))
    scale = ppl.sample(ppl.HalfNormal(1.0))
    ppl.observe(ppl.Normal(x @ slope, scale=scale), y)
    ppl.observe(ppl.BernoulliLogit(x @ slope), y > 0.0)


@pytest.mark.parametrize("method", ["nuts", "mh", "smc"])
def test_a_distribution_of_vectors_is_one_of_each_element(method):
    random = np.random.default_rng(0)
    x = random.normal(size=(6, 3)).astype(np.float32)
    y = (x @ [1.0, -1.0, 2.0] + 0.1).astype(np.float32)
    size = {"particles": 300} if method == "smc" else {"draws": 50, "chains": 2}
    each, whole = (ppl.infer(m, x, y, method=method, seed=3, **size) for m in (rowwise, vectorized))
    for name in ("slope", "scale"):
        np.testing.assert_array_equal(each[name], whole[name])
    if method == "nuts":
        np.testing.assert_array_equal(
            each.log_likelihood["observed"], whole.log_likelihood["observed"]
        )
    assert whole["slope"].shape[-1] == 3


def test_distributions_of_vectors_have_axes_in_front_and_densities_of_their_elements():
    @ppl.model
    def model(rows):
        grid = ppl.sample(ppl.Normal([[0.0, 10.0], [20.0, 30.0]], 1e-3))
        shares = ppl.sample(ppl.Dirichlet([[1000.0, 1000.0], [1000.0, 3000.0]]))
        whole = ppl.log_prob(ppl.MultivariateNormal([0.0, 1.0], [[1.0, 0.5], [0.5, 2.0]]), rows)
        factor = ppl.cholesky([[1.0, 0.5], [0.5, 2.0]])
        same = ppl.map(
            lambda row: ppl.log_prob(ppl.MultivariateNormal([0.0, 1.0], scale_tril=factor), row),
            rows,
        )
        return grid, shares, whole, same, ppl.log_prob(ppl.Normal(0.0, [1.0, 2.0]), rows[0])

    rows = np.array([[0.0, 1.0], [2.0, -1.0], [0.5, 0.5]])
    grid, shares, whole, same, single = (part[0, 0] for part in run(model, rows))
    np.testing.assert_allclose(grid, [[0.0, 10.0], [20.0, 30.0]], atol=0.01)
    np.testing.assert_allclose(shares, [[0.5, 0.5], [0.25, 0.75]], atol=0.06)
    np.testing.assert_array_equal(whole, same)
    covariance = np.array([[1.0, 0.5], [0.5, 2.0]])
    away = rows - [0.0, 1.0]
    want = -0.5 * (away @ np.linalg.inv(covariance) * away).sum(1)
    want -= 0.5 * np.log(np.linalg.det(2 * np.pi * covariance))
    np.testing.assert_allclose(whole, want)
    np.testing.assert_allclose(
        single, -0.5 * np.log(2 * np.pi) - np.log([1, 2]) - 0.5 * (rows[0] / [1, 2]) ** 2
    )


def test_vectors_in_brackets_combine_with_numbers_and_vectors():
    @ppl.model
    def model(y):
        return [1.0, 2.0] * y, y - [1.0, 2.0], 0.5 * [1.0, 2.0], [1.0, 2.0] + y[0]

    y = np.array([3.0, 5.0])
    found = [part[0, 0] for part in run(model, y)]
    for have, want in zip(found, (y * [1, 2], y - [1, 2], [0.5, 1.0], [4.0, 5.0]), strict=True):
        np.testing.assert_array_equal(have, want)


def test_a_vector_of_indices_gathers():
    @ppl.model
    def model(x, k, grid):
        return x[k], grid[k], x[grid], grid[1][k]

    x, k = np.array([3.0, 5.0, 7.0]), np.array([2, 0, 2, 1])
    grid = np.array([[0, 1, 2], [2, 2, 0], [1, 0, 1]])
    found = [part[0, 0] for part in run(model, x, k, grid)]
    for have, want in zip(found, (x[k], grid[k], x[grid], grid[1][k]), strict=True):
        np.testing.assert_array_equal(have, want)
    with pytest.raises(ModelError, match="an index was outside of its vector"):
        run(model, x, np.array([3, 0, 0, 0]), grid)


def test_arguments_go_by_place_name_and_default():
    @ppl.model
    def model(y):
        def f(a, b=10.0, c=100.0):
            return a + 2.0 * b + 3.0 * c

        return f(1.0), f(1.0, c=5.0), f(c=1.0, a=2.0, b=3.0), divide(b=2, a=7)

    assert [first(v) for v in run(model, 0.0)[:3]] == [321.0, 36.0, 11.0]
    assert [first(v) for v in run(model, 0.0)[3]] == [3, 1]

    @ppl.model
    def twice(y):
        return below(1.0, a=y)

    with pytest.raises(ModelError, match=r"below takes 2 arguments \(a, b\), not 1, a="):
        run(twice, 0.0)


def below(a, b=1.0):
    return a - b


def test_a_normal_vector_has_a_covariance_or_its_factor():
    @ppl.model
    def model(m):
        return ppl.sample(ppl.MultivariateNormal([0.0, 0.0], m, scale_tril=m))

    with pytest.raises(ModelError, match="not None"):
        run(model, np.eye(2))


def test_recursion_takes_and_returns_vectors():
    @ppl.model
    def model(y):
        def go(v, m, k):
            if k == 0:
                return v, m
            a, b = go(2.0 * v, ppl.put(m, k - 1, [1.0 * k, 2.0 * k]), k - 1)
            c, d = go(a, b, 0)
            return c + v, d

        return go(y, [[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]], 3)

    y = np.array([1.0, 2.0, 3.0])
    for device in ("cpu", "interpreter"):
        total, rows = (part[0, 0] for part in run(model, y, stack=200, device=device))
        np.testing.assert_array_equal(total, 15 * y)
        np.testing.assert_array_equal(rows, [[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]])


def test_several_covariances_are_several_normal_vectors():
    """Their factors too, one by one: as values, and under a gradient."""

    @ppl.model(dtype="float64")
    def model(loc, m, y):
        scale = ppl.sample(ppl.LogNormal(0.0, 0.1))
        each = ppl.log_prob(ppl.MultivariateNormal(loc, covariance_matrix=m), y)
        ppl.observe(ppl.MultivariateNormal(loc, covariance_matrix=scale * m), y)
        return each, ppl.cholesky(m), ppl.solve_lower(ppl.cholesky(m), y)

    rng = np.random.default_rng(1)
    root = rng.normal(size=(4, 3, 3))
    m, loc, y = root @ root.swapaxes(1, 2) + np.eye(3), rng.normal(size=3), rng.normal(size=(4, 3))
    each, factor, solved = (part[0, 0] for part in run(model, loc, m, y))
    away = y - loc
    quadratic = np.einsum("ki,ki->k", away, np.linalg.solve(m, away[..., None])[..., 0])
    want = -0.5 * (quadratic + np.log(np.linalg.det(2 * np.pi * m)))
    np.testing.assert_allclose(each, want)
    np.testing.assert_allclose(factor, np.linalg.cholesky(m), atol=1e-12)
    np.testing.assert_allclose((factor @ solved[..., None])[..., 0], y, atol=1e-12)
    with ppl.inspect(model, loc, m, y) as seen:
        z, step = np.array([0.3]), 1e-5
        around = seen.log_density(z + step) - seen.log_density(z - step)
        np.testing.assert_allclose(seen.gradient(z), around / (2 * step), rtol=1e-6)


def test_defaults_are_what_they_were_at_the_definition():
    def scaled_by(k):
        def scaled(x, k=k):
            return x * k

        return scaled

    twice, thrice = scaled_by(2.0), scaled_by(3.0)

    @ppl.model
    def model(y):
        k = y

        def inside(x, k=k):
            return x * k

        short = lambda x, k=k: x * k  # noqa: E731
        k = 100.0
        return twice(y), thrice(y), inside(1.0), short(1.0), thrice(y, k=k)

    assert [first(v) for v in run(model, 5.0)] == [10.0, 15.0, 5.0, 5.0, 500.0]


def test_an_index_outside_of_its_vector_stops_the_run():
    @ppl.model
    def model(y, k):
        return y[ppl.sample(ppl.Poisson(5.0))] + k

    with pytest.raises(ModelError, match="an index was outside of its vector"):
        run(model, np.array([1.0, 2.0]), 0.0, draws=100)


def test_arrays_outlive_an_interrupted_run():
    running = OnHost.__new__(OnHost)
    running.given, running.memory, running.workers = [np.zeros(3)], {}, None
    with pytest.raises(KeyboardInterrupt), running:
        raise KeyboardInterrupt
    assert running.given  # where threads go on to their end, they write there


def test_options_and_arguments_are_checked():
    for options, what in [
        ({"method": "magic"}, "magic"),
        ({"method": "hmc", "step": 3}, "step= is not an option"),
        ({"dtype": "f16"}, "f16"),
        ({"device": "tpu"}, "tpu"),
        ({"seed": -1, "method": "importance"}, "seed"),
        ({"seed": 1.5}, "seed=1.5 is not a whole number"),
        ({"accept": "high"}, "accept='high' is not a number above 0 and below 1"),
        ({"step_size": 0.0}, "step_size=0.0 is not a number above 0"),
        ({"depth": 21}, "depth=21 is not a whole number of 1 to 20"),
        ({"moments": "yes"}, "moments='yes' is not True or False"),
        ({"chains": True}, "chains=True is not a whole number of 1 or more"),
    ]:
        with pytest.raises(ModelError, match=what):
            ppl.infer(models.schools, models.Y, models.SIGMA, **options)
    with pytest.raises(ModelError, match="is not a model"):
        ppl.infer(len, 3)
    with pytest.raises(ModelError, match=r"y: dict of object\[\] is not data"):
        ppl.infer(models.schools, {"y": 1.0}, models.SIGMA)
    with pytest.raises(ModelError, match="outside of a model"):
        ppl.sample(ppl.model)
    for word, name in (
        (lambda: ppl.Normal(0.0), "Normal"),
        (lambda: ppl.sample(), "sample"),  # what is missing is said in a model alone
        (lambda: ppl.observe(1.0), "observe"),
        (lambda: ppl.map(len, 2, name=3), "map"),
        (lambda: ppl.logsumexp([1.0]), "logsumexp"),  # and the words that are written in others
        (lambda: ppl.MultivariateNormal([0.0]), "MultivariateNormal"),
        (lambda: ppl.to_list([1.0]), "to_list"),
        (lambda: ppl.start(None), "start"),
    ):
        with pytest.raises(ModelError, match=f"ppl.{name} was called outside of a model"):
            word()
    assert repr(ppl.sample) == "ppl.sample(distribution, *, name='', centered=True)"
    assert repr(ppl.to_vector) == "ppl.to_vector(items, size, fill)"
    with pytest.raises(ModelError, match="3 is not a model"), ppl.inspect(3):
        pass
    with (
        ppl.inspect(models.schools, models.Y, models.SIGMA) as seen,
        pytest.raises(ModelError, match="has 10 free numbers, not 2"),
    ):
        seen.log_density([0.0, 1.0])
    with pytest.raises(ModelError, match="is no posterior"):
        ppl.predict(models.schools, "post", models.Y, models.SIGMA)
    with pytest.raises(ModelError, match="no kept site nothing"):
        ppl.infer(models.schools, models.Y, models.SIGMA, method="importance", draws=4)["nothing"]


CONSTANT, ZERO, ANOTHER = (lambda: 1.5), (lambda x: 0.0), (lambda x: x + 2.0)  # fmt: skip


def test_lambdas_of_a_line_that_give_a_constant():
    """They have no columns from Python 3.12 on."""

    @ppl.model
    def drawn(y):
        x = ppl.sample(ppl.Flat())  # whose density and draw are lambdas of one line
        return ppl.map(ZERO, y), ppl.map(ANOTHER, y), CONSTANT(), x

    zero, more, constant, _ = ppl.infer(drawn, np.ones(2), chains=1, draws=2, warmup=2).value
    assert np.all(zero == 0.0)
    assert np.all(more == 3.0)
    assert np.all(constant == 1.5)


ONE, REAL, TRUE, NEGATIVE = (lambda: 1), (lambda: 1.0), (lambda: True), (lambda: -0.0)  # fmt: skip


def test_lambdas_of_a_line_that_give_equal_constants():
    """Constants that Python takes for equal are of other types, or of another sign."""
    null, negative = (lambda: 0.0), (lambda: -0.0)  # fmt: skip

    @ppl.model
    def drawn():
        return ONE(), REAL(), TRUE(), 1.0 / null(), 1.0 / negative(), 1.0 / NEGATIVE()

    *given, up, down, below = ppl.infer(drawn, method="importance", draws=1).value
    assert [each.dtype.kind for each in given] == ["i", "f", "b"]
    assert (first(up), first(down), first(below)) == (np.inf, -np.inf, -np.inf)


def test_sites_inside_what_a_written_word_takes_have_no_name_of_its_result():
    @ppl.model
    def drawn(covariance):
        center = ppl.map(lambda i: ppl.sample(ppl.Normal(0.0, 1.0)), range(2))
        x = ppl.sample(
            ppl.MultivariateNormal(
                ppl.map(lambda i: ppl.sample(ppl.Normal(center[i], 1.0)), range(2)), covariance
            )
        )
        z = ppl.logsumexp(ppl.map(lambda i: ppl.sample(ppl.Normal(x[i], 1.0)), range(2)))
        return x, z

    post = ppl.infer(drawn, np.eye(2), method="importance", draws=3)
    assert [*post.draws] == ["center", "x"]
    np.testing.assert_array_equal(post["x"], post.value[0])


def test_words_are_pickled_by_name():
    for word in (ppl.exp, ppl.sample, ppl.nil, ppl.start, ppl.logsumexp, ppl.map):
        assert pickle.loads(pickle.dumps(word)) is word
        assert copy.deepcopy(word) is word


def test_options_are_what_python_has_for_them():
    """Numbers and truth values of NumPy, types by `np.dtype`, names in any collection."""

    @ppl.model
    def drawn():
        x = ppl.sample(ppl.Normal(0.0, 1.0))
        return x

    def run(**options):
        return ppl.infer(drawn, **options)

    double = run(method="importance", draws=np.int64(3), dtype=np.dtype("float64"))
    assert double["x"].dtype == np.float64
    for names in ({"x"}, {"x": 1}.keys(), np.array(["x"]), ["x"]):
        assert [*run(method="importance", draws=3, keep=names).draws] == ["x"]
    seeds = [run(method="importance", draws=3, seed=n) for n in (2**64 - 1, np.uint64(2**64 - 1))]
    np.testing.assert_array_equal(*(post["x"] for post in seeds))
    steps = [run(method="hmc", chains=1, draws=3, warmup=3, step_size=n) for n in (1, 1.0)]
    np.testing.assert_array_equal(*(post["x"] for post in steps))
    assert run(chains=1, draws=3, warmup=3, moments=np.True_).moments["x"].draws == 3


def test_words_are_functions_too():
    @ppl.model
    def sums(y):
        x = ppl.sample(ppl.Normal(0.0, 1.0))
        return ppl.reduce(max, ppl.map(ppl.exp, y), 0.0), ppl.logsumexp(ppl.map(abs, y)), x

    y = np.array([-1.0, 0.5])
    most, total, _ = ppl.infer(sums, y, method="importance", draws=2, dtype="float64").value
    np.testing.assert_allclose(most, np.exp(0.5))
    np.testing.assert_allclose(total, np.log(np.exp(1.0) + np.exp(0.5)))


def test_a_trace_that_is_too_small_and_weights_that_are_zero():
    with pytest.raises(StackError, match="more than 4 values"):
        ppl.infer(models.kalman, models.SERIES, method="mh", trace=4, draws=2)

    @ppl.model
    def never(y):
        x = ppl.sample(ppl.Uniform(0.0, 1.0))
        ppl.observe(ppl.Uniform(0.0, x), y)
        return x

    for method, size in (("importance", "draws"), ("smc", "particles"), ("mh", "draws")):
        what = "after observation 1" if method == "smc" else "weight"
        with pytest.raises(WeightError, match=what):
            ppl.infer(never, 2.0, method=method, **{size: 5})


def test_the_text_of_the_ir():
    @ppl.model
    def small(y):
        x = ppl.sample(ppl.Normal(0.0, 1.0))
        ppl.observe(ppl.Normal(x, 2.0), y)
        return x

    with ppl.inspect(small, 0.5) as stages:
        assert stages.ir == (
            "program small(%seed0: i32, %seed1: i32, %y: f32)\n"
            "  body\n"
            "    %3: f32 = const {value=0.0}\n"
            "    %4: f32 = const {value=1.0}\n"
            "    %5: f32 = sample %3, %4 {family=Normal, site=0, title='x'}\n"
            "    record %5 {title='x', site=0}\n"
            "    %6: f32 = const {value=2.0}\n"
            "    observe %y, %5, %6 {family=Normal, title='observed'}\n"
            "    yield %5\n"
        )
        assert ".rn.f32" in stages.ptx
        for line in stages.ptx.splitlines():
            for name in ("add", "sub", "mul", "div", "fma", "sqrt"):
                assert not line.strip().startswith(f"{name}.f32"), line
        assert "define void @kernel" in stages.llvm


def ill(*ops):
    return Program("ill", "f32", (), Region((), list(ops)))


@ppl.model
def observed(xs, flips):
    scale = ppl.sample(ppl.HalfNormal(1.0))
    for x in xs:
        ppl.observe(ppl.Normal(0.5, scale), x)
    for flip in flips:
        ppl.observe(ppl.Bernoulli(0.25), flip)


@ppl.model
def weighed(xs, flips):
    scale = ppl.sample(ppl.HalfNormal(1.0))
    for x in xs:
        ppl.factor(ppl.log_prob(ppl.Normal(0.5, scale), x))
    for flip in flips:
        ppl.factor(ppl.log_prob(ppl.Bernoulli(0.25), flip))


def test_a_factor_of_a_log_density_is_an_observation():
    given = np.array([0.25, -1.0, 2.0]), np.array([True, False])
    one, other = (ppl.infer(m, *given, draws=20, chains=2, seed=3) for m in (observed, weighed))
    np.testing.assert_array_equal(one["scale"], other["scale"])


def test_the_sum_of_exponentials_is_as_they_are_and_nothing_where_all_are_nothing():
    @ppl.model
    def sums(x, never):
        endless = ppl.logsumexp([x[0], float("inf")])
        return ppl.logsumexp(x), ppl.logsumexp([x[0], float("-inf")]), ppl.logsumexp(never), endless

    x = np.array([700.0, 701.0, -5.0])
    found = [float(first(each)) for each in run(sums, x, np.full(2, -np.inf))]
    np.testing.assert_allclose(found, [np.logaddexp.reduce(x), 700.0, -np.inf, np.inf], rtol=1e-14)


def test_a_mixture_is_summed_out():
    """The gradient error of a discrete site proposes this, and nuts finds both components."""

    @ppl.model
    def mixture(y):
        weight = ppl.sample(ppl.Beta(1.0, 1.0))
        means = ppl.sample(ppl.OrderedNormal(2, 0.0, 5.0))
        for v in y:
            low = ppl.log(weight) + ppl.log_prob(ppl.Normal(means[0], 0.5), v)
            high = ppl.log1p(-weight) + ppl.log_prob(ppl.Normal(means[1], 0.5), v)
            ppl.factor(ppl.logsumexp([low, high]))

    draw = np.random.default_rng(0).standard_normal
    y = np.concatenate([-2.0 + 0.5 * draw(30), 1.0 + 0.5 * draw(10)])
    post = ppl.infer(mixture, y, draws=200, warmup=200, chains=2, seed=1)
    np.testing.assert_allclose(post["means"].mean((0, 1)), [-2.0, 1.0], atol=0.3)
    np.testing.assert_allclose(post["weight"].mean(), 0.75, atol=0.1)
    assert repr(post) == "Posterior of mixture, 2 x 200 draws: weight, means[2]"
    lines = post.summary().splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["weight", "means[0]", "means[1]"]
    diverged = replace(post, statistics={"divergent": np.array([2, 1])})
    assert diverged.summary().splitlines()[4:] == ["3 draws met a divergent trajectory"]


def test_the_verifier_refuses_ill_formed_programs():
    b = Builder("f32")
    one, half = Value(I32), Value(b.real)
    good = [Op("const", (), (one,), {"value": 1}), Op("const", (), (half,), {"value": 0.5})]
    verify(ill(*good))
    for op in [
        Op("add", (one, half), (Value(I32),)),
        Op("add", (one,), (Value(I32),)),
        Op("div", (one, one), (Value(I32),)),
        Op("lt", (half, half), (Value(b.real),)),
        Op("nothing", (), ()),
        Op("get", (), (Value(I32),), {"name": "absent"}),
        Op("add", (Value(I32), one), (Value(I32),)),
        Op("if", (one,), (), {}, (Region(), Region())),
        Op("for", (one, one), (Value(I32),), {}, (Region((Value(I32), Value(I32))),)),
    ]:
        with pytest.raises(InternalError):
            verify(ill(*good, op))
    with pytest.raises(InternalError, match="without a meaning"):
        verify(ill(*good, Op("factor", (half,))), handled=True)


def test_the_compiler_does_not_import_ppl_and_ppl_only_errors_and_syntax():
    """But for `tiles` and `emit`, which make kernels and launch them, through the door."""
    root = Path(ppl.__file__).parent
    for path in root.rglob("*.py"):
        if path.parent.name in ("tiles", "emit"):
            continue
        for line in path.read_text().splitlines():
            words_ = line.split()
            if words_[:1] == ["from"] and words_[1].startswith("tawa"):
                assert words_[1].split(".")[:2] in (
                    ["tawa", "ppl"],
                    ["tawa", "errors"],
                    ["tawa", "syntax"],
                )
    code = (
        "import tawa, sys; assert 'tawa.ppl' not in sys.modules and 'llvmlite' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    code = "from tawa import ppl; import sys; assert 'llvmlite' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_command_line(capsys, tmp_path):
    from tawa.tools.cli import main

    path = tmp_path / "coin.py"
    path.write_text(
        "from tawa import ppl\n@ppl.model\ndef coin(y):\n    p = ppl.sample(ppl.Beta(1.0, 1.0))\n"
        "    ppl.map(lambda v: ppl.observe(ppl.Bernoulli(p), v), y)\n    return p\n"
    )
    options = ["--args", "[1,0,1,1]", "--options", "draws=200", "chains=2", "seed=1"]
    assert main(["ppl", "run", f"{path}:coin", *options]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[1].startswith("p ")
    assert 0.55 < float(out.splitlines()[1].split()[1]) < 0.78
    assert main(["ppl", "show", f"{path}:coin", "--args", "[1,0]"]) == 0
    assert "sample" in capsys.readouterr().out
    for wrong, why in (
        ([f"{path}:absent"], "its models: coin"),
        ([str(path)], "write FILE.py:MODEL"),
        ([f"{path}:ppl"], "is not a model"),
        ([f"{path}:coin"], "coin takes y; --args gives 0 values"),
    ):
        assert main(["ppl", "run", *wrong]) == 2
        assert why in capsys.readouterr().err
    assert issubclass(ModelError, TawaError)


@pytest.mark.parametrize("given", ["def f(): pass", None, len, int])
def test_only_a_function_is_a_model(given):
    with pytest.raises(ModelError, match="is no model"):
        ppl.model(given)


HALVES = (lambda v: v / 2.0, lambda v: (lambda w: w + 1.0)(v))


def test_lambdas_outside_of_a_model_are_told_apart():
    """Two of one line, and one inside of another."""
    halve, more = HALVES

    @ppl.model
    def uses(x):
        return halve(x), more(x)

    assert [float(first(value)) for value in run(uses, 5.0)] == [2.5, 6.0]


def test_lambdas_without_places_are_not_guessed():
    """Python can be told to keep no columns."""
    places = [(1, 1, None, None)]

    class Code:
        def __init__(self, code):
            self.code = code

        def __getattr__(self, name):
            return getattr(self.code, name)

        def co_positions(self):
            return places

    nodes = ast.walk(ast.parse("f = (lambda x: x, lambda y: y)"))
    lambdas = [node for node in nodes if isinstance(node, ast.Lambda)]
    scale = 2.0
    other = Code((lambda z: scale * z).__code__)
    with pytest.raises(OSError, match="lambda"):
        source._node(other, lambdas)
    assert source._node(other, lambdas[:1]) is lambdas[0]
    assert source._node(Code((lambda y: y).__code__), lambdas) is lambdas[1]
