"""One random program, judged by the proof and by brute force over its inputs.

python tests/proof_inputs_trial.py --first 0 --programs 1000 --write benchmarks/results
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from proof_inputs import Concrete, Long, Program, faults
from proof_inputs_drawn import draw
from proof_inputs_text import text
from tawa.ir import parse
from tawa.simulator.proof.explore import Exploration
from tawa.simulator.proof.read import read_kernel
from tawa.simulator.proof.rules import Unproved, Violation
from tawa.target import H200


class Trial:
    """What may come of a program."""

    RIGHT = "right for all inputs tried, proved"
    FOUND = "refused, and goes wrong for the input that the proof names"
    STRICT = "refused, and so is the program of that input alone, though it harms nobody"
    UNPROVED = "unproved, right for all inputs tried"
    SUSPECT = "unproved, wrong for some"
    HOLE = "proved, wrong for some input"
    ALARM = "refused by the proof alone"


@dataclass(frozen=True, slots=True)
class Found:
    """The outcome of a program, and what is wrong with the proof of it, if anything is."""

    outcome: str
    bad: str
    seconds: float


def tried(number: int) -> Found:
    """Judge the program of a number."""
    program = draw(number)
    began = time.process_time()
    verdict, given = judged(program)
    seconds = time.process_time() - began
    if verdict.startswith("violation"):
        assert given is not None
        return Found(*_confirmed(program, verdict, given), seconds)
    wrong = next(_wrong(program), None)
    if verdict:
        return Found(Trial.UNPROVED if wrong is None else Trial.SUSPECT, "", seconds)
    if wrong is None:
        return Found(Trial.RIGHT, "", seconds)
    return Found(Trial.HOLE, f"{wrong[1]} at {wrong[0]}", seconds)


def _wrong(program: Program) -> Any:
    """Yield inputs that go wrong; slots that are left full are, where the proof would say so."""
    left_full: list[tuple[tuple[int, ...], str]] = []
    for given, what in faults(program):
        if what != "?":
            yield given, what
        elif len(left_full) < 3:
            left_full.append((given, "slots are left full"))
    for given, what in left_full:
        if judged(program, given)[0].startswith("violation"):
            yield given, what


def _confirmed(program: Program, verdict: str, given: Sequence[int]) -> tuple[str, str]:
    """Return the outcome of a refusal, whose input is run alone."""
    try:
        fault = Concrete(program).fault(given)
    except Long:
        fault = "?"
    if fault and fault != "?":
        return Trial.FOUND, ""
    alone = judged(program, given)[0]
    # What counts its own trips may be unproved once its loop has a constant end.
    if alone.startswith("violation") or (fault == "?" and alone):
        return Trial.STRICT, ""
    return Trial.ALARM, f"{verdict} at {tuple(given)}"


def judged(
    program: Program, given: Sequence[int] | None = None
) -> tuple[str, tuple[int, ...] | None]:
    """Return what the proof says of a program, of one input alone where that is `given`; and the
    input for which it says so.
    """
    names = dict(zip(program.arguments, given)) if given is not None else None
    exploration: Exploration | None = None
    try:
        exploration = Exploration(read_kernel(parse(text(program, names)), H200))
        exploration.explore()
    except Unproved as found:
        return f"unproved: {found}", None
    except Violation as found:
        assert exploration is not None
        assert exploration.run is not None
        bound = {item.args: n for item, n in exploration.run.scalars.bound.items()}
        places = {each.value.index: each.place for each in exploration.model.arguments}  # pyright: ignore
        numbers = [bound.get((places[index],), 1) for index in range(len(program.arguments))]
        return f"violation: {found}", tuple(numbers)
    return "", None


def page(found: dict[str, Any]) -> str:
    """The run as a page."""
    programs = sum(found["outcomes"].values())
    lines = [
        "# The proof against brute force over inputs",
        "",
        f"`{found['command']}`: random programs of two or three roles, numbers {found['first']} "
        f"to {found['first'] + programs - 1}. Loops, conditions, slots and phases are expressions "
        "of two or three arguments; in three of five one role says one thing otherwise, often in a "
        "corner of the inputs only. Each is proved, and run for several hundred inputs by the "
        "hardware's own rules (`tests/proof_inputs.py`).",
        "",
        "| outcome | programs |",
        "|---|---:|",
        *(f"| {name} | {count:,} |" for name, count in found["outcomes"].items()),
        "",
        f"The median proof took {found['median_ms']} ms.",
        *([""] + [f"- program {number}: {text}" for number, text in found["bad"].items()])
        * bool(found["bad"]),
    ]
    return "\n".join(lines).rstrip() + "\n"


def main() -> int:
    """Try programs; return 1 where the proof is wrong about one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--write", type=Path)
    chosen = parser.parse_args()
    outcomes: Counter[str] = Counter()
    bad: dict[int, str] = {}
    times: list[float] = []
    began = time.monotonic()
    numbers = range(chosen.first, chosen.first + chosen.programs)
    with ProcessPoolExecutor(chosen.jobs) as pool:
        for number, found in zip(numbers, pool.map(tried, numbers), strict=True):
            outcomes[found.outcome] += 1
            times.append(found.seconds)
            if found.bad:
                bad[number] = f"{found.outcome}: {found.bad}"
                print(number, bad[number], flush=True)
            if time.monotonic() - began > chosen.seconds:
                pool.shutdown(wait=False, cancel_futures=True)
                break
    figures = {
        "command": "python tests/proof_inputs_trial.py",
        "first": chosen.first,
        "outcomes": dict(outcomes.most_common()),
        "median_ms": round(1000 * sorted(times)[len(times) // 2]),
        "bad": bad,
    }
    print(page(figures))
    if chosen.write is not None:
        name = f"inputs-{datetime.now(UTC):%Y-%m-%d}"
        (chosen.write / f"{name}.md").write_text(page(figures))
        (chosen.write / f"{name}.json").write_text(json.dumps(figures, indent=1) + "\n")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
