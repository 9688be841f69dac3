# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# (lambdas of the subset: what a parameter is, the model's compiler infers)
"""Words of the language that are written in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tawa.ppl.frontend.surface import cons, empty, fma, head, map, nil, put, repeat, select, tail


def places(kept: Any) -> Any:
    """Return where the items are that are kept, in front, and how many these are."""
    found = map(lambda _: 0, kept)
    count = 0
    for i in range(len(kept)):
        found = put(found, count, i)
        count = count + select(kept[i], 1, 0)
    return found, count


def dot(left: Any, right: Any) -> Any:
    """Return the product of two vectors: a sum in order, each step one fma."""
    total = 0.0
    for i in range(len(left)):
        total = fma(left[i], right[i], total)
    return total


def _from_left(left: Any, right: Any) -> Any:
    return map(lambda j: dot(left, map(lambda row: row[j], right)), range(right.shape[1]))


PRODUCTS: dict[tuple[int, int], Callable[..., Any]] = {
    (1, 1): dot,
    (1, 2): _from_left,
    (2, 1): lambda left, right: map(lambda row: dot(row, right), left),
    (2, 2): lambda left, right: map(lambda row: _from_left(row, right), left),
}
"""`@` between vectors and matrices, by their ranks."""


def length(items: Any) -> Any:
    """Return how many items a list has."""
    count = 0
    while not empty(items):
        count += 1
        items = tail(items)
    return count


def folded(function: Callable[[Any, Any], Any], items: Any, start: Any) -> Any:
    """Fold a list from its first item on: `function(folded, item)`."""
    while not empty(items):
        start = function(start, head(items))
        items = tail(items)
    return start


def to_list(vector: Any) -> Any:
    """Return the list of a vector's items, in a model."""
    items = nil(vector[0])
    for k in range(len(vector)):
        items = cons(vector[len(vector) - 1 - k], items)
    return items


def to_vector(items: Any, size: int, fill: Any) -> Any:
    """Return a vector of the first `size` items of a list, then of `fill`, in a model."""
    vector = repeat(size, lambda: fill)
    for k in range(size):
        if not empty(items):
            vector = put(vector, k, head(items))
            items = tail(items)
    return vector
