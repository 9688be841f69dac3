"""How elements of each scalar type live in C++: as a scalar, and packed in registers.

Floats of 16 and 8 bits are kept as their bits; arithmetic on them is done in float and rounded once
(`tawa.ir.functions`). In tensors they and the narrow integers are packed into 32-bit words, so that
neighbouring registers of a layout are neighbours in a word: the form wgmma, stmatrix and vector
accesses want. i1 is a bool an element; pointers are 64-bit addresses.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from xdsl.ir import Attribute

from tawa.errors import InternalError
from tawa.ir.types import SCALARS, PtrType, bit_width, is_signed, spell


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


_INTEGERS = {8: ("signed char", "u8"), 16: ("short", "u16"), 32: ("int", "u32"), 64: ("i64", "u64")}
_WHOLE = {"f32": "float", "f64": "double", "i1": "bool"}
ADDRESS = Element("ptr", 64, "u64", "u64", "u64")


@lru_cache(maxsize=256)
def element_of(kind: Attribute) -> Element:
    """Return how a scalar type lives in C++; raises InternalError for types without one."""
    name = spell(kind)
    if isinstance(kind, PtrType):
        return ADDRESS
    if name not in SCALARS:
        raise InternalError(f"no C++ type for {kind}")
    bits = bit_width(kind)
    if (whole := _WHOLE.get(name)) is not None:
        return Element(name, bits, whole, whole, whole)
    if name.startswith(("f", "bf")):
        return Element(name, bits, f"u{bits}", "float", "u32", 32 // bits)
    storage = _INTEGERS[bits][not is_signed(kind)]
    if bits >= 32:
        return Element(name, bits, storage, storage, storage)
    return Element(name, bits, storage, "int", "u32", 32 // bits)
