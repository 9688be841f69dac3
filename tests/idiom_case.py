"""A kernel as users bring it, with a launch and what it must give: run at every level.

`@idiom(grid, want, close, x=..., n=...)` stands on a kernel: an argument is a value, a tuple of
values, or a function that makes an array from a random generator. `want` gets the arguments as
they were before the launch and returns what arrays hold after it, by parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from zlib import crc32

import numpy as np

import tawa
from codegen_emulator import emulate
from tawa.codegen import CudaSource
from tawa.codegen.generate import generate

Arguments = dict[str, Any]


@dataclass(eq=False)
class Idiom:
    name: str
    kernel: Any
    given: Mapping[str, Any]
    grid: tuple[int, ...]
    want: Callable[..., Mapping[str, np.ndarray]]
    close: float

    def arguments(self) -> Arguments:
        """The arguments of a launch, new arrays each time."""
        rng = np.random.default_rng(crc32(self.name.encode()))
        return {name: made(value, rng) for name, value in self.given.items()}

    def call(self, arguments: Arguments) -> tuple[list[Any], Arguments]:
        """The arguments of a call by place, and those by name after the first left out."""
        names, computed = self.kernel.arg_names, getattr(self.kernel, "values", ())
        named = (i for i, name in enumerate(names) if name not in arguments or name in computed)
        count = next(named, len(names))
        rest = {name: arguments[name] for name in arguments if name not in names[:count]}
        return [arguments[name] for name in names[:count]], rest

    def check(self, before: Arguments, after: Arguments) -> None:
        """Compare what a launch left with what it must leave."""
        wanted = self.want(**before)
        assert wanted
        for name, expected in wanted.items():
            found, exact = (np.asarray(x).astype(np.float64) for x in (after[name], expected))
            if not self.close:
                np.testing.assert_array_equal(found, exact, err_msg=name)
                continue
            assert (np.isfinite(found) == np.isfinite(exact)).all(), name
            finite = np.isfinite(exact)
            error = np.linalg.norm(found[finite] - exact[finite])
            assert error <= self.close * np.linalg.norm(exact[finite]), (name, error)

    def simulate(self, level: str) -> None:
        """Run in the simulator: "tile", the program as written, or "hopper"."""
        before, after = self.arguments(), self.arguments()
        placed, named = self.call(after)
        tawa.simulate(self.kernel, *placed, grid=self.grid, level=level, **named)
        self.check(before, after)

    @cached_property
    def source(self) -> CudaSource:
        """The generated text."""
        placed, named = self.call(self.arguments())
        compiled = self.kernel.compile(*placed, grid=self.grid, **named)
        return generate(compiled.asm.program("hopper"))

    def emulate(self, among: Sequence[CudaSource] = ()) -> None:
        """Run the generated text, one `among` others, against the emulation of the device
        functions.
        """
        before, after = self.arguments(), self.arguments()
        _, flat = innermost(self.kernel).spread(after)
        grid = (*self.grid, 1, 1)[:3]
        emulate(self.source, flat, grid, blocks=2, among=among)
        self.check(before, after)


def innermost(kernel: Any) -> Any:
    """The kernel under its heuristics and its tuning."""
    return kernel if hasattr(kernel, "__name__") else innermost(kernel.fn)


def made(value: Any, rng: np.random.Generator) -> Any:
    if isinstance(value, tuple):
        items = [made(item, rng) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return value(rng) if callable(value) and not hasattr(value, "fn") else value


def idiom(
    cases: dict[str, Idiom],
    grid: tuple[int, ...],
    want: Callable[..., Mapping[str, np.ndarray]],
    close: float = 0.0,
    label: str = "",
    **given: Any,
) -> Callable[[Any], Any]:
    """Add a launch of the kernel below to `cases`."""

    def add(kernel: Any) -> Any:
        name = f"{innermost(kernel).__name__}{' ' * bool(label)}{label}"
        assert name not in cases
        cases[name] = Idiom(name, kernel, given, grid, want, close)
        return kernel

    return add


def normal(*shape: int, dtype: Any = np.float32) -> Callable[[np.random.Generator], np.ndarray]:
    return lambda rng: rng.standard_normal(shape).astype(dtype)


def integers(
    low: int, high: int, *shape: int, dtype: Any = np.int32
) -> Callable[[np.random.Generator], np.ndarray]:
    return lambda rng: rng.integers(low, high, shape).astype(dtype)


def blank(*shape: int, dtype: Any = np.float32) -> Callable[[np.random.Generator], np.ndarray]:
    """A result, filled with something else than zero."""
    return lambda _: np.full(shape, 77, dtype)


def fixed(array: np.ndarray) -> Callable[[np.random.Generator], np.ndarray]:
    return lambda _: array.copy()
