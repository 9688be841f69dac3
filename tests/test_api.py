"""The public face: lazy names, the report, errors without a driver, a kernel under `tawa.jit`."""

from __future__ import annotations

import ast
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

import tawa
from runtime_fakes import sample_kernel
from tawa.errors import BuildError, LaunchError, NoDriver
from tawa.frontend.signature import ConstantArg, DescriptorArg, PointerArg, ScalarArg
from tawa.runtime.compiled import Assembly, Guard
from tawa.runtime.driver import check_version, connect, launch_error
from tawa.runtime.jit import JitFunction
from tawa.runtime.timing import summarize


def test_public_names_resolve_and_are_typed():
    for name in tawa.__all__:
        assert getattr(tawa, name) is not None
    assert set(tawa.__all__) <= set(dir(tawa))
    tree = ast.parse(Path(tawa.__file__).read_text())
    typed = {
        alias.asname
        for node in ast.walk(tree)
        if isinstance(node, ast.If)
        for item in node.body
        if isinstance(item, ast.ImportFrom)
        for alias in item.names
    }
    assert typed >= set(tawa.__all__)
    with pytest.raises(AttributeError, match="module 'tawa' has no attribute 'jitt'"):
        tawa.jitt  # noqa: B018


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import tawa", "numpy xdsl cuda torch ml_dtypes tawa.errors asyncio typing re"),
        (
            "import tawa; tawa.jit; tawa.TensorDescriptor; tawa.autotune",
            "numpy xdsl cuda torch statistics difflib tawa.simulator tawa.passes tawa.language",
        ),
        ("from tawa.tools.cli import make_parser; make_parser()", "numpy xdsl cuda tawa.runtime"),
    ],
)
def test_imports_are_light(statement, absent):
    # What an environment imports as Python starts is not ours.
    named = f"[n for n in {absent.split()} if n in set(sys.modules) - before]"
    code = f"import sys; before = set(sys.modules); {statement}; print({named})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_report():
    signature = {
        "a": DescriptorArg("bf16", (128, 64)),
        "x": PointerArg("f16", True),
        "K": ScalarArg("i32", True),
        "flag": ScalarArg("i1"),
        "BLOCK": ConstantArg(64),
    }
    kernel = sample_kernel(signature=signature, guards=(Guard("disjoint(a, x)", "a runs ahead"),))
    assert str(kernel) == REPORT
    assert "matmul(a: descriptor of bf16[128x64], x: *f16" in repr(kernel)


REPORT = """\
kernel matmul
  arguments
    a: descriptor of bf16[128x64]
    x: *f16 (16-byte aligned)
    K: i32 (divisible by 16)
    flag: i1
    BLOCK = 64
  launch
    384 threads, 1,024 bytes of shared memory
  roles
    load: 4 warps, 40 registers
    mma: 8 warps, 232 registers (168 used)
    consumers: cooperative
    spills: 0 bytes a thread
  arefs
    a@12+b@13: depth 3, by TMA
  loops
    for k@11: fine, mma depth 2
  stores
    c@16: by TMA, evict first
  shared memory
       49,152  a
           24  filled (3 barriers)
       49,176  in all of 231,424
  guards at launch
    disjoint(a, x): a runs ahead
  proof
    ok, 1,234 states: no hang, no race, nothing left over
  declined
    cluster: one tile along m
  compile time
        10.0 ms  frontend
       200.0 ms  nvrtc
       210.0 ms  in all"""


def test_stages_are_computed_once_when_read():
    made = []

    def ptx():
        made.append(1)
        return "ptx text"

    asm = Assembly({"cuda": "c", "cubin": b"\0"}, {"ptx": ptx})
    assert list(asm) == ["cuda", "ptx", "cubin"]
    assert made == []
    assert asm["ptx"] == asm["ptx"] == "ptx text"
    assert made == [1]
    with pytest.raises(KeyError, match="no stage 'llvm'; there are cuda, ptx, cubin"):
        asm["llvm"]
    with pytest.raises(TypeError, match="'cubin' is binary"):
        asm.text("cubin")


def test_a_kernel_of_the_simulator_says_how_to_get_a_cubin():
    asm = Assembly({"cuda": "c"}, {"ptx": lambda: "ptx text"})
    for level in ("cubin", "sass"):
        with pytest.raises(KeyError, match=f"no stage '{level}'.*on the CPU.*compile"):
            asm[level]


def test_without_a_driver_the_error_names_the_way_out():
    pytest.importorskip("cuda.bindings.driver")
    connect.cache_clear()
    with suppress(NoDriver):
        connect()
        pytest.skip("there is a driver")
    with pytest.raises(NoDriver, match=r"(?s)NVIDIA driver.*simulat"):
        connect()


def test_the_driver_version_is_checked_by_name():
    check_version(13_000)
    with pytest.raises(NoDriver, match=r"too old: it serves CUDA 12\.8\n.*driver 580 or newer"):
        check_version(12_080)


def test_launch_errors():
    error = launch_error("matmul", "CUDA_ERROR_INVALID_VALUE (1)", 1, "K=3")
    assert isinstance(error, LaunchError)
    assert (
        "refused the launch of matmul: CUDA_ERROR_INVALID_VALUE (1)\n  why: arguments: K=3"
        in str(error)
    )
    sticky = launch_error("matmul", "CUDA_ERROR_LAUNCH_FAILED (719)", 719, "K=3")
    assert "nothing more runs in this process. The latest launches" in str(sticky)
    assert "\n    matmul: K=3\n" in str(sticky)
    assert sticky.lost
    assert not error.lost


def test_jit_with_and_without_options():
    @tawa.jit
    def plain(x, n):
        """Do nothing."""

    @tawa.jit(do_not_specialize=["n"])
    def careful(x, n):
        pass

    assert isinstance(plain, JitFunction)
    assert (plain.__name__, plain.__doc__, plain.arg_names) == ("plain", "Do nothing.", ["x", "n"])
    assert repr(plain).startswith("<tawa.jit ")
    assert not careful.kernel.by_name["n"].specialize


def test_simulate_refuses_unknown_levels():
    @tawa.jit
    def plain(x):
        pass

    with pytest.raises(tawa.errors.ArgumentError, match="level='ptx' is not a stage that can run"):
        tawa.simulate(plain, 0, grid=(1,), level="ptx")


def test_summaries_of_times():
    times = [4.0, 1.0, 3.0, 2.0]
    assert summarize(times, None, "median") == 2.5
    assert summarize(times, (0.5, 0.0, 1.0), "median") == [2.5, 1.0, 4.0]
    assert summarize(times, None, "all") == times
    assert [summarize(times, None, mode) for mode in ("min", "max", "mean")] == [1.0, 4.0, 2.5]
    with pytest.raises(ValueError, match="return_mode"):
        summarize(times, None, "best")


def test_timing_needs_torch_and_a_gpu():
    try:
        import torch
    except ImportError:
        torch = None
    if torch is not None and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(NoDriver, match="timing needs"):
        tawa.testing.do_bench(lambda: None)


def test_sass_without_nvdisasm(monkeypatch):
    from tawa.runtime import compiled, sass

    monkeypatch.setattr(sass, "find_nvdisasm", lambda: None)
    with pytest.raises(BuildError, match="no nvdisasm"):
        compiled.with_later({"cubin": b"\0"})["sass"]


def test_grid_arithmetic():
    assert [tawa.cdiv(n, 64) for n in (0, 1, 64, 65)] == [0, 1, 1, 2]
    assert [tawa.next_power_of_2(n) for n in (0, 1, 2, 3, 64, 65)] == [1, 1, 2, 4, 64, 128]
