"""The CUDA side of `tawa.language.extra`: the device library, launches and warps."""

from __future__ import annotations

from typing import Any

from tawa.language.extra import libdevice
from tawa.language.stub import builtin


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


__all__ = ["gdc_launch_dependents", "gdc_wait", "libdevice", "num_threads", "num_warps"]
