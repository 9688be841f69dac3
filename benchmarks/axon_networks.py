"""Blocks of networks compiled by `tawa.axon.fuse.compile`, beside torch and torch.compile, one GPU.

    python benchmarks/axon_networks.py [NAME ...]
    python benchmarks/axon_networks.py --tiny        (CPU: small sizes, results only)

Modules are written in torch, read by `load_fx` and compiled; float16. Results are compared with
those of float32. All take turns, five rounds, medians; calls are replayed from CUDA graphs; what a
call costs without one, its host included, stands beside: `call_ms`, and `call_kept_ms` of a row of
calls whose results are kept.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from layer_runs import ROUNDS, in_turns, time_calls
from tawa import axon
from tawa.axon.fuse import compile as compile_graph

TOLERANCE = 1e-2


class Transformer(nn.Module):
    """A block of ViT: attention and a feed-forward network, norms first."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inner = nn.Sequential(
            nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width)
        )
        self.heads, self.width = heads, width

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output, [batch, tokens, width]."""
        batch, length = x.size(0), x.shape[1]
        y = self.norm1(x)
        split = batch, length, self.heads, self.width // self.heads
        q, k, v = (each(y).view(*split).transpose(1, 2) for each in (self.q, self.k, self.v))
        scale = (self.width // self.heads) ** -0.5
        weights = torch.softmax(torch.matmul(q, k.transpose(-2, -1)) * scale, dim=-1)
        mixed = torch.matmul(weights, v).transpose(1, 2).reshape(batch, length, self.width)
        x = x + self.out(mixed)
        return x + self.inner(self.norm2(x))


class Gated(nn.Module):
    """The feed-forward network of Llama under its norm."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the network's output and what went in, [batch, tokens, width]."""
        y = x * torch.rsqrt((x * x).mean(-1, True) + 1e-5) * self.scale
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


class Residual(nn.Module):
    """Two 3x3 convolutions with batch norms, and what they are added to."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(channels, channels, 3, 1, 1) for _ in range(2))
        self.norm1, self.norm2 = (nn.BatchNorm2d(channels) for _ in range(2))
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """Return images of the same size."""
        y = self.relu(self.norm1(self.conv1(x)))
        return self.relu(self.norm2(self.conv2(y)) + x)


@dataclass(frozen=True)
class Block:
    """A module, the sizes of its input, and those in the simulator."""

    make: Callable[..., nn.Module]
    how: tuple[int, ...]
    shape: tuple[int, ...]
    dims: str
    small: tuple[tuple[int, ...], tuple[int, ...]]


BLOCKS = {
    "transformer": Block(
        Transformer, (1024, 16), (8, 512, 1024), "b t 1024", ((64, 2), (1, 17, 64))
    ),
    "gated": Block(Gated, (2048, 5632), (4, 1024, 2048), "b t 2048", ((64, 96), (1, 9, 64))),
    "residual": Block(Residual, (128,), (32, 128, 28, 28), "n 128 h w", ((8,), (1, 8, 6, 6))),
}


def made(block: Block, tiny: bool, device: str) -> tuple[nn.Module, Any, Tensor, Tensor]:
    """Return torch's module, ours, an input and what float32 makes of it."""
    torch.manual_seed(0)
    how, shape = block.small if tiny else (block.how, block.shape)
    exact = block.make(*how).eval().to(device)
    module = copy.deepcopy(exact).half()
    x = torch.randn(shape, device=device).half()
    letters = block.dims.split()
    dims = " ".join(str(n) if word.isdigit() else word for word, n in zip(letters, shape))
    return module, compile_graph(axon.load_fx(module, dims={"x": dims})), x, exact(x.float())


def off(found: Tensor, want: Tensor) -> float:
    """Return the relative error (Frobenius)."""
    return float((found.float() - want).norm() / want.norm())


def host(call: Callable[[], Any], kept: bool = False) -> float:
    """Return milliseconds of a call in a row of 20, its host included: the median of five rows.

    The first calls, which compile and make launchers, come before. `kept`: results live on until
    the row ends, so that each call's arrays are at addresses that the one before had not.
    """
    for _ in range(3):
        call()
    rows: list[float] = []
    for _ in range(ROUNDS):
        results: list[Any] = []
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(20):
            found = call()
            if kept:
                results.append(found)
        torch.cuda.synchronize()
        rows.append((time.perf_counter() - began) * 50)
    return median(rows)


def main() -> None:
    """Print a line of JSON for each block."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", default=list(BLOCKS))
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    with torch.no_grad():
        for name in options.names:
            device = "cpu" if options.tiny else "cuda"
            module, ours, x, want = made(BLOCKS[name], options.tiny, device)
            errors = {"tawa": off(ours(x), want), "torch": off(module(x), want)}
            facts: dict[str, Any] = {"block": name, "errors": errors}
            if not errors["tawa"] <= max(TOLERANCE, 2 * errors["torch"]):
                raise SystemExit(f"{name}: wrong, {errors}")
            if not options.tiny:
                compiled = torch.compile(module, dynamic=False)
                calls = {"tawa": ours, "compiled": compiled, "eager": module}
                for row, kept in (("call_ms", False), ("call_kept_ms", True)):
                    facts[row] = {t: host(partial(each, x), kept) for t, each in calls.items()}
                spent = in_turns({t: time_calls(partial(e, x), 0.1) for t, e in calls.items()})
                facts |= {"ms": spent, "over_compiled": spent["compiled"] / spent["tawa"]}
                facts["device"] = torch.cuda.get_device_name()
            print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    main()
