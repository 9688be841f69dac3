"""Linear attention and state spaces as their libraries write them: states of chunks, gates, the
delta rule, packed sequences, block pointers of transposed matrices, flags by heuristics.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import numpy as np

import tawa
import tawa.language as tl
from idiom_case import Idiom, blank, fixed, idiom, normal

CASES: dict[str, Idiom] = {}
case = partial(idiom, CASES)
HALF = np.float16
STARTS = np.array([0, 37, 100], np.int64)  # two sequences, of 37 and 63 tokens
CHUNKS = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.int32)  # (sequence, chunk) of 32 tokens


def gates(*shape: int, least: float = 0.1):
    """Logarithms of factors below 1."""
    return lambda rng: -rng.uniform(least / 2, least, shape).astype(np.float32)


def wide(x: np.ndarray, *shape: int) -> np.ndarray:
    return x.reshape(shape).astype(np.float64)


# --- the state before each chunk ------------------------------------------------------------------


def state_reference(k, v, g, h0, starts, H, K, V, BT, **_):
    keys, values, gate = wide(k, -1, H, K), wide(v, -1, H, V), wide(g, -1, H)
    states, last = [], []
    for n, (begin, end) in enumerate(pairwise(starts)):
        h = wide(h0, -1, H, K, V)[n].copy()
        for at in range(begin, end, BT):
            states.append(h.copy())
            for t in range(at, min(at + BT, end)):
                h = h * np.exp(gate[t])[:, None, None]
                h += keys[t][:, :, None] * values[t][:, None, :]
        last.append(h)
    return {"h": np.array(states).ravel(), "ht": np.array(last).ravel()}


@case((2, 2, 4), state_reference, 3e-3, k=normal(100 * 2 * 64, dtype=HALF),
      v=normal(100 * 2 * 64, dtype=HALF), g=gates(200), h0=normal(2 * 2 * 64 * 64),
      h=blank(4 * 2 * 64 * 64), ht=blank(2 * 2 * 64 * 64), starts=fixed(STARTS),
      offsets=fixed(np.array([0, 2], np.int32)), T=100, H=2, K=64, V=64, BT=32, BK=32,
      BV=32)  # fmt: skip
@tawa.heuristics({
    "USE_INITIAL_STATE": lambda args: args["h0"] is not None,
    "STORE_FINAL_STATE": lambda args: args["ht"] is not None,
    "USE_G": lambda args: args["g"] is not None,
    "IS_VARLEN": lambda args: args["starts"] is not None,
})  # fmt: skip
@tawa.jit(do_not_specialize=["T"])
def chunk_states(k, v, h, g, h0, ht, starts, offsets, T, H: tl.constexpr, K: tl.constexpr,
                 V: tl.constexpr, BT: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
                 USE_G: tl.constexpr, USE_INITIAL_STATE: tl.constexpr,
                 STORE_FINAL_STATE: tl.constexpr, IS_VARLEN: tl.constexpr):  # fmt: skip
    i_k, i_v, i_nh = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    i_n, i_h = i_nh // H, i_nh % H
    if IS_VARLEN:
        bos, eos = tl.load(starts + i_n).to(tl.int32), tl.load(starts + i_n + 1).to(tl.int32)
        T = eos - bos
        NT = tl.cdiv(T, BT)
        boh = tl.load(offsets + i_n).to(tl.int32)
    else:
        bos, eos = i_n * T, i_n * T + T
        NT = tl.cdiv(T, BT)
        boh = i_n * NT
    b_h = tl.zeros([BK, BV], dtype=tl.float32)
    if USE_INITIAL_STATE:
        p_h0 = tl.make_block_ptr(h0 + i_nh * K * V, (K, V), (V, 1), (i_k * BK, i_v * BV), (BK, BV),
                                 (1, 0))  # fmt: skip
        b_h = tl.load(p_h0, boundary_check=(0, 1)).to(tl.float32)
    for i_t in range(NT):
        p_k = tl.make_block_ptr(k + (bos * H + i_h) * K, (K, T), (1, H * K), (i_k * BK, i_t * BT),
                                (BK, BT), (0, 1))  # fmt: skip
        p_v = tl.make_block_ptr(v + (bos * H + i_h) * V, (T, V), (H * V, 1), (i_t * BT, i_v * BV),
                                (BT, BV), (1, 0))  # fmt: skip
        o_h = ((boh + i_t) * H + i_h).to(tl.int64) * K * V
        p_h = tl.make_block_ptr(h + o_h, (K, V), (V, 1), (i_k * BK, i_v * BV), (BK, BV), (1, 0))
        tl.store(p_h, b_h.to(p_h.dtype.element_ty), boundary_check=(0, 1))
        b_k = tl.load(p_k, boundary_check=(0, 1))
        b_v = tl.load(p_v, boundary_check=(0, 1))
        if USE_G:
            i_last = min((i_t + 1) * BT, T)
            o_t = i_t * BT + tl.arange(0, BT)
            b_g = tl.load(g + (bos + o_t) * H + i_h, mask=(o_t < T), other=0.0)
            b_cum = tl.cumsum(b_g, axis=0)
            b_sum = tl.sum(b_g, axis=0)
            b_h *= tl.exp(b_sum)
            b_v = (b_v * tl.where(o_t < i_last, tl.exp(b_sum - b_cum), 0)[:, None]).to(b_v.dtype)
        b_h += tl.dot(b_k, b_v)
    if STORE_FINAL_STATE:
        p_ht = tl.make_block_ptr(ht + i_nh * K * V, (K, V), (V, 1), (i_k * BK, i_v * BV), (BK, BV),
                                 (1, 0))  # fmt: skip
        tl.store(p_ht, b_h.to(p_ht.dtype.element_ty), boundary_check=(0, 1))


# --- what chunks give, of packed sequences --------------------------------------------------------


def output_reference(q, k, v, h, g, starts, scale, H, HQ, K, V, BT, **_):
    queries, keys, values = wide(q, -1, HQ, K), wide(k, -1, H, K), wide(v, -1, H, V)
    gate, states, o = wide(g, -1, H), wide(h, -1, H, K, V), np.zeros((starts[-1], HQ, V))
    chunk = 0
    for begin, end in pairwise(starts):
        for at in range(begin, end, BT):
            part = slice(at, min(at + BT, end))
            cum = np.cumsum(gate[part], 0)
            for j in range(HQ):
                i = j // (HQ // H)
                a = queries[part, j] @ keys[part, i].T
                a = np.tril(a * np.exp(cum[:, None, i] - cum[None, :, i]))
                o[part, j] = queries[part, j] @ states[chunk, i] * np.exp(cum[:, i, None])
                o[part, j] += a @ values[part, i]
            chunk += 1
    return {"o": (o * scale).ravel()}


@tawa.jit
def safe_exp(x):
    return tl.exp(tl.where(x <= 0, x, float("-inf")))


@case((2, 4, 4), output_reference, 5e-3, q=normal(100 * 4 * 64, dtype=HALF),
      k=normal(100 * 2 * 64, dtype=HALF), v=normal(100 * 2 * 64, dtype=HALF),
      h=normal(4 * 2 * 64 * 64, dtype=HALF), g=gates(200), o=blank(100 * 4 * 64, dtype=HALF),
      starts=fixed(STARTS), chunks=fixed(CHUNKS.ravel()), scale=0.125, T=100, H=2, HQ=4, K=64,
      V=64, BT=32, BK=32, BV=32, IS_VARLEN=True)  # fmt: skip
@tawa.jit(do_not_specialize=["T"])
def chunk_outputs(q, k, v, h, g, o, starts, chunks, scale, T, H: tl.constexpr, HQ: tl.constexpr,
                  K: tl.constexpr, V: tl.constexpr, BT: tl.constexpr, BK: tl.constexpr,
                  BV: tl.constexpr, IS_VARLEN: tl.constexpr):  # fmt: skip
    """Sequence and chunk come from a table; keys are read transposed."""
    i_v, i_t, i_hq = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    i_h = i_hq // (HQ // H)
    i_tg = i_t
    if IS_VARLEN:
        i_n, i_t = tl.load(chunks + i_t * 2), tl.load(chunks + i_t * 2 + 1)
        bos, eos = tl.load(starts + i_n).to(tl.int32), tl.load(starts + i_n + 1).to(tl.int32)
        T = eos - bos
    else:
        bos = 0
    q += (bos * HQ + i_hq) * K
    k += (bos * H + i_h) * K
    v += (bos * H + i_h) * V
    o += (bos * HQ + i_hq) * V
    h += (i_tg * H + i_h).to(tl.int64) * K * V
    b_o = tl.zeros([BT, BV], dtype=tl.float32)
    b_A = tl.zeros([BT, BT], dtype=tl.float32)
    for i_k in range(tl.cdiv(K, BK)):
        p_q = tl.make_block_ptr(q, (T, K), (HQ * K, 1), (i_t * BT, i_k * BK), (BT, BK), (1, 0))
        p_k = tl.make_block_ptr(k, (K, T), (1, H * K), (i_k * BK, i_t * BT), (BK, BT), (0, 1))
        p_h = tl.make_block_ptr(h, (K, V), (V, 1), (i_k * BK, i_v * BV), (BK, BV), (1, 0))
        b_q = tl.load(p_q, boundary_check=(0, 1))
        b_k = tl.load(p_k, boundary_check=(0, 1))
        b_h = tl.load(p_h, boundary_check=(0, 1))
        b_o += tl.dot(b_q, b_h)
        b_A += tl.dot(b_q, b_k)
    o_t = i_t * BT + tl.arange(0, BT)
    m_t = o_t < T
    b_g = tl.cumsum(tl.load(g + (bos + o_t) * H + i_h, mask=m_t, other=0.0), 0)
    b_o = b_o * tl.exp(b_g)[:, None]
    b_A = b_A * safe_exp(b_g[:, None] - b_g[None, :])
    m_A = (o_t[:, None] >= o_t[None, :]) & (m_t[:, None] & m_t)
    b_A = tl.where(m_A, b_A, 0)
    p_v = tl.make_block_ptr(v, (T, V), (H * V, 1), (i_t * BT, i_v * BV), (BT, BV), (1, 0))
    p_o = tl.make_block_ptr(o, (T, V), (HQ * V, 1), (i_t * BT, i_v * BV), (BT, BV), (1, 0))
    b_v = tl.load(p_v, boundary_check=(0, 1))
    b_o = b_o * scale + tl.dot(b_A.to(b_v.dtype), b_v) * scale
    tl.store(p_o, b_o.to(p_o.dtype.element_ty), boundary_check=(0, 1))


# --- the delta rule -------------------------------------------------------------------------------


def factor_reference(k, g, beta, T, H, K, BT, **_):
    keys, cum, b = wide(k, T, H, K), wide(g, T, H), wide(beta, T, H)
    out = np.zeros((T, H, BT))
    for t in range(T):
        first = t // BT * BT
        for s in range(first, t):
            dot = (keys[t] * keys[s]).sum(1)
            out[t, :, s - first] = b[t] * dot * np.exp(cum[t] - cum[s])
    return {"A": out.ravel()}


@case((3, 2), factor_reference, 2e-3, k=normal(80 * 2 * 96, dtype=HALF),
      g=fixed(-np.linspace(0, 2, 160, dtype=np.float32)), beta=normal(160),
      A=blank(80 * 2 * 32), T=80, H=2, K=96, BT=32, BK=32)  # fmt: skip
@tawa.jit(do_not_specialize=["T"])
def keys_by_keys(k, g, beta, A, T, H: tl.constexpr, K: tl.constexpr, BT: tl.constexpr,
                 BK: tl.constexpr):  # fmt: skip
    """The strictly lower triangle of K K', by rows' factors and gates; tl.trans in the product."""
    i_t, i_h = tl.program_id(0), tl.program_id(1)
    o_t = i_t * BT + tl.arange(0, BT)
    m_t = o_t < T
    p_b = tl.make_block_ptr(beta + i_h, (T,), (H,), (i_t * BT,), (BT,), (0,))
    b_b = tl.load(p_b, boundary_check=(0,))
    b_A = tl.zeros([BT, BT], dtype=tl.float32)
    for i_k in range(tl.cdiv(K, BK)):
        p_k = tl.make_block_ptr(k + i_h * K, (T, K), (H * K, 1), (i_t * BT, i_k * BK), (BT, BK),
                                (1, 0))  # fmt: skip
        b_k = tl.load(p_k, boundary_check=(0, 1))
        b_A += tl.dot(b_k, tl.trans(b_k))
    p_g = tl.make_block_ptr(g + i_h, (T,), (H,), (i_t * BT,), (BT,), (0,))
    b_g = tl.load(p_g, boundary_check=(0,))
    b_A *= tl.exp(b_g[:, None] - b_g[None, :])
    b_A *= b_b[:, None]
    m_A = (o_t[:, None] > o_t[None, :]) & (m_t[:, None] & m_t)
    b_A = tl.where(m_A, b_A, 0)
    p_A = tl.make_block_ptr(A + i_h * BT, (T, BT), (BT * H, 1), (i_t * BT, 0), (BT, BT), (1, 0))
    tl.store(p_A, b_A.to(p_A.dtype.element_ty), boundary_check=(0, 1))


def delta_reference(k, u, w, h0, T, H, K, V, BT, **_):
    keys, us, ws = wide(k, T, H, K), wide(u, T, H, V), wide(w, T, H, K)
    h, states, new = wide(h0, H, K, V).copy(), [], np.zeros((T, H, V))
    for at in range(0, T, BT):
        part = slice(at, min(at + BT, T))
        states.append(h.copy())
        for i in range(H):
            new[part, i] = us[part, i] - ws[part, i] @ h[i]
        h = h + np.einsum("thk,thv->hkv", keys[part], new[part])
    return {"h": np.array(states).ravel(), "v_new": new.ravel(), "ht": h.ravel()}


@case((2, 2), delta_reference, 5e-3, k=normal(90 * 2 * 104, dtype=HALF),
      u=normal(90 * 2 * 64, dtype=HALF), w=lambda rng: (rng.standard_normal(90 * 2 * 104) / 30)
      .astype(HALF), v_new=blank(90 * 2 * 64, dtype=HALF), h=blank(3 * 2 * 104 * 64, dtype=HALF),
      h0=normal(2 * 104 * 64), ht=blank(2 * 104 * 64), T=90, H=2, K=104, V=64, BT=32, BV=32,
      USE_INITIAL_STATE=True, STORE_FINAL_STATE=True, SAVE_NEW_VALUE=True)  # fmt: skip
@tawa.jit(do_not_specialize=["T"])
def delta_states(k, u, w, v_new, h, h0, ht, T, H: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
                 BT: tl.constexpr, BV: tl.constexpr, USE_INITIAL_STATE: tl.constexpr,
                 STORE_FINAL_STATE: tl.constexpr, SAVE_NEW_VALUE: tl.constexpr):  # fmt: skip
    """A state in pieces of 64 rows, two products that depend on each other through it."""
    i_v, i_h = tl.program_id(0), tl.program_id(1)
    NT = tl.cdiv(T, BT)
    b_h1 = tl.zeros([64, BV], dtype=tl.float32)
    if K > 64:
        b_h2 = tl.zeros([64, BV], dtype=tl.float32)
    h += i_h * K * V
    k += i_h * K
    w += i_h * K
    u += i_h * V
    v_new += i_h * V
    if USE_INITIAL_STATE:
        h0 = h0 + i_h * K * V
        p_h1 = tl.make_block_ptr(h0, (K, V), (V, 1), (0, i_v * BV), (64, BV), (1, 0))
        b_h1 += tl.load(p_h1, boundary_check=(0, 1)).to(tl.float32)
        if K > 64:
            p_h2 = tl.make_block_ptr(h0, (K, V), (V, 1), (64, i_v * BV), (64, BV), (1, 0))
            b_h2 += tl.load(p_h2, boundary_check=(0, 1)).to(tl.float32)
    for i_t in range(NT):
        p_h1 = tl.make_block_ptr(h + i_t * H * K * V, (K, V), (V, 1), (0, i_v * BV), (64, BV),
                                 (1, 0))  # fmt: skip
        tl.store(p_h1, b_h1.to(p_h1.dtype.element_ty), boundary_check=(0, 1))
        if K > 64:
            p_h2 = tl.make_block_ptr(h + i_t * H * K * V, (K, V), (V, 1), (64, i_v * BV), (64, BV),
                                     (1, 0))  # fmt: skip
            tl.store(p_h2, b_h2.to(p_h2.dtype.element_ty), boundary_check=(0, 1))
        p_u = tl.make_block_ptr(u, (T, V), (H * V, 1), (i_t * BT, i_v * BV), (BT, BV), (1, 0))
        p_w = tl.make_block_ptr(w, (T, K), (H * K, 1), (i_t * BT, 0), (BT, 64), (1, 0))
        b_w = tl.load(p_w, boundary_check=(0, 1))
        b_v = tl.dot(b_w, b_h1.to(b_w.dtype))
        if K > 64:
            p_w = tl.make_block_ptr(w, (T, K), (H * K, 1), (i_t * BT, 64), (BT, 64), (1, 0))
            b_w = tl.load(p_w, boundary_check=(0, 1))
            b_v += tl.dot(b_w, b_h2.to(b_w.dtype))
        b_v = tl.load(p_u, boundary_check=(0, 1)) - b_v
        if SAVE_NEW_VALUE:
            p_n = tl.make_block_ptr(v_new, (T, V), (H * V, 1), (i_t * BT, i_v * BV), (BT, BV),
                                    (1, 0))  # fmt: skip
            tl.store(p_n, b_v.to(p_n.dtype.element_ty), boundary_check=(0, 1))
        b_v = b_v.to(k.dtype.element_ty)
        p_k = tl.make_block_ptr(k, (K, T), (1, H * K), (0, i_t * BT), (64, BT), (0, 1))
        b_k = tl.load(p_k, boundary_check=(0, 1))
        b_h1 += tl.dot(b_k, b_v)
        if K > 64:
            p_k = tl.make_block_ptr(k, (K, T), (1, H * K), (64, i_t * BT), (64, BT), (0, 1))
            b_k = tl.load(p_k, boundary_check=(0, 1))
            b_h2 += tl.dot(b_k, b_v)
    if STORE_FINAL_STATE:
        p_h1 = tl.make_block_ptr(ht + i_h * K * V, (K, V), (V, 1), (0, i_v * BV), (64, BV), (1, 0))
        tl.store(p_h1, b_h1.to(p_h1.dtype.element_ty), boundary_check=(0, 1))
        if K > 64:
            p_h2 = tl.make_block_ptr(ht + i_h * K * V, (K, V), (V, 1), (64, i_v * BV), (64, BV),
                                     (1, 0))  # fmt: skip
            tl.store(p_h2, b_h2.to(p_h2.dtype.element_ty), boundary_check=(0, 1))


def step_reference(q, k, v, g, beta, h0, scale, T, H, K, V, **_):
    queries, keys, values = wide(q, T, H, K), wide(k, T, H, K), wide(v, T, H, V)
    gate, b, h, o = wide(g, T, H), wide(beta, T, H), wide(h0, H, K, V).copy(), []
    for t in range(T):
        x = queries[t] / np.sqrt((queries[t] ** 2).sum(1, keepdims=True) + 1e-6) * scale
        y = keys[t] / np.sqrt((keys[t] ** 2).sum(1, keepdims=True) + 1e-6)
        h *= np.exp(gate[t])[:, None, None]
        new = (values[t] - np.einsum("hk,hkv->hv", y, h)) * b[t][:, None]
        h += y[:, :, None] * new[:, None, :]
        o.append(np.einsum("hk,hkv->hv", x, h))
    return {"o": np.array(o).ravel(), "ht": h.ravel()}


@case((2, 2), step_reference, 2e-3, q=normal(9 * 2 * 50, dtype=HALF),
      k=normal(9 * 2 * 50, dtype=HALF), v=normal(9 * 2 * 32, dtype=HALF), g=gates(18),
      beta=normal(18), o=blank(9 * 2 * 32, dtype=HALF), h0=normal(2 * 50 * 32),
      ht=blank(2 * 50 * 32), scale=0.5, T=9, H=2, K=50, V=32, BK=64, BV=16,
      NORM_IN_KERNEL=True)  # fmt: skip
@tawa.jit(do_not_specialize=["T"])
def delta_steps(q, k, v, g, beta, o, h0, ht, scale, T, H: tl.constexpr, K: tl.constexpr,
                V: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
                NORM_IN_KERNEL: tl.constexpr):  # fmt: skip
    """Decoding: a step a token, pointers that move on."""
    i_v, i_h = tl.program_id(0), tl.program_id(1)
    o_k, o_v = tl.arange(0, BK), i_v * BV + tl.arange(0, BV)
    p_q, p_k = q + i_h * K + o_k, k + i_h * K + o_k
    p_v, p_o = v + i_h * V + o_v, o + i_h * V + o_v
    p_g, p_beta = g + i_h, beta + i_h
    mask_k, mask_v = o_k < K, o_v < V
    mask_h = mask_k[:, None] & mask_v[None, :]
    state = i_h * K * V + o_k[:, None] * V + o_v[None, :]
    b_h = tl.load(h0 + state, mask=mask_h, other=0).to(tl.float32)
    for _ in range(0, T):
        b_q = tl.load(p_q, mask=mask_k, other=0).to(tl.float32)
        b_k = tl.load(p_k, mask=mask_k, other=0).to(tl.float32)
        b_v = tl.load(p_v, mask=mask_v, other=0).to(tl.float32)
        b_g = tl.load(p_g).to(tl.float32)
        if NORM_IN_KERNEL:
            b_q = b_q / tl.sqrt(tl.sum(b_q * b_q) + 1e-6)
            b_k = b_k / (tl.sqrt(tl.sum(b_k * b_k) + 1e-6))
        b_q = b_q * scale
        b_h *= tl.exp(b_g)
        b_v -= tl.sum(b_h * b_k[:, None], 0)
        b_v *= tl.load(p_beta).to(tl.float32)
        b_h += b_k[:, None] * b_v[None, :]
        b_o = tl.sum(b_h * b_q[:, None], 0)
        tl.store(p_o, b_o.to(p_o.dtype.element_ty), mask=mask_v)
        p_q += H * K
        p_k += H * K
        p_o += H * V
        p_v += H * V
        p_g += H
        p_beta += H
    tl.store(ht + state, b_h.to(ht.dtype.element_ty), mask=mask_h)


# --- gates of keys, in pieces of a chunk ----------------------------------------------------------


def intra_reference(q, k, g, scale, T, K, BT, **_):
    queries, keys, cum = wide(q, T, K), wide(k, T, K), wide(g, T, K)
    out = np.zeros((T, BT))
    for t in range(T):
        first = t // BT * BT
        for s in range(first, t + 1):
            out[t, s - first] = (queries[t] * keys[s] * np.exp2(cum[t] - cum[s])).sum() * scale
    return {"A": out.ravel()}


@case((4, 16), intra_reference, 3e-3, q=normal(200 * 48, dtype=HALF),
      k=normal(200 * 48, dtype=HALF), g=lambda rng: -rng.uniform(0, 0.1, (200, 48))
      .cumsum(0).astype(np.float32).ravel(), A=fixed(np.zeros(200 * 64, np.float32)), scale=0.25,
      T=200, K=48, BT=64, BC=16, BK=32, NC=4)  # fmt: skip
@tawa.jit
def pieces_of_a_chunk(q, k, g, A, scale, T, K: tl.constexpr, BT: tl.constexpr, BC: tl.constexpr,
                      BK: tl.constexpr, NC: tl.constexpr):  # fmt: skip
    """Off the diagonal a product relative to the first gate; on it a loop over columns."""
    i_t, i_c = tl.program_id(0), tl.program_id(1)
    i_i, i_j = i_c // NC, i_c % NC
    if i_t * BT + i_i * BC >= T:
        return
    if i_i < i_j:
        return
    if i_i > i_j:
        b_A = tl.zeros([BC, BC], dtype=tl.float32)
        for i_k in range(tl.cdiv(K, BK)):
            o_k = i_k * BK + tl.arange(0, BK)
            m_k = o_k < K
            p_q = tl.make_block_ptr(q, (T, K), (K, 1), (i_t * BT + i_i * BC, i_k * BK), (BC, BK),
                                    (1, 0))  # fmt: skip
            p_g = tl.make_block_ptr(g, (T, K), (K, 1), (i_t * BT + i_i * BC, i_k * BK), (BC, BK),
                                    (1, 0))  # fmt: skip
            p_k = tl.make_block_ptr(k, (K, T), (1, K), (i_k * BK, i_t * BT + i_j * BC), (BK, BC),
                                    (0, 1))  # fmt: skip
            p_gk = tl.make_block_ptr(g, (K, T), (1, K), (i_k * BK, i_t * BT + i_j * BC), (BK, BC),
                                     (0, 1))  # fmt: skip
            p_gn = tl.max_contiguous(tl.multiple_of(g + (i_t * BT + i_i * BC) * K + o_k, BK), BK)
            b_gn = tl.load(p_gn, mask=m_k, other=0)
            b_q = tl.load(p_q, boundary_check=(0, 1))
            b_g = tl.load(p_g, boundary_check=(0, 1))
            b_qg = b_q * tl.exp2(b_g - b_gn[None, :]) * scale
            b_k = tl.load(p_k, boundary_check=(0, 1))
            b_gk = tl.load(p_gk, boundary_check=(0, 1))
            b_kg = b_k * tl.exp2(b_gn[:, None] - b_gk)
            b_A += tl.dot(b_qg, b_kg)
        p_A = tl.make_block_ptr(A, (T, BT), (BT, 1), (i_t * BT + i_i * BC, i_j * BC), (BC, BC),
                                (1, 0))  # fmt: skip
        tl.store(p_A, b_A.to(A.dtype.element_ty), boundary_check=(0, 1))
    else:
        o_i = tl.arange(0, BC)
        o_k = tl.arange(0, 64)
        m_k = o_k < K
        m_A = (i_t * BT + i_i * BC + o_i) < T
        o_A = (i_t * BT + i_i * BC + o_i) * BT + i_j * BC
        rows = (i_t * BT + i_i * BC + o_i)[:, None] * K + o_k[None, :]
        m_q = m_A[:, None] & m_k[None, :]
        b_q = tl.load(q + rows, mask=m_q, other=0.0)
        b_g = tl.load(g + rows, mask=m_q, other=0.0)
        p_k = k + (i_t * BT + i_j * BC) * K + o_k
        p_gk = g + (i_t * BT + i_j * BC) * K + o_k
        for j in range(0, min(BC, T - i_t * BT - i_i * BC)):
            b_k = tl.load(p_k, mask=m_k, other=0).to(tl.float32)
            b_gk = tl.load(p_gk, mask=m_k, other=0).to(tl.float32)
            b_A = tl.sum(b_q * b_k[None, :] * tl.exp2(b_g - b_gk[None, :]), 1)
            b_A = tl.where(o_i >= j, b_A * scale, 0.0)
            tl.store(A + o_A + j, b_A.to(A.dtype.element_ty), mask=m_A)
            p_k += K
            p_gk += K
