"""The long fuzz: random kernels for some minutes, and a page of what became of them.

    python tests/fuzz_long.py --minutes 30 --first 10000000 --write benchmarks/results
    python tests/fuzz_long.py --merge one.json other.json --write benchmarks/results

Kernels have numbers, and a number is the same kernel in every process. Each runs through the oracle
and the simulator, one in `--emulate` through the emulated text and one in `--nvrtc` through NVRTC.
A counterexample is made small and printed; the run goes on.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from multiprocessing import Pool, TimeoutError
from multiprocessing.pool import IMapIterator
from pathlib import Path
from typing import Any

from codegen_emulator import COMPILER
from fuzz_case import Case
from fuzz_kernels import FURTHER, case_of
from fuzz_reduce import failure, reduce
from fuzz_run import Counterexample, Outcome, commit, run_case

ROUND = 10  # kernels to a line of output
GRACE = 20.0
"""Seconds after the time is over for the kernels under way; later ones are left out."""


@dataclass
class Tally:
    """What a run has seen."""

    count: int = 0
    equal: int = 0
    specialized: int = 0
    emulated: int = 0
    built: int = 0
    runs: int = 0
    states: int = 0
    declined: Counter[str] = field(default_factory=Counter[str])
    refused: Counter[str] = field(default_factory=Counter[str])
    unproved: Counter[str] = field(default_factory=Counter[str])
    features: Counter[str] = field(default_factory=Counter[str])
    counterexamples: list[dict[str, str]] = field(default_factory=list)


def features_of(case: Case) -> list[str]:
    """What a kernel has, for the page: how often each was tried."""
    lines = case.source.splitlines()
    heads = [line for line in lines if line.strip().startswith(("for", "while"))]
    loops = [(len(line) - len(line.lstrip())) // 4 for line in heads]
    dots = case.source.count("tl.dot(")
    found = [f"dots: {dots}" if dots < 5 else "dots: 5 or more"]
    found += [f"loops nested {max(loops)} deep" if loops else "no loop"]
    marks = {
        "branch": "if ", "gather": "_rows", "data-dependent iterations": "range(0, t",
        "while": "while ",
        "chained product": " p", "stores in a loop": "more1_", "several sums": "acc1",
        "transposed operand": ".T", "reduction": "tl.sum(", "pointer loads": "_ptr + ",
        "descriptors of three dimensions": "3_desc", "statistics of rows": "row0 =",
        "walk over tiles": "for band", "atomics": "atomic_", "int8 products": "tl.int8",
        "8-bit floats": "float8", "masks": "tl.where((tl.arange", "helper functions": "lib.",
        "scans": "scan(", "cumulative sums": "cumsum", "joins": "interleave", "splits": "halves",
        "permuted": "permute", "reshaped": "reshape", "arg of extrema": "tl.arg",
        "descriptors made in the kernel": "make_tensor", "block pointers": "block_ptr",
        "carried pointers": "_ptrs", "grouped tiles": "pid_m", "early return": "return",
        "loops in helpers": "sweep", "choice of three": "elif", "tables": "table_",
        "masks over pointers": "tl.load(tl.where", "old values of atomics": "(own",
        "pairs": ", lib.later",
        "sorting": "tl.sort", "largest few": "topk", "random numbers": "randint",
        "other integers": "w_", "tensors of three dimensions": "cube_",
        "loops that count down": ", -", "quotients": " // ", "volatile loads": "volatile",
        "words of all types": "words_", "rows by descriptor": ".gather(", "scatters": ".scatter(",
        "tickets": "tickets_", "histograms": "_bins_", "64-bit numbers": "BIG",
        "accumulators exchanged": ", acc", "branches on constants": "WIDE", "second result": "part",
        "narrow counters": "tl.cast(", "unsigned": "uint", "helpers of several returns": "bounded",
    }  # fmt: skip
    found += [name for name, mark in marks.items() if mark in case.source]
    return found + [f"option {name}" for name in case.options]


@dataclass(frozen=True)
class Tried:
    """What became of one kernel: an outcome, or a counterexample."""

    features: list[str]
    how: dict[str, bool]
    outcome: Outcome | None = None
    found: dict[str, str] = field(default_factory=dict[str, str])


def tried(number: int, options: argparse.Namespace) -> Tried:
    """Run one kernel; make a counterexample small."""
    case = case_of(number)
    how = {"emulated": number % options.emulate == 0, "nvrtc": number % options.nvrtc == 1}
    features = features_of(case)
    try:
        return Tried(features, how, run_case(case, seeds=options.seeds, **how))
    except Counterexample as error:
        first = str(error).partition("\n")[0]
    print(
        f"counterexample {number}: {first}", flush=True
    )  # now: the time may end before it is small
    want = failure(case, seeds=options.seeds, **how)
    if want:
        same = lambda other: failure(other, seeds=options.seeds, **how) == want  # noqa: E731
        case = reduce(case, same, attempts=60)
    found = {"kernel": str(number), "what": want or first, "case": str(case)}
    print(f"counterexample {number}, made small:\n{case}\n", flush=True)
    return Tried(features, how, found=found)


class Run:
    """One long run."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.tally = Tally()
        self.stop = time.monotonic() + 60 * options.minutes

    def count(self, one: Tried) -> None:
        """Add what became of a kernel."""
        tally, outcome = self.tally, one.outcome
        tally.count += 1
        tally.features.update(one.features)
        if outcome is None:
            tally.counterexamples.append(one.found)
            return
        if outcome.refused:
            tally.refused[outcome.refused] += 1
        if outcome.verdict == "declined":
            tally.declined[outcome.reason] += 1
            return
        tally.equal += 1
        tally.specialized += outcome.specialized
        tally.emulated += one.how["emulated"]
        tally.built += one.how["nvrtc"]
        tally.runs += outcome.runs
        tally.states += outcome.states
        tally.unproved.update(outcome.unproved)

    def finish(self, work: IMapIterator[Tried]) -> bool:
        """Count the kernels of a round; say whether they ended soon enough after the time."""
        try:
            while True:
                self.count(work.next(timeout=max(1.0, self.stop + GRACE - time.monotonic())))
        except StopIteration:
            return True
        except TimeoutError:
            return False

    def kernels(self) -> None:
        """Run kernels until the time is over, `jobs` at a time."""
        jobs = self.options.jobs
        with Pool(jobs) as pool:
            while time.monotonic() < self.stop:
                first = self.options.first + self.tally.count
                round_ = range(first, first + (ROUND if jobs == 1 else 6 * jobs))
                work = pool.imap_unordered(partial(tried, options=self.options), round_)
                if not self.finish(work):
                    pool.terminate()
                    return
                print(f"{self.tally.count} kernels, {self.tally.equal} equal", flush=True)


def facts(run: Run, minutes: float) -> dict[str, Any]:
    """The run as JSON."""
    import numpy
    import xdsl

    tally = run.tally
    return {
        "command": "python tests/fuzz_long.py " + " ".join(sys.argv[1:]),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "commit": run.options.commit or commit(),
        "versions": {
            "python": platform.python_version(),
            "numpy": numpy.__version__,
            "xdsl": str(xdsl.__version__),
            "compiler": " ".join(COMPILER or ()),
        },
        "minutes": round(minutes, 1),
        "numbers": [[run.options.first, run.options.first + tally.count - 1]],
        "kernels": tally.count,
        "equal": tally.equal,
        "specialized": tally.specialized,
        "simulated and emulated runs": tally.runs,
        "through the emulated text": tally.emulated,
        "through NVRTC": tally.built,
        "states of the proof": tally.states,
        "declined": dict(tally.declined.most_common()),
        "pins refused": dict(tally.refused.most_common()),
        "plans not proved": dict(tally.unproved.most_common()),
        "features": dict(tally.features.most_common()),
        "counterexamples": tally.counterexamples,
    }


def together(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Several runs, at one commit with one Python, as one: counts are added."""
    whole = parts[0]
    for part in parts[1:]:
        same = ("commit", "versions")
        if any(part[name] != whole[name] for name in same):
            raise SystemExit("only runs at one commit, with one Python, are one run")
        for name, value in part.items():
            match value:
                case dict() if name not in same:
                    whole[name] = dict((Counter(whole[name]) + Counter(value)).most_common())
                case list() | int() | float():
                    whole[name] += value
                case _:
                    pass
    return whole


def page(found: dict[str, Any]) -> str:
    """The run as a page."""
    declined, refused, unproved = (
        sum(found[name].values()) for name in ("declined", "pins refused", "plans not proved")
    )
    lines = [
        f"# Fuzzing, {found['date']}",
        "",
        f"`{found['command']}` at {found['commit']}: {found['minutes']:.1f} minutes, "
        + ", ".join(f"kernels {first} to {last}" for first, last in found["numbers"])
        + ", "
        + ", ".join(f"{name} {version}" for name, version in found["versions"].items()),
        "",
        "| | |",
        "|---|---:|",
        f"| kernels | {found['kernels']:,} |",
        f"| equal to the oracle bit for bit | {found['equal']:,} |",
        f"| of these specialized | {found['specialized']:,} |",
        f"| simulated and emulated runs | {found['simulated and emulated runs']:,} |",
        f"| through the emulated text | {found['through the emulated text']:,} |",
        f"| built by NVRTC | {found['through NVRTC']:,} |",
        f"| states of the proof | {found['states of the proof']:,} |",
        f"| declined with a named reason | {declined:,} |",
        f"| pins refused with a named reason; run without them | {refused:,} |",
        f"| plans that the proof refused, another was taken | {unproved:,} |",
        f"| counterexamples | {len(found['counterexamples']):,} |",
        "",
        "Declined, by reason (numbers replaced by N):",
        "",
        *(f"- {count}: {reason}" for reason, count in found["declined"].items()),
        "",
        "Plans that the proof refused, by reason:",
        "",
        *(f"- {count}: {reason}" for reason, count in found["plans not proved"].items()),
        "",
        "Pins refused, by reason:",
        "",
        *(f"- {count}: {reason}" for reason, count in found["pins refused"].items()),
        "",
        "What the kernels had: "
        + "; ".join(f"{name} {count}" for name, count in found["features"].items())
        + ".",
    ]
    for item in found["counterexamples"]:
        lines += [
            "",
            f"Counterexample, kernel {item['kernel']}: {item['what']}",
            "",
            "```",
            item["case"],
            "```",
        ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run; return 1 when there is a counterexample."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--first", type=int, default=FURTHER, help="the first kernel's number")
    parser.add_argument("--seeds", type=int, default=2, help="simulated runs of each kernel")
    parser.add_argument("--emulate", type=int, default=4, help="one kernel in so many")
    parser.add_argument("--nvrtc", type=int, default=10, help="one kernel in so many")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--commit", default="", help="where the tree is no repository")
    parser.add_argument("--write", type=Path, help="the folder of the page and its JSON")
    parser.add_argument("--merge", type=Path, nargs="+", help="JSON of runs that become one")
    run = Run(options := parser.parse_args())
    started = time.monotonic()
    if options.merge:
        found = together([json.loads(path.read_text()) for path in options.merge])
    else:
        run.kernels()
        found = facts(run, (time.monotonic() - started) / 60)
    text = page(found)
    if options.write is not None:
        name = f"fuzz-{found['date']}"
        (options.write / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")
        (options.write / f"{name}.md").write_text(text)
    print(text)
    return 1 if found["counterexamples"] else 0


if __name__ == "__main__":
    sys.exit(main())
