"""Compile-time constants and the functions that compute with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, constexpr) else value


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

    def __lt__(self, other: Any) -> constexpr:
        return constexpr(self.value < _plain(other))

    def __le__(self, other: Any) -> constexpr:
        return constexpr(self.value <= _plain(other))

    def __gt__(self, other: Any) -> constexpr:
        return constexpr(self.value > _plain(other))

    def __ge__(self, other: Any) -> constexpr:
        return constexpr(self.value >= _plain(other))

    def __add__(self, other: Any) -> constexpr:
        return constexpr(self.value + _plain(other))

    def __radd__(self, other: Any) -> constexpr:
        return constexpr(_plain(other) + self.value)

    def __sub__(self, other: Any) -> constexpr:
        return constexpr(self.value - _plain(other))

    def __rsub__(self, other: Any) -> constexpr:
        return constexpr(_plain(other) - self.value)

    def __mul__(self, other: Any) -> constexpr:
        return constexpr(self.value * _plain(other))

    def __rmul__(self, other: Any) -> constexpr:
        return constexpr(_plain(other) * self.value)

    def __truediv__(self, other: Any) -> constexpr:
        return constexpr(self.value / _plain(other))

    def __rtruediv__(self, other: Any) -> constexpr:
        return constexpr(_plain(other) / self.value)

    def __floordiv__(self, other: Any) -> constexpr:
        return constexpr(self.value // _plain(other))

    def __rfloordiv__(self, other: Any) -> constexpr:
        return constexpr(_plain(other) // self.value)

    def __mod__(self, other: Any) -> constexpr:
        return constexpr(self.value % _plain(other))

    def __rmod__(self, other: Any) -> constexpr:
        return constexpr(_plain(other) % self.value)

    def __pow__(self, other: Any) -> constexpr:
        return constexpr(self.value ** _plain(other))

    def __rpow__(self, other: Any) -> constexpr:
        return constexpr(_plain(other) ** self.value)

    def __lshift__(self, other: Any) -> constexpr:
        return constexpr(self.value << _plain(other))

    def __rshift__(self, other: Any) -> constexpr:
        return constexpr(self.value >> _plain(other))

    def __and__(self, other: Any) -> constexpr:
        return constexpr(self.value & _plain(other))

    def __or__(self, other: Any) -> constexpr:
        return constexpr(self.value | _plain(other))

    def __xor__(self, other: Any) -> constexpr:
        return constexpr(self.value ^ _plain(other))

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
