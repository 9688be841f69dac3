"""The concurrent run on small hopper kernels: one mechanism of the hardware each."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects.builtin import StringAttr
from xdsl.rewriter import Rewriter

import simulator_samples as hs
from simulator_samples import (
    BF16,
    INT,
    SYNC,
    Types,
    arrive,
    barriers,
    bulk_wait,
    c32,
    expect,
    host,
    make_barriers,
    named,
    one_thread,
    program,
    role,
    some_seed_raises,
    wait,
    without,
)
from tawa.errors import ProtocolError
from tawa.ir import hopper, parse
from tawa.simulator import simulate
from tawa.simulator.machine import launch_blocks

SEEDS = range(3)
LATE = ("random", "late", "early")
CONSTANTS = c32("zero", 0) + c32("one", 1) + c32("rows", 64)


def advance(prefix: str, depth: str) -> str:
    """Turn %slot and %phase into %{prefix}slot and %{prefix}phase."""
    return f"""
      %{prefix}n = tile.elementwise "add"(%slot, %one) : (i32, i32) -> i32
      %{prefix}w = tile.elementwise "eq"(%{prefix}n, %{depth}) : (i32, i32) -> i1
      %{prefix}slot = tile.elementwise "select"(%{prefix}w, %zero, %{prefix}n) :
        (i1, i32, i32) -> i32
      %{prefix}f = tile.elementwise "xor"(%phase, %one) : (i32, i32) -> i32
      %{prefix}phase = tile.elementwise "select"(%{prefix}w, %{prefix}f, %phase) :
        (i1, i32, i32) -> i32
      """


# --- a persistent kernel: TMA in, registers, shared memory, TMA out ------------------------------


def relay(depth: int = 2, warps: int = 4):
    """y = 2 x, tile of 64 x 64 by tile; the grid's x is the number of tiles."""
    tile_ = Types(slots=depth, warps=warps)
    stage = Types(warps=warps)
    groups = warps // 4
    loop = f"""
      %first = hopper.block_id {{axis = {INT}<0>}} : i32
      %by = hopper.num_blocks {{axis = {INT}<0>}} : i32
      %tiles = hopper.grid_extent {{axis = {INT}<0>}} : i32
      """
    load = (
        CONSTANTS + c32("depth", depth) + loop + "%s, %p = scf.for %t = %first to %tiles step %by "
        "iter_args(%slot = %zero, %phase = %one) -> (i32, i32) : i32 {\n"
        '%m = tile.elementwise "mul"(%t, %rows) : (i32, i32) -> i32\n'
        + wait("freed", "slot", "phase", depth)
        + expect("filled", "slot", tile_.bytes, depth)
        + tile_.slot("v", "ring", "slot")
        + tile_.tma_load("x_map", "m", "zero", "v", "filled", "slot")
        + advance("x", "depth")
        + "scf.yield %xslot, %xphase : i32, i32\n}\n"
    )
    main = (
        CONSTANTS + c32("depth", depth) + loop + "%s, %p = scf.for %t = %first to %tiles step %by "
        "iter_args(%slot = %zero, %phase = %zero) -> (i32, i32) : i32 {\n"
        '%m = tile.elementwise "mul"(%t, %rows) : (i32, i32) -> i32\n'
        + wait("filled", "slot", "phase", depth)
        + tile_.slot("v", "ring", "slot")
        + tile_.load("r", "v")
        + "hopper.proxy_fence\n"
        + arrive("freed", "slot", "warp", depth)
        + f'%d = tile.elementwise "add"(%r, %r) : ({tile_.tensor}, {tile_.tensor}) -> '
        + f"{tile_.tensor}\n"
        + bulk_wait("warpgroup", read=True)
        + named("sync", 1, "warpgroup", 128)
        + stage.slot("o", "stage", "zero")
        + stage.store("d", "o")
        + "hopper.proxy_fence\n"
        + named("sync", 1, "warpgroup", 128)
        + stage.tma_store("y_map", "m", "zero", "o", "warpgroup", 64 // groups)
        + 'hopper.bulk_commit {by = "warpgroup"}\n'
        + advance("x", "depth")
        + "scf.yield %xslot, %xphase : i32, i32\n}\n"
        + bulk_wait("warpgroup")
    )
    size = depth * tile_.bytes
    body = (
        tile_.make_map("x_map", "x")
        + tile_.make_map("y_map", "y", rows=64 // groups)
        + tile_.make_buffer("ring")
        + stage.make_buffer("stage", size)
        + make_barriers("filled", size + stage.bytes, 1, depth)
        + make_barriers("freed", size + stage.bytes + 8 * depth, warps, depth)
        + SYNC
        + role("load", 0, 4, one_thread(load))
        + role("main", 4, warps, main)
    )
    # Types of ring and stage differ in their slots only.
    return program({"x": tile_.desc, "y": tile_.desc}, body, persistent=True)


def run_relay(kernel, tiles: int = 7, blocks: int = 2, **how):
    x = np.random.default_rng(tiles).integers(-9, 9, (64 * tiles, 64)).astype(BF16)
    y = np.full(x.shape, np.nan, BF16)
    arguments = {"x": host(x, (64, 64)), "y": host(y, (64, 64))}
    simulate(kernel, (tiles, 1, 1), arguments, multiprocessors=blocks, **how)
    return x, y


def test_a_group_of_no_stores_needs_no_wait() -> None:
    """It is complete at once: PTX ISA, cp.async.bulk.commit_group."""
    text = str(relay(warps=4))
    end = text.index("\n", text.rindex("hopper.bulk_wait"))
    kernel = parse(f'{text[:end]}\nhopper.bulk_commit {{by = "warpgroup"}}{text[end:]}')
    x, y = run_relay(kernel, 2)
    assert np.array_equal(y, x + x)


@pytest.mark.parametrize("late", LATE)
@pytest.mark.parametrize("warps", [4, 8])
@pytest.mark.parametrize("tiles", [0, 1, 2, 7])
def test_a_persistent_kernel(tiles, warps, late):
    kernel = relay(warps=warps)
    for seed in SEEDS:
        x, y = run_relay(kernel, tiles, seed=seed, late=late)
        assert np.array_equal(y, x + x)


def test_launch_blocks():
    kernel = relay()
    assert launch_blocks(kernel, (7,), 2) == (2, 1, 1)
    assert launch_blocks(kernel, (7, 3), 132) == (21, 1, 1)
    assert launch_blocks(kernel, (0,), 2) == (0, 1, 1)
    assert launch_blocks(program({}, "", cluster=2), (7, 3), 2) == (8, 3, 1)
    assert launch_blocks(program({}, "", cluster=2, persistent=True), (7, 3), 5) == (4, 1, 1)


@pytest.mark.parametrize(
    ("name", "number", "message"),
    [
        ("hopper.bulk_wait", 0, "race on shared memory"),  # the stage is written too early
        ("hopper.named_barrier", 0, "race on shared memory"),  # only one thread has waited
        ("hopper.named_barrier", 1, "race on shared memory"),
        ("hopper.proxy_fence", 0, "async proxy need not see the first"),
        ("hopper.proxy_fence", 1, "async proxy need not see the first"),
        ("hopper.arrive", 0, "deadlock"),
        ("hopper.wait", 0, "race on shared memory|gets more than"),
        ("hopper.wait", 1, "before anything was written|race"),
    ],
)
@pytest.mark.parametrize("late", LATE)
def test_what_a_persistent_kernel_needs(name, number, message, late):
    mutant = without(relay(), name, number)
    with pytest.raises(ProtocolError, match=message):
        run_relay(mutant, late=late)


def test_one_elected_arrive_does_not_speak_for_other_warps():
    text = str(relay())
    mutant = hs.ir.parse(
        text.replace('{by = "warp"}', '{by = "warpgroup"}').replace(
            f"arrivals = {INT}<4>", f"arrivals = {INT}<1>"
        )
    )
    with pytest.raises(ProtocolError, match="race on shared memory"):
        run_relay(mutant)


# --- clusters -------------------------------------------------------------------------------------


def multicast():
    """Blocks of a cluster of two each load half of one tile and send it to both; y = x twice."""
    tile_ = Types()
    load = (
        CONSTANTS
        + expect("filled", "zero", tile_.bytes)
        + tile_.slot("v", "ring", "zero")
        + tile_.tma_load(
            "x_map", "zero", "zero", "v", "filled", "zero", f"multicast = {INT}<2>", rows=32
        )
        + wait("freed", "zero", "zero")
    )
    main = (
        CONSTANTS
        + f"%b = hopper.block_id {{axis = {INT}<0>}} : i32\n"
        + '%m = tile.elementwise "mul"(%b, %rows) : (i32, i32) -> i32\n'
        + wait("filled", "zero", "zero")
        + tile_.slot("v", "ring", "zero")
        + tile_.load("r", "v")
        + "hopper.proxy_fence\n"
        + arrive("freed", "zero", "warp", cluster=2)
        + f"tile.desc_store %y[%m, %zero], %r : {tile_.desc}, i32, i32, {tile_.tensor}\n"
    )
    body = (
        tile_.make_map("x_map", "x", rows=32)
        + tile_.make_buffer("ring")
        + make_barriers("filled", 8192, 1)
        + make_barriers("freed", 8200, 8)
        + "hopper.fence_barrier_init\nhopper.cluster_sync\n"
        + role("load", 0, 1, one_thread(load))
        + role("main", 4, 4, main)
        + "hopper.cluster_sync\n"
    )
    return program({"x": tile_.desc, "y": tile_.desc}, body, cluster=2)


def run_multicast(kernel, **how):
    x = np.random.default_rng(1).integers(-9, 9, (64, 64)).astype(BF16)
    y = np.full((256, 64), np.nan, BF16)
    simulate(kernel, (4, 1, 1), {"x": host(x, (64, 64)), "y": host(y, (64, 64))}, **how)
    return x, y


@pytest.mark.parametrize("late", LATE)
def test_multicast(late):
    for seed in SEEDS:
        x, y = run_multicast(multicast(), seed=seed, late=late)
        assert np.array_equal(y, np.concatenate([x] * 4))


@pytest.mark.parametrize(
    ("name", "number", "message"),
    [
        ("hopper.cluster_sync", 0, "set up its barriers|initialis|never written|before"),
        ("hopper.fence_barrier_init", 0, "without fence.mbarrier_init"),
        ("hopper.wait", 1, "before anything was written|race"),
        ("hopper.tma_load", 0, "deadlock"),
    ],
)
def test_what_a_cluster_needs(name, number, message):
    mutant = without(multicast(), name, number)
    some_seed_raises(message, lambda seed: run_multicast(mutant, seed=seed))


def test_a_block_stays_until_nobody_reaches_into_it():
    # The load waits until both blocks have freed the slot: without that, only the last barrier of
    # the cluster keeps a block alive until the other has arrived at it.
    unwaited = without(multicast(), "hopper.wait", 0)
    for seed in range(10):
        run_multicast(unwaited, seed=seed)
    mutant = without(unwaited, "hopper.cluster_sync", 1)
    some_seed_raises(
        "which has ended|ends with barriers in mid-phase",
        lambda seed: run_multicast(mutant, seed=seed),
    )


# --- cp.async -------------------------------------------------------------------------------------


def copies():
    """A producer of four warps copies with cp.async; a thread stores the tile by TMA."""
    tile_ = Types()
    pointer = tile_.tensor.replace("xbf16", "x!tile.ptr<bf16>")
    integers = tile_.tensor.replace("xbf16", "xi32")
    load = (
        CONSTANTS
        + c32("width", 64)
        + f"%r = tile.arange {{start = {INT}<0>}} : tensor<64xi32>\n"
        + f"%re = tile.expand_dims %r {{axis = {INT}<1>}} : (tensor<64xi32>) -> tensor<64x1xi32>\n"
        + f"%rb = tile.broadcast %re : (tensor<64x1xi32>) -> {integers}\n"
        + f"%ce = tile.expand_dims %r {{axis = {INT}<0>}} : (tensor<64xi32>) -> tensor<1x64xi32>\n"
        + f"%cb = tile.broadcast %ce : (tensor<1x64xi32>) -> {integers}\n"
        + f"%ws = tile.splat %width : (i32) -> {integers}\n"
        + f'%o = tile.elementwise "fma"(%rb, %ws, %cb) : ({integers}, {integers}, {integers}) -> '
        + f"{integers}\n"
        + f"%ps = tile.splat %x : (!tile.ptr<bf16>) -> {pointer}\n"
        + f"%pp = tile.ptr_add %ps, %o : ({pointer}, {integers}) -> {pointer}\n"
        + f"%ns = tile.splat %n : (i32) -> {integers}\n"
        + f'%k = tile.elementwise "lt"(%rb, %ns) : ({integers}, {integers}) -> '
        + f"{integers.replace('xi32', 'xi1')}\n"
        + tile_.slot("v", "ring", "zero")
        + '"hopper.copy_async"(%pp, %k, %v) {operandSegmentSizes = array<i32: 1, 1, 1>} : '
        + f"({pointer}, {integers.replace('xi32', 'xi1')}, {tile_.view}) -> ()\n"
        + f"hopper.copy_async_arrive %filled[%zero] : {barriers(1)}, i32\n"
    )
    main = (
        CONSTANTS
        + wait("filled", "zero", "zero")
        + "hopper.proxy_fence\n"
        + tile_.slot("v", "ring", "zero")
        + one_thread(
            tile_.tma_store("y_map", "zero", "zero", "v", "thread")
            + 'hopper.bulk_commit {by = "thread"}\n'
            + bulk_wait("thread")
        )
    )
    body = (
        tile_.make_map("y_map", "y")
        + tile_.make_buffer("ring")
        + make_barriers("filled", 8192, 128)
        + SYNC
        + role("load", 0, 4, load)
        + role("main", 4, 4, main)
    )
    return program({"x": "!tile.ptr<bf16>", "n": "i32", "y": tile_.desc}, body)


def run_copies(kernel, **how):
    x = np.random.default_rng(1).integers(1, 9, (64, 64)).astype(BF16)
    y = np.full((64, 64), np.nan, BF16)
    simulate(kernel, (1, 1, 1), {"x": x, "n": 50, "y": host(y, (64, 64))}, **how)
    return x, y


@pytest.mark.parametrize("late", LATE)
def test_cp_async_masks_with_zeros(late):
    x, y = run_copies(copies(), late=late)
    assert np.array_equal(y[:50], x[:50])
    assert not y[50:].any()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hopper.proxy_fence", "async proxy need not see the first"),
        ("hopper.wait", "race on shared memory|before anything was written"),
        ("hopper.copy_async_arrive", "work in flight"),
    ],
)
def test_what_cp_async_needs(name, message):
    with pytest.raises(ProtocolError, match=message):
        run_copies(without(copies(), name, 0), late="early")


@pytest.mark.parametrize("late", LATE)
def test_threads_that_arrive_by_themselves_release_no_copies(late):
    kernel = copies()
    arrival = next(op for op in kernel.walk() if isinstance(op, hopper.CopyAsyncArrive))
    attributes = {"by": StringAttr("all")}
    Rewriter.replace_op(arrival, hopper.Arrive(operands=arrival.operands, attributes=attributes))
    with pytest.raises(ProtocolError, match=r"race on shared memory|before anything|in flight"):
        run_copies(kernel, late=late)
