"""A Llama block and a ViT-L block, forward and training step, beside SDPA and cuBLAS, one GPU.

    python benchmarks/blocks.py                          (both blocks, 2k and 8k tokens of Llama)
    python benchmarks/blocks.py --blocks vit --out found.json
    python benchmarks/blocks.py --tiny                   (CPU: small sizes, results only)

Llama: hidden 4096, 32 heads, 8 of keys and values, 14336 within the MLP (SwiGLU), rotary
embeddings, RMS norm, causal. ViT-L: hidden 1024, 16 heads, 4096 within, 577 tokens, 32 images.
Weights are random, bfloat16. One module serves both; what differs is what multiplies and attends:
torch.nn.functional's, or tawa.torch's. Both run under torch.compile(fullgraph=True).

Peers take turns, round after round; a figure is the median of the rounds' means, each a few steps
between two events. `.., graph` is a pass replayed from a CUDA graph: no host time.
Flops are those of products and attention (half under a causal mask), three times as many for a
step. An error is the largest relative Frobenius norm over the output (forward) and the gradients by
the input and all weights (step), against the same block in float32; beside it stands that of torch.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import tawa.torch as tt

ROUNDS, STEPS, WARM = 10, 5, 5
# What a right result may be off by, as a multiple of what torch's own is.
TOLERANCE = 1.5


@dataclass(frozen=True, slots=True)
class Shape:
    """A block: sizes, and how many tokens of how many sequences."""

    name: str
    hidden: int
    heads: int
    kv_heads: int
    inner: int
    batch: int
    length: int
    llama: bool

    @property
    def dim(self) -> int:
        return self.hidden // self.heads

    @property
    def flops(self) -> float:
        """Of a forward pass."""
        tokens, kv = self.batch * self.length, self.kv_heads * self.dim
        weights = self.hidden * (2 * self.hidden + 2 * kv) + self.hidden * self.inner * (
            3 if self.llama else 2
        )
        pairs = self.batch * self.heads * self.length**2 / (2 if self.llama else 1)
        return 2.0 * tokens * weights + 4.0 * pairs * self.dim


SHAPES = {
    "llama-2k": Shape("llama-2k", 4096, 32, 8, 14336, 4, 2048, True),
    "llama-8k": Shape("llama-8k", 4096, 32, 8, 14336, 1, 8192, True),
    "vit-l": Shape("vit-l", 1024, 16, 16, 4096, 32, 577, False),
}
TINY = {
    "llama": Shape("llama", 128, 2, 1, 256, 1, 48, True),
    "vit": Shape("vit", 128, 2, 2, 256, 2, 33, False),
}
OURS = (tt.linear, tt.scaled_dot_product_attention)
THEIRS = (functional.linear, functional.scaled_dot_product_attention)


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return queries or keys turned by their positions."""
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


class Block(nn.Module):
    """A block of a transformer, by `multiply` (x, weight, bias) and `attend`."""

    def __init__(self, shape: Shape, multiply: Callable[..., Tensor], attend: Any) -> None:
        super().__init__()
        self.shape, self.multiply, self.attend = shape, multiply, attend
        hidden, kv, inner = shape.hidden, shape.kv_heads * shape.dim, shape.inner
        biased = not shape.llama
        norm = nn.RMSNorm if shape.llama else nn.LayerNorm
        self.before, self.between = norm(hidden), norm(hidden)
        self.q, self.o = nn.Linear(hidden, hidden, biased), nn.Linear(hidden, hidden, biased)
        # A bias of keys changes nothing, and its gradient is rounding.
        self.k, self.v = nn.Linear(hidden, kv, False), nn.Linear(hidden, kv, biased)
        self.up, self.down = nn.Linear(hidden, inner, biased), nn.Linear(inner, hidden, biased)
        self.gate = nn.Linear(hidden, inner, False) if shape.llama else None
        angle = torch.arange(shape.length)[:, None] / 10000 ** (
            torch.arange(0, shape.dim, 2) / shape.dim
        )
        self.register_buffer("cos", angle.cos().repeat(1, 2))
        self.register_buffer("sin", angle.sin().repeat(1, 2))

    def by(self, layer: nn.Linear, x: Tensor) -> Tensor:
        return self.multiply(x, layer.weight, layer.bias)

    def heads(self, layer: nn.Linear, x: Tensor) -> Tensor:
        return self.by(layer, x).unflatten(-1, (-1, self.shape.dim)).transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output, [batch, length, hidden]."""
        y = self.before(x)
        q, k, v = (self.heads(layer, y) for layer in (self.q, self.k, self.v))
        llama = self.shape.llama
        if llama:
            q, k = (rotated(each, self.cos, self.sin) for each in (q, k))
        y = self.attend(q, k, v, is_causal=llama, enable_gqa=self.shape.kv_heads < self.shape.heads)
        x = x + self.by(self.o, y.transpose(1, 2).flatten(-2))
        y = self.between(x)
        if self.gate is not None:
            y = functional.silu(self.by(self.gate, y)) * self.by(self.up, y)
        else:
            y = functional.gelu(self.by(self.up, y))
        return x + self.by(self.down, y)


def blocks(shape: Shape, device: str, kind: torch.dtype) -> tuple[Block, Block, Block]:
    """Return ours, torch's, and torch's in float32, of the same weights."""
    torch.manual_seed(0)
    theirs = Block(shape, *THEIRS).to(device, kind)
    ours, exact = Block(shape, *OURS).to(device, kind), Block(shape, *THEIRS).to(device)
    for other in (ours, exact):
        other.load_state_dict(theirs.state_dict())
    return ours, theirs, exact


def step(block: Callable[[Tensor], Tensor], module: Block, x: Tensor, grad: Tensor) -> list[Tensor]:
    """Return the output, and the gradients by the input and all weights."""
    x = x.detach().requires_grad_()
    out = block(x)
    found = torch.autograd.grad(out, [x, *module.parameters()], grad)
    return [out.detach(), *found]


def worst(found: list[Tensor], expected: list[Tensor]) -> float:
    return max(
        float((x.float() - y.float()).norm() / y.float().norm()) for x, y in zip(found, expected)
    )


def errors(shape: Shape, modules: tuple[Block, Block, Block], x: Tensor, grad: Tensor) -> Any:
    """Return the errors of ours and of torch's; raises where ours is larger than it may be."""
    ours, theirs, exact = modules
    expected = step(exact, exact, x.float(), grad.float())
    found = [worst(step(each, each, x, grad), expected) for each in (ours, theirs)]
    if not found[0] <= TOLERANCE * found[1]:
        raise SystemExit(f"{shape.name}: an error of {found[0]:.2e}, torch's is {found[1]:.2e}")
    return found


def times(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Return milliseconds of each call; peers take turns."""
    for call in calls.values():
        for _ in range(WARM):
            call()
    found: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(ROUNDS):
        for name in list(calls)[:: -1 if number % 2 else 1]:
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()
            begin.record()
            for _ in range(STEPS):
                calls[name]()
            end.record()
            end.synchronize()
            found[name].append(begin.elapsed_time(end) / STEPS)
    return {name: statistics.median(each) for name, each in found.items()}


def graph_of(call: Callable[[], object]) -> Callable[[], object]:
    """Return the replay of a call's CUDA graph."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def measure(shape: Shape) -> list[dict[str, Any]]:
    """Return rows for the forward pass and the step, each by calls and from a CUDA graph."""
    modules = blocks(shape, "cuda", torch.bfloat16)
    x, grad = (
        torch.randn(shape.batch, shape.length, shape.hidden, device="cuda", dtype=torch.bfloat16)
        for _ in range(2)
    )
    error, torchs = errors(shape, modules, x, grad)
    named = dict(zip(("tawa", "torch"), modules[:2]))
    compiled = {name: torch.compile(each, fullgraph=True) for name, each in named.items()}

    def forward(block: Any) -> Callable[[], object]:
        def run() -> object:
            with torch.no_grad():
                return block(x)

        return run

    def train(name: str) -> object:
        return step(compiled[name], named[name], x, grad)

    forwards = {name: forward(each) for name, each in compiled.items()}
    steps = {name: partial(train, name) for name in compiled}
    rows: list[dict[str, Any]] = []
    for what, calls, factor in (
        ("forward", forwards, 1),
        ("forward, graph", forwards, 1),
        ("step", steps, 3),
        ("step, graph", steps, 3),
    ):
        if what.endswith("graph"):
            calls = {name: graph_of(call) for name, call in calls.items()}
        taken = times(calls)
        rows.append(
            {
                "block": shape.name,
                "what": what,
                **{f"{name}_ms": round(each, 4) for name, each in taken.items()},
                "tawa_tflops": round(factor * shape.flops / taken["tawa"] / 1e9, 1),
                "ratio": round(taken["torch"] / taken["tawa"], 4),
                "error": error,
                "torch_error": torchs,
                "device": torch.cuda.get_device_name(),
                "torch": torch.__version__,
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--blocks", nargs="*", default=list(SHAPES), help=", ".join(SHAPES))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--tiny", action="store_true")
    given = parser.parse_args()
    if given.tiny:
        for shape in TINY.values():
            x, grad = (torch.randn(shape.batch, shape.length, shape.hidden).half() for _ in "ab")
            found = errors(shape, blocks(shape, "cpu", torch.float16), x, grad)
            print(f"{shape.name}: error {found[0]:.2e}, torch's {found[1]:.2e}")
        return
    rows = [
        row
        for name, shape in SHAPES.items()
        if any(name.startswith(each) for each in given.blocks)
        for row in measure(shape)
    ]
    if given.out is not None:
        given.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
