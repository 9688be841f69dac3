"""Every kernel under every adversarial schedule, at every trip count: the long run, and its page.

    python tests/schedule_runs.py [--minutes M] [--jobs N] [--only NAME ...] [--out FOLDER]

A kernel runs as specialized in the simulator: at 0 to 2D + 2 trips of its loop (D slots), whole and
with an uneven tail; each role starved in turn, asynchronous work completing at random, as late and
as early as legal; a seed of its own and 1 to 5 resident blocks each. Some of the sizes go through
the emulated CUDA C++ as well. Every result must be the oracle's.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from codegen_emulator import COMPILER, emulate
from kernel_runs import SUBJECTS
from kernel_subject import Arguments, Ready, Subject
from tawa.codegen import CudaSource, generate
from tawa.simulator import simulate
from tawa.simulator.proof import prove
from tawa.simulator.schedules import adversarial
from tawa.target import H200

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
BLOCKS = (2, 1, 3, 5)
"""Resident at a time: persistent kernels walk over one tile, or many."""
TIMINGS = 3
"""Of the emulation, by the seed: at random, as late or as early as can be."""


@dataclass(frozen=True)
class Trial:
    """One run: the extent of the loop, the schedule, a seed, and how many blocks are resident."""

    extent: int | None
    schedule: str
    seed: int
    blocks: int


@dataclass
class Tally:
    """What became of the runs of one kernel."""

    kernel: str
    depth: int = 1
    extents: int = 0
    states: int = 0
    proof_ms: float = 0.0
    runs: int = 0
    emulated: int = 0
    schedules: Counter[str] = field(default_factory=Counter[str])
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0
    whole: bool = True


def trials(subject: Subject, seed: int = 0) -> Iterator[list[Trial]]:
    """The trials of each extent, which share what the oracle says."""
    number, ways = seed, adversarial(subject.at(None).kernel)
    for index, extent in enumerate(subject.extents()):
        found: list[Trial] = []
        for way in ways:
            number += 1
            found.append(Trial(extent, way, number, BLOCKS[(number + index) % len(BLOCKS)]))
        yield found


def simulated(ready: Ready, trial: Trial) -> Arguments:
    got = ready.fresh()
    how = {"schedule": trial.schedule, "seed": trial.seed, "multiprocessors": trial.blocks}
    simulate(ready.kernel, ready.grid, got, **how)
    return got


def emulated(ready: Ready, source: CudaSource, seed: int, blocks: int) -> Arguments:
    got = ready.fresh()
    emulate(source, got, ready.grid, blocks=blocks, seed=seed)
    return got


def try_kernel(name: str, seed: int, every: int, seconds: float) -> Tally:
    """Run a kernel in every way; stop after `seconds`, and say so."""
    subject, tally, began = SUBJECTS[name], Tally(name), time.perf_counter()
    usual = subject.at(None)
    proof = prove(usual.kernel.clone(), H200)
    tally.proof_ms = 1000 * (time.perf_counter() - began)
    tally.depth, tally.states = subject.depth(), proof.states
    groups = list(trials(subject, seed))
    Random(seed).shuffle(groups)  # where the time is short, what is done is a fair sample
    for index, group in enumerate(groups):
        ready = subject.at(group[0].extent)
        want = ready.expected()

        def check(how: Any, run: Any, want: Arguments = want) -> None:
            try:
                subject.same(want, run())
            except Exception as error:
                reason = str(error).strip().partition("\n")[0]
                tally.failures.append(f"{how}: {type(error).__name__}: {reason}")

        for trial in group:
            check(trial, partial(simulated, ready, trial))
            tally.runs += 1
            tally.schedules["+".join(_kind(part) for part in trial.schedule.split("+"))] += 1
        tally.extents += 1
        if every and index % every == 0 and COMPILER is not None:
            source = generate(ready.kernel)
            for timing in range(TIMINGS):
                blocks = 1 + (index + timing) % 3
                run = partial(emulated, ready, source, TIMINGS * index + timing, blocks)
                check(f"emulated, extent {group[0].extent}, timing {timing}", run)
                tally.emulated += 1
        if time.perf_counter() - began > seconds:
            tally.whole = False
            break
    tally.seconds = time.perf_counter() - began
    return tally


def _kind(word: str) -> str:
    return "starve" if word.startswith("starve=") else word


def page(found: dict[str, Any]) -> str:
    """The run as a page."""
    kernels = found["kernels"]
    ways = sum((Counter(item["schedules"]) for item in kernels), Counter[str]())
    failures = [f"{item['kernel']}: {text}" for item in kernels for text in item["failures"]]
    cut = [item["kernel"] for item in kernels if not item["whole"]]
    total = {key: sum(item[key] for item in kernels) for key in ("runs", "emulated", "extents")}
    lines = [
        f"# Schedules, {found['date']}",
        "",
        f"`{found['command']}`: every kernel of the tests and the library that it reached "
        f"({len(kernels)} of {found['of']}), at every trip count from 0 to 2D + 2 with whole and "
        "uneven tails, each role starved in turn, asynchronous work at random, late and early.",
        "",
        "| | |",
        "|---|---:|",
        f"| kernels | {len(kernels)} |",
        f"| kernels and sizes | {total['extents']:,} |",
        f"| simulated runs, each with a seed of its own | {total['runs']:,} |",
        f"| runs of the emulated CUDA C++ | {total['emulated']:,} |",
        f"| other than the oracle, or stuck | {len(failures)} |",
        "",
        "| schedule | runs |",
        "|---|---:|",
        *(f"| {name} | {count:,} |" for name, count in ways.most_common()),
        "",
        *(
            [f"{len(cut)} of the kernels ran a part of their sizes, drawn at random.", ""]
            * (cut != [])
        ),
        *(f"- {text}" for text in failures),
    ]
    return "\n".join(lines).rstrip() + "\n"


def main() -> int:
    """Run all kernels in several processes; return 1 where a run differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--emulate", type=int, default=4, help="one size in so many; 0: none")
    parser.add_argument("--most", type=float, default=120, help="seconds for one kernel")
    parser.add_argument("--out", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    names = [n for n in SUBJECTS if not chosen.only or any(part in n for part in chosen.only)]
    order, stop = list(names), time.monotonic() + 60 * chosen.minutes
    Random(chosen.seed).shuffle(order)  # what is done when the time is over is a fair sample
    tallies: list[Tally] = []
    with ProcessPoolExecutor(chosen.jobs) as pool:
        waiting = {
            pool.submit(try_kernel, name, 1000 * place + chosen.seed, chosen.emulate, chosen.most)
            for place, name in enumerate(order)
        }
        for future in as_completed(waiting):
            if future.cancelled():
                continue
            tally = future.result()
            tallies.append(tally)
            print(f"{tally.kernel:42} {tally.runs:5} runs {tally.seconds:6.0f} s", flush=True)
            for text in tally.failures:
                print(f"    {text}", flush=True)
            if time.monotonic() > stop:
                for other in waiting:
                    other.cancel()
    tallies.sort(key=lambda tally: names.index(tally.kernel))
    found = {
        "command": f"python tests/schedule_runs.py --minutes {chosen.minutes:g}",
        "date": str(date.today()),
        "of": len(names),
        "kernels": [vars(tally) for tally in tallies],
    }
    text = page(found)
    chosen.out.mkdir(parents=True, exist_ok=True)
    stem = chosen.out / f"schedules-{found['date']}"
    stem.with_suffix(".md").write_text(text)
    stem.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n")
    print(text)
    return 1 if any(tally.failures for tally in tallies) else 0


if __name__ == "__main__":
    raise SystemExit(main())
