"""Kernels of servers: decoding over splits of the keys, prefixes with masks, experts, low-rank
adapters, scales by blocks, speculative tokens, tables of pages and of addresses.
"""

from __future__ import annotations

from functools import partial

import ml_dtypes
import numpy as np

import tawa
import tawa.language as tl
from idiom_case import Idiom, blank, fixed, idiom, normal

CASES: dict[str, Idiom] = {}
case = partial(idiom, CASES)
HALF, E4M3 = np.float16, ml_dtypes.float8_e4m3fn


def wide(x: np.ndarray, *shape: int) -> np.ndarray:
    return x.reshape(shape).astype(np.float64)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


# --- decoding over splits of the keys -------------------------------------------------------------

INDPTR = np.array([0, 70, 75, 203], np.int32)


def latent_parts(q, k, indptr, indices, splits, sm_scale, H, D, DV, SPLITS, LEAST, **_):
    queries, cache = wide(q, -1, H, D), wide(k, -1, D)
    out = np.zeros((3, H, SPLITS, DV))
    lse = np.zeros((3, H, SPLITS))
    used = np.zeros((3, H, SPLITS), bool)
    for n in range(3):
        keys = cache[indices[indptr[n] : indptr[n + 1]]]
        part = tawa.cdiv(tawa.cdiv(len(keys), int(splits[n])), LEAST) * LEAST
        for s in range(SPLITS):
            mine = keys[s * part : (s + 1) * part]
            if not len(mine):
                continue
            x = queries[n] @ mine.T * sm_scale
            out[n, :, s] = softmax(x) @ mine[:, :DV]
            lse[n, :, s] = np.log(np.exp(x).sum(1))
            used[n, :, s] = True
    return out, lse, used


def latent_reference(out, lse, **given):
    want, sums, used = latent_parts(**given)
    return {"out": np.where(used[..., None], want, 77).ravel(),
            "lse": np.where(used, sums, 77).ravel()}  # fmt: skip


@case((3, 1, 4), latent_reference, 5e-3, q=normal(3 * 12 * 80, dtype=HALF),
      k=normal(300 * 80, dtype=HALF), sm_scale=0.11, indptr=fixed(INDPTR),
      indices=lambda rng: rng.permutation(300)[:203].astype(np.int64),
      out=blank(3 * 12 * 4 * 64), lse=blank(3 * 12 * 4),
      splits=fixed(np.array([3, 1, 4], np.int32)), H=12, D=80, DV=64, BLOCK_N=32, BLOCK_H=16,
      SPLITS=4, LEAST=32, CAP=0.0)  # fmt: skip
@tawa.jit
def latent_decoding(q, k, sm_scale, indptr, indices, out, lse, splits, H: tl.constexpr,
                    D: tl.constexpr, DV: tl.constexpr, BLOCK_N: tl.constexpr,
                    BLOCK_H: tl.constexpr, SPLITS: tl.constexpr, LEAST: tl.constexpr,
                    CAP: tl.constexpr):  # fmt: skip
    """Heads in groups over one cache: 64 columns are keys and values, 16 more are keys only."""
    cur_batch = tl.program_id(0)
    cur_head_id = tl.program_id(1)
    split_kv_id = tl.program_id(2)
    cur_head = cur_head_id * BLOCK_H + tl.arange(0, BLOCK_H)
    mask_h = cur_head < (cur_head_id + 1) * BLOCK_H
    mask_h = mask_h & (cur_head < H)
    offs_d = tl.arange(0, DV)
    offs_dpe = DV + tl.arange(0, D - DV)
    start_idx = tl.load(indptr + cur_batch)
    seq_len = tl.load(indptr + cur_batch + 1) - start_idx
    kv_splits = tl.load(splits + cur_batch)
    q_nope = tl.load(q + (cur_batch * H + cur_head[:, None]) * D + offs_d[None, :],
                     mask=mask_h[:, None], other=0.0)  # fmt: skip
    q_pe = tl.load(q + (cur_batch * H + cur_head[:, None]) * D + offs_dpe[None, :],
                   mask=mask_h[:, None], other=0.0)  # fmt: skip
    kv_len_per_split = tl.cdiv(tl.cdiv(seq_len, kv_splits), LEAST) * LEAST
    split_kv_start = kv_len_per_split * split_kv_id
    split_kv_end = tl.minimum(split_kv_start + kv_len_per_split, seq_len)
    e_max = tl.zeros([BLOCK_H], dtype=tl.float32) - float("inf")
    e_sum = tl.zeros([BLOCK_H], dtype=tl.float32)
    acc = tl.zeros([BLOCK_H, DV], dtype=tl.float32)
    if split_kv_end > split_kv_start:
        for start_n in range(split_kv_start, split_kv_end, BLOCK_N):
            offs_n = start_n + tl.arange(0, BLOCK_N)
            kv_loc = tl.load(indices + start_idx + offs_n, mask=offs_n < split_kv_end, other=0)
            keys = tl.load(k + kv_loc[None, :] * D + offs_d[:, None],
                           mask=(offs_n[None, :] < split_kv_end), other=0.0)  # fmt: skip
            qk = tl.dot(q_nope, keys.to(q_nope.dtype))
            kpe = tl.load(k + kv_loc[None, :] * D + offs_dpe[:, None],
                          mask=(offs_n[None, :] < split_kv_end), other=0.0)  # fmt: skip
            qk += tl.dot(q_pe, kpe.to(q_pe.dtype))
            qk *= sm_scale
            if CAP > 0:
                qk = CAP * (2 * tl.sigmoid(2 * qk / CAP) - 1)
            qk = tl.where(mask_h[:, None] & (offs_n[None, :] < split_kv_end), qk, float("-inf"))
            v = tl.trans(keys)
            n_e_max = tl.maximum(tl.max(qk, 1), e_max)
            n_e_max = tl.where(mask_h, n_e_max, 0.0)
            re_scale = tl.exp(e_max - n_e_max)
            p = tl.exp(qk - n_e_max[:, None])
            acc *= re_scale[:, None]
            acc += tl.dot(p.to(v.dtype), v)
            e_sum = e_sum * re_scale + tl.sum(p, 1)
            e_max = n_e_max
        offs_mid = ((cur_batch * H + cur_head[:, None]) * SPLITS + split_kv_id) * DV
        tl.store(out + offs_mid + offs_d[None, :], acc / e_sum[:, None], mask=mask_h[:, None])
        tl.store(lse + (cur_batch * H + cur_head) * SPLITS + split_kv_id, e_max + tl.log(e_sum),
                 mask=mask_h)  # fmt: skip


def reduced_reference(parts, lse, lengths, SPLITS, D, **_):
    x, y = wide(parts, 3, SPLITS, D), wide(lse, 3, SPLITS)
    out = [softmax(y[n, : -(-lengths[n] // 16)]) @ x[n, : -(-lengths[n] // 16)] for n in range(3)]
    return {"out": np.array(out).ravel()}


@case((3,), reduced_reference, 1e-5, parts=normal(3 * 8 * 40), lse=normal(24), out=blank(120),
      lengths=fixed(np.array([100, 5, 128], np.int32)), SPLITS=8, D=40, BLOCK_D=64,
      LEAST=16)  # fmt: skip
@tawa.jit
def reduce_splits(parts, lse, out, lengths, SPLITS: tl.constexpr, D: tl.constexpr,
                  BLOCK_D: tl.constexpr, LEAST: tl.constexpr):  # fmt: skip
    """Scalars carried through a loop whose branch leaves out empty splits."""
    cur_batch = tl.program_id(0)
    offs_d = tl.arange(0, BLOCK_D)
    mask_d = offs_d < D
    length = tl.load(lengths + cur_batch)
    e_sum = 0.0
    e_max = -float("inf")
    acc = tl.zeros([BLOCK_D], dtype=tl.float32)
    for split in range(0, SPLITS):
        start = split * LEAST
        end = tl.minimum(start + LEAST, length)
        if end > start:
            at = cur_batch * SPLITS + split
            tv = tl.load(parts + at * D + offs_d, mask=mask_d, other=0.0)
            tlogic = tl.load(lse + at)
            n_e_max = tl.maximum(tlogic, e_max)
            old_scale = tl.exp(e_max - n_e_max)
            acc *= old_scale
            exp_logic = tl.exp(tlogic - n_e_max)
            acc += exp_logic * tv
            e_sum = e_sum * old_scale + exp_logic
            e_max = n_e_max
    tl.store(out + cur_batch * D + offs_d, acc / e_sum, mask=mask_d)


# --- one kernel for prefixes and steps, programs found by a search --------------------------------

QUERY_STARTS = np.array([0, 1, 40, 41, 60], np.int32)
SEQ_LENS = np.array([50, 39, 7, 77], np.int32)


def unified_reference(q, kc, vc, table, starts, lengths, scale, QH, KH, D, PAGE, WINDOW, **_):
    queries, keys, values = wide(q, -1, QH, D), wide(kc, -1, PAGE, KH, D), wide(vc, -1, PAGE, KH, D)
    out = np.zeros_like(queries)
    pages = table.reshape(4, -1)
    for n in range(4):
        ks, vs = (x[pages[n]].reshape(-1, KH, D)[: lengths[n]] for x in (keys, values))
        count = starts[n + 1] - starts[n]
        for i in range(count):
            place = lengths[n] - count + i
            first = max(0, place - WINDOW + 1)
            for h in range(QH):
                s = ks[first : place + 1, h // (QH // KH)] @ queries[starts[n] + i, h] * scale
                out[starts[n] + i, h] = softmax(s) @ vs[first : place + 1, h // (QH // KH)]
    return {"out": out.ravel()}


@tawa.jit
def cdiv_fn(x, y):
    return (x + y - 1) // y


@tawa.jit
def find_seq_idx(query_start_len_ptr, target_idx, num_seqs, BLOCK_Q: tl.constexpr,
                 use_q_block_mode: tl.constexpr):  # fmt: skip
    left: tl.int32 = 0
    right = num_seqs
    while left < right:
        mid = (left + right) // 2
        val = tl.load(query_start_len_ptr + mid)
        mid_val = val // BLOCK_Q + mid if use_q_block_mode else val
        if mid_val <= target_idx:
            left = mid + 1
        else:
            right = mid
    return left - 1


@case((11, 2), unified_reference, 5e-3, q=normal(60 * 4 * 48, dtype=HALF),
      kc=normal(24 * 16 * 2 * 48, dtype=HALF), vc=normal(24 * 16 * 2 * 48, dtype=HALF),
      table=lambda rng: rng.permutation(24)[:20].astype(np.int32), starts=fixed(QUERY_STARTS),
      lengths=fixed(SEQ_LENS), out=blank(60 * 4 * 48, dtype=HALF), scale=0.14, table_stride=5,
      num_seqs=4, QH=4, KH=2, D=48, PAD=64, PAGE=16, WINDOW=30, BLOCK_Q=8, BLOCK_M=16)  # fmt: skip
@tawa.jit
def unified_attention(q, kc, vc, table, starts, lengths, out, scale, table_stride: tl.int64,
                      num_seqs: tl.int32, QH: tl.constexpr, KH: tl.constexpr, D: tl.constexpr,
                      PAD: tl.constexpr, PAGE: tl.constexpr, WINDOW: tl.constexpr,
                      BLOCK_Q: tl.constexpr, BLOCK_M: tl.constexpr):  # fmt: skip
    """Rows are tokens by heads of a group; programs beyond their sequence leave."""
    q_block_global_idx = tl.program_id(0)
    kv_head_idx = tl.program_id(1)
    num_queries_per_kv: tl.constexpr = QH // KH
    seq_idx = find_seq_idx(starts, q_block_global_idx, num_seqs, BLOCK_Q, True)
    q_block_start_idx = tl.load(starts + seq_idx) // BLOCK_Q + seq_idx
    q_block_local_idx = q_block_global_idx - q_block_start_idx
    cur_batch_in_all_start_index = tl.load(starts + seq_idx)
    cur_batch_query_len = tl.load(starts + seq_idx + 1) - cur_batch_in_all_start_index
    if q_block_local_idx * BLOCK_Q >= cur_batch_query_len:
        return
    offs_m = tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, PAD)
    query_pos = q_block_local_idx * BLOCK_Q + offs_m // num_queries_per_kv
    query_offset_0 = cur_batch_in_all_start_index + query_pos
    query_offset_1 = kv_head_idx * num_queries_per_kv + offs_m % num_queries_per_kv
    query_offset = (query_offset_0[:, None] * QH + query_offset_1[:, None]) * D + offs_d[None, :]
    dim_mask = tl.where(offs_d < D, 1, 0).to(tl.int1)
    query_mask_0 = tl.where(query_pos < cur_batch_query_len, 1, 0).to(tl.int1)
    query_mask_1 = tl.where(query_offset_1 < QH, 1, 0).to(tl.int1)
    mask = dim_mask[None, :] & query_mask_0[:, None] & query_mask_1[:, None]
    Q = tl.load(q + query_offset, mask=mask, other=0.0)
    M = tl.full([BLOCK_M], float("-inf"), dtype=tl.float32)
    L = tl.full([BLOCK_M], 1.0, dtype=tl.float32)
    acc = tl.zeros([BLOCK_M, PAD], dtype=tl.float32)
    seq_len = tl.load(lengths + seq_idx)
    context_len = seq_len - cur_batch_query_len
    max_seq_prefix_len = (context_len + q_block_local_idx * BLOCK_Q
                          + (BLOCK_M - 1) // num_queries_per_kv + 1)  # fmt: skip
    max_seq_prefix_len = tl.minimum(max_seq_prefix_len, seq_len)
    num_blocks = cdiv_fn(max_seq_prefix_len, PAGE)
    for j in range(0, num_blocks):
        physical_block_idx = tl.load(table + seq_idx * table_stride + j).to(tl.int64)
        offs_n = tl.arange(0, PAGE)
        v_offset = ((physical_block_idx * PAGE + offs_n[:, None]) * KH + kv_head_idx) * D
        k_offset = ((physical_block_idx * PAGE + offs_n[None, :]) * KH + kv_head_idx) * D
        K = tl.load(kc + k_offset + offs_d[:, None], mask=dim_mask[:, None], other=0.0)
        V = tl.load(vc + v_offset + offs_d[None, :], mask=dim_mask[None, :], other=0.0)
        seq_offset = j * PAGE + offs_n
        seq_mask = seq_offset[None, :] < context_len + query_pos[:, None] + 1
        S = tl.zeros(shape=(BLOCK_M, PAGE), dtype=tl.float32)
        S += scale * tl.dot(Q, K)
        S = tl.where(query_mask_1[:, None] & query_mask_0[:, None] & seq_mask, S, float("-inf"))
        if WINDOW > 0:
            S = tl.where((context_len + query_pos[:, None] - seq_offset) < WINDOW, S, float("-inf"))
        m_j = tl.maximum(M, tl.max(S, axis=1))
        m_j = tl.where(m_j > float("-inf"), m_j, 0.0)
        P = tl.exp(S - m_j[:, None])
        l_j = tl.sum(P, axis=1)
        alpha = tl.exp(M - m_j)
        acc = acc * alpha[:, None]
        L = tl.where(alpha == 0.0, 0.0, L) * alpha + l_j
        M = m_j
        acc += tl.dot(P.to(V.dtype), V)
    acc = acc / L[:, None]
    tl.store(out + query_offset, acc.to(out.dtype.element_ty), mask=mask)


# --- prefixes with masks of their own -------------------------------------------------------------


def tree_reference(q, k, v, starts, mask, mask_starts, prefix, scale, D, **_):
    queries, keys, values = (wide(x, -1, D) for x in (q, k, v))
    out, row, first = np.zeros_like(queries), 0, 0
    for n in range(2):
        count = starts[n + 1] - starts[n]
        total = prefix[n] + count
        seen = mask[mask_starts[n] :][: count * total].reshape(count, total) != 0
        x = queries[row : row + count] @ keys[first : first + total].T * scale
        out[row : row + count] = softmax(np.where(seen, x, -np.inf)) @ values[first:][:total]
        row, first = row + count, first + total
    return {"out": out.ravel()}


def tree_mask(rng):
    rows = []
    for count, prefix in ((20, 40), (9, 33)):
        seen = rng.integers(0, 2, (count, prefix + count))
        seen[:, :prefix] = 1
        rows.append((seen | np.eye(count, prefix + count, prefix, dtype=int)).ravel())
    return np.concatenate(rows).astype(np.uint8)


@case((2, 2), tree_reference, 5e-3, q=normal(29 * 64, dtype=HALF), k=normal(102 * 64, dtype=HALF),
      v=normal(102 * 64, dtype=HALF), out=blank(29 * 64, dtype=HALF), mask=tree_mask,
      mask_starts=fixed(np.array([0, 1200], np.int64)),
      starts=fixed(np.array([0, 20, 29], np.int32)),
      firsts=fixed(np.array([0, 60, 102], np.int32)), prefix=fixed(np.array([40, 33], np.int32)),
      scale=0.125, D=64, BLOCK_M=16, BLOCK_N=32, USE_CUSTOM_MASK=True)  # fmt: skip
@tawa.jit
def extend_with_mask(q, k, v, out, mask, mask_starts, starts, firsts, prefix, scale,
                     D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                     USE_CUSTOM_MASK: tl.constexpr):  # fmt: skip
    """The prefix in one loop, what is new in another, under a tree's mask of bytes."""
    cur_seq, cur_block_m = tl.program_id(0), tl.program_id(1)
    extend_start = tl.load(starts + cur_seq)
    len_extend = tl.load(starts + cur_seq + 1) - extend_start
    kv_start = tl.load(firsts + cur_seq)
    len_prefix = tl.load(prefix + cur_seq)
    if USE_CUSTOM_MASK:
        mask_start = tl.load(mask_starts + cur_seq)
    offs_d, offs_m, offs_n = tl.arange(0, D), tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)
    mask_m = (cur_block_m * BLOCK_M + offs_m) < len_extend
    at = (extend_start + cur_block_m * BLOCK_M + offs_m[:, None]) * D + offs_d[None, :]
    x = tl.load(q + at, mask=mask_m[:, None], other=0.0)
    acc = tl.zeros([BLOCK_M, D], dtype=tl.float32)
    deno = tl.zeros([BLOCK_M], dtype=tl.float32)
    e_max = tl.zeros([BLOCK_M], dtype=tl.float32) - float("inf")
    for start_n in range(0, len_prefix, BLOCK_N):
        start_n = tl.multiple_of(start_n, BLOCK_N)
        mask_n = (start_n + offs_n) < len_prefix
        keys = tl.load(k + (kv_start + start_n + offs_n[None, :]) * D + offs_d[:, None],
                       mask=mask_n[None, :], other=0.0)  # fmt: skip
        qk = tl.dot(x.to(keys.dtype), keys) * scale
        final_mask = mask_m[:, None] & mask_n[None, :]
        if USE_CUSTOM_MASK:
            custom_mask = tl.load(
                mask + mask_start + (cur_block_m * BLOCK_M + offs_m[:, None])
                * (len_prefix + len_extend) + start_n + offs_n[None, :],
                mask=(mask_m[:, None] & mask_n[None, :]), other=0)  # fmt: skip
            final_mask &= custom_mask
        qk = tl.where(final_mask, qk, float("-inf"))
        row_max = tl.max(qk, 1)
        row_max_fixed = tl.where(row_max == float("-inf"), -1e20, row_max)
        n_e_max = tl.maximum(row_max_fixed, e_max)
        re_scale = tl.exp(e_max - n_e_max)
        p = tl.exp(qk - n_e_max[:, None])
        deno = deno * re_scale + tl.sum(p, 1)
        values = tl.load(v + (kv_start + start_n + offs_n[:, None]) * D + offs_d[None, :],
                         mask=mask_n[:, None], other=0.0)  # fmt: skip
        acc = acc * re_scale[:, None] + tl.dot(p.to(values.dtype), values)
        e_max = n_e_max
    cur_block_m_end = (
        len_extend if USE_CUSTOM_MASK else tl.minimum(len_extend, (cur_block_m + 1) * BLOCK_M)
    )
    for start_n in range(0, cur_block_m_end, BLOCK_N):
        mask_n = (start_n + offs_n) < cur_block_m_end
        keys = tl.load(k + (kv_start + len_prefix + start_n + offs_n[None, :]) * D
                       + offs_d[:, None], mask=mask_n[None, :], other=0.0)  # fmt: skip
        qk = tl.dot(x, keys, out_dtype=tl.float32) * scale
        custom_mask = tl.load(
            mask + mask_start + (cur_block_m * BLOCK_M + offs_m[:, None])
            * (len_prefix + len_extend) + len_prefix + start_n + offs_n[None, :],
            mask=(mask_m[:, None] & mask_n[None, :]), other=0)  # fmt: skip
        custom_mask &= mask_m[:, None] & mask_n[None, :]
        qk = tl.where(custom_mask, qk, float("-inf"))
        row_max = tl.max(qk, 1)
        row_max_fixed = tl.where(row_max == float("-inf"), -1e20, row_max)
        n_e_max = tl.maximum(row_max_fixed, e_max)
        re_scale = tl.exp(e_max - n_e_max)
        p = tl.exp(qk - n_e_max[:, None])
        deno = deno * re_scale + tl.sum(p, 1)
        values = tl.load(v + (kv_start + len_prefix + start_n + offs_n[:, None]) * D
                         + offs_d[None, :], mask=mask_n[:, None], other=0.0)  # fmt: skip
        acc = acc * re_scale[:, None] + tl.dot(p.to(values.dtype), values)
        e_max = n_e_max
    tl.store(out + at, acc / deno[:, None], mask=mask_m[:, None])
