"""Products of few rows with gathered tiles: operands are swapped, and rows are read as they lie."""

import re

import ml_dtypes
import numpy as np
import pytest

import tawa
import tawa.language as tl

CUBINS = True


@tawa.jit
def decode(q, keys, values, rows, n, out, SUMMED: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    m, d = tl.arange(0, 16), tl.arange(0, D)
    x = tl.load(q + m[:, None] * D + d[None, :])
    if SUMMED:  # all threads find out the end: the loads stay with the consumer
        end = tl.sum(tl.load(n + tl.arange(0, 16)), 0)
    else:
        end = tl.load(n) * 16
    acc = tl.zeros((16, D), tl.float32)
    for s in range(0, end, BN):
        r = tl.load(rows + s + tl.arange(0, BN))
        k = tl.load(keys + r[None, :] * D + d[:, None])
        p = tl.dot(x, k).to(tl.bfloat16)
        v = tl.load(values + r[:, None] * D + d[None, :])
        acc = tl.dot(p, v, acc)
    tl.store(out + m[:, None] * D + d[None, :], acc)


@pytest.mark.parametrize("summed", [False, True])
def test_gathered_rows_are_loaded_whole(summed: bool) -> None:
    draw = np.random.default_rng(0)
    kind = ml_dtypes.bfloat16
    q = (draw.integers(0, 8, (16, 128)) == 0).astype(kind)
    keys, values = (draw.integers(-1, 2, (300, 128)).astype(kind) for _ in range(2))
    rows = draw.permutation(300)[:128].astype(np.int32)
    n, out = np.full(16, 8, np.int32), np.zeros((16, 128), np.float32)
    compiled = decode[1,](q, keys, values, rows, n, out, SUMMED=summed, BN=64, D=128)
    p = q.astype(np.float32) @ keys[rows].astype(np.float32).T
    assert np.array_equal(out, p @ values[rows].astype(np.float32))
    assert compiled.plan.specialized
    words = re.findall(r"\bLDG\.E\S*|\bLDGSTS\S*", compiled.asm["sass"])
    # Rows by 16 bytes; by less only rows' numbers, the length, and the queries that lie as A does.
    wide = [word for word in words if ".128" in word]
    assert len(wide) >= 16
    assert not any("U16" in word for word in words)
