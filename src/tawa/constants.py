"""When two compile-time constants are the same: by type and bits, not by ``==``."""

from __future__ import annotations

import struct
from dataclasses import fields, is_dataclass
from typing import Any, cast

_EXACT = frozenset((int, str, bytes, type(None), type))


def freeze(value: Any) -> Any:
    """Return a hashable twin that is equal only for what is the same constant: by type and bits.

    1, 1.0 and True differ, 0.0 and -0.0; a NaN is one. The same in tuples, lists, sets, dicts and
    dataclasses. What is hashable and none of these is its own twin.
    """
    kind = cast("type[object]", type(value))
    if kind in _EXACT:
        return value
    match value:
        case bool():
            return bool, value
        case float():
            return kind, struct.pack("<d", value)
        case complex():
            return kind, struct.pack("<dd", value.real, value.imag)
        case dict():
            items = ((freeze(k), freeze(v)) for k, v in value.items())  # pyright: ignore
            return kind, tuple(sorted(items, key=repr))
        case set() | frozenset():
            return kind, tuple(sorted(map(freeze, value), key=repr))  # pyright: ignore
        case list() | tuple():
            return kind, tuple(map(freeze, value))  # pyright: ignore
        case _ if is_dataclass(value) and not isinstance(value, type):
            return kind, tuple(freeze(getattr(value, field.name)) for field in fields(value))
        case _ if kind.__name__ == "constexpr":
            return kind, freeze(value.value)
        case _ if getattr(value, "shape", None) == () and hasattr(value, "tobytes"):
            return kind, value.tobytes()  # a NumPy scalar
        case _:
            return value


def is_exact(value: Any) -> bool:
    """Tell whether an equal constant of the same type is the same."""
    kind = cast("type[object]", type(value))
    if kind is float:
        return value != 0 and value == value
    return kind is bool or freeze(value) is value
