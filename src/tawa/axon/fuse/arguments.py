"""The arguments of a call: its arrays in order, and what of them decides how it is computed."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, cast

import numpy as np

from tawa.axon.run import tensors
from tawa.axon.run.values import NAMES, key_of
from tawa.errors import AxonGuard
from tawa.runtime.arrays import is_tensor, look
from tawa.runtime.tensors import has_tangent

LONG = {"i1": "bool", **{short: long for long, short in NAMES.items()}}


def read(name: str, arguments: tuple[Any, ...]) -> tuple[Hashable, list[Any]]:
    """Return what a program depends on of its arguments, and the arrays among them.

    Of arrays these are types, shapes, strides, devices and alignments, and whether a gradient is
    recorded. Arrays of NumPy beside tensors of torch become such, on the tensors' device. Raises
    AxonGuard where there are none.
    """
    arrays: list[Any] = []
    facts = facts_of(arguments, arrays)
    if not arrays:
        raise AxonGuard(f"{name} is given no array to compute with")
    if len({is_tensor(each) for each in arrays}) == 2:
        device = tensors.device_of(arrays)
        arrays = [*tensors.unwrapped(tensors.wrapped(arrays, device), device)]
    return facts, arrays


def facts_of(value: Any, arrays: list[Any]) -> Hashable:
    """Return what a program depends on of a value, and add its arrays to others, in order."""
    if isinstance(value, tuple | list):
        return tuple([facts_of(each, arrays) for each in cast("tuple[Any, ...]", value)])
    if not is_array(value):
        return key_of(plain(value))
    arrays.append(value)
    if is_tensor(value):
        try:
            lies = value.stride(), value.data_ptr() & 15
        except RuntimeError:  # it has no memory of its own, which `look` says by name
            pass
        else:
            asks = is_recorded(value), value.is_neg()
            return value.dtype, value.shape, lies, value.device, asks
    view = look(value)
    kind = cast("object", type(value))
    return kind, view.dtype, view.shape, view.strides, view.device, view.address & 15


def is_array(value: Any) -> bool:
    """Tell whether an argument is an array; numbers of NumPy, which have no memory, are none."""
    return hasattr(value, "shape") and not isinstance(value, np.generic)


def plain(value: Any) -> Any:
    """Return arguments with numbers of NumPy as Python's."""
    if isinstance(value, tuple | list):
        return tuple([plain(each) for each in cast("tuple[Any, ...]", value)])
    return value.item() if isinstance(value, np.generic) else value  # pyright: ignore


def traced(value: Any, leaf: Callable[[tuple[int, ...], str], Any]) -> Any:
    """Return arguments with what `leaf` makes of shapes and element types for arrays."""
    if isinstance(value, tuple | list):
        return tuple([traced(item, leaf) for item in cast("tuple[Any, ...]", value)])
    return leaf(value.shape, LONG[look(value).dtype]) if is_array(value) else value


def is_recorded(array: Any) -> bool:
    """Tell whether torch records for a gradient, of any mode, what is computed of an array."""
    if has_tangent(array):
        return True
    return is_tensor(array) and array.requires_grad and tensors.records()


def refuse_recorded(name: str, arrays: Sequence[Any]) -> None:
    """Raise AxonGuard where what kernels compute of arrays would be without a gradient."""
    if any(map(is_recorded, arrays)):
        raise AxonGuard(
            f"an argument of {name} requires a gradient",
            why="a compiled program computes none",
            remedy="pass .detach(), or call it under torch.no_grad()",
        )
