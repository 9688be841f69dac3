"""Tiles of 32-bit elements that lie the wrong way round for wgmma are turned by threads."""

from __future__ import annotations

import numpy as np
import pytest

from codegen_emulator import emulate, needs_compiler
from lower_kernels import CASES, fresh, lowered, tile_kernel
from tawa.layouts.access import vector_access
from tawa.layouts.fragments import squares
from tawa.layouts.shared import SharedLayout
from tawa.simulator import simulate

BANKS = 32


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
    found = squares(shape, warps, 2, along)
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
    assert squares((32, 100), 8, 2, 1) is None
    assert squares((31, 128), 8, 2, 1) is None
    assert squares((8, 8), 8, 2, 1) is None


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
