"""Layers of tawa in a model of torch, one step of training beside its own; a kernel as operator.

python examples/10_torch.py        (needs torch; a GPU, or else the simulator)
"""

import copy

import torch
from torch import nn

import tawa
import tawa.language as tl
import tawa.torch as tt


class Block(nn.Module):
    """Attention over words with a residual; `attend` is torch's function or tawa's."""

    def __init__(self, attend):
        super().__init__()
        self.attend = attend
        self.qkv, self.out = nn.Linear(64, 192), nn.Linear(64, 64)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, 1, 64)).movedim(-3, 0).transpose(-3, -2)
        return x + self.out(self.attend(q, k, v, is_causal=True).transpose(-3, -2).flatten(-2))


@tawa.jit
def squares(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(out + at, value * value, mask=at < n)


square = tt.op(
    "example::square(Tensor x, Tensor out, SymInt n)",
    squares,
    BLOCK=256,
    grid=lambda meta: (tawa.cdiv(meta["n"], meta["BLOCK"]),),
    out={"out": lambda x, n: torch.empty_like(x)},
)


def main():
    """Train a step both ways and compare; then call the operator."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    theirs = Block(nn.functional.scaled_dot_product_attention).to(device, torch.bfloat16)
    ours = copy.deepcopy(theirs)
    ours.attend = tt.scaled_dot_product_attention
    tt.replace(ours)  # prints what it swaps
    x = torch.randn(2, 48, 64, device=device, dtype=torch.bfloat16)
    for model in (theirs, ours):
        model(x).float().square().mean().backward()
    for name, layer in (("qkv", ours.qkv), ("out", ours.out)):
        wanted = getattr(theirs, name).weight.grad
        error = (layer.weight.grad - wanted).norm() / wanted.norm()
        print(f"gradient of {name}: {float(error):.0e} off torch's")
    y = torch.arange(1000.0, device=device)
    print("an operator of one's own:", torch.equal(square(y, y.numel()), y * y))


if __name__ == "__main__":
    main()
