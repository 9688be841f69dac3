"""Tracing: a program runs by its operators' meaning in NumPy, on arrays that note what is asked.

So `library/reference.py` is the only place that says what an operator means.
"""

# pyright: basic, reportCallIssue=false, reportArgumentType=false

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex, TypeAlias

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from tawa.errors import AxonError

# Functions of NumPy that are computed element by element, with the language's name for them.
POINTWISE = {
    "add": "+", "subtract": "-", "multiply": "*", "true_divide": "/", "divide": "/", "less": "<",
    "less_equal": "<=", "greater": ">", "greater_equal": ">=", "equal": "==", "not_equal": "!=",
    "logical_and": "&", "logical_or": "|", "logical_xor": "^", "logical_not": "not",
    "negative": "neg", "square": "square", "isnan": "isnan", "sign": "sign",
    "remainder": "floormod",
    "maximum": "maximum", "minimum": "minimum", "absolute": "abs", "power": "pow",
    "arctan2": "atan2", "reciprocal": "reciprocal", "erf": "erf", "exp": "exp", "exp2": "exp2",
    "expm1": "expm1", "log": "log", "log2": "log2", "log1p": "log1p", "sqrt": "sqrt_rn",
    "sin": "sin", "cos": "cos", "tan": "tan", "sinh": "sinh", "cosh": "cosh", "tanh": "tanh",
    "floor": "floor", "ceil": "ceil", "trunc": "trunc",
}  # fmt: skip


class Axis:
    """An axis of arrays; axes along which elements meet are one. `one`: put in, of size 1."""

    def __init__(self, size: int, one: bool = False) -> None:
        self.size = size
        self.one = one
        self._same: Axis | None = None

    @property
    def root(self) -> Axis:
        """What stands for all axes that are this one."""
        return self if self._same is None else self._same.root

    def join(self, other: Axis) -> None:
        """Make two axes one."""
        if self.root is not other.root:
            other.root._same = self.root


class Size(int):
    """The size of an axis: an argument of the kernel where it is used, not a number in it."""

    axis: Axis

    def __new__(cls, axis: Axis) -> Size:
        """Return the size of an axis."""
        made = super().__new__(cls, axis.size)
        made.axis = axis
        return made

    def __mul__(self, other: int) -> int:
        return self if type(other) is int and other == 1 else int(self) * other

    __rmul__ = __mul__

    def astype(self, dtype: Any) -> Traced:
        """Return the size as an array of no axes."""
        return Traced(Node("size", (), "int64", self.axis), ()).astype(dtype)

    def __array_function__(self, function: Any, types: Any, inputs: Any, options: Any) -> Any:
        return _called(function, inputs, options)


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """An operation. `axis` is what it reduces, counts or measures; `axes` those of an argument."""

    name: str
    inputs: tuple[Operand, ...] = ()
    dtype: str = ""
    axis: Axis | None = None
    axes: tuple[Axis, ...] = ()
    argument: int = -1


Operand: TypeAlias = Node | bool | int | float
REDUCTIONS = ("sum", "max", "min")


def refused(what: str, why: str = "", remedy: str = "") -> AxonError:
    """Return the error for what no kernel is made of."""
    return AxonError(
        f"`{what}` cannot be part of a fused kernel",
        why=why or "a fused kernel computes element by element and reduces along the last axis",
        remedy=remedy or "leave it outside of the function that is fused",
    )


class Traced(NDArrayOperatorsMixin):
    """An array of which is known how it is computed."""

    def __init__(self, node: Node, axes: Sequence[Axis]) -> None:
        self.node = node
        self.axes = tuple(axes)
        self.dtype = np.dtype(node.dtype)
        self.ndim = len(self.axes)

    @property
    def shape(self) -> tuple[Size, ...]:
        """The sizes of the axes."""
        return tuple([Size(axis) for axis in self.axes])

    def astype(self, dtype: Any) -> Traced:
        """Return the elements as another type."""
        name = np.dtype(dtype).name
        if name == self.node.dtype:
            return self
        return Traced(Node("cast", (self.node,), name), self.axes)

    def __getitem__(self, key: Any) -> Traced:
        if key == (..., None):
            return Traced(self.node, (*self.axes, Axis(1, one=True)))
        if key == (..., 0) and self.axes and self.axes[-1].one:
            return Traced(self.node, self.axes[:-1])
        raise refused("indexing")

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and hasattr(np.ndarray, name):
            raise refused(name)
        raise AttributeError(name)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Traced:
        name = ufunc.__name__.partition(" ")[0]
        if method != "__call__" or options or name not in POINTWISE:
            raise refused(name)
        return _pointwise(POINTWISE[name], inputs, _dtype(ufunc, name, inputs))

    def __array_function__(self, function: Any, types: Any, inputs: Any, options: Any) -> Any:
        return _called(function, inputs, options)


def _called(function: Any, inputs: Sequence[Any], options: dict[str, Any]) -> Any:
    meaning = _FUNCTIONS.get(function.__name__)
    if meaning is None:
        raise refused(function.__name__)
    return meaning(*inputs, **options)


def _sample(value: Any) -> Any:
    """Return what stands for a value where NumPy is asked for the type of a result."""
    if isinstance(value, Traced):
        return np.empty(0, value.dtype)
    return int(value) if isinstance(value, Size) else value


def _dtype(ufunc: Any, name: str, inputs: Sequence[Any]) -> str:
    found = [_sample(value) for value in inputs]
    with np.errstate(all="ignore"):
        return found[0].dtype.name if name == "erf" else ufunc(*found).dtype.name


def _operand(value: Any) -> Operand:
    match value:
        case Traced():
            return value.node
        case Size():
            return Node("size", (), "int64", value.axis)
        case bool() | int() | float():
            return value
        case _ if isinstance(value, np.ndarray | np.generic) and value.ndim == 0:
            return value.item()
        case _:
            raise refused(type(value).__name__, "an array inside of it is no argument of it")


def _pointwise(name: str, inputs: Sequence[Any], dtype: str) -> Traced:
    operands = tuple([_operand(value) for value in inputs])
    if name == "pow" and operands[1] == 2 and not isinstance(operands[1], Node):
        name, operands = "square", operands[:1]
    axes = broadcast([value.axes for value in inputs if isinstance(value, Traced)])
    return Traced(Node(name, operands, dtype), axes)


def broadcast(words: Sequence[tuple[Axis, ...]]) -> tuple[Axis, ...]:
    """Return the axes of what arrays are broadcast to, and join those that meet."""
    np.broadcast_shapes(*[tuple([axis.size for axis in word]) for word in words])
    rank = max(map(len, words))
    found: list[Axis] = []
    for place in range(-rank, 0):
        column = [word[place] for word in words if len(word) >= -place]
        given = [axis for axis in column if not axis.one] or column
        wide = [axis for axis in given if axis.size != 1] or given
        for axis in wide[1:]:
            wide[0].join(axis)
        found.append(wide[0])
    return tuple(found)


def _reduction(name: str) -> Callable[..., Traced]:
    def reduce(x: Traced, axis: Any = None, keepdims: bool = False, **options: Any) -> Traced:
        whole = tuple(range(x.ndim)) if axis is None else axis
        numbers = whole if isinstance(whole, tuple) else (whole,)
        if len(numbers) != 1 or (options and (name, options) != ("max", {"initial": -math.inf})):
            raise refused(name, "it does not reduce one axis")
        place = int(numbers[0]) % x.ndim
        new = (Axis(1, one=True),) if keepdims else ()
        axes = (*x.axes[:place], *new, *x.axes[place + 1 :])
        dtype = np.sum(np.empty(0, x.dtype)).dtype.name if name == "sum" else x.node.dtype
        return Traced(Node(name, (x.node,), dtype, x.axes[place]), axes)

    return reduce


def _where(condition: Any, one: Any, other: Any) -> Traced:
    dtype = np.result_type(_sample(one), _sample(other)).name
    return _pointwise("where", (condition, one, other), dtype)


def _take_along(x: Traced, index: Traced, axis: SupportsIndex) -> Traced:
    place = x.axes[int(axis)]
    position = Traced(Node("position", (), "int64", place), (place,))
    if int(axis) != -1 or not index.axes[-1].one:
        raise refused("take_along_axis", "it takes more than one item of the last axis")
    return np.sum(np.where(position == index, x, 0), axis=-1, keepdims=True)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: _reduction(name) for name in REDUCTIONS},
    "amax": _reduction("max"),
    "amin": _reduction("min"),
    "where": _where,
    "take_along_axis": _take_along,
    "clip": lambda x, low, high: np.minimum(np.maximum(x, low), high),
    "round": lambda x: _pointwise("rint", (x,), x.node.dtype),
    "zeros_like": lambda x, dtype=None: np.where(False, x, 0),
    "ones_like": lambda x: np.where(False, x, 1),
    "ndim": lambda x: x.ndim,
    "shape": lambda x: x.shape,
}
