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
from tawa.kernels.flash_scores import LOG2_E, attend, named_pages, span


@tawa.jit
def attention_split(
    q_desc, k_desc, v_desc, o_desc, o_ptr, lse_ptr, parts_ptr, sums_ptr, count_ptr,
    sink_ptr, slopes_ptr, table_ptr, lengths_ptr, pads_ptr, tiles_ptr, q_starts_ptr,
    queries, keys, kv_heads, splits, factor, cap, left, right, slopes_step, table_step,
    o_batch, o_head, o_step, k_page, k_head, k_step, v_page, v_head, v_step, dim, places,
    GROUP: tl.constexpr,
    PACK: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    PAGE: tl.constexpr,
    GATHER: tl.constexpr,
    LENGTHS: tl.constexpr,
    PADS: tl.constexpr,
    PACKED: tl.constexpr,
    LEFT: tl.constexpr,
    RIGHT: tl.constexpr,
    CAP: tl.constexpr,
    SLOPES: tl.constexpr,
    SINK: tl.constexpr,
    LSE: tl.constexpr,
    ROWS: tl.constexpr,
    CHUNK: tl.constexpr,
):  # fmt: skip
    """Attention of few queries; grid (splits, kv_heads * batch, blocks).

    A block has BLOCK_M / PACK queries of PACK of the GROUP heads that share a head of keys: row r
    is query r // PACK of head r % PACK; there are cdiv(queries, BLOCK_M / PACK) * cdiv(GROUP, PACK)
    blocks, those of the same queries side by side. Part s gets the s-th share of the tiles of keys.
    `q_desc` and `o_desc` have shape (batch, kv_heads, queries, GROUP, dim), the others (batch,
    kv_heads, keys, dim), with `PAGE`, a multiple of `BLOCK_N`, (pages, kv_heads, PAGE, dim): key j
    is row j % PAGE of the page table[batch, j // PAGE].
    There are `places` pages. With `GATHER`, for smaller ones, k_desc and v_desc are pointers, with
    strides before the last. Where there is one page a batch, it may have any number of rows.
    `LENGTHS`: the keys of a batch end at row lengths_ptr[batch], of those there are; `PADS`: they
    begin at row pads_ptr[batch], for which there are no more than one page.
    `PACKED`: the queries of batch b lie from row q_starts_ptr[b] on, of one batch of q; grid
    (splits, kv_heads, tiles * cdiv(GROUP, PACK)), and `tiles_ptr` is that of `attention_options`,
    for blocks of BLOCK_M / PACK queries.
    `ROWS`, not 0 where there are several parts: so many rows of a block, a power of two, hold
    queries. A part leaves its rows, normalised, in `parts_ptr`, f32 [kv_heads * batch * blocks,
    splits, ROWS, VALUE_DIM], their log-sum-exp in base two in `sums_ptr`, f32 of that shape but the
    last; the last to come, by `count_ptr`, int32 zeros, then puts `CHUNK` parts together at a time.
    The other arguments are those of `attention_options`.
    """
    split = tl.program_id(0)
    pair = tl.program_id(1)
    block = tl.program_id(2)
    batch = pair // kv_heads
    head = pair - batch * kv_heads
    cache = batch  # whose keys these are
    lines_of_head = queries
    q_start = 0
    base = 0
    if PACKED:
        entry = block // tl.cdiv(GROUP, PACK)
        cache = tl.load(tiles_ptr + 2 * entry)
        own = tl.load(tiles_ptr + 2 * entry + 1)
        q_start = tl.load(q_starts_ptr + cache)
        queries = tl.load(q_starts_ptr + cache + 1) - q_start
        queries = tl.where(own < 0, 0, queries)
    if LENGTHS:
        keys = tl.maximum(0, tl.minimum(tl.load(lengths_ptr + cache), keys)).to(tl.int32)
    if PADS:
        base = tl.maximum(0, tl.minimum(tl.load(pads_ptr + cache), keys)).to(tl.int32)
        keys = keys - base
    if PACKED:
        keys = tl.where(own < 0, 0, keys)
    if PAGE:
        table_ptr = table_ptr + cache.to(tl.int64) * table_step
    if GATHER:
        k_desc = k_desc + head.to(tl.int64) * k_head
        v_desc = v_desc + head.to(tl.int64) * v_head
    chunks = tl.cdiv(GROUP, PACK)
    lot = block // chunks
    member = (block - lot * chunks) * PACK
    if PACKED:
        lot = tl.maximum(own, 0)
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
    if GATHER:
        factor = tl.where(named_pages(table_ptr, begin, end, places, PAGE), factor, float("nan"))

    query_heads = head * GROUP + members
    q = q_desc.load([batch, head, q_start + first, member, 0]).reshape(BLOCK_M, HEAD_DIM)
    top = tl.full((BLOCK_M,), -1e30, tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    if SINK:
        # The logit without a value is in the first part alone.
        sink = tl.load(sink_ptr + query_heads, mask=real, other=0.0) * LOG2_E
        top = tl.where(split == 0, sink, top)
        total = tl.where(split == 0, 1.0, total)
    # Rows that are not there weigh nothing: zeros cost the tensor cores less power than ones.
    top = tl.where(real, top, 1e30)
    slopes = tl.zeros((BLOCK_M,), tl.float32)
    if SLOPES:
        at = slopes_ptr + cache * slopes_step + query_heads
        slopes = tl.load(at, mask=real, other=0.0) * LOG2_E
    acc = tl.zeros((BLOCK_M, VALUE_DIM), tl.float32)
    acc, total, top = attend(
        acc, total, top, q, k_desc, v_desc, table_ptr, cache, head, base,
        begin, end, whole_low, whole_high, rows, keys, left, right, factor, cap,
        slopes, None, 0, queries, 0, k_page, k_step, v_page, v_step, dim,
        places, None, 0, 0, BLOCK_M, BLOCK_N, HEAD_DIM, VALUE_DIM, PAGE, GATHER,
        "edge", LEFT, RIGHT, True, CAP, SLOPES, False, False,
    )  # fmt: skip
    acc = acc / tl.where(total > 0, total, 1.0)[:, None]
    line = top + tl.log2(total)
    heads_before = batch * kv_heads * GROUP
    if ROWS:
        place = pair * tl.num_programs(2) + block
        before = place.to(tl.int64) * splits * ROWS
        mine = before + split * ROWS
        # Only the rows there are: where they end, the descriptor does.
        part = tl.make_tensor_descriptor(
            parts_ptr + mine * VALUE_DIM, [ROWS, VALUE_DIM], [VALUE_DIM, 1], [BLOCK_M, VALUE_DIM]
        )
        part.store([0, 0], acc)
        tl.store(sums_ptr + mine + packed, line, mask=packed < ROWS)
        count = tl.atomic_add(count_ptr + place, 1)
        if count == splits - 1:
            some = tl.arange(0, ROWS)
            out, whole = combine(
                parts_ptr + before * VALUE_DIM, sums_ptr + before, splits, ROWS, CHUNK, VALUE_DIM
            )
            its_line = first + some // PACK
            its_member = member + some % PACK
            its_head = head * GROUP + its_member
            there = (its_line < queries) & (its_member < GROUP)
            columns = tl.arange(0, VALUE_DIM)
            its_place = q_start + its_line
            at = batch.to(tl.int64) * o_batch + its_head.to(tl.int64) * o_head + its_place * o_step
            tl.store(
                o_ptr + at[:, None] + columns[None, :], out.to(o_ptr.dtype.element_ty),
                mask=there[:, None] & (columns < dim)[None, :],
            )  # fmt: skip
            if LSE:
                at = (heads_before + its_head).to(tl.int64) * lines_of_head + its_place
                tl.store(lse_ptr + at, whole * 0.6931471805599453, mask=there)
            tl.store(count_ptr + place, 0)
    else:
        if PACKED:  # a descriptor would store the rows past the end too, which are another's
            columns = tl.arange(0, VALUE_DIM)
            at = query_heads.to(tl.int64) * o_head + (q_start + lines) * o_step
            tl.store(
                o_ptr + at[:, None] + columns[None, :], acc.to(o_ptr.dtype.element_ty),
                mask=real[:, None] & (columns < dim)[None, :],
            )  # fmt: skip
        else:
            out = acc.to(o_desc.dtype).reshape(1, 1, BLOCK_M // PACK, PACK, VALUE_DIM)
            o_desc.store([batch, head, first, member, 0], out)
        if LSE:
            at = (heads_before + query_heads).to(tl.int64) * lines_of_head + q_start + lines
            tl.store(lse_ptr + at, line * 0.6931471805599453, mask=real)


@tawa.jit
def combine(
    parts_ptr, sums_ptr, splits,
    ROWS: tl.constexpr,
    CHUNK: tl.constexpr,
    HEAD_DIM: tl.constexpr,
):  # fmt: skip
    """Return (out, lse in base two) of `ROWS` rows whose keys were dealt out over parts.

    Parts without keys weigh nothing, and rows without keys become zero.
    """
    rows = tl.arange(0, ROWS)
    columns = tl.arange(0, HEAD_DIM)
    top = tl.full((ROWS,), -1e30, tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    out = tl.zeros((ROWS, HEAD_DIM), tl.float32)
    for start in range(0, splits, CHUNK):
        part = start + tl.arange(0, CHUNK)
        at = part[:, None] * ROWS + rows[None, :]
        places = at[:, :, None] * HEAD_DIM + columns[None, None, :]
        # Before the weights are known: one latency of memory less.
        parts = tl.load(parts_ptr + places, mask=(part < splits)[:, None, None], other=0.0)
        sums = tl.load(sums_ptr + at, mask=(part < splits)[:, None], other=float("-inf"))
        above = tl.maximum(top, tl.max(sums, 0))
        weights = tl.exp2(sums - above[None, :])
        rescale = tl.exp2(top - above)
        total = total * rescale + tl.sum(weights, 0)
        out = out * rescale[:, None] + tl.sum(parts * weights[:, :, None], 0)
        top = above
    return out / tl.where(total > 0, total, 1.0)[:, None], top + tl.log2(total)
