"""Compile once: kernels in memory by signature, and on disk by everything they depend on.

A disk hit skips the passes, the proof and NVRTC. Its key is that of the `Request`.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from tawa.frontend.signature import Signature
from tawa.runtime.codec import decode, encode
from tawa.runtime.compiled import CompiledKernel, with_later
from tawa.runtime.request import Request
from tawa.runtime.store import DiskStore

Compiler: TypeAlias = Callable[[Request], CompiledKernel]
"""What compiles: `tawa.runtime.compiler.compile_kernel`."""


def default_compiler(request: Request) -> CompiledKernel:
    """Call the compile driver, which is imported by the first miss of the cache: it brings xDSL."""
    from tawa.runtime.compiler import compile_kernel

    return compile_kernel(request)


def build(request: Request, compiler: Compiler, store: DiskStore) -> CompiledKernel:
    """Return the kernel of a request, from disk or compiled and then stored."""
    started = time.perf_counter()
    key = request.disk_key
    if key and (data := store.get(key)) is not None:
        if (kernel := _read(data, request.signature)) is not None:
            return replace(kernel, timings={"disk cache": time.perf_counter() - started})
        store.drop(key)
    kernel = compiler(request)
    if key:
        store.put(key, encode(kernel))
    return kernel


def _read(data: bytes, signature: Signature) -> CompiledKernel | None:
    """Return a stored kernel, None for bytes that another program wrote."""
    try:
        facts, stages = decode(data, signature)
        return CompiledKernel(asm=with_later(stages), **facts)
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError, struct.error):
        return None
