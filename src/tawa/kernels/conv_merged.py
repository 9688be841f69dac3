# ruff: noqa: N803  (the names are those of the tile language: sizes and constants in capitals)
# Kernel code is read by the compiler, not run: its values have no Python types.
# pyright: basic, reportArgumentType=false, reportOperatorIssue=false
# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false, reportReturnType=false
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false
"""Groups of few channels side by side in one product, over filters that are zero for the others.

Zeros change no sum of numbers. But zero times an Inf or NaN of another group is NaN: where a tile
has one, it is summed once more, each channel over its own group alone. So results are those of
groups apart, and only data that is not finite takes the longer way.
"""

from __future__ import annotations

from dataclasses import dataclass

import tawa
import tawa.language as tl


@dataclass(frozen=True, slots=True)
class Merged:
    """`beside` groups stand in one; each has so many channels of images and of results."""

    channels: int
    filters: int
    beside: int


@tawa.jit
def spread(w_ptr, out_ptr, count, taps, BLOCK: tl.constexpr, MERGED: tl.constexpr):
    """out [Co, taps, channels of merged groups] = w [Co, taps, channels] in the place of its group.

    `count` elements of `out`, zero elsewhere. Grid (cdiv(count, BLOCK),).
    """
    where = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    wide: tl.constexpr = MERGED.channels * MERGED.beside
    line = where // wide
    own = where % wide - line // taps // MERGED.filters % MERGED.beside * MERGED.channels
    inside = (where < count) & (own >= 0) & (own < MERGED.channels)
    w = tl.load(w_ptr + line * MERGED.channels + own, mask=inside, other=0)
    tl.store(out_ptr + where, w, mask=where < count)


@tawa.jit
def spoilt(acc):
    """Tell whether any sum of a tile is NaN."""
    return tl.max(tl.max((acc != acc).to(tl.int32), axis=1), axis=0) > 0


@tawa.jit
def sums_apart(
    x_ptr,
    w_ptr,
    first,
    group,
    channel,
    filters,
    pixels,
    height,
    width,
    out_height,
    out_width,
    stride_xn,
    stride_xh,
    stride_xw,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    WINDOW: tl.constexpr,
    MERGED: tl.constexpr,
):
    """Return the sums of BLOCK_M output pixels from `first` on by BLOCK_N filters of a merged group
    from `channel` on, each over the channels of its own group. w is as `spread` laid it out.
    """
    wide: tl.constexpr = MERGED.channels * MERGED.beside
    taps: tl.constexpr = WINDOW.fh * WINDOW.fw
    pixel = first + tl.arange(0, BLOCK_M)
    filter = channel + tl.arange(0, BLOCK_N)
    column = pixel % out_width * WINDOW.stride_w - WINDOW.pad_w
    row = pixel // out_width % out_height * WINDOW.stride_h - WINDOW.pad_h
    x_at = x_ptr + (pixel // out_width // out_height).to(tl.int64) * stride_xn + group * wide
    w_at = w_ptr + (group * filters + filter).to(tl.int64) * (taps * wide)
    own = filter // MERGED.filters * MERGED.channels
    known = filter < filters
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, taps * MERGED.channels):
        tap = k // MERGED.channels
        down = row + tap // WINDOW.fw * WINDOW.dilation_h
        right = column + tap % WINDOW.fw * WINDOW.dilation_w
        inside = (pixel < pixels) & (down >= 0) & (down < height) & (right >= 0) & (right < width)
        inner = own + k % MERGED.channels
        at = (down * stride_xh + right * stride_xw)[:, None] + inner[None, :]
        seen = inside[:, None] & known[None, :]
        x = tl.load(x_at[:, None] + at, mask=seen, other=0).to(tl.float32)
        w = tl.load(w_at + tap * wide + inner, mask=known, other=0).to(tl.float32)
        acc += x * w[None, :]
    return acc
