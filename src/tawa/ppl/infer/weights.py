"""Weights of particles: exact sums, systematic resampling.

A weight becomes a whole number: its share of the largest, times a power of two. Sums of whole
numbers are
exact in any order, so the number of threads and the device cannot change a bit.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from tawa.errors import WeightError
from tawa.ppl.infer.execute import Executable
from tawa.ppl.ir.core import I32, Builder, Program, Region

Array = np.ndarray[Any, Any]


def whole_weights(log_weights: Array, where: str = "") -> tuple[Array, float, int]:
    """Return weights as int64, the largest log weight, and the scale of 1.

    Weights of nan count as 0. Raises WeightError where all are 0; `where` says after what.
    """
    logs = np.asarray(log_weights, np.float64)
    finite = np.where(np.isnan(logs), -math.inf, logs)
    top = float(finite.max())
    if top == -math.inf:
        raise WeightError(
            f"all {len(logs)} weights are zero{where}",
            remedy="check the observations' supports and units, or take more particles",
        )
    scale = 1 << (62 - max(1, (len(logs) - 1).bit_length()))
    scale = min(scale, 1 << 52)
    if top == math.inf:
        return (finite == math.inf).astype(np.int64) * scale, top, scale
    return np.floor(_exp(finite - top) * scale).astype(np.int64), top, scale


@cache
def _exponential() -> Executable:
    b, body = Builder("f64"), Region()
    program = Program("weights", "f64", (), body, buffers={"x": "f64"})
    with b.inside(body):
        zero = b.const(0, I32)
        x = b.op("read", (zero,), (b.real,), name="x").result
        b.op("write", (zero, b.make("exp", x)), name="x")
    return Executable(program, "cpu")


def _exp(x: Array) -> Array:
    """Return exp by our own function: NumPy's has other last bits on other hosts."""
    held = np.ascontiguousarray(x[None])
    _exponential().run((), {"x": held}, held.shape[1])
    return held[0]


def log_mean(weights: Array, top: float, scale: int) -> float:
    """Return the log of the mean weight."""
    return top + math.log(int(weights.sum()) / scale) - math.log(len(weights))


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


def effective(weights: Array) -> float:
    """Return the effective sample size (Kong): the squared sum over the sum of squares."""
    shares = weights.astype(np.float64) / float(weights.sum())
    return float(1.0 / np.sum(shares * shares))
