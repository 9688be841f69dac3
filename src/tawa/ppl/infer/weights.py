"""Weights of particles: exact sums, systematic resampling, where the particles are.

A weight becomes a whole number: its share of the largest, times a power of two. Sums of whole
numbers are exact in any order, so the number of threads and the device cannot change a bit. An
*adder* is a lane that goes through a stretch of the particles of a group; the host sees only what
adders found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

import numpy as np

from tawa.errors import WeightError
from tawa.ppl.frontend.words import cast, exp, floor, here, read, select, word, write
from tawa.ppl.infer.compose import Composed, bare
from tawa.ppl.infer.execute import Device, Executable, Running, seeded
from tawa.ppl.infer.options import Options
from tawa.ppl.ir.core import Kind
from tawa.ppl.math.distributions import uniform
from tawa.ppl.passes.cut import DONE

Array = np.ndarray[Any, Any]
INF = float("inf")
STRETCH = 256


@dataclass(frozen=True, slots=True)
class Weighed:
    """What the weights of groups of particles come to.

    `top` (groups,) are the largest log weights, `sums` (groups, adders) int64 the sums of the whole
    numbers, `most` what a group's would be if all weighed as the largest, `effective` (groups,) the
    effective sample sizes (Kong): the squared sum over the sum of squares. `going` particles are
    not at their end, `faults` could not go on.
    """

    top: Array
    sums: Array
    most: int
    effective: Array
    going: int
    faults: int

    def log_mean(self) -> Array:
        """Return the log of each group's mean weight; of zeros it is minus infinity."""
        sums = map(int, self.sums.sum(1))
        return self.top + np.array([math.log(s / self.most) if s else -math.inf for s in sums])


class Weights:
    """Weighs `groups` of `size` lanes and chooses among them, for as long as a `with` lasts.

    `memory` has the log weights `logw` (1, lanes) of a kind; weights of nan count as 0. Those of
    running programs also have `chosen`, `kind` and `failed`. On a device "interpreter" the CPU
    weighs.
    """

    def __init__(
        self,
        size: int,
        groups: int,
        kind: Kind,
        device: Device,
        memory: Mapping[str, Any],
        threads: int | None = None,
    ) -> None:
        self.size, self.groups, self.parts = size, groups, -(-size // STRETCH)
        bits = max(1, (size - 1).bit_length())
        self.scale = min(62 - bits, 52)
        # Of a weight's square as many bits are kept as leave the sum of all exact.
        self.shift = max(0, self.scale - (62 - bits) // 2)
        numbers = {"size": size, "parts": self.parts, "shift": self.shift}
        adders, lanes = groups * self.parts, groups * size
        followed = "kind" in memory

        def on(function: Callable[..., Any], lanes: int, **buffers: Any) -> Running:
            place: Device = "cuda" if device == "cuda" else "cpu"
            composed, executable = _program(function, kind, followed, place)
            given = composed.arguments(0, scale=2.0**self.scale, **numbers)
            names = composed.program.buffers.keys() - {"fault"}
            held = {name: buffers[name] for name in names}
            return executable.on(given, held, lanes, threads)

        memory = {name: memory[name] for name in _FOLLOWED if name in memory}
        self.peak = on(_peak, adders, **memory, top=1, count=2)
        zeros = self.peak.zeros
        rest = {**memory, "sums": zeros((1, lanes), "i64")}
        self.share = on(_share, adders, **rest, tops=zeros((1, groups), "f64"), found=2)
        rest |= {name: zeros((1, groups), "i64") for name in ("total", "mark")}
        rest |= {"before": zeros((1, adders), "i64"), "chosen": memory.get("chosen", 1)}
        self.chosen = on(_choose, lanes, **rest)
        composed, executable = _host()
        self.uniform = executable.on(composed.arguments(0), composed.rows, groups, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for running in (self.uniform, self.chosen, self.share, self.peak):
            running.__exit__(*error)

    def weigh(self, power: float = 1.0) -> Weighed:
        """Add up the weights to a power."""
        groups = self.groups
        self.peak.launch(power=power)
        (tops,) = self.peak.rows("top", 0, 1)
        top = tops.reshape(groups, -1).max(1)
        self.share.give("tops", top[None])
        self.share.launch(power=power)
        sums, squares = self.share.rows("found", 0, 2).reshape(2, groups, -1).copy()
        going, faults = self.peak.rows("count", 0, 2).sum(1)
        totals = zip(map(int, sums.sum(1)), map(int, squares.sum(1)), strict=True)
        effective = np.array([t * t / (q << 2 * self.shift) if q else 0.0 for t, q in totals])
        most = self.size << self.scale
        return Weighed(top, sums, most, effective, int(going), int(faults))

    def uniforms(self, seed: int, number: int) -> Array:
        """Return a number in (0, 1) for each group; `number` tells one call from another."""
        self.uniform.launch(**seeded(seed), number=number)
        return self.uniform.rows("uniform")[0]

    def choose(self, weighed: Weighed, seed: int, number: int, again: Array) -> None:
        """Choose for all lanes of the groups that `again` says; other lanes are their own choice.

        Systematic: one of `uniforms` a group, equal steps through the sums. The log weights of
        groups that were chosen among become 0; a group whose weights are all zero stays as it is.
        """
        totals = np.where(again, weighed.sums.sum(1), 0)
        uniforms = self.uniforms(seed, number)
        marks = [int(u * int(total)) for u, total in zip(uniforms, totals, strict=True)]
        self.chosen.give("total", totals[None])
        self.chosen.give("mark", np.array([marks], np.int64))
        before = np.cumsum(weighed.sums, axis=1) - weighed.sums
        self.chosen.give("before", before.reshape(1, -1))
        self.chosen.launch()


def evidence_of(weighed: Weighed, count: int) -> float:
    """Return the log mean weight of the one group. Raises WeightError where it is zero."""
    (mean,) = weighed.log_mean()
    if mean == -math.inf:
        raise zeros(count)
    return float(mean)


def zeros(count: int, where: str = "") -> WeightError:
    """Return the error of particles whose weights are all zero; `where` says after what."""
    return WeightError(
        f"all {count} weights are zero{where}",
        remedy="check the observations' supports and units, or take more particles",
    )


# -- programs


@cache
def _program(
    function: Callable[..., Any], kind: Kind, followed: bool, device: Device
) -> tuple[Composed, Executable]:
    """Return a program over adders or lanes, in float64; NumPy's functions have other bits."""
    composed = bare(function.__name__[1:])
    composed.share(size=0, parts=0, shift=0, scale=0.0, power=1.0)
    more: dict[str, Kind] = {"kind": "i32", "failed": "i32"}
    composed.program.buffers |= _BUFFERS[function]
    composed.program.buffers["logw"] = kind
    composed.program.buffers |= more if followed and function is _peak else {}
    composed.algorithm(function, kind, followed)
    return composed, composed.executable(Options(device=device))


def _stretch(lane: Any) -> Any:
    """The group of an adder, and the particles that it goes through."""
    group = here() // lane.parts
    first = here() % lane.parts * STRETCH
    begin = group * lane.size
    return group, begin + first, begin + min(first + STRETCH, lane.size)


def _peak(lane: Any, kind: Any, followed: Any) -> None:
    _, begin, end = _stretch(lane)
    top = cast(-INF, "f64")
    going = 0
    faults = 0
    for k in range(end - begin):
        at = begin + k
        logw = cast(read("logw", 0, kind, at), "f64") * lane.power
        top = select(logw > top, logw, top)
        if followed:
            going = going + select(read("kind", 0, "i32", at) != DONE, 1, 0)
            faults = faults + select(read("failed", 0, "i32", at) != 0, 1, 0)
    write("top", 0, top)
    write("count", 0, going)
    write("count", 1, faults)


def _share(lane: Any, kind: Any, followed: Any) -> None:
    group, begin, end = _stretch(lane)
    top = read("tops", 0, "f64", group)
    # The largest itself weighs 1, also where it is infinite: inf - inf is no number.
    least = select(abs(top) == INF, 0.0, top)
    total = cast(0, "i64")
    squares = cast(0, "i64")
    for k in range(end - begin):
        at = begin + k
        logw = cast(read("logw", 0, kind, at), "f64") * lane.power
        share = select(top == INF, select(logw == INF, 1.0, 0.0), exp(logw - least))
        share = select(logw == logw, share, 0.0)
        whole = cast(floor(share * lane.scale), "i64")
        part = word("lshr", whole, cast(lane.shift, "i64"))
        total = total + whole
        squares = squares + part * part
        write("sums", 0, total, at)
    write("found", 0, total)
    write("found", 1, squares)


def _choose(lane: Any, kind: Any, followed: Any) -> None:
    group = here() // lane.size
    total = read("total", 0, "i64", group)
    chosen = here()
    if total > 0:
        # The mark (k + u) total / size, in whole numbers: no float is wide enough.
        size = cast(lane.size, "i64")
        k = cast(here() % lane.size, "i64")
        mark = k * (total // size) + (k * (total % size) + read("mark", 0, "i64", group)) // size
        mark = min(mark, total - 1)
        low = group * lane.parts
        high = low + lane.parts - 1
        while low < high:  # the last stretch that has no more than the mark before it
            middle = (low + high + 1) // 2
            inside = read("before", 0, "i64", middle) <= mark
            low = select(inside, middle, low)
            high = select(inside, high, middle - 1)
        mark = mark - read("before", 0, "i64", low)
        first = (low - group * lane.parts) * STRETCH
        chosen = group * lane.size + first
        high = group * lane.size + min(first + STRETCH, lane.size) - 1
        while chosen < high:  # the first whose sum is above what is left
            middle = (chosen + high) // 2
            above = read("sums", 0, "i64", middle) > mark
            high = select(above, middle, high)
            chosen = select(above, chosen, middle + 1)
        write("logw", 0, 0.0)
    write("chosen", 0, chosen)


_FOLLOWED = ("logw", "chosen", "kind", "failed")
_BUFFERS: dict[Callable[..., Any], dict[str, Kind]] = {
    _peak: {"top": "f64", "count": "i32"},
    _share: {"tops": "f64", "sums": "i64", "found": "i64"},
    _choose: {
        **dict.fromkeys(("total", "mark", "before", "sums"), "i64"),
        "chosen": "i32",
    },
}


@cache
def _host() -> tuple[Composed, Executable]:
    composed = bare("uniform")
    composed.share(number=0)
    composed.buffer("f64", 1, "uniform")
    composed.algorithm(_uniform, site=-2)
    return composed, composed.executable(Options())


def _uniform(lane: Any) -> None:
    lane.draw = lane.number
    write("uniform", 0, uniform())
