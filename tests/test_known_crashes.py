"""Kernels on which other compilers abort, each named by its public thread: here they compile and
are right, or are declined with a named reason.

The kernels are written anew in the tile language, in the shape that the thread reports.
"""

from __future__ import annotations

import numpy as np
import pytest

import tawa
import tawa.language as tl
from known_failures import BF16, blank, blocks, declined, integers, long, result, tried
from tawa.errors import PlanError

# --- triton#9728, #10284, tritonbench#1094: specialized loops that crash the compiler -----------


def pointer_loop(
    a, b, c, M, N, K, am, bk, cm, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in tl.range(0, tl.cdiv(K, BK), warp_specialize=True):
        inside = depth < K - k * BK
        x = tl.load(
            a + rows[:, None] * am + (k * BK + depth)[None, :],
            mask=(rows[:, None] < M) & inside[None, :],
            other=0.0,
        )
        y = tl.load(
            b + (k * BK + depth)[:, None] * bk + columns[None, :],
            mask=inside[:, None] & (columns[None, :] < N),
            other=0.0,
        )
        acc = tl.dot(x, y, acc)
    where = c + rows[:, None] * cm + columns[None, :]
    tl.store(where, acc.to(tl.float16), mask=(rows[:, None] < M) & (columns[None, :] < N))


@pytest.mark.parametrize("stride", [80, 75])
def test_tritonbench_1094_triton_9728_10284_a_pointer_loop_with_a_product(stride):
    """Rows of 80 elements are whole units of 16 bytes, so TMA takes them; rows of 75 are not."""
    m, n, k = 100, 80, 72
    a, b = integers(m, stride), integers(k, n)
    arguments = {"a": a, "b": b, "c": blank(m, n, dtype=np.float16), "M": m, "N": n, "K": k}
    arguments |= {"am": stride, "bk": n, "cm": n, "BM": 64, "BN": 64, "BK": 32}
    kernel = tried(pointer_loop, arguments, (2, 2))
    got = result(pointer_loop, arguments, (2, 2), "c")
    np.testing.assert_array_equal(got, a[:, :k].astype(np.float64) @ b.astype(np.float64))
    assert kernel.plan.specialized
    by_tma = not any(feature.startswith("descriptor for x@") for feature in declined(kernel))
    assert by_tma == (stride == 80)


def causal(q_desc, k_desc, v_desc, o_desc, n, B: tl.constexpr, D: tl.constexpr):
    """Attention whose keys left of the diagonal and on it have a loop each."""
    row = tl.program_id(0) * B
    q = q_desc.load([row, 0])
    top = tl.full((B,), -float("inf"), tl.float32)
    total = tl.zeros((B,), tl.float32)
    acc = tl.zeros((B, D), tl.float32)
    for j in tl.range(0, row, B, warp_specialize=True):
        s = tl.dot(q, k_desc.load([j, 0]).T)
        new = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2(s - new[:, None])
        scale = tl.exp2(top - new)
        total = total * scale + tl.sum(p, 1)
        acc = tl.dot(p.to(tl.float16), v_desc.load([j, 0]), acc * scale[:, None])
        top = new
    for j in tl.range(row, row + B, B, warp_specialize=True):
        s = tl.dot(q, k_desc.load([j, 0]).T)
        below = row + tl.arange(0, B)[:, None] >= j + tl.arange(0, B)[None, :]
        s = tl.where(below, s, -float("inf"))
        new = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2(s - new[:, None])
        scale = tl.exp2(top - new)
        total = total * scale + tl.sum(p, 1)
        acc = tl.dot(p.to(tl.float16), v_desc.load([j, 0]), acc * scale[:, None])
        top = new
    o_desc.store([row, 0], (acc / total[:, None]).to(tl.float16))


def test_triton_9728_two_loops_of_causal_attention():
    n, d, b = 256, 64, 64
    q, k = (integers(n, d, low=-1, high=2) for _ in range(2))
    arguments = {
        "q_desc": blocks(q, b, d),
        "k_desc": blocks(k, b, d),
        "v_desc": blocks(integers(n, d), b, d),
        "o_desc": blocks(blank(n, d, dtype=np.float16), b, d),
    }
    kernel = tried(causal, arguments | {"n": n, "B": b, "D": d}, (4,), close=2e-3)
    assert kernel.plan.specialized


# --- triton#8260: blocks of three dimensions, one of them 1 -------------------------------------


def of_heads(q_desc, k_desc, o_desc, lse, n, B: tl.constexpr, D: tl.constexpr):
    """Queries and keys as (token, head, feature), as variable-length attention has them."""
    row, head = tl.program_id(0) * B, tl.program_id(1)
    q = tl.reshape(q_desc.load([row, head, 0]), (B, D))
    acc = tl.zeros((B, B), tl.float32)
    for _ in range(n):
        k = tl.reshape(k_desc.load([row, head, 0]), (B, D))
        acc = tl.dot(q, k.T, acc)
    tl.store(lse + head * 128 + row + tl.arange(0, B), tl.max(acc, 1))
    o_desc.store([row, head, 0], tl.reshape(acc.to(tl.float16), (B, 1, B)))


def test_triton_8260_blocks_of_one_head():
    q, k = integers(128, 2, 64), integers(128, 2, 64, low=-1, high=2)
    arguments = {
        "q_desc": blocks(q, 64, 1, 64),
        "k_desc": blocks(k, 64, 1, 64),
        "o_desc": blocks(blank(128, 2, 64, dtype=np.float16), 64, 1, 64),
        "lse": blank(2, 128),
    }
    tried(of_heads, arguments | {"n": 3, "B": 64, "D": 64}, (2, 2))


# --- triton#8932, tilelang#2603: 8 columns, and 8 more than a multiple of 16 --------------------


def product(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(a_desc.load([m, k]), b_desc.load([k, n]), acc)
    c_desc.store([m, n], acc.to(tl.float16))


@pytest.mark.parametrize("columns", [8, 24, *long(40, 56, 72)])
def test_triton_8932_tilelang_2603_columns_of_one_instruction(columns):
    a, b, c = integers(64, 128), integers(128, columns), blank(64, columns, dtype=np.float16)
    arguments = {"a_desc": blocks(a, 64, 64), "b_desc": blocks(b, 64, columns)}
    arguments |= {"c_desc": blocks(c, 64, columns), "K": 128, "BM": 64, "BN": columns, "BK": 64}
    tried(product, arguments, (1, 1))


# --- tilelang#2555: steps of K that are no power of two -----------------------------------------


@pytest.mark.parametrize("step", [48, *long(80)])
def test_tilelang_2555_steps_of_48_and_80(step):
    k = 2 * step
    a, b, c = integers(64, k), integers(k, 64), blank(64, 64, dtype=np.float16)
    arguments = {"a_desc": blocks(a, 64, step), "b_desc": blocks(b, step, 64)}
    arguments |= {"c_desc": blocks(c, 64, 64), "K": k, "BM": 64, "BN": 64, "BK": step}
    tried(product, arguments, (1, 1))


# --- tilelang#2547: two products into one accumulator, one of them before the loop ---------------


def chunk_scan(c_desc, s_desc, cb_desc, x_desc, out_desc, n, B: tl.constexpr):
    acc = tl.dot(c_desc.load([0, 0]), s_desc.load([0, 0]))
    for j in range(0, n, B):
        cb = cb_desc.load([0, j])
        x = x_desc.load([j, 0])
        acc = tl.dot(cb, x, acc)
    out_desc.store([0, 0], acc.to(tl.float16))


@pytest.mark.parametrize("n", [0, *long(64), 256])
def test_tilelang_2547_an_accumulator_begun_before_the_loop(n):
    c, s = integers(64, 64), integers(64, 64, low=-1, high=2)
    cb, x = integers(64, max(n, 64)), integers(max(n, 64), 64)
    out = blank(64, 64, dtype=np.float16)
    arrays = {"c_desc": c, "s_desc": s, "cb_desc": cb, "x_desc": x, "out_desc": out}
    arguments = {name: blocks(array, 64, 64) for name, array in arrays.items()}
    tried(chunk_scan, arguments | {"n": n, "B": 64}, (1,))


# --- tilelang#2548, triton#2779: a pipelined loop inside a while --------------------------------


def grouped(
    a,
    b,
    c,
    sizes,
    groups,
    PROGRAMS: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    B: tl.constexpr,
):
    """Groups of rows of unlike size, their tiles dealt out to the programs in turn."""
    tile, first, base = tl.program_id(0), 0, 0
    for group in range(groups):
        rows = tl.load(sizes + group)
        tiles = tl.cdiv(rows, B)
        while (tile >= first) & (tile < first + tiles):
            at = tl.arange(0, B)
            row = (tile - first) * B + at
            acc = tl.zeros((B, N), tl.float32)
            for k in range(0, K, B):
                x = tl.load(
                    a + (base + row)[:, None] * K + (k + at)[None, :],
                    mask=row[:, None] < rows,
                    other=0.0,
                )
                y = tl.load(b + group * K * N + (k + at)[:, None] * N + tl.arange(0, N)[None, :])
                acc = tl.dot(x, y, acc)
            where = c + (base + row)[:, None] * N + tl.arange(0, N)[None, :]
            tl.store(where, acc.to(tl.float16), mask=row[:, None] < rows)
            tile += PROGRAMS
        first += tiles
        base += rows


def test_triton_2779_tilelang_2548_the_grouped_product():
    sizes, n, k = np.array([40, 100, 7], np.int32), 32, 64
    a, b = integers(int(sizes.sum()), k), integers(3, k, n)
    arguments = {"a": a, "b": b, "c": blank(int(sizes.sum()), n, dtype=np.float16)}
    arguments |= {"sizes": sizes, "groups": 3, "PROGRAMS": 2, "N": n, "K": k, "B": 32}
    tried(grouped, arguments, (2,))
    got = result(grouped, arguments, (2,), "c")
    ends = np.cumsum(sizes)
    parts = [
        a[e - s : e].astype(float) @ b[g].astype(float) for g, (s, e) in enumerate(zip(sizes, ends))
    ]
    np.testing.assert_array_equal(got, np.concatenate(parts))


# --- tilelang#2549: operands behind a table of addresses -----------------------------------------


def of_a_table(table, out, B: tl.constexpr):
    x = tl.load(table).to(tl.pointer_type(tl.float16))
    at = tl.arange(0, B)
    tl.store(out + at, tl.load(x + at))


def test_tilelang_2549_addresses_read_from_memory():
    x, out = tawa.array((4,), "i64"), tawa.array((64,), "f16")
    kernel = tawa.jit(of_a_table).compile(x, out, B=64)
    assert kernel.proof.ok
    assert not kernel.plan.specialized


# --- tilelang#2643: a block set to zero, and written again by the consumer ----------------------


def through_a_block(a_desc, b_desc, s_desc, c_desc, K, B: tl.constexpr):
    s_desc.store([0, 0], tl.zeros((B, B), tl.float16))
    acc = tl.zeros((B, B), tl.float32)
    for k in range(0, K, B):
        acc = tl.dot(a_desc.load([0, k]), b_desc.load([k, 0]), acc)
    s_desc.store([0, 0], acc.to(tl.float16))
    c_desc.store([0, 0], s_desc.load([0, 0]) + 1.0)


def test_tilelang_2643_a_block_cleared_then_written_then_read():
    arrays = {"a_desc": integers(64, 192), "b_desc": integers(192, 64)}
    arrays |= {"s_desc": blank(64, 64, dtype=np.float16), "c_desc": blank(64, 64, dtype=np.float16)}
    arguments = {name: blocks(array, 64, 64) for name, array in arrays.items()}
    tried(through_a_block, arguments | {"K": 192, "B": 64}, (1,))


# --- triton#4418: a product of two blocks of zeros, scaled and added to itself ------------------


def of_zeros(out, n, B: tl.constexpr):
    p = tl.dot(tl.zeros((B, B), tl.float16), tl.zeros((B, B), tl.float16))
    p = tl.zeros((B,), tl.float32)[:, None] * p + p
    at = tl.arange(0, B)
    tl.store(out + at[:, None] * n + at[None, :], p)


def test_triton_4418_a_product_of_nothing():
    tried(of_zeros, {"out": blank(32, 32), "n": 32, "B": 32}, (1,))


# --- emmy#191: a pin that cannot be honoured ------------------------------------------------------


def softmax(x, out, n, B: tl.constexpr):
    at = tl.arange(0, B)
    row = tl.load(x + tl.program_id(0) * n + at, mask=at < n, other=-float("inf"))
    row = tl.exp(row - tl.max(row, 0))
    tl.store(out + tl.program_id(0) * n + at, row / tl.sum(row, 0), mask=at < n)


@pytest.mark.parametrize(
    "pins", [{"specialize": True}, {"consumers": 2}, {"depth": 3}, {"schedule": "coarse"}], ids=str
)
def test_emmy_191_pinned_and_impossible_is_an_error(pins):
    arguments = {"x": integers(2, 100, dtype=np.float32), "out": blank(2, 100), "n": 100, "B": 128}
    tried(softmax, arguments, (2,), close=1e-5)
    with pytest.raises(PlanError, match="no asynchronous load"):
        tawa.jit(softmax).compile(**arguments, **pins)


# --- triton#8311: wrong results of a specialized loop that mixes pointers and descriptors -------


def mixed(x, y, out, SIZE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    desc = tl.make_tensor_descriptor(y, [SIZE, SIZE], [SIZE, 1], [BK, BN])
    for m in tl.range(0, SIZE, BM):
        for n in tl.range(0, SIZE, BN):
            rows, columns = m + tl.arange(0, BM), n + tl.arange(0, BN)
            acc = tl.full([BM, BN], 0.0, tl.float32)
            for k in tl.range(0, SIZE, BK, warp_specialize=True):
                a = tl.load(x + rows[:, None] * SIZE + (k + tl.arange(0, BK))[None, :])
                b = desc.load([k, n])
                acc = tl.dot(a.to(tl.float16), b.to(tl.float16), acc=acc)
            tl.store(out + rows[:, None] * SIZE + columns[None, :], acc.to(tl.float16))


def test_triton_8311_pointers_beside_descriptors():
    x, y = integers(128, 128), integers(128, 128, low=-1, high=2)
    arguments = {"x": x, "y": y, "out": blank(128, 128, dtype=np.float16)}
    arguments |= {"SIZE": 128, "BM": 64, "BN": 64, "BK": 32}
    tried(mixed, arguments, (1,))
    got = result(mixed, arguments, (1,), "out")
    np.testing.assert_array_equal(got, x.astype(np.float64) @ y.astype(np.float64))


def test_triton_8311_other_types_in_memory():
    """The loaded blocks are cast on their way to the product: bf16 in memory, f16 in the dot."""
    x, y = integers(64, 64, dtype=BF16), integers(64, 64, dtype=BF16, low=-1, high=2)
    arguments = {"x": x, "y": y, "out": blank(64, 64, dtype=np.float16)}
    tried(mixed, arguments | {"SIZE": 64, "BM": 64, "BN": 64, "BK": 32}, (1,))
