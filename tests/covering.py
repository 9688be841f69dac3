"""Which cases of a swept test the short run takes.

Each case of a decorator `pytest.mark.parametrize` is a level of a factor. Of a product of k factors
the short run takes a covering array of strength k - 1: every combination of levels of all factors
but one occurs (of two factors, every level). Of a test with the mark `short` it takes the cases
that the mark names by their ids. `make long` takes all.
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


def is_short(config: pytest.Config) -> bool:
    """Whether this is the short run, `make test`."""
    return config.option.markexpr == "not long"


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


def kept_by_name(item: pytest.Item) -> bool | None:
    """Whether a mark names a test's case; None without one."""
    mark = item.get_closest_marker("short")
    return None if mark is None else item.callspec.id in mark.args  # type: ignore[attr-defined]


def unknown(items: Sequence[pytest.Item]) -> set[tuple[str, str]]:
    """Tests with ids in their mark that no case of theirs among `items` has."""
    named: set[tuple[str, str]] = set()
    for item in items:
        if (mark := item.get_closest_marker("short")) is not None:
            named |= {(_test(item), name) for name in mark.args}
    spec = "callspec"
    return named - {(_test(item), getattr(item, spec).id) for item in items if hasattr(item, spec)}


def _test(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def left_out(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Those of `items` that the short run leaves to the long one; of tests on a GPU, none."""
    products: dict[str, list[tuple[Row, pytest.Item]]] = {}
    found: list[pytest.Item] = []
    for item in items:
        row, named = row_of(item), kept_by_name(item)
        exact = item.path.name.startswith(EXACT) or item.path.parent != HERE
        if named is False:
            found.append(item)
        elif named is None and len(row) > 1 and not exact:
            products.setdefault(_test(item), []).append((row, item))
    for cases in products.values():
        stay = set(covering([row for row, _ in cases]))
        found += [item for place, (_, item) in enumerate(cases) if place not in stay]
    return found
