"""Slots are freed in branches, after their last readers; each path frees each slot once."""

from __future__ import annotations

from xdsl.dialects import scf

from lower_kernels import CASES
from tawa.frontend import build
from tawa.ir import aref, parse, tile
from tawa.passes import pipeline
from tawa.passes.distribute import free_early
from tawa.plan.plan import Plan
from tawa.plan.planner import plan_for
from tawa.target import H200


def test_queries_are_freed_before_the_last_product() -> None:
    case = CASES["attention"]
    kernel = build(case.function, case.signature, {})
    pipeline.run(pipeline.TILE, kernel, Plan(), H200)
    pipeline.run(pipeline.AREF, kernel, plan_for(kernel, H200, case.pins), H200)
    mma = [op for op in kernel.walk() if isinstance(op, aref.Role)][-1]
    branch = next(op for op in mma.walk() if isinstance(op, scf.IfOp))
    loop = next(op for op in branch.true_region.block.ops if isinstance(op, scf.ForOp))
    freed = loop.next_op
    assert isinstance(freed, aref.GetExit)
    assert freed.aref.name_hint == "q"
    assert any(isinstance(op, tile.Dot) for op in branch.true_region.block.ops)
    assert isinstance(branch.false_region.block.first_op, aref.GetExit)
    exits = [op for op in mma.walk() if isinstance(op, aref.GetExit) and op.aref is freed.aref]
    assert len(exits) == 2


def exits(body: str) -> list[str]:
    """Where the slot is freed in a consumer with `body` between its get and the exit."""
    kernel = parse(
        '"tile.kernel"() ({\n^bb0(%some: i1, %other: i1):\n'
        '%ring = aref.create "x" {depth = #builtin.int<2>} : !aref.aref<[tensor<64xf32>]>\n'
        '"aref.role"() ({\n'
        "%x = aref.get_enter %ring : (!aref.aref<[tensor<64xf32>]>) -> tensor<64xf32>\n"
        f"{body}\n"
        "aref.get_exit %ring : !aref.aref<[tensor<64xf32>]>\n"
        '}) {label = "mma", warps = #builtin.int<4>} : () -> ()\n'
        '}) {sym_name = "small", arguments = [{name = "some"}, {name = "other"}], options = {}}'
        " : () -> ()"
    )
    free_early(kernel, Plan(), H200)
    return [
        type(op.parent_op()).__name__
        for op in kernel.walk()
        if isinstance(op, aref.GetExit) and op.parent is not None
    ]


READ = '%{} = tile.elementwise "neg"(%x) : (tensor<64xf32>) -> tensor<64xf32>'


def both(first: str, second: str) -> str:
    return f"scf.if %some {{\n{first}\nscf.yield\n}} else {{\n{second}\nscf.yield\n}}"


def test_each_side_frees_once() -> None:
    assert exits(both(READ.format("a"), "")) == ["IfOp", "IfOp"]
    inner = "scf.if %other {\n" + READ.format("b") + "\nscf.yield\n} else {\nscf.yield\n}"
    assert exits(both(READ.format("a"), inner)) == ["IfOp"] * 3


def test_an_exit_stays_where_it_must() -> None:
    assert exits(READ.format("a")) == ["Role"]
    assert exits(both(READ.format("a"), "") + "\n" + READ.format("b")) == ["Role"]
    assert exits("scf.if %some {\n" + READ.format("a") + "\nscf.yield\n}") == ["Role"]
    turning = "aref.get_exit %ring : !aref.aref<[tensor<64xf32>]>"
    assert "Role" in exits(both(READ.format("a"), turning))


def test_a_side_that_gives_the_tile_keeps_it_till_it_ends() -> None:
    given = (
        f"%g = scf.if %some -> (tensor<64xf32>) {{\nscf.yield %x : tensor<64xf32>\n}} else {{\n"
        f"{READ.format('a')}\nscf.yield %a : tensor<64xf32>\n}}"
    )
    assert exits(given) == ["Role"]
