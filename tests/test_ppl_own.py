"""Methods of a user's own over `start` and `resume`; the dtype of a model."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest

from tawa import ppl
from tawa.errors import ModelError

EXAMPLE = Path(__file__).parents[1] / "examples" / "07_ppl_own_method.py"
rejection = runpy.run_path(str(EXAMPLE))["rejection"]


def best_of_three(lane):
    """The heaviest of three runs, run a last time: the same random numbers are drawn again."""
    best, found = -1.0e9, 0
    for attempt in range(3):
        lane.draw = attempt
        ppl.start(lane)
        while lane.kind != ppl.DONE:
            ppl.resume()
        if lane.logw > best:
            best, found = lane.logw, attempt
    lane.draw = found
    ppl.start(lane)
    while lane.kind != ppl.DONE:
        ppl.resume()
    if best != lane.logw:
        lane.logw = -1.0e9


@ppl.model
def flipped(seen):
    """Recursion between observations: geometric many failures, and what they say."""
    count = failures(0.5)
    ppl.observe(ppl.Bernoulli(1.0 / (1.0 + float(count))), seen)
    ppl.observe(ppl.Bernoulli(0.5), seen)
    return count


def failures(p):
    if ppl.sample(ppl.Bernoulli(p)):
        return 0
    return 1 + failures(p)


def test_rejection_gives_the_posterior():
    post = ppl.infer(flipped, True, method=rejection, draws=20_000, seed=2)
    chances = np.array([0.5 ** (n + 1) / (n + 1) for n in range(12)])
    want = 20_000 * chances / (np.log(2.0))
    seen = np.bincount(post.value[0], minlength=12)[:12]
    usual = want > 10
    assert ((seen - want)[usual] ** 2 / want[usual]).sum() < usual.sum() + 4 * np.sqrt(2 * 12)


@pytest.mark.parametrize("method", [rejection, best_of_three])
def test_own_methods_have_the_same_bits(method):
    options = {"method": method, "draws": 40, "seed": 7}
    here = ppl.infer(flipped, True, **options)
    there = ppl.infer(flipped, True, device="interpreter", **options)
    np.testing.assert_array_equal(here.value, there.value)
    np.testing.assert_array_equal(here.log_weights, there.log_weights)
    assert here.log_weights.min() > -1.0e9  # a start with the same numbers runs as before
    assert len({*ppl.infer(flipped, True, method=method, draws=40, seed=8).value[0]}) > 1


def test_a_model_without_observations_ends_at_once():
    @ppl.model
    def plain():
        return ppl.sample(ppl.Normal(0.0, 1.0))

    post = ppl.infer(plain, method=rejection, draws=2000, seed=1)
    assert abs(post.value.mean()) < 0.1
    assert post.value.std() == pytest.approx(1.0, abs=0.08)


def test_options_of_own_methods_are_those_of_importance():
    with pytest.raises(ModelError, match="chains= has no meaning"):
        ppl.infer(flipped, True, method=rejection, chains=4)
    with pytest.raises(ModelError, match="is not known"):
        ppl.infer(flipped, True, method=3)


def test_a_model_has_a_dtype_of_its_own():
    @ppl.model(dtype="float64")
    def fine(y):
        x = ppl.sample(ppl.Normal(0.0, 1.0))
        ppl.observe(ppl.Normal(x, 1.0), y)
        return x

    options = {"method": "importance", "draws": 10}
    assert ppl.infer(fine, 0.1, **options)["x"].dtype == np.float64
    assert ppl.infer(fine, 0.1, dtype="float32", **options)["x"].dtype == np.float32
    assert ppl.infer(flipped, True, **options).log_weights.dtype == np.float32

    @ppl.model(dtype="float16")
    def coarse():
        return ppl.sample(ppl.Normal(0.0, 1.0))

    with pytest.raises(ModelError, match="float16"):
        ppl.infer(coarse, method="importance")
    with pytest.raises(ModelError, match="is no model"):
        ppl.model(dtype="float64")(3)
