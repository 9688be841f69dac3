"""Memory: what lies over what, which threads agree, and which global accesses are ordered."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from xdsl.dialects.builtin import IntAttr
from xdsl.ir import Block, Operation
from xdsl.rewriter import InsertPoint, Rewriter

from proof_kernels import text
from tawa import ir
from tawa.ir import hopper, tile
from tawa.ir.types import i32
from tawa.ir.walk import all_of
from tawa.passes.fold import constant, elementwise
from tawa.verify import Refused, check
from tawa.verify.rings import is_slot
from told_kernels import untold

Change = Callable[[tile.Kernel], None]


def refused(name: str, change: Change, by: str) -> str:
    """Check a kernel, break it, and find it refused by a rule; return the sentence."""
    kernel = ir.parse(text(name))
    check(kernel)
    change(kernel)
    with pytest.raises(Refused) as found:
        check(kernel)
    assert found.value.rule.name == by, found.value
    return found.value.sentence


def shifted(kind: type[Operation], place: int, by: int) -> Change:
    def change(kernel: tile.Kernel) -> None:
        made = all_of(kernel, kind)[place]
        offset = made.attributes["offset"]
        assert isinstance(offset, IntAttr)
        made.attributes["offset"] = IntAttr(offset.data + by)

    return change


# --- in place -------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", [1024, 16384])
def test_buffers_that_share_bytes(by: int) -> None:
    sentence = refused("sample gemm", shifted(hopper.Shared, 0, by), "in place")
    assert "share the bytes" in sentence


@pytest.mark.parametrize(("by", "told"), [(4, "no multiple of 8"), (8, "share the bytes")])
def test_barriers_that_do_not_lie_alone(by: int, told: str) -> None:
    assert told in refused("sample gemm", shifted(hopper.Barriers, 0, by), "in place")


def test_a_buffer_beyond_what_the_launch_asks_for() -> None:
    sentence = refused("sample gemm", shifted(hopper.Shared, -1, 1 << 18), "in place")
    assert "the launch asks for" in sentence


def test_scratch_memory_of_one_role_may_share_bytes() -> None:
    """Two buffers at one place, which the role uses one after the other; not those of two roles."""
    kernel = ir.parse(text("matmul in 3 unequal parts"))
    stages = [each for each in all_of(kernel, hopper.Shared) if "stage" in each.label.data]
    assert len({each.offset.data for each in stages}) < len(stages)
    check(kernel)


@pytest.mark.parametrize("swizzle", [0, 32, 64])
def test_a_tensor_map_with_another_swizzle(swizzle: int) -> None:
    def change(kernel: tile.Kernel) -> None:
        all_of(kernel, hopper.TensorMap)[0].attributes["swizzle"] = IntAttr(swizzle)

    assert "swizzle of" in refused("sample gemm", change, "maps fit their views")


# --- threads agree --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["told spins", "told chooses", "told words", "told writes"])
def test_each_thread_reads_for_itself_what_may_change(name: str) -> None:
    kernel = ir.parse(text(name))
    broken = list(untold(kernel))
    assert broken
    for index, _, _, change in broken:
        copy = kernel.clone()
        change(list(copy.walk())[index])
        with pytest.raises(Refused, match="threads agree"):
            check(copy)


def test_the_result_of_an_atomic_that_all_threads_use() -> None:
    def change(kernel: tile.Kernel) -> None:
        atomic = all_of(kernel, tile.Atomic)[0]
        one = atomic.parent_op()
        assert isinstance(one, hopper.OneThread)
        for inner in list(one.body.block.ops):
            inner.detach()
            Rewriter.insert_op(inner, InsertPoint.before(one))
        Rewriter.erase_op(one)

    refused("library few rows", change, "one owner")


# --- global order ---------------------------------------------------------------------------------


def without(kind: type[Operation], which: Callable[[Operation], bool]) -> Change:
    def change(kernel: tile.Kernel) -> None:
        for operation in all_of(kernel, kind):
            if which(operation):
                Rewriter.erase_op(operation)

    return change


def waits_for_writes(operation: Operation) -> bool:
    assert isinstance(operation, hopper.BulkWait)
    return not bool(operation.read)


@pytest.mark.parametrize(
    "name", ["in place", "shape stores to what it later loads", "library few rows"]
)
def test_a_load_of_what_is_still_being_stored(name: str) -> None:
    assert "may be under way" in refused(
        name, without(hopper.BulkWait, waits_for_writes), "global order"
    )


def test_a_load_of_another_role_that_is_not_waited_for() -> None:
    """The consumer stores to the tile that the producer loads, before it has waited for it."""

    def change(kernel: tile.Kernel) -> None:
        store = all_of(kernel, hopper.TmaStore)[0]
        block = store.parent
        assert block is not None
        load = next(
            each for each in all_of(kernel, hopper.TmaLoad) if each.map.owner is store.map.owner
        )
        wait = next(
            each
            for each in block.ops
            if isinstance(each, hopper.Wait) and each.barriers is load.barriers
        )
        first = next(each for each in block.ops if isinstance(each, hopper.TmaStore))
        again = hopper.TmaStore(
            operands=[first.map, list(first.offsets), first.view],
            attributes=dict(first.attributes),
        )
        for value in (*first.offsets, first.view):
            owner = value.owner
            if isinstance(owner, Operation) and owner.parent is block:
                owner.detach()
                Rewriter.insert_op(owner, InsertPoint.before(wait))
        Rewriter.insert_op(again, InsertPoint.before(wait))

    refused("shape updates in place", change, "global order")


@pytest.mark.parametrize(("step", "fits"), [(1, True), (2**31 - 3, True), (2**31 - 2, False)])
def test_a_slot_further_on_is_one_unless_the_sum_may_wrap(step, fits):
    slots, more = constant(3, i32), constant(step, i32)
    block = Block(arg_types=[i32])
    (slot,) = block.args
    following = elementwise("add", slot, more.result)
    rest = elementwise("irem", following.result, slots.result)
    block.add_ops([slots, more, following, rest])
    assert is_slot(rest.result, 3, {slot}) == fits
