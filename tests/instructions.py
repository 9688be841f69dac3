"""Instruction-level programs: small kernels around the device functions, and what PTX says they do.

`PROGRAMS` run through the emulation (test_instructions.py) and on a GPU (gpu/test_instructions.py):
the same text, the same bits. Expected values are computed here in NumPy from the definitions of the
PTX manual, apart from the emulation's own code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tawa.codegen import CudaSource
from tawa.codegen.parameters import PointerParameter, TensorMapParameter
from tawa.codegen.wrappers import barriers as b
from tawa.codegen.wrappers.core import PRELUDE, Wrapper, closure
from tawa.layouts.windows import Window


@dataclass(frozen=True)
class Program:
    """One kernel: `body` is executed by every thread, with `shared`, `thread`, `lane`, `given` and
    `result` (addresses), and tensor maps by their labels.

    `given` is read, `expected` is what `result` holds afterwards where `defined` (all of it, else);
    it starts as `start` or zeros. `maps` are tensor maps of the two arrays.
    """

    name: str
    wrappers: tuple[Wrapper, ...]
    body: str
    given: np.ndarray
    expected: np.ndarray
    threads: int = 32
    shared: int = 32768
    cluster: int = 1
    maps: tuple[TensorMapParameter, ...] = ()
    start: np.ndarray | None = None
    nan: bool = field(default=False)  # NaNs are equal whatever their bits

    @property
    def parameters(self) -> tuple[Any, ...]:
        return (*self.maps, PointerParameter("given"), PointerParameter("result"))

    def entry(self, name: str) -> str:
        """The kernel's text."""
        maps = "".join(f"const __grid_constant__ TensorMap {m.label}, " for m in self.maps)
        body = "\n".join(f"  {line}" for line in self.body.strip().splitlines())
        return (
            f'extern "C" __global__ void __launch_bounds__({self.threads}, 1)\n'
            f"{name}({maps}const u64 given, const u64 result) {{\n"
            "  extern __shared__ __align__(1024) unsigned char memory[];\n"
            "  const u32 shared = shared_address(memory);\n"
            f"  const u32 thread = threadIdx.x, threads = {self.threads};\n"
            f"  const u32 lane = thread % 32;\n{body}\n}}"
        )

    def before(self) -> np.ndarray:
        """What `result` holds at first."""
        return np.zeros_like(self.expected) if self.start is None else self.start.copy()

    def wrong(self, found: np.ndarray) -> str:
        """Say where the bits differ; empty where they do not."""
        want, got = self.expected, found
        if self.nan:
            wanted, gotten = (np.asarray(x, np.float64) for x in (want, got))
            differ = (wanted != gotten) & ~(np.isnan(wanted) & np.isnan(gotten))
        else:
            kind = np.dtype(f"u{want.dtype.itemsize}")
            differ = want.view(kind) != got.view(kind)
        if not differ.any():
            return ""
        first = tuple(int(i) for i in np.argwhere(differ)[0])
        kind = np.dtype(f"u{want.dtype.itemsize}")
        return (
            f"{self.name}: {int(differ.sum())} of {differ.size} differ; result{list(first)} is "
            f"{got[first]} (0x{got.view(kind)[first]:x}), defined is {want[first]} "
            f"(0x{want.view(kind)[first]:x})"
        )


def suite(programs: Sequence[Program]) -> list[CudaSource]:
    """The programs as entries of one text, so that it is compiled once."""
    wrappers = [b.SHARED_ADDRESS, *(w for program in programs for w in program.wrappers)]
    used = closure({wrapper.head: wrapper for wrapper in wrappers})
    entries = [program.entry(f"program_{i}") for i, program in enumerate(programs)]
    text = "\n\n".join([PRELUDE, *(wrapper.text for wrapper in used), *entries, ""])
    return [
        CudaSource(
            text, f"program_{i}", program.parameters, program.threads, program.shared,
            program.cluster, False, "sm_90a",
        )
        for i, program in enumerate(programs)
    ]  # fmt: skip


def tensor_map(
    label: str,
    source: str,
    dtype: str,
    box: tuple[int, ...],
    *,
    swizzle: int = 0,
    padding: str = "zero",
    window: Window | None = None,
) -> TensorMapParameter:
    return TensorMapParameter(label, dtype, box, swizzle, padding, source, window=window)


FILLED = 31744
"""Where programs keep their mbarriers: the end of shared memory."""

ONE_BARRIER = f"""\
if (thread == 0) {{ barrier_init(shared + {FILLED}, 1); fence_barrier_init(); }}
block_sync();
"""
BARRIER = (b.BARRIER_INIT, b.FENCE_BARRIER_INIT, b.BLOCK_SYNC, b.BARRIER_EXPECT, b.BARRIER_WAIT)


def load_box(
    label: str, place: int, size: int, at: Sequence[int], phase: int = 0, taps: Sequence[int] = ()
) -> str:
    """One thread loads a box, of windows where there are `taps`, and all threads wait for it."""
    where, how = ", ".join(map(str, (*at, *taps))), "windows_" if taps else ""
    return f"""\
if (thread == 0) {{
  barrier_expect(shared + {FILLED}, {size});
  tma_load_{how}{len(at)}d(shared + {place}, &{label}, shared + {FILLED}, {where});
}}
barrier_wait(shared + {FILLED}, {phase});
"""


def copy_out(place: int, size: int, to: int | str = 0) -> str:
    """All threads copy bytes of shared memory to the result."""
    return f"""\
for (u32 i = 4 * thread; i < {size}; i += 4 * threads) {{
  u32 word;
  shared_load_u32x1(&word, shared + {place} + i);
  *(u32*)(result + {to} + i) = word;
}}
"""


def swizzled(offset: np.ndarray, span: int) -> np.ndarray:
    """Where TMA puts the byte of an offset: 16-byte chunks of a span of 32, 64 or 128 bytes are
    exchanged by exclusive or with the number of the 128-byte line, modulo the chunks of a span.
    """
    if not span:
        return offset
    line = offset // 128 % (span // 16)
    chunk = offset // 16 % 8
    return offset // 128 * 128 + (chunk ^ line) * 16 + offset % 16


def bits(random: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Small integers of a type."""
    return random.integers(-3, 4, shape).astype(np.float32).astype(dtype)
