"""As much of torch as the benchmarks touch, on NumPy, so that their flow is tested without a GPU.

Tensors are NumPy arrays with torch's methods; events read the host's clock.
"""

import time
import types

import ml_dtypes
import numpy as np


class Tensor(np.ndarray):
    """A NumPy array that answers to torch's names."""

    def double(self):
        return self.astype(np.float64)

    def float(self):
        return self.astype(np.float32)

    def to(self, dtype):
        return self.astype(dtype)

    def clone(self):
        return self.copy()

    def t(self):
        return self.swapaxes(0, 1)

    def transpose(self, first, second):
        return self.swapaxes(first, second)

    def norm(self):
        return np.linalg.norm(np.asarray(self, np.float64))

    def fill_(self, value):
        self[...] = value
        return self

    def normal_(self, generator=None):
        self[...] = generator.random.standard_normal(self.shape).astype(self.dtype)
        return self


class Generator:
    def __init__(self, device):
        self.manual_seed(0)

    def manual_seed(self, seed):
        self.random = np.random.default_rng(seed)


class Event:
    def __init__(self, enable_timing):
        self.at = 0.0

    def record(self):
        self.at = time.perf_counter()

    def elapsed_time(self, other):
        return max((other.at - self.at) * 1e3, 1e-6)


def empty(shape, device=None, dtype=np.float32):
    return np.empty(shape, dtype).view(Tensor)


def mm(a, b, out):
    out[...] = (np.asarray(a, np.float32) @ np.asarray(b, np.float32)).astype(out.dtype)


def module():
    """Return a module that stands for torch."""
    fake = types.ModuleType("torch")
    fake.__version__ = "fake"
    fake.Tensor, fake.Generator, fake.empty, fake.mm = Tensor, Generator, empty, mm
    fake.float16, fake.float32, fake.bfloat16 = np.float16, np.float32, ml_dtypes.bfloat16
    fake.float8_e4m3fn, fake.float8_e5m2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
    fake.cuda = types.SimpleNamespace(
        Event=Event,
        synchronize=lambda: None,
        _sleep=lambda cycles: None,
        empty_cache=lambda: None,
        is_available=lambda: False,
        is_initialized=lambda: False,
        OutOfMemoryError=MemoryError,
    )
    matmul = types.SimpleNamespace(allow_tf32=False)
    fake.backends = types.SimpleNamespace(cuda=types.SimpleNamespace(matmul=matmul))
    return fake
