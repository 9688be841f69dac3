"""The worked GEMM: aref IR lowers to the hopper IR that was agreed on, operation by operation."""

from __future__ import annotations

from pathlib import Path

import pytest
from xdsl.dialects import scf
from xdsl.dialects.builtin import TensorType

from tawa.errors import OverBudget, PlanError
from tawa.ir import hopper, parse, tile, verify
from tawa.passes.pipeline import lower
from tawa.plan.plan import ArefPlan, LoopPlan, Plan, RolePlan, StorePlan
from tawa.target import H200

DATA = Path(__file__).parent / "data"
PLAN = Plan(
    roles=(RolePlan("load", 4, 40), RolePlan("mma", 8, 232)),
    arefs=(ArefPlan(("a@14", "b@14"), 3),),
    loops=(LoopPlan("for k", "fine", 2),),
    stores=(StorePlan("c_desc", "tma", 1, "first"),),
)


def lowered(plan: Plan = PLAN, edit=lambda text: text) -> tile.Kernel:
    kernel = parse(edit((DATA / "gemm.aref.mlir").read_text()))
    assert lower(kernel, plan, H200) == ()
    verify(kernel)
    return kernel


def shape(block) -> list[object]:
    """Everything but scalar arithmetic, as nested lists of names with the facts that matter.

    The sample fills its accumulator with zeros first; the lowering does so only where no iteration
    ran.
    """
    found: list[object] = []
    for op in block.ops:
        name = op.name.removeprefix("hopper.")
        match op:
            case tile.Constant() | tile.Elementwise() | hopper.BlockId() | hopper.Uninitialized():
                continue
            case scf.YieldOp():
                continue
            case hopper.WgmmaWait() | hopper.BulkWait():
                found.append((name, op.pending.data))
            case hopper.Arrive() | hopper.TmaStore():
                found.append((name, op.by.data))
            case hopper.Barriers():
                found.append((name, op.arrivals.data, op.offset.data))
            case scf.IfOp() if any(isinstance(kind, TensorType) for kind in op.result_types):
                continue
            case hopper.Shared():
                found.append((name, op.offset.data))
            case hopper.SetRegisters():
                found.append((name, op.direction.data, op.count.data))
            case _:
                found.append(name)
        for region in op.regions:
            found.extend(inner for inner in map(shape, region.blocks) if inner)
    return found


def test_lowers_to_the_agreed_sample() -> None:
    sample = parse((DATA / "gemm.hopper.mlir").read_text())
    assert shape(lowered().body.block) == shape(sample.body.block)


def test_layouts_and_launch_equal_the_sample() -> None:
    sample, kernel = parse((DATA / "gemm.hopper.mlir").read_text()), lowered()
    assert kernel.launch == sample.launch
    for kind in (hopper.Wgmma, hopper.SharedStore, hopper.TmaLoad, hopper.TmaStore):
        mine, theirs = (
            [[value.type for value in op.operands] for op in k.walk() if isinstance(op, kind)]
            for k in (kernel, sample)
        )
        assert mine == theirs


@pytest.mark.parametrize(("depth", "pending", "carried"), [(1, 0, 0), (2, 1, 1), (3, 2, 2)])
def test_releases_lag_by_mma_depth(depth: int, pending: int, carried: int) -> None:
    plan = Plan(PLAN.roles, PLAN.arefs, (LoopPlan("for k", "fine", depth),), PLAN.stores)
    kernel = lowered(plan)
    loop = next(op for op in kernel.walk() if isinstance(op, scf.ForOp) and len(op.results) > 2)
    waits = [op.pending.data for op in loop.walk() if isinstance(op, hopper.WgmmaWait)]
    assert waits == [pending]
    older = [arg for arg in loop.body.block.args if (arg.name_hint or "").startswith("old")]
    assert len(older) == carried
    after = [op for op in loop.parent.ops if isinstance(op, scf.IfOp) and not op.results]
    assert len(after) == carried


def test_too_much_shared_memory_lists_the_buffers() -> None:
    with pytest.raises(OverBudget) as caught:
        lowered(edit=lambda text: text.replace("int<3>} : !aref", "int<5>} : !aref"))
    text = str(caught.value)
    assert "311,376 bytes of shared memory" in text
    assert "b@14: 5 x 32,768 bytes = 163,840" in text
    assert "c_desc stage: 1 x 65,536 bytes" in text


def test_register_budgets_beyond_the_file_are_refused() -> None:
    with pytest.raises(PlanError, match="setmaxnreg only moves those"):
        lowered(edit=lambda text: text.replace("int<232>", "int<240>"))


def test_a_budget_that_is_no_multiple_of_eight_is_refused() -> None:
    with pytest.raises(PlanError, match="multiples of 8"):
        lowered(edit=lambda text: text.replace("int<232>", "int<230>"))


def test_roles_of_single_warps_keep_the_registers_of_the_launch() -> None:
    kernel = parse((DATA / "gemm.aref.mlir").read_text().replace("warps = #builtin.int<4>", "warps = #builtin.int<1>"))  # fmt: skip # noqa: E501
    notes = lower(kernel, PLAN, H200)
    assert [note.feature for note in notes] == ["register reallocation"]
    assert not any(isinstance(op, hopper.SetRegisters) for op in kernel.walk())
