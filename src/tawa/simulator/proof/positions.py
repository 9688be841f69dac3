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
from itertools import chain

from xdsl.ir import BlockArgument, Operation, SSAValue

from tawa.ir.types import BarriersType, BufferType
from tawa.simulator.proof.counting import recurrence_of
from tawa.simulator.proof.jumps import Jumps
from tawa.simulator.proof.leaves import Leaves


class Positions:
    """The rings of a kernel: `arguments` are the scalars that loops carry and decide slots or
    phases by, `lonely` the buffers whose slots overlap no other.
    """

    def __init__(
        self,
        arguments: Collection[BlockArgument],
        jumps: Jumps,
        leaves: Callable[[SSAValue], Leaves],
        lonely: Collection[SSAValue],
    ) -> None:
        self._arguments, self._jumps, self._leaves = arguments, jumps, leaves
        self._lonely = lonely
        self._linked: dict[SSAValue, SSAValue] = {}
        self._told_apart: set[SSAValue] = set()

    def read(
        self, roots: Mapping[Operation, Mapping[SSAValue, str]], elsewhere: Iterable[SSAValue]
    ) -> None:
        """Read what is done with slots and phases; what is computed `elsewhere` goes by none."""
        for operation, asked in roots.items():
            self._use(operation, asked)
        self._told_apart.update(chain(*(self._leaves(value).carried for value in elsewhere)))
        for argument in self._arguments:
            for value in recurrence_of(argument) or ():
                for other in self._leaves(value).carried:
                    self._link(argument, other)

    def _use(self, operation: Operation, asked: Mapping[SSAValue, str]) -> None:
        for ring in operation.operands:
            match ring.type:
                case BarriersType():
                    depth = ring.type.count.data
                case BufferType():
                    depth = ring.type.slots.data
                    if depth > 1 and ring not in self._lonely:
                        self._told_apart.add(ring)
                case _:
                    continue
            for value, what in asked.items():
                leaves = self._leaves(value)
                for argument in leaves.carried:
                    self._link(ring, argument)
                # What always means one position of several, or one that an input chooses.
                several = depth > 1 or what == "phase"
                if leaves.open or (several and not leaves.carried):
                    self._told_apart.add(ring)
            if not self._jumps.are_alike(tuple(asked.items()), depth):
                self._told_apart.add(ring)

    def are_alike(self, groups: Iterable[tuple[BlockArgument, ...]]) -> list[bool]:
        """Tell of each group of scalars that a loop carries together whether they are all of rings
        that have nothing to tell their positions apart by.
        """
        all_groups = list(groups)
        for group in all_groups:
            if not self._carries_on(group):
                self._told_apart.add(group[0])
        apart = {self._root(each) for each in self._told_apart}
        return [all(self._root(each) not in apart for each in group) for group in all_groups]

    def _carries_on(self, group: tuple[BlockArgument, ...]) -> bool:
        """Tell whether what a loop carries begins somewhere, and goes on alike."""
        depth = self._jumps.depth_of(group)
        if depth is None:
            return False
        both = [recurrence_of(each) or (each, each) for each in group]
        kinds = [self._jumps.kind_of(each) for each in group]
        return all(self._jumps.are_alike(tuple(zip(values, kinds)), depth) for values in zip(*both))

    def _link(self, one: SSAValue, other: SSAValue) -> None:
        self._linked[self._root(one)] = self._root(other)

    def _root(self, item: SSAValue) -> SSAValue:
        while (above := self._linked.get(item, item)) is not item:
            item = above
        return item
