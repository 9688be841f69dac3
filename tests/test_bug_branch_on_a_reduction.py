"""Loads under a condition that a reduction of a tile gives: a block of scores that its mask leaves
out is not computed (attention of new tokens, as servers have it). Loads through pointers had no
name for the reduction in the reason why no producer does them; loads by TMA were left to the
producer, and the proof took its condition and the consumer's for two: a hang.
"""

import numpy as np

import tawa
import tawa.language as tl
from idiom_case import Idiom, blank, normal


@tawa.jit
def attended(q, k, o, window, M: tl.constexpr, N: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    row, d = tl.arange(0, M), tl.arange(0, D)
    queries = tl.load(q + row[:, None] * D + d[None, :])
    total = tl.zeros((M, BN), tl.float32)
    for start in range(0, N, BN):
        key = start + tl.arange(0, BN)
        seen = (key[None, :] <= row[:, None]) & (row[:, None] <= key[None, :] + window)
        if tl.max(tl.max(seen.to(tl.int32), 1), 0) > 0:
            keys = tl.load(k + key[None, :] * D + d[:, None])
            total += tl.where(seen, tl.dot(queries, keys), 0.0)
    tl.store(o + row[:, None] * BN + tl.arange(0, BN)[None, :], total)


def wanted(q, k, window, M, N, BN, **_):
    scores = q.astype(np.float64) @ k.T.astype(np.float64)
    row, key = np.arange(M)[:, None], np.arange(N)[None, :]
    seen = np.where((key <= row) & (row <= key + window), scores, 0)
    return {"o": seen.reshape(M, N // BN, BN).sum(1)}


def test_they_have_a_reason_and_run() -> None:
    half = np.float16
    given = {
        "q": normal(64, 64, dtype=half),
        "k": normal(160, 64, dtype=half),
        "o": blank(64, 32),
        "window": 20,
        **{"M": 64, "N": 160, "BN": 32, "D": 64},
    }
    case = Idiom("attended", attended, given, (1,), wanted, 1e-2)
    case.simulate("tile")
    case.simulate("hopper")
    arguments, named = case.call(case.arguments())
    notes = attended.compile(*arguments, grid=(1,), **named).plan.declined
    assert any("depends on the reduction" in note.reason for note in notes)
