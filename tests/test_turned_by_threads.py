"""Tiles of 32-bit elements that lie the wrong way round for wgmma are turned by threads."""

from __future__ import annotations

import re
from itertools import islice
from math import prod

import numpy as np
import pytest

import tawa
import tawa.language as tl
from codegen_emulator import emulate, needs_compiler
from lower_kernels import CASES, fresh, lowered, tile_kernel
from tawa.codegen.generate import generate
from tawa.ir import tile
from tawa.layouts.access import vector_access
from tawa.layouts.fragments import Span, blocks
from tawa.layouts.shared import SharedLayout
from tawa.passes.lower.layouts import _reads
from tawa.simulator import simulate

BANKS = 32
SQUARES = Span(1, 2, 2), Span(0, 2, 4)


def wavefronts(access, warps, lanes_at_once=16):
    """Return the most words of one bank that the lanes of an 8-byte access ask for at once."""
    most = 0
    for warp in range(warps):
        for at in range(len(access.accesses)):
            for first in range(0, 32, lanes_at_once):
                words = {
                    access.address(lane, warp, at) // 4 + word
                    for lane in range(first, first + lanes_at_once)
                    for word in range(2)
                }
                banks = [word % BANKS for word in words]
                most = max(most, *(banks.count(bank) for bank in banks))
    return most


@pytest.mark.parametrize("shape", [(32, 64), (32, 128), (64, 256), (128, 32)])
@pytest.mark.parametrize("along", [0, 1])
@pytest.mark.parametrize("warps", [4, 8])
def test_both_sides_move_vectors_without_conflicts(shape, along, warps):
    found = blocks(shape, warps, Span(along, 2, 2), Span(1 - along, 2, 4))
    assert found is not None
    read, write = found
    assert sorted(set(read.register_table)) == sorted(set(write.register_table))
    order = (1 - along, along)
    source = vector_access(read, SharedLayout(shape, order, 32, 128))
    target = vector_access(write, SharedLayout(shape, order[::-1], 32, 128))
    assert source is not None
    assert target is not None
    assert source.elements == target.elements == 2
    assert wavefronts(source, warps) == wavefronts(target, warps) == 1


def test_squares_that_do_not_spread_are_declined():
    assert blocks((32, 100), 8, *SQUARES) is None
    assert blocks((31, 128), 8, *SQUARES) is None
    assert blocks((8, 8), 8, *SQUARES) is None


def test_the_lowered_product_uses_them():
    kernel = str(lowered("matmul tf32 nn")[0])
    assert "r[2:(0,1) 2:(1,0)" in kernel
    assert "r[2:(1,0) 2:(0,1)" in kernel


@needs_compiler
def test_emulated_text_equals_the_oracle():
    case = CASES["matmul tf32 nn"]
    expected, arguments = fresh(case)
    simulate(tile_kernel(case), case.grid, arguments, level="tile")
    actual, arguments = fresh(case)
    emulate(lowered("matmul tf32 nn")[0], arguments | actual, case.grid, blocks=2)
    for array in expected:
        want, got = (np.asarray(x[array], np.float64) for x in (expected, actual))
        assert np.array_equal(want, got)


# --- from global memory to global memory --------------------------------------------------------


@pytest.mark.parametrize("shape", [(64, 64), (32, 128), (64, 192), (2, 64, 64)])
@pytest.mark.parametrize("warps", [1, 2, 4])
@pytest.mark.parametrize("sides", [(8, 4), (4, 4), (2, 8)])
def test_blocks_hold_every_element_once(shape, warps, sides):
    rank = len(shape)
    found = blocks(shape, warps, Span(rank - 1, sides[0], 4), Span(rank - 2, sides[1], 8))
    assert found is not None
    for layout, dim, side in zip(found, (rank - 1, rank - 2), sides, strict=True):
        places = [
            layout.coordinate(register, lane, warp)
            for register in range(layout.register_count)
            for lane in range(32)
            for warp in range(warps)
        ]
        assert len(places) == prod(shape) == len(set(places))
        first = layout.register_table[:side]
        assert [place[dim] for place in first] == list(range(side))


@tawa.jit
def transposed(x_ptr, o_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    x = tl.load(x_ptr + rows[:, None] * N + columns[None, :], mask=inside)
    tl.store(o_ptr + columns[:, None] * M + rows[None, :], tl.trans(x) + 1, mask=tl.trans(inside))


@tawa.jit
def met(x_ptr, y_ptr, o_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    x = tl.load(x_ptr + rows[:, None] * N + columns[None, :])
    y = tl.load(y_ptr + columns[:, None] * M + rows[None, :])
    tl.store(o_ptr + rows[:, None] * N + columns[None, :], x + tl.trans(y))


@tawa.jit
def across(x_ptr, o_ptr, B: tl.constexpr):
    rows, columns = tl.arange(0, B)[:, None], tl.arange(0, B)[None, :]
    tl.store(o_ptr + columns * B + rows, tl.load(x_ptr + rows * B + columns))


@tawa.jit
def walking(x_ptr, o_ptr, steps, B: tl.constexpr):
    """Tile by tile through addresses that the loop carries."""
    rows, columns = tl.arange(0, B)[:, None], tl.arange(0, B)[None, :]
    x_at = x_ptr + rows * B + columns
    for step in range(steps):
        x = tl.load(x_at, mask=rows < B - step, other=-1.0)
        tl.store(o_ptr + step * B * B + rows * B + columns, tl.trans(x))
        x_at = x_at + (B * B + rows * 0)


@tawa.jit
def heads(x_ptr, o_ptr, H: tl.constexpr, S: tl.constexpr, D: tl.constexpr):
    """[S, H, D] to [H, D, S]."""
    s, h, d = tl.arange(0, S), tl.arange(0, H), tl.arange(0, D)
    x = tl.load(x_ptr + s[:, None, None] * H * D + h[None, :, None] * D + d[None, None, :])
    at = o_ptr + h[:, None, None] * D * S + d[None, :, None] * S + s[None, None, :]
    tl.store(at, tl.permute(x, (1, 2, 0)))


def run(kernel, given, grid, *, via, **options):
    """Launch in the simulator, or run the generated text; return that text."""
    made = kernel.compile(*given.values(), grid=grid, **options)
    if via == "simulator":
        tawa.simulate(kernel, *given.values(), grid=grid, **options)
    else:
        full = (*grid, 1, 1)[:3]
        emulate(generate(made.asm.program("hopper")), given, full, blocks=2)
    return made.asm["cuda"]


ONE_BY_ONE = re.compile(r"(shared|global)_(store|load)_(b8|b16|narrow)")
"""Accesses of elements of less than a word."""
VIAS = ["simulator", pytest.param("emulator", marks=needs_compiler)]


@pytest.mark.parametrize("via", VIAS)
@pytest.mark.parametrize("warps", [2, 4, 8])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8])
def test_tiles_are_turned_in_registers(via, dtype, warps):
    m, n, block = 96, 144, 64
    x = (np.arange(m * n).reshape(m, n) % 113).astype(dtype)
    given = {"x_ptr": x, "o_ptr": np.zeros((n, m), dtype), "M": m, "N": n}
    text = run(transposed, given, (2, 3), via=via, BM=block, BN=block, num_warps=warps)
    np.testing.assert_array_equal(given["o_ptr"], (x + 1).T)
    assert not ONE_BY_ONE.search(text)


@pytest.mark.parametrize("via", VIAS)
def test_tiles_of_both_orders_meet(via):
    m, n = 64, 128
    x = (np.arange(m * n).reshape(m, n) % 97).astype(np.float16)
    y = (np.arange(n * m).reshape(n, m) % 89).astype(np.float16)
    given = {"x_ptr": x, "y_ptr": y, "o_ptr": np.zeros((m, n), np.float16), "M": m, "N": n}
    text = run(met, given, (1, 2), via=via, BM=64, BN=64)
    np.testing.assert_array_equal(given["o_ptr"], x + y.T)
    assert not ONE_BY_ONE.search(text)


@pytest.mark.parametrize("via", VIAS)
def test_a_tile_of_three_dimensions_is_turned(via):
    h, s, d = 4, 32, 32
    x = (np.arange(s * h * d).reshape(s, h, d) % 101).astype(np.float16)
    given = {"x_ptr": x, "o_ptr": np.zeros((h, d, s), np.float16)}
    text = run(heads, given, (1,), via=via, H=h, S=s, D=d)
    np.testing.assert_array_equal(given["o_ptr"], x.transpose(1, 2, 0))
    assert not ONE_BY_ONE.search(text)


@pytest.mark.parametrize("via", VIAS)
def test_rows_of_odd_length_are_not_read_in_blocks(via):
    m, n = 61, 67
    x = (np.arange(m * n).reshape(m, n) % 113).astype(np.float16)
    given = {"x_ptr": x, "o_ptr": np.zeros((n, m), np.float16), "M": m, "N": n}
    text = run(transposed, given, (1, 2), via=via, BM=64, BN=64)
    np.testing.assert_array_equal(given["o_ptr"], (x + 1).T)
    assert "shared_store_b16" in text


@pytest.mark.parametrize("via", VIAS)
def test_addresses_that_a_loop_carries_stay_where_they_are_read(via):
    x = (np.arange(3 * 64 * 64).reshape(3, 64, 64) % 113).astype(np.float16)
    given = {"x_ptr": x, "o_ptr": np.zeros((3, 64, 64), np.float16), "steps": 3}
    text = run(walking, given, (1,), via=via, B=64, store="registers")
    for step in range(3):
        wanted = np.where(np.arange(64)[:, None] < 64 - step, x[step], -1)
        np.testing.assert_array_equal(given["o_ptr"][step], wanted.T)
    assert "shared_store_b" not in text
    assert "shared_store_u64" not in text  # addresses


@pytest.mark.parametrize("via", VIAS)
def test_a_store_across_needs_no_transpose(via):
    """The values keep their shape; the addresses lie the other way round."""
    x = (np.arange(64 * 64).reshape(64, 64) % 113).astype(np.float16)
    given = {"x_ptr": x, "o_ptr": np.zeros((64, 64), np.float16)}
    text = run(across, given, (1,), via=via, B=64)
    np.testing.assert_array_equal(given["o_ptr"], x.T)
    assert not ONE_BY_ONE.search(text)


@tawa.jit
def doubled(x_ptr, o_ptr, TIMES: tl.constexpr):
    at = tl.arange(0, 128)
    x = tl.load(x_ptr + at)
    for _ in tl.static_range(TIMES):
        x = x + x * 0.5
    tl.store(o_ptr + at, x)


def test_reads_are_found_once_by_however_many_ways():
    """There are 2**40 ways from the store to the load."""
    x = tawa.array((128,), "f16")
    made = doubled.compile(x, x, TIMES=40)
    (store,) = (op for op in made.asm.program("hopper").walk() if isinstance(op, tile.Store))
    assert len(list(islice(_reads(store.value), 9))) == 1
