"""Kernels that walk over their tiles themselves: what a launch knows is asked in every
iteration.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import tawa
import tawa.language as tl
from codegen_emulator import emulate, needs_compiler
from tawa.runtime.compiled import Guard
from tawa.runtime.dispatch import guards_hold
from tawa.runtime.expressions import Names, value_of
from tawa.runtime.guards import Guards


@tawa.jit
def place_of(tile, in_group, down, GROUP: tl.constexpr):
    first = tile // in_group * GROUP
    size = min(down - first, GROUP)
    return first + tile % size, tile % in_group // size


@tawa.jit
def product(
    a_ptr, b_ptr, c_ptr, M, N, K, sam, sak, sbk, sbn, scm, scn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
    PROGRAMS: tl.constexpr,
):  # fmt: skip
    """A walk with two counters, one for loads and one for stores, and indices kept in bounds."""
    start = tl.program_id(0)
    down, across = tl.cdiv(M, BM), tl.cdiv(N, BN)
    iterations = tl.cdiv(K, BK)
    again = start - PROGRAMS
    depth = tl.arange(0, BK)
    in_group = GROUP * across
    for tile in tl.range(start, down * across, PROGRAMS, flatten=True):
        m, n = place_of(tile, in_group, down, GROUP)
        rows = m * BM + tl.arange(0, BM)
        columns = n * BN + tl.arange(0, BN)
        rows = tl.where(rows < M, rows, 0)
        columns = tl.where(columns < N, columns, 0)
        rows = tl.max_contiguous(tl.multiple_of(rows, BM), BM)
        columns = tl.max_contiguous(tl.multiple_of(columns, BN), BN)
        acc = tl.zeros((BM, BN), tl.float32)
        for k in range(iterations):
            at = k * BK + depth
            a = a_ptr + (rows[:, None] * sam + at[None, :] * sak)
            b = b_ptr + (at[:, None] * sbk + columns[None, :] * sbn)
            x = tl.load(a, mask=depth[None, :] < K - k * BK, other=0.0)
            y = tl.load(b, mask=depth[:, None] < K - k * BK, other=0.0)
            acc = tl.dot(x, y, acc)
        again += PROGRAMS
        m, n = place_of(again, in_group, down, GROUP)
        r, c = m * BM + tl.arange(0, BM), n * BN + tl.arange(0, BN)
        place = c_ptr + scm * r[:, None] + scn * c[None, :]
        tl.store(place, acc.to(tl.float16), mask=(r[:, None] < M) & (c[None, :] < N))


@tawa.jit
def kept_in(a_ptr, b_ptr, c_ptr, M, N, K, HOW: tl.constexpr, B: tl.constexpr):
    """Rows of a tile kept in bounds in one of several ways."""
    rows = tl.program_id(0) * B + tl.arange(0, B)
    columns = tl.program_id(1) * B + tl.arange(0, B)
    if HOW == "where":
        near = tl.where(rows < M, rows, 0)
    elif HOW == "minimum":
        near = tl.minimum(rows, M - 1)
    elif HOW == "other way round":
        near = tl.minimum(M - 1, rows)
    elif HOW == "another bound":
        near = tl.where(rows < M - 8, rows, 0)
    elif HOW == "at most":
        near = tl.where(rows <= M, rows, 0)
    else:
        near = tl.where(rows < M, rows + 1, 0)
    depth = tl.arange(0, B)
    acc = tl.zeros((B, B), tl.float32)
    for k in range(0, K, B):
        a = tl.load(a_ptr + near[:, None] * K + (k + depth)[None, :])
        b = tl.load(b_ptr + (k + depth)[:, None] * N + columns[None, :])
        acc = tl.dot(a, b, acc)
    place = c_ptr + rows[:, None] * N + columns[None, :]
    tl.store(place, acc.to(tl.float16), mask=rows[:, None] < M)


@tawa.jit
def scaled(a_ptr, s_ptr, c_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr):
    """A number for 64 columns, where a tile is what a loop of the kernel counts."""
    across = tl.cdiv(N, BN)
    for tile in range(tl.program_id(0), tl.cdiv(M, BM) * across, tl.num_programs(0)):
        rows = tile // across * BM + tl.arange(0, BM)
        columns = tile % across * BN + tl.arange(0, BN)
        scale = tl.load(s_ptr + columns // 64)
        inside = (rows < M)[:, None] & (columns < N)[None, :]
        place = rows[:, None] * N + columns[None, :]
        tl.store(c_ptr + place, tl.load(a_ptr + place, inside) * scale[None, :], inside)


@tawa.jit
def shifted(x_ptr, o_ptr, first, M, B: tl.constexpr, N: tl.constexpr):
    """Twice of rows, a tile at a time, from tile `first` on."""
    for tile in range(first + tl.program_id(0), tl.cdiv(M, B), tl.num_programs(0)):
        rows = tile * B + tl.arange(0, B)
        place = rows[:, None] * N + tl.arange(0, N)[None, :]
        x = tl.load(x_ptr + place, (rows < M)[:, None], 0.0)
        tl.store(o_ptr + place, x + x, (rows < M)[:, None])


def integers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float16)


def moved_by_tma(compiled) -> int:
    text = compiled.asm.text("hopper")
    return text.count("hopper.tma_load") + text.count("hopper.tma_store")


def call_of(m: int, n: int, k: int) -> dict[str, object]:
    a, b = integers(m, k), integers(k, n, seed=1)
    c = np.full((m, n), np.nan, np.float16)
    strides = {"sam": k, "sak": 1, "sbk": n, "sbn": 1, "scm": n, "scn": 1}
    return {"a_ptr": a, "b_ptr": b, "c_ptr": c, "M": m, "N": n, "K": k, **strides}


def right(given) -> np.ndarray:
    return (given["a_ptr"].astype(np.float32) @ given["b_ptr"].astype(np.float32)).astype("f2")


META = {"BM": 64, "BN": 64, "BK": 64, "GROUP": 2}


@pytest.mark.parametrize(
    ("m", "n", "k", "programs"), [(200, 144, 80, 3), (64, 64, 64, 4), (320, 136, 72, 2)]
)
@pytest.mark.short("200-144-80-3", "64-64-64-4")
def test_a_walk_of_ones_own_goes_by_tma(m: int, n: int, k: int, programs: int) -> None:
    given = call_of(m, n, k)
    meta = META | {"PROGRAMS": programs}
    made = product.compile(*given.values(), **meta)
    assert moved_by_tma(made) == 3
    assert guards_hold(made, given, (programs,))
    product[(programs,)](*given.values(), **meta)
    assert np.array_equal(given["c_ptr"], right(given))


@needs_compiler
def test_the_text() -> None:
    given = call_of(200, 144, 80)
    made = product.compile(*given.values(), **META, PROGRAMS=3)
    emulate(made.asm.program("hopper"), given, (3, 1, 1))
    assert np.array_equal(given["c_ptr"], right(given))


@pytest.mark.parametrize(("first", "holds"), [(0, True), (-1, False)])
def test_tiles_before_the_array_run_the_plain_kernel(first: int, holds: bool) -> None:
    """With `first` of -1 a tile's first coordinate is negative, which TMA has no memory for."""
    rows, columns = 96, 64
    memory = integers(rows + 64, columns)
    x, out = memory[64:], np.zeros((rows, columns), np.float16)
    given = {"x_ptr": x, "o_ptr": out, "first": first, "M": rows}
    made = shifted.compile(*given.values(), B=32, N=columns, store="tma")
    assert moved_by_tma(made)
    assert guards_hold(made, given, (2,)) == holds


@pytest.mark.parametrize(("how", "loads"), [
    ("where", 2), ("minimum", 2), ("other way round", 2), ("another bound", 1), ("at most", 1),
    ("moved", 1),
])  # fmt: skip
def test_indices_kept_in_bounds(how: str, loads: int) -> None:
    m, n, k = 72, 64, 64
    a, b = integers(m + 1, k), integers(k, n, seed=1)
    c = np.full((m, n), np.nan, np.float16)
    call = (a, b, c, m, n, k)
    made = kept_in.compile(*call, HOW=how, B=64)
    assert made.asm.text("hopper").count("hopper.tma_load") == loads
    kept_in[(2, 1)](*call, HOW=how, B=64)
    rows = np.arange(m)
    rows = {"another bound": np.where(rows < m - 8, rows, 0), "moved": rows + 1}.get(how, rows)
    assert np.array_equal(c, (a[rows].astype(np.float32) @ b.astype(np.float32)).astype("f2"))


def test_numbers_of_a_loop_are_asked_not_to_wrap() -> None:
    m, n = 96, 192
    a, s = integers(m, n), np.arange(1, n // 64 + 1, dtype=np.float16)
    given = {"a_ptr": a, "s_ptr": s, "c_ptr": np.zeros_like(a), "M": m, "N": n}
    made = scaled.compile(*given.values(), BM=32, BN=64)
    asked = [each.condition for each in made.guards if "not to wrap" in each.reason]
    assert any("iteration(0)" in each for each in asked)
    assert guards_hold(made, given, (4,))
    most = (1 << 31) - 1
    assert not guards_hold(made, given | {"N": most}, (4,)), "N + 63 wraps"
    assert not guards_hold(made, given | {"N": most - 127, "M": most - 31}, (4,)), "tiles do"
    scaled[(4,)](*given.values(), BM=32, BN=64)
    assert np.array_equal(given["c_ptr"], a * np.repeat(s, 64))


def verdict(condition: str, grid: tuple[int, ...] = (4,), **numbers: int) -> bool:
    kernel = SimpleNamespace(name="k", guards=(Guard(condition, ""),), demands=(), signature={})
    order = tuple(numbers)
    held = Guards(kernel, Names(order, (), ()), tuple(map(value_of, order)))  # pyright: ignore[reportArgumentType]
    values = tuple(numbers.values())
    return held.hold((*values, *grid), values, grid)


@pytest.mark.parametrize(("condition", "numbers", "holds"), [
    # Programs 0 to 3 walk over 0 .. n-1 by fours.
    ("always_within(program(0) + 4*iteration(0), 0, 9, (program(0), n, 4))", {"n": 10}, True),
    ("always_within(program(0) + 4*iteration(0), 0, 9, (program(0), n, 4))", {"n": 11}, False),
    ("always_within(iteration(0), 0, 2, (program(0), n, 4))", {"n": 10}, True),
    ("always_within(iteration(0), 0, 1, (program(0), n, 4))", {"n": 10}, False),
    # A loop inside, as long as the number of the one around it.
    ("never_negative(3 - iteration(1), (0, n, 1), (0, iteration(0), 1))", {"n": 5}, True),
    ("never_negative(3 - iteration(1), (0, n, 1), (0, iteration(0), 1))", {"n": 6}, False),
    ("always_multiple(8*iteration(0) + n, 8, (0, n, 1))", {"n": 16}, True),
    ("always_multiple(8*iteration(0) + n, 8, (0, n, 1))", {"n": 12}, False),
    # No iterations: nothing is wrong in any. No steps, or more than are listed: nothing is known.
    ("never_negative(-1 - iteration(0), (0, n, 1))", {"n": 0}, True),
    ("never_negative(-1 - iteration(0), (0, n, 1))", {"n": -4}, True),
    ("never_negative(iteration(0), (0, 8, n))", {"n": 0}, False),
    ("never_negative(iteration(0), (0, n, 1))", {"n": 1 << 18}, True),
    ("never_negative(iteration(0), (0, n, 1))", {"n": (1 << 18) + 1}, False),
    ("never_negative(program(0) + iteration(0), (0, n, 1))", {"n": 1 << 17}, False),
])  # fmt: skip
def test_conditions_over_trips(condition: str, numbers: dict[str, int], holds: bool) -> None:
    assert verdict(condition, **numbers) == holds
