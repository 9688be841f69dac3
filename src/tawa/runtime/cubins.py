"""Cubins on disk by the text they were built from.

Below the cache of whole kernels: when only the compiler or the kernel's surroundings changed, and
the generated CUDA did not, NVRTC is not run again.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import struct
import sys
import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cache
from typing import Any

from tawa.codegen.parameters import CudaSource
from tawa.runtime import nvrtc
from tawa.runtime.store import DiskStore, cache_folder, store_at

_LENGTH = struct.Struct("<I")


@cache
def nvrtc_version() -> str:
    """Return the version of the installed NVRTC, without loading it; "" where there is none.

    Read off the name of its metadata folder: importing importlib.metadata costs ten times as much
    as a whole cache hit may. It lies beside the folder that all packages of NVIDIA share; other
    folders, of which some are long, are not listed.
    """
    for path in sys.path:
        with suppress(OSError):
            if not os.path.isdir(os.path.join(path, "nvidia")):
                continue
            names = [name for name in os.listdir(path) if name.startswith("nvidia_cuda_nvrtc-")]
            if names := [name for name in names if name.endswith(".dist-info")]:
                return max(names)
    return ""


def build(
    text: str,
    name: str = "kernel",
    *,
    arch: str = "sm_90a",
    store: DiskStore | None = None,
    strict: bool = True,
) -> nvrtc.Cubin:
    """Return the cubin of CUDA C++, from disk or by NVRTC; `seconds` is what it took now.

    Raises BuildError where NVRTC refuses the text, or `strict` and its log shows a defect.
    """
    started = time.perf_counter()
    kept = store or store_at(cache_folder())
    key = _key(text, name, arch)
    if (data := kept.get(key)) is not None:
        if (cubin := decode(data, time.perf_counter() - started)) is not None:
            if strict:
                nvrtc.check_log(cubin.log, name)
            return cubin
        kept.drop(key)
    cubin = nvrtc.build(text, name, arch=arch, strict=strict)
    kept.put(key, _encode(cubin))
    return cubin


def start(source: CudaSource, *, arch: str, strict: bool) -> Future[nvrtc.Cubin] | None:
    """Begin to build in a thread, where NVRTC is installed: it runs without the interpreter's lock.

    The thread ends with the build, whether or not anybody asks for its result.
    """
    if not nvrtc.is_available():
        return None
    made: Future[nvrtc.Cubin] = Future()

    def work() -> None:
        try:
            made.set_result(build(source.text, source.entry_name, arch=arch, strict=strict))
        except BaseException as error:
            made.set_exception(error)

    threading.Thread(target=work, name=f"tawa builds {source.entry_name}").start()
    return made


def _key(text: str, name: str, arch: str) -> str:
    digest = hashlib.sha256(text.encode(), usedforsecurity=False).hexdigest()
    return repr(("cubin", digest, name, arch, nvrtc_version(), _build_digest()))


@cache
def _build_digest() -> str:
    """Return a hash of the module that calls NVRTC: its options and what it checks."""
    content = inspect.getsource(nvrtc).encode()
    return hashlib.sha256(content, usedforsecurity=False).hexdigest()


def _encode(cubin: nvrtc.Cubin) -> bytes:
    facts = asdict(cubin)
    data = facts.pop("data")
    head = json.dumps(facts).encode()
    return b"".join((_LENGTH.pack(len(head)), head, data))


def decode(data: bytes, seconds: float = 0.0) -> nvrtc.Cubin | None:
    """Read a stored cubin, found in `seconds`; None for bytes that are none."""
    try:
        (length,) = _LENGTH.unpack_from(data)
        start = _LENGTH.size + length
        facts: dict[str, Any] = json.loads(data[_LENGTH.size : start])
        return replace(nvrtc.Cubin(data=data[start:], **facts), seconds=seconds)
    except (KeyError, RecursionError, TypeError, ValueError, struct.error):
        return None
