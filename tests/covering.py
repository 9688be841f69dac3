"""Which cases of a swept test the short run takes, where several decorators span a product.

Each case of a decorator `pytest.mark.parametrize` is a level of a factor. Of a product of k factors
the short run takes a covering array of strength k - 1: every combination of levels of all factors
but one occurs (of two factors, every level). `make long` takes the product.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
EXACT = ("test_bug_", "test_known_")
"""Files of what went wrong once, maybe by one combination alone: their cases all stay."""

Row = tuple[Hashable, ...]


def covering(rows: Sequence[Row]) -> list[int]:
    """The places of rows among which each combination of levels that occurs in `rows`, of all
    factors but one, occurs; chosen greedily, the first of equals.
    """
    factors = range(len(rows[0]))

    def parts(row: Row) -> set[tuple[tuple[int, Hashable], ...]]:
        return set(combinations(tuple(zip(factors, row)), len(row) - 1))

    covers = [parts(row) for row in rows]
    missing = set[Any]().union(*covers)
    chosen: list[int] = []
    while missing:
        best = max(range(len(rows)), key=lambda place: (len(covers[place] & missing), -place))
        chosen.append(best)
        missing -= covers[best]
    return sorted(chosen)


def row_of(item: pytest.Item) -> Row:
    """The levels of a test's case: of each decorator, and of each fixture with parameters."""
    spec = getattr(item, "callspec", None)
    if spec is None:
        return ()
    levels = {name: id(value) for name, value in spec.params.items()}
    found: list[Hashable] = []
    for mark in item.iter_markers("parametrize"):
        names = mark.args[0] if mark.args else mark.kwargs["argnames"]
        names = names.split(",") if isinstance(names, str) else names
        found.append(tuple(levels.pop(name.strip()) for name in names))
    return (*found, *levels.values())


def left_out(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Those of `items` that the short run leaves to the long one; of tests on a GPU, none."""
    products: dict[tuple[object, ...], list[tuple[Row, pytest.Item]]] = {}
    for item in items:
        row = row_of(item)
        exact = item.path.name.startswith(EXACT) or item.path.parent != HERE
        if len(row) > 1 and not exact:
            test = item.path, getattr(item, "cls", None), getattr(item, "originalname", item.name)
            products.setdefault(test, []).append((row, item))
    found: list[pytest.Item] = []
    for cases in products.values():
        stay = set(covering([row for row, _ in cases]))
        found += [item for place, (_, item) in enumerate(cases) if place not in stay]
    return found
