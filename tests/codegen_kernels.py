"""Python kernels that code generation is tested on."""

from __future__ import annotations

import tawa.language as tl
from frontend_kernels import of
from tawa.frontend.signature import DescriptorArg


def matmul_nt(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM
    n = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        a = a_desc.load([m, k])
        b = b_desc.load([n, k])
        acc = tl.dot(a, b.T, acc)
    c_desc.store([m, n], acc.to(c_desc.dtype))


def attention(
    q_desc, k_desc, v_desc, o_desc, S, scale, BM: tl.constexpr, BN: tl.constexpr, HD: tl.constexpr
):
    m = tl.program_id(0) * BM
    bh = tl.program_id(1)
    q = q_desc.load([bh, m, 0]).reshape(BM, HD)
    m_i = tl.full((BM,), -1e30, tl.float32)
    l_i = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, HD), tl.float32)
    for j in range(0, S, BN):
        k = k_desc.load([bh, j, 0]).reshape(BN, HD)
        s = tl.dot(q, k.T) * scale
        m_new = tl.maximum(m_i, tl.max(s, 1))
        p = tl.exp2(s - m_new[:, None])
        alpha = tl.exp2(m_i - m_new)
        l_i = l_i * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None]
        v = v_desc.load([bh, j, 0]).reshape(BN, HD)
        acc = tl.dot(p.to(tl.float16), v, acc)
        m_i = m_new
    o = acc / l_i[:, None]
    o_desc.store([bh, m, 0], o.to(tl.float16).reshape(1, BM, HD))


_TILE = DescriptorArg("f16", (1, 128, 128))
ATTENTION = of(
    q_desc=_TILE, k_desc=_TILE, v_desc=_TILE, o_desc=_TILE, S="i32/16", scale="f32",
    BM=128, BN=128, HD=128,
)  # fmt: skip


def add(x_ptr, y_ptr, o_ptr, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    mask = i < n
    x = tl.load(x_ptr + i, mask=mask)
    y = tl.load(y_ptr + i, mask=mask)
    tl.store(o_ptr + i, x + y, mask=mask)


def softmax(x_ptr, o_ptr, stride, n, B: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, B)
    x = tl.load(x_ptr + row * stride + i, mask=i < n, other=-float("inf"))
    x = x - tl.max(x, 0)
    e = tl.exp(x)
    tl.store(o_ptr + row * stride + i, e / tl.sum(e, 0), mask=i < n)


def histogram(x_ptr, o_ptr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(o_ptr + tl.load(x_ptr + i), 1)


def argmax_rows(x_ptr, o_ptr, M: tl.constexpr, N: tl.constexpr):
    rows = tl.arange(0, M)
    x = tl.load(x_ptr + rows[:, None] * N + tl.arange(0, N)[None, :])
    tl.store(o_ptr + rows, tl.argmax(x, 1))


def transpose(x_ptr, o_ptr, M: tl.constexpr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    tl.store(o_ptr + tl.arange(0, N)[:, None] * M + tl.arange(0, M)[None, :], tl.trans(x))


def quantize(x_ptr, o_ptr, scale, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + i).to(tl.float32) * scale
    tl.store(o_ptr + i, x.to(tl.float8e4nv))


def counts(x_ptr, o_ptr, n):
    total = 0
    i = 0
    while i < n:
        total += tl.load(x_ptr + i)
        i += 1
    tl.store(o_ptr, total)


ORDINARY = {
    "add": (add, of(x_ptr="f16*/16", y_ptr="f16*/16", o_ptr="f16*/16", n="i32/16", B=1024)),
    "add scalar": (add, of(x_ptr="f32*", y_ptr="bf16*", o_ptr="f32*", n="i32", B=256)),
    "add i8": (add, of(x_ptr="i8*/16", y_ptr="i8*/16", o_ptr="i8*/16", n="i32", B=256)),
    "add f64": (add, of(x_ptr="f64*/16", y_ptr="f64*/16", o_ptr="f64*/16", n="i32/16", B=256)),
    "softmax": (softmax, of(x_ptr="f32*/16", o_ptr="f32*/16", stride="i32/16", n="i32", B=1024)),
    "softmax bf16": (
        softmax,
        of(x_ptr="bf16*/16", o_ptr="bf16*/16", stride="i32/16", n="i32", B=512),
    ),
    "histogram": (histogram, of(x_ptr="i32*/16", o_ptr="i32*/16", B=1024)),
    "argmax": (argmax_rows, of(x_ptr="f32*/16", o_ptr="i32*/16", M=32, N=64)),
    "transpose": (transpose, of(x_ptr="f16*/16", o_ptr="f16*/16", M=64, N=64)),
    "quantize": (quantize, of(x_ptr="f16*/16", o_ptr="f8e4m3*/16", scale="f32", B=1024)),
    "while": (counts, of(x_ptr="i32*", o_ptr="i32*", n="i32")),
}


def prefix_sums(x_ptr, o_ptr, B: tl.constexpr, BACK: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o_ptr + i, tl.cumsum(tl.load(x_ptr + i), 0, reverse=BACK))


def matmul_nn(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM
    n = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(a_desc.load([m, k]), b_desc.load([k, n]), acc)
    c_desc.store([m, n], acc.to(c_desc.dtype))


def matmul_tt(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM
    n = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(a_desc.load([k, m]).T, b_desc.load([n, k]).T, acc)
    c_desc.store([m, n], acc.to(c_desc.dtype))


def tickets(x_ptr, o_ptr, B: tl.constexpr):
    i = tl.arange(0, B)
    first = tl.atomic_add(x_ptr + i, i + 1)
    tl.store(o_ptr + i, tl.atomic_xchg(x_ptr + i, 7) - first)


ORDINARY["tickets"] = tickets, of(x_ptr="i32*/16", o_ptr="i32*/16", B=32)
