"""The gradients of `tawa.torch.linear` by input and weight, each alone, beside torch's, one GPU.

    python benchmarks/linear_gradients.py [--tokens 8192] [--out FILE.json]

Layers of Llama-3 8B, bfloat16. Peers take turns, five rounds, medians, each 30 calls between two
events; `graph` is the same replayed from a CUDA graph: no host time. Results are compared with
float32 products of the same numbers.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

import tawa.torch as tt
from layer_runs import in_turns, mean, time_calls

LAYERS = {
    "q, o": (4096, 4096),
    "k, v": (4096, 1024),
    "gate, up": (4096, 14336),
    "down": (14336, 4096),
}
TOLERANCE = 1e-2


def alone(
    linear: Callable[..., Tensor], x: Tensor, w: Tensor, dy: Tensor, by: str, stream: Any = None
) -> Any:
    """Return what computes a gradient again and again, from a forward pass made once, on whose
    stream autograd computes it.
    """
    given = {"input": x.detach(), "weight": w.detach()}
    given[by].requires_grad_()
    with torch.cuda.stream(stream):
        y = linear(given["input"], given["weight"])
    return lambda: torch.autograd.grad(y, given[by], dy, retain_graph=True)[0]


def timed(call: Callable[[], Any], calls: int = 30) -> float:
    """Return milliseconds of a call."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    call()
    begin.record()
    for _ in range(calls):
        call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / calls


def main() -> None:
    """Print a line of JSON for each gradient, and the mean."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--layers", nargs="*", default=list(LAYERS), help="; ".join(LAYERS))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    torch.cuda.graph.default_capture_stream = torch.cuda.Stream()
    for layer in options.layers:
        inner, outer = LAYERS[layer]
        new = partial(torch.randn, device="cuda", dtype=torch.bfloat16)
        x, w, dy = new(options.tokens, inner), new(outer, inner), new(options.tokens, outer)
        exact = {"input": dy.float() @ w.float(), "weight": dy.float().t() @ x.float()}
        for by, want in exact.items():
            peers = {"tawa": tt.linear, "torch": functional.linear}
            calls = {title: alone(each, x, w, dy, by) for title, each in peers.items()}
            error = float((calls["tawa"]().float() - want).norm() / want.norm())
            if not error < TOLERANCE:
                raise SystemExit(f"{layer}, by {by}: off by {error:.2e}")
            ms = in_turns({title: partial(timed, call) for title, call in calls.items()})
            torch.cuda.synchronize()
            captured = {
                title: alone(each, x, w, dy, by, torch.cuda.graph.default_capture_stream)
                for title, each in peers.items()
            }
            graph = in_turns({title: time_calls(call, 0.03) for title, call in captured.items()})
            row: dict[str, Any] = {"layer": layer, "by": by, "ms": ms, "graph": graph}
            row["tflops"] = round(2e-9 * options.tokens * inner * outer / graph["tawa"], 1)
            for title, each in (("ratio", ms), ("graph_ratio", graph)):
                row[title] = round(each["torch"] / each["tawa"], 4)
            rows.append(row | {"error": error})
            print(json.dumps(rows[-1]), flush=True)
    device = torch.cuda.get_device_name()
    for title in ("ratio", "graph_ratio"):
        ratios = [row[title] for row in rows]
        print(f"{device}: torch / tawa, {title}: {mean(ratios):.3f}, least {min(ratios):.3f}")
    if options.out is not None:
        options.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
