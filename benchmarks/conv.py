"""Layers of networks: convolutions over each view, beside cuDNN's best, on one GPU.

    python benchmarks/conv.py [--sets resnet50,convnext,unet,odd,resnext,volumes]
                              [--batches 1,8,128] [--gradients | --fused] [--dtype f16]
                              [--budget 500] [--out FILE.json]

The peer is torch's conv2d in channels_last memory with `cudnn.benchmark`. Of each form that takes a
layer the likeliest tiles are tried, and the fastest of all is `tawa`; `window` (TMA counts pixels)
and `other` (the best other view in place) stand beside it. Each layer runs in a process of its own,
compiled before it gets the GPU; results are compared with float64 on the first, a middle and the
last image, over NaN that stood there before. `--gradients` times those by input and filters
instead, with the tile that the library settles on, beside cuDNN's; they are compared with float32
products of all images, since they are sums over them. `--fused` times bias, residual and ReLU in
the epilogue, beside cuDNN's convolution with a bias, torch's sum and its ReLU. All take turns, five
rounds, medians; calls are replayed from CUDA graphs, so that launching is in no figure.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

from layer_runs import in_turns, mean, run_jobs, time_calls, worker

TOLERANCE = 2e-3
_TRIED = 2  # tiles of each form


@dataclass(frozen=True)
class Layer:
    """Square images of `size`, padded all around; `batch` where it is not the job's.

    Volumes have `deep` slices, and windows and steps as deep as wide.
    """

    c: int
    size: int
    co: int
    f: int
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    groups: int = 1
    batch: int = 0
    deep: int = 0

    @property
    def axes(self) -> int:
        """How many axes pixels have."""
        return 3 if self.deep else 2

    def __str__(self) -> str:
        pixels = f"{self.deep}x" * bool(self.deep) + f"{self.size}^2"
        parts = [f"{self.c}x{pixels} -> {self.co}, {'x'.join([str(self.f)] * self.axes)}"]
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
    "resnext": (  # 32 groups of 4 to 32 channels
        Layer(128, 56, 128, 3, 1, 1, groups=32), Layer(256, 56, 256, 3, 2, 1, groups=32),
        Layer(256, 28, 256, 3, 1, 1, groups=32), Layer(512, 28, 512, 3, 2, 1, groups=32),
        Layer(512, 14, 512, 3, 1, 1, groups=32), Layer(1024, 7, 1024, 3, 1, 1, groups=32),
    ),
    "volumes": (  # C3D, and a step of a volumetric U-Net
        Layer(64, 56, 128, 3, 1, 1, batch=8, deep=16),
        Layer(128, 28, 256, 3, 1, 1, batch=8, deep=8),
        Layer(256, 14, 512, 3, 1, 1, batch=8, deep=4),
        Layer(512, 7, 512, 3, 1, 1, batch=8, deep=2),
        Layer(32, 64, 64, 3, 2, 1, batch=2, deep=64),
    ),
}  # fmt: skip


def geometry_of(layer: Layer, batch: int) -> Any:
    """Return the geometry of a layer at a batch of images."""
    from tawa.kernels import conv_geometry

    x, w, _ = shapes_of(layer, batch)
    return conv_geometry.geometry_of(
        x, w, layer.stride, layer.padding, layer.dilation, layer.groups
    )


def candidates(problem: Any) -> list[Any]:
    """Return the likeliest variants of every form that takes a problem, and those that the library
    times, the likely best first.
    """
    from tawa.kernels.conv_variants import variants

    found: list[Any] = []
    counts: dict[str, int] = {}
    tuned = variants(problem)
    for variant in variants(problem, most=40):
        counts[variant.form] = counts.get(variant.form, 0) + 1
        if counts[variant.form] <= _TRIED or variant in tuned:
            found.append(variant)
    return found


def compile_ahead(layer: Layer, dtype: str, batch: int, what: str) -> None:
    """Import and compile what will be measured, without the GPU; failures are told there."""
    import torch  # noqa: F401

    import tawa
    from tawa.kernels.conv_input_gradient import input_launches, input_tiles
    from tawa.kernels.conv_operands import bind
    from tawa.kernels.conv_prepare import prepare
    from tawa.kernels.conv_variants import variants
    from tawa.kernels.conv_weight_gradient import weight_launches, weight_tiles

    def build(launches: Callable[[], Any]) -> None:
        try:
            for launch in launches():
                launch.compile()
        except tawa.errors.TawaError:
            pass

    g = geometry_of(layer, batch)
    x, w, dy = (tawa.array(shape, dtype) for shape in shapes_of(layer, batch))
    if what == "gradients":
        for tile in weight_tiles(g, x, dy):
            build(lambda tile=tile: weight_launches(g, x, dy, w, tile=tile))
        for tile in input_tiles(g, dy, w):
            build(lambda tile=tile: input_launches(g, dy, w, x, tile))
        return
    added = {"bias": tawa.array((g.co,), dtype), "residual": dy, "activation": "relu"}
    operands = bind(x, w, g, **added if what == "fused" else {})
    settled = layer.deep or what == "fused"
    tried = variants(operands.problem) if settled else candidates(operands.problem)
    for variant in tried:
        build(lambda variant=variant: prepare(operands, variant))


def shapes_of(layer: Layer, batch: int) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of images, filters and output, with channels last."""
    pixels = (layer.deep,) * (layer.axes - 2) + (layer.size,) * 2
    reach = (layer.f - 1) * layer.dilation + 1
    counts = ((p + 2 * layer.padding - reach) // layer.stride + 1 for p in pixels)
    n, window = layer.batch or batch, (layer.f,) * layer.axes
    filters = (layer.co, *window, layer.c // layer.groups)
    return (n, *pixels, layer.c), filters, (n, *counts, layer.co)


def measure_calls(layer: Layer, dtype: str, batch: int, what: str) -> list[dict[str, Any]]:
    """Check and time what the library settles on: of volumes, gradients, fused epilogues."""
    import torch
    import torch.nn.functional as F

    from tawa.kernels.conv import conv2d
    from tawa.kernels.conv_gradients import (
        Tuner,
        conv2d_input_gradient,
        conv2d_weight_gradient,
    )

    torch.backends.cudnn.benchmark = True
    kind = {"f16": torch.float16, "bf16": torch.bfloat16}[dtype]
    order = (0, layer.axes + 1, *range(1, layer.axes + 1))
    torch.manual_seed(layer.c)
    shapes = shapes_of(layer, batch)
    x, w, dy = (torch.randn(shape, device="cuda", dtype=kind).permute(order) for shape in shapes)
    how: dict[str, Any] = {"stride": layer.stride, "padding": layer.padding}
    how |= {"dilation": layer.dilation, "groups": layer.groups}
    many = [[how[name]] * layer.axes for name in ("stride", "padding", "dilation")]
    none = [0] * layer.axes

    def backward(which: int, x: Any, w: Any, dy: Any) -> Any:
        mask = [which == 0, which == 1, False]
        given = (dy, x, w, None, *many, False, none, layer.groups, mask)
        return torch.ops.aten.convolution_backward(*given)[which]

    calls: dict[str, tuple[Callable[[], Any], Callable[..., Any]]] = {}
    settled = {"dx": Tuner("input"), "dw": Tuner("weight")}
    plain = F.conv3d if layer.deep else F.conv2d
    if what == "gradients":
        of_x = partial(conv2d_input_gradient, tuner=settled["dx"])
        of_w = partial(conv2d_weight_gradient, tuner=settled["dw"])
        sizes = tuple(x.shape), tuple(w.shape)
        calls["dx"] = (lambda: of_x(sizes[0], w, dy, **how)), lambda *each: backward(0, *each)
        calls["dw"] = (lambda: of_w(x, sizes[1], dy, **how)), lambda *each: backward(1, *each)
    elif what == "fused":
        bias = torch.randn(layer.co, device="cuda", dtype=kind)
        finish: dict[str, Any] = {"bias": bias, "residual": dy, "activation": "relu", **how}

        def three(x: Any, w: Any, dy: Any) -> Any:
            return torch.relu(plain(x, w, bias.to(x.dtype), **how) + dy)

        calls["fused"] = (lambda: conv2d(x, w, **finish)), three
    else:
        calls["y"] = (lambda: conv2d(x, w, **how)), lambda x, w, _: plain(x, w, **how)
    results: list[dict[str, Any]] = []
    gflop = 2e-9 * prod(shapes[2]) * prod(shapes[1][1:])
    for name, (ours, theirs) in calls.items():
        found: dict[str, Any] = {"layer": f"{name} {layer}", "n": shapes[0][0], "gflop": gflop}
        found |= {"tried": [], "device": torch.cuda.get_device_name()}
        torch.backends.cudnn.allow_tf32 = False
        want = theirs(x.float(), w.float(), dy.float())
        limit = TOLERANCE * (8 if dtype == "bf16" else 1)
        timers = {"cudnn": time_calls(partial(theirs, x, w, dy), 0.02)}
        try:
            if not (error := float((ours().float() - want).norm() / want.norm())) < limit:
                raise ArithmeticError(f"WRONG, error {error:.4f}")
            timers["tawa"] = time_calls(ours, 0.02)
            tile = settled[name].best if name in settled else {}
            found["tawa variant"] = str(next(reversed(tile.values()), "the library's tile"))
        except Exception as error:
            found["tried"].append(f"{type(error).__name__} {str(error)[:300]}")
        del want
        found["ms"] = in_turns(timers)
        results.append(found)
    return results


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
    found["ms"] = in_turns({name: time_calls(call, 0.02) for name, call in calls.items()})
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
    parser.add_argument("--gradients", dest="what", action="store_const", const="gradients")
    parser.add_argument("--fused", dest="what", action="store_const", const="fused")
    parser.add_argument("--budget", type=float, default=500.0)
    parser.add_argument("--limit", type=float, default=45.0, help="seconds for a layer")
    parser.add_argument("--out", default="")
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        name, index, batch = options.one.split(":")
        layer = SETS[name][int(index)]
        one = layer, options.dtype, int(batch)
        special = options.what or layer.deep
        worker(
            lambda: compile_ahead(*one, options.what or ""),
            lambda: measure_calls(*one, options.what or "") if special else [measure(*one)],
        )
        return
    batches = options.batches.split(",")
    jobs: dict[str, list[str]] = {}
    for name in options.sets.split(","):
        for batch in batches:
            what = f", {options.what}" if options.what else ""
            jobs[f"{name}{what}, {options.dtype}, N = {batch}"] = [
                f"{name}:{index}:{batch}"
                for index, layer in enumerate(SETS[name])
                if batch == batches[0] or not layer.batch
            ]
    command = [sys.executable, __file__, "--dtype", options.dtype]
    run_jobs(jobs, [*command, *[f"--{options.what}"] * bool(options.what)], table, options)


if __name__ == "__main__":
    main()
