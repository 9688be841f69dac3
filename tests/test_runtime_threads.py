"""Threads and forks: each launch has its own arguments, each compilation its own text."""

from __future__ import annotations

import os
import sys
import time

import numpy as np
import pytest

import tawa.language as tl
from in_processes import processes
from in_threads import together
from proof_kernels import MAKERS
from runtime_fakes import FakeCompiler, GpuArray, kernel
from tawa.codegen.generate import generate
from tawa.errors import LaunchError
from tawa.runtime.jit import JitFunction
from tawa.runtime.store import DiskStore
from tawa.target import H200
from tawa.verify import verify


def scale(x_ptr, out_ptr, factor, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out_ptr + at, tl.load(x_ptr + at) * factor)


def test_each_launch_hands_over_its_own_arguments(driver, tmp_path):
    """Threads share a launcher and its block of parameters: no launch sees another's values."""
    jit = JitFunction(kernel, compiler=FakeCompiler(), store=DiskStore(tmp_path))

    def work(index):
        for turn in range(100):
            n = 1000 * (index + 1) + turn
            jit[(n,)](GpuArray((4,), address=n << 20), n)

    sys.setswitchinterval(1e-5)
    try:
        together(4, work)
    finally:
        sys.setswitchinterval(5e-3)
    seen = set()
    for launch in driver.launches:
        (address, n), grid = (int.from_bytes(v, "little") for v in launch.values[:2]), launch.grid
        assert address == n << 20
        assert grid == (n, 1, 1)
        seen.add(n)
    assert len(seen) == len(driver.launches) == 400


def test_threads_compile_for_several_signatures_at_once(driver, tmp_path):
    compiler = FakeCompiler()
    jit = JitFunction(kernel, compiler=compiler, store=DiskStore(tmp_path))
    types = ("float32", "float16", "int32", "bfloat16")

    def work(index):
        for turn in range(40):
            jit[(1,)](GpuArray((4,), types[(index + turn) % 4]), 4)

    together(8, work)
    assert len(compiler.requests) == 4
    assert len(driver.launches) == 320


def test_threads_launch_in_the_simulator(tmp_path):
    jit = JitFunction(scale, store=DiskStore(tmp_path))

    def work(index):
        x, out = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
        for turn in range(5):
            jit[(1,)](x, out, float(index + turn), N=32)
            np.testing.assert_array_equal(out, x * (index + turn))

    together(4, work)


def test_threads_compile_different_kernels_at_once():
    """Nothing of one compilation shows in another: texts and steps are those of one alone."""
    names = ("codegen matmul_nn", "copies gather", "turns attention fine", "shape load under an if")

    def made(name):
        kernel = MAKERS[name]()
        return str(kernel), generate(kernel).text, verify(kernel, H200).states

    alone = {name: made(name) for name in names}

    def work(index):
        for turn in range(2):
            name = names[(index + turn) % len(names)]
            assert made(name) == alone[name], name

    sys.setswitchinterval(1e-5)
    try:
        together(len(names), work)
    finally:
        sys.setswitchinterval(5e-3)


def test_threads_wait_for_a_compilation_that_fails(driver, tmp_path):
    """Each gets the error, and the next call compiles again."""
    attempts = []

    def fails(request):
        attempts.append(1)
        time.sleep(0.05)
        raise LaunchError("no")

    jit = JitFunction(kernel, compiler=FakeCompiler(make=fails), store=DiskStore(tmp_path))

    def work(index):
        with pytest.raises(LaunchError, match="no"):
            jit[(1,)](GpuArray((4,)), 4)

    together(4, work)
    before = len(attempts)
    work(0)
    assert len(attempts) == before + 1


FORK = """
    import os
    import signal
    import threading
    import numpy as np
    import tawa
    from tawa.runtime import jit
    from tawa.runtime.build import default_compiler
    from tawa.tools.samples import double

    x = np.arange(64, dtype=np.float32)
    begun, go_on = threading.Event(), threading.Event()
    parent = os.getpid()

    def slow(*arguments, **options):
        if os.getpid() == parent:
            begun.set()
            go_on.wait()
        return default_compiler(*arguments, **options)

    jit.default_compiler = slow

    def launch():
        out = np.empty_like(x)
        kernel = double[(1,)](x, out, COUNT=64)
        assert (out == 2 * x).all()
        return kernel

    threading.Thread(target=launch).start()
    begun.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # ends it where it waits
        kernel = launch()
        held = threading.Thread(target=kernel.asm._lock.__enter__)
        held.start()
        held.join()
        grandchild = os.fork()
        if grandchild == 0:
            signal.alarm(60)
            os._exit("double" not in kernel.asm["hopper"])
        os._exit(os.waitpid(grandchild, 0)[1] != 0)
    print(os.waitpid(child, 0)[1])
    go_on.set()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks")
def test_a_process_forked_off_waits_for_no_thread_of_its_parent(tmp_path):
    """The parent's thread compiles, or reads a stage, and is not there in the child."""
    assert processes(FORK, 1, tmp_path) == ["0"]
