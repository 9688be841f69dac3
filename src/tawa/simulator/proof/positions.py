"""Rings whose slots and phases do the same from wherever they are (docs/design/proof.md, U3).

A loop may begin at any position of a ring, and runs see some of them. But where all that is done
with the slots and phases of a ring, in every role, is to wait, to put, to look at a slot and to
carry on at the position where it is, or a constant further, one position is like any other: the
slots of an array of barriers are alike, and those of a buffer that overlaps no other. What is right
from one is right from all then. The scalars are computed for all positions (`jumps`), so a phase
that is lost in one of them is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from xdsl.dialects import scf
from xdsl.ir import BlockArgument, Operation, SSAValue

from tawa.analysis.polynomial import Known
from tawa.ir.types import BarriersType, BufferType
from tawa.simulator.proof.counting import recurrence_of
from tawa.simulator.proof.jumps import Group, Jumps, Uses
from tawa.simulator.proof.leaves import Leaves


class Rings:
    """The rings of a kernel: `uses` are the scalars that loops carry and decide slots or phases by,
    in `groups`, `lonely` the buffers that overlap no other.
    """

    def __init__(
        self,
        uses: Uses,
        leaves: Callable[[SSAValue], Leaves],
        known: Known,
        lonely: Collection[SSAValue],
        groups: Collection[Group],
        may_idle: bool,
    ) -> None:
        self._uses, self._leaves, self._lonely = uses, leaves, lonely
        self._groups, self._may_idle = groups, may_idle
        self._jumps = Jumps(uses, uses, leaves, known, groups)
        # What goes by the same positions, and what of it tells some of them from others.
        self._linked: dict[SSAValue, SSAValue] = {}
        self._telling: set[SSAValue] = set()
        self._told: set[SSAValue] = set()  # roots of what is linked with what tells
        self._idle: set[BlockArgument] = set()

    def read(
        self,
        roots: Mapping[Operation, Mapping[SSAValue, str]],
        elsewhere: Iterable[SSAValue],
    ) -> None:
        """Read what is done with slots and phases, and how loops carry them on; what is computed
        `elsewhere` goes by none.
        """
        for operation, asked in roots.items():
            self._use(operation, asked)
        for value in elsewhere:
            self._telling.update(self._leaves(value).carried)
        for group in self._groups:
            self._carry(group)
        self._told = {self._root(each) for each in self._telling}

    def are_alike(self, group: Group) -> bool:
        """Tell whether scalars that a loop carries are of rings whose positions nothing tells from
        one another.
        """
        return all(self._root(each) not in self._told for each in group)

    def _use(self, operation: Operation, asked: Mapping[SSAValue, str]) -> None:
        for ring in operation.operands:
            match ring.type:
                case BarriersType():
                    depth, lonely = ring.type.count.data, True
                case BufferType():
                    depth, lonely = ring.type.slots.data, ring in self._lonely
                case _:
                    continue
            alike = self._jumps.are_alike(tuple(asked.items()), depth)
            for value, what in asked.items():
                leaves = self._leaves(value)
                for argument in leaves.carried:
                    self._link(ring, argument)
                # It always means one position of several, or one that an input chooses.
                several = depth > 1 or what == "phase"
                alike = alike and not leaves.open and (bool(leaves.carried) or not several)
            if not alike or (depth > 1 and not lonely):
                self._telling.add(ring)

    def _carry(self, group: Group) -> None:
        """Read where a loop begins, and what it hands to its next trip."""
        steps = [recurrence_of(each) or (each, each) for each in group]
        for argument, values in zip(group, steps):
            for value in values:
                for other in self._leaves(value).carried:
                    self._link(argument, other)
        if not all(each in self._uses for each in group) or not self._carries_on(group, steps):
            self._telling.add(group[0])

    def _carries_on(self, group: Group, steps: list[tuple[SSAValue, SSAValue]]) -> bool:
        depth = self._jumps.depth_of(group)
        if depth is None:
            return False
        kinds = [self._jumps.kind_of(each) for each in group]
        begins = [(first, kind) for (first, _), kind in zip(steps, kinds)]
        following = [(then, kind) for (_, then), kind in zip(steps, kinds)]
        if not self._jumps.are_alike(tuple(following), depth):
            return False
        if self._jumps.are_alike(tuple(begins), depth):
            return True
        # What begins with one number beside what turns must not mean any position: runs tell.
        turning = [each for each in begins if self._leaves(each[0]).carried]
        if not (turning and self._may_idle) or not isinstance(
            group[0].owner.parent_op(), scf.ForOp
        ):
            return False
        self._idle.update(
            argument
            for argument, (first, _) in zip(group, begins)
            if not self._leaves(first).carried
        )
        return self._jumps.are_alike(tuple(turning), depth)

    def idle(self) -> frozenset[BlockArgument]:
        """Return the scalars that loops carry in rings that are alike, and that must not be asked
        for before they were handed to a trip.
        """
        return frozenset(each for each in self._idle if self.are_alike((each,)))

    def _link(self, one: SSAValue, other: SSAValue) -> None:
        low, high = self._root(one), self._root(other)
        if low is not high:
            self._linked[low] = high

    def _root(self, item: SSAValue) -> SSAValue:
        above = self._linked.get(item)
        if above is None:
            return item
        if above not in self._linked:
            return above
        while (higher := self._linked.get(above)) is not None:
            above = higher
        self._linked[item] = above  # the way is short from now on
        return above
