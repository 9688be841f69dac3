"""The concurrent run on small hopper kernels: one mechanism of the hardware each."""

from __future__ import annotations

import re

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
    wait,
    without,
)
from tawa.errors import InternalError, ProtocolError
from tawa.ir import hopper
from tawa.simulator import simulate
from tawa.simulator.launch import launch_blocks

SEEDS = range(3)
LATE = ("random", "late", "early")
CONSTANTS = c32("zero", 0) + c32("one", 1) + c32("rows", 64)


def some_seed_raises(message: str, run) -> None:
    """Assert that a run fails with a message under one of a few seeds."""
    found: list[str] = []
    for seed in range(40):
        try:
            run(seed)
        except ProtocolError as error:
            found.append(str(error))
    assert any(re.search(message, text) for text in found), found


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


# --- named barriers between roles -----------------------------------------------------------------


def pingpong(first: int, second: int, prime: str):
    """Two roles take turns to add to one place of memory; b hands a the first turn, and does not
    hand over after its last.
    """
    step = """
      %old = "tile.load"(%x) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!tile.ptr<i32>) -> i32
      %ten = tile.elementwise "mul"(%old, %base) : (i32, i32) -> i32
      %new = tile.elementwise "add"(%ten, %inc) : (i32, i32) -> i32
      tile.store %x, %new : !tile.ptr<i32>, i32
      """

    def body(count: int, inc: int, mine: int, hand_over: str) -> str:
        return (
            c32("zero", 0)
            + c32("one", 1)
            + c32("base", 10)
            + c32("inc", inc)
            + c32("count", count)
            + c32("last", count - 1)
            + (prime if inc == 2 else "")
            + "scf.for %i = %zero to %count step %one : i32 {\n"
            + named("sync", mine, "roles", 256)
            + step
            + hand_over
            + "}\n"
        )

    more = (
        '%more = tile.elementwise "lt"(%i, %last) : (i32, i32) -> i1\nscf.if %more {\n'
        + named("arrive", 1, "roles", 256)
        + "}\n"
    )
    roles = role("a", 0, 4, body(first, 1, 1, named("arrive", 2, "roles", 256)))
    roles += role("b", 4, 4, body(second, 2, 2, more))
    return program({"x": "!tile.ptr<i32>"}, "hopper.block_sync\n" + roles)


def turns(kernel, **how) -> int:
    x = np.zeros(1, np.int32)
    simulate(kernel, (1, 1, 1), {"x": x}, **how)
    return int(x[0])


def test_roles_take_turns():
    prime = named("arrive", 1, "roles", 256)
    for seed in range(5):
        assert turns(pingpong(3, 3, prime), seed=seed) == 121212
    with pytest.raises(ProtocolError, match="deadlock") as error:
        turns(pingpong(3, 3, ""))
    assert "named barrier 1" in str(error.value)
    with pytest.raises(ProtocolError, match="deadlock"):
        turns(pingpong(3, 2, prime))
    with pytest.raises(ProtocolError, match=r"race on global memory|deadlock"):
        turns(without(pingpong(3, 3, prime), "hopper.named_barrier", 0))


def test_threads_of_one_barrier_must_agree():
    text = str(pingpong(1, 1, named("arrive", 1, "roles", 384)))
    kernel = hs.ir.parse(text)
    some_seed_raises("(384 and 256|256 and 384) threads", lambda seed: turns(kernel, seed=seed))


# --- global memory --------------------------------------------------------------------------------


def test_blocks_that_write_one_place_race():
    body = role(
        "main",
        0,
        4,
        f"""
      %b = hopper.block_id {{axis = {INT}<0>}} : i32
      tile.store %x, %b : !tile.ptr<i32>, i32
      """,
    )
    kernel = program({"x": "!tile.ptr<i32>"}, body)
    with pytest.raises(ProtocolError, match="race on global memory of x") as error:
        simulate(kernel, (2, 1, 1), {"x": np.zeros(1, np.int32)})
    assert "main of block" in str(error.value)
    same = role("main", 0, 4, c32("b", 5) + "tile.store %x, %b : !tile.ptr<i32>, i32\n")
    x = np.zeros(1, np.int32)
    simulate(program({"x": "!tile.ptr<i32>"}, same), (2, 1, 1), {"x": x})
    assert x[0] == 5


def hand_over(order: str):
    """Block 0 writes x and raises a flag with an atomic; block 1 polls the flag and reads x."""
    body = role(
        "main",
        0,
        4,
        f"""
      %zero = tile.constant {{value = {INT}<0>}} : i32
      %one = tile.constant {{value = {INT}<1>}} : i32
      %b = hopper.block_id {{axis = {INT}<0>}} : i32
      %writer = tile.elementwise "eq"(%b, %zero) : (i32, i32) -> i1
      scf.if %writer {{
        tile.store %x, %one : !tile.ptr<i32>, i32
        %f = "tile.atomic"(%flag, %one) {{
          function = "exchange", order = "{order}", scope = "gpu"}} : (!tile.ptr<i32>, i32) -> i32
      }} else {{
        %r = scf.while (%s = %zero) : (i32) -> i32 {{
          %down = tile.elementwise "eq"(%s, %zero) : (i32, i32) -> i1
          scf.condition(%down) %s : i32
        }} do {{
        ^bb0(%s2 : i32):
          %g = "tile.atomic"(%flag, %zero) {{
            function = "add", order = "{order}", scope = "gpu"}} : (!tile.ptr<i32>, i32) -> i32
          scf.yield %g : i32
        }}
        %v = "tile.load"(%x) {{operandSegmentSizes = array<i32: 1, 0, 0>}} :
          (!tile.ptr<i32>) -> i32
        tile.store %y, %v : !tile.ptr<i32>, i32
      }}
      """,
    )
    return program({"x": "!tile.ptr<i32>", "y": "!tile.ptr<i32>", "flag": "!tile.ptr<i32>"}, body)


@pytest.mark.parametrize("schedule", ["random", "starve=main"])
def test_polling_ends_under_starvation(schedule):
    x, y, flag = (np.zeros(1, np.int32) for _ in range(3))
    arguments = {"x": x, "y": y, "flag": flag}
    simulate(hand_over("acq_rel"), (2,), arguments, schedule=schedule)
    assert y[0] == 1


BYTE = """
  %c = tile.cast %b : (i32) -> i8
  %p = tile.bitcast %x : (!tile.ptr<i32>) -> !tile.ptr<i8>
  %q = tile.ptr_add %p, %b : (!tile.ptr<i8>, i32) -> !tile.ptr<i8>
  tile.store %q, %c : !tile.ptr<i8>, i8
  """


def test_accesses_of_several_sizes_share_one_shadow():
    block = f"%b = hopper.block_id {{axis = {INT}<0>}} : i32\n"
    x = np.full(2, -1, np.int32)
    bytes_ = role("main", 0, 4, block + BYTE)
    simulate(program({"x": "!tile.ptr<i32>"}, bytes_), (8,), {"x": x})
    assert x.view(np.int8).tolist() == list(range(8))
    word = "tile.store %x, %b : !tile.ptr<i32>, i32\n"
    first = c32("zero", 0) + '%first = tile.elementwise "eq"(%b, %zero) : (i32, i32) -> i1\n'
    mixed = role("main", 0, 4, f"{block}{first}scf.if %first {{ {word} }} else {{ {BYTE} }}\n")
    with pytest.raises(ProtocolError, match="race on global memory of x"):
        simulate(program({"x": "!tile.ptr<i32>"}, mixed), (2,), {"x": np.full(2, 7, np.int32)})


@pytest.mark.parametrize("seed", SEEDS)
def test_atomics_order_blocks(seed):
    x, y, flag = (np.zeros(1, np.int32) for _ in range(3))
    simulate(hand_over("acq_rel"), (2,), {"x": x, "y": y, "flag": flag}, seed=seed)
    assert y[0] == 1
    x, y, flag = (np.zeros(1, np.int32) for _ in range(3))
    with pytest.raises(ProtocolError, match="race on global memory of x"):
        simulate(hand_over("relaxed"), (2,), {"x": x, "y": y, "flag": flag}, seed=seed)


# --- tensor cores and registers -------------------------------------------------------------------


def product_kernel(fence: str = ""):
    """c = a @ b.T + 2 for 64x64 tiles, both loaded once, in one ordinary role of four warps."""
    tile_ = Types(warps=4)
    layout = "64x64 r[2:(0,1) 2:(8,0) 8:(0,8)] l[4:(0,2) 8:(1,0)] w[4:(16,0)]"
    acc = f'tensor<64x64xf32, #hopper.layout<"{layout}">>'
    turned = tile_.view.replace("order(0,1)", "order(1,0)")
    single = tile_.desc.replace("bf16", "f32")
    body = (
        CONSTANTS
        + one_thread(
            expect("filled", "zero", 2 * tile_.bytes)
            + tile_.slot("va", "a_tile", "zero")
            + tile_.slot("vb", "b_tile", "zero")
            + tile_.tma_load("a_map", "zero", "zero", "va", "filled", "zero")
            + tile_.tma_load("b_map", "zero", "zero", "vb", "filled", "zero")
        )
        + wait("filled", "zero", "zero")
        + tile_.slot("sa", "a_tile", "zero")
        + tile_.slot("sb", "b_tile", "zero")
        + f"%bt = hopper.transpose_view %sb {{permutation = [{INT}<1>, {INT}<0>]}} : "
        + f"({tile_.view}) -> {turned}\n"
        + f"%acc = tile.constant {{value = {INT}<1>}} : {acc}\n"
        + f'%acc2 = tile.elementwise "add"(%acc, %acc) : ({acc}, {acc}) -> {acc}\n'
        + "hopper.wgmma_fence\n"
        + fence.format(acc=acc)
        + f"%r = hopper.wgmma %sa, %bt, {'%acc3' if fence else '%acc2'} : "
        + f"({tile_.view}, {turned}, {acc}) -> {acc}\nhopper.wgmma_commit\n"
        + f"%d = hopper.wgmma_wait {{pending = {INT}<0>}} of %r : {acc} -> {acc}\n"
        + f"tile.desc_store %c[%zero, %zero], %d : {single}, i32, i32, {acc}\n"
    )
    setup = (
        tile_.make_map("a_map", "a")
        + tile_.make_map("b_map", "b")
        + tile_.make_buffer("a_tile")
        + tile_.make_buffer("b_tile", 8192)
        + make_barriers("filled", 16384, 1)
        + SYNC
    )
    parameters = {"a": tile_.desc, "b": tile_.desc, "c": single}
    return program(parameters, setup + role("main", 0, 4, body))


def run_product(kernel, **how):
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, (64, 64)).astype(BF16) for _ in range(2))
    c = np.full((64, 64), np.nan, np.float32)
    arguments = {"a": host(a, (64, 64)), "b": host(b, (64, 64)), "c": host(c, (64, 64))}
    simulate(kernel, (1,), arguments, **how)
    return a.astype(np.float32), b.astype(np.float32), c


@pytest.mark.parametrize("late", LATE)
def test_an_ordinary_kernel_with_a_transposed_operand(late):
    a, b, c = run_product(product_kernel(), late=late)
    assert np.array_equal(c, a @ b.T + 2)


def test_a_register_write_after_the_fence_is_seen():
    late_write = '%acc3 = tile.elementwise "add"(%acc2, %acc2) : ({acc}, {acc}) -> {acc}\n'
    with pytest.raises(ProtocolError, match=r"without wgmma\.fence after a register write"):
        run_product(product_kernel(late_write))


def test_pinned_registers_are_still_registers():
    pinned = (
        '%acc4 = tile.elementwise "add"(%acc2, %acc2) : ({acc}, {acc}) -> {acc}\n'
        "%acc3 = hopper.pin %acc4 : ({acc}) -> {acc}\n"
    )
    with pytest.raises(ProtocolError, match=r"without wgmma\.fence after a register write"):
        run_product(product_kernel(pinned))
    a, b, c = run_product(product_kernel(pinned + "hopper.wgmma_fence\n"))
    assert np.array_equal(c, a @ b.T + 4)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hopper.wgmma_wait", "reads an accumulator while"),
        ("hopper.wgmma_commit", "wait does not cover"),
        ("hopper.wgmma_fence", "without wgmma.fence"),
        ("hopper.wait", "before anything was written|race"),
    ],
)
def test_what_a_product_needs(name, message):
    for late in LATE:
        with pytest.raises(ProtocolError, match=message):
            run_product(without(product_kernel(), name, 0), late=late)


def test_work_for_one_thread_needs_one_thread():
    kernel = product_kernel().clone()
    group = next(op for op in kernel.walk() if op.name == "hopper.one_thread")
    inner = group.regions[0].block
    for op in list(inner.ops):
        op.detach()
        group.parent_block().insert_op_before(op, group)
    group.detach()
    with pytest.raises(ProtocolError, match="executed by all 128 threads of main"):
        run_product(kernel)


def test_by_thread_belongs_into_one_thread():
    kernel = program(
        {},
        make_barriers("b", 0, 1)
        + SYNC
        + role("main", 0, 4, CONSTANTS + arrive("b", "zero", "thread")),
    )
    with pytest.raises(InternalError, match='by = "thread" outside one_thread'):
        simulate(kernel, (1,), {})


# --- leftovers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        (arrive("b", "zero", "role"), "ends inside phase 0: 1 of 2 arrivals"),
        (one_thread(expect("b", "zero", 64)), "ends inside phase 0: 1 of 2 arrivals, 64 bytes due"),
        (named("arrive", 3, "roles", 256), "ends with 128 of 256 threads at named barrier 3"),
        (named("sync", 3, "warpgroup", 96), "gets 128 threads, not 96"),
        (named("sync", 0, "role", 128), "roles use 1..15"),
        (f'hopper.set_registers "inc" {{count = {INT}<255>}}\n', "multiple of 8"),
        (f'hopper.set_registers "dec" {{count = {INT}<256>}}\n', "inc must rise"),
    ],
)
def test_what_is_left_or_wrong(statements, message):
    kernel = program(
        {}, make_barriers("b", 0, 2) + SYNC + role("main", 0, 4, CONSTANTS + statements)
    )
    with pytest.raises(ProtocolError, match=message):
        simulate(kernel, (1,), {})


def test_shared_memory_that_is_read_must_have_been_written():
    tile_ = Types()
    body = CONSTANTS + tile_.slot("v", "t", "zero") + tile_.load("r", "v")
    kernel = program({}, tile_.make_buffer("t") + role("main", 0, 4, body))
    with pytest.raises(ProtocolError, match=r"reads t\[0\] in shared memory before anything"):
        simulate(kernel, (1,), {})


def test_warps_of_one_role_race_without_a_barrier():
    tile_ = Types()
    turned = Types()
    turned.tensor = tile_.tensor.replace(
        tile_.layout, "64x64 r[16:(0,1) 2:(32,0)] l[32:(1,0)] w[4:(0,16)]"
    )
    body = (
        CONSTANTS
        + f"%c = tile.constant {{value = {INT}<3>}} : {tile_.tensor}\n"
        + tile_.slot("v", "t", "zero")
        + tile_.store("c", "v")
        + "MEET"
        + turned.load("r", "v")
    )

    def kernel(meet: str):
        return program({}, tile_.make_buffer("t") + role("main", 0, 4, body.replace("MEET", meet)))

    simulate(kernel(named("sync", 1, "role", 128)), (1,), {})
    with pytest.raises(ProtocolError, match="race on shared memory"):
        simulate(kernel(""), (1,), {})


def test_a_warp_may_read_what_it_wrote_itself():
    tile_ = Types()
    body = (
        CONSTANTS
        + f"%c = tile.constant {{value = {INT}<3>}} : {tile_.tensor}\n"
        + tile_.slot("v", "t", "zero")
        + tile_.store("c", "v")
        + tile_.load("r", "v")
    )
    simulate(program({}, tile_.make_buffer("t") + role("main", 0, 4, body)), (1,), {})
