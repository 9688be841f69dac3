"""The lane's memory, as algorithms read and write it."""

from __future__ import annotations

from typing import Any

from tawa.ppl.frontend.arithmetic import Misfit
from tawa.ppl.frontend.context import Context
from tawa.ppl.frontend.values import Lane, Memory
from tawa.ppl.ir.core import Type, Value


def read(low: Context, lane: Lane, name: str) -> Value | Memory:
    """Return a shared number, the value of a scalar variable, or an array variable."""
    if name in lane.shared:
        return lane.shared[name]
    type_ = low.program.variables.get(name)
    if type_ is None:
        raise Misfit(f"the lane has no variable {name}")
    return Memory(name, type_) if type_.shape else low.b.get(name, type_)


def row(array: Memory, at: tuple[Value, ...]) -> Memory:
    """Return what some leading indices choose."""
    return Memory(array.name, Type(array.type.kind, array.type.shape[len(at) :]), array.at + at)


def element(low: Context, array: Memory, at: tuple[Value, ...]) -> Value | Memory:
    """Return an element, read, or a row."""
    chosen = row(array, at)
    return chosen if chosen.type.shape else low.b.loadvar(array.name, array.type.kind, *chosen.at)


def value(low: Context, array: Memory) -> Value:
    """Return a variable, or a row of one, as an array value."""
    if not array.at:
        return low.b.get(array.name, array.type)
    kind = array.type.kind
    return low.b.build(
        array.type.shape, lambda *at: low.b.loadvar(array.name, kind, *array.at, *at)
    )


def assign(low: Context, name: str, value: Any) -> None:
    """Give a variable a value; a new one has the type of its first value."""
    natural = value.type if isinstance(value, Memory) else low.numbers.natural(value)
    store(low, Memory(name, low.program.variables.setdefault(name, natural)), value)


def store(low: Context, target: Memory, value: Any) -> None:
    """Write a number, or copy an array, or put one number into all of an array."""

    def one(*at: Value) -> None:
        given = value
        if isinstance(value, Memory):
            given = element(low, value, at)
        elif isinstance(value, Value) and value.type.shape:
            given = low.b.load(value, *at)
        item = low.numbers.value(given, Type(target.type.kind))
        low.b.op("storevar", (*target.at, *at, item), name=target.name)

    if target.at or target.type.shape:
        low.b.each(target.type.shape, one)
    else:
        low.b.set(target.name, low.numbers.value(value, target.type))
