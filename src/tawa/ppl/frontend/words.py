# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# (lambdas of the subset: what a parameter is, the model's compiler infers)
"""The words of the language: what each means when a model is lowered."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from types import FunctionType, ModuleType
from typing import Any, Literal

import numpy as np

from tawa.ppl.frontend import vectors
from tawa.ppl.frontend.arithmetic import Misfit, describe, is_array, is_number
from tawa.ppl.frontend.context import Context
from tawa.ppl.frontend.family import Distribution, Drawn, Parameter
from tawa.ppl.frontend.lists import cons as cons
from tawa.ppl.frontend.lists import empty as empty
from tawa.ppl.frontend.lists import head as head
from tawa.ppl.frontend.lists import nil as nil
from tawa.ppl.frontend.lists import tail as tail
from tawa.ppl.frontend.model import Model
from tawa.ppl.frontend.source import Closure
from tawa.ppl.frontend.surface import Word, written
from tawa.ppl.frontend.values import Variable, View, is_record
from tawa.ppl.frontend.vectors import cast as cast
from tawa.ppl.frontend.vectors import filter as filter
from tawa.ppl.frontend.vectors import fma as fma
from tawa.ppl.frontend.vectors import map as map
from tawa.ppl.frontend.vectors import put as put
from tawa.ppl.frontend.vectors import reduce as reduce
from tawa.ppl.frontend.vectors import repeat as repeat
from tawa.ppl.frontend.vectors import select as select
from tawa.ppl.ir.core import BOOL, I32, Kind, Region, Type, Value

PYTHON: dict[Any, Callable[..., Any]] = {
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
}
"""Python's own words, and what lowers them."""


def lowering(given: Any) -> Callable[..., Any] | None:
    """Return what lowers a word; None for what is none."""
    if isinstance(given, Word):
        return given.lower  # type: ignore[reportUnknownMemberType]
    return PYTHON.get(given) if isinstance(given, Hashable) else None


def is_basic(given: Any) -> bool:
    """Whether something is a word that is not written in the language."""
    return lowering(given) is not None and getattr(given, "like", None) is None


def resolve(given: Any) -> Any:
    """Return what a global name of a model stands for. Raises Misfit where it cannot be used."""
    match given:
        case Model():
            return given.function
        case bool() | int() | float() | str() | None | tuple():
            return given  # type: ignore[reportUnknownVariableType]
        case ModuleType() | Distribution() | Closure() | FunctionType():
            return given
        case _:
            if lowering(given):
                return given
            if isinstance(given, np.ndarray):
                raise Misfit(
                    "an array outside of the model would be frozen: pass it as an argument"
                )
            name = str(getattr(given, "__name__", type(given).__name__))  # type: ignore[reportUnknownArgumentType]
            ours = isinstance(globals().get(name), Word)
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


@Word
def sample(low: Context, distribution: Any, *, name: str = "", centered: bool = True) -> Any:
    """Draw a value; `centered=False` draws a standard value, then shifts and scales it.

    The site's name is `name`, or the variable the value is assigned to.
    """

    def one(drawn: Drawn) -> Value:
        return _sample(low, drawn, name, centered)

    return _independent(low, _drawn(distribution), one)


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


@Word
def observe(low: Context, distribution: Any, value: Any, *, name: str = "observed") -> None:
    """Weigh the run by the density of a distribution at a value.

    `name` is that of `log_likelihood` and `predict`.
    """

    def one(drawn: Drawn, value: Any) -> None:
        operands = (_of_family(low, drawn, value), *drawn.parameters)
        low.b.op("observe", operands, family=drawn.family, title=_title(low, name))

    _independent(low, _drawn(distribution), one, value)


@Word
def log_prob(low: Context, distribution: Any, value: Any) -> Any:
    """Return the log density of a distribution at a value; nothing is weighed."""

    def one(drawn: Drawn, value: Any) -> Value:
        operands = (_of_family(low, drawn, value), *drawn.parameters)
        return low.numbers.value(low.call(drawn.family.log_density, operands), low.b.real)

    return _independent(low, _drawn(distribution), one, value)


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


@Word
def factor(low: Context, log_weight: Any) -> None:
    """Add a number to the logarithm of the run's weight."""
    low.b.op("factor", (low.numbers.value(log_weight, low.b.real),))


# -- functions of numbers, and what algorithms use


def _function(name: str, meaning: str) -> Word[Any]:
    def lower(low: Context, x: Any) -> Any:
        def one(x: Any) -> Any:
            value = low.numbers.value(x)
            if not value.type.is_float:
                value = low.numbers.value(value, low.b.real)
            return low.b.make(name, value)

        return low.numbers.elementwise(one, x)

    lower.__name__, lower.__doc__ = name, meaning
    return Word(lower)


sqrt = _function("sqrt", "Return the square root, rounded to nearest.")
floor = _function("floor", "Return the largest whole number not above x, as a real.")
exp = _function("exp", "Return e to the power of x.")
log = _function("log", "Return the natural logarithm.")
log1p = _function("log1p", "Return log(1 + x).")
expm1 = _function("expm1", "Return exp(x) - 1.")
sinturn = _function("sinturn", "Return the sine of x turns: sin(2 pi x).")
costurn = _function("costurn", "Return the cosine of x turns: cos(2 pi x).")
lgamma = _function("lgamma", "Return the logarithm of the gamma function of x > 0.")
digamma = _function("digamma", "Return the derivative of lgamma at x > 0.")
erf = _function("erf", "Return the error function.")


def _array(low: Context, word: str, given: Any, rank: int) -> Value:
    """Return a vector or a matrix of reals."""
    if not is_array(given) or len(given.type.shape) != rank:
        wanted = "a vector" if rank == 1 else "a matrix"
        raise Misfit(f"{word} takes {wanted}, not {describe(given)}")
    array = low.numbers.value(given)
    return low.numbers.value(array, Type(low.b.dtype, array.type.shape))


def _square(low: Context, word: str, given: Any) -> Value:
    matrix = _array(low, word, given, 2)
    if len(set(matrix.type.shape)) > 1:
        raise Misfit(f"{word} takes a square matrix, not {describe(matrix)}")
    return matrix


@Word
def cholesky(low: Context, matrix: Any) -> Any:
    """Return the lower Cholesky factor of a positive definite matrix; its lower half is read.

    Of an array with more axes, that of each matrix.
    """
    if is_array(matrix) and len(matrix.type.shape) > 2:
        return vectors.mapped(low, partial(cholesky.lower, low), (matrix,))
    return low.b.make("cholesky", _square(low, "cholesky", matrix))


@Word
def solve_lower(low: Context, factor: Any, right: Any) -> Any:
    """Return x of factor @ x = right for a lower triangular factor and a vector.

    Of several factors and as many vectors, that of each pair.
    """
    if is_array(factor) and len(factor.type.shape) > 2:
        return vectors.mapped(low, partial(solve_lower.lower, low), (factor, right))
    square, vector = _square(low, "solve_lower", factor), _array(low, "solve_lower", right, 1)
    if vector.type.shape[0] != square.type.shape[0]:
        raise Misfit(
            f"{describe(square)} and a right side of {describe(vector)} do not go together"
        )
    return low.b.make("solve_lower", square, vector, type=vector.type)


@Word
def memory(low: Context, like: Any) -> View:
    """Return an array of the lane's own that begins as another one."""
    array = low.numbers.value(like)
    name = f"memory{len(low.program.variables)}"
    low.program.variables[name] = array.type
    low.b.set(name, array)
    return View(Variable(name, array.type))


@Word
def bits(low: Context, given: Any, kind: Kind | Literal["real"]) -> Any:
    """Return the same bits as another kind."""
    return low.b.make("bits", low.numbers.value(given), type=vectors.type_of(low, kind))


@Word
def word(low: Context, operation: str, *given: Any) -> Any:
    """Apply an operation of integers of the IR, by its name."""
    return low.b.make(operation, *low.numbers.joined(*given))


def _column(low: Context, *at: Any) -> tuple[Value, ...]:
    return tuple(low.numbers.value(item, I32) for item in at if item is not None)


@Word
def read(low: Context, name: str, row: Any, kind: Kind | Literal["real"], lane: Any = None) -> Any:
    """Read a row of a buffer as a kind; the lane's column, or another's."""
    types = (vectors.type_of(low, kind),)
    return low.b.op("read", _column(low, row, lane), types, name=name).result


@Word
def write(low: Context, name: str, row: Any, value: Any, lane: Any = None) -> None:
    """Write a row of a buffer; the lane's column, or another's."""
    item = low.numbers.value(value, Type(low.program.buffers[name]))
    low.b.op("write", (*_column(low, row, lane), item), name=name)


@Word
def here(low: Context) -> Any:
    """Return the number of the lane."""
    return low.b.make("lane", type=I32)


@Word
def is_double(low: Context, given: Any) -> bool:
    """Whether a value is an f64; known when a function is lowered."""
    if isinstance(given, (Value, View)):
        return given.type.kind == "f64"
    return low.b.dtype == "f64"


@Word
def run(low: Context, name: str) -> None:
    """Run a procedure of the program."""
    low.b.op("run", name=name)


@Word
def random(low: Context) -> Any:
    """Return four fresh random words: of (lane, draw, site, count), by the seed."""
    for name in ("draw", "count"):
        low.program.variables.setdefault(name, I32)
    keys = low.program.params[:2]
    count = low.b.get("count", I32)
    low.b.set("count", low.b.make("add", count, low.b.const(1, I32)))
    counter = (here.lower(low), low.b.get("draw", I32), low.b.const(low.site, I32), count)
    return tuple(low.b.op("philox", (*keys, *counter), (I32,) * 4).results)


# -- words that are written in the language


@written
def to_list(vector: Any) -> Any:
    """Return the list of a vector's items."""
    items = nil(vector[0])
    for k in range(len(vector)):
        items = cons(vector[len(vector) - 1 - k], items)
    return items


@written
def to_vector(items: Any, size: int, fill: Any) -> Any:
    """Return a vector of the first `size` items of a list, then of `fill`."""
    vector = repeat(size, lambda: fill)
    for k in range(size):
        if not empty(items):
            vector = put(vector, k, head(items))
            items = tail(items)
    return vector
