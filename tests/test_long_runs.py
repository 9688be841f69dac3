"""Long runs in pieces: shards share the work out, what is done is kept, and parts come together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import long_runs
import mutation
import schedule_runs
from long_runs import Unit, arguments, gathered, made_of, read, run, write

UNITS = [Unit(f"kernel {n}", "counted", part, 2) for n in range(6) for part in range(2)]


def counted(unit: Unit) -> dict[str, Any]:
    if unit.name == "kernel 5":
        raise ValueError("no such kernel")
    return {"part": unit.part}


def go(folder: Path, *words: str, units: list[Unit] = UNITS) -> list[Unit]:
    chosen = arguments("", "counted").parse_args(["--jobs", "1", "--parts", str(folder), *words])
    done: list[Unit] = []
    run(units, counted, chosen, lambda unit, result: done.append(unit))
    return done


def test_shards_share_the_work_out_and_merge(tmp_path: Path) -> None:
    shares = [go(tmp_path, "--shard", share) for share in ("1/4", "2-3/4", "4/4")]
    assert sum(map(len, shares)) == 10
    assert len(set().union(*shares)) == 10
    parts, missing = gathered(tmp_path, UNITS)
    assert [unit.name for unit in missing] == ["kernel 5"] * 2  # it raised: it is not passed over
    assert [part.result["part"] for part in parts] == [0, 1] * 5
    assert made_of(parts) == {long_runs.sources(): 10}


def test_a_run_goes_on_where_it_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert go(tmp_path, "--minutes", "0") == []
    units = UNITS[:4]
    assert len(go(tmp_path, units=units)) == 4
    assert go(tmp_path, units=units) == []
    monkeypatch.setattr(long_runs, "sources", lambda: "others")
    assert len(go(tmp_path, units=units)) == 4


def test_parts_of_the_mutation_test_come_together(tmp_path: Path) -> None:
    units = mutation.units(["codegen add", "codegen argmax"])
    for unit in units:
        write(tmp_path, unit, mutation.task(unit))
    scores = mutation.merged(gathered(tmp_path, units)[0])
    whole = mutation.score("codegen add")
    assert [score.kernel for score in scores] == ["codegen add", "codegen argmax"]
    assert scores[0].mutants == whole.mutants > 4
    assert scores[0].fates == whole.fates
    assert scores[0].rules == whole.rules


def test_parts_of_the_schedules_come_together(tmp_path: Path) -> None:
    units = [unit for unit in schedule_runs.units(["codegen while"]) if unit.what == "simulated"]
    for unit in units:
        write(tmp_path, unit, schedule_runs.task(unit))
    (tally,) = schedule_runs.merged(gathered(tmp_path, units)[0])
    whole = schedule_runs.try_kernel("codegen while")
    assert (tally.runs, tally.extents) == (whole.runs, whole.extents)
    assert tally.schedules == whole.schedules
    assert tally.states == whole.states
    assert tally.proof_ms > 0
    assert read(tmp_path, Unit("codegen while", "emulated")) is None
