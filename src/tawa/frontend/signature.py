"""What a kernel is compiled for: one entry for each parameter, the frontend's only input on types.

A parameter that is a tuple has one for each item besides, under names of their own.

The launcher derives a signature from the arguments of a call; equal signatures share a compilation.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeAlias, cast


@dataclass(frozen=True, slots=True)
class ScalarArg:
    """A number passed by value. `dtype` as in `tawa.ir.types.SCALARS`; `divisible` by 16, else
    `by_eight` where by 8: rows of so many 16-bit elements are what TMA can step over.
    """

    dtype: str
    divisible: bool = False
    by_eight: bool = False


@dataclass(frozen=True, slots=True)
class PointerArg:
    """The address of an array's first element; `divisible`: aligned to 16 bytes."""

    dtype: str
    divisible: bool = False


@dataclass(frozen=True, slots=True)
class DescriptorArg:
    """A host descriptor: element type, block shape, padding ("zero" or "nan"); `ragged`: its rows
    end inside 16 bytes, which TMA writes whole.
    """

    dtype: str
    block_shape: tuple[int, ...]
    padding: str = "zero"
    ragged: bool = False


@dataclass(frozen=True, slots=True)
class ConstantArg:
    """A compile-time value: a constexpr parameter, None, or an int specialised to 1."""

    value: object


@dataclass(frozen=True, slots=True)
class TupleArg:
    """A tuple (with `fields`: a named one) of other entries of the signature, by their names."""

    items: tuple[str, ...]
    fields: tuple[str, ...] = ()


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


_EXACT = frozenset((int, str, bytes, type(None), type))


Argument: TypeAlias = ScalarArg | PointerArg | DescriptorArg | ConstantArg | TupleArg
Signature: TypeAlias = Mapping[str, Argument]
