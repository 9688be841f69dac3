"""The planner's count of shared memory agrees with what the lowering takes."""

from __future__ import annotations

import pytest

from lower_kernels import matmul, matmul_nt, matmul_tn, product, tile_kernel
from tawa.ir import hopper
from tawa.passes import pipeline
from tawa.plan.plan import Plan
from tawa.plan.planner import rank_plans
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
