"""What the shipped kernels need to know of an array, whichever library it comes from.

torch, CuPy and NumPy agree on `shape`, `dtype` and swapping axes; they differ in strides (elements
or bytes) and in how a new array is made beside an old one.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from tawa.errors import ArgumentError

# The names under which the libraries know the element types, and ours (tawa.ir.types.SCALARS).
DTYPES = {
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float8_e4m3fn": "f8e4m3",
    "float8_e5m2": "f8e5m2",
}
BYTES = {"f16": 2, "bf16": 2, "f32": 4, "f8e4m3": 1, "f8e5m2": 1}
NAMES = {short: name for name, short in DTYPES.items()}


def dtype_of(array: Any) -> str:
    """Return the short name of an array's element type ("bf16").

    Raises `ArgumentError` for types no tensor core takes.
    """
    if isinstance(array.dtype, str):
        return array.dtype
    name = str(array.dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise ArgumentError(
            f"no product of {name} arrays",
            why=f"tensor cores take {', '.join(DTYPES)}",
            remedy="convert the operands",
        )
    return DTYPES[name]


def strides_of(array: Any) -> tuple[int, ...]:
    """Return an array's strides in elements; a placeholder without strides is dense."""
    if callable(stride := getattr(array, "stride", None)):
        return tuple(stride())
    if (strides := getattr(array, "strides", None)) is None:
        shape = tuple(array.shape)
        return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))
    item = getattr(array.dtype, "itemsize", 1)
    return tuple(step // item for step in strides)


@dataclass(frozen=True, slots=True)
class Operand:
    """A matrix, or a batch of them, as it lies in memory: contiguous along its last axis.

    `transposed` tells that memory holds the logical matrix the other way round; `array` is the
    view whose last axis is contiguous.
    """

    array: Any
    transposed: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents as stored."""
        return tuple(self.array.shape)

    @property
    def strides(self) -> tuple[int, ...]:
        """Strides as stored, in elements; the last is 1."""
        return strides_of(self.array)


def operand(array: Any, name: str) -> Operand:
    """Return `array` as an operand; raises `ArgumentError` where no matrix axis is contiguous."""
    steps, shape = strides_of(array), tuple(array.shape)
    if steps[-1] == 1 or shape[-1] == 1:
        return Operand(array, False)
    if steps[-2] == 1 or shape[-2] == 1:
        return Operand(array.swapaxes(-1, -2), True)
    raise ArgumentError(
        f"{name}: no axis of the matrix is contiguous (strides {steps})",
        why="TMA and vector loads need elements side by side along one axis",
        remedy=f"pass {name}.contiguous(), or a dense copy",
    )


def empty_beside(array: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """Return a new array of `array`'s library and device with the short element type `dtype`."""
    if hasattr(array, "new_empty"):
        import torch

        return array.new_empty(shape, dtype=getattr(torch, NAMES[dtype]))
    if hasattr(array, "__cuda_array_interface__"):
        import cupy  # pyright: ignore

        kind = numpy_dtype(dtype)
        return cupy.empty(shape, dtype=kind)  # pyright: ignore
    import numpy

    return numpy.empty(shape, dtype=numpy_dtype(dtype))


def numpy_dtype(dtype: str) -> Any:
    """Return NumPy's dtype of a short name; bf16 and fp8 are those of ml_dtypes."""
    import ml_dtypes
    import numpy

    name = NAMES[dtype]
    return numpy.dtype(getattr(ml_dtypes, name) if hasattr(ml_dtypes, name) else name)


def on_gpu(array: Any) -> bool:
    """Tell whether an array lives on a CUDA device."""
    device = getattr(array, "device", None)
    return hasattr(array, "__cuda_array_interface__") or getattr(device, "type", "") == "cuda"
