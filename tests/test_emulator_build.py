"""Which compiler the emulation takes, and that a text is compiled once."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import emulator_build
from codegen_emulator import needs_compiler
from emulator_build import find_compiler, program

has_zig = importlib.util.find_spec("ziglang") is not None
ZIG = (sys.executable, "-m", "ziglang", "c++")
TEXT = "int main() { return 3; }\n"


def tool(folder: Path, name: str) -> str:
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


def test_the_order_in_which_compilers_are_looked_for(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert find_compiler() == (ZIG if has_zig else None)
    for name in ("clang++", "g++", "c++"):  # the last is the first that is asked for
        path = tool(tmp_path, name)
        assert find_compiler() == (path,)
    monkeypatch.setenv("CXX", "ccache g++ -m64")
    assert find_compiler() == ("ccache", "g++", "-m64")


def test_the_test_extra_brings_a_compiler():
    """So that there is one wherever `make test` runs, and nothing is skipped."""
    project = Path(__file__).parents[1] / "pyproject.toml"
    assert '"ziglang' in project.read_text()
    assert "CI" in (project.parent / ".ci" / "run").read_text()


@pytest.mark.skipif(not has_zig, reason="the ziglang wheel is not installed")
@pytest.mark.long
def test_without_another_compiler_that_of_the_wheel_is_used(tmp_path):
    """A kernel and an instruction, on a path without compilers and with nothing kept."""
    here = Path(__file__).parent
    tests = ["test_codegen_emulated.py::test_worked_example", "test_emulator_build.py"]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-k",
        "worked or once",
        "-p",
        "no:cacheprovider",
    ]
    environment = {k: v for k, v in os.environ.items() if k != "CXX"}
    environment |= {"PATH": str(tmp_path), "TMPDIR": str(tmp_path), "CI": "1"}
    done = subprocess.run(
        [*command, *(str(here / test) for test in tests)],
        env=environment, cwd=here.parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    assert "skipped" not in done.stdout
    assert list(tmp_path.glob("tawa-emulator-*/*.program"))


@needs_compiler
def test_a_text_is_compiled_once(monkeypatch):
    path = program(TEXT)
    assert subprocess.run([path], check=False).returncode == 3
    monkeypatch.setattr(emulator_build, "make", lambda *_: pytest.fail("compiled again"))
    assert program(TEXT) == path


@needs_compiler
def test_what_does_not_compile_leaves_nothing_and_is_said_once_more():
    for _ in range(2):
        with pytest.raises(AssertionError, match=r"undeclared|not declared"):
            program("int main() { return nothing; }\n")
