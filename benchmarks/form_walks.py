"""More forms (see form_kernels.py): programs or tiles that have one number, taken apart."""

from __future__ import annotations

import tawa
import tawa.language as tl
from form_parts import block_scaled_tile, in_groups, store_inside


@tawa.jit
def block_scaled_groups(
    a_ptr,
    b_ptr,
    as_ptr,
    bs_ptr,
    c_ptr,
    M,
    N,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """`block_scaled_product` on one axis, a few rows of tiles at a time, indices wrapped."""
    first_row, first_column = in_groups(tl.program_id(0), M, N, BM, BN, 8)
    row = (first_row + tl.arange(0, BM)) % M
    column = (first_column + tl.arange(0, BN)) % N
    depth = tl.arange(0, BK)
    a_at = a_ptr + row[:, None] * K + depth[None, :]
    b_at = b_ptr + column[None, :] * K + depth[:, None]
    groups = tl.cdiv(K, 128)
    as_at = as_ptr + row * groups
    bs_at = bs_ptr + column // 128 * groups
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        left = depth < K - k * BK
        a = tl.load(a_at, mask=left[None, :], other=0.0)
        b = tl.load(b_at, mask=left[:, None], other=0.0)
        by_row = tl.load(as_at + k * BK // 128)
        by_column = tl.load(bs_at + k * BK // 128)
        acc += tl.dot(a, b) * by_row[:, None] * by_column[None, :]
        a_at += BK
        b_at += BK
    rows = first_row + tl.arange(0, BM)
    columns = first_column + tl.arange(0, BN)
    store_inside(c_ptr, acc, rows, columns, M, N)


@tawa.jit
def fused_points(x_ptr, r_ptr, w_ptr, b_ptr, o_ptr, total, BLOCK: tl.constexpr):
    """x r w + b of [rows, 4096], r of a row, as one line of points: as fusers of PyTorch do."""
    point = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = point < total
    column = point % 4096
    row = point // 4096
    x = tl.load(x_ptr + point, inside).to(tl.float32)
    scale = tl.load(r_ptr + row, inside)
    w = tl.load(w_ptr + column, inside).to(tl.float32)
    b = tl.load(b_ptr + column, inside).to(tl.float32)
    tl.store(o_ptr + point, (x * scale * w + b).to(tl.float16), inside)


@tawa.jit
def own_walk(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    PROGRAMS: tl.constexpr,
):
    """C = A B as Triton's persistent tutorial has it: a loop over tiles, indices kept in bounds."""
    down, across = tl.cdiv(M, BM), tl.cdiv(N, BN)
    depth = tl.arange(0, BK)
    for tile in tl.range(tl.program_id(0), down * across, PROGRAMS):
        # Not `in_groups`: the tutorial counts down a group by the number among all tiles.
        group = tile // (GROUP * across) * GROUP
        height = min(down - group, GROUP)
        m = group + tile % height
        n = tile % (GROUP * across) // height
        row = m * BM + tl.arange(0, BM)
        column = n * BN + tl.arange(0, BN)
        rows = tl.where(row < M, row, 0)
        columns = tl.where(column < N, column, 0)
        rows = tl.max_contiguous(tl.multiple_of(rows, BM), BM)
        columns = tl.max_contiguous(tl.multiple_of(columns, BN), BN)
        acc = tl.zeros((BM, BN), tl.float32)
        for k in range(tl.cdiv(K, BK)):
            at = k * BK + depth
            left = depth < K - k * BK
            a = tl.load(a_ptr + rows[:, None] * K + at[None, :], mask=left[None, :], other=0.0)
            b = tl.load(b_ptr + at[:, None] * N + columns[None, :], mask=left[:, None], other=0.0)
            acc = tl.dot(a, b, acc)
        store_inside(c_ptr, acc, row, column, M, N)


@tawa.jit
def own_walk_scaled(
    a_ptr,
    b_ptr,
    as_ptr,
    bs_ptr,
    c_ptr,
    M,
    N,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """`block_scaled_product` with a loop over tiles."""
    across = tl.cdiv(N, BN)
    for tile in range(tl.program_id(0), tl.cdiv(M, BM) * across, tl.num_programs(0)):
        rows = tile // across * BM + tl.arange(0, BM)
        columns = tile % across * BN + tl.arange(0, BN)
        block_scaled_tile(a_ptr, b_ptr, as_ptr, bs_ptr, c_ptr, rows, columns, M, N, K, BM, BN, BK)
