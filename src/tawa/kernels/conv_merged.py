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
    x_at,
    w_at,
    row,
    column,
    own,
    there,
    known,
    height,
    width,
    stride_h,
    stride_w,
    step_tap,
    step_k,
    FW: tl.constexpr,
    TAPS: tl.constexpr,
    CHANNELS: tl.constexpr,
    DILATION: tl.constexpr,
    APART: tl.constexpr = (1, 1),
):
    """Return sums over TAPS windows' taps and `CHANNELS` channels from `own` [columns] on, those of
    a column's own group, of x times w; `there` [rows] and `known` [columns] mask both.

    A pixel's window begins at its `row` and `column`, and its taps lie DILATION apart, which may go
    back; x's pixels lie `APART`, with nothing between them. x_at [rows] points to a pixel's image,
    w_at [columns] to the first product's filter; `step_` leads to the next.
    """
    acc = tl.zeros((row.shape[0], own.shape[0]), dtype=tl.float32)
    for k in range(0, TAPS * CHANNELS):
        tap = k // CHANNELS
        down = row + tap // FW * DILATION[0]
        right = column + tap % FW * DILATION[1]
        inside = there & (down >= 0) & (down < height * APART[0])
        inside = inside & (right >= 0) & (right < width * APART[1])
        inside = inside & (down % APART[0] == 0) & (right % APART[1] == 0)
        at = down // APART[0] * stride_h + right // APART[1] * stride_w
        at = at[:, None] + (own + k % CHANNELS)[None, :]
        seen = inside[:, None] & known[None, :]
        x = tl.load(x_at[:, None] + at, mask=seen, other=0).to(tl.float32)
        w = tl.load(w_at + tap * step_tap + k % CHANNELS * step_k, mask=known, other=0)
        acc += x * w.to(tl.float32)[None, :]
    return acc
