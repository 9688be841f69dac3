"""Run the scripts of `docs/tutorial` and write their pages: text, program, and what it printed.

A script opens with its docstring; the comment below `# %%` is text of the page. `python
docs/tutorials.py` writes the pages, with `--check` it fails where one is out of date.
"""

from __future__ import annotations

import ast
import io
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from itertools import pairwise
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).resolve().parent / "tutorial"


def cells(lines: list[str]) -> Iterator[tuple[list[str], int, int]]:
    """Yield the text above each cell, and its first line and the one after its last."""
    starts = [n for n, line in enumerate(lines) if line.startswith("# %%")] + [len(lines)]
    yield [], 0, starts[0]
    for start, end in pairwise(starts):
        code = start
        while code < end and lines[code].startswith("#"):
            code += 1
        text = [lines[start][4:], *(line[1:] for line in lines[start + 1 : code])]
        yield [line.removeprefix(" ") for line in text], code, end


def page(path: Path) -> str:
    """Return the page of a script, which is run as a module of its own."""
    source = path.read_text()
    tree = ast.parse(source)
    lines = source.splitlines()
    module = ModuleType(path.stem)
    module.__file__ = str(path)
    sys.modules[path.stem] = module
    parts = [ast.get_docstring(tree) or ""]
    body = tree.body[1:]
    for text, start, end in cells(lines):
        parts.append("\n".join(text))
        inside = [node for node in body if start < node.lineno <= end]
        if not inside:
            continue
        first = inside[0].lineno - len(getattr(inside[0], "decorator_list", ()))
        shown = "\n".join(lines[first - 1 : end]).strip("\n")
        parts.append(f"```python\n{shown}\n```")
        printed = io.StringIO()
        with redirect_stdout(printed):
            cell = ast.Module(inside, [])
            exec(compile(cell, str(path), "exec"), vars(module))
        if printed.getvalue():
            parts.append(f"```text\n{printed.getvalue().strip()}\n```")
    return "\n\n".join(part.strip("\n") for part in parts if part.strip()) + "\n"


def main() -> int:
    """Write or compare the pages; the exit status says whether all agreed."""
    stale = 0
    for path in sorted(FOLDER.glob("*.py")):
        target, text = path.with_suffix(".md"), page(path)
        if "--check" not in sys.argv:
            target.write_text(text)
        elif not target.exists() or target.read_text() != text:
            print(f"{target.name} is out of date: run python docs/tutorials.py")
            stale = 1
    return stale


if __name__ == "__main__":
    raise SystemExit(main())
