"""Weights of particles: exact sums, systematic resampling.

A weight becomes a whole number: its share of the largest, times a power of two. Sums of whole
numbers are exact in any order, so the number of threads and the device cannot change a bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from tawa.errors import WeightError
from tawa.ppl.frontend.surface import exp, read, write
from tawa.ppl.infer.compose import Composed, bare
from tawa.ppl.infer.execute import Executable
from tawa.ppl.infer.options import Options
from tawa.ppl.math.distributions import uniform

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights of groups of particles: `whole` (groups, particles) int64 is the share of the largest
    weight, times `scale`; `top` (groups,) is the largest log weight.

    Weights of nan count as 0. A group of zeros has a `top` of minus infinity.
    """

    whole: Array
    top: Array
    scale: int

    @classmethod
    def of(cls, log_weights: Array) -> Weights:
        """Return the weights of logarithms (groups, particles)."""
        logs = np.asarray(log_weights, np.float64)
        finite = np.where(np.isnan(logs), -math.inf, logs)
        top = finite.max(axis=1)
        scale = min(1 << (62 - max(1, (logs.shape[1] - 1).bit_length())), 1 << 52)
        # The largest itself weighs 1, also where it is infinite: inf - inf is no number.
        least = np.where(np.isinf(top), 0.0, top)[:, None]
        shares = np.where(
            finite == math.inf, 1.0, _exp((finite - least).ravel()).reshape(logs.shape)
        )
        shares = np.where((top == math.inf)[:, None] & (finite < math.inf), 0.0, shares)
        return cls(np.floor(shares * scale).astype(np.int64), top, scale)

    def log_mean(self) -> Array:
        """Return the log of each group's mean weight; of zeros it is minus infinity."""
        most = self.scale * self.whole.shape[1]
        sums = map(int, self.whole.sum(axis=1))
        return self.top + np.array([math.log(s / most) if s else -math.inf for s in sums])

    def effective(self) -> Array:
        """Return the effective sample sizes (Kong): the squared sum over the sum of squares."""
        total = np.maximum(self.whole.sum(axis=1, keepdims=True), 1)
        shares = self.whole.astype(np.float64) / total.astype(np.float64)
        squares = np.sum(shares * shares, axis=1)
        return np.where(squares > 0.0, 1.0 / np.where(squares > 0.0, squares, 1.0), 0.0)


def evidence_of(weights: Weights, where: str = "") -> float:
    """Return the log mean weight of the one group; `where` says after what, for the error.

    Raises WeightError where all weights are zero.
    """
    (mean,) = weights.log_mean()
    if mean == -math.inf:
        raise zeros(weights.whole.shape[1], where)
    return float(mean)


def zeros(count: int, where: str) -> WeightError:
    """Return the error of particles whose weights are all zero."""
    return WeightError(
        f"all {count} weights are zero{where}",
        remedy="check the observations' supports and units, or take more particles",
    )


@cache
def _host(function: Callable[..., Any], name: str) -> tuple[Composed, Executable]:
    """Return a lane program of the host's own: NumPy's functions have other bits elsewhere."""
    composed = bare(name)
    composed.share(number=0)
    composed.buffer("f64", 1, name)
    composed.algorithm(function, name, site=-2)
    return composed, composed.executable(Options())


def _uniform(lane: Any, name: Any) -> None:
    lane.draw = lane.number
    write(name, 0, uniform())


def _exponential(lane: Any, name: Any) -> None:
    write(name, 0, exp(read(name, 0, "real")))


def uniforms(seed: int, number: int, count: int) -> Array:
    """Return numbers in (0, 1) for the host's own use, `number` tells one call from another."""
    composed, executable = _host(_uniform, "uniform")
    buffers = composed.buffers(count)
    executable.run(composed.arguments(seed, number=number), buffers, count, 1)
    return buffers["uniform"][0]


def _exp(x: Array) -> Array:
    composed, executable = _host(_exponential, "exponential")
    held = np.ascontiguousarray(x[None], np.float64)
    executable.run(composed.arguments(0), {"exponential": held}, held.shape[1])
    return held[0]


def systematic(weights: Array, uniform: float, count: int) -> Array:
    """Return `count` indices: one uniform number, equal steps through the sums."""
    sums = np.cumsum(weights)
    total = int(sums[-1])
    # The marks (k + u) total / count, in whole numbers: no float is wide enough.
    shift = int(uniform * total)
    step, rest = divmod(total, count)
    k = np.arange(count, dtype=np.int64)
    marks = k * step + (k * rest + shift) // count
    return np.searchsorted(sums, np.minimum(marks, total - 1), side="right")
