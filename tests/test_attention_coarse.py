"""Attention through the coarse schedule: right for every trip count, and its machine code overlaps.

The kernel masks inside its single loop; nothing in the compiler knows that it is attention.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

import tawa
import tawa.language as tl
from tawa.runtime import nvrtc, sass


@tawa.jit
def attention(
    q_desc,
    k_desc,
    v_desc,
    o_desc,
    queries,
    keys,
    scale,
    GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    CAUSAL: tl.constexpr,
    TAIL: tl.constexpr,
):
    """O = softmax(scale * Q K^T) V; grid (cdiv(queries, BLOCK_M), heads, batch).

    Descriptors have shape (batch, heads, sequence, dim); `GROUP` query heads share a head of keys.
    `CAUSAL` lets query i see keys up to i + keys - queries; rows that see no key become zero.
    `TAIL` tells that `BLOCK_N` does not divide `keys`.
    """
    # Under a causal mask the last rows see most keys: the longest programs start first.
    block = tl.program_id(0)
    if CAUSAL:
        block = tl.cdiv(queries, BLOCK_M) - 1 - block
    head = tl.program_id(1)
    batch = tl.program_id(2)
    first = block * BLOCK_M
    shift = keys - queries
    q = q_desc.load([batch, head, first, 0]).reshape(BLOCK_M, HEAD_DIM)
    # Finite, so that a row all of whose scores are -inf keeps weights of zero, not NaN.
    top = tl.full((BLOCK_M,), -1e30, tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, HEAD_DIM), tl.float32)
    factor = scale * 1.4426950408889634
    end = keys
    if CAUSAL:
        end = tl.minimum(keys, first + BLOCK_M + shift)
    for start in range(0, end, BLOCK_N):
        k = k_desc.load([batch, head // GROUP, start, 0]).reshape(BLOCK_N, HEAD_DIM)
        scores = tl.dot(q, k.T)
        if CAUSAL:
            if start + BLOCK_N > first + shift + 1:
                rows = first + shift + tl.arange(0, BLOCK_M)
                columns = start + tl.arange(0, BLOCK_N)
                scores = tl.where(rows[:, None] >= columns[None, :], scores, float("-inf"))
        elif TAIL and start + BLOCK_N > keys:
            columns = start + tl.arange(0, BLOCK_N)
            scores = tl.where(columns[None, :] < keys, scores, float("-inf"))
        above = tl.maximum(top, tl.max(scores, 1) * factor)
        weights = tl.exp2(scores * factor - above[:, None])
        rescale = tl.exp2(top - above)
        total = total * rescale + tl.sum(weights, 1)
        acc = acc * rescale[:, None]
        v = v_desc.load([batch, head // GROUP, start, 0]).reshape(BLOCK_N, HEAD_DIM)
        acc = tl.dot(weights.to(v_desc.dtype), v, acc)
        top = above
    acc = acc / tl.where(total > 0, total, 1.0)[:, None]
    o_desc.store([batch, head, first, 0], acc.to(o_desc.dtype).reshape(1, 1, BLOCK_M, HEAD_DIM))


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, np.float32).astype(np.float16)


def reference(q, k, v, causal):
    group = q.shape[1] // k.shape[1]
    q, k, v = (x.astype(np.float64) for x in (q, np.repeat(k, group, 1), np.repeat(v, group, 1)))
    s = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
    if causal:
        last = np.arange(q.shape[2])[:, None] + k.shape[2] - q.shape[2]
        s = np.where(last >= np.arange(k.shape[2]), s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True, initial=-1e30))
    total = p.sum(-1, keepdims=True)
    return p / np.where(total == 0, 1, total) @ v


def bound(q, k, v, out, rows, columns, causal):
    """Return grid, arguments and constants of a call with tiles of `rows` x `columns`."""
    dim, keys = q.shape[3], k.shape[2]
    sizes = (rows, columns, columns, rows)
    describe = tawa.TensorDescriptor.from_tensor
    maps = [describe(x, [1, 1, size, dim]) for x, size in zip((q, k, v, out), sizes)]
    grid = (-(-q.shape[2] // rows), q.shape[1], q.shape[0])
    constants = {
        "GROUP": q.shape[1] // k.shape[1],
        "BLOCK_M": rows,
        "BLOCK_N": columns,
        "HEAD_DIM": dim,
        "CAUSAL": causal,
        "TAIL": keys % columns != 0,
    }
    return grid, (*maps, q.shape[2], keys, dim**-0.5), constants


def error(q, k, v, rows, columns, causal, **pins):
    out = np.full(q.shape, np.nan, q.dtype)
    grid, arguments, constants = bound(q, k, v, out, rows, columns, causal)
    attention[grid](*arguments, **constants, **pins)
    wanted = reference(q, k, v, causal)
    return np.linalg.norm(out.astype(np.float64) - wanted) / max(1e-9, np.linalg.norm(wanted))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "keys",
    [
        pytest.param(32, marks=pytest.mark.long),
        40,
        pytest.param(64, marks=pytest.mark.long),
        96,
        pytest.param(128, marks=pytest.mark.long),
    ],
)
def test_every_trip_count(keys, causal):
    q, k, v = (normal(1, 1, n, 64, seed=seed) for seed, n in enumerate((64, keys, keys)))
    assert error(q, k, v, 64, 32, causal, arrangement="cooperative") < 2e-3


def test_programs_without_a_trip_give_zeros():
    q, k, v = (normal(1, 1, n, 64, seed=seed) for seed, n in enumerate((192, 64, 64)))
    out = np.full(q.shape, np.nan, q.dtype)
    grid, arguments, constants = bound(q, k, v, out, 64, 32, True)
    attention[grid](*arguments, **constants)
    assert (out[0, 0, :128] == 0).all()
    assert np.abs(out.astype(np.float64) - reference(q, k, v, True)).max() < 1e-2


@pytest.mark.parametrize("causal", [pytest.param(False, marks=pytest.mark.long), True])
def test_grouped_heads_and_tails(causal):
    q = normal(2, 4, 100, 64)
    k, v = (normal(2, 2, 100, 64, seed=seed) for seed in (1, 2))
    assert error(q, k, v, 128, 64, causal) < 2e-3


@pytest.mark.skipif(not nvrtc.is_available(), reason="no NVRTC")
@pytest.mark.parametrize("causal", [False, pytest.param(True, marks=pytest.mark.long)])
def test_exponentials_run_under_the_product(causal):
    """Between the wait for the scores and the wait for P V stand all exponentials of a step."""
    q = normal(1, 1, 256, 128)
    grid, arguments, constants = bound(q, q, q, q.copy(), 128, 128, causal)
    kernel = attention.compile(*arguments, grid=grid, **constants, arrangement="cooperative")
    assert kernel.resources.spills == 0
    assert [role.budget for role in kernel.resources.roles][1] >= 232
    text = sass.disassemble(kernel.asm["cubin"])
    if not text:
        pytest.skip("no nvdisasm")
    parts = re.split(r"WARPGROUP\.DEPBAR\.LE gsb0, (0x\d)", text)
    under = [part for mark, part in zip(parts[1::2], parts[2::2]) if mark == "0x1"]
    assert len(under) == 1
    step = 128 * 128 // 256  # elements of a score tile a thread holds
    assert len(re.findall(r"\bMUFU\.EX2\b", under[0])) == step + 2  # and two of the rescaling
    assert len(re.findall(r"\bFFMA\b", under[0])) >= step  # the scale is folded into the exponent
    assert len(re.findall(r"\bMOV R\d+, R\d+", under[0])) < 8  # scores are not copied
    assert len(re.findall(r"\bSHFL\b", under[0])) == 4  # of the maxima: sums meet after the loop
    assert "HGMMA" not in under[0]
