"""The CUDA driver: connect, load a binary, and the few calls a launch makes.

cuda.bindings serves what happens once. What happens at every launch is called through ctypes with
prebuilt arguments: that skips the conversion of each argument and of the result to Python objects,
which costs more than the driver itself.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import Any

from tawa.errors import LaunchError, NoDriver
from tawa.runtime.compiled import LaunchShape
from tawa.runtime.recent import Recent
from tawa.target import H200, Target

_OLDEST = 13_000  # CUDA 13.0, driver 580: what the cubins of NVRTC 13 need
_STICKY = frozenset((700, 702, 714, 715, 716, 717, 718, 719, 720))  # the context is lost
_NO_CONTEXT = 201  # CUDA_ERROR_INVALID_CONTEXT
_IMPLICIT = 906  # CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
_SIMULATOR = "run it in the simulator: pass NumPy arrays, or call tawa.simulate"


@cache
def connect() -> Driver:
    """Return the driver; raises NoDriver where there is none, no GPU, or a too old one."""
    try:
        driver: Any = import_module("cuda.bindings.driver")
    except ImportError as error:
        raise NoDriver(
            "there is no CUDA on this platform", why=str(error), remedy=_SIMULATOR
        ) from error
    try:
        (code,) = driver.cuInit(0)
    except RuntimeError as error:  # cuda.pathfinder's DynamicLibNotFoundError
        raise NoDriver(
            "there is no NVIDIA driver on this machine",
            why=str(error).splitlines()[0],
            remedy=f"install driver 580 or newer, or {_SIMULATOR}",
        ) from error
    if int(code) != 0:
        raise NoDriver(
            f"the NVIDIA driver does not start: {code.name}",
            why="no GPU is visible to this process" if int(code) == 100 else "cuInit failed",
            remedy=f"check nvidia-smi and CUDA_VISIBLE_DEVICES, or {_SIMULATOR}",
        )
    check_version(int(driver.cuDriverGetVersion()[1]))
    return Driver(driver)


def recent_launches() -> list[str]:
    """Return the latest launches of this process with their arguments, the latest first.

    What to look at when a library reports a fault of the GPU; the list is kept after it.
    """
    return list(connect().recent)


def check_version(version: int) -> None:
    """Raise NoDriver for a driver older than CUDA 13.0 (`version` = 1000 major + 10 minor)."""
    if version >= _OLDEST:
        return
    raise NoDriver(
        f"the NVIDIA driver is too old: it serves CUDA {version // 1000}.{version % 1000 // 10}",
        why="the kernels are CUDA 13.0 binaries, which need driver 580 or newer",
        remedy=f"update the driver, or {_SIMULATOR}",
    )


class Driver:
    """The driver's calls, with errors turned into `LaunchError`."""

    def __init__(self, bindings: Any) -> None:
        self.cu = bindings
        self.recent = Recent()
        self.launch_ex = self._foreign("cuLaunchKernelEx", *[ctypes.c_void_p] * 4)
        at, number = ctypes.c_void_p, ctypes.c_uint
        described = at, number, number, *[at] * 5
        self.encode_tiled = self._foreign("cuTensorMapEncodeTiled", *described, *[number] * 4)
        windows = *described, number, number, at, *[number] * 4
        self.encode_im2col = self._foreign("cuTensorMapEncodeIm2col", *windows)
        self.replace_address = self._foreign("cuTensorMapReplaceAddress", at, at)
        # Of CUDA 12: what this name means since takes a context too.
        self._context_device = self._foreign("cuCtxGetDevice", ctypes.c_void_p, version=12_000)
        self._capturing = self._foreign("cuStreamIsCapturing", *[ctypes.c_void_p] * 2)

    def _foreign(self, name: str, *types: Any, version: int = _OLDEST) -> Callable[..., int]:
        """Return a driver function, as CUDA `version` has it, as a ctypes call that releases the
        interpreter lock.
        """
        code, address, _ = self.cu.cuGetProcAddress(name.encode(), version, 0)
        if int(code) != 0 or not address:
            raise NoDriver(f"the NVIDIA driver has no {name}", remedy="update the driver")
        return ctypes.CFUNCTYPE(ctypes.c_int, *types)(int(address))

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a driver function of cuda.bindings; return its value, or raise LaunchError."""
        code, *values = getattr(self.cu, name)(*arguments)
        if int(code) != 0:
            raise LaunchError(f"{name} failed: {self.describe(int(code))}")
        return values[0] if len(values) == 1 else tuple(values)

    def is_capturing(self, stream: int, device: int = 0) -> bool:
        """Tell whether a stream is being captured into a CUDA graph, or must not be asked now."""
        status = ctypes.c_int(0)
        code = self._capturing(stream, ctypes.addressof(status))
        if code == _NO_CONTEXT:  # of this thread: the legacy stream is a context's
            self.enter(device)
            try:
                code = self._capturing(stream, ctypes.addressof(status))
            finally:
                self.leave()
        if code == _IMPLICIT:  # the legacy stream, while another one is captured
            return True
        if code != 0:
            raise LaunchError(f"cuStreamIsCapturing failed: {self.describe(code)}")
        return status.value != 0

    def describe(self, code: int) -> str:
        """Return the name and the sentence of an error code."""
        result = self.cu.CUresult(code)
        name, text = (self.cu.cuGetErrorName(result)[1], self.cu.cuGetErrorString(result)[1])
        return f"{bytes(name).decode()} ({code}): {bytes(text).decode()}"

    def device_of(self, address: int) -> int:
        """Return the GPU whose memory holds an address."""
        attribute = self.cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        return int(self.call("cuPointerGetAttribute", attribute, address))

    def current_device(self) -> int:
        """Return the device of the current context, -1 without one."""
        device = ctypes.c_int(-1)
        code = self._context_device(ctypes.addressof(device))
        return device.value if code == 0 else -1

    def enter(self, device: int) -> None:
        """Make the primary context of a device current (the one torch and CuPy use)."""
        handle = self.call("cuDeviceGet", device)
        self.call("cuCtxPushCurrent", self.call("cuDevicePrimaryCtxRetain", handle))

    def leave(self) -> None:
        """Undo the latest `enter`."""
        self.call("cuCtxPopCurrent")

    def attribute(self, name: str, device: int) -> int:
        """Return a device attribute by the end of its name."""
        which = getattr(self.cu.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self.call("cuDeviceGetAttribute", which, self.call("cuDeviceGet", device)))

    def target(self, device: int) -> Target:
        """Return what the device has; raises LaunchError unless its architecture is sm_90."""
        major = self.attribute("COMPUTE_CAPABILITY_MAJOR", device)
        minor = self.attribute("COMPUTE_CAPABILITY_MINOR", device)
        if (major, minor) != (9, 0):
            raise LaunchError(
                f"cuda:{device} has compute capability {major}.{minor}",
                why="kernels are compiled for sm_90a (Hopper: H100, H200, GH200), and code for an"
                " architecture with the suffix 'a' runs on no other",
                remedy=_SIMULATOR,
            )
        return replace(H200, multiprocessors=self.attribute("MULTIPROCESSOR_COUNT", device))


class LoadedKernel:
    """A cubin on the GPUs: `function` is the handle a launch passes.

    The library belongs to no context; its handle serves every device, and is kept for the life of
    the process, as launches may be in flight at any time.
    """

    def __init__(self, driver: Driver, cubin: bytes, entry: str, launch: LaunchShape) -> None:
        self._driver = driver
        self._launch = launch
        self._library = driver.call("cuLibraryLoadData", cubin, [], [], 0, [], [], 0)
        self._kernel = driver.call("cuLibraryGetKernel", self._library, entry.encode())
        self.function = int(self._kernel)

    def prepare(self, device: int) -> None:
        """Allow the kernel its shared memory on a device (raised once, before any launch)."""
        attributes = self._driver.cu.CUfunction_attribute
        which = attributes.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        handle = self._driver.call("cuDeviceGet", device)
        self._driver.call("cuKernelSetAttribute", which, self._launch.shared, self._kernel, handle)
        if self._launch.blocks > 1:
            # The driver divides memory between shared memory and cache for one block, unless asked.
            which = attributes.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
            each = self._launch.shared + 1024
            share = min(100, -(-100 * self._launch.blocks * each // H200.shared_per_multiprocessor))
            self._driver.call("cuKernelSetAttribute", which, share, self._kernel, handle)

    def resident_blocks(self, device: int) -> int:
        """Return how many blocks of a persistent kernel run at once: those of each
        multiprocessor.

        In clusters the GPU holds fewer, since a cluster stays within a processing cluster.
        """
        if self._launch.cluster == 1:
            count: int = self._driver.attribute("MULTIPROCESSOR_COUNT", device)
            return count * self._launch.blocks
        cu = self._driver.cu
        config = cu.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = self._launch.cluster, 1, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = self._launch.threads, 1, 1
        config.sharedMemBytes = self._launch.shared
        shape = cu.CUlaunchAttribute()
        shape.id = cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        shape.value.clusterDim.x = self._launch.cluster
        shape.value.clusterDim.y = shape.value.clusterDim.z = 1
        config.attrs, config.numAttrs = [shape], 1
        function = cu.CUfunction(self.function)
        clusters = self._driver.call("cuOccupancyMaxActiveClusters", function, config)
        if clusters == 0:
            raise LaunchError(
                f"no cluster of {self._launch.cluster} blocks fits on cuda:{device}",
                why=f"a block takes {self._launch.threads} threads and {self._launch.shared}"
                " bytes of shared memory",
                remedy="compile with cluster=1",
            )
        return int(clusters) * self._launch.cluster


def launch_error(
    kernel: str, problem: str, code: int, arguments: str, recent: Iterable[str] = ()
) -> LaunchError:
    """Return the error for a failed launch; a sticky one says that the context is lost.

    `recent` are the launches before it, the latest first: the fault may be of any of them, unless
    launches wait for their kernels.
    """
    if code not in _STICKY:
        return LaunchError(
            f"the driver refused the launch of {kernel}: {problem}", why=f"arguments: {arguments}"
        )
    if os.environ.get("CUDA_LAUNCH_BLOCKING") == "1":
        error = LaunchError(
            f"{kernel} failed on the GPU: {problem}",
            why=f"arguments: {arguments}",
            remedy="start the process anew, nothing more runs in this one; compute-sanitizer shows"
            " the access at fault, tawa.simulate checks the kernel without a GPU",
        )
    else:
        latest = "".join(f"\n    {line}" for line in (f"{kernel}: {arguments}", *recent))
        error = LaunchError(
            f"the GPU reported an error at the launch of {kernel}: {problem}",
            why="this kernel or one before it failed on the device, and nothing more runs in this"
            f" process. The latest launches, this one first:{latest}",
            remedy="start the process anew with CUDA_LAUNCH_BLOCKING=1, which shows the kernel at"
            " fault; tawa.simulate checks a kernel without a GPU",
        )
    error.lost = True
    return error
