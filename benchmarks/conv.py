"""Layers of networks: convolutions over each view, beside cuDNN's best, on one GPU.

    python benchmarks/conv.py [--sets resnet50,convnext,unet,odd] [--batches 1,8,128]
                              [--dtype f16] [--budget 500] [--out FILE.json]

The peer is torch's conv2d in channels_last memory with `cudnn.benchmark`. Of each form that takes a
layer the likeliest tiles are tried, and the fastest of all is `tawa`; `window` (TMA counts pixels)
and `other` (the best other view in place) stand beside it. Each layer runs in a process of its own,
compiled before it gets the GPU; results are compared with float64 on the first, a middle and the
last image, over NaN that stood there before. All take turns, five rounds, medians; calls are
replayed from CUDA graphs, so that launching is in no figure.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from im2win import mean, time_calls

TOLERANCE = 2e-3
_TRIED = 2  # tiles of each form
_ROUNDS = 5


@dataclass(frozen=True)
class Layer:
    """Square images of `size`, padded all around; `batch` where it is not the job's."""

    c: int
    size: int
    co: int
    f: int
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    groups: int = 1
    batch: int = 0

    def __str__(self) -> str:
        parts = [f"{self.c}x{self.size}^2 -> {self.co}, {self.f}x{self.f}"]
        for name in ("stride", "dilation", "groups"):
            if getattr(self, name) > 1:
                parts.append(f"{name} {getattr(self, name)}")
        return " ".join(parts) + (f" N={self.batch}" if self.batch else "")


def _deep(c: int, size: int, stride: int = 1) -> Layer:
    return Layer(c, size, c, 3, stride, 1)


def _spread(c: int, size: int, f: int = 7) -> Layer:
    return Layer(c, size, c, f, 1, f // 2, groups=c)


SETS: dict[str, tuple[Layer, ...]] = {
    "resnet50": (
        Layer(3, 224, 64, 7, 2, 3), Layer(64, 56, 64, 1), _deep(64, 56), Layer(64, 56, 256, 1),
        Layer(256, 56, 64, 1), _deep(128, 56, 2), Layer(256, 56, 512, 1, 2), _deep(128, 28),
        Layer(512, 28, 128, 1), _deep(256, 28, 2), _deep(256, 14), Layer(1024, 14, 256, 1),
        _deep(512, 14, 2), _deep(512, 7), Layer(512, 7, 2048, 1),
    ),
    "convnext": (
        Layer(3, 224, 96, 4, 4), _spread(96, 56), Layer(96, 56, 192, 2, 2), _spread(192, 28),
        Layer(192, 28, 384, 2, 2), _spread(384, 14), Layer(384, 14, 768, 2, 2), _spread(768, 7),
    ),
    "unet": (
        Layer(4, 64, 320, 3, 1, 1), _deep(320, 64), _deep(320, 64, 2), Layer(320, 32, 640, 3, 1, 1),
        _deep(640, 32), Layer(1920, 32, 640, 3, 1, 1), _deep(640, 32, 2), _deep(1280, 16),
        Layer(2560, 16, 1280, 3, 1, 1), _deep(1280, 8),
    ),
    "odd": (
        Layer(128, 56, 256, 3, 1, 1, batch=32), Layer(256, 7, 512, 3, batch=4),
        Layer(64, 56, 64, 3, batch=1), Layer(128, 55, 128, 3, 2, 1), Layer(256, 28, 256, 3, 4, 1),
        Layer(256, 28, 256, 3, 1, 2, 2), Layer(512, 14, 512, 3, 1, 1, groups=2),
        Layer(512, 14, 512, 3, 1, 1, groups=8), Layer(512, 14, 512, 3, 1, 1, groups=32),
        Layer(256, 28, 256, 3, 1, 1, groups=32), _spread(256, 28, 3),
    ),
}  # fmt: skip


def geometry_of(layer: Layer, batch: int) -> Any:
    """Return the geometry of a layer at a batch of images."""
    from tawa.kernels.conv_geometry import Geometry

    n, steps, sides = layer.batch or batch, (layer.stride,) * 2, (layer.padding,) * 4
    size, spread = layer.size, (layer.dilation,) * 2
    window = (layer.c, layer.co, layer.f, layer.f)
    return Geometry(n, size, size, *window, steps, sides, spread, layer.groups)


def candidates(problem: Any) -> list[Any]:
    """Return the likeliest variants of every form that takes a problem, the likely best first."""
    from tawa.kernels.conv_variants import variants

    found: list[Any] = []
    counts: dict[str, int] = {}
    for variant in variants(problem, most=40):
        counts[variant.form] = counts.get(variant.form, 0) + 1
        if counts[variant.form] <= _TRIED:
            found.append(variant)
    return found


def compile_ahead(layer: Layer, dtype: str, batch: int) -> None:
    """Import and compile what `measure` will need, without the GPU; failures are told there."""
    import torch  # noqa: F401

    import tawa
    from tawa.kernels.conv_operands import bind
    from tawa.kernels.conv_prepare import prepare

    g = geometry_of(layer, batch)
    x = tawa.array((g.n, g.h, g.w, g.c), dtype)
    operands = bind(x, tawa.array((g.co, g.fh, g.fw, g.channels), dtype), g)
    for variant in candidates(operands.problem):
        try:
            for launch in prepare(operands, variant):
                launch.compile()
        except tawa.errors.TawaError:
            continue


def measure(layer: Layer, dtype: str, batch: int) -> dict[str, Any]:
    """Check and time one layer; every variant that fails is reported with its error."""
    import torch
    import torch.nn.functional as F

    from tawa.kernels.conv_operands import bind
    from tawa.kernels.conv_prepare import prepare
    from tawa.kernels.conv_views import VIEWS

    torch.backends.cudnn.benchmark = True
    g, last = geometry_of(layer, batch), torch.channels_last
    kind = {"f16": torch.float16, "bf16": torch.bfloat16}[dtype]
    how = {"stride": g.stride, "padding": layer.padding, "dilation": g.dilation, "groups": g.groups}
    torch.manual_seed(layer.c)
    x = torch.randn(g.n, g.c, g.h, g.w, device="cuda", dtype=kind).to(memory_format=last)
    w = torch.randn(g.co, g.channels, g.fh, g.fw, device="cuda", dtype=kind) / g.window**0.5
    w = w.to(memory_format=last)
    y = torch.empty(g.n, g.co, g.ho, g.wo, device="cuda", dtype=kind, memory_format=last)
    images = sorted({0, g.n // 2, g.n - 1})
    want = F.conv2d(x[images].double(), w.double(), **how)
    norm = want.norm()

    def off(found: Any) -> float:
        return float((found[images].double() - want).norm() / norm)

    limit = TOLERANCE * (8 if dtype == "bf16" else 1)
    operands = bind(*(each.permute(0, 2, 3, 1) for each in (x, w)), g, y.permute(0, 2, 3, 1))
    found: dict[str, Any] = {"layer": str(layer), "n": g.n, "gflop": g.flops / 1e9, "tried": []}
    best: dict[str, tuple[float, Callable[[], Any]]] = {}
    for variant in candidates(operands.problem):
        try:
            y.fill_(float("nan"))
            launches = prepare(operands, variant)
            call = lambda ls=launches: [each() for each in ls]  # noqa: E731
            call()
            if not (error := off(y)) < limit:
                found["tried"].append(f"{variant}: WRONG, error {error:.4f}")
                continue
            spent = time_calls(call, 0.01)()
        except Exception as error:
            found["tried"].append(f"{variant}: {type(error).__name__} {str(error)[:300]}")
            continue
        found["tried"].append(f"{variant}: {spent:.4f}")
        form = variant.form
        rows = ["tawa", form if form not in VIEWS[1:] else "other"]
        for row in rows:
            if row not in best or spent < best[row][0]:
                best[row] = spent, call
                found[f"{row} variant"] = str(variant)
    calls = {row: call for row, (_, call) in best.items() if row in ("tawa", "window", "other")}
    calls["cudnn"] = lambda: F.conv2d(x, w, **how)
    found["cudnn error"] = off(calls["cudnn"]())
    timers = {name: time_calls(call, 0.02) for name, call in calls.items()}
    samples: dict[str, list[float]] = {name: [] for name in timers}
    for turn in range(_ROUNDS):
        for name in list(timers)[:: -1 if turn % 2 else 1]:
            samples[name].append(timers[name]())
    found["ms"] = {name: median(times) for name, times in samples.items()}
    found["device"] = torch.cuda.get_device_name()
    return found


def table(title: str, results: Sequence[dict[str, Any]]) -> str:
    """Return results as text: times, rates, ratios, and the variants."""
    lines = [f"{title}, {results[0]['device']}"]
    head = f"{'layer':40}{'N':>4}{'tawa':>9}{'window':>9}{'other':>9}{'cudnn':>9}"
    lines.append(f"{head}  cudnn/tawa  other/window  TFLOP/s")
    ratios: list[float] = []
    views: list[float] = []
    for each in results:
        times = each["ms"]
        cells = "".join(
            f"{times[name]:9.4f}" if name in times else f"{'-':>9}"
            for name in ("tawa", "window", "other", "cudnn")
        )
        ours = times["cudnn"] / times["tawa"] if "tawa" in times else float("nan")
        ratios += [ours] * ("tawa" in times)
        beside = "-"
        if "window" in times and "other" in times:
            views.append(times["other"] / times["window"])
            beside = f"{views[-1]:.3f}"
        rate = each["gflop"] / times["tawa"] if "tawa" in times else float("nan")
        row = f"{each['layer']:40}{each['n']:4}{cells}  {ours:10.3f}  {beside:>12}  {rate:7.1f}"
        lines.append(f"{row}  {each.get('tawa variant', 'nothing ran')}")
        lines += [f"    {text}" for text in each["tried"] if "WRONG" in text or "Error" in text]
    won = sum(ratio > 1 for ratio in ratios)
    lines.append(f"cudnn / tawa: geometric mean {mean(ratios):.3f}, {won} of {len(ratios)} won")
    if views:
        least = min(views)
        lines.append(f"other / window: geometric mean {mean(views):.3f}, least {least:.3f}")
    return "\n".join(lines)


def main() -> None:
    """Run layers in processes of their own and print tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--batches", default="1,8,128")
    parser.add_argument("--dtype", default="f16", choices=("f16", "bf16"))
    parser.add_argument("--budget", type=float, default=500.0)
    parser.add_argument("--limit", type=float, default=45.0, help="seconds for a layer")
    parser.add_argument("--out", default="")
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        name, index, batch = options.one.split(":")
        layer = SETS[name][int(index)]
        compile_ahead(layer, options.dtype, int(batch))
        sys.stdin.readline()  # until the layers before it are done
        print(json.dumps(measure(layer, options.dtype, int(batch))))
        return
    end, results = time.monotonic() + options.budget, []
    for name in options.sets.split(","):
        for batch in options.batches.split(","):
            first = batch == options.batches.split(",")[0]
            chosen = [i for i, layer in enumerate(SETS[name]) if first or not layer.batch]
            if end - time.monotonic() < 20 or not chosen:
                print(f"{name}, N = {batch}: no time left", flush=True)
                continue
            pipe, done = subprocess.PIPE, []
            program = [sys.executable, __file__, "--dtype", options.dtype]
            workers = {
                index: subprocess.Popen(
                    [*program, "--one", f"{name}:{index}:{batch}"],
                    stdin=pipe, stdout=pipe, stderr=pipe, text=True,
                )
                for index in chosen
            }  # fmt: skip
            for index, worker in workers.items():
                left = max(1.0, min(options.limit, end - time.monotonic()))
                try:
                    found, errors = worker.communicate("go\n", timeout=left)
                except subprocess.TimeoutExpired:
                    worker.kill()
                    worker.communicate()
                    print(f"{name} {SETS[name][index]}: stopped after {left:.0f} s", flush=True)
                    continue
                if worker.returncode:
                    print(f"{name} {SETS[name][index]}: {errors[-1500:]}", flush=True)
                    continue
                done.append(json.loads(found.splitlines()[-1]))
            if done:
                print(table(f"{name}, {options.dtype}, N = {batch}", done), flush=True)
            results += done
            if options.out:
                Path(options.out).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
