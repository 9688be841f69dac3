"""A whole benchmark case without a GPU: a stand-in for torch, our kernels in the simulator."""

import json
import sys
from pathlib import Path

import pytest

import fake_torch

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.fixture(autouse=True)
def _stage(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    # Not fake_torch.Tensor as torch's: to tawa the arrays are NumPy's.
    fake = fake_torch.module()
    fake.Tensor = type("Unused", (), {})
    monkeypatch.setitem(sys.modules, "torch", fake)


class Wrong:
    """Writes nothing: its output stays poisoned."""

    name = "wrong"

    def failures(self):
        return (RuntimeError,)

    def stand_ins(self, case):
        return None

    def offers(self, case):
        from peers import Offer

        yield Offer("nothing", lambda inputs: lambda: None)


class Refusing(Wrong):
    """Declines when bound, and fails when launched."""

    name = "refusing"

    def offers(self, case):
        from peers import Offer

        def decline(inputs):
            raise RuntimeError("no such tile")

        def fail():
            raise RuntimeError("launch failed")

        yield Offer("declines", decline)
        yield Offer("fails", lambda inputs: fail)


def test_a_case_from_inputs_to_rows(tmp_path):
    import peers
    import report
    import runner
    from harness import Case

    rows, beat = tmp_path / "rows.jsonl", tmp_path / "beat"
    cases = [Case("f16", 128, 128, 64), Case("bf16", 72, 64, 136)]
    everyone = [peers.Torch(), peers.Tawa(most=2), Wrong(), Refusing(), peers.TorchRows()]
    limits = runner.Limits(60, rounds=1, runs=2)
    runner.work(cases, everyone, limits, rows, beat)
    found = {(row["shape"], row["peer"]): row for row in report.read_rows(rows)}
    for case in cases:
        assert found[case.shape, "tawa"]["ms"] > 0
        assert found[case.shape, "tawa"]["rel_err"] < 8e-3
        assert found[case.shape, "torch"]["config"] == "mm"
        assert "WRONG" in found[case.shape, "wrong"]["note"]
        assert "no such tile" in found[case.shape, "refusing"]["note"]
        assert "launch failed" in found[case.shape, "refusing"]["note"]
        assert "for fp8" in found[case.shape, "torch_rows"]["note"]
    assert json.loads(beat.read_text())["index"] == 1
    assert "tawa / torch" in report.table(list(found.values()))


def test_a_configuration_that_hung_is_left_out(tmp_path):
    import peers
    import report
    import runner
    from harness import Case

    case = Case("f16", 64, 64, 64)
    labels = [offer.label for offer in peers.Tawa(most=2).offers(case)]
    rows = tmp_path / "rows.jsonl"
    limits = runner.Limits(60, rounds=1, runs=2)
    skipped = frozenset({f"tawa::{labels[0]}"})
    runner.work([case], [peers.Tawa(most=2)], limits, rows, None, 0, skipped)
    assert report.read_rows(rows)[0]["config"] == labels[1]


def test_ablation_times_every_step(monkeypatch):
    import ablation
    from harness import Case

    monkeypatch.setattr(ablation, "measure", lambda watch, timings: _quick(timings))
    rows = ablation.steps(Case("bf16", 128, 256, 192), dry=False)
    assert [row["step"] for row in rows] == [*(s.label for s in ablation.STEPS), "torch.mm"]
    assert all(row["rel_err"] < 8e-3 for row in rows)


def test_ablation_of_attention_compiles_its_steps(monkeypatch):
    import ablation_attention

    steps = ablation_attention.STEPS[64, False]
    monkeypatch.setattr(ablation_attention, "STEPS", {(64, False): steps[::3]})
    found = ablation_attention.run(dry=True, length=512)
    (rows,) = found.values()
    assert [row["step"] for row in rows] == ["two warpgroups", "three in turns"]
    assert all(row["what"].endswith("proved") for row in rows)


def _quick(timings):
    for timing in timings:
        timing.samples.append(1.0)


@pytest.mark.parametrize("group", ["basic", "pins", "split", "epilogue"])
def test_trials_on_arrays_with_torch_names(group):
    import right

    make = right.Arrays("cpu")
    trial = next(iter(right.GROUPS[group]()))
    row = right.attempt(trial, make)
    assert row["ok"], row
