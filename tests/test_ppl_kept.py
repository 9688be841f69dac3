"""What is kept: of a model its programs from call to call, of a draw what `keep=` names."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from tawa import ppl
from tawa.errors import ModelError

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


def test_what_was_not_kept_is_missed_by_name():
    post = ppl.infer(scaled, 0.4, method="importance", draws=50, keep=["mu"])
    with pytest.raises(ModelError, match="no draws of tau"):
        _ = post.log_likelihood
    with pytest.raises(ModelError, match="keep= names sigma"):
        ppl.infer(scaled, 0.4, method="importance", keep=["sigma"])
    with pytest.raises(ModelError, match="not a tuple of names"):
        ppl.infer(scaled, 0.4, method="importance", keep="mu")
