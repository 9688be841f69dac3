# ruff: noqa: N803  (the names are those of the tile language: sizes and constants in capitals)
# Kernel code is read by the compiler, not run: its values have no Python types.
# pyright: basic, reportArgumentType=false, reportOperatorIssue=false
# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false, reportReturnType=false
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false
"""Windows laid side by side in memory: im2col, and im2win, which is im2col of windows one wide.

im2col copies for each output pixel its window, Fh * Fw * C elements. Im2win (Lu, Chu, Li, arXiv
2306.14316) copies for each output *row* and input column the Fh pixels of that column: a window is
Fw columns, which lie side by side, and neighbouring windows share them. That is im2col of windows
[Fh, 1] at a horizontal stride of 1; and a filter, seen as an image, becomes the filter in window
order, (fw, fh, c). So one kernel packs all four.
"""

from __future__ import annotations

import tawa
import tawa.language as tl


@tawa.jit
def pack(
    x_ptr,
    out_ptr,
    height,
    width,
    out_height,
    columns,
    pitch,
    stride_n,
    stride_h,
    stride_w,
    stride_c,
    BLOCK_W: tl.constexpr,
    BLOCK_P: tl.constexpr,
    CHANNELS: tl.constexpr,
    COLUMN: tl.constexpr,
    WINDOW: tl.constexpr,
):
    """out[n * out_height + r, q, p] = x[n, r's row fh, q's column fw, c]; p counts (fh, fw, c).

    A row of `out` is `pitch` elements long, of which `columns` * `COLUMN` are written; from
    fh * fw * C on a column is zero, and so is what lies outside of x. Grid
    (N * out_height, cdiv(columns, BLOCK_W), cdiv(COLUMN, BLOCK_P)).
    """
    line = tl.program_id(0)
    image = line // out_height
    top = line % out_height * WINDOW.stride[0] - WINDOW.padding[0][0]
    q = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)
    p = tl.program_id(2) * BLOCK_P + tl.arange(0, BLOCK_P)
    down = top + p // CHANNELS // WINDOW.size[1] * WINDOW.dilation[0]
    right = (q * WINDOW.stride[1] - WINDOW.padding[1][0])[:, None]
    right += (p // CHANNELS % WINDOW.size[1] * WINDOW.dilation[1])[None, :]
    inside = (down >= 0) & (down < height) & (p < WINDOW.size[0] * WINDOW.size[1] * CHANNELS)
    inside = inside[None, :] & (right >= 0) & (right < width)
    at = (down * stride_h + p % CHANNELS * stride_c)[None, :] + right * stride_w
    x = tl.load(x_ptr + image.to(tl.int64) * stride_n + at, mask=inside, other=0)
    there = (q < columns)[:, None] & (p < COLUMN)[None, :]
    to = q[:, None] * COLUMN + p[None, :]
    tl.store(out_ptr + line.to(tl.int64) * pitch + to, x, mask=there)
