"""Names of element types: every library's spelling onto the one of `tawa.ir.types.SCALARS`.

The table is plain text so that reading a dtype imports no library: torch prints ``torch.bfloat16``,
NumPy and ml_dtypes have ``.name``, Triton's and our own language dtypes have ``.name``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from tawa.errors import ArgumentError

_ALIASES = {
    "i1": ("bool", "bool_", "int1", "u1"),
    "i8": ("int8",),
    "i16": ("int16", "short"),
    "i32": ("int32", "int"),
    "i64": ("int64", "long"),
    "u8": ("uint8",),
    "u16": ("uint16",),
    "u32": ("uint32",),
    "u64": ("uint64",),
    "f8e4m3": ("float8_e4m3fn", "fp8e4nv", "float8e4nv", "e4m3"),
    "f8e5m2": ("float8_e5m2", "fp8e5", "float8e5", "e5m2"),
    "f16": ("float16", "fp16", "half"),
    "bf16": ("bfloat16",),
    "f32": ("float32", "fp32", "float"),
    "f64": ("float64", "fp64", "double"),
}
_BY_NAME = {alias: name for name, aliases in _ALIASES.items() for alias in (name, *aliases)}

BYTES = {
    **dict.fromkeys(("i1", "i8", "u8", "f8e4m3", "f8e5m2"), 1),
    **dict.fromkeys(("i16", "u16", "f16", "bf16"), 2),
    **dict.fromkeys(("i32", "u32", "f32"), 4),
    **dict.fromkeys(("i64", "u64", "f64"), 8),
}
"""Bytes of one element in memory; a boolean takes a byte."""


def find_dtype(text: str) -> str | None:
    """Return our spelling of a dtype's name (``torch.float16``, ``fp16``, ``f16``), if known."""
    return _BY_NAME.get(text.removeprefix("const ").rpartition(".")[2].strip())


@lru_cache(maxsize=256)
def dtype_name(dtype: object) -> str:
    """Return our spelling of a library's dtype object, or raise ArgumentError.

    >>> dtype_name("float16")
    'f16'
    """
    text = dtype if isinstance(dtype, str) else str(getattr(dtype, "name", None) or dtype)
    if (name := find_dtype(text)) is None:
        raise ArgumentError(
            f"the element type {text} has no counterpart in a kernel",
            why="the types are " + ", ".join(_ALIASES),
            remedy="convert the array first",
        )
    return name


def numpy_dtype(name: str) -> object:
    """Return the NumPy dtype (ml_dtypes for bf16 and fp8) of one of our names."""
    import ml_dtypes
    import numpy as np

    special = {
        "i1": np.bool_,
        "bf16": ml_dtypes.bfloat16,
        "f8e4m3": ml_dtypes.float8_e4m3fn,
        "f8e5m2": ml_dtypes.float8_e5m2,
    }
    return np.dtype(special.get(name) or _ALIASES[name][0])


PACK = {
    "i1": "?",
    "i8": "b",
    "i16": "h",
    "i32": "i",
    "i64": "q",
    "u8": "B",
    "u16": "H",
    "u32": "I",
    "u64": "Q",
    "f16": "e",
    "bf16": "H",
    "f8e4m3": "B",
    "f8e5m2": "B",
    "f32": "f",
    "f64": "d",
}
"""The `struct` letter that packs a scalar parameter of each type; some go through `BITS`."""


def bf16_bits(value: float) -> int:
    """Return the 16 bits of `value` rounded to the nearest bfloat16, ties to even."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    if bits & 0x7FFFFFFF > 0x7F800000:
        return bits >> 16 | 0x40  # a NaN stays a NaN
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def f8e4m3_bits(value: float) -> int:
    """Return the 8 bits of `value` rounded to the nearest float8e4nv, ties to even."""
    return _fp8_bits(value, "f8e4m3")


def f8e5m2_bits(value: float) -> int:
    """Return the 8 bits of `value` rounded to the nearest float8e5, ties to even."""
    return _fp8_bits(value, "f8e5m2")


def _fp8_bits(value: float, name: str) -> int:
    import numpy as np

    dtype: Any = numpy_dtype(name)
    return int(np.asarray(value, np.float32).astype(dtype).view(np.uint8))


BITS: Mapping[str, Callable[[float], int]] = MappingProxyType(
    {"bf16": bf16_bits, "f8e4m3": f8e4m3_bits, "f8e5m2": f8e5m2_bits}
)
"""What makes the bits of a number of a type that `struct` does not know."""
