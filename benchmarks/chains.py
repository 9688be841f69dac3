"""Products one after the other, as in a model: what launches that begin early are worth.

    python benchmarks/chains.py              on a GPU
    python benchmarks/chains.py --dry        compiles, times nothing

`tawa` is the best of its variants, `tawa_early` the same kernel with `launch_pdl=True`. Sixteen
launches on rotating inputs stand in one CUDA graph; graphs of all peers take turns, each after a
tenth of a second of its own load, and a figure is the median time of a graph over its launches.
All results of a graph are compared with torch's. Writes a table and JSON to --out.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import peers as who
import report
from gemm import LLAMA, dry
from harness import TOLERANCE, Call, Case, Inputs, Stopwatch, choose, make_inputs

HERE = Path(__file__).resolve().parent
LAUNCHES, LOAD_MS = 16, 100.0
CASES = [
    *(Case("bf16", m, *LLAMA[name], label=name) for m in (16, 64) for name in ("8b qkv", "8b o")),
    Case("bf16", 16, *LLAMA["8b gate+up"], label="8b gate+up"),
    Case("bf16", 16, *LLAMA["8b down"], label="8b down"),
    Case("bf16", 512, *LLAMA["8b o"], label="8b o"),
    Case("bf16", 512, *LLAMA["70b o"], label="70b o"),
    *(Case("bf16", size, size, size) for size in (1024, 2048, 4096)),
    *(Case("bf16", 8192, 8192, k) for k in (256, 512, 1024)),
]


class Early(who.Tawa):
    """tawa's kernel, launched early."""

    name = "tawa_early"

    def launches(self, case: Case, variant: Any, inputs: Inputs) -> list[Any]:
        return [
            replace(launch, options={**launch.options, "launch_pdl": True})
            for launch in super().launches(case, variant, inputs)
        ]


def graph_of(calls: Sequence[Call]) -> Any:
    """Return a CUDA graph of `LAUNCHES` calls."""
    import torch

    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        for index in range(LAUNCHES):
            calls[index % len(calls)]()
    return graph


def error(case: Case, sets: Sequence[Inputs], graph: Any) -> float:
    """Return the largest relative error of a graph's results, of torch's."""
    import torch

    for inputs in sets:
        inputs.c.fill_(float("nan"))
    graph.replay()
    worst = 0.0
    for inputs in sets[:LAUNCHES]:
        expected = torch.mm(inputs.a, inputs.b.t()).float()
        worst = max(worst, float((inputs.c.float() - expected).norm() / expected.norm()))
    return worst


def sample(replay: Callable[[], object], warm: int) -> float:
    """Return the milliseconds of a launch, from two graphs behind `warm` others."""
    import torch

    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(warm):
        replay()
    first.record()
    replay()
    replay()
    last.record()
    torch.cuda.synchronize()
    return float(first.elapsed_time(last)) / (2 * LAUNCHES)


def run_case(case: Case, most: int, rounds: int) -> list[dict[str, Any]]:
    """Return the rows of a case: torch, tawa's best variant, and the same one early."""
    sets = make_inputs(case)
    torch_calls = [next(who.Torch().offers(case)).bind(inputs) for inputs in sets]
    mine, early = who.Tawa(most), Early(most)
    failures = mine.failures()
    ranked, _ = choose(Stopwatch(), who.candidates(mine, case, sets), failures=failures)
    best = ranked[0].label
    offers = {each.label: each for each in early.offers(case)}
    found = {
        "torch": ("torch.mm", torch_calls),
        "tawa": (best, ranked[0].calls),
        "tawa_early": (best, [offers[best].bind(inputs) for inputs in sets]),
    }
    graphs: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []
    errors: dict[str, float] = {}
    for name, (_, calls) in found.items():
        for call in calls:
            call()
        graphs[name] = graph_of(calls)
        errors[name] = error(case, sets, graphs[name])
        if not errors[name] < TOLERANCE[case.dtype]:
            raise SystemExit(f"{case} {name}: WRONG, relative error {errors[name]:.2g}")
    once = sample(graphs["torch"].replay, 2)
    warm = max(2, int(LOAD_MS / (once * LAUNCHES)))
    times: dict[str, list[float]] = {name: [] for name in graphs}
    for number in range(rounds):
        for name in list(graphs)[:: -1 if number % 2 else 1]:
            times[name].append(sample(partial(graphs[name].replay), warm))
    for name, (label, _) in found.items():
        ms = statistics.median(times[name])
        row = {"dtype": case.group, "shape": case.shape, "label": case.label, "peer": name}
        row |= {"config": label, "ms": round(ms, 5), "tflops": round(case.flops / ms / 1e9, 1)}
        rows.append(row | {"rel_err": errors[name], "samples": rounds})
    return rows


def main() -> int:
    """Run the benchmark by its command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="part of a case's text")
    parser.add_argument("--most", type=int, default=6, help="variants of tawa's to try")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--budget", type=float, default=60, help="seconds for the whole run")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--dry", action="store_true", help="compile only; needs no GPU")
    options = parser.parse_args()
    cases = [case for case in CASES if options.only in str(case)]
    if options.dry:
        return dry(cases, [who.Tawa(options.most), Early(options.most)])
    ends = time.monotonic() + options.budget
    rows: list[dict[str, Any]] = []
    for case in cases:
        if time.monotonic() > ends:
            print(f"out of budget before {case}")
            break
        rows += run_case(case, options.most, options.rounds)
        print("  ".join(f"{row['peer']} {1e3 * row['ms']:.2f} us" for row in rows[-3:]), flush=True)
    report.write(options.out, "chains", rows, title="Products one after the other")
    return 0


if __name__ == "__main__":
    sys.exit(main())
