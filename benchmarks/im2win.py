"""The twelve layers of Im2win (arXiv 2306.14316): memory and time of each way to convolve.

    python benchmarks/im2win.py [--jobs f16:128,f16:1,f32:128] [--methods auto,cudnn]
                                [--budget 220] [--out FILE.json]

Each layer runs in a process of its own with a time-out; the processes of a job compile side by
side, and use the GPU one after the other. Its methods: `auto` (the best of the
likeliest variants, tried first), `im2win` and `im2col` (packing counted, and apart), `direct`;
torch's `unfold` and a cuBLAS product; cuDNN's best (`cudnn.benchmark`, channels_last). All take
turns, five rounds, medians; calls are replayed from CUDA graphs, so that launching is in no figure;
small inputs (N = 1) are in the L2 cache for all. Every method's result is compared with
float64 on the first, a middle and the last image, over NaN that stood there before. Bytes beside
input, filters and output: by formula, and the allocator's measured peak during a call.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

from layer_runs import in_turns, mean, run_jobs, time_calls, worker

# C, H = W, Co, F, s
LAYERS = (
    (3, 227, 96, 11, 4),
    (3, 231, 96, 11, 4),
    (3, 227, 64, 7, 2),
    (64, 224, 64, 7, 2),
    (96, 24, 256, 5, 1),
    (256, 12, 512, 3, 1),
    (3, 224, 64, 3, 1),
    (64, 112, 128, 3, 1),
    (64, 56, 64, 3, 1),
    (128, 28, 128, 3, 1),
    (256, 14, 256, 3, 1),
    (512, 7, 512, 3, 1),
)
TOLERANCE = 2e-3
METHODS = ("auto", "im2win", "im2col", "direct", "unfold", "cudnn")
_TRIED = {"auto": 10, "im2win": 2, "im2col": 2, "direct": 1}


def layer(
    index: int, dtype: str, batch: int, methods: Sequence[str], ablation: bool = False
) -> dict[str, Any]:
    """Check and time one layer; every method that fails is reported with its error."""
    import torch
    import torch.nn.functional as F

    import tawa
    from tawa.kernels.conv import Tuner, conv2d, workspace
    from tawa.kernels.conv_geometry import Geometry
    from tawa.kernels.conv_operands import bind
    from tawa.kernels.conv_prepare import prepare
    from tawa.kernels.conv_variants import Variant, variants

    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    c, size, co, f, s = LAYERS[index - 1]
    g = Geometry(batch, size, size, c, co, f, f, (s, s))
    kind = {"f16": torch.float16, "f32": torch.float32, "bf16": torch.bfloat16}[dtype]
    item = kind.itemsize
    torch.manual_seed(index)
    last = torch.channels_last
    x = torch.randn(batch, c, size, size, device="cuda", dtype=kind).to(memory_format=last)
    w = (torch.randn(co, c, f, f, device="cuda", dtype=kind) / g.window**0.5).to(memory_format=last)
    plain, rows = x.contiguous(), w.contiguous().reshape(co, -1)
    images = sorted({0, batch // 2, batch - 1})
    seen = F.unfold(x[images].double(), f, stride=s)
    want = (w.double().contiguous().reshape(co, -1) @ seen).reshape(len(images), co, g.ho, g.wo)
    del seen
    norm = want.norm()
    found: dict[str, Any] = {
        "layer": index,
        "dtype": dtype,
        "n": batch,
        "device": torch.cuda.get_device_name(),
        "gflop": g.flops / 1e9,
        "input": item * g.n * g.h * g.w * c,
        "methods": {},
    }

    def best(method: str) -> tuple[Callable[[], Any], Variant]:
        """Return a call of the fastest of a method's likeliest variants."""
        y = torch.empty(batch, co, g.ho, g.wo, device="cuda", dtype=kind, memory_format=last)
        nhwc = (each.permute(0, 2, 3, 1) for each in (x, w, y))
        held_x, held_w, held_y = nhwc
        operands = bind(held_x, held_w, g, held_y)
        tried: list[tuple[float, Variant]] = []
        for variant in variants(operands.problem, method)[: _TRIED[method]]:
            try:
                launches = prepare(operands, variant)
                time_ms = time_calls(lambda ls=launches: [each() for each in ls], 0.01)()
            except Exception as error:
                tried_errors.append(f"{variant}: {type(error).__name__} {str(error)[:300]}")
                continue
            tried.append((time_ms, variant))
        variant = min(tried, key=lambda pair: pair[0])[1]
        tried_texts[method] = [f"{each:.4f} {what}" for each, what in sorted(tried, key=str)]
        if method in ("im2win", "im2col"):
            launches = prepare(operands, variant)
            parts = [time_calls(each, 0.02)() for each in launches]
            found[f"{method} parts ms"] = {"x": parts[0], "w": parts[1], "product": sum(parts[2:])}
        chosen = Tuner(keep=False)
        chosen.best[operands.problem, method] = variant
        return lambda: conv2d(x, w, stride=s, method=method, tuner=chosen), variant

    tried_errors: list[str] = []
    tried_texts: dict[str, list[str]] = {}
    calls: dict[str, Callable[[], Any]] = {}
    for method in methods:
        row: dict[str, Any] = {}
        found["methods"][method] = row
        try:
            if method == "cudnn":
                call: Callable[[], Any] = lambda: F.conv2d(x, w, stride=s)  # noqa: E731
            elif method == "unfold":
                call = lambda: (rows @ F.unfold(plain, f, stride=s)).reshape(batch, co, g.ho, g.wo)  # noqa: E731
            else:
                call, variant = best(method)
                row["variant"] = str(variant)
                row["formula"] = workspace(method, g, dtype)
            call()
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            poison = torch.full((batch, co, g.ho, g.wo), float("nan"), device="cuda", dtype=kind)
            del poison
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            y = call()
            torch.cuda.synchronize()
            row["peak"] = torch.cuda.max_memory_allocated() - before - y.numel() * item
            row["error"] = float((y[images].double() - want).norm() / norm)
            row["right"] = row["error"] < TOLERANCE
            del y
            if row["right"]:
                calls[method] = call
        except Exception as error:
            row["failed"] = f"{type(error).__name__}: {str(error)[:600]}"
    found["tried"], found["not built"] = tried_texts, tried_errors
    if ablation and "variant" in found["methods"].get("im2win", {}):
        y = torch.empty(batch, co, g.ho, g.wo, device="cuda", dtype=kind, memory_format=last)
        held_x, held_w, held_y = (each.permute(0, 2, 3, 1) for each in (x, w, y))
        operands = bind(held_x, held_w, g, held_y)
        depth = 128 // item
        small = {"BLOCK_I": 1, "BLOCK_H": 8, "BLOCK_W": 8, "BLOCK_N": 32, "BLOCK_K": depth}
        whole = next(v for v in variants(operands.problem, "im2win") if v.splits == 1)
        steps = {
            "whole": whole,
            "no prefetch (depth 1)": Variant("im2win", tawa.Config(whole.config.kwargs, depth=1)),
            "no vector loads (pointers)": Variant(
                "im2win", tawa.Config({"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": depth})
            ),
            "no micro-kernel (64 x 32)": Variant("im2win", tawa.Config(small)),
        }
        found["ablation"] = {}
        for name, each in steps.items():
            try:
                y.fill_(float("nan"))
                launches = prepare(operands, each)
                for launch in launches:
                    launch()
                off = float((y[images].double() - want).norm() / norm)
                assert off < TOLERANCE, f"error {off}"
                spent = time_calls(lambda ls=launches: [one() for one in ls], 0.02)()
                found["ablation"][name] = spent
            except Exception as error:
                found["ablation"][name] = f"{type(error).__name__}: {str(error)[:300]}"
    timers: dict[str, Callable[[], float]] = {}
    for method, call in calls.items():
        slow = method in ("direct", "unfold")
        timers[method] = time_calls(call, 0.01 if slow else 0.03)
    for method, spent in in_turns(timers, once=("direct",)).items():
        found["methods"][method]["ms"] = spent
    return found


def compile_ahead(index: int, dtype: str, batch: int, methods: Sequence[str]) -> None:
    """Import and compile what `layer` will need, without the GPU; failures are told there."""
    import torch  # noqa: F401

    import tawa
    from tawa.kernels.conv_geometry import Geometry
    from tawa.kernels.conv_operands import bind
    from tawa.kernels.conv_prepare import prepare
    from tawa.kernels.conv_variants import variants

    c, size, co, f, s = LAYERS[index - 1]
    g = Geometry(batch, size, size, c, co, f, f, (s, s))
    x, w = tawa.array((batch, size, size, c), dtype), tawa.array((co, f, f, c), dtype)
    operands = bind(x, w, g)
    for method in set(methods) & set(_TRIED):
        for variant in variants(operands.problem, method)[: _TRIED[method]]:
            try:
                for launch in prepare(operands, variant):
                    launch.compile()
            except tawa.errors.TawaError:
                continue


def table(title: str, results: Sequence[dict[str, Any]]) -> str:
    """Return the results of one type and batch as text, with means, wins and losses."""
    first = results[0]
    lines = [f"{first['dtype']}, N = {first['n']}, {first['device']}"]
    heads = "".join(f"{name:>10}" for name in first["methods"])
    lines.append(f"layer  ms: {heads}  TFLOP/s auto")
    ratios: dict[str, list[float]] = {}
    for each in results:
        times = {method: row.get("ms") for method, row in each["methods"].items()}
        cells = "".join(f"{'-':>10}" if t is None else f"{t:10.4f}" for t in times.values())
        rate = each["gflop"] / times["auto"] if times.get("auto") else float("nan")
        lines.append(f"{each['layer']:5}      {cells}  {rate:8.1f}")
        for method, row in each["methods"].items():
            if problem := row.get("failed") or (not row.get("right") and f"wrong {row}"):
                lines.append(f"       {method}: {problem}")
        for ours in ("auto", "im2win"):
            for theirs in METHODS[2:]:
                if times.get(ours) and times.get(theirs):
                    ratios.setdefault(f"{theirs} / {ours}", []).append(times[theirs] / times[ours])
    for name, values in ratios.items():
        won = sum(value > 1 for value in values)
        each = " ".join(f"{value:.2f}" for value in values)
        lines.append(f"{name}: geometric mean {mean(values):.3f}, {won} of {len(values)}: {each}")
    lines.append("layer  MB: input, then formula / measured peak")
    for each in results:
        cells = "".join(
            f"  {method} {row.get('formula', 0) / 1e6:.1f}/{row.get('peak', 0) / 1e6:.1f}"
            for method, row in each["methods"].items()
        )
        lines.append(f"{each['layer']:5}  {each['input'] / 1e6:.1f}{cells}")
        for method in ("im2win", "im2col"):
            if parts := each.get(f"{method} parts ms"):
                formula = each["methods"][method].get("formula", 0)
                moved = (each["input"] + formula) / parts["x"] / 1e6
                texts = ", ".join(f"{name} {value:.4f}" for name, value in parts.items())
                lines.append(f"       {method}: ms {texts}; packing x at {moved:.0f} GB/s")
        for method, tried in each["tried"].items():
            lines.append(f"       {method}: {'; '.join(tried)}")
        if steps := each.get("ablation"):
            whole = steps["whole"]
            for name, spent in steps.items():
                timed = isinstance(spent, float) and isinstance(whole, float)
                text = f"{spent:.4f} ms, {spent / whole:.2f} of the whole" if timed else spent
                lines.append(f"       im2win, {name}: {text}")
        lines += [f"       not built: {text}" for text in each["not built"]]
    return "\n".join(lines)


def main() -> None:
    """Run layers in processes of their own and print tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", default="f16:128,f16:1,f32:128,f32:1")
    parser.add_argument("--layers", default=",".join(map(str, range(1, len(LAYERS) + 1))))
    parser.add_argument("--budget", type=float, default=220.0)
    parser.add_argument("--limit", type=float, default=45.0, help="seconds for a layer")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--ablation", action="store_true", help="im2win's parts, one taken away")
    parser.add_argument("--out", default="")
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        index, dtype, batch = options.one.split(":")
        one = int(index), dtype, int(batch), options.methods.split(",")
        worker(lambda: compile_ahead(*one), lambda: [layer(*one, options.ablation)])
        return
    layers = options.layers.split(",")
    jobs = {job: [f"{index}:{job}" for index in layers] for job in options.jobs.split(",")}
    command = [sys.executable, __file__, "--methods", options.methods]
    command += ["--ablation"] * options.ablation
    run_jobs(jobs, command, table, options)


if __name__ == "__main__":
    main()
