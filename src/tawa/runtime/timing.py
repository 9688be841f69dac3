"""Timing of kernels on the GPU: events around each run, a cold L2 cache, medians."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from tawa.errors import NoDriver
from tawa.runtime.locks import Lock

_TURN = Lock()  # of threads that measure
_FLUSH_BYTES = 256 << 20  # several times the L2 cache of an H200 (50 MiB)


def do_bench(
    run: Callable[[], Any],
    warmup: float = 25,
    rep: float = 100,
    grad_to_none: Sequence[Any] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "median",
) -> float | list[float]:
    """Return the time of `run` on the GPU in milliseconds.

    Runs for about `warmup` ms, then about `rep` ms; the L2 cache is overwritten before each run.
    Returns the median (or "mean", "min", "max", or "all" times), or the `quantiles` asked for.
    Needs torch with CUDA.
    """
    torch = _torch()
    flush = torch.empty(_FLUSH_BYTES, dtype=torch.int8, device="cuda")
    run()
    estimate = _estimate(torch, run, flush)
    for _ in range(max(1, int(warmup / estimate))):
        run()
    times: list[tuple[Any, Any]] = []
    for _ in range(max(5, int(rep / estimate))):
        for tensor in grad_to_none or ():
            tensor.grad = None
        flush.zero_()
        start, end = _events(torch)
        start.record()
        run()
        end.record()
        times.append((start, end))
    torch.cuda.synchronize()
    return summarize([start.elapsed_time(end) for start, end in times], quantiles, return_mode)


def do_bench_cudagraph(
    run: Callable[[], Any],
    rep: float = 20,
    grad_to_none: Sequence[Any] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "median",
) -> float | list[float]:
    """Return the time of `run` in milliseconds, from CUDA graphs of many runs: no launch cost.

    The L2 cache stays warm, as between the layers of a model. Needs torch with CUDA.
    """
    torch = _torch()
    torch.cuda.synchronize()  # what `run` writes, work before it may still read
    with torch.cuda.stream(side := torch.cuda.Stream()):
        run()
        torch.cuda.synchronize()
        estimate = _estimate(torch, run, None)
        count = max(1, int(rep / estimate))
        graph = torch.cuda.CUDAGraph()
        with _capture(torch, graph, side):
            for _ in range(count):
                for tensor in grad_to_none or ():
                    tensor.grad = None
                run()
        times: list[float] = []
        for _ in range(10):
            start, end = _events(torch)
            start.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            times.append(start.elapsed_time(end) / count)
    return summarize(times, quantiles, return_mode)


def captured(run: Callable[[], Any]) -> Callable[[], Any]:
    """Return the replay of a CUDA graph of `run`, which has run before.

    What the host takes for a launch is not in its time, which several launches of microseconds each
    do not hide. Needs torch with CUDA.
    """
    torch = _torch()
    torch.cuda.synchronize()  # what `run` writes, work before it may still read
    with torch.cuda.stream(side := torch.cuda.Stream()):
        run()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with _capture(torch, graph, side):
            run()
    return graph.replay


@contextmanager
def alone_on(device: int) -> Generator[None]:
    """Make a device the current one, whose stream is timed; of several threads one measures at a
    time, since each would find the others' work in its own time.
    """
    with _TURN, _torch().cuda.device(device):
        yield


def _capture(torch: Any, graph: Any, stream: Any) -> Any:
    """Capture what this thread does on a stream of the current device. Torch's own choice is one
    stream for all devices and threads; and what other threads do meanwhile is theirs.
    """
    return torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local")


def _torch() -> Any:
    try:
        torch: Any = import_module("torch")
    except ImportError as error:
        raise NoDriver(
            "timing needs torch", why=str(error), remedy="pip install torch, with CUDA"
        ) from error
    if not torch.cuda.is_available():
        raise NoDriver(
            "timing needs a CUDA GPU", why="torch sees none", remedy="run on a machine with a GPU"
        )
    return torch


def _events(torch: Any) -> tuple[Any, Any]:
    return torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)


def _estimate(torch: Any, run: Callable[[], Any], flush: Any) -> float:
    """Return the milliseconds of one run, from five."""
    torch.cuda.synchronize()
    start, end = _events(torch)
    start.record()
    for _ in range(5):
        if flush is not None:
            flush.zero_()
        run()
    end.record()
    torch.cuda.synchronize()
    return max(start.elapsed_time(end) / 5, 1e-3)


def summarize(
    times: Sequence[float], quantiles: Sequence[float] | None, return_mode: str
) -> float | list[float]:
    """Return the quantiles of `times` (linear between neighbours), or what `return_mode` names."""
    ordered = sorted(times)
    if quantiles is not None:
        return [_quantile(ordered, quantile) for quantile in quantiles]
    match return_mode:
        case "all":
            return list(times)
        case "min":
            return ordered[0]
        case "max":
            return ordered[-1]
        case "mean":
            return math.fsum(ordered) / len(ordered)
        case "median":
            return _quantile(ordered, 0.5)
        case _:
            raise ValueError(f"return_mode is min, max, mean, median or all, got {return_mode!r}")


def _quantile(ordered: Sequence[float], quantile: float) -> float:
    position = quantile * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)
