"""The meaning of norms, of `softmax` and of what is computed of it, in NumPy."""
# pyright: basic, reportCallIssue=false, reportArgumentType=false

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tawa.axon.library.windows import need

Array = Any


def mean(x: Array, axis: Any, keepdims: bool) -> Array:
    """Return the mean over axes; of nothing it is 0."""
    count = math.prod([x.shape[a] for a in axis])
    return np.sum(x, axis=axis, keepdims=keepdims) / max(count, 1)


def var(x: Array, axis: Any, keepdims: bool) -> Array:
    """Return the variance over axes, of as many items as there are."""
    return mean((x - mean(x, axis, True)) ** 2, axis, keepdims)


def softmax(x: Array, axis: int) -> Array:
    """Return exponentials over their sum, along an axis."""
    powers = np.exp(x - np.max(x, axis=axis, keepdims=True, initial=-np.inf))
    return powers / np.sum(powers, axis=axis, keepdims=True)


def log_softmax(x: Array, axis: int) -> Array:
    """Return the logarithm of `softmax`."""
    shifted = x - np.max(x, axis=axis, keepdims=True, initial=-np.inf)
    return shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True))


def normalize(x: Array, axes: tuple[int, ...], eps: float) -> Array:
    """Return x less its mean, over its standard deviation."""
    return (x - mean(x, axes, True)) / np.sqrt(var(x, axes, True) + eps)


def layer_norm(scale: Array, shift: Array, x: Array, eps: float) -> Array:
    """Return x normalized along its last axis."""
    need(x.ndim >= 1 and scale.shape == shift.shape == x.shape[-1:], "shapes")
    return normalize(x, (x.ndim - 1,), eps) * scale + shift


def rms_norm(scale: Array, x: Array, eps: float) -> Array:
    """Return x over its root mean square along its last axis."""
    need(x.ndim >= 1 and scale.shape == x.shape[-1:], "shapes")
    return x / np.sqrt(mean(x * x, (x.ndim - 1,), True) + eps) * scale


def batch_norm(mean: Array, var: Array, scale: Array, shift: Array, x: Array, eps: float) -> Array:
    """Return x normalized by statistics of its channels."""
    need(x.ndim >= 2, "rank")
    channels = x.shape[1:2]
    need(all(p.shape == channels for p in (mean, var, scale, shift)), "channels")
    spread = [p.reshape(-1, *[1] * (x.ndim - 2)) for p in (mean, var, scale, shift)]
    return (x - spread[0]) / np.sqrt(np.abs(spread[1]) + eps) * spread[2] + spread[3]


def group_norm(scale: Array, shift: Array, x: Array, groups: int, eps: float) -> Array:
    """Return x normalized over groups of its channels."""
    need(x.ndim >= 2 and scale.shape == shift.shape == x.shape[1:2], "channels")
    need(groups >= 1 and x.shape[1] % groups == 0, "groups")
    inner = x.shape[1] // groups * math.prod(x.shape[2:])
    parts = np.reshape(x, (x.shape[0], groups, inner))
    spread = [p.reshape(-1, *[1] * (x.ndim - 2)) for p in (scale, shift)]
    return normalize(parts, (2,), eps).reshape(x.shape) * spread[0] + spread[1]


def instance_norm(x: Array, eps: float) -> Array:
    """Return x normalized over all but the first two axes."""
    need(x.ndim >= 2, "rank")
    return normalize(x, tuple(range(2, x.ndim)), eps)


def global_avg_pool(x: Array) -> Array:
    """Return the mean over all but the first two axes."""
    need(x.ndim >= 2, "rank")
    return mean(x, tuple(range(2, x.ndim)), False)


def cross_entropy(x: Array, labels: Array) -> Array:
    """Return the negative log-likelihood of labels, along the last axis."""
    need(x.ndim >= 1 and labels.shape == x.shape[:-1], "shapes")
    if x.shape[-1] == 0:
        return np.zeros_like(labels, x.dtype)
    logs = log_softmax(x, -1)
    return -np.take_along_axis(logs, labels[..., None] % x.shape[-1], -1)[..., 0]
