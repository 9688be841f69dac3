"""Matrices as the shipped kernels see them: how they lie in memory, and new ones beside them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from threading import get_ident
from typing import Any

from tawa.errors import ArgumentError
from tawa.runtime.arrays import (
    Placeholder,
    View,
    empty_beside,
    is_tensor,
    look,
    maker_beside,
    row_major,
)
from tawa.runtime.counters import PER_THREAD
from tawa.runtime.dispatch import current_stream
from tawa.runtime.driver import connect
from tawa.runtime.dtypes import BYTES

PRODUCTS = ("f16", "bf16", "f32", "f8e4m3", "f8e5m2")
"""The element types tensor cores multiply with float32 accumulation (f32 through tf32)."""

LINE = 128
"""Bytes of a line of L2: rows that begin on one are read in whole sectors."""
_COUNTERS = 1024


@dataclass(frozen=True, slots=True)
class Operand:
    """A matrix, or a batch of them: `shape` and `strides` (elements) with the last axis contiguous.

    `transposed` tells that memory holds the logical matrix the other way round.
    """

    array: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    transposed: bool

    @property
    def matrix_strides(self) -> tuple[int, int]:
        """Strides of the logical matrix' rows and columns."""
        outer, inner = self.strides[-2:]
        return (inner, outer) if self.transposed else (outer, inner)


def operand(array: Any, view: View, name: str) -> Operand:
    """Return `array` as an operand; raises `ArgumentError` where no matrix axis is contiguous."""
    shape, strides = view.shape, view.strides
    if 0 in shape:  # nothing lies in memory; libraries give such arrays any strides
        return Operand(array, shape, row_major(shape), False)
    if strides[-1] == 1 or shape[-1] == 1:
        return Operand(array, shape, (*strides[:-1], 1), False)
    if strides[-2] == 1 or shape[-2] == 1:
        turned = (*shape[:-2], shape[-1], shape[-2])
        return Operand(array, turned, (*strides[:-2], strides[-1], 1), True)
    raise ArgumentError(
        f"{name}: no axis of the matrix is contiguous (strides {strides})",
        why="TMA and vector loads need elements side by side along one axis",
        remedy=f"pass {name}.contiguous(), or a dense copy",
    )


def fits_tma(view: View, strides: tuple[int, ...]) -> bool:
    """Tell whether base and outer strides are multiples of 16 bytes and the latter none that TMA
    cannot step by (cuTensorMapEncodeTiled).
    """
    steps = [step * view.itemsize for step in strides[:-1]]
    return view.address % 16 == 0 and not any(
        step % 16 or not 0 <= step < 1 << 40 for step in steps
    )


def on_lines(held: Operand, dtype: str) -> bool:
    """Tell whether rows lie whole lines of L2 apart, so that a base on a line puts all on lines."""
    return not any(step * BYTES[dtype] % LINE for step in held.strides[:-1])


@dataclass(frozen=True, slots=True)
class Zeros(Placeholder):
    """Stands for counters that kernels leave zero."""


def counters_beside(array: Any, count: int) -> Any:
    """Return at least `count` int32 zeros on `array`'s device, for kernels that leave them zero.

    Those of a stream are made once: kernels of one stream run one after the other. In a CUDA graph
    capture they are made anew, so that a replay clears them.
    """
    return counters_maker(array, count)(array)


def counters_maker(array: Any, count: int) -> Callable[[Any], Any]:
    """Return what makes such counters beside any array of `array`'s class and device."""
    size = max(_COUNTERS, 1 << (count - 1).bit_length())
    if isinstance(array, Placeholder):
        return lambda _: Zeros((size,), "i32", (1,))
    device = look(array).device
    if device.kind == "cpu":
        return lambda _: _host_zeros(array, size)
    ordinal, stream_of = device.ordinal, current_stream({"array": array})
    library = "torch" if is_tensor(array) else "cupy"

    def make(_: Any) -> Any:
        stream = stream_of(ordinal)
        if connect().is_capturing(stream, ordinal):
            return _zeros(library, ordinal, size)
        thread = get_ident() if stream == PER_THREAD else 0
        return _kept_zeros(library, ordinal, stream, thread, size)

    return make


def _host_zeros(array: Any, count: int) -> Any:
    zeros = empty_beside(array, (count,), "i32")
    zeros[...] = 0
    return zeros


@cache
def _kept_zeros(library: str, device: int, stream: int, thread: int, count: int) -> Any:
    return _zeros(library, device, count)


def _zeros(library: str, device: int, count: int) -> Any:
    made: Any = sys.modules[library]
    if library == "torch":
        return made.zeros(count, dtype=made.int32, device=f"cuda:{device}")
    with made.cuda.Device(device):
        return made.zeros(count, dtype="int32")


__all__ = [
    "BYTES",
    "LINE",
    "PRODUCTS",
    "Operand",
    "View",
    "Zeros",
    "counters_beside",
    "counters_maker",
    "empty_beside",
    "fits_tma",
    "look",
    "maker_beside",
    "on_lines",
    "operand",
]
