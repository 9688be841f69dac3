"""Tracing: a program runs by its operators' meaning in NumPy, on arrays that note what is asked.

So `library/reference.py` is the only place that says what an operator means. What no kernel
computes becomes a step of its own (`Cuts`), and so does what would be computed along other axes
than the rest of its kernel.
"""

# pyright: basic, reportCallIssue=false, reportArgumentType=false

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, SupportsIndex, TypeAlias

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from tawa.axon.fuse import calls
from tawa.axon.library import reference
from tawa.errors import AxonError
from tawa.runtime.arrays import View

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
        self._beside: set[Axis] = set()  # of the arrays that have it

    @property
    def root(self) -> Axis:
        """What stands for all axes that are this one."""
        return self if self._same is None else self._same.root

    def join(self, other: Axis) -> None:
        """Make two axes one."""
        one, same = other.root, self.root
        if same is not one:
            one._same = same
            same._beside |= one._beside

    def beside(self, others: Sequence[Axis]) -> None:
        """Note that an array has this axis and others."""
        self.root._beside.update(others)

    def meets(self, other: Axis) -> bool:
        """Tell whether it is another axis of one array, so that they are no single one."""
        one, same = other.root, self.root
        return same is not one and any(each.root is one for each in same._beside)


class Size(int):
    """The size of an axis: an argument of the kernel where it is used, not a number in it."""

    axis: Axis
    cuts: Cuts

    def __new__(cls, axis: Axis, cuts: Cuts) -> Size:
        """Return the size of an axis of a program's array."""
        made = super().__new__(cls, axis.size)
        made.axis, made.cuts = axis, cuts
        return made

    def __mul__(self, other: int) -> int:
        return self if type(other) is int and other == 1 else int(self) * other

    __rmul__ = __mul__

    def astype(self, dtype: Any) -> Traced:
        """Return the size as an array of no axes."""
        return Traced(Node("size", (), "int64", self.axis), (), "int64", self.cuts).astype(dtype)

    def __array_function__(self, function: Any, types: Any, inputs: Any, options: Any) -> Any:
        return _called(function, inputs, options)


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """An operation. `axis` is what it goes along or measures; `axes` those of an argument."""

    name: str
    inputs: tuple[Operand, ...] = ()
    dtype: str = ""
    axis: Axis | None = None
    axes: tuple[Axis, ...] = ()
    argument: int = -1


Operand: TypeAlias = Node | bool | int | float
REDUCTIONS = ("sum", "max", "min")
ALONG = (*REDUCTIONS, "at")  # what has one number for a row of its first input


def refused(what: str, why: str = "") -> AxonError:
    """Return the error for what no kernel is made of."""
    return AxonError(
        f"`{what}` cannot be part of a fused kernel",
        why=why or "a fused kernel computes element by element and reduces along the last axis",
        remedy="leave it outside of the function that is fused",
    )


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """What is computed by a function of arrays: `run(*inputs)`, inputs in lists where they were.

    `plain`: of arrays as they are, of any library; else of what NumPy's functions take. `orders`:
    of axes in which arrays have to be dense (`calls.py`), those of None as they lie.
    """

    name: str
    run: Callable[..., Any]
    inputs: tuple[Any, ...]
    plain: bool = False
    orders: Callable[[Sequence[View]], Sequence[calls.Order | None]] | None = None


@dataclass
class Cuts:
    """A program as steps, in their order; `known` says of each node what it is the value of."""

    steps: list[Node] = field(default_factory=list[Node])
    of: dict[Node, Step] = field(default_factory=dict[Node, Step])
    known: dict[Node, Traced] = field(default_factory=dict["Node", "Traced"])

    def array(self, shape: Sequence[int], dtype: str, argument: int = -1) -> Traced:
        """Return an array that is an argument, or what a step makes."""
        axes = tuple([Axis(int(size)) for size in shape])
        node = Node("load", (), computed(dtype), axes=axes, argument=argument)
        return Traced(node, axes, dtype, self)

    def step(self, step: Step, shape: Sequence[int], dtype: str) -> Traced:
        """Return what a step makes, one array."""
        made = self.array(shape, dtype)
        self.steps.append(made.node)
        self.of[made.node] = step
        return made

    def apart(self, x: Traced) -> Traced:
        """Return an array as what it is in memory, whose axes are those of no other."""
        return self.step(Step("same", lambda x: x, (x,), plain=True), x.shape, x.dtype)

    def constant(self, value: Any) -> Traced:
        """Return an array of NumPy, which is made of numbers that are known."""
        return self.step(Step("constant", lambda: value, ()), value.shape, value.dtype.name)


def computed(dtype: str) -> str:
    """Return the type in which elements are computed: sums of narrow floats are as exact as f32."""
    return "float32" if dtype in ("float16", "bfloat16") else dtype


class Traced(NDArrayOperatorsMixin):
    """An array of which is known how it is computed, in what axes, and the type that it has.

    `reduced`: the axis along which a kernel of it reduces, and the others that it then has.
    """

    def __init__(
        self,
        node: Node,
        axes: Sequence[Axis],
        dtype: str,
        cuts: Cuts,
        reduced: tuple[Axis, tuple[Axis, ...]] | None = None,
    ) -> None:
        self.node = node
        self.axes = tuple(axes)
        self.dtype = dtype
        self.ndim = len(self.axes)
        self.cuts = cuts
        self.reduced = reduced
        for axis in self.axes:
            axis.beside(self.axes)
        cuts.known.setdefault(node, self)

    @property
    def shape(self) -> tuple[Size, ...]:
        """The sizes of the axes."""
        return tuple([Size(axis, self.cuts) for axis in self.axes])

    @property
    def size(self) -> int:
        """How many elements it has."""
        return math.prod([axis.size for axis in self.axes])

    def like(self, node: Node, axes: Sequence[Axis], dtype: str = "") -> Traced:
        """Return what is computed of this one."""
        return Traced(node, axes, dtype or self.dtype, self.cuts, self.reduced)

    def astype(self, dtype: Any) -> Traced:
        """Return the elements as another type."""
        name = dtype if isinstance(dtype, str) else np.dtype(dtype).name
        if name == self.dtype:
            return self
        node = Node("cast", (self.node,), computed(name))
        if computed(name) != name:
            node = Node(name, (node,), node.dtype)
        return self.like(node, self.axes, name)

    def reshape(self, *shape: Any) -> Traced:
        """Return the elements in another shape."""
        return _called(np.reshape, (self, shape[0] if len(shape) == 1 else shape), {})

    def transpose(self, *order: int) -> Traced:
        """Return the axes in another order."""
        return _called(np.transpose, (self, order), {})

    def __len__(self) -> int:
        return self.axes[0].size

    def __iter__(self) -> Iterator[Traced]:
        return (_moved("item", lambda x, i=i: x[i], self, self.shape[1:]) for i in range(len(self)))

    def __getitem__(self, key: Any) -> Traced:
        if key == (..., None):
            return self.like(self.node, (*self.axes, Axis(1, one=True)))
        if key == (..., 0) and self.axes and self.axes[-1].one:
            return self.like(self.node, self.axes[:-1])
        raise refused("indexing")

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and hasattr(np.ndarray, name):
            raise refused(name)
        raise AttributeError(name)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Traced:
        name = ufunc.__name__.partition(" ")[0]
        if name == "matmul" and not options:
            return product(*inputs)
        if method != "__call__" or options or name not in POINTWISE:
            raise refused(name)
        given = _lifted(inputs)
        return pointwise(POINTWISE[name], given, _dtype(ufunc, name, given))

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
        return np.empty(0, value.node.dtype)
    if isinstance(value, np.ndarray | np.generic) and value.ndim == 0:
        return value.item()  # a number, whose type is that of what it meets
    if isinstance(value, np.ndarray):
        raise _inside()
    return int(value) if isinstance(value, Size) else value


def _inside() -> AxonError:
    return refused("array", "an array inside of it is no argument of it")


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
            raise _inside()


def _cuts(values: Sequence[Any]) -> Cuts:
    return next(each.cuts for each in values if isinstance(each, Traced))


def _lifted(inputs: Sequence[Any]) -> Sequence[Any]:
    """Return inputs whose arrays of NumPy are constants, of the type of what they meet."""
    near = next((each for each in inputs if isinstance(each, Traced)), None)
    if near is None:
        return inputs
    found = list(inputs)
    for place, value in enumerate(inputs):
        if isinstance(value, np.ndarray) and value.ndim:
            made = near.cuts.constant(value)
            found[place] = made if made.dtype == "bool" else made.astype(near.dtype)
    return found


def pointwise(name: str, inputs: Sequence[Any], dtype: str) -> Traced:
    """Return a function of the elements of arrays and numbers."""
    cuts = _cuts(inputs)
    inputs = list(inputs)
    given = [value for value in inputs if isinstance(value, Traced)]
    if _meet([value.axes for value in given]):
        inputs = [cuts.apart(v) if isinstance(v, Traced) and v.ndim else v for v in inputs]
        given = [value for value in inputs if isinstance(value, Traced)]
    axes = broadcast([value.axes for value in given])
    reduced = None
    for place, value in enumerate(inputs):
        if not isinstance(value, Traced) or value.reduced is None:
            continue
        if _fits(value.reduced, axes) and reduced in (None, _roots(value)):
            reduced = _roots(value)
        else:  # a kernel reduces along one axis, once for each of its rows
            inputs[place] = made = cuts.apart(value)
            broadcast([axes, made.axes])
    operands = tuple([_operand(value) for value in inputs])
    if name == "pow" and operands[1] == 2 and not isinstance(operands[1], Node):
        name, operands = "square", operands[:1]
    floats = [value for value in given if value.dtype != "bool"]
    types = {value.dtype for value in [each for each in floats if each.ndim] or floats}
    narrow = dtype == "float32" and len(types) == 1
    return Traced(
        Node(name, operands, dtype), axes, next(iter(types)) if narrow else dtype, cuts, reduced
    )


def _roots(x: Traced) -> tuple[Axis, tuple[Axis, ...]]:
    assert x.reduced is not None, "asked of arrays that reduce"
    return x.reduced[0].root, tuple([axis.root for axis in x.reduced[1]])


def _fits(reduced: tuple[Axis, tuple[Axis, ...]], axes: Sequence[Axis]) -> bool:
    """Tell whether an array of some axes has the rows of a reduction, and no more."""
    column, rows = reduced[0].root, {axis.root for axis in reduced[1] if not axis.one}
    return {axis.root for axis in axes if not axis.one} - {column} == rows


def _columns(words: Sequence[tuple[Axis, ...]]) -> list[list[Axis]]:
    """Return, for each axis of what arrays are broadcast to, the axes that meet there."""
    found: list[list[Axis]] = []
    for place in range(-max(map(len, words), default=0), 0):
        column = [word[place] for word in words if len(word) >= -place]
        given = [axis for axis in column if not axis.one] or column
        found.append([axis for axis in given if axis.size != 1] or given)
    return found


def _meet(words: Sequence[tuple[Axis, ...]]) -> bool:
    """Tell whether two axes of one array would be made one, now or by what this makes one."""
    wide = [{axis.root for axis in column} for column in _columns(words)]
    if any(a.meets(b) for column in wide for a in column for b in column):
        return True
    return any(one & other for i, one in enumerate(wide) for other in wide[:i])


def broadcast(words: Sequence[tuple[Axis, ...]]) -> tuple[Axis, ...]:
    """Return the axes of what arrays are broadcast to, and join those that meet."""
    np.broadcast_shapes(*[tuple([axis.size for axis in word]) for word in words])
    columns = _columns(words)
    for first, *others in columns:
        for axis in others:
            first.join(axis)
    return tuple([column[0] for column in columns])


def _reduction(name: str) -> Callable[..., Traced]:
    def reduce(x: Traced, axis: Any = None, keepdims: bool = False, **options: Any) -> Traced:
        whole = tuple(range(x.ndim)) if axis is None else axis
        numbers = [n % x.ndim for n in (whole if isinstance(whole, tuple) else (whole,))]
        if options and (name, options) != ("max", {"initial": -math.inf}):
            raise refused(name, "it begins with a number")
        word = [None if n in numbers else each for n, each in enumerate(x.axes)]
        x = _along_last(x, sorted(numbers))
        *kept, column = x.axes
        left = iter(kept)
        word = [each and next(left) for each in word]
        rows = tuple(kept)
        axes = [Axis(1, one=True) if each is None else each for each in word]
        dtype = np.sum(np.empty(0, x.node.dtype)).dtype.name if name == "sum" else x.node.dtype
        node = Node(name, (x.node,), dtype, column)
        element = x.dtype if dtype == x.node.dtype else dtype
        return Traced(node, axes if keepdims else rows, element, x.cuts, (column, rows))

    return reduce


def _along_last(x: Traced, numbers: Sequence[int]) -> Traced:
    """Return an array whose last axis is those of some numbers; one that a kernel reduces."""
    left = [n for n in range(x.ndim) if n not in numbers]
    if len(numbers) != 1 or numbers[0] != x.ndim - 1:
        if left != list(range(len(left))):
            x = np.transpose(x, (*left, *numbers))  # pyright: ignore
        sizes = [int(size) for size in x.shape[: len(left)]]
        if len(numbers) != 1:
            x = np.reshape(x, (*sizes, math.prod(map(int, x.shape[len(left) :]))))  # pyright: ignore
    same = x.reduced is None or (x.reduced[0].root is x.axes[-1].root and _fits(x.reduced, x.axes))
    return x if same and not x.axes[-1].one else x.cuts.apart(x)


def _where(condition: Any, one: Any, other: Any) -> Traced:
    one, other = _lifted((one, other))
    dtype = np.result_type(_sample(one), _sample(other)).name
    return pointwise("where", (condition, one, other), dtype)


def _take_along(x: Traced, index: Traced, axis: SupportsIndex) -> Traced:
    """Return one item of each row of x, whose number is in the row."""
    if int(axis) % x.ndim != x.ndim - 1 or index.axes[-1].size != 1:
        raise refused("take_along_axis", "it takes more than one item of the last axis")
    x = _along_last(x, [x.ndim - 1])
    if _meet([x.axes[:-1], index.axes[:-1]]) or index.reduced is not None:
        x, index = x.cuts.apart(x), x.cuts.apart(index)
    rows = broadcast([x.axes[:-1], index.axes[:-1]])
    node = Node("at", (x.node, index.node), x.node.dtype, x.axes[-1])
    axes = (*rows, Axis(1, one=True))
    return Traced(node, axes, x.dtype, x.cuts, (x.axes[-1], rows))


def _zeros_like(x: Traced, dtype: Any = None, shape: Any = None) -> Traced:
    if shape is not None:
        raise refused("zeros_like", "its shape is another's")
    return np.where(False, x, 0)


def _moved(name: str, run: Callable[[Any], Any], x: Traced, shape: Sequence[int]) -> Traced:
    """Return what a function makes of an array that has another shape or order then."""
    return x.cuts.step(Step(name, run, (x,), plain=True), shape, x.dtype)


def _reshape(x: Traced, shape: Any) -> Traced:
    sizes = [int(size) for size in (shape if isinstance(shape, Sequence) else (shape,))]
    if -1 in sizes:
        known = math.prod(size for size in sizes if size != -1)
        sizes[sizes.index(-1)] = math.prod(map(int, x.shape)) // max(1, known)
    return _moved("reshape", lambda x: x.reshape(tuple(sizes)), x, sizes)


def _transpose(x: Traced, order: Sequence[int]) -> Traced:
    places = [int(place) % x.ndim for place in order]
    shape = [int(x.shape[place]) for place in places]
    return _moved("transpose", lambda x: calls.permuted(x, places), x, shape)


def _swapped(x: Traced, one: int, other: int) -> Traced:
    order = list(range(x.ndim))
    order[one], order[other] = order[other], order[one]
    return _transpose(x, order)


def product(a: Any, b: Any) -> Traced:
    """Return a product as a step: the library's where it takes the types."""
    a, b = _lifted((a, b))
    cuts = _cuts((a, b))
    batch = np.broadcast_shapes(*[tuple(map(int, each.shape[:-2])) for each in (a, b)])
    rows, columns = ([int(n) for n in each.shape[-2:]] for each in (a, b))
    shape = (*batch, *rows[:-1], *columns[1:])
    if a.dtype == b.dtype and a.dtype in calls.FLOATS:
        step = Step("matmul", calls.matmul, (a, b), plain=True, orders=calls.matmul_orders)
        return cuts.step(step, shape, a.dtype)
    dtype = np.result_type(_sample(a), _sample(b)).name
    return cuts.step(Step("matmul", np.matmul, (a, b)), shape, dtype)


def _einsum(equation: str, *operands: Traced) -> Traced:
    """Return a sum of products of two arrays as a product of matrices, over batches."""
    words, _, out = equation.replace(" ", "").partition("->")
    a, _, b = words.partition(",")
    single = all(len({*word}) == len(word) and word.isalpha() for word in (a, b, out))
    if len(operands) != 2 or not single or any((n in a) + (n in b) + (n in out) < 2 for n in a + b):
        raise refused("einsum")
    one, other = operands
    sizes = {n: int(size) for x, word in ((one, a), (other, b)) for n, size in zip(word, x.shape)}
    inner = [n for n in a if n in b and n not in out]
    batch, rows, columns = ([n for n in out if (n in a, n in b) == where]
                            for where in ((True, True), (True, False), (False, True)))  # fmt: skip

    def shaped(x: Traced, word: str, order: Sequence[str], shape: Sequence[int]) -> Traced:
        places = [word.index(n) for n in order]
        x = x if places == sorted(places) else np.transpose(x, places)
        return x if [*map(int, x.shape)] == [*shape] else np.reshape(x, shape)

    def together(*groups: Sequence[str]) -> list[int]:
        return [*[sizes[n] for n in batch], *[math.prod(sizes[n] for n in g) for g in groups]]

    left = shaped(one, a, [*batch, *rows, *inner], together(rows, inner))
    right = shaped(other, b, [*batch, *inner, *columns], together(inner, columns))
    word = "".join([*batch, *rows, *columns])
    made = product(left, right)
    made = shaped(made, word, word, [sizes[n] for n in word]) if made.ndim != len(word) else made
    return shaped(made, word, out, [sizes[n] for n in out])


def _stack(items: Sequence[Traced], axis: int = 0) -> Traced:
    shape = [int(size) for size in items[0].shape]
    shape.insert(axis % (len(shape) + 1), len(items))
    cuts = _cuts(items)
    step = Step("stack", lambda *items: np.stack(items, axis), tuple(items))
    return cuts.step(step, shape, items[0].dtype)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: _reduction(name) for name in REDUCTIONS},
    "amax": _reduction("max"),
    "amin": _reduction("min"),
    "where": _where,
    "take_along_axis": _take_along,
    "clip": lambda x, low, high: np.minimum(np.maximum(x, low), high),
    "round": lambda x: pointwise("rint", (x,), x.node.dtype),
    "reshape": _reshape,
    "transpose": _transpose,
    "swapaxes": _swapped,
    "stack": _stack,
    "einsum": _einsum,
    "zeros_like": _zeros_like,
    "ones_like": lambda x: np.where(False, x, 1),
    "ndim": lambda x: x.ndim,
    "shape": lambda x: x.shape,
}

_NAMES = {symbol: name for name, symbol in POINTWISE.items()}


def evaluated(operand: Operand) -> Any:
    """Return the number that is computed of numbers and sizes alone."""
    if not isinstance(operand, Node):
        return operand
    inputs = [evaluated(each) for each in operand.inputs]
    with np.errstate(all="ignore"):
        match operand.name:
            case "size" if operand.axis is not None:
                return np.asarray(operand.axis.size)
            case "cast":
                return np.asarray(inputs[0]).astype(operand.dtype)
            case "float16" | "bfloat16":
                return inputs[0]
            case "where" | "rint" as name:
                return getattr(np, name)(*inputs)
            case "erf":
                return reference.meaning("erf")(*inputs)
            case name:
                return np.asarray(getattr(np, _NAMES[name])(*inputs)).astype(operand.dtype)
