"""What synchronizes by the number of a trip: run as far as it changes, else unproved."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from xdsl.dialects import scf
from xdsl.dialects.builtin import IntAttr, StringAttr, i1
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from proof_kernels import KERNELS
from tawa.errors import ProtocolError, UnprovedProtocol
from tawa.ir import hopper, parse, tile
from tawa.ir.types import i32
from tawa.simulator.proof import prove
from tawa.simulator.proof.configuration import Configuration, Shape, Site, sequence_of
from tawa.simulator.proof.counting import most_trips
from tawa.simulator.proof.read import read_kernel
from tawa.simulator.proof.searches import searching
from tawa.target import H200


def sample(name: str = "gemm") -> tile.Kernel:
    return KERNELS[f"sample {name}"]()


def all_of(kernel: tile.Kernel, kind: type[Operation]) -> list[Operation]:
    return [operation for operation in kernel.walk() if isinstance(operation, kind)]


def constant(before: Operation, number: int) -> SSAValue:
    made = tile.Constant(attributes={"value": IntAttr(number)}, result_types=[i32])
    Rewriter.insert_op(made, InsertPoint.before(before))
    return made.result


def computed(before: Operation, name: str, a: SSAValue, b: SSAValue, to: object = i32) -> SSAValue:
    made = tile.Elementwise(
        operands=[[a, b]], attributes={"function": StringAttr(name)}, result_types=[to]
    )
    Rewriter.insert_op(made, InsertPoint.before(before))
    return made.result


def index_around(operation: Operation) -> SSAValue:
    """Return the number of the trip, in elements, of the loop around an operation."""
    parent = operation.parent_op()
    while not isinstance(parent, scf.ForOp):
        assert parent is not None
        parent = parent.parent_op()
    return parent.body.block.args[0]


def guard(operation: Operation, condition: SSAValue) -> None:
    """Put an operation under a condition."""
    branch = scf.IfOp(condition, [], Region([Block()]))
    Rewriter.insert_op(branch, InsertPoint.before(operation))
    operation.detach()
    branch.true_region.block.add_ops([operation, scf.YieldOp()])


Condition = Callable[[Operation, SSAValue], SSAValue]


def but(trip: int) -> Condition:
    """All trips but one."""
    return lambda at, k: computed(at, "ne", k, constant(at, 64 * trip), i1)


def before(trip: int) -> Condition:
    return lambda at, k: computed(at, "lt", k, constant(at, 64 * trip), i1)


def odd(at: Operation, k: SSAValue) -> SSAValue:
    rest = computed(at, "irem", k, constant(at, 128))
    return computed(at, "ne", rest, constant(at, 0), i1)


def third(at: Operation, k: SSAValue) -> SSAValue:
    """Of the trips' numbers, divided by four, every third; another way round."""
    part = computed(at, "idiv", computed(at, "sub", k, constant(at, 640)), constant(at, 256))
    return computed(at, "ne", computed(at, "irem", part, constant(at, 3)), constant(at, 2), i1)


def from_quotient(at: Operation, k: SSAValue) -> SSAValue:
    part = computed(at, "shr", k, constant(at, 8))
    return computed(at, "lt", part, constant(at, 9), i1)


def guarded_release(condition: Condition) -> tile.Kernel:
    """The GEMM whose consumer releases a slot only where a condition on the trip holds."""
    kernel = sample()
    arrive = all_of(kernel, hopper.Arrive)[0]
    guard(arrive, condition(arrive, index_around(arrive)))
    return kernel


@pytest.mark.parametrize(
    "condition",
    [but(1), but(9), but(37), but(300), before(40), odd, third, from_quotient],
    ids=["but 1", "but 9", "but 37", "but 300", "before 40", "odd", "third", "quotient"],
)
def test_a_change_at_one_later_trip_is_found(condition: Condition) -> None:
    with pytest.raises(ProtocolError) as caught:
        prove(guarded_release(condition), H200)
    assert not isinstance(caught.value, UnprovedProtocol)


def squared(at: Operation, k: SSAValue) -> SSAValue:
    return computed(at, "ne", computed(at, "mul", k, k), constant(at, 4096), i1)


@pytest.mark.parametrize(
    ("condition", "why"),
    [
        (but(10_000), "at trip 10000 of a loop, beyond the 512 that are run"),
        (squared, "not seen that it settles or repeats"),
    ],
)
def test_what_does_not_settle_is_unproved(condition: Condition, why: str) -> None:
    with pytest.raises(UnprovedProtocol, match=why):
        prove(guarded_release(condition), H200)


def test_a_slot_that_counts_trips_is_unproved() -> None:
    kernel = sample()
    wait = all_of(kernel, hopper.Wait)[0]
    trip = computed(wait, "idiv", index_around(wait), constant(wait, 64))
    wait.operands[1] = computed(wait, "irem", trip, constant(wait, 3))
    with pytest.raises(UnprovedProtocol, match=r"the slot of hopper\.wait is computed from the nu"):
        prove(kernel, H200)


def test_a_slot_that_leaves_its_ring_later_is_found() -> None:
    """Slot and phase of trip 37 are others than the ring's."""
    kernel = sample()
    load = all_of(kernel, scf.ForOp)[0]
    end = load.body.block.last_op
    assert end is not None
    there = computed(end, "eq", load.body.block.args[0], constant(end, 64 * 37), i1)
    jump = computed(end, "irem", computed(end, "add", end.operands[0], there), constant(end, 3))
    end.operands[0] = jump
    with pytest.raises(ProtocolError):
        prove(kernel, H200)


def test_a_condition_that_no_input_fulfils_is_unproved() -> None:
    kernel = sample()
    arrive = all_of(kernel, hopper.Arrive)[0]
    k = kernel.body.block.args[-1]
    assert k.type == i32
    never = computed(arrive, "lt", computed(arrive, "mul", k, k), constant(arrive, 0), i1)
    fence = hopper.ProxyFence()
    Rewriter.insert_op(fence, InsertPoint.before(arrive))
    guard(fence, never)
    with pytest.raises(UnprovedProtocol, match=r"no input was found that reaches hopper\.proxy_f"):
        prove(kernel, H200)


def test_code_under_a_constant_is_dead() -> None:
    kernel = sample()
    arrive = all_of(kernel, hopper.Arrive)[0]
    never = computed(arrive, "lt", constant(arrive, 1), constant(arrive, 0), i1)
    fence = hopper.ProxyFence()
    Rewriter.insert_op(fence, InsertPoint.before(arrive))
    guard(fence, never)
    proof = prove(kernel, H200)
    assert len(proof.unreached) == 1
    assert "1 operations are reached by no input" in proof.verdict


def test_when_loops_are_steady() -> None:
    assert read_kernel(sample(), H200).steady.trips == 1  # the release lags by one trip
    assert read_kernel(guarded_release(but(37)), H200).steady.trips == 38
    assert read_kernel(guarded_release(odd), H200).steady.period == 2


def test_trip_counts() -> None:
    assert list(Shape(3, 1, 1, 0, 1, 3, False).counts()) == [0, 1, 2, 3, 4, 5]
    found = Shape(3, 1, 99, 0, 1, 3, False).counts()
    assert list(found) == [0, 1, 2, 3, 4, 98, 99, 100, 101, 102, 103]
    for around in range(3):
        shape = Shape(3, 2, 1, around, 1, 3, False)
        assert shape.tiles(1) == 2 * 3 + 1 + around
        for count in range(2, 9):  # D+2 trips side by side, from each trip of a tile on
            tiles = shape.tiles(count) - around
            assert tiles * count >= 3 + 2 + count - 1
            assert tiles >= 2 + 1  # and one more than the ring that only tiles turn is deep


def test_many_tiles_of_many_trips_are_looked_for() -> None:
    # A bound that is a multiple of 16 gives no trips or many: one trip a tile is none.
    shape, tiles = Shape(3, 1, 1, 0, 1, 3, False), Site(hopper.ProxyFence(), "around")
    seen = [Configuration({}, outcomes={tiles: [1]})]
    wishes = [(c.kinds["inner"], dict(c.sites)) for c in searching(seen, 1, shape)]
    assert ((shape.long,), {tiles.operation: (shape.tiles(0),)}) in wishes


@pytest.mark.parametrize("order", [2, 3, 4])
def test_a_sequence_holds_all_sequences(order: int) -> None:
    word = sequence_of(order)
    found = {word[place : place + order] for place in range(len(word) - order + 1)}
    assert len(found) == 2**order == len(word) - order + 1


@pytest.mark.parametrize("name", ["flash 64 causal split", "library stream 0", "instances three"])
def test_unlike_loops_are_reached_throughout(name: str) -> None:
    assert prove(KERNELS[name](), H200).unreached == ()


def loop_under(condition: str, first: int, region: str) -> scf.ForOp:
    """A loop from 0 to n by 16 in one region of `if first CONDITION n`."""
    loop = """%r = scf.for %k = %zero to %n step %step iter_args(%x = %zero) -> (i32) : i32 {
          scf.yield %x : i32
        }"""
    then, otherwise = (loop, "") if region == "then" else ("", loop)
    kernel = parse(f""""tile.kernel"() ({{
    ^bb0(%n : i32):
      %zero = tile.constant {{value = #builtin.int<0>}} : i32
      %step = tile.constant {{value = #builtin.int<16>}} : i32
      %first = tile.constant {{value = #builtin.int<{first}>}} : i32
      %more = tile.elementwise "{condition}"(%first, %n) : (i32, i32) -> i1
      scf.if %more {{
        {then}
      }} else {{
        {otherwise}
      }}
    }}) {{sym_name = "k", arguments = [{{name = "n"}}], options = {{}}}} : () -> ()""")
    return all_of(kernel, scf.ForOp)[0]


@pytest.mark.parametrize(
    ("condition", "first", "region", "most"),
    [
        ("lt", 16, "else", 1),  # n <= 16
        ("lt", 32, "else", 2),
        ("le", 32, "else", 2),  # n < 32
        ("gt", 17, "then", 1),  # n < 17
        ("ge", 17, "then", 2),
        ("ge", 0, "then", 0),
        ("lt", 16, "then", None),
        ("gt", 17, "else", None),
        ("lt", 1024, "else", None),  # more than are worth telling
    ],
)
def test_conditions_that_bound_a_loop(condition, first, region, most) -> None:
    assert most_trips(loop_under(condition, first, region), {}) == most
