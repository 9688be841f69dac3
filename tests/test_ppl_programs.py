"""The programs of `ppl_programs.py`: their evidence by smc and importance."""

from __future__ import annotations

import numpy as np
import pytest

import ppl_programs as programs
from tawa import ppl


def evidences(name, method, seeds, count, *other):
    """Return the log of the mean of the evidences of some seeds, and its error."""
    model, given = programs.PROGRAMS[name]
    given = other or given
    key = "draws" if method == "importance" else "particles"
    options = {"method": method, "stack": 400, key: count}
    logs = [ppl.infer(model, *given, seed=seed, **options).log_evidence for seed in range(seeds)]
    means = np.exp(np.array(logs) - max(logs))
    return np.log(means.mean()) + max(logs), means.std(ddof=1) / means.mean() / np.sqrt(seeds)


@pytest.mark.parametrize("name", [n for n in programs.PROGRAMS if n != "vector_borne"])
def test_the_evidence_is_the_exact_one(name):
    found, error = evidences(name, "smc", 8, 4000)
    assert abs(found - programs.evidence(name)) < 4 * error
    assert error < 0.1


def test_a_disease_that_mosquitoes_carry():
    """No closed form: a filter's evidence is that of importance sampling."""
    found, error = evidences("vector_borne", "smc", 5, 500, programs.CASES[:6])
    other, more = evidences("vector_borne", "importance", 5, 2_000, programs.CASES[:6])
    assert abs(found - other) < 4 * np.hypot(error, more)
    assert error < 0.1
    assert more < 0.3
