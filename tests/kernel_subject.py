"""A kernel with its oracle and arguments of any trip count, ready to run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from tawa.ir import hopper, tile
from tawa.simulator import simulate
from tawa.simulator.memory import HostDescriptor

Arguments = dict[str, Any]


@dataclass(frozen=True)
class Ready:
    """A kernel with its oracle, a grid and arguments."""

    oracle: tile.Kernel
    kernel: tile.Kernel
    grid: tuple[int, int, int]
    arguments: Arguments

    def fresh(self) -> Arguments:
        """Copies of the arguments; what shares memory goes on sharing it."""
        return copied(self.arguments)

    def expected(self) -> Arguments:
        """The arguments as the oracle leaves them."""
        arguments = self.fresh()
        simulate(self.oracle, self.grid, arguments, level="tile")
        return arguments


@dataclass(frozen=True)
class Subject:
    """A kernel at every size. Without a `step` no argument says how often its loops run; where
    `exact`, all sums are exact and results equal bit for bit. `least` is the fewest iterations it
    takes.
    """

    at: Callable[[int | None], Ready]
    step: int = 0
    exact: bool = True
    least: int = 0

    @cached_property
    def depth(self) -> int:
        """The slots of the longest ring."""
        rings = [op for op in self.at(None).kernel.walk() if isinstance(op, hopper.Barriers)]
        return max((op.result.type.count.data for op in rings), default=1)

    def extents(self) -> Iterator[int | None]:
        """Every trip count from 0 to past twice round the ring, whole and with an uneven tail."""
        if not self.step:
            yield None
            return
        for iterations in range(self.least, 2 * self.depth + 3):
            yield iterations * self.step
            if iterations and self.step > 16:
                yield iterations * self.step - self.step // 32 * 16

    def same(self, want: Arguments, got: Arguments) -> None:
        """Raise AssertionError unless two runs left the same memory."""
        for name in want:
            expected, actual = (array_of(x[name]) for x in (want, got))
            if not isinstance(expected, np.ndarray):
                continue
            expected, actual = (np.asarray(x, np.float64) for x in (expected, actual))
            if self.exact:
                assert np.array_equal(expected, actual, equal_nan=True), name
            else:
                assert np.allclose(expected, actual, rtol=4e-3, atol=4e-3, equal_nan=True), name


def array_of(value: Any) -> Any:
    return value.base if isinstance(value, HostDescriptor) else value


def copied(arguments: Mapping[str, Any]) -> Arguments:
    """Copies of all arrays, one of each."""
    made: dict[int, np.ndarray] = {}

    def copy(array: np.ndarray) -> np.ndarray:
        return made.setdefault(array.ctypes.data, twin(array))

    found: Arguments = {}
    for name, value in arguments.items():
        match value:
            case HostDescriptor():
                found[name] = replace(value, base=copy(value.base))
            case np.ndarray():
                found[name] = copy(value)
            case _:
                found[name] = value
    return found


def twin(array: np.ndarray) -> np.ndarray:
    """A copy with the same strides, in memory to the end of the last 16 bytes."""
    if min(array.strides, default=0) < 0 or array.size == 0:
        return array.copy()
    steps = sum((n - 1) * step for n, step in zip(array.shape, array.strides))
    memory = np.zeros(-(-(steps + array.itemsize) // 16) * 16, np.uint8)
    made = np.ndarray(array.shape, array.dtype, memory, strides=array.strides)
    made[...] = array
    return made


def in_rows(array: np.ndarray) -> np.ndarray:
    """A copy whose rows begin at multiples of 16 bytes, as TMA steps over them."""
    unit = max(1, 16 // array.itemsize)
    wide = np.zeros((*array.shape[:-1], -(-array.shape[-1] // unit) * unit), array.dtype)
    wide[..., : array.shape[-1]] = array
    return wide[..., : array.shape[-1]]


def descriptor(array: np.ndarray, block: tuple[int, ...]) -> HostDescriptor:
    steps = tuple(step // array.itemsize for step in array.strides)
    return HostDescriptor(array, array.shape, steps, block)
