"""The timeline of a run in virtual time, and its file for Perfetto or chrome://tracing.

Times are nanoseconds of a simple machine: every engine does one thing after the other, a wait ends
when what it waits for has ended. They show what overlaps and what stalls, not the speed of a GPU.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Any

from tawa.simulator.values import F32, DType

ENGINES = ("TMA", "tensor cores")
"""What a block has one of, below its roles."""

_GHZ = 1.755  # H200 boost clock
_TMA_LATENCY = 600 / _GHZ
_TMA_BYTES = 64 * _GHZ  # bytes a nanosecond one multiprocessor draws from L2, at most
_LANES = 32


@dataclass(frozen=True, slots=True)
class Span:
    """One stretch of work of a block, times in ns.

    `engine` is "TMA" or "tensor cores", which a block has one of, or the threads of `role` that
    work or wait: "warps", or "warpgroup N" of several.
    """

    role: str
    engine: str
    start: float
    end: float
    name: str
    block: str = "block"

    @property
    def track(self) -> str:
        """The track of its block that it is drawn on."""
        return track_of(self.role, self.engine)

    @property
    def waits(self) -> bool:
        """Whether threads wait for something."""
        return self.name.startswith(("wait", "named barrier"))


def track_of(role: str, engine: str) -> str:
    """Return the track of what an engine, or the threads of a role, does."""
    if engine in ENGINES:
        return engine
    return role if engine == "warps" else f"{role} {engine}"


@dataclass(slots=True)
class Trace:
    """What a run did: the timeline, and how many steps the scheduler took."""

    spans: list[Span] = field(default_factory=list[Span])
    steps: int = 0
    tracks: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Of the roles of each block, those included that never take time."""

    def begin(self, role: str, engines: Sequence[str], block: str = "block") -> None:
        """Give a role its tracks, one for each of `engines`."""
        held = self.tracks.setdefault(block, [])
        held += [track for engine in engines if (track := track_of(role, engine)) not in held]

    def add(
        self, role: str, engine: str, start: float, end: float, name: str, block: str = "block"
    ) -> None:
        """Record one stretch of work."""
        self.spans.append(Span(role, engine, start, end, name, block))

    @property
    def end(self) -> float:
        """When the last work ends, in ns."""
        return max((span.end for span in self.spans), default=0.0)

    def chrome(self) -> dict[str, Any]:
        """Return the timeline as Chrome trace JSON (Perfetto reads it), times in microseconds.

        A process is a block; its tracks are the warpgroups of its roles, then TMA and the tensor
        cores. Copies in flight at the same time lie on tracks of their own ("TMA", "TMA 2" ..).
        """
        events: list[dict[str, Any]] = []
        blocks = {*self.tracks, *(span.block for span in self.spans)}
        for process, block in enumerate(sorted(blocks, key=_place), 1):  # 0 is the idle process
            spans = [span for span in self.spans if span.block == block]
            found = {*self.tracks.get(block, ()), *(span.track for span in spans)}
            names = sorted(found, key=_rank)
            lanes = [(name, lane) for name in names for lane in _lanes(spans, name) or [[]]]
            events.append(_named("process_name", process, {"name": block}))
            for thread, (name, lane) in enumerate(lanes, 1):
                number = sum(other == name for other, _ in lanes[: thread - 1])
                label = f"{name} {number + 1}" if number else name
                events.append(_named("thread_name", process, {"name": label}, thread))
                order = {"sort_index": thread}
                events.append(_named("thread_sort_index", process, order, thread))
                events += [_event(span, process, thread) for span in lane]
        return {"traceEvents": events, "displayTimeUnit": "ns"}

    def write_chrome(self, path: str | Path) -> None:
        """Write the timeline as Chrome trace JSON, for ui.perfetto.dev or chrome://tracing."""
        Path(path).write_text(json.dumps(self.chrome(), allow_nan=False))


def _place(block: str) -> list[int]:
    """The numbers in a block's name: (2, 0, 0) comes before (10, 0, 0)."""
    return [int(number) for number in re.findall(r"\d+", block)]


def _rank(track: str) -> tuple[int, str]:
    """Roles first, engines below them."""
    return (ENGINES.index(track) + 1 if track in ENGINES else 0), track


def _lanes(spans: list[Span], track: str) -> list[list[Span]]:
    """Return a track's spans, those that overlap apart: a track draws one thing at a time."""
    lanes: list[list[Span]] = []
    for span in sorted((s for s in spans if s.track == track), key=lambda s: (s.start, s.end)):
        lane = next((lane for lane in lanes if lane[-1].end <= span.start), None)
        if lane is None:
            lanes.append([span])
        else:
            lane.append(span)
    return lanes


def _named(
    kind: str, process: int, arguments: dict[str, Any], thread: int | None = None
) -> dict[str, Any]:
    event: dict[str, Any] = {"ph": "M", "name": kind, "pid": process, "args": arguments}
    return event if thread is None else event | {"tid": thread}


def _event(span: Span, process: int, thread: int) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": span.name,
        "cat": "wait" if span.waits else "work",
        "pid": process,
        "tid": thread,
        "ts": span.start / 1000,
        "dur": (span.end - span.start) / 1000,
        "args": {"role": span.role},
    }


def tma_time(count: int) -> tuple[float, float]:
    """Return how long `count` bytes occupy TMA, and how much later they have landed."""
    return count / _TMA_BYTES, _TMA_LATENCY


def product_time(m: int, n: int, k: int, dtype: DType) -> float:
    """Return how long the tensor cores take for a tile: 2048 16-bit products a cycle."""
    rate = 4096 if dtype.itemsize == 1 else 1024 if dtype == F32 else 2048
    return m * n * k / rate / _GHZ


def tile_time(elements: int, warps: int) -> float:
    """Return how long `warps` warps take for one function on a tile: an element a lane a cycle."""
    return ceil(elements / (_LANES * warps)) / _GHZ
