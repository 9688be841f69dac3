"""The timeline of a run: a track for each role and warpgroup of a block, and for its engines."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from kernel_runs import SUBJECTS
from tawa.simulator import simulate

ROLES = {
    "matmul 128x256": ["load", "mma warpgroup 0", "mma warpgroup 1"],
    "attention": ["load", "mma warpgroup 0", "mma warpgroup 1"],
    "matmul fp8 nn": ["load", "mma warpgroup 0", "mma warpgroup 1", "transpose"],
    "instances gemm depth 2": ["load", "mma0", "mma1"],
    "add": ["main"],
}


@pytest.mark.parametrize("name", ROLES)
def test_a_track_for_each(name: str, tmp_path: Path) -> None:
    ready = SUBJECTS[name].at(None)
    trace = simulate(ready.kernel, ready.grid, ready.fresh(), multiprocessors=2)
    trace.write_chrome(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    blocks = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert sorted(blocks.values()) == ["block (0, 0, 0)", "block (1, 0, 0)"]
    for block in blocks:
        named = [e for e in events if e["name"] == "thread_name" and e["pid"] == block]
        tracks = [event["args"]["name"] for event in named]
        roles = ROLES[name]
        assert tracks[: len(roles)] == roles  # above the engines
        engines = set(tracks[len(roles) :])
        assert engines == set() if name == "add" else {"TMA", "tensor cores"} <= engines


@pytest.mark.parametrize("name", ["matmul 128x256", "attention"])
def test_a_track_draws_one_thing_at_a_time_and_work_overlaps(name: str) -> None:
    ready = SUBJECTS[name].at(None)
    trace = simulate(ready.kernel, ready.grid, ready.fresh(), multiprocessors=2)
    drawn: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in trace.chrome()["traceEvents"]:
        if event["ph"] == "X":
            span = (event["ts"], event["ts"] + event["dur"])
            drawn.setdefault((event["pid"], event["tid"]), []).append(span)
    for spans in drawn.values():
        spans.sort()
        assert all(first[1] <= second[0] + 1e-9 for first, second in pairwise(spans))
    one = [span for span in trace.spans if span.block == "block (0, 0, 0)"]
    copies = [span for span in one if span.engine == "TMA"]
    products = [span for span in one if span.engine == "tensor cores"]
    assert any(c.start < p.end and p.start < c.end for c in copies for p in products)
