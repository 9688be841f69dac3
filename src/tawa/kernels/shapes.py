"""From a product of any ranks to one of matrices or of batches of them, as torch and NumPy have it.

Leading axes are a batch; one of 1 is repeated; a vector is a matrix of one row or column.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tawa.errors import ArgumentError
from tawa.runtime.arrays import is_tensor, look


@dataclass(frozen=True, slots=True)
class Lined:
    """The operands as [M, K] and [K, N] or batches of these, `out` likewise (None: to be made);
    the result then has the shape `flat`, and `restore` gives it its own.
    """

    a: Any
    b: Any
    out: Any
    flat: tuple[int, ...]
    restore: Callable[[Any], Any]


def is_direct(a: Any, b: Any) -> bool:
    """Tell whether a product needs no other shapes: matrices, or batches of equal size or of 1."""
    try:
        rank = len(a.shape)
        return rank == len(b.shape) and 2 <= rank <= 3
    except AttributeError:  # what is no array is refused elsewhere
        return True
    except RuntimeError:  # a nested tensor has no shape
        for each in (a, b):
            look(each)
        raise


def line_up(a: Any, b: Any, out: Any = None) -> Lined:
    """Return a product's operands as matrices or batches; copies only where a batch is repeated
    along some of its axes. Raises `ArgumentError` where shapes do not fit.
    """
    left, right = tuple(a.shape), tuple(b.shape)
    if not left or not right:
        raise ArgumentError(
            f"no product of shapes {left} and {right}", why="a number is no matrix", remedy="use *"
        )
    rows = () if len(left) == 1 else left[-2:-1]
    columns = () if len(right) == 1 else right[-1:]
    if len(left) == 1:
        a = a.reshape(1, *left)
    if len(right) == 1:
        b = b.reshape(*right, 1)
    of_a, of_b = tuple(a.shape[:-2]), tuple(b.shape[:-2])
    batch = _broadcast(of_a, of_b, left, right)
    shape = (*batch, *rows, *columns)
    m, k = a.shape[-2:]
    count = prod(batch)
    if prod(of_b) == 1 and len(batch) == len(of_a):  # one weight for all rows
        a, b = a.reshape(prod(of_a) * m, k), b.reshape(b.shape[-2:])
        flat = (count * m, b.shape[-1])
    else:
        a, b = _batched(a, batch), _batched(b, batch)
        flat = (count, m, b.shape[-1])
    if out is not None:
        if tuple(out.shape) != shape:
            raise ArgumentError(f"out has shape {tuple(out.shape)}", why=f"the product has {shape}")
        whole, out = out, out.reshape(flat)
        if look(out).address != look(whole).address:
            raise ArgumentError(
                f"out has strides {look(whole).strides}",
                why=f"as a product of shape {flat} it has no strides, only a copy",
                remedy="pass a dense out",
            )
        return Lined(a, b, out, flat, lambda _: whole)
    return Lined(a, b, None, flat, lambda made: made.reshape(shape))


def _broadcast(
    a: tuple[int, ...], b: tuple[int, ...], left: Sequence[int], right: Sequence[int]
) -> tuple[int, ...]:
    rank = max(len(a), len(b))
    pairs = list(zip((1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b))
    if any(x != y and 1 not in (x, y) for x, y in pairs):
        raise ArgumentError(
            f"no product of shapes {tuple(left)} and {tuple(right)}",
            why="leading axes are equal, or 1, or absent",
        )
    return tuple(y if x == 1 else x for x, y in pairs)


def _batched(array: Any, batch: tuple[int, ...]) -> Any:
    """Return [count, rows, columns]; one of 1 stays so: the kernels repeat it."""
    matrix = tuple(array.shape[-2:])
    own = tuple(array.shape[:-2])
    if prod(own) == 1:
        return array.reshape(1, *matrix)
    if prod(own) != prod(batch):
        array = _expanded(array, (*batch, *matrix))
    return array.reshape(prod(batch), *matrix)


def _expanded(array: Any, shape: tuple[int, ...]) -> Any:
    if is_tensor(array):
        return array.expand(shape)
    library: Any = sys.modules.get("cupy" if look(array).device.kind == "cuda" else "numpy")
    return library.broadcast_to(array, shape)
