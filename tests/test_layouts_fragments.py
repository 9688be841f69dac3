"""Fragments against the formulas of the PTX manual; blocked layouts cover each element once."""

from collections import Counter
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tawa.errors import ShapeUnsupported
from tawa.layouts import fragments
from tawa.layouts.register import LANES, RegisterLayout


def holders(layout: RegisterLayout) -> Counter:
    """How many registers of all threads hold each element."""
    return Counter(
        tuple(sum(parts) for parts in zip(r, lane, warp))
        for r in layout.register_table
        for lane in layout.lane_table
        for warp in layout.warp_table
    )


def covers_once(layout: RegisterLayout) -> bool:
    found = holders(layout)
    return set(found) == set(product(*map(range, layout.shape))) and set(found.values()) == {1}


def threads(layout: RegisterLayout) -> list[tuple[int, int]]:
    return [(lane, warp) for warp in range(layout.warp_count) for lane in range(LANES)]


@pytest.mark.parametrize("n", [8, 24, 64, 192, 256])
def test_wgmma_accumulator_is_the_manuals(n: int) -> None:
    layout = fragments.wgmma_accumulator(64, n, 4)
    for lane, warp in threads(layout):
        for i in range(n // 2):
            row = 16 * warp + lane // 4 + 8 * (i // 2 % 2)
            column = 8 * (i // 4) + 2 * (lane % 4) + i % 2
            assert layout.coordinate(i, lane, warp) == (row, column)


@given(
    rows=st.sampled_from([64, 128, 192, 256]),
    columns=st.sampled_from([8, 16, 40, 64, 96, 128, 192, 256, 512]),
    groups=st.sampled_from([1, 2, 3, 4]),
)
def test_wgmma_accumulator_covers_and_reads_back(rows: int, columns: int, groups: int) -> None:
    try:
        layout = fragments.wgmma_accumulator(rows, columns, 4 * groups)
    except ShapeUnsupported:
        return
    assert covers_once(layout)
    tiling = fragments.wgmma_tiling(layout)
    assert tiling is not None
    assert tiling.n <= 256
    assert len(tiling.groups) == groups
    assert len(tiling.blocks) * tiling.n * 64 * groups == rows * columns


@pytest.mark.parametrize("bits", [8, 16, 32])
def test_wgmma_register_operand_is_the_manuals(bits: int) -> None:
    packed = 32 // bits
    k = 8 * packed
    layout = fragments.wgmma_operand(64, 2 * k, 4, bits)
    for lane, warp in threads(layout):
        for step in range(2):
            for i in range(4 * packed):
                register, inside = divmod(i, packed)
                row = 16 * warp + lane // 4 + 8 * (register % 2)
                column = step * k + lane % 4 * packed + inside + 4 * packed * (register // 2)
                place = layout.coordinate(step * 4 * packed + i, lane, warp)
                assert place == (row, column)


def test_packed_accumulator_is_the_next_operand() -> None:
    accumulator = fragments.wgmma_accumulator(128, 128, 8)
    operand = fragments.wgmma_operand(128, 128, 8, 16)
    assert accumulator.register_table == operand.register_table
    assert accumulator.lane_table == operand.lane_table
    assert accumulator.warp_table == operand.warp_table


@pytest.mark.parametrize("bits", [8, 16, 32])
def test_mma_fragments_are_the_manuals(bits: int) -> None:
    packed = 32 // bits
    k = 8 * packed
    accumulator = fragments.mma_accumulator(16, 8, 1)
    a = fragments.mma_operand_a(16, k, accumulator, bits)
    b = fragments.mma_operand_b(k, 8, accumulator, bits)
    for lane in range(LANES):
        group, inside = divmod(lane, 4)
        for i in range(4):
            place = (group + 8 * (i // 2), 2 * inside + i % 2)
            assert accumulator.coordinate(i, lane, 0) == place
        for i in range(a.register_count):
            register, element = divmod(i, packed)
            column = inside * packed + element + 4 * packed * (register // 2)
            assert a.coordinate(i, lane, 0) == (group + 8 * (register % 2), column)
        for i in range(b.register_count):
            register, element = divmod(i, packed)
            row = inside * packed + element + 4 * packed * register
            assert b.coordinate(i, lane, 0) == (row, group)


@given(
    rows=st.sampled_from([16, 32, 48, 64]),
    columns=st.sampled_from([8, 16, 24, 32]),
    warps=st.sampled_from([1, 2, 4, 8]),
)
def test_mma_layouts_agree_about_warps(rows: int, columns: int, warps: int) -> None:
    accumulator = fragments.mma_accumulator(rows, columns, warps)
    assert set(holders(accumulator)) == set(product(range(rows), range(columns)))
    a = fragments.mma_operand_a(rows, 32, accumulator, 16)
    b = fragments.mma_operand_b(32, columns, accumulator, 16)
    for warp in range(warps):
        start = accumulator.warp_table[warp]
        assert a.warp_table[warp] == (start[0], 0)
        assert b.warp_table[warp] == (0, start[1])


shapes = st.lists(st.sampled_from([1, 2, 3, 4, 6, 8, 16, 24, 32, 64]), min_size=1, max_size=3)


@given(shape=shapes, warps=st.sampled_from([1, 2, 4]), vector=st.sampled_from([1, 2, 4, 8]))
def test_blocked_covers_every_element_equally(shape: list[int], warps: int, vector: int) -> None:
    layout = fragments.blocked(tuple(shape), warps, vector)
    found = holders(layout)
    assert set(found) == set(product(*map(range, shape)))
    assert len(set(found.values())) == 1
    assert layout.warp_count == warps


def test_blocked_coalesces() -> None:
    layout = fragments.blocked((128, 64), 4, 8)
    assert [layout.coordinate(r, 0, 0) for r in range(8)] == [(0, c) for c in range(8)]
    assert layout.coordinate(0, 1, 0) == (0, 8)
    assert layout.coordinate(0, 8, 0) == (1, 0)


@pytest.mark.parametrize(("m", "n", "warps"), [(32, 64, 4), (64, 12, 4), (64, 64, 2), (64, 8, 8)])
def test_what_wgmma_cannot_cover_is_refused(m: int, n: int, warps: int) -> None:
    with pytest.raises(ShapeUnsupported):
        fragments.wgmma_accumulator(m, n, warps)


def test_dimensions_come_and_go() -> None:
    layout = fragments.wgmma_accumulator(64, 32, 4)
    row = fragments.without_dimension(layout, 1)
    assert row.shape == (64,)
    assert row.register_table == ((0,), (8,))
    assert fragments.with_dimension(row, 1).register_table == ((0, 0), (8, 0))
    turned = fragments.permuted(layout, (1, 0))
    assert turned.register_table == tuple((b, a) for a, b in layout.register_table)


@pytest.mark.parametrize("columns", [64, 40, 168])
def test_narrowed_accumulators_are_columns_of_the_whole(columns: int) -> None:
    whole = fragments.wgmma_accumulator(128, 168, 4)
    part = fragments.narrowed(whole, columns)
    assert part is not None
    assert covers_once(part)
    assert (part.lane_table, part.warp_table) == (whole.lane_table, whole.warp_table)
    assert set(part.register_table) <= set(whole.register_table)


def test_columns_over_threads_or_of_half_a_digit_are_not_narrowed() -> None:
    assert fragments.narrowed(fragments.wgmma_accumulator(64, 256, 8), 64) is None
    assert fragments.narrowed(fragments.wgmma_accumulator(64, 64, 4), 12) is None
