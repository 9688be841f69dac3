"""Operations on rings do what aref operations mean; each way to break one is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from xdsl.dialects import scf
from xdsl.dialects.builtin import IntAttr, StringAttr, UnitAttr
from xdsl.ir import BlockArgument, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

import proof_kernels
import tawa.cypress as cy
import tawa.language as tl
from lower_kernels import CASES
from proof_kernels import MAKERS, text
from tawa import ir
from tawa.cypress.kernels.attention import attention
from tawa.cypress.kernels.gemm import gemm as task_gemm
from tawa.cypress.kernels.sums import sums as task_sums
from tawa.frontend import build
from tawa.frontend.signature import DescriptorArg, PointerArg, ScalarArg
from tawa.ir import hopper, tile
from tawa.ir.types import i32
from tawa.ir.walk import all_of
from tawa.plan.pins import Pins
from tawa.verify import Program, Refused, check
from tawa.verify.forwarded import loops_around
from verify_programs import lower_with_program, lowered_case, lowered_shape

Change = Callable[[tile.Kernel], None]
KINDS = ("matmul 128x256", "matmul in 4 parts", "attention", "attention fp8", "pointers", "batched")
SHAPES = ("two loops sharing a load", "atomic tile counter", "load under an if", "updates in place")


@pytest.mark.parametrize("name", KINDS)
def test_kernels_do_what_their_aref_programs_ask_for(name: str) -> None:
    kernel, program = lowered_case(name)
    check(kernel, program=program)


@pytest.mark.parametrize("specialize", [True, False])
@pytest.mark.parametrize("name", SHAPES)
def test_shapes_do_what_their_aref_programs_ask_for(name: str, specialize: bool) -> None:
    kernel, program = lowered_shape(name, specialize)
    check(kernel, program=program)


@pytest.mark.long
def test_all_kernels_do_what_their_aref_programs_ask_for(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[tile.Kernel, Program]] = []

    def lower(kernel: tile.Kernel, pins: Pins) -> tile.Kernel:
        made.append(lower_with_program(kernel, pins))
        return made[-1][0]

    monkeypatch.setattr(proof_kernels, "lower", lower)
    for make in MAKERS.values():
        make()
    assert len(made) > len(CASES)
    for kernel, program in made:
        check(kernel, program=program)


def refused(change: Change, by: str, kernel: tile.Kernel, program: Program | None = None) -> None:
    """Check a kernel, break a clone of it, and find the clone refused by a rule."""
    check(kernel, program=program)
    broken = kernel.clone()
    change(broken)
    with pytest.raises(Refused) as found:
        check(broken, program=program)
    assert found.value.rule.name == by, found.value
    assert found.value.sentence


def number(before: Operation, value: int) -> SSAValue:
    made = tile.Constant(attributes={"value": IntAttr(value)}, result_types=[i32])
    Rewriter.insert_op(made, InsertPoint.before(before))
    return made.result


def computed(before: Operation, name: str, *inputs: SSAValue) -> SSAValue:
    made = tile.Elementwise(
        operands=[list(inputs)], attributes={"function": StringAttr(name)}, result_types=[i32]
    )
    Rewriter.insert_op(made, InsertPoint.before(before))
    return made.result


def role(kernel: tile.Kernel, label: str) -> hopper.Role:
    return next(each for each in all_of(kernel, hopper.Role) if each.label.data == label)


def next_slot(operation: Operation, place: int, slots: int) -> None:
    more = computed(operation, "add", operation.operands[place], number(operation, 1))
    operation.operands[place] = computed(operation, "irem", more, number(operation, slots))


# --- slots ----------------------------------------------------------------------------------------


def gemm() -> tile.Kernel:
    return ir.parse(text("sample gemm"))


def moved_to_end(operation: Operation) -> None:
    block = operation.parent
    assert block is not None
    assert block.last_op is not None
    operation.detach()
    block.insert_op_before(operation, block.last_op)


def slots_of(kernel: tile.Kernel, label: str) -> list[hopper.Slot]:
    return [
        each
        for each in all_of(role(kernel, label), hopper.Slot)
        if each.buffer.type.slots.data > 1  # type: ignore[attr-defined]
    ]


@pytest.mark.parametrize("label", ["load", "mma"])
def test_a_view_of_the_next_slot(label: str) -> None:
    def change(kernel: tile.Kernel) -> None:
        slot = slots_of(kernel, label)[0]
        next_slot(slot, 1, slot.buffer.type.slots.data)  # type: ignore[attr-defined]

    refused(change, "slots", gemm())


def test_a_slot_that_is_not_wrapped() -> None:
    """slot + depth is the same barrier modulo the depth, and no slot of the buffer."""

    def change(kernel: tile.Kernel) -> None:
        slot = slots_of(kernel, "mma")[0]
        depth = slot.buffer.type.slots.data  # type: ignore[attr-defined]
        slot.operands[1] = computed(slot, "add", slot.index, number(slot, depth))

    refused(change, "slots", gemm())


def test_a_wait_after_the_reads() -> None:
    def change(kernel: tile.Kernel) -> None:
        moved_to_end(next(iter(all_of(role(kernel, "mma"), hopper.Wait))))

    refused(change, "slots", gemm())


def test_a_put_before_its_wait() -> None:
    def change(kernel: tile.Kernel) -> None:
        moved_to_end(next(iter(all_of(role(kernel, "load"), hopper.Wait))))

    refused(change, "slots", gemm())


def test_a_read_after_the_slot_was_given_back() -> None:
    def change(kernel: tile.Kernel) -> None:
        wgmma = next(iter(all_of(role(kernel, "mma"), hopper.Wgmma)))
        arrive = next(iter(all_of(role(kernel, "mma"), hopper.Arrive)))
        wait = next(iter(all_of(role(kernel, "mma"), hopper.Wait)))
        again = hopper.Arrive(
            operands=[arrive.barriers, wait.slot], attributes=dict(arrive.attributes)
        )
        arrive.detach()
        Rewriter.insert_op(again, InsertPoint.before(wgmma))

    broken = gemm()
    change(broken)
    with pytest.raises(Refused, match="early release"):
        check(broken)


def test_a_copy_that_tells_of_another_slot() -> None:
    def change(kernel: tile.Kernel) -> None:
        load = all_of(kernel, hopper.TmaLoad)[1]
        next_slot(load, len(load.operands) - 1, load.barriers.type.count.data)  # type: ignore[attr-defined]

    refused(change, "slots", gemm())


# --- one put --------------------------------------------------------------------------------------


def test_bytes_expected_after_the_copies() -> None:
    def change(kernel: tile.Kernel) -> None:
        moved_to_end(all_of(kernel, hopper.Expect)[0])

    refused(change, "one put", gemm())


def test_bytes_expected_in_two_parts() -> None:
    """Each part is right, and each is an arrival: with a count of two the phase may complete
    between them."""

    def change(kernel: tile.Kernel) -> None:
        expect, load = all_of(kernel, hopper.Expect)[0], all_of(kernel, hopper.TmaLoad)[1]
        half = IntAttr(expect.bytes.data // 2)
        expect.attributes["bytes"] = half
        again = hopper.Expect(operands=[expect.barriers, expect.slot], attributes={"bytes": half})
        Rewriter.insert_op(again, InsertPoint.before(load))
        made = expect.barriers.owner
        assert isinstance(made, hopper.Barriers)
        made.attributes["arrivals"] = IntAttr(2)

    broken = gemm()
    change(broken)
    with pytest.raises(Refused, match=r"one put|slots"):
        check(broken)


def test_copies_started_by_all_threads() -> None:
    def change(kernel: tile.Kernel) -> None:
        load = all_of(kernel, hopper.TmaLoad)[0]
        one = load.parent_op()
        while not isinstance(one, hopper.OneThread):
            assert one is not None
            one = one.parent_op()
        for inner in list(one.body.block.ops):
            inner.detach()
            Rewriter.insert_op(inner, InsertPoint.before(one))
        Rewriter.erase_op(one)

    broken = gemm()
    change(broken)
    with pytest.raises(Refused, match="all threads of a warp"):
        check(broken)


def test_threads_that_tell_before_their_copies_are_done() -> None:
    def change(kernel: tile.Kernel) -> None:
        arrive = all_of(kernel, hopper.CopyAsyncArrive)[0]
        plain = hopper.Arrive(operands=list(arrive.operands), attributes={"by": StringAttr("all")})
        Rewriter.replace_op(arrive, plain)

    refused(change, "early release", ir.parse(text("copies gather")))


# --- fences ---------------------------------------------------------------------------------------


def test_no_fence_after_copies_of_others() -> None:
    def change(kernel: tile.Kernel) -> None:
        for fence in all_of(role(kernel, "mma"), hopper.ProxyFence):
            Rewriter.erase_op(fence)

    refused(change, "proxy fence", ir.parse(text("copies gather")))


def test_no_fence_before_a_slot_that_threads_read_is_given_back() -> None:
    kernel = ir.parse(text("sample residual"))
    fences = all_of(role(kernel, "mma"), hopper.ProxyFence)
    assert fences
    for place in range(len(fences)):
        broken = kernel.clone()
        Rewriter.erase_op(all_of(role(broken, "mma"), hopper.ProxyFence)[place])
        with pytest.raises(Refused, match="proxy"):
            check(broken)


# --- clusters -------------------------------------------------------------------------------------


def cluster() -> tile.Kernel:
    return ir.parse(text("sample gemm_cluster"))


def test_a_reader_that_tells_its_own_block_alone() -> None:
    def change(kernel: tile.Kernel) -> None:
        for arrive in all_of(kernel, hopper.Arrive):
            del arrive.attributes["cluster"]
        for made in all_of(kernel, hopper.Barriers):
            if made.arrivals.data > 1:
                made.attributes["arrivals"] = IntAttr(made.arrivals.data // 2)

    refused(change, "multicast", cluster())


def test_blocks_that_send_parts_of_different_boxes() -> None:
    def change(kernel: tile.Kernel) -> None:
        load = next(each for each in all_of(kernel, hopper.TmaLoad) if each.multicast is not None)
        rank = hopper.ClusterRank(result_types=[i32])
        Rewriter.insert_op(rank, InsertPoint.before(load))
        load.operands[1] = computed(load, "add", load.offsets[0], rank.result)

    refused(change, "multicast", cluster())


@pytest.mark.parametrize(("place", "rule"), [(0, "barrier initialised"), (-1, "peers alive")])
def test_a_meeting_of_the_cluster_left_out(place: int, rule: str) -> None:
    def change(kernel: tile.Kernel) -> None:
        Rewriter.erase_op(all_of(kernel, hopper.ClusterSync)[place])

    refused(change, rule, cluster())


def test_a_last_meeting_that_publishes_nothing() -> None:
    def change(kernel: tile.Kernel) -> None:
        all_of(kernel, hopper.ClusterSync)[-1].attributes["relaxed"] = UnitAttr()

    refused(change, "peers alive", cluster())


# --- coordinates ----------------------------------------------------------------------------------


@pytest.mark.parametrize("by", [16, 64, 128])
@pytest.mark.parametrize("axis", [0, 1])
def test_shifted_coordinates(by: int, axis: int) -> None:
    def change(kernel: tile.Kernel) -> None:
        load = all_of(kernel, hopper.TmaLoad)[0]
        load.operands[1 + axis] = computed(load, "add", load.offsets[axis], number(load, by))

    refused(change, "coordinates", *lowered_case("matmul 128x256"))


def test_a_store_to_the_next_tile() -> None:
    def change(kernel: tile.Kernel) -> None:
        store = all_of(kernel, hopper.TmaStore)[-1]
        store.operands[1] = computed(store, "add", store.offsets[0], number(store, 128))

    refused(change, "coordinates", *lowered_case("matmul in 4 parts"))


def test_a_part_of_a_tile_stored_twice() -> None:
    def change(kernel: tile.Kernel) -> None:
        first, second = all_of(kernel, hopper.TmaStore)[:2]
        second.operands[2] = first.offsets[1]

    refused(change, "coordinates", *lowered_case("matmul in 4 parts"))


def test_swapped_buffers() -> None:
    """Two loads of one put, of boxes alike, each into the buffer of the other."""

    def change(kernel: tile.Kernel) -> None:
        one, other = all_of(role(kernel, "load"), hopper.TmaLoad)[:2]
        place = len(one.operands) - 3
        other.detach()
        Rewriter.insert_op(other, InsertPoint.after(one))
        views = one.operands[place], other.operands[place]
        slot = views[1].owner
        assert isinstance(slot, hopper.Slot)
        slot.detach()
        Rewriter.insert_op(slot, InsertPoint.before(one))
        one.operands[place], other.operands[place] = views[1], views[0]

    refused(change, "coordinates", *lowered_shape("gemm"))


def test_a_load_of_the_first_iteration_in_each() -> None:
    def change(kernel: tile.Kernel) -> None:
        load = all_of(kernel, hopper.TmaLoad)[0]
        load.operands[2] = number(load, 0)

    refused(change, "coordinates", *lowered_case("matmul 128x256"))


def test_all_roles_leave_out_the_last_iteration() -> None:
    """No protocol is broken: the loops are not those of the aref program."""

    def change(kernel: tile.Kernel) -> None:
        for loop in all_of(kernel, scf.ForOp):
            if len(all_of(loop, scf.ForOp)) == 1:
                loop.operands[1] = computed(loop, "sub", loop.ub, loop.step)

    refused(change, "coordinates", *lowered_shape("gemm"))


# --- a loop that makes the first copies -----------------------------------------------------------


def without_roles(depth: int) -> tuple[tile.Kernel, Program]:
    """Return a product whose threads start copies `depth` - 1 steps ahead, the first in a loop."""
    mapping = task_gemm(1, 64, 64, 32, depth, specialize=False, persistent=False)
    program = cy.program(mapping)
    return lower_with_program(program.emitted.kernel.clone(), Pins(plan=program.plan))


def longer(kernel: tile.Kernel, by: int) -> None:
    first = all_of(kernel, scf.ForOp)[0]
    first.operands[1] = computed(first, "add", first.ub, number(first, by))


def one_left_out(kernel: tile.Kernel) -> None:
    Rewriter.erase_op(all_of(all_of(kernel, scf.ForOp)[0], hopper.TmaLoad)[0])


def further(kernel: tile.Kernel) -> None:
    load = all_of(all_of(kernel, scf.ForOp)[1], hopper.TmaLoad)[0]
    for place, operand in enumerate(load.operands):
        if operand == load.offsets[1]:
            load.operands[place] = computed(load, "add", operand, number(load, 32))


FIRST: dict[str, Change] = {
    "one more": lambda kernel: longer(kernel, 1),
    "one less": lambda kernel: longer(kernel, -1),
    "one left out": one_left_out,
    "further": further,
}


@pytest.mark.parametrize("name", FIRST)
def test_the_first_copies_of_a_loop_are_made_once_each(name: str) -> None:
    kernel, program = without_roles(3)
    refused(FIRST[name], "coordinates", kernel, program)


def known_loops(loop: str, rows: int, columns: int, depth: int) -> tuple[tile.Kernel, Program]:
    """Return an attention without roles, one of whose two loops over keys iterates `rows` /
    `columns` times, or one time less."""
    how = {"pipeline": {"Q": 1, "K": depth, "V": depth}, "turns": False, "specialize": False}
    mapping = attention(loop, 1, rows, columns, 64, True, persistent=False, **how)
    made = cy.program(mapping)
    return lower_with_program(made.emitted.kernel.clone(), Pins(plan=made.plan))


KNOWN = ("one more", "one less", "further", "guard one more", "guard one less")


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize(("loop", "columns", "pair"), [("fa2", 16, 1), ("fa3", 32, 0)])
def test_copies_ahead_in_a_loop_of_a_known_number(
    loop: str, columns: int, pair: int, name: str
) -> None:
    """Of four iterations two are copied in a loop before; of one iteration all are."""
    kernel, program = known_loops(loop, 64, columns, 3)
    check(kernel, program=program)
    first, main = all_of(kernel, scf.ForOp)[2 * pair : 2 * pair + 2]
    guard = all_of(kernel, scf.IfOp)[pair].cond.owner
    load = all_of(main, hopper.TmaLoad)[0]
    assert isinstance(guard, tile.Elementwise)
    more = 1 if name.endswith("more") else -1
    if name == "further":
        load.operands[2] = computed(load, "add", load.operands[2], number(load, columns))
    elif name.startswith("guard"):
        guard.operands[1] = computed(guard, "sub", guard.operands[1], number(guard, 2 * more))
    else:
        first.operands[1] = computed(first, "add", first.ub, number(first, more))
    if (loop, name) == ("fa3", "guard one less"):
        check(kernel, program=program)  # the condition holds in no iteration, as before
        return
    with pytest.raises(Refused):
        check(kernel, program=program)


def twice(a_desc, b_desc, c_desc, count):
    """Multiply the same blocks twice."""
    acc = tl.zeros((128, 128), tl.float32)
    for i in range(0, count):
        acc = tl.dot(a_desc.load([0, i * 64]), b_desc.load([i * 64, 0]), acc)
    for i in range(0, count):
        acc = tl.dot(a_desc.load([0, i * 64]), b_desc.load([i * 64, 0]), acc)
    c_desc.store([0, 0], acc.to(tl.float16))


def test_two_loops_ask_for_the_same_boxes() -> None:
    """Whichever of them all roles leave out, in part or as a whole: the protocol stays right."""
    shapes = {"a": (128, 64), "b": (64, 128), "c": (128, 128)}
    arguments = {f"{name}_desc": DescriptorArg("f16", shape) for name, shape in shapes.items()}
    kernel, program = lower_with_program(
        build(twice, arguments | {"count": ScalarArg("i32")}, {}), Pins()
    )
    assert len({each.tile for each in program.asked}) == 3, "one ring has both"

    def left_out(place: int, some: bool) -> Change:
        def change(kernel: tile.Kernel) -> None:
            for each in all_of(kernel, hopper.Role):
                loop = [e for e in all_of(each, scf.ForOp) if all_of(e, hopper.Wait)][1 + place]
                loop.operands[1] = computed(loop, "sub", loop.ub, loop.step) if some else loop.lb

        return change

    for place in (0, 1):
        for some in (True, False):
            refused(left_out(place, some), "coordinates", kernel, program)


def below(a_desc, b_desc, c_desc, count):
    for j in range(0, count):
        acc = tl.zeros((64, 64), tl.float32)
        for i in range(0, j):
            acc = tl.dot(a_desc.load([j * 64, i * 64]), b_desc.load([i * 64, 0]), acc)
        c_desc.store([j * 64, 0], acc.to(tl.float16))


def above(a_desc, b_desc, c_desc, count):
    for j in range(0, count):
        acc = tl.zeros((64, 64), tl.float32)
        for i in range(j, count):
            acc = tl.dot(a_desc.load([j * 64, i * 64]), b_desc.load([i * 64, 0]), acc)
        c_desc.store([j * 64, 0], acc.to(tl.float16))


def capped(a_desc, b_desc, c_desc, count):
    for j in range(0, count):
        acc = tl.zeros((64, 64), tl.float32)
        for i in range(0, min(j, count)):
            acc = tl.dot(a_desc.load([j * 64, i * 64]), b_desc.load([i * 64, 0]), acc)
        c_desc.store([j * 64, 0], acc.to(tl.float16))


@pytest.mark.parametrize("function", [below, above, capped])
def test_loops_whose_length_is_a_function_of_the_iteration_around_them(
    function: Callable[..., None],
) -> None:
    """Whether the inner loop makes an iteration is told by its head, and asked behind it."""
    arguments = {f"{name}_desc": DescriptorArg("f16", (64, 64)) for name in "abc"}
    kernel, program = lower_with_program(
        build(function, arguments | {"count": ScalarArg("i32")}, {}), Pins(depth=3)
    )
    (late,) = [each for each in all_of(kernel, hopper.Arrive) if len(loops_around(each)) == 2]
    assert isinstance(late.parent_op(), scf.IfOp), "slots are given back behind the inner loop"

    def one_more(kernel: tile.Kernel) -> None:
        loop = all_of(role(kernel, "load"), scf.ForOp)[-1]
        loop.operands[1] = computed(loop, "add", loop.ub, loop.step)

    def always(kernel: tile.Kernel) -> None:
        (late,) = [each for each in all_of(kernel, hopper.Arrive) if len(loops_around(each)) == 2]
        branch = late.parent_op()
        assert branch is not None
        late.detach()
        Rewriter.insert_op(late, InsertPoint.before(branch))

    refused(one_more, "coordinates", kernel, program)
    refused(one_more, "left", kernel)
    refused(always, "slots", kernel)


def test_a_store_that_the_program_asks_for_is_left_out() -> None:
    def change(kernel: tile.Kernel) -> None:
        Rewriter.erase_op(all_of(kernel, hopper.TmaStore)[0])

    kernel, program = lowered_case("attention")
    assert len(all_of(kernel, hopper.TmaStore)) == 1
    refused(change, "effects", kernel, program)


def test_threads_fence_what_they_read_before_a_slot_is_filled_again() -> None:
    mapping = task_sums(1, 64, 32, 32, 3, specialize=False, persistent=False)
    made = cy.program(mapping)
    kernel, program = lower_with_program(made.emitted.kernel.clone(), Pins(plan=made.plan))

    def unfenced(kernel: tile.Kernel) -> None:
        for fence in all_of(all_of(kernel, scf.ForOp)[1], hopper.ProxyFence):
            Rewriter.erase_op(fence)

    refused(unfenced, "proxy fence", kernel, program)


# --- coordinates that are computed an iteration ahead ---------------------------------------------


def sum_of_blocks(a_desc, b_desc, c_desc, x_ptr, tiles, count):
    """Load a and b at the quotient and the rest that the tile of x lies at."""
    acc = tl.zeros((64, 64), tl.float32)
    rows, columns = tl.arange(0, 64)[:, None], tl.arange(0, 64)[None, :]
    for i in range(0, count):
        row, column = i // tiles * 64, i % tiles * 64
        a, b = a_desc.load([row, column]), b_desc.load([column, row])
        x = tl.load(x_ptr + (row + rows) * 64 + column + columns)
        acc = tl.dot(a, b, acc) + x
    c_desc.store([0, 0], acc.to(tl.float16))


def test_quotients_that_a_loop_carries_are_those_of_the_iteration() -> None:
    desc = DescriptorArg("f16", (64, 64))
    arguments = {f"{name}_desc": desc for name in "abc"}
    arguments |= {
        "x_ptr": PointerArg("f16", 16),
        "tiles": ScalarArg("i32"),
        "count": ScalarArg("i32"),
    }
    kernel, program = lower_with_program(
        build(sum_of_blocks, arguments, {}), Pins(specialize=False)
    )
    assert len(all_of(kernel, hopper.TmaLoad)) == 4, "the last iteration stands behind the loop"

    def last_elsewhere(kernel: tile.Kernel) -> None:
        behind = all_of(kernel, hopper.TmaLoad)[2]
        behind.operands[1] = number(behind, 0)

    def first_elsewhere(kernel: tile.Kernel) -> None:
        carried = all_of(kernel, hopper.TmaLoad)[0].offsets[0]
        assert isinstance(carried, BlockArgument)
        loop = carried.block.parent_op()
        assert isinstance(loop, scf.ForOp)
        loop.operands[2 + carried.index] = number(loop, 64)

    refused(last_elsewhere, "coordinates", kernel, program)
    refused(first_elsewhere, "coordinates", kernel, program)
