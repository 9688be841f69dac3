"""The mutation test of the proof: every kernel of the tests, broken in every way we know.

    python tests/mutation.py [--jobs N] [--only NAME ...] [--every N] [--out FOLDER]

A mutant is *killed* by a static rule (before anything runs), by the proof (a run breaks a rule), as
*unproved* (the proof cannot say), or, where the proof accepts it, by the simulator under
adversarial schedules. What is left is *equivalent* for a reason that `mutants.harmless` checks on
the program, or, where there is none, *unchanged*: the simulator, an independent judge with its own
race detector, finds nothing and the same result under every schedule. A mutant that is none of
these is a *survivor*: a miss of the proof until somebody shows otherwise.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from mutants import Mutant, mutants
from proof_kernels import KERNELS
from tawa.errors import ProtocolError, TawaError, UnprovedProtocol
from tawa.ir import tile
from tawa.ir.types import DescType, PtrType
from tawa.simulator import simulate
from tawa.simulator.memory import HostDescriptor
from tawa.simulator.proof import prove
from tawa.simulator.values import dtype_of
from tawa.target import H200

SCHEDULES = (("random", "random", 0), ("random", "late", 1), ("random", "early", 2))
# Their reason is that the proof, which sees every meeting and every place, accepts them.
_JUDGED = ("id=", "kind=", "offset+16")
RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"


@dataclass
class Score:
    """What became of the mutants of one kernel."""

    kernel: str
    mutants: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    fates: Counter[str] = field(default_factory=Counter)
    rules: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    survivors: list[str] = field(default_factory=list)
    contested: list[str] = field(default_factory=list)
    false_alarm: str = ""
    seconds: float = 0.0


# --- the judges -----------------------------------------------------------------------------------


def judged(kernel: tile.Kernel) -> tuple[str, str]:
    """Return what the proof says of a kernel: (fate, rule), fate "" where it accepts it."""
    try:
        prove(kernel, H200)
    except UnprovedProtocol:
        return "unproved", "unproved"
    except ProtocolError as error:
        text = str(error)
        rule = text.split('rule "', 1)[1].split('"', 1)[0]
        return ("static rule" if "before any role runs" in text else "proof"), rule
    return "", ""


def arguments_for(kernel: tile.Kernel) -> dict[str, Any]:
    """Return arguments for any kernel: descriptors of two blocks and a part, small integers."""
    made: dict[str, Any] = {}
    for name, value in zip(kernel.argument_names, kernel.body.block.args):
        match value.type:
            case DescType() as kind:
                block = kind.block_shape
                shape = tuple(2 * extent + 8 * (extent > 8) for extent in block)
                base = _numbers(shape, dtype_of(kind.element))
                strides = tuple(int(np.prod(shape[axis + 1 :])) for axis in range(len(shape)))
                made[name] = HostDescriptor(base, shape, strides, block)
            case PtrType() as kind:
                made[name] = _numbers((1 << 18,), dtype_of(kind.element))
            case kind if str(kind).startswith(("f", "b")):
                made[name] = 1.0
            case _:
                made[name] = 80
    return made


def _numbers(shape: tuple[int, ...], dtype: Any) -> Any:
    low = 0 if np.issubdtype(dtype, np.integer) else -1  # integers are indices
    return np.random.default_rng(len(shape)).integers(low, 3, shape).astype(dtype)


def memory_after(
    kernel: tile.Kernel, grid: tuple[int, int, int], schedule: tuple[str, str, int]
) -> dict[str, bytes]:
    """Run a kernel in the simulator; return all arrays as they are then. Raises TawaError."""
    given = arguments_for(kernel)
    how, late, seed = schedule
    simulate(kernel, grid, given, schedule=how, late=late, seed=seed, multiprocessors=2)
    arrays = {name: getattr(value, "base", value) for name, value in given.items()}
    return {name: a.tobytes() for name, a in arrays.items() if isinstance(a, np.ndarray)}


class Simulated:
    """The original's memory after each schedule; None where these arguments do not suit it."""

    def __init__(self, kernel: tile.Kernel) -> None:
        self.expected: list[dict[str, bytes]] | None = None
        for grid in ((2, 2, 1), (4, 1, 1), (1, 1, 1)):
            self.grid = grid
            try:
                self.expected = [memory_after(kernel, grid, schedule) for schedule in SCHEDULES]
                return
            except (TawaError, IndexError, ValueError):
                continue

    def judge(self, mutant: tile.Kernel) -> str:
        """Return "simulator" where it finds a fault, "unchanged", or "" where it cannot say."""
        if self.expected is None:
            return ""
        try:
            for schedule, expected in zip(SCHEDULES, self.expected):
                if memory_after(mutant, self.grid, schedule) != expected:
                    return "simulator"
        except TawaError:
            return "simulator"
        return "unchanged"


# --- one kernel -----------------------------------------------------------------------------------


def score(name: str, every: int = 1, offset: int = 0) -> Score:
    """Judge the mutants of a kernel, or each `every`-th of them."""
    began, result = time.perf_counter(), Score(name)
    kernel = KERNELS[name]()
    fate, rule = judged(kernel.clone())
    result.false_alarm = rule
    if fate:
        return result
    simulated: Simulated | None = None
    for number, mutant in enumerate(mutants(kernel)):
        if (number + offset) % every:
            continue
        result.mutants += 1
        result.kinds[_kind(mutant)] += 1
        broken = mutant.make()
        fate, rule = judged(broken)
        if fate:
            result.rules[rule] += 1
            if mutant.harmless and fate != "unproved" and not mutant.kind.startswith(_JUDGED):
                result.contested.append(f"{mutant.name}: {mutant.harmless}")
        elif mutant.harmless:
            fate = "equivalent"
            result.reasons[mutant.harmless] += 1
        else:
            simulated = simulated or Simulated(kernel)
            fate = simulated.judge(mutant.make()) or "survivor"
            if fate in ("survivor", "simulator"):
                result.survivors.append(f"{mutant.name} ({fate})")
            else:
                result.reasons[f"unchanged: {_kind(mutant)}"] += 1
        result.fates[fate] += 1
    result.seconds = time.perf_counter() - began
    return result


def _kind(mutant: Mutant) -> str:
    change = "".join(c for c in mutant.kind if not c.isdigit()).strip(" =")
    return f"{change} {mutant.operation.name.removeprefix('hopper.').removeprefix('scf.')}"


# --- all kernels ----------------------------------------------------------------------------------


def table(scores: list[Score], every: int = 1) -> str:
    """Return the scores as a page; `every` says that each `every`-th mutant was judged."""
    fates = sum((item.fates for item in scores), Counter[str]())
    kinds = sum((item.kinds for item in scores), Counter[str]())
    rules = sum((item.rules for item in scores), Counter[str]())
    reasons = sum((item.reasons for item in scores), Counter[str]())
    alarms = [item for item in scores if item.false_alarm]
    left = [f"{item.kernel}: {text}" for item in scores for text in item.survivors]
    total = sum(item.mutants for item in scores)
    lines = ["# Mutation test of the proof", ""]
    lines += [
        f"{len(scores)} kernels, {total} mutants; {len(alarms)} of the originals flagged.",
        *([f"One mutant of {every} was judged, from another one on in each kernel."] * (every > 1)),
        "`python tests/mutation.py` makes this page; its docstring says what the fates mean.",
        "",
        "| fate | mutants |",
        "|---|---|",
        *(f"| {name} | {count} |" for name, count in fates.most_common()),
        "",
        "| broken | mutants |",
        "|---|---|",
        *(f"| {name} | {count} |" for name, count in kinds.most_common()),
        "",
        "| rule that killed | mutants |",
        "|---|---|",
        *(f"| {name} | {count} |" for name, count in rules.most_common()),
        "",
        "| why equivalent | mutants |",
        "|---|---|",
        *(f"| {name} | {count} |" for name, count in reasons.most_common()),
        "",
        "## Survivors",
        "",
        *([f"- {text}" for text in left] or ["None."]),
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    """Score all kernels, in several processes; write a page and the figures of each kernel."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    names = [n for n in KERNELS if not chosen.only or any(part in n for part in chosen.only)]
    scores: list[Score] = []
    chosen.out.mkdir(parents=True, exist_ok=True)
    stem = chosen.out / f"mutants-{date.today()}"
    places = list(enumerate(names))
    Random(0).shuffle(places)  # what is done when somebody stops it is a fair sample
    with ProcessPoolExecutor(chosen.jobs) as pool:
        futures = [pool.submit(score, name, chosen.every, place) for place, name in places]
        for future in as_completed(futures):
            item = future.result()
            scores.append(item)
            print(f"{item.kernel:42} {dict(item.fates)} {item.seconds:.0f} s", flush=True)
            for text in item.survivors + item.contested:
                print(f"    {text}", flush=True)
            scores.sort(key=lambda item: names.index(item.kernel))
            stem.with_suffix(".md").write_text(table(scores, chosen.every))
            figures = json.dumps([vars(item) for item in scores], indent=1)
            stem.with_suffix(".json").write_text(figures + "\n")


if __name__ == "__main__":
    main()
