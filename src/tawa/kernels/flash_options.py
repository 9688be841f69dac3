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
    tiles_ptr, q_starts_ptr, k_starts_ptr, rng_ptr,
    queries, keys, heads, tiles, together, factor, cap, left, right, slopes_step,
    limit, kept_scale, bias_batch, bias_head, bias_step, o_head, o_step, lse_step, dim,
    GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    SPLIT: tl.constexpr,
    LEFT: tl.constexpr,
    RIGHT: tl.constexpr,
    TAIL: tl.constexpr,
    CAP: tl.constexpr,
    SLOPES: tl.constexpr,
    BIAS: tl.constexpr,
    SINK: tl.constexpr,
    DROPOUT: tl.constexpr,
    PACKED: tl.constexpr,
    LSE: tl.constexpr,
):  # fmt: skip
    """O = softmax(scores) V; grid (tiles * heads * batch,), `tiles` blocks of queries a head.

    Descriptors have shape (batch, heads, sequence, dim), with tiles of `HEAD_DIM` columns for q and
    k, `VALUE_DIM` for v and o; `GROUP` query heads share a head of keys. `dim` is the output's.
    `factor` takes products of queries and keys to scores in base two, with `CAP` to the exponent
    2 x / log(2) of tanh(x), and `cap` then to scores in base two. Query i stands at the position
    i + keys - queries: with `LEFT` it sees at most `left` keys before it, with `RIGHT` at most
    `right` after it. `sink_ptr` f32 [heads]: a logit without a value; `slopes_ptr` f32 [heads]:
    minus this times the distance is added, batches (with `PACKED` sequences) `slopes_step` apart;
    `bias_ptr`: added, with strides and contiguous rows.
    `PACKED`: sequences lie one after the other, sequence s from starts_ptr[s] on, batch is 1, and
    tile t is block tiles_ptr[2 t + 1] of sequence tiles_ptr[2 t], none if that is negative; the
    output is `o_ptr`, `lse_step` rows in all. `together`, a divisor of heads * batch: of so many
    heads tiles come in one order, with `RIGHT`. `DROPOUT`: weights that `flash_scores.kept`
    does not leave are zero, others `kept_scale` times theirs; `rng_ptr` int64 [2]: seed, offset.
    """
    if PACKED:
        # Place (e, h, r) is row e + r - BLOCK_M of the output: rows of a tile that ends at e.
        o_desc = tl.make_tensor_descriptor(
            o_ptr - BLOCK_M * o_step, [lse_step + 1, heads, BLOCK_M, dim],
            [o_step, o_head, o_step, 1], [1, 1, BLOCK_M, VALUE_DIM],
        )  # fmt: skip
    tile = tl.program_id(0)
    if RIGHT:
        # Of the heads walked together, the programs with the most keys come first.
        section = tile // (together * tiles)
        place = tile - section * together * tiles
        entry = place // together
        pair = section * together + place - entry * together
    else:
        pair = tile // tiles
        entry = tile - pair * tiles
    batch = pair // heads
    head = pair - batch * heads
    sequence = batch
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
    acc = tl.zeros((BLOCK_M, VALUE_DIM), tl.float32)
    keep = head // GROUP
    slopes = tl.zeros((BLOCK_M,), tl.float32)
    if SLOPES:
        slopes = slopes + tl.load(slopes_ptr + sequence * slopes_step + head) * LOG2_E
    if BIAS:
        bias_ptr = bias_ptr + batch.to(tl.int64) * bias_batch + head.to(tl.int64) * bias_head
    rng = None
    place = 0
    if DROPOUT:
        rng = (tl.load(rng_ptr), tl.load(rng_ptr + 1))
        place = sequence * heads + head
    if SPLIT:
        if LEFT:
            acc, total, top = attend(
                acc, total, top, q, k_desc, v_desc, None, batch, keep, k_start,
                low, whole_low, whole_low, whole_high, rows, keys, left, right, factor, cap,
                slopes, bias_ptr, bias_step, queries, first, 0, 0, 0, 0, dim, 0, rng, place, limit,
                BLOCK_M, BLOCK_N, HEAD_DIM, VALUE_DIM, 0, False, "all",
                LEFT, RIGHT, TAIL, CAP, SLOPES, BIAS, DROPOUT,
            )  # fmt: skip
        acc, total, top = attend(
            acc, total, top, q, k_desc, v_desc, None, batch, keep, k_start,
            whole_low, whole_high, whole_low, whole_high, rows, keys, left, right, factor, cap,
            slopes, bias_ptr, bias_step, queries, first, 0, 0, 0, 0, dim, 0, rng, place, limit,
            BLOCK_M, BLOCK_N, HEAD_DIM, VALUE_DIM, 0, False, "",
            LEFT, RIGHT, TAIL, CAP, SLOPES, BIAS, DROPOUT,
        )  # fmt: skip
        acc, total, top = attend(
            acc, total, top, q, k_desc, v_desc, None, batch, keep, k_start,
            whole_high, high, whole_low, whole_high, rows, keys, left, right, factor, cap,
            slopes, bias_ptr, bias_step, queries, first, 0, 0, 0, 0, dim, 0, rng, place, limit,
            BLOCK_M, BLOCK_N, HEAD_DIM, VALUE_DIM, 0, False, "all",
            LEFT, RIGHT, TAIL, CAP, SLOPES, BIAS, DROPOUT,
        )  # fmt: skip
    else:
        acc, total, top = attend(
            acc, total, top, q, k_desc, v_desc, None, batch, keep, k_start,
            low, high, whole_low, whole_high, rows, keys, left, right, factor, cap,
            slopes, bias_ptr, bias_step, queries, first, 0, 0, 0, 0, dim, 0, rng, place, limit,
            BLOCK_M, BLOCK_N, HEAD_DIM, VALUE_DIM, 0, False,
            "edge" if LEFT or RIGHT or TAIL else "", LEFT, RIGHT, TAIL, CAP, SLOPES, BIAS, DROPOUT,
        )  # fmt: skip
    out = acc / tl.where(total > 0, total, 1.0)[:, None]
    if DROPOUT:
        out = out * kept_scale
    tile_out = out.to(o_desc.dtype).reshape(1, 1, BLOCK_M, VALUE_DIM)
    if PACKED:
        # Rows past the sequence's end are the next one's: they fall out of the third axis.
        real = tl.minimum(tl.maximum(queries - first, 0), BLOCK_M)
        o_desc.store([q_start + first + real, head, BLOCK_M - real, 0], tile_out)
    else:
        o_desc.store([batch, head, first, 0], tile_out)
    if LSE:
        line = (top + tl.log2(total)) * 0.6931471805599453
        at = lse_ptr + pair.to(tl.int64) * lse_step + q_start
        lines = first + tl.arange(0, BLOCK_M)
        tl.store(at + lines, line, mask=lines < queries)


@tawa.jit
def list_tiles(
    q_starts_ptr, k_starts_ptr, tiles_ptr, count, tiles,
    BLOCK_M: tl.constexpr,
    RIGHT: tl.constexpr,
    ALL: tl.constexpr,
    CHUNK: tl.constexpr,
):  # fmt: skip
    """Write (sequence, block) of each tile of packed sequences; grid (count + 1,).

    `tiles_ptr` int32 [tiles, 2]; what no sequence needs becomes (0, -1). `ALL` > count is a power
    of two. Tiles come in the order of the keys they see, the most first: those of their sequence,
    with `RIGHT` those up to the block's last query.
    """
    sequence = tl.program_id(0)
    every = tl.arange(0, ALL)
    here = every < count
    q_begin = tl.load(q_starts_ptr + every, mask=here, other=0)
    q_end = tl.load(q_starts_ptr + every + 1, mask=here, other=0)
    k_begin = tl.load(k_starts_ptr + every, mask=here, other=0)
    k_end = tl.load(k_starts_ptr + every + 1, mask=here, other=0)
    blocks = tl.cdiv(q_end - q_begin, BLOCK_M)
    keys = k_end - k_begin
    mine = every == sequence
    own = tl.sum(tl.where(mine, blocks, 0), 0)
    own_keys = tl.sum(tl.where(mine, keys, 0), 0)
    if sequence == count:
        own = tiles - tl.sum(blocks, 0)
    earlier = (every < sequence).to(tl.int32)
    for at in range(0, own, CHUNK):
        number = at + tl.arange(0, CHUNK)
        if RIGHT:
            # Of another sequence, the blocks that end later come before; at a tie those of the
            # earlier sequence. `keys - queries` is where a sequence's queries stand.
            offset = keys - (q_end - q_begin)
            own_offset = tl.sum(tl.where(mine, offset, 0), 0)
            end = (number + 1) * BLOCK_M + own_offset
            gap = tl.maximum(end[:, None] - offset[None, :], 0)
            first = (gap + earlier[None, :] * (BLOCK_M - 1)) // BLOCK_M - earlier[None, :]
            longer = tl.minimum(tl.maximum(blocks[None, :] - first, 0), blocks[None, :])
            place = tl.sum(longer, 1)
        else:
            ahead = (keys > own_keys) | ((keys == own_keys) & (every < sequence))
            place = number + tl.sum(tl.where(ahead, blocks, 0), 0)
        which = sequence
        if sequence == count:
            place = tiles - own + number
            number = tl.zeros((CHUNK,), tl.int32) - 1
            which = 0
        target = tiles_ptr + 2 * place
        there = at + tl.arange(0, CHUNK) < own
        tl.store(target, which + tl.zeros((CHUNK,), tl.int32), mask=there)
        tl.store(target + 1, number, mask=there)
