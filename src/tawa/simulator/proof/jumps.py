"""What instances carry over the tiles of others: slots and phases that go on by as many trips, from
wherever they are.

The runs begin tiles at some positions of a ring, with some trip counts. What a role does with slots
and phases that it carries so is therefore read from its text: what it waits with, puts in, hands to
a loop inside or carries to the next trip must be the position where it is, some number further;
over tiles, by as many more as numbers fixed at launch say. What is right at one position is right
at all then. That is shown of the scalars themselves, for all positions and a whole period of the
numbers: they reach slots and phases through sums, quotients and remainders only, which repeat.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from itertools import product
from math import lcm
from typing import TypeAlias

from xdsl.dialects import scf
from xdsl.ir import BlockArgument, Operation, SSAValue

from tawa.analysis.coordinates import surely_nonnegative
from tawa.analysis.polynomial import Known, Polynomial, polynomial
from tawa.analysis.ranges import range_of
from tawa.ir import hopper, tile
from tawa.ir.control import terminator
from tawa.simulator.proof.counting import constant_of, recurrence_of
from tawa.simulator.proof.functions import FUNCTIONS, name_of
from tawa.simulator.proof.leaves import Leaves

Uses: TypeAlias = Mapping[BlockArgument, Mapping[str, set[int | None]]]
"""Where carried scalars decide a "slot" or a "phase": of rings that are so deep."""
Group: TypeAlias = tuple[BlockArgument, ...]
"""Scalars that a loop carries and that depend on one another."""
Asked: TypeAlias = tuple[tuple[SSAValue, str], ...]
"""Scalars that are a "slot" or a "phase" together."""
_Fits: TypeAlias = tuple[SSAValue | None, frozenset[BlockArgument], frozenset[tuple[int, bool]]]
"""The slot that a scalar is computed from, all that loops carry of what it is computed from, and
how far on it is, and whether by the sum as well.
"""

_MOST = 512  # numbers in a period
_WAYS = 32  # through the conditions that scalars are results of
_DIVIDES = frozenset({"idiv", "irem"})
_REPEAT = _DIVIDES | {"and", "xor", "eq", "select"}


class _Unseen(Exception):  # noqa: N818 - it is no error
    """A scalar is computed in a way that is not looked into."""


class _Either(Exception):  # noqa: N818 - it is no error
    """A scalar is computed from what a condition results in."""

    def __init__(self, branch: scf.IfOp) -> None:
        super().__init__()
        self.branch = branch


class Jumps:
    """The carried scalars of a kernel that jump by numbers fixed at launch."""

    def __init__(
        self,
        arguments: Collection[BlockArgument],
        uses: Uses,
        leaves: Callable[[SSAValue], Leaves],
        known: Known,
    ) -> None:
        self.arguments = frozenset(arguments)
        self._uses, self._leaves, self._known = uses, leaves, known
        self._found: dict[tuple[SSAValue, str, int, Operation | None], _Fits] = {}

    def turns(self, value: SSAValue) -> bool:
        """Tell whether a scalar depends on what is carried so."""
        return not self.arguments.isdisjoint(self._leaves(value).carried)

    def carries_on(self, group: tuple[BlockArgument, ...]) -> bool:
        """Tell whether what a loop carries together begins somewhere, and goes on alike."""
        loop, depth = group[0].owner.parent_op(), self.depth_of(group)
        assert loop is not None
        outermost = loop if isinstance(loop.parent_op(), hopper.Role) else None
        both = [recurrence_of(each) or (each, each) for each in group]
        kinds = [self.kind_of(each) for each in group]
        return depth is not None and all(
            self.are_alike(tuple(zip(values, kinds)), depth, outermost) for values in zip(*both)
        )

    def are_alike(
        self,
        asked: Asked,
        depth: int,
        loop: Operation | None = None,
        together: Collection[Group] | None = None,
    ) -> bool:
        """Tell whether scalars are the position of a ring, so many trips further, wherever it is:
        phases as far as one of the slots, on either side of the conditions they are results of.
        What a loop over tiles begins with, or is handed, may be further by numbers fixed at launch.
        Where it is said which scalars turn `together`, all or none go by those of one group: what
        is another counter, or one number, is where it should be now and then.
        """
        work: list[Mapping[SSAValue, SSAValue]] = [{}]
        for chosen in work:
            try:
                if not self._is_alike(asked, depth, loop, chosen, together):
                    return False
            except _Unseen:
                return False
            except _Either as found:
                if len(work) > _WAYS:
                    return False
                results = found.branch.results
                for region in found.branch.regions:
                    given = terminator(region.block).operands
                    work.append({**chosen, **dict(zip(results, given, strict=True))})
        return True

    def _is_alike(
        self,
        asked: Asked,
        depth: int,
        loop: Operation | None,
        chosen: Mapping[SSAValue, SSAValue],
        together: Collection[Group] | None,
    ) -> bool:
        """Tell it of one side of conditions. Raises _Unseen, _Either."""
        found: dict[str, list[_Fits]] = {"slot": [], "phase": []}
        for value, what in asked:
            # Several operations mean one slot: what does not go by a condition is kept.
            asked_for = value, what, depth, loop
            fits = self._found.get(asked_for)
            if fits is None:
                fits = self._fits(value, what, depth, loop, chosen)
                if not chosen:
                    self._found[asked_for] = fits
            found[what].append(fits)
        slots, phases = found["slot"], found["phase"]
        if together is not None:
            turning = [of for _, of, _ in (*(slots if depth > 1 else ()), *phases)]
            moved = frozenset[BlockArgument]().union(*turning)
            if moved and not (all(turning) and any(moved <= {*group} for group in together)):
                return False
        return all(fits for *_, fits in slots) and all(
            any(fits & others for of, _, others in slots if slot in (None, of))
            or (fits and not slots)
            for slot, _, fits in phases
        )

    def kind_of(self, argument: BlockArgument) -> str:
        """Return what a carried scalar is."""
        return "slot" if "slot" in self._uses[argument] else "phase"

    def depth_of(self, arguments: Collection[BlockArgument]) -> int | None:
        """Return how deep the ring is whose slots and phases these are, None where that is not one
        number.
        """
        found = {each for item in arguments for some in self._uses[item].values() for each in some}
        return found.pop() if len(found) == 1 else None

    def _fits(
        self,
        value: SSAValue,
        what: str,
        depth: int,
        loop: Operation | None,
        chosen: Mapping[SSAValue, SSAValue],
    ) -> _Fits:
        """Return how far a scalar is from the position that it is computed from."""
        program = _Program(self, loop, not self.turns(value), chosen)
        out = program.place(value)
        leaves: dict[str, tuple[SSAValue, int]] = {}
        for leaf, (argument, place) in program.turning.items():
            kind = self.kind_of(argument)
            if kind in leaves or self.depth_of([argument]) != depth:
                raise _Unseen  # positions of two rings, or of two times
            leaves[kind] = leaf, place
        around = 2 * depth
        tried = [*product(range(around if leaves else 1), *program.ranges(out, around))]
        positions = [at for at, *_ in tried]
        given = dict(zip(program.amounts, map(list, [*zip(*tried)][1:])))
        if "slot" in leaves:
            given[leaves["slot"][1]] = [at % depth for at in positions]
        if "phase" in leaves:
            given[leaves["phase"][1]] = [at // depth for at in positions]
        found = program.columns(given, len(tried))[out]
        sums = [sum(amounts) for _, *amounts in tried]
        ends = [each % depth if what == "slot" else each // depth for each in range(around)]
        # A ring of one slot is where it was with each sum.
        ways = (False, True) if loop is not None and (program.amounts or depth == 1) else (False,)
        further = frozenset(
            (by, more)
            for by in range(around)
            if ends[by] == found[0]  # at 0, where all numbers are 0
            for more in ways
            if all(
                one == ends[(at + by + more * far) % around]
                for one, at, far in zip(found, positions, sums)
            )
        )
        return (
            leaves["slot"][0] if "slot" in leaves else None,
            frozenset(argument for argument, _ in program.turning.values()),
            further,
        )

    def leaf_of(self, value: SSAValue) -> BlockArgument | None:
        """Return the carried scalar that a value is, or is when the loop ends: at any position."""
        if isinstance(value, BlockArgument):
            return value if value in self.arguments and value in self._uses else None
        loop, result = value.owner, value
        match loop:
            case scf.ForOp():
                end = loop.body.block.args[list(loop.results).index(result) + 1]  # pyright: ignore
            case scf.WhileOp():
                place = list(loop.results).index(result)  # pyright: ignore
                end = terminator(loop.before_region.block).operands[place + 1]
            case _:
                return None
        return self.leaf_of(end) if isinstance(end, BlockArgument) else None

    def is_fixed(self, value: SSAValue, loop: Operation | None) -> bool:
        """Tell whether a number is the same throughout a launch, or in each trip of a loop that is
        not the last one.
        """
        leaves = self._leaves(value)
        if not (leaves.loops or leaves.carried or leaves.reads or leaves.branches):
            return True
        owner = value.owner
        if not isinstance(owner, tile.Elementwise):
            return False
        if owner.function.data == "min" and isinstance(loop, scf.ForOp):
            one, other = owner.inputs
            least = constant_of(other)
            if least is not None and self._reaches(one, least, loop):
                return True
        return all(self.is_fixed(each, loop) for each in owner.inputs)

    def _reaches(self, value: SSAValue, least: int, loop: scf.ForOp) -> bool:
        """Tell whether a number is so large in each trip of a loop after which there is another."""
        known = self._known
        after = polynomial(loop.body.block.args[0], known) + polynomial(loop.step, known)
        left = polynomial(loop.ub, known) - after - Polynomial.constant(1)  # not negative
        wanted = Polynomial.constant(least)
        match value.owner:
            case tile.Elementwise(function=name, inputs=(one, other)) if name.data == "idiv":
                if not range_of(other).is_natural:
                    return False
                value, wanted = one, wanted * polynomial(other, known)
            case _:
                pass
        return surely_nonnegative(polynomial(value, known) - wanted - left)


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
    """What computes a scalar from those that loops carry (`turning`, with their places), and from
    numbers fixed at launch: the `amounts` by place, each with what it is less than, or 0. What a
    loop `begins` with is of such numbers alone. Results of conditions are what is `chosen`.
    """

    jumps: Jumps
    loop: Operation | None
    begins: bool
    chosen: Mapping[SSAValue, SSAValue]
    nodes: list[_Node] = field(default_factory=lambda: [])
    places: dict[SSAValue, int] = field(default_factory=lambda: {})
    constants: dict[int, int] = field(default_factory=lambda: {})
    turning: dict[SSAValue, tuple[BlockArgument, int]] = field(default_factory=lambda: {})
    amounts: dict[int, int] = field(default_factory=lambda: {})

    def place(self, value: SSAValue) -> int:
        """Return where a scalar stands. Raises _Unseen, _Either."""
        value = _passed(value)
        while value in self.chosen:
            value = _passed(self.chosen[value])
        found = self.places.get(value)
        if found is None:
            node = self._node(value)
            found = self.places[value] = len(self.nodes)
            self.nodes.append(node)
            if not node.function:
                if (number := constant_of(value)) is not None:
                    self.constants[found] = number
                elif (argument := self.jumps.leaf_of(value)) is not None:
                    self.turning[value] = argument, found
                else:
                    self.amounts[found] = node.period if node.period > 1 else 0
        return found

    def _node(self, value: SSAValue) -> _Node:
        if constant_of(value) is not None or self.jumps.leaf_of(value) is not None:
            return _Node()
        owner = value.owner
        whole = not self.jumps.turns(value) and self.jumps.is_fixed(value, self.loop)
        if whole and not (self.begins and _repeats(owner)):
            return _Node(period=_bound(owner) or 1)
        if isinstance(owner, scf.IfOp):
            raise _Either(owner)
        if not isinstance(owner, tile.Elementwise):
            raise _Unseen
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

    def ranges(self, out: int, around: int) -> list[range]:
        """Return the numbers that amounts are tried with: a period of what they decide."""
        period = self.nodes[out].period
        if period < 0 or period == 1:
            raise _Unseen  # it grows with them
        period = lcm(around, period or 1)
        if period ** max(1, len(self.amounts)) > _MOST:
            raise _Unseen
        return [range(bound or period) for bound in self.amounts.values()]

    def columns(self, given: Mapping[int, list[int]], tries: int) -> list[list[int]]:
        """Return what each node is in each of some tries, of which the leaves are given."""
        found: list[list[int]] = []
        for place, node in enumerate(self.nodes):
            inputs = [found[each] for each in node.inputs]
            if not node.function:
                found.append(given.get(place) or [self.constants[place]] * tries)
            elif node.function == "select":
                found.append([one if chosen else other for chosen, one, other in zip(*inputs)])
            elif node.function in _DIVIDES and (min(inputs[0]) < 0 or min(inputs[1]) <= 0):
                raise _Unseen  # below zero they do not go on as they do above
            else:
                found.append(list(map(FUNCTIONS[node.function], *inputs)))
        return found


def _passed(value: SSAValue) -> SSAValue:
    """Return what the test of a while loop passes on."""
    while isinstance(value, BlockArgument):
        loop = value.owner.parent_op()
        if not isinstance(loop, scf.WhileOp) or recurrence_of(value) is not None:
            break
        value = terminator(loop.before_region.block).operands[value.index + 1]
    return value


def _repeats(owner: object) -> bool:
    """Tell whether a number fixed at launch may be a slot or phase of one, or a step to it."""
    if not isinstance(owner, tile.Elementwise):
        return False
    constants = [constant_of(each) is not None for each in owner.inputs]
    return (
        any(constants) if owner.function.data in ("add", "sub") else owner.function.data in _REPEAT
    )


def _bound(owner: object) -> int:
    """Return what a number fixed at launch is less than, 0 where that is not seen."""
    if isinstance(owner, tile.Elementwise) and owner.function.data == "and":
        by = constant_of(owner.inputs[-1]) or 0
        return by + 1 if by > 0 and by & (by + 1) == 0 else 0
    return 0
