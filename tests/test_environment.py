"""`docs/environment.md` names every environment variable that is read, and no other."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Python's and pytest's own, and what a script of the tests tells the processes it starts.
PASSED_ON = {"HOME", "PYTHONPATH", "PYTEST_CURRENT_TEST", "KEPT"}


def is_environment(node: ast.expr) -> bool:
    match node:
        case ast.Name("environ") | ast.Attribute(ast.Name("os"), "environ"):
            return True
        case _:
            return False


def variables_read(file: Path) -> Iterator[str]:
    """The variables that a file reads: `os.environ[...]`, `.get`, `.pop`, `os.getenv`, `in`."""
    text = file.read_text()
    for node in ast.walk(ast.parse(text)) if "env" in text else ():
        match node:
            case ast.Call(func=ast.Attribute(value=where, attr="get" | "pop"), args=[name, *_]) if (
                is_environment(where)
            ):
                yield ast.unparse(name).strip("'")
            case ast.Call(func=ast.Attribute(attr="getenv"), args=[name, *_]):
                yield ast.unparse(name).strip("'")
            case ast.Subscript(value=where, slice=name, ctx=ast.Load()) if is_environment(where):
                yield ast.unparse(name).strip("'")
            case ast.Compare(left=name, comparators=[where]) if is_environment(where):
                yield ast.unparse(name).strip("'")


def read_in(*folders: str) -> set[str]:
    files = (file for folder in folders for file in (ROOT / folder).rglob("*.py"))
    return {name for file in files if file != Path(__file__) for name in variables_read(file)}


def test_the_page_is_what_the_sources_read() -> None:
    page = (ROOT / "docs" / "environment.md").read_text()
    used, developed = (
        set(re.findall(r"`([A-Z][A-Z\d_]+)`", " ".join(re.findall(r"^\| ([^|]*)\|", part, re.M))))
        for part in page.split("What the tests")
    )
    assert used == read_in("src")
    assert developed == read_in("tests", "benchmarks", "docs", "examples") - used - PASSED_ON


def test_every_way_of_reading_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "reads.py"
    file.write_text(
        'import os\nfrom os import environ\nos.environ["A"]\nenviron.get("B", 1)\nos.getenv("C")\n'
        '"D" in os.environ\nos.environ.pop("E")\nos.environ["F"] = "a write"\n'
    )
    assert set(variables_read(file)) == set("ABCDE")
