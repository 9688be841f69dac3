"""Functions that `tawa.axon.fuse` makes one kernel of, beside `torch.compile` and eager torch.

    python benchmarks/axon.py                on a GPU
    python benchmarks/axon.py --dry          compiles and runs small shapes in the simulator
    python benchmarks/axon.py --only NAME --rounds 1    compiles what is timed later

A figure is the median of rounds in which the peers take turns, each as a CUDA graph of sixteen
launches; the inputs of one launch (48 to 512 MB for most) and of the next are not the same. All
results are compared with torch in float64 first. Prints a table, and the geometric mean of
torch.compile's time over tawa's.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from tawa import axon
from tawa.axon.fuse import fuse

PROGRAM = """
fun layer_norm_ (g, b) x = layer_norm g b x
fun rms_residual g (x, r) = let val y = x + r in (rms_norm g y, y) end
fun softmax_ x = softmax x
fun bias_gelu b x = gelu (x + b)
fun cross_entropy_ x labels = cross_entropy x labels
"""
SHAPES = [(8192, 1024), (4096, 4096), (16384, 768), (2048, 8192), (1023, 4097), (2048, 32000),
          (65536, 96), (32768, 197)]  # fmt: skip
LAUNCHES = 16


def rms_residual(g: Any, pair: Any) -> Any:
    """RMS norm of a sum, and the sum."""
    y = pair[0] + pair[1]
    return y * torch.rsqrt((y * y).mean(-1, keepdim=True) + 1e-5) * g, y


TORCH: dict[str, Callable[..., Any]] = {
    "layer_norm_": lambda gb, x: F.layer_norm(x, x.shape[-1:], *gb),
    "rms_residual": rms_residual,
    "softmax_": lambda x: torch.softmax(x, -1),
    "bias_gelu": lambda b, x: F.gelu(x + b),
    "cross_entropy_": lambda x, labels: F.cross_entropy(x, labels, reduction="none"),
}


def arguments(name: str, shape: tuple[int, int], dtype: Any, device: str) -> tuple[Any, ...]:
    """Return the arguments of a function."""
    rows, columns = shape
    new = partial(torch.randn, dtype=dtype, device=device)
    match name:
        case "layer_norm_":
            return (new(columns), new(columns)), new(rows, columns)
        case "rms_residual":
            return new(columns), (new(rows, columns), new(rows, columns))
        case "softmax_":
            return (new(rows, columns),)
        case "bias_gelu":
            return new(columns), new(rows, columns)
        case _:
            return new(rows, columns), torch.randint(columns, (rows,), device=device)


def doubled(value: Any) -> Any:
    """Return arguments in float64."""
    if isinstance(value, tuple):
        return tuple(map(doubled, value))
    return value.double() if value.is_floating_point() else value


def check(name: str, fused: Any, given: tuple[Any, ...], dtype: Any) -> None:
    """Compare with torch in float64; raises AssertionError."""
    got, want = fused(*given), TORCH[name](*doubled(given))
    pairs = zip(got, want) if isinstance(got, tuple) else [(got, want)]
    bound = 1e-5 if dtype == torch.float32 else 2e-2
    for one, other in pairs:
        torch.testing.assert_close(one.double(), other, atol=bound, rtol=bound)


def graph_of(call: Callable[..., Any], inputs: list[tuple[Any, ...]]) -> Any:
    """Return a CUDA graph of launches on rotating inputs."""
    for given in inputs:
        call(*given)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for number in range(LAUNCHES):
            call(*inputs[number % len(inputs)])
    return graph


def timed(graph: Any) -> float:
    """Return microseconds of one launch."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    graph.replay()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1000 / LAUNCHES


def main() -> int:
    """Time all cases; return 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dry", action="store_true", help="small shapes in the simulator")
    parser.add_argument("--only", choices=TORCH, help="one of the functions")
    parser.add_argument("--rounds", type=int, default=11, help="how often each peer is timed")
    options = parser.parse_args()
    dry = options.dry
    module = axon.load(PROGRAM)
    gains: list[float] = []
    for name in [options.only] if options.only else TORCH:
        fused = fuse(module.functions[name])
        for dtype in (torch.float32, torch.bfloat16):
            if dry:
                check(name, fused, arguments(name, (3, 80), dtype, "cpu"), dtype)
                continue
            for shape in SHAPES:
                inputs = [arguments(name, shape, dtype, "cuda") for _ in range(3)]
                check(name, fused, inputs[0], dtype)
                torch.compiler.reset()
                peers = (fused, torch.compile(TORCH[name], dynamic=False), TORCH[name])
                graphs = [graph_of(peer, inputs) for peer in peers]
                rounds = [[timed(graph) for graph in graphs] for _ in range(options.rounds)]
                ours, compiled, eager = (statistics.median(column) for column in zip(*rounds))
                gains.append(compiled / ours)
                text = f"{name:<16} {str(dtype)[6:]:<9} {shape!s:<14} tawa {ours:8.1f} us"
                print(
                    f"{text}  compile {compiled:8.1f}  eager {eager:8.1f}  {gains[-1]:5.2f}",
                    flush=True,
                )
        print(f"{name}: {len(fused.kernels)} kernels")
    if gains:
        mean = math.exp(statistics.fmean(map(math.log, gains)))
        print(f"geometric mean over torch.compile {mean:.2f}, worst {min(gains):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
