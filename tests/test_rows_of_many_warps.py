"""Rows that all warps of a block reduce: what each thread holds, and what it waits for."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tawa
import tawa.language as tl
from codegen_emulator import emulate, needs_compiler


@tawa.jit
def combine(mean, square, weight, mean_2, square_2, weight_2):
    delta = mean_2 - mean
    total = weight + weight_2
    share = tl.where(total == 0.0, 0.0, weight_2 / total)
    return mean + delta * share, square + square_2 + delta * delta * weight * share, total


@tawa.jit
def moments(x, out, ROWS: tl.constexpr, N: tl.constexpr):
    r, i = tl.arange(0, ROWS)[:, None], tl.arange(0, N)[None, :]
    row = tl.load(x + r * N + i)
    mean, square, _ = tl.reduce(
        (row, tl.zeros_like(row), tl.full((ROWS, N), 1.0, tl.float32)), 1, combine
    )
    tl.store(out + 2 * tl.arange(0, ROWS), mean)
    tl.store(out + 2 * tl.arange(0, ROWS) + 1, square / N)


@needs_compiler
@pytest.mark.parametrize(("rows", "warps"), [(1, 16), (2, 8), (16, 4)])
def test_lanes_fold_what_a_thread_folds_slowly(rows: int, warps: int):
    """A thread that read all parts would divide once for each, one after the other."""
    x = np.random.default_rng(3).standard_normal((rows, 1024)).astype(np.float32) + 2
    out = np.zeros((rows, 2), np.float32)
    kernel = moments.compile(x, out, ROWS=rows, N=1024, num_warps=warps)
    emulate(kernel.asm.program("hopper"), {"x": x, "out": out}, (1, 1, 1))
    wanted = np.stack([x.mean(1), x.var(1)], 1)
    np.testing.assert_allclose(out, wanted, rtol=2e-5)
    text = kernel.asm["cuda"]
    assert text.count("shared_load_floatx1(") > 1  # the wrapper, and three parts
    assert "shared_load_floatx4(" not in text
    assert not re.search(r"\? [^;]*divide", text)  # a call that a selection leaves out is a branch
    before_stores = text[
        text.index("role_main(") : text.index("global_store", text.index("out + "))
    ]
    assert len(re.findall("named_sync<.*>\\(\\);", before_stores)) == 1


@tawa.jit
def sums(x, out, found, N: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(0) * 2 + tl.arange(0, 2)
    total = tl.zeros((2, BLOCK), tl.float32)
    most = tl.zeros((2, BLOCK), tl.float32)
    for at in range(0, N, BLOCK):
        item = tl.load(x + r[:, None] * N + at + tl.arange(0, BLOCK)[None, :])
        total += item
        if at == 0:
            most = item
        else:
            most = tl.maximum(most, item)
    tl.store(out + r, tl.sum(total, 1))
    tl.store(found + r, tl.max(most, 1) > 3)


def test_who_has_no_roles_loads_by_threads():
    """By TMA into one slot, each iteration would wait for the memory, and all threads for one."""
    x = np.random.default_rng(3).standard_normal((4, 2048)).astype(np.float32)
    out, found = np.zeros(4, np.float32), np.zeros(4, np.bool_)
    sums[(2,)](x, out, found, 2048, 512)
    np.testing.assert_allclose(out, x.sum(1), rtol=1e-4)
    assert (found == (x.max(1) > 3)).all()
    kernel = sums.compile(x, out, found, N=2048, BLOCK=512, grid=(2,))
    told = [note for note in kernel.declined if note.feature == "specialization"]
    assert not kernel.plan.specialized
    assert "an address is not known" not in str(told)  # that of bools is that of bytes
    assert "tma_load" not in kernel.asm["cuda"]


@tawa.jit
def above(x, out, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(out + i, tl.load(x + i) > 0.5)


@needs_compiler
def test_two_bytes_are_stored_at_once():
    x = np.random.default_rng(3).random(512).astype(np.float32)
    out = np.zeros(512, np.bool_)
    kernel = above.compile(x, out, N=512, num_warps=8)
    emulate(kernel.asm.program("hopper"), {"x": x, "out": out}, (1, 1, 1))
    assert (out == (x > 0.5)).all()
    assert "global_store_b16(" in kernel.asm["cuda"]
    assert "global_store_b8(" not in kernel.asm["cuda"]


@tawa.jit
def rows_in_steps(x, out, pitch, N: tl.constexpr, STEP: tl.constexpr, BLOCK: tl.constexpr):
    r, i = tl.arange(0, 2)[:, None], tl.arange(0, BLOCK)[None, :]
    for at in range(0, N, STEP):
        place = r * pitch + at + i
        tl.store(out + place, tl.load(x + place, mask=place != 5, other=1.0))  # not by TMA


@tawa.jit
def rows_of_a_pitch(
    x, out, N: tl.constexpr, STEP: tl.constexpr, PITCH: tl.constexpr, BLOCK: tl.constexpr
):
    rows_in_steps(x, out, PITCH, N, STEP, BLOCK)


@pytest.mark.parametrize(
    ("step", "pitch", "n", "meets"),
    [
        (256, 1024, 1024, False),
        (
            256,
            1024,
            2048,
            True,
        ),  # the first row's last iterations go where the second row's first went
        (128, 1024, 1024, True),  # an iteration goes where half of the last one went
        (4096, 256, 8192, False),
        (256, None, 1024, True),  # a pitch of the run may be less
    ],
)
def test_trips_that_store_elsewhere_do_not_meet(
    step: int, pitch: int | None, n: int, meets: bool
) -> None:
    x, out = np.zeros(1 << 14, np.float32), np.zeros(1 << 14, np.float32)
    values = {"N": n, "STEP": step, "BLOCK": 256}
    if pitch is None:
        made = rows_in_steps.compile(x, out, 1024, **values, grid=(1,))
    else:
        made = rows_of_a_pitch.compile(x, out, PITCH=pitch, **values, grid=(1,))
    text = made.asm["hopper"]
    assert "tma" not in text  # which would wait in each iteration for the store of the last one
    assert ("named_barrier" in text[text.index("scf.for") : text.index("} {label")]) == meets
