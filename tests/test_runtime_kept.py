"""What launchers keep from one launch to the next: counters of streams, and no arrays."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import tawa
import tawa.language as tl
from runtime_fakes import FakeCompiler, GpuArray, kernel, parameters_of, sample_kernel
from tawa.codegen.parameters import CounterParameter
from tawa.runtime import jit as jit_module
from tawa.runtime.jit import JitFunction
from tawa.runtime.store import DiskStore


def asking(request):
    """A kernel whose blocks ask for their programs, by a counter of the launch."""
    parameters = (*parameters_of(request.signature), CounterParameter())
    return sample_kernel(parameters, signature=request.signature)


def test_launchers_of_one_kernel_share_its_counters(driver, monkeypatch, tmp_path):
    """Two forms of a call (a subclass of the array) have a launcher each, and one kernel: launches
    on two streams must not count on one counter.
    """

    class Subclass(GpuArray):
        pass

    jit = JitFunction(kernel, compiler=FakeCompiler(make=asking), store=DiskStore(tmp_path))
    streams = iter((5, 6, 5, 6))
    monkeypatch.setattr(jit_module, "current_stream", lambda values: lambda device: current[0])
    current = [0]
    used = []
    for array in (GpuArray, Subclass, GpuArray, Subclass):
        current[0] = next(streams)
        jit[(1,)](array((4,)), 4)
        used.append((driver.launches[-1].stream, driver.launches[-1].values[-1]))
    assert used[0] == used[2]
    assert used[1] == used[3]
    assert used[0][1] != used[1][1]


@pytest.mark.parametrize("form", ["array", "descriptor"])
@pytest.mark.parametrize("where", ["cpu", "gpu"])
def test_what_is_launched_is_not_kept_alive(driver, tmp_path, form, where):
    """A launcher outlives the call that made it, and must not hold its arrays."""

    class Held(np.ndarray):
        pass

    @tawa.jit
    def step(x, n):
        if n > 3:
            tl.store(x + tl.arange(0, 4), 1.0)

    @tawa.jit
    def block(x, n):
        x.store([0], tl.zeros((16,), tl.float32))

    fn = (step if form == "array" else block).fn
    made = {"compiler": FakeCompiler(), "store": DiskStore(tmp_path)} if where == "gpu" else {}
    jit = JitFunction(fn, **made)
    array = GpuArray((64,)) if where == "gpu" else np.zeros(64, np.float32).view(Held)
    driver.parameters = 1
    alive = weakref.ref(array)
    for _ in range(2):
        given = array if form == "array" else tawa.TensorDescriptor.from_tensor(array, [16])
        jit[(1,)](given, 5)
    del array, given
    gc.collect()
    assert alive() is None
