"""A correct file of kernels, parameters annotated: clean under pyright and mypy, strict."""

import tawa
import tawa.language as tl


@tawa.jit
def add(
    x_ptr: tl.pointer, y_ptr: tl.pointer, out_ptr: tl.pointer, n: int, BLOCK: tl.constexpr
) -> None:
    pid = tl.program_id(0)
    offsets = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask, other=0.0)
    tl.store(out_ptr + offsets, x + y, mask=mask)


@tawa.jit
def softmax(
    x_ptr: tl.pointer, out_ptr: tl.pointer, stride: int, columns: int, BLOCK: tl.constexpr
) -> None:
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + offsets, mask=offsets < columns, other=-float("inf"))
    x = x - tl.max(x, axis=0)
    e = tl.exp(x)
    tl.store(out_ptr + row * stride + offsets, e / tl.sum(e, axis=0), mask=offsets < columns)


@tawa.jit
def matmul(
    a_ptr: tl.pointer,
    b_ptr: tl.pointer,
    c_ptr: tl.pointer,
    M: int,
    N: int,
    K: int,
    sa: int,
    sb: int,
    sc: int,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    ACT: tl.constexpr = "",
) -> None:
    pid_m, pid_n = tl.program_id(0), tl.program_id(1)
    rm = pid_m * BM + tl.arange(0, BM)
    rn = pid_n * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    a_ptrs = a_ptr + rm[:, None] * sa + rk[None, :]
    b_ptrs = b_ptr + rk[:, None] * sb + rn[None, :]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        a = tl.load(a_ptrs, mask=rk[None, :] < K - k * BK, other=0.0)
        b = tl.load(b_ptrs, mask=rk[:, None] < K - k * BK, other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BK
        b_ptrs += BK * sb
    if ACT == "relu":
        acc = tl.maximum(acc, 0.0)
    c = acc.to(tl.float16)
    tl.store(c_ptr + rm[:, None] * sc + rn[None, :], c, mask=(rm[:, None] < M) & (rn[None, :] < N))


@tawa.jit
def by_descriptor(
    a_desc: tawa.TensorDescriptor,
    b_desc: tawa.TensorDescriptor,
    c_desc: tawa.TensorDescriptor,
    K: int,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
) -> None:
    row = tl.program_id(0) * BM
    column = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in tl.range(0, K, BK, num_stages=3):
        a = a_desc.load([row, k])
        b = b_desc.load([k, column])
        acc = tl.dot(a, b, acc)
    c_desc.store([row, column], acc.to(c_desc.dtype))


@tawa.jit
def helper(x: tl.tensor, scale: float) -> tl.tensor:
    return tl.exp(x * scale).sum(axis=0).to(tl.float16)


@tawa.jit(do_not_specialize=["n"])
def caller(x_ptr: tl.pointer, n: int, B: tl.constexpr) -> None:
    x = tl.load(x_ptr + tl.arange(0, B))
    m, i = tl.max(x, 0, return_indices=True)
    a, b = tl.split(tl.reshape(x, (B // 2, 2)))
    tl.store(x_ptr + i, helper(x, 2.0) + m + tl.sum(tl.where(a > b, a, b)))
    y = x[:, None] + x[None, :]
    tl.atomic_add(x_ptr, y.T.sum().item())
    s = tl.num_programs(0)
    while s > 1:
        s = s // 2
    for j in tl.static_range(4):
        tl.store(x_ptr + j, tl.cdiv(n, 8) + s)
    tl.device_assert(n > 0, "n")
