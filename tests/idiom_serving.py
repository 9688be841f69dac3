"""What servers of language models run beside attention: quantised products, routing, rotations,
caches, sampling, losses.
"""

from __future__ import annotations

from functools import partial

import ml_dtypes
import numpy as np

import tawa
import tawa.language as tl
from idiom_case import Idiom, blank, fixed, idiom, integers, normal
from tawa.language.extra import libdevice

CASES: dict[str, Idiom] = {}
case = partial(idiom, CASES)
HALF = np.float16


# --- routing --------------------------------------------------------------------------------------


def top_reference(logits, N, K, **_):
    x = logits.reshape(-1, N).astype(np.float64)
    p = np.exp(x - x.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    ids = np.argsort(-p, 1, kind="stable")[:, :K]
    weights = np.take_along_axis(p, ids, 1)
    return {"weights": (weights / weights.sum(1, keepdims=True)).ravel(), "ids": ids.ravel()}


@case((5,), top_reference, 1e-6, logits=normal(5 * 60), weights=blank(5 * 4),
      ids=blank(5 * 4, dtype=np.int32), N=60, K=4, B=64)  # fmt: skip
@tawa.jit
def topk_softmax(logits, weights, ids, N, K: tl.constexpr, B: tl.constexpr):
    """The k largest, one after the other, each with its index; then the weights are normalised."""
    row = tl.program_id(0)
    at = tl.arange(0, B)
    x = tl.load(logits + row * N + at, mask=at < N, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    p = e / tl.sum(e, axis=0)
    total = 0.0
    for k in tl.static_range(K):
        value, index = tl.max(p, axis=0, return_indices=True)
        tl.store(weights + row * K + k, value)
        tl.store(ids + row * K + k, index)
        total += value
        p = tl.where(at == index, -1.0, p)
    slots = tl.arange(0, K)
    tl.debug_barrier()
    tl.store(weights + row * K + slots, tl.load(weights + row * K + slots) / total)


def packed_top_reference(logits, N, K, **_):
    x = logits.reshape(-1, N)
    ids = np.argsort(-x, 1, kind="stable")[:, :K]
    return {"values": np.take_along_axis(x, ids, 1).ravel(), "ids": ids.ravel()}


@tawa.jit
def float_to_ordered(x):
    negative = x < 0
    bits = x.to(tl.int32, bitcast=True)
    return tl.where(negative, ~bits, bits | (-2147483648)).to(tl.uint32, bitcast=True)


@tawa.jit
def ordered_to_float(x):
    negative = (x >> 31) == 0
    bits = tl.where(negative, ~x, x & 0x7FFFFFFF)
    return bits.to(tl.int32, bitcast=True).to(tl.float32, bitcast=True)


@case((3,), packed_top_reference, logits=normal(6 * 50), values=blank(6 * 8),
      ids=blank(6 * 8, dtype=np.int32), M=6, N=50, K=8, BM=2, B=64)  # fmt: skip
@tawa.jit
def packed_topk(logits, values, ids, M, N, K: tl.constexpr, BM: tl.constexpr, B: tl.constexpr):
    """Value and index in one 64-bit key, sorted by tl.topk."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    at = tl.arange(0, B)
    mask = (rows[:, None] < M) & (at[None, :] < N)
    x = tl.load(logits + rows[:, None] * N + at[None, :], mask=mask, other=float("-inf"))
    key = (float_to_ordered(x).to(tl.uint64) << 32) | (B - 1 - at)[None, :].to(tl.uint64)
    top = tl.topk(key, K, dim=1)
    index = B - 1 - (top & 0xFFFFFFFF).to(tl.int32)
    value = ordered_to_float((top >> 32).to(tl.uint32))
    slots = rows[:, None] * K + tl.arange(0, K)[None, :]
    tl.store(values + slots, value, mask=rows[:, None] < M)
    tl.store(ids + slots, index, mask=rows[:, None] < M)


def aligned_reference(ids, sorted_ids, experts, padded, COUNT, BLOCK, E, **_):
    want, owner, place = np.full(len(sorted_ids), COUNT), experts.copy(), 0
    for expert in range(E):
        mine = np.flatnonzero(ids[:COUNT] == expert)
        want[place : place + len(mine)] = mine
        blocks = -(-len(mine) // BLOCK)
        owner[place // BLOCK : place // BLOCK + blocks] = expert
        place += blocks * BLOCK
    return {"sorted_ids": want, "experts": owner, "padded": np.array([place])}


@case((1,), aligned_reference, ids=integers(0, 8, 64), experts=blank(16, dtype=np.int32),
      sorted_ids=fixed(np.full(256, 50, np.int32)), padded=blank(1, dtype=np.int32), COUNT=50,
      E=8, BLOCK=16, B=64, MOST=16)  # fmt: skip
@tawa.jit
def align_experts(ids, sorted_ids, experts, padded, COUNT, E: tl.constexpr, BLOCK: tl.constexpr,
                  B: tl.constexpr, MOST: tl.constexpr):  # fmt: skip
    """Tokens by expert, each expert's part padded to whole blocks: counts, prefix sums, ranks."""
    token = tl.arange(0, B)
    expert = tl.load(ids + token, mask=token < COUNT, other=E)
    mine = expert[:, None] == tl.arange(0, E)[None, :]
    counts = tl.sum(mine.to(tl.int32), axis=0)
    rank = tl.sum(tl.where(mine, tl.cumsum(mine.to(tl.int32), axis=0) - 1, 0), axis=1)
    whole = tl.cdiv(counts, BLOCK) * BLOCK
    ends = tl.cumsum(whole, axis=0)
    starts = ends - whole
    begin = tl.sum(tl.where(mine, starts[None, :], 0), axis=1)
    tl.store(sorted_ids + begin + rank, token, mask=token < COUNT)
    tl.store(padded, tl.max(ends, axis=0))
    block = tl.arange(0, MOST) * BLOCK
    owner = tl.sum((block[:, None] >= ends[None, :]).to(tl.int32), axis=1)
    tl.store(experts + tl.arange(0, MOST), owner, mask=block < tl.max(ends, axis=0))


# --- quantisation ---------------------------------------------------------------------------------


def group_reference(x, GROUP, eps, **_):
    rows = x.reshape(-1, GROUP).astype(np.float32)
    scale = np.maximum(np.abs(rows).max(1), np.float32(eps)) / np.float32(448)
    q = np.clip(rows / scale[:, None], -448, 448).astype(ml_dtypes.float8_e4m3fn)
    return {"q": q.ravel(), "scales": scale}


@case((12,), group_reference, 1e-6, x=normal(12 * 40, dtype=HALF),
      q=lambda _: np.zeros(480, ml_dtypes.float8_e4m3fn), scales=blank(12), eps=1e-10, GROUP=40,
      B=64)  # fmt: skip
@tawa.jit
def quantise_groups(x, q, scales, eps, GROUP, B: tl.constexpr):
    g_id = tl.program_id(0).to(tl.int64)
    x += g_id * GROUP
    q += g_id * GROUP
    scales += g_id
    cols = tl.arange(0, B)
    mask = cols < GROUP
    y = tl.load(x + cols, mask=mask, other=0.0).to(tl.float32)
    absmax = tl.maximum(tl.max(tl.abs(y)), eps)
    scale = libdevice.div_rn(absmax, 448.0)
    quantised = tl.clamp(libdevice.div_rn(y, tl.broadcast_to(scale, [B])), -448.0, 448.0)
    tl.store(q + cols, quantised.to(q.dtype.element_ty), mask=mask)
    tl.store(scales, scale)


def awq_reference(a, q, zeros, scales, M, N, K, **_):
    order = np.array([0, 4, 1, 5, 2, 6, 3, 7])
    words = [w.astype(np.uint32)[:, :, None] >> (4 * order)[None, None, :].astype(np.uint32) & 15
             for w in (q.reshape(K, N // 8), zeros.reshape(-1, N // 8))]  # fmt: skip
    weights, zero = (w.reshape(len(w), N).astype(np.float64) for w in words)
    w = (weights - np.repeat(zero, 32, 0)) * np.repeat(
        scales.reshape(-1, N).astype(np.float64), 32, 0
    )
    return {"c": (a.reshape(M, K).astype(np.float64) @ w).ravel()}


@case((2, 2), awq_reference, 2e-3, a=normal(40 * 128, dtype=HALF),
      q=integers(-(2**31), 2**31, 128 * 16), zeros=integers(-(2**31), 2**31, 4 * 16),
      scales=normal(4 * 128, dtype=HALF), c=blank(40 * 128, dtype=HALF), M=40, N=128, K=128,
      GROUP=32, BM=32, BN=64, BK=32)  # fmt: skip
@tawa.jit
def awq_matmul(a, q, zeros, scales, c, M, N, K, GROUP: tl.constexpr, BM: tl.constexpr,
               BN: tl.constexpr, BK: tl.constexpr):  # fmt: skip
    """Weights of 4 bits, eight to an int32 in an order of their own, zeros and scales by groups."""
    pid_m, pid_n = tl.program_id(0), tl.program_id(1)
    accumulator = tl.zeros((BM, BN), dtype=tl.float32)
    reverse_awq = ((tl.arange(0, 2) * 4)[None, :] + tl.arange(0, 4)[:, None]).reshape(8)
    shifts = reverse_awq * 4
    shifts = tl.broadcast_to(shifts[None, :], (BK * (BN // 8), 8))
    shifts = tl.reshape(shifts, (BK, BN))
    offsets_am = pid_m * BM + tl.arange(0, BM)
    offsets_bn = pid_n * (BN // 8) + tl.arange(0, BN // 8)
    offsets_sn = pid_n * BN + tl.arange(0, BN)
    for k in range(0, tl.cdiv(K, BK)):
        offsets_k = k * BK + tl.arange(0, BK)
        x = tl.load(a + K * offsets_am[:, None] + offsets_k[None, :],
                    mask=(offsets_am[:, None] < M) & (offsets_k[None, :] < K),
                          other=0.0)  # fmt: skip
        b = tl.load(q + (N // 8) * offsets_k[:, None] + offsets_bn[None, :])
        b = tl.interleave(b, b)
        b = tl.interleave(b, b)
        b = tl.interleave(b, b)
        group = k * BK // GROUP + tl.arange(0, 1)
        z = tl.load(zeros + (N // 8) * group[:, None] + offsets_bn[None, :])
        z = tl.interleave(z, z)
        z = tl.interleave(z, z)
        z = tl.interleave(z, z)
        z = tl.broadcast_to(z, (BK, BN))
        s = tl.load(scales + N * group[:, None] + offsets_sn[None, :])
        s = tl.broadcast_to(s, (BK, BN))
        b = (b >> shifts) & 0xF
        z = (z >> shifts) & 0xF
        b = ((b - z) * s).to(tl.float16)
        accumulator = tl.dot(x, b, accumulator, out_dtype=tl.float32)
    offsets_cm = pid_m * BM + tl.arange(0, BM)
    offsets_cn = pid_n * BN + tl.arange(0, BN)
    tl.store(c + N * offsets_cm[:, None] + offsets_cn[None, :],
             accumulator.to(c.dtype.element_ty), mask=offsets_cm[:, None] < M)  # fmt: skip


def w8a8_reference(a, b, a_scale, b_scale, bias, M, N, K, **_):
    product = a.reshape(M, K).astype(np.int64) @ b.reshape(N, K).astype(np.int64).T
    return {"c": (product * a_scale[:, None] * b_scale + bias).ravel()}


def gptq_reference(x, q, zeros, scales, index, M, N, K, **_):
    words = q.reshape(K // 8, N).astype(np.uint32)
    w = (words[:, None, :] >> (4 * np.arange(8, dtype=np.uint32))[None, :, None] & 15).reshape(K, N)
    z = (zeros.reshape(-1, N // 8).astype(np.uint32)[:, :, None]
         >> (4 * np.arange(8, dtype=np.uint32))[None, None, :] & 15).reshape(-1, N)  # fmt: skip
    dense = (w.astype(np.float64) - z[index] - 1) * scales.reshape(-1, N).astype(np.float64)[index]
    return {"c": (x.reshape(M, K).astype(np.float64) @ dense).ravel()}


@case((1, 2), gptq_reference, 2e-3, x=normal(16 * 128, dtype=HALF),
      q=integers(-(2**31), 2**31, 16 * 64), zeros=integers(-(2**31), 2**31, 4 * 8),
      scales=normal(4 * 64, dtype=HALF), index=integers(0, 4, 128), c=blank(16 * 64, dtype=HALF),
      M=16, N=64, K=128, BM=16, BN=32, BK=64)  # fmt: skip
@tawa.jit
def gptq_matmul(x, q, zeros, scales, index, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr,
                BK: tl.constexpr):  # fmt: skip
    """Eight weights of one column in an int32, whose group another array names."""
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    shifter = (rk % 8) * 4
    zeros_shifter = (rn % 8) * 4
    x_ptrs = x + rm[:, None] * K + rk[None, :]
    q_ptrs = q + (rk[:, None] // 8) * N + rn[None, :]
    g_ptrs = index + rk
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, tl.cdiv(K, BK)):
        g = tl.load(g_ptrs)
        s = tl.load(scales + g[:, None] * N + rn[None, :])
        z = tl.load(zeros + g[:, None] * (N // 8) + rn[None, :] // 8)
        z = (z >> zeros_shifter[None, :]) & 0xF
        z = z + 1
        b = (tl.load(q_ptrs) >> shifter[:, None]) & 0xF
        b = (b - z) * s
        acc += tl.dot(tl.load(x_ptrs), b.to(tl.float16))
        x_ptrs += BK
        q_ptrs += (BK // 8) * N
        g_ptrs += BK
    tl.store(c + rm[:, None] * N + rn[None, :], acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


@case((2, 2), w8a8_reference, 1e-6, a=integers(-128, 128, 50 * 96, dtype=np.int8),
      b=integers(-128, 128, 64 * 96, dtype=np.int8), a_scale=normal(50), b_scale=normal(64),
      bias=normal(64), c=blank(50 * 64), M=50, N=64, K=96, BM=32, BN=32, BK=64)  # fmt: skip
@tawa.jit
def scaled_w8a8(a, b, a_scale, b_scale, bias, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr,
                BK: tl.constexpr, ACC: tl.constexpr = tl.int32):  # fmt: skip
    rm = tl.program_id(0) * BM + tl.arange(0, BM).to(tl.int64)
    rn = tl.program_id(1) * BN + tl.arange(0, BN).to(tl.int64)
    rk = tl.arange(0, BK).to(tl.int64)
    acc = tl.zeros((BM, BN), dtype=ACC)
    for k in range(0, tl.cdiv(K, BK)):
        inside = k * BK + rk < K
        x = tl.load(a + rm[:, None] * K + (k * BK + rk)[None, :],
                    mask=inside[None, :] & (rm < M)[:, None], other=0)  # fmt: skip
        y = tl.load(b + rn[None, :] * K + (k * BK + rk)[:, None],
                    mask=inside[:, None] & (rn < N)[None, :], other=0)  # fmt: skip
        acc = tl.dot(x, y, acc, out_dtype=ACC)
    row = tl.load(a_scale + rm[:, None], mask=(rm < M)[:, None])
    column = tl.load(b_scale + rn[:, None], mask=(rn < N)[:, None])
    out = (row * acc.to(tl.float32)).to(tl.float32)
    out = column.T * out
    if bias is not None:
        out += tl.load(bias + rn, mask=rn < N)
    tl.store(c + rm[:, None] * N + rn[None, :], out, mask=(rm < M)[:, None] & (rn < N)[None, :])


# --- positions, caches, states --------------------------------------------------------------------


def rotary_reference(q, cos, sin, HEADS, D, **_):
    x = q.reshape(-1, HEADS, 2, D // 2).astype(np.float64)
    c, s = cos.reshape(-1, 1, D // 2), sin.reshape(-1, 1, D // 2)
    rotated = np.stack([x[:, :, 0] * c - x[:, :, 1] * s, x[:, :, 1] * c + x[:, :, 0] * s], 2)
    return {"q": rotated.ravel()}


@case((7,), rotary_reference, 1e-3, q=normal(7 * 6 * 32, dtype=HALF), cos=normal(7 * 16),
      sin=normal(7 * 16), HEADS=6, D=32, PAD=8, BACKWARD=False)  # fmt: skip
@tawa.jit
def rotary_in_place(q, cos, sin, HEADS: tl.constexpr, D: tl.constexpr, PAD: tl.constexpr,
                    BACKWARD: tl.constexpr = False):  # fmt: skip
    pid = tl.program_id(0).to(tl.int64)
    q = q + pid * (HEADS * D)
    cos_row = tl.load(cos + pid * (D // 2) + tl.arange(0, D // 2))
    sin_row = tl.load(sin + pid * (D // 2) + tl.arange(0, D // 2))
    first = tl.arange(0, PAD)[:, None] * D + tl.arange(0, D // 2)[None, :]
    mask = tl.arange(0, PAD)[:, None] < HEADS
    x1 = tl.load(q + first, mask=mask, other=0).to(sin_row.dtype)
    second = first + (D // 2)
    x2 = tl.load(q + second, mask=mask, other=0).to(sin_row.dtype)
    if not BACKWARD:
        tl.store(q + first, x1 * cos_row - x2 * sin_row, mask=mask)
        tl.store(q + second, x2 * cos_row + x1 * sin_row, mask=mask)
    else:
        tl.store(q + first, x1 * cos_row + x2 * sin_row, mask=mask)
        tl.store(q + second, x2 * cos_row - x1 * sin_row, mask=mask)


def interleaved_reference(x, cos, sin, D, **_):
    pairs = x.reshape(-1, D // 2, 2).astype(np.float64)
    c, s = cos.reshape(-1, D // 2), sin.reshape(-1, D // 2)
    even, odd = pairs[..., 0], pairs[..., 1]
    return {"out": np.stack([even * c - odd * s, even * s + odd * c], -1).ravel()}


@case((3,), interleaved_reference, 1e-6, x=normal(9 * 64), cos=normal(9 * 32), sin=normal(9 * 32),
      out=blank(9 * 64), n=9, D=64, BM=4)  # fmt: skip
@tawa.jit
def rotary_interleaved(x, cos, sin, out, n, D: tl.constexpr, BM: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    at = rows[:, None] * D + tl.arange(0, D)[None, :]
    half = rows[:, None] * (D // 2) + tl.arange(0, D // 2)[None, :]
    live = (rows < n)[:, None]
    even, odd = tl.split(tl.reshape(tl.load(x + at, mask=live), [BM, D // 2, 2]))
    c, s = tl.load(cos + half, mask=live), tl.load(sin + half, mask=live)
    tl.store(out + at, tl.interleave(even * c - odd * s, even * s + odd * c), mask=live)


def cache_reference(key, cache, slots, N, PAGE, **_):
    wanted = cache.copy().reshape(-1, PAGE, N)
    for token, slot in enumerate(slots):
        if slot >= 0:
            wanted[slot // PAGE, slot % PAGE] = key.reshape(-1, N)[token]
    return {"cache": wanted.ravel()}


@case((6,), cache_reference, key=normal(6 * 48, dtype=HALF), cache=blank(4 * 4 * 48, dtype=HALF),
      slots=fixed(np.array([3, -1, 12, 0, 7, -1], np.int64)), N=48, PAGE=4, B=64)  # fmt: skip
@tawa.jit
def write_cache(key, cache, slots, N, PAGE, B: tl.constexpr):
    """An early return for padding, and offsets of 64 bits."""
    token = tl.program_id(0)
    slot = tl.load(slots + token).to(tl.int64)
    if slot < 0:
        return
    block, inside = slot // PAGE, slot % PAGE
    at = tl.arange(0, B)
    value = tl.load(key + token * N + at, mask=at < N)
    tl.store(cache + block * (PAGE * N) + inside * N + at, value, mask=at < N)


def merged_reference(a, a_lse, b, b_lse, D, **_):
    high = np.maximum(a_lse, b_lse)
    wa, wb = np.exp(a_lse - high), np.exp(b_lse - high)
    mixed = (a.reshape(-1, D) * wa[:, None] + b.reshape(-1, D) * wb[:, None]) / (wa + wb)[:, None]
    return {"out": mixed.ravel(), "out_lse": np.log(wa + wb) + high}


LSE = fixed(np.array([0.5, -np.inf, 2, 3, -1], np.float32))


@case((5,), merged_reference, 1e-6, a=normal(5 * 40), a_lse=LSE, b=normal(5 * 40),
      b_lse=normal(5), out=blank(200), out_lse=blank(5), D=40, B=64, WITH_LSE=True)  # fmt: skip
@tawa.jit
def merge_states(a, a_lse, b, b_lse, out, out_lse, D: tl.constexpr, B: tl.constexpr,
                 WITH_LSE: tl.constexpr):  # fmt: skip
    row = tl.program_id(0)
    p_lse, s_lse = tl.load(a_lse + row), tl.load(b_lse + row)
    p_lse = float("-inf") if p_lse == float("inf") else p_lse
    s_lse = float("-inf") if s_lse == float("inf") else s_lse
    high = tl.maximum(p_lse, s_lse)
    p_se, s_se = tl.exp(p_lse - high), tl.exp(s_lse - high)
    out_se = p_se + s_se
    if WITH_LSE:
        tl.store(out_lse + row, tl.log(out_se) + high)
    at = tl.arange(0, B)
    mask = at < D
    x, y = tl.load(a + row * D + at, mask=mask), tl.load(b + row * D + at, mask=mask)
    tl.store(out + row * D + at, x * (p_se / out_se) + y * (s_se / out_se), mask=mask)


def conv_reference(x, weight, bias, out, T, D, W, **_):
    data, w = x.reshape(T, D).astype(np.float64), weight.reshape(D, W)
    padded = np.concatenate([np.zeros((W - 1, D)), data])
    y = sum(padded[i : i + T] * w[:, i] for i in range(W)) + bias
    return {"out": (y / (1 + np.exp(-y))).ravel()}


@case((2,), conv_reference, 1e-5, x=normal(11 * 40), weight=normal(40 * 4), bias=normal(40),
      out=blank(440), T=11, D=40, W=4, B=32, SILU="silu")  # fmt: skip
@tawa.jit
def causal_conv1d(x, weight, bias, out, T, D: tl.constexpr, W: tl.constexpr, B: tl.constexpr,
                  SILU: tl.constexpr):  # fmt: skip
    """A state in registers that moves on, names chosen by constants, a string as an option."""
    d = tl.program_id(0) * B + tl.arange(0, B)
    mask = d < D
    bias_of = (
        tl.load(bias + d, mask=mask, other=0.0) if bias is not None else tl.zeros((B,), tl.float32)
    )
    col0 = tl.zeros((B,), tl.float32)
    col1 = tl.zeros((B,), tl.float32)
    col2 = tl.zeros((B,), tl.float32)
    w0, w1 = (
        tl.load(weight + d * W + 0, mask, other=0.0),
        tl.load(weight + d * W + 1, mask, other=0.0),
    )
    w2, w3 = (
        tl.load(weight + d * W + 2, mask, other=0.0),
        tl.load(weight + d * W + 3, mask, other=0.0),
    )
    for t in range(T):
        acc = bias_of
        value = tl.load(x + t * D + d, mask=mask, other=0.0)
        for j in tl.static_range(W):
            if W == 4:
                if j == 0:
                    matrix_x, matrix_w = col0, w0
                elif j == 1:
                    matrix_x, matrix_w = col1, w1
                elif j == 2:
                    matrix_x, matrix_w = col2, w2
                else:
                    matrix_x, matrix_w = value, w3
            acc += matrix_x * matrix_w
        col0, col1, col2 = col1, col2, value
        if SILU in ["silu", "swish"]:
            acc = acc / (1 + tl.exp(-acc))
        tl.store(out + t * D + d, acc, mask=mask)


# --- losses and sampling --------------------------------------------------------------------------


def cross_reference(logits, labels, grad, V, ignore, smoothing, softcap, **_):
    x = softcap * np.tanh(logits.reshape(-1, V).astype(np.float64) / softcap)
    high = x.max(1, keepdims=True)
    lse = (np.log(np.exp(x - high).sum(1, keepdims=True)) + high)[:, 0]
    live = labels != ignore
    picked = x[np.arange(len(x)), np.where(live, labels, 0)]
    eps = smoothing / V
    loss = lse - (1 - smoothing) * picked - eps * x.sum(1)
    p = np.exp(x - lse[:, None]) - eps
    p[np.arange(len(x)), np.where(live, labels, 0)] -= 1 - smoothing
    p *= 1 - (x / softcap) ** 2
    return {"loss": np.where(live, loss, 0), "grad": np.where(live[:, None], p, 0).ravel()}


@case((5,), cross_reference, 1e-5, logits=normal(5 * 300),
      labels=fixed(np.array([7, -100, 299, 0, 128], np.int64)), loss=blank(5), grad=blank(5 * 300),
      V=300, ignore=-100, smoothing=0.1, softcap=5.0, B=128)  # fmt: skip
@tawa.jit
def cross_entropy(logits, labels, loss, grad, V, ignore, smoothing: tl.constexpr,
                  softcap: tl.constexpr, B: tl.constexpr):  # fmt: skip
    """Two passes over a row: an online softmax, then the gradient; rows to ignore leave early."""
    row = tl.program_id(0).to(tl.int64)
    y = tl.load(labels + row)
    logits += row * V
    grad += row * V
    if y == ignore:
        for i in range(0, V, B):
            at = i + tl.arange(0, B)
            tl.store(grad + at, 0.0, mask=at < V)
        tl.store(loss + row, 0.0)
        return
    m = float("-inf")
    d = 0.0
    picked = tl.load(logits + y).cast(tl.float32)
    picked = softcap * libdevice.tanh(picked / softcap)
    scaled_sum = 0.0
    eps = smoothing / V
    for i in range(0, V, B):
        at = i + tl.arange(0, B)
        block = tl.load(logits + at, mask=at < V, other=float("-inf")).cast(tl.float32)
        block = tl.where(at < V, softcap * libdevice.tanh(block / softcap), float("-inf"))
        block_max = tl.max(block)
        if smoothing > 0:
            scaled_sum += tl.sum(tl.where(at < V, -eps * block, 0.0))
        m_new = tl.maximum(m, block_max)
        d = d * tl.exp(m - m_new) + tl.sum(tl.exp(block - m_new))
        m = m_new
    lse = m + tl.log(d)
    for i in range(0, V, B):
        at = i + tl.arange(0, B)
        block = tl.load(logits + at, mask=at < V, other=float("-inf")).cast(tl.float32)
        inner = libdevice.tanh(block / softcap)
        block = softcap * inner
        block = tl.exp(block - m) / d - eps
        block = tl.where(at != y, block, block - (1 - smoothing))
        tl.store(grad + at, block * (1 - inner * inner), mask=at < V)
    tl.debug_barrier()
    tl.store(loss + row, lse - (1 - smoothing) * picked + scaled_sum)


def gumbel_reference(logits, seed, V, **_):
    return {"ids": np.argmax(logits.reshape(-1, V), 1)}


@case((3,), gumbel_reference, logits=normal(3 * 100), ids=blank(3, dtype=np.int64), seed=11,
      temperature=0.0, V=100, B=64)  # fmt: skip
@tawa.jit(do_not_specialize=["seed"])
def sample(logits, ids, seed, temperature, V, B: tl.constexpr):
    """Greedy where the temperature is 0, else by Gumbel noise: a branch on an argument."""
    row = tl.program_id(0)
    best = -float("inf")
    best_id = tl.full((), 0, tl.int64)
    for start in range(0, V, B):
        at = start + tl.arange(0, B)
        x = tl.load(logits + row * V + at, mask=at < V, other=-float("inf"))
        if temperature != 0.0:
            u = tl.maximum(tl.rand(seed, row * V + at), 1e-7)
            x = x / temperature - tl.log(-tl.log(u))
        value = tl.max(x, axis=0)
        index = tl.argmax(x, axis=0)
        if value > best:
            best = value
            best_id = start + index.to(tl.int64)
    tl.store(ids + row, best_id)
