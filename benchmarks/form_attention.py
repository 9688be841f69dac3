"""The gradients of attention in one kernel, from plain pointers, as users write it.

Arrays are [batch * heads, S, D]; `lse` holds the base-2 logarithm of each row's sum of weights, and
`delta` the product of each row of the output with its gradient.
"""

from __future__ import annotations

import tawa
import tawa.language as tl


@tawa.jit
def attention_gradients(
    q_ptr,
    k_ptr,
    v_ptr,
    do_ptr,
    lse_ptr,
    delta_ptr,
    dq_ptr,
    dk_ptr,
    dv_ptr,
    scale,
    S,
    D: tl.constexpr,
    CAUSAL: tl.constexpr,
    WIDE: tl.constexpr,
    NARROW: tl.constexpr,
):
    """A program makes dk and dv of `WIDE` keys, then dq of as many queries."""
    head = tl.program_id(1).to(tl.int64)
    q_ptr += head * S * D
    k_ptr += head * S * D
    v_ptr += head * S * D
    do_ptr += head * S * D
    lse_ptr += head * S
    delta_ptr += head * S
    first = tl.program_id(0) * WIDE
    own = first + tl.arange(0, WIDE)
    across = tl.arange(0, D)[None, :]
    block = own[:, None] * D + across
    log2 = scale * 1.4426950408889634

    k = tl.load(k_ptr + block)
    v = tl.load(v_ptr + block)
    dk = tl.zeros((WIDE, D), tl.float32)
    dv = tl.zeros((WIDE, D), tl.float32)
    for m in range(first if CAUSAL else 0, S, NARROW):
        query = m + tl.arange(0, NARROW)
        q = tl.load(q_ptr + query[:, None] * D + across)
        do = tl.load(do_ptr + query[:, None] * D + across)
        lse = tl.load(lse_ptr + query)
        delta = tl.load(delta_ptr + query)
        p = tl.exp2(tl.dot(k, tl.trans(q)) * log2 - lse[None, :])
        if CAUSAL:
            p = tl.where(query[None, :] >= own[:, None], p, 0.0)
        dv += tl.dot(p.to(do.dtype), do)
        ds = p * (tl.dot(v, tl.trans(do)) - delta[None, :])
        dk += tl.dot(ds.to(q.dtype), q)
    tl.store(dk_ptr + head * S * D + block, (dk * scale).to(dk_ptr.dtype.element_ty))
    tl.store(dv_ptr + head * S * D + block, dv.to(dv_ptr.dtype.element_ty))

    q = tl.load(q_ptr + block)
    do = tl.load(do_ptr + block)
    lse = tl.load(lse_ptr + own)
    delta = tl.load(delta_ptr + own)
    dq = tl.zeros((WIDE, D), tl.float32)
    for n in range(0, first + WIDE if CAUSAL else S, NARROW):
        key = n + tl.arange(0, NARROW)
        k_step = tl.load(k_ptr + key[:, None] * D + across)
        v_step = tl.load(v_ptr + key[:, None] * D + across)
        p = tl.exp2(tl.dot(q, tl.trans(k_step)) * log2 - lse[:, None])
        if CAUSAL:
            p = tl.where(own[:, None] >= key[None, :], p, 0.0)
        ds = p * (tl.dot(do, tl.trans(v_step)) - delta[:, None])
        dq += tl.dot(ds.to(k_step.dtype), k_step)
    tl.store(dq_ptr + head * S * D + block, (dq * scale).to(dq_ptr.dtype.element_ty))
