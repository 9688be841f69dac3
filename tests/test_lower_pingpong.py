"""Ping-pong: warpgroups of a tile take turns, on every path, and nothing else changes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from xdsl.dialects.builtin import IntAttr

import tawa.language as tl
from tawa.codegen.generate import generate
from tawa.errors import PlanError, ProtocolError, TawaError
from tawa.frontend import build
from tawa.frontend.signature import ConstantArg, DescriptorArg, ScalarArg
from tawa.ir import hopper, tile, verify
from tawa.passes import pipeline
from tawa.plan.pins import Pins
from tawa.plan.plan import Plan
from tawa.plan.planner import plan_for
from tawa.plan.text import parse_plan, print_plan
from tawa.runtime import nvrtc
from tawa.simulator import simulate
from tawa.simulator.memory import HostDescriptor
from tawa.target import H200
from tawa.verify import verify as prove


def attention(q_desc, k_desc, v_desc, o_desc, n, BM: tl.constexpr, BN: tl.constexpr):
    row = tl.program_id(0) * BM
    q = q_desc.load([row, 0])
    top = tl.full((BM,), -1e30, tl.float32)
    total = tl.full((BM,), 1.0, tl.float32)
    acc = tl.zeros((BM, 64), tl.float32)
    for j in range(0, n, BN):
        k = k_desc.load([j, 0])
        s = tl.dot(q, k.T)
        new = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2(s - new[:, None])
        scale = tl.exp2(top - new)
        total = total * scale + tl.sum(p, 1)
        v = v_desc.load([j, 0])
        acc = tl.dot(p.to(tl.float16), v, acc * scale[:, None])
        top = new
    o_desc.store([row, 0], (acc / total[:, None]).to(tl.float16))


def filtered(q_desc, k_desc, v_desc, o_desc, n, BM: tl.constexpr, BN: tl.constexpr):
    row = tl.program_id(0) * BM
    acc = tl.zeros((BM, 64), tl.float32)
    for j in range(0, n, BN):
        q = q_desc.load([row, 0])
        v = v_desc.load([j, 0])
        acc = tl.dot(tl.exp2(q.to(tl.float32)).to(tl.float16), v, acc)
    o_desc.store([row, 0], acc.to(tl.float16))


def gemm(q_desc, k_desc, v_desc, o_desc, n, BM: tl.constexpr, BN: tl.constexpr):
    row = tl.program_id(0) * BM
    acc = tl.zeros((BM, 64), tl.float32)
    for j in range(0, n, 64):
        acc = tl.dot(q_desc.load([row, j]), v_desc.load([j, 0]), acc)
    o_desc.store([row, 0], acc.to(tl.float16))


def _tiles(function: Callable[..., None], bm: int) -> tile.Kernel:
    blocks = {"q_desc": (bm, 64), "k_desc": (64, 64), "v_desc": (64, 64), "o_desc": (bm, 64)}
    signature = {name: DescriptorArg("f16", block) for name, block in blocks.items()}
    signature |= {"n": ScalarArg("i32"), "BM": ConstantArg(bm), "BN": ConstantArg(64)}
    return build(function, signature, {})


def _lowered(
    function: Callable[..., None] = attention, bm: int = 128, **pins: object
) -> tuple[tile.Kernel, Plan]:
    kernel = _tiles(function, bm)
    pipeline.run(pipeline.TILE, kernel, Plan(), H200)
    plan = plan_for(kernel, H200, Pins(arrangement="pingpong", **pins))
    pipeline.run((*pipeline.AREF, *pipeline.HOPPER), kernel, plan, H200)
    return kernel, plan


def _turns(kernel: tile.Kernel) -> list[str]:
    return [op.kind.data for op in kernel.walk() if isinstance(op, hopper.Turn)]


def _run(kernel: tile.Kernel, bm: int, iterations: int, rows: int, **how: object) -> np.ndarray:
    rng = np.random.default_rng(iterations)
    n = 64 * iterations
    arrays = [rng.integers(-1, 2, (length, 64)) for length in (rows, max(n, 64), max(n, 64))]
    out = np.full((rows, 64), np.nan, np.float16)
    blocks = ((bm, 64), (64, 64), (64, 64), (bm, 64))
    arguments: dict[str, object] = {
        name: HostDescriptor(array, array.shape, (64, 1), block)
        for name, array, block in zip(
            ("q_desc", "k_desc", "v_desc", "o_desc"),
            (*(array.astype(np.float16) for array in arrays), out),
            blocks,
        )
    }
    simulate(kernel, (-(-rows // bm), 1, 1), {**arguments, "n": n}, **how)
    return out.astype(np.float64)


def _check(kernel: tile.Kernel, function: Callable[..., None], bm: int, iterations: int) -> None:
    rows = 5 * bm - 8  # five tiles on three blocks
    expected = _run(_tiles(function, bm), bm, iterations, rows, level="tile")
    actual = _run(kernel, bm, iterations, rows, late="random", multiprocessors=3)
    assert np.isfinite(actual).all()
    assert np.linalg.norm(expected - actual) <= 1e-3 * np.linalg.norm(expected) + 1e-9


# --- what it computes ---------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", ["none", "fine", "coarse"])
@pytest.mark.parametrize("bm", [pytest.param(128, marks=pytest.mark.long), 192])
@pytest.mark.short("192-fine", "192-coarse")
def test_attention_in_turns(schedule: str, bm: int) -> None:
    kernel, plan = _lowered(bm=bm, schedule=schedule, depth=2)
    verify(kernel)
    assert plan.arrangement == "pingpong"
    role = next(op for op in kernel.walk() if isinstance(op, hopper.Turn)).parent_op()
    assert isinstance(role, hopper.Role)
    assert role.warps.data == bm // 16
    turns = _turns(kernel)
    assert (turns[0], turns[-1]) == ("open", "close")
    assert turns.count("take") == turns.count("pass") > 0
    assert prove(kernel, H200).ok
    for iterations in range(7):
        _check(kernel, attention, bm, iterations)


def test_one_product_and_work_before_it() -> None:
    kernel, _ = _lowered(filtered)
    assert _turns(kernel) == ["open", "take", "pass", "close"]
    assert prove(kernel, H200).ok
    for iterations in (0, 1, 5):
        _check(kernel, filtered, 128, iterations)


def test_a_turn_goes_round_the_loop_where_the_softmax_stands_in_the_middle() -> None:
    kernel, _ = _lowered(schedule="fine")
    names = [
        op.kind.data if isinstance(op, hopper.Turn) else op.name.split(".")[1]
        for op in kernel.walk()
        if isinstance(op, (hopper.Turn, hopper.Wgmma)) or op.name == "scf.for"
    ]
    consumer = names[names.index("open") :]
    assert consumer == [
        *("open", "for", "take", "for"),
        *("wgmma", "pass", "take", "wgmma"),
        *("pass", "close"),
    ]


def test_one_block_for_each_tile() -> None:
    kernel, _ = _lowered(persistent=False)
    assert prove(kernel, H200).ok
    _check(kernel, attention, 128, 3)


def test_cooperative_roles_have_no_turns() -> None:
    kernel = _tiles(attention, 128)
    pipeline.run(pipeline.TILE, kernel, Plan(), H200)
    plan = plan_for(kernel, H200, Pins(arrangement="cooperative"))
    pipeline.run((*pipeline.AREF, *pipeline.HOPPER), kernel, plan, H200)
    assert not _turns(kernel)


def test_the_plan_reads_back() -> None:
    _, plan = _lowered()
    assert parse_plan(print_plan(plan)) == plan


@pytest.mark.skipif(not nvrtc.is_available(), reason="no NVRTC")
@pytest.mark.parametrize("schedule", ["fine", "coarse"])
def test_the_text_builds_without_complaint(schedule: str) -> None:
    source = generate(_lowered(schedule=schedule)[0])
    built = nvrtc.build(source, source.entry_name)
    assert built.spill_bytes == 0
    assert "C75" not in built.log


# --- every turn is needed -----------------------------------------------------------------------


@pytest.mark.parametrize("schedule", ["fine", "coarse"])
@pytest.mark.parametrize("kind", ["open", "take", "pass", "close"])
def test_the_proof_and_the_run_miss_a_turn(schedule: str, kind: str) -> None:
    kernel, _ = _lowered(schedule=schedule)
    for index in range(_turns(kernel).count(kind)):
        mutant = kernel.clone()
        op = [t for t in mutant.walk() if isinstance(t, hopper.Turn) and t.kind.data == kind][index]
        op.detach()
        op.erase()
        with pytest.raises(ProtocolError):
            prove(mutant, H200)
        with pytest.raises(TawaError):
            _run(mutant, 128, 2, 256)


@pytest.mark.parametrize("groups", [1, 3])
def test_turns_of_other_warpgroups_are_refused(groups: int) -> None:
    kernel, _ = _lowered()
    for op in kernel.walk():
        if isinstance(op, hopper.Turn):
            op.attributes["groups"] = IntAttr(groups)
    with pytest.raises(ProtocolError, match="takes turns of"):
        prove(kernel, H200)


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "bm", "pins", "reason"),
    [
        (attention, 64, {}, "two warpgroups of 64 rows"),
        (attention, 128, {"consumers": 1}, "nobody to take turns with"),
        (attention, 128, {"specialize": False}, "specialize=False"),
    ],
)
def test_refused_by_name(
    function: Callable[..., None], bm: int, pins: dict[str, object], reason: str
) -> None:
    with pytest.raises(PlanError, match=reason):
        _lowered(function, bm, **pins)


def test_a_whole_plan_is_checked_too() -> None:
    kernel = _tiles(gemm, 128)
    pipeline.run(pipeline.TILE, kernel, Plan(), H200)
    text = print_plan(plan_for(kernel, H200)).replace("=cooperative", "=pingpong")
    with pytest.raises(PlanError, match="follow one another"):
        plan_for(kernel, H200, Pins(plan=text))
