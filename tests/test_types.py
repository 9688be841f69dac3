"""Files of kernels under pyright and mypy, and the declarations against what the frontend takes."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tawa
from tawa.frontend.attributes import DESCRIPTOR_METHODS, TENSOR_METHODS

HERE = Path(__file__).parent / "typed"
SOURCES = Path(tawa.__file__).parents[1]


def wrong_lines(name):
    lines = (HERE / name).read_text().splitlines()
    return {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}


def pyright(tmp_path, mode, *names):
    for each in HERE.glob("*.py"):
        shutil.copy(each, tmp_path)
    config = {"typeCheckingMode": mode, "include": [*names], "extraPaths": [str(SOURCES)]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
    command = [sys.executable, "-m", "pyright", "--outputjson", "-p", str(tmp_path)]
    command += ["--pythonpath", sys.executable]
    run = subprocess.run(command, capture_output=True, text=True, timeout=200)
    found = json.loads(run.stdout)
    assert found["summary"]["filesAnalyzed"] >= len(names), run.stdout
    return {
        (Path(each["file"]).name, each["range"]["start"]["line"] + 1, each["message"])
        for each in found["generalDiagnostics"]
        if each["severity"] == "error"
    }


def mypy(tmp_path, options, *names):
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path), "--show-error-codes"]
    command += ["--follow-imports=silent", *options, *(str(HERE / name) for name in names)]
    environment = {**os.environ, "MYPYPATH": f"{SOURCES}:{HERE}"}
    run = subprocess.run(command, capture_output=True, text=True, timeout=200, env=environment)
    assert run.returncode in (0, 1), run.stderr
    return [line for line in run.stdout.splitlines() if ": error: " in line]


@pytest.mark.timeout(400)
def test_annotated_kernels_are_clean_under_both_tools_strict(tmp_path):
    assert pyright(tmp_path, "strict", "annotated.py", "launches.py") == set()
    assert mypy(tmp_path, ["--strict"], "annotated.py", "launches.py") == []


@pytest.mark.timeout(400)
def test_kernels_without_annotations_are_clean_under_both_tools_basic(tmp_path):
    assert pyright(tmp_path, "basic", "plain.py") == set()
    assert mypy(tmp_path, [], "plain.py") == []


@pytest.mark.timeout(400)
def test_mistakes_are_still_seen(tmp_path):
    lines = {line for _, line, _ in pyright(tmp_path, "basic", "wrong.py")}
    assert lines == wrong_lines("wrong.py")
    seen = {
        int(line.split(":")[1]) for line in mypy(tmp_path, ["--check-untyped-defs"], "wrong.py")
    }
    assert seen == wrong_lines("wrong.py")


def test_declared_methods_are_those_of_the_frontend():
    """Read as text: at run time no object of the types exists."""
    tree = ast.parse((SOURCES / "tawa/language/values.py").read_text())
    for name, methods in (("tensor", TENSOR_METHODS), ("tensor_descriptor", DESCRIPTOR_METHODS)):
        declared = next(n for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and n.name == name)
        names = {n.name for n in ast.walk(declared) if isinstance(n, ast.FunctionDef)}
        names |= {n.targets[0].id for n in ast.walk(declared) if isinstance(n, ast.Assign)}
        assert {n for n in names if not n.startswith("_")} == set(methods)


def test_annotations_change_no_signature():
    """The same kernel with and without annotations has one tile IR."""
    x = tawa.array((100,), "f32")
    sys.path.insert(0, str(HERE))
    try:
        import annotated
        import plain
    finally:
        sys.path.remove(str(HERE))
    one, other = (
        re.sub(r"@\d+", "", m.add.compile(x, x, x, 100, BLOCK=128).asm["tile"])
        for m in (annotated, plain)
    )
    assert one == other
