"""The proof and the check side by side: every kernel of the tests and every mutant of it, judged by
both.

    python tests/compare_checkers.py [--only NAME ...] [--every N] [--offset K] [--rule RULE ...]
                                     [--old FILE] [--kernels] [--all] [--jobs N]

Printed are the kernels that the check refuses, the mutants that the proof refuses and the check
accepts (grouped by the proof's rule and by kind; harmless ones apart), and those that the check
refuses and the proof accepts. `--kernels` judges no mutants. What the proof says is kept in FILE,
so that it is asked once; `--rule` takes only mutants that the proof refuses by one of these rules
(it must be in FILE), `--all` prints every difference.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from mutants import mutants
from mutants_of_control import control_mutants
from mutation import judged
from proof_kernels import KERNELS
from tawa import ir
from tawa.ir import tile
from tawa.verify import Refused, check

Old = dict[str, tuple[str, str]]


@dataclass(frozen=True)
class Difference:
    kernel: str
    mutant: str
    kind: str
    harmless: str
    old: str
    new: str
    sentence: str = ""


@dataclass(frozen=True)
class Task:
    kernel: str
    old: Old
    every: int
    offset: int
    rules: tuple[str, ...]
    only_kernels: bool


@dataclass(frozen=True)
class Result:
    kernel: str
    original: str
    differences: tuple[Difference, ...]
    old: Old
    judged: int
    refused: int
    old_refused: int
    seconds: tuple[float, float]


def new_verdict(kernel: tile.Kernel) -> tuple[str, str]:
    """Return (rule, sentence) of the check's refusal, or nothing twice."""
    try:
        check(kernel)
    except Refused as found:
        return found.rule.name, found.sentence
    except Exception as error:  # an error of the check is one to be seen, not one that stops it
        return f"ERROR {type(error).__name__}", str(error)
    return "", ""


def old_verdict(kernel: tile.Kernel) -> tuple[str, str]:
    try:
        fate, rule = judged(kernel)
    except Exception as error:
        return f"ERROR {type(error).__name__}", str(error)
    return (rule or fate), fate


def broken(kernel: tile.Kernel) -> Iterator[tuple[str, str, str, object]]:
    """Yield (name, kind, why harmless, make) of each mutant; names are unlike."""
    seen: dict[str, int] = {}
    for mutant in mutants(kernel):
        number = seen[mutant.name] = seen.get(mutant.name, -1) + 1
        operation = mutant.operation.name.removeprefix("hopper.").removeprefix("scf.")
        kind = f"{mutant.kind} {operation}"
        yield (
            f"{mutant.name}~{number}" if number else mutant.name,
            kind,
            mutant.harmless,
            mutant.make,
        )
    for mutant in control_mutants(kernel):
        yield mutant.name, mutant.name.partition(",")[0], "", mutant.make


def compare(task: Task) -> Result:
    kernel = ir.parse(str(KERNELS[task.kernel]()))
    rule, sentence = new_verdict(kernel)
    original = f"{rule}: {sentence}" if rule else ""
    differences: list[Difference] = []
    old: Old = {}
    judged = refused = old_refused = 0
    took = [0.0, 0.0]
    if not task.only_kernels:
        for number, (name, kind, harmless, make) in enumerate(broken(kernel)):
            known = task.old.get(name)
            if task.rules and (known is None or known[0] not in task.rules):
                continue
            if (number + task.offset) % task.every:
                continue
            if known is None:
                began = time.perf_counter()
                known = old[name] = old_verdict(make())  # type: ignore[operator]
                took[0] += time.perf_counter() - began
            before = known[0]
            began = time.perf_counter()
            after, sentence = new_verdict(make())  # type: ignore[operator]
            took[1] += time.perf_counter() - began
            judged += 1
            refused += bool(after)
            old_refused += bool(before)
            if bool(before) != bool(after) or after.startswith("ERROR"):
                differences.append(
                    Difference(task.kernel, name, kind, harmless, before, after, sentence)
                )
    return Result(
        task.kernel,
        original,
        tuple(differences),
        old,
        judged,
        refused,
        old_refused,
        (took[0], took[1]),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--offset", type=int, default=0)
    parser.add_argument("--rule", nargs="*", default=[])
    parser.add_argument("--old", type=Path, default=Path("old_verdicts.json"))
    parser.add_argument("--kernels", action="store_true")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    chosen = parser.parse_args()
    names = [n for n in KERNELS if not chosen.only or any(part in n for part in chosen.only)]
    known = json.loads(chosen.old.read_text()) if chosen.old.exists() else {}
    tasks = [
        Task(
            name,
            known.get(name, {}),
            chosen.every,
            chosen.offset,
            tuple(chosen.rule),
            chosen.kernels,
        )
        for name in names
    ]
    results: list[Result] = []
    if chosen.jobs > 1:
        with ProcessPoolExecutor(chosen.jobs) as pool:
            for result in pool.map(compare, tasks):
                _take(result, results, known, chosen.old)
    else:
        for task in tasks:
            _take(compare(task), results, known, chosen.old)
    _report(results, chosen.all)
    return 0


def _take(result: Result, results: list[Result], known: dict[str, Old], path: Path) -> None:
    results.append(result)
    if result.original:
        print(f"REFUSED {result.kernel}: {result.original}", flush=True)
    if result.old:
        known.setdefault(result.kernel, {}).update(result.old)
        path.write_text(json.dumps(known))


def _report(results: list[Result], everything: bool) -> None:
    missed: dict[tuple[str, str], list[Difference]] = defaultdict(list)
    excused: dict[tuple[str, str], list[Difference]] = defaultdict(list)
    more: dict[tuple[str, str], list[Difference]] = defaultdict(list)
    for result in results:
        for each in result.differences:
            if each.new:
                more[each.new, each.kind].append(each)
            elif each.harmless:
                excused[each.old, each.kind].append(each)
            else:
                missed[each.old, each.kind].append(each)
    for title, groups in (
        ("ACCEPTED BY THE CHECK, REFUSED BY THE PROOF", missed),
        ("THE SAME, BUT HARMLESS BY mutants.harmless", excused),
        ("REFUSED BY THE CHECK, ACCEPTED BY THE PROOF", more),
    ):
        print(f"\n{title}: {sum(map(len, groups.values()))}")
        for (rule, kind), items in sorted(groups.items()):
            print(f"  {len(items):5} {rule:24} {kind}")
            for each in items if everything else items[:2]:
                print(
                    f"          {each.kernel}: {each.mutant} {each.harmless or each.sentence}"[:220]
                )
    took = [sum(r.seconds[i] for r in results) for i in (0, 1)]
    print(
        f"\n{len(results)} kernels, {sum(bool(r.original) for r in results)} refused by the check; "
        f"{sum(r.judged for r in results)} mutants, {sum(r.old_refused for r in results)} refused by "
        f"the proof, {sum(r.refused for r in results)} by the check; {took[0]:.0f} s, {took[1]:.0f} s"
    )


if __name__ == "__main__":
    raise SystemExit(main())
