"""What a scalar depends on, and when the conditions of a loop are steady."""

from __future__ import annotations

from dataclasses import dataclass, field

from xdsl.dialects import scf
from xdsl.ir import BlockArgument, Operation, SSAValue

from tawa.analysis.polynomial import Known, polynomial
from tawa.ir import hopper, tile
from tawa.ir.control import terminator
from tawa.simulator.proof.counting import Loop, counts, recurrence_of
from tawa.simulator.proof.functions import name_of

_COMPARE = frozenset({"lt", "le", "gt", "ge", "eq", "ne"})
_LAUNCH = (
    hopper.BlockId,
    hopper.NumBlocks,
    hopper.GridExtent,
    hopper.ClusterRank,
    tile.ProgramId,
    tile.NumPrograms,
)


@dataclass(eq=False, slots=True)
class Leaves:
    """What a scalar depends on: loops whose trips it counts, conditions that choose between its
    values, carried values, loops that it is a result of, numbers that the program does not say
    (`open`), and memory (`reads`).
    """

    loops: dict[Loop, None] = field(default_factory=lambda: {})
    ended: dict[Loop, None] = field(default_factory=lambda: {})
    branches: dict[scf.IfOp, None] = field(default_factory=lambda: {})
    carried: dict[BlockArgument, None] = field(default_factory=lambda: {})
    open: bool = False
    reads: bool = False

    def add(self, other: Leaves) -> None:
        """Add what another scalar depends on."""
        self.loops.update(other.loops)
        self.ended.update(other.ended)
        self.branches.update(other.branches)
        self.carried.update(other.carried)
        self.open |= other.open
        self.reads |= other.reads


@dataclass(eq=False, slots=True)
class Origin:
    """What one scalar is computed from: other scalars, and what it adds to the leaves."""

    values: tuple[SSAValue, ...] = ()
    loop: Loop | None = None
    ended: Loop | None = None
    branch: scf.IfOp | None = None
    carried: BlockArgument | None = None
    open: bool = False
    reads: bool = False

    def add_to(self, leaves: Leaves) -> None:
        """Add what the scalar itself is."""
        if self.loop is not None:
            leaves.loops[self.loop] = None
        if self.ended is not None:
            leaves.ended[self.ended] = None
        if self.branch is not None:
            leaves.branches[self.branch] = None
        if self.carried is not None:
            leaves.carried[self.carried] = None
        leaves.open |= self.open
        leaves.reads |= self.reads


@dataclass(eq=False, slots=True)
class Steadiness:
    """After `trips` trips of a loop its conditions repeat every `period` trips."""

    trips: int = 0
    period: int = 1

    @property
    def settled(self) -> int:
        """The trip from which on its conditions only repeat, and their period less one."""
        return self.trips + self.period - 1


def origin_of(value: SSAValue) -> Origin:
    """Return what one scalar is computed from."""
    return _of_argument(value) if isinstance(value, BlockArgument) else _of_result(value)


def _of_result(value: SSAValue) -> Origin:
    owner = value.owner
    assert isinstance(owner, Operation)
    match owner:
        case tile.Constant():
            return Origin()
        case tile.Elementwise() | tile.Cast() | tile.Bitcast():
            return Origin(tuple(owner.operands))
        case tile.DescExtent():  # of an argument a number fixed at launch
            return Origin((owner.desc,))
        case scf.ForOp() | scf.IfOp() | scf.WhileOp():
            index = list(owner.results).index(value)  # pyright: ignore[reportArgumentType]
        case _:
            return Origin(open=True, reads=not isinstance(owner, _LAUNCH))
    match owner:
        case scf.ForOp():
            return Origin((owner.body.block.args[index + 1],), ended=owner)
        case scf.IfOp():
            ends = [terminator(region.block) for region in owner.regions if region.blocks]
            return Origin(tuple(end.operands[index] for end in ends), branch=owner)
        case _:
            passed = terminator(owner.before_region.block).operands[index + 1]
            return Origin((passed,), ended=owner)


def _of_argument(value: BlockArgument) -> Origin:
    loop = value.owner.parent_op()
    match loop:
        case scf.ForOp() if value.index == 0:
            return Origin((loop.lb, loop.step), loop=loop)
        case scf.ForOp() | scf.WhileOp():
            recurrence = recurrence_of(value)
            if recurrence is None:  # what the test of a while loop passes on
                assert isinstance(loop, scf.WhileOp)
                return Origin((terminator(loop.before_region.block).operands[value.index + 1],))
            first, back = recurrence
            if counts(value, back):
                return Origin((first,), loop=loop)
            if back is value:
                return Origin((first,))
            return Origin((first, back), carried=value)
        case _:
            return Origin(open=True)


def compared(control: Operation) -> list[tuple[SSAValue, SSAValue]]:
    """Return the two scalars whose distance alone decides what a loop or condition does."""
    match control:
        case scf.ForOp() if polynomial(control.step).as_constant is not None:
            return [(control.lb, control.ub)]
        case scf.IfOp():
            match control.cond.owner:
                case tile.Elementwise(function=name, inputs=(a, b)) if name.data in _COMPARE:
                    return [(a, b)]
                case _:
                    return []
        case _:
            return []


def apart(first: SSAValue, second: SSAValue, known: Known) -> int | None:
    """Return second - first where it is one number for all inputs: ``row + 64`` - `row`."""
    if name_of("lt", first.type) != "lt":
        return None  # a float may be NaN, and fewer bits wrap
    return (polynomial(second, known) - polynomial(first, known)).as_constant
