"""Forms of kernels that users write, for a comparison of compilers on one source.

Each is written as its users write it, from plain pointers, with no thought of one compiler. Sizes
and strides are arguments; arrays are dense and row-major unless a docstring says otherwise.
"""

from __future__ import annotations

import tawa
import tawa.language as tl
from form_parts import block_scaled_tile, store_inside

# Kernels name no globals of their module but `tl` and helpers, which Triton's twin replaces.


@tawa.jit
def softmax_rows(x_ptr, o_ptr, rows, columns, BLOCK: tl.constexpr):
    """Softmax of [rows, columns]; a program walks over rows."""
    at = tl.arange(0, BLOCK)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=float("-inf"))
        weight = tl.exp(x - tl.max(x, 0))
        tl.store(o_ptr + row * columns + at, weight / tl.sum(weight, 0), mask=at < columns)


@tawa.jit
def layer_norm(x_ptr, w_ptr, b_ptr, o_ptr, columns, eps, BLOCK: tl.constexpr):
    """Rows of x less their mean, over their deviation, times w, plus b; a row at a time."""
    at = tl.arange(0, BLOCK)
    inside = at < columns
    row = tl.program_id(0).to(tl.int64) * columns
    x = tl.load(x_ptr + row + at, mask=inside, other=0.0).to(tl.float32)
    apart = tl.where(inside, x - tl.sum(x, 0) / columns, 0.0)
    scale = tl.rsqrt(tl.sum(apart * apart, 0) / columns + eps)
    w = tl.load(w_ptr + at, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(o_ptr + row + at, (apart * scale * w + b).to(o_ptr.dtype.element_ty), mask=inside)


@tawa.jit
def cross_entropy(x_ptr, label_ptr, loss_ptr, grad_ptr, columns, BLOCK: tl.constexpr):
    """Loss of a row of logits and the gradient, in two walks over the row."""
    row = tl.program_id(0).to(tl.int64)
    label = tl.load(label_ptr + row)
    x_row = x_ptr + row * columns
    top = float("-inf")
    total = 0.0
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + at, mask=at < columns, other=float("-inf")).to(tl.float32)
        new = tl.maximum(top, tl.max(x, 0))
        total = total * tl.exp(top - new) + tl.sum(tl.exp(x - new), 0)
        top = new
    lse = top + tl.log(total)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + at, mask=at < columns, other=float("-inf")).to(tl.float32)
        grad = tl.exp(x - lse) - tl.where(at == label, 1.0, 0.0)
        where = grad_ptr + row * columns + at
        tl.store(where, grad.to(grad_ptr.dtype.element_ty), mask=at < columns)
    tl.store(loss_ptr + row, lse - tl.load(x_row + label).to(tl.float32))


@tawa.jit
def running_sums(x_ptr, o_ptr, columns, BLOCK: tl.constexpr):
    """Sums of all elements before and at each, a row at a time."""
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0) * columns
    x = tl.load(x_ptr + row + at, mask=at < columns, other=0.0)
    tl.store(o_ptr + row + at, tl.cumsum(x, 0), mask=at < columns)


@tawa.jit
def int8_product(
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
    """C[M, N] = A[M, K] B[N, K]' in int32, times a scale for each row and each column."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.int32)
    for k in range(0, K, BK):
        a = tl.load(
            a_ptr + rows[:, None] * K + (k + depth)[None, :], mask=rows[:, None] < M, other=0
        )
        b = tl.load(
            b_ptr + columns[None, :] * K + (k + depth)[:, None], mask=columns[None, :] < N, other=0
        )
        acc = tl.dot(a, b, acc, out_dtype=tl.int32)
    by_row = tl.load(as_ptr + rows, mask=rows < M, other=0.0)
    by_column = tl.load(bs_ptr + columns, mask=columns < N, other=0.0)
    c = acc.to(tl.float32) * by_row[:, None] * by_column[None, :]
    store_inside(c_ptr, c, rows, columns, M, N)


@tawa.jit
def int4_product(
    a_ptr,
    b_ptr,
    s_ptr,
    z_ptr,
    c_ptr,
    M,
    N,
    K,
    GROUP: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """C = A W. W[K, N] has 8 rows in a word of b[K/8, N], a scale and a zero a group of rows."""
    rows = tl.program_id(1) * BM + tl.arange(0, BM)
    columns = tl.program_id(0) * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    a_at = a_ptr + rows[:, None] * K + depth[None, :]
    b_at = b_ptr + (depth[:, None] // 8) * N + columns[None, :]
    shift = (depth % 8) * 4
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        group = k * BK // GROUP
        scale = tl.load(s_ptr + group * N + columns)
        word = tl.load(z_ptr + group * (N // 8) + columns // 8)
        zero = ((word >> ((columns % 8) * 4)) & 15) * scale
        a = tl.load(a_at, mask=rows[:, None] < M, other=0.0)
        w = (tl.load(b_at) >> shift[:, None]) & 15
        acc += tl.dot(a, (w * scale[None, :] - zero[None, :]).to(a.dtype))
        a_at += BK
        b_at += BK // 8 * N
    place = c_ptr + rows[:, None] * N + columns[None, :]
    tl.store(place, acc.to(c_ptr.dtype.element_ty), mask=rows[:, None] < M)


@tawa.jit
def block_scaled_product(
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
    """C = A B' in fp8: a scale for 1 x 128 elements of A[M, K], one for 128 x 128 of B[N, K]."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    block_scaled_tile(a_ptr, b_ptr, as_ptr, bs_ptr, c_ptr, rows, columns, M, N, K, BM, BN, BK)


@tawa.jit
def split_sums(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    SPLIT: tl.constexpr,
):
    """C += A[M, K] B[K, N]; programs share K and add their parts by atomics."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    depth = tl.program_id(2) * BK + tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK * SPLIT):
        at = k + depth
        a = tl.load(
            a_ptr + rows[:, None] * K + at[None, :],
            mask=(rows[:, None] < M) & (at[None, :] < K),
            other=0.0,
        )
        b = tl.load(
            b_ptr + at[:, None] * N + columns[None, :],
            mask=(at[:, None] < K) & (columns[None, :] < N),
            other=0.0,
        )
        acc = tl.dot(a, b, acc)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.atomic_add(c_ptr + rows[:, None] * N + columns[None, :], acc, mask=inside)


@tawa.jit
def experts(
    x_ptr,
    w_ptr,
    o_ptr,
    gate_ptr,
    token_ptr,
    expert_ptr,
    used_ptr,
    N,
    K,
    TOKENS,
    TOP: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """Rows gathered by expert times that expert's weights [N, K], scaled, scattered back."""
    block = tl.program_id(1)
    if block * BM >= tl.load(used_ptr):
        return
    token = tl.load(token_ptr + block * BM + tl.arange(0, BM))
    real = token < TOKENS * TOP
    columns = tl.program_id(0) * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    w_expert = w_ptr + tl.load(expert_ptr + block).to(tl.int64) * N * K
    x_at = x_ptr + (token // TOP)[:, None] * K + depth[None, :]
    w_at = w_expert + columns[None, :] * K + depth[:, None]
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        x = tl.load(x_at, mask=real[:, None] & (k + depth < K)[None, :], other=0.0)
        w = tl.load(w_at, mask=(k + depth < K)[:, None], other=0.0)
        acc += tl.dot(x, w)
        x_at += BK
        w_at += BK
    acc *= tl.load(gate_ptr + token, mask=real, other=0.0)[:, None]
    inside = real[:, None] & (columns[None, :] < N)
    place = o_ptr + token[:, None] * N + columns[None, :]
    tl.store(place, acc.to(o_ptr.dtype.element_ty), mask=inside)


@tawa.jit
def many_products(
    a_table, b_table, c_table, size_ptr, count, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """Products of different sizes, [M, N, K] at size_ptr, arrays behind tables of pointers."""
    tile = tl.program_id(0)
    done = 0
    for each in range(count):
        N = tl.load(size_ptr + 3 * each + 1)
        K = tl.load(size_ptr + 3 * each + 2)
        across = tl.cdiv(N, BN)
        tiles = tl.cdiv(tl.load(size_ptr + 3 * each), BM) * across
        while tile >= done and tile < done + tiles:
            a_ptr = tl.load(a_table + each).to(tl.pointer_type(tl.float16))
            b_ptr = tl.load(b_table + each).to(tl.pointer_type(tl.float16))
            c_ptr = tl.load(c_table + each).to(tl.pointer_type(tl.float16))
            rows = (tile - done) // across * BM + tl.arange(0, BM)
            columns = (tile - done) % across * BN + tl.arange(0, BN)
            depth = tl.arange(0, BK)
            a_at = a_ptr + rows[:, None] * K + depth[None, :]
            b_at = b_ptr + depth[:, None] * N + columns[None, :]
            acc = tl.zeros((BM, BN), tl.float32)
            for _ in range(0, K, BK):
                tl.multiple_of(a_at, [16, 16])
                tl.multiple_of(b_at, [16, 16])
                acc += tl.dot(tl.load(a_at), tl.load(b_at))
                a_at += BK
                b_at += BK * N
            tl.store(c_ptr + rows[:, None] * N + columns[None, :], acc.to(tl.float16))
            tile += tl.num_programs(0)
        done += tiles


@tawa.jit
def convolution(
    x_ptr,
    w_ptr,
    o_ptr,
    H,
    W,
    TOTAL,
    CI: tl.constexpr,
    CO,
    KH: tl.constexpr,
    KW: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """Images [N, H, W, CI] with filters [KH, KW, CI, CO], padded to keep H and W; as a product."""
    pixel = tl.program_id(0) * BM + tl.arange(0, BM)
    column, row, image = pixel % W, pixel // W % H, pixel // (W * H)
    out = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for step in range(KH * KW * (CI // BK)):
        tap = step // (CI // BK)
        y = row + tap // KW - KH // 2
        x = column + tap % KW - KW // 2
        channel = step % (CI // BK) * BK + tl.arange(0, BK)
        seen = (pixel < TOTAL) & (y >= 0) & (y < H) & (x >= 0) & (x < W)
        place = x_ptr + ((image * H + y) * W + x)[:, None] * CI + channel[None, :]
        a = tl.load(place, mask=seen[:, None], other=0.0)
        b = tl.load(
            w_ptr + (tap * CI + channel)[:, None] * CO + out[None, :],
            mask=out[None, :] < CO,
            other=0.0,
        )
        acc += tl.dot(a, b)
    store_inside(o_ptr, acc, pixel, out, TOTAL, CO)


@tawa.jit
def chunk_states(
    x_ptr,
    b_ptr,
    dt_ptr,
    sum_ptr,
    o_ptr,
    HEADS,
    STATE,
    LENGTH: tl.constexpr,
    P: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """State that a chunk leaves: sum over its steps of exp(last - sum) dt x b'; Mamba 2's scan.

    x is [chunks * LENGTH, HEADS, P], b [chunks * LENGTH, STATE], dt and its running sums
    [HEADS, chunks * LENGTH], the result [chunks, HEADS, P, STATE].
    """
    chunk, head = tl.program_id(1), tl.program_id(2)
    steps = tl.num_programs(1) * LENGTH
    rows = tl.arange(0, P)
    columns = tl.program_id(0) * BN + tl.arange(0, BN)
    last = tl.load(sum_ptr + head * steps + chunk * LENGTH + LENGTH - 1)
    acc = tl.zeros((P, BN), tl.float32)
    for k in range(0, LENGTH, BK):
        at = chunk * LENGTH + k + tl.arange(0, BK)
        x = tl.load(x_ptr + at[None, :] * (HEADS * P) + head * P + rows[:, None])
        b = tl.load(b_ptr + at[:, None] * STATE + columns[None, :]).to(tl.float32)
        weight = tl.exp(last - tl.load(sum_ptr + head * steps + at)) * tl.load(
            dt_ptr + head * steps + at
        )
        acc += tl.dot(x, (b * weight[:, None]).to(x.dtype))
    place = o_ptr + ((chunk * HEADS + head) * P + rows[:, None]) * STATE + columns[None, :]
    tl.store(place, acc.to(o_ptr.dtype.element_ty))


@tawa.jit
def low_rank_beside(
    x_ptr,
    w_ptr,
    a_ptr,
    b_ptr,
    o_ptr,
    N,
    K,
    scale,
    R: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """x W + scale (x A) B, with A of R columns."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    rank = tl.arange(0, R)
    acc = tl.zeros((BM, BN), tl.float32)
    low = tl.zeros((BM, R), tl.float32)
    for k in range(0, K, BK):
        at = k + tl.arange(0, BK)
        x = tl.load(x_ptr + rows[:, None] * K + at[None, :])
        acc = tl.dot(x, tl.load(w_ptr + at[:, None] * N + columns[None, :]), acc)
        low = tl.dot(x, tl.load(a_ptr + at[:, None] * R + rank[None, :]), low)
    b = tl.load(b_ptr + rank[:, None] * N + columns[None, :])
    acc += scale * tl.dot(low.to(b.dtype), b)
    tl.store(o_ptr + rows[:, None] * N + columns[None, :], acc.to(o_ptr.dtype.element_ty))
