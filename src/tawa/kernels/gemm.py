# ruff: noqa: N803  (the names are those of the tile language: sizes and constants in capitals)
# Kernel code is read by the compiler, not run: its values have no Python types.
# pyright: basic, reportArgumentType=false, reportOperatorIssue=false
# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false, reportReturnType=false
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false
"""Matrix products, each as an author would write it: plain tile programs, no trace of warps.

The functions use only names of the tile language, so that the same text also runs through any other
compiler of it. `A` is [M, K] and `B` is [K, N]; where `TRANS_A` or `TRANS_B` is set the operand is
stored the other way round. Accumulation is in float32; `PRECISION` is how float32 operands are
multiplied (`input_precision` of `tl.dot`).

What differs is how the program reaches memory and how work is dealt out:

- `matmul_descriptors`: descriptors made on the host, one program a tile; the compiler is free to
  order tiles, to make the kernel persistent and to share loads in a cluster.
- `matmul_device_descriptors`: the same, descriptors made inside the kernel.
- `matmul_pointers`: pointers, masks and wrapped rows.
- `matmul_persistent`: the loop over tiles written by the author, sub-tiled store.
- `matmul_batched`: a batch axis in the grid, descriptors of rank three.
- `matmul_epilogue`: scales, bias and activation before the store, or the activation's gradient.
- `matmul_strided`: pointers, a batch axis in the grid, any strides, and the same epilogues.
- `line_up_rows`: no product, but a copy of an operand whose rows TMA cannot step through.

Length: one family, whose kernels are read beside one another.
"""

from __future__ import annotations

import tawa
import tawa.language as tl


@tawa.jit
def grouped_tile(tile, tiles_m, tiles_n, GROUP_M: tl.constexpr):
    """Return (row, column) of a tile in an order that walks `GROUP_M` rows of tiles together.

    A group's columns of B are then read by neighbours in time, while they are in the L2 cache.
    """
    per_group = GROUP_M * tiles_n
    first = (tile // per_group) * GROUP_M
    rows = min(tiles_m - first, GROUP_M)
    inside = tile % per_group
    return first + inside % rows, inside // rows


@tawa.jit
def activate(x, ACTIVATION: tl.constexpr):
    """Apply "relu", "leaky_relu", "silu" or "gelu" (by tanh), or "", nothing; NaN stays NaN."""
    if ACTIVATION == "relu":
        x = tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)
    elif ACTIVATION == "leaky_relu":
        x = tl.where(x >= 0, x, 0.01 * x)
    elif ACTIVATION == "silu":
        x = x * tl.sigmoid(x)
    elif ACTIVATION == "gelu":
        x = x * tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))
    return x


@tawa.jit
def slope(x, ACTIVATION: tl.constexpr):
    """Return the derivative of `activate` at `x`."""
    if ACTIVATION == "relu":
        return tl.where(x > 0, 1.0, 0.0)
    elif ACTIVATION == "leaky_relu":
        return tl.where(x >= 0, 1.0, 0.01)
    elif ACTIVATION == "silu":
        gate = tl.sigmoid(x)
        return gate * (1.0 + x * (1.0 - gate))
    elif ACTIVATION == "gelu":
        gate = tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))
        inner = 1.5957691216057308 * (1.0 + 0.134145 * x * x)
        return gate * (1.0 + x * (1.0 - gate) * inner)


@tawa.jit
def finish(
    acc,
    scale_a_ptr,
    scale_b_ptr,
    bias_ptr,
    rows,
    columns,
    M,
    N,
    SCALES: tl.constexpr,
    BIAS: tl.constexpr,
    ACTIVATION: tl.constexpr,
):
    """Scale, add bias [N] and activate; `SCALES` is "", "tensor" (one each), "row" ([M], [N])."""
    if SCALES == "tensor":
        acc = acc * (tl.load(scale_a_ptr) * tl.load(scale_b_ptr))
    elif SCALES == "row":
        scale_a = tl.load(scale_a_ptr + rows, mask=rows < M, other=0.0)
        scale_b = tl.load(scale_b_ptr + columns, mask=columns < N, other=0.0)
        acc = acc * scale_a[:, None] * scale_b[None, :]
    if BIAS:
        bias = tl.load(bias_ptr + columns, mask=columns < N, other=0.0)
        acc = acc + bias.to(tl.float32)[None, :]
    return activate(acc, ACTIVATION)


@tawa.jit
def matmul_descriptors(
    a_desc,
    b_desc,
    c_desc,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    TRANS_A: tl.constexpr = False,
    TRANS_B: tl.constexpr = False,
    PRECISION: tl.constexpr = "tf32",
    ACROSS: tl.constexpr = False,
):
    """C = A @ B over host descriptors; grid (cdiv(M, BLOCK_M), cdiv(N, BLOCK_N)).

    With `ACROSS` its axes are the other way round: neighbours along axis 0, which may be blocks of
    a cluster, then share A instead of B.
    """
    row = tl.program_id(1 if ACROSS else 0) * BLOCK_M
    column = tl.program_id(0 if ACROSS else 1) * BLOCK_N
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        if TRANS_A:
            a = a_desc.load([k, row]).T
        else:
            a = a_desc.load([row, k])
        if TRANS_B:
            b = b_desc.load([column, k]).T
        else:
            b = b_desc.load([k, column])
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
    c_desc.store([row, column], acc.to(c_desc.dtype))


@tawa.jit
def matmul_device_descriptors(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    TRANS_B: tl.constexpr = True,
    WARP_SPECIALIZE: tl.constexpr = False,
    PRECISION: tl.constexpr = "tf32",
):
    """C = A @ B over dense matrices; B is stored [N, K] where `TRANS_B` is set, else [K, N].

    Grid (cdiv(M, BLOCK_M), cdiv(N, BLOCK_N)).
    """
    a_desc = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [BLOCK_M, BLOCK_K])
    if TRANS_B:
        b_desc = tl.make_tensor_descriptor(b_ptr, [N, K], [K, 1], [BLOCK_N, BLOCK_K])
    else:
        b_desc = tl.make_tensor_descriptor(b_ptr, [K, N], [N, 1], [BLOCK_K, BLOCK_N])
    c_desc = tl.make_tensor_descriptor(c_ptr, [M, N], [N, 1], [BLOCK_M, BLOCK_N])
    row = tl.program_id(0) * BLOCK_M
    column = tl.program_id(1) * BLOCK_N
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in tl.range(0, K, BLOCK_K, warp_specialize=WARP_SPECIALIZE):
        a = a_desc.load([row, k])
        if TRANS_B:
            b = b_desc.load([column, k]).T
        else:
            b = b_desc.load([k, column])
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
    c_desc.store([row, column], acc.to(c_desc.dtype))


@tawa.jit
def matmul_pointers(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    ACTIVATION: tl.constexpr = "",
    PRECISION: tl.constexpr = "tf32",
):
    """C = activation(A @ B) over pointers and strides; grid (tiles of C,).

    Rows past the end wrap round and are computed for nothing; the store's mask drops them.
    """
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    tile_m, tile_n = grouped_tile(tl.program_id(0), tiles_m, tiles_n, GROUP_M)
    rows = (tile_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    columns = (tile_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    depth = tl.arange(0, BLOCK_K)
    a_at = a_ptr + (rows[:, None] * stride_am + depth[None, :] * stride_ak)
    b_at = b_ptr + (depth[:, None] * stride_bk + columns[None, :] * stride_bn)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(0, tl.cdiv(K, BLOCK_K)):
        a = tl.load(a_at, mask=depth[None, :] < K - step * BLOCK_K, other=0.0)
        b = tl.load(b_at, mask=depth[:, None] < K - step * BLOCK_K, other=0.0)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
        a_at += BLOCK_K * stride_ak
        b_at += BLOCK_K * stride_bk
    c = activate(acc, ACTIVATION).to(c_ptr.dtype.element_ty)
    out_rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    out_columns = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    c_at = c_ptr + stride_cm * out_rows[:, None] + stride_cn * out_columns[None, :]
    tl.store(c_at, c, mask=(out_rows[:, None] < M) & (out_columns[None, :] < N))


@tawa.jit
def matmul_persistent(
    a_desc,
    b_desc,
    c_desc,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    PROGRAMS: tl.constexpr,
    SUBTILES: tl.constexpr = 1,
    FLATTEN: tl.constexpr = False,
    WARP_SPECIALIZE: tl.constexpr = False,
    PRECISION: tl.constexpr = "tf32",
):
    """C = A @ B, B stored [N, K]; `PROGRAMS` programs walk all tiles; grid (PROGRAMS,).

    With `SUBTILES` = 2 each tile is stored in two halves, so that `c_desc` has blocks of
    [BLOCK_M, BLOCK_N // 2] and half the staging memory is left to the operands. The tile stored is
    counted apart from the tile computed: nothing of the one then lives through the other.
    """
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    steps = tl.cdiv(K, BLOCK_K)
    start = tl.program_id(0)
    stored = start - PROGRAMS
    for tile in tl.range(
        start, tiles_m * tiles_n, PROGRAMS, flatten=FLATTEN, warp_specialize=WARP_SPECIALIZE
    ):
        tile_m, tile_n = grouped_tile(tile, tiles_m, tiles_n, GROUP_M)
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for step in range(steps):
            a = a_desc.load([tile_m * BLOCK_M, step * BLOCK_K])
            b = b_desc.load([tile_n * BLOCK_N, step * BLOCK_K])
            acc = tl.dot(a, b.T, acc, input_precision=PRECISION)
        stored += PROGRAMS
        tile_m, tile_n = grouped_tile(stored, tiles_m, tiles_n, GROUP_M)
        row = tile_m * BLOCK_M
        column = tile_n * BLOCK_N
        if SUBTILES == 2:
            halves = tl.permute(tl.reshape(acc, (BLOCK_M, 2, BLOCK_N // 2)), (0, 2, 1))
            left, right = tl.split(halves)
            c_desc.store([row, column], left.to(c_desc.dtype))
            c_desc.store([row, column + BLOCK_N // 2], right.to(c_desc.dtype))
        else:
            c_desc.store([row, column], acc.to(c_desc.dtype))


@tawa.jit
def matmul_batched(
    a_desc,
    b_desc,
    c_desc,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    TRANS_A: tl.constexpr = False,
    TRANS_B: tl.constexpr = False,
    SHARED_A: tl.constexpr = False,
    SHARED_B: tl.constexpr = False,
    PRECISION: tl.constexpr = "tf32",
):
    """C[i] = A[i] @ B[i] over descriptors of rank three with blocks [1, ...]; `SHARED_A` and
    `SHARED_B`: that operand is the same for all.

    Grid (cdiv(M, BLOCK_M), cdiv(N, BLOCK_N), batch).
    """
    row = tl.program_id(0) * BLOCK_M
    column = tl.program_id(1) * BLOCK_N
    item = tl.program_id(2)
    item_a = 0 if SHARED_A else item
    item_b = 0 if SHARED_B else item
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        if TRANS_A:
            a = a_desc.load([item_a, k, row]).reshape(BLOCK_K, BLOCK_M).T
        else:
            a = a_desc.load([item_a, row, k]).reshape(BLOCK_M, BLOCK_K)
        if TRANS_B:
            b = b_desc.load([item_b, column, k]).reshape(BLOCK_N, BLOCK_K).T
        else:
            b = b_desc.load([item_b, k, column]).reshape(BLOCK_K, BLOCK_N)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
    c = acc.to(c_desc.dtype).reshape(1, BLOCK_M, BLOCK_N)
    c_desc.store([item, row, column], c)


@tawa.jit
def matmul_epilogue(
    a_desc,
    b_desc,
    c_desc,
    grad_desc,
    scale_a_ptr,
    scale_b_ptr,
    bias_ptr,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    TRANS_A: tl.constexpr = False,
    TRANS_B: tl.constexpr = False,
    SCALES: tl.constexpr = "",
    BIAS: tl.constexpr = False,
    ACTIVATION: tl.constexpr = "",
    GRADIENT: tl.constexpr = False,
    PRECISION: tl.constexpr = "tf32",
    ACROSS: tl.constexpr = False,
):
    """C = activation(scale_a * scale_b * (A @ B) + bias); grid as `matmul_descriptors`.

    `SCALES` is "" (none), "tensor" (one float32 each) or "row" (float32 [M] and [N]); `bias` is
    [N]. Pointers of what is not used are None. `GRADIENT`: C is instead the gradient by what the
    activation takes, `grad`, of C's shape, times the activation's derivative.
    """
    row = tl.program_id(1 if ACROSS else 0) * BLOCK_M
    column = tl.program_id(0 if ACROSS else 1) * BLOCK_N
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        if TRANS_A:
            a = a_desc.load([k, row]).T
        else:
            a = a_desc.load([row, k])
        if TRANS_B:
            b = b_desc.load([column, k]).T
        else:
            b = b_desc.load([k, column])
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
    rows = row + tl.arange(0, BLOCK_M)
    columns = column + tl.arange(0, BLOCK_N)
    before = "" if GRADIENT else ACTIVATION
    acc = finish(acc, scale_a_ptr, scale_b_ptr, bias_ptr, rows, columns, M, N, SCALES, BIAS, before)
    if GRADIENT:
        acc = slope(acc, ACTIVATION) * grad_desc.load([row, column]).to(tl.float32)
    c_desc.store([row, column], acc.to(c_desc.dtype))


@tawa.jit
def matmul_strided(
    a_ptr,
    b_ptr,
    c_ptr,
    grad_ptr,
    scale_a_ptr,
    scale_b_ptr,
    bias_ptr,
    M,
    N,
    K,
    stride_ai,
    stride_am,
    stride_ak,
    stride_bi,
    stride_bk,
    stride_bn,
    stride_ci,
    stride_cm,
    stride_cn,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    SCALES: tl.constexpr = "",
    BIAS: tl.constexpr = False,
    ACTIVATION: tl.constexpr = "",
    GRADIENT: tl.constexpr = False,
    PRECISION: tl.constexpr = "tf32",
):
    """C[i] = activation(scale_a * scale_b * (A[i] @ B[i]) + bias) over pointers of any strides.

    Grid (tiles of C, batch); offsets are of 64 bits. `GRADIENT`: as of `matmul_epilogue`, `grad`
    with the strides of C.
    """
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    tile_m, tile_n = grouped_tile(tl.program_id(0), tiles_m, tiles_n, GROUP_M)
    item = tl.program_id(1).to(tl.int64)
    out_rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    out_columns = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    rows = (out_rows % M).to(tl.int64)
    columns = (out_columns % N).to(tl.int64)
    depth = tl.arange(0, BLOCK_K)
    steps = depth.to(tl.int64)
    a_at = a_ptr + item * stride_ai + (rows[:, None] * stride_am + steps[None, :] * stride_ak)
    b_at = b_ptr + item * stride_bi + (steps[:, None] * stride_bk + columns[None, :] * stride_bn)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(0, tl.cdiv(K, BLOCK_K)):
        a = tl.load(a_at, mask=depth[None, :] < K - step * BLOCK_K, other=0.0)
        b = tl.load(b_at, mask=depth[:, None] < K - step * BLOCK_K, other=0.0)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
        a_at += tl.cast(stride_ak, tl.int64) * BLOCK_K
        b_at += tl.cast(stride_bk, tl.int64) * BLOCK_K
    before = "" if GRADIENT else ACTIVATION
    acc = finish(
        acc,
        scale_a_ptr,
        scale_b_ptr,
        bias_ptr,
        out_rows,
        out_columns,
        M,
        N,
        SCALES,
        BIAS,
        before,
    )
    c_rows = out_rows.to(tl.int64)[:, None]
    c_at = c_ptr + item * stride_ci + (c_rows * stride_cm + out_columns[None, :] * stride_cn)
    inside = (out_rows[:, None] < M) & (out_columns[None, :] < N)
    if GRADIENT:
        steps = c_rows * stride_cm + out_columns[None, :] * stride_cn
        grad = tl.load(grad_ptr + item * stride_ci + steps, mask=inside, other=0.0)
        acc = slope(acc, ACTIVATION) * grad.to(tl.float32)
    tl.store(c_at, acc.to(c_ptr.dtype.element_ty), mask=inside)


@tawa.jit
def line_up_rows(
    in_ptr,
    out_ptr,
    rows,
    columns,
    stride_item,
    stride_row,
    pitch,
    BLOCK_R: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    """out[i, r, c] = in[i, r, c], rows of `out` `pitch` elements apart, the rest of them zero.

    Grid (cdiv(pitch, BLOCK_C), cdiv(rows, BLOCK_R), items). Vectors of 16 bytes are stored.
    """
    item = tl.program_id(2).to(tl.int64)
    row = tl.program_id(1) * BLOCK_R + tl.arange(0, BLOCK_R)[:, None]
    column = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)[None, :]
    at = in_ptr + item * stride_item + row.to(tl.int64) * stride_row + column
    x = tl.load(at, mask=(row < rows) & (column < columns), other=0.0)
    to = out_ptr + (item * rows + row) * pitch + column
    tl.store(to, x, mask=(row < rows) & (column < pitch))
