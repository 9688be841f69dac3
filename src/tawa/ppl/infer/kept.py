"""From the kept memory of lanes to draws by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tawa.ppl.emit.machine import STORED
from tawa.ppl.frontend.values import rebuild
from tawa.ppl.ir.core import BOOL
from tawa.ppl.passes.handle import VALUE, Kept, Layout

Array = np.ndarray[Any, Any]


def unpack(layout: Layout, template: Any, words: Array) -> tuple[dict[str, Array], Any]:
    """Return the draws by name, and the value, of kept words (draws, words of one, lanes).

    Reals are views of these, in which lanes lie side by side. A site that the model returns and
    its value are the same numbers, so that nobody may write to one.
    """
    named: dict[str, Array] = {}
    values: list[Array] = []
    for title, kept in layout.places.items():
        array = _take(kept, words)
        if title == VALUE or title.startswith(f"{VALUE}."):
            values.append(array)
        else:
            named[title] = array
    return named, rebuild(template, values) if layout.wants(VALUE) else None


@dataclass(frozen=True, slots=True)
class Moments:
    """Mean and variance of each chain's draws: arrays (chains, ...)."""

    mean: Array
    variance: Array
    draws: int

    @property
    def rhat(self) -> Array:
        """R-hat of whole chains (Gelman and Rubin 1992), one an element."""
        within, n = self.variance.mean(0), self.draws
        between = self.mean.var(0, ddof=1)
        return np.sqrt((n - 1) / n + between / within)


def moments(layout: Layout, mean: Array, square: Array, draws: int) -> dict[str, Moments]:
    """Return means and variances by name, of the rows of `accumulate`."""
    made: dict[str, Moments] = {}
    for title, kept in layout.places.items():
        rows = slice(kept.start, kept.start + kept.size)
        shape = (mean.shape[1], *kept.shape)
        variance = square[rows] / max(1, draws - 1)
        made[title] = Moments(mean[rows].T.reshape(shape), variance.T.reshape(shape), draws)
    return made


def _take(kept: Kept, words: Array) -> Array:
    part = words[:, kept.start : kept.start + kept.size]
    if kept.type.is_float:
        part = part.view(STORED[kept.type.kind])
    else:
        part = part.astype(bool if kept.type.kind == BOOL.kind else np.int32, copy=False)
    array = np.moveaxis(part, 2, 0).reshape(part.shape[2], part.shape[0], *kept.shape)
    array.flags.writeable = False
    return array
