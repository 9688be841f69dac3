"""Runs generated CUDA C++ on the host: wrappers replaced by twins, threads as fibers.

`emulate(kernel, arguments, grid)` compiles the text with a C++ compiler against
`emulator/device.h` and runs it in a process of its own; arrays are NumPy arrays, updated in place.
Asynchronous work completes at a random legal time, as late or as early as can be: a third of the
seeds each.
"""

from __future__ import annotations

import re
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from emulator_build import COMPILER, needs_compiler, program
from emulator_twins import hosted
from tawa.codegen import CudaSource
from tawa.codegen.generate import generate
from tawa.codegen.parameters import (
    CounterParameter,
    GridParameter,
    PointerParameter,
    ScalarParameter,
    TensorMapParameter,
)
from tawa.codegen.wrappers.core import PRELUDE
from tawa.ir import tile

__all__ = ["COMPILER", "emulate", "needs_compiler"]

FORMATS = {"i32": "<i", "u32": "<I", "i64": "<q", "u64": "<Q", "f32": "<f", "f64": "<d", "i1": "<?"}
NUMPY: dict[str, Any] = {
    "f16": np.float16, "bf16": np.uint16, "f32": np.float32, "f64": np.float64, "i8": np.int8,
    "i16": np.int16, "i32": np.int32, "i64": np.int64, "u8": np.uint8, "u16": np.uint16,
    "u32": np.uint32, "u64": np.uint64, "f8e4m3": np.uint8, "f8e5m2": np.uint8, "i1": np.bool_,
}  # fmt: skip
NUMBERS = {
    "f16": "h", "bf16": "b", "f32": "f", "f64": "d", "i32": "i", "u32": "I", "i64": "q", "u64": "Q",
}  # fmt: skip


def call(source: CudaSource, space: str) -> str:
    """The call of an entry with the arguments of the blob."""
    head = re.search(rf"\n{source.entry_name}\((.*?)\) \{{", source.text)
    assert head is not None
    kinds = [item.removeprefix("const ").replace("__grid_constant__ ", "").rsplit(" ", 1)[0]
             for item in head[1].split(", ") if item]  # fmt: skip
    passed = ", ".join(f"*(const {kind}*)(blob + {i} * 128)" for i, kind in enumerate(kinds))
    shape = f"{{{source.threads}, {source.shared_bytes}, {source.cluster}, {resident(source)}}}"
    entry = f"[=] {{ ::{space}::{source.entry_name}({passed}); }}"  # whatever names main() has
    return f"emu::launch({entry}, grid, {shape}, seed); break;"


def resident(source: CudaSource) -> int:
    """The blocks a multiprocessor is to hold at least: registers are shared out among them."""
    bounds = rf"__launch_bounds__\((\d+), (\d+)\)\n{source.entry_name}\("
    threads, blocks = map(int, re.search(bounds, source.text).groups())
    assert threads == source.threads
    return blocks


@lru_cache(maxsize=8)
def unit(sources: tuple[CudaSource, ...]) -> str:
    """What is compiled: every text in a namespace of its own, and main(). Tests run one after
    another of the texts of a program.
    """
    spaces = {source.text: f"text_{i}" for i, source in enumerate(sources)}
    parts = [PRELUDE]
    for source in {source.text: source for source in sources}.values():
        # The address of `memory` is never asked for: see shared_address.
        memory = "alignas(1024) unsigned char memory[1];"
        text = hosted(source).replace('extern "C" ', "")
        parts.append(f"namespace {spaces[source.text]} {{\n{memory}\n{text}\n}}")
    calls = [call(source, spaces[source.text]) for source in sources]
    return "\n".join([*parts, harness(calls)])


def harness(calls: Sequence[str]) -> str:
    """main(): reads the arguments' blob, launches an entry, writes the memory back."""
    cases = "\n".join(f"      case {i}: {each}" for i, each in enumerate(calls))
    return f"""
int main(int count, char** words) {{
  FILE* file = fopen(words[1], "rb+");
  fseek(file, 0, SEEK_END);
  long size = ftell(file);
  // Memory lies 128-byte aligned, as the arguments expect; addresses in them are offsets.
  unsigned char* bytes = (unsigned char*)aligned_alloc(4096, (size + 8191) / 4096 * 4096);
  rewind(file);
  if (fread(bytes, 1, size, file) != (size_t)size) return 2;
  unsigned char* blob = bytes;
  int number = atoi(words[2]);
  for (int i = 0; i < number; ++i) {{
    long offset = atol(words[9 + i]);
    if (offset >= 0) *(unsigned char**)(blob + i * 128) = bytes + offset;
  }}
  unsigned x = atoi(words[3]), y = atoi(words[4]), z = atoi(words[5]), seed = atoi(words[6]);
  try {{
    emu::Index grid{{x, y, z}};
    switch (atoi(words[7])) {{
{cases}
    }}
  }} catch (const std::exception& error) {{
    fprintf(stderr, "%s\\n", error.what());
    return 3;
  }}
  rewind(file);
  fwrite(bytes, 1, size, file);
  fclose(file);
  return 0;
}}
"""


def encode_map(parameter: TensorMapParameter, named: Mapping[str, Any]) -> tuple[bytes, int]:
    """The emulator's tensor map, and the place of its tensor: the harness fills the address in."""
    if parameter.source:
        described = named[parameter.source]
        extents, strides = described.extents, described.strides
        place, size = described.base, described.itemsize
    else:
        extents = [eval(text, {}, dict(named)) for text in parameter.extents]
        strides = [eval(text, {}, dict(named)) for text in parameter.strides]
        place = eval(parameter.base, {}, dict(named))
        size = np.dtype(NUMPY[parameter.dtype]).itemsize
    rank = len(extents)
    pad = [1] * (5 - rank)
    box = list(reversed(parameter.box))
    window, turns = parameter.window, [0, 0, 0]
    if window is not None:  # as copies.cc has them
        corners = zip(reversed(window.lower), reversed(window.upper))
        box += [(low & 0xFFFF) | high << 16 for low, high in corners]
        turns[: window.axes] = reversed(window.stride)
    shift = parameter.swizzle.bit_length() - 1 if parameter.swizzle else 0
    steps = [stride * size for stride in reversed(strides)]
    return struct.pack(
        "<q5q5q5i8B", 0, *reversed(extents), *pad, *steps, *pad, *box, *[1] * (5 - len(box)), rank,
        size, shift, parameter.padding == "nan", ord(NUMBERS.get(parameter.dtype, "?")), *turns,
    ), place  # fmt: skip


def emulate(
    kernel: tile.Kernel | CudaSource,
    arguments: Mapping[str, Any],
    grid: tuple[int, int, int],
    *,
    blocks: int | None = None,
    seed: int = 1,
    among: Sequence[CudaSource] = (),
) -> None:
    """Run a kernel at hopper level; `grid` is the user's, `blocks` a persistent kernel's own.

    `among` are the kernels that are compiled with it, once for all of them: most of what a small
    program takes is the start of the compiler and the linker.
    """
    source = kernel if isinstance(kernel, CudaSource) else generate(kernel)
    held = {name: getattr(value, "base", None) for name, value in arguments.items()}
    held |= {name: value for name, value in arguments.items() if isinstance(value, np.ndarray)}
    arrays = {name: value for name, value in held.items() if isinstance(value, np.ndarray)}
    rows: list[bytes] = []
    offsets: list[int] = []
    place = 4096 * (-(-128 * len(source.parameters) // 4096))
    start: dict[str, int] = {}
    same: dict[int, int] = {}  # arguments that share memory go on sharing it
    for name, array in arrays.items():
        start[name] = same.setdefault(array.ctypes.data, place)
        place += 4096 * (-(-spanned(array) // 4096)) + 4096
    named = scope(arguments, start)
    for parameter in source.parameters:
        offset = -1
        match parameter:
            case TensorMapParameter():
                row, offset = encode_map(parameter, named)
            case PointerParameter():
                row, offset = b"", start[parameter.name]
            case GridParameter():
                row = struct.pack("<i", grid[parameter.axis])
            case CounterParameter():
                row = struct.pack("<i", 1)
            case ScalarParameter(expression=text) if text.endswith(".base"):
                row, offset = b"", start[text.removesuffix(".base")]
            case ScalarParameter():
                value = eval(parameter.expression, {}, dict(named))
                row = struct.pack(FORMATS[parameter.dtype], value)
        rows.append(row.ljust(128, b"\0"))
        offsets.append(offset)
    memory = bytearray(place)
    memory[: 128 * len(rows)] = b"".join(rows)
    for name, array in arrays.items():
        seen_in(memory, start[name], array)[...] = array
    launched = grid
    if source.persistent and blocks is not None:  # in whole clusters
        launched = (-(-blocks // source.cluster) * source.cluster, 1, 1)
    result = run(source, bytes(memory), offsets, launched, seed, among or [source])
    for name, array in arrays.items():
        array[...] = seen_in(result, start[name], array)


def spanned(array: np.ndarray) -> int:
    """The bytes from an array's first element to the end of its last."""
    steps = ((n - 1) * step for n, step in zip(array.shape, array.strides))
    return sum(steps) + array.itemsize if array.size else 0


def seen_in(memory: bytes | bytearray, place: int, array: np.ndarray) -> np.ndarray:
    """The array of this form that lies at a place in memory."""
    return np.ndarray(array.shape, array.dtype, memory, place, array.strides)


@dataclass(frozen=True)
class Described:
    """A descriptor argument as expressions see it: `base` is its place in the blob of memory."""

    base: int
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int


class Placed(int):
    """An array argument: a place in memory as a pointer, and what a descriptor of all of it has."""

    def described(self, array: np.ndarray) -> Placed:
        self.base = int(self)
        self.extents = array.shape
        self.strides = tuple(step // array.itemsize for step in array.strides)
        self.itemsize = array.itemsize
        return self


def scope(arguments: Mapping[str, Any], start: Mapping[str, int]) -> dict[str, Any]:
    """The names that host expressions may use."""
    named: dict[str, Any] = {}
    for name, value in arguments.items():
        if isinstance(value, np.ndarray):
            named[name] = Placed(start[name]).described(value)
        elif name in start:  # a descriptor of the simulator's
            shape, strides = tuple(value.shape), tuple(value.strides)
            named[name] = Described(start[name], shape, strides, value.base.itemsize)
        else:
            named[name] = value
    return named


def run(
    source: CudaSource,
    memory: bytes,
    offsets: list[int],
    grid: tuple[int, int, int],
    seed: int,
    among: Sequence[CudaSource],
) -> bytes:
    """Compile and run the host program on a file of memory."""
    path = program(unit(tuple(among)))
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        (base / "memory").write_bytes(memory)
        words = [len(offsets), *grid, seed, among.index(source), 0, *offsets]
        done = subprocess.run(
            [str(path), "memory", *map(str, words)],
            cwd=base, capture_output=True, text=True, check=False,
        )  # fmt: skip
        sys.stdout.write(done.stdout)
        assert done.returncode == 0, done.stderr[-4000:]
        return (base / "memory").read_bytes()
