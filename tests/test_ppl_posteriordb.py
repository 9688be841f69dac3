"""Posteriors of posteriordb against its stored means and deviations."""

from __future__ import annotations

import pytest

import posteriordb_models as db

# Of those whose data lie in tests/data: draws and warm-up of each of four chains.
SMALL = {
    "arma-arma11": (500, 800),
    "eight_schools-eight_schools_noncentered": (500, 800),
    "garch-garch11": (500, 800),
    "gp_pois_regr-gp_regr": (150, 250),
    "hmm_example-hmm_example": (150, 250),
    "mesquite-logmesquite_logva": (500, 800),
    "mesquite-logmesquite_logvolume": (500, 800),
    "mesquite-mesquite": (500, 800),
}


def check(name, least, **options):
    post = db.sample(name, method="nuts", seed=3, **options)
    assert post.rhat() < 1.03
    for title, of_mean, of_deviation, effective in db.compare(name, post):
        assert effective > least, title
        assert of_mean < 4, title
        assert of_deviation < 4, title


# The slowest three run in `make long`.
SLOW = ("gp_pois_regr-gp_regr", "hmm_example-hmm_example", "arma-arma11")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.long] if n in SLOW else []) for n in SMALL]
)
def test_small_posteriors(name):
    draws, warmup = SMALL[name]
    check(name, draws, chains=4, draws=draws, warmup=warmup)


@pytest.mark.long
@pytest.mark.skipif(not db.FOLDER, reason="TAWA_POSTERIORDB names no checkout")
@pytest.mark.parametrize("name", [name for name in db.POSTERIORS if name != "diamonds-diamonds"])
def test_all_posteriors(name):
    check(name, 1000, chains=8, draws=1000, warmup=1000)


def test_every_stored_posterior_has_a_model():
    assert set(db.POSTERIORS) == set(db.REFERENCE)
    assert len(db.POSTERIORS) == 45
