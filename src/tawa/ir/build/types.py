"""Element types of the language ↔ IR types, the only place that knows both spellings."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Attribute

from tawa.ir.types import SCALARS, PtrType, with_shape
from tawa.language.dtypes import dtype, pointer_type

_SPELLING = {
    "int1": "i1",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "fp8e4nv": "f8e4m3",
    "fp8e5": "f8e5m2",
    "fp16": "f16",
    "bf16": "bf16",
    "fp32": "f32",
    "fp64": "f64",
}
_TO_IR: dict[str, Attribute] = {name: SCALARS[short] for name, short in _SPELLING.items()}
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
