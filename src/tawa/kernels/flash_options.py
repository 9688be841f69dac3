# ruff: noqa: N803  (the names are those of the tile language: sizes and constants in capitals)
# Kernel code is read by the compiler, not run: its values have no Python types.
# pyright: basic, reportArgumentType=false, reportOperatorIssue=false
# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false, reportReturnType=false
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false
"""Attention with options, dense or packed: window, soft cap, ALiBi, bias, sink, sequence lengths.

An option that is off costs nothing: it is a constant, and its statements are not compiled.
"""

from __future__ import annotations

import tawa
import tawa.language as tl
from tawa.kernels.flash_scores import LOG2_E, attend, span


@tawa.jit
def attention_options(
    q_desc, k_desc, v_desc, o_desc, o_ptr, lse_ptr, sink_ptr, slopes_ptr, bias_ptr,
    tiles_ptr, q_starts_ptr, k_starts_ptr,
    queries, keys, heads, tiles, factor, cap, left, right,
    bias_batch, bias_head, bias_step, o_head, o_step, lse_step, dim,
    GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    SPLIT: tl.constexpr,
    LEFT: tl.constexpr,
    RIGHT: tl.constexpr,
    TAIL: tl.constexpr,
    CAP: tl.constexpr,
    SLOPES: tl.constexpr,
    BIAS: tl.constexpr,
    SINK: tl.constexpr,
    PACKED: tl.constexpr,
    LSE: tl.constexpr,
):  # fmt: skip
    """O = softmax(scores) V; grid (tiles * heads * batch,), `tiles` blocks of queries a head.

    Descriptors have shape (batch, heads, sequence, dim); `GROUP` query heads share a head of keys.
    `factor` takes products of queries and keys to scores in base two, with `CAP` to the exponent
    2 x / log(2) of tanh(x), and `cap` then to scores in base two. Query i stands at the position
    i + keys - queries: with `LEFT` it sees at most `left` keys before it, with `RIGHT` at most
    `right` after it. `sink_ptr` f32 [heads]: a logit without a value; `slopes_ptr` f32 [heads]:
    minus this times the distance is added; `bias_ptr`: added, with strides and contiguous rows.
    `PACKED`: sequences lie one after the other, sequence s from starts_ptr[s] on, batch is 1, and
    tile t is block tiles_ptr[2 t + 1] of sequence tiles_ptr[2 t], none if that is negative.
    """
    tile = tl.program_id(0)
    pair = tile // tiles
    entry = tile - pair * tiles
    batch = pair // heads
    head = pair - batch * heads
    q_start = 0
    k_start = 0
    if PACKED:
        sequence = tl.load(tiles_ptr + 2 * entry)
        block = tl.load(tiles_ptr + 2 * entry + 1)
        q_start = tl.load(q_starts_ptr + sequence)
        k_start = tl.load(k_starts_ptr + sequence)
        queries = tl.load(q_starts_ptr + sequence + 1) - q_start
        keys = tl.load(k_starts_ptr + sequence + 1) - k_start
        if block < 0:
            queries = 0
            keys = 0
            block = 0
    elif RIGHT:
        block = tiles - 1 - entry  # the longest first
    else:
        block = entry
    first = block * BLOCK_M
    position = first + keys - queries
    rows = position + tl.arange(0, BLOCK_M)
    low, high, whole_low, whole_high = span(
        position, position + BLOCK_M - 1, keys, left, right, BLOCK_N, LEFT, RIGHT
    )
    q = q_desc.load([batch, head, q_start + first, 0]).reshape(BLOCK_M, HEAD_DIM)
    # Finite, so that a row all of whose scores are -inf keeps weights of zero, not NaN.
    top = tl.full((BLOCK_M,), -1e30, tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    if SINK:
        top = tl.zeros((BLOCK_M,), tl.float32) + tl.load(sink_ptr + head) * LOG2_E
        total = total + 1.0
    acc = tl.zeros((BLOCK_M, HEAD_DIM), tl.float32)
    keep = head // GROUP
    slopes = tl.zeros((BLOCK_M,), tl.float32)
    if SLOPES:
        slopes = slopes + tl.load(slopes_ptr + head) * LOG2_E
    if BIAS:
        bias_ptr = bias_ptr + batch.to(tl.int64) * bias_batch + head.to(tl.int64) * bias_head
    if SPLIT:
        if LEFT:
            acc, total, top = attend(
                acc, total, top, q, k_desc, v_desc, None, batch, keep, k_start,
                low, whole_low, whole_low, whole_high, rows, keys, left, right, factor, cap,
                slopes, bias_ptr, bias_step, queries, first, 0, 0, 0, 0, dim,
                BLOCK_M, BLOCK_N, HEAD_DIM, 0, False, "all", LEFT, RIGHT, TAIL, CAP, SLOPES, BIAS,
            )  # fmt: skip
        acc, total, top = attend(
            acc, total, top, q, k_desc, v_desc, None, batch, keep, k_start,
            whole_low, whole_high, whole_low, whole_high, rows, keys, left, right, factor, cap,
            slopes, bias_ptr, bias_step, queries, first, 0, 0, 0, 0, dim,
            BLOCK_M, BLOCK_N, HEAD_DIM, 0, False, "", LEFT, RIGHT, TAIL, CAP, SLOPES, BIAS,
        )  # fmt: skip
        acc, total, top = attend(
            acc, total, top, q, k_desc, v_desc, None, batch, keep, k_start,
            whole_high, high, whole_low, whole_high, rows, keys, left, right, factor, cap,
            slopes, bias_ptr, bias_step, queries, first, 0, 0, 0, 0, dim,
            BLOCK_M, BLOCK_N, HEAD_DIM, 0, False, "all", LEFT, RIGHT, TAIL, CAP, SLOPES, BIAS,
        )  # fmt: skip
    else:
        acc, total, top = attend(
            acc, total, top, q, k_desc, v_desc, None, batch, keep, k_start,
            low, high, whole_low, whole_high, rows, keys, left, right, factor, cap,
            slopes, bias_ptr, bias_step, queries, first, 0, 0, 0, 0, dim,
            BLOCK_M, BLOCK_N, HEAD_DIM, 0, False,
            "edge" if LEFT or RIGHT or TAIL else "", LEFT, RIGHT, TAIL, CAP, SLOPES, BIAS,
        )  # fmt: skip
    out = acc / tl.where(total > 0, total, 1.0)[:, None]
    lines = first + tl.arange(0, BLOCK_M)
    if PACKED:
        # By pointers: the last block of a sequence must not write into the next one.
        columns = tl.arange(0, HEAD_DIM)
        at = o_ptr + head.to(tl.int64) * o_head + q_start.to(tl.int64) * o_step
        there = (lines[:, None] < queries) & (columns[None, :] < dim)
        out = out.to(o_ptr.dtype.element_ty)
        tl.store(at + lines[:, None] * o_step + columns[None, :], out, mask=there)
    else:
        out = out.to(o_desc.dtype).reshape(1, 1, BLOCK_M, HEAD_DIM)
        o_desc.store([batch, head, first, 0], out)
    if LSE:
        line = (top + tl.log2(total)) * 0.6931471805599453
        at = lse_ptr + pair.to(tl.int64) * lse_step + q_start
        tl.store(at + lines, line, mask=lines < queries)


@tawa.jit
def list_tiles(
    starts_ptr, tiles_ptr, count, tiles,
    BLOCK_M: tl.constexpr,
    ALL: tl.constexpr,
    CHUNK: tl.constexpr,
):  # fmt: skip
    """Write (sequence, block) of each tile of packed sequences; grid (count + 1,).

    `tiles_ptr` int32 [tiles, 2]; what no sequence needs becomes (0, -1). `ALL` > count is a power
    of two. The last blocks, the longest under a causal mask, come first in each sequence.
    """
    sequence = tl.program_id(0)
    every = tl.arange(0, ALL)
    here = every < count
    begin = tl.load(starts_ptr + every, mask=here, other=0)
    end = tl.load(starts_ptr + every + 1, mask=here, other=0)
    blocks = tl.cdiv(end - begin, BLOCK_M)
    before = tl.sum(tl.where(every < sequence, blocks, 0), 0)
    own = tl.sum(tl.where(every == sequence, blocks, 0), 0)
    if sequence == count:
        own = tiles - before
    for at in range(0, own, CHUNK):
        place = at + tl.arange(0, CHUNK)
        number = own - 1 - place
        which = sequence + tl.zeros((CHUNK,), tl.int32)
        if sequence == count:
            number = tl.zeros((CHUNK,), tl.int32) - 1
            which = tl.zeros((CHUNK,), tl.int32)
        target = tiles_ptr + 2 * (before + place)
        tl.store(target, which, mask=place < own)
        tl.store(target + 1, number, mask=place < own)
