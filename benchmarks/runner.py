"""Runs cases against peers in a process that may hang, and starts it again without the culprit.

The parent watches a heartbeat file. When the worker dies, or stands still for `stall` seconds, it
is killed and started again at the same case without the peer at work; what was measured before is
in the rows file already.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness import (
    TOLERANCE,
    Case,
    Inputs,
    Missing,
    Reference,
    Stopwatch,
    Timing,
    check,
    choose,
    measure,
)
from peers import Peer, candidates


@dataclass(slots=True)
class Progress:
    """Where the worker is, told to the parent through the heartbeat file."""

    path: Path | None
    index: int = 0
    started: float = field(default_factory=time.monotonic)

    def beat(self, peer: str, label: str = "") -> None:
        if self.path is None:
            return
        fresh = self.path.with_suffix(".new")
        fresh.write_text(json.dumps({"index": self.index, "peer": peer, "label": label}))
        fresh.replace(self.path)


@dataclass(frozen=True, slots=True)
class Limits:
    """How long and how often: seconds in all, rounds of turns, timed calls a turn."""

    budget_s: float
    rounds: int = 3
    runs: int = 24
    stall_s: float = 45.0


class Rows:
    """Appends rows to a file as they come."""

    def __init__(self, path: Path) -> None:
        self._sink = path.open("a")

    def add(self, row: dict[str, object]) -> None:
        self._sink.write(json.dumps(row) + "\n")
        self._sink.flush()


def run_case(
    case: Case,
    peers: Sequence[Peer],
    limits: Limits,
    rows: Rows,
    progress: Progress,
    skipped: frozenset[str] = frozenset(),
) -> None:
    """Choose every peer's best right way for a case, then let all take turns."""
    progress.beat("(inputs)")
    sets = case.make_inputs()
    reference = case.reference(sets[0])
    watch = Stopwatch()
    timings: list[Timing] = []
    for peer in peers:
        progress.beat(peer.name)
        try:
            timing = _best(peer, case, sets, reference, watch, progress, skipped)
        except Missing as reason:
            rows.add(_absent(case, peer.name, str(reason)))
            continue
        timings.append(timing)
    measure(watch, timings, rounds=limits.rounds, runs=limits.runs, beat=progress.beat)
    for timing in timings:
        rows.add(timing.row(case))
    ordered = sorted(timings, key=lambda each: each.ms)
    spent = time.monotonic() - progress.started
    figures = "  ".join(f"{each.peer} {case.flops / each.ms / 1e9:.0f}" for each in ordered)
    clocks = [clock for each in timings for clock in each.clocks]
    note = f"  ({min(clocks)}-{max(clocks)} MHz)" if clocks else ""
    print(f"[{spent:4.0f} s] {case}: {figures}{note}", flush=True)


def _best(
    peer: Peer,
    case: Case,
    sets: list[Inputs],
    reference: Reference,
    watch: Stopwatch,
    progress: Progress,
    skipped: frozenset[str],
) -> Timing:
    """Return a peer's fastest way whose result is right; raises `Missing` if there is none."""
    offered = (
        candidate
        for candidate in candidates(peer, case, sets)
        if f"{peer.name}::{candidate.label}" not in skipped
    )
    ranked, notes = choose(
        watch,
        offered,
        lambda label: progress.beat(peer.name, label),
        (RuntimeError, *peer.failures()),
    )
    for candidate in ranked:
        progress.beat(peer.name, candidate.label)
        error = check(case, reference, sets[0], candidate)
        if error < TOLERANCE[case.dtype]:
            return Timing(peer.name, candidate, error, len(ranked), notes)
        notes.append(f"{candidate.label}: WRONG, relative error {error:.2g}")
    raise Missing("; ".join(notes[-3:]) or "no way to compute this case")


def _absent(case: Case, peer: str, note: str) -> dict[str, object]:
    return {
        "dtype": case.group,
        "shape": case.shape,
        "label": case.label,
        "peer": peer,
        "tflops": None,
        "note": note[:400],
    }


def work(
    cases: Sequence[Case],
    peers: Sequence[Peer],
    limits: Limits,
    rows_path: Path,
    heartbeat: Path | None,
    start: int = 0,
    skipped: frozenset[str] = frozenset(),
) -> None:
    """Run the cases from `start` on, within the budget."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = True  # f32 is compared through tf32 on all sides
    rows, progress = Rows(rows_path), Progress(heartbeat)
    slowest = 0.0
    for index, case in enumerate(cases[start:], start):
        progress.index = index
        began = time.monotonic()
        if began - progress.started + slowest > limits.budget_s:
            print(f"out of budget before {case} and {len(cases) - index - 1} more", flush=True)
            return
        try:
            run_case(case, peers, limits, rows, progress, skipped)
        except torch.cuda.OutOfMemoryError as error:
            print(f"{case}: out of memory ({str(error)[:100]})", flush=True)
        torch.cuda.empty_cache()
        slowest = max(slowest, time.monotonic() - began)


def supervise(
    command: Sequence[str], cases: Sequence[Case], limits: Limits, rows_path: Path
) -> None:
    """Run `command` as the worker; restart it without the peer that hung or crashed.

    The worker gets --worker HEARTBEAT --start INDEX --skip NAMES --budget SECONDS appended; a name
    is a peer's, or PEER::CONFIGURATION where it is known which one was at work.
    """
    ends = time.monotonic() + limits.budget_s
    heartbeat = Path(tempfile.mkdtemp()) / "beat"
    skipped: list[str] = []
    start = 0
    for _ in range(16):
        left = ends - time.monotonic()
        if left < 8:
            return
        heartbeat.unlink(missing_ok=True)
        extra = ["--worker", str(heartbeat), "--start", str(start), "--budget", f"{left - 4:.0f}"]
        process = subprocess.Popen(
            [sys.executable, *command, *extra, "--skip", ";".join(skipped)],
            start_new_session=True,
        )
        reason = _watch(process, heartbeat, ends, limits.stall_s)
        if reason is None:
            return
        where = json.loads(heartbeat.read_text()) if heartbeat.exists() else {}
        print(f"!! {reason} at {where}; going on without it", flush=True)
        if not where or where["peer"].startswith("("):
            return
        culprit = "::".join(part for part in (where["peer"], where.get("label")) if part)
        Rows(rows_path).add(_absent(cases[where["index"]], culprit, reason))
        start = where["index"]
        skipped.append(culprit)


def _watch(
    process: subprocess.Popen[bytes], heartbeat: Path, ends: float, stall_s: float
) -> str | None:
    """Wait for the worker; return why it was given up, or None when it ended well."""
    first_beat_s = 4 * stall_s  # imports and compiling ahead come before the first beat
    began = time.monotonic()
    while process.poll() is None:
        time.sleep(0.25)
        if heartbeat.exists():
            age, limit = time.time() - heartbeat.stat().st_mtime, stall_s
        else:
            age, limit = time.monotonic() - began, first_beat_s
        if age > limit or time.monotonic() > ends:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)
            return f"no progress for {age:.0f} s" if age > limit else None
    return None if process.returncode == 0 else f"the worker ended with {process.returncode}"


def warm_up(command: Sequence[str], jobs: int, limit_s: float, *, flag: str = "--warm") -> float:
    """Compile kernels ahead in `jobs` processes of `command FLAG PART/JOBS`.

    Returns the seconds it took. What fails here fails again, with its reason, where it is timed.
    """
    began = time.monotonic()
    processes = [
        subprocess.Popen(
            [sys.executable, *command, flag, f"{part}/{jobs}"],
            start_new_session=True,
            stdout=subprocess.DEVNULL,
        )
        for part in range(jobs)
    ]
    for process in processes:
        try:
            process.wait(max(1.0, limit_s - (time.monotonic() - began)))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)
            print(f"compiling ahead: a process was stopped after {limit_s:.0f} s", flush=True)
    return time.monotonic() - began


def warm(cases: Sequence[Case], peers: Sequence[Peer], part: int, parts: int) -> None:
    """Compile every `parts`-th offer from `part` on, of every peer for every case."""
    for case in cases:
        for peer in peers:
            try:
                offers = [offer for offer in peer.offers(case) if offer.warm is not None]
            except Missing:
                continue
            inputs = peer.stand_ins(case) if offers[part::parts] else None
            for offer in offers[part::parts]:
                try:
                    offer.warm(inputs)
                except peer.failures():
                    continue
