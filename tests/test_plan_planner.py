"""The planner's choices, its pins, and what it declines."""

from __future__ import annotations

from dataclasses import replace

import pytest

import tawa
import tawa.language as tl
from tawa.analysis.statements import name_statements
from tawa.errors import OverBudget, PlanError
from tawa.ir import parse, tile
from tawa.passes.simplify import simplify_kernel
from tawa.plan.pins import Pins
from tawa.plan.plan import FULL_SPEED, ArefPlan, Plan, RolePlan
from tawa.plan.planner import NO_PINS, plan_for, rank_plans
from tawa.plan.resources import register_need, split_registers
from tawa.plan.text import print_plan
from tawa.plan.time import estimate
from tawa.runtime.dispatch import warn_of
from tawa.target import H200
from tile_shapes import text_of


def gemm(
    m: int = 128, n: int = 256, k: int = 64, kind: str = "bf16", out: str = "bf16", **options: int
) -> tile.Kernel:
    a, b = f"tensor<{m}x{k}x{kind}>", f"tensor<{k}x{n}x{kind}>"
    acc, c = f"tensor<{m}x{n}xf32>", f"tensor<{m}x{n}x{out}>"
    hints = ", ".join(f"{key} = #builtin.int<{value}>" for key, value in options.items())
    kernel = parse(f"""
"tile.kernel"() ({{
^bb0(%a_desc : !tile.desc<{a}>, %b_desc : !tile.desc<{b}>, %c_desc : !tile.desc<{c}>, %K : i32):
  %pid_m = tile.program_id {{axis = #builtin.int<0>}} : i32
  %pid_n = tile.program_id {{axis = #builtin.int<1>}} : i32
  %bm = tile.constant {{value = #builtin.int<{m}>}} : i32
  %bn = tile.constant {{value = #builtin.int<{n}>}} : i32
  %m = tile.elementwise "mul"(%pid_m, %bm) : (i32, i32) -> i32
  %n = tile.elementwise "mul"(%pid_n, %bn) : (i32, i32) -> i32
  %zero = tile.constant {{value = #builtin.int<0>}} : {acc}
  %c0 = tile.constant {{value = #builtin.int<0>}} : i32
  %bk = tile.constant {{value = #builtin.int<{k}>}} : i32
  %acc = scf.for %k = %c0 to %K step %bk iter_args(%acc_in = %zero) -> ({acc}) : i32 {{
    %a = tile.desc_load %a_desc[%m, %k] : (!tile.desc<{a}>, i32, i32) -> {a}
    %b = tile.desc_load %b_desc[%k, %n] : (!tile.desc<{b}>, i32, i32) -> {b}
    %acc_out = tile.dot %a, %b, %acc_in {{precision = "tf32",
      max_imprecise = #builtin.int<0>}} : ({a}, {b}, {acc}) -> {acc}
    scf.yield %acc_out : {acc}
  }}
  %c = tile.cast %acc : ({acc}) -> {c}
  tile.desc_store %c_desc[%m, %n], %c : !tile.desc<{c}>, i32, i32, {c}
}}) {{sym_name = "gemm", arguments = [{{name = "a_desc"}}, {{name = "b_desc"}},
  {{name = "c_desc"}}, {{name = "K"}}], options = {{{hints}}}}} : () -> ()""")
    simplify_kernel(kernel)
    return kernel


def shape(name: str) -> tile.Kernel:
    kernel = parse(text_of(name))
    simplify_kernel(kernel)
    return kernel


@pytest.mark.parametrize(
    ("block", "consumers", "registers", "depth"),
    [
        ((128, 256, 64), 2, (40, 232), 3),
        ((128, 192, 64), 2, (40, 232), 4),
        ((256, 128, 64), 2, (40, 232), 3),
        ((192, 128, 64), 3, (32, 160), 4),
        ((64, 256, 64), 1, (40, 240), 4),
        ((128, 128, 64), 2, (40, 232), 6),
        ((64, 64, 32), 1, (40, 240), 8),
        ((16, 128, 64), 1, (40, 240), 8),
    ],
)
def test_block_decides_roles_and_depth(
    block: tuple[int, int, int], consumers: int, registers: tuple[int, int], depth: int
) -> None:
    plan = plan_for(gemm(*block))
    assert plan.roles == (
        RolePlan("load", 4, registers[0]),
        RolePlan("mma", 4 * consumers, registers[1]),
    )
    assert plan.arefs == (ArefPlan(("a", "b"), depth),)
    # Of three slots two are for loading while a second consumer keeps the tensor cores busy.
    assert plan.loops[0].mma_depth == (1 if depth == 3 else 2)
    assert plan.stores[0].eviction == "first"
    assert plan.guards == (("a_desc", "c_desc"), ("b_desc", "c_desc"))


def test_registers_never_exceed_the_block() -> None:
    for consumers in (1, 2, 3):
        for needed in range(0, 260, 10):
            for transposer in (False, True):
                found = split_registers(consumers, needed, H200, transposer=transposer)
                groups = 1 + consumers + transposer
                pool = H200.registers_at_launch(128 * groups) * groups
                budgets = (found.producer, found.transposer, found.consumer)
                assert found.producer + found.transposer + consumers * found.consumer <= pool
                assert all(budget % 8 == 0 for budget in budgets)
                assert 24 <= found.producer <= 40
                assert found.transposer in ((24, 32) if transposer else (0,))
                assert found.consumer <= 240


def test_store_goes_out_in_parts_when_slots_are_worth_more() -> None:
    plan = plan_for(gemm(out="f32"))
    assert plan.stores[0].parts == 2
    assert plan.arefs[0].depth == 3
    assert plan_for(gemm()).stores[0].parts == 1


def test_accumulators_count_once() -> None:
    kernel = gemm()
    loads = [op for op in kernel.walk() if isinstance(op, tile.DescLoad)]
    assert 128 <= register_need(kernel, 8, loads) <= 232
    assert register_need(kernel, 4, loads) >= 256


def test_tile_that_no_budget_holds_is_refused() -> None:
    kernel = gemm(256, 256)
    plan = plan_for(kernel)
    assert not plan.specialized
    assert [note.feature for note in plan.declined[-2:]] == ["specialization", FULL_SPEED]
    assert all("acc_in of for k: 256" in note.reason for note in plan.declined[-2:])
    with pytest.raises(OverBudget, match="256 registers a thread"):
        plan_for(kernel, H200, Pins(consumers=2))


@tawa.jit
def too_wide(x_desc, out_desc, K, BLOCK: tl.constexpr):
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, K, 16):
        x = x_desc.load([0, k])
        acc = tl.dot(x, x.T, acc)
    out_desc.store([0, 0], acc.to(out_desc.dtype))


def test_a_launch_warns_where_products_find_no_room() -> None:
    describe = tawa.TensorDescriptor.from_tensor
    x, out = tawa.array((256, 32), "f16"), tawa.array((256, 256), "f16")
    made = too_wide.compile(describe(x, [256, 16]), describe(out, [256, 256]), 32, BLOCK=256)
    with pytest.warns(RuntimeWarning, match="too_wide: .*256 registers a thread.*smaller block"):
        warn_of(made)  # as each launcher does that is made
    report = str(made).splitlines()
    assert report[1] == "  warning"
    assert "registers a thread" in report[2]


def test_shared_memory_over_budget_lists_the_buffers() -> None:
    with pytest.raises(OverBudget, match="a x 6 slots: 98,304") as error:
        plan_for(gemm(), H200, Pins(depth=6))
    assert "stage of c_desc" in str(error.value)


def test_what_code_takes_beside_the_buffers_is_named() -> None:
    """It may be more than a block has: no room is a negative number of bytes."""
    beside = H200.shared_per_block + 1000
    plan, *_ = rank_plans(gemm(), replace(H200, shared_beside=beside))
    (note,) = [each for each in plan.declined if each.feature == FULL_SPEED]
    assert "a block has 231,424" in note.reason
    assert "what its code took beside them: 232,424" in note.reason


def test_ranked_plans_ask_for_less_and_less() -> None:
    best, steadier, ordinary, spare = rank_plans(gemm())
    assert (best.arefs[0].depth, best.loops[0].mma_depth) == (3, 1)
    assert (steadier.arefs[0].depth, steadier.loops[0].mma_depth) == (2, 1)
    assert not ordinary.specialized
    assert not spare.specialized
    assert [plan.stores[0].via for plan in (ordinary, spare)] == ["tma", "registers"]


def cycles(pins: Pins, *block: int) -> float:
    kernel = gemm(*block)
    return estimate(kernel, plan_for(kernel, H200, pins), name_statements(kernel)).total


def test_model_of_time_ranks() -> None:
    best = cycles(NO_PINS, 128, 128, 64)
    assert best < cycles(Pins(mma_depth=1), 128, 128, 64)
    assert best < cycles(Pins(consumers=1), 128, 128, 64)
    assert cycles(Pins(depth=2, mma_depth=1), 16, 128, 64) > 1.1 * cycles(NO_PINS, 16, 128, 64)
    wide, narrow = cycles(NO_PINS, 128, 256, 64), cycles(NO_PINS, 64, 64, 64)
    assert wide / (128 * 256) < narrow / (64 * 64)


def test_ordinary_kernel_gets_the_warps_its_products_need() -> None:
    assert plan_for(gemm(256, 256), H200, Pins(specialize=False)).warps == 16
    assert plan_for(gemm(64, 64), H200, Pins(specialize=False)).warps == 4


# --- pins ---------------------------------------------------------------------------------------


def test_pins_are_carried_out() -> None:
    pins = Pins(
        consumers=1,
        depth={"a": 4},
        mma_depth=3,
        persistent=False,
        cluster=2,
        registers={"load": 24, "mma": 248},
        parts=2,
    )
    plan = plan_for(gemm(128, 128), H200, pins)
    assert plan.roles == (RolePlan("load", 4, 24), RolePlan("mma", 4, 248))
    assert plan.arefs == (ArefPlan(("a", "b"), 4),)
    assert plan.loops[0].mma_depth == 3
    assert (plan.persistent, plan.group, plan.cluster) == (False, 0, 2)
    assert plan.stores[0].parts == 2
    assert hash(pins)


def test_store_and_group_pins() -> None:
    plan = plan_for(gemm(), H200, Pins(store="registers", group=16))
    assert plan.stores[0].via == "registers"
    assert plan.group == 16


def test_not_specialized_when_asked() -> None:
    plan = plan_for(gemm(num_warps=8), H200, Pins(specialize=False))
    assert not plan.specialized
    assert plan.warps == 8
    assert plan.declined[-1].reason == "specialize=False"


@pytest.mark.parametrize(
    ("pins", "why"),
    [
        (Pins(consumers=3), r"\[128\] rows, so \[1, 2\] warpgroups"),
        (Pins(depth={"x": 2}), "names that can be pinned: a, b"),
        (Pins(depth={"a": 2, "b": 3}), "share one ring"),
        (Pins(mma_depth=4), "D = 3 slots must be at least P = 4"),
        (Pins(mma_depth={"for j": 2}), "names that can be pinned: for k"),
        (Pins(schedule="coarse"), "no product feeds another"),
        (Pins(cluster=3), "2, 4, 8, or 1"),
        (Pins(registers={"mma": 240}), "setmaxnreg would wait for ever"),
        (Pins(registers={"mma": 230}), "multiples of 8 in 24..256"),
        (Pins(persistent=False, group=8), "persistent: False"),
        (Pins(parts=3), "runs of whole panels"),
    ],
)
def test_pin_that_cannot_be_honoured(pins: Pins, why: str) -> None:
    with pytest.raises(PlanError, match=why):
        plan_for(gemm(), H200, pins)


def test_pinned_depth_of_products_used_at_once() -> None:
    with pytest.raises(PlanError, match="result of s is used in the iteration"):
        plan_for(shape("two dots in sequence"), H200, Pins(mma_depth=2))


def test_specialize_pin_says_why_not() -> None:
    with pytest.raises(PlanError, match="no asynchronous load"):
        plan_for(shape("no load"), H200, Pins(specialize=True))


def test_persistence_needs_a_licence() -> None:
    with pytest.raises(PlanError, match="programs may communicate"):
        plan_for(shape("atomic tile counter"), H200, Pins(persistent=True))


# --- whole plans --------------------------------------------------------------------------------


def test_whole_plan_is_taken() -> None:
    kernel = gemm()
    plan = plan_for(kernel, H200, Pins(mma_depth=1))
    assert rank_plans(kernel, H200, Pins(plan=plan)) == (plan,)
    assert rank_plans(kernel, H200, Pins(plan=print_plan(plan))) == (plan,)


def test_whole_plan_is_checked() -> None:
    kernel = shape("stores to what it later loads")
    wrong = Plan(roles=(RolePlan("load", 4, 40),), arefs=(ArefPlan(("a",), 2),))
    with pytest.raises(PlanError, match="may read what out stores"):
        rank_plans(kernel, H200, Pins(plan=wrong))
    with pytest.raises(PlanError, match="no such load"):
        rank_plans(gemm(), H200, Pins(plan="plan specialized\naref z depth=2"))


# --- hints -------------------------------------------------------------------------------------


def test_unmet_wishes_are_noted() -> None:
    notes = {item.feature for item in plan_for(gemm(num_warps=4, num_stages=5)).declined}
    assert notes == {"num_warps=4", "num_stages=5"}
    assert plan_for(gemm(num_warps=8, num_stages=3)).declined == ()
