"""Names of element types: every library's spelling onto the one of `tawa.ir.types.SCALARS`.

The table is plain text so that reading a dtype imports no library: torch prints ``torch.bfloat16``,
NumPy and ml_dtypes have ``.name``, Triton's and our own language dtypes have ``.name``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType

from tawa.element_types import ELEMENT_TYPES
from tawa.element_types import numpy_dtype as numpy_dtype
from tawa.errors import ArgumentError

_BY_NAME = {
    theirs: name
    for name, kind in ELEMENT_TYPES.items()
    for theirs in (name, kind.language, *kind.others)
}
BYTES = {name: kind.bytes for name, kind in ELEMENT_TYPES.items()}
"""Bytes of one element in memory; a boolean takes a byte."""
PACK = {name: kind.letter for name, kind in ELEMENT_TYPES.items()}
"""The `struct` letter that packs a scalar parameter of each type; some go through `BITS`."""


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
    if not getattr(dtype, "isnative", True):
        raise ArgumentError(
            f"an array holds {text} in the byte order of other machines",
            why="a kernel reads numbers in the machine's own order",
            remedy='convert it first: x.astype(x.dtype.newbyteorder("="))',
        )
    if (name := find_dtype(text)) is None:
        raise ArgumentError(
            f"the element type {text} has no counterpart in a kernel",
            why="the types are " + ", ".join(ELEMENT_TYPES),
            remedy="convert the array first",
        )
    return name


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

    return int(np.asarray(value, np.float32).astype(numpy_dtype(name)).view(np.uint8))


BITS: Mapping[str, Callable[[float], int]] = MappingProxyType(
    {"bf16": bf16_bits, "f8e4m3": f8e4m3_bits, "f8e5m2": f8e5m2_bits}
)
"""What makes the bits of a number of a type that `struct` does not know."""
