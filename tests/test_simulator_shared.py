"""Shared memory and clocks of the simulator against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tawa.ir.types import parse_layout
from tawa.layouts.shared import SharedLayout
from tawa.simulator.clocks import Clocks
from tawa.simulator.footprints import first_owner, operand_owners, owners
from tawa.simulator.shared import Footprint, element_offsets, placement
from tawa.simulator.shared import _covers as covers
from tawa.simulator.shared import _merge as merge
from tawa.simulator.shared import _overlap as overlap

LAYOUTS = [
    SharedLayout((16, 64), (0, 1), 16, 128),
    SharedLayout((16, 128), (0, 1), 16, 128),
    SharedLayout((64, 24), (1, 0), 8, 64),
    SharedLayout((8, 32), (0, 1), 16, 32),
    SharedLayout((2, 8, 64), (0, 1, 2), 32, 128),
    SharedLayout((3, 5), (1, 0), 32, 0),
    SharedLayout((7,), (0,), 64, 0),
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_offsets_are_those_of_the_layout(layout):
    offsets = element_offsets(layout)
    assert offsets.shape == layout.shape
    for where in np.ndindex(layout.shape):
        assert offsets[where] == layout.offset(where)
    place = placement(layout)
    assert sum(high - low for low, high in place.spans) == layout.bytes


@pytest.mark.parametrize(
    "text",
    [
        "64x64 r[2:(0,1) 2:(8,0) 8:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0)]",
        "128x192 r[2:(0,1) 2:(8,0) 24:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]",
        "8 r[2:(1)] l[4:(2) 8:(0)] w[4:(0)]",
        "16x4 r[4:(0,1)] l[4:(1,0) 8:(0,0)] w[4:(4,0)]",
    ],
)
def test_owners_are_those_of_the_layout(text):
    layout = parse_layout(text)
    held = owners(layout)
    expected = np.zeros_like(held)
    lanes = int(np.prod([axis.extent for axis in layout.lanes]))
    for warp in range(layout.warp_count):
        for register in range(layout.register_count):
            for lane in range(lanes):
                expected[(warp, *layout.coordinate(register, lane, warp))] = True
    assert np.array_equal(held, expected)
    assert held.any(axis=0).all()
    first = first_owner(layout).reshape(layout.shape)
    assert all(held[(first[where], *where)] for where in np.ndindex(layout.shape))


def test_warpgroups_use_their_rows_of_a_and_all_of_b():
    layout = parse_layout(
        "128x64 r[2:(0,1) 2:(8,0) 8:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0) 2:(64,0)]"
    )
    a, b = operand_owners(layout, "a", 32), operand_owners(layout, "b", 32)
    assert a.shape == (8, 128, 32)
    assert a[:4].any(axis=0)[:64].all()
    assert not a[:4].any(axis=0)[64:].any()
    assert b.all()
    place = placement(SharedLayout((128, 32), (0, 1), 16, 64))
    half = Footprint("a", place, 1024, 4, 1, a)
    assert half.spans(4) == ((1024 + 64 * 64, 1024 + 128 * 64),)
    assert set(half(0)) == {
        1024 + int(offset) + byte for offset in place.offsets[64:80].ravel() for byte in (0, 1)
    }


ELEMENTS = st.sets(st.integers(0, 40), min_size=1)


@given(ELEMENTS, ELEMENTS, st.sampled_from([1, 2, 4]))
def test_ranges_of_bytes(first, second, size):
    spans = [merge(np.array(sorted(items)) * size, size) for items in (first, second)]
    sets = [{b for low, high in part for b in range(low, high)} for part in spans]
    assert sets[0] == {x * size + b for x in first for b in range(size)}
    assert overlap(*spans) == bool(sets[0] & sets[1])
    assert covers(*spans) == (sets[1] <= sets[0])


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("act"), st.integers(0, 2), st.just(0)),
        st.tuples(st.just("send"), st.integers(0, 2), st.integers(0, 2)),
    ),
    max_size=25,
)


@given(STEPS)
def test_clocks_are_the_happens_before_relation(steps):
    """Three rows act and send messages; an act is known exactly where a chain of messages goes."""
    clocks = Clocks(3)
    acts: list[tuple[int, int, int]] = []
    reached: list[set[int]] = []
    for kind, row, target in steps:
        if kind == "act":
            acts.append((row, int(clocks.now[row, row]), len(acts)))
            reached.append({row})
            continue
        clocks.acquire(target, clocks.release(row))
        for places in reached:
            if row in places:
                places.add(target)
    for (row, clock, number), places in zip(acts, reached):
        for other in range(3):
            assert (clocks.now[other, row] >= clock) == (other in places), (row, number, other)


def test_a_column_is_reused_only_by_who_knows_its_last_operation():
    clocks = Clocks(2)
    first = clocks.operation(0)
    second = clocks.operation(0)
    assert first[0] != second[0]
    clocks.learn(0, *first)
    assert clocks.operation(0) == (first[0], first[1] + 1)
    assert clocks.operation(1)[0] not in (first[0], second[0])


def test_a_fence_covers_what_came_before_it():
    clocks = Clocks(1)
    before = int(clocks.now[0, 0])
    clocks.fence(0)
    after = int(clocks.now[0, 0])
    proxied = np.array([clocks.rows])
    assert clocks.known(0, proxied, np.array([before])).all()
    assert not clocks.known(0, proxied, np.array([after])).any()
