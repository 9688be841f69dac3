"""Effective sample size and R-hat (Vehtari, Gelman, Simpson, Carpenter, Bürkner 2021)."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def over(function: Callable[[Array], float], draws: Array) -> Any:
    """Apply a diagnostic of (chains, draws) to each element of draws."""
    flat = draws.reshape(*draws.shape[:2], -1).astype(np.float64)
    found = np.array([function(flat[:, :, k]) for k in range(flat.shape[2])])
    return found.reshape(draws.shape[2:]) if draws.ndim > 2 else float(found[0])


def split(draws: Array) -> Array:
    """Return each chain as two."""
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, draws.shape[1] - half :]])


def autocovariance(draws: Array) -> Array:
    """Return the autocovariance of each chain, by the fast Fourier transform."""
    count = draws.shape[1]
    centred = draws - draws.mean(axis=1, keepdims=True)
    size = 1 << (2 * count - 1).bit_length()
    power = np.abs(np.fft.rfft(centred, size, axis=1)) ** 2
    return np.fft.irfft(power, size, axis=1)[:, :count] / count


def ess(draws: Array) -> float:
    """Return the effective sample size of the mean of (chains, draws), Geyer's sequence."""
    parts = split(np.asarray(draws, np.float64))
    chains, count = parts.shape
    if count < 4 or not np.all(np.isfinite(parts)):
        return math.nan
    covariance = autocovariance(parts)
    within = covariance[:, 0].mean() * count / (count - 1)
    variance = within * (count - 1) / count
    if chains > 1:
        variance += parts.mean(axis=1).var(ddof=1)
    if variance <= 0:
        return float(chains * count)
    rho = 1.0 - (within - covariance.mean(axis=0) * count / (count - 1)) / variance
    rho[0] = 1.0
    pairs = rho[: count // 2 * 2].reshape(-1, 2).sum(axis=1)
    negative = np.flatnonzero(pairs < 0)
    pairs = pairs[: negative[0]] if negative.size else pairs
    tau = -1.0 + 2.0 * float(np.minimum.accumulate(pairs).sum())
    total = chains * count
    return total / max(tau, 1.0 / math.log10(total))


def rhat(draws: Array) -> float:
    """Return the larger of the R-hats of ranks and of folded ranks of split chains."""
    parts = split(np.asarray(draws, np.float64))
    if parts.shape[1] < 2 or not np.all(np.isfinite(parts)):
        return math.nan
    return max(_rhat(_normal_scores(p)) for p in (parts, np.abs(parts - np.median(parts))))


def _rhat(parts: Array) -> float:
    count = parts.shape[1]
    within = parts.var(axis=1, ddof=1).mean()
    if within == 0:
        return 1.0 if parts.var() == 0 else math.inf
    between = parts.mean(axis=1).var(ddof=1) if len(parts) > 1 else 0.0
    return float(np.sqrt(((count - 1) / count * within + between) / within))


def _normal_scores(parts: Array) -> Array:
    flat = parts.reshape(-1)
    _, inverse, counts = np.unique(flat, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    inverse_cdf = NormalDist().inv_cdf
    levels, where = np.unique((ranks - 0.375) / (flat.size + 0.25), return_inverse=True)
    return np.array([inverse_cdf(p) for p in levels])[where].reshape(parts.shape)
