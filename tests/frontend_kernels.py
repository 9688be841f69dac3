"""Kernels the frontend is tested on, written as users write them, and their signatures."""

from __future__ import annotations

import tawa.language as tl
from tawa.frontend.signature import (
    Argument,
    ConstantArg,
    DescriptorArg,
    PointerArg,
    ScalarArg,
)


class Jitted:
    """What a decorator makes of a helper: an object that holds the function as ``.fn``."""

    def __init__(self, fn):
        self.fn = fn


def jit(fn):
    return Jitted(fn)


def of(**arguments: object) -> dict[str, Argument]:
    """Make a signature: "bf16*" a pointer, "i32" a scalar ("i32/16" divisible), else a constant."""
    return {name: _argument(value) for name, value in arguments.items()}


def _argument(value: object) -> Argument:
    if isinstance(value, DescriptorArg):
        return value
    if not isinstance(value, str) or value.startswith("="):
        return ConstantArg(value[1:] if isinstance(value, str) else value)
    dtype, _, divisor = value.partition("/")
    if dtype.endswith("*"):
        return PointerArg(dtype[:-1], bool(divisor))
    return ScalarArg(dtype, bool(divisor))


def host_descriptors(
    a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    m = tl.program_id(0) * BM
    n = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        a = a_desc.load([m, k])
        b = b_desc.load([k, n])
        acc = tl.dot(a, b, acc)
    c_desc.store([m, n], acc.to(c_desc.dtype))


HOST_DESCRIPTORS = of(
    a_desc=DescriptorArg("bf16", (16, 32)),
    b_desc=DescriptorArg("bf16", (32, 16)),
    c_desc=DescriptorArg("bf16", (16, 16)),
    K="i32",
    BM=16,
    BN=16,
    BK=32,
)


def made_descriptors(
    a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    # B is stored [N, K]: its tile is transposed after the load.
    a_desc = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [BM, BK])
    b_desc = tl.make_tensor_descriptor(b_ptr, [N, K], [K, 1], [BN, BK])
    c_desc = tl.make_tensor_descriptor(c_ptr, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    m = tl.program_id(0) * BM
    n = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for step in range(tl.cdiv(K, BK)):
        a = a_desc.load([m, step * BK])
        b = b_desc.load([n, step * BK])
        acc = tl.dot(a, b.T, acc)
    c_desc.store([m, n], acc.to(tl.float16))


MADE_DESCRIPTORS = of(
    a_ptr="f16*/16",
    b_ptr="f16*/16",
    c_ptr="f16*/16",
    M="i32",
    N="i32",
    K="i32",
    BM=16,
    BN=16,
    BK=16,
)


@jit
def leaky(x, slope: tl.constexpr = 0.01):
    return tl.where(x >= 0, x, slope * x)


def pointers(
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
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    ACTIVATION: tl.constexpr,
):
    """The pointer form: groups of rows, rows and columns wrapped, K masked."""
    program = tl.program_id(axis=0)
    rows = tl.cdiv(M, BM)
    columns = tl.cdiv(N, BN)
    per_group = GROUP * columns
    group = program // per_group
    first_row = group * GROUP
    height = min(rows - first_row, GROUP)
    row = first_row + (program % per_group) % height
    column = (program % per_group) // height
    tl.assume(row >= 0)

    offs_m = (row * BM + tl.arange(0, BM)) % M
    offs_n = (column * BN + tl.arange(0, BN)) % N
    offs_k = tl.arange(0, BK)
    a_ptrs = a_ptr + (offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak)
    b_ptrs = b_ptr + (offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn)
    accumulator = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        a = tl.load(a_ptrs, mask=offs_k[None, :] < K - k * BK, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BK, other=0.0)
        accumulator = tl.dot(a, b, accumulator)
        a_ptrs += BK * stride_ak
        b_ptrs += BK * stride_bk
    if ACTIVATION == "leaky":
        accumulator = leaky(accumulator)
    c = accumulator.to(tl.float16)

    offs_cm = row * BM + tl.arange(0, BM)
    offs_cn = column * BN + tl.arange(0, BN)
    c_ptrs = c_ptr + stride_cm * offs_cm[:, None] + stride_cn * offs_cn[None, :]
    inside = (offs_cm[:, None] < M) & (offs_cn[None, :] < N)
    tl.store(c_ptrs, c, mask=inside)


POINTERS = of(
    a_ptr="f16*/16",
    b_ptr="f16*/16",
    c_ptr="f16*/16",
    M="i32",
    N="i32",
    K="i32",
    stride_am="i32",
    stride_ak=1,
    stride_bk="i32",
    stride_bn=1,
    stride_cm="i32",
    stride_cn=1,
    BM=16,
    BN=16,
    BK=16,
    GROUP=2,
    ACTIVATION="=leaky",
)


@jit
def tile_position(tile, columns, rows, GROUP: tl.constexpr):
    per_group = GROUP * columns
    first = (tile // per_group) * GROUP
    height = min(rows - first, GROUP)
    return first + (tile % height), (tile % per_group) // height


def persistent(
    a_desc,
    b_desc,
    c_desc,
    M,
    N,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    PROGRAMS: tl.constexpr,
    FLATTEN: tl.constexpr = True,
):
    rows = tl.cdiv(M, BM)
    columns = tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), rows * columns, PROGRAMS, flatten=FLATTEN):
        row, column = tile_position(tile, columns, rows, GROUP)
        accumulator = tl.zeros((BM, BN), dtype=tl.float32)
        for k in tl.range(0, K, BK, num_stages=3):
            a = a_desc.load([row * BM, k])
            b = b_desc.load([k, column * BN])
            accumulator = tl.dot(a, b, accumulator)
        # The result leaves in two halves.
        parts = tl.permute(tl.reshape(accumulator, (BM, 2, BN // 2)), (0, 2, 1))
        left, right = tl.split(parts)
        c_desc.store([row * BM, column * BN], left.to(tl.bfloat16))
        c_desc.store([row * BM, column * BN + BN // 2], right.to(tl.bfloat16))


PERSISTENT = of(
    a_desc=DescriptorArg("bf16", (16, 32)),
    b_desc=DescriptorArg("bf16", (32, 16)),
    c_desc=DescriptorArg("bf16", (16, 8)),
    M="i32",
    N="i32",
    K="i32",
    BM=16,
    BN=16,
    BK=32,
    GROUP=2,
    PROGRAMS=3,
)


def batched(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    batch = tl.program_id(2)
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        a = a_desc.load([batch, m, k]).reshape(BM, BK)
        b = b_desc.load([batch, k, n]).reshape(BK, BN)
        acc += tl.dot(a, b)
    c_desc.store([batch, m, n], acc.to(tl.float16).reshape(1, BM, BN))


BATCHED = of(
    a_desc=DescriptorArg("f16", (1, 16, 16)),
    b_desc=DescriptorArg("f16", (1, 16, 16)),
    c_desc=DescriptorArg("f16", (1, 16, 16)),
    K="i32",
    BM=16,
    BN=16,
    BK=16,
)


@jit
def activate(x, bias_ptr, n, BN: tl.constexpr, KIND: tl.constexpr):
    bias = tl.load(bias_ptr + n + tl.arange(0, BN))
    x += bias[None, :]
    if KIND is None:
        return x
    tl.static_assert(KIND == "silu", f"no activation is called {KIND}")
    return x * tl.sigmoid(x)


def epilogue(
    a_desc, b_desc, c_desc, bias_ptr, BM: tl.constexpr, BN: tl.constexpr, KIND: tl.constexpr
):
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    product = tl.dot(a_desc.load([m, 0]), b_desc.load([0, n]))
    c_desc.store([m, n], activate(product, bias_ptr, n, BN, KIND).to(tl.bfloat16))


EPILOGUE = of(
    a_desc=DescriptorArg("bf16", (16, 32)),
    b_desc=DescriptorArg("bf16", (32, 16)),
    c_desc=DescriptorArg("bf16", (16, 16)),
    bias_ptr="f32*",
    BM=16,
    BN=16,
    KIND="=silu",
)


def attention(
    q_desc,
    k_desc,
    v_desc,
    o_desc,
    length,
    scale,
    BM: tl.constexpr,
    BN: tl.constexpr,
    D: tl.constexpr,
):
    start = tl.program_id(0) * BM
    q = q_desc.load([start, 0])
    row_max = tl.full((BM,), float("-inf"), tl.float32)
    row_sum = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for n in range(0, length, BN):
        k = k_desc.load([n, 0])
        scores = tl.dot(q, k.T) * (scale * 1.44269504)
        new_max = tl.maximum(row_max, tl.max(scores, 1))
        weights = tl.exp2(scores - new_max[:, None])
        correction = tl.exp2(row_max - new_max)
        row_sum = row_sum * correction + tl.sum(weights, 1)
        v = v_desc.load([n, 0])
        acc = tl.dot(weights.to(tl.float16), v, acc * correction[:, None])
        row_max = new_max
    o_desc.store([start, 0], (acc / row_sum[:, None]).to(tl.float16))


ATTENTION = of(
    q_desc=DescriptorArg("f16", (16, 16)),
    k_desc=DescriptorArg("f16", (32, 16)),
    v_desc=DescriptorArg("f16", (32, 16)),
    o_desc=DescriptorArg("f16", (16, 16)),
    length="i32",
    scale="f32",
    BM=16,
    BN=32,
    D=16,
)
