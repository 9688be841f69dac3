"""Docs say what is so: the reference is what docs/generate.py writes, named files exist, the
programs of the README run, and its picture is what the simulator gives today.
"""

import re
import runpy
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/**/*.md")])


def test_reference_is_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "docs" / "generate.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_tutorials_run_and_print_what_their_pages_show() -> None:
    command = [sys.executable, str(ROOT / "docs" / "tutorials.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
        for target in re.findall(r"\]\(([^)#\s]+)\)", text):
            assert "://" in target or (page.parent / target).exists(), f"{page.name}: {target}"


def test_files_that_are_named_exist() -> None:
    known = {
        path.as_posix()
        for part in ("src", "tests", "docs", "benchmarks", "examples")
        for path in (ROOT / part).rglob("*.*")
    }
    for page in PAGES:
        for name in re.findall(r"`([\w./*-]+\.(?:py|md|mlir))`", page.read_text()):
            wanted = "*/" + name.lstrip("./")
            assert any(fnmatch(path, wanted) for path in known), f"{page.name}: {name}"


def test_every_design_note_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    for note in (ROOT / "docs" / "design").glob("*.md"):
        assert f"(design/{note.name})" in index


def test_every_folder_is_in_the_tree() -> None:
    named = re.findall(r"`([a-z]+)/`", (ROOT / "docs" / "tree.md").read_text())
    assert {path.parent.name for path in ROOT.glob("src/tawa/*/__init__.py")} <= set(named)


def test_the_programs_of_the_readme(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 80
    calls, kernel = re.findall(r"```python\n(.*?)```", text, re.S)
    script = tmp_path / "kernel.py"
    script.write_text(calls)
    runpy.run_path(str(script))
    assert capsys.readouterr().out == "(128, 128)\n(1, 2, 64, 64)\n"
    script.write_text(kernel)
    variables = runpy.run_path(str(script))
    assert "load: 4 warps" in capsys.readouterr().out
    a, b, c = (variables[name].astype("float64") for name in "abc")
    assert abs(c - a @ b).max() < 0.05


def test_the_kernel_without_source_of_the_docs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.S)
    script = tmp_path / "kernel.py"
    script.write_text(code)
    variables = runpy.run_path(str(script))
    assert "kernel row_sums" in capsys.readouterr().out
    assert (variables["sums"] == 256).all()


def test_every_benchmark_is_named() -> None:
    text = (ROOT / "benchmarks" / "README.md").read_text()
    for path in ROOT.glob("benchmarks/*.py"):
        assert f"`{path.name}`" in text or '"__main__"' not in path.read_text(), path.name


def test_every_result_is_named() -> None:
    folder = ROOT / "benchmarks" / "results"
    text = (folder / "README.md").read_text()
    for path in folder.iterdir():
        named = f"`{path.name}`" in text or f"`{path.stem}.*`" in text
        assert named or path.name == "README.md", path.name


def test_the_picture_is_of_this_compiler() -> None:
    drawn = runpy.run_path(str(ROOT / "docs" / "picture.py"))["picture"]()
    assert drawn == (ROOT / "docs" / "timeline.svg").read_text()
