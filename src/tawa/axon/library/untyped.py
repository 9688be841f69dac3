"""Arrays whose element type nothing says: `cast`, `zeros`, `iota` without an annotation give them.

Types say that both operands of `+` have one element type, so such an array takes that of what it
meets, and keeps its own (f32, of `iota` i64) where it meets nothing.
"""
# pyright: basic, reportCallIssue=false, reportArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

# Functions all of whose arrays have one element type, as those of functions of elements do; other
# functions take indices besides, so there only types of floats are those of what is computed.
JOINS = ("where", "concatenate", "stack")


class Untyped(np.ndarray):
    """An array of NumPy; functions of it and arrays with types are computed in these types."""

    untyped = True

    def __getitem__(self, key: Any) -> Any:
        return untyped(super().__getitem__(key))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return self._apply(getattr(ufunc, method), inputs, options, numbers=True)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        def plain(*inputs: Any, **options: Any) -> Any:
            return func(*inputs, **options)

        return self._apply(plain, args, kwargs, numbers=func.__name__ in JOINS)

    def _apply(
        self, function: Callable[..., Any], inputs: Sequence[Any], options: Any, *, numbers: bool
    ) -> Any:
        if any(not isinstance(each, np.ndarray | np.generic) for each in arrays(inputs)):
            return NotImplemented  # the other library knows what to do
        inputs, loose = met(inputs, numbers=numbers)
        found = function(*fixed(inputs), **{name: fixed(each) for name, each in options.items()})
        return marked(found) if loose else found


def untyped(value: Any) -> Any:
    """Return an array, of NumPy or of a library that can say so, as one of no type."""
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value).view(Untyped)
    return value.as_untyped() if hasattr(value, "as_untyped") else value


def is_untyped(value: Any) -> bool:
    """Tell whether an array, of any library, has no type."""
    return getattr(value, "untyped", False)


def fixed(value: Any) -> Any:
    """Return a value whose arrays of NumPy have the types that they have now."""
    if isinstance(value, tuple | list):
        return type(value)([fixed(item) for item in value])
    return value.view(np.ndarray) if isinstance(value, Untyped) else value


def marked(value: Any) -> Any:
    """Return a value whose arrays of NumPy have no type, but those of bools."""
    if isinstance(value, tuple | list):
        return type(value)([marked(item) for item in value])
    numeric = isinstance(value, np.ndarray | np.generic) and value.dtype.kind != "b"
    return untyped(value) if numeric else value


def arrays(inputs: Any) -> list[Any]:
    """Return the arrays among the arguments of a function, in order."""
    if isinstance(inputs, tuple | list):
        return [each for item in inputs for each in arrays(item)]
    return [inputs] if hasattr(inputs, "dtype") and hasattr(inputs, "shape") else []


def met(inputs: Any, *, numbers: bool) -> tuple[Any, bool]:
    """Return arguments whose arrays without a type have that of the others.

    And whether there are none with types but bools, so that what they give has no type either.
    `numbers`: whether integers among the arguments are what is computed with, not indices.
    """
    types = [(each, str(each.dtype).removeprefix("torch.")) for each in arrays(inputs)]
    if not any(is_untyped(each) for each, _ in types):
        return inputs, numbers and all(name == "bool" for _, name in types)
    kinds = ("float", "bfloat", "int", "uint")[: 4 if numbers else 2]
    found = [each for each, name in types if not is_untyped(each) and name.startswith(kinds)]
    if not found:
        return inputs, True

    def one(value: Any) -> Any:
        if isinstance(value, tuple | list):
            return type(value)([one(item) for item in value])
        return fixed(value.astype(found[0].dtype)) if is_untyped(value) else value

    return one(inputs), False
