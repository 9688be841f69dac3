"""Lists, when a model is lowered: 0, or the place of a cell, which has the rest and an item.

Cells are words of the lane's variable `heap`, of which the first `hp` are in use. A run of the
model begins with none, and none is given back before its end: a list is a value, as a number is.
"""

from __future__ import annotations

from typing import Any

from tawa.ppl.frontend import indexing
from tawa.ppl.frontend.arithmetic import Misfit, describe
from tawa.ppl.frontend.context import Context
from tawa.ppl.frontend.values import List, flatten, rebuild
from tawa.ppl.ir.core import I32, Region, Type, Value
from tawa.ppl.ir.operations import HEAP


def nil(low: Context, example: Any) -> List:
    """Lower nil: the empty list of items such as an example."""
    leaves: list[Any] = []
    template = flatten(example, leaves)
    if not leaves:
        raise Misfit(f"a list cannot hold {describe(example)}")
    low.program.variables |= {HEAP: low.b.word, "hp": I32, "heap_end": I32}
    return List(low.b.const(0, I32), template, tuple(map(low.numbers.natural, leaves)))


def cons(low: Context, item: Any, rest: Any) -> List:
    """Lower cons. Where the heap is used up the lane stops at its next loop or call."""
    b, more = low.b, _list("cons", rest)
    leaves: list[Any] = []
    if repr(flatten(item, leaves)) != repr(more.item):
        raise Misfit(f"a list of {describe(more.item)} cannot begin with {describe(item)}")
    values = [
        low.numbers.value(leaf, type_) for leaf, type_ in zip(leaves, more.types, strict=True)
    ]
    place = b.get("hp", I32)
    end = b.make("add", place, b.const(1 + sum(type_.size for type_ in more.types), I32))
    fits = b.compare("le", end, b.get("heap_end", I32))
    indexing.fault(low, low.numbers.negate(fits), "heap")
    made, none = Region(), Region()
    with b.inside(made):
        b.set("hp", end)
        at = _stored(low, place, more.place)
        for value in values:
            at = _stored(low, at, value)
        made.yields = (b.make("add", place, b.const(1, I32)),)
    with b.inside(none):
        none.yields = (b.const(0, I32),)
    return List(b.op("if", (fits,), (I32,), (made, none)).result, more.item, more.types)


def _stored(low: Context, first: Value, value: Value) -> Value:
    """Store a value's words from a place on; return the place behind them."""
    b = low.b

    def store(*at: Value) -> None:
        word = b.same_word(b.load(value, *at), b.word)
        b.storevar(HEAP, b.offset(value.type.shape, first, *at), word)

    b.each(value.type.shape, store)
    return b.make("add", first, b.const(value.type.size, I32))


def head(low: Context, given: Any) -> Any:
    """Lower head; of an empty list it is a fault."""
    b, held = low.b, _list("head", given)
    first, leaves = _cell(low, held), list[Value]()
    for type_ in held.types:
        first = b.make("add", first, b.const(1 if not leaves else leaves[-1].type.size, I32))

        def item(*at: Value, type_: Type = type_, first: Value = first) -> Value:
            place = b.offset(type_.shape, first, *at)
            return b.same_word(b.loadvar(HEAP, b.word.kind, place), Type(type_.kind))

        leaves.append(b.build(type_.shape, item))
    return rebuild(held.item, leaves)


def tail(low: Context, given: Any) -> List:
    """Lower tail; of an empty list it is a fault."""
    held = _list("tail", given)
    word = low.b.loadvar(HEAP, low.b.word.kind, _cell(low, held))
    return List(low.b.same_word(word, I32), held.item, held.types)


def empty(low: Context, given: Any) -> Value:
    """Lower empty."""
    return low.b.compare("eq", _list("empty", given).place, low.b.const(0, I32))


def _cell(low: Context, held: List) -> Value:
    """Return where the first cell of a list begins."""
    b, zero = low.b, low.b.const(0, I32)
    none = b.compare("eq", held.place, zero)
    indexing.fault(low, none, "list")
    before = b.make("sub", held.place, b.const(1, I32))
    return b.make("select", none, zero, before, type=I32)


def _list(word: str, given: Any) -> List:
    if not isinstance(given, List):
        raise Misfit(
            f"{word} takes a list, not {describe(given)}",
            "ppl.nil(0.0) is the empty list of reals, ppl.to_list(vector) has a vector's items",
        )
    return given
