"""Indexing: ``x[:, None]`` on tensors, positions and slices on tuples."""

from __future__ import annotations

from typing import Any

from tawa.errors import TypeMismatch
from tawa.frontend.context import Context
from tawa.frontend.names import lift
from tawa.frontend.values import Const, Tensor, Tuple, Value, describe


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
            raise c.builder.error(
                TypeMismatch,
                f"{describe(value)} cannot be indexed by {describe(index)}",
                why="tuples are indexed by compile-time integers, tensors by None and `:`",
            )


def _tuple_item(c: Context, value: Tuple, position: Any) -> Value:
    if isinstance(position, slice):
        return Tuple(tuple(value.items[position]))
    if isinstance(position, int) and -len(value.items) <= position < len(value.items):
        return value.items[position]
    raise c.builder.error(
        TypeMismatch,
        f"{position!r} is no position of a tuple of {len(value.items)}",
        why="tuples are indexed by compile-time integers and slices",
    )


def _constant_item(c: Context, value: Any, index: Any) -> Value:
    try:
        return lift(value[index])
    except (TypeError, KeyError, IndexError) as error:
        raise c.builder.error(
            TypeMismatch, f"{value!r}[{index!r}] has no value", why=f"Python says: {error}"
        ) from None


def _new_axes(c: Context, value: Tensor, index: Value) -> Tensor:
    marks = [
        mark.value if isinstance(mark, Const) else mark
        for mark in (index.items if isinstance(index, Tuple) else (index,))
    ]
    marks = _fill_ellipsis(marks, len(value.shape))
    kept = sum(mark == slice(None) for mark in marks)
    if any(mark is not None and mark != slice(None) for mark in marks):
        if value.dtype.is_ptr() and not value.is_block:
            raise c.builder.error(
                TypeMismatch,
                f"a {describe(value)} is not indexed",
                why="an array is the address of its first element in a kernel",
                remedy="read through tl.load(pointer + offsets), write through tl.store",
            )
        raise c.builder.error(
            TypeMismatch,
            "a tensor is indexed by None, `:` and `...` only",
            why="its elements lie in the registers of many threads",
            remedy="load the part you need, or select it with tl.where and a reduction",
        )
    if value.is_block and kept > len(value.shape):
        raise c.builder.error(
            TypeMismatch,
            f"{kept} dimensions are indexed, {describe(value)} has {len(value.shape)}",
        )
    for axis, mark in enumerate(marks):
        if mark is None:
            value = c.builder.expand_dims(value, axis)
    return value


def _fill_ellipsis(marks: list[Any], rank: int) -> list[Any]:
    """Replace ``...`` by as many ``:`` as make up the rank."""
    for position, mark in enumerate(marks):
        if mark is Ellipsis:
            named = sum(other is not None and other is not Ellipsis for other in marks)
            fill = [slice(None)] * max(0, rank - named)
            return [*marks[:position], *fill, *marks[position + 1 :]]
    return marks
