"""Long runs in pieces, spread over processes, machines and sessions.

A run is a list of units. What became of a unit is a file, its *part*, in a folder; a unit whose
part was made from the same sources is not run again. So a run may be stopped and gone on with;
parts made elsewhere (`--shard 1/4`) are copied into the folder, and `--merge` makes the page of
what is there without running anything.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"


@dataclass(frozen=True, slots=True)
class Unit:
    """Part `part` of `parts` of what is done with a kernel."""

    name: str
    what: str
    part: int = 0
    parts: int = 1

    @property
    def file(self) -> str:
        words = f"{self.name} {self.what} {self.part + 1} of {self.parts}"
        return "".join(c if c.isalnum() else "_" for c in words) + ".json"


@dataclass(frozen=True, slots=True)
class Part:
    """The result of a unit, and the digest of the sources it was made from."""

    unit: Unit
    sources: str
    result: dict[str, Any]


@cache
def sources() -> str:
    """A digest of the compiler and of all that the tests are made of."""
    found = hashlib.sha256()
    for folder in (ROOT / "src" / "tawa", ROOT / "tests"):
        for path in sorted(folder.rglob("*")):
            if path.suffix in (".py", ".mlir", ".h", ".cc"):
                found.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return found.hexdigest()[:12]


def read(folder: Path, unit: Unit) -> Part | None:
    """The part of a unit that lies in a folder."""
    path = folder / unit.file
    if not path.is_file():
        return None
    found = json.loads(path.read_text())
    return Part(unit, found["sources"], found["result"])


def write(folder: Path, unit: Unit, result: dict[str, Any]) -> None:
    """Keep the result of a unit; the file appears whole."""
    path = folder / unit.file
    made = path.with_suffix(".tmp")
    made.write_text(json.dumps({"sources": sources(), "result": result}) + "\n")
    made.replace(path)


Task = Callable[[Unit], dict[str, Any]]


def _do(task: Task, folder: Path, unit: Unit, stop: float) -> tuple[Unit, dict[str, Any] | None]:
    if time.time() > stop:
        return unit, None
    result = task(unit)
    write(folder, unit, result)
    return unit, result


def run(
    units: Sequence[Unit],
    task: Task,
    chosen: argparse.Namespace,
    say: Callable[[Unit, dict[str, Any]], None],
) -> None:
    """Run the units of this shard that have no part yet, in several processes; none is begun once
    the time is over. A unit that raises is reported, and has no part.
    """
    folder, stop = chosen.parts, time.time() + 60 * chosen.minutes
    folder.mkdir(parents=True, exist_ok=True)
    order = [unit for unit in units if _fresh(read(folder, unit)) is None]
    Random(0).shuffle(order)  # what is done when somebody stops it is a fair sample
    shares, _, count = chosen.shard.partition("/")
    first, _, last = shares.partition("-")
    mine = range(int(first) - 1, int(last or first))
    order = [unit for unit in order if _place(unit) % int(count) in mine]
    with ProcessPoolExecutor(chosen.jobs) as pool:
        futures = {pool.submit(_do, task, folder, unit, stop): unit for unit in order}
        for future in as_completed(futures):
            if (error := future.exception()) is not None:
                print(f"{futures[future].name}: {error!r}", flush=True)
                continue
            unit, result = future.result()
            if result is not None:
                say(unit, result)


def _fresh(part: Part | None) -> Part | None:
    return part if part is not None and part.sources == sources() else None


def _place(unit: Unit) -> int:
    """A number that spreads units evenly over shards, the same on every machine."""
    return int.from_bytes(hashlib.sha256(unit.file.encode()).digest()[:4], "big")


def gathered(folder: Path, units: Iterable[Unit]) -> tuple[list[Part], list[Unit]]:
    """The parts that lie in a folder, and the units that have none."""
    parts: list[Part] = []
    missing: list[Unit] = []
    for unit in units:
        part = read(folder, unit)
        if part is None:
            missing.append(unit)
        else:
            parts.append(part)
    return parts, missing


def made_of(parts: Iterable[Part]) -> dict[str, int]:
    """How many parts were made from each state of the sources, by their digest."""
    return dict(Counter(part.sources for part in parts).most_common())


def arguments(about: str | None, kind: str) -> argparse.ArgumentParser:
    """The options that all long runs have."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=1e6, help="begin nothing after them")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--only", nargs="*", default=[], help="kernels whose name has one of these")
    parser.add_argument("--shard", default="1/1", help="i/n or i-j/n: of n shares of the work")
    parser.add_argument("--parts", type=Path, default=ROOT / "build" / kind, help="their folder")
    parser.add_argument("--merge", action="store_true", help="run nothing, make the page")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the folder of the page")
    return parser


def keep(out: Path, kind: str, page: str, figures: dict[str, Any]) -> None:
    """Write the page of a run and its figures, a kernel a line."""
    out.mkdir(parents=True, exist_ok=True)
    stem = out / f"{kind}-{date.today()}"
    stem.with_suffix(".md").write_text(page)
    facts = {name: value for name, value in figures.items() if name != "kernels"}
    kernels = ",\n".join(json.dumps(item) for item in figures["kernels"])
    text = json.dumps(facts)[:-1] + f', "kernels": [\n{kernels}\n]}}\n'
    stem.with_suffix(".json").write_text(text)
