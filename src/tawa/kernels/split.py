# ruff: noqa: N803  (the names are those of the tile language: sizes and constants in capitals)
# Kernel code is read by the compiler, not run: its values have no Python types.
# pyright: basic, reportArgumentType=false, reportOperatorIssue=false
# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false, reportReturnType=false
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false
"""Products whose K is dealt out over several programs: for shapes with too few tiles for the GPU.

All leave partial sums in float32, which are added up in a fixed order, so that results do not
change from run to run: in a second launch, or by the last program of a tile to arrive.

- Split-K: every tile's K is cut into the same number of chunks.
- Stream-K: as many tiles as fill whole waves are computed whole; the K steps of the rest, laid end
  to end, are dealt evenly to all programs, wherever tiles begin and end.
"""

from __future__ import annotations

import tawa
import tawa.language as tl
from tawa.kernels.gemm import activate, grouped_tile


@tawa.jit
def matmul_split(
    a_desc,
    b_desc,
    part_desc,
    K,
    CHUNK: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    TRANS_A: tl.constexpr = False,
    TRANS_B: tl.constexpr = False,
    PRECISION: tl.constexpr = "tf32",
):
    """part[s] = A[:, s * CHUNK :][:, :CHUNK] @ B[s * CHUNK :][:CHUNK], part float32 [splits, M, N].

    `CHUNK` is a multiple of BLOCK_K. Grid (cdiv(M, BLOCK_M), cdiv(N, BLOCK_N), splits).
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
    part_desc.store([split, row, column], acc.reshape(1, BLOCK_M, BLOCK_N))


@tawa.jit
def add_parts(
    part_ptr,
    out_ptr,
    bias_ptr,
    N,
    count,
    SPLITS: tl.constexpr,
    BLOCK: tl.constexpr,
    BIAS: tl.constexpr = False,
    ACTIVATION: tl.constexpr = "",
):
    """out = activation(sum of part over its first axis + bias), `count` = M * N elements.

    Grid (cdiv(count, BLOCK),).
    """
    where = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = where < count
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for split in tl.static_range(SPLITS):
        total += tl.load(part_ptr + split * count + where, mask=inside, other=0.0)
    if BIAS:
        total += tl.load(bias_ptr + where % N, mask=inside, other=0.0).to(tl.float32)
    out = activate(total, ACTIVATION).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + where, out, mask=inside)


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


@tawa.jit
def matmul_stream(
    a_desc,
    b_desc,
    c_desc,
    part_desc,
    M,
    N,
    K,
    whole,
    share,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    PROGRAMS: tl.constexpr,
    TRANS_A: tl.constexpr = False,
    TRANS_B: tl.constexpr = False,
    PRECISION: tl.constexpr = "tf32",
):
    """C = A @ B: tiles below `whole` one by one, the K steps of the others `share` a program.

    A program that computes a part of a tile stores it in slot 2 * program (the tile began before
    its share) or 2 * program + 1 (the tile goes on after it) of `part`, float32
    [2 * PROGRAMS * BLOCK_M, BLOCK_N]; `finish_stream` adds them up. Grid (PROGRAMS,).
    """
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    steps = tl.cdiv(K, BLOCK_K)
    program = tl.program_id(0)
    first = whole * steps + program * share
    last = min(first + share, tiles_m * tiles_n * steps)
    alone = (whole - program + PROGRAMS - 1) // PROGRAMS
    begin_tile = first // steps
    parts = tl.maximum(tl.cdiv(last, steps) - begin_tile, 0)
    for turn in range(alone + parts):
        tile = program + turn * PROGRAMS
        if turn >= alone:
            tile = begin_tile + turn - alone
        begin = 0
        end = steps
        if turn >= alone:
            begin = tl.maximum(first - tile * steps, 0)
            end = tl.minimum(last - tile * steps, steps)
        tile_m, tile_n = grouped_tile(tile, tiles_m, tiles_n, GROUP_M)
        row = tile_m * BLOCK_M
        column = tile_n * BLOCK_N
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for step in range(begin, end):
            k = step * BLOCK_K
            if TRANS_A:
                a = a_desc.load([k, row]).T
            else:
                a = a_desc.load([row, k])
            if TRANS_B:
                b = b_desc.load([column, k]).T
            else:
                b = b_desc.load([k, column])
            acc = tl.dot(a, b, acc, input_precision=PRECISION)
        if end - begin == steps:
            c_desc.store([row, column], acc.to(c_desc.dtype))
        else:
            slot = 2 * program
            if begin == 0:
                slot = slot + 1
            part_desc.store([slot * BLOCK_M, 0], acc)


@tawa.jit
def finish_stream(
    part_desc,
    c_desc,
    M,
    N,
    K,
    whole,
    share,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    """Add up the parts of every tile that more than one program of `matmul_stream` worked on.

    Grid (tiles - whole,).
    """
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    steps = tl.cdiv(K, BLOCK_K)
    begin = tl.program_id(0) * steps
    first = begin // share
    last = (begin + steps - 1) // share
    if first != last:
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for program in range(first, last + 1):
            slot = 2 * program
            if program * share <= begin:
                slot = slot + 1
            acc += part_desc.load([slot * BLOCK_M, 0])
        tile_m, tile_n = grouped_tile(whole + tl.program_id(0), tiles_m, tiles_n, GROUP_M)
        c_desc.store([tile_m * BLOCK_M, tile_n * BLOCK_N], acc.to(c_desc.dtype))
