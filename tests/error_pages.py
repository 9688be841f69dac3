"""The example and the message in the docstring of each error, and how an example is run."""

from __future__ import annotations

import inspect
import linecache
import re
import textwrap
from pathlib import Path

HEADER = "import tawa\nimport tawa.language as tl\n\n"


def section(kind: type, title: str) -> str:
    """Return the indented block under ``Title::`` of a class's docstring, "" without one."""
    doc = inspect.getdoc(kind) or ""
    found = re.search(rf"^{title}::\n\n((?:    .*\n|\n)*(?:    .*)?)", doc, re.MULTILINE)
    return textwrap.dedent(found[1]).strip("\n") if found else ""


def run(text: str, folder: Path) -> None:
    """Run a text as the file ``kernel.py`` of a folder, under the two imports."""
    path = folder / "kernel.py"
    path.write_text(f"{HEADER}{text}\n")
    linecache.checkcache(str(path))
    exec(compile(path.read_text(), str(path), "exec"), {"__name__": "example"})


def run_example(kind: type, folder: Path) -> str:
    """Run the example of a class as the file ``kernel.py``; return the text of its error."""
    try:
        run(section(kind, "Example"), folder)
    except kind as error:
        text = "\n".join([str(error), *getattr(error, "__notes__", ())])
        text = re.sub(r"\S+/reports/(\w+)-\w{12}", r".../reports/\1-...", text)
        return text.replace(str(folder / "kernel.py"), "kernel.py")
    raise AssertionError(f"the example of {kind.__name__} raises nothing")
