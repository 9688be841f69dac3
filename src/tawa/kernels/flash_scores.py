# ruff: noqa: N803  (the names are those of the tile language: sizes and constants in capitals)
# Kernel code is read by the compiler, not run: its values have no Python types.
# pyright: basic, reportArgumentType=false, reportOperatorIssue=false
# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false, reportReturnType=false
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportUnboundVariable=false
"""The step that every kernel of attention with options shares: a tile of keys into a running sum.

Positions are those of the keys: a row at position p sees the keys p - left .. p + right that exist.
Scores are in base two. Their way: times scale, soft-capped, plus bias and slopes, hidden.
"""

from __future__ import annotations

import tawa
import tawa.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@tawa.jit
def hide(
    scores, rows, start, keys, left, right,
    BLOCK_N: tl.constexpr,
    LEFT: tl.constexpr,
    RIGHT: tl.constexpr,
    TAIL: tl.constexpr,
):  # fmt: skip
    """Return scores with -inf for the keys from `start` on that the row at `rows` does not see."""
    columns = start + tl.arange(0, BLOCK_N)
    if TAIL:
        scores = tl.where(columns[None, :] < keys, scores, float("-inf"))
    if RIGHT:
        scores = tl.where(columns[None, :] <= (rows + right)[:, None], scores, float("-inf"))
    if LEFT:
        scores = tl.where(columns[None, :] >= (rows - left)[:, None], scores, float("-inf"))
    return scores


@tawa.jit
def weigh(
    scores, rows, start, keys, factor, cap, slopes, bias_ptr, bias_step, queries, first,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    CAP: tl.constexpr,
    SLOPES: tl.constexpr,
    BIAS: tl.constexpr,
):  # fmt: skip
    """Return scores before the final factor, which is `cap` with CAP, 1 with SLOPES or BIAS.

    With CAP `factor` leads to the exponent of tanh; slopes are per row, in base two.
    """
    if CAP:
        # tanh(x) = 1 - 2 / (exp(2 x) + 1), right at both infinities.
        scores = 1.0 - 2.0 / (tl.exp2(scores * factor) + 1.0)
    if SLOPES or BIAS:
        scores = scores * (cap if CAP else factor)
    if SLOPES:
        columns = start + tl.arange(0, BLOCK_N)
        distance = tl.abs(columns[None, :].to(tl.float32) - rows[:, None].to(tl.float32))
        scores = scores - slopes[:, None] * distance
    if BIAS:
        lines = first + tl.arange(0, BLOCK_M)
        columns = start + tl.arange(0, BLOCK_N)
        there = (lines[:, None] < queries) & (columns[None, :] < keys)
        bias = tl.load(
            bias_ptr + lines[:, None] * bias_step + columns[None, :], mask=there, other=0.0
        )
        scores = scores + bias.to(tl.float32) * LOG2_E
    return scores


@tawa.jit
def kept(
    rng, place, first_row, first_column, limit,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    TURNED: tl.constexpr,
):  # fmt: skip
    """Return which weights of a tile [ROWS, COLUMNS] dropout leaves.

    With `rng` = (seed, offset), query q and key k of head and sequence `place` draw word
    2 (q // 8 % 2) + k // 8 % 2 of Philox 4x32-7 (Salmon and others, SC 2011) under the key seed at
    the counter (q // 16 * 8 + q % 8, k // 16 * 8 + k % 8, place, offset); a weight is kept where
    the word, as int32, is less than `limit`. Rows are queries, with `TURNED` keys; both starts are
    multiples of 16. One counter serves the four elements 8 apart that one thread holds of an
    accumulator, whichever way the tile lies.
    """
    rows = first_row // 2 + tl.arange(0, ROWS // 2)
    columns = first_column // 2 + tl.arange(0, COLUMNS // 2)
    rows = rows.reshape(ROWS // 16, 1, 8, 1, 1, 1)
    columns = columns.reshape(1, 1, 1, COLUMNS // 16, 1, 8)
    zero = rows * 0 + columns * 0
    seed, offset = rng
    if TURNED:
        a, b, c, d = tl.philox(seed, zero + columns, zero + rows, zero + place, zero + offset, 7)
        b, c = c, b
    else:
        a, b, c, d = tl.philox(seed, zero + rows, zero + columns, zero + place, zero + offset, 7)
    lower = tl.arange(0, 2).reshape(1, 2, 1, 1, 1, 1) != 0
    right = tl.arange(0, 2).reshape(1, 1, 1, 1, 2, 1) != 0
    drawn = tl.where(lower, tl.where(right, d, c), tl.where(right, b, a))
    return drawn.reshape(ROWS, COLUMNS).to(tl.int32, bitcast=True) < limit


@tawa.jit
def attend(
    acc, total, top, q, k_desc, v_desc, table_ptr, batch, head, base,
    low, high, whole_low, whole_high, rows, keys, left, right, factor, cap,
    slopes, bias_ptr, bias_step, queries, first, k_page, k_step, v_page, v_step, dim, places,
    rng, place, limit,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    PAGE: tl.constexpr,
    GATHER: tl.constexpr,
    MASK: tl.constexpr,
    LEFT: tl.constexpr,
    RIGHT: tl.constexpr,
    TAIL: tl.constexpr,
    CAP: tl.constexpr,
    SLOPES: tl.constexpr,
    BIAS: tl.constexpr,
    DROPOUT: tl.constexpr,
):  # fmt: skip
    """Take the keys low .. high-1 into the running (acc, total, top) of a block of queries.

    Tiles within whole_low .. whole_high need no mask. `MASK` is "" where that is so of all, "all"
    where each is masked, "edge" where tiles are asked. Keys lie from row `base` of `batch`, or with
    `PAGE` in the pages that `table_ptr` names, from row `base` of each; with `GATHER` a tile has
    rows of several pages, and k_desc and v_desc are pointers to the head in page 0, with steps from
    page to page and row to row, and `dim` columns; the caller looks whether pages are there
    (`named_pages`). Without `GATHER` what lies in none of the `places` pages there are makes its
    rows NaN. `DROPOUT`: some are dropped, see `kept`.
    """
    for start in range(low, high, BLOCK_N):
        scaled = factor
        if GATHER:
            spots = start + tl.arange(0, BLOCK_N)
            columns = tl.arange(0, HEAD_DIM)
            there = (spots < keys)[:, None] & (columns < dim)[None, :]
            pages = tl.load(table_ptr + spots // PAGE, mask=spots < keys, other=0).to(tl.int64)
            pages = tl.maximum(tl.minimum(pages, places - 1), 0)
            lines = pages * k_page + spots % PAGE * k_step
            k = tl.load(k_desc + lines[:, None] + columns[None, :], mask=there, other=0.0)
        else:
            if PAGE:
                page = tl.load(table_ptr + start // PAGE)
                scaled = tl.where((page >= 0) & (page < places), factor, float("nan"))
                where = page.to(tl.int32)
                line = base + start % PAGE
            else:
                where = batch
                line = base + start
            k = k_desc.load([where, head, line, 0]).reshape(BLOCK_N, HEAD_DIM)
        scores = tl.dot(q, k.T)
        if CAP or SLOPES or BIAS:
            scores = weigh(
                scores, rows, start, keys, scaled, cap, slopes, bias_ptr, bias_step, queries,
                first, BLOCK_M, BLOCK_N, CAP, SLOPES, BIAS,
            )  # fmt: skip
        if MASK == "all":
            scores = hide(scores, rows, start, keys, left, right, BLOCK_N, LEFT, RIGHT, TAIL)
        elif MASK == "edge":  # noqa: SIM102  (one is decided at compile time, one at run time)
            if start < whole_low or start + BLOCK_N > whole_high:
                scores = hide(scores, rows, start, keys, left, right, BLOCK_N, LEFT, RIGHT, TAIL)
        if SLOPES or BIAS:
            above = tl.maximum(top, tl.max(scores, 1))
            weights = tl.exp2(scores - above[:, None])
        else:
            last = cap if CAP else scaled
            above = tl.maximum(top, tl.max(scores, 1) * last)
            weights = tl.exp2(scores * last - above[:, None])
        rescale = tl.exp2(top - above)
        total = total * rescale + tl.sum(weights, 1)
        acc = acc * rescale[:, None]
        if DROPOUT:
            there = kept(rng, place, first, start, limit, BLOCK_M, BLOCK_N, False)
            weights = tl.where(there, weights, 0.0)
        if GATHER:
            lines = pages * v_page + spots % PAGE * v_step
            v = tl.load(v_desc + lines[:, None] + columns[None, :], mask=there, other=0.0)
        else:
            v = v_desc.load([where, head, line, 0]).reshape(BLOCK_N, VALUE_DIM)
        acc = tl.dot(weights.to(v.dtype), v, acc)
        top = above
    return acc, total, top


@tawa.jit
def named_pages(table_ptr, begin, end, places, PAGE: tl.constexpr):
    """Return whether the keys begin .. end-1 all lie in pages that there are."""
    last = tl.cdiv(end, PAGE)
    wrong = tl.zeros((128,), tl.int32)
    for first in range(begin // PAGE, last, 128):
        spots = first + tl.arange(0, 128)
        pages = tl.load(table_ptr + spots, mask=spots < last, other=0)
        wrong |= ((pages < 0) | (pages >= places)).to(tl.int32)
    return tl.max(wrong, 0) == 0


@tawa.jit
def span(
    position, last, keys, left, right,
    BLOCK_N: tl.constexpr,
    LEFT: tl.constexpr,
    RIGHT: tl.constexpr,
):  # fmt: skip
    """Return (low, high, whole_low, whole_high) for rows at positions position .. last.

    Keys low .. high-1 are seen by some row, those of whole_low .. whole_high-1 by all; all but
    `high` are multiples of `BLOCK_N`, and they do not fall from one to the next.
    """
    low = 0
    high = keys
    whole_low = 0
    whole_high = keys
    if LEFT:
        low = tl.minimum(tl.maximum(0, position - left), keys) // BLOCK_N * BLOCK_N
        whole_low = tl.maximum(0, last - left + BLOCK_N - 1) // BLOCK_N * BLOCK_N
    if RIGHT:
        high = tl.maximum(0, tl.minimum(keys, last + right + 1))
        whole_high = tl.maximum(0, tl.minimum(keys, position + right + 1))
    whole_high = whole_high // BLOCK_N * BLOCK_N
    if LEFT:
        high = tl.maximum(low, high)
        whole_low = tl.minimum(tl.maximum(low, whole_low), tl.cdiv(high, BLOCK_N) * BLOCK_N)
        whole_high = tl.maximum(whole_low, whole_high)
    return low, high, whole_low, whole_high
