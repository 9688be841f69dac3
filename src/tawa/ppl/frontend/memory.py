"""The lane's memory, as algorithms read and write it."""

from __future__ import annotations

from typing import Any

from tawa.ppl.frontend.arithmetic import Misfit
from tawa.ppl.frontend.context import Context
from tawa.ppl.frontend.values import Lane, Variable, View
from tawa.ppl.ir.core import Type, Value


def read(low: Context, lane: Lane, name: str) -> Value | View:
    """Return a shared number, the value of a scalar variable, or an array variable."""
    if name in lane.shared:
        return lane.shared[name]
    type_ = low.program.variables.get(name)
    if type_ is None:
        raise Misfit(f"the lane has no variable {name}")
    return View(Variable(name, type_)) if type_.shape else low.b.get(name, type_)


def variable(given: Any) -> Variable | None:
    """Return the variable that something is a part of, if it is one."""
    return given.array if isinstance(given, View) and isinstance(given.array, Variable) else None


def assign(low: Context, name: str, value: Any) -> None:
    """Give a variable a value; a new one has the type of its first value."""
    type_ = low.program.variables.setdefault(name, low.numbers.natural(value))
    if type_.shape:
        store(low, Variable(name, type_), (), value)
    else:
        low.b.set(name, low.numbers.value(value, type_))


def store(low: Context, target: Variable, place: tuple[Value, ...], value: Any) -> None:
    """Write a number, or copy an array, or put one number into all of an array or a row of one."""

    def one(*at: Value) -> None:
        item = low.numbers.value(low.numbers.element(value, at), Type(target.type.kind))
        low.b.storevar(target.name, *place, *at, item)

    low.b.each(target.type.shape[len(place) :], one)
