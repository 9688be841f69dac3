"""Launches and tuning inside graph captures, on a GPU that is lost, of kernels that do not load."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import pytest

import tawa
from runtime_fakes import FakeCompiler, GpuArray, kernel
from tawa.errors import LaunchError
from tawa.runtime import dispatch
from tawa.runtime.driver import Driver
from tawa.runtime.jit import JitFunction
from tawa.runtime.store import DiskStore


def tuned(monkeypatch, tmp_path, time_run):
    from tawa.runtime import autotune

    monkeypatch.setattr(autotune.Timer, "time", time_run)
    jit = JitFunction(kernel, compiler=FakeCompiler(), store=DiskStore(tmp_path))
    configs = [tawa.Config({}, num_warps=warps) for warps in (4, 8)]
    return autotune.Autotuner(jit, configs, ["n"], store=DiskStore(tmp_path))


def test_tuning_inside_a_capture_is_refused(driver, monkeypatch, tmp_path):
    kernel = tuned(monkeypatch, tmp_path, lambda self, run: [1.0])
    driver.capturing = True
    with pytest.raises(LaunchError, match="the tuning of kernel is inside a CUDA graph") as caught:
        kernel[(1,)](GpuArray((4,)), 4)
    assert caught.value.why == "timing a kernel cannot be captured"
    assert driver.launches == []
    driver.capturing = False
    kernel[(1,)](GpuArray((4,)), 4)
    driver.capturing = True
    kernel[(1,)](GpuArray((4,)), 4)  # known by now
    assert len(driver.launches) == 2


def test_a_lost_gpu_ends_tuning(driver, monkeypatch, tmp_path):
    """The other configurations would only repeat the error of the one at fault."""
    runs = []

    def time_run(self, run):
        runs.append(1)
        driver.error = 700
        run()

    with pytest.raises(LaunchError) as caught:
        tuned(monkeypatch, tmp_path, time_run)[(1,)](GpuArray((4,)), 4)
    assert caught.value.lost
    assert len(runs) == 1


def test_a_fault_that_torch_reports_names_the_configuration(driver, monkeypatch, tmp_path):
    def time_run(self, run):
        run()
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    with pytest.raises(RuntimeError, match="illegal memory access") as caught:
        tuned(monkeypatch, tmp_path, time_run)[(1,)](GpuArray((4,)), 4)
    assert caught.value.__notes__ == ["while kernel was timed with num_warps=4"]


def test_the_legacy_stream_beside_a_capture(monkeypatch):
    """The driver answers 906 when asked of stream 0 while another stream is captured."""

    answer = [0, 0]  # the error, and whether the stream is captured

    def asked(stream: int, status: int) -> int:
        ctypes.c_int.from_address(status).value = answer[1]
        return answer[0]

    driver = object.__new__(Driver)
    driver._capturing = asked
    monkeypatch.setattr(Driver, "describe", lambda self, code: f"error {code}")
    assert not driver.is_capturing(0)
    answer[:] = 0, 1
    assert driver.is_capturing(7)
    answer[:] = 906, 0
    assert driver.is_capturing(0)
    answer[:] = 400, 0
    with pytest.raises(LaunchError, match="cuStreamIsCapturing failed: error 400"):
        driver.is_capturing(7)


def test_a_kernel_that_does_not_load_is_named(driver, monkeypatch, tmp_path):
    def refuse(*arguments):
        raise LaunchError("cuLibraryLoadData failed: out of memory")

    monkeypatch.setattr(dispatch, "LoadedKernel", refuse)
    jit = JitFunction(kernel, compiler=FakeCompiler(), store=DiskStore(tmp_path))
    what = "kernel cannot be loaded on cuda:0: cuLibraryLoadData failed: out of memory"
    with pytest.raises(LaunchError, match=what):
        jit[(1,)](GpuArray((4,)), 4)


def test_the_current_device_is_asked_of_the_function_of_one_argument():
    """As driver 13.0 resolves it: by that version the name is a function that takes a context."""

    def address(kind, function):
        kept.append(kind(function))
        return ctypes.cast(kept[-1], ctypes.c_void_p).value

    def of_context(device, context):  # what lies in the second argument is no context
        return 201

    def current(device):
        ctypes.c_int.from_address(device).value = 3
        return 0

    def resolve(name, version, flags):
        if name == b"cuCtxGetDevice" and version < 13_000:
            return 0, address(ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p), current), None
        two = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
        return 0, address(two, of_context), None

    kept = []
    assert Driver(SimpleNamespace(cuGetProcAddress=resolve)).current_device() == 3
