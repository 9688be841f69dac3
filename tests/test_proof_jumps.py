"""Instances go on over the tiles of others: right from each slot and phase, or not proved."""

from __future__ import annotations

from itertools import product

import pytest
from xdsl.dialects import scf
from xdsl.dialects.builtin import IntAttr, StringAttr, i1
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

import test_lower_instances as instances
from proof_kernels import KERNELS
from tawa.errors import ProtocolError, UnprovedProtocol
from tawa.ir import hopper, tile
from tawa.ir.control import terminator
from tawa.ir.types import i32
from tawa.simulator.proof import prove
from tawa.simulator.proof.read import read_kernel
from tawa.target import H200

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
        inner = next(op for op in self.loop.body.walk() if isinstance(op, scf.ForOp))
        self.ends = {
            argument.name_hint: end
            for argument, end in zip(inner.body.block.args[1:], inner.results)
            if argument.name_hint in ("slot", "phase")
        }
        self.last = terminator(self.loop.body.block)
        arguments = self.loop.body.block.args[1:]
        self.places = {argument.name_hint: place for place, argument in enumerate(arguments)}

    def constant(self, number: int) -> SSAValue:
        made = tile.Constant(attributes={"value": IntAttr(number)}, result_types=[i32])
        return self.before(made)

    def computed(self, name: str, *inputs: SSAValue, to: object = i32) -> SSAValue:
        function = {"function": StringAttr(name)}
        made = tile.Elementwise(operands=[inputs], attributes=function, result_types=[to])
        return self.before(made)

    def before(self, made: Operation) -> SSAValue:
        Rewriter.insert_op(made, InsertPoint.before(self.last))
        return made.results[0]

    def spoil(self, what: str, there: SSAValue, turn: int) -> None:
        """Let a slot or phase be the next one where a condition holds: of so many."""
        place = self.places[what]
        right = self.last.operands[place]
        next_one = self.computed("add", right, self.constant(1))
        wrong = self.computed("irem", next_one, self.constant(turn))
        self.last.operands[place] = self.computed("select", there, wrong, right)

    def at(self, slot: int, phase: int) -> SSAValue:
        """Return whether the trips of a tile left the ring at a slot and phase."""
        there = self.computed("eq", self.ends["phase"], self.constant(phase), to=i1)
        if "slot" not in self.ends:
            return there
        slots = self.computed("eq", self.ends["slot"], self.constant(slot), to=i1)
        return self.computed("and", slots, there, to=i1)


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
