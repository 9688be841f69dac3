"""Tuning of shipped kernels: the choice, turns between close candidates, what the disk keeps."""

from __future__ import annotations

import json
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from tawa.errors import OverBudget, TuningError
from tawa.kernels import tuner as tuning
from tawa.kernels.tuner import Candidate, Tuner
from tawa.runtime import timing
from tawa.runtime.store import DiskStore

MS = {"slow": 3.0, "fast": 1.0, "close": 1.02, "big": None}


class Bench:
    """Candidates by name, with known times; counts what is timed and asked for."""

    def __init__(self, monkeypatch, path, kind="cuda", ms=MS, ordinal=0):
        device = SimpleNamespace(kind=kind, ordinal=ordinal)
        monkeypatch.setattr(tuning, "look", lambda _: SimpleNamespace(device=device))
        monkeypatch.setattr(tuning, "gpu_target", lambda device: f"gpu {device}")
        self.store = DiskStore(path)
        self.ms = dict(ms)
        self.timed = []

    def ready(self, name):
        if self.ms[name] is None:
            raise OverBudget(f"{name} takes too much shared memory")
        return lambda: name

    def time(self, call):
        name = call()
        self.timed.append(name)
        return self.ms[name]

    def tuner(self):
        return Tuner("product", store=self.store)

    def settle(self, tuner, names, problem="p", **how):
        def candidates():
            return [Candidate(name, lambda name=name: self.ready(name)) for name in names]

        return tuner.settle(problem, candidates, None, self.time, **how)


def test_the_fastest_is_found_once_and_kept_on_disk(monkeypatch, tmp_path):
    bench = Bench(monkeypatch, tmp_path)
    tuner = bench.tuner()
    assert bench.settle(tuner, ["slow", "big", "fast"]) == "fast"
    assert bench.timed == ["slow", "fast"]
    assert bench.settle(tuner, ["slow", "big", "fast"]) == "fast"
    assert bench.settle(bench.tuner(), ["slow", "big", "fast"]) == "fast"
    assert bench.timed == ["slow", "fast"], "neither memory nor disk times again"


def test_other_candidates_or_problems_are_timed_anew(monkeypatch, tmp_path):
    bench = Bench(monkeypatch, tmp_path)
    bench.settle(bench.tuner(), ["slow", "fast"])
    assert bench.settle(bench.tuner(), ["slow"]) == "slow"
    bench.settle(bench.tuner(), ["slow", "fast"], problem="q")
    assert bench.timed == ["slow", "fast", "slow", "slow", "fast"]


def test_candidates_close_to_the_fastest_take_turns(monkeypatch, tmp_path):
    bench = Bench(monkeypatch, tmp_path)
    drift = iter([1.0, 1.02, 3.0, 1.5, 1.1, 1.1, 1.5])  # the second turn goes backwards
    bench.time = lambda call: next(drift)
    assert bench.settle(bench.tuner(), ["fast", "close", "slow"]) == "close"


def test_close_candidates_are_told_apart_under_load(monkeypatch, tmp_path):
    bench = Bench(monkeypatch, tmp_path, ordinal=1)
    warmed, current = [], [0]

    @contextmanager
    def device(ordinal):
        current.append(ordinal)
        yield
        current.pop()

    def do_bench(call, warmup, rep):
        assert current[-1] == 1, "timed where the arrays are"
        warmed.append((call(), warmup))
        return {"fast": 1.0, "close": 1.02, "slow": 3.0}[call()] if warmup < 50 else 1.0 / warmup

    monkeypatch.setattr(tuning, "do_bench", do_bench)
    monkeypatch.setattr(tuning, "captured", lambda call: call)
    fake = SimpleNamespace(cuda=SimpleNamespace(device=device))
    monkeypatch.setattr(timing, "_torch", lambda: fake)
    monkeypatch.setattr(bench, "time", None)
    bench.settle(bench.tuner(), ["fast", "slow", "close"])
    assert [name for name, warmup in warmed if warmup < 50] == ["fast", "slow", "close"]
    long = [name for name, warmup in warmed if warmup > 50]
    assert long == ["fast", "close", "close", "fast"]


@pytest.mark.parametrize(
    "change",
    [
        lambda outcome: outcome | {"label": "slow"},
        lambda outcome: outcome | {"best": 7},
        lambda outcome: outcome | {"best": -1},
        lambda outcome: outcome | {"best": "0"},
        lambda outcome: [],
    ],
)
def test_a_file_that_does_not_fit_is_a_miss(monkeypatch, tmp_path, change):
    bench = Bench(monkeypatch, tmp_path)
    bench.settle(bench.tuner(), ["slow", "fast"])
    (path,) = tmp_path.glob("??/*")
    outcome = json.loads(path.read_bytes()[32:])
    assert (outcome["best"], outcome["label"]) == (1, "fast")
    assert outcome["times"] == {"slow": 3.0, "fast": 1.0}
    keys = []
    get = bench.store.get
    monkeypatch.setattr(DiskStore, "get", lambda _, key: (keys.append(key), get(key))[1])
    bench.settle(bench.tuner(), ["slow", "fast"])
    bench.store.put(keys[0], json.dumps(change(outcome)).encode())
    assert bench.settle(bench.tuner(), ["slow", "fast"]) == "fast"
    assert bench.timed == ["slow", "fast"] * 2


def test_without_a_gpu_the_first_that_builds_is_taken(monkeypatch, tmp_path):
    bench = Bench(monkeypatch, tmp_path, kind="cpu")
    assert bench.settle(bench.tuner(), ["big", "slow", "fast"]) == "slow"
    assert bench.timed == []
    assert not list(tmp_path.glob("??/*"))


def test_what_changes_from_call_to_call_is_not_timed(monkeypatch, tmp_path):
    bench = Bench(monkeypatch, tmp_path)
    assert bench.settle(bench.tuner(), ["big", "slow", "fast"], timed=False) == "slow"
    assert bench.timed == []


def test_when_nothing_builds_every_reason_is_given(monkeypatch, tmp_path):
    bench = Bench(monkeypatch, tmp_path)
    with pytest.raises(TuningError, match="big takes too much shared memory"):
        bench.settle(bench.tuner(), ["big"])


def test_a_capture_is_of_the_stream_that_is_current(monkeypatch):
    """Torch's own choice of a stream belongs to the device that captured first."""
    streams, captures = [], []

    @contextmanager
    def stream(one):
        streams.append(one)
        yield
        streams.pop()

    @contextmanager
    def graph(made, **how):
        captures.append((streams[-1], how))
        yield

    made = SimpleNamespace(replay=lambda: None)
    cuda = SimpleNamespace(
        synchronize=lambda: None, Stream=object, stream=stream, CUDAGraph=lambda: made, graph=graph
    )
    monkeypatch.setattr(timing, "_torch", lambda: SimpleNamespace(cuda=cuda))
    assert timing.captured(lambda: None) is made.replay
    ((current, how),) = captures
    assert how == {"stream": current, "capture_error_mode": "thread_local"}
