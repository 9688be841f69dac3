"""What `tawa trace` needs: data for arguments given as text, and how busy each track was."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tawa.simulator.trace import Span, Trace


def filled(given: Mapping[str, Any], seed: int = 0) -> dict[str, Any]:
    """Return arguments with placeholders, also those of descriptors, as NumPy arrays of small
    integers from 0 to 3.
    """
    import numpy as np

    random = np.random.default_rng(seed)
    return {name: _filled(value, random) for name, value in given.items()}


def _filled(value: Any, random: Any) -> Any:
    import numpy as np

    from tawa.runtime.arrays import Placeholder
    from tawa.runtime.descriptors import copy_of, is_descriptor
    from tawa.runtime.dtypes import numpy_dtype

    if is_descriptor(value):
        base = _filled(value.base, random)
        return copy_of(value).of(base)
    if not isinstance(value, Placeholder):
        return value
    dtype: Any = numpy_dtype(value.dtype)
    size = np.dtype(dtype).itemsize
    last = sum((extent - 1) * step for extent, step in zip(value.shape, value.strides))
    memory = random.integers(0, 4, last + 1 if all(value.shape) else 0).astype(dtype)
    # Words of the same size: NumPy cannot take strides of every dtype of ml_dtypes.
    words = memory.view(f"u{size}")
    steps = tuple(step * size for step in value.strides)
    return np.lib.stride_tricks.as_strided(words, value.shape, steps).view(dtype)


def busy(trace: Trace) -> dict[str, dict[str, float]]:
    """Return for each track of each block how many ns it works and waits: {"work", "wait"}."""
    tracks: dict[str, list[Span]] = defaultdict(list)
    for span in trace.spans:
        tracks[f"{span.block}: {span.track}"].append(span)
    return {
        name: {
            "work": _covered([span for span in spans if not span.waits]),
            "wait": _covered([span for span in spans if span.waits]),
        }
        for name, spans in tracks.items()
    }


def _covered(spans: list[Span]) -> float:
    """Return how long at least one of `spans` lasts: copies in flight overlap."""
    total, reached = 0.0, 0.0
    for span in sorted(spans, key=lambda each: each.start):
        total += max(0.0, span.end - max(span.start, reached))
        reached = max(reached, span.end)
    return total
