"""Element types of the language ↔ IR types, the only place that knows both spellings."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Attribute

from tawa.element_types import ELEMENT_TYPES
from tawa.ir.types import SCALARS, PtrType, with_shape
from tawa.language.dtypes import dtype, pointer_type

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
