"""Parts that forms of kernels share (see form_kernels.py), as helper kernels."""

from __future__ import annotations

import tawa
import tawa.language as tl


@tawa.jit
def in_groups(tile, M, N, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    """First row and column of a tile of [M, N]; tiles go down GROUP of their rows, then across."""
    across = tl.cdiv(N, BN)
    first = tile // (GROUP * across) * GROUP
    height = min(tl.cdiv(M, BM) - first, GROUP)
    row = (first + tile % (GROUP * across) % height) * BM
    return row, tile % (GROUP * across) // height * BN


@tawa.jit
def store_inside(c_ptr, c, rows, columns, M, N):
    """Store a tile of C[M, N], what is past its end left out."""
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    place = c_ptr + rows[:, None] * N + columns[None, :]
    tl.store(place, c.to(c_ptr.dtype.element_ty), mask=inside)


@tawa.jit
def block_scaled_tile(
    a_ptr,
    b_ptr,
    as_ptr,
    bs_ptr,
    c_ptr,
    rows,
    columns,
    M,
    N,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """One tile of form_kernels.py's `block_scaled_product`, from its products to its store."""
    depth = tl.arange(0, BK)
    groups = tl.cdiv(K, 128)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        a = tl.load(
            a_ptr + rows[:, None] * K + (k + depth)[None, :], mask=rows[:, None] < M, other=0.0
        )
        b = tl.load(
            b_ptr + columns[None, :] * K + (k + depth)[:, None],
            mask=columns[None, :] < N,
            other=0.0,
        )
        by_row = tl.load(as_ptr + rows * groups + k // 128, mask=rows < M, other=0.0)
        by_column = tl.load(
            bs_ptr + columns // 128 * groups + k // 128, mask=columns < N, other=0.0
        )
        acc += tl.dot(a, b) * by_row[:, None] * by_column[None, :]
    store_inside(c_ptr, acc, rows, columns, M, N)


@tawa.jit
def rows_of_head(
    ptr, first, row, column, T, H: tl.constexpr, D: tl.constexpr, BT: tl.constexpr, BD: tl.constexpr
):
    """Block at (row, column) of one head of [.., T, H, D], whose row `first` of D begins it."""
    return tl.make_block_ptr(ptr + first * D, (T, D), (H * D, 1), (row, column), (BT, BD), (1, 0))


@tawa.jit
def columns_of_head(
    ptr, first, row, column, T, H: tl.constexpr, D: tl.constexpr, BD: tl.constexpr, BT: tl.constexpr
):
    """`rows_of_head` transposed: a block of [D, T]."""
    return tl.make_block_ptr(ptr + first * D, (D, T), (1, H * D), (row, column), (BD, BT), (0, 1))
