"""How long the proof takes for each kernel that any test hands to it.

    python tests/proof_times.py [--jobs N] [--tries N] [--write DIR]

The suite is run once, with this file as a plugin that keeps the text of every kernel which comes to
the proof, whether it is compiled, broken on purpose or read from a file. Then those that are proved
are proved again, a few at a time, and the longest once more alone, one after the other. The budget
is 200 ms each (`test_proof_budget.py`).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from xdsl.utils.exceptions import ParseError

from tawa.errors import TawaError
from tawa.ir import parse, tile
from tawa.simulator.proof import prove, verdict
from tawa.target import H200, Target
from test_proof_budget import SECONDS, unit

HERE = Path(__file__).parent
KEPT = "TAWA_PROVED_KERNELS"
"""The environment variable that says where the plugin keeps texts."""
LONGEST, ALONE = 20, 15  # kernels that are proved alone once more, and how often


class Timed(NamedTuple):
    """A kernel that was proved: by which test, in how many seconds and steps."""

    test: str
    seconds: float
    states: int


# --- the plugin -----------------------------------------------------------------------------------


def pytest_configure(config: pytest.Config) -> None:
    """Keep what is handed to the proof from now on."""
    if folder := os.environ.get(KEPT):
        read = verdict.read_kernel

        def reading(kernel: tile.Kernel, target: Target, *rest: Any) -> Any:
            if target == H200:
                keep(Path(folder), str(kernel))
            return read(kernel, target, *rest)

        verdict.read_kernel = reading


def keep(folder: Path, text: str) -> None:
    """Write the text of a kernel, once, and which test it is of."""
    name = folder / hashlib.sha256(text.encode()).hexdigest()[:16]
    if not name.with_suffix(".mlir").exists():
        test = os.environ.get("PYTEST_CURRENT_TEST", "?").removesuffix(" (call)")
        name.with_suffix(".test").write_text(test)
        fresh = name.with_suffix(f".{os.getpid()}")
        fresh.write_text(text)
        fresh.rename(name.with_suffix(".mlir"))


# --- the times ------------------------------------------------------------------------------------


def gathered(folder: Path, jobs: int) -> None:
    """Run the suite with the plugin, and a cache of its own: what is not compiled is not proved."""
    with TemporaryDirectory() as cache:
        paths = os.pathsep.join((str(HERE), os.environ.get("PYTHONPATH", "")))
        given = {KEPT: str(folder), "TAWA_CACHE_DIR": cache, "PYTHONPATH": paths}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "proof_times", "-n", str(jobs)]
        subprocess.run(command, cwd=HERE.parent, env={**os.environ, **given}, check=True)


def timed(tries: int, path: Path) -> Timed | None:
    """Return the best of some proofs of a kernel, None where it is not proved, or is of operations
    that only its test knows.
    """
    best = Timed(path.with_suffix(".test").read_text(), float("inf"), 0)
    try:
        kernel = parse(path.read_text())
        for _ in range(tries):
            began = time.process_time()
            proof = prove(kernel, H200)
            seconds = time.process_time() - began
            if seconds < best.seconds:
                best = Timed(best.test, seconds, proof.states)
    except (TawaError, ParseError):
        return None
    return best


def all_of(folder: Path, jobs: int, tries: int) -> dict[str, Any]:
    """Time the kernels that were kept; return the figures."""
    paths = sorted(folder.glob("*.mlir"))
    with ProcessPoolExecutor(jobs) as pool:
        found = dict(zip(paths, pool.map(partial(timed, tries), paths, chunksize=4), strict=True))
    proved = {path: each for path, each in found.items() if each is not None}
    longest = sorted(proved, key=lambda path: -proved[path].seconds)[:LONGEST]
    alone = [each for path in longest if (each := timed(ALONE, path)) is not None]
    return {
        "command": "python tests/proof_times.py",
        "python": platform.python_version(),
        "unit_ms": round(1e3 * min(unit() for _ in range(9)), 1),
        "jobs": jobs,
        "tries": tries,
        "kernels": len(paths),
        "proved": len(proved),
        "over": sum(each.seconds > SECONDS for each in proved.values()),
        "over_alone": sum(each.seconds > SECONDS for each in alone),
        "together": round(sum(each.seconds for each in proved.values()), 2),
        "longest": [
            {
                "test": each.test,
                "ms": round(1e3 * each.seconds),
                "beside_others_ms": round(1e3 * proved[path].seconds),
                "states": each.states,
            }
            for path, each in sorted(zip(longest, alone, strict=True), key=lambda x: -x[1].seconds)
        ],
    }


def page(found: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a page of figures."""
    yield "# How long the proof takes for the kernels of all tests"
    yield ""
    yield (
        f"`{found['command']}`, Python {found['python']}; the unit of `test_proof_budget.py` takes "
        f"{found['unit_ms']} ms here. Of {found['kernels']:,} kernels that the suite hands to the "
        f"proof {found['proved']:,} are proved, in {found['together']} s together, each the best "
        f"of {found['tries']}, {found['jobs']} at a time: {found['over']} of them take more than "
        f"200 ms. Of the {LONGEST} longest, alone, best of {ALONE}, {found['over_alone']} do."
    )
    yield ""
    yield "| ms alone | beside others | steps | test |"
    yield "|---:|---:|---:|---|"
    for each in found["longest"]:
        test = each["test"].removeprefix("tests/").replace("|", "/")
        yield f"| {each['ms']} | {each['beside_others_ms']} | {each['states']:,} | `{test}` |"


def main() -> int:
    """Time all proofs; return 1 where one takes longer than it may, alone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--tries", type=int, default=4)
    parser.add_argument("--write", type=Path)
    chosen = parser.parse_args()
    with TemporaryDirectory() as folder:
        gathered(Path(folder), chosen.jobs)
        figures = all_of(Path(folder), chosen.jobs, chosen.tries)
    text = "\n".join(page(figures)) + "\n"
    print(text)
    if chosen.write is not None:
        name = f"proof-times-{datetime.now(UTC):%Y-%m-%d}"
        (chosen.write / f"{name}.md").write_text(text)
        (chosen.write / f"{name}.json").write_text(json.dumps(figures, indent=1) + "\n")
    return int(bool(figures["over_alone"]))


if __name__ == "__main__":
    sys.exit(main())
