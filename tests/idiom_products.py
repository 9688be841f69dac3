"""Products as libraries write them: chunks of linear attention and state spaces, grouped and split
products, block pointers, descriptors made by the kernel, three dimensions, every option of tl.dot.
"""

from __future__ import annotations

from functools import partial

import numpy as np

import tawa
import tawa.language as tl
from idiom_case import Idiom, blank, fixed, idiom, integers, normal

CASES: dict[str, Idiom] = {}
case = partial(idiom, CASES)
HALF = np.float16


def matmul_reference(a, b, M, N, K, **_):
    x, y = a.reshape(M, K).astype(np.float64), b.reshape(K, N).astype(np.float64)
    return {"c": np.maximum(x @ y, 0.01 * (x @ y)).ravel()}


@tawa.jit
def leaky_relu(x):
    return tl.where(x >= 0, x, 0.01 * x)


@case((4,), matmul_reference, 2e-3, a=normal(70 * 72, dtype=HALF), b=normal(72 * 48, dtype=HALF),
      c=blank(70 * 48, dtype=HALF), M=70, N=48, K=72, stride_am=72, stride_ak=1, stride_bk=48,
      stride_bn=1, stride_cm=48, stride_cn=1, BM=32, BN=32, BK=32, GROUP=2,
      ACTIVATION="leaky_relu")  # fmt: skip
@tawa.jit
def block_pointer_matmul(a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm,
                         stride_cn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
                         GROUP: tl.constexpr, ACTIVATION: tl.constexpr):  # fmt: skip
    pid = tl.program_id(axis=0)
    num_pid_m = tl.cdiv(M, BM)
    num_pid_n = tl.cdiv(N, BN)
    num_pid_in_group = GROUP * num_pid_n
    for tile_id in range(pid, num_pid_m * num_pid_n, tl.num_programs(0)):
        group_id = tile_id // num_pid_in_group
        first_pid_m = group_id * GROUP
        group_size_m = min(num_pid_m - first_pid_m, GROUP)
        pid_m = first_pid_m + ((tile_id % num_pid_in_group) % group_size_m)
        pid_n = (tile_id % num_pid_in_group) // group_size_m
        a_block = tl.make_block_ptr(base=a, shape=(M, K), strides=(stride_am, stride_ak),
                                    offsets=(pid_m * BM, 0), block_shape=(BM, BK),
                                          order=(1, 0))  # fmt: skip
        b_block = tl.make_block_ptr(base=b, shape=(K, N), strides=(stride_bk, stride_bn),
                                    offsets=(0, pid_n * BN), block_shape=(BK, BN),
                                          order=(1, 0))  # fmt: skip
        accumulator = tl.zeros((BM, BN), dtype=tl.float32)
        for _ in range(0, K, BK):
            x = tl.load(a_block, boundary_check=(0, 1), padding_option="zero")
            y = tl.load(b_block, boundary_check=(0, 1), padding_option="zero")
            accumulator = tl.dot(x, y, accumulator, allow_tf32=False, max_num_imprecise_acc=0)
            a_block = tl.advance(a_block, (0, BK))
            b_block = tl.advance(b_block, (BK, 0))
        if ACTIVATION == "leaky_relu":
            accumulator = leaky_relu(accumulator)
        c_block = tl.make_block_ptr(base=c, shape=(M, N), strides=(stride_cm, stride_cn),
                                    offsets=(pid_m * BM, pid_n * BN), block_shape=(BM, BN),
                                          order=(1, 0))  # fmt: skip
        tl.store(c_block, accumulator.to(c.dtype.element_ty), boundary_check=(0, 1))


def grouped_reference(a, b, offsets, N, K, E, **_):
    x, y = a.reshape(-1, K).astype(np.float64), b.reshape(E, K, N).astype(np.float64)
    rows = [x[offsets[e] : offsets[e + 1]] @ y[e] for e in range(E)]
    return {"c": np.concatenate(rows).ravel()}


@case((3,), grouped_reference, 2e-3, a=normal(100 * 64, dtype=HALF),
      b=normal(3 * 64 * 64, dtype=HALF), offsets=fixed(np.array([0, 37, 37, 100], np.int32)),
      c=blank(100 * 64, dtype=HALF), N=64, K=64, E=3, BM=32, BN=64, BK=32)  # fmt: skip
@tawa.jit
def grouped_matmul(a, b, offsets, c, N: tl.constexpr, K: tl.constexpr, E, BM: tl.constexpr,
                   BN: tl.constexpr, BK: tl.constexpr):  # fmt: skip
    """Groups of rows of run-time length; descriptors made by the kernel for each group."""
    tile_id = tl.program_id(0)
    done = 0
    for group in range(E):
        start, end = tl.load(offsets + group), tl.load(offsets + group + 1)
        rows = end - start
        tiles_m, tiles_n = tl.cdiv(rows, BM), tl.cdiv(N, BN)
        tiles = tiles_m * tiles_n
        if tile_id >= done and tile_id < done + tiles:
            a_desc = tl.make_tensor_descriptor(a + start * K, shape=[rows, K], strides=[K, 1],
                                               block_shape=[BM, BK])  # fmt: skip
            b_desc = tl.make_tensor_descriptor(b + group * (K * N), shape=[K, N], strides=[N, 1],
                                               block_shape=[BK, BN])  # fmt: skip
            c_desc = tl.make_tensor_descriptor(c + start * N, shape=[rows, N], strides=[N, 1],
                                               block_shape=[BM, BN])  # fmt: skip
            while tile_id >= done and tile_id < done + tiles:
                within = tile_id - done
                m, n = within // tiles_n * BM, within % tiles_n * BN
                acc = tl.zeros((BM, BN), tl.float32)
                for k in range(0, K, BK):
                    acc += tl.dot(a_desc.load([m, k]), b_desc.load([k, n]))
                c_desc.store([m, n], acc.to(tl.float16))
                tile_id += tl.num_programs(0)
        done += tiles


def split_reference(a, b, M, N, K, **_):
    return {
        "c": (a.reshape(M, K).astype(np.float64) @ b.reshape(N, K).astype(np.float64).T).ravel()
    }


@case((1, 4), split_reference, 1e-3, a=normal(16 * 256, dtype=HALF), b=normal(32 * 256, dtype=HALF),
      c=fixed(np.zeros(16 * 32, np.float32)), M=16, N=32, K=256, BM=16, BN=32, BK=32,
            SPLIT=4)  # fmt: skip
@tawa.jit
def split_k(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
            SPLIT: tl.constexpr):  # fmt: skip
    pid, part = tl.program_id(0), tl.program_id(1)
    rm = (pid * BM + tl.arange(0, BM)) % M
    rn = tl.max_contiguous(tl.multiple_of(tl.arange(0, BN) % N, BN), BN)
    rk = part * BK + tl.arange(0, BK)
    a_ptrs = a + (rm[:, None] * K + rk[None, :])
    b_ptrs = b + (rk[:, None] + rn[None, :] * K)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK * SPLIT)):
        left = K - k * (BK * SPLIT)
        x = tl.load(a_ptrs, mask=rk[None, :] < left, other=0.0)
        y = tl.load(b_ptrs, mask=rk[:, None] < left, other=0.0)
        acc = tl.dot(x, y, acc, out_dtype=tl.float32)
        a_ptrs += BK * SPLIT
        b_ptrs += BK * SPLIT
    tl.atomic_add(c + rm[:, None] * N + rn[None, :], acc, sem="relaxed")


def chunk_reference(q, k, v, g, T, D, BT, scale, **_):
    qs, ks, vs = (x.reshape(T, D).astype(np.float64) for x in (q, k, v))
    state, out = np.zeros((D, D)), np.zeros((T, D))
    for t in range(T):
        state = state * np.exp(g[t].astype(np.float64)) + np.outer(ks[t], vs[t])
        out[t] = scale * qs[t] @ state
    return {"o": out.ravel(), "h": state.ravel()}


DECAY = fixed(-np.random.default_rng(2).uniform(0, 0.1, 96).astype(np.float32))


@case((1, 2), chunk_reference, 5e-3, q=normal(96 * 64, dtype=HALF), k=normal(96 * 64, dtype=HALF),
      v=normal(96 * 64, dtype=HALF), g=DECAY, o=blank(96 * 64), h=blank(64 * 64), scale=0.125,
      T=96, D=64, BT=32, BV=32)  # fmt: skip
@tawa.jit
def gated_chunks(q, k, v, g, o, h, scale, T, D: tl.constexpr, BT: tl.constexpr, BV: tl.constexpr):
    """Linear attention by chunks: a state of [D, BV] in registers that decays and is added to."""
    i_v = tl.program_id(1)
    b_h = tl.zeros([D, BV], dtype=tl.float32)
    o_i = tl.arange(0, BT)
    m_s = o_i[:, None] >= o_i[None, :]
    for i_t in range(tl.cdiv(T, BT)):
        p_q = tl.make_block_ptr(q, (T, D), (D, 1), (i_t * BT, 0), (BT, D), (1, 0))
        p_k = tl.make_block_ptr(k, (D, T), (1, D), (0, i_t * BT), (D, BT), (0, 1))
        p_v = tl.make_block_ptr(v, (T, D), (D, 1), (i_t * BT, i_v * BV), (BT, BV), (1, 0))
        p_g = tl.make_block_ptr(g, (T,), (1,), (i_t * BT,), (BT,), (0,))
        b_q = tl.load(p_q, boundary_check=(0, 1))
        b_q = (b_q * scale).to(b_q.dtype)
        b_k = tl.load(p_k, boundary_check=(0, 1))
        b_v = tl.load(p_v, boundary_check=(0, 1))
        b_g = tl.cumsum(tl.load(p_g, boundary_check=(0,)), axis=0)
        last = min((i_t + 1) * BT, T) - 1
        g_last = tl.sum(tl.where(o_i == last - i_t * BT, b_g, 0.0))
        b_s = tl.dot(b_q, b_k)
        b_s = tl.where(m_s, b_s * tl.exp(b_g[:, None] - b_g[None, :]), 0)
        b_o = tl.dot(b_s.to(b_v.dtype), b_v)
        b_o += tl.dot(b_q, b_h.to(b_q.dtype)) * tl.exp(b_g)[:, None]
        p_o = tl.make_block_ptr(o, (T, D), (D, 1), (i_t * BT, i_v * BV), (BT, BV), (1, 0))
        tl.store(p_o, b_o.to(p_o.dtype.element_ty), boundary_check=(0, 1))
        b_h *= tl.exp(g_last)
        b_k = (b_k * tl.exp(g_last - b_g)[None, :]).to(b_k.dtype)
        b_h += tl.dot(b_k, b_v)
    p_h = tl.make_block_ptr(h, (D, D), (D, 1), (0, i_v * BV), (D, BV), (1, 0))
    tl.store(p_h, b_h, boundary_check=(0, 1))


def solved_reference(a, T, B, **_):
    blocks = a.reshape(T // B, B, B).astype(np.float64)
    inverse = [np.linalg.inv(np.eye(B) + np.tril(block, -1)) for block in blocks]
    return {"out": np.array(inverse).ravel()}


@case((3,), solved_reference, 1e-5,
      a=lambda rng: (0.2 * rng.standard_normal(3 * 16 * 16)).astype(np.float32),
      out=blank(3 * 16 * 16), T=48, B=16)  # fmt: skip
@tawa.jit
def solve_triangular(a, out, T, B: tl.constexpr):
    """(I + A)^-1 of a lower triangle by forward substitution, a row at a time."""
    block = tl.program_id(0)
    i = tl.arange(0, B)
    at = block * B * B + i[:, None] * B + i[None, :]
    x = -tl.where(i[:, None] > i[None, :], tl.load(a + at), 0)
    for row in range(2, min(B, T - block * B)):
        b_a = -tl.load(a + block * B * B + row * B + i)
        b_a = tl.where(i < row, b_a, 0.0)
        b_a = b_a + tl.sum(b_a[:, None] * x, 0)
        x = tl.where((i == row)[:, None], b_a, x)
    x += i[:, None] == i[None, :]
    tl.store(out + at, x)


def scanned_reference(x, dt, a, b, c, d, T, P, N, **_):
    state, y = np.zeros((P, N)), np.zeros((T, P))
    xs, bs, cs = x.reshape(T, P), b.reshape(T, N), c.reshape(T, N)
    for t in range(T):
        state = state * np.exp(dt[t] * a[0]) + dt[t] * np.outer(xs[t], bs[t])
        y[t] = state @ cs[t] + d[0] * xs[t]
    return {"y": y.ravel()}


@case((2,), scanned_reference, 5e-3, x=normal(64 * 32, dtype=HALF),
      dt=fixed(np.random.default_rng(4).uniform(0.01, 0.2, 64).astype(np.float32)),
      a=fixed(np.array([-1.5], np.float32)), b=normal(64 * 16, dtype=HALF),
      c=normal(64 * 16, dtype=HALF), d=fixed(np.array([0.5], np.float32)), y=blank(64 * 32),
      T=64, P=32, N=16, BT=64, BP=16)  # fmt: skip
@tawa.jit
def state_space_chunk(x, dt, a, b, c, d, y, T, P: tl.constexpr, N: tl.constexpr, BT: tl.constexpr,
                      BP: tl.constexpr):  # fmt: skip
    """One chunk of Mamba-2: decays between every two steps as a mask on C B^T."""
    p = tl.program_id(0) * BP + tl.arange(0, BP)
    t = tl.arange(0, BT)
    n = tl.arange(0, N)
    live = t < T
    step = tl.load(dt + t, mask=live, other=0.0)
    decay = tl.cumsum(step * tl.load(a))
    vb = tl.load(b + t[None, :] * N + n[:, None], mask=live[None, :], other=0.0)
    vc = tl.load(c + t[:, None] * N + n[None, :], mask=live[:, None], other=0.0)
    vx = tl.load(x + t[:, None] * P + p[None, :], mask=live[:, None], other=0.0)
    cb = tl.dot(vc, vb)
    cb *= tl.exp(tl.minimum(decay[:, None] - decay[None, :], 0.0))
    cb *= step[None, :]
    cb = tl.where(t[:, None] >= t[None, :], cb, 0.0)
    acc = tl.dot(cb.to(vx.dtype), vx)
    acc += vx.to(tl.float32) * tl.load(d)
    tl.store(y + t[:, None] * P + p[None, :], acc, mask=live[:, None])


def precision_reference(a, b, N, **_):
    return {"c": (a.reshape(N, N).astype(np.float64) @ b.reshape(N, N).astype(np.float64)).ravel()}


def precision_case(name, close):
    return case((1,), precision_reference, close, name, a=normal(32 * 32), b=normal(32 * 32),
                c=blank(32 * 32), N=32, PRECISION=name)  # fmt: skip


@precision_case("tf32", 2e-3)
@precision_case("tf32x3", 1e-5)
@precision_case("ieee", 1e-6)
@tawa.jit
def product_of_floats(a, b, c, N: tl.constexpr, PRECISION: tl.constexpr):
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at), input_precision=PRECISION))


def batched_reference(a, b, G, N, **_):
    x, y = (v.reshape(G, N, N).astype(np.float64) for v in (a, b))
    return {"c": (x @ y).ravel()}


@case((1,), batched_reference, 1e-3, a=normal(4 * 16 * 16, dtype=HALF),
      b=normal(4 * 16 * 16, dtype=HALF), c=blank(4 * 16 * 16, dtype=HALF), G=4, N=16)  # fmt: skip
@tawa.jit
def three_dimensions(a, b, c, G: tl.constexpr, N: tl.constexpr):
    g = tl.arange(0, G)[:, None, None] * (N * N)
    at = g + tl.arange(0, N)[None, :, None] * N + tl.arange(0, N)[None, None, :]
    tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at), out_dtype=tl.float16))


def lora_reference(x, a, b, ids, n, R, K, **_):
    xs, outs = x.reshape(-1, K).astype(np.float64), []
    for row, lora in enumerate(ids):
        low = a.reshape(-1, R, K)[lora].astype(np.float64) @ xs[row]
        outs.append(low @ b.reshape(-1, R, n)[lora] if lora >= 0 else np.full(n, 77.0))
    return {"out": np.array(outs).ravel()}


@case((6, 2), lora_reference, 5e-3, x=normal(6 * 96, dtype=HALF), a=normal(3 * 16 * 96, dtype=HALF),
      b=normal(3 * 16 * 64, dtype=HALF), ids=fixed(np.array([0, 2, -1, 1, 1, 0], np.int64)),
      out=blank(6 * 64), n=64, K=96, R=16, BK=64, BN=32)  # fmt: skip
@tawa.jit
def low_rank_vectors(x, a, b, ids, out, n, K, R: tl.constexpr, BK: tl.constexpr, BN: tl.constexpr):
    row, part = tl.program_id(0), tl.program_id(1)
    lora = tl.load(ids + row)
    if lora == -1:
        return
    r = tl.arange(0, R)
    acc = tl.zeros((R,), dtype=tl.float32)
    for k in range(0, K, BK):
        at = k + tl.arange(0, BK)
        vx = tl.load(x + row * K + at, mask=at < K, other=0.0)
        va = tl.load(
            a + lora * R * K + r[:, None] * K + at[None, :], mask=at[None, :] < K, other=0.0
        )
        acc += tl.sum(va * vx[None, :], 1)
    at = part * BN + tl.arange(0, BN)
    vb = tl.load(b + lora * R * n + r[:, None] * n + at[None, :], mask=at[None, :] < n, other=0.0)
    tl.store(out + row * n + at, tl.sum(acc[:, None] * vb, 0), mask=at < n)


def prefix_reference(q, kc, vc, table, lengths, SCALE, H, D, PAGE, **_):
    out = np.zeros((len(lengths), H, D))
    for s, length in enumerate(lengths):
        place = np.arange(length)
        slot = table.reshape(len(lengths), -1)[s][place // PAGE] * PAGE + place % PAGE
        keys, values = (x.reshape(-1, D)[slot].astype(np.float64) for x in (kc, vc))
        scores = q.reshape(-1, H, D)[s].astype(np.float64) @ keys.T * SCALE
        p = np.exp(scores - scores.max(1, keepdims=True))
        out[s] = p / p.sum(1, keepdims=True) @ values
    return {"out": out.ravel()}


@case((3,), prefix_reference, 5e-3, q=normal(3 * 8 * 32, dtype=HALF),
      kc=normal(16 * 8 * 32, dtype=HALF),
      vc=normal(16 * 8 * 32, dtype=HALF), table=integers(0, 16, 3 * 6),
      lengths=fixed(np.array([45, 8, 13], np.int32)), out=blank(3 * 8 * 32), pages=6, SCALE=0.2,
      H=8, PAD=16, D=32, PAGE=8, BN=16)  # fmt: skip
@tawa.jit
def paged_decoding(q, kc, vc, table, lengths, out, pages, SCALE: tl.constexpr, H: tl.constexpr,
                   PAD: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr,
                         BN: tl.constexpr):  # fmt: skip
    """All heads of a group against keys in pages, with an online softmax."""
    s = tl.program_id(0)
    length = tl.load(lengths + s)
    h, d, n = tl.arange(0, PAD), tl.arange(0, D), tl.arange(0, BN)
    vq = tl.load(q + (s * H + h[:, None]) * D + d[None, :], mask=h[:, None] < H, other=0.0)
    best = tl.full((PAD,), -float("inf"), tl.float32)
    total = tl.zeros((PAD,), tl.float32)
    acc = tl.zeros((PAD, D), tl.float32)
    for start in range(0, length, BN):
        place = start + n
        page = tl.load(table + s * pages + place // PAGE, mask=place < length, other=0)
        slot = page.to(tl.int64) * PAGE + place % PAGE
        keys = tl.load(kc + slot[None, :] * D + d[:, None], mask=place[None, :] < length, other=0.0)
        scores = tl.where(place[None, :] < length, tl.dot(vq, keys) * SCALE, -float("inf"))
        high = tl.maximum(best, tl.max(scores, 1))
        p = tl.exp(scores - high[:, None])
        fade = tl.exp(best - high)
        values = tl.load(
            vc + slot[:, None] * D + d[None, :], mask=place[:, None] < length, other=0.0
        )
        acc = acc * fade[:, None] + tl.dot(p.to(values.dtype), values)
        total = total * fade + tl.sum(p, 1)
        best = high
    acc /= total[:, None]
    tl.store(out + (s * H + h[:, None]) * D + d[None, :], acc, mask=h[:, None] < H)


def weights_reference(x, dy, M, N, **_):
    v, g = x.reshape(M, N).astype(np.float64), dy.reshape(M, N).astype(np.float64)
    rstd = 1 / np.sqrt((v**2).mean(1, keepdims=True) + 1e-6)
    return {"dw": (g * v * rstd).sum(0)}


@case((4,), weights_reference, 1e-5, x=normal(50 * 100), dy=normal(50 * 100),
      dw=fixed(np.zeros(100, np.float32)), M=50, N=100, ROWS=13, B=128)  # fmt: skip
@tawa.jit
def norm_weights_backward(x, dy, dw, M, N, ROWS, B: tl.constexpr):
    """Each program sums some rows' gradients, then adds them to all others' by atomics."""
    pid = tl.program_id(0)
    at = tl.arange(0, B)
    mask = at < N
    acc = tl.zeros((B,), dtype=tl.float32)
    end = min((pid + 1) * ROWS, M)
    for row in range(pid * ROWS, end):
        v = tl.load(x + row * N + at, mask=mask, other=0.0)
        g = tl.load(dy + row * N + at, mask=mask, other=0.0)
        rstd = tl.rsqrt(tl.sum(v * v, axis=0) / N + 1e-6)
        acc += g * (v * rstd)
    tl.atomic_add(dw + at, acc, mask=mask)
