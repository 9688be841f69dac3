"""Write docs/reference from the docstrings: the operations, the errors, the passes.

`python docs/generate.py` writes the pages; `--check` fails when one is out of date.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
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


def kinds_of_errors() -> list[type[errors.TawaError]]:
    """Return every class of `tawa.errors`, in the order of the file."""
    found = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    return [kind for kind in found if issubclass(kind, errors.TawaError)]


def errors_page() -> str:
    """Return the list of errors: a line a class, with the link to its page."""
    lines = ["# Errors", "", inspect.getdoc(errors).partition("\n\nLength:")[0], ""]
    for kind in kinds_of_errors():
        summary = inspect.getdoc(kind).partition("\n")[0]
        lines.append(f"- [{kind.__name__}](errors/{kind.__name__}.md): {summary}")
    return "\n".join([*lines, ""])


def error_page(kind: type[errors.TawaError]) -> str:
    """Return the page of one error: its docstring, the indented blocks as code."""
    lines = [f"# {kind.__name__}", ""]
    for part in re.split(
        r"^(\w+)::\n\n((?:    .*\n|\n)*)", inspect.getdoc(kind) + "\n", flags=re.M
    ):
        if part.startswith("    "):
            language = "python" if lines[-2] == "## Example" else "text"
            lines += [f"```{language}", textwrap.dedent(part).strip("\n"), "```", ""]
        elif part.isidentifier():
            lines += [f"## {part}", ""]
        elif part.strip():
            text = re.sub(r"^(Why|Remedy): ", r"**\1.** ", part.strip(), flags=re.M)
            lines += [text, ""]
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
        **{f"errors/{kind.__name__}.md": error_page(kind) for kind in kinds_of_errors()},
    }


def main() -> int:
    """Write the pages, or with --check compare them; the exit status says whether all agreed."""
    folder = DOCS / "reference"
    (folder / "errors").mkdir(parents=True, exist_ok=True)
    stale = 0
    written = pages()
    for path in sorted(folder.rglob("*.md")):
        if path.relative_to(folder).as_posix() not in written:
            print(f"{path.name} describes nothing any more: remove it")
            stale += 1
    for name, text in written.items():
        path = folder / name
        if "--check" not in sys.argv:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            print(f"{path.name} is out of date: run python docs/generate.py")
            stale += 1
    return int(stale > 0)


if __name__ == "__main__":
    raise SystemExit(main())
