"""Task programs under mappings: the simulator against the sequential oracle, bit for bit."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tawa.cypress as cy
import tawa.language as tl
from tawa import compile_ir
from tawa.cypress import (
    BLOCK,
    GLOBAL,
    HOST,
    NONE,
    REGISTER,
    SHARED,
    WARPGROUP,
    depend,
    event,
    f16,
    f32,
)
from tawa.cypress.kernels import dual
from tawa.errors import ArgumentError, MappingError, OverBudget, PlanError
from tawa.plan.text import parse_plan

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cypress.md"
EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "08_cypress.py"
I, T16 = cy.Instance, cy.Tensor[f16, 2]


@pytest.fixture(scope="module")
def example():
    return runpy.run_path(str(EXAMPLE))


@pytest.fixture(scope="module")
def mapping(example):
    return example["mapping"]()


def integers(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).integers(-2, 3, shape).astype(np.float16)


def agree(program, m, n, k):
    """Run a GEMM in the simulator and sequentially; return whether both are NumPy's product."""
    a, b = integers(m, k), integers(k, n)
    ours, wanted = np.full((m, n), 7, np.float16), np.full((m, n), 7, np.float16)
    program(ours, a, b)
    program.sequential(wanted, a, b)
    np.testing.assert_array_equal(ours, wanted)
    np.testing.assert_array_equal(ours, a.astype(int) @ b.astype(int))


# --- the GEMM -----------------------------------------------------------------------------


def test_the_example_is_equal_under_its_mappings(example):
    found = list(example["in_simulator"](np))
    assert len(found) == 3
    assert all(equal for _, equal in found)


def test_the_page_is_a_program_and_its_edits_change_no_bit(tmp_path):
    *tutorial, kernels = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    source = tmp_path / "page.py"  # a file, since leaves are read from their source
    source.write_text("\n".join(tutorial))
    a, b = integers(200, 136), integers(136, 72)
    page = runpy.run_path(str(source), {"A": a, "B": b, "C": np.zeros((200, 72), np.float16)})
    np.testing.assert_array_equal(page["C"], a.astype(int) @ b.astype(int))
    for name, groups in (("one", 1), ("ahead", 1), ("two", 2), ("three", 3)):
        program = cy.program(page[name])
        assert f"warps={4 * groups} " in program.show("plan").splitlines()[2 * (name != "one")]
        ours = np.zeros_like(page["C"])
        program(ours, a, b)
        np.testing.assert_array_equal(ours, page["C"])
    # What a newcomer may forget, in the page's words.
    assert page["two"].with_("tile", WGS=3).with_("host", U=192) == page["three"]
    with pytest.raises(MappingError, match="blocks of 42 do not divide 128") as caught:
        cy.program(page["two"].with_("tile", WGS=3))
    assert "c, a = (cy.blocks(t" in caught.value.place.render()
    with pytest.raises(OverBudget, match="bytes of SHARED, the ceiling is"):
        cy.program(page["two"].with_("block", pipeline=7))
    source.write_text(kernels)
    page = runpy.run_path(str(source))
    assert "role mma warps=12 " in cy.program(page["three"]).show("plan")


def tiles(program):
    """What lies in shared memory, besides barriers."""
    labels = [buffer.label for buffer in program.emitted.buffers]
    return [label for label in labels if not label.startswith("barriers")]


def test_emission_is_what_the_mapping_says(mapping):
    program = cy.program(mapping)
    made = program.compile()
    assert made.proof.ok
    assert str(made.plan) == program.show("plan")
    assert "role load warps=4 registers=40\nrole mma warps=8 registers=232" in str(made.plan)
    assert "aref A + B depth=3\n" in str(made.plan)
    # And no accumulator.
    assert tiles(program) == ["A x 3 slots", "B x 3 slots", "stage of copy_out"]
    assert "wgmma.mma_async.sync.aligned.m64n128k16" in made.asm["cuda"]
    assert program.show("event").splitlines()[1:] == [
        "  0: acc = call clear(acc)",
        "  1: for k in (A.shape[1] + 63)//64  after 0[i WARPGROUP, i WARP, i THREAD]",
        "    0: A: fp16[128, 64] = copy A[128*i:+128, 64*k:+64] into SHARED"
        "  after 2[: WARPGROUP, : WARP, : THREAD] of the iteration before",
        "    1: B: fp16[64, 128] = copy B[64*k:+64, 128*j:+128] into SHARED"
        "  after 2[: WARPGROUP, : WARP, : THREAD] of the iteration before",
        "    2: acc = call leaf(acc, A, B)  after 0, 1",
        "  2: C = call copy(C, acc)  after 1[i WARPGROUP, i WARP, i THREAD]",
        "  3: copy C by SHARED to C[128*i:+128, 128*j:+128]"
        "  after 2[: WARPGROUP, : WARP, : THREAD]",
    ]
    report = program.explain()
    assert "spread like tile: 2 by rows over WARPGROUP, wgmma 64x128x16 C over WARP" in report
    assert "shared memory 131,120 of 231,424 bytes" in report


FREEDOMS = {
    "U": lambda m: m.with_("host", U=256),
    "V": lambda m: m.with_("host", V=64).with_("wg", N=64).with_("warp", N=64),
    "W": lambda m: m.with_("block", W=32),
    "WGS": lambda m: m.with_("tile", WGS=1).with_("host", U=64),
    "specialize": lambda m: m.with_("block", specialize=False, persistent=False, pipeline=1),
    "pipeline": lambda m: m.with_("block", pipeline=2),
    "persistent": lambda m: m.with_("block", persistent=False),
    "group": lambda m: m.with_("block", group=4),
    "cluster": lambda m: m.with_("block", cluster=2),
    "stage": lambda m: m.with_("copy", stage=None),
}


@pytest.mark.parametrize("freedom", FREEDOMS)
def test_each_freedom_changes_the_code_and_no_result(mapping, freedom):
    program = cy.program(FREEDOMS[freedom](mapping))
    assert program.compile().asm["cuda"] != cy.program(mapping).compile().asm["cuda"]
    agree(program, 136, 72, 80)


def test_a_mapping_prints_as_python(mapping, example):
    edited = mapping.with_("tile", WGS=3).with_("host", U=192).with_("copy", stage=None)
    for each in (mapping, edited):
        read = eval(str(each), {**vars(cy), **example, "cy": cy})
        assert read == each
        assert str(read) == str(each)
    assert edited != mapping


def test_compiling_twice_is_one_compilation(mapping):
    one, two = cy.program(mapping), cy.program(eval("m", {"m": mapping}))
    assert one.compile().asm["cuda"] == two.compile().asm["cuda"]
    assert one.compile() is one.compile()


def test_importing_needs_no_arrays():
    code = "import sys, tawa.cypress; assert not {'numpy', 'torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_only_what_is_declared_is_run(mapping):
    program = cy.program(mapping)
    a = np.zeros((64, 64), np.float16)
    with pytest.raises(ArgumentError, match="gemm got 2 tensors"):
        program(a, a)
    with pytest.raises(ArgumentError, match="B is of f32 with 2 dimensions"):
        program(a, a, a.astype(np.float32))
    with pytest.raises(ArgumentError, match="B is of f16 with 1 dimensions"):
        program.sequential(a, a, a[0])
    with pytest.raises(ArgumentError, match="C shares memory with A"):
        program(a, a, a.copy())
    with pytest.raises(ArgumentError, match="C shares memory with B"):
        program.sequential(a[:32], a.copy(), a)


def test_the_ceiling_is_what_a_block_may_take(mapping):
    with pytest.raises(OverBudget, match="needs 114,736 bytes of SHARED, the ceiling is 114,735"):
        cy.program(cy.Mapping(mapping.instances, ceiling=114_735))
    for ceiling, parts in ((131_120, 1), (131_119, 2), (115_000, 2)):
        program = cy.program(cy.Mapping(mapping.instances, ceiling=ceiling))
        assert f"store copy_out via=tma parts={parts} " in program.show("plan")
        agree(program, 136, 136, 72)


# --- events in any order --------------------------------------------------------------------------


def orders(program, arrays, outputs, seeds, waits=depend.waits):
    """Return for each seed whether the events in its order give what the tasks in theirs do."""
    wanted = [array.copy() for array in arrays]
    program.sequential(*wanted)
    for seed in seeds:
        ours = [array.copy() for array in arrays]
        program.interpret(*ours, seed=seed, waits=waits)
        yield all(np.array_equal(ours[n], wanted[n], equal_nan=True) for n in range(outputs))


def gemm_arrays(k):
    # One block: blocks take turns in the interpreter, and one shows all.
    a, b = integers(64, k), integers(k, 16)
    return [np.ones((64, 16), np.float16), a, b]


def dropping(place, kind, number, which):
    """The waits of events but for one: of an event of one body, by its kind and place."""

    def waits(body, looped):
        made = list(depend.waits(body, looped))
        if looped == place:
            kept = {"same": made[number].same, "before": made[number].before}
            kept[kind] = kept[kind][:which] + kept[kind][which + 1 :]
            made[number] = depend.Wait(**kept)
        return tuple(made)

    return waits


def test_events_in_any_order_are_the_tasks_in_theirs(mapping):
    one = FREEDOMS["WGS"](mapping).with_("host", V=16).with_("wg", N=16).with_("warp", N=16)
    gemm = cy.program(one)
    for k in (0, 64, 200):
        assert all(orders(gemm, gemm_arrays(k), 1, range(50)))
    sums = cy.program(sums_mapping(1))
    a, b = integers(64, 72), integers(72, 64)
    outs = [np.ones((64, 64), np.float16), np.ones((1, 64), np.float32)]
    assert all(orders(sums, [*outs, a, b], 2, range(50)))


def test_each_wait_is_needed(mapping):
    one = FREEDOMS["WGS"](mapping).with_("host", V=16).with_("wg", N=16).with_("warp", N=16)
    gemm = cy.program(one)
    arrays = gemm_arrays(200)
    loop = next(e for e in gemm.events.body if isinstance(e, event.For))
    dropped = 0
    for place, body in ((False, gemm.events.body), (True, loop.body)):
        for number, wait in enumerate(depend.waits(body, place)):
            for kind in ("same", "before"):
                for which in range(len(getattr(wait, kind))):
                    mutant = dropping(place, kind, number, which)
                    assert not all(orders(gemm, arrays, 1, range(60), mutant)), (place, number)
                    dropped += 1
    assert dropped == 7


# --- other programs -------------------------------------------------------------------------------


@pytest.mark.parametrize(("groups", "depth"), [(1, 1), (2, 3)])
def test_two_products_share_the_tile_of_a(groups, depth):
    program = cy.program(dual.dual(groups, 64 * groups, 64, 32, depth, persistent=False))
    assert program.show("event").count("into SHARED") == 3
    assert f"aref A + B1 + B2 depth={depth}\n" in program.show("plan")
    for m, n, k in ((72, 136, 40), (8, 8, 0)):
        a, b1, b2 = integers(m, k), integers(k, n, seed=1), integers(k, n, seed=2)
        ours, wanted = np.ones((m, n), np.float16), np.ones((m, n), np.float16)
        program(ours, a, b1, b2)
        program.sequential(wanted, a, b1, b2)
        np.testing.assert_array_equal(ours, wanted)
        np.testing.assert_array_equal(ours, a.astype(int) @ (b1.astype(int) + b2.astype(int)))


@cy.inner("add", reads="A B", writes="C")
def add_host(C: T16, A: T16, B: T16, *, U: int, V: int):
    c, a, b = (cy.blocks(t, (U, V)) for t in (C, A, B))
    for i, j in cy.prange(*c.grid):
        cy.launch("add", c[i, j], a[i, j], b[i, j])


@cy.leaf("add", reads="A B", writes="C")
def add_leaf(C, A, B):
    return tl.where(A > B, A - B, A + B) * 2


@pytest.mark.parametrize(("memory", "held"), [(SHARED, 1), (GLOBAL, 0)])
def test_a_leaf_may_run_on_the_whole_tile(memory, held):
    host = I("host", add_host, HOST, [GLOBAL] * 3, {"U": 32, "V": 64}, calls=["l"], entry=True)
    leaf = I("l", add_leaf, BLOCK, [GLOBAL, memory, GLOBAL])
    add = cy.program(cy.Mapping([host, leaf]))
    assert len(tiles(add)) == held
    assert add.compile().asm["cuda"].count("tma_load_2d(B") == 0
    assert "copy B[32*i:+32, 64*j:+64] into REGISTER" in add.show("event")
    plan = add.show("plan")
    assert "load B via=registers" in plan
    assert parse_plan(plan) == add.plan
    with pytest.raises(PlanError, match="load l_out via=registers"):
        compile_ir(add.emitted.kernel, plan=plan + "load l_out via=registers")
    a, b = integers(40, 72), integers(40, 72, seed=1)
    ours, wanted = np.zeros_like(a), np.zeros_like(a)
    add(ours, a, b)
    add.sequential(wanted, a, b)
    np.testing.assert_array_equal(ours, wanted)
    np.testing.assert_array_equal(ours, np.where(a > b, a - b, a + b) * 2)


@cy.inner("tails", reads="A B", writes="C")
def tails_host(C: T16, A: T16, B: cy.Tensor[f32, 1], *, U: int):
    c, a, b = cy.blocks(C, (U, 64)), cy.blocks(A, (U, A.shape[1])), cy.blocks(B, (U,))
    for i in cy.prange(c.grid[0]):
        cy.launch("tails", c[i, 0], a[i, 0], b[i])


@cy.inner("tails", reads="A B", writes="C")
def tails_block(C: T16, A: T16, B: cy.Tensor[f32, 1]):
    a = cy.blocks(A, (A.shape[0], 64))
    total = cy.make_tensor(f32, C.shape)
    cy.launch("clear", total)
    for k in cy.srange(a.grid[1]):
        cy.launch("scaled", total, a[0, k], B)
    cy.launch("copy", C, total)


@cy.leaf("scaled", reads="R A B", writes="R")
def scaled_leaf(R, A, B):
    return R + A.to(tl.float32) * B[:, None]


@cy.inner("scaled", reads="R A B", writes="R")
def scaled_over(R: cy.Tensor[f32, 2], A: T16, B: cy.Tensor[f32, 1]):
    for _ in cy.prange(1):
        cy.launch("scaled", R, A, B)


@pytest.mark.parametrize("specialize", [False, True])
@pytest.mark.parametrize("first", [SHARED, GLOBAL])
def test_operands_of_plain_leaves_may_stay_in_global_memory(specialize, first):
    held, group = [REGISTER, first, GLOBAL], WARPGROUP
    how = {"specialize": specialize, "pipeline": 2} if first == SHARED else {}
    calls = ["clear", "scaled", "copy"]
    mapping = cy.Mapping(
        [
            I("host", tails_host, HOST, [GLOBAL] * 3, {"U": 64}, calls=["block"], entry=True),
            I("block", tails_block, BLOCK, [GLOBAL] * 3, calls=calls, **how),
            I("scaled", scaled_over, BLOCK, [NONE, NONE, NONE], calls=["leaf"]),
            I("leaf", scaled_leaf, group, held),
            I("clear", cy.lib.clear_leaf, group, [REGISTER], like="scaled"),
            I("copy", cy.lib.copy_leaf, group, [GLOBAL, REGISTER], like="scaled"),
        ]
    )
    program = cy.program(mapping)
    assert tiles(program) == ["A x 2 slots"] * (first == SHARED)
    assert program.compile().proof.ok
    a, b = integers(72, 200), np.arange(72, dtype=np.float32) % 3
    made = [np.ones((72, 64), np.float16) for _ in range(3)]
    program(made[0], a, b)
    program.sequential(made[1], a, b)
    program.interpret(made[2], a, b)
    np.testing.assert_array_equal(made[0], made[1])
    np.testing.assert_array_equal(made[2], made[1])
    last = mapping.with_("leaf", mems=[REGISTER, REGISTER, SHARED])
    with pytest.raises(MappingError, match="reads A of the program from REGISTER") as caught:
        cy.program(last)
    assert "mems=[REGISTER, SHARED, SHARED]" in caught.value.remedy


@cy.inner("g", reads="A B S", writes="C")
def added_host(C: T16, A: T16, B: T16, S: T16, *, U: int, V: int):
    c, s, a = cy.blocks(C, (U, V)), cy.blocks(S, (U, V)), cy.blocks(A, (U, A.shape[1]))
    b = cy.blocks(B, (B.shape[0], V))
    for i, j in cy.prange(*c.grid):
        cy.launch("g", c[i, j], a[i, 0], b[0, j], s[i, j])


@cy.inner("g", reads="A B S", writes="C")
def added_block(C: T16, A: T16, B: T16, S: T16, *, W: int):
    a, b = cy.blocks(A, (A.shape[0], W)), cy.blocks(B, (W, B.shape[1]))
    acc = cy.make_tensor(f32, C.shape)
    cy.launch("clear", acc)
    for k in cy.srange(a.grid[1]):
        cy.launch("mma", acc, a[0, k], b[k, 0])
        cy.launch("add", acc, S)
    cy.launch("copy", C, acc)


@cy.leaf("add", reads="R S", writes="R")
def added_leaf(R, S):
    return R + S.to(R.dtype)


@pytest.mark.parametrize("pipeline", [3, {"A B": 3, "S": 2}])
@pytest.mark.parametrize(
    "how", [{}, {"specialize": True}, {"specialize": True, "persistent": True}]
)
def test_a_tile_that_a_loop_does_not_move_is_loaded_before_it(pipeline, how):
    calls, sizes = ["clear", "tile", "add", "copy"], {"U": 64, "V": 64}
    mapping = cy.Mapping(
        [
            I("host", added_host, HOST, [GLOBAL] * 4, sizes, calls=["block"], entry=True),
            I("block", added_block, BLOCK, [GLOBAL] * 4, {"W": 32}, calls=calls,
              pipeline=pipeline, **how),
            *cy.lib.mma("tile", WGS=1, N=64),
            *cy.lib.clear("clear", like="tile"),
            *cy.lib.elementwise("add", added_leaf, like="tile", mems=[REGISTER, SHARED]),
            *cy.lib.copy("copy", like="tile", stage=SHARED),
        ]
    )  # fmt: skip
    program = cy.program(mapping)
    events = program.show("event")
    assert events.index("copy S") < events.index("for k") < events.index("copy A")
    a, b, s = integers(72, 96), integers(96, 72), integers(72, 72, seed=1)
    ours, wanted, events = (np.ones((72, 72), np.float16) for _ in range(3))
    program(ours, a, b, s)
    program.sequential(wanted, a, b, s)
    program.interpret(events, a, b, s)
    np.testing.assert_array_equal(ours, a.astype(int) @ b.astype(int) + 3 * s)
    np.testing.assert_array_equal(wanted, ours)
    np.testing.assert_array_equal(events, ours)


@cy.inner("g", reads="A B S", writes="C")
def added_again(C: T16, A: T16, B: T16, S: T16, *, W: int):
    a, b = cy.blocks(A, (A.shape[0], W)), cy.blocks(B, (W, B.shape[1]))
    acc = cy.make_tensor(f32, C.shape)
    cy.launch("clear", acc)
    for _ in range(2):
        for k in cy.srange(a.grid[1]):
            cy.launch("mma", acc, a[0, k], b[k, 0])
            cy.launch("add", acc, S)
    cy.launch("add", acc, S)
    cy.launch("copy", C, acc)


@pytest.mark.parametrize("specialize", [False, True])
def test_a_tile_that_is_loaded_before_a_loop_is_there_behind_it(specialize):
    calls, sizes = ["clear", "tile", "add", "copy"], {"U": 64, "V": 64}
    program = cy.program(cy.Mapping(
        [
            I("host", added_host, HOST, [GLOBAL] * 4, sizes, calls=["block"], entry=True),
            I("block", added_again, BLOCK, [GLOBAL] * 4, {"W": 32}, calls=calls,
              pipeline=2, specialize=specialize),
            *cy.lib.mma("tile", WGS=1, N=64),
            *cy.lib.clear("clear", like="tile"),
            *cy.lib.elementwise("add", added_leaf, like="tile", mems=[REGISTER, SHARED]),
            *cy.lib.copy("copy", like="tile", stage=SHARED),
        ]
    ))  # fmt: skip
    assert program.show("event").count("copy S") == 1
    for columns in (96, 0):  # of none, no loop has an iteration
        a, b, s = integers(72, columns), integers(columns, 72), integers(72, 72, seed=1)
        ours, wanted = (np.ones((72, 72), np.float16) for _ in range(2))
        program(ours, a, b, s)
        program.interpret(wanted, a, b, s)
        turns = 2 * columns // 32 + 1
        np.testing.assert_array_equal(ours, 2 * a.astype(int) @ b.astype(int) + turns * s)
        np.testing.assert_array_equal(wanted, ours)


def test_rows_that_end_inside_16_bytes_are_refused_by_name(mapping):
    program, a, b = cy.program(mapping), integers(64, 36), integers(36, 64)
    with pytest.raises(ArgumentError, match="rows of A end inside 16 bytes") as caught:
        program(np.zeros((64, 64), np.float16), a, b)
    assert caught.value.remedy == "pad it to 40 columns"
    program.sequential(made := np.zeros((64, 64), np.float16), a, b)
    np.testing.assert_array_equal(made, a.astype(int) @ b.astype(int))


def test_an_instance_of_the_library_stands_where_it_was_asked_for():
    for made in (cy.lib.clear("clear", like="tile"), cy.lib.mma("tile", WGS=1)):
        assert {each.place.file for each in made} == {__file__}


# --- GEMM and the sums of the rows of A, at every tile of a row -----------------------------------

R32, T32 = cy.Tensor[f32, 1], cy.Tensor[f32, 2]


@cy.inner("gs", reads="A B", writes="C Y")
def sums_host(C: T16, Y: T32, A: T16, B: T16, *, U: int, V: int):
    c, a, y = cy.blocks(C, (U, V)), cy.blocks(A, (U, A.shape[1])), cy.blocks(Y, (1, U))
    b = cy.blocks(B, (B.shape[0], V))
    for i, j in cy.prange(*c.grid):
        cy.launch("gs", c[i, j], y[j, i], a[i, 0], b[0, j])


@cy.inner("gs", reads="A B", writes="C Y")
def sums_block(C: T16, Y: T32, A: T16, B: T16, *, W: int):
    a, b = cy.blocks(A, (A.shape[0], W)), cy.blocks(B, (W, B.shape[1]))
    acc = cy.make_tensor(f32, C.shape)
    total = cy.make_tensor(f32, (Y.shape[1],))
    cy.launch("clear", acc)
    cy.launch("clear", total)
    for k in cy.srange(a.grid[1]):
        cy.launch("mma", acc, a[0, k], b[k, 0])
        cy.launch("sum", total, a[0, k])
    cy.launch("copy", C, acc)
    cy.launch("row", Y, total)


@cy.inner("sum", reads="R A", writes="R")
def sum_tile(R: R32, A: T16, *, WGS: int):
    r = cy.blocks(R, (R.shape[0] // WGS,))
    a = cy.blocks(A, (A.shape[0] // WGS, A.shape[1]))
    for i in cy.prange(WGS):
        cy.launch("sum", r[i], a[i, 0])


@cy.leaf("sum", reads="R A", writes="R")
def sum_leaf(R, A):
    return R + tl.sum(A.to(tl.float32), 1)


@cy.inner("row", reads="R", writes="Y")
def row_tile(Y: T32, R: R32, *, WGS: int):
    y, r = cy.blocks(Y, (1, Y.shape[1] // WGS)), cy.blocks(R, (R.shape[0] // WGS,))
    for i in cy.prange(WGS):
        cy.launch("row", y[0, i], r[i])


@cy.leaf("row", reads="R", writes="Y")
def row_leaf(Y, R):
    return R[None, :]


def sums_mapping(groups, **how):
    names = ["clear", "clear_sum", "tile", "sum", "copy", "row"]
    rows = 64 * groups
    wgs = {"WGS": groups}
    return cy.Mapping(
        [
            I("h", sums_host, HOST, [GLOBAL] * 4, {"U": rows, "V": 64}, calls=["b"], entry=True),
            I("b", sums_block, BLOCK, [GLOBAL] * 4, {"W": 32}, calls=names, **how),
            *cy.lib.mma("tile", WGS=groups, N=64),
            I("sum", sum_tile, BLOCK, [NONE, SHARED], wgs, calls=["sum_leaf"]),
            I("sum_leaf", sum_leaf, WARPGROUP, [REGISTER, SHARED]),
            *cy.lib.clear("clear", like="tile"),
            *cy.lib.clear("clear_sum", like="sum"),
            *cy.lib.copy("copy", like="tile", stage=SHARED),
            I("row", row_tile, BLOCK, [GLOBAL, NONE], wgs, calls=["row_leaf"]),
            I("row_leaf", row_leaf, WARPGROUP, [GLOBAL, REGISTER]),
        ]
    )


@pytest.mark.parametrize(
    ("groups", "how"),
    [
        (1, {}),
        (2, {"specialize": True, "pipeline": 2}),
        (3, {"specialize": True, "pipeline": 3, "persistent": True}),
    ],
)
def test_sums_of_rows_beside_a_product(groups, how):
    program = cy.program(sums_mapping(groups, **how))
    for m, n, k in ((200, 136, 40), (8, 8, 0)):
        a, b = integers(m, k), integers(k, n)
        outs = [(np.ones((m, n), np.float16), np.ones((-(-n // 64), m), np.float32)) for _ in "12"]
        program(*outs[0], a, b)
        program.sequential(*outs[1], a, b)
        for ours, wanted in zip(*outs, strict=True):
            np.testing.assert_array_equal(ours, wanted)
        np.testing.assert_array_equal(outs[0][0], a.astype(int) @ b.astype(int))
        np.testing.assert_array_equal(outs[0][1], [a.astype(int).sum(1)] * -(-n // 64))
