"""Kernels built without Python source, and programs of several, on the GPU.

Needs torch with CUDA and a Hopper GPU; skipped elsewhere.
"""

from __future__ import annotations

import runpy
from itertools import pairwise
from pathlib import Path

import pytest

import tawa
from tawa.errors import ArgumentError
from tawa.ir.build import KernelBuilder

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0),
    reason="needs a Hopper GPU",
)
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "05_without_source.py"


def add(amount: float):
    k = KernelBuilder("add")
    x, out, n = k.pointer("x", "f32"), k.pointer("out", "f32"), k.scalar("n", "i32")
    where = k.program_id(0) * 256 + k.arange(0, 256)
    k.store(out + where, k.load(x + where, where < n) + amount, where < n)
    return tawa.compile_ir(k.finish())


def chain(kernel, length: int) -> tawa.Program:
    """`length` launches of a kernel, each on what the one before it wrote."""
    names = ["x", *(f"t{i}" for i in range(1, length)), "out"]
    buffers = tuple(tawa.Buffer(name, "f32", lambda v: (v["n"],)) for name in names[1:-1])
    steps = tuple(
        tawa.Step(kernel, lambda v: (tawa.cdiv(v["n"], 256),), {"x": one, "out": other})
        for one, other in pairwise(names)
    )
    return tawa.Program("chain", ("x", "out", "n"), buffers, steps)


def test_the_example_on_the_gpu():
    example = runpy.run_path(str(EXAMPLE))
    assert example["on_gpu"](torch) < 1e-5


@pytest.mark.parametrize("n", [1, 1000, 1 << 20])
def test_kernels_run_in_stream_order(n):
    program = chain(add(1.0), 20)
    x = torch.randint(-8, 8, (n,), device="cuda").float()
    out = torch.full_like(x, float("nan"))
    for _ in range(10):  # buffers of a call take the memory of those of the call before
        buffers = program(x, out, n)
        assert buffers["t1"].device == x.device
        assert torch.equal(out, x + 20)


def test_programs_run_on_the_current_stream():
    program, stream = chain(add(1.0), 8), torch.cuda.Stream()
    x = torch.arange(4096.0, device="cuda")
    out = torch.full_like(x, float("nan"))
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        program(x, out, 4096)
    stream.synchronize()
    assert torch.equal(out, x + 8)


def test_a_program_is_captured_in_a_graph():
    program = chain(add(1.0), 4)
    x = torch.zeros(512, device="cuda")
    out = torch.zeros(512, device="cuda")
    program(x, out, 512)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        program(x, out, 512)
    x.fill_(7)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, x + 4)


def test_launches_are_checked_against_what_is_declared():
    kernel = add(1.0)
    x = torch.zeros(512, device="cuda")
    with pytest.raises(ArgumentError, match="'x' is \\*f32"):
        kernel[1,](x[1:], x, 256)
    with pytest.raises(ArgumentError, match="'x' is \\*f64"):
        kernel[1,](x.double(), x, 256)
