# ruff: noqa: N803  (the names are those of the tile language: sizes and constants in capitals)
# Kernel code is read by the compiler, not run: its values have no Python types.
# pyright: basic, reportArgumentType=false, reportOperatorIssue=false
# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false, reportReturnType=false
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false
"""Products over filters filled up with zeros: of groups side by side, of pixels side by side.

Groups of few channels stand as one, and filters are zero for the others' channels. Or neighbouring
pixels of the output do, seen in one window that covers theirs, and filters are zero where they do
not look. Zeros change no sum of numbers. But zero times an Inf or NaN is NaN: where a tile has one,
it is summed once more, each filter over what it looks at alone. So results are those of groups and
pixels apart, and only data that is not finite takes the longer way.
"""

from __future__ import annotations

from dataclasses import dataclass

import tawa
import tawa.language as tl


@dataclass(frozen=True, slots=True)
class Merged:
    """`beside` groups or `pixels` stand as one, of so many `filters` each, which look at so many
    `channels` of a line of `wide`, `apart` from those of the one before. In the filters `used`
    channels of a pixel's `column` lie side by side.
    """

    channels: int
    filters: int
    beside: int
    apart: int
    wide: int
    pixels: bool = False
    column: int = 1
    used: int = 1


@dataclass(frozen=True, slots=True)
class Back:
    """The windows that an input's gradient goes back over, by axis, of three: images have a slice.

    Pixel s * i + parity of dx, s the stride, lies under the taps of dy's windows i + (parity +
    padding - tap * dilation) / s, where that is whole: under taps `apart` = s / gcd(s, dilation).
    Pixels of a parity see windows of dy at stride 1, `met` large, that begin `least` from them.
    """

    size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    apart: tuple[int, ...]
    met: tuple[int, ...]
    least: tuple[int, ...]


@tawa.jit
def parities(parity, BACK: tl.constexpr):
    """Return a parity's number along each axis."""
    across = parity // BACK.stride[2]
    return across // BACK.stride[1], across % BACK.stride[1], parity % BACK.stride[2]


@tawa.jit
def spread(w_ptr, out_ptr, count, lines, taps, BLOCK: tl.constexpr, MERGED: tl.constexpr):
    """out [.., filters, taps, wide] = w [.., filters, taps, channels], each in its place in a line.

    `count` elements of `out`, zero elsewhere; w's `lines` are read again where pixels stand as one.
    Grid (cdiv(count, BLOCK),).
    """
    where = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    line = where // MERGED.wide
    own = where % MERGED.wide - line // taps // MERGED.filters % MERGED.beside * MERGED.apart
    inside = (where < count) & (own >= 0) & (own < MERGED.channels)
    inside = inside & (own % MERGED.column < MERGED.used)
    at = (line % lines * MERGED.channels + own) // MERGED.column * MERGED.used
    w = tl.load(w_ptr + at + own % MERGED.column, mask=inside, other=0)
    tl.store(out_ptr + where, w, mask=where < count)


@tawa.jit
def spoilt(acc):
    """Tell whether any sum of a tile is NaN."""
    return tl.max(tl.max((acc != acc).to(tl.int32), axis=1), axis=0) > 0


@tawa.jit
def sums_apart(
    x_ptr,
    w_ptr,
    pixel,
    group,
    filter,
    parity,
    channels,
    sizes,
    CHANNELS: tl.constexpr,
    WINDOW: tl.constexpr,
    MERGED: tl.constexpr,
    BACK: tl.constexpr,
):
    """Return the sums of `pixel` by `filter`, numbers in y and in the merged `group` of `channels`,
    over what a filter looks at alone. `sizes` are y's pixels, x's height and width, y's, and x's
    strides; where pixels stand as one, x's pixels are its elements, of which a row has `width`.
    """
    pixels, height, width, out_height, out_width, stride_n, stride_h, stride_w = sizes
    own = filter // MERGED.filters * MERGED.apart
    there = pixel < pixels
    known = filter < channels
    x_at = (pixel // out_width // out_height).to(tl.int64) * stride_n
    x_at = x_ptr + (x_at + group * CHANNELS)
    above = pixel // out_width % out_height
    across = pixel % out_width
    if BACK is None:
        above = above * WINDOW.stride[0] - WINDOW.padding[0][0]
        across = across * WINDOW.stride[1] - WINDOW.padding[1][0]
        taps: tl.constexpr = WINDOW.size[0] * WINDOW.size[1]
        w_at = (group * channels + filter).to(tl.int64) * (taps * CHANNELS) + own
    else:
        _, parity_h, parity_w = parities(parity, BACK)
        above = above * BACK.stride[1] + parity_h + BACK.padding[1]
        across = across * BACK.stride[2] + parity_w + BACK.padding[2]
        taps: tl.constexpr = BACK.size[1] * BACK.size[2]
        w_at = (group * CHANNELS + own).to(tl.int64) * (taps * channels) + filter
    acc = tl.zeros((pixel.shape[0], filter.shape[0]), dtype=tl.float32)
    for k in range(0, taps * MERGED.channels):
        tap = k // MERGED.channels
        inner = k % MERGED.channels
        if BACK is None:
            down = above + tap // WINDOW.size[1] * WINDOW.dilation[0]
            right = across + tap % WINDOW.size[1] * WINDOW.dilation[1]
            step = tap * CHANNELS + inner
            inside = there
        else:
            down = above - tap // BACK.size[2] * BACK.dilation[1]
            right = across - tap % BACK.size[2] * BACK.dilation[2]
            step = (inner * taps + tap) * channels
            inside = there & (down % BACK.stride[1] == 0) & (right % BACK.stride[2] == 0)
            down = down // BACK.stride[1]
            right = right // BACK.stride[2]
        inside = inside & (down >= 0) & (down < height) & (right >= 0) & (right < width)
        at = (down * stride_h + right * stride_w)[:, None] + (own + inner)[None, :]
        seen = inside[:, None] & known[None, :]
        if MERGED.pixels:
            seen = seen & (right[:, None] + (own + inner)[None, :] < width)
        x = tl.load(x_at[:, None] + at, mask=seen, other=0).to(tl.float32)
        w = tl.load(w_ptr + w_at + step, mask=known, other=0)
        acc += x * w.to(tl.float32)[None, :]
    return acc
