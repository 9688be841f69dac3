"""Layers in processes of their own on one GPU: they compile side by side, and run in turn."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from math import exp, log
from pathlib import Path
from statistics import median
from typing import Any

ROUNDS = 5


def time_calls(call: Callable[[], Any], seconds: float) -> Callable[[], float]:
    """Return what measures milliseconds of a call, over about `seconds` of calls.

    Calls are replayed from a CUDA graph: what they cost the host is not in the figure.
    """
    import torch

    def timed(work: Callable[[], Any], count: int) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(count):
            work()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / count

    call()
    once = max(timed(call, 2), 1e-3)
    calls = max(1, min(20, round(5 / once)))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            call()
    graph.replay()
    each = max(timed(graph.replay, 1), 1e-3)
    return lambda: timed(graph.replay, max(1, round(seconds * 1e3 / each))) / calls


def in_turns(
    timers: Mapping[str, Callable[[], float]], once: Sequence[str] = ()
) -> dict[str, float]:
    """Return medians of timers that take turns, each round in the other order; `once`: those that
    are too slow for more than one round.
    """
    samples: dict[str, list[float]] = {name: [] for name in timers}
    for turn in range(ROUNDS):
        for name in list(timers)[:: -1 if turn % 2 else 1]:
            if not turn or name not in once:
                samples[name].append(timers[name]())
    return {name: median(times) for name, times in samples.items()}


def mean(values: Sequence[float]) -> float:
    """Return the geometric mean."""
    return exp(sum(map(log, values)) / len(values)) if values else float("nan")


def run_jobs(
    jobs: Mapping[str, Sequence[str]],
    command: Sequence[str],
    table: Callable[[str, Sequence[Any]], str],
    options: Any,
) -> None:
    """Run the layers of each job, by its title, as `command --one LAYER`; print its table.

    `options` have `budget` (seconds in all), `limit` (seconds of a layer, from its turn on) and
    `out` (a file, or ""). A process prints one line of JSON, a list of results, after `worker` let
    it. As many processes as there are cores are ahead of the one that is measured, and compile.
    """
    end, results = time.monotonic() + options.budget, []
    todo = [layer for layers in jobs.values() for layer in layers]
    ahead: deque[subprocess.Popen[str]] = deque()
    pipe = subprocess.PIPE
    for title, layers in jobs.items():
        done: list[Any] = []
        for layer in layers:
            while todo and len(ahead) < (os.cpu_count() or 1):
                call = [*command, "--one", todo.pop(0)]
                ahead.append(
                    subprocess.Popen(call, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
                )
            process = ahead.popleft()
            left = max(0.0, min(options.limit, end - time.monotonic()))
            try:
                found, errors = process.communicate("go\n", timeout=left)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                print(f"{title} {layer}: stopped after {left:.0f} s", flush=True)
                continue
            if process.returncode:
                print(f"{title} {layer}: {errors[-1500:]}", flush=True)
                continue
            done += json.loads(found.splitlines()[-1])
        if done:
            print(table(title, done), flush=True)
        results += done
        if options.out:
            Path(options.out).write_text(json.dumps(results, indent=1))


def worker(compile_ahead: Callable[[], None], measure: Callable[[], list[Any]]) -> None:
    """Compile, wait until the layers before this one are done with the GPU, and measure."""
    compile_ahead()
    sys.stdin.readline()
    print(json.dumps(measure()))
