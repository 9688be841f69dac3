# ruff: noqa: N803  (the names are those of the tile language: sizes and constants in capitals)
# Kernel code is read by the compiler, not run: its values have no Python types.
# pyright: basic, reportArgumentType=false, reportOperatorIssue=false
# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false, reportReturnType=false
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false
"""Attention as an author would write it: online softmax over tiles of keys, nothing about warps.

The text uses only names of the tile language. Scores are scaled inside the exponent, in base two:
``exp2(s * c - m)`` with c = scale * log2(e) is one fused multiply-add and one exponential.
"""

from __future__ import annotations

import tawa
import tawa.language as tl


@tawa.jit
def attention_forward(
    q_desc,
    k_desc,
    v_desc,
    o_desc,
    queries,
    keys,
    scale,
    GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    CAUSAL: tl.constexpr,
    TAIL: tl.constexpr,
):
    """O = softmax(scale * Q K^T) V; grid (cdiv(queries, BLOCK_M), heads, batch).

    Descriptors have shape (batch, heads, sequence, dim); `GROUP` query heads share a head of keys.
    `CAUSAL` lets query i see keys up to i + keys - queries; rows that see no key become zero.
    `TAIL` tells that `BLOCK_N` does not divide `keys`.
    """
    # Under a causal mask the last rows see most keys: the longest programs start first.
    block = tl.program_id(0)
    if CAUSAL:
        block = tl.cdiv(queries, BLOCK_M) - 1 - block
    head = tl.program_id(1)
    batch = tl.program_id(2)
    first = block * BLOCK_M
    shift = keys - queries
    q = q_desc.load([batch, head, first, 0]).reshape(BLOCK_M, HEAD_DIM)
    # Finite, so that a row all of whose scores are -inf keeps weights of zero, not NaN.
    top = tl.full((BLOCK_M,), -1e30, tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, HEAD_DIM), tl.float32)
    factor = scale * 1.4426950408889634
    end = keys
    if CAUSAL:
        end = tl.minimum(keys, first + BLOCK_M + shift)
    for start in range(0, end, BLOCK_N):
        k = k_desc.load([batch, head // GROUP, start, 0]).reshape(BLOCK_N, HEAD_DIM)
        scores = tl.dot(q, k.T)
        if CAUSAL:
            if start + BLOCK_N > first + shift + 1:
                rows = first + shift + tl.arange(0, BLOCK_M)
                columns = start + tl.arange(0, BLOCK_N)
                scores = tl.where(rows[:, None] >= columns[None, :], scores, float("-inf"))
        elif TAIL:
            if start + BLOCK_N > keys:
                columns = start + tl.arange(0, BLOCK_N)
                scores = tl.where(columns[None, :] < keys, scores, float("-inf"))
        above = tl.maximum(top, tl.max(scores, 1) * factor)
        weights = tl.exp2(scores * factor - above[:, None])
        rescale = tl.exp2(top - above)
        total = total * rescale + tl.sum(weights, 1)
        acc = acc * rescale[:, None]
        v = v_desc.load([batch, head // GROUP, start, 0]).reshape(BLOCK_N, HEAD_DIM)
        acc = tl.dot(weights.to(v_desc.dtype), v, acc)
        top = above
    acc = acc / tl.where(total > 0, total, 1.0)[:, None]
    o_desc.store([batch, head, first, 0], acc.to(o_desc.dtype).reshape(1, 1, BLOCK_M, HEAD_DIM))
