"""Attention in float64 by torch's own operations, and its gradients by autograd."""

import math

import numpy as np
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
    dropout=0.0,
    rng=None,
    sequence=0,
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
        scores = scores - alibi[..., None, None] * (rows - columns).abs()
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
    weights = weights / safe
    if dropout:
        weights = weights * kept(q.shape[:2], queries, keys, dropout, rng, sequence)
    out = weights @ v.repeat_interleave(groups, 1)
    lse = torch.where(there, safe.log() + top, -math.inf)[..., 0]
    return out, lse


def philox(key, counter, rounds):
    """Philox 4x32 of uint32 counters (Salmon and others, SC 2011, section 4.3)."""
    words = [np.asarray(each, np.uint64) for each in np.broadcast_arrays(*counter)]
    for each in range(rounds):
        even, odd = words[0] * np.uint64(0xD2511F53), words[2] * np.uint64(0xCD9E8D57)
        low = (key + each * 0x9E3779B9) % 2**32
        high = ((key >> 32) + each * 0xBB67AE85) % 2**32
        words = [
            odd >> np.uint64(32) ^ words[1] ^ np.uint64(low),
            odd & np.uint64(2**32 - 1),
            even >> np.uint64(32) ^ words[3] ^ np.uint64(high),
            even & np.uint64(2**32 - 1),
        ]
    return np.stack(words)


def kept(lead, queries, keys, dropout, rng, sequence=0):
    """What dropout multiplies the weights [batch, heads, queries, keys] by."""
    batch, heads = lead
    seed, offset = (int(each) for each in rng)
    place = np.arange(batch * heads).reshape(batch, heads, 1, 1) + sequence * heads
    q, k = np.arange(queries)[:, None], np.arange(keys)[None]
    counter = q // 16 * 8 + q % 8, k // 16 * 8 + k % 8, place, offset % 2**32
    words = philox(seed % 2**64, counter, 7)
    which = np.broadcast_to(2 * (q // 8 % 2) + k // 8 % 2, words.shape[1:])
    drawn = np.take_along_axis(words, which[None], 0)[0]
    limit = round((1 - dropout) * 2**32)
    there = (drawn.astype(np.int64) + 2**31) % 2**32 < limit
    return torch.from_numpy(there / (1 - dropout))


def doubles(*arrays):
    """Return float64 copies that ask for a gradient."""
    return [each.detach().double().requires_grad_() for each in arrays]


def worst(found, expected):
    """Return the largest difference over the largest value, of all pairs."""
    return max(
        float((x.double() - y).abs().max() / y.abs().max().clamp_min(1e-30))
        for x, y in zip(found, expected, strict=True)
    )
