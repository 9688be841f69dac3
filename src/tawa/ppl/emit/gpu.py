"""Launching PTX of a program through cuda.bindings: a thread a lane, or several."""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, Self

import numpy as np

from tawa.errors import BuildError, NoDriver
from tawa.ppl.emit.machine import C_TYPES, STORED, ptx
from tawa.ppl.ir.core import Kind, Program
from tawa.ppl.ir.operations import PARTS
from tawa.runtime.dispatch import current_stream

THREADS = 32  # a block is a warp: lanes share nothing, and few chains reach all multiprocessors
SCHEDULERS = 4  # of a multiprocessor, since compute capability 5.0
REGISTERS = 128  # what a thread may take, to begin with
STAGED = 4 << 20
"""Bytes of pinned memory that a thread copies through."""


def _driver() -> Any:
    try:
        from cuda.bindings import driver  # type: ignore[import-not-found]
    except ImportError as error:
        raise NoDriver("cuda.bindings is missing", remedy="pip install cuda-bindings") from error
    return driver  # type: ignore[reportUnknownVariableType]


def _call(function: Any, *args: Any) -> Any:
    try:
        status, *results = function(*args)
    except RuntimeError as error:  # the bindings find no libcuda
        raise NoDriver(f"{function.__name__}: {error}", remedy="run with device='cpu'") from error
    if int(status) != 0:
        raise NoDriver(f"{function.__name__}: {status.name}")
    done: Any = results[0] if len(results) == 1 else tuple(results)
    return done


@lru_cache(maxsize=1)
def _primary() -> Any:
    driver = _driver()
    _call(driver.cuInit, 0)
    return _call(driver.cuDevicePrimaryCtxRetain, _call(driver.cuDeviceGet, 0))


def _context() -> None:
    """Make the first device's primary context this thread's."""
    _call(_driver().cuCtxSetCurrent, _primary())


def _stream() -> Any:
    """Return the current stream: that of tile kernels between launches."""
    return _driver().CUstream(current_stream({})(0))


class Staging:
    """Threads that copy from the device, each through pinned memory of its own.

    The driver copies to memory that is not pinned on one thread, which moves a part of what the bus
    can, and the first touch of new memory takes longer than the copy. What a run returns is not
    pinned itself: pages take longer to pin than to copy.
    """

    def __init__(self) -> None:
        self.count = min(8, len(os.sched_getaffinity(0)))
        self.threads = ThreadPoolExecutor(self.count, initializer=_context)
        self.idle: SimpleQueue[np.ndarray[Any, Any]] = SimpleQueue()
        for _ in range(self.count):
            address = int(_call(_driver().cuMemHostAlloc, STAGED, 0))
            self.idle.put(np.ctypeslib.as_array((ctypes.c_uint8 * STAGED).from_address(address)))

    def fetch(self, address: int, array: np.ndarray[Any, Any]) -> None:
        """Wait for what was launched, and copy what lies at an address to a contiguous array.

        The array's memory, which is new, is touched meanwhile.
        """
        flat = array.reshape(-1).view(np.uint8)
        count = min(self.count, -(-flat.size // STAGED))
        parts = list(pairwise(flat.size * k // count for k in range(count + 1)))
        for work in (_touch, self._part):
            done = [self.threads.submit(work, address, flat, *part) for part in parts[1:]]
            work(address, flat, *parts[0])
            for part in done:
                part.result()
            if work is _touch:
                _call(_driver().cuCtxSynchronize)

    def _part(self, address: int, flat: np.ndarray[Any, Any], first: int, end: int) -> None:
        staged = self.idle.get()
        try:
            for at in range(first, end, STAGED):
                to = flat[at : min(at + STAGED, end)]
                _call(_driver().cuMemcpyDtoH, staged.ctypes.data, address + at, to.size)
                to[:] = staged[: to.size]
        finally:
            self.idle.put(staged)


def _touch(address: int, flat: np.ndarray[Any, Any], first: int, end: int) -> None:
    flat[first:end:4096] = 0


@lru_cache(maxsize=1)
def _staging() -> Staging:
    return Staging()


class Kernel:
    """A program on the GPU: PTX, loaded by the driver."""

    def __init__(self, text: str) -> None:
        """Load PTX. Raises BuildError where the driver refuses it."""
        driver = _driver()
        _context()
        status, module = driver.cuModuleLoadData(text.encode() + b"\0")
        if int(status) != 0:
            raise BuildError(f"the driver refuses the PTX: {status.name}")
        self.module = module
        self.function = _call(driver.cuModuleGetFunction, module, b"kernel")

    def attribute(self, name: str) -> int:
        """Return an attribute of the function: "NUM_REGS", "LOCAL_SIZE_BYTES"."""
        driver = _driver()
        key = getattr(driver.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
        return int(_call(driver.cuFuncGetAttribute, key, self.function))

    def held(self) -> int:
        """Return how many threads a multiprocessor holds at once."""
        query = _driver().cuOccupancyMaxActiveBlocksPerMultiprocessor
        return THREADS * int(_call(query, self.function, THREADS, 0))

    def launch(self, types: Sequence[Any], values: Sequence[Any], threads: int) -> None:
        """Launch so many threads; the kernel ends later."""
        driver = _driver()
        blocks = (threads + THREADS - 1) // THREADS
        given = (tuple(values), tuple(types))
        _call(
            driver.cuLaunchKernel,
            *(self.function, blocks, 1, 1, THREADS, 1, 1, 0, _stream(), given, 0),
        )


@lru_cache(maxsize=64)
def kernel(text: str) -> Kernel:
    """Return the kernel of LLVM IR, compiled once in a process."""
    return Kernel(ptx(text))


def threads_of_a_lane(lanes: int, text: Callable[[int], str], *, shared: bool) -> int:
    """Return how many threads a lane is: a power of two up to PARTS.

    Where threads have rows to share, as many as the device holds at once, to the nearest power:
    further threads would wait for these to end, and what a lane computes besides its rows each of
    its threads computes. `text` gives the program for a number of threads; its registers, which
    hardly depend on that number, are those of the kernel that fits if it takes REGISTERS.

    Where they have none, as many as give each scheduler of a multiprocessor a warp: it has nothing
    else to do, and of a warp's lanes, which wait for each other where they go unlike ways, there
    are fewer.
    """
    _context()  # which initialises the driver
    device = _call(_driver().cuDeviceGet, 0)
    facts = _driver().CUdevice_attribute

    def fact(name: str) -> int:
        key = getattr(facts, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(_call(_driver().cuDeviceGetAttribute, key, device))

    def each(held: int) -> int:
        """Return what threads that a multiprocessor holds are for a lane."""
        many = fact("MULTIPROCESSOR_COUNT") * held / lanes
        return min(PARTS, 1 << max(0, round(math.log2(many)))) if many > 1 else 1

    if not shared:
        return each(SCHEDULERS * THREADS)
    guess = each(fact("MAX_REGISTERS_PER_MULTIPROCESSOR") // REGISTERS)
    return each(kernel(text(guess)).held())


def _whole(size: int) -> int:
    """Return the bytes that an array takes of a block: it begins as the driver's own do."""
    return -(-size // 256) * 256


@dataclass(frozen=True, slots=True)
class Memory:
    """An array of the device, as launches of kernels take one: by `data_ptr()`."""

    address: int
    shape: tuple[int, ...]
    dtype: str

    @property
    def device(self) -> SimpleNamespace:
        """The first device, as torch says it."""
        return SimpleNamespace(type="cuda", index=0)

    def data_ptr(self) -> int:
        """Return the address."""
        return self.address

    def row(self, number: int) -> int:
        """Return the address of a row."""
        return self.address + number * math.prod(self.shape[1:]) * np.dtype(self.dtype).itemsize

    def stride(self) -> tuple[int, ...]:
        """Return the strides of dense rows, in elements."""
        return tuple(math.prod(self.shape[k + 1 :]) for k in range(len(self.shape)))


class Lanes:
    """A program with its data and buffers on the device, for one launch or many.

    Its memory is one block: to allocate and to free take longer than a small launch.
    """

    def __init__(
        self,
        text: str,
        program: Program,
        arguments: Sequence[Any],
        buffers: Mapping[str, Any],
        lanes: int,
        threads: int,
    ) -> None:
        _context()
        self.kernel, self.lanes, self.threads = kernel(text), lanes, threads
        self.blocks, self.bytes = list[int](), 0
        self.left = 0, 0
        """Where the free part of the last block begins, and its bytes."""
        rows = {n: k * lanes for n, k in buffers.items() if isinstance(k, int)}
        sizes = [
            count * np.dtype(STORED[program.buffers[name]]).itemsize for name, count in rows.items()
        ]
        sizes += [a.nbytes for a in (*arguments, *buffers.values()) if isinstance(a, np.ndarray)]
        self.block(sum(map(_whole, sizes)))
        self.types: list[Any] = [ctypes.c_int64] * 3
        self.values: list[Any] = [0, lanes, lanes]
        self.places: dict[str, int] = {}
        for param, given in zip(program.params, arguments, strict=True):
            self.places[param.name] = len(self.values)
            self.types.append(ctypes.c_void_p if param.type.shape else C_TYPES[param.type.kind])
            self.values.append(self.put(given).address if param.type.shape else given)
        self.memory: dict[str, Any] = {}
        for name, given in buffers.items():
            self.places[name] = len(self.values)
            self.types.append(ctypes.c_void_p)
            if isinstance(given, int):
                given = self.zeros((given, lanes), program.buffers[name])
            self.memory[name] = given if isinstance(given, Memory) else self.put(given)
            self.values.append(self.memory[name].address)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for address in self.blocks:
            _call(_driver().cuMemFree, address)

    def block(self, size: int) -> None:
        """Allocate so many bytes."""
        self.blocks.append(int(_call(_driver().cuMemAlloc, max(1, size))))
        self.left, self.bytes = (self.blocks[-1], size), self.bytes + size

    def _allocate(self, size: int) -> int:
        size = _whole(size)
        if size > self.left[1]:
            self.block(size)
        address, left = self.left
        self.left = address + size, left - size
        return address

    def put(self, array: np.ndarray[Any, Any]) -> Memory:
        """Return a copy of an array."""
        address = self._allocate(array.nbytes)
        if array.nbytes:
            _call(_driver().cuMemcpyHtoD, address, array.ctypes.data, array.nbytes)
        return Memory(address, array.shape, array.dtype.name)

    def zeros(self, shape: tuple[int, ...], kind: Kind) -> Memory:
        """Return an array of zeros."""
        stored = np.dtype(STORED[kind])
        size = math.prod(shape) * stored.itemsize
        address = self._allocate(size)
        if size:
            # In the stream of the launches: torch's own do not wait for the default one.
            _call(_driver().cuMemsetD8Async, address, 0, size, _stream())
        return Memory(address, shape, stored.name)

    def launch(self, **numbers: int | float) -> None:
        """Launch all lanes, with other numbers than before for some arguments; they end later."""
        for name, number in numbers.items():
            self.values[self.places[name]] = number
        self.kernel.launch(self.types, self.values, self.lanes * self.threads)

    def rows(self, name: str, row: int = 0, count: int | None = None) -> np.ndarray[Any, Any]:
        """Wait for what was launched, and return a copy of rows of a buffer."""
        held = self.memory[name]
        size = held.shape[0] - row if count is None else count
        array = np.empty((size, *held.shape[1:]), held.dtype)
        if array.nbytes:
            _staging().fetch(held.row(row), array)
        return array

    def give(self, name: str, array: np.ndarray[Any, Any], row: int = 0) -> None:
        """Wait for what was launched, and copy rows to a buffer."""
        held = self.memory[name]
        array = np.ascontiguousarray(array, held.dtype)
        _call(_driver().cuCtxSynchronize)
        if array.nbytes:
            _call(_driver().cuMemcpyHtoD, held.row(row), array.ctypes.data, array.nbytes)

    def swap(self, one: str, other: str) -> None:
        """Make two buffers change places."""
        memory = self.memory
        memory[one], memory[other] = memory[other], memory[one]
        for name in (one, other):
            self.values[self.places[name]] = memory[name].address
