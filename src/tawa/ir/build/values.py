"""What a name of a kernel can stand for while its source is read.

`Const` is known now; `Tensor` (a scalar when it has no shape) and `Descriptor` are values of the
program; `BlockPointer` and `Tuple` are made of others and exist only here: control flow carries
their leaves.

Element types of the language ↔ IR types, the only place that knows both spellings.

Scalars that the compiler can compute: numbers made of constants by operations without effects.

A function of the language gives a tensor, of constants too: ``tl.cdiv(8, 3)``. Where a number is
needed when the kernel is compiled, this finds it, by the same table that the oracle runs.

Where the code that builds a kernel stands: what errors and names of statements point at.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from types import CodeType
from typing import Any, TypeAlias

from xdsl.dialects.builtin import IntAttr, TensorType
from xdsl.ir import Attribute, OpResult, SSAValue

from tawa.constants import freeze
from tawa.element_types import ELEMENT_TYPES
from tawa.errors import Place
from tawa.ir import tile
from tawa.ir.functions import FUNCTIONS
from tawa.ir.types import SCALARS, DescType, PtrType, Real, element_type, shape_of, with_shape
from tawa.language.dtypes import dtype, int1, pointer_type
from tawa.syntax import in_ascii


@dataclass(frozen=True, slots=True)
class Const:
    """A Python value known at compile time: a number, a dtype, None, a function, a module."""

    value: object


@dataclass(frozen=True, slots=True)
class Tensor:
    """A value of the program: a scalar, a pointer, or a tensor of either."""

    ssa: SSAValue

    @property
    def type(self) -> Attribute:
        """IR type."""
        return self.ssa.type

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents; () for a scalar."""
        return shape_of(self.ssa.type)

    @property
    def dtype(self) -> dtype:
        """Element type."""
        return dtype_of(element_type(self.ssa.type))

    @property
    def is_block(self) -> bool:
        """Whether the value has a shape."""
        return isinstance(self.ssa.type, TensorType)


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A tensor in global memory accessed in tiles.

    `extents` and `strides` are the values it was made from, or () when they must be asked of it;
    `padding` is what stands outside it, "zero" or "nan". `truths`: its bytes are bools.
    """

    ssa: SSAValue
    extents: tuple[Const | Tensor, ...] = ()
    strides: tuple[Const | Tensor, ...] = ()
    padding: str = "zero"
    truths: bool = False

    @property
    def type(self) -> DescType:
        """IR type."""
        kind = self.ssa.type
        if not isinstance(kind, DescType):
            raise TypeError(f"not a descriptor: {kind}")
        return kind

    @property
    def block_shape(self) -> tuple[int, ...]:
        """Shape of one access."""
        return self.type.block_shape

    @property
    def dtype(self) -> dtype:
        """Element type."""
        return int1 if self.truths else dtype_of(self.type.element)


@dataclass(frozen=True, slots=True)
class BlockPointer:
    """The block at `offsets` (i32) of a tensor with `extents` and `strides` (i64)."""

    base: Tensor
    extents: tuple[Tensor, ...]
    strides: tuple[Tensor, ...]
    offsets: tuple[Tensor, ...]
    block_shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tuple:
    """Values side by side, with field names when they come from a named tuple."""

    items: tuple[Value, ...]
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Instance:
    """An object of an aggregate: its class, and the values of its fields, in the order of the class
    and, in its constructor, of those that have one.
    """

    kind: Any
    fields: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Method:
    """A function of the language bound to the value before the dot."""

    receiver: Value
    name: str


Value: TypeAlias = Const | Tensor | Descriptor | BlockPointer | Tuple | Instance | Method


def name_value(value: SSAValue, name: str) -> None:
    """Call a value as the user's variable in IR text and plans, unless it has a name.

    xDSL numbers values of one name by suffixes like ``_1``, so names have none of their own; what
    has no other name is called ``v``.
    """
    if value.name_hint is None and name:
        rest = re.sub(r"(_\d+)+$", "", in_ascii(name))
        value.name_hint = rest if rest.strip("_0123456789") or name == "_" else "v"


def leaves(value: Value) -> Iterator[SSAValue]:
    """Give the IR values that a value is made of, in a fixed order."""
    match value:
        case Tensor() | Descriptor():
            yield value.ssa
        case BlockPointer():
            for part in (value.base, *value.extents, *value.strides, *value.offsets):
                yield part.ssa
        case Tuple():
            for item in value.items:
                yield from leaves(item)
        case Instance():
            for item in value.fields.values():
                yield from leaves(item)
        case Method():
            yield from leaves(value.receiver)
        case Const():
            return


def rebuild(value: Value, source: Iterator[SSAValue]) -> Value:
    """Make a value of the same form from other leaves."""
    match value:
        case Tensor():
            return Tensor(next(source))
        case Descriptor():
            ssa = next(source)
            if ssa is value.ssa:
                return value
            return Descriptor(ssa, padding=value.padding, truths=value.truths)
        case BlockPointer():
            return BlockPointer(
                Tensor(next(source)),
                tuple(Tensor(next(source)) for _ in value.extents),
                tuple(Tensor(next(source)) for _ in value.strides),
                tuple(Tensor(next(source)) for _ in value.offsets),
                value.block_shape,
            )
        case Tuple():
            return Tuple(tuple(rebuild(item, source) for item in value.items), value.fields)
        case Instance(fields=fields):
            return Instance(value.kind, {n: rebuild(item, source) for n, item in fields.items()})
        case Method():
            return Method(rebuild(value.receiver, source), value.name)
        case Const():
            return value


def same_form(one: Value, other: Value) -> bool:
    """Tell whether control flow can join two values: same kinds, IR types and constants."""
    match one, other:
        case Tensor(), Tensor():
            return one.type == other.type
        case Descriptor(), Descriptor():
            alike = one.padding == other.padding and one.truths == other.truths
            return alike and one.type == other.type
        case BlockPointer(), BlockPointer():
            types = [leaf.type for leaf in leaves(one)] == [leaf.type for leaf in leaves(other)]
            return types and one.block_shape == other.block_shape
        case Tuple(), Tuple():
            pairs = zip(one.items, other.items)
            return len(one.items) == len(other.items) and all(same_form(a, b) for a, b in pairs)
        case Instance(), Instance():
            if one.kind is not other.kind or [*one.fields] != [*other.fields]:
                return False
            return all(same_form(value, other.fields[name]) for name, value in one.fields.items())
        case Method(), Method():
            return one.name == other.name and same_form(one.receiver, other.receiver)
        case Const(), Const():
            return _same_constant(one.value, other.value)
        case _:
            return False


def _same_constant(one: object, other: object) -> bool:
    return one is other or freeze(one) == freeze(other)


def describe(value: Value) -> str:
    """Name the type of a value as users read it: ``fp32[128, 64]``, ``int32``, ``constant 3``."""
    match value:
        case Tensor():
            return spell_type(value.dtype, value.shape)
        case Descriptor():
            padding = f" padded with {value.padding}" if value.padding != "zero" else ""
            return f"descriptor of {spell_type(value.dtype, value.block_shape)}{padding}"
        case BlockPointer():
            return f"block pointer to {value.base.dtype.name}{list(value.block_shape)}"
        case Tuple():
            return f"({', '.join(describe(item) for item in value.items)})"
        case Instance():
            fields = (f"{name}: {describe(item)}" for name, item in value.fields.items())
            return f"{value.kind.__name__}({', '.join(fields)})"
        case Method():
            return f"method {value.name}"
        case Const():
            return f"constant {value.value!r}"


def spell_type(element: dtype, shape: Sequence[int]) -> str:
    """Spell an element type with a shape: ``bf16[128, 64]``."""
    return f"{element.name}{list(shape)}" if shape else element.name


# --- element types in both spellings --------------------------------------------------------------


_TO_IR: dict[str, Attribute] = {
    kind.language: SCALARS[name] for name, kind in ELEMENT_TYPES.items()
}
_FROM_IR: dict[Attribute, dtype] = {kind: dtype(name) for name, kind in _TO_IR.items()}


def ir_scalar(element: dtype) -> Attribute:
    """Return the IR type of an element; raises TypeError for void and blocks."""
    if isinstance(element, pointer_type):
        return PtrType(ir_scalar(element.element_ty))
    if element.name not in _TO_IR:
        raise TypeError(f"{element.name} is not the type of an element")
    return _TO_IR[element.name]


def ir_type(element: dtype, shape: Sequence[int] = ()) -> Attribute:
    """Return the IR type of a scalar (no shape) or of a tensor."""
    return with_shape(shape, ir_scalar(element))


def dtype_of(kind: Attribute) -> dtype:
    """Return the language's name of an IR scalar or pointer type."""
    if isinstance(kind, PtrType):
        return pointer_type(dtype_of(kind.element))
    return _FROM_IR[kind]


# --- scalars that the compiler can compute --------------------------------------------------------


def known(value: Value) -> Value:
    """Return the constant that a scalar is, a tuple of such ones; any other value as it is."""
    if isinstance(value, Tuple):
        return Tuple(tuple(map(known, value.items)), value.fields)
    if not isinstance(value, Tensor) or value.is_block:
        return value
    number = _number(value.ssa)
    return value if number is None else Const(number.item())


def _number(value: SSAValue) -> Any:
    """Return a scalar as a NumPy number of its type, or None where it is not known."""
    if not isinstance(value, OpResult):
        return None
    match value.owner:
        case tile.Constant(value=IntAttr(data=number)) | tile.Constant(value=Real(data=number)):
            return _typed(number, dtype_of(value.type))
        case tile.Cast(value=source):
            inner = _number(source)
            return None if inner is None else _typed(inner, dtype_of(value.type))
        case tile.Elementwise(function=name, inputs=inputs):
            inner = [_number(operand) for operand in inputs]
            if any(operand is None for operand in inner):
                return None
            import numpy as np

            with np.errstate(all="ignore"):
                found = FUNCTIONS[name.data].numpy(np, *inner)
            return _typed(found, dtype_of(value.type))
        case _:
            return None


def _typed(number: Any, kind: dtype) -> Any:
    """Return a number as one of NumPy; None for types that NumPy has not."""
    import numpy as np

    if kind.is_bool():
        return np.bool_(number)
    name = kind.name if kind.is_int() else {"fp32": "float32", "fp64": "float64"}.get(kind.name)
    if name is None or (kind.is_int() and not np.isfinite(number)):
        return None
    return np.asarray(number).astype(name)[()]


# --- where a kernel is built ----------------------------------------------------------------------


_PASSED = ("tawa.ir.build", "tawa.frontend.inline", "contextlib")
"""Modules whose frames stand between the builder's caller and the builder."""


def caller(passed: tuple[str, ...] = ()) -> Place:
    """Return the expression outside of the builder that is being evaluated.

    `passed` are further modules whose frames stand between.
    """
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame.f_back is not None and _is_ours(frame.f_globals.get("__name__"), passed):
        frame = frame.f_back
    return _place(frame.f_code, frame.f_lasti)


def _is_ours(module: object, passed: tuple[str, ...]) -> bool:
    return isinstance(module, str) and (module.startswith(_PASSED) or module in passed)


@lru_cache(maxsize=4096)
def _place(code: CodeType, instruction: int) -> Place:
    positions = next(islice(code.co_positions(), instruction // 2, None), (None,) * 4)
    line, last, column, end = positions
    if column is None or end is None or last != line:  # of several lines the first is shown whole
        end = column = column or 0
    return Place(code.co_filename, line or code.co_firstlineno, column, end)
