"""What a launch costs on the host: tawa beside Triton, plain arguments and descriptors, and the
library's calls beside torch's.

    python benchmarks/launch.py              on a GPU: host time of a launch, in microseconds
    python benchmarks/launch.py --dry        no GPU, no torch: everything but the driver's call

A figure is the least of several rounds of the mean over many launches of an empty kernel, the queue
drained between rounds: what the host does, not what it waits for. Writes JSON with `--out`.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import sys
import tempfile
import time
import types
from collections.abc import Callable
from itertools import count
from math import prod
from pathlib import Path
from typing import Any

import tawa
import tawa.language as tl
from tawa.runtime.recent import Recent

ROUNDS, LAUNCHES = 60, 100


@tawa.jit
def plain(a, b, c, M, N, K, stride, scale, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    if pid > M:
        tl.store(c + pid, tl.load(a + pid) + tl.load(b + K) * scale + N + stride)


@tawa.jit
def described(a, b, c, M, N, K, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    if pid > M:
        c.store([pid * BLOCK, N], a.load([pid * BLOCK, K]) + b.load([pid * BLOCK, K]))


def cost(launch: Callable[[], object], drain: Callable[[], object]) -> float:
    """Return microseconds a launch: the best round's mean."""
    best = float("inf")
    for _ in range(ROUNDS):
        drain()
        started = time.perf_counter()
        for _ in range(LAUNCHES):
            launch()
        best = min(best, time.perf_counter() - started)
    drain()
    return best / LAUNCHES * 1e6


def calls(tensors: tuple[Any, Any, Any], descriptor: Any) -> dict[str, Callable[[], object]]:
    """Return the launches of ours that are timed: 8 arguments, and 3 descriptors."""
    a, b, c = tensors
    descriptors = [descriptor(tensor, [64, 64]) for tensor in tensors]

    def grid(meta: dict[str, Any]) -> tuple[int]:
        return (tawa.cdiv(meta["M"], meta["BLOCK"]),)

    return {
        "plain": lambda: plain[(4,)](a, b, c, 256, 256, 64, 256, 0.5, BLOCK=64),
        "plain, grid function": lambda: plain[grid](a, b, c, 256, 256, 64, 256, 0.5, BLOCK=64),
        "descriptors": lambda: described[(4,)](*descriptors, 256, 64, 64, BLOCK=64),
        "descriptors, made anew": lambda: described[(4,)](
            *(descriptor(tensor, [64, 64]) for tensor in tensors), 256, 64, 64, BLOCK=64
        ),
    }


def library_calls(dense: Callable[..., Any]) -> dict[str, Callable[[], object]]:
    """Return calls of the library; `dense(*shape)` makes a bf16 tensor."""
    from tawa.kernels.attention import attention
    from tawa.kernels.matmul import matmul

    a, b, out, bias = dense(256, 256), dense(256, 256), dense(256, 256), dense(256)
    few, weight = dense(16, 2048), dense(2048, 512)
    q, k, v = (dense(2, 4, 256, 64) for _ in range(3))
    one = dense(2, 4, 1, 64)
    return {
        "matmul": lambda: matmul(a, b),
        "matmul into out": lambda: matmul(a, b, out),
        "matmul, bias": lambda: matmul(a, b, bias=bias),
        "matmul, few rows": lambda: matmul(few, weight),
        "attention": lambda: attention(q, k, v, causal=True),
        "attention, one query": lambda: attention(one, k, v),
    }


# --- without a GPU ------------------------------------------------------------------------------


class Tensor:
    """Stands for a CUDA tensor of torch: the methods that a launch calls."""

    __slots__ = ("address", "device", "dtype", "shape", "strides")
    is_cuda = True
    requires_grad = False
    places = count(0x7F0000000000, 1 << 30)

    def __init__(self, *shape: int, dtype: str = "bfloat16", address: int = 0) -> None:
        self.address = address or next(self.places)
        self.shape = shape
        self.strides = tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))
        self.dtype = dtype
        self.device = types.SimpleNamespace(type="cuda")

    def is_neg(self) -> bool:
        return False

    def data_ptr(self) -> int:
        return self.address

    def get_device(self) -> int:
        return 0

    def stride(self) -> tuple[int, ...]:
        return self.strides


def empty_strided(
    shape: tuple[int, ...], strides: tuple[int, ...], dtype: str, device: Any
) -> Tensor:
    return Tensor(*shape, dtype=dtype, address=0x7E0000000000)  # as freed memory comes again


class DryDriver:
    """Stands for the driver: a C function that does nothing takes the place of the launch."""

    def __init__(self) -> None:
        abs_of_c = ctypes.cast(ctypes.CDLL(None).labs, ctypes.c_void_p).value
        nothing = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)(abs_of_c)
        self.launch_ex = lambda config, function, pointers, extra: nothing(0, 0, 0, None)
        self.encode_tiled = self.replace_address = lambda *_: 0
        self.recent = Recent()

    def current_device(self) -> int:
        return 0

    def is_capturing(self, stream: int, device: int) -> bool:
        return False

    def target(self, device: int) -> Any:
        from tawa.target import H200

        return H200


class DryKernel:
    """Stands for a loaded kernel."""

    function = 1

    def __init__(self, *_: Any) -> None:
        pass

    def prepare(self, device: int) -> None:
        pass

    def resident_blocks(self, device: int) -> int:
        return 132


def settle_first(tuner: Any, problem: Any, candidates: Any, *_: Any, **__: Any) -> Any:
    """Stand for tuning: take the first variant."""
    if (known := tuner.best.get(problem)) is None:
        known = tuner.best[problem] = candidates()[0].variant
    return known


def dry() -> dict[str, float]:
    """Time everything but the driver's call, with stand-ins for torch and the driver."""
    from tawa.kernels import arrays, tuner
    from tawa.runtime import dispatch

    if "torch" not in sys.modules:
        torch: Any = types.ModuleType("torch")
        torch.Tensor, torch.empty_strided = Tensor, empty_strided
        torch.cuda = types.SimpleNamespace(
            is_available=lambda: True, is_initialized=lambda: True, init=lambda: None
        )
        # C functions of one and no argument, as torch's are.
        torch._C = types.SimpleNamespace(
            _cuda_getCurrentRawStream=abs,
            _cuda_getDevice=int,
            _len_torch_dispatch_stack=int,
            _is_any_autocast_enabled=bool,
            _functorch=types.SimpleNamespace(peek_interpreter_stack=lambda: None),
        )
        torch.is_grad_enabled = bool
        graph = types.SimpleNamespace(increment_version=id)
        torch.autograd = types.SimpleNamespace(graph=graph)
        torch.bfloat16, torch.float32, torch.int32 = "bfloat16", "float32", "int32"
        torch.zeros = lambda *shape, dtype, device: Tensor(*shape, dtype=dtype)
        sys.modules["torch"] = torch
    driver = DryDriver()
    dispatch.connect = lambda: driver
    dispatch.LoadedKernel = DryKernel
    arrays.connect = dispatch.connect
    tuner.Tuner.settle = settle_first
    tensors = tuple(Tensor(256, 256) for _ in range(3))
    timed = calls(tensors, tawa.TensorDescriptor.from_tensor)
    timed |= library_calls(Tensor)
    for launch in timed.values():
        launch()
    return {f"tawa, {name}": cost(launch, lambda: None) for name, launch in timed.items()}


# --- with a GPU ---------------------------------------------------------------------------------


def on_gpu() -> dict[str, float]:
    """Time ours, and the peers that are installed, on the current GPU."""
    import torch

    from tawa.kernels import tuner

    tuner.Tuner.settle = settle_first  # which variant it is makes no difference here
    tensors = tuple(torch.randn(256, 256, device="cuda").bfloat16() for _ in range(3))
    timed = {
        f"tawa, {name}": launch
        for name, launch in calls(tensors, tawa.TensorDescriptor.from_tensor).items()
    }
    timed |= triton_calls(tensors)
    timed |= {
        f"tawa, {name}": call
        for name, call in library_calls(
            lambda *shape: torch.randn(*shape, device="cuda").bfloat16()
        ).items()
    }
    timed |= torch_calls()
    for launch in timed.values():
        launch()
    return {name: cost(launch, torch.cuda.synchronize) for name, launch in timed.items()}


def torch_calls() -> dict[str, Callable[[], object]]:
    """Return torch's calls that do what the library's do."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    a, b, out = (torch.randn(256, 256, device="cuda").bfloat16() for _ in range(3))
    q, k, v = (torch.randn(2, 4, 256, 64, device="cuda").bfloat16() for _ in range(3))
    return {
        "torch, mm": lambda: torch.mm(a, b),
        "torch, mm into out": lambda: torch.mm(a, b, out=out),
        "torch, scaled_dot_product_attention": lambda: scaled_dot_product_attention(
            q, k, v, is_causal=True
        ),
    }


def triton_calls(tensors: tuple[Any, Any, Any]) -> dict[str, Callable[[], object]]:
    """Return the same launches through Triton; none where it is not installed."""
    try:
        import triton
        from triton.tools.tensor_descriptor import TensorDescriptor
    except ImportError:
        return {}
    source = Path(tempfile.mkdtemp()) / "launch_kernels.py"
    source.write_text(TRITON)
    scope: dict[str, Any] = {"__name__": "launch_kernels"}
    exec(compile(TRITON, str(source), "exec"), scope)
    a, b, c = tensors
    first, second = scope["plain"], scope["described"]
    descriptors = [TensorDescriptor.from_tensor(tensor, [64, 64]) for tensor in tensors]
    version = triton.__version__
    return {
        f"triton {version}, plain": lambda: first[(4,)](a, b, c, 256, 256, 64, 256, 0.5, BLOCK=64),
        f"triton {version}, descriptors": lambda: second[(4,)](*descriptors, 256, 64, 64, BLOCK=64),
    }


TRITON = """
import triton
import triton.language as tl

@triton.jit
def plain(a, b, c, M, N, K, stride, scale, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    if pid > M:
        tl.store(c + pid, tl.load(a + pid) + tl.load(b + K) * scale + N + stride)

@triton.jit
def described(a, b, c, M, N, K, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    if pid > M:
        c.store([pid * BLOCK, N], a.load([pid * BLOCK, K]) + b.load([pid * BLOCK, K]))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dry", action="store_true", help="no GPU: all but the driver's call")
    parser.add_argument("--out", type=Path, help="write JSON here")
    options = parser.parse_args()
    figures = dry() if options.dry else on_gpu()
    for name, microseconds in figures.items():
        print(f"{microseconds:8.2f} us  {name}")
    if options.out is not None:
        facts = {
            "command": "python " + " ".join(["benchmarks/launch.py", *sys.argv[1:]]),
            "cpu_count": os.cpu_count(),
            "microseconds": figures,
        }
        options.out.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
