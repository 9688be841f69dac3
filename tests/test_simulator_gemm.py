"""The worked GEMM at its three levels: equal results, and every missing synchronisation is seen."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

import simulator_samples as samples
from simulator_samples import expected, gemm, gemm_kernel, gemm_text
from tawa import ir
from tawa.errors import ArgumentError, ProtocolError

DEPTH = 3


@pytest.mark.parametrize("level", ["tile", "aref", "hopper"])
@pytest.mark.parametrize("iterations", range(2 * DEPTH + 3))
def test_every_trip_count(level, iterations):
    c, a, b, _ = gemm(gemm_kernel(level), level, 128, 256, 64 * iterations)
    assert np.array_equal(c, expected(a, b))


@pytest.mark.parametrize("level", ["tile", "aref", "hopper"])
@pytest.mark.parametrize(
    ("m", "n", "k"), [(1, 1, 1), (130, 300, 200), (64, 257, 65), (200, 24, 90)]
)
def test_uneven_shapes(level, m, n, k):
    c, a, b, _ = gemm(gemm_kernel(level), level, m, n, k)
    assert np.array_equal(c, expected(a, b))


@pytest.mark.parametrize("late", ["random", "late", "early"])
@pytest.mark.parametrize("schedule", ["random", "starve=load", "starve=mma"])
@pytest.mark.parametrize("seed", range(3))
def test_every_schedule_gives_the_oracles_bits(seed, schedule, late):
    oracle, *_ = gemm(gemm_kernel("tile"), "tile", 130, 260, 330, normal=True)
    c, *_ = gemm(
        gemm_kernel("hopper"),
        "hopper",
        130,
        260,
        330,
        normal=True,
        seed=seed,
        schedule=schedule,
        late=late,
        multiprocessors=2,
    )
    assert np.array_equal(c.view(np.uint16), oracle.view(np.uint16))


@pytest.mark.parametrize("seed", range(5))
def test_aref_schedules_give_the_oracles_bits(seed):
    oracle, *_ = gemm(gemm_kernel("tile"), "tile", 130, 260, 330, normal=True)
    for schedule in ("random", "starve=load", "starve=mma"):
        c, *_ = gemm(
            gemm_kernel("aref"), "aref", 130, 260, 330, normal=True, seed=seed, schedule=schedule
        )
        assert np.array_equal(c.view(np.uint16), oracle.view(np.uint16))


def test_equal_seeds_give_equal_runs():
    runs = [gemm(gemm_kernel("hopper"), "hopper", 256, 256, 256, seed=s)[3] for s in (1, 1, 2)]
    assert runs[0].steps == runs[1].steps
    assert runs[0].spans == runs[1].spans
    assert runs[0].spans != runs[2].spans


# --- what is missing is seen ----------------------------------------------------------------------

REDUNDANT = {  # in a kernel of one tile: there is no earlier store, no later load
    "hopper.arrive": 1,
    "hopper.bulk_wait": 0,
    "hopper.named_barrier": 0,
}
SEEN = {
    "hopper.init_barriers": "before it is initialised",
    "hopper.fence_barrier_init": "without fence.mbarrier_init",
    "hopper.block_sync": "may run before its initialisation",
    "hopper.set_registers": "deadlock|holds 168",
    "hopper.wait": "race on shared memory|before anything was written",
    "hopper.expect": "deadlock",
    "hopper.tma_load": "deadlock",
    "hopper.wgmma_fence": "without wgmma.fence",
    "hopper.wgmma_commit": "race on shared memory",
    "hopper.wgmma_wait": "race on shared memory|reads an accumulator",
    "hopper.arrive": "deadlock",
    "hopper.proxy_fence": "async proxy need not see the first",
    "hopper.named_barrier": "race on shared memory",
    "hopper.bulk_commit": "never committed",
    "hopper.bulk_wait": "never waited for",
}
NAMES = [op.name for op in gemm_kernel("hopper").walk()]
MUTANTS = [
    (name, number)
    for name in SEEN
    for number in range(NAMES.count(name))
    if REDUNDANT.get(name) != number
]


def without(name: str, number: int):
    return samples.without(gemm_kernel("hopper"), name, number)


@pytest.mark.parametrize(("name", "number"), MUTANTS)
def test_a_missing_operation_is_seen(name, number):
    with pytest.raises(ProtocolError, match=SEEN[name]):
        gemm(without(name, number), "hopper", 128, 256, 640)


@pytest.mark.parametrize("late", ["early", "late", "random"])
@pytest.mark.parametrize(
    ("name", "number"), [("hopper.wait", 0), ("hopper.wgmma_wait", 0), ("hopper.proxy_fence", 0)]
)
def test_races_are_seen_whatever_the_order(name, number, late):
    for schedule in ("random", "starve=load", "starve=mma"):
        with pytest.raises(ProtocolError, match=r"race|async proxy|gets more than"):
            gemm(without(name, number), "hopper", 128, 256, 640, late=late, schedule=schedule)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("arrivals = #builtin.int<2>", "arrivals = #builtin.int<1>", "race on shared memory"),
        ("arrivals = #builtin.int<2>", "arrivals = #builtin.int<3>", "deadlock"),
        ("bytes = #builtin.int<49152>", "bytes = #builtin.int<49168>", "deadlock"),
        ("bytes = #builtin.int<49152>", "bytes = #builtin.int<32768>", "before anything|race|dead"),
        ('"inc" {count = #builtin.int<232>}', '"inc" {count = #builtin.int<240>}', "deadlock"),
        ("%phase = %one", "%phase = %zero", "deadlock"),
        ("%phase_1 = %zero_1", "%phase_1 = %one_1", "before anything|deadlock"),
        ("{pending = #builtin.int<1>}", "{pending = #builtin.int<2>}", "race on shared memory"),
        ("offset = #builtin.int<49152>} : ", "offset = #builtin.int<48128>} : ", "race|before"),
        ("offset = #builtin.int<213016>", "offset = #builtin.int<213008>", "overlap"),
    ],
)
def test_a_wrong_number_is_seen(old, new, message):
    assert gemm_text("hopper").count(old) >= 1
    kernel = ir.parse(gemm_text("hopper").replace(old, new, 1))
    with pytest.raises(ProtocolError, match=message):
        gemm(kernel, "hopper", 128, 256, 640, late="early")


def test_a_deadlock_is_a_table():
    with pytest.raises(ProtocolError) as error:
        gemm(without("hopper.expect", 0), "hopper", 128, 256, 640, seed=1)
    text = str(error.value)
    assert text.startswith("deadlock: every role waits\n  step  role  line  waits for")
    assert "mma   -     a+b@14 filled[0]  0 (parity 0)  0/1 -49152 bytes due" in text
    assert "mma waits for phase 0 of a+b@14 filled[0], which has 0/1 arrivals" in text
    assert "nobody is left to do it" in text


def test_a_race_names_both_accesses():
    with pytest.raises(ProtocolError) as error:
        gemm(without("hopper.wgmma_wait", 0), "hopper", 128, 256, 640)
    text = str(error.value)
    assert "first:  async read of bytes 0..8191 by mma (hopper.wgmma)" in text
    assert "second: async write of bytes 0..16383 by load (hopper.tma_load)" in text


# --- timeline -------------------------------------------------------------------------------------


def test_the_timeline_has_a_track_for_each_engine(tmp_path):
    trace = gemm(gemm_kernel("hopper"), "hopper", 128, 256, 640)[3]
    tracks = {(span.role, span.engine) for span in trace.spans}
    threads = {("mma", "warpgroup 0"), ("mma", "warpgroup 1")}
    assert {("load", "TMA"), ("mma", "tensor cores"), ("mma", "TMA"), *threads} <= tracks
    for track in tracks - {("load", "TMA"), ("mma", "TMA")}:
        spans = [s for s in trace.spans if (s.role, s.engine) == track]
        assert all(a.end <= b.start for a, b in pairwise(spans))
    products = [s for s in trace.spans if s.engine == "tensor cores"]
    assert len(products) == 10


def test_the_timeline_as_a_chrome_trace(tmp_path):
    trace = gemm(gemm_kernel("hopper"), "hopper", 128, 256, 640)[3]
    trace.write_chrome(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    kinds = Counter(event["name"] for event in events if event["ph"] == "M")
    names = [event["args"]["name"] for event in events if event["name"] == "thread_name"]
    assert kinds["process_name"] == 1
    assert kinds["thread_name"] == kinds["thread_sort_index"] == len(names)
    assert {"load", "mma warpgroup 0", "mma warpgroup 1", "TMA", "tensor cores"} <= set(names)
    assert names.index("tensor cores") == len(names) - 1  # engines below roles
    drawn = [event for event in events if event["ph"] == "X"]
    assert len(drawn) == len(trace.spans)
    assert {event["cat"] for event in drawn} == {"work", "wait"}
    for thread in range(len(names)):
        mine = sorted((e["ts"], e["ts"] + e["dur"]) for e in drawn if e["tid"] == thread)
        # A track draws one thing at a time: copies in flight together have tracks of their own.
        assert all(end <= start + 1e-9 for (_, end), (start, _) in pairwise(mine))


def test_the_aref_timeline_shows_roles_side_by_side():
    trace = gemm(gemm_kernel("aref"), "aref", 128, 256, 640)[3]
    tracks = {(span.role, span.engine) for span in trace.spans}
    assert tracks == {("load", "warps"), ("mma", "warps")}
    names = {span.name for span in trace.spans}
    assert {"desc_load", "dot", "wait a+b@14 filled", "wait a+b@14 freed"} <= names


def test_bad_choices_are_named():
    for how in ({"schedule": "fair"}, {"late": "never"}, {"level": "cuda"}):
        with pytest.raises(ArgumentError, match=f"{next(iter(how))}="):
            gemm(gemm_kernel("hopper"), **({"level": "hopper", "m": 1, "n": 1, "k": 1} | how))


def test_loads_run_ahead_of_products():
    trace = gemm(gemm_kernel("hopper"), "hopper", 128, 256, 640)[3]
    products = [s for s in trace.spans if s.engine == "tensor cores"]
    loads = [s for s in trace.spans if s.engine == "TMA" and s.role == "load"]
    assert loads[4].start < products[0].end
