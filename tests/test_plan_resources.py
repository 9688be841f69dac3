"""The planner's count of shared memory agrees with what the lowering takes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lower_kernels import matmul, matmul_nt, matmul_tn, product, tile_kernel
from tawa.ir import hopper
from tawa.passes import pipeline
from tawa.plan.ceiling import within
from tawa.plan.pins import Pins
from tawa.plan.plan import Plan
from tawa.plan.planner import rank_plans
from tawa.plan.resources import total
from tawa.target import H200


@pytest.mark.parametrize(
    ("function", "copies"), [(matmul_nt, False), (matmul, True), (matmul_tn, True)]
)
def test_operand_b_that_is_stored_once_more_is_counted(function, copies) -> None:
    """Of 32-bit elements wgmma reads B with K contiguous only."""
    kernel = tile_kernel(product(function, bk=32, dtype="f32", out="f32"))
    pipeline.run(pipeline.TILE, kernel, Plan(), H200)
    plan = rank_plans(kernel, H200)[0]
    pipeline.run((*pipeline.AREF, *pipeline.HOPPER), kernel, plan, H200)
    labels = [op.label.data for op in kernel.walk() if isinstance(op, hopper.Shared)]
    assert any(label.endswith("operand") for label in labels) == copies


def test_a_plan_gives_up_stages_until_it_is_within_a_ceiling() -> None:
    kernel = tile_kernel(product(matmul_nt, bn=256))
    pipeline.run(pipeline.TILE, kernel, Plan(), H200)
    plan = rank_plans(kernel, H200, Pins(depth=2))[0]
    ceiling, found = H200.shared_per_block, list[tuple[int, int]]()
    for _ in range(5):
        made, needed = within(kernel, plan, ceiling)
        found += [(store.parts, store.places) for store in made.stores]
        fits = total(needed) <= ceiling
        ceiling = total(needed) - 1
    # Whole; then as few parts wait as can be; what takes least, where nothing fits.
    assert found == [(1, 1), (4, 3), (2, 1), (4, 1), (4, 1)]
    assert not fits
    beside = replace(plan, roles=tuple(replace(role, instances=2) for role in plan.roles))
    made, _ = within(kernel, beside, H200.shared_per_block)
    assert [(store.parts, store.places) for store in made.stores] == [(4, 1)]
