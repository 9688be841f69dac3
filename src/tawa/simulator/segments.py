"""The memory of one array argument, as bytes and as elements."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from tawa.simulator.values import Array, DType

CHUNK = 16
"""Bytes that TMA writes where it writes any of them (seen on an H200 and an H100)."""


@dataclass(slots=True, eq=False)
class Segment:
    """The memory of one argument: bytes, the lowest of them `low` bytes from the first element,
    which has `size` bytes. The last `beyond` bytes follow the argument's own in its base array.
    """

    name: str
    low: int
    size: int
    data: Array
    beyond: int
    writable: bool
    views: dict[DType, Array] = field(default_factory=dict[DType, Array])

    @property
    def real(self) -> int:
        """The machine address of `data[0]`: equal where arguments alias."""
        return int(self.data.ctypes.data)

    def typed(self, dtype: DType, *, beyond: bool = False) -> tuple[Array, int]:
        """Return the bytes as elements, and the index of the first element in them.

        With `beyond` also those that follow the argument's own: TMA writes there.
        """
        phase = -self.low % dtype.itemsize
        if beyond:
            return self._elements(dtype, phase, self.data.size), (
                -self.low - phase
            ) // dtype.itemsize
        view = self.views.get(dtype)
        if view is None:
            view = self.views[dtype] = self._elements(dtype, phase, self.data.size - self.beyond)
        return view, (-self.low - phase) // dtype.itemsize

    def _elements(self, dtype: DType, phase: int, end: int) -> Array:
        count = (end - phase) // dtype.itemsize
        return self.data[phase : phase + max(count, 0) * dtype.itemsize].view(dtype)


def bytes_of(array: Any) -> tuple[Array, int, int]:
    """Return the bytes an array spans, the offset of the lowest one from its first element, and how
    many of the bytes, the last ones, only follow it in its base array: less than `CHUNK`.
    """
    if array.size == 0:
        return np.empty(0, np.uint8), 0, 0
    spans = [(n - 1) * step for n, step in zip(array.shape, array.strides)]
    low = sum(span for span in spans if span < 0)
    high = sum(span for span in spans if span > 0) + array.itemsize
    corner = (slice(-1, None) if step < 0 else slice(0, 1) for step in array.strides)
    lowest = array[(*corner, ...)]  # the ellipsis keeps an array of no dimensions an array
    # As bytes first: the array interface has no name for fp8 types of one byte.
    seed = lowest.reshape(1).view(np.uint8)
    end = array.ctypes.data + high
    beyond = min(CHUNK - 1, _end_of_base(array) - end)
    return np.lib.stride_tricks.as_strided(seed, (high - low + beyond,), (1,)), low, beyond


def _end_of_base(array: Any) -> int:
    """Return the machine address behind the memory of the array that an array is a view of."""
    while isinstance(array.base, np.ndarray):
        array = cast("Any", array.base)  # pyright: ignore[reportUnknownMemberType]
    spans = [(n - 1) * step for n, step in zip(array.shape, array.strides)]
    return array.ctypes.data + sum(span for span in spans if span > 0) + array.itemsize
