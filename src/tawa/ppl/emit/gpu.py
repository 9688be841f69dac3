"""Launching PTX of a program through cuda.bindings: a thread a lane."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tawa.errors import BuildError, NoDriver
from tawa.ppl.emit.machine import ptx
from tawa.ppl.ir.core import Program

_C: dict[str, Any] = {
    "f32": ctypes.c_float,
    "f64": ctypes.c_double,
    "i32": ctypes.c_int32,
    "i64": ctypes.c_int64,
    "bool": ctypes.c_bool,
}
THREADS = 32  # a block is a warp: lanes share nothing, and few chains reach all multiprocessors


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

    def launch(self, types: Sequence[Any], values: Sequence[Any], lanes: int) -> None:
        """Launch a thread for each lane; the kernel ends later."""
        driver = _driver()
        stream = driver.CUstream(0)
        blocks = (lanes + THREADS - 1) // THREADS
        given = (tuple(values), tuple(types))
        _call(
            driver.cuLaunchKernel,
            *(self.function, blocks, 1, 1, THREADS, 1, 1, 0, stream, given, 0),
        )


@lru_cache(maxsize=64)
def kernel(text: str) -> Kernel:
    """Return the kernel of LLVM IR, compiled once in a process."""
    return Kernel(ptx(text))


class Arrays:
    """Arrays on the device for as long as a `with` lasts."""

    def __init__(self) -> None:
        _context()
        self.addresses: list[int] = []

    def __enter__(self) -> Arrays:
        return self

    def __exit__(self, *_: object) -> None:
        for address in self.addresses:
            _call(_driver().cuMemFree, address)

    def put(self, array: np.ndarray[Any, Any]) -> int:
        """Return the address of a copy of an array."""
        address = int(_call(_driver().cuMemAlloc, max(1, array.nbytes)))
        self.addresses.append(address)
        if array.nbytes:
            _call(_driver().cuMemcpyHtoD, address, array.ctypes.data, array.nbytes)
        return address


def launch(
    text: str,
    program: Program,
    arguments: Sequence[Any],
    buffers: Mapping[str, np.ndarray[Any, Any]],
    lanes: int,
) -> None:
    """Run all lanes: copy data and buffers there, launch, copy the buffers back."""
    driver = _driver()
    compiled = kernel(text)
    with Arrays() as arrays:
        types, values = pack(program, arguments, lanes, arrays)
        places: dict[str, int] = {}
        for name, array in buffers.items():
            places[name] = arrays.put(array)
            types.append(ctypes.c_void_p)
            values.append(places[name])
        compiled.launch(types, values, lanes)
        _call(driver.cuCtxSynchronize)
        for name, array in buffers.items():
            if array.nbytes:
                _call(driver.cuMemcpyDtoH, array.ctypes.data, places[name], array.nbytes)


def pack(
    program: Program, arguments: Sequence[Any], lanes: int, arrays: Arrays
) -> tuple[list[Any], list[Any]]:
    """Return the types and values of the kernel's first arguments; arrays are copied there."""
    types: list[Any] = [ctypes.c_int64] * 3
    values: list[Any] = [0, lanes, lanes]
    for param, given in zip(program.params, arguments, strict=True):
        if param.type.shape:
            types.append(ctypes.c_void_p)
            values.append(arrays.put(given))
        else:
            types.append(_C[param.type.kind])
            values.append(given)
    return types, values
