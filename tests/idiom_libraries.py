"""Kernels of libraries: functions passed as constants, sparse blocks, transforms, recurrences."""

from __future__ import annotations

from functools import partial

import numpy as np

import tawa
import tawa.language as tl
from idiom_case import Idiom, blank, fixed, idiom, normal

CASES: dict[str, Idiom] = {}
case = partial(idiom, CASES)
HALF = np.float16


# --- attention with the blocks of a mask, and functions for scores and mask -----------------------

COUNTS = np.array([2, 1, 3], np.int32)
BLOCKS = np.array([[0, 2, 0, 0], [1, 0, 0, 0], [0, 1, 3, 0]], np.int32)


def flexible_reference(q, k, v, counts, blocks, M, N, D, BM, BN, **_):
    x, y, z = (a.reshape(-1, D).astype(np.float64) for a in (q, k, v))
    i, j = np.arange(M)[:, None], np.arange(N)[None]
    live = np.zeros((M, N), bool)
    for row, (count, columns) in enumerate(zip(counts, blocks.reshape(-1, 4))):
        for column in columns[:count]:
            live[row * BM : (row + 1) * BM, column * BN : (column + 1) * BN] = True
    scores = np.where(live & ((i + j) % 3 != 0), x @ y.T / 8 + 0.01 * (j - i), -np.inf)
    high = scores.max(1, keepdims=True)
    p = np.exp(scores - np.where(np.isinf(high), 0, high))
    total = p.sum(1, keepdims=True)
    return {"out": (p @ z / np.where(total == 0, 1, total)).ravel()}


@tawa.jit
def nearer_is_more(score, i, j):
    return score + 0.01 * (j - i).to(tl.float32)


@tawa.jit
def not_each_third(i, j):
    return (i + j) % 3 != 0


@tawa.jit
def one_block(q, acc, total, high, k, v, N, i, start, D: tl.constexpr, BN: tl.constexpr,
              SCORE: tl.constexpr, MASK: tl.constexpr):  # fmt: skip
    j, d = start + tl.arange(0, BN), tl.arange(0, D)
    keys = tl.load(k + j[None, :] * D + d[:, None], mask=(j < N)[None, :], other=0.0)
    scores = SCORE(tl.dot(q, keys) * 0.125, i[:, None], j[None, :])
    scores = tl.where(MASK(i[:, None], j[None, :]) & (j < N)[None, :], scores, float("-inf"))
    most = tl.maximum(high, tl.max(scores, 1))
    base = tl.where(most == float("-inf"), 0, most)
    alpha = tl.math.exp2((high - base) * 1.44269504)
    p = tl.math.exp2((scores - base[:, None]) * 1.44269504)
    values = tl.load(v + j[:, None] * D + d[None, :], mask=(j < N)[:, None], other=0.0)
    acc = tl.dot(p.to(values.dtype), values, acc * alpha[:, None])
    return acc, total * alpha + tl.sum(p, 1), most


@case((3,), flexible_reference, 1e-2, q=normal(150 * 64, dtype=HALF),
      k=normal(120 * 64, dtype=HALF), v=normal(120 * 64, dtype=HALF), counts=fixed(COUNTS),
      blocks=fixed(BLOCKS), out=blank(150 * 64, dtype=HALF), M=150, N=120, D=64, BM=64,
      BN=32)  # fmt: skip
@tawa.jit
def flexible_attention(q, k, v, counts, blocks, out, M, N, D: tl.constexpr, BM: tl.constexpr,
                       BN: tl.constexpr):  # fmt: skip
    pid = tl.program_id(0)
    i, d = pid * BM + tl.arange(0, BM), tl.arange(0, D)
    at = i[:, None] * D + d[None, :]
    x = tl.load(q + at, mask=(i < M)[:, None], other=0.0)
    high = tl.full([BM], float("-inf"), tl.float32)
    total, acc = tl.zeros([BM], tl.float32), tl.zeros([BM, D], tl.float32)
    for t in range(tl.load(counts + pid)):
        start = tl.load(blocks + pid * 4 + t) * BN
        acc, total, high = one_block(x, acc, total, high, k, v, N, i, start, D, BN,
                                     nearer_is_more, not_each_third)  # fmt: skip
    total = tl.where(total == 0.0, 1, total)
    tl.store(out + at, (acc / total[:, None]).to(tl.float16), mask=(i < M)[:, None])


# --- a sparse matrix of dense blocks --------------------------------------------------------------

STARTS = np.array([0, 2, 2, 5, 6], np.int64)
COLUMNS = np.array([0, 3, 1, 2, 3, 0], np.int64)


def sparse_reference(values, starts, columns, b, N, S, **_):
    a = np.zeros((4 * S, 4 * S))
    for row in range(4):
        for i in range(starts[row], starts[row + 1]):
            place = np.s_[row * S : (row + 1) * S, columns[i] * S : (columns[i] + 1) * S]
            a[place] = values.reshape(-1, S, S)[i]
    return {"out": (a @ b.reshape(-1, N).astype(np.float64)).ravel()}


@case((2, 4), sparse_reference, 5e-3, values=normal(6 * 256, dtype=HALF), starts=fixed(STARTS),
      columns=fixed(COLUMNS), b=normal(64 * 50, dtype=HALF), out=blank(64 * 50, dtype=HALF),
      N=50, S=16, BN=32)  # fmt: skip
@tawa.jit
def sparse_rows(values, starts, columns, b, out, N, S: tl.constexpr, BN: tl.constexpr):
    """Pointers that move through lists; a row of no blocks."""
    row = tl.program_id(1)
    start = tl.load(starts + row)
    count = tl.load(starts + row + 1) - start
    i, n = tl.arange(0, S), tl.program_id(0) * BN + tl.arange(0, BN)
    block = values + start * S * S + i[:, None] * S + i[None, :]
    column = columns + start
    acc = tl.zeros((S, BN), tl.float32)
    for _ in range(count):
        at = (tl.load(column) * S + i)[:, None] * N + n[None, :]
        acc += tl.dot(tl.load(block), tl.load(b + at, mask=n[None, :] < N, other=0.0))
        block += S * S
        column += 1
    at = (row * S + i)[:, None] * N + n[None, :]
    tl.store(out + at, acc.to(out.dtype.element_ty), mask=n[None, :] < N)


# --- a Fourier transform by halves ----------------------------------------------------------------


def transform_reference(re, im, **_):
    y = np.fft.fft(re.astype(np.float64).reshape(-1, 64) + 1j * im.reshape(-1, 64))
    return {"out_re": y.real.ravel(), "out_im": y.imag.ravel()}


@tawa.jit
def apart(x, R: tl.constexpr, n: tl.constexpr, h: tl.constexpr):
    return tl.split(tl.permute(tl.reshape(x, (R, 2, n // 2 // h, h)), (0, 2, 3, 1)))


@tawa.jit
def together(x, y, R: tl.constexpr, n: tl.constexpr):
    return tl.reshape(tl.permute(tl.join(x, y), (0, 1, 3, 2)), (R, n))


@case((1,), transform_reference, 1e-4, re=normal(256), im=normal(256), out_re=blank(256),
      out_im=blank(256), R=4, n=64)  # fmt: skip
@tawa.jit
def fourier(re, im, out_re, out_im, R: tl.constexpr, n: tl.constexpr):
    at = tl.arange(0, R)[:, None] * n + tl.arange(0, n)[None, :]
    x, y = tl.load(re + at), tl.load(im + at)
    for stage in tl.static_range(6):
        h: tl.constexpr = 2**stage
        ar, br = apart(x, R, n, h)
        ai, bi = apart(y, R, n, h)
        angle = tl.arange(0, h)[None, None, :].to(tl.float32) * (-3.14159265358979 / h)
        c, s = tl.cos(angle), tl.sin(angle)
        tr, ti = br * c - bi * s, br * s + bi * c
        x, y = together(ar + tr, ar - tr, R, n), together(ai + ti, ai - ti, R, n)
    tl.store(out_re + at, x)
    tl.store(out_im + at, y)
