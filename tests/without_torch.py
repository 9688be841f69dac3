"""Launches a kernel on arrays of the driver's own, in a process that never sees torch."""

import ctypes
import sys

import numpy as np
from cuda.bindings import driver

import tawa
import tawa.language as tl


def ask(name, *arguments):
    code, *values = getattr(driver, name)(*arguments)
    assert int(code) == 0, (name, code)
    return values[0] if values else None


class OnGpu:
    """Numbers on the GPU, as CuPy and Numba describe them."""

    def __init__(self, values):
        self.values = values
        self.address = ask("cuMemAlloc", values.nbytes)
        ask("cuMemcpyHtoD", self.address, values.ctypes.data, values.nbytes)
        self.__cuda_array_interface__ = {
            "shape": values.shape,
            "typestr": values.dtype.str,
            "data": (int(self.address), False),
            "version": 3,
        }

    def numpy(self):
        ask("cuMemcpyDtoH", self.values.ctypes.data, self.address, self.values.nbytes)
        return self.values


@tawa.jit
def double(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


if __name__ == "__main__":
    ask("cuInit", 0)
    ask("cuCtxPushCurrent", ask("cuDevicePrimaryCtxRetain", ask("cuDeviceGet", 0)))
    x = OnGpu(np.arange(1000, dtype=np.float32))
    out = OnGpu(np.full(1000, np.nan, np.float32))
    if sys.argv[1:] == ["no context"]:
        ask("cuCtxPopCurrent")
    # Registers that an argument too many would be read from hold no address.
    ctypes.CDLL(None).memset(ctypes.create_string_buffer(64), 255, 64)
    for _ in range(3):
        double[(4,)](x, out, 1000, BLOCK=256)
    if sys.argv[1:] == ["no context"]:
        ask("cuCtxPushCurrent", ask("cuDevicePrimaryCtxRetain", ask("cuDeviceGet", 0)))
    ask("cuCtxSynchronize")
    assert np.array_equal(out.numpy(), np.arange(1000) * 2)
    assert "torch" not in sys.modules
