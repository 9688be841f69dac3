"""More forms (see form_kernels.py): block pointers, with boundary checks in both dimensions."""

from __future__ import annotations

import tawa
import tawa.language as tl
from form_parts import columns_of_head, in_groups, rows_of_head


@tawa.jit
def block_product(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
):
    """A product whose tiles are block pointers that advance along K."""
    row, column = in_groups(tl.program_id(0), M, N, BM, BN, GROUP)
    a_at = tl.make_block_ptr(a_ptr, (M, K), (K, 1), (row, 0), (BM, BK), (1, 0))
    b_at = tl.make_block_ptr(b_ptr, (K, N), (N, 1), (0, column), (BK, BN), (1, 0))
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        a = tl.load(a_at, boundary_check=(0, 1))
        b = tl.load(b_at, boundary_check=(0, 1))
        acc = tl.dot(a, b, acc)
        a_at = tl.advance(a_at, (0, BK))
        b_at = tl.advance(b_at, (BK, 0))
    c_at = tl.make_block_ptr(c_ptr, (M, N), (N, 1), (row, column), (BM, BN), (1, 0))
    tl.store(c_at, acc.to(c_ptr.dtype.element_ty), boundary_check=(0, 1))


@tawa.jit
def gated_states(
    k_ptr,
    v_ptr,
    g_ptr,
    h_ptr,
    T,
    H: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
    BT: tl.constexpr,
    BK: tl.constexpr,
    BV: tl.constexpr,
):
    """State before each chunk of gated linear attention: a recurrence over the chunks.

    k and v are [batch, T, H, K] and [batch, T, H, V], h [batch, chunks, H, K, V]; g [batch, T, H]
    are sums of the gates' logarithms within each chunk.
    """
    part_k, part_v, each = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    sequence, head = each // H, each % H
    chunks = tl.cdiv(T, BT)
    start = sequence * T
    first = start * H + head
    state = tl.zeros((BK, BV), tl.float32)
    for chunk in range(chunks):
        k_at = columns_of_head(k_ptr, first, part_k * BK, chunk * BT, T, H, K, BK, BT)
        v_at = rows_of_head(v_ptr, first, chunk * BT, part_v * BV, T, H, V, BT, BV)
        h_at = tl.make_block_ptr(
            h_ptr + ((sequence * chunks + chunk) * H + head) * K * V,
            (K, V),
            (V, 1),
            (part_k * BK, part_v * BV),
            (BK, BV),
            (1, 0),
        )
        tl.store(h_at, state.to(h_ptr.dtype.element_ty), boundary_check=(0, 1))
        k = tl.load(k_at, boundary_check=(0, 1))
        v = tl.load(v_at, boundary_check=(0, 1))
        rows = chunk * BT + tl.arange(0, BT)
        gate = tl.load(g_ptr + (start + rows) * H + head, mask=rows < T, other=0.0)
        last = tl.load(g_ptr + (start + min(chunk * BT + BT, T) - 1) * H + head)
        v = (v * tl.exp(last - gate)[:, None]).to(v.dtype)
        state = state * tl.exp(last) + tl.dot(k, v)


@tawa.jit
def gated_outputs(
    q_ptr,
    k_ptr,
    v_ptr,
    h_ptr,
    g_ptr,
    o_ptr,
    scale,
    T,
    H: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
    BT: tl.constexpr,
    BK: tl.constexpr,
    BV: tl.constexpr,
):
    """What each chunk of gated linear attention gives: from the state before it, and from itself.

    Arrays are those of `gated_states`; q is like k, o like v.
    """
    part, chunk, each = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    sequence, head = each // H, each % H
    start = sequence * T
    first = start * H + head
    state = (sequence * tl.cdiv(T, BT) + chunk) * H + head
    out = tl.zeros((BT, BV), tl.float32)
    scores = tl.zeros((BT, BT), tl.float32)
    for column in range(0, K, BK):
        q_at = rows_of_head(q_ptr, first, chunk * BT, column, T, H, K, BT, BK)
        k_at = columns_of_head(k_ptr, first, column, chunk * BT, T, H, K, BK, BT)
        h_at = tl.make_block_ptr(
            h_ptr + state * K * V, (K, V), (V, 1), (column, part * BV), (BK, BV), (1, 0)
        )
        q = tl.load(q_at, boundary_check=(0, 1))
        k = tl.load(k_at, boundary_check=(0, 1))
        h = tl.load(h_at, boundary_check=(0, 1))
        out += tl.dot(q, h)
        scores += tl.dot(q, k)
    rows = chunk * BT + tl.arange(0, BT)
    gate = tl.load(g_ptr + (start + rows) * H + head, mask=rows < T, other=0.0)
    seen = (rows[:, None] >= rows[None, :]) & (rows < T)[:, None]
    out = out * tl.exp(gate)[:, None]
    scores = tl.where(seen, scores * tl.exp(gate[:, None] - gate[None, :]), 0.0)
    v_at = rows_of_head(v_ptr, first, chunk * BT, part * BV, T, H, V, BT, BV)
    o_at = rows_of_head(o_ptr, first, chunk * BT, part * BV, T, H, V, BT, BV)
    v = tl.load(v_at, boundary_check=(0, 1))
    out = (out + tl.dot(scores.to(v.dtype), v)) * scale
    tl.store(o_at, out.to(o_ptr.dtype.element_ty), boundary_check=(0, 1))
