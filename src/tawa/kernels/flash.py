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
def attend(
    acc,
    total,
    top,
    q,
    k_desc,
    v_desc,
    batch,
    head,
    low,
    high,
    first,
    keys,
    factor,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    MASK: tl.constexpr,
    CAUSAL: tl.constexpr,
    LIFT: tl.constexpr,
):
    """Take the keys low .. high-1 into the running (acc, total, top) of a block of queries.

    `first` is the last key that the block's first row sees under a causal mask. `MASK` is "" where
    every row sees every key, "all" where each tile is masked, "edge" where tiles are asked. Weights
    are 2 ** `LIFT` times their value: narrow types have more room above 1 than below.
    """
    for start in range(low, high, BLOCK_N):
        k = k_desc.load([batch, head, start, 0]).reshape(BLOCK_N, HEAD_DIM)
        scores = tl.dot(q, k.T)
        if MASK == "all":
            scores = hide(scores, start, first, keys, BLOCK_M, BLOCK_N, CAUSAL)
        elif MASK == "edge":  # noqa: SIM102  (one is decided at compile time, one at run time)
            if start + BLOCK_N > (first + 1 if CAUSAL else keys):
                scores = hide(scores, start, first, keys, BLOCK_M, BLOCK_N, CAUSAL)
        above = tl.maximum(top, tl.max(scores, 1) * factor)
        base = above
        if LIFT:
            base = above - LIFT
        weights = tl.exp2(scores * factor - base[:, None])
        rescale = tl.exp2(top - above)
        total = total * rescale + tl.sum(weights, 1)
        acc = acc * rescale[:, None]
        v = v_desc.load([batch, head, start, 0]).reshape(BLOCK_N, VALUE_DIM)
        acc = tl.dot(weights.to(v_desc.dtype), v, acc)
        top = above
    return acc, total, top


@tawa.jit
def hide(
    scores,
    start,
    first,
    keys,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    """Return scores with -inf for keys a row does not see: those after it, or past the end."""
    columns = start + tl.arange(0, BLOCK_N)
    if CAUSAL:
        # The rows that exist see no key past the end: row i sees those up to i + keys - queries.
        rows = first + tl.arange(0, BLOCK_M)
        visible = rows[:, None] >= columns[None, :]
    else:
        visible = columns[None, :] < keys
    return tl.where(visible, scores, float("-inf"))


@tawa.jit
def attention_forward(
    q_desc,
    k_desc,
    v_desc,
    o_desc,
    lse_ptr,
    queries,
    keys,
    heads,
    together,
    scale,
    value_scale,
    GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    CAUSAL: tl.constexpr,
    TAIL: tl.constexpr,
    SPLIT: tl.constexpr,
    LSE: tl.constexpr,
    LIFT: tl.constexpr,
):
    """O = softmax(scale * Q K^T) V.

    Grid (cdiv(queries, BLOCK_M), heads, batch), under a causal mask the product of these alone.

    Descriptors have shape (batch, heads, sequence, dim), with tiles of `HEAD_DIM` columns for q and
    k, `VALUE_DIM` for v and o; `GROUP` query heads share a head of keys.
    `CAUSAL` lets query i see keys up to i + keys - queries; rows that see no key become zero.
    `TAIL` tells that `BLOCK_N` does not divide `keys`; `SPLIT` gives the tiles that need a mask a
    loop of their own. `LSE` writes the natural logarithm of each row's sum to `lse_ptr`, float32
    [batch, heads, queries] dense, -inf for rows that see nothing. Operands of 8 bits: `LIFT` brings
    the weights into the middle of their range, `scale` contains the scales of q and k, and
    `value_scale` that of v. `together`, a divisor of
    batch * heads, is how many heads are walked side by side.
    """
    if CAUSAL:
        # Of the heads walked together, the programs with the most keys come first.
        tile = tl.program_id(0)
        blocks = tl.cdiv(queries, BLOCK_M)
        section = tile // (together * blocks)
        place = tile - section * together * blocks
        block = place // together
        pair = section * together + place - block * together
        batch = pair // heads
        head = pair - batch * heads
        block = blocks - 1 - block
    else:
        block = tl.program_id(0)
        head = tl.program_id(1)
        batch = tl.program_id(2)
        pair = batch * heads + head
    first = block * BLOCK_M
    seen = first + keys - queries
    end = keys
    if CAUSAL:
        end = tl.minimum(keys, seen + BLOCK_M)
    factor = scale * 1.4426950408889634
    q = q_desc.load([batch, head, first, 0]).reshape(BLOCK_M, HEAD_DIM)
    # Finite, so that a row all of whose scores are -inf keeps weights of zero, not NaN.
    top = tl.full((BLOCK_M,), -1e30, tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, VALUE_DIM), tl.float32)
    keep = head // GROUP
    if SPLIT:
        # Tiles that all rows see whole, then those that they see in part.
        whole = keys
        if CAUSAL:
            whole = tl.maximum(0, tl.minimum(keys, seen + 1))
        whole = whole // BLOCK_N * BLOCK_N
        acc, total, top = attend(
            acc, total, top, q, k_desc, v_desc, batch, keep, 0, whole, seen, keys, factor,
            BLOCK_M, BLOCK_N, HEAD_DIM, VALUE_DIM, "", CAUSAL, LIFT,
        )  # fmt: skip
        acc, total, top = attend(
            acc, total, top, q, k_desc, v_desc, batch, keep, whole, end, seen, keys, factor,
            BLOCK_M, BLOCK_N, HEAD_DIM, VALUE_DIM, "all", CAUSAL, LIFT,
        )  # fmt: skip
    else:
        acc, total, top = attend(
            acc, total, top, q, k_desc, v_desc, batch, keep, 0, end, seen, keys, factor,
            BLOCK_M, BLOCK_N, HEAD_DIM, VALUE_DIM, "edge" if CAUSAL or TAIL else "", CAUSAL, LIFT,
        )  # fmt: skip
    sums = tl.where(total > 0, total, 1.0)
    if LIFT:
        sums = sums / value_scale
    acc = acc / sums[:, None]
    o_desc.store([batch, head, first, 0], acc.to(o_desc.dtype).reshape(1, 1, BLOCK_M, VALUE_DIM))
    if LSE:
        rows = first + tl.arange(0, BLOCK_M)
        line = (top + tl.log2(total)) * 0.6931471805599453
        if LIFT:
            line = line - LIFT * 0.6931471805599453
        tl.store(lse_ptr + pair.to(tl.int64) * queries + rows, line, mask=rows < queries)
