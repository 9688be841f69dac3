# Kernels without annotations have parameters of unknown type.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""What this machine can do: compile, simulate, run on a GPU; and what is missing for the rest."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from dataclasses import dataclass
from typing import Any

from tawa.errors import LaunchError, NoDriver, TawaError

REQUIRED = ("numpy", "ml_dtypes", "xdsl")
FOR_BINARIES = ("cuda-bindings", "cuda-core", "nvidia-cuda-nvrtc")
OPTIONAL = ("nvidia-cuda-nvdisasm", "torch", "triton", "cupy-cuda13x", "jax", "matplotlib")

# The smallest kernel that uses what only sm_90a has, so that a wrong NVRTC is found out.
_PROBE = """
extern "C" __global__ void probe() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at: "ok", "missing" (an optional part) or "broken", and what was seen."""

    subject: str
    verdict: str
    detail: str


def examine() -> list[Finding]:
    """Look at everything; never raises."""
    return [
        Finding("python", "ok", f"{platform.python_version()} on {sys.platform}"),
        *(_package(name, "broken") for name in REQUIRED),
        *(_package(name, "missing") for name in FOR_BINARIES),
        *(_package(name, "missing") for name in OPTIONAL),
        _cache(),
        _nvrtc(),
        *_gpus(),
        _simulator(),
    ]


def abilities(findings: list[Finding]) -> dict[str, bool]:
    """Return what can be done here: "compile", "simulate", "run"."""
    by_name = {finding.subject: finding.verdict == "ok" for finding in findings}
    return {
        "compile to a cubin": by_name["nvrtc"],
        "run in the simulator": by_name["simulator"],
        "run on a GPU": any(name.startswith("cuda:") and ok for name, ok in by_name.items()),
    }


def _package(name: str, otherwise: str) -> Finding:
    try:
        return Finding(name, "ok", importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, otherwise, "not installed")


def _cache() -> Finding:
    from tawa.runtime.store import cache_folder

    folder = cache_folder()
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    writable = os.access(existing, os.W_OK)
    return Finding("cache", "ok" if writable else "missing", f"{folder}")


def _nvrtc() -> Finding:
    from tawa.runtime import nvrtc

    if not nvrtc.is_available():
        return Finding("nvrtc", "missing", "no library: kernels can be proved and simulated only")
    try:
        binary = nvrtc.build(_PROBE, "probe")
    except TawaError as error:
        return Finding("nvrtc", "broken", error.what)
    return Finding("nvrtc", "ok", f"built a cubin of {len(binary.data)} bytes for sm_90a")


def _gpus() -> list[Finding]:
    from tawa.runtime.driver import connect

    try:
        driver = connect()
    except NoDriver as error:
        return [Finding("driver", "missing", error.what)]
    version = int(driver.call("cuDriverGetVersion"))
    found = [Finding("driver", "ok", f"CUDA {version // 1000}.{version % 1000 // 10}")]
    for device in range(int(driver.call("cuDeviceGetCount"))):
        found.append(_gpu(driver, device))
    return found


def _gpu(driver: Any, device: int) -> Finding:
    handle = driver.call("cuDeviceGet", device)
    name = bytes(driver.call("cuDeviceGetName", 100, handle)).split(b"\0")[0].decode()
    try:
        target = driver.target(device)
    except LaunchError as error:
        return Finding(f"cuda:{device}", "missing", f"{name}: {error.what}")
    return Finding(f"cuda:{device}", "ok", f"{name}, {target.multiprocessors} multiprocessors")


def _simulator() -> Finding:
    """Run a one-block kernel in the simulator and compare with NumPy."""
    import numpy

    from tawa.tools.samples import double

    values = numpy.arange(64, dtype=numpy.float32)
    out = numpy.full_like(values, numpy.nan)
    try:
        double[(1,)](values, out, COUNT=64)
    except TawaError as error:
        return Finding("simulator", "broken", error.what)
    right = bool((out == 2 * values).all())
    return Finding("simulator", "ok" if right else "broken", "a kernel ran" if right else "wrong")
