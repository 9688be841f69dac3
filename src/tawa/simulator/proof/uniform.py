"""Uniformity: how synchronization may depend on the number of a trip.

The theorem about trip counts (docs/design/proof.md) needs that a trip does what the trip before it
did, one slot further. This module reads from the program on what the scalars that decide
synchronization depend, and refuses, as unproved, what the theorem does not cover:

- a slot or a phase may come from the ring's own recurrence and from numbers fixed at launch, never
  from the number of the trip alone;
- a condition that is a function of the number of the trip alone must settle: a comparison changes
  at one trip, a remainder repeats (`course`). `Steadiness` says after how many trips.

Scalars carried from trip to trip without counting (slots, phases, flags) form `orbits`: the runs
note which values they take, and the proof ends only when each of them has been stepped from, but
for those of rings that do the same from each position (`positions`). Those that jump by numbers
fixed at launch, over the trips of other roles, must do so alike (`jumps`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from itertools import chain
from math import lcm
from typing import TypeAlias

from xdsl.dialects import scf
from xdsl.dialects.builtin import i1
from xdsl.ir import BlockArgument, Operation, SSAValue

from tawa.analysis.polynomial import Known
from tawa.ir import tile
from tawa.ir.control import decisive
from tawa.simulator.proof.counting import recurrence_of
from tawa.simulator.proof.course import LATEST, Course, course_of, stays
from tawa.simulator.proof.cycles import Cycles
from tawa.simulator.proof.dependence import Dependence
from tawa.simulator.proof.jumps import Jumps
from tawa.simulator.proof.leaves import Steadiness, apart, compared
from tawa.simulator.proof.positions import Rings
from tawa.simulator.proof.rules import Unproved

Control: TypeAlias = scf.ForOp | scf.IfOp | scf.WhileOp

_JOIN = frozenset({"and", "or", "xor", "not", "select"})


@dataclass(frozen=True, slots=True)
class Uniform:
    """What holds of a kernel: when each loop is steady, the carried scalars that must recur, loops
    and conditions that no input decides, those of them that count trips of such loops alone
    (`constant`), operations whose slot or phase an input decides, loops whose trips, by the trip of
    another loop or by memory, differ from time to time; conditions that are the same each time;
    whether some condition goes by an input and the number of a trip (`mixed`); loops in which a
    slot or phase goes on by numbers fixed at launch, not alike from all (`jumping`); whether those
    of all rings do the same `everywhere` (`positions`), and the carried scalars that are `idle`
    until a trip hands them on.
    """

    steady: dict[Operation, Steadiness]
    orbits: dict[Operation, tuple[tuple[BlockArgument, ...], ...]]
    fixed: frozenset[Operation] = frozenset()
    constant: frozenset[Operation] = frozenset()
    chosen: Collection[Operation] = ()
    varying: frozenset[Operation] = frozenset()
    once: frozenset[Operation] = frozenset()
    mixed: bool = False
    jumping: Collection[Operation] = ()
    everywhere: bool = False
    idle: frozenset[BlockArgument] = frozenset()


def read_uniform(
    roots: Iterable[tuple[Operation, SSAValue, str]],
    conditions: Iterable[tuple[Operation, SSAValue]],
    controls: Iterable[Control],
    known: Known,
    depths: Callable[[Operation], int | None],
    lonely: Collection[SSAValue],
    elsewhere: Iterable[SSAValue],
    idle: bool,
) -> Uniform:
    """Read what slots, phases and conditions depend on.

    `roots` are (operation, operand, "slot" or "phase"), `conditions` (operation, condition) of what
    guards synchronization, `controls` all loops and conditions, `depths` tells how deep the ring is
    that an operation means, `lonely` are the buffers that overlap no other, `elsewhere` the scalars
    that decide something and are neither; a first trip may have `idle` ones. Raises Unproved beyond
    the theorem.
    """
    reader = _Reader(known, depths)
    for each in roots:
        reader.ring(*each)
    for each in conditions:
        reader.condition(*each)
    around = list(controls)
    for control in around:
        if isinstance(control, scf.ForOp):
            reader.bounds(control)
    fixed = frozenset(item for item in around if not reader.is_open(item))
    varies = {item: reader.varies(item) for item in around}
    constant = frozenset(each for each in fixed if reader.counted(each) <= fixed or stays(each))
    loops = frozenset(item for item in around if varies[item] and not isinstance(item, scf.IfOp))
    once = frozenset(item for item in around if not varies[item] and isinstance(item, scf.IfOp))
    return Uniform(
        reader.steady,
        reader.components(lonely, elsewhere, idle),
        fixed,
        constant,
        reader.chosen,
        loops,
        once,
        reader.mixed,
        reader.jumping,
        reader.everywhere,
        reader.idle,
    )


class _Reader:
    def __init__(self, known: Known, depths: Callable[[Operation], int | None]) -> None:
        self.depths = depths
        self.uses: dict[BlockArgument, dict[str, set[int | None]]] = {}
        self.roots: dict[Operation, dict[SSAValue, str]] = {}
        self.decides: dict[BlockArgument, Operation] = {}
        self.dependence = Dependence()
        self.leaves = self.dependence.leaves
        self.steady: dict[Operation, Steadiness] = {}
        self.tracked: dict[BlockArgument, None] = {}
        self.polynomials = known
        self.cycles = Cycles()
        self.chosen: set[Operation] = set()
        self.jumping: set[Operation] = set()
        self.mixed = False
        self.everywhere = False
        self.idle: frozenset[BlockArgument] = frozenset()
        self.settling: set[SSAValue] = set()
        self.met: set[tuple[Operation, SSAValue]] = set()

    # --- what decides ---------------------------------------------------------------------------

    def ring(self, operation: Operation, value: SSAValue, what: str) -> None:
        """A slot or a phase: not a function of the number of the trip."""
        leaves = self.leaves(value, False)
        if leaves.open:
            self.chosen.add(operation)
        for branch in leaves.branches:
            self.condition(branch, branch.cond)
        if leaves.loops and (not leaves.open or self.dependence.counts_trips(value)):
            raise Unproved(
                f"the {what} of {operation.name} is computed from the number of the trip: trips "
                "beyond those that are run may synchronize in another way",
                operation,
            )
        self.tracked |= leaves.carried
        self.roots.setdefault(operation, {})[value] = what
        depth = self.depths(operation)
        for argument in leaves.carried:
            self.uses.setdefault(argument, {}).setdefault(what, set()).add(depth)

    def condition(self, operation: Operation, value: SSAValue) -> None:
        """A condition: where it is a function of the number of a trip alone, it must settle."""
        leaves = self.leaves(value)
        self.decides |= dict.fromkeys(leaves.carried, operation)
        if (operation, value) in self.met:
            return  # all else was noted then
        self.met.add((operation, value))
        if leaves.open:
            self._settle_parts(operation, value)
            return
        self.tracked |= leaves.carried
        for argument in leaves.carried:
            loop = argument.owner.parent_op()
            assert isinstance(loop, (scf.ForOp, scf.WhileOp))
            steady = self._at(loop)
            trips, period = self.cycles.of(operation, argument)
            steady.trips = max(steady.trips, trips)
            steady.period = lcm(steady.period, period)
        if leaves.loops:
            self._settles(operation, value)

    def _settle_parts(self, operation: Operation, value: SSAValue) -> None:
        """Let conditions on the number of a trip alone settle, in what an input decides as well."""
        leaves = self.leaves(value)
        if not (leaves.loops or leaves.carried):
            return
        self.mixed = True
        work: list[SSAValue] = [value]
        for item in work:
            if item in self.settling:
                continue
            self.settling.add(item)
            owner = item.owner
            if not self.leaves(item).open:
                if item.type == i1:
                    self.condition(operation, item)
            elif isinstance(owner, tile.Elementwise):
                work += owner.operands

    def bounds(self, loop: Operation) -> None:
        """The bounds of a loop inside of others."""
        for value in decisive(loop):
            self.decides |= dict.fromkeys(self.leaves(value).carried, loop)
            if self.leaves(value).open:
                self._settle_parts(loop, value)

    def _at(self, loop: Operation) -> Steadiness:
        return self.steady.setdefault(loop, Steadiness())

    def _settles(self, operation: Operation, value: SSAValue) -> None:
        """Find the trip at which a condition on the number of the trip changes last."""
        owner = value.owner
        if isinstance(owner, tile.Constant):
            return
        if not isinstance(owner, tile.Elementwise):
            raise _unsettled(operation)
        if owner.function.data in _JOIN:
            for item in owner.inputs:
                self._settles(operation, item)
        elif self.leaves(value).loops:
            self._turns(operation, course_of(value))

    def _turns(self, operation: Operation, course: Course | None) -> None:
        if course is None:
            raise _unsettled(operation)
        for loop, turn in course.turns.items():
            if turn.settled > LATEST:
                raise Unproved(
                    f"{operation.name} changes what is synchronized at trip {turn.settled - 1} of "
                    f"a loop, beyond the {LATEST} that are run",
                    operation,
                )
            if turn.period > LATEST:
                raise Unproved(
                    f"{operation.name} guards synchronization by what repeats after {turn.period} "
                    f"trips of a loop; {LATEST} are run",
                    operation,
                )
            steady = self._at(loop)
            steady.trips = max(steady.trips, turn.settled)
            steady.period = lcm(steady.period, turn.period)

    def is_open(self, control: Operation) -> bool:
        """Tell whether an input decides what a loop or condition does."""
        if not self._depends_on_input(control):
            return False
        pairs = compared(control)
        return all(apart(first, second, self.polynomials) is None for first, second in pairs)

    def _depends_on_input(self, control: Operation) -> bool:
        """Tell whether what a loop or condition asks for depends on an input, or on how often a
        loop turns that does.
        """
        asked, work = {control}, [control]
        while work:
            leaves = [self.leaves(value) for value in decisive(work.pop())]
            if any(item.open for item in leaves):
                return True
            loops = {loop: None for item in leaves for loop in item.ended if loop not in asked}
            asked.update(loops)
            work += loops
        return False

    def counted(self, control: Operation) -> set[Operation | None]:
        """Return the loops whose trips what a loop or condition asks for depends on."""
        leaves = [self.leaves(value) for value in decisive(control)]
        carried = {argument.owner.parent_op() for item in leaves for argument in item.carried}
        return carried.union(*[item.loops for item in leaves])

    def varies(self, control: Operation) -> bool:
        """Tell whether a loop need not make the same trips each time it is entered, or a condition
        have the same outcome each time it is met.
        """
        leaves = [self.leaves(value) for value in decisive(control)]
        return any(item.loops.keys() - {control} or item.carried or item.reads for item in leaves)

    # --- orbits ---------------------------------------------------------------------------------

    def components(
        self, lonely: Collection[SSAValue], elsewhere: Iterable[SSAValue], idle: bool
    ) -> dict[Operation, tuple[tuple[BlockArgument, ...], ...]]:
        """Group the carried scalars of each loop that depend on one another, and must recur."""
        by_loop: dict[Operation, list[BlockArgument]] = {}
        jumping: dict[Operation, list[BlockArgument]] = {}
        for argument in self.tracked:
            loop, recurrence = argument.owner.parent_op(), recurrence_of(argument)
            assert loop is not None
            jumps = recurrence is not None and self.leaves(recurrence[1], False).open
            (jumping if jumps else by_loop).setdefault(loop, []).append(argument)
        self._jump(jumping)
        found = {loop: self._groups(arguments) for loop, arguments in by_loop.items()}
        groups = [*chain.from_iterable(found.values())]
        known = self.polynomials
        leaves = self.dependence.plain_leaves
        rings = Rings(self.uses, leaves, known, lonely, groups, idle)
        others = (*elsewhere, *self.decides, *chain.from_iterable(jumping.values()))
        rings.read(self.roots, others)
        # A ring that only some trips of a period turn goes over many, which runs must make.
        repeats = any(steady.period > 1 for steady in self.steady.values())
        told = {
            loop: tuple([each for each in those if repeats or not rings.are_alike(each)])
            for loop, those in found.items()
        }
        self.everywhere = not jumping and not any(told.values())
        self.idle = frozenset() if repeats else rings.idle()
        return told

    def _jump(self, found: dict[Operation, list[BlockArgument]]) -> None:
        """Note what is done with slots and phases that go on by numbers fixed at launch, over the
        trips of other roles, where it is not seen to be the same from each of them.
        """
        rings = [each for arguments in found.values() for each in arguments if each in self.uses]
        if not rings:
            return
        jumps = Jumps(rings, self.uses, self.dependence.plain_leaves, self.polynomials)
        for loop, arguments in found.items():
            groups = self._groups([each for each in arguments if each in self.uses])
            if not all(map(jumps.carries_on, groups)):
                self.jumping.add(loop)
        for operation, asked in self.roots.items():
            depth, turning = self.depths(operation), any(map(jumps.turns, asked))
            if turning and (depth is None or not jumps.are_alike(tuple(asked.items()), depth)):
                self.jumping.add(operation)
        self.jumping.update(self.decides[each] for each in rings if each in self.decides)

    def _groups(self, arguments: list[BlockArgument]) -> tuple[tuple[BlockArgument, ...], ...]:
        groups: list[set[BlockArgument]] = []
        for argument in arguments:
            recurrence = recurrence_of(argument)
            linked = {argument}
            if recurrence is not None:
                linked |= self.leaves(recurrence[1], False).carried.keys() & set(arguments)
            apart = [group for group in groups if not group & linked]
            for group in groups:
                linked |= group if group & linked else set()
            groups = [*apart, linked]
        return tuple(tuple(sorted(group, key=lambda item: item.index)) for group in groups)


def _unsettled(operation: Operation) -> Unproved:
    return Unproved(
        f"{operation.name} guards synchronization by a function of the number of the trip of which "
        "it is not seen that it settles or repeats: it may change at any later trip",
        operation,
    )
