"""Choosing among variants of a shipped kernel: timed once for each problem, kept on disk.

All variants that build are timed one after the other; the few that are close to the fastest then
take turns under lasting load: a chip drifts by more than they differ, and a rested one ranks
kernels by their cycles, one that has come to its power by their energy. The outcome goes to the
cache folder under a key of device, compiler, kind of problem and candidates; it names its variant
by its place and its text, so that a file of other candidates is a miss.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from tawa.errors import TawaError, TuningError
from tawa.kernels.arrays import look
from tawa.kernels.prepare import Launch
from tawa.kernels.straight import Recipes
from tawa.runtime.dispatch import gpu_target
from tawa.runtime.fingerprint import compiler_digest
from tawa.runtime.store import DiskStore, cache_folder, store_at
from tawa.runtime.timing import alone_on, captured, do_bench

ProblemT = TypeVar("ProblemT", bound=Hashable)
VariantT = TypeVar("VariantT")
Call = Callable[[], Any]
Time = Callable[[Call], float]
_CLOSE = 1.10
_FINALISTS = 5
_TURNS = 2
# Milliseconds by which the clock of a rested chip has come down to what a kernel draws (100), and
# what the first estimate of a kernel's time has too much.
_LASTING_MS = 160


@dataclass(frozen=True, slots=True)
class Candidate(Generic[VariantT]):
    """A variant; `ready` compiles it and returns the call to time."""

    variant: VariantT
    ready: Callable[[], Call]


class Tuner(Generic[ProblemT, VariantT]):
    """Remembers the fastest variant of each problem, in memory and on disk.

    `best` holds them; `recipes` what calls launch whose variant was chosen by it.
    `family` names the kernels in keys and messages, `arrays` those of a call, `written` the one
    that a call may be given to write to; `store` replaces the cache folder; `keep` false leaves
    the disk alone.
    """

    def __init__(
        self,
        family: str,
        arrays: Sequence[str] = (),
        *,
        written: str = "out",
        store: DiskStore | None = None,
        keep: bool = True,
    ) -> None:
        self.family = family
        self.best: dict[ProblemT, VariantT] = {}
        self.recipes = Recipes(arrays, written)
        self._store = store
        self._keep = keep

    def settle(
        self,
        problem: ProblemT,
        candidates: Callable[[], Sequence[Candidate[VariantT]]],
        array: Any,
        time: Time | None = None,
        *,
        timed: bool = True,
    ) -> VariantT:
        """Return the variant to use: the fastest; on a CPU, or not `timed`, the first that builds.

        `array` tells the device; `time` gives a call's milliseconds (by default those of
        `tawa.testing.do_bench` of its CUDA graph, after a longer warm-up for those that are
        close). Raises `TuningError` with every reason when none can be built.
        """
        if (known := self.best.get(problem)) is not None:
            return known
        device = look(array).device
        found = candidates()
        place = device.ordinal
        timers = (time or partial(time_call, place), time or partial(time_under_load, place))
        if device.kind != "cuda" or not timed:
            chosen = self._timed(problem, found, None)[0]
        elif not self._keep:
            chosen = self._timed(problem, found, timers)[0]
        else:
            chosen = self._recalled(problem, found, device.ordinal, timers)
        return self.best.setdefault(problem, found[chosen].variant)

    def _recalled(
        self,
        problem: ProblemT,
        candidates: Sequence[Candidate[VariantT]],
        device: int,
        timers: tuple[Time, Time],
    ) -> int:
        """Return what the disk says, or time and tell it."""
        store = self._store or store_at(cache_folder())
        labels = [str(candidate.variant) for candidate in candidates]
        parts = ("variant", self.family, compiler_digest(), gpu_target(device), problem, labels)
        key = repr(parts)
        if (kept := _read(store.get(key), labels)) is not None:
            return kept
        best, times, skipped = self._timed(problem, candidates, timers)
        outcome = {
            "title": f"{self.family}: {problem}",
            "best": best,
            "label": labels[best],
            "times": times,
            "skipped": skipped,
        }
        store.put(key, json.dumps(outcome).encode())
        return best

    def _timed(
        self,
        problem: ProblemT,
        candidates: Sequence[Candidate[VariantT]],
        timers: tuple[Time, Time] | None,
    ) -> tuple[int, dict[str, float], dict[str, str]]:
        """Return the place of the fastest candidate (without timers the first), all times, and
        why others cannot be built.
        """
        skipped: dict[str, str] = {}
        times: dict[int, float] = {}
        calls: dict[int, Call] = {}
        for place, candidate in enumerate(candidates):
            try:
                calls[place] = candidate.ready()
            except TawaError as error:
                skipped[str(candidate.variant)] = error.what
                continue
            if timers is None:
                return place, {}, skipped
            times[place] = timers[0](calls[place])
        if not times or timers is None:
            raise TuningError(
                f"no variant of {self.family} can be built for {problem}",
                why="\n".join(f"{name}: {why}" for name, why in skipped.items()),
            )
        _take_turns(times, calls, timers[1])
        named = {str(candidates[place].variant): each for place, each in times.items()}
        return min(times, key=lambda place: times[place]), named, skipped


def _take_turns(times: dict[int, float], calls: dict[int, Call], time: Time) -> None:
    """Time those close to the fastest again, in turns, back and forth; the medians replace the
    first times.
    """
    from statistics import median  # it brings fractions and decimals

    limit = _CLOSE * min(times.values())
    close = sorted((each, place) for place, each in times.items() if each <= limit)
    finalists = [place for _, place in close[:_FINALISTS]]
    if len(finalists) == 1:
        return
    samples: dict[int, list[float]] = {place: [] for place in finalists}
    for number in range(_TURNS):
        for place in finalists[:: -1 if number % 2 else 1]:
            samples[place].append(time(calls[place]))
    times.update((place, median(each)) for place, each in samples.items())
    slowest = max(times[place] for place in finalists)
    for place in times:
        if place not in finalists:
            times[place] = max(times[place], slowest)


def _read(data: bytes | None, labels: Sequence[str]) -> int | None:
    """Return the place a stored outcome names; None when it is not of these candidates."""
    if data is None:
        return None
    try:
        outcome: Any = json.loads(data)
        best: int = outcome["best"]
        return best if best >= 0 and labels[best] == outcome["label"] else None
    except (KeyError, IndexError, TypeError, ValueError):
        return None


def ready(launches: Sequence[Launch], *, early: bool = False) -> Call:
    """Compile launches; return the call that runs them one after the other, as a recipe does: those
    behind the first, with `early` it too, begin while the kernel before them ends.
    """
    taken = [each.early() if early or place else each for place, each in enumerate(launches)]
    for launch in taken:
        launch.ready()
    return partial(run, taken)


def run(launches: Sequence[Launch]) -> None:
    """Run launches one after the other."""
    for launch in launches:
        launch()


def time_call(device: int, call: Call) -> float:
    """Return a call's median time on a GPU in milliseconds, the L2 cache cold."""
    return _bench(device, call, 10, 30)


def time_under_load(device: int, call: Call) -> float:
    """Return the same for a chip that has come to the power that the call draws."""
    return _bench(device, call, _LASTING_MS, 15)


def _bench(device: int, call: Call, warmup: float, rep: float) -> float:
    with alone_on(device):
        found = do_bench(captured(call), warmup=warmup, rep=rep)
    assert isinstance(found, float), "no quantiles were asked for"
    return found
