# ruff: noqa: N803  (the names are those of the tile language: sizes and constants in capitals)
# Kernel code is read by the compiler, not run: its values have no Python types.
# pyright: basic, reportArgumentType=false, reportOperatorIssue=false
# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false, reportReturnType=false
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false
"""Attention of few queries to many keys: the keys are split over programs, and the parts combined.

The query heads that share a head of keys are packed into the rows of one tile, so that keys and
values, which are all the traffic there is, are read once. Keys may lie in pages.
"""

from __future__ import annotations

import tawa
import tawa.language as tl
from tawa.kernels.flash_scores import LOG2_E, attend, span


@tawa.jit
def attention_split(
    q_desc, k_desc, v_desc, o_desc, lse_ptr, sink_ptr, slopes_ptr, table_ptr, lengths_ptr,
    queries, keys, kv_heads, batches, splits, factor, cap, left, right, l_split, table_step,
    k_page, k_head, k_step, v_page, v_head, v_step, dim,
    GROUP: tl.constexpr,
    PACK: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PAGE: tl.constexpr,
    GATHER: tl.constexpr,
    LENGTHS: tl.constexpr,
    LEFT: tl.constexpr,
    RIGHT: tl.constexpr,
    CAP: tl.constexpr,
    SLOPES: tl.constexpr,
    SINK: tl.constexpr,
    LSE: tl.constexpr,
    SCALE: tl.constexpr,
):  # fmt: skip
    """A part of attention; grid (splits, kv_heads * batch, blocks).

    A block has BLOCK_M / PACK queries of PACK of the GROUP heads that share a head of keys: row r
    is query r // PACK of head r % PACK; there are cdiv(queries, BLOCK_M / PACK) * cdiv(GROUP, PACK)
    blocks, those of the same queries side by side. Part s gets the s-th share of the tiles of keys,
    writes its output, normalised, as batch s * batches + batch of `o_desc`, and the log-sum-exp of
    its rows at lse_ptr + s * l_split, times SCALE (from base two). `q_desc` and `o_desc` have shape
    (batch, kv_heads, queries, GROUP, dim), the others (batch, kv_heads, keys, dim), with `PAGE`, a
    multiple of `BLOCK_N`, (pages, kv_heads, PAGE, dim): key j is row j % PAGE of the page
    table[batch, j // PAGE].
    With `GATHER`, for smaller pages, k_desc and v_desc are pointers, with strides before the last.
    `LENGTHS`: a batch has lengths_ptr[batch] keys. The other arguments are those of
    `attention_options`.
    """
    split = tl.program_id(0)
    pair = tl.program_id(1)
    block = tl.program_id(2)
    batch = pair // kv_heads
    head = pair - batch * kv_heads
    if LENGTHS:
        keys = tl.load(lengths_ptr + batch)
    if PAGE:
        table_ptr = table_ptr + batch.to(tl.int64) * table_step
    if GATHER:
        k_desc = k_desc + head.to(tl.int64) * k_head
        v_desc = v_desc + head.to(tl.int64) * v_head
    chunks = tl.cdiv(GROUP, PACK)
    lot = block // chunks
    member = (block - lot * chunks) * PACK
    first = lot * (BLOCK_M // PACK)
    packed = tl.arange(0, BLOCK_M)
    lines = first + packed // PACK
    members = member + packed % PACK
    real = (lines < queries) & (members < GROUP)
    rows = lines + keys - queries
    position = first + keys - queries
    last = tl.minimum(first + BLOCK_M // PACK, queries) - 1 + keys - queries
    low, high, whole_low, whole_high = span(position, last, keys, left, right, BLOCK_N, LEFT, RIGHT)
    share = tl.cdiv(tl.cdiv(high - low, BLOCK_N), splits) * BLOCK_N
    begin = low + split * share
    end = tl.minimum(high, begin + share)

    query_heads = head * GROUP + members
    q = q_desc.load([batch, head, first, member, 0]).reshape(BLOCK_M, HEAD_DIM)
    top = tl.full((BLOCK_M,), -1e30, tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    if SINK:
        # The logit without a value is in the first part alone.
        sink = tl.load(sink_ptr + query_heads, mask=real, other=0.0) * LOG2_E
        top = tl.where(split == 0, sink, top)
        total = tl.where(split == 0, 1.0, total)
    slopes = tl.zeros((BLOCK_M,), tl.float32)
    if SLOPES:
        slopes = tl.load(slopes_ptr + query_heads, mask=real, other=0.0) * LOG2_E
    acc = tl.zeros((BLOCK_M, HEAD_DIM), tl.float32)
    acc, total, top = attend(
        acc, total, top, q, k_desc, v_desc, table_ptr, batch, head, 0,
        begin, end, whole_low, whole_high, rows, keys, left, right, factor, cap,
        slopes, None, 0, queries, 0, k_page, k_step, v_page, v_step, dim,
        BLOCK_M, BLOCK_N, HEAD_DIM, PAGE, GATHER,
        "edge", LEFT, RIGHT, True, CAP, SLOPES, False,
    )  # fmt: skip
    acc = acc / tl.where(total > 0, total, 1.0)[:, None]
    out = acc.to(o_desc.dtype).reshape(1, 1, BLOCK_M // PACK, PACK, HEAD_DIM)
    o_desc.store([split * batches + batch, head, first, member, 0], out)
    if LSE:
        at = (batch * kv_heads * GROUP + query_heads).to(tl.int64) * queries + lines
        line = (top + tl.log2(total)) * SCALE
        tl.store(lse_ptr + split.to(tl.int64) * l_split + at, line, mask=real)


@tawa.jit
def combine_splits(
    parts_ptr, sums_ptr, out_ptr, lse_ptr, queries, heads, splits, rows, dim,
    o_batch, o_head, o_step,
    SPLITS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    LSE: tl.constexpr,
):  # fmt: skip
    """Combine the parts of each row; grid (rows,), rows = batch * heads * queries.

    `parts_ptr` f32 [splits, rows, dim] and `sums_ptr` f32 [splits, rows], in base two, rows as
    (batch, heads, queries); `SPLITS` and `HEAD_DIM` are powers of two that hold splits and dim.
    Parts without keys weigh nothing, and rows without keys become zero.
    """
    row = tl.program_id(0)
    part = tl.arange(0, SPLITS)
    columns = tl.arange(0, HEAD_DIM)
    here = part < splits
    at = (part.to(tl.int64) * rows + row)[:, None] * dim + columns[None, :]
    there = here[:, None] & (columns < dim)[None, :]
    # Before the weights are known: one latency of memory less.
    parts = tl.load(parts_ptr + at, mask=there, other=0.0)
    sums = tl.load(sums_ptr + part * rows + row, mask=here, other=float("-inf"))
    top = tl.maximum(tl.max(sums, 0), -1e30)
    weights = tl.exp2(sums - top)
    total = tl.sum(weights, 0)
    out = tl.sum(parts * weights[:, None], 0) / tl.where(total > 0, total, 1.0)
    pair = row // queries
    batch = pair // heads
    head = pair - batch * heads
    line = row - pair * queries
    place = batch.to(tl.int64) * o_batch + head.to(tl.int64) * o_head + line * o_step
    tl.store(out_ptr + place + columns, out.to(out_ptr.dtype.element_ty), mask=columns < dim)
    if LSE:
        tl.store(lse_ptr + row, (top + tl.log2(total)) * 0.6931471805599453)
