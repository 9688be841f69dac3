"""Named barriers, global memory and products in hopper IR, and what is left when a block ends."""

from __future__ import annotations

import numpy as np
import pytest

import simulator_samples as hs
from simulator_samples import (
    BF16,
    INT,
    SYNC,
    Types,
    arrive,
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
from tawa.errors import InternalError, ProtocolError
from tawa.simulator import simulate

SEEDS = range(3)
LATE = ("random", "late", "early")
CONSTANTS = c32("zero", 0) + c32("one", 1) + c32("rows", 64)


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
    body = one_thread(
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
    arguments = dict.fromkeys(("x", "y", "flag"), "!tile.ptr<i32>")
    return program(arguments, role("main", 0, 4, body))


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
