"""Operand B that threads load in runs along K lies in shared memory in those runs."""

import re

import ml_dtypes
import numpy as np
import pytest

import tawa
import tawa.language as tl

CUBINS = True


@tawa.jit
def scores(
    q, keys, rows, out, HOW: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr
):
    m, d, j = tl.arange(0, BM), tl.arange(0, D), tl.arange(0, BN)
    x = tl.load(q + m[:, None] * D + d[None, :])
    r = tl.load(rows + j)
    if HOW == "turned":
        y = tl.load(keys + r[:, None] * D + d[None, :]).T
    else:
        y = tl.load(keys + r[None, :] * D + d[:, None])
    y = (y.to(tl.float32) * 0.5).to(x.dtype)
    tl.store(out + m[:, None] * BN + j[None, :], tl.dot(x, y))


@pytest.mark.parametrize("kind", [ml_dtypes.bfloat16, np.float16, ml_dtypes.float8_e4m3fn])
@pytest.mark.parametrize("how", ["as it lies", "turned"])
def test_runs_along_k_are_written_whole(how: str, kind: type) -> None:
    draw = np.random.default_rng(0)
    narrow = ml_dtypes.bfloat16 if kind is not np.float16 else kind
    q = draw.integers(-3, 4, (64, 128)).astype(narrow)
    keys = draw.integers(-3, 4, (256, 128)).astype(kind)
    rows = draw.permutation(256)[:64].astype(np.int32)
    out = np.zeros((64, 64), np.float32)
    compiled = scores[1,](q, keys, rows, out, HOW=how, BM=64, BN=64, D=128)
    chosen = keys[rows].astype(np.float32) * np.float32(0.5)
    assert np.array_equal(out, q.astype(np.float32) @ chosen.T)
    stores = re.findall(r"\bSTS\.?(\w*)", compiled.asm["sass"])
    assert stores
    assert set(stores) <= {"64", "128"}, stores
