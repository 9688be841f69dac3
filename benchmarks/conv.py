"""Layers of networks: convolutions over each view, beside cuDNN's best, on one GPU.

    python benchmarks/conv.py [--sets resnet50,convnext,unet,odd,resnext,volumes]
                              [--batches 1,8,128] [--gradients | --fused] [--dtype f16]
                              [--budget 500] [--out FILE.json]

The peer is torch's conv2d in channels_last memory with `cudnn.benchmark`. Of each form that takes a
layer the likeliest tiles are tried, and the fastest of all is `tawa`; `window` (TMA counts pixels)
and `other` (the best other view in place) stand beside it; so do, where they are at hand, the best
tile of CUTLASS's implicit GEMM (`native/build.sh`) and of Triton on the source of `conv_pointers`,
tile programs through pointers (`--without cutlass,triton` leaves them out). Each layer runs in a
process of its own, compiled before it gets the GPU; results are compared with float64 on the first,
a middle and the last image, over NaN that stood there before. `--gradients` times those by input
and filters instead, with the tile that the library settles on, beside cuDNN's; they are compared
with float32 products of all images, since they are sums over them. `--fused` times bias, residual
and ReLU in the epilogue, beside cuDNN's convolution with a bias, torch's sum and its ReLU, and
beside our bare convolution and half a copy of the residual, which is what reading it takes. All
take turns, five rounds, medians; calls are replayed from CUDA graphs, so that launching is in no
figure.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import prod
from typing import Any

from layer_runs import in_turns, mean, run_jobs, time_calls, worker
from native_peers import cutlass_convolutions
from twin import twin

TOLERANCE = 2e-3
_TRIED = 2  # tiles of each form
_BESIDE = ("cutlass", "triton", "bare", "copy")  # columns of the table where there are any
# Rows, columns, stages and warps that Triton tries.
_TRITON = ((128, 256, 3, 8), (128, 128, 3, 8), (128, 128, 4, 4), (128, 64, 4, 4), (64, 128, 4, 4))


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


def compile_ahead(layer: Layer, dtype: str, batch: int, what: str, without: Sequence[str]) -> None:
    """Import and compile what will be measured, without the GPU; failures are told there."""
    import torch

    import tawa
    from tawa.kernels.conv_gradients import input_launches, input_variants
    from tawa.kernels.conv_operands import bind
    from tawa.kernels.conv_prepare import prepare
    from tawa.kernels.conv_variants import variants
    from tawa.kernels.conv_weight_gradient import weight_launches, weight_variants

    def build(launches: Callable[[], Any]) -> None:
        try:
            for launch in launches():
                launch.compile()
        except tawa.errors.TawaError:
            pass

    g = geometry_of(layer, batch)
    x, w, dy = (tawa.array(shape, dtype) for shape in shapes_of(layer, batch))
    if what == "gradients":
        for variant in weight_variants(g, x, dy):
            build(lambda variant=variant: weight_launches(g, x, dy, w, variant))
        for variant in input_variants(g, dy, w):
            build(lambda variant=variant: input_launches(g, dy, w, x, variant))
        return
    operands, settled = bind(x, w, g), layer.deep or what == "fused"
    tried = [(operands, variants if settled else candidates)]
    if what == "fused":  # beside the bare convolution
        added = {"bias": tawa.array((g.co,), dtype), "residual": dy, "activation": "relu"}
        tried.append((bind(x, w, g, **added), variants))
    for each, likeliest in tried:
        for variant in likeliest(each.problem):
            build(lambda each=each, variant=variant: prepare(each, variant))
    if not settled and "triton" not in without and layer.groups == 1:
        kinds = [{"f16": torch.float16, "bf16": torch.bfloat16}[dtype]] * 3
        try:
            for _, kernel, grid, arguments, options in triton_launches(operands, layer):
                kernel.warmup(*kinds, *arguments[3:], grid=grid, **options)
        except Exception:  # of a package that is not there, or a tile that does not fit
            return


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
        torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.benchmark = False
        want = theirs(x.float(), w.float(), dy.float())
        torch.backends.cudnn.benchmark = True  # of float32 groups it tries what takes seconds
        limit = TOLERANCE * (8 if dtype == "bf16" else 1)
        timers = {"cudnn": time_calls(partial(theirs, x, w, dy), 0.02)}
        try:
            if not (error := float((ours().float() - want).norm() / want.norm())) < limit:
                raise ArithmeticError(f"WRONG, error {error:.4f}")
            timers["tawa"] = time_calls(ours, 0.02)
            tile = settled[name].best if name in settled else {}
            found["tawa variant"] = str(next(reversed(tile.values()), "the library's tile"))
            if what == "fused":
                timers["bare"] = time_calls(lambda: conv2d(x, w, **how), 0.02)
                copied = torch.empty_like(dy)
                timers["copy"] = time_calls(lambda to=copied: to.copy_(dy), 0.02)
        except Exception as error:
            found["tried"].append(f"{type(error).__name__} {str(error)[:300]}")
        del want
        found["ms"] = in_turns(timers)
        results.append(found)
    return results


def by_cutlass(operands: Any, layer: Layer) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Return calls of CUTLASS's tiles."""
    how = layer.stride, layer.padding, layer.dilation
    return cutlass_convolutions(operands.x, operands.w, operands.y, *how)


def by_triton(operands: Any, layer: Layer) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Return calls of Triton's tiles."""
    for name, kernel, grid, arguments, options in triton_launches(operands, layer):
        yield name, partial(kernel[grid], *arguments, **options)


def triton_launches(operands: Any, layer: Layer) -> Iterator[tuple[Any, ...]]:
    """Yield launches of Triton's kernels of the source of `conv_pointers`, of several tiles."""
    import triton.language

    import tawa
    from tawa.kernels.conv_prepare import prepare
    from tawa.kernels.conv_variants import Variant
    from tawa.kernels.conv_windows import BARE

    for rows, columns, stages, warps in _TRITON:
        if columns >= 2 * layer.co:
            continue
        sizes = {"BLOCK_M": rows, "BLOCK_N": columns, "BLOCK_K": 64}
        (launch,) = prepare(operands, Variant("pointers", tawa.Config(sizes)))
        options: dict[str, Any] = {**launch.options, "SUM": triton.language.float32}
        # Triton hands on to helpers what it knows as a constant, not fields that are plain strings.
        constants = {name: triton.language.constexpr(each) for name, each in asdict(BARE).items()}
        options["AFTER"] = BARE.__class__(**constants)
        options |= {"num_stages": stages, "num_warps": warps}
        name = f"{rows}x{columns}x64, {stages} stages, {warps} warps"
        yield name, twin(launch.kernel), launch.grid, launch.arguments, options


def measure(layer: Layer, dtype: str, batch: int, without: Sequence[str]) -> dict[str, Any]:
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
    for row, offers in (("cutlass", by_cutlass), ("triton", by_triton)):
        if row in without or g.groups > 1:
            continue
        timed: list[tuple[float, str, Callable[[], Any]]] = []
        try:
            for name, call in offers(operands, layer):
                y.fill_(float("nan"))
                call()
                if not (error := off(y)) < limit:
                    found["tried"].append(f"{row} {name}: WRONG, error {error:.4f}")
                    continue
                timed.append((time_calls(call, 0.01)(), name, call))
                found["tried"].append(f"{row} {name}: {timed[-1][0]:.4f}")
        except Exception as error:  # a library that is not built, a tile that does not fit
            found["tried"].append(f"{row}: {type(error).__name__} {str(error)[:300]}")
        if timed:
            _, found[f"{row} variant"], calls[row] = min(timed, key=lambda one: one[0])
    calls["cudnn"] = lambda: F.conv2d(x, w, **how)
    found["cudnn error"] = off(calls["cudnn"]())
    found["ms"] = in_turns({name: time_calls(call, 0.02) for name, call in calls.items()})
    found["device"] = torch.cuda.get_device_name()
    return found


def table(title: str, results: Sequence[dict[str, Any]]) -> str:
    """Return results as text: times, rates, ratios, and the variants."""
    lines = [f"{title}, {results[0]['device']}"]
    names = ["tawa", "window", "other", "cudnn"]
    names += [name for name in _BESIDE if any(name in each["ms"] for each in results)]
    head = f"{'layer':40}{'N':>4}" + "".join(f"{name:>9}" for name in names)
    lines.append(f"{head}  cudnn/tawa  other/window  TFLOP/s")
    ratios: dict[str, list[float]] = {}
    for each in results:
        times = each["ms"]
        cells = "".join(f"{times[name]:9.4f}" if name in times else f"{'-':>9}" for name in names)
        sets = {"other / window": ("other", "window")}
        sets |= {f"{name} / tawa": (name, "tawa") for name in ("cudnn", "cutlass", "triton")}
        found = {what: times[a] / times[b] for what, (a, b) in sets.items() if {a, b} <= {*times}}
        if {"bare", "tawa"} <= {*times}:
            bound = times["bare"] + times["copy"] / 2
            found["tawa / (bare + residual)"] = times["tawa"] / bound
        for what, ratio in found.items():
            ratios.setdefault(what, []).append(ratio)
        ours, beside = (found.get(f"{what}") for what in ("cudnn / tawa", "other / window"))
        shown = "".join(
            f"{'-' if r is None else f'{r:.3f}':>{w}}" for r, w in ((ours, 12), (beside, 14))
        )
        rate = each["gflop"] / times["tawa"] if "tawa" in times else float("nan")
        row = f"{each['layer']:40}{each['n']:4}{cells}{shown}  {rate:7.1f}"
        kinds = [each.get("tawa variant", "nothing ran")]
        kinds += [
            f"{name} {each[f'{name} variant']}" for name in _BESIDE if f"{name} variant" in each
        ]
        lines.append(f"{row}  {'; '.join(kinds)}")
        lines += [f"    {text}" for text in each["tried"] if "WRONG" in text or "Error" in text]
    for what, values in ratios.items():
        above = sum(value > 1 for value in values)
        least, most = min(values), max(values)
        spread = f"least {least:.3f}, most {most:.3f}, {above} of {len(values)} above 1"
        lines.append(f"{what}: geometric mean {mean(values):.3f}, {spread}")
    return "\n".join(lines)


def main() -> None:
    """Run layers in processes of their own and print tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--batches", default="1,8,128")
    parser.add_argument("--dtype", default="f16", choices=("f16", "bf16"))
    parser.add_argument("--gradients", dest="what", action="store_const", const="gradients")
    parser.add_argument("--fused", dest="what", action="store_const", const="fused")
    parser.add_argument("--without", default="", help="peers to leave out: cutlass, triton")
    parser.add_argument("--only", default="", help="a regular expression on the text of a layer")
    parser.add_argument("--budget", type=float, default=500.0)
    parser.add_argument("--limit", type=float, default=45.0, help="seconds for a layer")
    parser.add_argument("--out", default="")
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        name, index, batch = options.one.split(":")
        layer = SETS[name][int(index)]
        one = layer, options.dtype, int(batch)
        special, without = options.what or layer.deep, options.without.split(",")
        worker(
            lambda: compile_ahead(*one, options.what or "", without),
            lambda: (
                measure_calls(*one, options.what or "") if special else [measure(*one, without)]
            ),
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
                if (batch == batches[0] or not layer.batch) and re.search(options.only, str(layer))
            ]
    command = [sys.executable, __file__, "--dtype", options.dtype, "--without", options.without]
    run_jobs(jobs, [*command, *[f"--{options.what}"] * bool(options.what)], table, options)


if __name__ == "__main__":
    main()
