"""Instances go on over the tiles of others: right from each slot and phase, or not proved."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

import pytest
from xdsl.dialects import scf
from xdsl.dialects.builtin import IntAttr, StringAttr, i1, i64
from xdsl.ir import Block, BlockArgument, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

import test_lower_instances as instances
from proof_kernels import KERNELS
from tawa.errors import ProtocolError, UnprovedProtocol
from tawa.ir import hopper, parse, tile
from tawa.ir.control import terminator
from tawa.ir.types import i32
from tawa.simulator.proof import prove
from tawa.simulator.proof.dependence import Dependence
from tawa.simulator.proof.jumps import Jumps
from tawa.simulator.proof.read import read_kernel
from tawa.target import H200
from test_proof_uniform import guard

DEPTHS = [*product((2, 3), (1, 2, 3)), (2, 4)]


def lowered(consumers: int, depth: int) -> tile.Kernel:
    return instances._lowered(consumers=consumers, depth=depth)


def not_alike(kernel: tile.Kernel) -> bool:
    """Tell whether a loop is not seen to go on alike from each slot and phase."""
    return bool(read_kernel(kernel, H200).decoder.uniform.jumping)


class Jump:
    """What the first instance of a kernel carries from one tile to the next."""

    def __init__(self, kernel: tile.Kernel) -> None:
        (role,) = (op for op in kernel.walk() if isinstance(op, hopper.Role) and of_first(op))
        self.loop = next(op for op in role.walk() if isinstance(op, scf.ForOp))
        self.inner = next(op for op in self.loop.body.walk() if isinstance(op, scf.ForOp))
        self.begins = named(self.loop.body.block.args[1:])
        self.ends = {
            argument.name_hint: end
            for argument, end in zip(self.inner.body.block.args[1:], self.inner.results)
            if argument.name_hint in ("slot", "phase")
        }
        self.last = terminator(self.loop.body.block)
        self.place = self.last  # before which something is computed
        self.places = {name: each.index - 1 for name, each in self.begins.items()}

    def constant(self, number: int) -> SSAValue:
        made = tile.Constant(attributes={"value": IntAttr(number)}, result_types=[i32])
        return self.before(made)

    def computed(self, name: str, *inputs: SSAValue, to: object = i32) -> SSAValue:
        function = {"function": StringAttr(name)}
        made = tile.Elementwise(operands=[inputs], attributes=function, result_types=[to])
        return self.before(made)

    def before(self, made: Operation) -> SSAValue:
        Rewriter.insert_op(made, InsertPoint.before(self.place))
        return made.results[0]

    @property
    def right(self) -> dict[str, SSAValue]:
        """What is handed to the next tile."""
        return {name: self.last.operands[place] for name, place in self.places.items()}

    def hand_on(self, what: str, value: SSAValue) -> None:
        self.last.operands[self.places[what]] = value

    def next_one(self, value: SSAValue, turn: int) -> SSAValue:
        return self.computed(
            "irem", self.computed("add", value, self.constant(1)), self.constant(turn)
        )

    def spoiled(self, value: SSAValue, there: SSAValue, turn: int) -> SSAValue:
        """Return a slot or phase, the next one where a condition holds: of so many."""
        return self.computed("select", there, self.next_one(value, turn), value)

    def spoil(self, what: str, there: SSAValue, turn: int) -> None:
        self.hand_on(what, self.spoiled(self.right[what], there, turn))

    def at(self, slot: int, phase: int, ring: dict[str, SSAValue] | None = None) -> SSAValue:
        """Return whether the trips of a tile left the ring at a slot and phase."""
        ring = ring or self.ends
        there = self.computed("eq", ring["phase"], self.constant(phase), to=i1)
        if "slot" not in ring:
            return there
        slots = self.computed("eq", ring["slot"], self.constant(slot), to=i1)
        return self.computed("and", slots, there, to=i1)

    def sum(self) -> tuple[tile.Elementwise, tile.Elementwise, SSAValue]:
        """Return the remainder that is the next slot, the sum that it is of, and what is added."""
        remainder = self.right["slot"].owner
        assert isinstance(remainder, tile.Elementwise)
        total = remainder.inputs[0].owner
        assert isinstance(total, tile.Elementwise)
        (more,) = (each for each in total.inputs if each is not self.ends["slot"])
        return remainder, total, more


def named(values: Iterable[BlockArgument]) -> dict[str, SSAValue]:
    return {each.name_hint: each for each in values if each.name_hint in ("slot", "phase")}


def of_first(role: hopper.Role) -> bool:
    return role.label.data == "mma0"


@pytest.mark.parametrize(("consumers", "depth"), DEPTHS)
def test_what_the_compiler_makes_is_alike(consumers: int, depth: int) -> None:
    assert not not_alike(lowered(consumers, depth))


@pytest.mark.parametrize("name", [name for name in KERNELS if "instances" in name])
def test_kernels_of_instances_are_alike(name: str) -> None:
    assert not not_alike(KERNELS[name]())


@pytest.mark.parametrize(("consumers", "depth"), DEPTHS)
def test_a_phase_wrong_at_one_position_is_seen(consumers: int, depth: int) -> None:
    for slot, phase in product(range(depth), (0, 1)):
        kernel = lowered(consumers, depth)
        jump = Jump(kernel)
        jump.spoil("phase", jump.at(slot, phase), 2)
        assert not_alike(kernel), (slot, phase)


@pytest.mark.parametrize(("consumers", "depth"), [each for each in DEPTHS if each[1] > 1])
def test_a_slot_wrong_at_one_position_is_seen(consumers: int, depth: int) -> None:
    for slot, phase in product(range(depth), (0, 1)):
        kernel = lowered(consumers, depth)
        jump = Jump(kernel)
        jump.spoil("slot", jump.at(slot, phase), depth)
        assert not_alike(kernel), (slot, phase)


def test_a_jump_wrong_for_one_number_of_trips_is_seen() -> None:
    kernel = lowered(2, 3)
    jump = Jump(kernel)
    length = kernel.body.block.args[-1]
    assert length.type == i32
    jump.spoil("phase", jump.computed("eq", length, jump.constant(5 * 32), to=i1), 2)
    assert not_alike(kernel)


# --- where it is computed in other ways ----------------------------------------------------------


def spoiled(depth: int = 4) -> tuple[tile.Kernel, Jump, SSAValue]:
    """Return a kernel of three instances, and a phase that is wrong at one position."""
    kernel = lowered(3, depth)
    jump = Jump(kernel)
    return kernel, jump, jump.spoiled(jump.right["phase"], jump.at(0, 0), 2)


def test_behind_a_cast() -> None:
    kernel, jump, wrong = spoiled()
    for to in (i64, i32):
        wrong = jump.before(tile.Cast(operands=[wrong], result_types=[to]))
    jump.hand_on("phase", wrong)
    assert not_alike(kernel)


def test_behind_a_branch() -> None:
    kernel, jump, wrong = spoiled()
    sides = [Region(Block([scf.YieldOp(each)])) for each in (wrong, jump.right["phase"])]
    jump.hand_on("phase", jump.before(scf.IfOp(jump.at(0, 0), [i32], *sides)))
    assert not_alike(kernel)


@pytest.mark.parametrize("position", range(8))
def test_a_loop_inside_that_begins_elsewhere_is_seen(position: int) -> None:
    kernel = lowered(3, 4)
    jump = Jump(kernel)
    jump.place = jump.inner
    there = jump.at(position % 4, position // 4, jump.begins)
    wrong = jump.spoiled(jump.begins["phase"], there, 2)
    place = list(jump.inner.operands).index(jump.begins["phase"])
    jump.inner.operands[place] = wrong
    assert not_alike(kernel)


def test_a_buffer_of_another_slot_is_seen() -> None:
    kernel = lowered(3, 4)
    jump = Jump(kernel)
    slot = next(op for op in jump.inner.walk() if isinstance(op, hopper.Slot))
    jump.place, ring = slot, named(jump.inner.body.block.args[1:])
    slot.operands[1] = jump.spoiled(slot.index, jump.at(1, 1, ring), 4)
    assert not_alike(kernel)


def test_what_a_phase_decides_is_seen() -> None:
    kernel = lowered(2, 3)
    jump = Jump(kernel)
    release = next(op for op in jump.inner.walk() if isinstance(op, hopper.Arrive))
    ring = named(jump.inner.body.block.args[1:])
    jump.place = release
    guard(release, jump.computed("eq", ring["phase"], jump.constant(0), to=i1))
    assert not_alike(kernel)


# --- the numbers by which it jumps ---------------------------------------------------------------


def test_a_quotient_of_what_is_below_zero_is_not_taken_to_repeat() -> None:
    kernel = lowered(2, 3)  # right for up to 104 trips: quotients round to zero
    jump = Jump(kernel)
    _, total, _ = jump.sum()
    less = jump.computed("sub", total.results[0], jump.constant(104))
    turns = jump.computed("and", jump.computed("idiv", less, jump.constant(3)), jump.constant(1))
    jump.hand_on("phase", jump.computed("xor", jump.ends["phase"], turns))
    assert not_alike(kernel)


def test_numbers_that_go_with_the_tile_are_not_fixed() -> None:
    kernel = lowered(2, 3)  # right for the last 20 tiles of a block
    jump = Jump(kernel)
    _, _, trips = jump.sum()
    *_, tiles = (
        op
        for op in jump.loop.body.block.ops
        if isinstance(op, tile.Elementwise) and op.function.data == "min"
    )
    late = jump.computed("idiv", tiles.inputs[0], jump.constant(20))
    far = jump.computed("add", jump.ends["slot"], jump.computed("add", trips, late))
    turns = jump.computed("and", jump.computed("idiv", far, jump.constant(3)), jump.constant(1))
    jump.hand_on("slot", jump.computed("irem", far, jump.constant(3)))
    jump.hand_on("phase", jump.computed("xor", jump.ends["phase"], turns))
    assert not_alike(kernel)


def test_where_an_instance_begins_is_seen() -> None:
    kernel = lowered(2, 3)  # right where a tile makes less than 24 trips
    jump = Jump(kernel)
    jump.place = jump.loop
    first = jump.loop.iter_args[jump.places["slot"]].owner
    assert isinstance(first, tile.Elementwise)
    turns = jump.computed("idiv", first.inputs[0], jump.constant(3))
    late = jump.computed("idiv", turns, jump.constant(8))
    odd = jump.computed("and", jump.computed("xor", turns, late), jump.constant(1))
    jump.loop.operands[3 + jump.places["phase"]] = odd
    assert not_alike(kernel)


# --- the verdict ---------------------------------------------------------------------------------


@pytest.mark.parametrize("position", range(8))
def test_it_is_not_proved(position: int) -> None:
    """Whether a run comes to the position where it is wrong or not."""
    kernel = lowered(2, 4)
    jump = Jump(kernel)
    jump.spoil("phase", jump.at(position % 4, position // 4), 2)
    with pytest.raises(ProtocolError):
        prove(kernel, H200)


def test_what_no_run_comes_to_is_said() -> None:
    kernel = lowered(3, 4)
    jump = Jump(kernel)
    jump.spoil("phase", jump.at(0, 0), 2)
    with pytest.raises(UnprovedProtocol, match="goes on over the trips of other roles"):
        prove(kernel, H200)


ROUNDS = """
    %size = tile.constant {value = #builtin.int<4>} : i32
    %zero = tile.constant {value = #builtin.int<0>} : i32
    %depth = tile.constant {value = #builtin.int<8>} : i32
    scf.for %at = %zero to %K step %size iter_args(%s = %zero) -> (i32) : i32 {
      %left = tile.elementwise "sub"(%K, %at) : (i32, i32) -> i32
      %trips = tile.elementwise "min"(%left, %size) : (i32, i32) -> i32
      %on = tile.elementwise "add"(%s, %trips) : (i32, i32) -> i32
      %t = tile.elementwise "irem"(%on, %depth) : (i32, i32) -> i32
      scf.yield %t : i32
    }
"""


@pytest.mark.parametrize("first", [False, True])
def test_what_is_kept_of_a_scalar_is_kept_by_the_loop_that_hands_it_on(first: bool) -> None:
    """Each round but the last makes four trips: so many further is the same slot in each of them
    for the loop, which is handed none after the last; whoever looks at one meets all.
    """
    kernel = parse(
        f'"tile.kernel"() ({{\n^bb0(%K: i32):{ROUNDS}}}) {{sym_name = "rounds", '
        'arguments = [{name = "K"}], options = {}} : () -> ()'
    )
    loop = next(op for op in kernel.walk() if isinstance(op, scf.ForOp))
    carried = loop.body.block.args[1]
    slot = terminator(loop.body.block).operands[0]
    jumps = Jumps([carried], {carried: {"slot": {8}}}, Dependence().plain_leaves, {})
    asked = ((slot, "slot"),)
    for handed in (first, not first, first):
        assert jumps.are_alike(asked, 8, loop if handed else None) is handed
