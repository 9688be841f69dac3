"""From the kept memory of lanes to draws by name."""

from __future__ import annotations

from typing import Any

import numpy as np

from tawa.ppl.frontend.values import rebuild
from tawa.ppl.ir.core import BOOL
from tawa.ppl.passes.handle import VALUE, Kept, Layout

Array = np.ndarray[Any, Any]


def unpack(
    layout: Layout, template: Any, real: Array, whole: Array
) -> tuple[dict[str, Array], Any]:
    """Return the draws by name, and the value; `real` and `whole` are (draws, slots, lanes)."""
    named: dict[str, Array] = {}
    values: list[Array] = []
    for title, kept in layout.places.items():
        array = _take(kept, real if kept.type.is_float else whole)
        if title == VALUE or title.startswith(f"{VALUE}."):
            values.append(array)
        else:
            named[title] = array
    return named, rebuild(template, values) if layout.wants(VALUE) else None


def _take(kept: Kept, source: Array) -> Array:
    part = source[:, kept.start : kept.start + kept.size]
    moved = np.moveaxis(part, 2, 0)
    array = np.ascontiguousarray(moved).reshape(moved.shape[0], moved.shape[1], *kept.shape)
    return array.astype(bool) if kept.type.kind == BOOL.kind else array
