# ruff: noqa: N803  (the names are those of the tile language: sizes and constants in capitals)
# Kernel code is read by the compiler, not run: its values have no Python types.
# pyright: basic, reportArgumentType=false, reportOperatorIssue=false
# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false, reportReturnType=false
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false
"""Rows of new queries, keys and values, rotated by their positions, into a cache or beside it.

The rotation is that of Su and others, "RoFormer" (2021): the pair (a, b) of columns at position p
becomes (a cos - b sin, a sin + b cos) by the angles' row p.
"""

from __future__ import annotations

import tawa
import tawa.language as tl


@tawa.jit
def place_rows(
    x_ptr, y_ptr, cos_ptr, sin_ptr, starts_ptr, table_ptr,
    length, dim, pairs, angled, page, positions, places, table_step,
    x_batch, x_row, x_head, y_batch, y_row, y_head,
    ROTATE: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    APART: tl.constexpr,
    CACHE: tl.constexpr,
    BLOCK: tl.constexpr,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    """y = rotated x; grid (cdiv(length, BLOCK), heads, batch).

    x is [batch, length, heads, dim], y of that shape too, or with `CACHE` [places, page, heads,
    dim]: row i of a batch is at the position p = starts_ptr[batch] + i, which lies in row p % page
    of place table[batch, p // page], without a table of the batch's own. A batch has `positions`;
    what has no place is not stored. With `ROTATE` the first 2 * pairs columns are rotated by row p
    of cos and sin, [angled, pairs], without `APART` by that of the batch's first row: columns 2 j
    and 2 j + 1 with `INTERLEAVED`, else j and j + pairs. `COLUMNS` >= dim is a power of two.
    """
    head = tl.program_id(1)
    batch = tl.program_id(2)
    lines = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.arange(0, COLUMNS)
    start = tl.load(starts_ptr + batch).to(tl.int64)
    there = (lines < length)[:, None] & (columns < dim)[None, :]
    x_ptr = x_ptr + batch.to(tl.int64) * x_batch + head.to(tl.int64) * x_head
    rows = x_ptr + (lines.to(tl.int64) * x_row)[:, None]
    value = tl.load(rows + columns[None, :], mask=there, other=0.0)
    if ROTATE:
        if INTERLEAVED:
            second = columns % 2 == 1
            other = tl.where(second, columns - 1, columns + 1)
            angle = columns // 2
        else:
            second = columns >= pairs
            other = tl.where(second, columns - pairs, columns + pairs)
            angle = tl.where(second, columns - pairs, columns)
        steps = start + (lines if APART else 0 * lines).to(tl.int64)
        turned = ((steps >= 0) & (steps < angled))[:, None] & (columns < 2 * pairs)[None, :] & there
        partner = tl.load(rows + other[None, :], mask=turned, other=0.0).to(tl.float32)
        angles = (steps * pairs)[:, None] + angle[None, :]
        cos = tl.load(cos_ptr + angles, mask=turned, other=1.0).to(tl.float32)
        sin = tl.load(sin_ptr + angles, mask=turned, other=0.0).to(tl.float32)
        sin = tl.where(second[None, :], sin, -sin)
        value = value.to(tl.float32) * cos + partner * sin
    if CACHE:
        position = start + lines.to(tl.int64)
        held = (position >= 0) & (position < positions) & (lines < length)
        place = batch.to(tl.int64) + 0 * position
        line = position
        if table_ptr is not None:
            at = table_ptr + batch.to(tl.int64) * table_step + position // page
            place = tl.load(at, mask=held, other=-1).to(tl.int64)
            held = held & (place >= 0) & (place < places)
            line = position % page
        targets = place * y_batch + line * y_row
        there = held[:, None] & (columns < dim)[None, :]
    else:
        targets = batch.to(tl.int64) * y_batch + lines.to(tl.int64) * y_row
    targets = y_ptr + head.to(tl.int64) * y_head + targets[:, None] + columns[None, :]
    tl.store(targets, value.to(y_ptr.dtype.element_ty), mask=there)
