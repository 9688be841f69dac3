# ruff: noqa: N803  (the names are those of the tile language)
# Kernel code is read by the compiler, not run: its values have no Python types.
# pyright: basic, reportArgumentType=false, reportOperatorIssue=false
# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false, reportReturnType=false
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false
"""The kernels `tawa demo` and `tawa doctor` run."""

from __future__ import annotations

import tawa
import tawa.language as tl


@tawa.jit
def double(x_ptr, out_ptr, COUNT: tl.constexpr):
    """out = 2 * x."""
    where = tl.arange(0, COUNT)
    tl.store(out_ptr + where, 2 * tl.load(x_ptr + where))


@tawa.jit
def matmul(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """C = A @ B, one program a tile of C."""
    row = tl.program_id(0) * BM
    column = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        a = a_desc.load([row, k])
        b = b_desc.load([k, column])
        acc = tl.dot(a, b, acc)
    c_desc.store([row, column], acc.to(c_desc.dtype))


@tawa.jit
def attention(q_desc, k_desc, v_desc, o_desc, length, scale, BM: tl.constexpr, BN: tl.constexpr):
    """O = softmax(scale * Q K^T) V under a causal mask, all heads one after the other in a matrix.

    Grid (length / BM, heads); one program a block of `BM` queries, by tiles of `BN` keys.
    """
    block = tl.num_programs(0) - 1 - tl.program_id(0)  # the longest first
    first = tl.program_id(1) * length
    q = q_desc.load([first + block * BM, 0])
    rows = block * BM + tl.arange(0, BM)
    factor = scale * 1.44269504  # exponentials in base two
    top = tl.full([BM], float("-inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    out = tl.zeros([BM, q.shape[1]], tl.float32)
    for start in range(0, (block + 1) * BM, BN):
        k = k_desc.load([first + start, 0])
        scores = tl.dot(q, k.T)
        if start + BN > block * BM:
            columns = start + tl.arange(0, BN)
            scores = tl.where(rows[:, None] >= columns[None, :], scores, float("-inf"))
        above = tl.maximum(top, tl.max(scores, 1) * factor)
        weights = tl.exp2(scores * factor - above[:, None])
        rescale = tl.exp2(top - above)
        total = total * rescale + tl.sum(weights, 1)
        v = v_desc.load([first + start, 0])
        out = tl.dot(weights.to(v.dtype), v, out * rescale[:, None])
        top = above
    o_desc.store([first + block * BM, 0], (out / total[:, None]).to(o_desc.dtype))
