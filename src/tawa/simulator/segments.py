"""The memory of one array argument, as bytes and as elements."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tawa.simulator.values import Array, DType


@dataclass(slots=True, eq=False)
class Segment:
    """The memory of one argument: bytes, the lowest of them `low` bytes from the first element,
    which has `size` bytes.
    """

    name: str
    low: int
    size: int
    data: Array
    writable: bool
    views: dict[DType, Array] = field(default_factory=dict[DType, Array])

    @property
    def real(self) -> int:
        """The machine address of `data[0]`: equal where arguments alias."""
        return int(self.data.ctypes.data)

    def typed(self, dtype: DType) -> tuple[Array, int]:
        """Return the bytes as elements, and the index of the first element in them."""
        phase = -self.low % dtype.itemsize
        view = self.views.get(dtype)
        if view is None:
            count = (self.data.size - phase) // dtype.itemsize
            view = self.data[phase : phase + max(count, 0) * dtype.itemsize].view(dtype)
            self.views[dtype] = view
        return view, (-self.low - phase) // dtype.itemsize


def bytes_of(array: Any) -> tuple[Array, int]:
    """Return the bytes an array spans and the offset of the lowest one from its first element."""
    if array.size == 0:
        return np.empty(0, np.uint8), 0
    spans = [(n - 1) * step for n, step in zip(array.shape, array.strides)]
    low = sum(span for span in spans if span < 0)
    high = sum(span for span in spans if span > 0) + array.itemsize
    corner = (slice(-1, None) if step < 0 else slice(0, 1) for step in array.strides)
    lowest = array[(*corner, ...)]  # the ellipsis keeps an array of no dimensions an array
    # As bytes first: the array interface has no name for fp8 types of one byte.
    seed = lowest.reshape(1).view(np.uint8)
    return np.lib.stride_tricks.as_strided(seed, (high - low,), (1,)), low
