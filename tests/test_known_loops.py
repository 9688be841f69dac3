"""Forms of loops that others specialize wrongly, or not at all, each named by its public thread:
siblings of unlike depth, loops under a condition, in persistent loops, and loads of both kinds.

The kernels are written anew in the tile language, in the shape that the thread reports.
"""

from __future__ import annotations

import numpy as np
import pytest

import tawa
import tawa.language as tl
from known_failures import (
    blank,
    blocks,
    declined,
    integers,
    operations,
    producer_loads,
    result,
    tried,
)
from tawa.errors import OverBudget, PlanError
from tawa.ir import hopper
from test_known_hangs import matmul, product, tutorial

# --- tilelang#2674: a persistent loop whose barriers begin anew with each tile ------------------


@pytest.mark.parametrize("depth", [2, 3])
@pytest.mark.parametrize("k", [64, 136, 320])
@pytest.mark.short("64-3", "136-2", "320-3")
def test_tilelang_2674_phases_go_on_from_tile_to_tile(k, depth):
    """Six tiles of 1, 3 and 5 iterations on two blocks: never whole turns of the ring."""
    arguments = {
        "a_desc": blocks(integers(192, k), 64, 64),
        "b_desc": blocks(integers(128, k), 64, 64),
        "c_desc": blocks(blank(192, 128, dtype=np.float16), 64, 64),
    }
    sizes = {"M": 192, "N": 128, "K": k, "B": 64, "FLATTEN": False}
    tried(tutorial, arguments | sizes, (2,), depth=depth)


# --- tilelang#2309, #2249: sibling loops, of unlike depth, over the same operands ---------------


def siblings(a_desc, b_desc, out_desc, K, FIRST: tl.constexpr, SECOND: tl.constexpr):
    """(A B) + (A B) scaled, by two passes over the same tiles."""
    acc = tl.zeros((64, 64), tl.float32)
    for k in tl.range(0, K, 64, num_stages=FIRST):
        acc = tl.dot(a_desc.load([0, k]), b_desc.load([k, 0]), acc)
    acc *= 2.0
    for k in tl.range(0, K, 64, num_stages=SECOND):
        acc = tl.dot(a_desc.load([0, k]), b_desc.load([k, 0]), acc)
    out_desc.store([0, 0], acc.to(tl.float16))


@pytest.mark.parametrize("stages", [(2, 4), (4, 2), (3, 1), (3, 3)], ids=str)
@pytest.mark.short("(2, 4)", "(3, 1)")
def test_tilelang_2309_2249_siblings_of_unlike_depth(stages):
    arrays = {"a_desc": integers(64, 320), "b_desc": integers(320, 64)}
    arrays |= {"out_desc": blank(64, 64, dtype=np.float16)}
    arguments = {name: blocks(array, 64, 64) for name, array in arrays.items()}
    arguments |= {"K": 320, "FIRST": stages[0], "SECOND": stages[1]}
    kernel = tried(siblings, arguments, (1,))
    assert producer_loads(kernel) == 4
    # The second loop begins where it ended without iterations after whole turns of the first: that
    # is tried for at once, and not found by chance.
    assert kernel.proof.states < 12_000


# --- tilelang#2184: a loop under a condition that is read at run time ---------------------------


def under_a_condition(a_desc, b_desc, lengths, out_desc, K, B: tl.constexpr):
    row = tl.program_id(0) * B
    acc = tl.zeros((B, B), tl.float32)
    if row < tl.load(lengths):
        for k in range(0, K, B):
            acc = tl.dot(a_desc.load([row, k]), b_desc.load([k, 0]), acc)
    out_desc.store([row, 0], acc.to(tl.float16))


@pytest.mark.parametrize("length", [0, 64, 130])
def test_tilelang_2184_a_loop_under_a_condition_is_specialized(length):
    arrays = {"a_desc": integers(192, 192), "b_desc": integers(192, 64)}
    arrays |= {"out_desc": blank(192, 64, dtype=np.float16)}
    arguments = {name: blocks(array, 64, 64) for name, array in arrays.items()}
    arguments |= {"lengths": np.array([length], np.int32), "K": 192, "B": 64}
    kernel = tried(under_a_condition, arguments, (3,))
    assert kernel.plan.specialized
    assert "specialization" not in declined(kernel)


# --- tilelang#2166: what threads copied is read before what TMA copied --------------------------


def gathered_first(a, rows, b_desc, sums, out_desc, K, W: tl.constexpr, B: tl.constexpr):
    """Rows of A by their numbers, which TMA cannot take; they are summed before the product."""
    at = tl.arange(0, B)
    places = tl.load(rows + at)
    acc, total = tl.zeros((B, B), tl.float32), tl.zeros((B,), tl.float32)
    for k in range(0, K, B):
        x = tl.load(a + places[:, None] * W + (k + at)[None, :])
        total += tl.sum(x.to(tl.float32), 1)
        acc = tl.dot(x, b_desc.load([k, 0]), acc)
    tl.store(sums + at, total)
    out_desc.store([0, 0], acc.to(tl.float16))


def test_tilelang_2166_copies_of_threads_are_waited_for_as_well():
    a, b = integers(96, 256), integers(256, 64)
    rows = (np.arange(64, dtype=np.int32) * 5) % 96
    arguments = {"a": a, "rows": rows, "b_desc": blocks(b, 64, 64), "sums": blank(64)}
    arguments |= {"out_desc": blocks(blank(64, 64, dtype=np.float16), 64, 64)}
    arguments |= {"K": 256, "W": 256, "B": 64}
    kernel = tried(gathered_first, arguments, (1,))
    assert kernel.plan.specialized
    got = result(gathered_first, arguments, (1,), "sums")
    np.testing.assert_array_equal(got, a[rows].astype(np.float64).sum(1))


# --- tilelang#2559: two blocks on a multiprocessor ----------------------------------------------


def test_tilelang_2559_two_blocks_share_the_registers():
    """What setmaxnreg may hand out is half of the multiprocessor's, and the bound says so."""
    arguments = product(256, 64, 192, 128, 64, 64)
    kernel = tried(matmul, arguments, (2, 1), consumers=2, blocks=2)
    assert kernel.launch.blocks == 2
    assert f"__launch_bounds__({kernel.launch.threads}, 2)" in kernel.asm.text("cuda")
    assert operations(kernel, hopper.SetRegisters)
    given = sum(128 * (role.warps // 4) * role.budget for role in kernel.resources.roles)
    assert given <= 65536 // 2


def test_tilelang_2559_two_blocks_that_ask_for_the_registers_of_one():
    arguments = product(256, 64, 192, 128, 64, 64)
    registers = {"load": 40, "mma": 232}
    tawa.jit(matmul).compile(**arguments, consumers=2, registers=registers)
    with pytest.raises((PlanError, OverBudget), match="register"):
        tawa.jit(matmul).compile(**arguments, consumers=2, blocks=2, registers=registers)
