"""The CUDA side of `tawa.language.extra`: the device library, launches, warps, and the clock."""

# The written bodies are tile code, which pyright cannot type: it is typed where it is compiled.

from __future__ import annotations

from typing import Any

from tawa.language import primitives as tl
from tawa.language.extra import libdevice
from tawa.language.stub import builtin
from tawa.language.written import Written


@builtin
def num_threads() -> Any:
    """Give 32 times `num_warps` as launched, a constant; the compiler may use more threads."""
    ...


@builtin
def num_warps() -> Any:
    """Give `num_warps` as launched (4 unless given), a constant."""
    ...


@builtin
def gdc_wait() -> None:
    """Do nothing: a kernel touches memory when those before it in the stream have ended."""
    ...


@builtin
def gdc_launch_dependents() -> None:
    """Do nothing: with `launch_pdl=True` all blocks do it when they have waited."""
    ...


@Written
def globaltimer():
    """Give the nanoseconds of a clock that all multiprocessors read, an int64."""
    return tl.inline_asm_elementwise(
        "mov.u64 $0, %globaltimer;", "=l", [], dtype=tl.int64, is_pure=False, pack=1
    )


@Written
def smid():
    """Give the number of the multiprocessor that the program runs on, an int32."""
    return tl.inline_asm_elementwise(
        "mov.u32 $0, %smid;", "=r", [], dtype=tl.int32, is_pure=True, pack=1
    )


__all__ = [
    "gdc_launch_dependents",
    "gdc_wait",
    "globaltimer",
    "libdevice",
    "num_threads",
    "num_warps",
    "smid",
]
