"""Loops that can be seen to make no iteration are gone before anything is planned or proved."""

import ml_dtypes
import numpy as np
import pytest

import tawa
import tawa.language as tl


@tawa.jit
def windows(q, out, T, HOW: tl.constexpr, M: tl.constexpr):
    r = tl.arange(0, M)
    acc = tl.zeros((M, M), tl.float32)
    rows = tl.cdiv(T, M)
    middle = tl.minimum(tl.program_id(0) + 1, rows)
    if HOW == "absorbed":  # the greater of rows and of what is at most rows
        first, end = tl.maximum(middle, rows), rows
    elif HOW == "from the greater":
        first, end = tl.maximum(tl.program_id(0), rows), rows
    elif HOW == "to the less":
        first, end = rows, tl.minimum(tl.program_id(0), rows)
    else:
        first, end = middle, rows
    for i in range(first, end):
        x = tl.load(q + (i * M + r[:, None]) * M + r[None, :])
        acc = tl.dot(x, x, acc)
    tl.store(out + r[:, None] * M + r[None, :], acc)


@pytest.mark.parametrize("how", ["absorbed", "from the greater", "to the less", "runs"])
def test_a_loop_that_never_runs_leaves_nothing(how: str) -> None:
    q = np.random.default_rng(0).integers(-3, 4, (128, 64)).astype(ml_dtypes.bfloat16)
    out = np.full((64, 64), -1, np.float32)
    compiled = windows[1,](q, out, 128, HOW=how, M=64)
    x = q[64:].astype(np.float32)
    assert np.array_equal(out, x @ x if how == "runs" else np.zeros_like(x))
    assert ("wgmma" in compiled.asm["cuda"]) == (how == "runs")
