"""What the aref program writes, and copies, happens as often and under the same conditions: each
change is made in all roles alike, so that the protocol stays right."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from xdsl.dialects import scf
from xdsl.dialects.builtin import IntAttr
from xdsl.ir import Operation
from xdsl.rewriter import InsertPoint, Rewriter

import tawa.language as tl
from tawa.frontend import build
from tawa.frontend.signature import DescriptorArg, PointerArg, ScalarArg
from tawa.ir import hopper, tile
from tawa.ir.walk import all_of
from tawa.plan.pins import Pins
from tawa.verify import Program, check
from tawa.verify.forwarded import loops_around
from test_lower_instances import _tiles, residual
from test_verify_refinement import computed, number, refused, role
from verify_programs import lower_with_program, lowered_case

SYNCHRONIZES = (hopper.Wait, hopper.Arrive, hopper.TmaLoad)


def guarded(a_desc, b_desc, c_desc, x_ptr, count, flag):
    acc = tl.zeros((64, 64), tl.float32)
    for i in range(0, count):
        if i % 2 == flag:
            acc = tl.dot(a_desc.load([0, i * 64]), b_desc.load([i * 64, 0]), acc)
    if flag > 0:
        c_desc.store([0, 0], acc)
    tl.store(x_ptr + tl.arange(0, 64), tl.sum(acc, 1))
    if count > 5:
        tl.store(x_ptr + 64 + tl.arange(0, 64), tl.sum(acc, 0))
    tl.atomic_add(x_ptr + 128, 1.0)


def again(a_desc, b_desc, c_desc, x_ptr, count, flag):
    """Store twice to one place, and add there."""
    acc = tl.zeros((64, 64), tl.float32)
    for i in range(0, count):
        acc = tl.dot(a_desc.load([0, i * 64]), b_desc.load([i * 64, 0]), acc)
    c_desc.store([0, 0], acc)
    for i in range(0, count):
        acc = tl.dot(a_desc.load([64, i * 64]), b_desc.load([i * 64, 64]), acc)
    c_desc.store([0, 0], acc)
    c_desc.atomic_add([64, 0], acc)


def summed(a_desc, b_desc, c_desc, x_ptr, count, flag):
    """What decides is a number that nobody knows."""
    for i in range(0, count):
        x = tl.load(x_ptr + i * 64 + tl.arange(0, 64))
        if tl.sum(x) > 0:
            tl.store(x_ptr + i * 64 + tl.arange(0, 64), x + 1)


def nested(a_desc, b_desc, c_desc, x_ptr, count, flag):
    """Two numbers that nobody knows decide: one is not the other, nor its contrary."""
    for i in range(0, count):
        x = tl.load(x_ptr + i * 64 + tl.arange(0, 64))
        y = tl.load(x_ptr + 64 * count + i * 64 + tl.arange(0, 64))
        if tl.sum(x) > 0:
            if tl.sum(y) > 0:
                tl.store(x_ptr + i * 64 + tl.arange(0, 64), x + 1)
            else:
                tl.store(x_ptr + i * 64 + tl.arange(0, 64), y + 2)


def weighed(a_desc, b_desc, c_desc, x_ptr, count, flag):
    """What decides in both roles is compared with a constant that is no integer."""
    acc = tl.zeros((64, 64), tl.float32)
    for i in range(0, count):
        if flag.to(tl.float32, bitcast=True) > 0.5:
            acc = tl.dot(a_desc.load([0, i * 64]), b_desc.load([i * 64, 0]), acc)
    c_desc.store([0, 0], acc)


def gathered(a_ptr, b_desc, c_desc, count, flag):
    """Rows are loaded an iteration ahead: the last one stands beside its loop."""
    at = tl.arange(0, 64)
    rows = a_ptr + tl.load(a_ptr + at).to(tl.int32)[:, None] * 64 + at[None, :]
    acc = tl.zeros((64, 64), tl.float32)
    for i in range(0, count):
        a, b = tl.load(rows + i * 64), b_desc.load([i * 64, 0])
        if i % 2 == flag:
            acc = tl.dot(a, b, acc)
        acc = tl.dot(a, b, acc)
    c_desc.store([0, 0], acc)


def kept(a_desc, b_desc, c_desc, x_ptr, count, flag):
    """Products of what is loaded once: no copy says how many there are."""
    a, b = a_desc.load([0, 0]), b_desc.load([0, 0])
    acc = tl.zeros((64, 64), tl.float32)
    for i in range(0, count):
        if i % 2 == flag:
            acc = tl.dot(a, b, acc)
    c_desc.store([0, 0], acc)


def growing(a_desc, b_desc, c_desc, x_ptr, count, flag):
    """A loop that makes an iteration at least, as a program's number is never negative: copies and
    products of the first one stand before it under no condition.
    """
    program = tl.program_id(0)
    first, acc = a_desc.load([0, 0]), tl.zeros((64, 64), tl.float32)
    for i in range(0, program + 1):
        part = tl.dot(first, b_desc.load([i * 64, 0]))
        acc = tl.dot(part.to(tl.float16), b_desc.load([i * 64, 64]), acc)
    c_desc.store([program * 64, 0], acc)


def from_none(a_desc, b_desc, c_desc, x_ptr, count, flag):
    """The same loop, of which the first program makes no iteration: they have a condition."""
    program = tl.program_id(0)
    first, acc = a_desc.load([0, 0]), tl.zeros((64, 64), tl.float32)
    for i in range(0, program):
        part = tl.dot(first, b_desc.load([i * 64, 0]))
        acc = tl.dot(part.to(tl.float16), b_desc.load([i * 64, 64]), acc)
    c_desc.store([program * 64, 0], acc)


@cache
def made(function: Callable[..., None], specialize: bool) -> tuple[tile.Kernel, Program]:
    arguments = {f"{name}_desc": DescriptorArg("f16", (64, 64)) for name in "ab"}
    arguments |= {"c_desc": DescriptorArg("f32", (64, 64)), "x_ptr": PointerArg("f32", 16)}
    arguments |= {"count": ScalarArg("i32"), "flag": ScalarArg("i32")}
    pins = Pins(specialize=specialize)
    if function in (growing, from_none):  # programs that blocks hand out, the next copies ahead
        pins = Pins(specialize=specialize, persistent=specialize, schedule="coarse")
    return lower_with_program(build(function, arguments, {}), pins)


def condition_of(operation: Operation) -> scf.IfOp | None:
    parent = operation.parent_op()
    while parent is not None and not isinstance(parent, scf.IfOp):
        parent = parent.parent_op()
    return parent


def always(*kinds: type[Operation]) -> Callable[[tile.Kernel], None]:
    def change(kernel: tile.Kernel) -> None:
        found = {condition_of(each) for each in all_of(kernel, *kinds)} - {None}
        assert found
        for branch in found:
            assert branch is not None
            true = tile.Constant(attributes={"value": IntAttr(1)}, result_types=[branch.cond.type])
            Rewriter.insert_op(true, InsertPoint.before(branch))
            branch.operands[0] = true.result

    return change


def dropped(kind: type[Operation], place: int) -> Callable[[tile.Kernel], None]:
    return lambda kernel: Rewriter.erase_op(all_of(kernel, kind)[place])


def later(kernel: tile.Kernel) -> None:
    """A condition that holds from the next number on."""
    branch = condition_of(all_of(kernel, hopper.TmaStore)[0])
    assert branch is not None
    compared = branch.cond.owner
    assert isinstance(compared, tile.Elementwise)
    compared.operands[1] = computed(compared, "add", compared.operands[1], number(compared, 1))


def twice(kernel: tile.Kernel) -> None:
    (added,) = [each for each in all_of(kernel, hopper.TmaStore) if each.reduce is not None]
    Rewriter.insert_op(added.clone(), InsertPoint.after(added))


def shorter(kernel: tile.Kernel) -> None:
    loop = all_of(kernel, scf.ForOp)[-1]
    assert all_of(loop, hopper.Wgmma)
    loop.operands[1] = computed(loop, "sub", loop.ub, loop.step)


CHANGES: dict[str, tuple[Callable[..., None], Callable[[tile.Kernel], None]]] = {
    "copies under no condition": (guarded, always(*SYNCHRONIZES)),
    "a store by TMA under no condition": (guarded, always(hopper.TmaStore)),
    "a store by TMA under another condition": (guarded, later),
    "a store through pointers is lost": (guarded, dropped(tile.Store, 0)),
    "a store under a condition is lost": (guarded, dropped(tile.Store, 1)),
    "a store through pointers under no condition": (guarded, always(tile.Store)),
    "an atomic is lost": (guarded, dropped(tile.Atomic, 0)),
    "the first of two stores to one place is lost": (again, dropped(hopper.TmaStore, 0)),
    "the second of two stores to one place is lost": (again, dropped(hopper.TmaStore, 1)),
    "a tile is added twice": (again, twice),
    "a store under an unknown condition is lost": (summed, dropped(tile.Store, 0)),
    "a store under no unknown condition": (summed, always(tile.Store)),
    "a store under two unknown conditions is lost": (nested, dropped(tile.Store, 0)),
    "a store under the contrary of an unknown one is lost": (nested, dropped(tile.Store, 1)),
    "products under no condition": (kept, always(hopper.Wgmma)),
    "products of one iteration less": (kept, shorter),
    "copies of an iteration that may not be": (from_none, always(*SYNCHRONIZES)),
    "products of an iteration that may not be": (from_none, always(hopper.Wgmma)),
    "products of one iteration less than a program's number": (growing, shorter),
}


@pytest.mark.parametrize("specialize", [True, False])
@pytest.mark.parametrize("name", CHANGES)
def test_effects_are_those_of_the_program(name: str, specialize: bool) -> None:
    function, change = CHANGES[name]
    refused(change, "effects", *made(function, specialize and function not in (summed, nested)))


def test_roles_know_the_same_constants() -> None:
    kernel, program = made(weighed, True)
    assert len(all_of(kernel, hopper.Role)) > 1
    check(kernel, program=program)


def test_a_last_iteration_beside_its_loop() -> None:
    arguments = {"a_ptr": PointerArg("f16"), "b_desc": DescriptorArg("f16", (64, 64))}
    arguments |= {"c_desc": DescriptorArg("f32", (64, 64))}
    arguments |= {"count": ScalarArg("i32"), "flag": ScalarArg("i32")}
    kernel, program = lower_with_program(build(gathered, arguments, {}), Pins(specialize=False))
    (loop,) = all_of(kernel, scf.ForOp)
    assert len(all_of(kernel, hopper.Wgmma)) > len(all_of(loop, hopper.Wgmma)) > 0
    check(kernel, program=program)

    def change(kernel: tile.Kernel) -> None:
        """The condition of the last iteration is another one."""
        branches = [condition_of(each) for each in all_of(kernel, hopper.Wgmma)]
        last = [each for each in branches if each is not None and loops_around(each) == []][-1]
        assert isinstance(last.cond.owner, tile.Elementwise)
        last.operands[0] = computed(last, "ne", *last.cond.owner.inputs)

    refused(change, "effects", kernel, program)


def test_parts_of_a_tile_that_overlap() -> None:
    def change(kernel: tile.Kernel) -> None:
        first, second = all_of(kernel, hopper.TmaStore)[:2]
        second.operands[2] = computed(second, "add", first.offsets[1], number(second, 8))

    refused(change, "coordinates", *lowered_case("matmul in 4 parts"))


def test_loads_of_two_loops_through_one_ring_in_the_other_order() -> None:
    def change(kernel: tile.Kernel) -> None:
        for load in all_of(role(kernel, "load"), hopper.TmaLoad):
            axis = 1 + (load.map.owner.desc.name_hint == "b_desc")
            at = load.operands[axis]
            assert isinstance(at.owner, tile.Constant)
            load.operands[axis] = number(load, 64 - at.owner.value.data)

    refused(change, "coordinates", *made(again, True))


def test_an_instance_that_stores_nothing() -> None:
    kernel, program = lower_with_program(_tiles(residual), Pins(arrangement="pingpong"))
    roles = [each for each in all_of(kernel, hopper.Role) if all_of(each, hopper.TmaStore)]
    assert len(roles) == 2

    def change(kernel: tile.Kernel) -> None:
        last = [each for each in all_of(kernel, hopper.Role) if all_of(each, hopper.TmaStore)][-1]
        for store in all_of(last, hopper.TmaStore):
            Rewriter.erase_op(store)

    refused(change, "coordinates", kernel, program)
