"""Test suites and scripts of other people's sources as calls: what each of their files launches.

    THIRD_PARTY="flag_gems=/src/FlagGems/tests/test_*.py" THIRD_PARTY_PATH=/src/FlagGems/src \
        python benchmarks/third_party.py --cases benchmarks/third_party_suites.py

`THIRD_PARTY` has entries `name=files` separated by ``;``, files being patterns separated by ``,``.
A file with tests runs under pytest, of each test function the parameters first, last and between
(`THIRD_PARTY_EACH` of them, 3); any other file runs as a script. A test, or a script, that takes
longer than `THIRD_PARTY_SECONDS` (20) is stopped. Without a GPU nothing runs, so that comparisons
of results are taken as passed.
"""

from __future__ import annotations

import contextlib
import glob
import os
import runpy
import signal
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
import triton.testing

EACH = int(os.environ.get("THIRD_PARTY_EACH", "3"))
SECONDS = int(os.environ.get("THIRD_PARTY_SECONDS", "20"))
Calls = Iterator[tuple[str, Callable[[], object]]]


class TooLong(BaseException):
    """A test took longer than `SECONDS`."""


class Some:
    """A pytest plugin: some parameters of each test function, each for a limited time."""

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        functions: dict[str, list[Any]] = defaultdict(list)
        for item in items:
            functions[item.nodeid.partition("[")[0]].append(item)
        for own in functions.values():
            chosen = {len(own) * i // max(1, EACH - 1) for i in range(EACH - 1)} | {len(own) - 1}
            own[:] = [own[i] for i in sorted(chosen)]
        items[:] = [item for own in functions.values() for item in own]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: Any) -> Iterator[None]:
        with limited():
            return (yield)


@contextlib.contextmanager
def limited() -> Iterator[None]:
    def late(*signal: object) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def believed() -> Iterator[None]:
    """Take results for right: those of launches that did not take place are zero.

    Benchmarks in the files do not run.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(patch.object(triton.testing.Mark, "run", lambda *a, **k: None))
        if torch.empty(0).is_cuda:  # the CPU's, which says so where there is no GPU
            stack.enter_context(patch.object(torch, "allclose", lambda *a, **k: True))
            stack.enter_context(patch.object(torch, "equal", lambda *a, **k: True))
            stack.enter_context(patch.object(torch.testing, "assert_close", lambda *a, **k: None))
        yield


def run(file: Path) -> None:
    """Run a file's tests, or the file."""
    text = file.read_text()
    with believed():
        if "def test_" in text and "pytest" in text:
            words = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header", "--tb=line"]
            words += os.environ.get("THIRD_PARTY_WORDS", "").split()
            pytest.main([*words, str(file)], plugins=[Some()])
            return
        stopped = contextlib.suppress(TooLong, SystemExit)
        with stopped, limited(), patch.object(sys, "argv", [str(file)]):
            runpy.run_path(str(file), run_name="__main__")


def calls(patterns: str) -> Calls:
    for pattern in patterns.split(","):
        for name in sorted(glob.glob(pattern, recursive=True)):
            file = Path(name)
            yield f"{file.parent.name}/{file.stem}", partial(run, file)


def suites() -> dict[str, Callable[[], Calls]]:
    for place in reversed(os.environ.get("THIRD_PARTY_PATH", "").split(":")):
        sys.path.insert(0, place)
    entries = (entry.split("=", 1) for entry in os.environ["THIRD_PARTY"].split(";"))
    return {name: partial(calls, patterns) for name, patterns in entries}


PACKAGES = suites()
