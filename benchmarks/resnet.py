"""ResNet-50 with its convolutions swapped by `tawa.torch.conv.replace`, beside torch's, one GPU.

    python benchmarks/resnet.py [--batches 1,32,128] [--out FILE.json]
    python benchmarks/resnet.py --tiny               (CPU: few channels, logits only)

The network is that of He and others (2015) with strides in the 3x3 convolutions, in float16 and
channels_last memory, with random weights and batch norms that have seen images: eval mode. Logits
are compared with those of the same network in float32; they must be within 1e-2 of the largest.
Peers take turns, five rounds, medians; passes are replayed from CUDA graphs, cuDNN with
`cudnn.benchmark`.
"""

from __future__ import annotations

import argparse
import copy
import json
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import tawa.torch as tt
from layer_runs import in_turns, time_calls

LIMIT = 1e-2


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 convolutions with batch norms, and what they are added to."""

    def __init__(self, channels: int, inner: int, stride: int) -> None:
        super().__init__()
        out = 4 * inner
        self.parts = nn.Sequential(
            *_normed(channels, inner, 1), nn.ReLU(),
            *_normed(inner, inner, 3, stride), nn.ReLU(),
            *_normed(inner, out, 1),
        )  # fmt: skip
        same = channels == out and stride == 1
        self.beside = nn.Identity() if same else nn.Sequential(*_normed(channels, out, 1, stride))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.parts(x) + self.beside(x))


def _normed(channels: int, out: int, window: int, stride: int = 1) -> tuple[nn.Module, nn.Module]:
    how: dict[str, Any] = {"padding": window // 2, "bias": False}
    return nn.Conv2d(channels, out, window, stride, **how), nn.BatchNorm2d(out)


def resnet(width: int = 64, depths: tuple[int, ...] = (3, 4, 6, 3), classes: int = 1000) -> Any:
    """Return the network; the first stage's inner convolutions have `width` channels."""
    layers: list[nn.Module] = [*_normed(3, width, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    channels = width
    for stage, depth in enumerate(depths):
        inner = width << stage
        for block in range(depth):
            stride = 2 if stage and not block else 1
            layers.append(Bottleneck(channels, inner, stride))
            channels = 4 * inner
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)
    )


def networks(device: str, size: int, **how: Any) -> tuple[Any, Any, Any]:
    """Return ours, torch's, and torch's in float32, of the same weights."""
    torch.manual_seed(0)
    exact = resnet(**how).to(device)
    with torch.no_grad():
        for _ in range(2):  # what batch norms divide by is what they have seen
            exact(torch.randn(8, 3, size, size, device=device))
    exact.eval()
    theirs = copy.deepcopy(exact).half().to(memory_format=torch.channels_last)
    ours = copy.deepcopy(theirs)
    report = tt.conv.replace(ours, verbose=False)
    if report.left or not report.swapped:
        raise SystemExit(f"not swapped: {report.left}")
    return ours, theirs, exact


def errors(modules: tuple[Any, Any, Any], x: Tensor) -> tuple[float, float]:
    """Return how far logits of ours and of torch's are off; raises where ours are too far."""
    ours, theirs, exact = modules
    want = exact(x.float())
    off = [float((each(x) - want).abs().max() / want.abs().max()) for each in (ours, theirs)]
    if not off[0] < LIMIT:
        raise SystemExit(f"logits are off by {off[0]:.2e}, torch's by {off[1]:.2e}")
    return off[0], off[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--batches", default="1,32,128")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--tiny", action="store_true")
    given = parser.parse_args()
    last = torch.channels_last
    with torch.no_grad():
        if given.tiny:
            modules = networks("cpu", 32, width=8, depths=(1, 1), classes=10)
            found = errors(modules, torch.randn(2, 3, 32, 32).half().to(memory_format=last))
            print(f"logits: error {found[0]:.2e}, torch's {found[1]:.2e}")
            return
        torch.backends.cudnn.benchmark = True
        modules = networks("cuda", 224)
        rows: list[dict[str, Any]] = []
        for batch in map(int, given.batches.split(",")):
            x = torch.randn(batch, 3, 224, 224, device="cuda").half().to(memory_format=last)
            error, torchs = errors(modules, x)
            calls = dict(zip(("tawa", "torch"), modules))
            timers = {name: time_calls(partial(each, x), 0.1) for name, each in calls.items()}
            spent = in_turns(timers)
            row: dict[str, Any] = {"batch": batch, "ms": spent, "error": error}
            row |= {"ratio": spent["torch"] / spent["tawa"], "torch_error": torchs}
            rows.append(row | {"device": torch.cuda.get_device_name()})
            print(json.dumps(rows[-1]), flush=True)
    if given.out is not None:
        given.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
