"""How elements of each scalar type live in C++: as a scalar, and packed in registers.

Floats of 16 and 8 bits are kept as their bits; arithmetic on them is done in float and rounded once
(`tawa.ir.functions`). In tensors they and the narrow integers are packed into 32-bit words, so that
neighbouring registers of a layout are neighbours in a word: the form wgmma, stmatrix and vector
accesses want. i1 is a bool an element; pointers are 64-bit addresses.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from xdsl.dialects.builtin import (
    BFloat16Type,
    Float8E4M3FNType,
    Float8E5M2Type,
    Float16Type,
    Float32Type,
    Float64Type,
    IntegerType,
)
from xdsl.ir import Attribute

from tawa.errors import InternalError
from tawa.ir.types import PtrType, is_signed


@dataclass(frozen=True, slots=True)
class Element:
    """A scalar type in C++.

    `name` is its spelling in wrappers' names (bf16, i32); `storage` the C type of a scalar,
    `compute` the type arithmetic is done in; `word` the type of an array entry of a tensor and
    `packed` the elements one entry holds.
    """

    name: str
    bits: int
    storage: str
    compute: str
    word: str
    packed: int = 1

    @property
    def is_small_float(self) -> bool:
        """Whether values are kept as bits and computed in float."""
        return self.compute == "float" and self.storage != "float"

    @property
    def is_float(self) -> bool:
        """Whether it is a floating-point type."""
        return self.compute in ("float", "double")

    @property
    def is_signed(self) -> bool:
        """Whether it is a signed integer."""
        return self.name.startswith("i") and self.bits > 1

    @property
    def unsigned(self) -> str:
        """The unsigned C type integers of this type wrap in."""
        return "u64" if self.bits == 64 else "u32"

    def words(self, count: int) -> int:
        """Return the array entries that `count` elements take."""
        return -(-count // self.packed)


_SMALL_FLOATS = {
    BFloat16Type: ("bf16", 16),
    Float16Type: ("f16", 16),
    Float8E4M3FNType: ("f8e4m3", 8),
    Float8E5M2Type: ("f8e5m2", 8),
}
_INTEGERS = {8: ("signed char", "u8"), 16: ("short", "u16"), 32: ("int", "u32"), 64: ("i64", "u64")}
ADDRESS = Element("ptr", 64, "u64", "u64", "u64")


@lru_cache(maxsize=256)
def element_of(kind: Attribute) -> Element:
    """Return how a scalar type lives in C++; raises InternalError for types without one."""
    match kind:
        case PtrType():
            return ADDRESS
        case Float64Type():
            return Element("f64", 64, "double", "double", "double")
        case BFloat16Type() | Float16Type() | Float8E4M3FNType() | Float8E5M2Type():
            name, bits = _SMALL_FLOATS[type(kind)]
            return Element(name, bits, f"u{bits}", "float", "u32", 32 // bits)
        case Float32Type():
            return Element("f32", 32, "float", "float", "float")
        case IntegerType() if kind.width.data == 1:
            return Element("i1", 1, "bool", "bool", "bool")
        case IntegerType() if kind.width.data in _INTEGERS:
            bits = kind.width.data
            signed, unsigned = _INTEGERS[bits]
            storage = signed if is_signed(kind) else unsigned
            compute = storage if bits >= 32 else "int"
            word = storage if bits >= 32 else "u32"
            packed = max(1, 32 // bits)
            return Element(
                f"{'i' if is_signed(kind) else 'u'}{bits}", bits, storage, compute, word, packed
            )
        case _:
            raise InternalError(f"no C++ type for {kind}")
