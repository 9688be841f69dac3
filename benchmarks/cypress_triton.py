# Kernel code is read by the compiler, not run: its values have no Python types.
# pyright: basic, reportArgumentType=false, reportOperatorIssue=false, reportCallIssue=false
# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false, reportGeneralTypeIssues=false
"""Dual GEMM and GEMM with row sums as plain tile kernels: one source, by Triton and by tawa.

`calls(name, *tensors)` gives a call for each compiler, with the fastest of its tiles. What a task
program with a mapping is worth is measured against both: the other compiler, and the same one
without a mapping.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Any

import tawa
import tawa.language as tl
from tawa.kernels.gemm import grouped_tile

_TILES = ((128, 256), (256, 128), (128, 192), (128, 128))
# Rows, columns, stages and warps for Triton, which takes powers of two; tawa plans the last two.
_TRITON = (
    *((128, 256, 2, 8), (128, 256, 3, 8), (128, 256, 4, 8), (256, 128, 2, 8), (256, 128, 3, 8)),
    *((128, 128, 3, 8), (128, 128, 4, 8), (128, 128, 4, 4)),
)


@tawa.jit
def dual(
    a_desc,
    b1_desc,
    b2_desc,
    c_desc,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    """C = A B1 + A B2 over host descriptors; grid (tiles of C,)."""
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    row, column = grouped_tile(tl.program_id(0), tiles_m, tiles_n, GROUP_M)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a = a_desc.load([row * BLOCK_M, k])
        acc = tl.dot(a, b1_desc.load([k, column * BLOCK_N]), acc)
        acc = tl.dot(a, b2_desc.load([k, column * BLOCK_N]), acc)
    c_desc.store([row * BLOCK_M, column * BLOCK_N], acc.to(tl.float16))


@tawa.jit
def sums(
    a_desc,
    b_desc,
    c_desc,
    y_ptr,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    """C = A B, and in y [tiles of N, M] the sums of the rows of A; grid (tiles of C,)."""
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    row, column = grouped_tile(tl.program_id(0), tiles_m, tiles_n, GROUP_M)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    total = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a = a_desc.load([row * BLOCK_M, k])
        acc = tl.dot(a, b_desc.load([k, column * BLOCK_N]), acc)
        total += tl.sum(a.to(tl.float32), 1)
    c_desc.store([row * BLOCK_M, column * BLOCK_N], acc.to(tl.float16))
    rows = row * BLOCK_M + tl.arange(0, BLOCK_M)
    tl.store(y_ptr + column * M + rows, total, mask=rows < M)


def calls(name: str, *tensors: Any) -> dict[str, Callable[[], Any]]:
    """Return the fastest call of Triton and that of tawa for "dual" (C, A, B1, B2) or "sums"
    (C, Y, A, B); a compiler that is not there, or takes no tile, is named and left out.
    """
    from tawa.testing import do_bench

    found: dict[str, Callable[[], Any]] = {}
    for label, bound in (("Triton, plain tiles", by_triton), ("tawa, plain tiles", by_tawa)):
        times: list[tuple[float, int, Callable[[], Any]]] = []
        reason: Exception | None = None
        for number, ready in enumerate(bound(name, *tensors)):
            try:
                call = ready()
                times.append((do_bench(call, 5, 20), number, call))
            except Exception as error:  # of a tile that does not fit, or a compiler that is absent
                reason = error
        if times:
            found[label] = min(times)[2]
        else:
            print(f"  no {label}: {type(reason).__name__}: {str(reason).splitlines()[0]}")
    return found


def by_tawa(name: str, *tensors: Any) -> list[Callable[[], Callable[[], Any]]]:
    """Return what prepares a call of tawa's kernel, for each tile."""
    kernel: Any = {"dual": dual, "sums": sums}[name]

    def ready(tile: tuple[int, int]) -> Callable[[], Any]:
        return bind(kernel, tawa.TensorDescriptor.from_tensor, name, tensors, tile)

    return [lambda tile=tile: ready(tile) for tile in _TILES]


def by_triton(name: str, *tensors: Any) -> list[Callable[[], Callable[[], Any]]]:
    """Return what prepares a call of Triton's kernel of the same source, for each tile."""

    def ready(tile: tuple[int, int], stages: int, warps: int) -> Callable[[], Any]:
        from triton.tools.tensor_descriptor import TensorDescriptor

        from twin import twin

        kernel = twin({"dual": dual, "sums": sums}[name])
        hints = {"num_stages": stages, "num_warps": warps}
        return bind(kernel, TensorDescriptor.from_tensor, name, tensors, tile, **hints)

    return [lambda c=choice: ready(c[:2], *c[2:]) for choice in _TRITON]


def bind(
    kernel: Any,
    describe: Callable[..., Any],
    name: str,
    tensors: tuple[Any, ...],
    tile: tuple[int, int],
    **hints: int,
) -> Callable[[], Any]:
    """Return a call of a kernel with all its arguments made, after a first one that compiles."""
    (rows, columns), depth = tile, 64
    c, b = tensors[0], tensors[-1]
    (m, n), k = c.shape, b.shape[0]
    blocks = [(rows, depth), *[(depth, columns)] * (2 if name == "dual" else 1), (rows, columns)]
    read = tensors[1:] if name == "dual" else tensors[2:]
    arguments = [describe(t, [*block]) for t, block in zip((*read, c), blocks, strict=True)]
    if name == "sums":
        # A row for each column of tiles: a buffer of its own where the tile is narrower.
        y, tiles = tensors[1], ceil(n / columns)
        arguments.append(y if y.shape[0] >= tiles else y.new_empty(tiles, m))
    arguments += [m, n, k]
    sizes = {"BLOCK_M": rows, "BLOCK_N": columns, "BLOCK_K": depth, "GROUP_M": 8}
    ready = kernel[(ceil(m / rows) * ceil(n / columns),)]

    def call() -> None:
        ready(*arguments, **sizes, **hints)

    call()
    return call
