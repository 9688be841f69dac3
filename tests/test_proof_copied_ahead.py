"""Loops that copy ahead make every number of trips, not only as many as fill their ring; nests of
them are proved.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import test_copy_ahead
from tawa.simulator.proof.run import Run
from test_bug_loops_ahead_nested import SIZES, nested


def _trips(monkeypatch: pytest.MonkeyPatch, cache: Path) -> dict[object, set[int]]:
    """Return what will hold the trips that the loops of a kernel make in runs that may convict."""
    monkeypatch.setenv("TAWA_CACHE_DIR", str(cache))
    found: dict[object, set[int]] = {}
    asked = Run.trips

    def trips(run, site, low, high, by, *rest):
        given = asked(run, site, low, high, by, *rest)
        if not run.configuration.free:
            found.setdefault(site.operation, set()).add(len(given))
        return given

    monkeypatch.setattr(Run, "trips", trips)
    return found


def test_the_loop_chooses_for_what_is_copied_before_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = _trips(monkeypatch, tmp_path)
    test_copy_ahead.powers.compile(
        *test_copy_ahead.arguments(256), grid=(1,), **test_copy_ahead.SIZES
    )
    assert any({0, 1, 2, 3, 4, 5} <= counts for counts in found.values())  # D + 1 and fewer
    assert any(max(counts) == 3 for counts in found.values())  # what is copied before it


def test_nested_loops_that_copy_ahead_are_proved() -> None:
    arrays = test_copy_ahead.arguments(256)[:2]
    kernel = nested.compile(*arrays, 3, 3, 2, grid=(1,), **SIZES)
    assert len(kernel.plan.arefs) == 2
