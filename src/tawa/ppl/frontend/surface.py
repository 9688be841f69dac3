"""The words of the language, as Python sees them: a model's source names them, none is ever run."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, NoReturn, ParamSpec

from tawa.errors import ModelError

_P = ParamSpec("_P")


def outside(name: str) -> NoReturn:
    """Refuse a word, or a distribution, that Python runs."""
    raise ModelError(
        f"ppl.{name} was called outside of a model",
        why="a model's source is compiled, not run: its words have a meaning only there",
        remedy="call it in a function under @ppl.model, and run that with ppl.infer",
    )


def _word(function: Callable[_P, Any]) -> Callable[_P, Any]:
    """Return a word that Python refuses to run, whatever it is given."""

    @wraps(function)
    def refused(*_: _P.args, **__: _P.kwargs) -> NoReturn:
        outside(function.__name__)

    return refused


@_word
def sample(distribution: Any, *, name: str = "", centered: bool = True) -> Any:
    """Draw a value; `centered=False` draws a standard value, then shifts and scales it.

    The site's name is `name`, or the variable the value is assigned to.
    """


@_word
def observe(distribution: Any, value: Any, *, name: str = "observed") -> None:
    """Weigh the run by the density of a distribution at a value.

    `name` is that of `log_likelihood` and `predict`.
    """


@_word
def factor(log_weight: Any) -> None:
    """Add a number to the logarithm of the run's weight."""


@_word
def log_prob(distribution: Any, value: Any) -> Any:
    """Return the log density of a distribution at a value; nothing is weighed."""


@_word
def map(function: Callable[..., Any], *rows: Any) -> Any:
    """Return the vector of a function's results over one or more vectors, in order."""


@_word
def repeat(count: int, function: Callable[[], Any]) -> Any:
    """Return the vector of `count` results of a function without arguments."""


@_word
def reduce(function: Callable[[Any, Any], Any], rows: Any, start: Any) -> Any:
    """Fold a vector from the left: `function(folded, item)`."""


@_word
def filter(function: Callable[[Any], Any], rows: Any) -> Any:
    """Return the items for which a function holds; its length is known when the model runs."""


@_word
def put(vector: Any, index: Any, item: Any) -> Any:
    """Return a vector with one item replaced."""


class Function:
    """A word without names of its own for what it takes; never run by Python."""

    def __init__(self, name: str, meaning: str) -> None:
        self.name = name
        self.__doc__ = meaning

    def __call__(self, *operands: Any) -> Any:
        """Only a model may call it."""
        outside(self.name)


sqrt = Function("sqrt", "Return the square root, rounded to nearest.")
floor = Function("floor", "Return the largest whole number not above x, as a real.")
exp = Function("exp", "Return e to the power of x.")
log = Function("log", "Return the natural logarithm.")
log1p = Function("log1p", "Return log(1 + x).")
expm1 = Function("expm1", "Return exp(x) - 1.")
sinturn = Function("sinturn", "Return the sine of x turns: sin(2 pi x).")
costurn = Function("costurn", "Return the cosine of x turns: cos(2 pi x).")
lgamma = Function("lgamma", "Return the logarithm of the gamma function of x > 0.")
digamma = Function("digamma", "Return the derivative of lgamma at x > 0.")
erf = Function("erf", "Return the error function.")
nil = Function(
    "nil", "Return the empty list of items such as the example: numbers, records, lists."
)
cons = Function("cons", "Return the list of an item and the items of a list.")
head = Function("head", "Return the first item of a list.")
tail = Function("tail", "Return the list of all items but the first.")
empty = Function("empty", "Return whether a list has no items.")


@_word
def cholesky(matrix: Any) -> Any:
    """Return the lower Cholesky factor of a positive definite matrix; its lower half is read.

    Of an array with more axes, that of each matrix.
    """


@_word
def solve_lower(factor: Any, right: Any) -> Any:
    """Return x of factor @ x = right for a lower triangular factor and a vector."""


@_word
def select(condition: Any, when_true: Any, when_false: Any) -> Any:
    """Return one of two values; both are computed."""


# Of `math/` and of algorithms:
fma = Function("fma", "Return a * b + c, rounded once.")
memory = Function("memory", "Return an array of the lane's own that begins as another one.")
read = Function("read", "Read a buffer: its name, row, kind; the lane's column, or another's.")
write = Function("write", "Write a buffer: its name, row, what; the lane's column, or another's.")
here = Function("here", "Return the number of the lane.")
run = Function("run", "Run a procedure of the program.")
cast = Function("cast", 'Convert to a kind, f32, f64, i32, i64, bool, or "real", the program\'s.')
bits = Function("bits", "Return the same bits as another kind.")
is_double = Function("is_double", "Whether a value is an f64; known when a function is lowered.")
word = Function("word", "Apply an operation of integers of the IR, by its name.")
random = Function("random", "Return four fresh random words of the lane.")
