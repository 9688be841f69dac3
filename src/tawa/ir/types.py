"""Types of the dialects: pointers, descriptors, arefs, shared memory, barriers; register layouts.

Tensors are xDSL's `TensorType`; before layouts are chosen its encoding is absent, afterwards it is
a `LayoutAttr`. Scalars are the builtin integers and floats.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from typing import TypeAlias, TypeVar, cast

from xdsl.dialects.builtin import (
    AnyFloat,
    ArrayAttr,
    BFloat16Type,
    Float8E4M3FNType,
    Float8E5M2Type,
    Float16Type,
    Float32Type,
    Float64Type,
    IntAttr,
    IntegerType,
    NoneAttr,
    Signedness,
    TensorType,
)
from xdsl.ir import Attribute, Data, ParametrizedAttribute, SSAValue, TypeAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from tawa.layouts.register import Axis, RegisterLayout
from tawa.layouts.shared import SharedLayout
from tawa.layouts.windows import Window, parse_window

i1 = IntegerType(1)
i32 = IntegerType(32)
i64 = IntegerType(64)

# One spelling for each scalar type: in IR text, plans, errors and the table of dtypes.
SCALARS: dict[str, Attribute] = {
    "i1": i1,
    "i8": IntegerType(8),
    "i16": IntegerType(16),
    "i32": i32,
    "i64": i64,
    "u8": IntegerType(8, Signedness.UNSIGNED),
    "u16": IntegerType(16, Signedness.UNSIGNED),
    "u32": IntegerType(32, Signedness.UNSIGNED),
    "u64": IntegerType(64, Signedness.UNSIGNED),
    "f8e4m3": Float8E4M3FNType(),
    "f8e5m2": Float8E5M2Type(),
    "f16": Float16Type(),
    "bf16": BFloat16Type(),
    "f32": Float32Type(),
    "f64": Float64Type(),
}
_NAMES: dict[Attribute, str] = {kind: name for name, kind in SCALARS.items()}


def scalar(name: str) -> Attribute:
    """Return the IR type of a scalar spelled as in `SCALARS`."""
    return SCALARS[name]


def spell(kind: Attribute) -> str:
    """Return the short spelling of a scalar, pointer or tensor type, as users read it."""
    match kind:
        case TensorType():
            shape = "x".join(str(extent) for extent in kind.get_shape())
            return f"{spell(kind.get_element_type())}[{shape}]"
        case PtrType():
            return f"*{spell(kind.element)}"
        case DescType():
            what = "windows" if kind.window else "desc"
            return f"{what}<{spell(kind.element)}[{'x'.join(map(str, kind.block_shape))}]>"
        case _ if kind in _NAMES:
            return _NAMES[kind]
        case _:
            return str(kind)


def is_float(kind: Attribute) -> bool:
    """Tell whether a scalar type is a floating-point type."""
    return isinstance(kind, AnyFloat)


def is_signed(kind: Attribute) -> bool:
    """Tell whether an integer type is read as signed (i1 is not)."""
    if not isinstance(kind, IntegerType):
        return False
    integer = cast(IntegerType, kind)  # a type parameter of IntegerType is of no interest here
    return integer.width.data > 1 and integer.signedness.data is not Signedness.UNSIGNED


def bit_width(kind: Attribute) -> int:
    """Return the width of a scalar type in bits; a pointer has 64."""
    match kind:
        case IntegerType():  # first: they are asked for most
            return kind.width.data
        case PtrType():
            return 64
        case _ if isinstance(kind, AnyFloat):
            return kind.bitwidth
        case _:
            raise TypeError(f"{kind} has no width")


def is_tensor(value: SSAValue) -> bool:
    """Tell whether a value is a tensor."""
    return type(value.type) is TensorType


def element_type(kind: Attribute) -> Attribute:
    """Return the element type of a tensor, or the scalar type itself."""
    return kind.get_element_type() if type(kind) is TensorType else kind


def shape_of(kind: Attribute) -> tuple[int, ...]:
    """Return the shape of a tensor type, or () for a scalar."""
    return tuple([extent.data for extent in kind.shape.data]) if type(kind) is TensorType else ()


def with_shape(shape: Sequence[int], element: Attribute) -> Attribute:
    """Return the tensor type of `shape`, or `element` itself when the shape is ()."""
    return TensorType(element, list(shape)) if shape else element


def int_array(values: Sequence[int]) -> ArrayAttr[IntAttr]:
    """Return a list of integers as an attribute."""
    return ArrayAttr([IntAttr(value) for value in values])


@irdl_attr_definition
class PtrType(ParametrizedAttribute, TypeAttribute):
    """The address of an element in global memory."""

    name = "tile.ptr"
    element: Attribute


Datum = TypeVar("Datum", covariant=True)


class _Spelled(Data[Datum]):
    """What has a text, ``str`` of it, that `read` reads back."""

    @staticmethod
    @abstractmethod
    def read(text: str, /) -> Datum:
        """Return what a text says; raises ValueError."""

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Datum:
        """Parse ``<"...">``."""
        with parser.in_angle_brackets():
            text = parser.parse_str_literal()
        try:
            return cls.read(text)
        except ValueError as error:
            parser.raise_error(str(error))

    def print_parameter(self, printer: Printer) -> None:
        """Print ``<"...">``."""
        with printer.in_angle_brackets():
            printer.print_string_literal(str(self.data))


@irdl_attr_definition
class WindowAttr(_Spelled[Window]):
    """Windows over images: size, stride, padding, dilation."""

    name = "tile.window"
    read = staticmethod(parse_window)


@irdl_attr_definition
class DescType(ParametrizedAttribute, TypeAttribute):
    """A tensor in global memory with extents, strides and the shape of the block accessed.

    With `windows` the tensor is images, and a block [pixels, channels] is what consecutive windows
    see through one of their taps.
    """

    name = "tile.desc"
    block: TensorType[Attribute]
    windows: WindowAttr | NoneAttr

    def __init__(self, block: TensorType[Attribute], window: Window | None = None) -> None:
        super().__init__(block, NoneAttr() if window is None else WindowAttr(window))

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        """Parse ``<block>`` or ``<block, window>``."""
        with parser.in_angle_brackets():
            block = parser.parse_type()
            window = parser.parse_attribute() if parser.parse_optional_punctuation(",") else None
        return [block, NoneAttr() if window is None else window]

    def print_parameters(self, printer: Printer) -> None:
        """Print the block, and the window where there is one."""
        with printer.in_angle_brackets():
            printer.print_attribute(self.block)
            if isinstance(self.windows, WindowAttr):
                printer.print_string(", ")
                printer.print_attribute(self.windows)

    @property
    def window(self) -> Window | None:
        """The windows that blocks are read from, None for blocks of the tensor itself."""
        return self.windows.data if isinstance(self.windows, WindowAttr) else None

    @property
    def rank(self) -> int:
        """How many extents and strides the tensor has."""
        return len(self.block_shape) if self.window is None else self.window.rank

    @property
    def element(self) -> Attribute:
        """Element type."""
        return self.block.get_element_type()

    @property
    def block_shape(self) -> tuple[int, ...]:
        """Shape of one access, in elements."""
        return tuple(self.block.get_shape())


@irdl_attr_definition
class ArefType(ParametrizedAttribute, TypeAttribute):
    """An asynchronous reference: a ring of slots, each holding one tuple of values."""

    name = "aref.aref"
    payload: ArrayAttr[Attribute]


@irdl_attr_definition
class SlotType(ParametrizedAttribute, TypeAttribute):
    """A slot of an aref that its producer has entered and not yet published."""

    name = "aref.slot"
    payload: ArrayAttr[Attribute]


_AXIS = re.compile(r"(\d+):\(([-\d,]*)\)")


def parse_layout(text: str) -> RegisterLayout:
    """Read a register layout back from its text, with blanks, or with ";" in their place."""
    shape, rest = text.replace(";", " ").split(" ", 1)
    groups = re.findall(r"([rlw])\[([^\]]*)\]", rest)
    axes = {
        letter: tuple(
            Axis(int(extent), tuple(int(step) for step in steps.split(",") if step))
            for extent, steps in _AXIS.findall(items)
        )
        for letter, items in groups
    }
    return RegisterLayout(
        tuple(int(extent) for extent in shape.split("x") if extent), axes["r"], axes["l"], axes["w"]
    )


@irdl_attr_definition
class Real(_Spelled[float]):
    """A floating-point number; infinities and NaN too, which builtin float data cannot print.

    Equal where all bits are: 0.0 and -0.0 are two constants, a NaN is one.
    """

    name = "tile.real"
    read = staticmethod(float)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Real) and repr(self.data) == repr(other.data)

    def __hash__(self) -> int:
        return hash(repr(self.data))


@irdl_attr_definition
class LayoutAttr(_Spelled[RegisterLayout]):
    """The register layout of a tensor, as the encoding of its type."""

    name = "hopper.layout"
    read = staticmethod(parse_layout)


_SHARED = re.compile(r"([\dx]+) order\(([\d,]+)\) (\d+)b swizzle(\d+)")


@irdl_attr_definition
class SharedLayoutAttr(_Spelled[SharedLayout]):
    """The placement of a tile in shared memory."""

    name = "hopper.shared_layout"

    @staticmethod
    def read(text: str, /) -> SharedLayout:
        """Return the layout that a text says; raises ValueError."""
        if (found := _SHARED.fullmatch(text)) is None:
            raise ValueError(f"not a shared-memory layout: {text}")
        shape, order, bits, swizzle = found.groups()
        return SharedLayout(
            tuple(map(int, shape.split("x"))),
            tuple(map(int, order.split(","))),
            int(bits),
            int(swizzle),
        )


@irdl_attr_definition
class BufferType(ParametrizedAttribute, TypeAttribute):
    """A buffer in shared memory: `slots` tiles of one layout, one after the other."""

    name = "hopper.buffer"
    slots: IntAttr
    element: Attribute
    layout: SharedLayoutAttr

    @property
    def bytes(self) -> int:
        """Bytes of all slots; each slot's size is a multiple of the layout's alignment."""
        return self.slots.data * self.slot_bytes

    @property
    def slot_bytes(self) -> int:
        """Distance between slots in bytes."""
        unit = self.layout.data.alignment
        return -(-self.layout.data.bytes // unit) * unit


@irdl_attr_definition
class ViewType(ParametrizedAttribute, TypeAttribute):
    """A tile in shared memory: one slot of a buffer, or a transposed or sliced view of it.

    `layout.shape` is the shape of the view. `within` is the layout of the whole slot when the view
    is a slice of rows or of whole panels, else equal to `layout`: panels keep the slot's pitch.
    """

    name = "hopper.view"
    element: Attribute
    layout: SharedLayoutAttr
    within: SharedLayoutAttr

    @property
    def shape(self) -> tuple[int, ...]:
        """Logical shape of the view."""
        return self.layout.data.shape


@irdl_attr_definition
class BarriersType(ParametrizedAttribute, TypeAttribute):
    """`count` mbarriers in shared memory, one for each slot of a ring."""

    name = "hopper.barriers"
    count: IntAttr


@irdl_attr_definition
class TensorMapType(ParametrizedAttribute, TypeAttribute):
    """A tensor map (CUtensorMap) made on the host: what TMA needs to move one box."""

    name = "hopper.tensor_map"
    element: Attribute
    box: ArrayAttr[IntAttr]

    @property
    def box_shape(self) -> tuple[int, ...]:
        """Shape of the box, slowest dimension first."""
        return tuple(extent.data for extent in self.box)


Tensor: TypeAlias = TensorType[Attribute]


def layout_of(kind: Attribute) -> RegisterLayout:
    """Return the register layout of a tensor type that has one."""
    if isinstance(kind, TensorType) and isinstance(kind.encoding, LayoutAttr):
        return kind.encoding.data
    raise TypeError(f"{kind} has no register layout")
