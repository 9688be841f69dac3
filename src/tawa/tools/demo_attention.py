# Kernels without annotations have parameters of unknown type.
# pyright: reportUnknownMemberType=false
"""The half of `tawa demo` that shows attention: compile, run in the simulator or on the GPU."""

from __future__ import annotations

import time
from importlib import import_module
from typing import Any

from tawa.tools import samples
from tawa.tools.outcome import Outcome, take_turns

BLOCKS = {"BM": 128, "BN": 128}


def bound(q: Any, k: Any, v: Any, out: Any, heads: int, length: int, width: int) -> Any:
    """Return grid and arguments for arrays [heads * length, width]."""
    import tawa

    describe = tawa.TensorDescriptor.from_tensor
    queries, keys = [BLOCKS["BM"], width], [BLOCKS["BN"], width]
    maps = (describe(q, queries), describe(k, keys), describe(v, keys), describe(out, queries))
    return (length // BLOCKS["BM"], heads), (*maps, length, width**-0.5)


def compile_sample(heads: int = 64, length: int = 4096, width: int = 128) -> Any:
    """Return the compiled kernel of the demo, without a GPU."""
    import tawa

    each = tawa.array((heads * length, width), "f16")
    grid, arguments = bound(each, each, each, each, heads, length, width)
    return samples.attention.compile(*arguments, grid=grid, **BLOCKS)


def summary(compiled: Any) -> str:
    """Return the report's lines on roles, arefs, loops and the proof."""
    kept: list[str] = []
    take = False
    for line in str(compiled).splitlines():
        if line.startswith("  ") and not line.startswith("    "):
            take = line.strip() in ("roles", "arefs", "loops", "stores", "proof")
        if take:
            kept.append(line)
    return "\n".join(kept)


def simulate(heads: int = 2, length: int = 256, width: int = 64) -> Outcome:
    """Run the hopper program in the simulator on NumPy arrays and compare with NumPy."""
    import numpy

    random = numpy.random.default_rng(0)
    rows = (heads * length, width)
    q, k, v = (random.standard_normal(rows).astype(numpy.float16) for _ in range(3))
    out = numpy.full(rows, numpy.nan, numpy.float16)
    grid, arguments = bound(q, k, v, out, heads, length, width)
    started = time.perf_counter()
    samples.attention[grid](*arguments, **BLOCKS)
    took = time.perf_counter() - started
    q, k, v = (x.astype(numpy.float64).reshape(heads, length, width) for x in (q, k, v))
    scores = q @ k.swapaxes(1, 2) * width**-0.5
    weights = numpy.exp(scores) * numpy.tri(length)
    want = (weights @ v / weights.sum(-1, keepdims=True)).reshape(rows)
    error = numpy.linalg.norm(out.astype(numpy.float64) - want) / numpy.linalg.norm(want)
    return Outcome("the simulator", (heads, length, width), float(error), took)


def run_on_gpu(torch: Any, heads: int = 64, length: int = 4096, width: int = 128) -> Outcome:
    """Run on the GPU on fresh random inputs, and time it beside cuDNN, taking turns."""
    choice: Any = import_module("torch.nn.attention")
    shape = (1, heads, length, width)
    q, k, v = (torch.randn(shape, device="cuda").half() for _ in range(3))
    out = torch.full_like(q, float("nan"))
    flat_q, flat_k, flat_v, flat_out = (each.view(-1, width) for each in (q, k, v, out))
    grid, arguments = bound(flat_q, flat_k, flat_v, flat_out, heads, length, width)
    launch = samples.attention[grid]
    launch(*arguments, **BLOCKS)
    attend = torch.nn.functional.scaled_dot_product_attention
    some = [each[:, :4].double() for each in (q, k, v)]
    want = attend(*some, is_causal=True)
    error = float((out[:, :4].double() - want).norm() / want.norm())

    def peer() -> None:
        with choice.sdpa_kernel(choice.SDPBackend.CUDNN_ATTENTION):
            attend(q, k, v, is_causal=True)

    ours, theirs = take_turns(torch, lambda: launch(*arguments, **BLOCKS), peer)
    work = 2.0 * heads * length * length * width
    place = torch.cuda.get_device_name(0)
    rates = work / ours / 1e12, work / theirs / 1e12
    return Outcome(place, shape[1:], error, ours, *rates, peer="cuDNN (torch SDPA)")
