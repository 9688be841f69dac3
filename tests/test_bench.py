"""The benchmarks' own logic, without a GPU: cases, tables, supervision, checks, offers."""

import ctypes
import itertools
import json
import math
import re
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest

import tawa
import tawa.language as tl

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.fixture(autouse=True)
def _path(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def run(script, *arguments, **keywords):
    command = [sys.executable, str(BENCHMARKS / script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **keywords)


def test_cases_of_sections():
    import gemm

    cases = gemm.cases_of("gemm_k,bmm", "f16,e4m3", "")
    assert len(cases) == 2 * (7 + 5)
    assert str(gemm.cases_of("gemm_k", "bf16", "x256$")[0]) == "bf16 8192x8192x256"
    assert gemm.cases_of("gemm_llm", "bf16", "8b down")[0].shape == "16x4096x14336"


def test_flops_and_bytes():
    from harness import Case

    case = Case("e4m3", 128, 256, 64, batch=2)
    assert case.flops == 2 * 2 * 128 * 256 * 64
    assert case.bytes == 2 * (64 * (128 + 256) + 2 * 128 * 256)


def test_table_marks_the_best_and_gives_ratios():
    import report

    rows = [
        {"dtype": "f16", "shape": s, "label": "", "peer": p, "tflops": t, "ms": 1 / t}
        for s, p, t in [("A", "torch", 100), ("A", "tawa", 110), ("B", "torch", 100)]
    ]
    rows[1]["rel_err"] = 2.5e-4
    rows.append({"dtype": "f16", "shape": "B", "peer": "tawa", "tflops": None, "note": "hung"})
    text = report.table(rows)
    assert "*110" in text
    assert "tawa / torch: 1.100 in the mean of 1, least 1.100 at A" in text
    assert "tawa: hung" in text
    assert re.search(r"\n  A +- +2\.50e-04\n  B +- +-\n", text), "errors stand beside the rates"


def test_last_row_counts(tmp_path):
    import report

    path = tmp_path / "rows.jsonl"
    row = {"dtype": "f16", "shape": "A", "peer": "tawa"}
    path.write_text("\n".join(json.dumps(row | {"tflops": t}) for t in (1, 2)) + "\n")
    assert [each["tflops"] for each in report.read_rows(path)] == [2]


def test_chart_and_files_are_written(tmp_path):
    pytest.importorskip("matplotlib")
    import report

    rows = [
        {"dtype": "f16", "shape": s, "label": "", "peer": p, "tflops": 100.0, "ms": 1.0}
        for s in "AB"
        for p in ("tawa", "torch")
    ]
    report.write(tmp_path, "x", rows)
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".txt", ".png"}
    facts = json.loads((tmp_path / "x.json").read_text())["environment"]
    assert {"command", "date", "tawa"} <= set(facts)


def test_peers_take_turns_in_another_order_each_round():
    import harness

    rounds = []

    class Watch:
        def sample(self, calls, runs, warm_ms):
            rounds.append(calls[0])
            return [1.0] * runs, []

    timings = [harness.Timing(name, harness.Candidate(name, [name]), 0.0, 1) for name in "abcd"]
    harness.measure(Watch(), timings, rounds=4, runs=2)
    turns = ["".join(rounds[at : at + 4]) for at in range(0, 16, 4)]
    assert all(sorted(turn) == [*"abcd"] for turn in turns)
    assert len({turn[0] for turn in turns}) > 1
    after = {first + second for turn in turns for first, second in itertools.pairwise(turn)}
    assert all(name + other in after for name, other in ("ab", "ba", "cd", "dc"))
    assert all(len(timing.samples) == 8 for timing in timings)


def test_a_peers_best_is_chosen_under_the_load_that_is_published():
    import harness

    times = {"quick": (1.0, 1.08), "calm": (1.04, 1.02), "slow": (1.2, 1.0)}  # rested, loaded
    orders = []

    class Watch:
        def sample(self, calls, runs, warm_ms):
            orders.append(calls[0])
            return [times[calls[0]][warm_ms > 50]] * runs, []

        def median(self, calls):
            return times[calls[0]][0]

    offered = [harness.Candidate(name, [name]) for name in times]
    ranked, notes = harness.choose(Watch(), iter(offered))
    assert [each.label for each in ranked] == ["calm", "quick", "slow"]
    assert not notes
    assert len({tuple(orders[at : at + 3]) for at in (0, 3, 6)}) == 3, "each round another order"


def test_geometric_mean():
    from harness import geometric_mean

    assert geometric_mean([1.0, 4.0]) == pytest.approx(2.0)
    assert math.isnan(geometric_mean([]))


def test_cublaslt_structure_has_the_size_of_the_header():
    import cublaslt

    assert ctypes.sizeof(cublaslt._Result) == 96
    assert cublaslt._Result.state.offset == 72


WORKER = """
import json, sys, time
from pathlib import Path
arguments = dict(zip(sys.argv[1::2], sys.argv[2::2]))
beat, start, skip = Path(arguments["--worker"]), int(arguments["--start"]), arguments["--skip"]
for index in range(start, 3):
    for peer in ("good", "bad"):
        if f"{peer}::x" in skip.split(";"):
            continue
        beat.write_text(json.dumps({"index": index, "peer": peer, "label": "x"}))
        if peer == "bad" and index == 1:
            if Path(sys.argv[0]).stem == "hang":
                time.sleep(60)
            sys.exit(3)
Path(sys.argv[0]).with_suffix(".done").write_text("done")
"""


@pytest.mark.parametrize("how", ["hang", "crash"])
def test_a_peer_that_hangs_or_crashes_is_left_out(tmp_path, how):
    import runner
    from harness import Case

    script = tmp_path / f"{how}.py"
    script.write_text(WORKER)
    rows = tmp_path / "rows.jsonl"
    cases = [Case("f16", 1, 1, k) for k in (1, 2, 3)]
    limits = runner.Limits(budget_s=60, stall_s=1.5)
    began = time.monotonic()
    runner.supervise([str(script)], cases, limits, rows)
    assert time.monotonic() - began < 30
    assert script.with_suffix(".done").exists()
    (row,) = map(json.loads, rows.read_text().splitlines())
    assert (row["shape"], row["peer"]) == ("1x1x2", "bad::x")
    assert ("no progress" if how == "hang" else "ended with 3") in row["note"]


def test_checks_kill_what_hangs_and_reports_all(tmp_path):
    import gpu_checks

    sleeper, failing = tmp_path / "s.py", tmp_path / "f.py"
    sleeper.write_text("import time; print('before'); time.sleep(60)")
    failing.write_text("import sys; print('oh'); sys.exit(4)")
    hung = gpu_checks.perform(gpu_checks.Check("hung", (str(sleeper),), 9), 2.0, tmp_path)
    failed = gpu_checks.perform(gpu_checks.Check("failed", (str(failing),), 9), 9.0, tmp_path)
    assert (hung.verdict, hung.status) == ("hung", None)
    assert (failed.verdict, failed.status, failed.tail) == ("failed", 4, "oh")
    gpu_checks.bundle(tmp_path, [hung, failed])
    assert [row["verdict"] for row in json.loads((tmp_path / "checks.json").read_text())] == [
        "hung",
        "failed",
    ]


def test_checks_are_listed():
    done = run("gpu_checks.py", "--list")
    assert done.returncode == 0
    assert "right_basic" in done.stdout


@pytest.mark.parametrize(
    "script",
    [
        "gemm.py",
        "attention.py",
        "gpu_checks.py",
        "ablation.py",
        "compile_time.py",
        "right.py",
        "serving.py",
    ],
)
def test_every_script_starts(script):
    assert run(script, "--help").returncode == 0


def test_offers_of_our_peers_need_no_gpu():
    import peers
    from harness import Case

    labels = [offer.label for offer in peers.Tawa().offers(Case("bf16", 8192, 8192, 8192))]
    assert {"descriptors 128x192x64 arrangement=pingpong", "descriptors 128x256x64"} <= {*labels}
    assert [o.label for o in peers.TawaPointers().offers(Case("bf16", 512, 512, 512))]
    with pytest.raises(peers.Missing):
        list(peers.TawaPointers().offers(Case("bf16", 512, 512, 512, batch=2)))


def test_what_a_server_asks(monkeypatch):
    import peers
    import serving
    from serving_peers import FlashAttention3Serving, TawaServing

    monkeypatch.delenv("TAWA_FA3", raising=False)
    alike, differing = serving.cases_of("paged", "f16", "pages of 16 B16 ")
    assert alike.lengths == (8192,) * 16
    assert (min(differing.lengths), max(differing.lengths)) == (1024, 32768)
    assert alike.bytes == 4 * 8 * 128 * 16 * 8192
    (packed,) = serving.cases_of("varlen_causal", "bf16", "H32/4 .* skewed")
    for case in (differing, packed):
        assert [offer.label for offer in TawaServing().offers(case)]
        with pytest.raises(peers.Missing):
            list(FlashAttention3Serving().offers(case))


def test_trials_cover_every_form():
    import right

    trials = [trial for group in right.GROUPS.values() for trial in group()]
    forms = {"descriptors", "pointers", "device", "persistent", "split"}
    assert {trial.form for trial in trials} == forms
    bound = [right.bind_trial(trial, right.Arrays("none")) for trial in trials]
    assert all(each.launches for each in bound)


@tawa.jit
def even(n: tl.constexpr):
    return n == 0 or odd(n - 1)


@tawa.jit
def odd(n: tl.constexpr):
    return n == 1 or even(n - 1) if n < 9 else tl.constexpr(odd(n - 2))


def test_kernels_that_call_themselves_have_one_twin(monkeypatch):
    triton = types.ModuleType("triton")
    triton.language = types.ModuleType("triton.language")
    triton.jit = lambda function: types.SimpleNamespace(fn=function)
    monkeypatch.setitem(sys.modules, "triton", triton)
    monkeypatch.setitem(sys.modules, "triton.language", triton.language)
    from twin import twin

    made = twin.__wrapped__(even)
    named = made.fn.__globals__
    assert named["odd"].fn.__globals__["tl"] is triton.language
    assert named["odd"].fn.__globals__["even"] is made
    assert named["odd"].fn.__code__ is odd.fn.__code__


def test_the_same_source_compiles_under_triton():
    triton = pytest.importorskip("triton")
    from tawa.kernels.gemm import matmul_pointers
    from twin import twin

    function = twin(matmul_pointers)
    assert isinstance(function, triton.runtime.JITFunction)
    assert function.raw_src[-1].strip().startswith("tl.store")
