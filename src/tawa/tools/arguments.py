"""Reading arguments for a kernel from a command line: placeholders, descriptors and numbers.

a=bf16[8192,4096]            an array of that shape and element type, without data
a=bf16[8192,4096]/t          the same stored transposed (strides 1, 8192)
a=bf16[8192,4096]:128x64     a host descriptor of it with blocks of 128 x 64
K=4096  eps=1e-5  TRANS=True  ACTIVATION='silu'  bias=None

What `tawa trace` needs: data for arguments given as text, and how busy each track was.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tawa.errors import ArgumentError

if TYPE_CHECKING:
    from tawa.simulator.trace import Span, Trace


_ARRAY = re.compile(r"([a-z][a-z0-9_]*)\[([\d,x ]*)\](/t)?(?::([\dx]+))?", re.IGNORECASE)


def read_arguments(texts: Iterable[str]) -> dict[str, Any]:
    """Return the arguments that ``name=value`` texts spell.

    Raises `ArgumentError` for a text that is none of the forms above.
    """
    found: dict[str, Any] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name.isidentifier():
            raise ArgumentError(f"{text!r} is no argument", remedy="write NAME=VALUE")
        found[name] = read_value(value.strip())
    return found


def read_value(text: str) -> Any:
    """Return the value one text spells."""
    if (match := _ARRAY.fullmatch(text)) is not None:
        return _array(*match.groups())
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        raise ArgumentError(
            f"{text!r} is no value",
            why="it is neither an array (bf16[128,64]) nor a Python number, word or string",
            remedy="quote strings: ACTIVATION=\"'silu'\"",
        ) from None


def _array(dtype: str, extents: str, transposed: str | None, block: str | None) -> Any:
    from tawa.runtime.arrays import array
    from tawa.runtime.descriptors import TensorDescriptor

    shape = tuple(int(extent) for extent in re.split(r"[,x]", extents) if extent.strip())
    if transposed:
        outer = shape[-2] if len(shape) > 1 else 1
        placeholder = array(shape, dtype, strides=_transposed_strides(shape, outer))
    else:
        placeholder = array(shape, dtype)
    if block is None:
        return placeholder
    return TensorDescriptor.from_tensor(placeholder, [int(size) for size in block.split("x")])


def _transposed_strides(shape: tuple[int, ...], rows: int) -> tuple[int, ...]:
    """Return the strides of a batch of matrices each stored by columns."""
    if len(shape) < 2:
        return (1,) * len(shape)
    strides = [1, rows]
    step = rows * shape[-1]
    for extent in reversed(shape[:-2]):
        strides.insert(0, step)
        step *= extent
    return tuple(strides)


# --- what a trace needs ---------------------------------------------------------------------------


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
