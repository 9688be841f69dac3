"""Compile once: kernels in memory by signature, and on disk by everything they depend on.

A disk hit skips the passes, the proof and NVRTC. Its key holds the text of the kernel with its
helpers and globals, the signature, options, pins and target, and the compiler's own sources; so a
change of any of them compiles anew.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from tawa.constants import freeze
from tawa.frontend.signature import ConstantArg, Signature
from tawa.plan.pins import Pins
from tawa.runtime.codec import decode, encode
from tawa.runtime.compiled import CompiledKernel
from tawa.runtime.cubins import nvrtc_version
from tawa.runtime.fingerprint import NAMELESS, compiler_digest, describe
from tawa.runtime.specialize import signature_key
from tawa.runtime.stages import with_later
from tawa.runtime.store import DiskStore
from tawa.target import Target

if TYPE_CHECKING:
    from tawa.ir import tile


class Compiler(Protocol):
    """The compile driver, `tawa.runtime.compiler.compile_kernel`."""

    def __call__(
        self,
        function: Callable[..., Any] | tile.Kernel,
        signature: Signature,
        options: Mapping[str, Any],
        pins: Pins,
        target: Target,
        *,
        descriptors: bool = True,
        strict: bool = False,
        cubin: bool = True,
    ) -> CompiledKernel:
        """Compile one kernel for one signature."""
        ...


def default_compiler(*args: Any, **options: Any) -> CompiledKernel:
    """Call the compile driver, which is imported by the first miss of the cache: it brings xDSL."""
    from tawa.runtime.compiler import compile_kernel

    return compile_kernel(*args, **options)


@dataclass(frozen=True, slots=True)
class Request:
    """Everything one compilation depends on; `text` is that of `function`, a Python one or IR.

    Without `cubin` NVRTC is not run: the simulator takes IR.
    """

    function: Callable[..., Any] | tile.Kernel
    text: str
    signature: Signature
    options: Mapping[str, Any]
    pins: Pins
    target: Target
    strict: bool = False
    descriptors: bool = True
    cubin: bool = True

    @property
    def memory_key(self) -> object:
        """The key within the process."""
        options = freeze(dict(self.options))
        return (
            self.text,
            signature_key(self.signature),
            options,
            self.pins,
            self.target,
            self.strict,
            self.descriptors,
            self.cubin,
        )

    @property
    def disk_key(self) -> str:
        """The key on disk; empty when the text is not known, or means nothing elsewhere."""
        if not self.text:
            return ""
        arguments = [
            (name, describe(argument.value) if isinstance(argument, ConstantArg) else argument)
            for name, argument in self.signature.items()
        ]
        parts = (
            compiler_digest(),
            nvrtc_version(),
            self.text,
            arguments,
            freeze(dict(self.options)),
            self.pins,
            self.target,
            self.strict,
            self.descriptors,
            self.cubin,
        )
        text = repr(parts)
        return "" if NAMELESS in text else text


def build(request: Request, compiler: Compiler, store: DiskStore) -> CompiledKernel:
    """Return the kernel of a request, from disk or compiled and then stored."""
    started = time.perf_counter()
    key = request.disk_key
    if key and (data := store.get(key)) is not None:
        if (kernel := _read(data, request.signature)) is not None:
            return replace(kernel, timings={"disk cache": time.perf_counter() - started})
        store.drop(key)
    kernel = compiler(
        request.function,
        request.signature,
        request.options,
        request.pins,
        request.target,
        descriptors=request.descriptors,
        strict=request.strict,
        cubin=request.cubin,
    )
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
