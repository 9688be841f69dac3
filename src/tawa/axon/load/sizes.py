"""Arrays of sizes: what graphs of ONNX compute of shapes, as objects in arrays of NumPy."""
# pyright: basic, reportArgumentType=false

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import numpy as np

from tawa.axon.run.values import DTYPES
from tawa.axon.syntax.tree import Binary, Literal, Tree

_SIGNS = {"Add": "+", "Sub": "-", "Mul": "*", "Div": "//", "Mod": "%"}


@dataclass(frozen=True)
class Sizes:
    """An array of a graph that is made of sizes and numbers, in an array of objects.

    `element`: its type; of floats quotients are no whole numbers.
    """

    items: np.ndarray
    element: str = "i64"

    @property
    def real(self) -> bool:
        """Whether it is one of floats."""
        return self.element.startswith("f")


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


def folded(items: Any, element: str) -> Any:
    """Return sizes; as an array of numbers, or of what is true, where they are that alone.

    None where one of them is not known.
    """
    made = np.asarray(items, object)
    flat = made.reshape(-1).tolist()
    if any(item is None for item in flat):
        return None
    if flat and all(isinstance(item, bool) for item in flat):
        return made.astype(bool)
    if all(isinstance(item, int) for item in flat):
        return made.astype(DTYPES[element])
    return Sizes(made, element)


def same_size(one: Any, other: Any) -> bool | None:
    """Tell whether sizes are equal, None where that is not known."""
    if one is other or (isinstance(one, int) and isinstance(other, int)):
        return one == other
    below = any(isinstance(item, int) and item < 0 for item in (one, other))
    return False if below and is_natural(one if isinstance(other, int) else other) else None


def is_natural(size: Any) -> bool:
    """Tell whether a size, which is computed of others, cannot be below 0."""
    if isinstance(size, Binary):
        return size.operator != "-" and is_natural(size.left) and is_natural(size.right)
    number = size.value if isinstance(size, Literal) else size
    return isinstance(number, Tree) or (isinstance(number, int) and number >= 0)


def rounded(kind: str, join: Callable[[str, Any, Any], Any], items: np.ndarray) -> np.ndarray:
    """Return quotients as whole numbers; None of one that may be rounded another way.

    `kind` is Floor, Ceil or Cast, which rounds towards 0; `join` applies an operator.
    """

    def one(item: Any) -> Any:
        if not isinstance(item, Ratio):
            return item
        if not is_natural(item.by) or (kind == "Cast" and not is_natural(item.over)):
            return None
        over = join("+", item.over, join("-", item.by, 1)) if kind == "Ceil" else item.over
        return join("//", over, item.by)

    return np.asarray(np.frompyfunc(one, 1, 1)(items), object)


def computed(
    kind: str, parts: list[np.ndarray], element: str, options: dict[str, Any], join: Any
) -> Any:
    """Return what an operator of ONNX gives of sizes and numbers, None where that is not known.

    It rounds quotients towards 0, and those of sizes are rounded down.
    """
    every = [item for part in parts for item in part.reshape(-1)]
    if any(isinstance(item, Ratio) for item in every):
        return None
    if kind == "Div" and element.startswith("f"):
        return Sizes(np.asarray(np.frompyfunc(Ratio, 2, 1)(*parts), object), element)
    if (kind == "Div" or options.get("fmod")) and not all(map(is_natural, every)):
        return None
    match kind:
        case "ReduceProd" if parts[0].ndim == 1 and not options.get("noop_with_empty_axes"):
            made = objects(reduce(partial(join, "*"), every))
            return folded(made.reshape((1,) * options.get("keepdims", 1)), element)
        case "Where" if all(isinstance(item, bool) for item in parts[0].reshape(-1)):
            return folded(np.where(*parts), element)
        case "Equal":
            return folded(np.frompyfunc(same_size, 2, 1)(*parts), element)
        case _ if kind in _SIGNS:
            return folded(np.frompyfunc(partial(join, _SIGNS[kind]), 2, 1)(*parts), element)
        case _:
            return None


def objects(value: Any) -> np.ndarray:
    """Return a value, or a list of them, as an array of objects."""
    items = value if isinstance(value, list) else [value]
    made = np.empty(len(items), object)
    made[:] = items
    return made if isinstance(value, list) else made.reshape(())
