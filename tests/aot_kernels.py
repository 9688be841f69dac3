"""Kernels that are built for programs without Python, and the means to call their launchers."""

from __future__ import annotations

import ctypes
import math
import os
import shlex
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import tawa
import tawa.language as tl
from emulator_build import COMPILER, PROGRAM
from runtime_fakes import FakeDriver
from tawa.codegen.parameters import TensorMapParameter
from tawa.frontend.signature import ConstantArg, DescriptorArg, PointerArg
from tawa.kernels.gemm import matmul_pointers
from tawa.runtime.compiled import CompiledKernel
from tawa.runtime.dtypes import BYTES
from tawa.tools.aot.conditions import paired
from tawa.tools.aot.names import C_TYPES

AOT = Path(__file__).parent / "aot"
__all__ = ["matmul_pointers"]  # beside this module's own


@tawa.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask)
    tl.store(out + offsets, total, mask=mask)


@tawa.jit
def product(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(a_desc.load([m, k]), b_desc.load([k, n]), acc)
    c_desc.store([m, n], acc.to(c_desc.dtype))


@tawa.jit
def tile_of_product(
    a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(a_desc.load([m, k]), b_desc.load([k, n]), acc)
    c_desc.store([m, n], acc.to(c_desc.dtype))


@tawa.jit
def product_clustered(
    a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    tile_of_product(a_desc, b_desc, c_desc, K, BM, BN, BK)


@tawa.jit
def product_taken(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    tile_of_product(a_desc, b_desc, c_desc, K, BM, BN, BK)


@tawa.jit
def numbers(
    out,
    b: tl.bfloat16,
    h: tl.float16,
    e4: tl.float8e4nv,
    e5: tl.float8e5,
    f: tl.float32,
    d: tl.float64,
    u: tl.uint64,
    s: tl.int8,
    t: tl.int1,
    where: tl.int64,
):
    total = b.to(tl.float32) + h.to(tl.float32) + e4.to(tl.float32) + e5.to(tl.float32) + f
    total += d.to(tl.float32) + u.to(tl.float32) + s.to(tl.float32) + t.to(tl.float32)
    tl.store(out + where, total)


@tawa.jit
def counted(out, start, end, step, times: tl.int64):
    place = 0
    for k in range(start, end * times, step):
        tl.store(out + place, k)
        place += 1  # noqa: SIM113


class Tensor(ctypes.Structure):
    """`tawa_tensor`."""

    _fields_ = (
        ("address", ctypes.c_uint64),
        ("extents", ctypes.c_int64 * 5),
        ("strides", ctypes.c_int64 * 5),
    )


class Error(ctypes.Structure):
    """`tawa_error`."""

    _fields_ = (("code", ctypes.c_int), ("driver", ctypes.c_int), ("text", ctypes.c_char * 512))


_CTYPES = {
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    **{f"{kind}_t": getattr(ctypes, f"c_{kind}") for kind in ("int8", "int16", "int32", "int64")},
    **{f"u{kind}_t": getattr(ctypes, f"c_u{kind}") for kind in ("int8", "int16", "int32", "int64")},
}


class Library:
    """Launchers and the stand-in of the driver, compiled together and loaded into this process."""

    def __init__(self, code: ctypes.CDLL) -> None:
        self.code = code
        self.code.stub_log.restype = ctypes.c_char_p
        self._loaded: dict[str, Any] = {}

    def launch(
        self,
        kernel: CompiledKernel,
        grid: tuple[int, ...],
        values: dict[str, Any],
        runs: CompiledKernel | None = None,
        stream: int = 0,
    ) -> tuple[int, str, list[str]]:
        """Launch by C; return code, text, and the lines that the driver noted. `runs` is the kernel
        that is expected to run: its parameters are noted.
        """
        sizes = [
            128 if isinstance(item, TensorMapParameter) else 8
            for item in (runs or kernel).parameters
        ]
        self.code.stub_reset((ctypes.c_int * (len(sizes) + 1))(*sizes, 0))
        error = Error()
        if kernel.name not in self._loaded:
            self._loaded[kernel.name] = ctypes.create_string_buffer(1 << 17)
            code = getattr(self.code, f"{kernel.name}_load")(
                self._loaded[kernel.name], ctypes.byref(error)
            )
            assert code == 0, error.text
        self.code.stub_reset((ctypes.c_int * (len(sizes) + 1))(*sizes, 0))
        given = _arguments(kernel, values)
        code = getattr(self.code, f"{kernel.name}_launch")(
            self._loaded[kernel.name],
            ctypes.c_void_p(stream),
            *(ctypes.c_uint32(extent) for extent in (*grid, 1, 1)[:3]),
            ctypes.byref(given),
            ctypes.byref(error),
        )
        lines = self.code.stub_log().decode().splitlines()
        return code, error.text.decode() if code else "", lines


def _arguments(kernel: CompiledKernel, values: dict[str, Any]) -> ctypes.Structure:
    fields: list[tuple[str, Any]] = []
    given: list[Any] = []
    sized = paired([kernel])
    for name, argument in kernel.signature.items():
        match argument:
            case ConstantArg():
                continue
            case DescriptorArg():
                desc = values[name]
                fields.append((name, Tensor))
                extents, strides = (
                    (ctypes.c_int64 * 5)(*numbers) for numbers in (desc.shape, desc.strides)
                )
                given.append(Tensor(desc.base.address, extents, strides))
            case PointerArg():
                fields.append((name, ctypes.c_uint64))
                given.append(values[name].address)
                if name in sized:
                    fields.append((f"{name}_bytes", ctypes.c_uint64))
                    given.append(math.prod(values[name].shape) * BYTES[argument.dtype])
            case _:
                fields.append((name, _CTYPES[C_TYPES[argument.dtype]]))
                given.append(values[name])
    made = type("Arguments", (ctypes.Structure,), {"_fields_": fields})
    return made(*given)


class Recorder(FakeDriver):
    """The driver of Python's launcher, which notes what the stand-in of C's notes."""

    def encode_tiled(self, at: int, kind: int, rank: int, *more: Any) -> int:
        address, extents, strides, box, ones, *modes = more
        read = lambda kind, place, count: list((kind * count).from_address(place))  # noqa: E731
        words = [kind, rank, address, *read(ctypes.c_uint64, extents, rank)]
        words += read(ctypes.c_uint64, strides, rank - 1)
        pairs = zip(read(ctypes.c_uint32, box, rank), read(ctypes.c_uint32, ones, rank))
        words += [number for pair in pairs for number in pair]
        self.encoded.append(("map " + " ".join(map(str, [*words, *modes])),))
        ctypes.memset(at, len(self.encoded), 128)
        return 0

    def launch_ex(self, config: int, function: int, pointers: int, extra: Any) -> int:
        words = struct.unpack("<7I4xQQI4x", ctypes.string_at(config, 56))
        attributes = ""
        for place in range(words[9]):
            kind, first = struct.unpack("<I4xI", ctypes.string_at(words[8] + 72 * place, 12))
            attributes += f" {kind}:{first}"
        count = len(self.sizes)
        places = struct.unpack(f"<{count}Q", ctypes.string_at(pointers, 8 * count))
        values = (ctypes.string_at(*each).hex() for each in zip(places, self.sizes))
        numbers = " ".join(map(str, words[:8]))
        self.launches.append(f"{numbers}{attributes} | {' '.join(values)}")
        return 0

    def expect(self, kernel: CompiledKernel) -> None:
        """The kernel that will run."""
        self.encoded.clear()
        self.sizes = [
            128 if isinstance(item, TensorMapParameter) else 8 for item in kernel.parameters
        ]

    @property
    def lines(self) -> list[str]:
        """What the driver was told by the latest launch, as the stand-in of C writes it."""
        return [*(text for (text,) in self.encoded), f"launch {self.launches[-1]}"]


def run(words: list[str], folder: Path) -> str:
    """Run a command in a folder; its output."""
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[:4000]
    return done.stdout


def find_c_compiler() -> tuple[str, ...]:
    """The words that start a C compiler, which comes with the C++ compilers of the other tests."""
    if named := os.environ.get("CC"):
        return tuple(shlex.split(named))
    if found := shutil.which("cc") or shutil.which("gcc") or shutil.which("clang"):
        return (found,)
    return (sys.executable, "-m", "ziglang", "cc")


def build_library(folder: Path, text: str) -> ctypes.CDLL:
    """Compile C99, without warnings and with checked arithmetic, with the driver's stand-in."""
    (folder / "all.c").write_text(text)
    copy_stub(folder)
    words = find_c_compiler()
    strict = ["-O1", "-fPIC", "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-I."]
    version = subprocess.run([*words, "--version"], capture_output=True, check=True).stdout
    if b"clang" in version:
        strict += ["-fsanitize=undefined", "-fsanitize-trap=undefined"]
    run([*words, *strict, "-c", "all.c", "-o", "all.o"], folder)
    assert COMPILER is not None
    stub = [*COMPILER, PROGRAM, "-std=c++17", "-fno-sanitize=undefined", "-fPIC", "-I.", "-shared"]
    run([*stub, "driver.cc", "all.o", "-o", "all.so"], folder)
    return ctypes.CDLL(str(folder / "all.so"))


def copy_stub(folder: Path) -> None:
    """Put the driver's header and stand-in beside launchers."""
    for name in ("cuda.h", "driver.cc"):
        shutil.copy(AOT / name, folder)
