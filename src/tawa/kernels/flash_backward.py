# ruff: noqa: N803  (the names are those of the tile language: sizes and constants in capitals)
# Kernel code is read by the compiler, not run: its values have no Python types.
# pyright: basic, reportArgumentType=false, reportOperatorIssue=false
# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false, reportReturnType=false
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportUnboundVariable=false
"""The gradients of attention: one kernel sums over queries (dk, dv), one over keys (dq).

Both compute the weights again from the logarithm of each row's sum (Dao, FlashAttention-2,
arXiv:2307.08691, algorithm 2). No program adds to what another stores, so that a result is the same
at every run; the price is two of seven products. Without that promise the first kernel has dq too,
added up in memory by atomic operations.

With P = exp(S - lse), delta = rowsum(dO * O) and dS = P * (dO V^T - delta):
dv = P^T dO, dk = scale * dS^T Q, dq = scale * dS K. Scores are in base two.
"""

from __future__ import annotations

import tawa
import tawa.language as tl
from tawa.kernels.flash_scores import kept, span


@tawa.jit
def backward_rows(
    o_desc, do_desc, lse_ptr, dlse_ptr, line_ptr, delta_ptr, dq_desc,
    queries, heads, padded, chance,
    BLOCK: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    DLSE: tl.constexpr,
    DQ: tl.constexpr,
    DROPOUT: tl.constexpr,
):  # fmt: skip
    """Write what both kernels need of each row: its logarithm in base two, and delta.

    `line_ptr` and `delta_ptr` are float32 [batch, heads, padded]; `padded` is a multiple of
    `BLOCK`. A row past the end, or one that sees no key (lse -inf), gets the line inf: its weights
    are zero. `DLSE`: the loss depends on `lse` too, by `dlse_ptr`, laid out as lse. `DQ`: zeros go
    to `dq_desc`, float32 (batch, heads, queries, dim). `DROPOUT`: delta times the `chance` that a
    weight is left, so that what it is taken from needs no factor but that of the sum. Grid
    (padded // BLOCK, heads, batch).
    """
    first = tl.program_id(0) * BLOCK
    head = tl.program_id(1)
    batch = tl.program_id(2)
    pair = (batch * heads + head).to(tl.int64)
    rows = first + tl.arange(0, BLOCK)
    o = o_desc.load([batch, head, first, 0]).reshape(BLOCK, VALUE_DIM).to(tl.float32)
    do = do_desc.load([batch, head, first, 0]).reshape(BLOCK, VALUE_DIM).to(tl.float32)
    delta = tl.sum(o * do, 1)
    there = rows < queries
    line = tl.load(lse_ptr + pair * queries + rows, mask=there, other=float("-inf"))
    if DLSE:
        delta = delta - tl.load(dlse_ptr + pair * queries + rows, mask=there, other=0.0)
    if DROPOUT:
        delta = delta * chance
    line = tl.where(line == float("-inf"), float("inf"), line * 1.4426950408889634)
    tl.store(line_ptr + pair * padded + rows, line)
    tl.store(delta_ptr + pair * padded + rows, delta)
    if DQ:
        dq_desc.store([batch, head, first, 0], tl.zeros((1, 1, BLOCK, HEAD_DIM), tl.float32))


@tawa.jit
def backward_round(sum_ptr, dq_ptr, count, scale, BLOCK: tl.constexpr):
    """Store scale * sum in dq's type: `count` elements, both dense. Grid cdiv(count, BLOCK)."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(sum_ptr + at, mask=at < count, other=0.0)
    tl.store(dq_ptr + at, (total * scale).to(dq_ptr.dtype.element_ty), mask=at < count)


@tawa.jit
def hide(
    scores, rows, columns, keys, left, right,
    LEFT: tl.constexpr,
    RIGHT: tl.constexpr,
    TAIL: tl.constexpr,
    ENDS: tl.constexpr,
):  # fmt: skip
    """Return scores with -inf where a row does not see a column, or does not exist."""
    if TAIL:
        scores = tl.where(columns < keys, scores, float("-inf"))
    if ENDS:  # the last query stands at the last key
        scores = tl.where(rows < keys, scores, float("-inf"))
    if RIGHT:
        scores = tl.where(columns <= rows + right, scores, float("-inf"))
    if LEFT:
        scores = tl.where(columns >= rows - left, scores, float("-inf"))
    return scores


@tawa.jit
def weights_of(
    scores, rows, columns, line, slope, bias, edge, keys, left, right, factor, cap,
    LEFT: tl.constexpr,
    RIGHT: tl.constexpr,
    TAIL: tl.constexpr,
    ENDS: tl.constexpr,
    CAP: tl.constexpr,
    SLOPES: tl.constexpr,
    BIAS: tl.constexpr,
):  # fmt: skip
    """Return the weights of a tile, and what the soft cap's derivative multiplies them by (or 1).

    `rows` (positions among the keys), `columns` and `line` are two-dimensional, whichever axis each
    lies along. With `CAP`, `factor` leads to the exponent of tanh and `cap` is in base two. `TAIL`:
    the tile may have columns past the last key; `ENDS`: rows past the last query, of others. Only
    where `edge` is true is a row of the tile kept from one of its columns.
    """
    bend = 1.0
    if CAP:
        # tanh(x) = 1 - 2 / (exp(2 x) + 1), right at both infinities.
        bent = 1.0 - 2.0 / (tl.exp2(scores * factor) + 1.0)
        bend = 1.0 - bent * bent
        scores = bent * cap
    else:
        scores = scores * factor
    if SLOPES:
        scores = scores - slope * tl.abs(columns.to(tl.float32) - rows.to(tl.float32))
    if BIAS:
        scores = scores + bias
    if LEFT or RIGHT or TAIL or ENDS:  # noqa: SIM102  (one when compiled, one at run time)
        if edge:
            scores = hide(scores, rows, columns, keys, left, right, LEFT, RIGHT, TAIL, ENDS)
    return tl.exp2(scores - line), bend


@tawa.jit
def bias_of(bias_ptr, batch, head, lines, columns, there, of_batch, of_head, of_line):
    """Load a tile of the bias, in base two; `lines` and `columns` along either axis."""
    at = bias_ptr + batch.to(tl.int64) * of_batch + head.to(tl.int64) * of_head
    bias = tl.load(at + lines.to(tl.int64) * of_line + columns, mask=there, other=0.0)
    return bias.to(tl.float32) * 1.4426950408889634


@tawa.jit
def store_rows(
    to_ptr, tile, at, first, rows, dim,
    BLOCK: tl.constexpr,
    WIDTH: tl.constexpr,
):  # fmt: skip
    """Store the rows from `first` on of a packed sequence that has `rows`; its first row is row
    `at` of the dense array [..., dim] at `to_ptr`.
    """
    lines = (first + tl.arange(0, BLOCK))[:, None]
    columns = tl.arange(0, WIDTH)[None, :]
    there = (lines < rows) & (columns < dim)
    tl.store(to_ptr + (at + lines) * dim + columns, tile, mask=there)


@tawa.jit
def packed_tile(tiles_ptr, q_starts_ptr, k_starts_ptr):
    """Return (sequence, block, q_start, k_start, queries, keys) of this program's entry of a list.

    Both extents are 0 where it names no tile.
    """
    sequence = tl.load(tiles_ptr + 2 * tl.program_id(0))
    block = tl.load(tiles_ptr + 2 * tl.program_id(0) + 1)
    q_start = tl.load(q_starts_ptr + sequence)
    k_start = tl.load(k_starts_ptr + sequence)
    queries = tl.load(q_starts_ptr + sequence + 1) - q_start
    keys = tl.load(k_starts_ptr + sequence + 1) - k_start
    if block < 0:
        queries = 0
        keys = 0
        block = 0
    return sequence, block, q_start, k_start, queries, keys


@tawa.jit
def of_rows(
    values, batch, head, heads, first, padded,
    BLOCK: tl.constexpr,
    PACKED: tl.constexpr,
):  # fmt: skip
    """Load what is kept of the rows from `first` on, [1, BLOCK].

    By a descriptor (batch, heads, padded), or of packed sequences by a pointer: TMA takes rows that
    begin at multiples of 16 bytes.
    """
    if PACKED:
        pair = (batch * heads + head).to(tl.int64)
        return tl.load(values + pair * padded + first + tl.arange(0, BLOCK))[None, :]
    return values.load([batch, head, first]).reshape(1, BLOCK)


@tawa.jit
def backward_queries(
    q_desc, k_desc, v_desc, do_desc, dq_desc, dq_ptr, line_ptr, delta_ptr, slopes_ptr, bias_ptr,
    tiles_ptr, q_starts_ptr, k_starts_ptr, rng_ptr,
    queries, keys, heads, padded, dim, scale, factor, cap, left, right, slopes_step, limit,
    bias_batch, bias_head, bias_line,
    GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    AHEAD: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    LEFT: tl.constexpr,
    RIGHT: tl.constexpr,
    TAIL: tl.constexpr,
    CAP: tl.constexpr,
    SLOPES: tl.constexpr,
    BIAS: tl.constexpr,
    DROPOUT: tl.constexpr,
    PACKED: tl.constexpr,
):  # fmt: skip
    """dq of a tile of queries: the sum over the keys that it sees.

    Grid (cdiv(queries, BLOCK_M), heads, batch). Descriptors have shape (batch, heads, sequence,
    dim); `GROUP` query heads share a head of keys. `LEFT` and `RIGHT` bound what a row sees, `left`
    and `right` keys before and after its position (a causal mask is `right` = 0); `TAIL`: the tile
    does not divide the keys; the longest programs come first. `PACKED`: sequences lie one after the
    other, sequence s from starts_ptr[s] on, batch is 1; program t is block tiles_ptr[2 t + 1] of
    sequence tiles_ptr[2 t], none if that is negative, and dq goes to `dq_ptr` [heads, queries,
    dim], dense. Tiles of q, k and dq have `HEAD_DIM` columns, those of v and do `VALUE_DIM`.
    Products are started in the order of the text: with `AHEAD` that of the weights' gradients runs
    while exponentials are taken. `bias_ptr`: added to the scores, with strides and contiguous rows.
    `slopes_ptr`, `DROPOUT`, `rng_ptr` and `limit`: as the forward kernel had them,
    `flash_options.attention_options`; `scale` has its `kept_scale` then, see `backward_rows`.
    """
    head = tl.program_id(1)
    batch = tl.program_id(2)
    pair = (batch * heads + head).to(tl.int64)
    sequence = batch
    q_start = 0
    k_start = 0
    total = queries
    if PACKED:
        sequence, block, q_start, k_start, queries, keys = packed_tile(
            tiles_ptr, q_starts_ptr, k_starts_ptr
        )
    else:
        block = tl.cdiv(queries, BLOCK_M) - 1 - tl.program_id(0)
    first = block * BLOCK_M
    position = first + keys - queries
    low, high, whole_low, whole_high = span(
        position, position + BLOCK_M - 1, keys, left, right, BLOCK_N, LEFT, RIGHT
    )
    lines = first + tl.arange(0, BLOCK_M)
    rows = (position + tl.arange(0, BLOCK_M))[:, None]
    q = q_desc.load([batch, head, q_start + first, 0]).reshape(BLOCK_M, HEAD_DIM)
    do = do_desc.load([batch, head, q_start + first, 0]).reshape(BLOCK_M, VALUE_DIM)
    line = tl.load(line_ptr + pair * padded + q_start + lines)[:, None]
    delta = tl.load(delta_ptr + pair * padded + q_start + lines)[:, None]
    slope = 0.0
    if SLOPES:
        slope = tl.load(slopes_ptr + sequence * slopes_step + head) * 1.4426950408889634
    rng = None
    place = 0
    if DROPOUT:
        rng = (tl.load(rng_ptr), tl.load(rng_ptr + 1))
        place = sequence * heads + head
    dq = tl.zeros((BLOCK_M, HEAD_DIM), tl.float32)
    for start in range(low, high, BLOCK_N):
        k = k_desc.load([batch, head // GROUP, k_start + start, 0]).reshape(BLOCK_N, HEAD_DIM)
        v = v_desc.load([batch, head // GROUP, k_start + start, 0]).reshape(BLOCK_N, VALUE_DIM)
        scores = tl.dot(q, k.T)
        if AHEAD:
            dp = tl.dot(do, v.T)
        columns = (start + tl.arange(0, BLOCK_N))[None, :]
        bias = 0.0
        if BIAS:
            there = (lines[:, None] < queries) & (columns < keys)
            bias = bias_of(
                bias_ptr, batch, head, lines[:, None], columns, there,
                bias_batch, bias_head, bias_line,
            )  # fmt: skip
        edge = (start < whole_low) | (start + BLOCK_N > whole_high)
        weights, bend = weights_of(
            scores, rows, columns, line, slope, bias, edge, keys, left, right, factor, cap,
            LEFT, RIGHT, TAIL, False, CAP, SLOPES, BIAS,
        )  # fmt: skip
        if not AHEAD:
            dp = tl.dot(do, v.T)
        if DROPOUT:
            there = kept(rng, place, first, start, limit, BLOCK_M, BLOCK_N, False)
            dp = tl.where(there, dp, 0.0)
        ds = weights * (dp - delta) * bend
        dq = tl.dot(ds.to(k.dtype), k, dq)
    dq = (dq * scale).to(q.dtype)
    if PACKED:
        at = head.to(tl.int64) * total + q_start
        store_rows(dq_ptr, dq, at, first, queries, dim, BLOCK_M, HEAD_DIM)
    else:
        dq_desc.store([batch, head, first, 0], dq.reshape(1, 1, BLOCK_M, HEAD_DIM))


@tawa.jit
def backward_keys(
    q_desc, k_desc, v_desc, do_desc, dk_desc, dv_desc, dk_ptr, dv_ptr,
    of_line, of_delta, dq_desc, slopes_ptr, bias_ptr, tiles_ptr, q_starts_ptr, k_starts_ptr,
    rng_ptr,
    queries, keys, heads, padded, dim, value_dim, kept_scale, scale, factor, cap, left, right,
    slopes_step, limit, bias_batch, bias_head, bias_line,
    GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    AHEAD: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    DK: tl.constexpr,
    DV: tl.constexpr,
    DQ: tl.constexpr,
    LEFT: tl.constexpr,
    RIGHT: tl.constexpr,
    TAIL: tl.constexpr,
    CAP: tl.constexpr,
    SLOPES: tl.constexpr,
    BIAS: tl.constexpr,
    DROPOUT: tl.constexpr,
    PACKED: tl.constexpr,
):  # fmt: skip
    """dk and dv of a tile of keys: the sum over the queries that see it, of all heads of its group.

    Grid (cdiv(keys, BLOCK_N), heads of keys, batch); constants as of `backward_queries`. `DK` and
    `DV` say which of the two are computed: those of wide heads do not fit the registers together.
    Tiles are turned, keys by queries, so that the weights are the left operand of both sums. `DQ`:
    what the tile adds to dq, without the scale, is added to `dq_desc`, float32 (batch, heads,
    queries, dim), in whatever order programs come. `of_line` and `of_delta`: see `of_rows`.
    `TAIL`: keys past the end are hidden from dq; dk and dv have no rows for them.
    """
    shared = tl.program_id(1)
    batch = tl.program_id(2)
    block = tl.program_id(0)
    sequence = batch
    q_start = 0
    k_start = 0
    total = keys
    if PACKED:
        sequence, block, q_start, k_start, queries, keys = packed_tile(
            tiles_ptr, q_starts_ptr, k_starts_ptr
        )
    first = block * BLOCK_N
    offset = keys - queries
    low = 0
    high = queries
    if RIGHT:  # the first row that sees a key of the tile: row + offset + right >= first
        low = tl.minimum(tl.maximum(0, first - right - offset), queries) // BLOCK_M * BLOCK_M
    if LEFT:  # the last: row + offset - left <= first + BLOCK_N - 1
        high = tl.maximum(low, tl.minimum(queries, first + BLOCK_N + left - offset))
    tiles = tl.cdiv(high - low, BLOCK_M)
    columns = (first + tl.arange(0, BLOCK_N))[:, None]
    k = k_desc.load([batch, shared, k_start + first, 0]).reshape(BLOCK_N, HEAD_DIM)
    if DROPOUT:
        rng = (tl.load(rng_ptr), tl.load(rng_ptr + 1))
    if DK:
        v = v_desc.load([batch, shared, k_start + first, 0]).reshape(BLOCK_N, VALUE_DIM)
        dk = tl.zeros((BLOCK_N, HEAD_DIM), tl.float32)
    if DV:
        dv = tl.zeros((BLOCK_N, VALUE_DIM), tl.float32)
    for iteration in range(0, GROUP * tiles):
        if GROUP == 1:
            head = shared
            start = low + iteration * BLOCK_M
        else:
            head = shared * GROUP + iteration // tiles
            start = low + iteration % tiles * BLOCK_M
        lines = start + tl.arange(0, BLOCK_M)
        q = q_desc.load([batch, head, q_start + start, 0]).reshape(BLOCK_M, HEAD_DIM)
        do = do_desc.load([batch, head, q_start + start, 0]).reshape(BLOCK_M, VALUE_DIM)
        line = of_rows(of_line, batch, head, heads, q_start + start, padded, BLOCK_M, PACKED)
        slope = 0.0
        if SLOPES:
            slope = tl.load(slopes_ptr + sequence * slopes_step + head) * 1.4426950408889634
        rows = (lines + offset)[None, :]
        bias = 0.0
        if BIAS:
            there = (lines[None, :] < queries) & (columns < keys)
            bias = bias_of(
                bias_ptr, batch, head, lines[None, :], columns, there,
                bias_batch, bias_head, bias_line,
            )  # fmt: skip
        edge = False
        if RIGHT:
            edge = edge | (first + BLOCK_N - 1 > start + offset + right)
        if LEFT:
            edge = edge | (first < start + BLOCK_M - 1 + offset - left)
        if TAIL:
            edge = edge | (first + BLOCK_N > keys)
        if PACKED:
            edge = edge | (start + BLOCK_M > queries)
        scores = tl.dot(k, q.T)
        if DK and AHEAD:
            dp = tl.dot(v, do.T)
        weights, bend = weights_of(
            scores, rows, columns, line, slope, bias, edge, keys, left, right, factor, cap,
            LEFT, RIGHT, TAIL, PACKED, CAP, SLOPES, BIAS,
        )  # fmt: skip
        if DROPOUT:
            place = sequence * heads + head
            there = kept(rng, place, first, start, limit, BLOCK_N, BLOCK_M, True)
            dropped = tl.where(there, weights, 0.0)
            if DK and AHEAD:
                dp = tl.where(there, dp, 0.0)
        if DV:
            dv = tl.dot((dropped if DROPOUT else weights).to(do.dtype), do, dv)
        if DK:
            if not AHEAD:
                dp = tl.dot(v, do.T)
            delta = of_rows(of_delta, batch, head, heads, q_start + start, padded, BLOCK_M, PACKED)
            if DROPOUT and not AHEAD:
                ds = ((dropped * dp - weights * delta) * bend).to(q.dtype)
            else:
                ds = (weights * (dp - delta) * bend).to(q.dtype)
            if DQ:
                part = tl.dot(ds.T, k).reshape(1, 1, BLOCK_M, HEAD_DIM)
            dk = tl.dot(ds, q, dk)
            if DQ:
                dq_desc.atomic_add([batch, head, q_start + start, 0], part)
    at = shared.to(tl.int64) * total + k_start
    if DK:
        dk = (dk * scale).to(k.dtype)
        if PACKED:
            store_rows(dk_ptr, dk, at, first, keys, dim, BLOCK_N, HEAD_DIM)
        else:
            dk_desc.store([batch, shared, first, 0], dk.reshape(1, 1, BLOCK_N, HEAD_DIM))
    if DV:
        if DROPOUT:
            dv = dv * kept_scale
        dv = dv.to(k.dtype)
        if PACKED:
            store_rows(dv_ptr, dv, at, first, keys, value_dim, BLOCK_N, VALUE_DIM)
        else:
            dv_desc.store([batch, shared, first, 0], dv.reshape(1, 1, BLOCK_N, VALUE_DIM))


@tawa.jit
def backward_bias(
    q_desc, k_desc, v_desc, do_desc, line_ptr, delta_ptr, slopes_ptr, bias_ptr, dbias_ptr, rng_ptr,
    queries, keys, heads, padded, kept_scale, factor, cap, left, right, slopes_step, limit,
    bias_batch, bias_head, bias_line, own_heads, batches, sharing, rows,
    GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    LEFT: tl.constexpr,
    RIGHT: tl.constexpr,
    TAIL: tl.constexpr,
    CAP: tl.constexpr,
    SLOPES: tl.constexpr,
    LINES: tl.constexpr,
    DROPOUT: tl.constexpr,
):  # fmt: skip
    """The gradient of a tile of the bias: the sum of dS, without the derivative of a soft cap, over
    all scores that it is added to.

    Grid (cdiv(keys, BLOCK_N), blocks of its rows, batches * heads of it); names as of
    `backward_queries`. `dbias_ptr` is dense, `own_heads` are its heads; so many `batches`,
    `sharing` heads and `rows` of queries add to a tile of it. `LINES`: it has a row for each query.
    """
    first = tl.program_id(0) * BLOCK_N
    top = tl.program_id(1) * BLOCK_M
    entry = tl.program_id(2)
    own_batch = entry // own_heads
    own_head = entry - own_batch * own_heads
    columns = (first + tl.arange(0, BLOCK_N))[None, :]
    offset = keys - queries
    rng = None
    if DROPOUT:
        rng = (tl.load(rng_ptr), tl.load(rng_ptr + 1))
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for batch in range(own_batch, own_batch + batches):
        for head in range(own_head, own_head + sharing):
            for start in range(top, top + rows, BLOCK_M):
                lines = start + tl.arange(0, BLOCK_M)
                pair = (batch * heads + head).to(tl.int64)
                q = q_desc.load([batch, head, start, 0]).reshape(BLOCK_M, HEAD_DIM)
                k = k_desc.load([batch, head // GROUP, first, 0]).reshape(BLOCK_N, HEAD_DIM)
                do = do_desc.load([batch, head, start, 0]).reshape(BLOCK_M, VALUE_DIM)
                v = v_desc.load([batch, head // GROUP, first, 0]).reshape(BLOCK_N, VALUE_DIM)
                line = tl.load(line_ptr + pair * padded + lines)[:, None]
                delta = tl.load(delta_ptr + pair * padded + lines)[:, None]
                slope = 0.0
                if SLOPES:
                    slope = tl.load(slopes_ptr + batch * slopes_step + head) * 1.4426950408889634
                there = (lines[:, None] < queries) & (columns < keys)
                bias = bias_of(
                    bias_ptr, batch, head, lines[:, None], columns, there,
                    bias_batch, bias_head, bias_line,
                )  # fmt: skip
                scores = tl.dot(q, k.T)
                dp = tl.dot(do, v.T)
                weights, _bend = weights_of(
                    scores, (lines + offset)[:, None], columns, line, slope, bias, True, keys, left,
                    right, factor, cap, LEFT, RIGHT, TAIL, False, CAP, SLOPES, True,
                )  # fmt: skip
                if DROPOUT:
                    place = batch * heads + head
                    there = kept(rng, place, start, first, limit, BLOCK_M, BLOCK_N, False)
                    dp = tl.where(there, dp, 0.0)
                total = total + weights * (dp - delta)
    if DROPOUT:
        total = total * kept_scale
    kind = dbias_ptr.dtype.element_ty
    if LINES:
        own = (top + tl.arange(0, BLOCK_M))[:, None]
        at = dbias_ptr + (entry.to(tl.int64) * queries + own) * keys + columns
        tl.store(at, total.to(kind), mask=(own < queries) & (columns < keys))
    else:
        ends = first + tl.arange(0, BLOCK_N)
        at = dbias_ptr + entry.to(tl.int64) * keys + ends
        tl.store(at, tl.sum(total, 0).to(kind), mask=ends < keys)
