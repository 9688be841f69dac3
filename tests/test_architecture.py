"""The tree keeps its own rules: imports run downward, files stay short, no global state."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "tawa"

# From the bottom up: a folder or module may import those before it, and itself.
ORDER = (
    "version",
    "collector",
    "syntax",
    "errors",
    "target",
    "layouts",
    "ir",
    "language",
    "frontend",
    "analysis",
    "plan",
    "passes",
    "codegen",
    "verify",
    "simulator",
    "runtime",
    "testing",
    "tools",
    "kernels",
)
FILES = sorted(SOURCE.rglob("*.py"))


def part_of(path: Path) -> str:
    inside = path.relative_to(SOURCE)
    return inside.parts[0].removesuffix(".py")


def imported_parts(tree: ast.AST) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = [ast.Pass()]
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
            if node.module == "tawa":
                names = [f"tawa.{alias.name}" for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("tawa.")}
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_run_downward(path: Path) -> None:
    part = part_of(path)
    if part in ("__init__", "__main__"):
        return
    allowed = set(ORDER[: ORDER.index(part) + 1])
    parts = imported_parts(ast.parse(path.read_text()))
    assert parts <= allowed, f"{part} may not import {sorted(parts - allowed)}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_are_a_page_or_owe_a_reason(path: Path) -> None:
    text = path.read_text()
    lines = text.count("\n")
    assert lines <= 600, "split it"
    if lines > 400:
        doc = ast.get_docstring(ast.parse(text)) or ""
        assert "Length:" in doc, "over 400 lines: say why in the docstring, after 'Length:'"


def test_version_is_stated_once() -> None:
    version = (SOURCE / "version.py").read_text().split('"')[-2]
    others = [p for p in FILES if p.name != "version.py" and f'"{version}"' in p.read_text()]
    assert others == []
