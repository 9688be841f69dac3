"""Consumers with tiles of their own, in turns: every number of tiles, of iterations, of slots."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from xdsl.dialects.builtin import IntAttr
from xdsl.ir import Operation

import tawa.language as tl
from kernel_subject import descriptor, in_rows
from tawa.codegen.generate import generate
from tawa.errors import PlanError, ProtocolError
from tawa.frontend import build
from tawa.frontend.signature import ConstantArg, DescriptorArg, ScalarArg
from tawa.ir import aref, hopper, tile, verify
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

BM, BN, BK = 64, 64, 32


def gemm(a_desc, b_desc, c_desc, d_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM
    n = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(a_desc.load([m, k]), b_desc.load([k, n]), acc)
    d_desc.store([m, n], acc.to(tl.float16))


def residual(
    a_desc, b_desc, c_desc, d_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    m = tl.program_id(0) * BM
    n = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(a_desc.load([m, k]), b_desc.load([k, n]), acc)
    c = c_desc.load([m, n])
    d_desc.store([m, n], (acc + c.to(tl.float32)).to(tl.float16))


def twice(a_desc, b_desc, c_desc, d_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM
    n = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(a_desc.load([m, k]), b_desc.load([k, n]), acc)
    for k in range(BK, K, BK):
        acc = tl.dot(a_desc.load([m, k]), b_desc.load([k, n]), acc)
    d_desc.store([m, n], acc.to(tl.float16))


def triangle(
    a_desc, b_desc, c_desc, d_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    m = tl.program_id(0) * BM
    n = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, m, BK):
        acc = tl.dot(a_desc.load([m, k]), b_desc.load([k, n]), acc)
    d_desc.store([m, n], acc.to(tl.float16))


def _tiles(function: Callable[..., None], bm: int = BM) -> tile.Kernel:
    blocks = {"a_desc": (bm, BK), "b_desc": (BK, BN), "c_desc": (bm, BN), "d_desc": (bm, BN)}
    signature = {name: DescriptorArg("f16", block) for name, block in blocks.items()}
    constants = {"BM": bm, "BN": BN, "BK": BK}
    signature |= {"K": ScalarArg("i32")}
    signature |= {name: ConstantArg(value) for name, value in constants.items()}
    return build(function, signature, {})


def _planned(
    function: Callable[..., None], bm: int = BM, **pins: object
) -> tuple[tile.Kernel, Plan]:
    kernel = _tiles(function, bm)
    pipeline.run(pipeline.TILE, kernel, Plan(), H200)
    return kernel, plan_for(kernel, H200, Pins(**{"arrangement": "pingpong", **pins}))


def _lowered(function: Callable[..., None] = gemm, bm: int = BM, **pins: object) -> tile.Kernel:
    kernel, plan = _planned(function, bm, **pins)
    pipeline.run((*pipeline.AREF, *pipeline.HOPPER), kernel, plan, H200)
    verify(kernel)
    return kernel


def _arguments(rows: int, columns: int, k: int, bm: int) -> dict[str, object]:
    rng = np.random.default_rng(rows + columns + k)
    shapes = {"a_desc": (rows, k), "b_desc": (k, columns), "c_desc": (rows, columns)}
    blocks = {"a_desc": (bm, BK), "b_desc": (BK, BN), "c_desc": (bm, BN), "d_desc": (bm, BN)}
    arrays = {
        name: rng.integers(-2, 3, [max(8, extent) for extent in shape]).astype(np.float16)
        for name, shape in shapes.items()
    }
    arrays["d_desc"] = np.full((rows, columns), np.nan, np.float16)
    return {
        **{name: descriptor(in_rows(array), blocks[name]) for name, array in arrays.items()},
        "K": k,
    }


def _run(
    kernel: tile.Kernel, rows: int, columns: int, k: int, bm: int = BM, **how: object
) -> np.ndarray:
    arguments = _arguments(rows, columns, k, bm)
    simulate(kernel, (-(-rows // bm), -(-columns // BN), 1), arguments, **how)
    out = arguments["d_desc"]
    assert isinstance(out, HostDescriptor)
    return np.asarray(out.base, np.float64)


def _check(
    function: Callable[..., None],
    kernel: tile.Kernel,
    rows: int,
    columns: int,
    k: int,
    bm: int,
    blocks: int = 2,
) -> None:
    expected = _run(_tiles(function, bm), rows, columns, k, bm, level="tile")
    actual = _run(kernel, rows, columns, k, bm, late="random", multiprocessors=blocks)
    assert np.array_equal(expected, actual)


# --- what it computes ---------------------------------------------------------------------------


@pytest.mark.parametrize(("instances", "depth"), [(2, 1), (2, 2), (2, 3), (3, 2)])
@pytest.mark.short("3-2", "2-1")
def test_every_trip_count(instances: int, depth: int) -> None:
    kernel = _lowered(consumers=instances, depth=depth)
    labels = [op.label.data for op in kernel.walk() if isinstance(op, hopper.Role)]
    assert labels == ["load", *(f"mma{index}" for index in range(instances))]
    assert prove(kernel, H200).ok
    for iterations in range(2 * depth + 3):
        _check(gemm, kernel, 200, 100, iterations * BK, BM)


@pytest.mark.parametrize("instances", [2, 3])
def test_every_number_of_tiles(instances: int) -> None:
    kernel = _lowered(consumers=instances, depth=2)
    for rows in range(1, 9):  # on two blocks: 0 to 4 tiles each, uneven
        _check(gemm, kernel, rows * BM, BN, 3 * BK, BM)


@pytest.mark.parametrize(("instances", "depth"), [(2, 1), (2, 3), (3, 2)])
@pytest.mark.short("3-2", "2-1")
def test_every_trip_count_in_pairs_of_blocks(instances: int, depth: int) -> None:
    kernel = _lowered(consumers=instances, depth=depth, cluster=2)
    # One instance of each block frees a slot that both fill.
    assert {op.arrivals.data for op in kernel.walk() if isinstance(op, hopper.Barriers)} == {1, 2}
    assert prove(kernel, H200).ok
    for iterations in range(2 * depth + 3):
        _check(gemm, kernel, 200, 100, iterations * BK, BM, 4)


@pytest.mark.parametrize("instances", [2, 3])
def test_every_number_of_tiles_in_pairs_of_blocks(instances: int) -> None:
    kernel = _lowered(consumers=instances, depth=2, cluster=2)
    for rows in range(1, 14, 2):  # on one pair: 1 to 7 tiles each, the last one past the grid
        _check(gemm, kernel, rows * BM, BN, 3 * BK, BM)


def test_rings_of_several_loops_in_pairs_of_blocks() -> None:
    kernel = _lowered(twice, depth=2, cluster=2)
    assert prove(kernel, H200).ok
    for iterations in (0, 1, 2, 5):
        _check(twice, kernel, 300, 100, iterations * BK, BM, 4)


@pytest.mark.parametrize("function", [residual, twice])
def test_rings_of_several_loops(function: Callable[..., None]) -> None:
    kernel = _lowered(function, depth=2)
    assert prove(kernel, H200).ok
    for iterations in (0, 1, 2, 5):
        _check(function, kernel, 300, 100, iterations * BK, BM)


@pytest.mark.parametrize("pins", [{"ceiling": 30_000}, {"ceiling": 65_536, "depth": 3}])
def test_each_instance_stores_through_the_slot_of_its_tile(pins: dict[str, int]) -> None:
    """Each slot has one instance that waits for it, reads it and writes into it."""
    kernel, plan = _planned(residual, **pins)
    assert (bool(plan.stores[0].stage), plan.roles[1].instances) == (True, 2)
    pipeline.run((*pipeline.AREF, *pipeline.HOPPER), kernel, plan, H200)
    prove(kernel, H200)
    for rows, k in ((BM, 0), (2 * BM, 3 * BK), (5 * BM, 2 * BK)):
        _check(residual, kernel, rows, BN, k, BM, blocks=1)
    given = [op for op in kernel.walk() if isinstance(op, hopper.BulkWait) and op.read is not None]
    assert given
    for wait in given:  # a slot is given back while its store is read out of it
        broken = kernel.clone()
        index = list(kernel.walk()).index(wait)
        next(op for n, op in enumerate(broken.walk()) if n == index).detach()
        with pytest.raises(ProtocolError):
            prove(broken, H200)


def test_a_warpgroup_of_two_products_in_rows() -> None:
    kernel = _lowered(bm=128)
    assert prove(kernel, H200).ok
    _check(gemm, kernel, 300, 100, 3 * BK, 128)


def test_aref_level_agrees() -> None:
    kernel, plan = _planned(residual, depth=2)
    pipeline.run(pipeline.AREF, kernel, plan, H200)
    skips = [op for op in kernel.walk() if isinstance(op, aref.GetSkip)]
    assert len(skips) == 4  # two rings, before the tiles and between them
    for rows in (64, 200, 300):
        expected = _run(_tiles(residual), rows, 100, 96, level="tile")
        assert np.array_equal(
            expected, _run(kernel, rows, 100, 96, level="aref", multiprocessors=2)
        )


@pytest.mark.skipif(not nvrtc.is_available(), reason="no NVRTC")
def test_the_text_builds_without_complaint() -> None:
    source = generate(_lowered())
    built = nvrtc.build(source, source.entry_name)
    assert built.spill_bytes == 0
    assert "C75" not in built.log


def test_the_plan_reads_back() -> None:
    kernel, plan = _planned(gemm)
    assert [(role.label, role.warps, role.instances) for role in plan.roles] == [
        ("load", 4, 1),
        ("mma", 4, 2),
    ]
    assert parse_plan(print_plan(plan)) == plan
    assert plan_for(kernel, H200, Pins(plan=print_plan(plan))) == plan


# --- every part is needed -----------------------------------------------------------------------


def _turns(kernel: tile.Kernel) -> Iterator[Operation]:
    for op in kernel.walk():
        if isinstance(op, hopper.NamedBarrier) and op.scope.data == "roles":
            yield op


@pytest.mark.parametrize("cluster", [1, 2])
def test_the_proof_misses_every_turn(cluster: int) -> None:
    kernel = _lowered(depth=2, cluster=cluster)
    count = len(list(_turns(kernel)))
    assert count == 4
    for index in range(count):
        mutant = kernel.clone()
        op = list(_turns(mutant))[index]
        op.detach()
        op.erase()
        with pytest.raises(ProtocolError):
            prove(mutant, H200)


def test_the_proof_misses_every_arrive_and_count_in_pairs_of_blocks() -> None:
    kernel = _lowered(depth=2, cluster=2)
    arrives = [op for op in kernel.walk() if isinstance(op, hopper.Arrive)]
    for index in range(len(arrives)):
        for dropped in (True, False):
            mutant = kernel.clone()
            op = [op for op in mutant.walk() if isinstance(op, hopper.Arrive)][index]
            if dropped:
                op.detach()
                op.erase()
            else:
                del op.attributes["cluster"]
            with pytest.raises(ProtocolError):
                prove(mutant, H200)
    for count in (1, 3):
        mutant = kernel.clone()
        freed = [op for op in mutant.walk() if isinstance(op, hopper.Barriers)][1]
        freed.attributes["arrivals"] = IntAttr(count)
        with pytest.raises(ProtocolError):
            prove(mutant, H200)


@pytest.mark.parametrize("index", [0, 1])
def test_a_skip_that_is_missing_is_found(index: int) -> None:
    kernel, plan = _planned(gemm, depth=2)
    pipeline.run(pipeline.AREF, kernel, plan, H200)
    skip = [op for op in kernel.walk() if isinstance(op, aref.GetSkip)][index]
    skip.detach()
    skip.erase()
    with pytest.raises(ProtocolError):
        _run(kernel.clone(), 300, 64, 96, level="aref", multiprocessors=1)
    pipeline.run(pipeline.HOPPER, kernel, plan, H200)
    with pytest.raises(ProtocolError):
        prove(kernel, H200)


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "bm", "pins", "reason"),
    [
        (triangle, 64, {}, r"for k@\d+ may load .* another number of times in another tile"),
        (gemm, 32, {}, "a multiple of 64 rows"),
        (gemm, 64, {"consumers": 1}, "two or three warpgroups"),
        (gemm, 64, {"persistent": False}, "not persistent has one a block"),
        (gemm, 64, {"specialize": False}, "specialize=False"),
    ],
)
def test_refused_by_name(
    function: Callable[..., None], bm: int, pins: dict[str, object], reason: str
) -> None:
    with pytest.raises(PlanError, match=reason):
        _planned(function, bm, **pins)


def test_a_whole_plan_is_checked_too() -> None:
    _, plan = _planned(gemm)
    kernel, _ = _planned(triangle, arrangement=None)
    lines = print_plan(plan).splitlines()
    text = "\n".join(line for line in lines if line.split()[0] in ("plan", "role"))
    with pytest.raises(PlanError, match="another number of times"):
        plan_for(kernel, H200, Pins(plan=text))
