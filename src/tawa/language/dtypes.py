"""Element types: ``tl.float16``, ``tl.int32``, ``tl.pointer_type`` ... as plain Python values.

They are compile-time constants inside a kernel, so their attributes can be used in constexpr code:
``if x.dtype.primitive_bitwidth < 32``. Names and predicates are those of triton.language, and a
dtype of either library is recognised by its ``name``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from math import prod

from tawa.element_types import ELEMENT_TYPES

# Name → (kind, width in bits, mantissa bits). Order of kinds: bool < int < float.
_TABLE: dict[str, tuple[str, int, int]] = {
    "void": ("void", 0, 0),
    **{each.language: (each.kind, each.bits, each.mantissa) for each in ELEMENT_TYPES.values()},
}


def _is(name: str, called: str) -> Callable[[dtype], bool]:
    """Return the method that tells whether a type is that of a name."""

    def asked(self: dtype) -> bool:
        return self.name == name

    asked.__doc__ = f"Tell whether the type is {called}."
    return asked


class dtype:  # noqa: N801
    """The type of an element.

    `name` is Triton's short name ("fp16", "int32"), `primitive_bitwidth` the width in bits.
    """

    __slots__ = ("name",)

    class SIGNEDNESS(Enum):
        """How an integer type is read."""

        SIGNED = 0
        UNSIGNED = 1

    class KIND(Enum):
        """The order in which kinds win a promotion against a Python number."""

        BOOLEAN = 0
        INTEGRAL = 1
        FLOATING = 2

    def __init__(self, name: str) -> None:
        """Name a type of the table; raises ValueError for an unknown name."""
        if name not in _TABLE:
            raise ValueError(f"no element type is called {name!r}; there are: {', '.join(_TABLE)}")
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, dtype) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return self.name

    __str__ = __repr__

    @property
    def _class(self) -> str:
        return _TABLE[self.name][0]

    @property
    def primitive_bitwidth(self) -> int:
        """Width of an element in bits; 1 for int1."""
        return _TABLE[self.name][1]

    @property
    def itemsize(self) -> int:
        """Bytes of an element in memory."""
        return max(1, self.primitive_bitwidth // 8)

    @property
    def int_bitwidth(self) -> int:
        """Width of an integer type in bits."""
        return self.primitive_bitwidth

    @property
    def fp_mantissa_width(self) -> int:
        """Stored bits of the significand of a floating-point type."""
        return _TABLE[self.name][2]

    @property
    def int_signedness(self) -> dtype.SIGNEDNESS:
        """Whether an integer type is signed; int1 is not, as in Triton."""
        return self.SIGNEDNESS.SIGNED if self._class == "int" else self.SIGNEDNESS.UNSIGNED

    @property
    def scalar(self) -> dtype:
        """The element type itself (a block type gives its element type here)."""
        return self

    def kind(self) -> dtype.KIND:
        """Return the promotion kind."""
        if self.is_floating():
            return self.KIND.FLOATING
        return self.KIND.BOOLEAN if self._class == "bool" else self.KIND.INTEGRAL

    def is_fp8(self) -> bool:
        """Tell whether the type is one of the 8-bit floats."""
        return self.name.startswith("fp8")

    is_fp8e4nv = _is("fp8e4nv", "float8e4nv (e4m3)")
    is_fp8e5 = _is("fp8e5", "float8e5 (e5m2)")
    is_fp16 = _is("fp16", "float16")
    is_bf16 = _is("bf16", "bfloat16")
    is_fp32 = _is("fp32", "float32")
    is_fp64 = _is("fp64", "float64")
    is_int1 = _is("int1", "int1")
    is_int8 = _is("int8", "int8")
    is_int16 = _is("int16", "int16")
    is_int32 = _is("int32", "int32")
    is_int64 = _is("int64", "int64")
    is_uint8 = _is("uint8", "uint8")
    is_uint16 = _is("uint16", "uint16")
    is_uint32 = _is("uint32", "uint32")
    is_uint64 = _is("uint64", "uint64")

    def is_bool(self) -> bool:
        """Tell whether the type is int1."""
        return self._class == "bool"

    def is_int(self) -> bool:
        """Tell whether the type is an integer of any width, int1 included."""
        return self._class in ("bool", "int", "uint")

    def is_int_signed(self) -> bool:
        """Tell whether the type is a signed integer."""
        return self._class == "int"

    def is_int_unsigned(self) -> bool:
        """Tell whether the type is an unsigned integer; int1 counts, as in Triton."""
        return self._class in ("bool", "uint")

    def is_floating(self) -> bool:
        """Tell whether the type is a floating-point type."""
        return self._class == "float"

    def is_standard_floating(self) -> bool:
        """Tell whether the type is a float of 16 bits or more."""
        return self.is_floating() and not self.is_fp8()

    def is_ptr(self) -> bool:
        """Tell whether the type is a pointer."""
        return False

    def is_block(self) -> bool:
        """Tell whether the type has a shape."""
        return False

    def is_void(self) -> bool:
        """Tell whether the type is the absence of a value."""
        return self._class == "void"

    def get_int_max_value(self) -> int:
        """Return the largest value of an integer type."""
        bits = self.primitive_bitwidth
        return (1 << bits) - 1 if self._class in ("uint", "bool") else (1 << (bits - 1)) - 1

    def get_int_min_value(self) -> int:
        """Return the smallest value of an integer type."""
        return -(1 << (self.primitive_bitwidth - 1)) if self._class == "int" else 0


class pointer_type(dtype):  # noqa: N801
    """The type of a pointer to elements of `element_ty`."""

    __slots__ = ("const", "element_ty")

    def __init__(self, element_ty: dtype, address_space: int = 1, const: bool = False) -> None:
        """Point to `element_ty` in global memory, the only address space there is."""
        if address_space != 1:
            raise ValueError(f"only address space 1 (global memory) exists, got {address_space}")
        self.element_ty = element_ty
        self.const = const
        self.name = f"pointer<{element_ty.name}>"

    @property
    def _class(self) -> str:
        return "pointer"

    @property
    def primitive_bitwidth(self) -> int:
        """Width of an address: 64 bits."""
        return 64

    def is_ptr(self) -> bool:
        """Tell whether the type is a pointer: yes."""
        return True

    def is_fp8(self) -> bool:
        """Tell whether the type is one of the 8-bit floats: a pointer is not."""
        return False

    def is_const(self) -> bool:
        """Tell whether the memory behind the pointer may not be written."""
        return self.const


class block_type(dtype):  # noqa: N801
    """The type of a tensor: element type and shape (what ``x.type`` gives)."""

    __slots__ = ("element_ty", "shape")

    def __init__(self, element_ty: dtype, shape: Sequence[int]) -> None:
        """Describe a tensor of `shape`."""
        self.element_ty = element_ty
        self.shape = tuple(shape)
        self.name = f"<{list(self.shape)}, {element_ty.name}>"

    @property
    def _class(self) -> str:
        return "block"

    @property
    def primitive_bitwidth(self) -> int:
        """Width of an element in bits."""
        return self.element_ty.primitive_bitwidth

    @property
    def scalar(self) -> dtype:
        """The element type."""
        return self.element_ty

    @property
    def numel(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    def get_block_shapes(self) -> tuple[int, ...]:
        """Return the shape."""
        return self.shape

    def is_block(self) -> bool:
        """Tell whether the type has a shape: yes."""
        return True

    def is_fp8(self) -> bool:
        """Tell whether the elements are 8-bit floats."""
        return self.element_ty.is_fp8()


void = dtype("void")
int1 = dtype("int1")
int8 = dtype("int8")
int16 = dtype("int16")
int32 = dtype("int32")
int64 = dtype("int64")
uint8 = dtype("uint8")
uint16 = dtype("uint16")
uint32 = dtype("uint32")
uint64 = dtype("uint64")
float8e4nv = dtype("fp8e4nv")
float8e5 = dtype("fp8e5")
float16 = dtype("fp16")
bfloat16 = dtype("bf16")
float32 = dtype("fp32")
float64 = dtype("fp64")
pi32_t = pointer_type(int32)
