"""Write docs/reference from the docstrings: the operations, the errors, the passes.

`python docs/generate.py` writes the pages; `--check` fails when one is out of date.
"""

from __future__ import annotations

import ast
import inspect
import sys
from pathlib import Path

from tawa import errors
from tawa.ir import aref, hopper, tile

DOCS = Path(__file__).resolve().parent
SOURCE = DOCS.parent / "src" / "tawa"


def dialect_page(module: object, dialect: object) -> str:
    """Return the page of one dialect: its introduction, then each operation in order."""
    lines = [f"# The {dialect.name} dialect", "", inspect.getdoc(module) or "", ""]
    for operation in dialect.operations:
        lines += [f"## `{operation.name}`", "", inspect.getdoc(operation) or "", ""]
    return "\n".join(lines)


def errors_page() -> str:
    """Return the page of errors: one section a class."""
    lines = ["# Errors", "", inspect.getdoc(errors) or "", ""]
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, errors.TawaError):
            lines += [f"## {name}", "", inspect.getdoc(kind) or "", ""]
    return "\n".join(lines)


def passes_page() -> str:
    """Return the page of passes: the module docstring of each file."""
    lines = ["# Passes", ""]
    for path in sorted((SOURCE / "passes").rglob("*.py")):
        doc = ast.get_docstring(ast.parse(path.read_text()))
        if doc and path.name != "__init__.py":
            name = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
            lines += [f"## {name}", "", doc, ""]
    return "\n".join(lines)


def pages() -> dict[str, str]:
    """Return the text of every generated page by file name."""
    return {
        "tile.md": dialect_page(tile, tile.Tile),
        "aref.md": dialect_page(aref, aref.Aref),
        "hopper.md": dialect_page(hopper, hopper.Hopper),
        "errors.md": errors_page(),
        "passes.md": passes_page(),
    }


def main() -> int:
    """Write the pages, or with --check compare them; the exit status says whether all agreed."""
    folder = DOCS / "reference"
    folder.mkdir(exist_ok=True)
    stale = 0
    for name, text in pages().items():
        path = folder / name
        if "--check" not in sys.argv:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            print(f"{path.name} is out of date: run python docs/generate.py")
            stale += 1
    return int(stale > 0)


if __name__ == "__main__":
    raise SystemExit(main())
