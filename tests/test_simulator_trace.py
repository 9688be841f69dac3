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
    assert blocks == {1: "block (0, 0, 0)", 2: "block (1, 0, 0)"}
    for block in blocks:
        named = [e for e in events if e["name"] == "thread_name" and e["pid"] == block]
        tracks = [event["args"]["name"] for event in named]
        roles = ROLES[name]
        assert tracks[: len(roles)] == roles  # above the engines
        engines = set(tracks[len(roles) :])
        assert engines == set() if name == "add" else {"TMA", "tensor cores"} <= engines


@pytest.mark.parametrize("name", ["matmul 128x256", "copies gather", "plan cluster"])
def test_the_file_has_the_trace_event_format(name: str, tmp_path: Path) -> None:
    """Complete events and metadata, as "Trace Event Format" has them; numbers that JSON has."""
    ready = SUBJECTS[name].at(None)
    trace = simulate(ready.kernel, ready.grid, ready.fresh(), multiprocessors=2)
    trace.write_chrome(tmp_path / "trace.json")

    def refuse(word: str) -> None:
        pytest.fail(f"{word} is no JSON")

    found = json.loads((tmp_path / "trace.json").read_text(), parse_constant=refuse)
    assert found["displayTimeUnit"] in ("ms", "ns")
    threads: set[tuple[int, int]] = set()
    metadata = {"process_name": "name", "thread_name": "name", "thread_sort_index": "sort_index"}
    for event in found["traceEvents"]:
        assert event["pid"] >= 1  # 0 is the idle process of Perfetto
        if event["ph"] == "M":
            assert set(event["args"]) == {metadata[event["name"]]}
            if event["name"] == "thread_name":
                threads.add((event["pid"], event["tid"]))
            continue
        assert event["ph"] == "X"
        assert event.keys() == {"ph", "name", "cat", "pid", "tid", "ts", "dur", "args"}
        assert (event["pid"], event["tid"]) in threads  # named before
        assert event["tid"] >= 1
        assert event["ts"] >= 0
        assert event["dur"] >= 0
    assert len(trace.spans) == sum(event["ph"] == "X" for event in found["traceEvents"])


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
