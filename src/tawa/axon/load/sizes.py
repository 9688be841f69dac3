"""Arrays of sizes: what graphs of ONNX compute of shapes, as objects in arrays of NumPy."""
# pyright: basic, reportArgumentType=false

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tawa.axon.syntax.tree import Binary, Literal


@dataclass(frozen=True)
class Sizes:
    """An array of a graph that is made of sizes and numbers, in an array of objects.

    `real`: it is one of floats, whose quotients are no whole numbers.
    """

    items: np.ndarray
    real: bool = False


@dataclass(frozen=True)
class Ratio:
    """A quotient of sizes before it is rounded."""

    over: Any
    by: Any


def objects_of(value: Any) -> Any:
    """Return what sizes are computed with, None where it is no whole number."""
    if isinstance(value, Sizes):
        return value.items
    with np.errstate(invalid="ignore"):
        whole = value.astype(value.dtype if value.dtype == bool else np.int64)
    return whole.astype(object) if np.array_equal(whole, value) else None


def folded(items: Any, real: bool) -> Any:
    """Return sizes; as an array of numbers, or of what is true, where they are that alone.

    None where one of them is not known.
    """
    made = np.asarray(items, object)
    flat = made.reshape(-1).tolist()
    if any(item is None for item in flat):
        return None
    for kind, dtype in ((bool, bool), (int, np.float32 if real else np.int64)):
        if all(isinstance(item, kind) for item in flat):
            return made.astype(dtype)
    return Sizes(made, real)


def same_size(one: Any, other: Any) -> bool | None:
    """Tell whether sizes are equal, None where that is not known."""
    if one is other or (isinstance(one, int) and isinstance(other, int)):
        return one == other
    below = any(isinstance(item, int) and item < 0 for item in (one, other))
    return False if below and _is_natural(one if isinstance(other, int) else other) else None


def _is_natural(size: Any) -> bool:
    """Tell whether a size, which is computed of others, cannot be below 0."""
    if isinstance(size, Binary):
        return size.operator != "-" and _is_natural(size.left) and _is_natural(size.right)
    return not isinstance(size, Literal) or (isinstance(size.value, int) and size.value >= 0)


def objects(value: Any) -> np.ndarray:
    """Return a value, or a list of them, as an array of objects."""
    items = value if isinstance(value, list) else [value]
    made = np.empty(len(items), object)
    made[:] = items
    return made if isinstance(value, list) else made.reshape(())
