"""The meaning of convolutions and pools in NumPy, for any number of axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from itertools import product
from typing import Any

import numpy as np

from tawa.axon.library.untyped import fixed, met, untyped

Array = Any


def each(value: int | Sequence[int], rank: int) -> tuple[int, ...]:
    """Return a number for each axis."""
    found = (value,) * rank if isinstance(value, int) else tuple(value)
    if len(found) != rank:
        raise ValueError(f"{len(found)} numbers for {rank} axes")
    return found


def need(condition: bool, what: str) -> None:
    """Raise ValueError where a condition does not hold."""
    if not condition:
        raise ValueError(what)


def _taps(
    x: Array, sizes: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[tuple[int, ...], list[tuple[tuple[int, ...], Array]]]:
    """Return the shape of the output and, for each place in the window, what it sees of x."""
    room = [n - d * (k - 1) - 1 for n, k, d in zip(x.shape[2:], sizes, dilations)]
    need(min(room, default=0) >= 0, "the window is larger than the input")
    out = tuple([r // s + 1 for r, s in zip(room, strides)])
    found: list[tuple[tuple[int, ...], Array]] = []
    for place in product(*[range(k) for k in sizes]):
        starts = [p * d for p, d in zip(place, dilations)]
        seen = [
            slice(a, a + (o - 1) * s + 1, s) for a, o, s in zip(starts, out, strides, strict=True)
        ]
        found.append((place, x[(slice(None), slice(None), *seen)]))
    return out, found


def _padded(x: Array, pads: Sequence[int], value: float = 0) -> Array:
    return np.pad(x, [(0, 0), (0, 0), *[(p, p) for p in pads]], constant_values=value)


def _of_one_type(function: Callable[..., Array]) -> Callable[..., Array]:
    """Return a function of filters and images of which one may have no element type."""

    @wraps(function)
    def apply(w: Array, x: Array, **options: Any) -> Array:
        given, loose = met((w, x), numbers=True)
        found = function(*fixed(given), **options)
        return untyped(found) if loose else found

    return apply


@_of_one_type
def conv(
    w: Array, x: Array, stride: Any, pad: Any, dilation: Any, groups: int, kernel: Any
) -> Array:
    """Return the correlation of x [n, g*c, ..] with w [k, c, ..]."""
    need(x.ndim >= 2 and w.ndim == x.ndim, "ranks")
    rank = x.ndim - 2
    strides, pads, dilations = each(stride, rank), each(pad, rank), each(dilation, rank)
    sizes = w.shape[2:]
    need(min((*strides, *dilations, *sizes), default=1) >= 1, "a number below 1")
    need(min(pads, default=0) >= 0, "a negative pad")
    need(all(a in (0, b) for a, b in zip(each(kernel, rank), sizes)), "kernel")
    need(groups >= 1 and w.shape[0] % groups == 0, "groups")
    need(x.shape[1] == groups * w.shape[1], "channels")
    out, taps = _taps(_padded(x, pads), sizes, strides, dilations)
    result = np.zeros_like(x, shape=(x.shape[0], w.shape[0], *out))
    inner, outer = w.shape[1], w.shape[0] // groups
    for place, seen in taps:
        for group in range(groups):
            part = seen[:, group * inner : (group + 1) * inner]
            rows = w[(slice(group * outer, (group + 1) * outer), slice(None), *place)]
            result[:, group * outer : (group + 1) * outer] += np.einsum(
                "nc...,kc->nk...", part, rows
            )
    return result


@_of_one_type
def conv_transpose(
    w: Array, x: Array, stride: Any, pad: Any, extra: Any, dilation: Any, groups: int
) -> Array:
    """Return the transposed convolution of x [n, c, ..] with w [c, k, ..]."""
    need(x.ndim >= 2 and w.ndim == x.ndim, "ranks")
    rank = x.ndim - 2
    strides, pads, extras = each(stride, rank), each(pad, rank), each(extra, rank)
    dilations, sizes = each(dilation, rank), w.shape[2:]
    need(min((*strides, *dilations, *sizes, *x.shape[2:]), default=1) >= 1, "a number below 1")
    need(min((*pads, *extras), default=0) >= 0, "a negative pad")
    need(all(e < max(s, d) for e, s, d in zip(extras, strides, dilations)), "extra")
    need(groups >= 1 and x.shape[1] % groups == 0 and x.shape[1] == w.shape[0], "channels")
    full = [
        (n - 1) * s + d * (k - 1) + 1 + e
        for n, s, d, k, e in zip(x.shape[2:], strides, dilations, sizes, extras)
    ]
    need(all(f - 2 * p >= 1 for f, p in zip(full, pads)), "no output is left")
    inner, outer = w.shape[0] // groups, w.shape[1]
    result = np.zeros_like(x, shape=(x.shape[0], groups * outer, *full))
    for place in product(*[range(k) for k in sizes]):
        seen = [
            slice(p * d, p * d + (n - 1) * s + 1, s)
            for p, d, n, s in zip(place, dilations, x.shape[2:], strides)
        ]
        for group in range(groups):
            part = x[:, group * inner : (group + 1) * inner]
            rows = w[(slice(group * inner, (group + 1) * inner), slice(None), *place)]
            here = (slice(None), slice(group * outer, (group + 1) * outer), *seen)
            result[here] += np.einsum("nc...,ck->nk...", part, rows)
    cut = [slice(p, f - p) for p, f in zip(pads, full)]
    return result[(slice(None), slice(None), *cut)]


def _pool(x: Array, size: Any, stride: Any, pad: Any, value: float) -> list[Array]:
    need(x.ndim >= 2, "rank")
    rank = x.ndim - 2
    sizes, strides, pads = each(size, rank), each(stride, rank), each(pad, rank)
    need(min((*sizes, *strides), default=1) >= 1, "a number below 1")
    need(all(0 <= 2 * p <= k for p, k in zip(pads, sizes)), "pad")
    return [seen for _, seen in _taps(_padded(x, pads, value), sizes, strides, (1,) * rank)[1]]


def max_pool(x: Array, size: Any, stride: Any, pad: Any) -> Array:
    """Return the greatest item of each window."""
    whole = np.issubdtype(getattr(x.dtype, "type", np.inexact), np.integer)
    least = np.iinfo(x.dtype).min if whole else -np.inf
    return np.max(np.stack(_pool(x, size, stride, pad, least)), axis=0)


def avg_pool(x: Array, size: Any, stride: Any, pad: Any) -> Array:
    """Return the mean of each window, zeros of the padding counted."""
    return np.mean(np.stack(_pool(x, size, stride, pad, 0.0)), axis=0)


def upsample(x: Array, scale: Any) -> Array:
    """Return x with each item repeated along the axes from the third on."""
    need(x.ndim >= 2, "rank")
    for axis, times in enumerate(each(scale, x.ndim - 2), 2):
        need(times >= 1, "scale")
        x = np.repeat(x, times, axis)
    return x


def unfold(x: Array, size: int, stride: int) -> Array:
    """Return the windows of the last axis."""
    need(x.ndim >= 1 and size >= 1 and stride >= 1 and x.shape[-1] >= size, "sizes")
    return np.lib.stride_tricks.sliding_window_view(x, size, -1)[..., ::stride, :]


def pixel_shuffle(x: Array, scale: int) -> Array:
    """Return [n, c*k*k, h, w] as [n, c, h*k, w*k]."""
    need(x.ndim == 4 and scale >= 1 and x.shape[1] % scale**2 == 0, "sizes")
    n, c, h, w = x.shape
    c //= scale**2
    parts = x.reshape(n, c, scale, scale, h, w).transpose(0, 1, 4, 2, 5, 3)
    return parts.reshape(n, c, h * scale, w * scale)


def pixel_unshuffle(x: Array, scale: int) -> Array:
    """Return [n, c, h*k, w*k] as [n, c*k*k, h, w]."""
    need(x.ndim == 4 and scale >= 1, "rank")
    n, c, h, w = x.shape
    need(h % scale == 0 and w % scale == 0, "sizes")
    parts = x.reshape(n, c, h // scale, scale, w // scale, scale).transpose(0, 1, 3, 5, 2, 4)
    return parts.reshape(n, c * scale**2, h // scale, w // scale)
