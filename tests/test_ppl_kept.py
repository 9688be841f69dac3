"""What is kept: of a model its programs from call to call, of a draw what `keep=` names."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from tawa import ppl
from tawa.errors import ModelError
from tawa.ppl.infer.compose import bare
from tawa.ppl.ir.core import Region
from tawa.ppl.passes.handle import Handler, Layout, Nest

SHIFT = 1.0
TWO = np.array([0.3, 0.7])


def shifted(x):
    return x + SHIFT


@ppl.model
def shift(y, count):
    mu = ppl.sample(ppl.Normal(0.0, 1.0))
    ppl.map(lambda v: ppl.observe(ppl.Normal(shifted(mu), 0.5), v), y)
    return mu + float(count)


def run(y=TWO, count=1, **options):
    named = {"method": "nuts", "chains": 2, "draws": 20, "warmup": 20, "seed": 3, **options}
    return ppl.infer(shift, y, count, **named).value


@pytest.fixture
def lowered(monkeypatch):
    """The names of the models that were lowered."""
    compose = sys.modules["tawa.ppl.infer.compose"]
    found, lower = [], compose.lower
    monkeypatch.setattr(compose, "lower", lambda m, *rest: found.append(m.name) or lower(m, *rest))
    shift.programs.clear()
    return found


def test_a_second_call_with_other_data_lowers_nothing(lowered):
    first, again = run(), run()
    other = run(TWO + 10.0, seed=4, chains=3, threads=1)
    assert lowered == ["shift"]
    np.testing.assert_array_equal(first, again)
    shift.programs.clear()
    np.testing.assert_array_equal(run(TWO + 10.0, seed=4, chains=3), other)
    assert abs(other.mean() - first.mean()) > 3


@pytest.mark.parametrize(
    "other",
    [{"count": 2}, {"count": True}, {"y": TWO[:1]}, {"dtype": "float64"}, {"draws": 21}]
    + [{"method": method} for method in ("hmc", "mh")],
    ids=str,
)
def test_what_makes_another_program_is_lowered_again(lowered, other):
    run()
    run(**other)
    run(**other)
    assert lowered == ["shift", "shift"]


def test_a_name_outside_that_changes_is_seen(lowered, monkeypatch):
    """`SHIFT` is read by a function that the model calls, `shifted` is itself such a name."""
    before = run()
    with monkeypatch.context() as there:
        there.setattr(sys.modules[__name__], "SHIFT", 2.0)
        changed = run()
        assert abs((before - changed).mean() - 1.0) < 0.7
    with monkeypatch.context() as there:
        there.setattr(sys.modules[__name__], "shifted", lambda_of_one)
        run()
    assert len(lowered) == 3


def lambda_of_one(x):
    return x


@ppl.model
def scaled(y):
    mu = ppl.sample(ppl.Normal(0.0, 1.0))
    tau = ppl.sample(ppl.HalfNormal(1.0))
    ppl.observe(ppl.Normal(mu, tau), y)
    return mu, tau


@pytest.mark.parametrize(
    ("method", "sizes"),
    [
        ("importance", {"draws": 40}),
        ("nuts", {"draws": 40, "warmup": 20}),
        ("smc", {"particles": 40}),
    ],
)
def test_only_what_is_named_is_kept(method, sizes):
    given = {"method": method, "seed": 5, **sizes}
    whole = ppl.infer(scaled, 0.4, **given)
    part = ppl.infer(scaled, 0.4, keep=["tau"], **given)
    assert list(part.draws) == ["tau"]
    assert part.value is None
    np.testing.assert_array_equal(part["tau"], whole["tau"])
    value = ppl.infer(scaled, 0.4, keep=("value",), **given).value
    np.testing.assert_array_equal(value[1], whole.value[1])


@pytest.mark.parametrize("method", ["mh", "hmc", "nuts", "pmmh", "importance", "smc", "tempered"])
def test_nothing_may_be_kept(method):
    chains = {"chains": 2, "draws": 3, "warmup": 2}
    few = {"importance": {"draws": 3}, "smc": {"particles": 8}, "tempered": {"particles": 8}}
    more = {"parameters": ("mu",), "particles": 8} if method == "pmmh" else {}
    options = few.get(method, chains) | more
    post = ppl.infer(shift, TWO, 1, method=method, keep=(), **options)
    assert not post.draws
    assert post.value is None


def test_what_was_not_kept_is_missed_by_name():
    post = ppl.infer(scaled, 0.4, method="importance", draws=50, keep=["mu"])
    with pytest.raises(ModelError, match="no draws of tau"):
        _ = post.log_likelihood
    with pytest.raises(ModelError, match="keep= names sigma"):
        ppl.infer(scaled, 0.4, method="importance", keep=["sigma"])
    with pytest.raises(ModelError, match="is not a tuple of names"):
        ppl.infer(scaled, 0.4, method="importance", keep="mu")


@ppl.model
def mixed(y):
    x = ppl.sample(ppl.Normal(0.0, 1.0))
    k = ppl.sample(ppl.Poisson(3.0))
    ppl.observe(ppl.Normal(x + float(k), 1.0), y)
    return x > 0.0


@pytest.mark.parametrize(("model", "method"), [(scaled, "nuts"), (mixed, "mh")])
def test_running_moments_are_those_of_the_draws(model, method):
    options = {"method": method, "chains": 3, "draws": 50, "warmup": 20, "seed": 2}
    options["dtype"] = "float64"
    whole = ppl.infer(model, 0.4, **options)
    post = ppl.infer(model, 0.4, moments=True, **options)
    assert dict(post.draws) == {}
    named = {**whole.draws, **({"value": whole.value} if model is mixed else {})}
    for name, draws in named.items():
        found = post.moments[name]
        np.testing.assert_allclose(found.mean, draws.mean(1), rtol=1e-9)
        np.testing.assert_allclose(found.variance, draws.var(1, ddof=1), rtol=1e-9)
        between = draws.mean(1).var(0, ddof=1)
        want = np.sqrt(49 / 50 + between / draws.var(1, ddof=1).mean(0))
        np.testing.assert_allclose(found.rhat, want, rtol=1e-9)
    lines = dict(line.split()[:2] for line in post.summary().splitlines()[1:])
    assert set(named) <= set(lines)
    for name, draws in named.items():
        assert float(lines[name]) == pytest.approx(draws.mean(), rel=1e-3)
    with pytest.raises(ModelError, match=r"post.moments\['x'\]"):
        _ = post["x"]
    with pytest.raises(ModelError, match="moments= has no meaning"):
        ppl.infer(model, 0.4, method="smc", moments=True)


def test_moments_of_a_site_that_some_runs_do_not_reach_are_no_numbers():
    @ppl.model
    def some(y):
        k = 0
        if ppl.sample(ppl.Bernoulli(0.5)):
            k = ppl.sample(ppl.Poisson(2.0))
        ppl.observe(ppl.Normal(0.0, 1.0), y)
        return k

    found = ppl.infer(some, 0.4, method="mh", chains=3, draws=50, moments=True).moments
    assert np.isnan(found["k"].mean).all()
    assert np.all((found["value"].mean > 0.5) & (found["value"].mean < 1.6))


def test_the_memory_of_a_run_is_logged_before_it(caplog):
    caplog.set_level("INFO", "tawa.ppl")
    options = {"method": "mh", "chains": 1000, "draws": 10, "warmup": 0}
    ppl.infer(mixed, 0.4, **options)
    ppl.infer(mixed, 0.4, keep=["k"], **options)
    every, named = caplog.messages
    # Draws of x, k and the value; the weight, how many were accepted.
    assert every == "mh of mixed: 1000 lanes, 128 bytes each, 0.128 MB"
    assert named == "mh of mixed: 1000 lanes, 48 bytes each, 0.048 MB"


@ppl.model
def again(y):
    first = ppl.sample(ppl.Normal(0.0, 1.0))
    x = ppl.map(lambda v: ppl.sample(ppl.Normal(first, 1.0)), y)
    before = x
    x = ppl.map(lambda v: ppl.sample(ppl.Normal(10.0, 1.0)), y)
    k = ppl.sample(ppl.Bernoulli(0.5))
    ppl.observe(ppl.Normal(first, 1.0), y[0])
    return first, before, x, k, 2.0 * first


@pytest.mark.parametrize("method", ["importance", "mh", "nuts"])
def test_draws_are_views_of_one_block_that_holds_what_is_returned_once(method):
    """A site that is returned has no second place; a number that is none has its own."""
    model, given = (scaled, (0.4,)) if method == "nuts" else (again, (TWO,))
    sizes = {"draws": 30} if method == "importance" else {"chains": 3, "draws": 10, "warmup": 10}
    runs = [
        ppl.infer(model, *given, method=method, seed=2, device=device, **sizes)
        for device in ("cpu", "interpreter")
    ]
    for one, other in zip(*map(everything, runs), strict=True):
        np.testing.assert_array_equal(one, other)
    post = runs[0]
    named = list(post.draws.values())
    real = [array for array in named if array.dtype.kind == "f"]
    assert len({id(owner(array)) for array in real}) == 1
    own = post.value[4].nbytes if model is again else 0  # the one value that is no site
    assert owner(real[0]).nbytes == sum(4 * a.size for a in named) + own  # of words
    assert not np.shares_memory(named[0], named[1])
    with pytest.raises(ValueError, match="read-only"):
        named[0][0, 0] = 1.0
    if model is scaled:
        assert np.shares_memory(post["tau"], post.value[1])
        return
    first, before, last, k, twice = post.value
    for value, name in ((first, "first"), (before, "x"), (last, "x_2")):
        assert np.shares_memory(value, post[name])
        np.testing.assert_array_equal(value, post[name])
    assert k.dtype == post["k"].dtype
    np.testing.assert_array_equal(k, post["k"])
    np.testing.assert_array_equal(twice, first * np.float32(2.0))


def everything(post):
    return [*post.draws.values(), *post.value]


def owner(array):
    while array.base is not None:
        array = array.base
    return array


def test_nothing_is_computed_of_draws_before_it_is_asked_for(monkeypatch):
    """No effective size, no R-hat, and no copy in another order."""
    posterior = sys.modules["tawa.ppl.infer.posterior"]
    asked = []
    monkeypatch.setattr(posterior.diagnostics, "over", lambda f, x: asked.append(f.__name__) or 1.0)
    monkeypatch.setattr(np, "ascontiguousarray", lambda *_: pytest.fail("a copy"))
    post = ppl.infer(scaled, 0.4, method="nuts", chains=2, draws=5, warmup=5)
    assert asked == []
    post.ess("mu"), post.rhat("tau")
    assert asked == ["ess", "rhat"]


def test_of_two_records_in_one_place_the_later_one_lies_there():
    low, layout = bare("two").lowered.low, Layout()
    with low.b.inside(Region()):
        first, second = (low.b.const(number, low.b.real) for number in (1.0, 2.0))
        for value in (first, second):
            Handler(low, layout).keep("x", value, Nest())
    assert list(layout.held) == [second]
    assert layout.size == 1
