"""Run a list of named checks on a GPU, each in its own process under a time limit.

    python benchmarks/gpu_checks.py --out DIR [--only REGEX] [--budget SECONDS] [--list]

A check that hangs, crashes or loses the CUDA context costs its own time limit and nothing else.
The table at the end and DIR/checks.json say what each did; DIR/NAME.log keeps the whole output of
those that failed, DIR/NAME.json what a check wrote itself.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent


@dataclass(frozen=True, slots=True)
class Check:
    """A command under the interpreter in use.

    `{json}` in it is the path for its own report, `{out}` the folder for its files.
    """

    name: str
    command: tuple[str, ...]
    limit_s: float


def _right(name: str, groups: str, limit_s: float) -> Check:
    return Check(name, ("benchmarks/right.py", "--group", groups, "--json", "{json}"), limit_s)


def _gemm(name: str, *arguments: str, budget_s: int) -> Check:
    command = ("benchmarks/gemm.py", "--out", "{out}", "--name", name, *arguments)
    return Check(name, (*command, "--budget", str(budget_s)), budget_s + 15)


JOBS = str(max(1, (os.cpu_count() or 2) - 2))
_N128 = ("--batches", "128", "--budget", "150", "--out", "{json}")
_BEST = ("auto,cudnn", "--budget", "150", "--out", "{json}")
CHECKS = (
    # All kernels of the checks below, so that each of them only runs.
    Check("compile", ("benchmarks/right.py", "--dry", "--jobs", JOBS), 200),
    _right("right_basic", "basic,tails,turned", 60),
    _right("right_types", "types", 40),
    _right("right_pins", "pins", 40),
    _right("right_sizes", "sizes", 40),
    _right("right_pointers", "pointers", 40),
    _right("right_forms", "device,persistent,batched", 60),
    _right("right_finish", "epilogue,split,stream", 60),
    Check(
        "gpu_tests",
        ("-m", "pytest", "-q", "-n", "9", "--dist", "worksteal", "--timeout", "200", "tests/gpu"),
        500,
    ),
    _gemm("speed_first", "--only", "x(256|1024|4096)$", "--peers", "torch|^tawa$", budget_s=60),
    _gemm("speed_k_bf16", "--dtype", "bf16", budget_s=180),
    _gemm("speed_k_f16", "--dtype", "f16", budget_s=180),
    _gemm("speed_k_e4m3", "--dtype", "e4m3", budget_s=180),
    _gemm("speed_sq_bf16", "--section", "gemm_sq", "--dtype", "bf16", budget_s=180),
    _gemm("speed_llm_bf16", "--section", "gemm_llm", "--dtype", "bf16", budget_s=240),
    _gemm("speed_bmm_bf16", "--section", "bmm", "--dtype", "bf16", budget_s=90),
    Check("ablation", ("benchmarks/ablation.py", "all", "--out", "{out}"), 240),
    Check("ablation_attention", ("benchmarks/ablation.py", "attention", "--out", "{out}"), 90),
    Check("compile_time", ("benchmarks/compile_time.py", "--out", "{out}"), 120),
    Check("launch", ("benchmarks/launch.py", "--out", "{out}"), 120),
    # Those that results/README.md says wait for a GPU.
    Check("networks", ("benchmarks/axon_networks.py",), 90),
    Check("linear_gradients", ("benchmarks/linear_gradients.py", "--out", "{json}"), 60),
    Check("blocks_vit", ("benchmarks/blocks.py", "--blocks", "vit", "--out", "{json}"), 150),
    Check("conv_fused", ("benchmarks/conv.py", "--fused", "--sets", "resnet50", *_N128), 160),
    Check("im2win_f32", ("benchmarks/im2win.py", "--jobs", "f32:128", "--methods", *_BEST), 160),
    Check("ppl_gpu_peers", ("benchmarks/ppl_gpu_peers.py", "--budget", "300"), 310),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a check ended: "ok", "failed" (exit status), "hung" (killed) or "skipped"."""

    name: str
    verdict: str
    seconds: float
    status: int | None
    tail: str


def perform(check: Check, limit_s: float, out: Path) -> Outcome:
    report = out / f"{check.name}.json"
    command = [sys.executable, *(part.format(json=report, out=out) for part in check.command)]
    log = out / f"{check.name}.log"
    environment = os.environ | {
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": os.pathsep.join(
            str(part)
            for part in (ROOT / "src", ROOT / "tests", os.environ.get("PYTHONPATH", ""))
            if part
        ),
    }
    started = time.monotonic()
    with log.open("w") as sink:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status: int | None = process.wait(limit_s)
            verdict = "ok" if status == 0 else "failed"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)
            status, verdict = None, "hung"
    lines = log.read_text(errors="replace").splitlines()
    return Outcome(check.name, verdict, time.monotonic() - started, status, "\n".join(lines[-40:]))


def keep(outcome: Outcome, out: Path) -> None:
    """Drop the logs of checks that passed: what comes back from a machine is limited in files."""
    if outcome.verdict == "ok":
        (out / f"{outcome.name}.log").unlink(missing_ok=True)


def bundle(out: Path, outcomes: list[Outcome]) -> None:
    """Write checks.json: every outcome with the report the check wrote itself."""
    rows: list[dict[str, object]] = []
    for outcome in outcomes:
        own = out / f"{outcome.name}.json"
        report = json.loads(own.read_text()) if own.exists() else None
        rows.append(
            {
                "check": outcome.name,
                "verdict": outcome.verdict,
                "seconds": round(outcome.seconds, 2),
                "status": outcome.status,
                "tail": outcome.tail,
                "report": report,
            }
        )
    (out / "checks.json").write_text(json.dumps(rows, indent=1))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/checks"))
    parser.add_argument("--only", default="", help="regular expression of check names")
    parser.add_argument("--budget", type=float, default=540, help="seconds for the whole list")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    checks = [check for check in CHECKS if re.search(options.only, check.name)]
    if options.list:
        for check in checks:
            print(f"{check.name:<24} {check.limit_s:5.0f} s  {' '.join(check.command)}")
        return 0
    out: Path = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    ends = time.monotonic() + options.budget
    outcomes: list[Outcome] = []
    for check in checks:
        left = ends - time.monotonic()
        if left < 5:
            outcomes.append(Outcome(check.name, "skipped", 0.0, None, "out of budget"))
            continue
        outcome = perform(check, min(check.limit_s, left), out)
        print(f"--- {check.name}: {outcome.verdict} in {outcome.seconds:.1f} s", flush=True)
        print(outcome.tail, flush=True)
        outcomes.append(outcome)
        bundle(out, outcomes)
        keep(outcome, out)
    print(f"\n{'check':<24} {'verdict':<8} {'seconds':>8}")
    for outcome in outcomes:
        print(f"{outcome.name:<24} {outcome.verdict:<8} {outcome.seconds:8.1f}")
    bundle(out, outcomes)
    return 0 if all(outcome.verdict == "ok" for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
