# ruff: noqa: N803  (the names are those of the tile language: sizes and constants in capitals)
# Kernel code is read by the compiler, not run: its values have no Python types.
# pyright: basic, reportArgumentType=false, reportOperatorIssue=false
# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false, reportReturnType=false
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false
"""Convolutions as products over windows, each as an author would write it: plain tile programs.

Images are NHWC, filters [groups, Co/g, taps, K]: a tile of output pixels is a box of [BLOCK_I
images, BLOCK_H rows, BLOCK_W columns], and a step multiplies it, [pixels, BLOCK_K], with
[BLOCK_K, channels] of one tap. Accumulation is in float32 (tf32 products for float32 operands).

What differs is how a step finds its pixels:

- `conv_windows`: descriptors, in one of the views of `tawa.kernels.conv_views` (`VIEW`).
- `conv_pointers`: pointers and masks; K runs over (tap, channel) in one: takes every geometry.

An input's gradient is a convolution too, of windows of dy at stride 1. At a stride dx's pixels fall
into parities that share no tap, and a tile has pixels of one (`Back`).
"""

from __future__ import annotations

from dataclasses import dataclass

import tawa
import tawa.language as tl
from tawa.kernels.conv_merged import parities, spoilt, sums_apart
from tawa.kernels.gemm import activate, grouped_tile

ABREAST = tl.constexpr(8)
"""Tiles of pixels that are walked together where a sum is dealt out."""


@dataclass(frozen=True, slots=True)
class Epilogue:
    """What follows a sum: scale ("", "tensor", "channel"), bias, residual, activation, the limits
    of a clamp.
    """

    scale: str = ""
    bias: bool = False
    residual: bool = False
    activation: str = ""
    low: float = 0.0
    high: float = 0.0


BARE = Epilogue()
"""Nothing."""


@tawa.jit
def finished(
    acc,
    residual,
    scale_ptr,
    bias_ptr,
    first,
    filter,
    channels,
    KIND: tl.constexpr,
    AFTER: tl.constexpr,
):
    """Return what follows sums, of type KIND; channel 0 of a group is at `first`.

    "relu6" and "clamp" keep NaN.
    """
    if tl.int32 != KIND:
        acc = acc.to(tl.float32)
    inside = filter < channels
    if AFTER.scale == "tensor":
        acc = acc * tl.load(scale_ptr)
    elif AFTER.scale == "channel":
        scale = tl.load(scale_ptr + first + filter, mask=inside, other=0.0)
        acc = acc * scale[None, :]
    if AFTER.bias:
        bias = tl.load(bias_ptr + first + filter, mask=inside, other=0.0)
        acc = acc + bias.to(tl.float32)[None, :]
    if AFTER.residual:
        acc = acc + residual.to(tl.float32)
    if AFTER.activation == "relu6":
        acc = tl.where(acc < 0.0, 0.0, tl.where(acc > 6.0, 6.0, acc))
    elif AFTER.activation == "clamp":
        acc = tl.where(acc < AFTER.low, AFTER.low, tl.where(acc > AFTER.high, AFTER.high, acc))
    else:
        acc = activate(acc, AFTER.activation)
    return acc.to(KIND)


@tawa.jit
def store(
    acc,
    y_ptr,
    r_ptr,
    scale_ptr,
    bias_ptr,
    at,
    mask,
    first,
    filter,
    channels,
    AFTER: tl.constexpr,
):
    """Finish sums and store them to y's elements `at`, where the residual's are too."""
    residual = 0.0
    if AFTER.residual:
        residual = tl.load(r_ptr + at, mask=mask, other=0.0)
    kind: tl.constexpr = y_ptr.dtype.element_ty
    y = finished(acc, residual, scale_ptr, bias_ptr, first, filter, channels, kind, AFTER)
    tl.store(y_ptr + at, y, mask=mask)


@tawa.jit
def window(
    x_desc,
    image,
    row,
    column,
    group,
    tap,
    k,
    VIEW: tl.constexpr,
    WINDOW: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """Load what the output pixels of a box from (image, row, column) on see through one tap."""
    if VIEW == "window":
        x = x_desc.load(
            [column, group * CHANNELS + k], tap=(tap // WINDOW.size[1], tap % WINDOW.size[1])
        )
    elif VIEW == "volume":
        wide: tl.constexpr = WINDOW.size[2]
        at = (tap // (WINDOW.size[1] * wide), tap // wide % WINDOW.size[1], tap % wide)
        x = x_desc.load([column, group * CHANNELS + k], tap=at)
    elif VIEW == "rows":
        x = x_desc.load([image, row, tap, column, k])
    elif VIEW == "lines":
        x = x_desc.load([image, row, tap, column * WINDOW.stride[1] + k])
    else:
        down = row + tap // WINDOW.size[1] * WINDOW.dilation[0] - WINDOW.padding[0][0]
        right = column + tap % WINDOW.size[1] * WINDOW.dilation[1] - WINDOW.padding[1][0]
        x = x_desc.load([image, down, right, group, k])
    return x


@tawa.jit
def meeting(parity, AXIS: tl.constexpr, BACK: tl.constexpr):
    """Return the first tap that pixels of a parity meet along an axis, how many there are, and the
    place of the first in the windows of dy that they see.
    """
    size: tl.constexpr = BACK.size[AXIS]
    first = parity * 0 + size
    for tap in tl.static_range(min(BACK.apart[AXIS], size)):
        at = parity + BACK.padding[AXIS] - tap * BACK.dilation[AXIS]
        first = tl.where(at % BACK.stride[AXIS] == 0, tap, first)
    count = (size - first + BACK.apart[AXIS] - 1) // BACK.apart[AXIS]
    at = parity + BACK.padding[AXIS] - first * BACK.dilation[AXIS]
    return first, count, at // BACK.stride[AXIS] - BACK.least[AXIS]


@tawa.jit
def elements(
    image,
    row,
    column,
    pixel,
    parity,
    group,
    filter,
    channels,
    sizes,
    BLOCK_H: tl.constexpr,
    BLOCK_W: tl.constexpr,
    GROUPS: tl.constexpr,
    BACK: tl.constexpr,
):
    """Return which elements of y are a tile's, counted in memory, and whether there are such.

    Boxes are cut from [images, rows, columns]: y's pixels, or those of a parity of dx, [.., deep,
    high, wide], where dx has [.., slices, height, width].
    """
    images, rows, columns, deep, high, wide, slices, height, width = sizes
    column = column + pixel % BLOCK_W
    row = row + pixel // BLOCK_W % BLOCK_H
    image = image + pixel // (BLOCK_W * BLOCK_H)
    inside = (column < columns) & (row < rows) & (image < images)
    if BACK is None:
        number = (image.to(tl.int64) * rows + row) * columns + column
    else:
        number = (image * rows + row) * columns + column
        parity_d, parity_h, parity_w = parities(parity, BACK)
        column = number % wide * BACK.stride[2] + parity_w
        row = number // wide % high * BACK.stride[1] + parity_h
        slice = number // wide // high % deep * BACK.stride[0] + parity_d
        inside = inside & (slice < slices) & (row < height) & (column < width)
        number = (number // wide // high // deep).to(tl.int64) * slices + slice
        number = (number * height + row) * width + column
    at = number[:, None] * (GROUPS * channels) + (group * channels + filter)[None, :]
    return at, inside[:, None] & (filter < channels)[None, :]


@tawa.jit
def conv_windows(
    x_desc,
    w_desc,
    y_desc,
    r_desc,
    scale_ptr,
    bias_ptr,
    taps,
    K,
    tiles_h,
    tiles_w,
    channels,
    part_ptr,
    tiles,
    blocks,
    x_ptr,
    w_ptr,
    pixels,
    height,
    width,
    high,
    wide,
    stride_xn,
    stride_xh,
    stride_xw,
    images,
    rows,
    columns,
    deep,
    slices,
    own_height,
    own_width,
    BLOCK_I: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_W: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    VIEW: tl.constexpr,
    WINDOW: tl.constexpr = None,
    CHANNELS: tl.constexpr = 0,
    GROUPS: tl.constexpr = 1,
    PARTS: tl.constexpr = 1,
    WHOLE: tl.constexpr = 0,
    STORED: tl.constexpr = True,
    BACK: tl.constexpr = None,
    SUM: tl.constexpr = tl.float32,
    AFTER: tl.constexpr = BARE,
    MERGED: tl.constexpr = None,
    BESIDE: tl.constexpr = 1,
):
    """y = activation(scale * (windows of x @ w) + bias + residual).

    Grid (tiles of pixels, GROUPS * cdiv(Co/g, BLOCK_N)); y is [N, Ho, Wo, GROUPS, Co/g], a
    descriptor where it is `STORED` by TMA, else a pointer. With `PARTS` the grid is (WHOLE + PARTS
    * the rest,) of `tiles` * `blocks` tiles: those from `WHOLE` on are sums of `PARTS`, float32
    [.., PARTS, pixels of a tile, BLOCK_N] at part_ptr, which `conv_finish` adds up. Where groups
    are `MERGED`, in the view "window", or `BESIDE` pixels of y, in the view "lines", w is as
    `tawa.kernels.conv_merged.spread` laid it out, and x_ptr to stride_xw are for tiles that are
    summed once more; y's `channels` are those of so many pixels, y is [N, Ho, 1, 1, Wo * Co].

    With `BACK` x is dy, w [GROUPS, K, taps, Co/g] and y dx; blocks are those of one parity, for
    each of them. `high`, `wide` and `images` to `own_width` are those of `elements`.
    """
    if PARTS > 1:
        program = tl.program_id(0)
        beyond = tl.maximum(program - WHOLE, 0)
        number = tl.minimum(program, WHOLE) + beyond // PARTS
        tile, block = grouped_tile(number, tiles, blocks, ABREAST)
    else:
        tile = tl.program_id(0)
        block = tl.program_id(1)
    group = 0
    parity = 0
    if GROUPS > 1 or BACK is not None:
        group = block // tl.cdiv(channels, BLOCK_N)
        block = block % tl.cdiv(channels, BLOCK_N)
    steps = tl.cdiv(K, BLOCK_K)
    begin = 0
    end = taps * steps
    if BACK is not None:
        parity = group // GROUPS
        group = group % GROUPS
        parity_d, parity_h, parity_w = parities(parity, BACK)
        tap_d, taps_d, forth = meeting(parity_d, 0, BACK)
        tap_h, taps_h, down = meeting(parity_h, 1, BACK)
        tap_w, taps_w, right = meeting(parity_w, 2, BACK)
        end = taps_d * taps_h * taps_w * steps
    if PARTS > 1:
        share = tl.cdiv(end, PARTS)
        begin = beyond % PARTS * share
        end = tl.where(program < WHOLE, end, tl.minimum(begin + share, end))
    channel = block * BLOCK_N
    column = tile % tiles_w * BLOCK_W
    row = tile // tiles_w % tiles_h * BLOCK_H
    image = tile // tiles_w // tiles_h * BLOCK_I
    pixel = tl.arange(0, BLOCK_I * BLOCK_H * BLOCK_W)
    filter = channel + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_I * BLOCK_H * BLOCK_W, BLOCK_N), dtype=SUM)
    number = begin // steps
    k = begin % steps * BLOCK_K
    if BACK is not None:
        turn_w = number % tl.maximum(taps_w, 1)
        turn_h = number // tl.maximum(taps_w, 1) % tl.maximum(taps_h, 1)
        turn_d = number // tl.maximum(taps_w * taps_h, 1)
    for _ in range(begin, end):
        tap = number
        if BACK is not None:
            # From one tap of a parity to the next a pixel goes dilation / gcd(..) back in dy.
            at = (tap_d + turn_d * BACK.apart[0]) * BACK.size[1] + tap_h + turn_h * BACK.apart[1]
            at = at * BACK.size[2] + tap_w + turn_w * BACK.apart[2]
            at_d = forth - turn_d * (BACK.apart[0] * BACK.dilation[0] // BACK.stride[0])
            at_h = down - turn_h * (BACK.apart[1] * BACK.dilation[1] // BACK.stride[1])
            at_w = right - turn_w * (BACK.apart[2] * BACK.dilation[2] // BACK.stride[2])
            tap = (at_d * BACK.met[1] + at_h) * BACK.met[2] + at_w
        x = window(x_desc, image, row, column, group, tap, k, VIEW, WINDOW, CHANNELS)
        x = x.reshape(BLOCK_I * BLOCK_H * BLOCK_W, BLOCK_K)
        if BACK is None:
            w = w_desc.load([group, channel, tap, k]).reshape(BLOCK_N, BLOCK_K).T
        else:
            w = w_desc.load([group, k, at, channel]).reshape(BLOCK_K, BLOCK_N)
        acc = tl.dot(x, w, acc)
        # A division would take the producer as long as the products of a small tile.
        over = (k + BLOCK_K >= K).to(tl.int32)
        k = (k + BLOCK_K) * (1 - over)
        if BACK is None:
            number += over
        else:
            turn_w += over
            over = (turn_w >= taps_w).to(tl.int32)
            turn_w *= 1 - over
            turn_h += over
            over = (turn_h >= taps_h).to(tl.int32)
            turn_h *= 1 - over
            turn_d += over
    if PARTS > 1:  # noqa: SIM102 (one is a constant)
        if WHOLE == 0 or program >= WHOLE:
            at = pixel[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
            size: tl.constexpr = BLOCK_I * BLOCK_H * BLOCK_W * BLOCK_N
            tl.store(part_ptr + beyond.to(tl.int64) * size + at, acc)
            return
    if MERGED is not None and tl.float32 == SUM:  # noqa: SIM102 (one is a constant)
        if spoilt(acc):
            line = row + pixel // BLOCK_W % BLOCK_H
            line = (image + pixel // (BLOCK_W * BLOCK_H)) * high + line
            seen = line * wide + column + pixel % BLOCK_W
            numbers = (pixels, height, width, high, wide, stride_xn, stride_xh, stride_xw)
            at = (seen, group, filter, parity, channels, numbers)
            acc = sums_apart(x_ptr, w_ptr, *at, CHANNELS, WINDOW, MERGED, BACK)
    if VIEW == "lines":
        filter = filter % (channels // BESIDE)
        channel += column * channels
        column = 0
    if STORED:
        residual = 0.0
        if AFTER.residual:
            residual = r_desc.load([image, row, column, group, channel])
            residual = residual.reshape(BLOCK_I * BLOCK_H * BLOCK_W, BLOCK_N)
        given = (scale_ptr, bias_ptr, group * channels, filter, channels)
        y = finished(acc, residual, *given, y_desc.dtype, AFTER)
        y = y.reshape(BLOCK_I, BLOCK_H, BLOCK_W, 1, BLOCK_N)
        y_desc.store([image, row, column, group, channel], y)
    else:
        sizes = (images, rows, columns, deep, high, wide, slices, own_height, own_width)
        place = (image, row, column, pixel, parity, group, filter, channels, sizes)
        at, mask = elements(*place, BLOCK_H, BLOCK_W, GROUPS, BACK)
        given = (scale_ptr, bias_ptr, at, mask, group * channels, filter, channels, AFTER)
        store(acc, y_desc, r_desc, *given)


@tawa.jit
def conv_finish(
    part_ptr,
    y_ptr,
    r_ptr,
    scale_ptr,
    bias_ptr,
    tiles_h,
    tiles_w,
    channels,
    tiles,
    blocks,
    whole,
    high,
    wide,
    images,
    rows,
    columns,
    deep,
    slices,
    own_height,
    own_width,
    BLOCK_I: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_W: tl.constexpr,
    BLOCK_N: tl.constexpr,
    ROWS: tl.constexpr,
    PARTS: tl.constexpr,
    GROUPS: tl.constexpr = 1,
    BACK: tl.constexpr = None,
    AFTER: tl.constexpr = BARE,
):
    """Add up, in order, the parts of the tiles from `whole` on of `conv_windows`, and finish them.

    Grid (tiles dealt out, pixels of a tile / ROWS); y's pixels are as `placed` has them.
    """
    dealt = tl.program_id(0)
    tile, block = grouped_tile(whole + dealt, tiles, blocks, ABREAST)
    group = block // tl.cdiv(channels, BLOCK_N)
    filter = block % tl.cdiv(channels, BLOCK_N) * BLOCK_N + tl.arange(0, BLOCK_N)
    parity = group // GROUPS
    group = group % GROUPS
    pixel = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    size: tl.constexpr = BLOCK_I * BLOCK_H * BLOCK_W * BLOCK_N
    at = pixel[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    part_at = part_ptr + dealt.to(tl.int64) * (PARTS * size)
    total = tl.zeros((ROWS, BLOCK_N), dtype=tl.float32)
    for part in tl.static_range(PARTS):
        total += tl.load(part_at + part * size + at)
    column = tile % tiles_w * BLOCK_W
    row = tile // tiles_w % tiles_h * BLOCK_H
    image = tile // tiles_w // tiles_h * BLOCK_I
    sizes = (images, rows, columns, deep, high, wide, slices, own_height, own_width)
    place = (image, row, column, pixel, parity, group, filter, channels, sizes)
    at, mask = elements(*place, BLOCK_H, BLOCK_W, GROUPS, BACK)
    given = (scale_ptr, bias_ptr, at, mask, group * channels, filter, channels, AFTER)
    store(total, y_ptr, r_ptr, *given)


@tawa.jit
def conv_pointers(
    x_ptr,
    w_ptr,
    y_ptr,
    r_ptr,
    scale_ptr,
    bias_ptr,
    pixels,
    height,
    width,
    out_height,
    out_width,
    channels,
    stride_xn,
    stride_xh,
    stride_xw,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    WINDOW: tl.constexpr,
    CHANNELS: tl.constexpr,
    GROUPS: tl.constexpr,
    STEP: tl.constexpr,
    SUM: tl.constexpr = tl.float32,
    AFTER: tl.constexpr = BARE,
):
    """The same through pointers; x has any strides but that of channels, which lie side by side.

    `CHANNELS` and `channels` are those of one group, in and out; filters are `STEP` apart, y
    (and the residual) are dense. Grid (cdiv(pixels, BLOCK_M), cdiv(channels, BLOCK_N), groups).
    """
    pixel = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    group = tl.program_id(2)
    column = pixel % out_width * WINDOW.stride[1] - WINDOW.padding[1][0]
    row = pixel // out_width % out_height * WINDOW.stride[0] - WINDOW.padding[0][0]
    image = pixel // out_width // out_height
    there = pixel < pixels
    x_at = x_ptr + (image.to(tl.int64) * stride_xn + group * CHANNELS)
    w_at = w_ptr + (group * channels + columns).to(tl.int64) * STEP
    sums: tl.constexpr = WINDOW.size[0] * WINDOW.size[1] * CHANNELS
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=SUM)
    for first in range(0, sums, BLOCK_K):
        k = first + tl.arange(0, BLOCK_K)
        down = row[:, None] + (k // CHANNELS // WINDOW.size[1] * WINDOW.dilation[0])[None, :]
        right = column[:, None] + (k // CHANNELS % WINDOW.size[1] * WINDOW.dilation[1])[None, :]
        inside = (down >= 0) & (down < height) & (right >= 0) & (right < width)
        inside = inside & there[:, None] & (k < sums)[None, :]
        at = down * stride_xh + right * stride_xw + (k % CHANNELS)[None, :]
        x = tl.load(x_at[:, None] + at, mask=inside, other=0)
        known = (columns < channels)[:, None] & (k < sums)[None, :]
        w = tl.load(w_at[:, None] + k[None, :], mask=known, other=0)
        acc = tl.dot(x, w.T, acc)
    at = pixel.to(tl.int64)[:, None] * (GROUPS * channels) + (group * channels + columns)[None, :]
    mask = there[:, None] & (columns < channels)[None, :]
    given = (scale_ptr, bias_ptr, at, mask, group * channels, columns, channels, AFTER)
    store(acc, y_ptr, r_ptr, *given)
