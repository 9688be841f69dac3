"""Compile-time constants, the functions that compute with them, and classes of values."""

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

import operator
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, constexpr) else value


_Operator: TypeAlias = "Callable[[constexpr, Any], constexpr]"


def _left(function: Callable[[Any, Any], Any]) -> _Operator:
    """Return the operator of a constant and what stands on its right."""
    return lambda self, other: constexpr(function(self.value, _plain(other)))


def _right(function: Callable[[Any, Any], Any]) -> _Operator:
    """Return the operator of a constant and what stands on its left."""
    return lambda self, other: constexpr(function(_plain(other), self.value))


class constexpr:  # noqa: N801
    """A value known when the kernel is compiled.

    As an annotation (``BLOCK: tl.constexpr``) it marks a parameter or a local as such; as a value
    (``LIMIT = tl.constexpr(8)``) it lets a kernel read a global. Arithmetic on constants is
    Python's, on the host as in a kernel.
    """

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        """Wrap `value`; a constexpr of a constexpr is the same constant."""
        self.value: Any = _plain(value)

    def __repr__(self) -> str:
        return f"constexpr[{self.value}]"

    def __hash__(self) -> int:
        return hash(self.value)

    def __index__(self) -> int:
        return int(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __eq__(self, other: object) -> Any:
        return constexpr(self.value == _plain(other))

    def __ne__(self, other: object) -> Any:
        return constexpr(self.value != _plain(other))

    __lt__, __le__ = _left(operator.lt), _left(operator.le)
    __gt__, __ge__ = _left(operator.gt), _left(operator.ge)
    __add__, __radd__ = _left(operator.add), _right(operator.add)
    __sub__, __rsub__ = _left(operator.sub), _right(operator.sub)
    __mul__, __rmul__ = _left(operator.mul), _right(operator.mul)
    __truediv__, __rtruediv__ = _left(operator.truediv), _right(operator.truediv)
    __floordiv__, __rfloordiv__ = _left(operator.floordiv), _right(operator.floordiv)
    __mod__, __rmod__ = _left(operator.mod), _right(operator.mod)
    __pow__, __rpow__ = _left(operator.pow), _right(operator.pow)
    __lshift__, __rshift__ = _left(operator.lshift), _left(operator.rshift)
    __and__, __or__, __xor__ = _left(operator.and_), _left(operator.or_), _left(operator.xor)

    def __neg__(self) -> constexpr:
        return constexpr(-self.value)

    def __pos__(self) -> constexpr:
        return constexpr(+self.value)

    def __invert__(self) -> constexpr:
        return constexpr(~self.value)

    def __getitem__(self, index: Any) -> constexpr:
        return constexpr(self.value[_plain(index)])


class ConstexprFunction:
    """A Python function that runs when the kernel is compiled; see `constexpr_function`."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn
        self.__name__ = fn.__name__
        self.__doc__ = fn.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function with constants unwrapped."""
        plain = [_plain(value) for value in args]
        named = {name: _plain(value) for name, value in kwargs.items()}
        return self.fn(*plain, **named)


def constexpr_function(function: Callable[..., Any]) -> ConstexprFunction:
    """Let kernels call a Python function at compile time, on constants.

    The function sees plain Python values and may be called from host code too.

    >>> @tawa.constexpr_function
    ... def half(n):
    ...     return n // 2
    >>> half(64)
    32
    """
    return ConstexprFunction(function)


def aggregate(kind: type[T]) -> type[T]:
    """Make a class whose objects are values of a kernel: annotated fields, and functions of them.

    A field is a ``tl.tensor``, ``tl.constexpr``, ``tl.tuple``, ``tl.tensor_descriptor`` or another
    aggregate. Objects are made in kernels: by ``__init__(self, ...)``, which gives each field its
    value once it has run, else from the fields in order, which may have defaults. They pass through
    branches, loops and calls; no field changes afterwards (`tl.aggregate_replace` makes a copy).
    Functions under ``@tawa.jit`` are its methods, ``__add__`` and the like its operators.
    Triton's `triton.aggregate` (``tl.core._aggregate`` until 3.8) is taken likewise.

    >>> @tawa.aggregate
    ... class Line:
    ...     slope: tl.tensor
    ...     start: tl.tensor
    ...
    ...     @tawa.jit
    ...     def at(self, x):
    ...         return self.slope * x + self.start
    >>> @tawa.jit
    ... def draw(out, slope, N: tl.constexpr):
    ...     line = Line(slope, tl.program_id(0))
    ...     tl.store(out + tl.arange(0, N), line.at(tl.arange(0, N)))
    >>> out = np.zeros(4, np.int32)
    >>> made = draw[1,](out, 3, N=4)
    >>> out.tolist()
    [0, 3, 6, 9]
    """
    marked: Any = kind
    marked.__triton_aggregate__ = True
    functions = (v for v in vars(kind).values() if isinstance(v, FunctionType) or hasattr(v, "fn"))
    marked.hash_attrs = tuple(functions)
    return kind
