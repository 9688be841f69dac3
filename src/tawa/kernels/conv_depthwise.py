# ruff: noqa: N803  (the names are those of the tile language: sizes and constants in capitals)
# Kernel code is read by the compiler, not run: its values have no Python types.
# pyright: basic, reportArgumentType=false, reportOperatorIssue=false
# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false, reportReturnType=false
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false
"""Convolutions without products of matrices, for few channels a group, and their gradients.

A thread keeps the sums of a strip, `STRIP` output pixels side by side of some channels, and reads
each pixel that its windows share once for each of their rows. Filters are [taps, Co], so that the
channels of a tap lie side by side as those of a pixel do.
"""

from __future__ import annotations

import tawa
import tawa.language as tl
from tawa.kernels.conv_windows import BARE, store


@tawa.jit
def conv_depthwise(
    x_ptr,
    w_ptr,
    y_ptr,
    r_ptr,
    scale_ptr,
    bias_ptr,
    strips,
    height,
    width,
    out_height,
    out_width,
    filters,
    stride_xn,
    stride_xh,
    stride_xw,
    BLOCK_R: tl.constexpr,
    BLOCK_C: tl.constexpr,
    STRIP: tl.constexpr,
    WINDOW: tl.constexpr,
    CHANNELS: tl.constexpr,
    FILTERS: tl.constexpr,
    SUM: tl.constexpr = tl.float32,
    AFTER: tl.constexpr = BARE,
    APART_H: tl.constexpr = 1,
    APART_W: tl.constexpr = 1,
    BACK: tl.constexpr = False,
):
    """y = activation(scale * (sum over taps of x * w) + bias + residual), exact products.

    `CHANNELS` and `FILTERS` are those of a group, in and out; x's channels lie side by side, y and
    the residual are dense [N, Ho, Wo, filters]. For an input's gradient x's pixels lie APART, zeros
    between them, STRIP is a multiple of APART_W, and w's taps are in the other order (`BACK`).
    Grid (cdiv(strips, BLOCK_R), cdiv(filters, BLOCK_C)), strips = N * Ho * cdiv(Wo, STRIP).
    """
    strip = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    filter = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    across = tl.cdiv(out_width, STRIP)
    first = strip % across * STRIP
    line = strip // across
    known = filter < filters
    there = strip < strips
    column = first * WINDOW.stride[1] - WINDOW.padding[1][0]
    row = line % out_height * WINDOW.stride[0] - WINDOW.padding[0][0]
    x_at = x_ptr + (line // out_height).to(tl.int64) * stride_xn
    sums = ()
    for _ in tl.static_range(STRIP):
        sums = (*sums, tl.zeros((BLOCK_R, BLOCK_C), dtype=SUM))
    for step in range(WINDOW.size[0] * CHANNELS):
        down = row + step // CHANNELS * WINDOW.dilation[0]
        inside = there & (down >= 0) & (down < height * APART_H)
        if APART_H > 1:
            inside = inside & (down % APART_H == 0)
            down = down // APART_H
        channel = filter // FILTERS * CHANNELS + step % CHANNELS
        w = ()
        for tap in tl.static_range(WINDOW.size[1]):
            at = step // CHANNELS * WINDOW.size[1] + tap
            if BACK:
                at = WINDOW.size[0] * WINDOW.size[1] - 1 - at
            at = at * CHANNELS + step % CHANNELS
            w = (*w, tl.load(w_ptr + at * filters + filter, mask=known, other=0).to(SUM))
        last: tl.constexpr = (STRIP - 1) * WINDOW.stride[1] + (
            WINDOW.size[1] - 1
        ) * WINDOW.dilation[1]
        for pixel in tl.static_range(WINDOW.padding[1][0] % APART_W, last + 1, APART_W):
            right = column + pixel
            seen = inside & (right >= 0) & (right < width * APART_W)
            if APART_W > 1:
                right = right // APART_W
            at = (down * stride_xh + right * stride_xw)[:, None] + channel[None, :]
            x = tl.load(x_at[:, None] + at, mask=seen[:, None] & known[None, :], other=0).to(SUM)
            for tap in tl.static_range(WINDOW.size[1]):
                rest: tl.constexpr = pixel - tap * WINDOW.dilation[1]
                if rest >= 0 and rest % WINDOW.stride[1] == 0 and rest // WINDOW.stride[1] < STRIP:
                    out: tl.constexpr = rest // WINDOW.stride[1]
                    grown = sums[out] + x * w[tap][None, :]
                    sums = (*sums[:out], grown, *sums[out + 1 :])
    for pixel in tl.static_range(STRIP):
        at = (line.to(tl.int64) * out_width + first + pixel) * filters
        at = at[:, None] + filter[None, :]
        stored = (there & (first + pixel < out_width))[:, None] & known[None, :]
        given = (scale_ptr, bias_ptr, at, stored, 0, filter, filters, AFTER)
        store(sums[pixel], y_ptr, r_ptr, *given)


@tawa.jit
def conv_depthwise_weights(
    x_ptr,
    dy_ptr,
    part_ptr,
    blocks,
    share,
    strips,
    height,
    width,
    out_height,
    out_width,
    filters,
    stride_xn,
    stride_xh,
    stride_xw,
    BLOCK_R: tl.constexpr,
    BLOCK_C: tl.constexpr,
    STRIP: tl.constexpr,
    WINDOW: tl.constexpr,
    CHANNELS: tl.constexpr,
    FILTERS: tl.constexpr,
    EVEN: tl.constexpr,
):
    """part [parts, taps, CHANNELS, filters] = the sum over `share` blocks of strips of x * dy.

    A program has a row of taps and one channel of each group. `EVEN`: strips end where rows do;
    else no product beyond a row's end is added, since x may be Inf there. Grid (cdiv(filters,
    BLOCK_C), FH * CHANNELS, parts).
    """
    filter = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    known = filter < filters
    row = tl.program_id(1) // CHANNELS
    inner = tl.program_id(1) % CHANNELS
    part = tl.program_id(2)
    channel = filter // FILTERS * CHANNELS + inner
    across = tl.cdiv(out_width, STRIP)
    sums = ()
    for _ in tl.static_range(WINDOW.size[1]):
        sums = (*sums, tl.zeros((BLOCK_R, BLOCK_C), dtype=tl.float32))
    for block in range(part * share, min(part * share + share, blocks)):
        strip = block * BLOCK_R + tl.arange(0, BLOCK_R)
        there = strip < strips
        first = strip % across * STRIP
        line = strip // across
        down = (
            line % out_height * WINDOW.stride[0] - WINDOW.padding[0][0] + row * WINDOW.dilation[0]
        )
        inside = there & (down >= 0) & (down < height)
        column = first * WINDOW.stride[1] - WINDOW.padding[1][0]
        x_at = x_ptr + (line // out_height).to(tl.int64) * stride_xn + down * stride_xh
        dy_at = dy_ptr + (line.to(tl.int64) * out_width + first) * filters
        grown = ()
        for pixel in tl.static_range(STRIP):
            held = (there & (first + pixel < out_width))[:, None] & known[None, :]
            at = dy_at[:, None] + (pixel * filters + filter)[None, :]
            grown = (*grown, tl.load(at, mask=held, other=0).to(tl.float32))
        last: tl.constexpr = (STRIP - 1) * WINDOW.stride[1] + (
            WINDOW.size[1] - 1
        ) * WINDOW.dilation[1]
        for pixel in tl.static_range(last + 1):
            right = column + pixel
            seen = (inside & (right >= 0) & (right < width))[:, None] & known[None, :]
            at = x_at[:, None] + (right * stride_xw)[:, None] + channel[None, :]
            x = tl.load(at, mask=seen, other=0).to(tl.float32)
            for tap in tl.static_range(WINDOW.size[1]):
                rest: tl.constexpr = pixel - tap * WINDOW.dilation[1]
                if rest >= 0 and rest % WINDOW.stride[1] == 0 and rest // WINDOW.stride[1] < STRIP:
                    out: tl.constexpr = rest // WINDOW.stride[1]
                    more = x * grown[out]
                    if not EVEN:
                        more = tl.where((first + out < out_width)[:, None], more, 0.0)
                    sums = (*sums[:tap], sums[tap] + more, *sums[tap + 1 :])
    for tap in tl.static_range(WINDOW.size[1]):
        at = (part * WINDOW.size[0] + row) * WINDOW.size[1] + tap
        to = part_ptr + (at * CHANNELS + inner).to(tl.int64) * filters + filter
        tl.store(to, tl.sum(sums[tap], axis=0), mask=known)
