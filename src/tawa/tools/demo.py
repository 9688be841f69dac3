# Kernels without annotations have parameters of unknown type.
# pyright: reportUnknownMemberType=false
"""`tawa demo`: a plain GEMM and plain attention, from source to plan, proof and result.

On a Hopper GPU (with torch) it also times the kernels beside cuBLAS and cuDNN; without a GPU the
specialized programs run in the simulator, and the demo says so. Attention is in `demo_attention`.
"""

from __future__ import annotations

import inspect
import sys
import time
from importlib import import_module
from typing import Any

from tawa.tools import demo_attention, samples
from tawa.tools.outcome import Outcome, take_turns

BLOCKS = {"BM": 128, "BN": 256, "BK": 64}


def grid_of(m: int, n: int) -> tuple[int, int]:
    """Return one program for each tile of an m x n product."""
    return (-(-m // BLOCKS["BM"]), -(-n // BLOCKS["BN"]))


def compile_sample(m: int = 8192, n: int = 8192, k: int = 4096) -> Any:
    """Return the compiled kernel of the demo, without a GPU."""
    import tawa

    a, b, c = (tawa.array(shape, "bf16") for shape in ((m, k), (k, n), (m, n)))
    return samples.matmul.compile(*describe(a, b, c), k, grid=grid_of(m, n), **BLOCKS)


def describe(a: Any, b: Any, c: Any) -> tuple[Any, Any, Any]:
    """Return host descriptors of the arrays with the demo's blocks."""
    import tawa

    bm, bn, bk = BLOCKS["BM"], BLOCKS["BN"], BLOCKS["BK"]
    make = tawa.TensorDescriptor.from_tensor
    return make(a, [bm, bk]), make(b, [bk, bn]), make(c, [bm, bn])


def simulate(m: int = 256, n: int = 512, k: int = 192) -> Outcome:
    """Run the hopper program in the simulator on NumPy arrays and compare with NumPy."""
    import ml_dtypes
    import numpy

    random = numpy.random.default_rng(0)
    a, b = (random.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((m, k), (k, n)))
    c = numpy.full((m, n), numpy.nan, ml_dtypes.bfloat16)
    started = time.perf_counter()
    samples.matmul[grid_of(m, n)](*describe(a, b, c), k, **BLOCKS)
    took = time.perf_counter() - started
    want = a.astype(numpy.float64) @ b.astype(numpy.float64)
    error = numpy.linalg.norm(c.astype(numpy.float64) - want) / numpy.linalg.norm(want)
    return Outcome("the simulator", (m, n, k), float(error), took)


def run_on_gpu(torch: Any, m: int = 8192, n: int = 8192, k: int = 4096) -> Outcome:
    """Run on the GPU on fresh random inputs, and time it beside cuBLAS, taking turns."""
    a, b = (torch.randn(s, device="cuda").to(torch.bfloat16) for s in ((m, k), (k, n)))
    c = torch.full((m, n), float("nan"), device="cuda", dtype=torch.bfloat16)
    arguments = (*describe(a, b, c), k)
    launch = samples.matmul[grid_of(m, n)]
    launch(*arguments, **BLOCKS)
    want = a.double() @ b.double()
    error = float((c.double() - want).norm() / want.norm())
    ours, theirs = take_turns(
        torch, lambda: launch(*arguments, **BLOCKS), lambda: torch.mm(a, b, out=c)
    )
    work = 2.0 * m * n * k
    place = torch.cuda.get_device_name(0)
    return Outcome(place, (m, n, k), error, ours, work / ours / 1e12, work / theirs / 1e12)


def torch_with_hopper() -> Any | None:
    """Return torch if it is installed and sees a Hopper GPU."""
    try:
        torch: Any = import_module("torch")
    except ImportError:
        return None
    if not torch.cuda.is_available() or torch.cuda.get_device_capability(0) != (9, 0):
        return None
    return torch


def main() -> int:
    """Print sources, reports and results; return 0 if the results are right."""
    torch = torch_with_hopper()
    print("A kernel, plain tile code with no trace of warps:\n")
    print(inspect.getsource(samples.matmul.fn))
    compiled = compile_sample()
    print("What the compiler made of it:\n")
    print(compiled)
    print()
    if torch is None:
        print("No Hopper GPU here: run in the simulator, the same program, instruction by")
        print("instruction, with barriers, TMA and tensor cores completing in any legal order.")
    product = simulate() if torch is None else run_on_gpu(torch)
    print(product.describe("{} x {} x {} in bf16".format(*product.shape)))
    sys.stdout.flush()
    print("\nAnother, whose products stand around a softmax:\n")
    print(inspect.getsource(samples.attention.fn))
    print("What the compiler made of it, in short:\n")
    print(demo_attention.summary(demo_attention.compile_sample()))
    print()
    attention = demo_attention.simulate() if torch is None else demo_attention.run_on_gpu(torch)
    heads, length, width = attention.shape
    sizes = f"{heads} heads of {width}, causal, {length} queries and keys, in f16"
    print(attention.describe(sizes))
    sys.stdout.flush()
    return 0 if product.ok and attention.ok else 1
