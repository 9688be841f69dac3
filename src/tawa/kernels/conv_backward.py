# ruff: noqa: N803  (the names are those of the tile language: sizes and constants in capitals)
# Kernel code is read by the compiler, not run: its values have no Python types.
# pyright: basic, reportArgumentType=false, reportOperatorIssue=false
# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false, reportReturnType=false
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false
"""Gradients of convolutions, as products over windows of the output's gradient.

- `conv_input_gradient`: dx is a product for each parity of dx's pixels, which
  share no tap: a program computes pixels of one parity.
- `conv_weight_gradient`: dw is dy.T @ x over all pixels of the output, for each tap; the pixels are
  dealt out over programs, and `add_parts` adds their sums in a fixed order, without atomics.
"""

from __future__ import annotations

import tawa
import tawa.language as tl
from tawa.kernels.conv_merged import spoilt, sums_apart
from tawa.kernels.conv_windows import window


@tawa.jit
def meeting(parity, AXIS: tl.constexpr, WINDOW: tl.constexpr, APART: tl.constexpr):
    """Return the first tap that pixels of a parity meet along an axis, how many there are, and
    which window from a pixel's own on the first belongs to.

    Pixel s * i + parity lies under the tap of window i + (parity + padding - tap * dilation) / s,
    s the stride, where that is whole: for taps `APART` = s / gcd(s, dilation) apart.
    """
    size: tl.constexpr = WINDOW.size[AXIS]
    place = parity + WINDOW.padding[AXIS][0]
    first = parity * 0 + size
    for tap in tl.static_range(min(APART[AXIS], size)):
        met = (place - tap * WINDOW.dilation[AXIS]) % WINDOW.stride[AXIS] == 0
        first = tl.where(met, tap, first)
    count = (size - first + APART[AXIS] - 1) // APART[AXIS]
    return first, count, (place - first * WINDOW.dilation[AXIS]) // WINDOW.stride[AXIS]


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
    dy_ptr,
    w_ptr,
    out_height,
    out_width,
    BLOCK_I: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_W: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    VIEW: tl.constexpr,
    GROUPS: tl.constexpr,
    WINDOW: tl.constexpr,
    APART: tl.constexpr,
    LEAST: tl.constexpr,
    PARTS: tl.constexpr,
    WHOLE: tl.constexpr,
    MERGED: tl.constexpr = None,
):
    """dx [images, depth, height, width, GROUPS * channels] of dy [.., GROUPS * K].

    A parity of dx has [images, deep, high, wide] pixels. They see dy in windows of stride 1, which
    begin LEAST pixels from them; in the view "groups" a tile is a box of pixels, else a run of
    them. WINDOW, APART and LEAST are of three axes; w is [GROUPS, K, taps, channels]. `WHOLE`:
    there is one parity and one part, and dx is a descriptor, [images, rows, columns, GROUPS,
    channels] as tiles cut it; else a pointer, and the `PARTS` of a sum lie one after the other.
    Where groups are `MERGED`, of images in the view "window", w is as
    `tawa.kernels.conv_merged.spread` laid it out, and dy_ptr and what follows are for tiles that
    are summed once more. Grid (tiles of one parity's pixels, cdiv(channels, BLOCK_N), GROUPS *
    parities * PARTS).
    """
    tile = tl.program_id(0)
    channel = tl.program_id(1) * BLOCK_N
    group = tl.program_id(2) % GROUPS
    part = tl.program_id(2) // GROUPS
    parity_w = part % WINDOW.stride[2]
    part //= WINDOW.stride[2]
    parity_h = part % WINDOW.stride[1]
    part //= WINDOW.stride[1]
    parity_d = part % WINDOW.stride[0]
    part //= WINDOW.stride[0]
    column = tile % tiles_w * BLOCK_W
    row = tile // tiles_w % tiles_h * BLOCK_H
    image = tile // tiles_w // tiles_h * BLOCK_I
    tap_d, taps_d, forth = meeting(parity_d, 0, WINDOW, APART)
    tap_h, taps_h, down = meeting(parity_h, 1, WINDOW, APART)
    tap_w, taps_w, right = meeting(parity_w, 2, WINDOW, APART)
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
        at_d = forth - turn_d * (APART[0] * WINDOW.dilation[0] // WINDOW.stride[0]) - LEAST[0]
        at_h = down - turn_h * (APART[1] * WINDOW.dilation[1] // WINDOW.stride[1]) - LEAST[1]
        at_w = right - turn_w * (APART[2] * WINDOW.dilation[2] // WINDOW.stride[2]) - LEAST[2]
        if VIEW == "window":
            dy = dy_desc.load([column, group * K + k], tap=(at_h, at_w))
        elif VIEW == "volume":
            dy = dy_desc.load([column, group * K + k], tap=(at_d, at_h, at_w))
        else:
            dy = dy_desc.load([image, row + at_h, column + at_w, group, k])
        at = (tap_d + turn_d * APART[0]) * WINDOW.size[1] + tap_h + turn_h * APART[1]
        at = at * WINDOW.size[2] + tap_w + turn_w * APART[2]
        w = w_desc.load([group, k, at, channel])
        dy = dy.reshape(BLOCK_I * BLOCK_H * BLOCK_W, BLOCK_K)
        acc = tl.dot(dy, w.reshape(BLOCK_K, BLOCK_N), acc)
    if MERGED is not None:  # noqa: SIM102 (one is a constant)
        if spoilt(acc):
            pixel = column + tl.arange(0, BLOCK_W)
            inner = channel + tl.arange(0, BLOCK_N)
            own = inner // MERGED.channels * MERGED.filters
            size: tl.constexpr = WINDOW.size[1] * WINDOW.size[2]
            acc = sums_apart(
                dy_ptr
                + ((pixel // wide // high).to(tl.int64) * out_height * out_width * GROUPS + group)
                * K,
                w_ptr + ((group * K + own) * (size * channels) + inner),
                pixel // wide % high * WINDOW.stride[1] + parity_h + WINDOW.padding[1][0],
                pixel % wide * WINDOW.stride[2] + parity_w + WINDOW.padding[2][0],
                own,
                pixel // wide // high < images,
                inner < channels,
                out_height,
                out_width,
                out_width * GROUPS * K,
                GROUPS * K,
                channels,
                size * channels,
                WINDOW.size[2],
                size,
                MERGED.filters,
                (-WINDOW.dilation[1], -WINDOW.dilation[2]),
                (WINDOW.stride[1], WINDOW.stride[2]),
            )
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
        slices = number // high % deep * WINDOW.stride[0] + parity_d
        rows = number % high * WINDOW.stride[1] + parity_h
        columns = columns * WINDOW.stride[2] + parity_w
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
    WINDOW: tl.constexpr,
    GROUPS: tl.constexpr,
    ABREAST: tl.constexpr,
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
                WINDOW,
                CHANNELS,
            )
            x = x.reshape(BLOCK_I * BLOCK_H * BLOCK_W, BLOCK_N)
            grown = tl.dot(dy.T, x, sums[each])
            sums = (*sums[:each], grown, *sums[each + 1 :])
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
