"""Where a variant or a mapping stands: what errors point at."""

from __future__ import annotations

import linecache
import re

from tawa.errors import Place
from tawa.ir.build.values import caller

_OURS = tuple(
    f"tawa.cypress.{name}"
    for name in ("place", "size", "tensor", "partition", "trace", "task", "mapping", "instantiate")
)


def here(*beyond: str) -> Place:
    """Return the expression of the author's code that is being evaluated, outside of `beyond`."""
    return caller((*_OURS, "tawa.cypress.program", "tawa.cypress.search", "dataclasses", *beyond))


def names_at(place: Place, count: int, otherwise: str) -> tuple[str, ...]:
    """Return the variables that the line of a place binds: of a `for`, or of an assignment."""
    text = linecache.getline(place.file, place.line)
    found = re.match(r"\s*for\s+(.+?)\s+in\b", text) or re.match(r"\s*([\w, ()]+?)\s*=[^=]", text)
    names = re.findall(r"\w+", found[1]) if found else []
    return tuple(names) if len(names) == count else tuple(f"{otherwise}{n}" for n in range(count))
