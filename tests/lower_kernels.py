"""Kernels the lowering is tested on, as Python source; `CASES` gives signatures, grids, arguments.

Inputs are small integers, so that every order of sums is exact and equality is bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache

import ml_dtypes
import numpy as np

import tawa.language as tl
from kernel_subject import in_rows
from tawa.frontend import build
from tawa.frontend.signature import ConstantArg, DescriptorArg, PointerArg, ScalarArg
from tawa.ir import tile
from tawa.passes import pipeline
from tawa.plan.pins import Pins
from tawa.plan.plan import Declined, Plan
from tawa.plan.planner import rank_plans
from tawa.simulator.memory import HostDescriptor
from tawa.target import H200

DTYPES = {
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
    "f32": np.float32,
    "f8e4m3": ml_dtypes.float8_e4m3fn,
    "i32": np.int32,
    "i8": np.int8,
}


def matmul(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM
    n = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        a = a_desc.load([m, k])
        b = b_desc.load([k, n])
        acc = tl.dot(a, b, acc)
    c_desc.store([m, n], acc.to(c_desc.dtype))


def matmul_nt(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM
    n = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        a = a_desc.load([m, k])
        b = b_desc.load([n, k])
        acc = tl.dot(a, b.T, acc)
    c_desc.store([m, n], acc.to(c_desc.dtype))


def matmul_integers(
    a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    m = tl.program_id(0) * BM
    n = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.int32)
    for k in range(0, K, BK):
        a = a_desc.load([m, k])
        b = b_desc.load([k, n])
        acc = tl.dot(a, b, acc)
    c_desc.store([m, n], acc)


def running_sums(x_ptr, out_ptr, N: tl.constexpr, BACK: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(out_ptr + at, tl.cumsum(tl.load(x_ptr + at), 0, reverse=BACK))


def long_rows(x_desc, out_desc, BM: tl.constexpr, BN: tl.constexpr):
    row = tl.program_id(0) * BM
    out_desc.store([row, 0], x_desc.load([row, 0]) * 2)


def promoted(
    a_desc,
    b_desc,
    c_desc,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    RUN: tl.constexpr,
):
    m = tl.program_id(0) * BM
    n = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        a = a_desc.load([m, k])
        b = b_desc.load([n, k])
        acc = tl.dot(a, b.T, acc, max_num_imprecise_acc=RUN)
    c_desc.store([m, n], acc.to(c_desc.dtype))


def matmul_tn(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM
    n = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        a = a_desc.load([k, m])
        b = b_desc.load([k, n])
        acc = tl.dot(a.T, b, acc)
    c_desc.store([m, n], acc.to(c_desc.dtype))


def ieee(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM
    n = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        a = a_desc.load([m, k])
        b = b_desc.load([k, n])
        acc = tl.dot(a, b, acc, input_precision="ieee")
    c_desc.store([m, n], acc.to(c_desc.dtype))


def computed(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM
    n = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        a = a_desc.load([m, k])
        b = b_desc.load([k, n])
        acc = tl.dot(a * 2, b + 1, acc)
    c_desc.store([m, n], acc.to(c_desc.dtype))


def row_sums(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM
    n = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    sums = tl.zeros((BM,), dtype=tl.float32)
    for k in range(0, K, BK):
        a = a_desc.load([m, k])
        b = b_desc.load([k, n])
        acc = tl.dot(a, b, acc)
        sums += tl.sum(a.to(tl.float32), 1)
    c_desc.store([m, n], (acc + sums[:, None]).to(c_desc.dtype))


def two_products(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM
    n = tl.program_id(1) * BN
    one = tl.zeros((BM, BN), dtype=tl.float32)
    two = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        a = a_desc.load([m, k])
        b = b_desc.load([k, n])
        b2 = b_desc.load([k, n + 8])
        one = tl.dot(a, b, one)
        two = tl.dot(a, b2, two)
    c_desc.store([m, n], (one - two).to(c_desc.dtype))


def skipping(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM
    n = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        if k != BK:
            a = a_desc.load([m, k])
            b = b_desc.load([k, n])
            acc = tl.dot(a, b, acc)
    c_desc.store([m, n], acc.to(c_desc.dtype))


def no_loop(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM
    n = tl.program_id(1) * BN
    acc = tl.dot(a_desc.load([m, 0]), b_desc.load([0, n]))
    c_desc.store([m, n], acc.to(c_desc.dtype))


def attention(q_desc, k_desc, v_desc, o_desc, n, BM: tl.constexpr, BN: tl.constexpr):
    row = tl.program_id(0) * BM
    q = q_desc.load([row, 0])
    top = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, 64), tl.float32)
    for j in range(0, n, BN):
        k = k_desc.load([j, 0])
        s = tl.dot(q, k.T)
        new = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2(s - new[:, None])
        scale = tl.exp2(top - new)
        total = total * scale + tl.sum(p, 1)
        v = v_desc.load([j, 0])
        acc = tl.dot(p.to(v_desc.dtype), v, acc * scale[:, None])
        top = new
    o_desc.store([row, 0], (acc / total[:, None]).to(tl.float16))


def gradients(
    q_desc, k_desc, v_desc, g_desc, dk_desc, dv_desc, shift_ptr, n,
    BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """Gradients of keys and values: products of two iterations read one slot, a vector comes
    ahead.
    """
    at = tl.program_id(0) * BN
    k, v = k_desc.load([at, 0]), v_desc.load([at, 0])
    dk = tl.zeros((BN, D), dtype=tl.float32)
    dv = tl.zeros((BN, D), dtype=tl.float32)
    for m in range(0, n, BM):
        q = q_desc.load([m, 0])
        shift = tl.load(shift_ptr + m + tl.arange(0, BM))
        p = tl.dot(k, q.T) - shift[None, :]
        g = g_desc.load([m, 0])
        dv = tl.dot(p.to(g.dtype), g, dv)
        s = p * tl.dot(v, g.T)
        dk = tl.dot(s.to(q.dtype), q, dk)
    dk_desc.store([at, 0], dk)
    dv_desc.store([at, 0], dv)


def pointers(
    a_ptr, b_ptr, c_ptr, M, N, K, am, bk, cm, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    om = (tl.program_id(0) * BM + tl.arange(0, BM)) % M
    on = (tl.program_id(1) * BN + tl.arange(0, BN)) % N
    ok = tl.arange(0, BK)
    a_ptrs = a_ptr + om[:, None] * am + ok[None, :]
    b_ptrs = b_ptr + ok[:, None] * bk + on[None, :]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        a = tl.load(a_ptrs, mask=ok[None, :] < K - k * BK, other=0.0)
        b = tl.load(b_ptrs, mask=ok[:, None] < K - k * BK, other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BK
        b_ptrs += BK * bk
    om = tl.program_id(0) * BM + tl.arange(0, BM)
    on = tl.program_id(1) * BN + tl.arange(0, BN)
    inside = (om[:, None] < M) & (on[None, :] < N)
    tl.store(c_ptr + om[:, None] * cm + on[None, :], acc.to(tl.float16), mask=inside)


def add(x_ptr, y_ptr, o_ptr, n, B: tl.constexpr):
    offs = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + offs, mask=offs < n)
    y = tl.load(y_ptr + offs, mask=offs < n)
    tl.store(o_ptr + offs, x + y, mask=offs < n)


def both_axes(x_ptr, o_ptr, n, BM: tl.constexpr, B: tl.constexpr):
    r = tl.program_id(0) * BM + tl.arange(0, BM)
    c = tl.arange(0, B)
    x = tl.load(x_ptr + r[:, None] * n + c[None, :], mask=c[None, :] < n, other=0.0)
    rows = tl.sum(x, axis=1)
    columns = tl.max(x, axis=0)
    y = x * rows[:, None] + columns[None, :]
    tl.store(o_ptr + r[:, None] * n + c[None, :], y, mask=c[None, :] < n)


def running_sum(x_ptr, o_ptr, BM: tl.constexpr, B: tl.constexpr):
    r = tl.arange(0, BM)
    c = tl.arange(0, B)
    x = tl.load(x_ptr + r[:, None] * B + c[None, :])
    tl.store(o_ptr + r[:, None] * B + c[None, :], tl.cumsum(x, axis=1))


def counter(count_ptr, o_ptr, B: tl.constexpr):
    ticket = tl.atomic_add(count_ptr, 1)
    tl.store(o_ptr + ticket * B + tl.arange(0, B), tl.arange(0, B) + ticket)


def in_place(x_desc, n, BM: tl.constexpr, BN: tl.constexpr):
    for _ in range(0, n):
        x = x_desc.load([0, 0])
        x_desc.store([0, 0], x + 1)


def reduce_into(x_desc, o_desc, BM: tl.constexpr, BN: tl.constexpr):
    x = x_desc.load([tl.program_id(0) * BM, 0])
    o_desc.atomic_add([0, 0], x)


def many_tiles(
    a_desc, b_desc, c_desc, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    SPLIT: tl.constexpr,
):  # fmt: skip
    tiles_n = tl.cdiv(N, BN)
    tiles = tl.cdiv(M, BM) * tiles_n
    for tile_id in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):
        m = tile_id // tiles_n * BM
        n = tile_id % tiles_n * BN
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(0, K, BK):
            a = a_desc.load([m, k])
            b = b_desc.load([n, k])
            acc = tl.dot(a, b.T, acc)
        if SPLIT:
            halves = tl.permute(tl.reshape(acc, (BM, 2, BN // 2)), (0, 2, 1))
            left, right = tl.split(halves)
            c_desc.store([m, n], left.to(c_desc.dtype))
            c_desc.store([m, n + BN // 2], right.to(c_desc.dtype))
        else:
            c_desc.store([m, n], acc.to(c_desc.dtype))


def batched(
    a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    batch = tl.program_id(2)
    m = tl.program_id(0) * BM
    n = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        a = tl.reshape(a_desc.load([batch, m, k]), (BM, BK))
        b = tl.reshape(b_desc.load([batch, k, n]), (BK, BN))
        acc = tl.dot(a, b, acc)
    c = tl.reshape(acc.to(c_desc.dtype), (1, BM, BN))
    c_desc.store([batch, m, n], c)


def made_here(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    a_desc = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [BM, BK])
    b_desc = tl.make_tensor_descriptor(b_ptr, [N, K], [K, 1], [BN, BK])
    c_desc = tl.make_tensor_descriptor(c_ptr, [M, N], [N, 1], [BM, BN])
    m = tl.program_id(0) * BM
    n = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(a_desc.load([m, k]), b_desc.load([n, k]).T, acc)
    c_desc.store([m, n], acc.to(tl.float16))


def half_sums(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM
    n = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float16)
    for k in range(0, K, BK):
        acc = tl.dot(a_desc.load([m, k]), b_desc.load([k, n]), acc, out_dtype=tl.float16)
    c_desc.store([m, n], acc)


def turn(x_ptr, o_ptr, BM: tl.constexpr, B: tl.constexpr):
    r = tl.arange(0, BM)
    c = tl.arange(0, B)
    x = tl.load(x_ptr + r[:, None] * B + c[None, :])
    tl.store(o_ptr + c[:, None] * BM + r[None, :], x.T)


def largest(x_ptr, o_ptr, p_ptr, BM: tl.constexpr, B: tl.constexpr):
    r = tl.arange(0, BM)
    c = tl.arange(0, B)
    x = tl.load(x_ptr + r[:, None] * B + c[None, :])
    tl.store(o_ptr + r, tl.argmax(x, axis=1))
    tl.store(p_ptr + c, tl.argmax(x, axis=0))


@dataclass(frozen=True)
class Case:
    """A kernel with its signature, grid and arguments ((array, block) is a descriptor)."""

    function: object
    signature: dict
    grid: tuple[int, int, int]
    arguments: dict
    pins: Pins = field(default_factory=Pins)
    exact: bool = True
    options: dict = field(default_factory=dict)


def integers(shape, dtype, low=-3, high=4):
    rng = np.random.default_rng(sum(np.atleast_1d(shape)) + low)
    return rng.integers(low, high, shape).astype(DTYPES[dtype])


def product(
    function=matmul,
    bm=128,
    bn=128,
    bk=64,
    m=200,
    n=304,
    k=200,
    dtype="bf16",
    out="bf16",
    constants=(),
    **pins,
) -> Case:
    """A GEMM-like kernel on descriptors; operands stored as the function loads them."""
    a_shape, a_block = ((k, m), (bk, bm)) if function is matmul_tn else ((m, k), (bm, bk))
    b_shape, b_block = (
        ((n, k), (bn, bk)) if function in (matmul_nt, promoted) else ((k, n), (bk, bn))
    )
    blocks = {"a_desc": a_block, "b_desc": b_block}
    signature = {name: DescriptorArg(dtype, block) for name, block in blocks.items()}
    signature |= {"c_desc": DescriptorArg(out, (bm, bn)), "K": ScalarArg("i32")}
    signature |= {"BM": ConstantArg(bm), "BN": ConstantArg(bn), "BK": ConstantArg(bk)}
    signature |= {name: ConstantArg(value) for name, value in constants}
    arguments = {
        "a_desc": (integers(tuple(max(8, x) for x in a_shape), dtype), a_block),
        "b_desc": (integers(tuple(max(8, x) for x in b_shape), dtype), b_block),
        "c_desc": (np.full((m, n), -1 if out == "i32" else np.nan, DTYPES[out]), (bm, bn)),
        "K": k,
    }
    return Case(function, signature, (-(-m // bm), -(-n // bn), 1), arguments, Pins(**pins))


def _attention(dtype="f16", **pins) -> Case:
    half = {name: DescriptorArg(dtype, (128, 64)) for name in ("q_desc", "k_desc", "v_desc")}
    signature = half | {"o_desc": DescriptorArg("f16", (128, 64)), "n": ScalarArg("i32")}
    signature |= {"BM": ConstantArg(128), "BN": ConstantArg(128)}
    arguments = {
        "q_desc": (integers((256, 64), dtype, -1, 2), (128, 64)),
        "k_desc": (integers((384, 64), dtype, -1, 2), (128, 64)),
        "v_desc": (integers((384, 64), dtype), (128, 64)),
        "o_desc": (np.full((256, 64), np.nan, np.float16), (128, 64)),
        "n": 384,
    }
    return Case(attention, signature, (2, 1, 1), arguments, Pins(**pins), exact=False)


def _gradients(rows: int) -> Case:
    kinds = {"q_desc": 64, "k_desc": rows, "v_desc": rows, "g_desc": 64}
    signature = {name: DescriptorArg("f16", (block, 64)) for name, block in kinds.items()}
    signature |= {name: DescriptorArg("f32", (rows, 64)) for name in ("dk_desc", "dv_desc")}
    signature |= {"shift_ptr": PointerArg("f32", True), "n": ScalarArg("i32")}
    signature |= {"BM": ConstantArg(64), "BN": ConstantArg(rows), "D": ConstantArg(64)}
    lengths = {"q_desc": 320, "k_desc": 2 * rows, "v_desc": 2 * rows, "g_desc": 320}
    arguments = {
        name: (integers((length, 64), "f16", -1, 2), (kinds[name], 64))
        for name, length in lengths.items()
    }
    for name in ("dk_desc", "dv_desc"):
        arguments[name] = (np.full((2 * rows, 64), np.nan, np.float32), (rows, 64))
    arguments |= {"shift_ptr": integers((2560,), "f32"), "n": 320}
    return Case(gradients, signature, (2, 1, 1), arguments, exact=False)


def _pointers(**pins) -> Case:
    m, n, k = 200, 304, 200
    signature = {name: PointerArg("f16", True) for name in ("a_ptr", "b_ptr", "c_ptr")}
    signature |= {name: ScalarArg("i32") for name in ("M", "N", "K", "am", "bk", "cm")}
    signature |= {"BM": ConstantArg(128), "BN": ConstantArg(128), "BK": ConstantArg(64)}
    arguments = {
        "a_ptr": integers((m, k), "f16"),
        "b_ptr": integers((k, n), "f16"),
        "c_ptr": np.full((m, n), np.nan, np.float16),
        "M": m,
        "N": n,
        "K": k,
        "am": k,
        "bk": n,
        "cm": n,
    }
    return Case(pointers, signature, (2, 3, 1), arguments, Pins(**pins))


def _pointwise(function, shape, constants, grid, dtype="f32", **scalars) -> Case:
    names = [name for name in function.__code__.co_varnames if name.endswith("_ptr")]
    signature = {name: PointerArg(dtype, True) for name in names}
    signature |= {name: ScalarArg("i32") for name in scalars}
    signature |= {name: ConstantArg(value) for name, value in constants.items()}
    shapes = shape if isinstance(shape, list) else [shape] * len(names)
    arrays = {name: integers(each, dtype) for name, each in zip(names, shapes)}
    return Case(function, signature, grid, arrays | scalars)


def _blocks(function, arrays: dict[str, tuple[int, int]], grid, dtype="f32", **scalars) -> Case:
    """A kernel on descriptors whose blocks are 32 x 64."""
    signature = {name: DescriptorArg(dtype, (32, 64)) for name in arrays}
    signature |= {name: ScalarArg("i32") for name in scalars}
    signature |= {"BM": ConstantArg(32), "BN": ConstantArg(64)}
    arguments = {name: (integers(shape, dtype), (32, 64)) for name, shape in arrays.items()}
    return Case(function, signature, grid, arguments | scalars)


def _many_tiles(split: bool, **pins) -> Case:
    m, n, k = 300, 304, 200
    blocks = {"a_desc": (128, 64), "b_desc": (128, 64), "c_desc": (128, 64 if split else 128)}
    signature = {name: DescriptorArg("bf16", block) for name, block in blocks.items()}
    signature |= {name: ScalarArg("i32") for name in ("M", "N", "K")}
    constants = {"BM": 128, "BN": 128, "BK": 64, "SPLIT": split}
    signature |= {name: ConstantArg(value) for name, value in constants.items()}
    arguments = {
        "a_desc": (integers((m, k), "bf16"), blocks["a_desc"]),
        "b_desc": (integers((n, k), "bf16"), blocks["b_desc"]),
        "c_desc": (np.full((m, n), np.nan, DTYPES["bf16"]), blocks["c_desc"]),
        "M": m,
        "N": n,
        "K": k,
    }
    return Case(many_tiles, signature, (2, 1, 1), arguments, Pins(**pins))


def _batched() -> Case:
    blocks = {"a_desc": (1, 128, 64), "b_desc": (1, 64, 128), "c_desc": (1, 128, 128)}
    shapes = {"a_desc": (2, 200, 200), "b_desc": (2, 200, 136), "c_desc": (2, 200, 136)}
    signature = {name: DescriptorArg("bf16", block) for name, block in blocks.items()}
    signature |= {"K": ScalarArg("i32")}
    signature |= {"BM": ConstantArg(128), "BN": ConstantArg(128), "BK": ConstantArg(64)}
    arguments = {name: (integers(shapes[name], "bf16"), blocks[name]) for name in blocks}
    return Case(batched, signature, (2, 2, 2), arguments | {"K": 200})


def _made_here() -> Case:
    m, n, k = 200, 304, 200
    signature = {name: PointerArg("f16", True) for name in ("a_ptr", "b_ptr", "c_ptr")}
    signature |= {name: ScalarArg("i32", True) for name in ("M", "N", "K")}
    signature |= {"BM": ConstantArg(128), "BN": ConstantArg(128), "BK": ConstantArg(64)}
    arguments = {"a_ptr": integers((m, k), "f16"), "b_ptr": integers((n, k), "f16")}
    arguments |= {"c_ptr": np.full((m, n), np.nan, np.float16), "M": m, "N": n, "K": k}
    return Case(made_here, signature, (2, 3, 1), arguments)


def _long_rows(rows: int, columns: int, dtype: str) -> Case:
    signature = {name: DescriptorArg(dtype, (rows, columns)) for name in ("x_desc", "out_desc")}
    signature |= {"BM": ConstantArg(rows), "BN": ConstantArg(columns)}
    shape, block = (2 * rows, columns), (rows, columns)
    arguments = {
        "x_desc": (integers(shape, dtype), block),
        "out_desc": (integers(shape, dtype), block),
    }
    return Case(long_rows, signature, (2, 1, 1), arguments)


CASES: dict[str, Case] = {
    "running sums": _pointwise(running_sums, (2, 512), {"N": 512, "BACK": False}, (2, 1, 1)),
    "running sums back": _pointwise(running_sums, (2, 512), {"N": 512, "BACK": True}, (2, 1, 1)),
    "rows of 1024": _long_rows(2, 1024, "f32"),
    "columns of 512": _long_rows(512, 16, "f16"),
    "matmul 128x256": product(bn=256),
    "matmul 128x192": product(bn=192),
    "matmul 256x128": product(bm=256, m=300),
    "matmul 64x128": product(bm=64),
    "matmul K 0": product(k=0),
    "matmul one iteration": product(k=40),
    "matmul BK 128": product(bk=128),
    "matmul BK 32": product(bk=32),
    "matmul BK 16": product(bk=16),
    "matmul depth 3": product(mma_depth=3, depth=4),
    "matmul depth 1": product(mma_depth=1, depth=1),
    "matmul in 4 parts": product(bn=256, parts=4),
    "matmul in 3 unequal parts": product(matmul_nt, bn=168, parts=3, places=1),
    "matmul in 3 unequal parts, 2 places": product(matmul_nt, bn=168, parts=3, places=2),
    "matmul ordinary": product(specialize=False),
    "matmul f32 out": product(bn=64, out="f32"),
    "matmul nt": product(matmul_nt),
    "matmul tn": product(matmul_tn),
    "matmul fp8": product(matmul_nt, bk=128, dtype="f8e4m3"),
    "matmul fp8 nn": product(matmul, bk=128, dtype="f8e4m3", depth=4),
    "matmul fp8 tn": product(matmul_tn, bk=64, dtype="f8e4m3"),
    "matmul fp8 nn in turns": product(
        matmul, bm=64, bk=64, dtype="f8e4m3", arrangement="pingpong", depth=2
    ),
    "matmul fp8 nn ordinary": product(matmul, bk=64, dtype="f8e4m3", specialize=False),
    "matmul int8 nn": product(matmul_integers, bm=64, bk=64, dtype="i8", out="i32"),
    "matmul int8 16x32": product(
        matmul_integers, bm=16, bn=32, bk=32, m=40, n=80, dtype="i8", out="i32"
    ),
    "matmul fp8 runs of 32": product(promoted, bk=128, dtype="f8e4m3", constants=(("RUN", 32),)),
    "matmul fp8 runs of 128": product(
        promoted, bk=256, dtype="f8e4m3", depth=2, constants=(("RUN", 128),)
    ),
    "matmul tf32": product(matmul_nt, bk=32, dtype="f32"),
    "matmul tf32 nn": product(matmul, bn=64, bk=32, dtype="f32"),
    "matmul tf32 tn": product(matmul_tn, bm=64, bn=64, bk=32, m=96, n=72, k=40, dtype="f32"),
    "matmul 16x128": product(bm=16, m=40),
    "matmul 32x64": product(bm=32, bn=64, bk=32, m=72, n=152),
    "matmul 64x8": product(bm=64, bn=8, m=100, n=24),
    "matmul ieee": product(ieee, bm=64, bn=64, bk=32, m=72, n=136, dtype="f32"),
    "computed operands": product(computed),
    "computed operands ordinary": product(computed, specialize=False),
    "matmul from registers": product(bn=64, store="registers"),
    "matmul 2 warps": replace(product(bm=32, bn=64, bk=32, m=72, n=152), options={"num_warps": 2}),
    "batched": _batched(),
    "made here": _made_here(),
    "sums in f16": product(half_sums, dtype="f16", out="f16"),
    "turn": _pointwise(turn, [(32, 64), (64, 32)], {"BM": 32, "B": 64}, (1, 1, 1)),
    "largest": _pointwise(largest, [(32, 64), (32,), (64,)], {"BM": 32, "B": 64}, (1, 1, 1)),
    "row sums": product(row_sums),
    "two products": product(two_products),
    "two products depth 2": product(two_products, mma_depth=2),
    "under an if": product(skipping),
    "no loop": product(no_loop, k=64),
    "attention": _attention(),
    "attention fp8": _attention("f8e4m3"),
    "attention fp8 in turns": _attention("f8e4m3", arrangement="pingpong"),
    "attention ordinary": _attention(specialize=False),
    "gradients in turns": _gradients(128),
    "gradients in two blocks": _gradients(64),
    "pointers": _pointers(),
    "in place": _blocks(in_place, {"x_desc": (32, 64)}, (1, 1, 1), n=3),
    "reduce into": _blocks(reduce_into, {"x_desc": (96, 64), "o_desc": (32, 64)}, (3, 1, 1)),
    "many tiles": _many_tiles(split=False),
    "many tiles split": _many_tiles(split=True),
    "many tiles split ordinary": _many_tiles(split=True, specialize=False),
    "add": _pointwise(add, 1000, {"B": 512}, (2, 1, 1), n=1000),
    "both axes": _pointwise(both_axes, (32, 200), {"BM": 16, "B": 256}, (2, 1, 1), n=200),
    "running sum": _pointwise(running_sum, (16, 64), {"BM": 16, "B": 64}, (1, 1, 1)),
    "counter": Case(
        counter,
        {"count_ptr": PointerArg("i32", True), "o_ptr": PointerArg("i32"), "B": ConstantArg(64)},
        (3, 1, 1),
        {"count_ptr": np.zeros(1, np.int32), "o_ptr": np.zeros((3, 64), np.int32)},
    ),
}


@cache
def lowered(name: str) -> tuple[tile.Kernel, Plan, tuple[Declined, ...]]:
    """Return the hopper IR of a case, its plan, and what the lowering declined."""
    case = CASES[name]
    kernel = build(case.function, case.signature, case.options)
    pipeline.run(pipeline.TILE, kernel, Plan(), H200)
    plan = rank_plans(kernel, H200, case.pins)[0]
    pipeline.run(pipeline.AREF, kernel, plan, H200)
    return kernel, plan, pipeline.run(pipeline.HOPPER, kernel, plan, H200)


def tile_kernel(case: Case) -> tile.Kernel:
    return build(case.function, case.signature, case.options)


def fresh(case: Case) -> tuple[dict[str, np.ndarray], dict[str, object]]:
    """Return copies of the case's arrays, and the arguments that refer to them."""
    arrays: dict[str, np.ndarray] = {}
    arguments: dict[str, object] = {}
    for name, value in case.arguments.items():
        match value:
            case np.ndarray():  # first: NumPy 2.5 has arrays match sequences
                arrays[name] = arguments[name] = value.copy()
            case (array, block):
                arrays[name] = in_rows(array)
                strides = tuple(step // array.itemsize for step in arrays[name].strides)
                arguments[name] = HostDescriptor(arrays[name], array.shape, strides, block)
            case _:
                arguments[name] = value
    return arrays, arguments
