"""The six programs: right under their mappings, and under drawn ones; what each freedom changes."""

from __future__ import annotations

from importlib import import_module
from random import Random

import numpy as np
import pytest
from xdsl.dialects import scf

import tawa.cypress as cy
from cypress_draws import FREEDOMS, PROGRAMS, Draws, agree, agree_before_plans
from tawa import compile_ir
from tawa.cypress import NONE, REGISTER, SHARED, WARPGROUP
from tawa.cypress.depend import dimensions, waits
from tawa.cypress.event import CopyIn, CopyOut, Iota, loops
from tawa.cypress.kernels import attention, dual, gemm, sums
from tawa.cypress.search import cycles
from tawa.cypress.size import sizes_of
from tawa.errors import ArgumentError, LaunchError, MappingError, OverBudget, PlanError, TawaError
from tawa.ir import hopper
from tawa.ir.aref import Create
from tawa.passes.lower.emit import erase
from tawa.passes.lower.views import root_slot
from tawa.plan.text import parse_plan
from tawa.verify import Refused, check
from test_kernels_straight import at, gpu  # noqa: F401 - a fixture

finding = import_module("tawa.cypress.search")


def buffers(program):
    """What lies in shared memory, in bytes."""
    return {buffer.label: buffer.bytes for buffer in program.emitted.buffers}


def in_memory(mapping, tile, above, last):
    """Move the first operand of a product."""
    for part in (tile, f"{tile}_wg", f"{tile}_warp"):
        mapping = mapping.with_(part, mems=[NONE, above, SHARED])
    return mapping.with_(f"{tile}_leaf", mems=[REGISTER, last, SHARED])


@pytest.mark.parametrize("family", [gemm.mappings(), gemm.mappings(True), dual.mappings()])
def test_the_mappings_of_products_are_what_they_say(family):
    for mapping in family.values():
        program = cy.program(mapping)
        groups = dict(mapping["tile"].tunables)["WGS"]
        assert f"role mma warps={4 * groups} " in program.show("plan")
        assert sum(buffers(program).values()) <= mapping.ceiling
        assert not any("acc" in name for name in buffers(program))


def test_warpgroups_may_have_tiles_of_their_own():
    program = cy.program(gemm.gemm(1, 64, 192, 32, tiles=2))
    plan = program.show("plan")
    assert "plan specialized warps=12 arrangement=pingpong persistent=yes" in plan
    assert "role mma warps=4 registers=232 instances=2\n" in plan
    assert buffers(program)["stage of copy_out"] == 2 * 64 * 64 * 2
    agree("gemm", program, Random(3))
    asked = cy.program(gemm.gemm(1, 64, 64, tiles=2, walk="dynamic"))
    with pytest.raises(PlanError, match="walk='dynamic'"):
        asked.compile()
    alone = gemm.gemm(1, 64, 64, tiles=2).with_("block", persistent=False)
    with pytest.raises(MappingError, match="computes 2 tiles at once and is not persistent"):
        cy.program(alone)


def test_warpgroups_share_rows_or_columns():
    for groups, rows, columns, last in ((2, 64, 128, SHARED), (3, 128, 96, REGISTER)):
        mapping = gemm.gemm(groups, rows, columns, 32, 2, split="columns")
        program = cy.program(in_memory(mapping, "tile", SHARED, last))
        assert program.show("plan").splitlines()[0].endswith(" split=columns")
        assert parse_plan(program.show("plan")) == program.plan
        assert f"m64n{columns // groups}k16" in program.compile().asm["cuda"]
        agree("gemm", program, Random(7))
    with pytest.raises(MappingError, match="no wgmma of 64x36x16"):
        cy.program(gemm.gemm(2, 128, 72, split="columns"))
    chosen = cy.program(gemm.gemm(2, 64, 64, 32, cy.auto, split="columns"))
    assert chosen.plan.split == "columns"
    assert "m64n32k16" in chosen.compile().asm["cuda"]
    agree("gemm", chosen, Random(8))
    with pytest.raises(PlanError, match="split='columns'"):
        cy.program(gemm.gemm(4, 64, 128, 32, cy.auto, split="columns", turns=True)).compile()
    apart = cy.program(gemm.gemm(2, 128, 64, 32, cy.auto, turns=True))
    with pytest.raises(MappingError, match="the planner, which has no such roles"):
        apart.compile()
    kept = [each for each in sums.sums().instances if not each.name.startswith("tile")]
    rows_of_columns = cy.Mapping([*kept, *cy.lib.mma("tile", WGS=2, split="columns")])
    with pytest.raises(MappingError, match='"sum" is materialized'):
        cy.program(rows_of_columns)
    narrow = cy.program(gemm.gemm(2, 128, 8))
    plan = narrow.show("plan").replace("cluster=1", "cluster=1 split=columns")
    with pytest.raises(PlanError, match="split=columns of "):
        compile_ir(narrow.emitted.kernel, plan=plan)


def test_parts_of_a_tile_leave_through_as_many_places_as_there_is_room_for():
    def store(V, **how):
        plan = cy.program(gemm.gemm(1, 64, V, 16, 1, **how)).show("plan")
        return next(line for line in plan.splitlines() if line.startswith("store"))

    assert store(192) == "store copy_out via=tma parts=1 eviction=first"
    wide = gemm.gemm(1, 64, 192, 16, 1)
    tight = cy.program(cy.Mapping(wide.instances, ceiling=25_000)).show("plan")
    assert "store copy_out via=tma parts=3 places=2 " in tight
    tighter = cy.program(cy.Mapping(wide.instances, ceiling=17_000)).show("plan")
    assert "store copy_out via=tma parts=3 eviction" in tighter


def test_a_tile_stored_under_the_products_of_another_has_one_place():
    own = gemm.gemm(WGS=1, V=192, tiles=2)
    for pipeline in (2, 3, 4):  # whatever room is left
        program = cy.program(own.with_("block", pipeline=pipeline))
        assert "store copy_out via=tma parts=3 eviction=first" in program.show("plan")
        assert buffers(program)["stage of copy_out"] == 2 * 128 * 64 * 2


def test_the_model_of_time_hides_the_epilogue_of_a_tile_under_another_one():
    names = {"C": (8192, 8192), "A": (8192, 256), "B": (256, 8192)}
    sizes = sizes_of({name: np.empty(shape, np.int8) for name, shape in names.items()})
    apart, shared = (
        cycles(cy.program(gemm.gemm(groups, 128, 192, tiles=tiles)), sizes)
        for groups, tiles in ((1, 2), (2, 1))
    )
    assert apart < 0.9 * shared


def test_one_ring_holds_the_three_tiles_of_a_dual_product():
    program = cy.program(dual.dual())
    assert "aref A + B1 + B2 depth=3\n" in program.show("plan")
    assert "loop k schedule=fine mma_depth=2" in program.show("plan")
    assert "not made\n  a[0, k] of A: A is it, unchanged\nshared" in program.explain()


def test_rows_are_summed_without_a_barrier_in_the_loop():
    text = cy.program(sums.sums(WGS=1, U=64, V=64)).compile().asm["cuda"]
    loop = text[text.index("wgmma_fence();", text.index("mma(")) :]
    assert "sync" not in loop[: loop.index("wgmma_wait")]


def plain_attention(q, k, v, causal):
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    scores = q @ k.transpose(0, 2, 1) / q.shape[2] ** 0.5
    if causal:
        seen = np.tril(np.ones(scores.shape[1:], bool))
        scores = np.where(seen, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights @ v / weights.sum(-1)[..., None]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("loop", ["fa2", "fa3"])
def test_attention_is_attention_in_any_order_of_events(loop, causal):
    program = cy.program(attention.attention(loop, 1, 64, 32, 64, causal))
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, 72, 64)).astype(np.float16) for _ in "qkv")
    wanted = np.ones_like(q)
    program.sequential(wanted, q, k, v)
    np.testing.assert_allclose(wanted, plain_attention(q, k, v, causal), atol=4e-3)
    for seed in range(3):
        ours = np.ones_like(q)
        program.interpret(ours, q, k, v, seed=seed)
        np.testing.assert_array_equal(ours, wanted)


def test_three_warpgroups_are_a_change_of_the_mapping_only():
    two = attention.attention("fa2", 2, 128, 64, 64)
    three = two.with_("scores", WGS=3).with_("product", WGS=3).with_("host", U=192)
    three = three.with_("block", turns=False)
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, 136, 64)).astype(np.float16) for _ in "qkv")
    found = []
    for mapping in (two, three):
        found.append(np.ones_like(q))
        cy.program(mapping)(found[-1], q, k, v)
    np.testing.assert_array_equal(*found)


def test_the_third_generation_has_the_next_scores_under_a_product():
    text = cy.program(attention.attention("fa3", 1, 64, 32, 64)).compile().asm["cuda"]
    loop = text[text.index("for (int j = 0", text.index("mma(")) :]
    between = loop[: loop.index("wgmma_wait<1>")]
    assert between.count("wgmma_commit") == 2  # scores and product, then the wait for the scores


def test_equal_tiles_of_several_loops_share_a_ring():
    plan = cy.program(attention.attention("fa2", 2, 128, 64, 64, True)).show("plan")
    assert "aref K = K_2 depth=2\naref V = V_2 depth=2\n" in plan


@pytest.mark.parametrize("loop", ["fa2", "fa3"])
def test_keys_of_causal_attention_need_not_divide_its_queries(loop):
    for groups, rows, keys in ((1, 64, 48), (3, 192, 128)):
        mapping = attention.attention(loop, groups, rows, keys, 64, True)
        agree(loop, cy.program(mapping), Random(groups))


def test_the_first_operand_may_be_taken_from_registers_or_shared():
    loaded = in_memory(gemm.gemm(V=64), "tile", SHARED, REGISTER)
    program = cy.program(loaded)
    assert "operand tile_leaf a=registers\n" in program.show("plan")
    assert parse_plan(program.show("plan")) == program.plan
    with pytest.raises(PlanError, match="the plan speaks of the product other"):
        compile_ir(program.emitted.kernel, plan=program.show("plan").replace("tile_leaf", "other"))
    assert "_registers_tb(" in program.compile().asm["cuda"]
    assert "_registers_tb(" not in cy.program(gemm.gemm(V=64)).compile().asm["cuda"]
    weights = in_memory(attention.attention("fa2", 1, 64, 32, 64), "product", SHARED, SHARED)
    program = cy.program(weights)
    assert buffers(program)["A of product_leaf"] == 4096
    assert "operand product_leaf a=shared\n" in program.show("plan")
    with pytest.raises(MappingError, match="B of wgmma is mapped to REGISTER"):
        cy.program(gemm.gemm().with_("tile_leaf", mems=[REGISTER, SHARED, REGISTER]))


STATE = {"softmax": "MLA"}


def in_shared(mapping, product, sums):
    """Move an accumulator, and what the `sums` name of other leaves, to shared memory."""
    mapping = mapping.with_(product, mems=[SHARED, *mapping[product].mems[1:]])
    for name, which in sums.items():
        mems = zip(mapping[name].variant.parameters, mapping[name].mems, strict=True)
        mapping = mapping.with_(name, mems=[SHARED if t in which else m for t, m in mems])
    return mapping


@pytest.mark.parametrize(
    ("name", "mapping", "names"),
    [
        ("sums", in_shared(sums.sums(2, 128, 64, 64, 2), "tile", {"add": "R"}), "acc,total"),
        ("sums", in_shared(sums.sums(1, 64, 64, 32, 2, tiles=2), "tile", {}), "acc"),
        (
            "gemm",
            in_shared(
                gemm.gemm(2, 64, 64, 32, 2, split="columns", specialize=False, persistent=False),
                "tile",
                {},
            ),
            "acc",
        ),
        (
            "fa2",
            in_shared(attention.attention("fa2", 1, 64, 32, 64, True), "product", STATE),
            "top,total,acc",
        ),
    ],
)
@pytest.mark.short("sums-mapping1-acc", "gemm-mapping2-acc", "fa2-mapping3-top,total,acc")
def test_accumulators_and_running_sums_may_lie_in_shared_memory(name, mapping, names):
    program = cy.program(mapping)
    assert f" mma_depth=1 shared={names}\n" in program.show("plan")
    assert parse_plan(program.show("plan")) == program.plan
    assert {*names.split(",")} <= buffers(program).keys()
    loops = filter(
        lambda op: isinstance(op, scf.ForOp), program.compile().asm.program("hopper").walk()
    )
    assert not {arg.name_hint for loop in loops for arg in loop.body.block.args} & {
        *names.split(",")
    }
    agree(name, program, Random(5))


@pytest.mark.parametrize(
    ("mapping", "name", "way", "why"),
    [
        (
            in_shared(attention.attention("fa2", 2, 128, 64, 64, turns=False), "product", STATE),
            *("top", "prev_op", "overwrites top .* before"),
        ),
        (in_shared(gemm.gemm(2, 128, 64, 64, 2), "tile", {}), "acc", "next_op", "reads acc"),
    ],
)
def test_the_proof_asks_for_the_barriers_around_sums_in_shared_memory(mapping, name, way, why):
    kernel = cy.program(mapping).compile().asm.program("hopper").clone()
    check(kernel)
    for store in [op for op in kernel.walk() if isinstance(op, hopper.SharedStore)]:
        if root_slot(store.view).buffer.name_hint == name:
            barrier = getattr(store, way)
            while not isinstance(barrier, hopper.NamedBarrier):
                barrier = getattr(barrier, way)
            erase(barrier)
    with pytest.raises(Refused, match=why):
        check(kernel)


def test_what_no_loop_carries_does_not_lie_in_shared_memory():
    plain = gemm.gemm(V=64)
    with pytest.raises(MappingError, match="C of wgmma is mapped to SHARED"):
        cy.program(plain.with_("tile_leaf", mems=[SHARED] * 3))
    scores = attention.attention("fa2", 1, 64, 32, 64)
    with pytest.raises(MappingError, match='s of "scores_leaf" is mapped to SHARED') as caught:
        cy.program(in_shared(scores, "scores", {}))
    assert caught.value.why == "no loop carries s in SHARED"
    program = cy.program(plain)
    for loop in ("shared=other", "shared=k"):
        plan = program.show("plan").replace("mma_depth=2", f"mma_depth=1 {loop}")
        with pytest.raises(PlanError, match=f"loop k {loop}"):
            compile_ir(program.emitted.kernel, plan=plan)


def test_the_model_of_time_knows_what_sums_in_shared_memory_cost():
    sizes = sizes_of({name: np.empty((4096, 4096), np.int8) for name in "ABC"})
    plain = gemm.gemm()
    parked = in_shared(gemm.gemm(pipeline=2, V=128), "tile", {})
    assert cycles(cy.program(parked), sizes) > 1.2 * cycles(cy.program(plain), sizes)
    chosen = cy.program(plain.with_("tile", mems=[cy.auto, SHARED, SHARED]))
    assert chosen.mapping["tile"].mems[0] == NONE


def test_blocks_of_a_cluster_store_through_no_slot():
    mapping = attention.attention("fa2", 4, 256, 32, 64, True)
    block = {"pipeline": 3, "persistent": True, "group": 4, "cluster": 2, "turns": False}
    mapping = mapping.with_("block", **block)
    with pytest.raises(OverBudget, match="the ceiling is 73,728"):
        cy.program(cy.Mapping(mapping.instances, ceiling=72 * 1024))
    program = cy.program(mapping)
    plan = str(program.plan).replace("eviction=first", "eviction=first stage=Q")
    with pytest.raises(PlanError, match="stage=Q, cluster=2"):
        compile_ir(program.emitted.kernel, plan=plan)


def test_below_a_ceiling_a_tile_takes_the_place_of_one_that_was_read():
    mapping = attention.attention("fa3", 1, 64, 32, 64)
    needed = sum(buffers(cy.program(mapping)).values())
    program = cy.program(cy.Mapping(mapping.instances, ceiling=needed - 1))
    assert "stage of finish_out" not in buffers(program)
    assert "store finish_out via=tma parts=1 eviction=first stage=Q\n" in program.show("plan")
    agree("fa3", program, Random(0))
    with pytest.raises(OverBudget, match="the ceiling is"):
        cy.program(cy.Mapping(mapping.instances, ceiling=needed - 8193))


def test_below_a_ceiling_equal_tiles_turn_through_one_ring():
    mapping = attention.attention("fa2", 1, 64, 64, 64)
    tile = 64 * 64 * 2
    for slots in (3, 2):
        # Q, with which the stage lies, and so many slots in the place of two for K and two for V.
        program = cy.program(cy.Mapping(mapping.instances, ceiling=(2 + slots) * tile - 1))
        assert f"aref K = K_2 = V = V_2 depth={slots}\n" in program.show("plan")
        assert buffers(program)[f"K x {slots} slots"] == slots * tile
    agree("fa2", program, Random(0))
    with pytest.raises(OverBudget, match="24,624 bytes of SHARED, the ceiling is 24,575"):
        cy.program(cy.Mapping(mapping.instances, ceiling=3 * tile - 1))
    own = gemm.gemm(1, 64, 64, 64).with_("block", pipeline={"A": 3, "B": 2})
    program = cy.program(cy.Mapping(own.instances, ceiling=5 * tile + 64))
    assert "aref A = B depth=4\nloop k schedule=fine mma_depth=1\n" in program.show("plan")
    unlike = gemm.gemm(1, 64, 128, 64).with_("block", pipeline={"A": 3, "B": 2})
    with pytest.raises(OverBudget, match="the ceiling is"):
        cy.program(cy.Mapping(unlike.instances, ceiling=8 * tile - 1))


SMALL = {
    "gemm": gemm.gemm(2, 128, 64, 32, 2),
    "batched": gemm.gemm(2, 128, 64, 32, 2, batched=True),
    "dual": dual.dual(2, 128, 64, 32, 2),
    "sums": sums.sums(2, 128, 64, 32, 2),
    "fa2": attention.attention("fa2", 2, 128, 64, 64, True),
    "fa3": attention.attention("fa3", 2, 128, 64, 64),
}


@pytest.mark.parametrize("mapping", SMALL.values(), ids=SMALL)
@pytest.mark.short("gemm", "sums")
def test_events_that_cross_roles_are_arefs_and_waits_for_all_warpgroups_barriers(mapping):
    program = cy.program(mapping)
    made = program.compile()
    bodies = [program.events.body, *(loop.body for loop in loops(program.events.body))]
    crossing = {each.slot.name for body in bodies for each in body if isinstance(each, CopyIn)}
    rings = {n: ring for ring in made.plan.arefs for n in (*ring.payload, *sum(ring.also, ()))}
    assert rings.keys() == crossing
    made_of = [op.label.data for op in made.asm.program("aref").walk() if isinstance(op, Create)]
    assert made_of == [ring.label for ring in made.plan.arefs]
    hopper_ops = list(made.asm.program("hopper").walk())
    arrivals = {
        op.label.data: op.arrivals.data for op in hopper_ops if isinstance(op, hopper.Barriers)
    }
    meetings = [op for op in hopper_ops if isinstance(op, hopper.NamedBarrier)]
    found = 0
    for body in bodies:
        looped = body is not program.events.body
        for late, wait in zip(body, waits(body, looped), strict=True):
            for early in wait.same + wait.before:
                for part, own in dimensions(body[early], late):
                    if part.level != WARPGROUP or own:
                        continue
                    found += 1
                    match late:
                        case CopyIn():  # each frees the slot, or each of its warps
                            count = arrivals[f"{rings[late.slot.name].label} freed"]
                            assert count in (part.extent, 4 * part.extent)
                        case CopyOut(staged=True):  # the stage is full
                            assert meetings
                        case _:  # a value of each thread's own
                            assert isinstance(late, Iota)
    assert found


def test_depths_are_given_by_tensor():
    deep = gemm.gemm(V=64).with_("block", pipeline={"A": 4, "B": 2})
    assert "aref A depth=4\naref B depth=2\n" in cy.program(deep).show("plan")
    assert 'pipeline={"A": 4, "B": 2}' in str(deep)
    with pytest.raises(MappingError, match="pipeline is given for D, which it does not load"):
        cy.program(gemm.gemm().with_("block", pipeline={"A": 4, "B": 2, "D": 1}))
    with pytest.raises(MappingError, match="pipeline has no depth for B"):
        cy.program(gemm.gemm().with_("block", pipeline={"A": 4}))


def test_loads_run_ahead_without_a_role_of_their_own():
    plain = {"specialize": False, "persistent": False}
    texts = set()
    for depth in (1, 2, 4):
        program = cy.program(gemm.gemm(1, 64, 64, 32, depth, **plain))
        plan = program.show("plan")
        assert plan.startswith("plan ordinary warps=4 ")
        assert (f"aref A + B depth={depth}\n" in plan) == (depth > 1)
        assert f"mma_depth={min(2, max(1, depth - 1))}" in plan
        text = program.compile().asm["cuda"]
        texts.add(text)
        loop = text.index("for (int k")
        assert (text.index("tma_load_2d(", text.index("role_main(")) < loop) == (depth > 1)
        agree("gemm", program, Random(depth))
    assert len(texts) == 3
    one = cy.program(gemm.gemm(1, 64, 64, 32, **plain).with_("block", pipeline={"A": 3, "B": 1}))
    assert [ring.payload for ring in one.plan.arefs] == [("A",)]
    agree("gemm", one, Random(0))
    ahead = cy.program(attention.attention("fa3", 1, 64, 32, 64, turns=False, **plain))
    assert "aref K_2 depth=2\naref V depth=2\n" in ahead.show("plan")
    # The loop of the last tile makes one iteration at most: its ring is that of the others.
    tail = cy.program(attention.attention("fa2", 1, 64, 32, 64, turns=False, **plain))
    assert "aref K = K_2 depth=2\naref V = V_2 depth=2\n" in tail.show("plan")
    assert tail.compile().proof.ok
    agree("fa2", tail, Random(0))
    # Loops of a known number of iterations: some copies are ahead, or all of one loop.
    for loop, rows, columns, depth in (
        ("fa3", 192, 64, 2),
        ("fa2", 128, 16, 3),
        ("fa3", 64, 32, 2),
    ):
        how = {"pipeline": {"Q": 1, "K": depth, "V": depth}, "turns": False, **plain}
        known = cy.program(attention.attention(loop, rows // 64, rows, columns, 64, True, **how))
        assert known.show("plan").count(f"= V_2 depth={depth}\n") == 1
        assert known.compile().proof.ok
        agree(loop, known, Random(0))
    with pytest.raises(MappingError, match="has persistent, and specialize=False"):
        cy.program(gemm.gemm(1, 64, 64, 32, specialize=False))


def test_the_planner_keeps_the_ceiling():
    mapping = gemm.gemm(V=64).with_("block", pipeline=cy.auto)
    wide, tight = (
        cy.program(cy.Mapping(mapping.instances, ceiling=ceiling)).compile()
        for ceiling in (mapping.ceiling, 100_000)
    )
    assert tight.resources.shared <= 100_000 < wide.resources.shared
    assert min(ring.depth for ring in tight.plan.arefs) > 1


def test_auto_is_the_planners_choice():
    program = cy.program(gemm.gemm(V=64).with_("block", pipeline=cy.auto))
    plan = program.compile().plan
    assert (plan.specialized, plan.persistent, len(plan.consumers)) == (True, True, 1)
    assert plan.consumers[0].warps == 8
    assert all(ring.depth > 1 for ring in plan.arefs)
    assert "pipeline=cy.auto" in str(program.mapping)
    assert str(plan).splitlines()[0] in program.explain()


def test_auto_keeps_tensors_where_the_mapping_says():
    mapping = in_shared(sums.sums(2, 128, 64, 64), "tile", {"add": "R"})
    program = cy.program(mapping.with_("block", pipeline=cy.auto))
    (loop,) = program.plan.loops
    assert (loop.schedule, loop.mma_depth, loop.shared) == ("fine", 1, ("acc", "total"))
    agree("sums", program, Random(5))
    mapping = attention.attention("fa2", 1, 64, 32, 64).with_("block", pipeline=cy.auto)
    parts = ("product", "product_wg", "product_warp", "product_leaf")
    for part, a in zip(parts, (NONE, NONE, NONE, SHARED), strict=True):
        mapping = mapping.with_(part, mems=[mapping[part].mems[0], a, SHARED])
    program = cy.program(mapping)
    assert {each.a for each in program.plan.operands} == {"shared"}
    assert len(program.plan.operands) == 2
    agree("fa2", program, Random(5))


def test_tunables_and_memories_may_be_left_out():
    given = gemm.gemm(V=64).with_("host", U=cy.auto).with_("block", W=cy.auto)
    given = given.with_("tile_leaf", mems=[REGISTER, cy.auto, SHARED])
    program = cy.program(given)
    assert dict(program.mapping["host"].tunables)["U"] % 64 == 0
    assert program.mapping["tile_leaf"].mems[1] == SHARED
    assert not program.mapping.open
    with pytest.raises(MappingError, match="there is no wgmma of 64x12x16"):
        cy.program(given.with_("host", V=12))


def test_a_value_that_the_planner_refuses_is_not_chosen(monkeypatch):
    """Where `pipeline` is left to the planner too, it is asked for each value: some need more
    shared memory than there is.
    """

    def asked(made, sizes):
        if (wide := made.mapping["block"].tunables["W"]) > 96:
            raise OverBudget(f"{wide} is too wide")
        return 1.0 / wide  # the model likes wide ones

    monkeypatch.setattr(finding, "cycles", asked)
    given = gemm.gemm(V=64).with_("block", W=cy.auto, pipeline=cy.auto)
    assert cy.program(given).mapping["block"].tunables["W"] == 64


def test_a_program_names_its_tensors_and_its_stages():
    program = cy.program(gemm.gemm(V=64))
    assert repr(program) == "program gemm(C, A, B)"
    with pytest.raises(ArgumentError, match=r"no stage 'tre'\n.*mapping, tree, event, plan, tile"):
        program.show("mapping", "tre")


def test_a_search_gives_a_legal_mapping_that_is_no_slower_by_the_model(capsys):
    start = cy.program(gemm.gemm(1, 64, 64, 32, 1))
    a = np.zeros((256, 256), np.float16)
    found = cy.search(start, a, a, np.zeros_like(a), budget=4)
    assert str(found.mapping) in capsys.readouterr().out
    sizes = sizes_of({"C": a, "A": a, "B": a})
    assert cycles(found, sizes) < cycles(start, sizes)
    ours = np.ones((72, 72), np.float16)
    b = np.arange(72 * 72).reshape(72, 72) % 5
    found(ours, b.astype(np.float16), np.eye(72, dtype=np.float16))
    np.testing.assert_array_equal(ours, b)


def test_a_search_turns_what_the_model_cannot_rank_by_the_clock():
    start = cy.program(gemm.gemm(2, 128, 64, 32, 2))

    def measure(made):
        block, tile = made.mapping["block"], made.mapping["tile"]
        wanted = (block.walk, block.group, tile.variant) == ("dynamic", 16, cy.lib.mma_columns)
        return 1.0 if wanted else 2.0 - 0.1 * (block.walk == "dynamic") - 0.1 * (block.group > 8)

    def build(mappings):
        return [made for each in mappings if (made := legal(each)) is not None]

    left = iter(range(40))
    found = finding._fastest([start.mapping], build, measure, lambda: next(left, None) is not None)
    assert measure(found) == 1.0
    agree("gemm", found, Random(0))
    extents = {dict(each["host"].tunables)["V"] for each in finding._fields_near(start.mapping)}
    assert extents == {48, 64, 80}
    found = finding._fastest([start.mapping], build, measure, lambda: False)
    assert found.mapping == start.mapping
    assert finding._fastest([start.mapping], lambda some: [], measure, lambda: True) is None

    def refused(made):
        if made.mapping != start.mapping:
            raise LaunchError("no room on this GPU")
        return 1.0

    found = finding._fastest([start.mapping], build, refused, lambda: True)
    assert found.mapping == start.mapping


def test_a_search_finds_two_edits_of_which_one_alone_is_slower(monkeypatch):
    start = attention.attention("fa2", 1, 64, 64, 64, queries=1, depth=2)
    near = finding._fields_near

    def measure(made):
        keys, slots = dict(made.mapping["block"].tunables)["W"], made.mapping["block"].depths["K"]
        return {(64, 2): 2.0, (80, 2): 2.2, (64, 3): 2.1, (80, 3): 1.0}.get((keys, slots), 3.0)

    def build(mappings):
        return [made for each in mappings if (made := legal(each)) is not None]

    def depths_and_extents(mapping):
        changed = [each for each in near(mapping) if each["host"] == mapping["host"]]
        names = ("tunables", "pipeline")
        return [
            m
            for m in changed
            if any(getattr(m["block"], n) != getattr(mapping["block"], n) for n in names)
        ]

    monkeypatch.setattr(finding, "_fields_near", depths_and_extents)
    left = iter(range(8))
    found = finding._fastest([start], build, measure, lambda: next(left, None) is not None)
    assert measure(found) == 1.0
    assert found.mapping["block"].depths == {"Q": 1, "K": 3, "V": 3}


def test_a_search_ranks_kernels_without_roles():
    start = cy.program(
        gemm.gemm(1, 64, 64, 32, 2).with_("block", specialize=False, persistent=False)
    )
    assert not start.plan.specialized
    sizes = sizes_of(dict.fromkeys("CAB", np.zeros((256, 256), np.float16)))
    assert finding._rank(start, sizes)[0] == 0


def legal(mapping):
    try:
        return finding.complete(mapping)
    except TawaError:
        return None


def test_a_search_ranks_what_registers_do_not_hold_last():
    """The tiles of FlashAttention that the model of time alone took for the fastest spill."""
    sizes = sizes_of(dict.fromkeys("OQKV", np.zeros((64, 4096, 128), np.float16)))
    made = [
        cy.program(attention.attention("fa2", WGS, U, W))
        for WGS, U, W in ((1, 64, 64), (2, 128, 256), (1, 128, 128), (2, 128, 128))
    ]
    by_time = sorted(made, key=lambda each: cycles(each, sizes))
    by_rank = sorted(made, key=lambda each: finding._rank(each, sizes))
    assert by_time[0] is made[1]
    assert by_rank == [made[3], made[0], made[1], made[2]]


def test_a_search_times_programs_where_their_tensors_are(gpu, monkeypatch):  # noqa: F811
    gpu.parameters = 7
    timed = []

    def bench(call):
        call()
        timed.append(gpu.launches[-1].grid)
        return 1.0 / len(timed)  # the last that is timed is the fastest

    monkeypatch.setattr(finding, "do_bench", bench)
    monkeypatch.setattr(finding, "_tunables_near", lambda near, only: [near.with_("host", V=128)])
    monkeypatch.setattr(finding, "_fields_near", lambda near: [near.with_("block", group=16)])
    found = cy.search(cy.program(gemm.gemm(1, 64, 64, 32, 2)), at(0), at(1), at(2), budget=99)
    assert timed == [(16, 1, 1), (8, 1, 1), (8, 1, 1), (16, 1, 1)]
    assert found.mapping["block"].group == 16


def test_a_search_tries_no_mapping_that_the_call_refuses(monkeypatch):
    start, narrow = (attention.attention("fa2", 1, 64, 64, D) for D in (64, 32))
    monkeypatch.setattr(finding, "_tunables_near", lambda near, only: [narrow])
    q = np.zeros((1, 128, 64), np.float16)
    found = cy.search(cy.program(start), q, q, q.copy(), q.copy(), budget=99)
    assert dict(found.mapping["host"].tunables)["D"] == 64
    with pytest.raises(ArgumentError, match=r"O.shape\[2\] is 64, 32 is 32"):
        cy.program(narrow)(q, q.copy(), q.copy(), q.copy())


def test_extents_that_are_the_same_are_compared_at_the_call():
    a, b = np.zeros((64, 64), np.float16), np.zeros((72, 64), np.float16)
    with pytest.raises(ArgumentError, match=r"A.shape\[1\] is 64, B.shape\[0\] is 72"):
        cy.program(gemm.gemm())(np.zeros((64, 64), np.float16), a, b)


def test_a_call_with_known_shapes_is_its_launch_alone(gpu, monkeypatch):  # noqa: F811
    gpu.parameters = 7
    program = cy.program(gemm.gemm(V=64))
    for place in (0, 3, 6):
        program(at(place), at(place + 1), at(place + 2))
    for prepared in ("_find", "_meet"):
        monkeypatch.setattr(program.recipes, prepared, None)
    output = at(9)
    program(output, at(10), at(11))
    assert [launch.grid for launch in gpu.launches] == [(8, 1, 1)] * 4
    assert gpu.written[-1] is output
    monkeypatch.undo()
    with pytest.raises(ArgumentError, match="C shares memory with B"):
        program(output, at(10), at(9))


# --- drawn mappings -------------------------------------------------------------------------------


def check_draws(count, seed, before_plans=0):
    """Compare `count` drawn mappings of each program with the tasks' own order, and so many more
    as far as there are no roles.
    """
    draws = Draws()
    for name in PROGRAMS:
        for number in range(count + before_plans):
            random = Random(f"{seed} {name} {number}")
            program = draws.program(name, random, compiled=number < count)
            (agree if number < count else agree_before_plans)(name, program, random)
    print(f"freedoms drawn: {dict(draws.freedoms)}")
    print(f"refused: {draws.refused.total()}: {dict(draws.refused)}")
    return draws


def test_a_mapping_changes_no_result():
    check_draws(1, "short", 5)


@pytest.mark.long
def test_two_hundred_mappings_change_no_result():
    draws = check_draws(34, "long")
    assert not set(FREEDOMS) - set(draws.freedoms)


@pytest.mark.long
@pytest.mark.parametrize("D", [64, 128, 256])
@pytest.mark.parametrize("causal", [False, True])
def test_every_published_mapping_of_attention_compiles(D, causal):
    for mapping in attention.mappings(D, causal).values():
        assert cy.program(mapping).compile().proof.ok
