# ruff: noqa: N803  (the names are those of the tile language: sizes and constants in capitals)
# Kernel code is read by the compiler, not run: its values have no Python types.
# pyright: basic, reportArgumentType=false, reportOperatorIssue=false
# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false, reportReturnType=false
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false
"""The filters' gradient, dy.T @ x over all pixels of the output, for each tap.

The pixels are dealt out over programs, and `add_parts` adds their sums in a fixed order, without
atomics.
"""

from __future__ import annotations

import tawa
import tawa.language as tl
from tawa.kernels.conv_windows import window


@tawa.jit
def conv_weight_gradient(
    x_desc,
    dy_desc,
    part_desc,
    tiles,
    tiles_h,
    tiles_w,
    columns,
    share,
    BLOCK_I: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_W: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    VIEW: tl.constexpr,
    CHANNELS: tl.constexpr,
    WINDOW: tl.constexpr,
    GROUPS: tl.constexpr,
    ABREAST: tl.constexpr,
):
    """part[s, g, co, tap, k] = sum over the s-th `share` boxes of pixels of dy's co * x's k at tap.

    x is in a view of `tawa.kernels.conv_views`, dy [N, Ho, Wo, GROUPS, Co/g], or [1, 1, pixels,
    GROUPS, Co/g] where TMA counts windows. Where dy's pixels end, x's must end too: 0 * Inf would
    be NaN. So they do in the views "rows", "window" and "volume"; in "taps" boxes fit dy's rows
    and columns. `columns` are the tiles of k; one part may be dw itself. Grid (cdiv(Co/g, BLOCK_M),
    taps * columns, parts * GROUPS).
    """
    out = tl.program_id(0) * BLOCK_M
    tap = tl.program_id(1) // columns * ABREAST
    k = tl.program_id(1) % columns * BLOCK_N
    group = tl.program_id(2) % GROUPS
    part = tl.program_id(2) // GROUPS
    sums = ()
    for _ in tl.static_range(ABREAST):
        sums = (*sums, tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32))
    column = part * share % tiles_w * BLOCK_W
    row = part * share // tiles_w % tiles_h * BLOCK_H
    image = part * share // tiles_w // tiles_h * BLOCK_I
    for _ in range(part * share, min(part * share + share, tiles)):
        dy = dy_desc.load([image, row, column, group, out])
        dy = dy.reshape(BLOCK_I * BLOCK_H * BLOCK_W, BLOCK_M)
        for each in tl.static_range(ABREAST):
            x = window(x_desc, image, row, column, group, tap + each, k, VIEW, WINDOW, CHANNELS)
            x = x.reshape(BLOCK_I * BLOCK_H * BLOCK_W, BLOCK_N)
            grown = tl.dot(dy.T, x, sums[each])
            sums = (*sums[:each], grown, *sums[each + 1 :])
        # Divisions would take the producer as long as the products of a small tile.
        over = column >= (tiles_w - 1) * BLOCK_W
        column = tl.where(over, 0, column + BLOCK_W)
        row += tl.where(over, BLOCK_H, 0)
        over = row > (tiles_h - 1) * BLOCK_H
        row = tl.where(over, 0, row)
        image += tl.where(over, BLOCK_I, 0)
    for each in tl.static_range(ABREAST):
        acc = sums[each].to(part_desc.dtype).reshape(1, 1, BLOCK_M, 1, BLOCK_N)
        part_desc.store([part, group, out, tap + each, k], acc)


@tawa.jit
def add_parts(
    part_ptr,
    out_ptr,
    count,
    size,
    filters,
    step_filter,
    step_tap,
    step_k,
    PARTS: tl.constexpr,
    TAPS: tl.constexpr,
    TOGETHER: tl.constexpr,
    CHANNELS: tl.constexpr,
    COLUMN: tl.constexpr,
    TURNED: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
    MERGED: tl.constexpr = 1,
    FILTERS: tl.constexpr = 0,
):
    """out [filters, TAPS, CHANNELS] = the sum of `PARTS` parts of `size` elements.

    In a part `TOGETHER` taps of COLUMN elements lie in a row; `step_` from a filter, a row of taps
    and an element of it to the next; `TURNED`: filters lie side by side. `WIDE` parts are read at
    once, so that a small filter of many parts does not wait for one after the other; the order of
    adding depends on these two numbers alone. With `MERGED` groups side by side, of `FILTERS` each,
    a part has the products of all their channels, of which a filter's own are taken. Grid
    (cdiv(count, BLOCK),).
    """
    where = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = where < count
    if TURNED:
        filter = where % filters
        tap = where // filters // CHANNELS
        channel = where // filters % CHANNELS
    else:
        filter = where // (CHANNELS * TAPS)
        tap = where // CHANNELS % TAPS
        channel = where % CHANNELS
    at = filter * step_filter + tap // TOGETHER * step_tap
    if MERGED > 1:
        at += (filter // FILTERS % MERGED * CHANNELS) * step_k
    at += (tap % TOGETHER * COLUMN + channel) * step_k
    total = tl.zeros((WIDE, BLOCK), dtype=tl.float32)
    for first in range(0, PARTS, WIDE):
        part = first + tl.arange(0, WIDE)
        held = (part < PARTS)[:, None] & inside[None, :]
        each = part.to(tl.int64)[:, None] * size + at[None, :]
        total += tl.load(part_ptr + each, mask=held, other=0.0)
    to = out_ptr + (filter * TAPS + tap) * CHANNELS + channel
    tl.store(to, tl.sum(total, axis=0).to(out_ptr.dtype.element_ty), mask=inside)
