"""The figures of the proof and of the runs that check it, from the JSON of those runs.

`page()` is written by docs/generate.py, and compared by its --check: it cannot go stale.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[1] / "benchmarks" / "results"
KILLED = ("proof", "static rule", "unproved")


def newest(stem: str) -> tuple[str, Any] | None:
    """Return the name and content of the newest run of a kind, None where there is none."""
    found = sorted(RESULTS.glob(f"{stem}-[0-9]*.json"))
    return (found[-1].name, json.loads(found[-1].read_text())) if found else None


def of_schedules(name: str, run: dict[str, Any]) -> list[str]:
    """Return the rows of a run of all kernels under adversarial schedules."""
    kernels = run["kernels"]
    total = {key: sum(item[key] for item in kernels) for key in ("runs", "emulated", "extents")}
    states = sum(item["states"] for item in kernels)
    failures = sum(len(item["failures"]) for item in kernels)
    emulated = [total["emulated"]] if total["emulated"] else []
    return [
        f"| kernels of the tests and the library, run as specialized | {len(kernels)} of "
        f"{run['of']} | {name} |",
        f"| states of their proofs, together | {states:,} | |",
        f"| simulated runs, a seed each, at {total['extents']:,} sizes | {total['runs']:,} | |",
        *[
            f"| runs of the emulated CUDA C++ in the same sizes | {count:,} | |"
            for count in emulated
        ],
        f"| runs that hung, raced or differed from the oracle | {failures} | |",
    ]


def of_mutants(name: str, run: dict[str, Any]) -> list[str]:
    """Return the rows of a mutation test."""
    scores = run["kernels"]
    fates = sum((Counter(item["fates"]) for item in scores), Counter[str]())
    killed = sum(fates[fate] for fate in KILLED)
    alarms = sum(bool(item["false_alarm"]) for item in scores)
    open_ = fates["simulator"] + fates["survivor"]
    return [
        f"| mutants of {len(scores)} of {run['of']} kernels | {sum(fates.values()):,} | {name} |",
        f"| refused by the proof | {killed:,} | |",
        f"| accepted, the same program for a reason that is checked | {fates['equivalent']:,} | |",
        f"| accepted, no difference under any schedule | {fates['unchanged']:,} | |",
        f"| accepted, and the simulator objects or cannot say | {open_} | |",
        f"| originals refused | {alarms} | |",
    ]


def of_fuzzing(name: str, run: dict[str, Any]) -> list[str]:
    """Return the rows of a fuzz run."""
    declined = sum(run["declined"].values())
    return [
        f"| fuzz cases: kernels made at random | {run['kernels']:,} | {name} |",
        f"| equal to the oracle bit for bit | {run['equal']:,} | |",
        f"| declined with a named reason | {declined:,} | |",
        f"| runs, simulated and emulated | {run['simulated and emulated runs']:,} | |",
        f"| counterexamples | {len(run['counterexamples'])} | |",
    ]


def of_gpu(name: str, run: dict[str, Any]) -> list[str]:
    """Return the rows of random kernels that were launched on a GPU."""
    others = run["wrong"] + run["hang"] + run["failed"]
    return [
        f"| random kernels launched on an H200 | {run['launched']:,} | {name} |",
        f"| equal to the oracle bit for bit | {run['equal']:,} | |",
        f"| wrong, hung, or failed at the launch | {others} | |",
    ]


PARTS = {
    "schedules": of_schedules,
    "mutants": of_mutants,
    "fuzz": of_fuzzing,
    "fuzz-gpu": of_gpu,
}


def page() -> str:
    """Return the page."""
    lines = [
        "# What checks the proof",
        "",
        "The newest run of each kind; `docs/generate.py` makes this page from their JSON. The",
        "commands are `make schedules`, `make mutants`, `make fuzz` and `tests/fuzz_gpu.py`; the",
        "`.md` beside each JSON says what was tried and lists every exception.",
        "",
        "| | | run |",
        "|---|---:|---|",
    ]
    for stem, rows in PARTS.items():
        if (run := newest(stem)) is not None:
            lines += rows(*run)
    return "\n".join([*lines, ""])
