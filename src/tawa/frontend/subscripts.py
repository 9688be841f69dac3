"""Indexing: ``x[:, None]`` on tensors, positions and slices on tuples."""

from __future__ import annotations

from typing import Any

from tawa.frontend.context import Context
from tawa.frontend.names import lift
from tawa.ir.build.operations.shapes import new_axes
from tawa.ir.build.values import Const, Tensor, Tuple, Value, describe


def subscript(c: Context, value: Value, index: Value) -> Value:
    """Index a tensor with None, ``:`` and ``...``, or a tuple with a constant; TypeMismatch."""
    match value, index:
        case Tensor(), _:
            return _new_axes(c, value, index)
        case Tuple(), Const():
            return _tuple_item(c, value, index.value)
        case Const(), Const():
            return _constant_item(c, value.value, index.value)
        case _:
            raise c.builder.mismatch(
                f"{describe(value)} cannot be indexed by {describe(index)}",
                why="tuples are indexed by compile-time integers, tensors by None and `:`",
            )


def _tuple_item(c: Context, value: Tuple, position: Any) -> Value:
    if isinstance(position, slice):
        return Tuple(tuple(value.items[position]))
    if isinstance(position, int) and -len(value.items) <= position < len(value.items):
        return value.items[position]
    raise c.builder.mismatch(
        f"{position!r} is no position of a tuple of {len(value.items)}",
        why="tuples are indexed by compile-time integers and slices",
    )


def _constant_item(c: Context, value: Any, index: Any) -> Value:
    try:
        return lift(value[index])
    except (TypeError, KeyError, IndexError) as error:
        raise c.builder.mismatch(
            f"{value!r}[{index!r}] has no value", why=f"Python says: {error}"
        ) from None


def _new_axes(c: Context, value: Tensor, index: Value) -> Tensor:
    marks = index.items if isinstance(index, Tuple) else (index,)
    return new_axes(c, value, [mark.value if isinstance(mark, Const) else mark for mark in marks])
