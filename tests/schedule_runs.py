"""Every kernel under every adversarial schedule, at every trip count: the long run, and its page.

    python tests/schedule_runs.py [--jobs N] [--minutes M] [--shard I/N] [--merge] [--only NAME ...]

A kernel runs as specialized in the simulator: at 0 to 2D + 2 iterations of its loop (D slots),
whole and with an uneven tail; each role starved in turn, asynchronous work completing at random, as
late and as early as legal; a seed of its own and 1 to 5 resident blocks each. Some of the sizes go
through the emulated CUDA C++ as well. Every result must be the oracle's.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from codegen_emulator import COMPILER, emulate
from kernel_runs import SUBJECTS
from kernel_subject import Arguments, Ready, Subject
from long_runs import Part, Unit, arguments, gathered, keep, made_of, run
from tawa.codegen import CudaSource
from tawa.codegen.generate import generate
from tawa.simulator import simulate
from tawa.simulator.scheduler import adversarial
from tawa.target import H200
from tawa.verify import verify

BLOCKS = (2, 1, 3, 5)
SEEDS = 1_000  # more than there are ways to disturb a kernel
"""Resident at a time: persistent kernels walk over one tile, or many."""
TIMINGS = 3
"""Of the emulation, by the seed: at random, as late or as early as can be."""
EMULATED = 4
"""One size in so many goes through the emulation."""
PARTS = 4
"""Into which the sizes of a kernel are dealt."""


@dataclass(frozen=True)
class Trial:
    """One run: the extent of the loop, the schedule, a seed, and how many blocks are resident."""

    extent: int | None
    schedule: str
    seed: int
    blocks: int


@dataclass
class Tally:
    """What became of the runs of one kernel, or of a part of them."""

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

    def check(self, how: object, subject: Subject, want: Arguments, run: Callable[[], Any]) -> None:
        """Note whether a run leaves what the oracle left."""
        try:
            subject.same(want, run())
        except Exception as error:
            reason = str(error).strip().partition("\n")[0]
            self.failures.append(f"{how}: {type(error).__name__}: {reason}")


def trials(subject: Subject, seed: int = 0) -> Iterator[list[Trial]]:
    """The trials of each extent, which share what the oracle says."""
    for index in range(len(list(subject.extents()))):
        yield trials_at(subject, index, seed)


def trials_at(subject: Subject, index: int, seed: int = 0) -> list[Trial]:
    """The trials of one extent, by its place: each way to disturb the roles that it has there."""
    extent = list(subject.extents())[index]
    ways = adversarial(subject.at(extent).kernel)
    first = seed + SEEDS * index
    return [
        Trial(extent, way, first + number, BLOCKS[(number + index) % len(BLOCKS)])
        for number, way in enumerate(ways, 1)
    ]


def simulated(ready: Ready, trial: Trial) -> Arguments:
    got = ready.fresh()
    how = {"schedule": trial.schedule, "seed": trial.seed, "multiprocessors": trial.blocks}
    simulate(ready.kernel, ready.grid, got, **how)
    return got


def emulated(ready: Ready, source: CudaSource, seed: int, blocks: int) -> Arguments:
    got = ready.fresh()
    emulate(source, got, ready.grid, blocks=blocks, seed=seed)
    return got


def try_kernel(name: str, part: int = 0, parts: int = 1) -> Tally:
    """Prove a kernel, and simulate each `parts`-th of its sizes in every way."""
    subject, tally, began = SUBJECTS[name], Tally(name), time.perf_counter()
    usual = subject.at(None).kernel.clone()
    if not part:
        before = time.perf_counter()
        tally.states = verify(usual, H200).states
        tally.proof_ms = 1000 * (time.perf_counter() - before)
    tally.depth = subject.depth
    for group in list(trials(subject, 1000 * list(SUBJECTS).index(name)))[part::parts]:
        ready = subject.at(group[0].extent)
        want = ready.expected()
        for trial in group:
            tally.check(trial, subject, want, partial(simulated, ready, trial))
            tally.runs += 1
            tally.schedules["+".join(_kind(word) for word in trial.schedule.split("+"))] += 1
        tally.extents += 1
    tally.seconds = time.perf_counter() - began
    return tally


def emulate_kernel(name: str) -> Tally:
    """Run the CUDA C++ of a kernel in the emulation, at some of its sizes."""
    subject, tally, began = SUBJECTS[name], Tally(name), time.perf_counter()
    for index, extent in enumerate(list(subject.extents())[::EMULATED]):
        ready = subject.at(extent)
        want, source = ready.expected(), generate(ready.kernel)
        for timing in range(TIMINGS):
            blocks = 1 + (index + timing) % 3
            run = partial(emulated, ready, source, TIMINGS * index + timing, blocks)
            tally.check(f"emulated, extent {extent}, timing {timing}", subject, want, run)
            tally.emulated += 1
    tally.seconds = time.perf_counter() - began
    return tally


def _kind(word: str) -> str:
    return "starve" if word.startswith("starve=") else word


# --- all kernels ----------------------------------------------------------------------------------


def units(names: Iterable[str]) -> list[Unit]:
    found = [Unit(name, "simulated", part, PARTS) for name in names for part in range(PARTS)]
    return found + [Unit(name, "emulated") for name in names] * (COMPILER is not None)


def task(unit: Unit) -> dict[str, Any]:
    if unit.what == "emulated":
        return vars(emulate_kernel(unit.name))
    return vars(try_kernel(unit.name, unit.part, unit.parts))


def merged(parts: Iterable[Part]) -> list[Tally]:
    """The tallies of whole kernels."""
    found: dict[str, Tally] = {}
    for part in parts:
        result = part.result
        item = found.setdefault(part.unit.name, Tally(part.unit.name))
        item.depth = max(item.depth, result["depth"])
        for name in ("extents", "states", "proof_ms", "runs", "emulated", "seconds"):
            setattr(item, name, getattr(item, name) + result[name])
        item.schedules.update(result["schedules"])
        item.failures.extend(result["failures"])
    return list(found.values())


def page(found: dict[str, Any]) -> str:
    """The run as a page."""
    kernels = found["kernels"]
    ways = sum((Counter(item["schedules"]) for item in kernels), Counter[str]())
    failures = [f"{item['kernel']}: {text}" for item in kernels for text in item["failures"]]
    total = {key: sum(item[key] for item in kernels) for key in ("runs", "emulated", "extents")}
    sources = ", ".join(f"{count} parts of {name}" for name, count in found["sources"].items())
    lines = [
        "# Every kernel under every schedule",
        "",
        f"`python tests/schedule_runs.py`: kernels of the tests and the library, {len(kernels)} of "
        f"{found['of']}, at every trip count from 0 to 2D + 2 with whole and uneven tails, each "
        "role starved in turn, asynchronous work at random, late and early.",
        *([f"One size in {EMULATED} through the emulated CUDA C++ too."] * bool(total["emulated"])),
        f"Sources: {sources}.",
        *([f"{found['missing']} parts of kernels are missing."] * bool(found["missing"])),
        "",
        "| | |",
        "|---|---:|",
        f"| kernels | {len(kernels)} |",
        f"| kernels and sizes | {total['extents']:,} |",
        f"| simulated runs, each with a seed of its own | {total['runs']:,} |",
        *([f"| runs of the emulated CUDA C++ | {total['emulated']:,} |"] * bool(total["emulated"])),
        f"| other than the oracle, or stuck | {len(failures)} |",
        "",
        "| schedule | runs |",
        "|---|---:|",
        *(f"| {name} | {count:,} |" for name, count in ways.most_common()),
        "",
        *(f"- {text}" for text in failures),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _say(unit: Unit, result: dict[str, Any]) -> None:
    count = result["runs"] + result["emulated"]
    print(f"{unit.name:42} {unit.what} {count:5} {result['seconds']:6.0f} s", flush=True)
    for text in result["failures"]:
        print(f"    {text}", flush=True)


def main() -> int:
    """Run all kernels; return 1 where a run differs."""
    parser = arguments(__doc__, "schedules")
    parser.add_argument("--what", choices=("simulated", "emulated"), help="only these runs")
    chosen = parser.parse_args()
    names = [n for n in SUBJECTS if not chosen.only or any(part in n for part in chosen.only)]
    wanted = [unit for unit in units(names) if chosen.what in (None, unit.what)]
    if not chosen.merge:
        run(wanted, task, chosen, _say)
    parts, missing = gathered(chosen.parts, wanted)
    tallies = merged(parts)
    figures = {
        "of": len(names),
        "missing": len(missing),
        "sources": made_of(parts),
        "kernels": [vars(tally) for tally in tallies],
    }
    text = page(figures)
    keep(chosen.out, "schedules", text, figures)
    print(text)
    return int(any(tally.failures for tally in tallies))


if __name__ == "__main__":
    raise SystemExit(main())
