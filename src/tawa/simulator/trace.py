"""The timeline of a run in virtual time, and its file for Perfetto or chrome://tracing.

Times are nanoseconds of a simple machine: every engine does one thing after the other, a wait ends
when what it waits for has ended. They show what overlaps and what stalls, not the speed of a GPU.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Any

from tawa.simulator.values import F8E4M3, F8E5M2, F32, DType

_GHZ = 1.755  # H200 boost clock
_TMA_LATENCY = 600 / _GHZ
_TMA_BYTES = 64 * _GHZ  # bytes a nanosecond one multiprocessor draws from L2, at most
_LANES = 32


@dataclass(frozen=True, slots=True)
class Span:
    """One stretch of work: `role` is the track's group, `engine` the track, times in ns."""

    role: str
    engine: str
    start: float
    end: float
    name: str


@dataclass(slots=True)
class Trace:
    """What a run did: the timeline, and how many steps the scheduler took."""

    spans: list[Span] = field(default_factory=list[Span])
    steps: int = 0

    def add(self, role: str, engine: str, start: float, end: float, name: str) -> None:
        """Record one stretch of work."""
        self.spans.append(Span(role, engine, start, end, name))

    @property
    def end(self) -> float:
        """When the last work ends, in ns."""
        return max((span.end for span in self.spans), default=0.0)

    def write_chrome(self, path: str | Path) -> None:
        """Write the timeline as Chrome trace JSON: a process for each role, a thread an engine."""
        roles = sorted({span.role for span in self.spans})
        tracks = sorted({(span.role, span.engine) for span in self.spans})
        process = {role: number for number, role in enumerate(roles)}
        thread = {track: number for number, track in enumerate(tracks)}
        events: list[dict[str, Any]] = [
            {"ph": "M", "name": "process_name", "pid": process[role], "args": {"name": role}}
            for role in roles
        ]
        events += [
            {
                "ph": "M",
                "name": "thread_name",
                "pid": process[role],
                "tid": number,
                "args": {"name": engine},
            }
            for (role, engine), number in thread.items()
        ]
        events += [
            {
                "ph": "X",
                "name": span.name,
                "pid": process[span.role],
                "tid": thread[span.role, span.engine],
                "ts": span.start / 1000,
                "dur": (span.end - span.start) / 1000,
            }
            for span in self.spans
        ]
        Path(path).write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}))


def tma_time(count: int) -> tuple[float, float]:
    """Return how long `count` bytes occupy the copy engine, and how much later they have landed."""
    return count / _TMA_BYTES, _TMA_LATENCY


def product_time(m: int, n: int, k: int, dtype: DType) -> float:
    """Return how long the tensor cores take for a tile: 2048 16-bit products a cycle."""
    rate = 4096 if dtype in (F8E4M3, F8E5M2) else 1024 if dtype == F32 else 2048
    return m * n * k / rate / _GHZ


def tile_time(elements: int, warps: int) -> float:
    """Return how long `warps` warps take for one function on a tile: an element a lane a cycle."""
    return ceil(elements / (_LANES * warps)) / _GHZ
