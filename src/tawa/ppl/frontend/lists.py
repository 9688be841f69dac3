"""Lists, when a model is lowered: 0, or the place of a cell, which has the rest and an item.

Cells are words of the lane's variable `heap`, of which the first `hp` are in use. A run of the
model begins with none, and none is given back before its end: a list is a value, as a number is.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Any

from tawa.ppl.frontend import indexing
from tawa.ppl.frontend.arithmetic import Misfit, describe
from tawa.ppl.frontend.context import Context
from tawa.ppl.frontend.surface import Word
from tawa.ppl.frontend.values import Hole, List, flatten, rebuild
from tawa.ppl.ir.core import I32, Region, Type, Value
from tawa.ppl.ir.operations import HEAP


@Word
def nil(low: Context, example: Any) -> List:
    """Return the empty list of items such as the example: numbers, records, lists."""
    leaves: list[Any] = []
    template = flatten(example, leaves)
    if not leaves:
        raise Misfit(f"a list cannot hold {describe(example)}")
    low.program.variables |= {HEAP: low.b.word, "hp": I32, "heap_end": I32}
    return List(low.b.const(0, I32), template, tuple(map(low.numbers.natural, leaves)))


@Word
def cons(low: Context, item: Any, rest: Any) -> List:
    """Return the list of an item and the items of a list."""
    # Where the heap is used up the lane stops at its next loop or call.
    b, more = low.b, _list("cons", rest)
    leaves: list[Any] = []
    if repr(flatten(item, leaves)) != repr(more.item):
        held = more.types[0] if isinstance(more.item, Hole) else describe(more.item)
        raise Misfit(f"a list of {held} cannot begin with {describe(item)}")
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
        b.put(HEAP, place, more.place)
        for at, value in zip(_places(low, place, more.types), values, strict=True):
            b.put(HEAP, at, value)
        made.yields = (b.make("add", place, b.const(1, I32)),)
    with b.inside(none):
        none.yields = (b.const(0, I32),)
    return List(b.op("if", (fits,), (I32,), (made, none)).result, more.item, more.types)


@Word
def head(low: Context, given: Any) -> Any:
    """Return the first item of a list; of an empty one it is an error."""
    held = _list("head", given)
    places = _places(low, _cell(low, held), held.types)
    leaves = [low.b.taken(HEAP, *at) for at in zip(places, held.types, strict=True)]
    return rebuild(held.item, leaves)


@Word
def tail(low: Context, given: Any) -> List:
    """Return the list of all items but the first; of an empty one it is an error."""
    held = _list("tail", given)
    return List(low.b.taken(HEAP, _cell(low, held), I32), held.item, held.types)


@Word
def empty(low: Context, given: Any) -> Value:
    """Return whether a list has no items."""
    return low.b.compare("eq", _list("empty", given).place, low.b.const(0, I32))


def length(items: Any) -> Any:
    """Return how many items a list has."""
    count = 0
    while not empty(items):
        count += 1
        items = tail(items)
    return count


def folded(function: Callable[[Any, Any], Any], items: Any, start: Any) -> Any:
    """Fold a list from its first item on: `function(folded, item)`."""
    while not empty(items):
        start = function(start, head(items))
        items = tail(items)
    return start


def _places(low: Context, cell: Value, types: tuple[Type, ...]) -> list[Value]:
    """Return where the numbers of an item lie, behind the rest of the list."""
    sizes = (1, *(type_.size for type_ in types[:-1]))
    return [low.b.make("add", cell, low.b.const(at, I32)) for at in accumulate(sizes)]


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
