"""The oracle: a program run task by task in NumPy, as if no machine were there.

Levels and memories do not matter, loops run in order, each launch takes copies of its parts and
gives back what it writes. Parts for wgmma are the tensor itself: together its processors hold it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from types import FunctionType, ModuleType
from typing import Any, cast

from tawa.cypress.size import Int, evaluate, sizes_of
from tawa.cypress.task import Variant
from tawa.cypress.tensor import Piece, Tensor
from tawa.cypress.trace import Iota, Launch, Loop, Make, Statement
from tawa.cypress.tree import Node
from tawa.errors import MappingError
from tawa.integers.expressions import Symbol
from tawa.language.dtypes import dtype, float32, int1
from tawa.runtime.dtypes import dtype_name, numpy_dtype


def run(root: Node, arrays: Mapping[str, Any]) -> None:
    """Run a program on NumPy arrays, in place."""
    sizes = sizes_of(arrays)
    env = {id(tensor): arrays[tensor.name] for tensor in root.parameters}
    _node(root, env, sizes)


def _node(node: Node, env: dict[int, Any], sizes: dict[Symbol, int]) -> None:
    if node.instance.variant.inner:
        _statements(node, node.statements, env, sizes)
        return
    arrays = [env[id(tensor)] for tensor in node.parameters]
    call(node.instance.variant, arrays, [tensor.element for tensor in node.parameters])


def call(variant: Variant, arrays: Sequence[Any], elements: Sequence[dtype]) -> None:
    """Run a leaf on arrays, in place."""
    function = _on_arrays(variant.function)
    made = function(*(_Array(a, element) for a, element in zip(arrays, elements, strict=True)))
    results = cast("tuple[Any, ...]", made if isinstance(made, tuple) else (made,))
    written = [a for n, a in zip(variant.parameters, arrays, strict=True) if n in variant.writes]
    for array, value in zip(written, results, strict=True):
        array[...] = _plain(value)


def unwritten(shape: Sequence[int], element: dtype) -> Any:
    """Return an array in which nothing is: what is read before it is written shows."""
    import numpy as np

    made = np.empty(tuple(shape), _numpy(element))
    made.reshape(-1).view("u1").fill(0xFF)
    return made


def places(count: int, start: Int, extent: Int | None, sizes: Mapping[Symbol, int]) -> Any:
    """Return the places of elements from `start` on, or whether they are below an extent."""
    import numpy as np

    at = np.arange(count, dtype=np.int32) + np.int32(evaluate(start, sizes))
    return at if extent is None else at < evaluate(extent, sizes)


def _statements(
    node: Node, statements: Sequence[Statement], env: dict[int, Any], sizes: dict[Symbol, int]
) -> None:
    for statement in statements:
        match statement:
            case Make(tensor):
                shape = tuple(evaluate(n, sizes) for n in tensor.shape)
                env[id(tensor)] = unwritten(shape, tensor.element)
            case Iota(tensor, part, axis, bounded):
                dim = part.dims[axis]
                extent = part.root.shape[dim] if bounded else None
                count = evaluate(part.shape[axis], sizes)
                env[id(tensor)] = places(count, part.offsets[dim], extent, sizes)
            case Loop():
                ranges = [range(evaluate(n, sizes)) for n in statement.extents]
                whole = _is_collective(statement.body)
                for point in product(*ranges):
                    at = dict(zip((i.symbol for i in statement.indices), point, strict=True))
                    _statements(node, statement.body, env, {**sizes, **at})
                    if whole:
                        break
            case Launch():
                _launch(node, statement, env, sizes)


def _is_collective(body: Sequence[Statement]) -> bool:
    """Tell whether a loop goes over the processors of one wgmma."""
    return any(
        isinstance(s, Launch) and any(t.piece is not None and t.piece.held for t in s.arguments)
        for s in body
    )


def _launch(node: Node, launch: Launch, env: dict[int, Any], sizes: dict[Symbol, int]) -> None:
    child = node.child(launch)
    inside: dict[int, Any] = {}
    for given, parameter in zip(launch.arguments, child.parameters, strict=True):
        inside[id(parameter)] = _take(given, env, sizes)
    _node(child, inside, sizes)
    writes = child.instance.variant.writes
    for name, given, parameter in zip(
        child.instance.variant.parameters, launch.arguments, child.parameters, strict=True
    ):
        if name in writes:
            _put(given, inside[id(parameter)], env, sizes)


def _take(tensor: Tensor, env: dict[int, Any], sizes: dict[Symbol, int]) -> Any:
    """Return a copy of a tensor; what passes the end is zero."""
    import numpy as np

    if tensor.piece is None:
        return env[id(tensor)].copy()
    above = _take(tensor.piece.of, env, sizes)
    if tensor.piece.held:
        return above
    shape, (inner, outer) = _box(tensor.piece, above.shape, sizes)
    made = np.zeros(shape, above.dtype)
    made[inner] = above[outer]
    return made.squeeze(tensor.piece.dropped)


def _put(tensor: Tensor, value: Any, env: dict[int, Any], sizes: dict[Symbol, int]) -> None:
    import numpy as np

    if tensor.piece is None:
        env[id(tensor)][...] = value
        return
    if tensor.piece.held:
        _put(tensor.piece.of, value, env, sizes)
        return
    above = _take(tensor.piece.of, env, sizes)
    _, (inner, outer) = _box(tensor.piece, above.shape, sizes)
    above[outer] = np.expand_dims(value, tensor.piece.dropped)[inner]
    _put(tensor.piece.of, above, env, sizes)


def _box(
    piece: Piece, extents: Sequence[int], sizes: Mapping[Symbol, int]
) -> tuple[tuple[int, ...], tuple[tuple[slice, ...], tuple[slice, ...]]]:
    """Return a part's shape, and where it and the tensor above overlap: in each of them."""
    shape = tuple(evaluate(n, sizes) for n in piece.block)
    starts = [evaluate(i, sizes) * n for i, n in zip(piece.index, shape, strict=True)]
    return shape, overlap(starts, shape, extents)


def overlap(
    starts: Sequence[int], shape: Sequence[int], extents: Sequence[int]
) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Return where a box and a tensor overlap: in the box, and in the tensor."""
    inner: list[slice] = []
    outer: list[slice] = []
    for start, size, extent in zip(starts, shape, extents, strict=True):
        low, high = max(start, 0), max(min(start + size, extent), 0)
        high = max(high, low)
        inner.append(slice(low - start, high - start))
        outer.append(slice(low, high))
    return tuple(inner), tuple(outer)


def _unary(function: Callable[[Any], Any]) -> Callable[[_Array], _Array]:
    return lambda x: _Array(function(x.data), x.dtype)


def _operator(
    function: Callable[[Any, Any], Any], turned: bool = False
) -> Callable[[_Array, Any], _Array]:
    return lambda self, other: self._with(other, function, turned)  # pyright: ignore[reportPrivateUsage]


class _Array:
    """An array that computes as tensors of the tile language do."""

    def __init__(self, data: Any, element: dtype) -> None:
        self.data, self.dtype = data, element

    @property
    def shape(self) -> tuple[int, ...]:
        return self.data.shape

    @property
    def T(self) -> _Array:  # noqa: N802
        return _Array(self.data.T, self.dtype)

    def to(self, element: dtype) -> _Array:
        return _Array(self.data.astype(_numpy(element)), element)

    def __getitem__(self, index: Any) -> _Array:
        return _Array(self.data[index], self.dtype)

    def _with(
        self, other: Any, function: Callable[[Any, Any], Any], turned: bool = False
    ) -> _Array:
        import numpy as np

        if isinstance(other, _Array) and other.dtype != self.dtype:
            raise MappingError(
                f"a leaf computes with {self.dtype} and {other.dtype} at once",
                why="the oracle follows no promotions",
                remedy="cast one of them by .to(...)",
            )
        given = _plain(other)
        if not isinstance(other, _Array):
            given = np.asarray(given, self.data.dtype)
        made = function(given, self.data) if turned else function(self.data, given)
        element = int1 if made.dtype == np.bool_ else self.dtype
        return _Array(made, element)

    __add__ = __radd__ = _operator(operator.add)
    __mul__ = __rmul__ = _operator(operator.mul)
    __sub__, __rsub__ = _operator(operator.sub), _operator(operator.sub, turned=True)
    __truediv__, __rtruediv__ = _operator(lambda a, b: a / b), _operator(lambda a, b: a / b, True)
    __and__, __or__ = _operator(lambda a, b: a & b), _operator(lambda a, b: a | b)
    __gt__, __ge__ = _operator(operator.gt), _operator(operator.ge)
    __lt__, __le__ = _operator(operator.lt), _operator(operator.le)

    def __neg__(self) -> _Array:
        return _Array(-self.data, self.dtype)


def _numpy(element: dtype) -> Any:
    return numpy_dtype(dtype_name(element))


def _plain(value: Any) -> Any:
    return value.data if isinstance(value, _Array) else value


class _Language:
    """The functions of the tile language that leaves may use in the oracle."""

    def __getattr__(self, name: str) -> Any:
        import numpy as np

        import tawa.language as tl

        value = getattr(tl, name)
        if isinstance(value, dtype):
            return value
        of_numpy: Any = getattr(np, name, None)
        if name in ("exp", "exp2", "log", "log2", "abs", "sqrt"):
            return _unary(of_numpy)
        if name in ("maximum", "minimum"):
            return _operator(of_numpy)
        raise MappingError(
            f"the oracle has no tl.{name}",
            why="it has dot, zeros, full, sum, max, maximum, minimum, where, exp, exp2, log, log2, "
            "abs, sqrt",
            remedy="compare with NumPy by hand",
        )

    def dot(self, a: _Array, b: _Array, acc: _Array | None = None, **_: Any) -> _Array:
        import numpy as np

        made = a.data.astype(np.float32) @ b.data.astype(np.float32)
        return _Array(made if acc is None else acc.data + made, float32)

    def zeros(self, shape: Any, dtype: dtype) -> _Array:
        return self.full(shape, 0, dtype)

    def full(self, shape: Any, value: Any, dtype: dtype) -> _Array:
        import numpy as np

        return _Array(np.full(tuple(shape), value, _numpy(dtype)), dtype)

    def sum(self, x: _Array, axis: int, keep_dims: bool = False) -> _Array:
        return _Array(x.data.sum(axis, dtype=x.data.dtype, keepdims=keep_dims), x.dtype)

    def max(self, x: _Array, axis: int, keep_dims: bool = False) -> _Array:
        return _Array(x.data.max(axis, keepdims=keep_dims), x.dtype)

    def where(self, condition: _Array, one: Any, other: Any) -> _Array:
        import numpy as np

        kind = one if isinstance(one, _Array) else other
        where: Any = np.where
        made = where(condition.data, _plain(one), _plain(other)).astype(kind.data.dtype)
        return _Array(made, kind.dtype)


def _on_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a leaf's function with the oracle's functions in place of the language's."""
    language = _Language()
    names = {
        name: language
        for name, value in function.__globals__.items()
        if isinstance(value, ModuleType) and value.__name__ == "tawa.language"
    }
    made = FunctionType(
        function.__code__,
        {**function.__globals__, **names},
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    return made
