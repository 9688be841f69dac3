"""Masks with lower bounds, as block pointers have them: what goes by TMA, what does not, and what
it gives.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tawa
import tawa.language as tl
from codegen_emulator import emulate, needs_compiler
from tawa.frontend import build
from tawa.passes.descriptors import promote_always
from tawa.passes.simplify import simplify
from tawa.plan.plan import Plan
from tawa.runtime.dispatch import guards_hold
from tawa.target import H200

GOLDEN = Path(__file__).parent / "golden" / "passes"
Given = dict[str, Any]


def integers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float16)


def blank(*shape: int) -> np.ndarray:
    return np.full(shape, -1, np.float16)


def moved(compiled: Any) -> tuple[int, int]:
    """Loads and stores by TMA."""
    text = compiled.asm.text("hopper")
    return text.count("hopper.tma_load"), text.count("hopper.tma_store")


def reasons(compiled: Any) -> set[str]:
    return {note.reason for note in compiled.declined if note.feature.startswith("descriptor for")}


def give(kernel: Any, given: Given, grid: tuple[int, ...], wanted: np.ndarray, **meta: Any) -> None:
    """The program as written, the simulator and a launch, which asks the guards, give `wanted`."""
    for level in ("tile", "hopper", None):
        own = {name: value.copy() if name == "out" else value for name, value in given.items()}
        if level is None:
            kernel[grid](*own.values(), **meta)
        else:
            made = kernel.compile(*own.values(), grid=grid, **meta)
            if level == "hopper" and not guards_hold(made, own, (*grid, 1, 1)[:3]):
                continue
            tawa.simulate(kernel, *own.values(), grid=grid, level=level, **meta)
        np.testing.assert_array_equal(own["out"], wanted)


@tawa.jit
def same(x, B: tl.constexpr):
    """The tile itself, by a product: TMA moves what goes into one."""
    i, j = tl.arange(0, B)[:, None], tl.arange(0, B)[None, :]
    return tl.dot(x, (i == j).to(tl.float16)).to(tl.float16)


# --- products of block pointers -------------------------------------------------------------------


@tawa.jit
def product(a, b, out, M, N, K, sa, sb, so, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    x = tl.make_block_ptr(a, (M, K), (sa, 1), (row, 0), (BM, BK), (1, 0))
    y = tl.make_block_ptr(b, (K, N), (sb, 1), (0, column), (BK, BN), (1, 0))
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        acc = tl.dot(tl.load(x, boundary_check=(0, 1)), tl.load(y, boundary_check=(0, 1)), acc)
        x, y = tl.advance(x, (0, BK)), tl.advance(y, (BK, 0))
    z = tl.make_block_ptr(out, (M, N), (so, 1), (row, column), (BM, BN), (1, 0))
    tl.store(z, acc.to(tl.float16), boundary_check=(0, 1))


@pytest.mark.parametrize(("m", "n", "k"), [(128, 128, 128), (70, 72, 88), (1, 136, 8)])
@pytest.mark.short("128-128-128", "70-72-88")
def test_a_product_of_block_pointers_goes_by_tma(m: int, n: int, k: int) -> None:
    a, b = integers(m, k), integers(k, n, seed=1)
    given = {"a": a, "b": b, "out": blank(m, n), "M": m, "N": n, "K": k, "sa": k, "sb": n, "so": n}
    meta = {"BM": 64, "BN": 64, "BK": 64}
    grid = (-(-m // 64), -(-n // 64))
    made = product.compile(*given.values(), grid=grid, **meta)
    assert moved(made) == (2, 1)
    assert made.plan.specialized
    assert guards_hold(made, given, (*grid, 1))
    give(product, given, grid, (a.astype(np.float32) @ b).astype(np.float16), **meta)


# --- heads and batches ----------------------------------------------------------------------------


@tawa.jit
def heads(q, k, out, T, H: tl.constexpr, D: tl.constexpr, BT: tl.constexpr, BD: tl.constexpr):
    """Scores of a chunk in each sequence and head; arrays are [batch, T, H, D]."""
    chunk, head, one = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first = one * T
    acc = tl.zeros((BT, BT), tl.float32)
    for d in range(tl.cdiv(D, BD)):
        x = tl.make_block_ptr(
            q + (first * H + head) * D, (T, D), (H * D, 1), (chunk * BT, d * BD), (BT, BD), (1, 0)
        )
        y = tl.make_block_ptr(
            k + (first * H + head) * D, (D, T), (1, H * D), (d * BD, chunk * BT), (BD, BT), (0, 1)
        )
        acc += tl.dot(tl.load(x, boundary_check=(0, 1)), tl.load(y, boundary_check=(0, 1)))
    z = tl.make_block_ptr(
        out + (first * H + head) * BT, (T, BT), (H * BT, 1), (chunk * BT, 0), (BT, BT), (1, 0)
    )
    tl.store(z, acc.to(tl.float16), boundary_check=(0, 1))


@pytest.mark.parametrize("t", [40, 64, 96])
def test_rows_past_a_sequence_and_columns_past_a_head_are_no_other_s(t: int) -> None:
    """The last chunk of 40 rows reaches into the next sequence, columns 48 to 63 into a head."""
    batch, h, d, bt = 2, 3, 48, 64
    q, k = integers(batch, t, h, d), integers(batch, t, h, d, seed=1)
    grid = (-(-t // bt), h, batch)
    wanted = blank(batch, t, h, bt)
    for first in range(0, t, bt):
        rows = slice(first, min(first + bt, t))
        wanted[:, rows] = 0
        scores = np.einsum("bihd,bjhd->bihj", *(x[:, rows].astype(np.float32) for x in (q, k)))
        wanted[:, rows, :, : scores.shape[-1]] = scores
    given = {"q": q, "k": k, "out": blank(batch, t, h, bt), "T": t}
    meta = {"H": h, "D": d, "BT": bt, "BD": 32}
    made = heads.compile(*given.values(), grid=grid, **meta)
    assert moved(made) == (2, 1)
    assert guards_hold(made, given, grid)
    give(heads, given, grid, wanted, **meta)


@tawa.jit
def squares(a, out, H: tl.constexpr, D: tl.constexpr):
    """One matrix for each head, whose rows are as long as a program moves its columns on."""
    part, head = tl.program_id(1), tl.program_id(0)
    for turn in range(2):
        x = tl.make_block_ptr(
            a + (turn * H + head) * D * D, (D, D), (D, 1), (0, part * D), (D, D), (1, 0)
        )
        y = tl.make_block_ptr(
            out + (turn * H + head) * D * D, (D, D), (D, 1), (0, part * D), (D, D), (1, 0)
        )
        tl.store(y, same(tl.load(x, boundary_check=(0, 1)), D) + 1, boundary_check=(0, 1))


def test_columns_that_move_by_a_row_are_columns() -> None:
    """The second part lies outside, though its address is that of the next row."""
    a = integers(2, 3, 64, 64)
    given = {"a": a, "out": blank(2, 3, 64, 64)}
    made = squares.compile(*given.values(), grid=(3, 2), H=3, D=64)
    assert moved(made) == (1, 1)
    give(squares, given, (3, 2), a + 1, H=3, D=64)


# --- bounds that cut ------------------------------------------------------------------------------


@tawa.jit
def convolved(a, b, out, T, BT: tl.constexpr, C: tl.constexpr, TAPS: tl.constexpr):
    """Rows before the first and after the last are padding."""
    row = tl.program_id(0) * BT
    columns = tl.arange(0, C)
    acc = tl.zeros((BT, C), tl.float32)
    for tap in range(TAPS):
        rows = row + tap - TAPS // 2 + tl.arange(0, BT)
        inside = (rows >= 0) & (rows < T)
        x = tl.load(a + rows[:, None] * C + columns[None, :], mask=inside[:, None], other=0.0)
        y = tl.load(b + (tap * C + columns)[:, None] * C + columns[None, :])
        acc += tl.dot(x, y)
    rows = row + tl.arange(0, BT)
    place = out + rows[:, None] * C + columns[None, :]
    tl.store(place, acc.to(tl.float16), mask=(rows < T)[:, None])


def padded(a: np.ndarray, b: np.ndarray, taps: int) -> np.ndarray:
    t, c = a.shape
    wide = np.zeros((t + 2 * (taps // 2), c), np.float32)
    wide[taps // 2 : taps // 2 + t] = a
    filters = b.reshape(taps, c, c).astype(np.float32)
    return sum(wide[tap : tap + t] @ filters[tap] for tap in range(taps)).astype(np.float16)


@pytest.mark.parametrize("t", [64, 100])
def test_padding_before_the_first_row_is_what_tma_fills(t: int) -> None:
    a, b = integers(t, 64), integers(3 * 64, 64, seed=1)
    given = {"a": a, "b": b, "out": blank(t, 64), "T": t}
    meta = {"BT": 64, "C": 64, "TAPS": 3}
    grid = (-(-t // 64),)
    made = convolved.compile(*given.values(), grid=grid, **meta)
    assert moved(made) == (2, 1)
    assert guards_hold(made, given, (*grid, 1, 1))
    give(convolved, given, grid, padded(a, b, 3), **meta)


@needs_compiler
def test_the_text_reads_padding_too() -> None:
    a, b, out = integers(100, 64), integers(3 * 64, 64, seed=1), blank(100, 64)
    made = convolved.compile(a, b, out, 100, BT=64, C=64, TAPS=3)
    emulate(made.asm.program("hopper"), {"a": a, "b": b, "out": out, "T": 100}, (2, 1, 1))
    np.testing.assert_array_equal(out, padded(a, b, 3))


@tawa.jit
def window(a, out, M, N, row, column, times, B: tl.constexpr):
    """A window at any place, below 0 and past the end: what lies outside is 0, or not written."""
    i, j = tl.arange(0, B), tl.arange(0, B)
    for turn in range(times):
        r, c = row + turn * B + i, column + j
        inside = ((r >= 0) & (r < M))[:, None] & ((c > -1) & (c <= N - 1))[None, :]
        x = tl.load(a + r[:, None] * N + c[None, :], mask=inside, other=0.0)
        tl.store(out + r[:, None] * N + c[None, :], same(x, B) + 1, mask=inside)


WINDOWS = [(0, 0), (-8, 8), (-64, -16), (-200, 0), (90, 48), (400, -400), (-(1 << 31), 0)]


@pytest.mark.parametrize(("row", "column"), WINDOWS)
def test_windows_anywhere(row: int, column: int) -> None:
    m, n, b = 100, 72, 32
    a = integers(m, n)
    wanted = blank(m, n)
    rows, columns = (slice(max(0, low), max(0, low + by)) for low, by in ((row, 64), (column, b)))
    wanted[rows, columns] = a[rows, columns] + 1
    given = {"a": a, "out": blank(m, n), "M": m, "N": n, "row": row, "column": column, "times": 2}
    made = window.compile(*given.values(), grid=(1,), B=b)
    assert moved(made)[0] == 1
    assert guards_hold(made, given, (1, 1, 1))
    give(window, given, (1,), wanted, B=b)


def test_what_tma_does_not_count_is_asked() -> None:
    a = integers(100, 72)
    given: Given = {
        "a": a,
        "out": blank(100, 72),
        "M": 100,
        "N": 72,
        "row": 3,
        "column": -4,
        "times": 2,
    }
    made = window.compile(*given.values(), grid=(1,), B=32)
    assert moved(made)[0] == 1
    assert guards_hold(made, given | {"column": -8}, (1, 1, 1))
    assert not guards_hold(made, given, (1, 1, 1))
    assert not guards_hold(made, given | {"column": 8, "row": (1 << 31) - 20}, (1, 1, 1))
    wanted = blank(100, 72)
    wanted[3:67, :28] = a[3:67, :28] + 1
    give(window, given, (1,), wanted, B=32)  # by the kernel compiled without descriptors


@tawa.jit
def backward(a, out, T, B: tl.constexpr):
    """Sums of all chunks from here on, as gradients of a recurrence go."""
    i, j = tl.arange(0, B), tl.arange(0, B)
    total = tl.zeros((B, B), tl.float32)
    chunks = tl.cdiv(T, B)
    for back in range(chunks):
        row = (chunks - 1 - back) * B
        x = tl.make_block_ptr(a, (T, B), (B, 1), (row, 0), (B, B), (1, 0))
        total += tl.dot(tl.load(x, boundary_check=(0,)), tl.load(x, boundary_check=(0,)))
        rows = row + i
        tl.store(out + rows[:, None] * B + j[None, :], total.to(tl.float16), (rows < T)[:, None])


@pytest.mark.parametrize("t", [32, 100])
def test_a_loop_that_goes_backwards(t: int) -> None:
    a = integers(t, 32)
    wide = np.zeros((-(-t // 32) * 32, 32), np.float32)
    wide[:t] = a
    total, wanted = np.zeros((32, 32), np.float32), np.zeros_like(wide)
    for row in range(len(wide) - 32, -1, -32):
        total += wide[row : row + 32] @ wide[row : row + 32]
        wanted[row : row + 32] = total
    given = {"a": a, "out": blank(t, 32), "T": t}
    made = backward.compile(*given.values(), grid=(1,), B=32)
    assert moved(made) == (1, 1)
    assert guards_hold(made, given, (1, 1, 1))
    give(backward, given, (1,), wanted[:t].astype(np.float16), B=32)


# --- bounds that do not ---------------------------------------------------------------------------


@tawa.jit
def shifted(a, out, first, M, B: tl.constexpr, WHAT: tl.constexpr):
    """Tiles under masks of all kinds, of which each is right whatever it is loaded by."""
    i, j = tl.arange(0, B), tl.arange(0, B)
    for turn in range(2):
        rows = (tl.program_id(0) * 2 + turn) * B + i
        place, other = rows, 0.0
        low, high = rows >= 0, rows < M
        if WHAT == "further":  # the mask counts from elsewhere: never below 0, and so nothing
            place = rows + first
        if WHAT == "from a row on":
            low = rows >= 8
        if WHAT == "twice":
            low = (rows >= 0) & (rows >= 4)
        if WHAT == "always":
            low = (i >= 0) & (i < B)
        mask = (low & high)[:, None] & (j >= 0)[None, :]
        if WHAT == "both":
            mask = mask & (rows[:, None] >= j[None, :])
        if WHAT == "nan":
            other = float("nan")
        x = tl.load(a + place[:, None] * B + j[None, :], mask=mask, other=other)
        if WHAT == "nan":
            x = tl.where(x == x, x, -3.0)
        tl.store(out + rows[:, None] * B + j[None, :], same(x, B), (rows < M)[:, None])


DECLINED = {
    "further": None,
    "always": None,
    "from a row on": "the mask bounds dimension 0 from another index than 0 on",
    "twice": "the mask bounds dimension 0 twice",
    "both": "a bound of the mask does not follow one dimension of the tile",
    "nan": "masked-off elements are not zero",
}


@pytest.mark.parametrize("what", DECLINED)
def test_masks_of_all_kinds(what: str) -> None:
    m, b = 100, 32
    a, first = integers(256, b), 3 * (what == "further")
    rows, columns = np.arange(m)[:, None], np.arange(b)[None, :]
    inside = {"from a row on": rows >= 8, "twice": rows >= 4, "both": rows >= columns}
    wanted = np.where(inside.get(what, rows >= 0), a[first : first + m], 0)
    given = {"a": a, "out": blank(m, b), "first": first, "M": m}
    made = shifted.compile(*given.values(), grid=(2,), B=b, WHAT=what)
    assert moved(made)[0] == (DECLINED[what] is None)
    assert reasons(made) == ({DECLINED[what]} - {None})
    give(shifted, given, (2,), wanted, B=b, WHAT=what)


def test_a_mask_that_counts_from_elsewhere_is_asked() -> None:
    """Rows from `first` on, the mask says that those before it are none: only the host knows."""
    given = {"a": integers(256, 32), "out": blank(100, 32), "first": 3, "M": 100}
    made = shifted.compile(*given.values(), grid=(2,), B=32, WHAT="further")
    assert guards_hold(made, given, (2, 1, 1))
    assert not guards_hold(made, given, (1 << 26, 1, 1))
    assert not guards_hold(made, given | {"first": -3}, (2, 1, 1))


# --- what other programs write --------------------------------------------------------------------


@tawa.jit
def handed(parts, out, count, N: tl.constexpr, B: tl.constexpr):
    """The last program adds what all have left in memory."""
    i, j = tl.arange(0, B)[:, None], tl.arange(0, B)[None, :]
    mine = tl.program_id(0) * B
    tl.store(parts + (mine + i) * B + j, (mine + i + j).to(tl.float16))
    if tl.atomic_add(count, 1) == N - 1:
        total = tl.zeros((B, B), tl.float32)
        for each in range(N):
            rows = each * B + i
            mask = (rows >= 0) & (rows < N * B)
            total += same(tl.load(parts + rows * B + j, mask=mask, other=0.0), B)
        tl.store(out + i * B + j, total.to(tl.float16))


def test_what_an_atomic_tells_of_is_loaded_by_threads() -> None:
    parts, count = np.zeros((96, 32), np.float16), np.zeros(1, np.int32)
    out = np.zeros((32, 32), np.float16)
    made = handed.compile(parts, out, count, N=3, B=32, grid=(3,))
    assert "other programs may have written it, as an atomic tells" in reasons(made)
    tawa.simulate(handed, parts, out, count, N=3, B=32, grid=(3,))
    i, j = np.arange(32)[:, None], np.arange(32)[None, :]
    np.testing.assert_array_equal(out, sum(each * 32 + i + j for each in range(3)))


# --- the pass -------------------------------------------------------------------------------------


@tawa.jit
def taken(a, out, T, H: tl.constexpr, D: tl.constexpr, B: tl.constexpr):
    """Tiles of one head, from before the first row on."""
    head, row = tl.program_id(1), tl.program_id(0) * B - 1
    for column in range(0, D, B):
        at = tl.make_block_ptr(a + head * D, (T, D), (H * D, 1), (row, column), (B, B), (1, 0))
        x = tl.load(at, boundary_check=(0, 1))
        tl.store(out + tl.arange(0, B)[:, None] * D + column + tl.arange(0, B)[None, :], x)


def test_what_the_pass_makes() -> None:
    made = taken.compile(integers(64, 96), blank(64, 48), 64, H=2, D=48, B=32)
    kernel = build(taken.fn, made.signature, {})
    for step in (simplify, promote_always, simplify):
        assert not step(kernel, Plan(), H200)
    text = str(kernel) + "\n"
    file = GOLDEN / "promoted.mlir"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text()
    assert text.count("\n") <= 60
