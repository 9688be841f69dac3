"""What the words of the language mean when a model is lowered: one function a word."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from tawa.ppl.frontend import lists, memory, surface, vectors
from tawa.ppl.frontend.arithmetic import Misfit, describe, is_array, is_number
from tawa.ppl.frontend.context import Context
from tawa.ppl.frontend.family import Distribution, Drawn, Parameter
from tawa.ppl.frontend.model import Model
from tawa.ppl.frontend.source import Closure
from tawa.ppl.frontend.values import Memory, View, is_record
from tawa.ppl.ir.core import BOOL, I32, Region, Type, Value
from tawa.ppl.ir.operations import FUNCTIONS

PYTHON = ("range", "len", "sum", "min", "max", "abs", "float", "int", "enumerate", "zip")


def resolve(given: Any) -> Any:
    """Return what a global name of a model stands for. Raises Misfit where it cannot be used."""
    match given:
        case Model():
            return given.function
        case bool() | int() | float() | str() | None | tuple():
            return given  # type: ignore[reportUnknownVariableType]
        case ModuleType() | Distribution() | Closure():
            return given
        case _:
            if isinstance(given, FunctionType) or (isinstance(given, Hashable) and given in WORDS):
                return given
            if isinstance(given, np.ndarray):
                raise Misfit(
                    "an array outside of the model would be frozen: pass it as an argument"
                )
            name = str(getattr(given, "__name__", type(given).__name__))  # type: ignore[reportUnknownArgumentType]
            ours = getattr(surface, name, None) in WORDS
            raise Misfit(
                f"{name} has no meaning in a model",
                f"write ppl.{name}" if ours else "compute it outside, and pass what it gives",
            )


# -- probabilistic words

RANKS = {"vector": 1, "size": 1, "matrix": 2}
"""How many axes a parameter or a value has; others are numbers."""


def distribution(
    low: Context, family: Distribution, args: tuple[Any, ...], named: dict[str, Any]
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


def _parameter(low: Context, family: Distribution, parameter: Parameter, item: Any) -> Any:
    """Return a parameter as a value of its type; an array of several as it is."""
    given: Any = item
    if parameter.takes == "size":
        if isinstance(given, bool) or not isinstance(given, int) or given < 2:
            raise Misfit(
                f"{parameter.name} of {family.name} is a whole number of 2 or more that is known "
                f"when the model is compiled, not {describe(given)}"
            )
        with low.b.inside(Region((Value(I32),))) as places:
            places.yields = places.args
        return low.b.op("build", (), (Type("i32", (given,)),), (places,), count=given).result
    rank = RANKS.get(parameter.takes, 0)
    if is_record(given) and rank == 1:
        given = vectors.pack(low, list(item))
    have = len(given.type.shape) if is_array(given) else 0
    if have > rank:
        return given
    if have < rank or not (rank or is_number(given)):
        raise Misfit(
            f"{parameter.name} of {family.name} is a {parameter.takes}, not {describe(given)}"
        )
    if parameter.takes == "int":
        return low.numbers.value(given, I32)
    if not is_array(given) and not isinstance(given, Value):
        return low.numbers.value(given, low.b.real)
    value = low.numbers.value(given)
    return low.numbers.value(value, Type(low.b.dtype, value.type.shape))


def _result(low: Context, family: Distribution, parameters: tuple[Value, ...]) -> Type:
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


def _independent(low: Context, drawn: Drawn, work: Callable[..., Any], *values: Any) -> Any:
    """Apply `work` to a distribution and values of it.

    Where parameters or values have axes in front of their own, all of one shape, they stand for
    independent distributions, and it is applied to each. Raises Misfit where the shapes differ.
    """
    family = drawn.family
    ranks = [RANKS.get(parameter.takes, 0) for parameter in family.parameters]
    ranks += [RANKS.get(family.result, 0)] * len(values)
    given = (*drawn.parameters, *values)
    axes = [
        item.type.shape[: len(item.type.shape) - rank] if is_array(item) else ()
        for item, rank in zip(given, ranks, strict=True)
    ]
    if not any(axes):
        return work(drawn, *values)
    low.numbers.one_shape({shape for shape in axes if shape})

    def each(*items: Any) -> Any:
        rest = iter(items)
        parts = [next(rest) if shape else part for part, shape in zip(given, axes, strict=True)]
        parameters = tuple(
            _parameter(low, family, parameter, part) if shape else part
            for parameter, part, shape in zip(family.parameters, parts, axes, strict=False)
        )
        return _independent(low, Drawn(family, parameters), work, *parts[len(parameters) :])

    arrays = tuple(part for part, shape in zip(given, axes, strict=True) if shape)
    return vectors.mapped(low, each, arrays)


def _title(low: Context, name: str) -> str:
    """Return the name of the site at hand, with a number where another one has it."""
    key = (low.path, *low.active)
    taken = {title for place, title in low.titles.items() if place != key}
    number, plain = 2, name
    while name and name in taken:
        name, number = f"{plain}_{number}", number + 1
    low.titles[key] = name
    return name


def sample(low: Context, given: Any, *, name: str = "", centered: bool = True) -> Any:
    """Lower a sample site, and the record of its value."""

    def one(drawn: Drawn) -> Value:
        return _sample(low, drawn, name, centered)

    return _independent(low, _drawn(given), one)


def _sample(low: Context, drawn: Drawn, name: str, centered: bool) -> Value:
    family, parameters = drawn.family, drawn.parameters
    site = low.sites.setdefault((low.path, *low.active), len(low.sites))
    name = _title(low, name or low.naming)
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


def observe(low: Context, given: Any, value: Any, *, name: str = "observed") -> None:
    """Lower an observation."""

    def one(drawn: Drawn, value: Any) -> None:
        operands = (_of_family(low, drawn, value), *drawn.parameters)
        low.b.op("observe", operands, family=drawn.family, title=_title(low, name))

    _independent(low, _drawn(given), one, value)


def log_prob(low: Context, given: Any, value: Any) -> Any:
    """Lower the log density of a value."""

    def one(drawn: Drawn, value: Any) -> Value:
        operands = (_of_family(low, drawn, value), *drawn.parameters)
        return low.numbers.value(low.call(drawn.family.log_density, operands), low.b.real)

    return _independent(low, _drawn(given), one, value)


def _of_family(low: Context, drawn: Drawn, value: Any) -> Value:
    """Return a value as one of those that a distribution has."""
    want = _result(low, drawn.family, drawn.parameters)
    if isinstance(value, tuple) and want.shape:
        value = vectors.pack(low, list(value))  # type: ignore[reportUnknownArgumentType]
    real = isinstance(value, float)
    real = real or (isinstance(value, (Value, View)) and value.type.is_float)
    other = isinstance(value, (int, float)) and value not in (0, 1)
    if want == BOOL and (real or other):
        raise Misfit(
            f"{drawn.family.name} has booleans, not {value if other else describe(value)}",
            "pass booleans: y == 1 of an array of reals",
        )
    if want == BOOL and not isinstance(value, bool):
        return low.numbers.value(low.numbers.truth(value), BOOL)
    if want == I32 and real and not isinstance(value, float):
        raise Misfit(
            f"{drawn.family.name} has whole numbers, not {describe(value)}",
            "pass whole numbers: an array of integers",
        )
    if isinstance(value, (int, float)):
        return low.numbers.value(value, want)
    return low.numbers.value(low.numbers.value(value), want)


def factor(low: Context, log_weight: Any) -> None:
    """Lower a factor."""
    low.b.op("factor", (low.numbers.value(log_weight, low.b.real),))


# -- functions of numbers, and what algorithms use


def _function(name: str) -> Callable[..., Any]:
    def word_(low: Context, given: Any) -> Any:
        def one(x: Any) -> Any:
            value = low.numbers.value(x)
            if not value.type.is_float:
                value = low.numbers.value(value, low.b.real)
            return low.b.make(name, value)

        return low.numbers.elementwise(one, given)

    return word_


def _array(low: Context, word: str, given: Any, rank: int) -> Value:
    """Return a vector or a matrix of reals."""
    held = memory.value(low, given) if isinstance(given, Memory) else given
    if not is_array(held) or len(held.type.shape) != rank:
        wanted = "a vector" if rank == 1 else "a matrix"
        raise Misfit(f"{word} takes {wanted}, not {describe(held)}")
    array = low.numbers.value(held)
    return low.numbers.value(array, Type(low.b.dtype, array.type.shape))


def _square(low: Context, word: str, given: Any) -> Value:
    matrix = _array(low, word, given, 2)
    if len(set(matrix.type.shape)) > 1:
        raise Misfit(f"{word} takes a square matrix, not {describe(matrix)}")
    return matrix


def cholesky(low: Context, matrix: Any) -> Any:
    """Lower cholesky; of several matrices, of each."""
    if is_array(matrix) and len(matrix.type.shape) > 2:
        return vectors.mapped(low, partial(cholesky, low), (matrix,))
    return low.b.make("cholesky", _square(low, "cholesky", matrix))


def solve_lower(low: Context, factor: Any, right: Any) -> Any:
    """Lower solve_lower; of several factors and as many vectors, of each pair."""
    if is_array(factor) and len(factor.type.shape) > 2:
        return vectors.mapped(low, partial(solve_lower, low), (factor, right))
    square, vector = _square(low, "solve_lower", factor), _array(low, "solve_lower", right, 1)
    if vector.type.shape[0] != square.type.shape[0]:
        raise Misfit(
            f"{describe(square)} and a right side of {describe(vector)} do not go together"
        )
    return low.b.make("solve_lower", square, vector, type=vector.type)


def memory_word(low: Context, like: Any) -> Memory:
    """Lower memory: a new variable of the function of `math/` at hand."""
    array = low.numbers.value(like)
    name = f"memory{len(low.program.variables)}"
    low.program.variables[name] = array.type
    low.b.set(name, array)
    return Memory(name, array.type)


def fma_word(low: Context, a: Any, b: Any, c: Any) -> Any:
    """Lower fma."""
    return low.b.make("fma", *low.numbers.joined(a, b, c, floating=True))


def bits(low: Context, given: Any, kind: str) -> Any:
    """Lower bits."""
    return low.b.make("bits", low.numbers.value(given), type=Type(kind))  # type: ignore[arg-type]


def word(low: Context, operation: str, *given: Any) -> Any:
    """Lower word."""
    return low.b.make(operation, *low.numbers.joined(*given))


def _column(low: Context, *at: Any) -> tuple[Value, ...]:
    return tuple(low.numbers.value(item, I32) for item in at if item is not None)


def read(low: Context, name: str, row: Any, kind: str, lane: Any = None) -> Any:
    """Lower read."""
    type_ = Type(low.b.dtype if kind == "real" else kind)  # type: ignore[arg-type]
    return low.b.op("read", _column(low, row, lane), (type_,), name=name).result


def write(low: Context, name: str, row: Any, value: Any, lane: Any = None) -> None:
    """Lower write."""
    item = low.numbers.value(value, Type(low.program.buffers[name]))
    low.b.op("write", (*_column(low, row, lane), item), name=name)


def here(low: Context) -> Any:
    """Lower here."""
    return low.b.make("lane", type=I32)


def is_double(low: Context, given: Any) -> bool:
    """Lower is_double."""
    if isinstance(given, (Value, View)):
        return given.type.kind == "f64"
    return low.b.dtype == "f64"


def run(low: Context, name: str) -> None:
    """Lower run."""
    low.b.op("run", name=name)


def random(low: Context) -> Any:
    """Lower random: the counter is (lane, draw, site, count), the key is the seed."""
    for name in ("draw", "count"):
        low.program.variables.setdefault(name, I32)
    keys = low.program.params[:2]
    count = low.b.get("count", I32)
    low.b.set("count", low.b.make("add", count, low.b.const(1, I32)))
    counter = (here(low), low.b.get("draw", I32), low.b.const(low.site, I32), count)
    return tuple(low.b.op("philox", (*keys, *counter), (I32,) * 4).results)


WORDS: dict[Any, Callable[..., Any]] = {
    surface.sample: sample,
    surface.observe: observe,
    surface.factor: factor,
    surface.log_prob: log_prob,
    surface.map: vectors.map_word,
    surface.repeat: vectors.repeat,
    surface.reduce: vectors.reduce,
    surface.filter: vectors.filter_word,
    surface.put: vectors.put,
    surface.nil: lists.nil,
    surface.cons: lists.cons,
    surface.head: lists.head,
    surface.tail: lists.tail,
    surface.empty: lists.empty,
    surface.cholesky: cholesky,
    surface.solve_lower: solve_lower,
    surface.memory: memory_word,
    surface.fma: fma_word,
    surface.select: vectors.select,
    surface.cast: vectors.cast,
    surface.bits: bits,
    surface.word: word,
    surface.read: read,
    surface.write: write,
    surface.here: here,
    surface.is_double: is_double,
    surface.run: run,
    surface.random: random,
    range: vectors.range_word,
    len: vectors.length,
    sum: vectors.sum_word,
    min: vectors.extreme(True),
    max: vectors.extreme(False),
    abs: vectors.abs_word,
    float: vectors.float_word,
    int: vectors.int_word,
    enumerate: vectors.enumerate_word,
    zip: vectors.zip_word,
} | {getattr(surface, name): _function(name) for name in (*FUNCTIONS, "sqrt", "floor")}
