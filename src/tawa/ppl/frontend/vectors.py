# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# (lambdas of the subset: what a parameter is, the model's compiler infers)
"""Vectors, and Python's own words for them, when a model is lowered."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable
from typing import Any, Literal

from tawa.ppl.frontend import indexing, lists, loops
from tawa.ppl.frontend.arithmetic import Misfit, describe, is_array
from tawa.ppl.frontend.context import Context
from tawa.ppl.frontend.surface import Word
from tawa.ppl.frontend.values import Bounded, Columns, List, Sequence, View, flatten, is_record
from tawa.ppl.ir.core import I32, Kind, Region, Type, Value


def pack(low: Context, parts: list[Any]) -> Any:
    """Make a vector of numbers or of equal vectors; of records, a record of vectors."""
    if not parts:
        raise Misfit(
            "an empty list has no type",
            "xs = ppl.nil(0.0), xs = ppl.cons(x, xs) make a list whose length a run decides",
        )
    if isinstance(parts[0], tuple):
        columns = [pack(low, list(column)) for column in zip(*parts, strict=True)]  # type: ignore[reportUnknownVariableType]
        leaves: list[Any] = []
        template = flatten(tuple(parts[0]), leaves)  # type: ignore[reportUnknownArgumentType]
        return Columns(tuple(columns), template, len(parts))
    if is_array(parts[0]):
        values = [low.numbers.value(part) for part in parts]
        if len({value.type for value in values}) > 1:
            raise Misfit("the rows of a list differ in type or length")
    else:
        values = low.numbers.joined(*parts)
    row = values[0].type
    return low.b.make("pack", *values, type=Type(row.kind, (len(parts), *row.shape)))


def _each(low: Context, sequence: Sequence) -> Any:
    index = Value(I32)
    if isinstance(sequence.count, int):
        low.limits[index] = sequence.count
    region = Region((index,))
    leaves: list[Any] = []
    with low.b.inside(region):
        result = sequence.item(index)
        template = flatten(result, leaves)
        if not is_record(template) and template is not None and not leaves:
            raise Misfit(f"a vector cannot hold {describe(result)}")
        values = [low.numbers.value(leaf) for leaf in leaves]
    if not leaves:
        count = low.numbers.value(sequence.count)
        low.b.op("for", (count,), (), (region,))
        done: Any = template
        return done
    if not isinstance(sequence.count, int):
        raise Misfit("the length of a vector is known when the model is compiled")
    if sequence.count == 0:
        raise Misfit("a vector without items has no type")
    region.yields = tuple(values)
    types = tuple(Type(v.type.kind, (sequence.count, *v.type.shape)) for v in values)
    arrays = low.b.op("build", (), types, (region,), count=sequence.count).results
    if isinstance(template, (tuple, List)):
        return Columns(arrays, template, sequence.count)
    return arrays[0]


def mapped(low: Context, function: Callable[..., Any], rows: tuple[Any, ...]) -> Any:
    """Apply a Python function of abstract values to the items of one or more sequences."""
    if not rows:
        raise Misfit("map needs a vector")
    if all(isinstance(row, tuple) for row in rows):
        pairs: Any = builtins.zip(*rows, strict=True)
        results: Any = tuple(function(*items) for items in pairs)
        return None if all(r is None for r in results) else results
    return _each(low, zipped(low, *rows, apply=function))


@Word
def map(low: Context, function: Callable[..., Any], *rows: Any) -> Any:
    """Return the vector of a function's results over one or more vectors, in order."""
    return mapped(low, lambda *items: low.call(function, items), rows)


def zipped(low: Context, *rows: Any, apply: Callable[..., Any] | None = None) -> Sequence:
    """Go through several sequences of one length at once."""
    parts = [indexing.sequence(low, pack(low, list(r)) if is_record(r) else r) for r in rows]
    counts = {part.count for part in parts}
    if len(counts) > 1:
        lengths = " and ".join(str(c) if isinstance(c, int) else "?" for c in counts)
        raise Misfit(f"vectors of lengths {lengths} do not go together")
    return Sequence(
        parts[0].count,
        lambda at: (apply or _record)(*(part.item(at) for part in parts)),
    )


def _record(*items: Any) -> Any:
    return items


@Word
def repeat(low: Context, count: Any, function: Callable[[], Any]) -> Any:
    """Return the vector of `count` results of a function without arguments."""
    return _each(low, Sequence(_count(low, count), lambda at: low.call(function, ())))


def _count(low: Context, given: Any) -> Value | int:
    if isinstance(given, int):
        return given
    return low.numbers.value(given, I32)


def fold(low: Context, function: Callable[[Any, Any], Any], rows: Any, start: Any) -> Any:
    """Fold a sequence from the left."""
    if isinstance(rows, tuple):
        for item in rows:  # type: ignore[reportUnknownVariableType]
            start = function(start, item)
        return start
    scope = {"folded": start}

    def step(inner: dict[str, Any], item: Any) -> None:
        inner["folded"] = function(inner["folded"], item)

    nowhere = ast.Pass(lineno=1, col_offset=0)
    loops.counted(low, indexing.sequence(low, rows), ["folded"], scope, step, nowhere)
    return scope["folded"]


@Word
def reduce(low: Context, function: Callable[[Any, Any], Any], rows: Any, start: Any) -> Any:
    """Fold a vector from the left: `function(folded, item)`."""
    if isinstance(rows, List):
        return low.call(lists.folded, (function, rows, start))
    return fold(low, lambda folded, item: low.call(function, (folded, item)), rows, start)


def _places(kept: Any) -> Any:
    """Where the items are that are kept, in front, and how many these are."""
    found = map(lambda _: 0, kept)
    count = 0
    for i in range(len(kept)):
        found = put(found, count, i)
        count = count + select(kept[i], 1, 0)
    return found, count


@Word
def filter(low: Context, function: Callable[[Any], Any], rows: Any) -> Any:
    """Return the items for which a function holds; its length is known when the model runs."""
    sequence = indexing.sequence(low, rows)
    if not isinstance(sequence.count, int):
        raise Misfit("filter takes a vector whose length is known when the model is compiled")
    size = sequence.count
    kept = _each(low, Sequence(size, lambda at: low.call(function, (sequence.item(at),))))
    places, total = low.call(_places, (kept,))

    def row(at: Value) -> Any:
        place = low.b.load(places, at)
        low.limits[place] = size
        return sequence.item(place)

    return Bounded(_each(low, Sequence(size, row)), low.numbers.value(total, I32))


@Word
def put(low: Context, vector: Any, index: Any, item: Any) -> Any:
    """Return a vector with one item replaced."""
    if not is_array(vector):
        raise Misfit(f"a vector is needed here, not {describe(vector)}")
    type_ = vector.type
    at = indexing.inside(low, index, type_.shape[0])
    fresh = low.numbers.value(item, Type(type_.kind, type_.shape[1:]))

    def row(*place: Value) -> Value:
        old = low.numbers.element(vector, place)
        new = low.numbers.element(fresh, place[1:])
        return low.b.make("select", low.b.compare("eq", place[0], at), new, old, type=new.type)

    return low.b.build(type_.shape, row)


def _dot(left: Any, right: Any) -> Any:
    """The product of two vectors: a sum in order, each step one fma."""
    total = 0.0
    for i in range(len(left)):
        total = fma(left[i], right[i], total)
    return total


def _from_left(left: Any, right: Any) -> Any:
    return map(lambda j: _dot(left, map(lambda row: row[j], right)), range(right.shape[1]))


_PRODUCTS: dict[tuple[int, int], Callable[..., Any]] = {
    (1, 1): _dot,
    (1, 2): _from_left,
    (2, 1): lambda left, right: map(lambda row: _dot(row, right), left),
    (2, 2): lambda left, right: map(lambda row: _from_left(row, right), left),
}
"""`@` between vectors and matrices, by their ranks."""


def matmul(low: Context, left: Any, right: Any) -> Any:
    """Lower `@` between vectors and matrices."""
    arrays = is_array(left) and is_array(right)
    ranks = (len(left.type.shape), len(right.type.shape)) if arrays else (0, 0)
    if ranks not in _PRODUCTS:
        raise Misfit(
            f"@ is between vectors and matrices, not {describe(left)} and {describe(right)}"
        )
    sizes = left.type.shape[-1], right.type.shape[0]
    if sizes[0] != sizes[1]:
        raise Misfit(f"vectors of {sizes[0]} and {sizes[1]} have no product")
    return low.call(_PRODUCTS[ranks], (left, right))


# -- Python's own words


def range_word(low: Context, *given: Any) -> Any:
    """Lower range."""
    if len(given) == 1:
        return Sequence(_count(low, given[0]), lambda at: at)
    if len(given) != 2:
        raise Misfit("range takes an end, or a start and an end")
    start, stop = given
    if isinstance(start, int) and isinstance(stop, int):
        count: Value | int = builtins.max(0, stop - start)
    else:
        count = low.numbers.value(low.numbers.binary("Sub", stop, start), I32)
        if isinstance(start, int) and start >= 0 and stop in low.limits:
            low.limits[count] = builtins.max(1, low.limits[stop] - start)
        elif isinstance(stop, int) and start in low.limits:
            low.limits[count] = stop + 1

    def item(at: Value) -> Any:
        index = low.numbers.binary("Add", at, start)
        if isinstance(stop, int) and isinstance(start, int) and start >= 0:
            low.limits[index] = stop
        return index

    return Sequence(count, item)


def length(low: Context, given: Any) -> Any:
    """Lower len."""
    if isinstance(given, tuple):
        return len(given)  # type: ignore[reportUnknownArgumentType]
    if isinstance(given, List):
        return low.call(lists.length, (given,))
    return indexing.sequence(low, given).count


def sum_word(low: Context, rows: Any) -> Any:
    """Lower sum: in order, from the left."""
    if isinstance(rows, tuple):
        return fold(low, lambda a, b: low.numbers.binary("Add", a, b), rows, 0)
    item = indexing.sequence(low, rows)
    zero: Any = 0 if is_array(rows) and rows.type == Type("i32", rows.type.shape) else 0.0
    return fold(low, lambda a, b: low.numbers.binary("Add", a, b), item, zero)


def extreme(smaller: bool) -> Callable[..., Any]:
    """Return the word min or max."""

    def word_(low: Context, first: Any, *rest: Any) -> Any:
        def pick(a: Any, b: Any) -> Any:
            left, right = low.numbers.joined(a, b)
            test = low.b.compare("lt", *((left, right) if smaller else (right, left)))
            return low.b.make("select", test, left, right, type=left.type)

        if not rest:
            return fold(low, pick, first, indexing.at(low, first, (0,)))
        result = first
        for item in rest:
            if isinstance(result, (Value, View)) or isinstance(item, (Value, View)):
                result = pick(result, item)
            else:
                result = builtins.min(result, item) if smaller else builtins.max(result, item)
        return result

    return word_


def abs_word(low: Context, given: Any) -> Any:
    """Lower abs."""
    if isinstance(given, (bool, int, float)):
        return abs(given)
    value = low.numbers.value(given)
    if value.type.is_float:
        return low.b.make("abs", value)
    negative = low.numbers.minus(value)
    return select.lower(low, low.numbers.compare("Lt", value, 0), negative, value)


def float_word(low: Context, given: Any) -> Any:
    """Lower float; of a text, as `float("inf")`, what Python says."""
    if isinstance(given, (bool, int, float)):
        return float(given)
    if isinstance(given, str):
        try:
            return float(given)
        except ValueError as error:
            raise Misfit(str(error)) from error

    def one(x: Any) -> Value:
        return low.numbers.value(low.numbers.value(x), low.b.real)

    return low.numbers.elementwise(one, given)


def int_word(low: Context, given: Any) -> Any:
    """Lower int: toward zero."""
    if isinstance(given, (bool, int, float)):
        return int(given)
    return cast.lower(low, given, "i32")


def enumerate_word(low: Context, rows: Any) -> Any:
    """Lower enumerate."""
    if isinstance(rows, tuple):
        return tuple(builtins.enumerate(rows))  # type: ignore[reportUnknownArgumentType]
    sequence = indexing.sequence(low, rows)
    return Sequence(sequence.count, lambda at: (at, sequence.item(at)))


def zip_word(low: Context, *rows: Any) -> Any:
    """Lower zip."""
    if all(isinstance(row, tuple) for row in rows):
        return tuple(builtins.zip(*rows, strict=True))
    return zipped(low, *rows)


@Word
def select(low: Context, condition: Any, when_true: Any, when_false: Any) -> Any:
    """Return one of two values; both are computed."""
    test = low.numbers.truth(condition)
    if isinstance(test, bool):
        return when_true if test else when_false
    left, right = low.numbers.joined(when_true, when_false)
    return low.b.make("select", test, left, right, type=left.type)


@Word
def fma(low: Context, a: Any, b: Any, c: Any) -> Any:
    """Return a * b + c, rounded once."""
    return low.b.make("fma", *low.numbers.joined(a, b, c, floating=True))


def type_of(low: Context, kind: Kind | Literal["real"]) -> Type:
    """Return the type of a kind, or of the program's reals."""
    return low.b.real if kind == "real" else Type(kind)


@Word
def cast(low: Context, given: Any, kind: Kind | Literal["real"]) -> Any:
    """Convert to a kind, f32, f64, i32, i64, bool, or "real", the program's."""
    want = type_of(low, kind)
    if not isinstance(given, (Value, View)):
        return low.b.const(given, want)
    value = low.numbers.value(given)
    return value if value.type == want else low.b.make("cast", value, type=want)
