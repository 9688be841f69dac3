"""From a product of any ranks to one of matrices or of batches of them, as torch and NumPy have it.

Leading axes are a batch; one of 1 is repeated; a vector is a matrix of one row or column.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tawa.errors import ArgumentError
from tawa.runtime.arrays import Placeholder, is_tensor, look, row_major


@dataclass(frozen=True, slots=True)
class Lined:
    """The operands as [M, K] and [K, N] or batches of these, `out` and the gradient by it likewise;
    `shape` is that of the product itself.

    Of placeholders they are others: views, or `Copy` where only a copy has the shape.
    """

    a: Any
    b: Any
    out: Any
    gradient: Any
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Copy(Placeholder):
    """A dense copy of an array, which is repeated to the shape `repeated` and seen in another."""

    repeated: tuple[int, ...] = ()


def is_direct(a: Any, b: Any) -> bool:
    """Tell whether a product needs no other shapes: matrices, or batches of equal size or of 1."""
    return len(a.shape) == len(b.shape) and len(a.shape) in (2, 3)


def line_up(a: Any, b: Any, out: Any = None, gradient: Any = None) -> Lined:
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
        a = _reshaped(a, (1, *left))
    if len(right) == 1:
        b = _reshaped(b, (*right, 1))
    of_a, of_b = tuple(a.shape[:-2]), tuple(b.shape[:-2])
    batch = _broadcast(of_a, of_b, left, right)
    shape = (*batch, *rows, *columns)
    m, k = a.shape[-2:]
    count = prod(batch)
    if prod(of_b) == 1 and len(batch) == len(of_a):  # one weight for all rows
        a, b = _reshaped(a, (prod(of_a) * m, k)), _reshaped(b, tuple(b.shape[-2:]))
        flat = (count * m, b.shape[-1])
    else:
        a, b = _batched(a, batch), _batched(b, batch)
        flat = (count, m, b.shape[-1])
    if out is not None:
        if tuple(out.shape) != shape:
            raise ArgumentError(f"out has shape {tuple(out.shape)}", why=f"the product has {shape}")
        whole, out = out, _reshaped(out, flat)
        if isinstance(out, Copy):
            raise ArgumentError(
                f"out has strides {whole.strides}",
                why=f"as a product of shape {flat} it has no strides, only a copy",
                remedy="pass a dense out",
            )
    if gradient is not None and tuple(gradient.shape) == shape:
        gradient = _reshaped(gradient, flat)
    return Lined(a, b, out, gradient, shape)


def _reshaped(array: Any, shape: tuple[int, ...]) -> Any:
    """Return an array of another shape, a view where it can be one."""
    if not isinstance(array, Placeholder):
        return array.reshape(shape)
    strides = _seen_as(array, shape)
    if strides is None:
        return Copy(shape, array.dtype, row_major(shape), repeated=array.shape)
    return Placeholder(shape, array.dtype, strides, array.alignment)


def _seen_as(array: Placeholder, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the strides by which an array of another shape is seen in its memory, None where no
    strides do: its axes must be parts of runs of the array's, which lie close together.
    """
    if 0 in shape:
        return row_major(shape)
    runs: list[tuple[int, int]] = []  # elements and the step between them, innermost first
    for extent, step in zip(reversed(array.shape), reversed(array.strides)):
        if runs and step == runs[-1][0] * runs[-1][1]:
            runs[-1] = runs[-1][0] * extent, runs[-1][1]
        elif extent > 1:
            runs.append((extent, step))
    strides: list[int] = []
    left, step = 1, 1  # what is left of the run at hand
    for extent in reversed(shape):
        if left == 1 and runs:
            left, step = runs.pop(0)
        if left % extent:
            return None
        strides.append(step)
        left, step = left // extent, step * extent
    return tuple(reversed(strides))


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
        return _reshaped(array, (1, *matrix))
    if prod(own) != prod(batch):
        array = _expanded(array, (*batch, *matrix))
    return _reshaped(array, (prod(batch), *matrix))


def _expanded(array: Any, shape: tuple[int, ...]) -> Any:
    if is_tensor(array):
        return array.expand(shape)
    if isinstance(array, Placeholder):
        kept = zip(shape[-len(array.shape) :], array.shape, array.strides)
        steps = [step if extent == own else 0 for extent, own, step in kept]
        steps = [0] * (len(shape) - len(steps)) + steps
        return Placeholder(shape, array.dtype, tuple(steps), array.alignment)
    library: Any = sys.modules.get("cupy" if look(array).device.kind == "cuda" else "numpy")
    return library.broadcast_to(array, shape)
