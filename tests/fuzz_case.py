"""A random kernel as a value: source, arguments, and one launch of it."""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from types import FunctionType
from typing import Any
from zlib import crc32

import ml_dtypes
import numpy as np

DTYPES: dict[str, Any] = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "f8e4m3": ml_dtypes.float8_e4m3fn,
    "f8e5m2": ml_dtypes.float8_e5m2,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "u8": np.uint8,
    "u16": np.uint16,
    "u32": np.uint32,
}
WORDS = {
    "f16": "tl.float16",
    "bf16": "tl.bfloat16",
    "f32": "tl.float32",
    "f8e4m3": "tl.float8e4nv",
    "f8e5m2": "tl.float8e5",
    "i8": "tl.int8",
    "i32": "tl.int32",
}


@dataclass(frozen=True)
class Array:
    """An argument with data: `block` makes it a descriptor; `limit` bounds its integers.

    `limit` 0 is an array of results: all of it starts as `start`, where that is given, else as
    NaN, or as a number no kernel stores.
    """

    shape: tuple[int, ...]
    dtype: str
    block: tuple[int, ...] = ()
    low: int = -2
    limit: int = 2
    start: int | None = None

    def made(self, random: np.random.Generator) -> np.ndarray[Any, Any]:
        """A fresh array."""
        kind = DTYPES[self.dtype]
        if self.limit:
            return random.integers(self.low, self.limit + 1, self.shape).astype(kind)
        unset = -99 if self.dtype.startswith("i") else np.nan
        return np.full(self.shape, unset if self.start is None else self.start, kind)


@dataclass(frozen=True)
class Case:
    """One kernel and one launch of it. `options` are hints and pins."""

    source: str
    arguments: dict[str, Array | int]
    constants: dict[str, int]
    grid: tuple[int, int, int]
    options: dict[str, Any] = field(default_factory=dict)
    seed: int = 0

    def function(self) -> FunctionType:
        """The kernel; its source is found as that of a file."""
        import fuzz_library
        import tawa.language as tl

        name = f"<fuzz {crc32(self.source.encode()):08x}>"
        linecache.cache[name] = (len(self.source), None, self.source.splitlines(True), name)
        scope: dict[str, Any] = {"tl": tl, "lib": fuzz_library, "__name__": "fuzz"}
        exec(compile(self.source, name, "exec"), scope)
        return scope["kernel"]

    def data(self) -> dict[str, Any]:
        """Fresh arrays and numbers by name: equal at every call."""
        random = np.random.default_rng(self.seed)
        made: dict[str, Any] = {}
        for name, kind in self.arguments.items():
            made[name] = kind if isinstance(kind, int) else kind.made(random)
        return made

    def given(self, data: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a launch on `data`: descriptors of the arrays that have blocks."""
        import tawa

        made = dict(data)
        for name, kind in self.arguments.items():
            if isinstance(kind, Array) and kind.block:
                made[name] = tawa.TensorDescriptor.from_tensor(data[name], list(kind.block))
        return made

    def __str__(self) -> str:
        arguments = ", ".join(f"{name}={kind}" for name, kind in self.arguments.items())
        return (
            f"{self.source}\ngrid {self.grid}, {self.constants}, options {self.options}, "
            f"seed {self.seed}\n{arguments}"
        )


class Drawn:
    """Writes a kernel by drawing: its arguments so far, and fresh names."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.arguments: dict[str, Array | int] = {}
        self.count = 0

    def pick(self, *items: Any) -> Any:
        return self.random.choice(items)

    def fresh(self, stem: str = "v") -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def argument(self, name: str, kind: Array | int) -> str:
        self.arguments.setdefault(name, kind)
        return name


def indented(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def headed(lines: list[str], arguments: dict[str, Array | int], constants: dict[str, int]) -> str:
    """The source of a kernel of these statements."""
    names = [*arguments, *(f"{name}: tl.constexpr" for name in constants)]
    return "\n".join([f"def kernel({', '.join(names)}):", *lines, ""])


def written(
    function: Callable[..., None], arguments: dict[str, Array | int], **launch: Any
) -> Case:
    """A case of a kernel that stands in a test's file."""
    source = inspect.getsource(function).replace(f"def {function.__name__}(", "def kernel(", 1)
    return Case(source, arguments, **launch)
