"""A launch's arguments: from names and Python values to the run-time values of the kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tawa.errors import ArgumentError
from tawa.ir import tile
from tawa.ir.types import DescType, PtrType, spell
from tawa.simulator.memory import Descriptor, GlobalMemory, HostDescriptor
from tawa.simulator.values import FLOATS, convert, dtype_of


def bind_arguments(
    kernel: tile.Kernel, arguments: Mapping[str, object], memory: GlobalMemory
) -> list[Any]:
    """Return the run-time values of the kernel's arguments, in order.

    Raises ArgumentError for one that is missing, unknown or of the wrong type.
    """
    names = kernel.argument_names
    if unknown := sorted(set(arguments) - set(names)):
        raise ArgumentError(f"no argument named {', '.join(unknown)}", remedy=f"known: {names}")
    values: list[Any] = []
    for name, parameter in zip(names, kernel.body.block.args):
        if name not in arguments:
            raise ArgumentError(f"argument {name} is missing", remedy=f"needed: {names}")
        values.append(_bind(name, parameter.type, arguments[name], memory))
    return values


def _bind(name: str, kind: Any, value: Any, memory: GlobalMemory) -> Any:
    match kind:
        case PtrType():
            return memory.bind(name, value, dtype_of(kind.element))
        case DescType():
            return _bind_descriptor(name, kind, value, memory)
        case _:
            if not isinstance(value, bool | int | float | np.generic):
                raise ArgumentError(
                    f"argument {name} is a {type(value).__name__}",
                    why=f"the kernel takes a number of type {spell(kind)}",
                )
            return _number(name, kind, value)


def _number(name: str, kind: Any, value: Any) -> Any:
    """Return a number as the kernel gets it; raises ArgumentError for one that its type lacks."""
    dtype = dtype_of(kind)
    plain: Any = value.item() if hasattr(value, "item") else value
    made: Any
    try:
        if dtype in FLOATS:
            with np.errstate(over="ignore"):
                made = convert(np.asarray(float(plain)), dtype)[()]
            fits = bool(np.isfinite(made)) or not np.isfinite(float(plain))
        else:
            made = dtype.type(plain)
            fits = dtype.kind == "b" or bool(made == plain)
    except (OverflowError, ValueError):
        made, fits = None, False
    if not fits:
        raise ArgumentError(
            f"argument {name} = {value!r} does not fit {spell(kind)}",
            remedy=f"pass a number that {spell(kind)} holds, or annotate {name} with another type",
        )
    return made


def _bind_descriptor(name: str, kind: DescType, value: Any, memory: GlobalMemory) -> Descriptor:
    if not isinstance(value, HostDescriptor):
        raise ArgumentError(
            f"argument {name} is a {type(value).__name__}",
            why="the kernel takes a tensor descriptor",
        )
    rank = kind.rank
    if value.window != kind.window:
        raise ArgumentError(
            f"argument {name} has windows {value.window}",
            why=f"the kernel was compiled for {kind.window}",
        )
    if tuple(value.block_shape) != kind.block_shape:
        raise ArgumentError(
            f"argument {name} has blocks of {tuple(value.block_shape)}",
            why=f"the kernel was compiled for blocks of {kind.block_shape}",
        )
    if len(value.shape) != rank or len(value.strides) != rank:
        raise ArgumentError(
            f"argument {name} has {len(value.shape)} extents and {len(value.strides)} strides",
            why=f"its tensor has {rank} dimensions",
        )
    dtype, base = dtype_of(kind.element), value.base
    if dtype == np.int8 and getattr(base, "dtype", None) == np.bool_:
        base = base.view(dtype)  # the bytes that bools are
    return Descriptor(
        int(memory.bind(name, base, dtype)),
        dtype,
        tuple(int(extent) for extent in value.shape),
        tuple(int(stride) for stride in value.strides),
        kind.block_shape,
        value.padding,
        value.window,
    )
