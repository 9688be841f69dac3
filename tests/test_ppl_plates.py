"""Big plates: what is taken out of the lanes, the tile kernel, and chains that wait for it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tawa import ppl
from tawa.errors import ModelError
from tawa.ppl.frontend.program import lower
from tawa.ppl.infer.chains import program_of
from tawa.ppl.infer.options import Options
from tawa.ppl.ir.core import free_values
from tawa.ppl.tiles import steps
from tawa.ppl.tiles.kernel import Split

ROWS, COLUMNS = 2100, 40
HALF_LOG = 0.5 * math.log(2 * math.pi)


@ppl.model
def logistic(x, y):
    """A row's product, and a scalar besides."""
    alpha = ppl.sample(ppl.Normal(0.0, 5.0))
    beta = ppl.map(lambda k: ppl.sample(ppl.Normal(0.0, 1.0)), x[0])
    ppl.map(lambda row, v: ppl.observe(ppl.BernoulliLogit(alpha + row @ beta), v), x, y)
    return beta


@ppl.model
def normal(x, y):
    """A product of the whole matrix, standardised; a scale."""
    sigma = ppl.sample(ppl.HalfNormal(1.0))
    beta = ppl.map(lambda k: ppl.sample(ppl.Normal(0.0, 1.0)), x[0])
    mean = [[v / 2.0 for v in row] for row in x] @ beta
    ppl.map(lambda m, v: ppl.observe(ppl.Normal(m, sigma), v), mean, y)
    return beta


@ppl.model
def poisson(x, y):
    """A sum of products; parameters that are a function of what moves."""
    beta = ppl.repeat(len(x[0]), lambda: ppl.sample(ppl.HalfNormal(1.0)))
    for row, v in zip(x, y):
        rate = ppl.exp(sum([a * b for a, b in zip(row, beta)]))
        ppl.observe(ppl.Poisson(rate), v)
    return beta


@ppl.model
def two(x, y):
    """Two products, with one matrix, and a plate besides that shares a parameter."""
    beta = ppl.map(lambda k: ppl.sample(ppl.Normal(0.0, 1.0)), x[0])
    gamma = ppl.map(lambda k: ppl.sample(ppl.Normal(0.0, 1.0)), x[0])
    ppl.map(lambda r, v: ppl.observe(ppl.Normal(r @ beta, ppl.exp(0.1 * (r @ gamma))), v), x, y)
    ppl.map(lambda r: ppl.factor(-ppl.log1p((r @ gamma) ** 2)), x)
    return beta


@ppl.model
def item(x, y):
    """One parameter of a vector, by its place, besides the product of all."""
    beta = ppl.map(lambda k: ppl.sample(ppl.Normal(0.0, 1.0)), x[0])
    ppl.map(lambda r, v: ppl.observe(ppl.Normal(r @ beta, ppl.exp(beta[1])), v), x, y)
    return beta


@ppl.model
def seen(x, y):
    """Rows left out by what was seen, and a density that is chosen: logs of nothing in the rest."""
    beta = ppl.map(lambda k: ppl.sample(ppl.Normal(0.0, 1.0)), x[0])
    for row, v in zip(x, y):
        eta = row @ beta
        if v > 0.0:
            scale = ppl.log1p(eta) if eta > 0.0 else 1.0 - eta
            ppl.observe(ppl.Normal(eta, 1.0 + scale), ppl.log(v))
    return beta


def regression(columns: int = COLUMNS):
    rng = np.random.default_rng(5)
    x = rng.standard_normal((ROWS, columns)) / math.sqrt(columns)
    eta = x @ np.linspace(-1, 1, columns)
    return x, {
        "logistic": (logistic, rng.random(ROWS) < 1 / (1 + np.exp(-eta))),
        "normal": (normal, eta + 0.7 * rng.standard_normal(ROWS)),
        "poisson": (poisson, rng.poisson(np.exp(eta))),
        "two": (two, eta + rng.standard_normal(ROWS)),
        "item": (item, eta + rng.standard_normal(ROWS)),
        "seen": (seen, eta + rng.standard_normal(ROWS)),
    }


def prepared(name: str, columns: int, **options):
    x, models = regression(columns)
    model, y = models[name]
    plates: list = []
    given = Options(**{"dtype": "f64", "tiles": True, "warmup": 0, **options})
    return program_of(lower(model, (x, y), given.dtype), given, "hmc", plates), plates, given


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("logistic", [(3, 0)]),
        ("normal", [(3, 0, 0)]),
        ("poisson", [(3,)]),
        ("two", [(3, 3), (3,)]),
        ("item", [(3, 0, 0)]),
        ("seen", [(3,)]),
    ],
)
def test_plates_are_found_in_every_form(name, inputs):
    composed, plates, _ = prepared(name, 3)
    assert [plate.inputs for plate in plates] == inputs
    assert all(plate.rows == ROWS for plate in plates)
    text = [op.code for op in composed.program.procedures["gradient"].ops]
    assert text.count("plate") == len(inputs)
    loops = [op for op in composed.program.operations() if op.attrs.get("count") == ROWS]
    assert not loops  # no lane goes through the data
    for region in (composed.program.procedures["gradient"], *(p.data.body for p in plates)):
        assert set(free_values(region)) <= set(composed.program.params)


def exact(name, x, y, given):
    """The values and slopes of a plate of one product in float64, from formulas."""
    beta = given[: x.shape[1]]
    match name:
        case "logistic":
            eta, sign = x @ beta + given[-1], np.where(y, 1.0, -1.0)[:, None]
            term = -np.logaddexp(0.0, -sign * eta)
            slope = sign / (1 + np.exp(sign * eta))
            others = [slope.sum(0)]
        case "normal":
            x = x / 2
            inverse, log_sigma = given[-2:]  # of sigma: it is divided by once in a lane
            u = (y[:, None] - x @ beta) * inverse
            term = -0.5 * u**2 - 0.5 * np.log(2 * np.pi) - log_sigma
            slope = u * inverse
            others = [-(u**2 / inverse).sum(0), np.full(given.shape[1], -float(len(y)))]
        case _:
            eta, count = x @ beta, y[:, None]
            constant = np.array([math.lgamma(k + 1) for k in y])[:, None]
            term = count * eta - np.exp(eta) - constant
            slope = count - np.exp(eta)
            others = []
    return term.sum(0), np.concatenate([x.T @ slope, *(one[None] for one in others)])


def rounded(x):
    """The data as slopes see them: each row's first part."""
    scale = steps.scale_of(x)
    return steps.parts_of(x.astype(np.float32) / scale)[0].astype(np.float64) * scale


def by_formula(name):
    """What stands for the kernels of a plate: formulas, in the precision that buffers have."""
    x, models = regression(3)

    def launch(kernels, *, valued):
        given = kernels.given["given"].astype(np.float64)
        value, kernels.slopes[:] = exact(name, x, models[name][1], given)
        if valued:
            parts = kernels.for_value["value"]
            parts[:] = 0.0
            parts[0] = value
            parts[1] = value - parts[0]

    return launch


@pytest.mark.parametrize(
    ("name", "method", "step_size"),
    [("logistic", "hmc", None), ("normal", "nuts", 0.01), ("poisson", "hmc", 0.01)],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # a start may be where terms overflow
def test_chains_that_wait_draw_what_lanes_draw(monkeypatch, name, method, step_size):
    """The same trajectories, with adaptation, trees and starts; five chains are not sixteen."""
    monkeypatch.setattr(steps.Kernels, "__init__", _bare)
    monkeypatch.setattr(steps.Kernels, "launch", by_formula(name))
    x, models = regression(3)
    model, y = models[name]
    options = {"method": method, "chains": 5, "draws": 4, "warmup": 12, "dtype": "float64"}
    options |= {"depth" if method == "nuts" else "steps": 3, "seed": 3, "step_size": step_size}
    lanes = ppl.infer(model, x, y, **options)
    tiles = ppl.infer(model, x, y, tiles=True, **options)
    for name_, given in lanes.draws.items():
        np.testing.assert_allclose(tiles[name_], given, rtol=2e-4, atol=2e-4)
    assert np.array_equal(tiles.statistics["leapfrogs"], lanes.statistics["leapfrogs"])
    assert len(np.unique(tiles["beta"])) > 5


def _bare(kernels, plate, split, composed, running, device):
    """Fill in what formulas take of the kernels."""
    kernels.slopes = running.memory[f"slopes{plate.number}"]
    kernels.given = {"given": running.memory[f"given{plate.number}"]}
    kernels.for_value = {"value": running.memory[f"value{plate.number}"]}


@pytest.mark.parametrize(
    "name",
    ["normal", *(pytest.param(n, marks=pytest.mark.long) for n in ("logistic", "poisson"))],
)
def test_the_kernel_computes_values_and_slopes(name):
    """In the simulator: the value to float32's errors, the slopes to bfloat16's; rows cut short."""
    composed, plates, options = prepared(name, 20, chains=20, steps=1, step_size=0.01)
    x, models = regression(20)
    with steps.Steps(composed, plates, options) as chains:
        (kernel,) = chains.kernels
        assert kernel.split.padded > ROWS
        given = chains.running.rows("given0")
        rng = np.random.default_rng(2)
        given[:] = rng.uniform(0.3, 1.2, given.shape) / (2 if name == "poisson" else 1)
        value, slopes = exact(name, x, models[name][1], given.astype(np.float64))
        kernel.launch(valued=True)
        got = chains.running.rows("value0").astype(np.float64).sum(0)
        np.testing.assert_allclose(got, value, rtol=3e-7)
        found = chains.running.rows("slopes0").copy()
        _, seen = exact(name, rounded(x), models[name][1], given.astype(np.float64))
        scale = np.abs(slopes).max(1, keepdims=True)
        assert np.all(np.abs(found - seen) < 3e-3 * scale + 0.05)
        assert np.all(np.abs(found - slopes) < 1e-2 * scale + 0.05)
        if name == "logistic":  # slopes are one function of a chain, whether its value is asked
            kernel.launch(valued=False)
            assert np.array_equal(found, chains.running.rows("slopes0"))


@pytest.mark.long
def test_rows_and_densities_that_branches_choose():
    """A term with an `if` in an `if`: values, and slopes in which no branch not taken shows."""
    composed, plates, options = prepared("seen", 3, chains=16, steps=1)
    x, models = regression(3)
    y = models["seen"][1]
    with steps.Steps(composed, plates, options) as chains:
        (kernel,) = chains.kernels
        given = chains.running.rows("given0")
        given[:] = np.random.default_rng(2).uniform(-1.0, 1.0, given.shape)
        kernel.launch(valued=True)
        got = chains.running.rows("value0").astype(np.float64).sum(0)
        slopes = chains.running.rows("slopes0").astype(np.float64)

    def term(eta):
        scale = 1.0 + np.where(eta > 0.0, np.log1p(np.maximum(eta, 0.0)), 1.0 - eta)
        u = (np.log(np.maximum(y, 1e-9))[:, None] - eta) / scale
        return np.where(y[:, None] > 0.0, -0.5 * u * u - np.log(scale) - HALF_LOG, 0.0)

    eta, seen_eta = x @ given.astype(np.float64), rounded(x) @ given.astype(np.float64)
    np.testing.assert_allclose(got, term(eta).sum(0), rtol=1e-6)
    by_difference = (term(seen_eta + 1e-6) - term(seen_eta - 1e-6)) / 2e-6
    exact_ = rounded(x).T @ by_difference
    assert np.all(np.abs(slopes - exact_) < 3e-3 * np.abs(exact_).max() + 0.05)


def cut_off(matrix, vectors):
    """A product as tensor cores add it: 16 columns at a time, float32 cut off toward zero."""
    total = np.zeros((len(matrix), len(vectors)), np.float32)
    for k in range(0, matrix.shape[1], 16):
        added = matrix[:, k : k + 16] @ vectors[:, k : k + 16].T + total.astype(np.float64)
        total = added.astype(np.float32)
        beyond = np.abs(total) > np.abs(added)
        total[beyond] = np.nextafter(total[beyond], np.float32(0))
    return total.astype(np.float64)


@pytest.mark.parametrize("sizes", [1.0, [1.0, 1e6]], ids=["alike", "unlike"])
def test_tensor_cores_cut_nothing_off(sizes):
    """Products of first parts are exact, and predictors have the error of a float32 number."""
    rng = np.random.default_rng(3)
    x = (rng.standard_normal((500, 128)) * np.resize(sizes, 128)).astype(np.float32)
    v = (rng.standard_normal((20, 128)) / np.resize(sizes, 128)).astype(np.float32)
    scale = steps.scale_of(x)
    a, b = ([p.astype(np.float64) for p in steps.parts_of(m)] for m in (x / scale, v * scale))
    large, small = cut_off(a[0], b[0]), cut_off(a[0], b[1])
    assert np.array_equal(large, a[0] @ b[0].T)
    assert np.array_equal(small, a[0] @ b[1].T)
    pairs = [(0, 1), (1, 1), (0, 2), (2, 0)]
    rest = small + sum(cut_off(a[j], b[i]) for i, j in pairs)
    exact_ = x.astype(np.float64) @ v.astype(np.float64).T
    error = (large.astype(np.float32) + rest.astype(np.float32)) - exact_
    assert np.abs(error).max() < 2.0**-23 * np.abs(exact_).max()
    assert abs((error * np.sign(exact_)).mean()) < 2.0**-28 * np.abs(exact_).max()


@pytest.mark.long
def test_two_products_and_two_plates():
    composed, plates, options = prepared("two", COLUMNS, chains=16, steps=1)
    x, models = regression()
    y = models["two"][1][:, None]
    with steps.Steps(composed, plates, options) as chains:
        rng = np.random.default_rng(2)
        for n, words in (("given0", 2 * COLUMNS), ("given1", COLUMNS)):
            chains.running.give(n, rng.uniform(-1.0, 1.0, (words, 16)))
        for kernel in chains.kernels:
            kernel.launch(valued=True)
        both = chains.running.rows("given0").astype(np.float64)
        mean, spread = x @ both[:COLUMNS], 0.1 * (x @ both[COLUMNS:])
        u = (y - mean) * np.exp(-spread)
        value = (-0.5 * u**2 - 0.5 * np.log(2 * np.pi) - spread).sum(0)
        slopes = np.concatenate([x.T @ (u * np.exp(-spread)), 0.1 * (x.T @ (u**2 - 1))])
        np.testing.assert_allclose(chains.running.rows("value0").sum(0), value, rtol=1e-6)
        np.testing.assert_allclose(chains.running.rows("slopes0"), slopes, rtol=0.02, atol=0.5)
        other = x @ chains.running.rows("given1").astype(np.float64)
        np.testing.assert_allclose(
            chains.running.rows("value1").sum(0), -np.log1p(other**2).sum(0), rtol=1e-6
        )


@ppl.model
def small(x, y):
    beta = ppl.map(lambda k: ppl.sample(ppl.Normal(0.0, 1.0)), x[0])
    for i in range(4):
        ppl.observe(ppl.Normal(x[i] @ beta, 1.0), y[i])
    return beta


@ppl.model
def own(x, y):
    scale = ppl.sample(ppl.HalfNormal(1.0))
    level = ppl.map(lambda v: ppl.sample(ppl.Normal(0.0, scale)), y)
    ppl.map(lambda m, v: ppl.observe(ppl.Normal(m, 1.0), v), level, y)
    return scale


@ppl.model
def curve(x, y):
    a = ppl.sample(ppl.Normal(0.0, 1.0))
    ppl.map(lambda row, v: ppl.observe(ppl.Normal(a * row[0], 1.0), v), x, y)
    return a


@ppl.model
def chain(x, y):
    a = ppl.sample(ppl.Normal(0.0, 1.0))
    for row, v in zip(x, y):
        state = 0.0
        for item in row:
            state = a * ppl.exp(-state) + item
        ppl.observe(ppl.Normal(state, 1.0), v)
    return a


@ppl.model
def grows(x, y):
    a = ppl.sample(ppl.Normal(0.0, 1.0))
    for row, v in zip(x, y):
        state = 1.0
        for item in row:
            state = state + item * (a * state)
        ppl.observe(ppl.Normal(state, 1.0), v)
    return a


@ppl.model
def counts(x, y):
    size = ppl.sample(ppl.HalfNormal(1.0))
    beta = ppl.map(lambda k: ppl.sample(ppl.Normal(0.0, 1.0)), x[0])
    for row, v in zip(x, y):
        ppl.factor(ppl.lgamma(size + ppl.exp(row @ beta)) * v)
    return beta


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (small, "small has no big plate"),
        (own, "reads a parameter of each row's own"),
        (curve, "no product of a matrix of data and a vector of parameters"),
        (chain, "a loop of it is not the sum of a product"),
        (grows, "a loop of it is not the sum of a product"),
        (counts, "its terms have lgamma, which tiles do not have"),
    ],
)
def test_what_tiles_cannot_compute_is_refused_with_its_reason(model, why):
    x, models = regression(3)
    with pytest.raises(ModelError, match=why):
        ppl.infer(model, x, models["normal"][1], method="hmc", tiles=True, chains=1, draws=1)


@pytest.mark.parametrize(("lanes", "parts"), [(4096, 4), (1024, 16), (128 * 132, 1), (16, 128)])
def test_all_multiprocessors_have_about_the_same_to_do(lanes, parts):
    split = Split(131_072, lanes)
    assert split.parts == parts
    assert split.padded >= split.rows > split.padded - 64 * split.parts
