"""Attention in float64 by torch's own operations, and its gradients by autograd."""

import math

import torch


def attention(
    q,
    k,
    v,
    *,
    causal=False,
    window=None,
    softcap=None,
    alibi=None,
    bias=None,
    scale=None,
    sink=None,
):
    """Return (out, lse); lse of rows that see no key is -inf, and gives no gradient."""
    groups, queries, keys = q.shape[1] // k.shape[1], q.shape[2], k.shape[2]
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = q @ k.repeat_interleave(groups, 1).mT * scale
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    rows = torch.arange(queries)[:, None] + keys - queries
    columns = torch.arange(keys)[None]
    if alibi is not None:
        scores = scores - alibi[:, None, None] * (rows - columns).abs()
    if bias is not None:
        scores = scores + bias
    seen = torch.ones(queries, keys, dtype=torch.bool)
    left, right = window or (None, None)
    if causal:
        right = 0
    if left is not None:
        seen &= columns >= rows - left
    if right is not None:
        seen &= columns <= rows + right
    scores = scores.masked_fill(~seen, -math.inf)
    top = scores.detach().amax(-1, keepdim=True).clamp_min(-1e30)
    weights = (scores - top).exp()
    total = weights.sum(-1, keepdim=True)
    if sink is not None:
        total = total + (sink[:, None, None] - top).exp()
    there = total > 0
    safe = torch.where(there, total, 1.0)
    out = (weights / safe) @ v.repeat_interleave(groups, 1)
    lse = torch.where(there, safe.log() + top, -math.inf)[..., 0]
    return out, lse


def doubles(*arrays):
    """Return float64 copies that ask for a gradient."""
    return [each.detach().double().requires_grad_() for each in arrays]


def worst(found, expected):
    """Return the largest difference over the largest value, of all pairs."""
    return max(
        float((x.double() - y).abs().max() / y.abs().max().clamp_min(1e-30))
        for x, y in zip(found, expected, strict=True)
    )
