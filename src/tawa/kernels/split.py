# ruff: noqa: N803  (the names are those of the tile language: sizes and constants in capitals)
# Kernel code is read by the compiler, not run: its values have no Python types.
# pyright: basic, reportArgumentType=false, reportOperatorIssue=false
# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false, reportReturnType=false
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false
"""Products whose K is dealt out over several programs: split-K, for too few tiles for the GPU.

As many tiles as fill whole waves are computed whole; K of the others, of all where they fill none,
is cut into chunks. Partial sums, in float32, are added up in a fixed order, so that results do not
change from run to run: in a second launch, or by the last program of a tile to arrive.
"""

from __future__ import annotations

import tawa
import tawa.language as tl
from tawa.kernels.gemm import activate, finish, grouped_tile


@tawa.jit
def matmul_split(
    a_desc,
    b_desc,
    c_desc,
    part_ptr,
    scale_a_ptr,
    scale_b_ptr,
    bias_ptr,
    M,
    N,
    K,
    SPLITS: tl.constexpr,
    CHUNK: tl.constexpr,
    WHOLE: tl.constexpr,
    GROUP_M: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    TRANS_A: tl.constexpr = False,
    TRANS_B: tl.constexpr = False,
    SCALES: tl.constexpr = "",
    BIAS: tl.constexpr = False,
    ACTIVATION: tl.constexpr = "",
    PRECISION: tl.constexpr = "tf32",
):
    """C = activation(A @ B + bias) of the first `WHOLE` tiles, parts of the others.

    part[tile, s] = A[:, s * CHUNK :][:, :CHUNK] @ B[s * CHUNK :][:CHUNK] of a tile, float32 [tiles
    - WHOLE, SPLITS, BLOCK_M, BLOCK_N], which `add_tiles` adds up. `CHUNK` is a multiple of BLOCK_K.
    Grid (WHOLE + (tiles - WHOLE) * SPLITS,).
    """
    program = tl.program_id(0)
    beyond = tl.maximum(program - WHOLE, 0)
    tile = tl.minimum(program, WHOLE) + beyond // SPLITS
    tile_m, tile_n = grouped_tile(tile, tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)
    row = tile_m * BLOCK_M
    column = tile_n * BLOCK_N
    begin = beyond % SPLITS * CHUNK
    end = tl.where(program < WHOLE, K, tl.minimum(begin + CHUNK, K))
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(begin, end, BLOCK_K):
        if TRANS_A:
            a = a_desc.load([k, row]).T
        else:
            a = a_desc.load([row, k])
        if TRANS_B:
            b = b_desc.load([column, k]).T
        else:
            b = b_desc.load([k, column])
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
    rows = tl.arange(0, BLOCK_M)
    columns = tl.arange(0, BLOCK_N)
    if WHOLE == 0 or program >= WHOLE:
        at = rows[:, None] * BLOCK_N + columns[None, :]
        tl.store(part_ptr + beyond.to(tl.int64) * (BLOCK_M * BLOCK_N) + at, acc)
        return
    given = (scale_a_ptr, scale_b_ptr, bias_ptr, row + rows, column + columns, M, N)
    acc = finish(acc, *given, SCALES, BIAS, ACTIVATION)
    c_desc.store([row, column], acc.to(c_desc.dtype))


@tawa.jit
def add_tiles(
    part_ptr,
    c_ptr,
    scale_a_ptr,
    scale_b_ptr,
    bias_ptr,
    M,
    N,
    step,
    SPLITS: tl.constexpr,
    WHOLE: tl.constexpr,
    GROUP_M: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    ROWS: tl.constexpr,
    SCALES: tl.constexpr = "",
    BIAS: tl.constexpr = False,
    ACTIVATION: tl.constexpr = "",
):
    """C = activation(the sum of a tile's parts, in order, + bias) of the tiles from `WHOLE` on.

    C's rows are `step` elements apart. Grid (tiles - WHOLE, BLOCK_M / ROWS).
    """
    dealt = tl.program_id(0)
    tiles_m = tl.cdiv(M, BLOCK_M)
    tile_m, tile_n = grouped_tile(WHOLE + dealt, tiles_m, tl.cdiv(N, BLOCK_N), GROUP_M)
    inner = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    rows = tile_m * BLOCK_M + inner
    columns = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    at = inner[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    part_at = part_ptr + dealt.to(tl.int64) * (SPLITS * BLOCK_M * BLOCK_N)
    total = tl.zeros((ROWS, BLOCK_N), dtype=tl.float32)
    for split in tl.static_range(SPLITS):
        total += tl.load(part_at + split * (BLOCK_M * BLOCK_N) + at)
    given = (scale_a_ptr, scale_b_ptr, bias_ptr, rows, columns, M, N)
    total = finish(total, *given, SCALES, BIAS, ACTIVATION)
    inside = (rows < M)[:, None] & (columns < N)[None, :]
    to = c_ptr + rows.to(tl.int64)[:, None] * step + columns[None, :]
    tl.store(to, total.to(c_ptr.dtype.element_ty), mask=inside)


@tawa.jit
def matmul_split_once(
    a_desc,
    b_desc,
    c_desc,
    part_ptr,
    count_ptr,
    bias_ptr,
    N,
    K,
    CHUNK: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    TRANS_A: tl.constexpr = False,
    TRANS_B: tl.constexpr = False,
    BIAS: tl.constexpr = False,
    ACTIVATION: tl.constexpr = "",
    PRECISION: tl.constexpr = "tf32",
):
    """C = activation(A @ B + bias), each tile's K cut into `SPLITS` chunks, in one launch.

    Every program leaves its sum in `part`, float32 [tiles, SPLITS, BLOCK_M, BLOCK_N]; the last of a
    tile's programs to arrive adds all of them up, always in the same order. `count` holds an int32
    for each tile, zero before and after. `CHUNK` is a multiple of BLOCK_K. Grid
    (cdiv(M, BLOCK_M), cdiv(N, BLOCK_N), SPLITS).
    """
    row = tl.program_id(0) * BLOCK_M
    column = tl.program_id(1) * BLOCK_N
    split = tl.program_id(2)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(split * CHUNK, min(split * CHUNK + CHUNK, K), BLOCK_K):
        if TRANS_A:
            a = a_desc.load([k, row]).T
        else:
            a = a_desc.load([row, k])
        if TRANS_B:
            b = b_desc.load([column, k]).T
        else:
            b = b_desc.load([k, column])
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
    tile = tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
    columns = tl.arange(0, BLOCK_N)
    inside = tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + columns[None, :]
    part = part_ptr + tile * (SPLITS * BLOCK_M * BLOCK_N) + inside
    tl.store(part + split * (BLOCK_M * BLOCK_N), acc)
    before = tl.atomic_add(count_ptr + tile, 1)
    if before == SPLITS - 1:
        total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for other in tl.static_range(SPLITS):
            total += tl.load(part + other * (BLOCK_M * BLOCK_N))
        if BIAS:
            bias = tl.load(bias_ptr + column + columns, mask=column + columns < N, other=0.0)
            total = total + bias.to(tl.float32)[None, :]
        c_desc.store([row, column], activate(total, ACTIVATION).to(c_desc.dtype))
        tl.store(count_ptr + tile, 0)
