"""Attention and products over what an index, a length or a table of pointers names; chunks of
state spaces; operands of a few bits.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import numpy as np

import tawa
import tawa.language as tl
from idiom_case import Idiom, blank, fixed, idiom, integers, normal
from tawa.language.extra import libdevice

CASES: dict[str, Idiom] = {}
case = partial(idiom, CASES)
HALF = np.float16


def wide(x: np.ndarray, *shape: int) -> np.ndarray:
    return x.reshape(shape).astype(np.float64)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


# --- sequences of any length, side by side --------------------------------------------------------

OFFSETS = np.array([0, 50, 50, 93], np.int64)


def jagged_reference(Q, K, V, seq_offsets, H, D, alpha, **_):
    q, k, v = (wide(x, -1, H, D) for x in (Q, K, V))
    out = np.zeros_like(q)
    for begin, end in pairwise(seq_offsets):
        n = end - begin
        for h in range(H):
            s = silu(q[begin:end, h] @ k[begin:end, h].T * alpha) / 64
            out[begin:end, h] = np.tril(s) @ v[begin:end, h] if n else 0
    return {"Out": out.ravel()}


@tawa.jit
def hstu_one_block(start_n, seq_len, offs_m, offs_n, q, K_block_ptr, V_block_ptr, n_targets,
                   alpha, MAX_SEQ_LEN, HAS_MULTIPLE_TARGETS: tl.constexpr,
                   BLOCK_N: tl.constexpr):  # fmt: skip
    start_n = tl.multiple_of(start_n, BLOCK_N)
    k = tl.load(K_block_ptr, boundary_check=(1,), padding_option="zero")
    qk = tl.dot(q, k, allow_tf32=True) * alpha
    invalid_mask = offs_m[:, None] == offs_n[None, :]
    max_ids = seq_len
    if HAS_MULTIPLE_TARGETS:
        max_ids = max_ids - n_targets
        offs_m = tl.where(offs_m < max_ids, offs_m, max_ids)
        offs_n = tl.where(offs_n < max_ids, offs_n, max_ids)
    offs_m_minus_n = offs_m[:, None] - offs_n[None, :]
    invalid_mask = invalid_mask | (offs_m_minus_n > 0)
    silu = libdevice.fast_dividef(qk, 1.0 + tl.exp(-qk)) * (1.0 / MAX_SEQ_LEN)
    silu = tl.where(invalid_mask, silu, 0)
    v = tl.load(V_block_ptr, boundary_check=(0,), padding_option="zero")
    silu = silu.to(v.dtype)
    return tl.dot(silu, v, allow_tf32=True)


@case((2, 6), jagged_reference, 5e-3, Q=normal(93 * 2 * 32, dtype=HALF),
      K=normal(93 * 2 * 32, dtype=HALF), V=normal(93 * 2 * 32, dtype=HALF),
      seq_offsets=fixed(OFFSETS), num_targets=None, Out=blank(93 * 2 * 32, dtype=HALF),
      stride_m=64, stride_h=32, alpha=0.3, H=2, D=32, MAX_SEQ_LEN=64, BLOCK_M=32, BLOCK_N=16,
      HAS_MULTIPLE_TARGETS=False)  # fmt: skip
@tawa.jit
def jagged_attention(Q, K, V, seq_offsets, num_targets, Out, stride_m, stride_h, alpha, H,
                     D: tl.constexpr, MAX_SEQ_LEN, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                     HAS_MULTIPLE_TARGETS: tl.constexpr):  # fmt: skip
    """No softmax: a gate of each score; block pointers that advance; an empty sequence."""
    off_hz = tl.program_id(1)
    off_z = off_hz // H
    off_h = off_hz % H
    off_h = off_h.to(tl.int64)
    seq_start = tl.load(seq_offsets + off_z)
    seq_end = tl.load(seq_offsets + off_z + 1)
    seq_len = (seq_end - seq_start).to(tl.int32)
    start_m = tl.program_id(0) * BLOCK_M
    if start_m < seq_len:
        n_targets = tl.load(num_targets + off_z).to(tl.int32) if HAS_MULTIPLE_TARGETS else None
        Q_block_ptr = tl.make_block_ptr(
            base=Q + off_h * stride_h + seq_start * stride_m, shape=(seq_len, D),
            strides=(stride_m, 1), offsets=(start_m, 0), block_shape=(BLOCK_M, D),
            order=(1, 0))  # fmt: skip
        K_block_ptr = tl.make_block_ptr(
            base=K + off_h * stride_h + seq_start * stride_m, shape=(D, seq_len),
            strides=(1, stride_m), offsets=(0, 0), block_shape=(D, BLOCK_N),
            order=(0, 1))  # fmt: skip
        V_block_ptr = tl.make_block_ptr(
            base=V + off_h * stride_h + seq_start * stride_m, shape=(seq_len, D),
            strides=(stride_m, 1), offsets=(0, 0), block_shape=(BLOCK_N, D),
            order=(1, 0))  # fmt: skip
        offs_m = start_m + tl.arange(0, BLOCK_M)
        offs_n = tl.arange(0, BLOCK_N)
        q = tl.load(Q_block_ptr, boundary_check=(0,), padding_option="zero")
        acc = tl.zeros([BLOCK_M, D], dtype=tl.float32)
        high = start_m + BLOCK_M
        for start_n in range(0, high, BLOCK_N):
            acc += hstu_one_block(start_n, seq_len, offs_m, offs_n + start_n, q, K_block_ptr,
                                  V_block_ptr, n_targets, alpha, MAX_SEQ_LEN,
                                  HAS_MULTIPLE_TARGETS, BLOCK_N)  # fmt: skip
            K_block_ptr = tl.advance(K_block_ptr, (0, BLOCK_N))
            V_block_ptr = tl.advance(V_block_ptr, (BLOCK_N, 0))
        offs_v_d = tl.arange(0, D)
        off_o = Out + seq_start * stride_m + off_h * stride_h
        out_ptrs = off_o + offs_m[:, None] * stride_m + offs_v_d[None, :]
        tl.store(out_ptrs, acc, mask=(offs_m < seq_len)[:, None])


# --- blocks of keys that a table chooses ----------------------------------------------------------


def selected_reference(q, k, v, scale, blocks, counts, T, H, G, D, BS, S, **_):
    queries, keys, values = wide(q, T, H * G, D), wide(k, T, H, D), wide(v, T, H, D)
    out, table, many = np.zeros_like(queries), blocks.reshape(T, H, S), counts.reshape(T, H)
    for t in range(T):
        for h in range(H):
            at = np.concatenate([b * BS + np.arange(BS) for b in table[t, h, : many[t, h]]])
            at = at[at <= t]
            mine = slice(h * G, (h + 1) * G)
            out[t, mine] = softmax(queries[t, mine] @ keys[at, h].T * scale) @ values[at, h]
    return {"o": out.ravel()}


def chosen_blocks(rng):
    """For each token its own block, and before it two others in any order."""
    table = np.zeros((40, 2, 3), np.int32)
    for t in range(40):
        for h in range(2):
            others = rng.permutation(t // 16)[:2]
            table[t, h, : 1 + len(others)] = [t // 16, *others]
    return table.ravel()


SELECTED = np.array([1 + min(2, t // 16) for t in range(40) for _ in range(2)], np.int32)


@case((40, 1, 2), selected_reference, 5e-3, q=normal(40 * 32 * 48, dtype=HALF),
      k=normal(40 * 2 * 48, dtype=HALF), v=normal(40 * 2 * 48, dtype=HALF),
      o=blank(40 * 32 * 48, dtype=HALF), scale=0.14, blocks=chosen_blocks, counts=fixed(SELECTED),
      T=40, H=2, HQ=32, G=16, D=48, S=3, BS=16, BK=64, BV=64)  # fmt: skip
@tawa.jit
def selected_attention(q, k, v, o, scale, blocks, counts, T, H: tl.constexpr, HQ: tl.constexpr,
                       G: tl.constexpr, D: tl.constexpr, S: tl.constexpr, BS: tl.constexpr,
                       BK: tl.constexpr, BV: tl.constexpr):  # fmt: skip
    """A program has the queries of one token and group, and the blocks that a list names."""
    i_t, i_v, i_h = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    k += i_h * D
    v += i_h * D
    blocks += i_t * H * S + i_h * S
    NS = tl.load(counts + i_t * H + i_h)
    p_q = tl.make_block_ptr(q + i_t * HQ * D, (HQ, D), (D, 1), (i_h * G, 0), (G, BK), (1, 0))
    b_q = tl.load(p_q, boundary_check=(0, 1))
    b_q = (b_q * scale).to(b_q.dtype)
    p_o = tl.make_block_ptr(o + i_t * HQ * D, (HQ, D), (D, 1), (i_h * G, i_v * BV), (G, BV), (1, 0))
    b_o = tl.zeros([G, BV], dtype=tl.float32)
    b_m = tl.full([G], float("-inf"), dtype=tl.float32)
    b_acc = tl.zeros([G], dtype=tl.float32)
    for i in range(NS):
        i_s = tl.load(blocks + i).to(tl.int32) * BS
        if i_s <= i_t and i_s >= 0:
            p_k = tl.make_block_ptr(k, (D, T), (1, H * D), (0, i_s), (BK, BS), (0, 1))
            p_v = tl.make_block_ptr(v, (T, D), (H * D, 1), (i_s, i_v * BV), (BS, BV), (1, 0))
            b_k = tl.load(p_k, boundary_check=(0, 1))
            b_v = tl.load(p_v, boundary_check=(0, 1))
            b_s = tl.dot(b_q, b_k)
            b_s = tl.where((i_t >= (i_s + tl.arange(0, BS)))[None, :], b_s, float("-inf"))
            b_m, b_mp = tl.maximum(b_m, tl.max(b_s, 1)), b_m
            b_r = tl.exp(b_mp - b_m)
            b_p = tl.exp(b_s - b_m[:, None])
            b_acc = b_acc * b_r + tl.sum(b_p, 1)
            b_o = b_o * b_r[:, None] + tl.dot(b_p.to(b_q.dtype), b_v)
            b_mp = b_m
    b_o = b_o / b_acc[:, None]
    tl.store(p_o, b_o.to(p_o.dtype.element_ty), boundary_check=(0, 1))


# --- scores of int8 -------------------------------------------------------------------------------


def bytes_reference(Q, K, V, Q_scale, K_scale, qo_len, kv_len, D, **_):
    q = wide(Q, -1, qo_len, D) * np.repeat(wide(Q_scale, -1, 2), 64, 1)[:, :qo_len, None]
    k = wide(K, -1, kv_len, D) * np.repeat(wide(K_scale, -1, 3), 32, 1)[:, :kv_len, None]
    v = wide(V, -1, kv_len, D)
    s = np.einsum("hqd,hkd->hqk", q, k) * np.log(2)
    return {"Out": (softmax(s) @ v).ravel()}


def scales(*shape: int):
    return lambda rng: rng.uniform(0.005, 0.02, shape).astype(np.float32)


@case((2, 2), bytes_reference, 5e-3, Q=integers(-90, 90, 2 * 100 * 64, dtype=np.int8),
      K=integers(-90, 90, 2 * 80 * 64, dtype=np.int8), V=normal(2 * 80 * 64, dtype=HALF),
      Q_scale=scales(4), K_scale=scales(6), Out=blank(2 * 100 * 64, dtype=HALF), qo_len=100,
      kv_len=80, D=64, BLOCK_M=64, BLOCK_N=32)  # fmt: skip
@tawa.jit
def attention_of_bytes(Q, K, V, Q_scale, K_scale, Out, qo_len, kv_len, D: tl.constexpr,
                       BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):  # fmt: skip
    """Scores are products of int8 with a scale for each block; values are halves."""
    start_m = tl.program_id(0)
    off_h = tl.program_id(1)
    q_scale_offset = off_h * tl.cdiv(qo_len, BLOCK_M)
    k_scale_offset = off_h * tl.cdiv(kv_len, BLOCK_N)
    offs_m = start_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, D)
    Q_ptrs = Q + off_h * qo_len * D + offs_m[:, None] * D + offs_k[None, :]
    Q_scale_ptr = Q_scale + q_scale_offset + start_m
    K_ptrs = K + off_h * kv_len * D + offs_n[None, :] * D + offs_k[:, None]
    K_scale_ptr = K_scale + k_scale_offset
    V_ptrs = V + off_h * kv_len * D + offs_n[:, None] * D + offs_k[None, :]
    O_ptrs = Out + off_h * qo_len * D + offs_m[:, None] * D + offs_k[None, :]
    m_i = tl.zeros([BLOCK_M], dtype=tl.float32) - float("inf")
    l_i = tl.zeros([BLOCK_M], dtype=tl.float32) + 1.0
    acc = tl.zeros([BLOCK_M, D], dtype=tl.float32)
    q = tl.load(Q_ptrs, mask=offs_m[:, None] < qo_len)
    q_scale = tl.load(Q_scale_ptr)
    for start_n in range(0, kv_len, BLOCK_N):
        start_n = tl.multiple_of(start_n, BLOCK_N)
        k_mask = offs_n[None, :] < (kv_len - start_n)
        k = tl.load(K_ptrs, mask=k_mask)
        k_scale = tl.load(K_scale_ptr)
        qk = tl.dot(q, k).to(tl.float32) * q_scale * k_scale
        qk = tl.where(k_mask, qk, -1.0e6)
        m_ij = tl.maximum(m_i, tl.max(qk, 1))
        qk = qk - m_ij[:, None]
        p = tl.math.exp2(qk)
        l_ij = tl.sum(p, 1)
        alpha = tl.math.exp2(m_i - m_ij)
        l_i = l_i * alpha + l_ij
        acc = acc * alpha[:, None]
        v = tl.load(V_ptrs, mask=offs_n[:, None] < (kv_len - start_n), other=0.0)
        p = p.to(tl.float16)
        acc += tl.dot(p, v, out_dtype=tl.float16)
        m_i = m_ij
        K_ptrs += BLOCK_N * D
        K_scale_ptr += 1
        V_ptrs += BLOCK_N * D
    acc = acc / l_i[:, None]
    tl.store(O_ptrs, acc.to(Out.type.element_ty), mask=(offs_m[:, None] < qo_len))


# --- two products of one operand, tables of pointers ----------------------------------------------


def dual_reference(x, w1, w2, M, N, K, **_):
    a, b, c = wide(x, M, K), wide(w1, K, N), wide(w2, K, N)
    return {"out": (silu(a @ b) * (a @ c)).ravel()}


@tawa.autotune(configs=[tawa.Config({"BM": 64, "BN": 32, "BK": 32}, num_warps=4, num_stages=3),
                        tawa.Config({"BM": 16, "BN": 32, "BK": 64}, num_warps=2)],
               key=["M", "N", "K"])  # fmt: skip
@tawa.heuristics({"EVEN_K": lambda args: args["K"] % args["BK"] == 0})
@tawa.jit
def tuned_dual_product(x, w1, w2, out, M, N, K, stride_xm, stride_xk, stride_wk, stride_wn,
                       BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
                       EVEN_K: tl.constexpr):  # fmt: skip
    pid_m, pid_n = tl.program_id(0), tl.program_id(1)
    rm, rn, rk = pid_m * BM + tl.arange(0, BM), pid_n * BN + tl.arange(0, BN), tl.arange(0, BK)
    xp = x + rm[:, None] * stride_xm + rk[None, :] * stride_xk
    p1 = w1 + rk[:, None] * stride_wk + rn[None, :] * stride_wn
    p2 = w2 + rk[:, None] * stride_wk + rn[None, :] * stride_wn
    acc1 = tl.zeros((BM, BN), dtype=tl.float32)
    acc2 = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(K, 0, -BK):
        if EVEN_K:
            a = tl.load(xp, mask=rm[:, None] < M, other=0.0)
            b, c = tl.load(p1, mask=rn[None, :] < N, other=0.0), tl.load(p2, rn[None, :] < N, 0.0)
        else:
            a = tl.load(xp, mask=(rk[None, :] < k) & (rm[:, None] < M), other=0.0)
            inside = (rk[:, None] < k) & (rn[None, :] < N)
            b, c = tl.load(p1, mask=inside, other=0.0), tl.load(p2, mask=inside, other=0.0)
        acc1 += tl.dot(a, b)
        acc2 += tl.dot(a, c)
        xp += BK * stride_xk
        p1 += BK * stride_wk
        p2 += BK * stride_wk
    result = acc1 * tl.sigmoid(acc1) * acc2
    at = rm[:, None] * N + rn[None, :]
    tl.store(out + at, result.to(out.dtype.element_ty), mask=(rm[:, None] < M) & (rn[None, :] < N))


UNTUNED = case((2, 2), dual_reference, 3e-3, x=normal(70 * 72, dtype=HALF), M=70, N=40, K=72,
               w1=normal(72 * 40, dtype=HALF), w2=normal(72 * 40, dtype=HALF),
               out=blank(70 * 40, dtype=HALF), stride_xm=72, stride_xk=1, stride_wk=40,
               stride_wn=1, BM=64, BN=32, BK=32)(tuned_dual_product.fn)  # fmt: skip


def expand_reference(x, w, token_ids, counts, starts, lora_ids, out, N, R, **_):
    want, data = out.reshape(-1, N).astype(np.float64), wide(x, -1, R)
    for lora, count, start in zip(lora_ids, counts, starts):
        if lora >= 0:
            mine = token_ids[start : start + count]
            want[mine] += data[mine] @ wide(w, -1, N, R)[lora].T
    return {"out": want.ravel()}


TOKENS = np.random.default_rng(3).permutation(45).astype(np.int32)


@case((6, 3), expand_reference, 5e-3, x=normal(45 * 16), w=normal(3 * 40 * 16, dtype=HALF),
      token_ids=fixed(TOKENS), counts=fixed(np.array([20, 8, 17], np.int32)),
      starts=fixed(np.array([0, 20, 28], np.int32)), out=normal(45 * 40, dtype=HALF),
      lora_ids=fixed(np.array([2, -1, 0], np.int32)), M=45, N=40, R=16, BM=16, BN=32, BK=16,
      EVEN_K=True, ADD_INPUTS=True, CAST_TYPE=True)  # fmt: skip
@tawa.jit
def low_rank_expand(x, w, token_ids, counts, starts, lora_ids, out, M, N, R: tl.constexpr,
                    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, EVEN_K: tl.constexpr,
                    ADD_INPUTS: tl.constexpr, CAST_TYPE: tl.constexpr):  # fmt: skip
    """Tokens sorted by adapter, rows by a table, added to what is there; -1 is no adapter."""
    cta_n_num = tl.cdiv(N, BN)
    pid_mn = tl.program_id(0)
    pid_m = pid_mn // cta_n_num
    pid_n = pid_mn % cta_n_num
    lora_idx = tl.program_id(1)
    lora_id = tl.load(lora_ids + lora_idx)
    if lora_id == -1:
        return
    lora_m_size = tl.load(counts + lora_idx)
    cta_m_offset = pid_m * BM
    if cta_m_offset >= lora_m_size:
        return
    cta_m_len = min(BM, lora_m_size - cta_m_offset)
    row_start = tl.load(starts + lora_idx) + cta_m_offset
    offset_m = tl.arange(0, BM) % cta_m_len
    ram = tl.load(token_ids + row_start + offset_m)
    offset_n = tl.arange(0, BN) + pid_n * BN
    rbn = tl.max_contiguous(tl.multiple_of(offset_n % N, BN), BN)
    offset_k = tl.arange(0, BK)
    a_ptr = x + ram[:, None] * R + offset_k[None, :]
    b_ptr = w + lora_id * N * R + offset_k[:, None] + rbn[None, :] * R
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.cdiv(R, BK)):
        if EVEN_K:
            tiled_a, tiled_b = tl.load(a_ptr), tl.load(b_ptr)
        else:
            tiled_a = tl.load(a_ptr, mask=offset_k[None, :] < R - k * BK, other=0)
            tiled_b = tl.load(b_ptr, mask=offset_k[:, None] < R - k * BK, other=0)
        if CAST_TYPE:
            tiled_a = tiled_a.to(w.dtype.element_ty)
        acc += tl.dot(tiled_a, tiled_b)
        a_ptr += BK
        b_ptr += BK
    tiled_c = acc.to(w.dtype.element_ty)
    rows = tl.arange(0, BM)
    c_mask = (rows[:, None] < cta_m_len) & (offset_n[None, :] < N)
    c_ptr = out + ram[:, None] * N + offset_n[None, :]
    if ADD_INPUTS:
        tiled_c += tl.load(c_ptr, mask=c_mask)
    tl.store(c_ptr, tiled_c, mask=c_mask)
