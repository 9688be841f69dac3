"""NVRTC: generated CUDA C++ to a cubin, and what its log tells of it.

The bindings are imported when they are first needed; nothing here needs a GPU or a driver.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from tawa.codegen.parameters import CudaSource
from tawa.errors import BuildError

# ptxas warnings that mean a wgmma pipeline was given up (serialised, or registers not settled):
# the kernel would run at a fraction of its speed. C7519 only reports, and stays in the log.
DEFECTS = {
    "C7504": "setmaxnreg is ignored: the kernel has no fixed register count",
    "C7508": "setmaxnreg is ignored: roles do not form one chain of branches",
    "C7509": "wgmma is serialised across a call that was not inlined",
    "at a function call": "wgmma is serialised: device_print or device_assert calls a function",
    "C7510": "wgmma is serialised: its registers are touched between start and wait",
    "C7512": "wgmma is serialised: control flow between start and wait depends on data",
    "instructions are serialized": "wgmma is serialised",
}


@dataclass(frozen=True, slots=True)
class Cubin:
    """A compiled kernel: the binary, NVRTC's log, and what ptxas reports.

    `registers` a thread at launch, `spill_bytes` of stores and loads, `seconds` of compilation,
    `stack` bytes of local memory a thread; `ptx` only when it was asked for.
    """

    data: bytes
    log: str
    registers: int
    spill_bytes: int
    seconds: float
    ptx: str = ""
    stack: int = 0


def is_available() -> bool:
    """Tell whether NVRTC and its bindings are installed (there are none for macOS)."""
    from importlib.util import find_spec

    try:
        return find_spec("cuda.bindings.nvrtc") is not None
    except ModuleNotFoundError:
        return False


def build(
    source: CudaSource | str,
    name: str = "kernel",
    *,
    arch: str = "sm_90a",
    ptx: bool = False,
    strict: bool = True,
) -> Cubin:
    """Compile CUDA C++ for `arch`; `name` stands in the log.

    Raises BuildError with the log when NVRTC refuses the text or, if `strict`, the log shows a
    defect.
    """
    nvrtc: Any = import_module("cuda.bindings.nvrtc")
    text = source.text if isinstance(source, CudaSource) else source
    started = time.perf_counter()
    (program,) = _checked(nvrtc.nvrtcCreateProgram(text.encode(), f"{name}.cu".encode(), 0, [], []))
    try:
        # What NVRTC finds in a cache of its own it has nothing to report of.
        # Minimal: without what CUDA declares for hosts, a fifth of a small kernel's time.
        flags = ("--no-cache", "--minimal", "-lineinfo", "-std=c++17", "--ptxas-options=-v")
        options = [f"-arch={arch}", *flags]
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
        listing = _read(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program).decode() if ptx else ""
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    if strict:
        check_log(log, name)
    registers, spills, stack = _usage(log)
    seconds = time.perf_counter() - started
    return Cubin(data, log, registers, spills, seconds, listing, stack)


def _checked(result: Sequence[Any]) -> Sequence[Any]:
    """Return the values of a binding's call; raise on an error code."""
    if int(result[0]) != 0:
        raise BuildError(f"NVRTC failed: {result[0]}")
    return result[1:]


def _read(size: Any, get: Any, program: Any, *, trim: bool = True) -> bytes:
    """Read one of a program's outputs; texts end with a zero byte."""
    (count,) = _checked(size(program))
    # NVRTC writes into the object: two bytes at least, since Python shares those of one byte.
    buffer = b" " * max(count, 2)
    _checked(get(program, buffer))
    return buffer[:count].rstrip(b"\0") if trim else buffer[:count]


def _usage(log: str) -> tuple[int, int, int]:
    """Return registers, spilled bytes and stack from ptxas' report (0 where it is silent)."""
    registers = [int(found) for found in re.findall(r"Used (\d+) registers", log)]
    spills = re.findall(r"(\d+) bytes spill (?:stores|loads)", log)
    stack = [int(found) for found in re.findall(r"(\d+) bytes stack frame", log)]
    return max(registers, default=0), sum(map(int, spills)), max(stack, default=0)


def defects_of(log: str) -> list[str]:
    """Return what a build log shows that makes a kernel slow, each once."""
    signs = (sign for line in log.splitlines() for sign in _signs(line)[:1])
    return list(dict.fromkeys(DEFECTS[sign] for sign in signs))


def _signs(line: str) -> list[str]:
    return [sign for sign in DEFECTS if sign in line]


def check_log(log: str, name: str = "kernel") -> None:
    """Raise BuildError when a build log shows that ptxas gave up what makes the kernel fast."""
    if not (found := defects_of(log)):
        return
    raise BuildError(
        f"the code generated for {name} compiles badly: {'; '.join(found)}",
        why="\n".join(line.strip() for line in log.splitlines() if _signs(line)),
        remedy="use a smaller tile or fewer stages, or report this with the kernel",
    )
