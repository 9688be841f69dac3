"""Timing and checking of GPU kernels side by side: sustained load, fresh inputs, medians.

How a figure is made. Every peer gets the same sets of random normal inputs, as many as together
exceed the L2 cache, and walks through them. Each call is timed by its own pair of CUDA events; the
calls of a sample are queued behind untimed ones, or where launching takes longer than running
behind a spinning kernel, so that the host's launch cost is not in the figure. Peers take turns for
several rounds after a warm-up each, in another order each round, because the chip is limited by
power and its clock drifts: only figures of one run may be compared. Outputs are poisoned with NaN
before they are checked, by relative Frobenius error against float64.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

Call = Callable[[], object]

ITEM_BYTES = {"f16": 2, "bf16": 2, "e4m3": 1, "e5m2": 1, "f32": 4}
OUTPUT = {"f16": "f16", "bf16": "bf16", "e4m3": "bf16", "e5m2": "bf16", "f32": "f32"}
# The largest relative error a right result may have: rounding of the output, and for fp8 also the
# tensor core's shortened accumulator. f32 goes through tf32.
TOLERANCE = {"f16": 2e-3, "bf16": 8e-3, "e4m3": 3e-2, "e5m2": 3e-2, "f32": 2e-3}
L2_BYTES = 160e6
_EVENTS_S = 15e-6  # what recording two events takes of the host
# Candidates timed at length before one is chosen: so many, this close to the fastest.
_FINALISTS = 5
_CLOSE = 1.10
# Milliseconds of load by which the clock has come down to what a candidate draws.
_LASTING_MS = 100.0

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Case:
    """One product, `batch` times [m, k] @ [k, n]; B is stored [n, k], with `b_rows` as [k, n];
    A is stored [m, k], with `a_columns` as [k, m].
    """

    dtype: str
    m: int
    n: int
    k: int
    batch: int = 1
    label: str = ""
    b_rows: bool = False
    a_columns: bool = False

    @property
    def flops(self) -> float:
        return 2.0 * self.batch * self.m * self.n * self.k

    @property
    def bytes(self) -> float:
        item = ITEM_BYTES[self.dtype]
        moved = item * self.k * (self.m + self.n) + ITEM_BYTES[OUTPUT[self.dtype]] * self.m * self.n
        return float(self.batch * moved)

    @property
    def shape(self) -> str:
        lead = f"{self.batch}x" if self.batch > 1 else ""
        stored = (" A by columns" if self.a_columns else "") + (" B by rows" if self.b_rows else "")
        return f"{lead}{self.m}x{self.n}x{self.k}{stored}"

    @property
    def group(self) -> str:
        """Return the table that this case is a line of."""
        return self.dtype

    def make_inputs(self) -> list[Inputs]:
        return make_inputs(self)

    def reference(self, inputs: Inputs) -> Reference:
        return Reference(self, inputs)

    def __str__(self) -> str:
        return f"{self.dtype} {self.shape}" + (f" ({self.label})" if self.label else "")


@dataclass(slots=True)
class Inputs:
    """One set of tensors on the GPU: a [batch,] m, k, a view where it lies by columns; b as the
    case stores it; c the output.
    """

    a: Any
    b: Any
    c: Any


@dataclass(slots=True)
class Candidate:
    """One way of one peer: `calls[i]` runs on input set i and writes that set's output."""

    label: str
    calls: Sequence[Call]
    keep: object = None  # what must stay alive as long as the calls
    note: str = ""
    bound: bool = False  # its result is not that of the case


@dataclass(slots=True)
class Timing:
    """All samples of one candidate, in milliseconds."""

    peer: str
    candidate: Candidate
    error: float
    tried: int
    notes: list[str] = field(default_factory=list)
    samples: list[float] = field(default_factory=list)
    clocks: list[int] = field(default_factory=list)

    @property
    def ms(self) -> float:
        return statistics.median(self.samples)

    def row(self, case: Case) -> dict[str, object]:
        ordered = sorted(self.samples)
        return {
            "dtype": case.group,
            "shape": case.shape,
            "label": case.label,
            "peer": self.peer,
            "config": self.candidate.label,
            "ms": round(self.ms, 5),
            "ms_min": round(ordered[0], 5),
            "ms_p90": round(ordered[int(0.9 * (len(ordered) - 1))], 5),
            "tflops": round(case.flops / self.ms / 1e9, 1),
            "rel_err": self.error,
            "samples": len(ordered),
            "tried": self.tried,
            "sm_mhz": round(statistics.median(self.clocks)) if self.clocks else None,
            "note": "; ".join(self.notes)[:400],
            "unit": getattr(case, "unit", "TFLOP/s"),
        }


class Missing(Exception):
    """A peer cannot take part in this case, and why."""


def torch_dtype(name: str) -> Any:
    import torch

    return {
        "f16": torch.float16,
        "bf16": torch.bfloat16,
        "e4m3": torch.float8_e4m3fn,
        "e5m2": torch.float8_e5m2,
        "f32": torch.float32,
    }[name]


def empty_inputs(case: Case) -> Inputs:
    """Return tensors of the case's shapes, never written: for compiling against."""
    import torch

    lead = (case.batch,) if case.batch > 1 else ()
    b = (case.k, case.n) if case.b_rows else (case.n, case.k)
    shapes = ((*lead, *_stored_a(case)), (*lead, *b), (*lead, case.m, case.n))
    kinds = (case.dtype, case.dtype, OUTPUT[case.dtype])
    stored, b_array, c = (
        torch.empty(shape, device="cuda", dtype=torch_dtype(kind))
        for shape, kind in zip(shapes, kinds)
    )
    return Inputs(stored.transpose(-1, -2) if case.a_columns else stored, b_array, c)


def _stored_a(case: Case) -> tuple[int, int]:
    return (case.k, case.m) if case.a_columns else (case.m, case.k)


def make_inputs(case: Case, most: int = 16, seed: int = 1234) -> list[Inputs]:
    """Return sets of random normal inputs that together exceed the L2 cache, at least two."""
    import torch

    generator = torch.Generator(device="cuda")
    generator.manual_seed(seed)

    def normal(shape: tuple[int, ...]) -> Any:
        wide = torch.float16 if case.dtype in ("e4m3", "e5m2") else torch_dtype(case.dtype)
        values = torch.empty(shape, device="cuda", dtype=wide).normal_(generator=generator)
        return values.to(torch_dtype(case.dtype))

    lead = (case.batch,) if case.batch > 1 else ()
    b_shape = (case.k, case.n) if case.b_rows else (case.n, case.k)
    out = torch_dtype(OUTPUT[case.dtype])
    count = max(2, min(most, math.ceil(L2_BYTES / max(1.0, case.bytes))))
    sets: list[Inputs] = []
    for _ in range(count):
        stored = normal((*lead, *_stored_a(case)))
        a = stored.transpose(-1, -2) if case.a_columns else stored
        c = torch.empty((*lead, case.m, case.n), device="cuda", dtype=out)
        sets.append(Inputs(a, normal((*lead, *b_shape)), c))
    return sets


def reference_blocks(case: Case, inputs: Inputs) -> Iterator[tuple[int, slice, Any]]:
    """Yield (batch index, rows, float64 product of those rows), in blocks that fit memory."""
    rows = max(1, min(case.m, int(2**28 // max(1, case.n))))
    for index in range(case.batch):
        a, b = (inputs.a, inputs.b) if case.batch == 1 else (inputs.a[index], inputs.b[index])
        wide = b.double() if case.b_rows else b.double().t()
        for start in range(0, case.m, rows):
            part = slice(start, min(case.m, start + rows))
            yield index, part, a[part].double() @ wide


class Reference:
    """The float64 product of one set of inputs, held in float32, to measure errors against."""

    def __init__(self, case: Case, inputs: Inputs) -> None:
        self._case = case
        self._blocks = [(i, part, ref.float()) for i, part, ref in reference_blocks(case, inputs)]
        self._norm = math.sqrt(sum(float(ref.double().norm()) ** 2 for *_, ref in self._blocks))

    def error(self, out: Any) -> float:
        """Return the relative Frobenius error of `out`; NaN where anything is not finite."""
        total = 0.0
        for index, part, ref in self._blocks:
            mine = out[part] if self._case.batch == 1 else out[index][part]
            total += float((mine.double() - ref.double()).norm()) ** 2
        return math.sqrt(total) / (self._norm or 1.0)


class Clock:
    """Reads the SM clock in MHz through NVML; gives nothing where NVML's binding is missing."""

    def __init__(self) -> None:
        self._read: Callable[[], int] | None = None
        try:
            import pynvml
        except ImportError:
            return
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        self._read = lambda: int(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM))

    def read(self) -> list[int]:
        return [] if self._read is None else [self._read()]


class Stopwatch:
    """Times calls on the current stream, queued behind a spinning kernel."""

    spin_hz = 1.98e9

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = clock or Clock()

    def sample(
        self, calls: Sequence[Call], runs: int, warm_ms: float
    ) -> tuple[list[float], list[int]]:
        """Return `runs` times in ms, rotating through `calls`, and clocks read under load."""
        import torch

        event = torch.cuda.Event
        first, last = event(enable_timing=True), event(enable_timing=True)
        calls[0]()
        torch.cuda.synchronize()
        started = time.perf_counter()
        first.record()
        for index in range(3):
            calls[index % len(calls)]()
        host_s = (time.perf_counter() - started) / 3
        last.record()
        torch.cuda.synchronize()
        estimate_ms = max(first.elapsed_time(last) / 3, 1e-3)
        pairs = [(event(enable_timing=True), event(enable_timing=True)) for _ in range(runs)]
        warm = max(2, min(2000, int(warm_ms / estimate_ms)))
        for index in range(warm):
            calls[index % len(calls)]()
        # Let the host get ahead of the GPU: only then do events time kernels and not launches. The
        # warm-up does that where launches are quicker than kernels. Else the GPU spins; not
        # otherwise, since a chip rests meanwhile, and its clock rises for some milliseconds.
        ahead_s = min(warm, 900) * max(0.0, estimate_ms * 1e-3 - host_s)
        if (host_s + _EVENTS_S) * runs > ahead_s + 0.5e-3 * estimate_ms * runs:
            spin_s = min(0.25, (host_s + _EVENTS_S) * runs * 1.5 + 2e-4)
            torch.cuda._sleep(int(spin_s * self.spin_hz))
        for index, (before, after) in enumerate(pairs):
            before.record()
            calls[index % len(calls)]()
            after.record()
        clocks = self.clock.read()
        torch.cuda.synchronize()
        return [before.elapsed_time(after) for before, after in pairs], clocks

    def median(self, calls: Sequence[Call], runs: int = 5, warm_ms: float = 1.0) -> float:
        """Return a quick median in ms, to choose among candidates."""
        return statistics.median(self.sample(calls, runs, warm_ms)[0])


def choose(
    watch: Stopwatch,
    candidates: Iterator[Candidate],
    beat: Callable[[str], object] = lambda _: None,
    failures: tuple[type[Exception], ...] = (RuntimeError,),
) -> tuple[list[Candidate], list[str]]:
    """Return a peer's candidates fastest first, and a line for each that failed to run.

    All are tried once; then they take turns, round after round: the clock drifts by more than tile
    sizes differ, so that candidates timed one after the other would be ranked by when they ran. The
    last rounds are between the first few, as long and under as much load as what is published: a
    rested chip ranks kernels by their cycles, one that has come to its power by their energy.
    """
    timed: list[tuple[float, Candidate]] = []
    notes: list[str] = []
    for candidate in candidates:
        beat(candidate.label)
        if not candidate.calls:
            notes.append(f"{candidate.label}: {candidate.note}")
            continue
        try:
            timed.append((watch.median(candidate.calls), candidate))
        except failures as error:  # a refused launch; a lost context raises again just below
            notes.append(f"{candidate.label}: {str(error)[:160]}")
            synchronize()
    ranked = _rank(watch, [each for _, each in timed], runs=6, warm_ms=6.0, rounds=3)
    close = [each for ms, each in ranked if ms <= _CLOSE * ranked[0][0]][:_FINALISTS]
    final = _rank(watch, close, runs=12, warm_ms=_LASTING_MS, rounds=2)
    return [each for _, each in (*final, *ranked[len(close) :])], notes


def _rank(
    watch: Stopwatch, candidates: Sequence[Candidate], runs: int, warm_ms: float, rounds: int
) -> list[tuple[float, Candidate]]:
    """Return candidates and their medians, fastest first, over rounds in which they take turns."""
    samples: list[list[float]] = [[] for _ in candidates]
    turns = list(zip(samples, candidates))
    for number in range(rounds if len(candidates) > 1 else 0):
        for times, each in _turn(turns, number):
            times += watch.sample(each.calls, runs, warm_ms)[0]
    timed = ((statistics.median(times or [0.0]), each) for times, each in turns)
    return sorted(timed, key=lambda pair: pair[0])


def check(case: Case, reference: Reference, inputs: Inputs, candidate: Candidate) -> float:
    """Poison the output, run once, return the error; a bound has none."""
    if candidate.bound:
        return 0.0
    inputs.c.fill_(float("nan"))
    candidate.calls[0]()
    synchronize()
    return reference.error(inputs.c)


def synchronize() -> None:
    import torch

    torch.cuda.synchronize()


def measure(
    watch: Stopwatch,
    timings: Sequence[Timing],
    *,
    rounds: int = 3,
    runs: int = 24,
    warm_ms: float = 100.0,
    beat: Callable[[str, str], object] = lambda peer, label: None,
) -> None:
    """Let the chosen candidates take turns for `rounds` rounds; samples add up in `timings`.

    Each round has another order: the clock lags behind the power that the one before drew, by about
    the tenth of a second that a candidate is warmed up.
    """
    for number in range(rounds):
        for timing in _turn(timings, number):
            beat(timing.peer, timing.candidate.label)
            samples, clocks = watch.sample(timing.candidate.calls, runs, warm_ms)
            timing.samples += samples
            timing.clocks += clocks


def _turn(items: Sequence[Item], number: int) -> list[Item]:
    """Return the order of a round: it starts one later each time, and goes back and forth."""
    start = number % max(1, len(items))
    order = [*items[start:], *items[:start]]
    return order[::-1] if number % 2 else order


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean, NaN for none."""
    if not values:
        return math.nan
    return math.exp(sum(math.log(value) for value in values) / len(values))
