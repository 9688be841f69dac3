"""Runs generated CUDA C++ on the host: wrappers replaced by twins, threads as fibers.

`emulate(kernel, arguments, grid)` compiles the text with a C++ compiler against
`emulator/device.h` and runs it in a process of its own; arrays are NumPy arrays, updated in place.
The compiler is $CXX, else the system's, else that of the `ziglang` wheel; programs are kept by
their content in a folder of the user's under the temporary one.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tawa.codegen import CudaSource, generate
from tawa.codegen.parameters import (
    GridParameter,
    PointerParameter,
    ScalarParameter,
    TensorMapParameter,
)
from tawa.codegen.wrappers.core import PRELUDE
from tawa.ir import tile


def find_compiler() -> tuple[str, ...] | None:
    """The words that start a C++ compiler, or None."""
    if named := os.environ.get("CXX"):
        return tuple(shlex.split(named))
    for name in ("c++", "g++", "clang++"):
        if found := shutil.which(name):
            return (found,)
    if importlib.util.find_spec("ziglang") is not None:
        return (sys.executable, "-m", "ziglang", "c++")
    return None


COMPILER = find_compiler()
# Where there should be one, a missing compiler is an error, not a reason to skip.
needs_compiler = pytest.mark.skipif(
    COMPILER is None and not os.environ.get("CI"), reason="no C++ compiler"
)
HEADER = Path(__file__).parent / "emulator" / "device.h"
TYPES = {
    "f16": "F16", "bf16": "BF16", "f32": "TF32", "f8e4m3": "E4M3", "f8e5m2": "E5M2", "i8": "S8",
    "u8": "U8",
}  # fmt: skip
FORMATS = {"i32": "<i", "u32": "<I", "i64": "<q", "u64": "<Q", "f32": "<f", "f64": "<d", "i1": "<?"}
NUMPY: dict[str, Any] = {
    "f16": np.float16, "bf16": np.uint16, "f32": np.float32, "f64": np.float64, "i8": np.int8,
    "i16": np.int16, "i32": np.int32, "i64": np.int64, "u8": np.uint8, "u16": np.uint16,
    "u32": np.uint32, "u64": np.uint64, "f8e4m3": np.uint8, "f8e5m2": np.uint8, "i1": np.bool_,
}  # fmt: skip
LETTERS = {"e4m3": "4, 3", "e5m2": "5, 2"}

FIXED = {
    "shared_address": "return emu::SHARED;",
    "barrier_init": "emu::self().block->barriers[barrier] = {(int)arrivals, (int)arrivals, 0, 0};",
    "barrier_expect": (
        "emu::MBarrier& b = emu::barrier(emu::self().block, barrier); b.bytes += bytes; "
        "emu::arrive(b);"
    ),
    "barrier_wait": (
        "emu::MBarrier& b = emu::barrier(emu::self().block, barrier); "
        "emu::until([&] { return b.phase != (int)phase; });"
    ),
    "barrier_arrive": "emu::arrive(emu::barrier(emu::self().block, barrier));",
    "barrier_arrive_cluster": (
        "emu::arrive(emu::barrier(emu::machine->blocks[block].get(), barrier));"
    ),
    "block_sync": (
        "emu::meet(emu::self().block->named[0], "
        "(int)(emu::machine->fibers.size() / emu::machine->blocks.size()));"
    ),
    "cluster_sync": "emu::meet(emu::machine->cluster, (int)emu::machine->fibers.size());",
    "cluster_rank": "return emu::self().block->rank;",
    "named_sync": "emu::meet(emu::self().block->named[id], threads);",
    "named_arrive": "emu::meet(emu::self().block->named[id], threads, false);",
    "named_sync_of_group": "emu::meet(emu::self().block->named[id], threads);",
    "named_arrive_of_group": "emu::meet(emu::self().block->named[id], threads, false);",
    "exp2_approx": "return std::exp2(x);",
    "sqrt_approx": "return std::sqrt(x);",
    "divide_full": "return x / y;",
    "min_nan": "return std::isnan(x) || std::isnan(y) ? NAN : std::fmin(x, y);",
    "max_nan": "return std::isnan(x) || std::isnan(y) ? NAN : std::fmax(x, y);",
    "round_tf32": "u32 y = emu::bits<u32>(x); return (y + 0x1000) & 0xFFFFE000u;",
    "policy_evict_first": "return 0;",
    "policy_evict_last": "return 0;",
}
NOTHING = (
    "fence_", "wgmma_fence", "wgmma_commit", "wgmma_wait", "bulk_", "take_registers",
    "give_registers", "pin", "prefetch_map", "copy_commit", "copy_wait",
)  # fmt: skip


def twin(name: str, parameters: list[str]) -> str:
    """The host body of a wrapper, from its name."""
    if name in FIXED:
        return FIXED[name]
    arguments = [parameter.split()[-1].lstrip("*&") for parameter in parameters]
    places = ", ".join(item for item in arguments if re.fullmatch(r"x\d", item))
    if found := re.fullmatch(r"wgmma_m64n(\d+)k(\d+)_(\w+?)(_registers)?(_ta)?(_tb)?", name):
        n, k, kinds = found[1], found[2], found[3].split("_")
        _, a, b = kinds
        flags = ", ".join(str(int(found[i] is not None)) for i in (4, 5, 6))
        product = f"{n}, {k}, emu::F32, emu::{TYPES[a]}, emu::{TYPES[b]}, {flags}"
        return f"emu::wgmma({{{product}}}, d, a, b, accumulate);"
    if name.startswith(NOTHING):
        return ""
    if found := re.fullmatch(r"mma_m16n8k(\d+)_(\w+?)_(\w+?)_(\w+?)", name):
        words = ", ".join(item for item in arguments if item != "d")
        count = sum(item.startswith("a") for item in arguments)
        kinds = f"emu::{TYPES[found[3]]}, emu::{TYPES[found[4]]}"
        return f"emu::mma({found[1]}, {kinds}, d, {{{words}}}, {count});"
    if name.startswith("tma_load"):
        mask = "blocks" if "multicast" in name else "0"
        return f"emu::tma_load(to, map, barrier, {{{places}}}, {mask});"
    if name.startswith("tma_"):
        how = next((k.upper() for k in ("add", "min", "max") if f"reduce_{k}" in name), "PUT")
        return f"emu::tma_store(map, from, {{{places}}}, emu::{how});"
    if found := re.fullmatch(r"(st|ld)matrix_x\d(_trans)?", name):
        words = ", ".join(f"&{item}" for item in arguments if item.startswith("m"))
        store = str(found[1] == "st").lower()
        return f"emu::matrices<{store}>(row, {{{words}}}, {int(found[2] is not None)});"
    return memory_twin(name)


def memory_twin(name: str) -> str:
    """The host body of a load, store, atomic, copy or conversion."""
    if found := re.fullmatch(r"shared_(load|store)_(\w+?)x(\d)", name):
        size = f"{found[3]} * sizeof({found[2]})"
        move = ("to", f"emu::at(address, {size})") if found[1] == "load" else (
            f"emu::at(address, {size})", "from")  # fmt: skip
        return f"std::memcpy({move[0]}, {move[1]}, {size});"
    if found := re.fullmatch(r"shared_(load|store)_b(\d+)", name):
        pointer = f"*(u{found[2]}*)emu::at(address, {int(found[2]) // 8})"
        return f"return {pointer};" if found[1] == "load" else f"{pointer} = (u{found[2]})value;"
    if found := re.fullmatch(r"global_(load|store)_(u32|int|float|u64|i64|double)x(\d)\w*", name):
        size = f"{found[3]} * sizeof({found[2]})"
        check = f'if (address % ({size})) throw std::out_of_range("misaligned"); '
        move = "to, (void*)address" if found[1] == "load" else "(void*)address, from"
        return f"{check}std::memcpy({move}, {size});"
    if found := re.fullmatch(r"global_(load|store)_b(\d+)\w*", name):
        pointer = f"*(u{found[2]}*)address"
        return f"return {pointer};" if found[1] == "load" else f"{pointer} = (u{found[2]})value;"
    if found := re.fullmatch(r"copy_async_(\d+)", name):
        size = found[1]
        return (
            f"unsigned char* p = emu::at(to, {size}); std::memset(p, 0, {size}); "
            "if (bytes) std::memcpy(p, (void*)from, bytes);"
        )
    if found := re.fullmatch(r"atomic_(add|min|max|and|or|xor|exchange)_(\w+?)_(\w+)", name):
        signs = {"add": "old + value", "and": "old & value", "or": "old | value",
                 "xor": "old ^ value", "exchange": "value", "min": "min(old, value)",
                 "max": "max(old, value)"}  # fmt: skip
        return (
            f"auto* p = (decltype(value)*)address; auto old = *p; *p = {signs[found[1]]}; "
            "return old;"
        )
    if name.startswith("compare_exchange"):
        return (
            "auto* p = (decltype(value)*)address; auto old = *p; "
            "if (old == expected) *p = value; return old;"
        )
    return conversion_twin(name)


def conversion_twin(name: str) -> str:
    """The host body of a conversion between floats."""
    if found := re.fullmatch(r"(bf16|f16)_to_float", name):
        return f"return emu::from_{found[1]}(x);"
    if found := re.fullmatch(r"float_to_(bf16|f16)", name):
        return f"return emu::to_{found[1]}(x);"
    if found := re.fullmatch(r"f8(e4m3|e5m2)_to_float", name):
        return f"return emu::from_f8(x, {LETTERS[found[1]]});"
    if found := re.fullmatch(r"pack_(bf16|f16)", name):
        return f"return emu::to_{found[1]}(x0) | (u32)emu::to_{found[1]}(x1) << 16;"
    if found := re.fullmatch(r"pack_f8(e4m3|e5m2)", name):
        kind = LETTERS[found[1]]
        return f"return emu::to_f8(x0, {kind}) | (u32)emu::to_f8(x1, {kind}) << 8;"
    raise KeyError(f"the emulator has no twin of {name}")


DEFINITION = re.compile(r"__device__ __forceinline__ (.+?\b(\w+)\((.*?)\)) \{\n(.*)\n\}", re.DOTALL)


def hosted(source: CudaSource) -> str:
    """The text with every wrapper that holds asm replaced by its twin."""
    parts: list[str] = []
    for part in source.text.split("\n\n"):
        found = DEFINITION.search(part)
        if found is None or found[2].startswith("role_"):
            parts.append("" if part.strip() == PRELUDE.strip() else part)
            continue
        name, parameters = found[2], [item for item in found[3].split(", ") if item]
        if "asm" in found[4] or name in FIXED:
            head = part[: found.start(4)]
            parts.append(f"{head}  {twin(name, parameters)}\n}}")
        else:
            parts.append(part)
    return "\n\n".join(parts)


def harness(source: CudaSource) -> str:
    """main(): reads the arguments' blob, launches, writes the memory back."""
    head = re.search(rf"\n{source.entry_name}\((.*?)\) \{{", source.text)
    assert head is not None
    kinds = [item.removeprefix("const ").replace("__grid_constant__ ", "").rsplit(" ", 1)[0]
             for item in head[1].split(", ") if item]  # fmt: skip
    passed = ", ".join(f"*(const {kind}*)(blob + {i} * 128)" for i, kind in enumerate(kinds))
    return f"""
alignas(1024) unsigned char memory[1];  // its address is never asked for: see shared_address

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
    emu::launch([=] {{ {source.entry_name}({passed}); }}, {{x, y, z}}, {source.threads},
                {source.shared_bytes}, {source.cluster}, seed);
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
    shift = parameter.swizzle.bit_length() - 1 if parameter.swizzle else 0
    steps = [stride * size for stride in reversed(strides)]
    return struct.pack(
        "<q5q5q5i4B", 0, *reversed(extents), *pad, *steps, *pad, *box, *pad, rank, size, shift,
        parameter.padding == "nan",
    ), place  # fmt: skip


def emulate(
    kernel: tile.Kernel | CudaSource,
    arguments: Mapping[str, Any],
    grid: tuple[int, int, int],
    *,
    blocks: int | None = None,
    seed: int = 1,
) -> None:
    """Run a kernel at hopper level; `grid` is the user's, `blocks` a persistent kernel's own."""
    source = kernel if isinstance(kernel, CudaSource) else generate(kernel)
    plain = {name: getattr(value, "base", value) for name, value in arguments.items()}
    plain = {n: v if isinstance(v, np.ndarray) else arguments[n] for n, v in plain.items()}
    arrays = {name: value for name, value in plain.items() if isinstance(value, np.ndarray)}
    rows: list[bytes] = []
    offsets: list[int] = []
    place = 4096 * (-(-128 * len(source.parameters) // 4096))
    start: dict[str, int] = {}
    for name, array in arrays.items():
        start[name] = place
        place += 4096 * (-(-array.nbytes // 4096)) + 4096
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
        memory[start[name] : start[name] + array.nbytes] = array.tobytes()
    launched = (blocks, 1, 1) if source.persistent and blocks is not None else grid
    result = run(source, bytes(memory), offsets, launched, seed)
    for name, array in arrays.items():
        data = result[start[name] : start[name] + array.nbytes]
        array[...] = np.frombuffer(data, array.dtype).reshape(array.shape)


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


# Zig's compiler adds the undefined-behaviour checks by itself; the others take the flag as well.
FLAGS = ("-std=c++17", "-O1", "-w", "-fno-sanitize=undefined")


@cache
def kept() -> Path:
    """The folder of compiled programs, of this user alone."""
    folder = Path(tempfile.gettempdir()) / f"tawa-emulator-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    assert folder.stat().st_uid == os.getuid(), f"{folder} is somebody else's"
    return folder


@cache
def compiler() -> tuple[tuple[str, ...], str]:
    """The compiler's words, and a digest of it, of the flags and of the header."""
    assert COMPILER is not None, "no C++ compiler: set CXX, or pip install ziglang"
    version = subprocess.run([*COMPILER, "--version"], capture_output=True, check=True).stdout
    parts = [*map(str.encode, (*COMPILER, *FLAGS)), version, HEADER.read_bytes()]
    return COMPILER, hashlib.sha256(b"\0".join(parts)).hexdigest()


def make(words: list[str], result: Path) -> None:
    """Run the compiler; the result appears whole, however many processes make it at once."""
    with tempfile.TemporaryDirectory(dir=kept()) as folder:
        made = Path(folder) / "made"
        command = [*compiler()[0], *FLAGS, *words, "-o", str(made)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[:4000]
        made.replace(result)


@cache
def header() -> Path:
    """The header, translated once for all programs; a compiler includes it by its plain name."""
    folder = kept() / compiler()[1][:32]
    folder.mkdir(exist_ok=True)
    path = folder / "device.h"
    # GCC looks for .gch, Clang for .pch, both beside the file that -include names.
    clang = b"clang" in subprocess.run([*compiler()[0], "--version"], capture_output=True).stdout
    translated = path.with_name("device.h.pch" if clang else "device.h.gch")
    if not translated.exists():
        with tempfile.TemporaryDirectory(dir=kept()) as scratch:
            shutil.copy2(HEADER, scratch)  # and its time: Clang compares that with a .pch's
            Path(scratch, "device.h").replace(path)
        make(["-x", "c++-header", str(path)], translated)
    return path


def program(source: CudaSource) -> Path:
    """The host program of a source, compiled unless its like was before."""
    text = f"{PRELUDE}\n{hosted(source)}\n{harness(source)}"
    digest = hashlib.sha256(f"{compiler()[1]}\n{text}".encode()).hexdigest()
    path = kept() / f"{digest[:32]}.program"
    if not path.exists():
        with tempfile.TemporaryDirectory() as folder:
            written = Path(folder) / "kernel.cc"
            written.write_text(text)
            make(["-include", str(header()), str(written)], path)
    return path


def run(
    source: CudaSource, memory: bytes, offsets: list[int], grid: tuple[int, int, int], seed: int
) -> bytes:
    """Compile and run the host program on a file of memory."""
    path = program(source)
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        (base / "memory").write_bytes(memory)
        words = [len(offsets), *grid, seed, 0, 0, *offsets]
        done = subprocess.run(
            [str(path), "memory", *map(str, words)],
            cwd=base, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-4000:]
        return (base / "memory").read_bytes()
