"""What the words of the language mean when a model is lowered: one function a word."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from tawa.ppl.frontend import surface
from tawa.ppl.frontend.arithmetic import Misfit, describe, is_array, is_number
from tawa.ppl.frontend.family import Distribution, Drawn, Parameter
from tawa.ppl.frontend.model import Model
from tawa.ppl.frontend.source import Closure
from tawa.ppl.frontend.values import Bounded, Columns, Memory, Sequence, View, flatten
from tawa.ppl.ir.core import BOOL, I32, Region, Type, Value
from tawa.ppl.ir.operations import FAULTS, FUNCTIONS

if TYPE_CHECKING:
    from tawa.ppl.frontend.lower import Lowering

PYTHON = ("range", "len", "sum", "min", "max", "abs", "float", "int", "enumerate", "zip")


def resolve(given: Any) -> Any:
    """Return what a global name of a model stands for. Raises Misfit where it cannot be used."""
    match given:
        case Model():
            return given.function
        case bool() | int() | float() | str() | None | tuple():
            return given  # type: ignore[reportUnknownVariableType]
        case ModuleType() | Distribution() | Closure() | Memory():
            return given
        case _:
            if given in _HASHABLE or isinstance(given, FunctionType):
                return given
            if isinstance(given, np.ndarray):
                raise Misfit("an array outside of the model would be frozen: pass it as an argument")
            raise Misfit(f"{type(given).__name__} has no meaning in a model")  # type: ignore[reportUnknownArgumentType]


class _Hashable:
    def __contains__(self, given: Any) -> bool:
        try:
            return given in WORDS
        except TypeError:
            return False


_HASHABLE = _Hashable()


def fault(low: Lowering, condition: Any, kind: str) -> None:
    """Note that a lane cannot go on rightly; the run becomes an error when it has ended."""
    low.program.variables.setdefault("fault", I32)
    if not isinstance(condition, Value):
        if not condition:
            return
        condition = low.b.const(True, BOOL)
    held = low.b.get("fault", I32)
    code = low.b.const(FAULTS.index(kind), I32)
    low.b.set("fault", low.b.make("select", condition, code, held, type=I32))


# -- probabilistic words


def distribution(
    low: Lowering, family: Distribution, args: tuple[Any, ...], named: dict[str, Any]
) -> Drawn:
    """Bind the parameters of a distribution."""
    names = [parameter.name for parameter in family.parameters]
    if len(args) > len(names) or any(n not in names for n in named):
        raise Misfit(f"{family.name} takes {', '.join(names)}")
    given = dict(zip(names, args, strict=False)) | named
    bound: list[Any] = []
    for parameter in family.parameters:
        value = given.get(parameter.name, parameter.default)
        if value is None:
            raise Misfit(f"{family.name} needs {parameter.name}")
        bound.append(_parameter(low, family, parameter, value))
    return Drawn(family, tuple(bound))


def _parameter(low: Lowering, family: Distribution, parameter: Parameter, given: Any) -> Value:
    rank = {"vector": 1, "matrix": 2}.get(parameter.takes, 0)
    if isinstance(given, tuple) and rank == 1:
        given = pack(low, list(given))  # type: ignore[reportUnknownArgumentType]
    have = len(given.type.shape) if is_array(given) else 0
    if have != rank or not (rank or is_number(given)):
        raise Misfit(f"{parameter.name} of {family.name} is a {parameter.takes}, not {describe(given)}")
    if parameter.takes == "int":
        return low.numbers.value(given, I32)
    if not is_array(given) and not isinstance(given, Value):
        return low.numbers.value(given, low.b.real)
    value = low.numbers.value(given)
    return low.numbers.value(value, Type(low.b.dtype, value.type.shape))


def _result(low: Lowering, family: Distribution, parameters: tuple[Value, ...]) -> Type:
    match family.result:
        case "int":
            return I32
        case "bool":
            return BOOL
        case _:
            return Type(low.b.dtype, family.shape(*(value.type.shape for value in parameters)))


def _drawn(given: Any) -> Drawn:
    if not isinstance(given, Drawn):
        raise Misfit(f"a distribution is needed here, not {describe(given)}")
    return given


def sample(low: Lowering, given: Any, *, name: str = "", centered: bool = True) -> Any:
    """Lower a sample site, and the record of its value."""
    drawn = _drawn(given)
    family, parameters = drawn.family, drawn.parameters
    name = name or low.naming
    key = (low.path, *low.active)
    site = low.sites.setdefault(key, len(low.sites))
    if name:
        taken = {n for s, n in low.site_names.items() if s != site}
        number, plain = 2, name
        while name in taken:
            name, number = f"{plain}_{number}", number + 1
    low.site_names[site] = name
    shift: tuple[Value, Value] | None = None
    if not centered:
        if family.shift_scale is None:
            raise Misfit(f"{family.name} has no location and scale: it cannot be centered=False")
        where, scale = family.shift_scale
        shift = parameters[where], parameters[scale]
        standard = list(parameters)
        standard[where] = low.b.const(0.0, low.b.real)
        standard[scale] = low.b.const(1.0, low.b.real)
        parameters = tuple(standard)
    type_ = _result(low, family, parameters)
    value = low.b.op("sample", parameters, (type_,), family=family, site=site, title=name).result
    if shift is not None:
        value = low.b.make("add", shift[0], low.b.make("mul", shift[1], value))
    if name:
        low.b.op("record", (value,), title=name, site=site)
    return value


def observe(low: Lowering, given: Any, value: Any) -> None:
    """Lower an observation."""
    drawn = _drawn(given)
    want = _result(low, drawn.family, drawn.parameters)
    if isinstance(value, tuple) and want.shape:
        value = pack(low, list(value))  # type: ignore[reportUnknownArgumentType]
    if want == BOOL and not isinstance(value, bool):
        observed = low.numbers.truth(value)
        observed = low.numbers.value(observed, BOOL)
    else:
        observed = low.numbers.value(low.numbers.value(value), want) if not isinstance(
            value, (int, float)
        ) else low.numbers.value(value, want)
    low.b.op("observe", (observed, *drawn.parameters), family=drawn.family)


def factor(low: Lowering, log_weight: Any) -> None:
    """Lower a factor."""
    low.b.op("factor", (low.numbers.value(log_weight, low.b.real),))


# -- vectors


def pack(low: Lowering, parts: list[Any]) -> Any:
    """Make a vector of numbers or of equal vectors; of records, a record of vectors."""
    if not parts:
        raise Misfit("an empty list has no type")
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


def built(low: Lowering, count: int, item: Callable[[Value], Any]) -> Any:
    """Make a vector, or a vector of records, item by item."""
    made = _each(low, Sequence(count, item))
    return made


def _each(low: Lowering, sequence: Sequence) -> Any:
    index = Value(I32)
    if isinstance(sequence.count, int):
        low.limits[index] = sequence.count
    region = Region((index,))
    leaves: list[Any] = []
    with low.b.inside(region):
        result = sequence.item(index)
        template = flatten(result, leaves)
        if not isinstance(template, (tuple, type(None))) and not leaves:
            raise Misfit(f"a vector cannot hold {describe(result)}")
        values = [low.numbers.value(leaf) for leaf in leaves]
    if not leaves:
        count = low.numbers.value(sequence.count)
        low.b.op("for", (count,), (), (region,))
        return template
    if not isinstance(sequence.count, int):
        raise Misfit("the length of a vector is known when the model is compiled")
    if sequence.count == 0:
        raise Misfit("a vector without items has no type")
    region.yields = tuple(values)
    types = tuple(Type(v.type.kind, (sequence.count, *v.type.shape)) for v in values)
    arrays = low.b.op("build", (), types, (region,), count=sequence.count).results
    if isinstance(template, tuple):
        return Columns(arrays, template, sequence.count)
    return arrays[0]


def mapped(low: Lowering, function: Callable[..., Any], rows: tuple[Any, ...]) -> Any:
    """Apply a Python function of abstract values to the items of one or more sequences."""
    if not rows:
        raise Misfit("map needs a vector")
    if all(isinstance(row, tuple) for row in rows):
        results = tuple(function(*items) for items in builtins.zip(*rows, strict=True))
        return None if all(r is None for r in results) else results
    return _each(low, zipped(low, *rows, apply=function))


def map_word(low: Lowering, function: Any, *rows: Any) -> Any:
    """Lower map."""
    return mapped(low, lambda *items: low.call(function, items), rows)


def zipped(low: Lowering, *rows: Any, apply: Callable[..., Any] | None = None) -> Sequence:
    """Go through several sequences of one length at once."""
    parts = [low.sequence(pack(low, list(r)) if isinstance(r, tuple) else r) for r in rows]  # type: ignore[reportUnknownArgumentType]
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


def repeat(low: Lowering, count: Any, function: Any) -> Any:
    """Lower repeat."""
    return _each(low, Sequence(_count(low, count), lambda at: low.call(function, ())))


def _count(low: Lowering, given: Any) -> Value | int:
    if isinstance(given, int):
        return given
    return low.numbers.value(given, I32)


def fold(low: Lowering, function: Callable[[Any, Any], Any], rows: Any, start: Any) -> Any:
    """Fold a sequence from the left."""
    if isinstance(rows, tuple):
        for item in rows:  # type: ignore[reportUnknownVariableType]
            start = function(start, item)
        return start
    sequence = low.sequence(rows)
    scope = {"folded": start}

    def make(starts: tuple[Value, ...], enter: Any) -> Any:
        index = Value(I32)
        if isinstance(sequence.count, int):
            low.limits[index] = sequence.count
        region = Region((index, *(Value(s.type) for s in starts)))
        with low.b.inside(region):
            inner, close = enter(region.args[1:])
            inner["folded"] = function(inner["folded"], sequence.item(index))
            region.yields = close(inner)
        count = low.numbers.value(sequence.count)
        types = tuple(s.type for s in starts)
        return list(low.b.op("for", (count, *starts), types, (region,)).results)

    low.loop(["folded"], scope, _nowhere(), make)
    return scope["folded"]


def _nowhere() -> Any:
    import ast

    return ast.Pass(lineno=1, col_offset=0)


def reduce(low: Lowering, function: Any, rows: Any, start: Any) -> Any:
    """Lower reduce."""
    return fold(low, lambda folded, item: low.call(function, (folded, item)), rows, start)


def filter_word(low: Lowering, function: Any, rows: Any) -> Any:
    """Lower filter: the items move to the front of vectors of the full length."""
    sequence = low.sequence(rows)
    if not isinstance(sequence.count, int):
        raise Misfit("filter takes a vector whose length is known when the model is compiled")
    kept = _each(low, Sequence(sequence.count, lambda at: low.call(function, (sequence.item(at),))))
    one, zero = low.b.const(1, I32), low.b.const(0, I32)

    def count(low_: Lowering, folded: Any, item: Any) -> Any:
        step = low_.b.make("select", low_.numbers.value(item, BOOL), one, zero, type=I32)
        return low_.numbers.binary("Add", folded, step)

    total = fold(low, lambda folded, item: count(low, folded, item), kept, 0)
    # The source of row k: the first item after that of row k - 1 that is kept.
    size = sequence.count

    def source(at: Value) -> Any:
        def look(found: Any, item: Any) -> Any:
            place, seen = found
            index, held = item
            hit = low.numbers.binary("BitAnd", held, low.numbers.compare("Eq", seen, at))
            seen = low.numbers.binary("Add", seen, select(low, held, 1, 0))
            return select(low, hit, index, place), seen

        everything = zipped(low, Sequence(size, lambda k: k), kept)
        return fold(low, look, everything, (0, 0))[0]

    places = _each(low, Sequence(size, source))

    def row(at: Value) -> Any:
        place = low.b.load(places, at)
        low.limits[place] = size
        return sequence.item(place)

    return Bounded(_each(low, Sequence(size, row)), low.numbers.value(total, I32))


def put(low: Lowering, vector: Any, index: Any, item: Any) -> Any:
    """Lower put."""
    if not is_array(vector):
        raise Misfit(f"a vector is needed here, not {describe(vector)}")
    type_ = vector.type
    at = low.inside(index, type_.shape[0])
    fresh = low.numbers.value(item, Type(type_.kind, type_.shape[1:]))

    def row(*place: Value) -> Value:
        old = low.numbers.element(vector, place)
        new = low.numbers.element(fresh, place[1:])
        return low.b.make("select", low.b.compare("eq", place[0], at), new, old, type=new.type)

    return low.numbers.build(type_.shape, row)


def dot(low: Lowering, left: Any, right: Any) -> Any:
    """Lower the product of two vectors: a sum in order, each step one fma."""
    size = left.type.shape[0]
    if right.type.shape[0] != size:
        raise Misfit(f"vectors of {size} and {right.type.shape[0]} have no product")
    real = low.b.real

    def step(folded: Any, at: Value) -> Any:
        a = low.numbers.value(low.numbers.element(left, (at,)), real)
        b = low.numbers.value(low.numbers.element(right, (at,)), real)
        return low.b.make("fma", a, b, folded)

    start = low.b.const(0.0, real)
    return fold(low, step, Sequence(size, lambda at: at), start)


def matmul(low: Lowering, left: Any, right: Any) -> Any:
    """Lower `@` between vectors and matrices."""
    if not is_array(left) or not is_array(right):
        raise Misfit(f"@ is between vectors and matrices, not {describe(left)} and {describe(right)}")
    if len(left.type.shape) == 2:
        return _each(
            low,
            Sequence(left.type.shape[0], lambda at: matmul(low, low._step(left, at), right)),  # type: ignore[reportPrivateUsage]
        )
    if len(right.type.shape) == 1:
        return dot(low, left, right)
    rows, columns = right.type.shape

    def column(at: Value) -> Any:
        held = _each(low, Sequence(rows, lambda row: low.numbers.element(right, (row, at))))
        return dot(low, left, held)

    return _each(low, Sequence(columns, column))


# -- Python's own words


def range_word(low: Lowering, *given: Any) -> Any:
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

    def item(at: Value) -> Any:
        index = low.numbers.binary("Add", at, start)
        if isinstance(stop, int) and isinstance(start, int) and start >= 0:
            low.limits[index] = stop
        return index

    return Sequence(count, item)


def length(low: Lowering, given: Any) -> Any:
    """Lower len."""
    if isinstance(given, tuple):
        return len(given)  # type: ignore[reportUnknownArgumentType]
    return low.sequence(given).count


def sum_word(low: Lowering, rows: Any) -> Any:
    """Lower sum: in order, from the left."""
    if isinstance(rows, tuple):
        return fold(low, lambda a, b: low.numbers.binary("Add", a, b), rows, 0)
    item = low.sequence(rows)
    zero: Any = 0 if is_array(rows) and rows.type == Type("i32", rows.type.shape) else 0.0
    return fold(low, lambda a, b: low.numbers.binary("Add", a, b), item, zero)


def _extreme(smaller: bool) -> Callable[..., Any]:
    def word_(low: Lowering, *given: Any) -> Any:
        def pick(a: Any, b: Any) -> Any:
            left, right = low.numbers.joined(a, b)
            test = low.b.compare("lt", *((left, right) if smaller else (right, left)))
            return low.b.make("select", test, left, right, type=left.type)

        if len(given) == 1:
            return fold(low, pick, given[0], low.at(given[0], (0,)))
        result = given[0]
        for item in given[1:]:
            if isinstance(result, (Value, View)) or isinstance(item, (Value, View)):
                result = pick(result, item)
            else:
                result = builtins.min(result, item) if smaller else builtins.max(result, item)
        return result

    return word_


def abs_word(low: Lowering, given: Any) -> Any:
    """Lower abs."""
    if isinstance(given, (bool, int, float)):
        return abs(given)
    value = low.numbers.value(given)
    if value.type.is_float:
        return low.b.make("abs", value)
    negative = low.numbers.minus(value)
    return select(low, low.numbers.compare("Lt", value, 0), negative, value)


def float_word(low: Lowering, given: Any) -> Any:
    """Lower float."""
    if isinstance(given, (bool, int, float)):
        return float(given)
    return low.numbers.elementwise(lambda x: low.numbers.value(low.numbers.value(x), low.b.real), given)


def int_word(low: Lowering, given: Any) -> Any:
    """Lower int: toward zero."""
    if isinstance(given, (bool, int, float)):
        return int(given)
    return cast(low, given, "i32")


def enumerate_word(low: Lowering, rows: Any) -> Any:
    """Lower enumerate."""
    if isinstance(rows, tuple):
        return tuple(builtins.enumerate(rows))  # type: ignore[reportUnknownArgumentType]
    sequence = low.sequence(rows)
    return Sequence(sequence.count, lambda at: (at, sequence.item(at)))


def zip_word(low: Lowering, *rows: Any) -> Any:
    """Lower zip."""
    if all(isinstance(row, tuple) for row in rows):
        return tuple(builtins.zip(*rows, strict=True))
    return zipped(low, *rows)


# -- functions of numbers, and what algorithms use


def _function(name: str) -> Callable[..., Any]:
    def word_(low: Lowering, given: Any) -> Any:
        def one(x: Any) -> Any:
            value = low.numbers.value(x)
            if not value.type.is_float:
                value = low.numbers.value(value, low.b.real)
            return low.b.make(name, value)

        return low.numbers.elementwise(one, given)

    return word_


def fma_word(low: Lowering, a: Any, b: Any, c: Any) -> Any:
    """Lower fma."""
    return low.b.make("fma", *low.numbers.joined(a, b, c, floating=True))


def select(low: Lowering, condition: Any, yes: Any, no: Any) -> Any:
    """Lower select."""
    test = low.numbers.truth(condition)
    if isinstance(test, bool):
        return yes if test else no
    left, right = low.numbers.joined(yes, no)
    return low.b.make("select", test, left, right, type=left.type)


def cast(low: Lowering, given: Any, kind: str) -> Any:
    """Lower cast."""
    want = Type(low.b.dtype if kind == "real" else kind)  # type: ignore[arg-type]
    if not isinstance(given, (Value, View)):
        return low.b.const(given, want)
    value = low.numbers.value(given)
    return value if value.type == want else low.b.make("cast", value, type=want)


def bits(low: Lowering, given: Any, kind: str) -> Any:
    """Lower bits."""
    return low.b.make("bits", low.numbers.value(given), type=Type(kind))  # type: ignore[arg-type]


def word(low: Lowering, operation: str, *given: Any) -> Any:
    """Lower word."""
    return low.b.make(operation, *low.numbers.joined(*given))


def get(low: Lowering, variable: Any) -> Any:
    """Lower get."""
    return low.b.get(variable.name, variable.type)


def assign(low: Lowering, variable: Any, value: Any) -> None:
    """Lower assign."""
    low.b.set(variable.name, low.numbers.value(value, variable.type))


def read(low: Lowering, name: str, row: Any, kind: str) -> Any:
    """Lower read."""
    type_ = Type(low.b.dtype if kind == "real" else kind)  # type: ignore[arg-type]
    return low.b.op("read", (low.numbers.value(row, I32),), (type_,), name=name).result


def write(low: Lowering, name: str, row: Any, value: Any) -> None:
    """Lower write."""
    kind = low.program.buffers[name]
    low.b.op("write", (low.numbers.value(row, I32), low.numbers.value(value, Type(kind))), name=name)


def is_double(low: Lowering, given: Any) -> bool:
    """Lower is_double."""
    if isinstance(given, (Value, View)):
        return given.type.kind == "f64"
    return low.b.dtype == "f64"


def random(low: Lowering) -> Any:
    """Lower random: the counter is (lane, draw, site, count), the key is the seed."""
    for name in ("draw", "count"):
        low.program.variables.setdefault(name, I32)
    keys = [value for value in low.program.params if value.name in ("seed0", "seed1")]
    count = low.b.get("count", I32)
    low.b.set("count", low.b.make("add", count, low.b.const(1, I32)))
    lane = low.b.make("lane", type=I32)
    counter = (lane, low.b.get("draw", I32), low.b.const(low.site, I32), count)
    return tuple(low.b.op("philox", (*keys, *counter), (I32,) * 4).results)


WORDS: dict[Any, Callable[..., Any]] = {
    surface.sample: sample,
    surface.observe: observe,
    surface.factor: factor,
    surface.map: map_word,
    surface.repeat: repeat,
    surface.reduce: reduce,
    surface.filter: filter_word,
    surface.put: put,
    surface.fma: fma_word,
    surface.select: select,
    surface.cast: cast,
    surface.bits: bits,
    surface.word: word,
    surface.get: get,
    surface.assign: assign,
    surface.read: read,
    surface.write: write,
    surface.is_double: is_double,
    surface.lane: lambda low: low.b.make("lane", type=I32),
    surface.run: lambda low, name: low.b.op("run", (), (), name=name) and None,
    surface.random: random,
    surface.sqrt: _function("sqrt"),
    surface.floor: _function("floor"),
    range: range_word,
    len: length,
    sum: sum_word,
    min: _extreme(True),
    max: _extreme(False),
    abs: abs_word,
    float: float_word,
    int: int_word,
    enumerate: enumerate_word,
    zip: zip_word,
} | {getattr(surface, name): _function(name) for name in FUNCTIONS}


