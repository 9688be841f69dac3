"""The CUDA kernel's parameters, in order: what the launcher must pass for each.

Expressions are Python over the names of the user's arguments, for values the launcher computes on
the host (a descriptor made inside the kernel from arguments only). `NAME.extents[i]` and
`NAME.strides[i]` refer to a descriptor argument.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tawa.layouts.windows import Window


@dataclass(frozen=True, slots=True)
class ScalarParameter:
    """An argument, or a pure expression of arguments, passed by value as `dtype`."""

    expression: str
    dtype: str


@dataclass(frozen=True, slots=True)
class PointerParameter:
    """The device address held by argument `name`."""

    name: str


@dataclass(frozen=True, slots=True)
class GridParameter:
    """The extent of the user's grid along `axis` (i32)."""

    axis: int


@dataclass(frozen=True, slots=True)
class CounterParameter:
    """Which of the kernel's `COUNTERS` counters this launch uses (i32).

    All are 0 between launches; launches that may run at the same time use different ones.
    """


@dataclass(frozen=True, slots=True)
class TensorMapParameter:
    """A CUtensorMap by value (128 bytes, __grid_constant__).

    `source` names a descriptor argument, or is empty and `base`, `extents`, `strides` (elements,
    slowest dimension first) are expressions. `box` in elements, slowest first; `swizzle` in bytes.
    `row` is the width of a tile in bytes, of which a box is one panel. With `window` the box is
    [windows, channels] of images.
    """

    label: str
    dtype: str
    box: tuple[int, ...]
    swizzle: int
    padding: str
    source: str = ""
    base: str = ""
    extents: tuple[str, ...] = ()
    strides: tuple[str, ...] = ()
    row: int = 0
    window: Window | None = None


Parameter: TypeAlias = (
    ScalarParameter | PointerParameter | GridParameter | CounterParameter | TensorMapParameter
)

COUNTERS = 4096
"""The counters of a kernel that asks for its programs one by one: 16 KiB of the GPU's memory."""


@dataclass(frozen=True, slots=True)
class CudaSource:
    """One kernel as CUDA C++.

    `text` includes no header; `entry_name` is its extern "C" kernel; `parameters` are its
    parameters in order. `threads` a block, `shared_bytes` of dynamic shared memory, `cluster`
    blocks a cluster, `early` says that a launch need not wait for the kernel before, `arch` the
    architecture the text is written for.
    """

    text: str
    entry_name: str
    parameters: tuple[Parameter, ...]
    threads: int
    shared_bytes: int
    cluster: int
    persistent: bool
    arch: str
    early: bool = False
