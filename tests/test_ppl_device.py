"""What the host does around a launch, on a device whose memory is this machine's."""

from __future__ import annotations

import ctypes
import sys

import numpy as np
import pytest

import test_ppl_kept as kept
import test_ppl_methods as methods
from tawa import ppl
from tawa.ppl.emit import gpu
from tawa.ppl.emit.llvm import emit
from tawa.ppl.emit.machine import Machine


class Device:
    """A driver: memory that is new is dirty, and copies are of memory that was allocated."""

    def __init__(self):
        self.held = {}
        self.most = 0
        self.uploaded = 0

    def cuMemAlloc(self, size):
        memory = (ctypes.c_uint8 * size)(*[0xA5] * size)
        self.held[ctypes.addressof(memory)] = memory
        self.most = max(self.most, sum(map(len, self.held.values())))
        return 0, ctypes.addressof(memory)

    def cuMemHostAlloc(self, size, flags):
        self.pinned = getattr(self, "pinned", [])
        self.pinned.append((ctypes.c_uint8 * size)())
        return 0, ctypes.addressof(self.pinned[-1])

    def cuMemFree(self, address):
        del self.held[address]
        return (0,)

    def cuMemcpyHtoD(self, to, source, size):
        self.inside(to, size)
        self.uploaded += size
        ctypes.memmove(to, source, size)
        return (0,)

    def cuMemcpyDtoH(self, to, source, size):
        self.inside(source, size)
        assert size <= gpu.STAGED
        ctypes.memmove(to, source, size)
        return (0,)

    def cuMemsetD8Async(self, to, byte, size, stream):
        self.inside(to, size)
        ctypes.memset(to, byte, size)
        return (0,)

    def cuCtxSynchronize(self):
        return (0,)

    def CUstream(self, handle):
        return handle

    def inside(self, address, size):
        assert any(at <= address and address + size <= at + len(m) for at, m in self.held.items())


class Kernel:
    """A program's machine code for this CPU, launched as a kernel is."""

    def __init__(self, text):
        self.machine = Machine(text, level=0)

    def launch(self, types, values, lanes):
        self.machine.function(types)(0, lanes, *values[2:])


@pytest.fixture
def device(monkeypatch):
    made = Device()
    execute = sys.modules["tawa.ppl.infer.execute"]
    monkeypatch.setattr(execute, "emit", lambda p, library, gpu: emit(p, library, gpu=False))
    monkeypatch.setattr(gpu, "_driver", lambda: made)
    monkeypatch.setattr(gpu, "_context", lambda: None)
    monkeypatch.setattr(gpu, "kernel", Kernel)
    monkeypatch.setattr(gpu, "threads_of_a_lane", lambda *_, **__: 1)
    gpu._staging.cache_clear()
    yield made
    gpu._staging.cache_clear()
    for model in (kept.scaled, kept.mixed, methods.states):  # their programs are no GPU's
        model.programs.clear()


CHAINS = {"chains": 3, "draws": 7, "warmup": 5}
WALK = {"parameters": ("a",), "chains": 3, "particles": 300, "draws": 2, "warmup": 1}
RUNS = [
    ("hmc", kept.scaled, {**CHAINS, "steps": 3}),
    ("mh", kept.mixed, {**CHAINS, "trace": 8}),
    ("importance", kept.mixed, {"draws": 9}),
    ("smc", kept.mixed, {"particles": 300}),
    ("tempered", kept.scaled, {"particles": 300, "steps": 2, "trace": 8}),
    ("pmmh", methods.states, WALK),
]


@pytest.mark.parametrize(("method", "model", "options"), RUNS, ids=[run[0] for run in RUNS])
def test_a_run_on_a_device_has_the_bits_of_the_cpu(device, method, model, options):
    given = {"method": method, "seed": 3, **options}
    data = methods.SERIES if model is methods.states else 0.4
    cpu, other = (ppl.infer(model, data, device=where, **given) for where in ("cpu", "cuda"))
    assert list(cpu.draws) == list(other.draws)
    for name, array in cpu.draws.items():
        np.testing.assert_array_equal(array, other[name])
        assert array.dtype == other[name].dtype
    np.testing.assert_array_equal(cpu.value, other.value)
    assert cpu.log_evidence == other.log_evidence or np.isnan(cpu.log_evidence)
    assert not device.held, "all memory is given back"


def test_a_run_sends_the_device_its_data_and_no_zeros(device):
    options = {"method": "hmc", "chains": 500, "draws": 10, "warmup": 0, "steps": 1}
    ppl.infer(kept.scaled, 0.4, device="cuda", **options)
    assert device.most > 500 * 10 * 2 * 4
    assert device.uploaded < 1000


def test_copies_from_the_device_are_whole_on_several_threads(device, monkeypatch):
    """Sizes below, at and above a thread's part, none a multiple of it."""
    monkeypatch.setattr(gpu, "STAGED", 64)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(3))
    staging = gpu.Staging()
    assert staging.count == 3
    for size in (1, 63, 64, 65, 191, 193, 1000):
        found = np.arange(size, dtype=np.uint8)
        _, address = device.cuMemAlloc(size)
        device.cuMemcpyHtoD(address, found.ctypes.data, size)
        array = np.zeros(size, np.uint8)
        staging.fetch(address, array)
        np.testing.assert_array_equal(array, found)


class OnGpu:
    """An array of CuPy, as far as a run looks at it."""

    def __init__(self, array):
        self.array, self.__cuda_array_interface__ = array, {"shape": array.shape}

    def get(self):
        return self.array


def test_a_run_is_where_its_arrays_are(device):
    options = {"method": "smc", "particles": 50, "seed": 2}
    there = ppl.infer(methods.states, OnGpu(methods.SERIES), **options)
    assert there.options.device == "cuda"
    assert device.most > 0
    device.most = 0
    here = ppl.infer(methods.states, OnGpu(methods.SERIES), device="cpu", **options)
    assert (here.options.device, device.most) == ("cpu", 0)
    np.testing.assert_array_equal(here["x"], there["x"])
    assert ppl.infer(methods.states, methods.SERIES, **options).options.device == "cpu"
