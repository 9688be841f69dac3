"""The dot: attributes of tensors, descriptors, constants and modules."""

from __future__ import annotations

from math import prod
from types import ModuleType
from typing import Any

import tawa.language as tl
from tawa.errors import UnknownName
from tawa.frontend.aggregates import defines
from tawa.frontend.context import Context
from tawa.frontend.names import REFUSED, Builtin, NotConstant, lift
from tawa.ir.build.binding import suggest
from tawa.ir.build.values import (
    BlockPointer,
    Const,
    Descriptor,
    Instance,
    Method,
    Tensor,
    Tuple,
    Value,
    describe,
)
from tawa.language.dtypes import block_type, pointer_type

# The functions of the language that take a tensor first and may be written as its methods.
TENSOR_METHODS = frozenset(
    (
        *("to", "cast", "broadcast_to", "expand_dims", "reshape", "view", "ravel", "item"),
        *("gather", "histogram", "squeeze", "unsqueeze"),
        *("trans", "permute", "split", "store", "advance", "logical_and", "logical_or"),
        *("atomic_cas", "atomic_xchg", "atomic_add", "atomic_max", "atomic_min"),
        *("atomic_and", "atomic_or", "atomic_xor", "atomic_load", "atomic_store"),
        *("abs", "exp", "exp2", "log", "log2", "sin", "cos", "erf", "sqrt", "sqrt_rn", "rsqrt"),
        *("floor", "ceil", "sigmoid", "softmax", "cdiv", "reduce", "associative_scan", "sum"),
        *("max", "min", "argmax", "argmin", "xor_sum", "reduce_or", "cumsum", "cumprod"),
        *("sort", "flip"),
    )
)
DESCRIPTOR_METHODS = frozenset(
    (
        *("load", "store", "gather", "scatter", "atomic_add", "atomic_max", "atomic_min"),
        *("atomic_and", "atomic_or", "atomic_xor"),
    )
)


def get_attribute(c: Context, value: Value, name: str) -> Value:
    """Return the attribute `name` of a value; raises UnknownName."""
    if (found := find_attribute(c, value, name)) is None:
        raise c.builder.error(
            UnknownName,
            f"{describe(value)} has no attribute {name}",
            remedy="see the reference of tawa.language for what a kernel can use",
        )
    return found


def find_attribute(c: Context, value: Value, name: str) -> Value | None:
    """Return the attribute `name` of a value, None where it has none."""
    match value:
        case Tensor() | BlockPointer():
            return _of_tensor(c, value, name)
        case Descriptor():
            return _of_descriptor(c, value, name)
        case Tuple():
            return _of_tuple(value, name)
        case Instance():
            method = Method(value, name) if defines(value.kind, name) else None
            return value.fields.get(name, method)
        case Const():
            return _of_constant(c, value, name)
        case Method():
            return None


def shape_tuple(shape: tuple[int, ...]) -> Tuple:
    """Return a shape as a tuple of constants."""
    return Tuple(tuple(Const(extent) for extent in shape))


def _of_tensor(c: Context, value: Tensor | BlockPointer, name: str) -> Value | None:
    if name in TENSOR_METHODS:
        return Method(value, name)
    if isinstance(value, BlockPointer):
        block = block_type(value.base.dtype.element_ty, value.block_shape)  # pyright: ignore
        attributes = {"type": Const(pointer_type(block)), "dtype": Const(pointer_type(block))}
        return attributes.get(name)
    match name:
        case "dtype":
            return Const(value.dtype)
        case "shape":
            return shape_tuple(value.shape)
        case "type":
            return Const(block_type(value.dtype, value.shape) if value.is_block else value.dtype)
        case "numel":
            return Const(prod(value.shape))
        case "T":
            return _transposed(c, value)
        case _:
            return None


def _transposed(c: Context, value: Tensor) -> Tensor:
    if len(value.shape) != 2:
        raise c.builder.mismatch(
            f".T takes a tensor of two dimensions, this is {describe(value)}",
            remedy="use tl.permute(x, dims)",
        )
    return c.builder.transpose(value, (1, 0))


def _of_descriptor(c: Context, value: Descriptor, name: str) -> Value | None:
    if name in DESCRIPTOR_METHODS:
        return Method(value, name)
    match name:
        case "dtype":
            return Const(value.dtype)
        case "block_shape":
            return shape_tuple(value.block_shape)
        case "block_type" | "type":
            return Const(block_type(value.dtype, value.block_shape))
        case "shape":
            return Tuple(c.builder.extents(value))
        case "strides":
            return Tuple(c.builder.strides(value))
        case "counts" if value.type.window is not None:
            return Tuple(c.builder.counts(value))
        case _:
            return None


def _of_tuple(value: Tuple, name: str) -> Value | None:
    if name in value.fields:
        return value.items[value.fields.index(name)]
    return None


def _of_constant(c: Context, value: Const, name: str) -> Value | None:
    match value.value:
        case ModuleType() as module:
            return _of_module(c, module, name)
        case Builtin():
            return None
        case _ if name == "value":
            # `.value` unwraps a constexpr, which is done already.
            return value
        case bool() | int() | float() if name in ("dtype", "type", "shape"):
            return None
        case _:
            return _python_attribute(value.value, name)


def _python_attribute(value: Any, name: str) -> Value | None:
    """Read an attribute of a constant, such as a dtype or a string; functions stay bound."""
    found: Any = getattr(value, name, None)
    return None if found is None and not hasattr(value, name) else lift(found)


def _of_module(c: Context, module: ModuleType, name: str) -> Value:
    path = f"{module.__name__}.{name}"
    if not hasattr(module, name) and module is tl and name in REFUSED:
        why, remedy = REFUSED[name]
        raise c.unsupported(f"tl.{name} is not supported", why=why, remedy=remedy)
    if not hasattr(module, name):
        raise c.builder.error(
            UnknownName,
            f"{path} does not exist",
            why=f"module {module.__name__} has no {name}",
            remedy=_instead(module, name),
        )
    try:
        return lift(getattr(module, name))
    except NotConstant as error:
        raise c.unsupported(f"{path} cannot stand in a kernel", why=str(error)) from None


def _instead(module: ModuleType, name: str) -> str:
    """Return what to write for a name that a module does not have."""
    library = tl.extra.libdevice
    if hasattr(tl.extra, name):
        return f"it is tl.extra.{name}"
    if module is not library and name in dir(library):
        return f"the device library has it: tl.extra.libdevice.{name}"
    return suggest(name, dir(module), f"use what {module.__name__} has")
