"""What instances carry over the tiles of others: slots and phases go on by as many trips, from
wherever they are.

The runs begin tiles at some positions of a ring, with some trip counts. What a loop carries is
therefore read from the program: from each slot and phase it must go on by one number of trips, and
by as many more as numbers fixed at launch say. What is right at one position is right at all then.
That is shown of the scalars themselves, for all positions and a whole period of the numbers; they
reach slots and phases through remainders only, which repeat.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import lcm
from typing import TypeAlias

from xdsl.dialects import scf
from xdsl.ir import BlockArgument, Operation, SSAValue

from tawa.ir import tile
from tawa.ir.control import terminator
from tawa.simulator.proof.counting import constant_of, recurrence_of
from tawa.simulator.proof.functions import FUNCTIONS, name_of

Uses: TypeAlias = Mapping[BlockArgument, Mapping[str, set[int]]]
"""Where carried scalars decide a "slot" or a "phase": of rings that are so deep."""
Carried: TypeAlias = Callable[[SSAValue], Collection[BlockArgument]]
"""The carried scalars that a scalar depends on."""

_MOST = 512  # numbers in a period


class _Unseen(Exception):  # noqa: N818 - it is no error
    """What a loop carries is computed in a way that is not looked into."""


@dataclass(frozen=True, slots=True)
class _Node:
    """A scalar: a function of others by place, or a leaf. How it goes with the numbers fixed at
    launch: not at all (0), with them (1), as their quotient by -`period`, or it repeats (`period`
    above 1).
    """

    inputs: tuple[int, ...] = ()
    function: str = ""
    period: int = 0


@dataclass(eq=False, slots=True)
class _Program:
    """What computes some scalars from those that a loop carries, and from numbers fixed at launch:
    the `amounts`, each with the numbers that it is tried for.
    """

    arguments: tuple[BlockArgument, ...]
    carried: Carried
    nodes: list[_Node] = field(default_factory=lambda: [])
    places: dict[SSAValue, int] = field(default_factory=lambda: {})
    constants: dict[int, int] = field(default_factory=lambda: {})
    turning: dict[SSAValue, int] = field(default_factory=lambda: {})
    amounts: dict[int, int] = field(default_factory=lambda: {})  # by place: the bound, or 0

    def place(self, value: SSAValue) -> int:
        """Return where a scalar stands. Raises _Unseen."""
        value = _passed(value)
        found = self.places.get(value)
        if found is None:
            node = self._node(value)
            found = self.places[value] = len(self.nodes)
            self.nodes.append(node)
            owner = value.owner
            if not node.function:
                if (number := constant_of(value)) is not None:
                    self.constants[found] = number
                elif self._turns(value):
                    self.turning[value] = found
                else:
                    self.amounts[found] = _bound(owner)
        return found

    def _turns(self, value: SSAValue) -> bool:
        return any(each in self.arguments for each in self.carried(value))

    def _node(self, value: SSAValue) -> _Node:
        owner = value.owner
        if constant_of(value) is not None:
            return _Node()
        if not self._turns(value):
            return _Node(period=_bound(owner) or 1)
        if value in self.arguments or not isinstance(owner, tile.Elementwise):
            return _Node()
        inputs = tuple([self.place(each) for each in owner.inputs])
        function = name_of(owner.function.data, owner.inputs[0].type)
        if function not in FUNCTIONS and function != "select":
            raise _Unseen
        return _Node(inputs, function, self._period(function, inputs))

    def _period(self, function: str, inputs: tuple[int, ...]) -> int:
        """Return how a function of others goes with the numbers fixed at launch."""
        periods = [self.nodes[each].period for each in inputs]
        if all(each == 0 or each > 1 for each in periods):
            return lcm(*(each for each in periods if each)) if any(periods) else 0
        one, *others = periods
        by = self.constants.get(inputs[-1], 0)
        match function, one, others:
            case "add" | "sub", _, [other]:
                if function == "add" and one == 0:
                    one, other = other, one
                if other == 0 or (one == other == 1 and function == "add"):
                    return one
            case "irem", _, [0] if by > 0:
                return max(2, by * -min(one, -1))
            case "idiv", 1, [0] if by > 0:
                return -by
            case "and", _, [0] if by > 0 and by & (by + 1) == 0:
                return (by + 1) * -min(one, -1)
            case _:
                pass
        raise _Unseen

    def columns(self, given: Mapping[int, list[int]], tries: int) -> list[list[int]]:
        """Return what each node is in each of some tries, of which the leaves are given."""
        found: list[list[int]] = []
        for place, node in enumerate(self.nodes):
            inputs = [found[each] for each in node.inputs]
            if not node.function:
                found.append(given.get(place) or [self.constants[place]] * tries)
            elif node.function == "select":
                found.append([one if chosen else other for chosen, one, other in zip(*inputs)])
            else:
                found.append(list(map(FUNCTIONS[node.function], *inputs)))
        return found


@dataclass(frozen=True, slots=True)
class _Tries:
    """Positions on a ring, of `around`, each with sums of numbers fixed at launch; and what the
    scalars wanted come to, by place. The first is position 0 with numbers that are all 0.
    """

    around: int
    positions: list[int]
    sums: list[int]
    columns: list[list[int]]

    def are_moved(self, out: int, moved: int, more: bool, part: Callable[[int], int]) -> bool:
        """Tell whether a scalar is part of the position, moved by one number, and by the sum."""
        each = zip(self.columns[out], self.positions, self.sums)
        return all(found == part((at + moved + more * by) % self.around) for found, at, by in each)


def goes_on_alike(arguments: Sequence[BlockArgument], carried: Carried, uses: Uses) -> bool:
    """Tell whether what a loop carries is seen to go on alike from each slot and phase."""
    try:
        return _goes_on_alike(arguments, carried, uses)
    except _Unseen:
        return False


def _goes_on_alike(arguments: Sequence[BlockArgument], carried: Carried, uses: Uses) -> bool:
    depths = {depth for each in arguments for some in uses[each].values() for depth in some}
    if len(depths) != 1:
        return False
    (depth,) = depths
    phases = [each for each in arguments if "slot" not in uses[each]]
    slots = [each for each in arguments if each not in phases]
    program = _Program(tuple(arguments), carried)
    out = {each: program.place(_back(each)) for each in arguments}
    leaves: dict[bool, list[SSAValue]] = {False: [], True: []}
    for leaf in program.turning:
        leaves[any(each in phases for each in carried(leaf))].append(leaf)
    if len(leaves[False]) > 1 or len(leaves[True]) > 1 or len(phases) > 1:
        return False
    first = _first(leaves[False], slots)
    around = 2 * depth if phases else depth
    tries = _tried(program, leaves, depth, around, out.values())
    begin = {each: tries.columns[place][0] for each, place in out.items()}
    turned = depth * sum(begin[each] for each in phases)
    ways: list[tuple[BlockArgument, int, Callable[[int], int]]] = [
        (each, begin[each] + (turned if each is first else 0), lambda at: at % depth)
        for each in slots
    ]
    for each in phases:
        moved = turned + (begin[first] if first is not None else 0)
        ways.append((each, moved, lambda at: at // depth))
    return any(
        all(tries.are_moved(out[each], moved, more, part) for each, moved, part in ways)
        for more in (True, False)
    )


def _first(leaves: list[SSAValue], slots: list[BlockArgument]) -> BlockArgument | None:
    """Return the slot from which others are computed: the others lag behind."""
    for leaf in leaves:
        if leaf in slots:
            return leaf  # pyright: ignore[reportReturnType]
    if len(slots) > 1:
        raise _Unseen
    return slots[0] if slots else None


def _tried(
    program: _Program,
    leaves: Mapping[bool, list[SSAValue]],
    depth: int,
    around: int,
    wanted: Collection[int],
) -> _Tries:
    """Return what all scalars come to from each position, for a period of the numbers fixed at
    launch.
    """
    periods = [program.nodes[each].period for each in wanted]
    if any(each < 0 or each == 1 for each in periods):
        raise _Unseen  # it grows with a number
    period = lcm(around, *(each for each in periods if each))
    if period ** max(1, len(program.amounts)) > _MOST:
        raise _Unseen
    ranges = [range(bound or period) for bound in program.amounts.values()]
    tried = [*product(range(around), *ranges)]
    positions = [at for at, *_ in tried]
    given = dict(zip(program.amounts, map(list, [*zip(*tried)][1:])))
    given |= {program.turning[leaf]: [at % depth for at in positions] for leaf in leaves[False]}
    given |= {program.turning[leaf]: [at // depth for at in positions] for leaf in leaves[True]}
    sums = [sum(amounts) for _, *amounts in tried]
    return _Tries(around, positions, sums, program.columns(given, len(tried)))


def _back(argument: BlockArgument) -> SSAValue:
    recurrence = recurrence_of(argument)
    assert recurrence is not None
    return recurrence[1]


def _passed(value: SSAValue) -> SSAValue:
    """Return what the test of a while loop passes on."""
    while isinstance(value, BlockArgument):
        loop = value.owner.parent_op()
        if not isinstance(loop, scf.WhileOp) or recurrence_of(value) is not None:
            break
        value = terminator(loop.before_region.block).operands[value.index + 1]
    return value


def _bound(owner: object) -> int:
    """Return what a number fixed at launch is less than, 0 where that is not seen."""
    if isinstance(owner, Operation) and isinstance(owner, tile.Elementwise):
        by = constant_of(owner.inputs[-1]) or 0
        match owner.function.data:
            case "and" if by > 0 and by & (by + 1) == 0:
                return by + 1
            case "irem" if by > 1:
                return by
            case _:
                pass
    return 0
