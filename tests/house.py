"""What the house measures: lines, the path of one compile, circles of imports, time of the proof.

    python tests/house.py [--write DIR]     # `make house` writes benchmarks/results/house.json

The core is `src/tawa` without what stands on it. Lines are those of files. The path of a compile is
the lines of the functions of tawa that are entered while the demo's product compiles.
"""

from __future__ import annotations

import argparse
import ast
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import tawa

ROOT = Path(__file__).resolve().parent.parent
SOURCE = Path(tawa.__file__).parent
ABOVE = ("kernels", "torch", "jax", "cypress", "axon", "ppl")
"""The folders that stand on the core."""


class Size(NamedTuple):
    """Lines, and the files that they are in."""

    lines: int
    files: int


def size_of(paths: Iterator[Path]) -> Size:
    """The lines of files, all counted."""
    counts = [path.read_text().count("\n") for path in paths]
    return Size(sum(counts), len(counts))


def core() -> Size:
    """All that is not in a folder that stands on the core."""
    files = SOURCE.rglob("*.py")
    return size_of(path for path in files if path.relative_to(SOURCE).parts[0] not in ABOVE)


def entered(work: Callable[[], Any]) -> Size:
    """The lines of the functions of tawa that `work` enters, nested ones once."""
    codes: set[CodeType] = set()

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            codes.add(frame.f_code)

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    begins: dict[Path, set[int]] = {}
    for code in codes:
        path = Path(code.co_filename)
        if code.co_name != "<module>" and path.is_relative_to(SOURCE):
            begins.setdefault(path, set()).add(code.co_firstlineno)
    return Size(sum(len(_lines(path, first)) for path, first in begins.items()), len(begins))


def _lines(path: Path, begins: set[int]) -> set[int]:
    """The lines of the functions of a file that begin at one of `begins`."""
    found: set[int] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            if first in begins:
                found.update(range(first, (node.end_lineno or first) + 1))
    return found


def path_of_a_compile() -> Size:
    """What the demo's product enters as it compiles, with nothing compiled before it, on the disk
    neither.
    """
    from tawa.tools import demo

    return entered(demo.compile_sample)


def proofs() -> dict[str, float]:
    """Seconds of the check of each kernel of the tests, alone, after one that warms up."""
    from proof_kernels import KERNELS
    from tawa.verify import verify

    found: dict[str, float] = {}
    for name, kernel in KERNELS.items():
        made = kernel()
        if not found:
            verify(made)
        began = time.perf_counter()
        verify(made)
        found[name] = time.perf_counter() - began
    return found


def main() -> None:
    """Print the figures; write them where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    from test_architecture import circles

    path = path_of_a_compile()  # first, with nothing made yet
    seconds = proofs()
    checker = size_of((SOURCE / "verify").rglob("*.py"))
    found = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        "core": core()._asdict(),
        "checker": checker._asdict(),
        "entered by the demo's product": path._asdict(),
        "circles of imports": len(circles()),
        "kernels proved": len(seconds),
        "proof, median ms": round(1000 * statistics.median(seconds.values()), 1),
        "proof, longest ms": round(1000 * max(seconds.values()), 1),
        "the longest": max(seconds, key=lambda name: seconds[name]),
    }
    text = json.dumps(found, indent=1)
    print(text)
    if given.write:
        (given.write / "house.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
