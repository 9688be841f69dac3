"""Waits and releases: computed from the final order, right for every trip count."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects import scf

from lower_kernels import CASES, Case, fresh, lowered, product, tile_kernel, two_products
from tawa.ir import hopper
from tawa.passes import pipeline
from tawa.plan.planner import rank_plans
from tawa.simulator import simulate
from tawa.target import H200


def waits(kernel) -> list[tuple[int, int]]:
    """(pending, values) of each wait for products, in the order of the text."""
    found = [op for op in kernel.walk() if isinstance(op, hopper.WgmmaWait)]
    return [(op.pending.data, len(op.values)) for op in found]


def hopper_of(case: Case):
    kernel = tile_kernel(case)
    pipeline.run(pipeline.TILE, kernel, rank_plans(kernel, H200, case.pins)[0], H200)
    plan = rank_plans(kernel, H200, case.pins)[0]
    pipeline.run((*pipeline.AREF, *pipeline.HOPPER), kernel, plan, H200)
    return kernel


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
@pytest.mark.short("1", "4")
def test_every_trip_count_is_right(depth: int) -> None:
    kernel = hopper_of(product(mma_depth=depth, depth=4, m=128, n=128))
    for iterations in range(6):
        case = product(m=128, n=128, k=64 * iterations)
        expected, arguments = fresh(case)
        simulate(tile_kernel(case), case.grid, arguments, level="tile")
        actual, arguments = fresh(case)
        simulate(kernel, case.grid, arguments, seed=iterations, late="late")
        assert np.array_equal(actual["c_desc"], expected["c_desc"]), iterations


def test_two_products_a_trip_stay_in_flight() -> None:
    kernel = hopper_of(product(two_products, mma_depth=2))
    loops = [op for op in kernel.walk() if isinstance(op, scf.ForOp)]
    inner = next(
        loop for loop in loops if any(isinstance(op, hopper.Wgmma) for op in loop.body.block.ops)
    )
    pending = [op.pending.data for op in inner.walk() if isinstance(op, hopper.WgmmaWait)]
    assert pending
    assert min(pending) >= 2


def test_a_branch_waits_before_it_gives_its_accumulator_back() -> None:
    assert all(pending == 0 for pending, _ in waits(lowered("under an if")[0]))


def test_a_register_operand_is_not_computed_while_it_is_read() -> None:
    kernel, _, _ = lowered("computed operands")
    wgmma = next(op for op in kernel.walk() if isinstance(op, hopper.Wgmma))
    assert wgmma.a.owner.parent is wgmma.parent
    ops = list(wgmma.parent.ops)
    # The product of the iteration before is waited for above the statement that makes the operand.
    above = ops[: ops.index(wgmma.a.owner)]
    assert any(isinstance(op, hopper.WgmmaWait) and op.pending.data == 0 for op in above) or any(
        isinstance(op, hopper.WgmmaWait) and op.pending.data == 0 for op in ops[ops.index(wgmma) :]
    )


@pytest.mark.parametrize("name", ["row sums", "computed operands"])
def test_slots_read_by_threads_are_freed_by_each_warp(name: str) -> None:
    kernel, _, _ = lowered(name)
    freed = [
        op for op in kernel.walk() if isinstance(op, hopper.Barriers) and "freed" in op.label.data
    ]
    assert max(op.arrivals.data for op in freed) >= 8
    arrives = [op for op in kernel.walk() if isinstance(op, hopper.Arrive) and op.by.data == "warp"]
    assert arrives
    assert all(isinstance(op.prev_op, hopper.ProxyFence) for op in arrives)


def test_no_case_leaves_a_product_without_fence_and_commit() -> None:
    for name in CASES:
        kernel, _, _ = lowered(name)
        for op in kernel.walk():
            if isinstance(op, hopper.Wgmma):
                assert isinstance(op.next_op, hopper.WgmmaCommit), name
                assert isinstance(op.prev_op, hopper.WgmmaFence), name
