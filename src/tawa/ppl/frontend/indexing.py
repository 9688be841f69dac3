"""Items of records, vectors and matrices, and what can be gone through."""

from __future__ import annotations

import ast
from typing import Any

from tawa.ppl.frontend import memory
from tawa.ppl.frontend.arithmetic import Misfit, describe, is_array
from tawa.ppl.frontend.context import Context
from tawa.ppl.frontend.values import (
    Bounded,
    Columns,
    List,
    Sequence,
    View,
    is_record,
    rebuild,
)
from tawa.ppl.ir.core import BOOL, I32, Value
from tawa.ppl.ir.operations import FAULTS


def subscript(low: Context, holder: Any, index: ast.expr, scope: dict[str, Any]) -> Any:
    """Lower an expression in brackets."""
    if array := memory.variable(holder):
        chosen = View(array, (*holder.at, *low.indices(index, scope)))
        return chosen if chosen.type.shape else low.numbers.whole(chosen)
    if isinstance(index, ast.Slice):
        if is_record(holder) and index.step is None:
            ends = [
                None if e is None else low.expression(e, scope) for e in (index.lower, index.upper)
            ]
            return holder[ends[0] : ends[1]]
        array = holder
        if not is_array(array) or index.step is not None:
            raise Misfit("a slice of a vector has a start and an end, and no step")
        size = array.type.shape[0]
        start = low.expression(index.lower, scope) if index.lower else 0
        stop = low.expression(index.upper, scope) if index.upper else size
        if not isinstance(start, int) or not isinstance(stop, int):
            raise Misfit("the ends of a slice are known when the model is compiled")
        first, end, _ = slice(start, stop).indices(size)
        if first >= end:
            raise Misfit("a vector without items has no type")

        def item(row: Value, *rest: Value) -> Value:
            moved = low.b.make("add", row, low.b.const(first, I32))
            return low.numbers.element(array, (moved, *rest))

        return low.b.build((end - first, *array.type.shape[1:]), item)
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    return at(low, holder, tuple(low.expression(part, scope) for part in parts))


def at(low: Context, holder: Any, index: tuple[Any, ...]) -> Any:
    """Return an item of a record or a vector, or a part of a matrix."""
    for given in index:
        if is_record(holder):
            if not isinstance(given, int):
                raise Misfit("the index of a record is known when the model is compiled")
            if not -len(holder) <= given < len(holder):
                raise Misfit(f"index {given} of {describe(holder)}")
            holder = holder[given]
            continue
        if isinstance(holder, Columns):
            parts = [step(low, array, inside(low, given, holder.count)) for array in holder.arrays]
            holder = rebuild(holder.template, parts)
            continue
        if isinstance(holder, Bounded):
            holder = at(low, holder.rows, (given,))
            continue
        if not is_array(holder):
            remedy = "ppl.head and ppl.tail take a list apart" if isinstance(holder, List) else ""
            raise Misfit(f"{describe(holder)} has no numbered items", remedy)
        if is_array(given):
            if len(index) > 1:
                raise Misfit("a vector of indices stands alone: x[i], not x[i, j]")
            return gather(low, holder, given)
        holder = step(low, holder, inside(low, given, holder.type.shape[0]))
    return (
        low.numbers.whole(holder) if isinstance(holder, View) and not holder.type.shape else holder
    )


def gather(low: Context, holder: Value | View, indices: Value | View) -> Value:
    """Return the items of an array that an array of indices names; one outside stops the lane."""
    if indices.type.kind != "i32":
        raise Misfit(
            f"indices are whole numbers, not {describe(indices)}",
            "ppl.filter(lambda v: ..., vector) chooses by a condition",
        )
    shape = indices.type.shape

    def item(*place: Value) -> Value:
        at = inside(low, low.numbers.element(indices, place[: len(shape)]), holder.type.shape[0])
        return low.numbers.element(holder, (at, *place[len(shape) :]))

    return low.b.build((*shape, *holder.type.shape[1:]), item)


def step(low: Context, holder: Any, at: Value) -> View | Value:
    """Return a row of an array, or an element."""
    view = View(holder.array, (*holder.at, at)) if isinstance(holder, View) else View(holder, (at,))
    return view if view.type.shape else low.numbers.whole(view)


def inside(low: Context, given: Any, size: int) -> Value:
    """Return an index as a value that is below a size; one that is not stops the lane."""
    if isinstance(given, int):
        if not -size <= given < size:
            raise Misfit(f"index {given} is outside of a vector of {size}")
        return low.b.const(given % size, I32)
    index = low.numbers.value(given, I32)
    if low.limits.get(index, size + 1) <= size:
        return index
    zero = low.b.const(0, I32)
    above = low.b.compare("le", zero, index)
    fits = low.b.make("and", above, low.b.compare("lt", index, low.b.const(size, I32)))
    fault(low, low.numbers.negate(fits), "index")
    return low.b.make("select", fits, index, zero, type=I32)


def sequence(low: Context, over: Any) -> Sequence:
    """Return how to go through something. Raises Misfit where nothing can be gone through."""
    if isinstance(over, Sequence):
        return over
    if isinstance(over, Columns):
        return Sequence(over.count, lambda row: at(low, over, (row,)))
    if isinstance(over, Bounded):
        return Sequence(over.count, lambda row: at(low, over.rows, (row,)))
    if is_array(over):
        return Sequence(over.type.shape[0], lambda at: step(low, over, at))
    remedy = "ppl.to_vector(items, size, fill) makes a vector of a list"
    raise Misfit(
        f"{describe(over)} cannot be gone through", remedy if isinstance(over, List) else ""
    )


def fault(low: Context, condition: Any, kind: str) -> None:
    """Note that a lane cannot go on rightly; the run becomes an error when it has ended."""
    low.program.variables.setdefault("fault", I32)
    if not isinstance(condition, Value):
        if not condition:
            return
        condition = low.b.const(True, BOOL)
    code, none = low.b.const(FAULTS.index(kind), I32), low.b.const(0, I32)
    low.b.accumulate("fault", low.b.make("select", condition, code, none, type=I32))
