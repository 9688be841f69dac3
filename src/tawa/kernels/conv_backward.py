# ruff: noqa: N803  (the names are those of the tile language: sizes and constants in capitals)
# Kernel code is read by the compiler, not run: its values have no Python types.
# pyright: basic, reportArgumentType=false, reportOperatorIssue=false
# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false, reportReturnType=false
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false
"""Gradients of convolutions, as products over windows of the output's gradient.

- `conv_input_gradient`: dx of stride s is s * s products, one for each parity of dx's pixels, which
  share no tap: a program computes pixels of one parity.
- `conv_weight_gradient`: dw is dy.T @ x over all pixels of the output, for each tap; the pixels are
  dealt out over programs, and `add_weights` adds their sums in a fixed order, without atomics.
"""

from __future__ import annotations

import tawa
import tawa.language as tl


@tawa.jit
def conv_input_gradient(
    dy_desc,
    w_desc,
    dx_ptr,
    tiles_h,
    tiles_w,
    height,
    width,
    channels,
    K,
    BLOCK_I: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_W: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    FH: tl.constexpr,
    FW: tl.constexpr,
    STRIDE_H: tl.constexpr,
    STRIDE_W: tl.constexpr,
    PAD_H: tl.constexpr,
    PAD_W: tl.constexpr,
    DILATION_H: tl.constexpr,
    DILATION_W: tl.constexpr,
    GROUPS: tl.constexpr,
    IMAGES: tl.constexpr,
):
    """dx [N, height, width, GROUPS * channels] of dy [N, Ho, Wo, GROUPS, K].

    A pixel at stride * i + parity sees dy at i + (parity + pad - tap * dilation) / stride, for the
    taps for which that is whole; along an axis the stride or the dilation is 1. w is [GROUPS, K,
    taps, channels]. Grid (tiles of one parity's pixels, cdiv(channels, BLOCK_N), GROUPS * STRIDE_H
    * STRIDE_W).
    """
    tile = tl.program_id(0)
    channel = tl.program_id(1) * BLOCK_N
    group = tl.program_id(2) % GROUPS
    parity_w = tl.program_id(2) // GROUPS % STRIDE_W
    parity_h = tl.program_id(2) // GROUPS // STRIDE_W
    column = tile % tiles_w * BLOCK_W
    row = tile // tiles_w % tiles_h * BLOCK_H
    image = tile // tiles_w // tiles_h * BLOCK_I
    # At stride above 1 dilation is 1: taps of a parity are the stride apart, from the first on.
    first_h = (parity_h + PAD_H) % STRIDE_H
    first_w = (parity_w + PAD_W) % STRIDE_W
    taps_h = tl.maximum((FH - first_h + STRIDE_H - 1) // STRIDE_H, 0)
    taps_w = tl.maximum((FW - first_w + STRIDE_W - 1) // STRIDE_W, 0)
    down = row + (parity_h + PAD_H) // STRIDE_H
    right = column + (parity_w + PAD_W) // STRIDE_W
    steps = tl.cdiv(K, BLOCK_K)
    acc = tl.zeros((BLOCK_I * BLOCK_H * BLOCK_W, BLOCK_N), dtype=tl.float32)
    for step in range(taps_h * taps_w * steps):
        tap = step // steps
        k = step % steps * BLOCK_K
        turn_h = tap // tl.maximum(taps_w, 1)
        turn_w = tap % tl.maximum(taps_w, 1)
        dy = dy_desc.load(
            [image, down - turn_h * DILATION_H, right - turn_w * DILATION_W, group, k]
        )
        at = (first_h + turn_h * STRIDE_H) * FW + first_w + turn_w * STRIDE_W
        w = w_desc.load([group, k, at, channel])
        dy = dy.reshape(BLOCK_I * BLOCK_H * BLOCK_W, BLOCK_K)
        acc = tl.dot(dy, w.reshape(BLOCK_K, BLOCK_N), acc)
    pixel = tl.arange(0, BLOCK_I * BLOCK_H * BLOCK_W)
    images = image + pixel // (BLOCK_H * BLOCK_W)
    rows = (row + pixel // BLOCK_W % BLOCK_H) * STRIDE_H + parity_h
    columns = (column + pixel % BLOCK_W) * STRIDE_W + parity_w
    channel = channel + tl.arange(0, BLOCK_N)
    at = (images.to(tl.int64) * height + rows) * width + columns
    at = at[:, None] * (GROUPS * channels) + (group * channels + channel)[None, :]
    inside = (images < IMAGES) & (rows < height) & (columns < width)
    inside = inside[:, None] & (channel < channels)[None, :]
    tl.store(dx_ptr + at, acc.to(dx_ptr.dtype.element_ty), mask=inside)


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
    FW: tl.constexpr,
    PAD_H: tl.constexpr,
    PAD_W: tl.constexpr,
    DILATION_H: tl.constexpr,
    DILATION_W: tl.constexpr,
    GROUPS: tl.constexpr,
):
    """part[s, g, co, tap, k] = sum over the s-th `share` boxes of pixels of dy's co * x's k at tap.

    In the view "rows" x's pixels end where dy's do. In "taps" they do not: there boxes fit dy's
    rows and columns, so that no pixel of x meets a zero beside dy: 0 * Inf would be NaN.
    `columns` are the tiles of k. Grid (cdiv(Co/g, BLOCK_M), taps * columns, parts * GROUPS).
    """
    out = tl.program_id(0) * BLOCK_M
    tap = tl.program_id(1) // columns
    k = tl.program_id(1) % columns * BLOCK_N
    group = tl.program_id(2) % GROUPS
    part = tl.program_id(2) // GROUPS
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for tile in range(part * share, min(part * share + share, tiles)):
        column = tile % tiles_w * BLOCK_W
        row = tile // tiles_w % tiles_h * BLOCK_H
        image = tile // tiles_w // tiles_h * BLOCK_I
        if VIEW == "rows":
            x = x_desc.load([image, row, tap, column, k])
        else:
            down = row + tap // FW * DILATION_H - PAD_H
            right = column + tap % FW * DILATION_W - PAD_W
            x = x_desc.load([image, down, right, group, k])
        dy = dy_desc.load([image, row, column, group, out])
        dy = dy.reshape(BLOCK_I * BLOCK_H * BLOCK_W, BLOCK_M)
        acc = tl.dot(dy.T, x.reshape(BLOCK_I * BLOCK_H * BLOCK_W, BLOCK_N), acc)
    part_desc.store([part, group, out, tap, k], acc.reshape(1, 1, BLOCK_M, 1, BLOCK_N))


@tawa.jit
def add_weights(
    part_ptr,
    dw_ptr,
    count,
    size,
    pitch,
    PARTS: tl.constexpr,
    TAPS: tl.constexpr,
    TOGETHER: tl.constexpr,
    CHANNELS: tl.constexpr,
    COLUMN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dw = the sum of `PARTS` parts, in order; `TOGETHER` taps of COLUMN elements lie in a row.

    A part is `size` elements, of rows of `pitch`; dw is dense, `count` elements. Grid
    (cdiv(count, BLOCK),).
    """
    where = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = where < count
    tap = where // CHANNELS % TAPS
    row = where // (CHANNELS * TAPS) * (TAPS // TOGETHER) + tap // TOGETHER
    at = row * pitch + tap % TOGETHER * COLUMN + where % CHANNELS
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for part in range(PARTS):
        total += tl.load(part_ptr + part.to(tl.int64) * size + at, mask=inside, other=0.0)
    tl.store(dw_ptr + where, total.to(dw_ptr.dtype.element_ty), mask=inside)
