"""The middle end on shapes of programs: the structure of the aref IR, and what it computes."""

from __future__ import annotations

import pytest
from xdsl.dialects import scf
from xdsl.ir import Operation

from tawa.analysis.statements import is_named
from tawa.ir import LABEL, aref, hopper, parse, tile, verify
from tawa.ir.types import i32, shape_of
from tawa.passes.arefs import insert_arefs
from tawa.passes.distribute import distribute
from tawa.passes.fold import constant
from tawa.passes.persist import persist
from tawa.passes.simplify import simplify, simplify_kernel
from tawa.plan.pins import Pins
from tawa.plan.plan import Plan
from tawa.plan.planner import NO_PINS, plan_for
from tawa.plan.text import parse_plan, print_plan
from tawa.target import H200
from tile_shapes import (
    SHAPES,
    F,
    T,
    dot,
    finish,
    full,
    give,
    half,
    inputs,
    load,
    op,
    outputs,
    shape,
    store,
    text_of,
)

SPECIALIZED = [name for name in SHAPES if name != "no load"]


def build(name: str, pins: Pins = NO_PINS) -> tuple[tile.Kernel, Plan]:
    kernel = parse(text_of(name))
    simplify_kernel(kernel)
    verify(kernel)
    plan = plan_for(kernel, H200, pins)
    for step in (persist, simplify, insert_arefs, distribute):
        step(kernel, plan, H200)
        verify(kernel)
    return kernel, plan


def roles(kernel: tile.Kernel) -> dict[str, aref.Role]:
    return {op.label.data: op for op in kernel.walk() if isinstance(op, aref.Role)}


def nest(operation: Operation, kind: type, ring: aref.Create) -> list[object]:
    """The loops and branches around each put or get of a ring, as nested lists."""
    found: list[object] = []
    for region in operation.regions:
        inside: list[object] = []
        for block in region.blocks:
            for inner in block.ops:
                if isinstance(inner, kind) and inner.aref is ring.result:
                    inside.append("iteration")
                elif below := nest(inner, kind, ring):
                    inside.append((inner.name, below))
        if inside:
            found.append(inside)
    return found


@pytest.mark.parametrize("name", SPECIALIZED)
def test_roles_are_in_step(name: str) -> None:
    kernel, plan = build(name)
    parts = roles(kernel)
    assert list(parts) == ["load", "mma"]
    rings = [op for op in kernel.body.block.ops if isinstance(op, aref.Create)]
    assert [ring.label.data for ring in rings] == [ring.label for ring in plan.arefs]
    for ring in rings:
        puts = nest(parts["load"], aref.PutEnter, ring)
        assert puts
        assert puts == nest(parts["mma"], aref.GetEnter, ring)
        assert puts == nest(parts["mma"], aref.GetExit, ring)


@pytest.mark.parametrize("name", SPECIALIZED)
def test_producer_only_loads(name: str) -> None:
    kernel, _ = build(name)
    for operation in roles(kernel)["load"].walk():
        assert not isinstance(operation, (tile.Dot, tile.DescStore, aref.GetEnter, aref.GetExit))
        if isinstance(operation, (scf.ForOp, scf.IfOp, scf.WhileOp)):
            assert not any(shape_of(result.type) for result in operation.results)
        if isinstance(operation, aref.PutExit):
            for value in operation.values:
                assert isinstance(value.owner, (tile.DescLoad, tile.Atomic, hopper.NextProgram))
                assert operation.slot.owner.is_before_in_block(value.owner)


@pytest.mark.parametrize("name", SPECIALIZED)
def test_tiles_are_used_only_while_borrowed(name: str) -> None:
    kernel, _ = build(name)
    for enter in roles(kernel)["mma"].walk():
        assert not isinstance(enter, (aref.PutEnter, aref.PutExit))
        if not isinstance(enter, aref.GetEnter):
            continue
        block = enter.parent
        exit_ = next(
            op
            for op in block.ops
            if isinstance(op, aref.GetExit)
            and op.aref is enter.aref
            and enter.is_before_in_block(op)
        )
        for value in enter.values:
            for use in value.uses if shape_of(value.type) else ():
                place = block.find_ancestor_op_in_block(use.operation)
                assert place is not None
                assert place.is_before_in_block(exit_)


@pytest.mark.parametrize("name", list(SHAPES))
def test_plan_text_reads_back(name: str) -> None:
    _, plan = build(name)
    assert parse_plan(print_plan(plan)) == plan


@pytest.mark.parametrize("name", list(SHAPES))
def test_simplified_means_the_same(name: str) -> None:
    run = pytest.importorskip("tawa.simulator.tile").run_tile
    plain, simple = inputs(name, 3), inputs(name, 3)
    kernel = parse(text_of(name))
    run(kernel, SHAPES[name].grid, plain)
    simplify_kernel(kernel)
    run(kernel, SHAPES[name].grid, simple)
    assert outputs(plain) == outputs(simple)


def ring_of(plan: Plan, name: str) -> tuple[str, ...]:
    return next(ring.payload for ring in plan.arefs if name in ring.payload)


def test_loads_of_one_product_share_a_slot() -> None:
    _, plan = build("two dots in one loop")
    assert [ring.payload for ring in plan.arefs] == [("a", "b", "c")]
    _, plan = build("two dots in sequence")
    assert [ring.payload for ring in plan.arefs] == [("q",), ("kt",), ("v",)]


def test_invariant_load_leaves_the_loop() -> None:
    kernel, plan = build("loop-invariant load", Pins(persistent=False))
    assert ring_of(plan, "a") == ("a",)
    put = next(op for op in roles(kernel)["load"].walk() if isinstance(op, aref.PutEnter))
    assert isinstance(put.parent_op(), aref.Role)


def test_loops_in_sequence_turn_one_ring() -> None:
    _, plan = build("two loops sharing a load")
    assert [(ring.payload, ring.also) for ring in plan.arefs] == [
        (("q",), ()),
        (("b",), (("c",),)),
    ]
    assert [loop.mma_depth for loop in plan.loops] == [2, 2]


def test_load_that_may_read_what_is_stored_stays() -> None:
    kernel, plan = build("stores to what it later loads")
    reasons = {item.feature: item.reason for item in plan.declined}
    assert reasons["asynchronous load a"] == "it may read what out stores"
    loads = [op for op in roles(kernel)["mma"].walk() if isinstance(op, tile.DescLoad)]
    assert len(loads) == 1
    assert plan.guards == (("y", "out"),)


def test_update_in_place_is_loaded_ahead() -> None:
    _, plan = build("updates in place")
    assert {name for ring in plan.arefs for name in ring.payload} == {"a", "b", "c"}


def test_tile_carried_by_a_loop_stays() -> None:
    _, plan = build("tile handed on to the next iteration")
    reasons = {item.feature: item.reason for item in plan.declined}
    assert "another iteration" in reasons["asynchronous load a2"]


def test_atomic_counter_is_sent() -> None:
    kernel, plan = build("atomic tile counter")
    assert [ring.payload for ring in plan.arefs] == [("a", "b"), ("tile0",), ("tile2",)]
    counts = {
        label: sum(isinstance(op, tile.Atomic) for op in role.walk())
        for label, role in roles(kernel).items()
    }
    assert counts == {"load": 2, "mma": 0}
    assert not plan.persistent


def test_atomic_that_orders_is_not_sent() -> None:
    text = text_of("atomic tile counter").replace('"relaxed"', '"acq_rel"')
    kernel = parse(text)
    simplify_kernel(kernel)
    plan = plan_for(kernel)
    assert not plan.specialized
    assert 'sem="relaxed"' in plan.declined[0].reason


def declined(text: str) -> dict[str, str]:
    kernel = parse(text)
    simplify_kernel(kernel)
    return {
        item.feature.removeprefix("asynchronous load "): item.reason
        for item in plan_for(kernel).declined
    }


def test_address_from_a_tile() -> None:
    body = shape(
        "x y out K",
        load("a", "x", "m", "c0"),
        full("af", "a"),
        '%row = "tile.reduce"(%af) ({\n^bb0(%p : f32, %q : f32):\n'
        + op("pq", "max", "p", "q", kind="f32")
        + f"\ntile.yield %pq : f32\n}}) {{axis = #builtin.int<0>}} : ({F}) -> tensor<16xf32>",
        '%top = "tile.reduce"(%row) ({\n^bb0(%r : f32, %s : f32):\n'
        + op("rs", "max", "r", "s", kind="f32")
        + "\ntile.yield %rs : f32\n}) {axis = #builtin.int<0>} : (tensor<16xf32>) -> f32",
        "%at = tile.cast %top : (f32) -> i32",
        load("b", "y", "at", "c0"),
        dot("acc", "a", "b", "zero"),
        finish(),
    )
    assert declined(body.text("k"))["b"] == "its address depends on the tile a"


def test_address_that_a_store_may_change() -> None:
    text = text_of("trip count read from memory")
    changed = text.replace(
        "%result = tile.cast",
        "tile.store %counts, %iterations : !tile.ptr<i32>, i32\n%result = tile.cast",
    )
    assert declined(changed)["a"] == "its address depends on iterations, which counts may change"


def test_use_after_the_store_that_overwrites() -> None:
    body = shape(
        "x y out",
        load("a", "x", "m", "c0"),
        load("c", "out", "m", "c0"),
        load("b", "y", "c0", "c0"),
        dot("d", "a", "b", "zero"),
        half("h", "d"),
        store("out", "m", "c0", "h"),
        full("cf", "c"),
        op("acc", "add", "d", "cf", kind=F),
        finish(),
    )
    assert declined(body.text("k"))["c"] == "its first use stands after out, which may overwrite it"


def test_tile_that_leaves_a_branch() -> None:
    text = text_of("load under an if")
    changed = (
        text.replace(
            "%acc2 = scf.if",
            f"%chosen = scf.if %early -> ({T}) {{\n{load('e', 'x', 'm', 'k')}\n"
            f"{give('e', kind=T)}\n}} else {{\n{give('b', kind=T)}\n}}\n"
            f"{full('cc', 'chosen')}\n{op('acc0', 'add', 'cc', 'acc1', kind=F)}\n%acc2 = scf.if",
        )
        .replace("%bf)", "%acc0)")
        .replace("(%acc1, %bf)", "(%acc0, %bf)")
    )
    assert "out of a branch" in declined(changed)["e"]


def test_no_load_is_ordinary() -> None:
    kernel, plan = build("no load")
    assert not plan.specialized
    assert not roles(kernel)
    assert plan.declined[-1].reason == "no asynchronous load"


def test_gemm_is_the_sample() -> None:
    from pathlib import Path

    folder = Path(__file__).parent / "data"
    kernel = parse((folder / "gemm.tile.mlir").read_text())
    simplify_kernel(kernel)
    plan = plan_for(kernel, H200, Pins(persistent=False))
    for step in (persist, insert_arefs, distribute):
        step(kernel, plan, H200)
    sample = parse((folder / "gemm.aref.mlir").read_text())
    create = next(op for op in sample.walk() if isinstance(op, aref.Create))
    create.label = next(op for op in kernel.walk() if isinstance(op, aref.Create)).label
    for each in kernel.walk():  # the sample is there to be read, and has no names
        if is_named(each):
            each.attributes.pop(LABEL, None)
    assert kernel.is_structurally_equivalent(sample)


# --- what it computes ---------------------------------------------------------------------------


def run_both(name: str, seed: int, pins: Pins = NO_PINS, **scalars: int) -> None:
    """The aref IR under a seeded schedule leaves memory as the oracle does, bit for bit."""
    from tawa.simulator.aref import run_aref
    from tawa.simulator.tile import run_tile

    expected, actual = inputs(name, seed, **scalars), inputs(name, seed, **scalars)
    run_tile(parse(text_of(name)), SHAPES[name].grid, expected)
    kernel, plan = build(name, pins)
    grid = SHAPES[name].grid
    if plan.persistent:
        launch_two_blocks(kernel, grid)
        grid = (2, 1, 1)
    run_aref(kernel, grid, actual, seed=seed)
    assert outputs(actual) == outputs(expected)


def launch_two_blocks(kernel: tile.Kernel, grid: tuple[int, int, int]) -> None:
    """Make the programs of a grid of two the two blocks of a persistent launch."""
    for operation in list(kernel.walk()):
        match operation:
            case hopper.GridExtent():
                new = constant(grid[operation.axis.data], i32)
            case hopper.NumBlocks():
                new = constant(2, i32)
            case hopper.BlockId():
                new = tile.ProgramId.build(attributes={"axis": operation.axis}, result_types=[i32])
            case _:
                continue
        operation.parent.insert_op_before(new, operation)
        operation.result.replace_all_uses_with(new.result)
        operation.detach()
        operation.erase()


@pytest.mark.parametrize("persistent", [True, False, None])
@pytest.mark.parametrize("name", SPECIALIZED)
def test_aref_run_is_the_oracle(name: str, persistent: bool | None) -> None:
    if persistent and name == "atomic tile counter":
        pytest.skip("programs communicate")
    run_both(name, 1, Pins(persistent=persistent))


@pytest.mark.parametrize("iterations", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("name", ["gemm", "two dots in sequence", "two loops sharing a load"])
def test_every_trip_count(name: str, iterations: int) -> None:
    for seed, depth in ((0, 1), (1, 2), (2, 3)):
        run_both(name, seed, Pins(depth=depth, mma_depth=1), K=16 * iterations)
