"""Docs say what is so: the reference is what docs/generate.py writes, named files exist, and the
kernel of the README gives the report that is shown.
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


def test_the_kernel_of_the_readme(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "README.md").read_text()
    code, shown = re.search(r"```python\n(.*?)```.*?```\n(kernel .*?)```", text, re.S).groups()
    script = tmp_path / "kernel.py"
    script.write_text(code)
    variables = runpy.run_path(str(script))
    printed = capsys.readouterr().out.splitlines()
    assert [
        part for part in shown.splitlines() if not any(p.startswith(part) for p in printed)
    ] == []
    a, b, c = (variables[name].astype("float64") for name in "abc")
    assert abs(c - a @ b).max() < 0.05
