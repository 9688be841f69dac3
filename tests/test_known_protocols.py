"""Protocols that were shipped elsewhere and hang or race, each named by its public thread: written
into the hopper IR of a good kernel, each is refused by its rule; and what others refused in error
is accepted.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from xdsl.dialects.builtin import IntAttr
from xdsl.ir import Operation

import test_lower_copy_async as copies
from tawa.ir import hopper, parse, tile
from tawa.target import H200
from tawa.verify import Refused, check, verify

DATA = Path(__file__).parent / "data"


def sample(name: str = "gemm") -> tile.Kernel:
    return parse((DATA / f"{name}.hopper.mlir").read_text())


def written(old: str, new: str, name: str = "gemm") -> tile.Kernel:
    text = (DATA / f"{name}.hopper.mlir").read_text()
    assert old in text
    return parse(text.replace(old, new))


def find(kernel: tile.Kernel, kind: type[Operation], index: int = 0) -> Operation:
    return [op for op in kernel.walk() if isinstance(op, kind)][index]


def drop(kind: type[Operation], index: int = 0, name: str = "gemm") -> tile.Kernel:
    return without(sample(name), kind, index)


def without(kernel: tile.Kernel, kind: type[Operation], index: int = 0) -> tile.Kernel:
    operation = find(kernel, kind, index)
    operation.detach()
    operation.erase()
    return kernel


def move(kernel: tile.Kernel, operation: Operation, before: Operation) -> tile.Kernel:
    operation.detach()
    block = before.parent
    assert block is not None
    block.insert_op_before(operation, before)
    return kernel


def bytes_without_an_arrival() -> tile.Kernel:
    """The copies bring their bytes, and nobody arrives for them."""
    return drop(hopper.Expect)


def released_while_products_read() -> tile.Kernel:
    """The slot is given back before the wait that covers its product."""
    kernel = sample()
    wait = find(kernel, hopper.WgmmaWait)
    return move(kernel, wait, wait.parent.last_op)


def arrivals_of_other_warps() -> tile.Kernel:
    """The barrier was counted for one warpgroup, and two arrive."""
    return written(
        '"a+b@14 freed" {offset = #builtin.int<213016>, arrivals = #builtin.int<2>}',
        '"a+b@14 freed" {offset = #builtin.int<213016>, arrivals = #builtin.int<1>}',
    )


def arrivals_of_warps_that_are_gone() -> tile.Kernel:
    """The barrier was counted for four warpgroups, and two arrive."""
    return written(
        '"a+b@14 freed" {offset = #builtin.int<213016>, arrivals = #builtin.int<2>}',
        '"a+b@14 freed" {offset = #builtin.int<213016>, arrivals = #builtin.int<4>}',
    )


def each_waits_for_the_other() -> tile.Kernel:
    """The producer waits until its own slot is filled, the consumer until it is."""
    return written("hopper.wait %freed[%slot], %phase", "hopper.wait %filled[%slot], %zero")


def fewer_bytes_expected() -> tile.Kernel:
    """One of the two tiles of the slot is not expected."""
    kernel = sample()
    find(kernel, hopper.Expect).attributes["bytes"] = IntAttr(16384)
    return kernel


def more_bytes_expected() -> tile.Kernel:
    """A tile more is expected than is loaded."""
    kernel = sample()
    find(kernel, hopper.Expect).attributes["bytes"] = IntAttr(65536)
    return kernel


def fewer_barriers_than_slots() -> tile.Kernel:
    """The ring has three slots, the barriers are two."""
    kernel = parse((DATA / "gemm.hopper.mlir").read_text())
    text = str(kernel).replace(
        "!hopper.barriers<#builtin.int<3>>", "!hopper.barriers<#builtin.int<2>>"
    )
    return parse(text)


def no_synchronization_after_initialisation() -> tile.Kernel:
    """Barriers are used before the block has seen them initialised."""
    return drop(hopper.BlockSync)


def a_slot_taken_without_a_wait() -> tile.Kernel:
    """The producer writes the next iteration's tile without asking whether the last was read."""
    return drop(hopper.Wait, 0)


def a_tile_read_without_a_wait() -> tile.Kernel:
    """The consumer does not wait until the tile has landed."""
    return drop(hopper.Wait, 1)


def memory_over_live_barriers() -> tile.Kernel:
    """The stage of the store lies where the barriers are."""
    return written("offset = #builtin.int<212992>", "offset = #builtin.int<212000>")


def registers_of_two_blocks() -> tile.Kernel:
    """The kernel is built for two blocks on a multiprocessor: half the registers a thread."""
    return written("registers = #builtin.int<168>, shared", "registers = #builtin.int<80>, shared")


def an_arrival_that_does_not_wait() -> tile.Kernel:
    """Some threads pass the barrier around the stage without waiting there."""
    kernel = sample()
    find(kernel, hopper.NamedBarrier, 1).attributes["threads"] = IntAttr(96)
    return kernel


def a_slot_never_given_back() -> tile.Kernel:
    """The consumer does not arrive: fewer arrivals than the phase takes."""
    return drop(hopper.Arrive)


def an_arrival_too_many() -> tile.Kernel:
    """The consumer arrives twice for a slot: the phase turns twice."""
    kernel = sample()
    arrival = find(kernel, hopper.Arrive)
    block = arrival.parent
    assert block is not None
    block.insert_op_after(arrival.clone(), arrival)
    return kernel


def phases_that_begin_anew_with_each_tile() -> tile.Kernel:
    """The producer of a persistent kernel hands on the slot and phase that a tile began with."""
    old, new = "scf.yield %slot_end_1, %phase_end_1", "scf.yield %slot, %phase"
    return written(old, new, "gemm_persistent")


def a_barrier_of_no_arrivals() -> tile.Kernel:
    """A phase that nobody has to arrive for."""
    return written(
        '"a+b@14 freed" {offset = #builtin.int<213016>, arrivals = #builtin.int<2>}',
        '"a+b@14 freed" {offset = #builtin.int<213016>, arrivals = #builtin.int<0>}',
    )


def a_block_that_ends_before_its_peers_arrive() -> tile.Kernel:
    """A cluster without the synchronization at its end."""
    return drop(hopper.ClusterSync, -1, "gemm_cluster")


def gather() -> tile.Kernel:
    """A product whose A comes by the producer's threads, with cp.async, and B by TMA."""
    return copies.lowered(copies.gather).clone()


def copies_without_an_arrival() -> tile.Kernel:
    """The copies of threads complete, and no barrier is told."""
    return without(gather(), hopper.CopyAsyncArrive)


def copies_after_their_arrival() -> tile.Kernel:
    """The barrier is told before the copies are issued."""
    kernel = gather()
    return move(kernel, find(kernel, hopper.CopyAsyncArrive), find(kernel, hopper.CopyAsync))


def copies_read_without_a_wait() -> tile.Kernel:
    """The consumer does not wait for what the threads copied."""
    return without(gather(), hopper.Wait, 2)


def copies_over_what_is_read() -> tile.Kernel:
    """The threads copy into a slot again without asking whether it was read."""
    return without(gather(), hopper.Wait, 0)


def copies_read_without_a_fence() -> tile.Kernel:
    """wgmma reads by the asynchronous proxy what threads wrote."""
    return without(gather(), hopper.ProxyFence)


def a_phase_that_does_not_turn() -> tile.Kernel:
    """The producer's phase is never flipped when the ring turns."""
    return written(
        '%phase_out = tile.elementwise "select"(%slot_out_wraps, %phase_out_flip, %phase)',
        '%phase_out = tile.elementwise "select"(%slot_out_wraps, %phase, %phase)',
    )


REFUSED: dict[str, tuple[Callable[[], tile.Kernel], str]] = {
    "tilelang#2566 expect without an arrival": (bytes_without_an_arrival, "one put"),
    "facebookexperimental/triton#1278 release before the product is done": (
        released_while_products_read,
        "early release",
    ),
    "triton#7561 counted for fewer warps": (arrivals_of_other_warps, "arrivals"),
    "triton#7561 counted for more warps": (arrivals_of_warps_that_are_gone, "arrivals"),
    "facebookexperimental/triton#1121 circular wait": (each_waits_for_the_other, "slots"),
    "cutlass#2365 fewer bytes expected": (fewer_bytes_expected, "one put"),
    "cutlass#2365 more bytes expected": (more_bytes_expected, "one put"),
    "NVIDIA/Fuser#5862 too few barriers": (fewer_barriers_than_slots, "slots"),
    "NVIDIA/Fuser#1552 no synchronization after initialisation": (
        no_synchronization_after_initialisation,
        "barrier initialised",
    ),
    "tilelang#2613 no barrier on the way back": (a_slot_taken_without_a_wait, "slots"),
    "triton#7157 read before the copy has landed": (a_tile_read_without_a_wait, "slots"),
    "triton#8285 the phase does not turn": (a_phase_that_does_not_turn, "cursor"),
    "triton#8285 an arrival too few": (a_slot_never_given_back, "form"),
    "triton#8285 an arrival too many": (an_arrival_too_many, "slots"),
    "tilelang#2674 phases begin anew with each tile": (
        phases_that_begin_anew_with_each_tile,
        "cursor",
    ),
    "tilelang#3030 a barrier of no arrivals": (a_barrier_of_no_arrivals, "arrivals"),
    "triton#10656 a block ends before its peers arrive": (
        a_block_that_ends_before_its_peers_arrive,
        "peers alive",
    ),
    "triton#11626 copies of threads without an arrival": (copies_without_an_arrival, "slots"),
    "triton#11626 copies of threads after their arrival": (copies_after_their_arrival, "slots"),
    "triton#11626 copies of threads read without a wait": (copies_read_without_a_wait, "slots"),
    "triton#11626 copies of threads over what is read": (copies_over_what_is_read, "slots"),
    "triton#11626 copies of threads read without a fence": (
        copies_read_without_a_fence,
        "proxy fence",
    ),
    "triton#11244 memory over live barriers": (memory_over_live_barriers, "in place"),
    "tilelang#2559 registers of two blocks": (registers_of_two_blocks, "register budget"),
    "vllm#26026 an arrival that does not wait": (an_arrival_that_does_not_wait, "named barrier"),
}


@pytest.mark.parametrize("thread", REFUSED)
def test_a_protocol_that_failed_elsewhere_is_refused(thread: str) -> None:
    make, rule = REFUSED[thread]
    with pytest.raises(Refused) as caught:
        check(make(), H200)
    assert caught.value.rule.name == rule


def test_cutlass_3654_only_the_thread_that_loads_waits() -> None:
    """Lanes that wait without loading can miss the phase: here one thread does all of it."""
    kernel = sample()
    wait = find(kernel, hopper.Wait)
    only = wait.parent_op().parent_op()
    assert isinstance(only, hopper.OneThread)
    assert verify(kernel, H200).ok


def test_triton_9046_two_copies_into_one_barrier_are_no_hang() -> None:
    """A false alarm elsewhere: each copy was taken for an arrival of its own."""
    kernel = sample()
    assert len([op for op in kernel.walk() if isinstance(op, hopper.TmaLoad)]) == 2
    assert verify(kernel, H200).ok


def test_triton_11626_copies_of_threads_that_barriers_complete_are_no_race() -> None:
    """A false alarm elsewhere: copies counted as pending though a barrier had told of them."""
    kernel = gather()
    assert [op for op in kernel.walk() if isinstance(op, hopper.CopyAsyncArrive)]
    assert verify(kernel, H200).ok


def test_triton_11303_a_fresh_barrier_has_completed_the_phase_before() -> None:
    """A false alarm elsewhere: the producer's first wait is for the phase that never began."""
    kernel = sample()
    wait = find(kernel, hopper.Wait)
    assert isinstance(wait, hopper.Wait)
    assert verify(kernel, H200).ok
    assert "freed" in str(wait.barriers.name_hint)


def test_fb_triton_2614_a_role_that_ends_early_is_no_hang() -> None:
    """A false alarm elsewhere: the producer has ended while the consumer still computes."""
    for name in ("gemm", "gemm_persistent"):
        assert verify(sample(name), H200).ok
