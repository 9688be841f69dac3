"""Element types: the one table of what they are called and how wide they are.

Plain text, so that reading it imports no library.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class ElementType:
    """An element type: `name` in IR, plans and errors, `language` in kernels (Triton's).

    `mantissa` are the stored bits of a float's significand, `letter` is `struct`'s for an element
    or its bits; `others` are names of libraries, NumPy's or ml_dtypes' first.
    """

    name: str
    language: str
    kind: Literal["bool", "int", "uint", "float"]
    bits: int
    letter: str
    others: tuple[str, ...]
    mantissa: int = 0

    @property
    def bytes(self) -> int:
        """Bytes of an element in memory; a boolean takes a byte."""
        return max(1, self.bits // 8)


ELEMENT_TYPES = {
    each.name: each
    for each in (
        ElementType("i1", "int1", "bool", 1, "?", ("bool", "bool_", "u1")),
        ElementType("i8", "int8", "int", 8, "b", ("int8",)),
        ElementType("i16", "int16", "int", 16, "h", ("int16", "short")),
        ElementType("i32", "int32", "int", 32, "i", ("int32", "int")),
        ElementType("i64", "int64", "int", 64, "q", ("int64", "long")),
        ElementType("u8", "uint8", "uint", 8, "B", ("uint8",)),
        ElementType("u16", "uint16", "uint", 16, "H", ("uint16",)),
        ElementType("u32", "uint32", "uint", 32, "I", ("uint32",)),
        ElementType("u64", "uint64", "uint", 64, "Q", ("uint64",)),
        ElementType(
            "f8e4m3", "fp8e4nv", "float", 8, "B", ("float8_e4m3fn", "float8e4nv", "e4m3"), 3
        ),
        ElementType("f8e5m2", "fp8e5", "float", 8, "B", ("float8_e5m2", "float8e5", "e5m2"), 2),
        ElementType("f16", "fp16", "float", 16, "e", ("float16", "half"), 10),
        ElementType("bf16", "bf16", "float", 16, "H", ("bfloat16",), 7),
        ElementType("f32", "fp32", "float", 32, "f", ("float32", "float"), 23),
        ElementType("f64", "fp64", "float", 64, "d", ("float64", "double"), 52),
    )
}


def numpy_dtype(name: str) -> Any:
    """Return the NumPy dtype (ml_dtypes' for bf16 and fp8) of an element type."""
    import ml_dtypes
    import numpy as np

    theirs = ELEMENT_TYPES[name].others[0]
    return np.dtype(getattr(ml_dtypes, theirs, None) or theirs)
