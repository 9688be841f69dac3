"""Which thread has which element: parts by blocks over warps and threads, and `tensor` lines."""

from __future__ import annotations

from math import gcd, prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tawa
import tawa.cypress as cy
import tawa.language as tl
from tawa.cypress import BLOCK, GLOBAL, HOST, REGISTER, SHARED, THREAD, WARP, WARPGROUP, f16, f32
from tawa.cypress.kernels import gemm
from tawa.errors import MappingError, PlanError
from tawa.plan.text import parse_plan
from tawa.runtime.descriptors import TensorDescriptor

I, T16, V32 = cy.Instance, cy.Tensor[f16, 2], cy.Tensor[f32, 1]


def integers(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).integers(-2, 3, shape).astype(np.float16)


# --- element by element ---------------------------------------------------------------------------


@cy.inner("add", reads="A B", writes="C")
def add_host(C: T16, A: T16, B: T16, *, U: int, V: int):
    c, a, b = (cy.blocks(t, (U, V)) for t in (C, A, B))
    for i, j in cy.prange(*c.grid):
        cy.launch("add", c[i, j], a[i, j], b[i, j])


@cy.inner("add", reads="A B", writes="C")
def add_parted(C: T16, A: T16, B: T16, *, M: int, N: int):
    c, a, b = (cy.blocks(t, (t.shape[0] // M, t.shape[1] // N)) for t in (C, A, B))
    for i, j in cy.prange(M, N):
        cy.launch("add", c[i, j], a[i, j], b[i, j])


@cy.leaf("add", reads="A B", writes="C")
def add_leaf(C, A, B):
    return tl.where(A > B, A - B, A + B) * 2


def added(groups=1, grid=(4, 1), threads=(8, 4), memory=SHARED, stage=None, **other):
    """A sum of matrices whose tiles warpgroups share by rows, warps and threads in grids."""
    mems = [GLOBAL, memory, memory]
    steps = (("wgs", BLOCK, (groups, 1)), ("warps", WARPGROUP, grid), ("lanes", WARP, threads))
    calls = ["warps", "lanes", "leaf"]
    return cy.Mapping(
        [
            I("host", add_host, HOST, [GLOBAL] * 3, {"U": 64, "V": 128}, calls=["wgs"], entry=True),
            *(
                I(name, other.get(name, add_parted), level, mems, {"M": m, "N": n}, calls=[below])
                for (name, level, (m, n)), below in zip(steps, calls, strict=True)
            ),
            I("leaf", add_leaf, THREAD, mems, stage=stage),
        ]
    )


def agree(program):
    a, b = integers(72, 136), integers(72, 136, seed=1)
    ours, wanted = np.zeros_like(a), np.zeros_like(a)
    program(ours, a, b)
    program.sequential(wanted, a, b)
    np.testing.assert_array_equal(ours, wanted)
    np.testing.assert_array_equal(ours, np.where(a > b, a - b, a + b) * 2)


def test_each_distribution_is_another_text_and_the_same_result():
    texts = {}
    for warps, threads in (
        ((4, 1), (8, 4)),
        ((4, 1), (1, 32)),
        ((2, 2), (16, 2)),
        ((1, 4), (2, 16)),
    ):
        for memory in (SHARED, GLOBAL):
            program = cy.program(added(1, warps, threads, memory))
            made = program.compile()
            assert made.proof.ok
            texts[made.asm["cuda"]] = warps, threads, memory
            plan = program.show("plan")
            assert str(parse_plan(plan)) == plan == str(made.plan)
            agree(program)
    assert len(texts) == 8
    wanted = "tensor C layout=64x128;r[2:(0,1);32:(1,0)];l[16:(0,2);2:(32,0)];w[4:(0,32)]\n"
    assert wanted in plan


grids = st.sampled_from([(m, n) for m in (1, 2, 4) for n in (1, 2, 4) if m * n == 4])
lanes = st.sampled_from([(1, 32), (2, 16), (4, 8), (8, 4), (16, 2)])


@settings(max_examples=12, deadline=None)
@given(st.sampled_from([1, 2]), grids, lanes, st.sampled_from([SHARED, GLOBAL]), st.booleans())
def test_any_grids_of_warps_and_threads_give_the_same(groups, warps, threads, memory, staged):
    stage = SHARED if staged else None
    agree(cy.program(added(groups, warps, threads, memory, stage=stage)))


# --- sums of rows ---------------------------------------------------------------------------------


@cy.inner("sums", reads="A", writes="Y")
def sums_host(Y: V32, A: T16, *, U: int):
    y, a = cy.blocks(Y, (U,)), cy.blocks(A, (U, A.shape[1]))
    for i in cy.prange(y.grid[0]):
        cy.launch("sums", y[i], a[i, 0])


@cy.inner("sums", reads="A", writes="Y")
def sums_block(Y: V32, A: T16, *, W: int):
    a = cy.blocks(A, (A.shape[0], W))
    total = cy.make_tensor(f32, Y.shape)
    cy.launch("clear", total)
    for k in cy.srange(a.grid[1]):
        cy.launch("sum", total, a[0, k])
    cy.launch("out", Y, total)


@cy.inner("sum", reads="R A", writes="R")
def sum_parted(R: V32, A: T16, *, N: int):
    r, a = cy.blocks(R, (R.shape[0] // N,)), cy.blocks(A, (A.shape[0] // N, A.shape[1]))
    for i in cy.prange(N):
        cy.launch("sum", r[i], a[i, 0])


@cy.leaf("sum", reads="R A", writes="R")
def sum_leaf(R, A):
    return R + tl.sum(A.to(tl.float32), 1)


@cy.leaf("clear", writes="R")
def clear_leaf(R):
    return tl.zeros(R.shape, R.dtype)


@cy.leaf("out", reads="R", writes="Y")
def out_leaf(Y, R):
    return R


def summed(threads: bool, groups=1, **how):
    """Sums of rows: a thread each its own row, or as the compiler parts a warpgroup's."""
    mems = [REGISTER, SHARED]
    below = [
        I("warps", sum_parted, WARPGROUP, mems, {"N": 4}, calls=["lanes"]),
        I("lanes", sum_parted, WARP, mems, {"N": 32}, calls=["leaf"]),
    ]
    level, first = (THREAD, "warps") if threads else (WARPGROUP, "leaf")
    calls = ["clear", "sum", "out"]
    host = {"U": 128 * groups}
    return cy.Mapping(
        [
            I("host", sums_host, HOST, [GLOBAL] * 2, host, calls=["block"], entry=True),
            I("block", sums_block, BLOCK, [GLOBAL] * 2, {"W": 32}, calls=calls, **how),
            I("sum", sum_parted, BLOCK, [cy.NONE, SHARED], {"N": groups}, calls=[first]),
            *(below if threads else ()),
            I("leaf", sum_leaf, level, mems),
            I("clear", clear_leaf, level, [REGISTER], like="sum"),
            I("out", out_leaf, level, [GLOBAL, REGISTER], like="sum"),
        ]
    )


@pytest.mark.parametrize(
    ("groups", "how"),
    [
        (1, {}),
        (1, {"pipeline": 3}),
        (2, {"specialize": True, "pipeline": 3}),
        (1, {"specialize": True, "pipeline": cy.auto}),
    ],
)
def test_a_thread_may_have_a_row_of_its_own(groups, how):
    a = integers(200, 80)
    for threads in (False, True):
        program = cy.program(summed(threads, groups, **how))
        made = program.compile()
        assert made.proof.ok
        # Who has a row alone asks nobody else.
        assert ("shfl" in made.asm["cuda"]) is not threads
        ours, wanted = np.ones(200, np.float32), np.ones(200, np.float32)
        program(ours, a)
        program.sequential(wanted, a)
        np.testing.assert_array_equal(ours, wanted)
        np.testing.assert_array_equal(ours, a.astype(int).sum(1))


# --- what a loop carries, vectors along both dimensions, a transposed result ----------------------


@cy.inner("turn", reads="A B E", writes="C")
def turn_host(C: T16, A: T16, B: V32, E: V32, *, U: int, V: int):
    cy.same(A.shape[0], B.shape[0])
    cy.same(A.shape[1], E.shape[0])
    c, a, b, e = (cy.blocks(t, s) for t, s in ((C, (V, U)), (A, (U, V)), (B, (U,)), (E, (V,))))
    for i in cy.prange(a.grid[0]):
        cy.launch("turn", c[0, i], a[i, 0], b[i], e[0])


@cy.inner("turn", reads="A B E", writes="C")
def turn_block(C: T16, A: T16, B: V32, E: V32):
    acc = cy.make_tensor(f32, A.shape)
    cy.launch("clear", acc)
    for _ in cy.srange(2):
        cy.launch("step", acc, A, B, E)
    cy.launch("out", C, acc)


@cy.inner("step", reads="R A B E", writes="R")
def step_parted(R: cy.Tensor[f32, 2], A: T16, B: V32, E: V32, *, M: int, N: int):
    r, a = (cy.blocks(t, (t.shape[0] // M, t.shape[1] // N)) for t in (R, A))
    b, e = cy.blocks(B, (B.shape[0] // M,)), cy.blocks(E, (E.shape[0] // N,))
    for i, j in cy.prange(M, N):
        cy.launch("step", r[i, j], a[i, j], b[i], e[j])


@cy.leaf("step", reads="R A B E", writes="R")
def step_leaf(R, A, B, E):
    return R * 0.5 + A.to(tl.float32) * B[:, None] + E[None, :]


@cy.inner("out", reads="R", writes="C")
def out_parted(C: T16, R: cy.Tensor[f32, 2], *, M: int, N: int):
    c = cy.blocks(C, (C.shape[0] // N, C.shape[1] // M))
    r = cy.blocks(R, (R.shape[0] // M, R.shape[1] // N))
    for i, j in cy.prange(M, N):
        cy.launch("out", c[j, i], r[i, j])


@cy.leaf("out", reads="R", writes="C")
def turned_leaf(C, R):
    return R.T.to(C.dtype)


def steps(name, parted, leaf, mems, grids, stage=None):
    above = [cy.NONE if memory == REGISTER else memory for memory in mems]
    names = [name, f"{name}_warps", f"{name}_lanes", f"{name}_leaf"]
    for n, (level, (m, k)) in enumerate(zip((BLOCK, WARPGROUP, WARP), grids, strict=True)):
        given = above if level == BLOCK else mems
        yield I(names[n], parted, level, given, {"M": m, "N": k}, calls=[names[n + 1]])
    yield I(names[3], leaf, THREAD, mems, stage=stage)


@settings(max_examples=5, deadline=None)
@given(st.data())
def test_two_leaves_part_what_a_loop_carries_alike(data):
    groups = data.draw(st.sampled_from([1, 2, 3]))
    grids_of = ((groups, 1), data.draw(grids), data.draw(lanes))
    rows, columns = (prod(each) for each in zip(*grids_of, strict=True))
    # Extents are powers of two, or multiples of eight.
    U, V = (n * 8 // gcd(n, 8) for n in (rows, columns))
    roles = data.draw(st.booleans())
    how = {"specialize": roles, "pipeline": data.draw(st.sampled_from([1, 2]))}
    first, stage = data.draw(st.sampled_from([SHARED, GLOBAL])), data.draw(st.booleans())
    calls, tile = ["clear", "step", "out"], {"U": U, "V": V}
    mems = [REGISTER, SHARED if roles else first, GLOBAL, GLOBAL]
    program = cy.program(
        cy.Mapping(
            [
                I("host", turn_host, HOST, [GLOBAL] * 4, tile, calls=["block"], entry=True),
                I("block", turn_block, BLOCK, [GLOBAL] * 4, calls=calls, **how),
                *steps("step", step_parted, step_leaf, mems, grids_of),
                *steps(
                    *("out", out_parted, turned_leaf, [GLOBAL, REGISTER], grids_of),
                    stage=SHARED if stage else None,
                ),
                I("clear", clear_leaf, THREAD, [REGISTER], like="step"),
            ]
        )
    )
    a, b, e = integers(2 * U - 8, V), integers(2 * U - 8).astype("f"), integers(V).astype("f")
    made = [np.zeros((V, 2 * U - 8), np.float16) for _ in range(3)]
    program(made[0], a, b, e)
    program.sequential(made[1], a, b, e)
    program.interpret(made[2], a, b, e)
    np.testing.assert_array_equal(made[0], made[1])
    np.testing.assert_array_equal(made[2], made[1])
    np.testing.assert_array_equal(made[0], (1.5 * (a * b[:, None] + e)).T)


# --- what is refused ------------------------------------------------------------------------------


@cy.inner("mma", reads="C A B", writes="C")
def mma_parted(C: cy.Tensor[f32, 2], A: T16, B: T16, *, N: int):
    c, a = (cy.blocks(t, (t.shape[0] // N, t.shape[1])) for t in (C, A))
    for i in cy.prange(N):
        cy.launch("mma", c[i, 0], a[i, 0], B)


def product_by_blocks():
    mapping = gemm.gemm(WGS=1, U=128, V=64)
    mems = [cy.NONE, SHARED, SHARED]
    for name in ("tile_wg", "tile_warp"):
        n = 4 if name == "tile_wg" else 32
        mapping = mapping.with_(name, variant=mma_parted, tunables={"N": n}, mems=mems)
    return mapping


@cy.inner("add", reads="A B", writes="C")
def transposed(C: T16, A: T16, B: T16, *, M: int, N: int):
    c, a, b = (cy.blocks(t, (t.shape[0] // M, t.shape[1] // N)) for t in (C, A, B))
    for i, j in cy.prange(M, N):
        cy.launch("add", c[i, j], a[j, i], b[i, j])


@cy.inner("add", reads="A B", writes="C")
def diagonal(C: T16, A: T16, B: T16, *, M: int, N: int):
    c, a, b = (cy.blocks(t, (t.shape[0] // M, t.shape[1] // M)) for t in (C, A, B))
    for i in cy.prange(M):
        cy.launch("add", c[i, i], a[i, i], b[i, i])


REFUSED = {
    r"is one of 2 WARPs": lambda: added(grid=(2, 1)),
    r"is one of 16 THREADs": lambda: added(threads=(4, 4)),
    r"is not the part of one of 2 WARPGROUPs": lambda: added(2, wgs=diagonal),
    r"cannot be parted: 4 by 2x2 over WARP": lambda: added(1, (2, 2), warps=transposed),
    r'"tile_leaf": C of a product is parted as 128x64 r\[': product_by_blocks,
}


@pytest.mark.parametrize("words", REFUSED)
def test_parts_that_threads_cannot_have_are_refused(words):
    with pytest.raises(MappingError, match=words) as caught:
        cy.program(REFUSED[words]())
    if "product" in words:  # both are named
        wanted = "wgmma leaves its sums as 128x64 r[2:(0,1) 2:(8,0) 8:(0,8) 2:(64,0)] l["
        assert caught.value.why.startswith(wanted)


@cy.inner("sums", reads="A", writes="Y")
def sums_last_first(Y: V32, A: T16, *, W: int):
    a = cy.blocks(A, (A.shape[0], W))
    total = cy.make_tensor(f32, Y.shape)
    cy.launch("clear", total)
    cy.launch("sum", total, a[0, a.grid[1] - 1])
    for k in cy.srange(a.grid[1] - 2):
        cy.launch("sum", total, a[0, k])
    cy.launch("sum", total, a[0, a.grid[1] - 2])
    cy.launch("out", Y, total)


def test_a_loop_between_the_loads_of_one_payload_is_refused():
    for pipeline, why in (({"A": 2}, "scf.for uses a tile before the last of them"), (2, None)):
        mapping = summed(threads=False, specialize=True, pipeline=pipeline)
        program = cy.program(mapping.with_("block", variant=sums_last_first))
        if why is None:
            a, ours = integers(128, 128), np.ones(128, np.float32)
            program(ours, a)
            np.testing.assert_array_equal(ours, a.astype(int).sum(1))
        else:
            with pytest.raises(PlanError, match=r"payload A\+A_3") as caught:
                program.compile()
            assert why in caught.value.why


@tawa.jit
def scaled(a_desc, b_desc, c_desc, K, B: tl.constexpr):
    acc = tl.zeros((64, 64), tl.float32)
    for k in range(0, K, B):
        a = a_desc.load([0, k])
        acc = tl.dot(a, b_desc.load([k, 0]), acc)
    out = acc * 2.0
    c_desc.store([0, 0], out.to(tl.float16))


LAYOUT = "64x64;r[64:(0,1)];l[16:(1,0);2:(0,0)];w[4:(16,0)]"


def with_layouts(tensors):
    given = [
        TensorDescriptor.from_tensor(np.zeros((64, n), np.float16), (64, 64)) for n in (128, 64, 64)
    ]
    return scaled.compile(*given, 128, 64, grid=(1,), tensors=tensors)


@tawa.jit
def doubled(x_ptr, y_ptr, kept, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    y = tl.load(x_ptr + at) * 2
    if kept > 0:  # no else: a region without a block
        tl.store(y_ptr + at, y + tl.sum(y, 1)[:, None])


def test_a_plain_kernel_pins_layouts_too():
    x, texts = np.arange(64 * 64, dtype=np.float32).reshape(64, 64), set()
    for layout in ("", "64x64;r[32:(0,1)];l[16:(1,0);2:(0,32)];w[4:(16,0)]"):
        y = np.zeros_like(x)
        pins = {"tensors": {"y": layout}} if layout else {}
        doubled[1,](x, y, 5, 64, 64, **pins)
        np.testing.assert_array_equal(y, 2 * x + 2 * x.sum(1, keepdims=True))
        made = doubled.compile(x, y, 5, 64, 64, grid=(1,), **pins)
        assert (f"tensor y layout={layout}" in str(made.plan)) is bool(layout)
        texts.add(made.asm["cuda"])
    assert len(texts) == 2
    half = "64x64;r[32:(0,1)];l[16:(1,0);2:(0,32)];w[4:(16,0)]"
    with pytest.raises(PlanError, match="tensor acc layout=") as caught:
        with_layouts({"acc": half})
    assert "an instruction, or the plan, has it as 64x64 r[2:(0,1)" in caught.value.why


@pytest.mark.parametrize(
    ("tensors", "why"),
    [
        ({"acc": "64 by 64"}, "it is no text of a layout"),
        ({"acc": "64x64;r[32:(0,1)];l[32:(1,0)];w[4:(16,0)]"}, "do not have each element"),
        ({"acc": "64x64;r[64:(0,1)];l[32:(1,0)];w[2:(32,0)]"}, "it is of 2 warps, and 4 hold"),
        ({"other": LAYOUT}, "tensors of the kernel of that shape are"),
        ({"a": LAYOUT}, "no role holds it"),  # products read it in shared memory
        ({"acc": LAYOUT.replace("64x64", "64x32").replace("64:(0,1)", "32:(0,1)")}, "that shape"),
    ],
)
def test_a_layout_that_is_none_is_refused(tensors, why):
    with pytest.raises(PlanError) as caught:
        with_layouts(tensors)
    assert why in caught.value.why
