# ruff: noqa: N803  (the names are those of the tile language: sizes and constants in capitals)
# Kernel code is read by the compiler, not run: its values have no Python types.
# pyright: basic, reportArgumentType=false, reportOperatorIssue=false
# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false, reportReturnType=false
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false
"""Gradients of convolutions, as products over windows of the output's gradient.

- `conv_input_gradient`: dx is a product for each parity of dx's pixels, which
  share no tap: a program computes pixels of one parity.
- `conv_weight_gradient`: dw is dy.T @ x over all pixels of the output, for each tap; the pixels are
  dealt out over programs, and `add_weights` adds their sums in a fixed order, without atomics.
"""

from __future__ import annotations

import tawa
import tawa.language as tl
from tawa.kernels.conv_windows import window


@tawa.jit
def meeting(
    parity,
    SIZE: tl.constexpr,
    STRIDE: tl.constexpr,
    PAD: tl.constexpr,
    DILATION: tl.constexpr,
    APART: tl.constexpr,
):
    """Return the first tap that pixels of a parity meet along an axis, and how many there are.

    Pixel STRIDE * i + parity lies under the tap of window i + (parity + PAD - tap * DILATION) /
    STRIDE, where that is whole: for taps `APART` = STRIDE / gcd(STRIDE, DILATION) apart.
    """
    first = parity * 0 + SIZE
    for tap in tl.static_range(min(APART, SIZE)):
        first = tl.where((parity + PAD - tap * DILATION) % STRIDE == 0, tap, first)
    return first, (SIZE - first + APART - 1) // APART


@tawa.jit
def conv_input_gradient(
    dy_desc,
    w_desc,
    dx_out,
    tiles_h,
    tiles_w,
    deep,
    high,
    wide,
    images,
    depth,
    height,
    width,
    channels,
    K,
    BLOCK_I: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_W: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    VIEW: tl.constexpr,
    GROUPS: tl.constexpr,
    FD: tl.constexpr,
    FH: tl.constexpr,
    FW: tl.constexpr,
    STRIDE_D: tl.constexpr,
    STRIDE_H: tl.constexpr,
    STRIDE_W: tl.constexpr,
    PAD_D: tl.constexpr,
    PAD_H: tl.constexpr,
    PAD_W: tl.constexpr,
    DILATION_D: tl.constexpr,
    DILATION_H: tl.constexpr,
    DILATION_W: tl.constexpr,
    APART_D: tl.constexpr,
    APART_H: tl.constexpr,
    APART_W: tl.constexpr,
    LEAST_D: tl.constexpr,
    LEAST_H: tl.constexpr,
    LEAST_W: tl.constexpr,
    PARTS: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """dx [images, depth, height, width, GROUPS * channels] of dy [.., GROUPS * K].

    A parity of dx has [images, deep, high, wide] pixels. They see dy in windows of stride 1, which
    begin LEAST pixels from them; in the view "groups" a tile is a box of pixels, else a run of
    them. w is [GROUPS, K, taps, channels]. `WHOLE`: there is one parity and one part, and dx is a
    descriptor, [images, rows, columns, GROUPS, channels] as tiles cut it; else a pointer, and the
    `PARTS` of a sum lie one after the other. Grid (tiles of one parity's pixels, cdiv(channels,
    BLOCK_N), GROUPS * STRIDE_D * STRIDE_H * STRIDE_W * PARTS).
    """
    tile = tl.program_id(0)
    channel = tl.program_id(1) * BLOCK_N
    group = tl.program_id(2) % GROUPS
    parity_w = tl.program_id(2) // GROUPS % STRIDE_W
    parity_h = tl.program_id(2) // GROUPS // STRIDE_W % STRIDE_H
    parity_d = tl.program_id(2) // GROUPS // STRIDE_W // STRIDE_H % STRIDE_D
    part = tl.program_id(2) // GROUPS // STRIDE_W // STRIDE_H // STRIDE_D
    column = tile % tiles_w * BLOCK_W
    row = tile // tiles_w % tiles_h * BLOCK_H
    image = tile // tiles_w // tiles_h * BLOCK_I
    tap_d, taps_d = meeting(parity_d, FD, STRIDE_D, PAD_D, DILATION_D, APART_D)
    tap_h, taps_h = meeting(parity_h, FH, STRIDE_H, PAD_H, DILATION_H, APART_H)
    tap_w, taps_w = meeting(parity_w, FW, STRIDE_W, PAD_W, DILATION_W, APART_W)
    forth = (parity_d + PAD_D - tap_d * DILATION_D) // STRIDE_D
    down = (parity_h + PAD_H - tap_h * DILATION_H) // STRIDE_H
    right = (parity_w + PAD_W - tap_w * DILATION_W) // STRIDE_W
    steps = tl.cdiv(K, BLOCK_K)
    acc = tl.zeros((BLOCK_I * BLOCK_H * BLOCK_W, BLOCK_N), dtype=tl.float32)
    end = taps_d * taps_h * taps_w * steps
    begin = part * tl.cdiv(end, PARTS)
    end = min(begin + tl.cdiv(end, PARTS), end)
    for step in range(begin, end):
        tap = step // steps
        k = step % steps * BLOCK_K
        # From one tap of a parity to the next a pixel goes DILATION / gcd(..) back in dy.
        turn_w = tap % tl.maximum(taps_w, 1)
        turn_h = tap // tl.maximum(taps_w, 1) % tl.maximum(taps_h, 1)
        turn_d = tap // tl.maximum(taps_w * taps_h, 1)
        at_d = forth - turn_d * (APART_D * DILATION_D // STRIDE_D) - LEAST_D
        at_h = down - turn_h * (APART_H * DILATION_H // STRIDE_H) - LEAST_H
        at_w = right - turn_w * (APART_W * DILATION_W // STRIDE_W) - LEAST_W
        if VIEW == "window":
            dy = dy_desc.load([column, group * K + k], tap=(at_h, at_w))
        elif VIEW == "volume":
            dy = dy_desc.load([column, group * K + k], tap=(at_d, at_h, at_w))
        else:
            dy = dy_desc.load([image, row + at_h, column + at_w, group, k])
        at = (tap_d + turn_d * APART_D) * FH + tap_h + turn_h * APART_H
        w = w_desc.load([group, k, at * FW + tap_w + turn_w * APART_W, channel])
        dy = dy.reshape(BLOCK_I * BLOCK_H * BLOCK_W, BLOCK_K)
        acc = tl.dot(dy, w.reshape(BLOCK_K, BLOCK_N), acc)
    if WHOLE:
        dx = acc.to(dx_out.dtype).reshape(BLOCK_I, BLOCK_H, BLOCK_W, 1, BLOCK_N)
        dx_out.store([image, row, column, group, channel], dx)
    else:
        pixel = tl.arange(0, BLOCK_I * BLOCK_H * BLOCK_W)
        if VIEW == "groups":
            number = (
                (image + pixel // (BLOCK_H * BLOCK_W)) * high + row + pixel // BLOCK_W % BLOCK_H
            )
            columns = column + pixel % BLOCK_W
            inside = (row + pixel // BLOCK_W % BLOCK_H < high) & (columns < wide)
        else:
            number = (column + pixel) // wide
            columns = (column + pixel) % wide
            inside = columns < wide
        slices = number // high % deep * STRIDE_D + parity_d
        rows = number % high * STRIDE_H + parity_h
        columns = columns * STRIDE_W + parity_w
        inside = inside & (number // high // deep < images)
        inside = inside & (slices < depth) & (rows < height) & (columns < width)
        channel = channel + tl.arange(0, BLOCK_N)
        at = (part.to(tl.int64) * images + number // high // deep) * depth + slices
        at = (at * height + rows) * width + columns
        at = at[:, None] * (GROUPS * channels) + (group * channels + channel)[None, :]
        inside = inside[:, None] & (channel < channels)[None, :]
        tl.store(dx_out + at, acc.to(dx_out.dtype.element_ty), mask=inside)


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
    FH: tl.constexpr,
    FW: tl.constexpr,
    STRIDE_H: tl.constexpr,
    STRIDE_W: tl.constexpr,
    PAD_H: tl.constexpr,
    PAD_W: tl.constexpr,
    DILATION_H: tl.constexpr,
    DILATION_W: tl.constexpr,
    GROUPS: tl.constexpr,
    ABREAST: tl.constexpr,
    TURNED: tl.constexpr,
):
    """part[s, g, co, tap, k] = sum over the s-th `share` boxes of pixels of dy's co * x's k at tap.

    x is in a view of `tawa.kernels.conv_views`, dy [N, Ho, Wo, GROUPS, Co/g], or [1, 1, pixels,
    GROUPS, Co/g] where TMA counts windows. Where dy's pixels end, x's must end too: 0 * Inf would
    be NaN. So they do in the views "rows", "window" and "volume"; in "groups" boxes fit dy's rows
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
        if TURNED:
            sums = (*sums, tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32))
        else:
            sums = (*sums, tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32))
    for tile in range(part * share, min(part * share + share, tiles)):
        column = tile % tiles_w * BLOCK_W
        row = tile // tiles_w % tiles_h * BLOCK_H
        image = tile // tiles_w // tiles_h * BLOCK_I
        dy = dy_desc.load([image, row, column, group, out])
        dy = dy.reshape(BLOCK_I * BLOCK_H * BLOCK_W, BLOCK_M)
        for each in tl.static_range(ABREAST):
            x = window(
                x_desc,
                image,
                row,
                column,
                group,
                tap + each,
                k,
                VIEW,
                FH,
                FW,
                STRIDE_H,
                STRIDE_W,
                PAD_H,
                PAD_W,
                DILATION_H,
                DILATION_W,
                CHANNELS,
            )
            x = x.reshape(BLOCK_I * BLOCK_H * BLOCK_W, BLOCK_N)
            if TURNED:
                grown = tl.dot(x.T, dy, sums[each])
            else:
                grown = tl.dot(dy.T, x, sums[each])
            sums = (*sums[:each], grown, *sums[each + 1 :])
    for each in tl.static_range(ABREAST):
        acc = sums[each].to(part_desc.dtype)
        if TURNED:
            acc = acc.reshape(1, 1, 1, BLOCK_N, BLOCK_M)
            part_desc.store([part, group, tap + each, k, out], acc)
        else:
            acc = acc.reshape(1, 1, BLOCK_M, 1, BLOCK_N)
            part_desc.store([part, group, out, tap + each, k], acc)


@tawa.jit
def add_weights(
    part_ptr,
    dw_ptr,
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
):
    """dw [filters, TAPS, CHANNELS] = the sum of `PARTS` parts of `size` elements.

    In a part `TOGETHER` taps of COLUMN elements lie in a row; `step_` from a filter, a row of taps
    and an element of it to the next; `TURNED`: filters lie side by side. `WIDE` parts are read at
    once, so that a small filter of many parts does not wait for one after the other; the order of
    adding depends on these two numbers alone. Grid (cdiv(count, BLOCK),).
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
    at += (tap % TOGETHER * COLUMN + channel) * step_k
    total = tl.zeros((WIDE, BLOCK), dtype=tl.float32)
    for first in range(0, PARTS, WIDE):
        part = first + tl.arange(0, WIDE)
        held = (part < PARTS)[:, None] & inside[None, :]
        each = part.to(tl.int64)[:, None] * size + at[None, :]
        total += tl.load(part_ptr + each, mask=held, other=0.0)
    to = dw_ptr + (filter * TAPS + tap) * CHANNELS + channel
    tl.store(to, tl.sum(total, axis=0).to(dw_ptr.dtype.element_ty), mask=inside)
