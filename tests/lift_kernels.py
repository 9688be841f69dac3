"""Plain tile kernels that are lifted to tasks, and some that cannot be."""

from __future__ import annotations

from typing import Any

import tawa.language as tl
from codegen_kernels import ATTENTION, attention, matmul_nn, matmul_nt, matmul_tt
from frontend_kernels import of
from tawa.frontend.signature import DescriptorArg
from tawa.kernels.gemm import matmul_batched, matmul_descriptors

D = DescriptorArg


def softmax(x_desc, o_desc, BM: tl.constexpr):
    row = tl.program_id(0) * BM
    x = x_desc.load([row, 0]).to(tl.float32)
    e = tl.exp(x - tl.max(x, 1)[:, None])
    o_desc.store([row, 0], (e / tl.sum(e, 1)[:, None]).to(o_desc.dtype))


def row_sums(x_desc, o_desc, N, BM: tl.constexpr, BN: tl.constexpr):
    row = tl.program_id(0) * BM
    total = tl.zeros((BM,), tl.float32)
    for n in range(0, N, BN):
        total += tl.sum(x_desc.load([row, n]).to(tl.float32), 1)
    o_desc.store([row], total)


def row_max(x_desc, o_desc, BM: tl.constexpr):
    row = tl.program_id(0) * BM
    o_desc.store([row], tl.max(x_desc.load([row, 0]), 1))


def scaled(x_desc, o_desc, scale, BM: tl.constexpr):
    row = tl.program_id(0) * BM
    x = x_desc.load([row, 0])
    o_desc.store([row, 0], tl.where(x > 0, tl.maximum(x * scale, -x), 0.5))


def running(x_desc, o_desc, BM: tl.constexpr):
    row = tl.program_id(0) * BM
    o_desc.store([row, 0], tl.cumsum(x_desc.load([row, 0]), 1))


def picked(x_desc, o_desc, BM: tl.constexpr):
    row = tl.program_id(0) * BM
    x = x_desc.load([row, 0])
    o_desc.store([row, 0], tl.gather(x, (x > 0).to(tl.int32), 1))


def blocks(x_ptr, o_ptr, N, BM: tl.constexpr, BN: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    at = row[:, None] * N + tl.arange(0, BN)[None, :]
    x = tl.load(x_ptr + at, mask=tl.arange(0, BN)[None, :] < N, other=0.0).to(tl.float32)
    tl.store(o_ptr + row, tl.sum(x, 1))


def both_ways(x_ptr, o_ptr, B: tl.constexpr):
    row, column = tl.arange(0, B)[:, None], tl.arange(0, B)[None, :]
    x = tl.load(x_ptr + row * B + column) + tl.load(x_ptr + tl.arange(0, B))[None, :]
    tl.store(o_ptr + row * B + column, x)


def shifted(x_desc, o_desc, BM: tl.constexpr):
    row = tl.program_id(0) * BM
    o_desc.store([row, 0], x_desc.load([row + 8, 0]))


def numbered(x_desc, o_desc, BM: tl.constexpr):
    row = tl.program_id(0) * BM
    o_desc.store([row, 0], x_desc.load([row, 0]) + row)


def while_loop(x_desc, o_desc, N, BM: tl.constexpr):
    row = tl.program_id(0) * BM
    x = x_desc.load([row, 0])
    i = 0
    while i < N:
        x = x * 0.5
        i += 1
    o_desc.store([row, 0], x)


def pointers(x_ptr, o_ptr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o_ptr + i, tl.load(x_ptr + i) * 2)


def _gemm(element: str, b: tuple[int, int], **more: Any) -> dict[str, Any]:
    a, c = D(element, (128, 64)), D(element, (128, 256))
    return of(a_desc=a, b_desc=D(element, b), c_desc=c, K="i32/16", **more)


_WORDS = {"TRANS_A": False, "TRANS_B": False, "PRECISION": "=tf32"}
_TILES = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, **_WORDS}
_PLAIN = {"BM": 128, "BN": 256, "BK": 64}
_ROWS = of(x_desc=D("f32", (64, 128)), o_desc=D("f32", (64, 128)), BM=64)
_BATCHED = of(
    a_desc=D("f16", (1, 128, 64)), b_desc=D("f16", (1, 64, 256)), c_desc=D("f16", (1, 128, 256)),
    K="i32/16", **_TILES, SHARED_A=False, SHARED_B=False,
)  # fmt: skip

LIFTED = {
    "gemm": (matmul_nn, _gemm("f16", (64, 256), **_PLAIN)),
    "gemm of bf16, B transposed": (matmul_nt, _gemm("bf16", (256, 64), **_PLAIN)),
    "gemm of the library": (matmul_descriptors.fn, _gemm("f16", (64, 256), **_TILES)),
    "gemm, batched": (matmul_batched.fn, _BATCHED),
    "attention": (attention, ATTENTION),
    "softmax": (softmax, of(x_desc=D("f16", (64, 128)), o_desc=D("f16", (64, 128)), BM=64)),
    "row sums": (
        row_sums,
        of(x_desc=D("f16", (64, 128)), o_desc=D("f32", (64,)), N="i32", BM=64, BN=128),
    ),
    "running sums": (running, _ROWS),
    "pointers": (pointers, of(x_ptr="f32*/16", o_ptr="f32*/16", B=128)),
    "pointers to rows": (
        blocks,
        of(x_ptr="f16*/16", o_ptr="f32*/16", N="i32/16", BM=64, BN=128),
    ),
    "row maxima": (row_max, of(x_desc=D("f32", (64, 128)), o_desc=D("f32", (64,)), BM=64)),
    "scaled": (scaled, _ROWS | of(scale="f32")),
    "gemm, both transposed": (
        matmul_tt,
        of(
            a_desc=D("f16", (64, 128)),
            b_desc=D("f16", (256, 64)),
            c_desc=D("f16", (128, 256)),
            K="i32/16",
            **_PLAIN,
        ),
    ),
}

REFUSED = {
    "tile.gather": (picked, _ROWS),
    "x_desc from .* on": (shifted, _ROWS),
    r"64\*block_i in a leaf": (numbered, _ROWS),
    "scf.while": (while_loop, _ROWS | of(N="i32")),
    "x_ptr, a pointer": (pointers, of(x_ptr="f32*", o_ptr="f32*/16", B=128)),
    r"x_ptr, a pointer(?=.*\n.*several shapes)": (
        both_ways,
        of(x_ptr="f32*/16", o_ptr="f32*/16", B=64),
    ),
}
