"""NVRTC: generated CUDA C++ to a cubin, and what its log and machine code tell.

The bindings are imported when they are first needed; nothing here needs a GPU or a driver.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tawa.codegen.source import CudaSource
from tawa.errors import BuildError

# ptxas warnings that mean a wgmma pipeline was given up (serialised, or registers not settled):
# the kernel would run at a fraction of its speed. C7519 only reports, and stays in the log.
DEFECTS = {
    "C7504": "setmaxnreg is ignored: the kernel has no fixed register count",
    "C7508": "setmaxnreg is ignored: roles do not form one chain of branches",
    "C7509": "wgmma is serialised across a call that was not inlined",
    "C7510": "wgmma is serialised: its registers are touched between start and wait",
    "C7512": "wgmma is serialised: control flow between start and wait depends on data",
}


@dataclass(frozen=True, slots=True)
class Cubin:
    """A compiled kernel: the binary, NVRTC's log, and what ptxas reports.

    `registers` a thread at launch, `spill_bytes` of stores and loads, `seconds` of compilation;
    `ptx` only when it was asked for.
    """

    data: bytes
    log: str
    registers: int
    spill_bytes: int
    seconds: float
    ptx: str = ""


def build(
    source: CudaSource | str, name: str = "kernel", *, arch: str = "sm_90a", ptx: bool = False
) -> Cubin:
    """Compile CUDA C++ for `arch`; `name` stands in the log.

    Raises BuildError with the log when NVRTC refuses the text or the log shows a defect.
    """
    from cuda.bindings import nvrtc

    text = source.text if isinstance(source, CudaSource) else source
    started = time.perf_counter()
    (program,) = _checked(nvrtc.nvrtcCreateProgram(text.encode(), f"{name}.cu".encode(), 0, [], []))
    try:
        options = [f"-arch={arch}", "-lineinfo", "-std=c++17", "--ptxas-options=-v"]
        encoded = [option.encode() for option in options]
        result = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)[0]
        log = _read(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program).decode()
        if int(result) != 0:
            raise BuildError(
                f"NVRTC refused the code generated for {name}",
                why=log.strip() or str(result),
                remedy="report this with the kernel: generated code must always compile",
            )
        data = _read(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program, trim=False)
        listing = (
            _read(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program).decode() if ptx else ""
        )
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    check_log(log, name)
    registers, spills = _usage(log)
    return Cubin(data, log, registers, spills, time.perf_counter() - started, listing)


def _checked(result: Sequence[Any]) -> Sequence[Any]:
    """Return the values of a binding's call; raise on an error code."""
    if int(result[0]) != 0:
        raise BuildError(f"NVRTC failed: {result[0]}")
    return result[1:]


def _read(size: Any, get: Any, program: Any, *, trim: bool = True) -> bytes:
    """Read one of a program's outputs; texts end with a zero byte."""
    (count,) = _checked(size(program))
    buffer = b" " * count
    _checked(get(program, buffer))
    return buffer.rstrip(b"\0") if trim else buffer


def _usage(log: str) -> tuple[int, int]:
    """Return registers and spilled bytes from ptxas' report (0 where it is silent)."""
    registers = [int(found) for found in re.findall(r"Used (\d+) registers", log)]
    spills = re.findall(r"(\d+) bytes spill (?:stores|loads)", log)
    return max(registers, default=0), sum(map(int, spills))


def check_log(log: str, name: str = "kernel") -> None:
    """Raise BuildError when a build log shows that ptxas gave up what makes the kernel fast."""
    found = [code for code in DEFECTS if code in log]
    if not found:
        return
    lines = [line.strip() for line in log.splitlines() if any(code in line for code in found)]
    raise BuildError(
        f"the code generated for {name} compiles badly: {'; '.join(DEFECTS[c] for c in found)}",
        why="\n".join(lines),
        remedy="use a smaller tile or fewer stages, or report this with the kernel",
    )


# --- machine code -------------------------------------------------------------------------------


def find_nvdisasm() -> Path | None:
    """Return the path of nvdisasm where it is installed (the nvidia-cuda-nvdisasm wheel), or None."""
    try:
        from cuda import pathfinder
    except ImportError:
        return None
    found = pathfinder.find_nvidia_binary_utility("nvdisasm")
    return Path(found) if found else None


def disassemble(cubin: Cubin | bytes) -> str:
    """Return the SASS of a cubin, empty where nvdisasm is not installed.

    Raises BuildError when nvdisasm fails on it.
    """
    tool = find_nvdisasm()
    if tool is None:
        return ""
    data = cubin.data if isinstance(cubin, Cubin) else cubin
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(data)
        done = subprocess.run(
            [tool, "-c", str(path)], capture_output=True, text=True, check=False, timeout=120
        )
    if done.returncode != 0:
        raise BuildError("nvdisasm failed on a built kernel", why=done.stderr.strip())
    return done.stdout


@dataclass(frozen=True, slots=True)
class Instruction:
    """One SASS instruction: its position, opcode with modifiers, and operands."""

    index: int
    opcode: str
    text: str


@dataclass(frozen=True, slots=True)
class Loop:
    """A backward branch: the instructions from its target to itself."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class SassReport:
    """What the machine code shows of a kernel's quality.

    `hgmma` counts tensor-core instructions, `membar_in_loop` memory barriers inside loops,
    `spills_in_mma_loop` local-memory accesses inside loops that issue HGMMA, `registers` the highest
    register number used plus one.
    """

    instructions: int
    loops: int
    hgmma: int
    membar_in_loop: int
    spills_in_mma_loop: int
    local_accesses: int
    registers: int

    @property
    def defects(self) -> tuple[str, ...]:
        """What makes the kernel slower than its plan, in words; empty when nothing does."""
        found: list[str] = []
        if self.membar_in_loop:
            found.append(f"{self.membar_in_loop} memory barriers inside loops")
        if self.spills_in_mma_loop:
            found.append(f"{self.spills_in_mma_loop} spills inside loops that issue HGMMA")
        return tuple(found)


_LABEL = re.compile(r"^\s*(\.L\w+):")
_INSTRUCTION = re.compile(r"^\s*(?:/\*[0-9a-f]+\*/)?\s*(?:@!?U?P\w+\s+)?([A-Z][\w.]*)\s*([^;]*);")
_TARGET = re.compile(r"`\((\.L\w+)\)")
_REGISTER = re.compile(r"\bR(\d+)\b")


def inspect_sass(sass: str) -> SassReport:
    """Read a listing of nvdisasm."""
    labels: dict[str, int] = {}
    listing: list[Instruction] = []
    for line in sass.splitlines():
        if (label := _LABEL.match(line)) is not None:
            labels[label[1]] = len(listing)
        elif (found := _INSTRUCTION.match(line)) is not None:
            listing.append(Instruction(len(listing), found[1], found[2]))
    loops = _loops(listing, labels)
    in_loop = _inside(loops)
    products = [item.index for item in listing if item.opcode.startswith(("HGMMA", "QGMMA", "IGMMA"))]
    product_loops = [
        loop for loop in loops if any(loop.first <= index <= loop.last for index in products)
    ]
    in_product_loop = _inside(product_loops)
    local = [item for item in listing if item.opcode.startswith(("LDL", "STL"))]
    numbers = [int(number) for item in listing for number in _REGISTER.findall(item.text)]
    return SassReport(
        len(listing),
        len(loops),
        len(products),
        sum(item.opcode.startswith("MEMBAR") and item.index in in_loop for item in listing),
        sum(item.index in in_product_loop for item in local),
        len(local),
        max(numbers, default=-1) + 1,
    )


def _loops(listing: list[Instruction], labels: dict[str, int]) -> list[Loop]:
    """Return the backward branches; a branch to itself (the end of a kernel) is none."""
    loops: list[Loop] = []
    for item in listing:
        if not item.opcode.startswith(("BRA", "BRX")):
            continue
        target = _TARGET.search(item.text)
        if target is not None and labels.get(target[1], item.index) < item.index:
            loops.append(Loop(labels[target[1]], item.index))
    return loops


def _inside(loops: list[Loop]) -> set[int]:
    return {index for loop in loops for index in range(loop.first, loop.last + 1)}
