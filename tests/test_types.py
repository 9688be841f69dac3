"""Files of kernels under pyright and mypy, and the declarations against what the frontend takes."""

import ast
import json
import os
import re
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


STRICT = ("annotated.py", "launches.py")


@pytest.fixture(scope="module")
def pyright(tmp_path_factory):
    """Errors as (file, line, message): one run, in which each file says how strict it is."""
    folder = tmp_path_factory.mktemp("typed")
    names = [each.name for each in HERE.glob("*.py")]
    for name in names:
        mode = "strict" if name in STRICT else "basic"
        (folder / name).write_text(f"{(HERE / name).read_text()}\n# pyright: {mode}\n")
    config = {"include": names, "extraPaths": [str(SOURCES)]}
    (folder / "pyrightconfig.json").write_text(json.dumps(config))
    command = [sys.executable, "-m", "pyright", "--outputjson", "-p", str(folder)]
    command += ["--pythonpath", sys.executable]
    run = subprocess.run(command, capture_output=True, text=True, timeout=200)
    found = json.loads(run.stdout)
    assert found["summary"]["filesAnalyzed"] >= len(names), run.stdout
    return {
        (Path(each["file"]).name, each["range"]["start"]["line"] + 1, each["message"])
        for each in found["generalDiagnostics"]
        if each["severity"] == "error"
    }


LOOSE = (
    *("disallow_any_generics", "disallow_incomplete_defs", "disallow_untyped_calls"),
    *("disallow_untyped_decorators", "disallow_untyped_defs", "warn_return_any"),
)
# Bodies without annotations are looked into only where mistakes are to be seen.
LOOSER = {"plain": (*LOOSE, "check_untyped_defs"), "wrong": LOOSE}


@pytest.fixture(scope="module")
def mypy(tmp_path_factory):
    """Errors as (file, line, message): one strict run, which lets what is not annotated be."""
    folder = tmp_path_factory.mktemp("mypy")
    lines = ["[mypy]"]
    for module, flags in LOOSER.items():
        lines += [f"[mypy-{module}]", *(f"{flag} = False" for flag in flags)]
    (folder / "mypy.ini").write_text("\n".join(lines))
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(folder), "--show-error-codes"]
    command += ["--config-file", str(folder / "mypy.ini"), "--follow-imports=silent", "--strict"]
    command += map(str, HERE.glob("*.py"))
    environment = {**os.environ, "MYPYPATH": f"{SOURCES}:{HERE}"}
    run = subprocess.run(command, capture_output=True, text=True, timeout=200, env=environment)
    assert run.returncode in (0, 1), run.stderr
    found = (line.split(":", 2) for line in run.stdout.splitlines() if ": error: " in line)
    return {(Path(file).name, int(line), message) for file, line, message in found}


@pytest.mark.timeout(400)
def test_annotated_kernels_are_clean_under_both_tools_strict(pyright, mypy):
    assert [each for each in pyright if each[0] in STRICT] == []
    assert [each for each in mypy if each[0] in STRICT] == []


@pytest.mark.timeout(400)
def test_kernels_without_annotations_are_clean_under_both_tools_basic(pyright, mypy):
    assert [each for each in pyright if each[0] == "plain.py"] == []
    assert [each for each in mypy if each[0] == "plain.py"] == []


@pytest.mark.timeout(400)
def test_mistakes_are_still_seen(pyright, mypy):
    lines = {line for name, line, _ in pyright if name == "wrong.py"}
    assert lines == wrong_lines("wrong.py")
    assert {line for name, line, _ in mypy if name == "wrong.py"} == wrong_lines("wrong.py")


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
