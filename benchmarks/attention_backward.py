"""The gradients of attention beside torch's, on one GPU, in one run.

    python benchmarks/attention_backward.py                   (D64, D128, full and causal)
    python benchmarks/attention_backward.py --dims 128 --lengths 4096 --out found.json
    python benchmarks/attention_backward.py --dims 64,256 --dropout 0.1
    python benchmarks/attention_backward.py --dry             (compiles everything, no GPU)

"unordered" is `deterministic=False`. Hidden size 2048 and 16k tokens in all. Flops are those of
five products, 10 * batch * heads * length^2 * head_dim, half of them under a causal mask, whatever
a kernel computes. Peers take turns, round after round; a figure is the median of the rounds' means,
each a few launches between two events, with the queue full. Peers are torch's SDPA by its cuDNN and
FlashAttention backends, whose backward is called by autograd, and FlashAttention-4's CuTe kernels
(`fa4`, `fa4_ordered`) in both of their modes where flash_attn.cute is installed, called past
autograd as ours are. Errors are the largest of dq, dk, dv over the largest value, of one head
against float64.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tawa
from tawa.kernels.attention import attention
from tawa.kernels.attention_backward import (
    ARRAYS,
    attention_backward,
    bind_gradients,
    parts,
    prepare,
    prepare_rows,
    variants,
)

HIDDEN, TOKENS = 2048, 16384
ROUNDS, LAUNCHES = 12, 4
# Which peers each of ours is set beside: all, and those that are the same at every run.
BESIDE = (
    ("tawa", ("cuDNN", "flash", "fa4")),
    ("tawa", ("fa4_ordered",)),
    ("unordered", ("cuDNN", "flash", "fa4")),
)


def shape_of(dim: int, length: int) -> tuple[int, int, int, int]:
    return TOKENS // length, HIDDEN // dim, length, dim


def flops_of(dim: int, length: int, causal: bool) -> float:
    batch, heads, _, _ = shape_of(dim, length)
    return 10.0 * batch * heads * length * length * dim / (2 if causal else 1)


def compile_all(dim: int, length: int, causal: bool) -> None:
    """Compile all variants without a GPU; print what the compiler says of each."""
    shape = shape_of(dim, length)
    arrays: dict[str, Any] = dict.fromkeys(ARRAYS)
    arrays |= {n: tawa.array(shape, "bf16") for n in ("grad", "q", "k", "v", "out")}
    arrays |= {"lse": tawa.array(shape[:3], "f32")}
    for deterministic in orders(dim):
        found = bind_gradients(arrays, {"causal": causal, "deterministic": deterministic})
        prepare_rows(found).compile()
        for part in parts(found.forward.problem, deterministic):
            for variant in variants(part, found.forward.problem):
                started = time.perf_counter()
                launch, *_ = prepare(part, found, variant)
                report = str(launch.compile())
                seconds = time.perf_counter() - started
                told = [line.strip() for line in report.splitlines() if "bytes a thread" in line]
                head = f"D{dim} causal={causal} {part} {variant}: {seconds:.1f} s"
                print("; ".join([head, *told]), flush=True)


def orders(dim: int) -> tuple[bool, ...]:
    """Return the modes there are: deterministic, and in no order where the library has that."""
    return (True, False) if dim <= 128 else (True,)


def reference(arrays: tuple[Any, ...], causal: bool) -> tuple[Any, ...]:
    """Return dq, dk, dv of the first head in float64."""
    import torch

    q, k, v, grad = (each[:1, :1].double() for each in arrays)
    q, k, v = (each.requires_grad_() for each in (q, k, v))
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        hidden = torch.ones(scores.shape[-2:], device=q.device, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, -math.inf)
    return torch.autograd.grad(scores.softmax(-1) @ v, (q, k, v), grad)


def error_of(found: tuple[Any, ...], expected: tuple[Any, ...]) -> float:
    pairs = zip(found, expected)
    return max(float((x[:1, :1].double() - y).abs().max() / y.abs().max()) for x, y in pairs)


def offers(
    arrays: tuple[Any, ...], causal: bool, dropout: float
) -> dict[str, Callable[[], tuple[Any, ...]]]:
    """Return the calls that are timed, by name; a backend that refuses is left out and named."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    q, k, v, grad = arrays
    rng = torch.tensor([1, 2], device="cuda")
    how: dict[str, Any] = {"causal": causal, "dropout": dropout, "rng": rng}
    out, lse = attention(q, k, v, **how, return_lse=True)
    found: dict[str, Callable[[], tuple[Any, ...]]] = {
        "tawa" if ordered else "unordered": lambda ordered=ordered: attention_backward(
            grad, q, k, v, out, lse, deterministic=ordered, **how
        )
        for ordered in orders(q.shape[-1])
    }
    for name, backend in (
        ("cuDNN", SDPBackend.CUDNN_ATTENTION),
        ("flash", SDPBackend.FLASH_ATTENTION),
    ):
        leaves = tuple(each.detach().requires_grad_() for each in (q, k, v))
        try:
            with sdpa_kernel(backend):
                made = scaled_dot_product_attention(*leaves, dropout_p=dropout, is_causal=causal)
            torch.autograd.grad(made, leaves, grad, retain_graph=True)
        except RuntimeError as error:
            print(f"{name} refuses: {str(error).splitlines()[0]}")
            continue
        found[name] = lambda made=made, leaves=leaves: torch.autograd.grad(
            made, leaves, grad, retain_graph=True
        )
    try:
        from flash_attn.cute.interface import _flash_attn_bwd as cute
    except ImportError:
        return found
    turned = tuple(each.transpose(1, 2).contiguous() for each in (q, k, v, out, grad))
    for name, ordered in (("fa4", False), ("fa4_ordered", True)) if not dropout else ():
        found[name] = lambda ordered=ordered: tuple(
            each.transpose(1, 2)
            for each in cute(*turned, lse, causal=causal, deterministic=ordered)
        )
    return found


def time_all(calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Return milliseconds of each call, taken in turns."""
    import torch

    for call in calls.values():
        for _ in range(3):
            call()
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(ROUNDS):
        names = list(calls)
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda._sleep(400_000)  # the queue fills while the GPU waits
            first.record()
            for _ in range(LAUNCHES):
                calls[name]()
            last.record()
            last.synchronize()
            samples[name].append(first.elapsed_time(last) / LAUNCHES)
    return {name: statistics.median(each) for name, each in samples.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dims", default="64,128")
    parser.add_argument("--lengths", default="1024,4096,16384")
    parser.add_argument("--masks", default="full,causal")
    parser.add_argument("--dropout", type=float, default=0.0, help="then errors are not measured")
    parser.add_argument("--budget", type=float, default=1e9, help="seconds; no case begins later")
    parser.add_argument("--dry", action="store_true", help="compile everything, time nothing")
    parser.add_argument("--out", type=Path, help="write JSON here")
    options = parser.parse_args()
    started = time.perf_counter()
    rows: list[dict[str, Any]] = []
    cases = [
        (int(dim), int(length), mask == "causal")
        for dim in options.dims.split(",")
        for mask in options.masks.split(",")
        for length in options.lengths.split(",")
    ]
    for dim, length, causal in cases:
        if options.dry:
            compile_all(dim, length, causal)
            continue
        if time.perf_counter() - started > options.budget:
            print("the budget is spent")
            break
        import torch

        torch.manual_seed(0)
        shape = shape_of(dim, length)
        arrays = tuple(torch.randn(shape, device="cuda").bfloat16() for _ in range(4))
        calls = offers(arrays, causal, options.dropout)
        looked = length <= 4096 and not options.dropout
        expected = reference(arrays, causal) if looked else None
        errors = {n: error_of(call(), expected) for n, call in calls.items()} if expected else {}
        first, again = calls["tawa"](), calls["tawa"]()
        same = all(torch.equal(x, y) for x, y in zip(first, again))
        del first, again
        times = time_all(calls)
        flops = flops_of(dim, length, causal)
        rates = {name: flops / each / 1e9 for name, each in times.items()}
        rows.append(
            {
                "dim": dim, "length": length, "causal": causal, "milliseconds": times,
                "tflops": rates, "errors": errors, "same_at_each_run": same,
            }
        )  # fmt: skip
        told = "  ".join(
            f"{n} {rates[n]:6.1f} (error {errors.get(n, math.nan):.1e})" for n in rates
        )
        print(
            f"D{dim} {length:6} {'causal' if causal else 'full  '}  {told}  same={same}", flush=True
        )
    if rows:
        for own, peers in BESIDE:
            ratios = [
                row["tflops"][own] / max(theirs)
                for row in rows
                if own in row["tflops"]
                and (theirs := [row["tflops"][each] for each in peers if each in row["tflops"]])
            ]
            if ratios:
                mean = statistics.geometric_mean(ratios)
                print(f"{own} over the best of {', '.join(peers)}: {mean:.3f} of {len(ratios)}")
        import torch

        print(torch.cuda.get_device_name(), torch.__version__)
    if options.out is not None:
        options.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
