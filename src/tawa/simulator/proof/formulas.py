"""What computes a scalar from those that loops carry, and from numbers fixed at launch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from math import lcm
from typing import NamedTuple, TypeAlias

from xdsl.dialects import scf
from xdsl.ir import BlockArgument, Operation, SSAValue

from tawa.analysis.coordinates import surely_nonnegative
from tawa.analysis.polynomial import Known, Polynomial, polynomial
from tawa.analysis.ranges import range_of
from tawa.ir import tile
from tawa.ir.control import terminator
from tawa.simulator.proof.counting import constant_of
from tawa.simulator.proof.functions import FUNCTIONS, name_of
from tawa.simulator.proof.leaves import Leaves

Chosen: TypeAlias = Mapping[SSAValue, SSAValue]
"""The sides of conditions: what their results are there."""

_MOST = 512  # numbers in a period
_DIVIDES = frozenset({"idiv", "irem"})
_REPEAT = _DIVIDES | {"and", "xor", "eq", "select"}


class Unseen(Exception):  # noqa: N818 - it is no error
    """A scalar is computed in a way that is not looked into."""


class Either(Exception):  # noqa: N818 - it is no error
    """A scalar is computed from what a condition results in."""

    def __init__(self, branch: scf.IfOp) -> None:
        super().__init__()
        self.branch = branch


class _Scalar(NamedTuple):
    """What a scalar is wherever it stands in a formula: the `value` that is passed on as it, a
    constant, what a loop carries, or a function of others; that has no name where none is computed.
    """

    value: SSAValue
    number: int | None
    argument: BlockArgument | None
    function: str = ""
    inputs: tuple[SSAValue, ...] = ()


class Carried:
    """The `arguments` that loops carry, and what stands beside them. Each scalar is asked of for
    many formulas, and looked at once.
    """

    def __init__(
        self,
        arguments: Collection[BlockArgument],
        leaves: Callable[[SSAValue], Leaves],
        known: Known,
    ) -> None:
        self.arguments = frozenset(arguments)
        self._leaves, self._known = leaves, known
        self._scalars: dict[SSAValue, _Scalar] = {}
        self._turns: dict[SSAValue, bool] = {}
        self._fixed: dict[tuple[SSAValue, Operation | None], bool] = {}

    def turns(self, value: SSAValue) -> bool:
        """Tell whether a scalar depends on what is carried so."""
        found = self._turns.get(value)
        if found is None:
            apart = self.arguments.isdisjoint(self._leaves(value).carried)
            found = self._turns[value] = not apart
        return found

    def scalar(self, value: SSAValue) -> _Scalar:
        """Return what a scalar is, by itself."""
        found = self._scalars.get(value)
        if found is None:
            found = self._scalars[value] = self._scalar(_passed(value))
        return found

    def _scalar(self, value: SSAValue) -> _Scalar:
        number, argument, owner = constant_of(value), self._leaf_of(value), value.owner
        if number is not None or argument is not None or not isinstance(owner, tile.Elementwise):
            return _Scalar(value, number, argument)
        inputs = tuple(owner.operands)
        function = name_of(owner.function.data, inputs[0].type)
        is_known = function in FUNCTIONS or function == "select"
        return _Scalar(value, None, None, function if is_known else "", inputs)

    def _leaf_of(self, value: SSAValue) -> BlockArgument | None:
        """Return the carried scalar that a value is, or is when the loop ends: at any position."""
        if isinstance(value, BlockArgument):
            return value if value in self.arguments else None
        loop = value.owner
        match loop:
            case scf.ForOp():
                end = loop.body.block.args[list(loop.results).index(value) + 1]  # pyright: ignore
            case scf.WhileOp():
                place = list(loop.results).index(value)  # pyright: ignore
                end = terminator(loop.before_region.block).operands[place + 1]
            case _:
                return None
        return self._leaf_of(end) if isinstance(end, BlockArgument) else None

    def is_fixed(self, value: SSAValue, loop: Operation | None) -> bool:
        """Tell whether a number is the same throughout a launch, or in each trip of a loop that is
        not the last one.
        """
        key = value, loop
        found = self._fixed.get(key)
        if found is None:
            found = self._fixed[key] = self._stays(value, loop)
        return found

    def _stays(self, value: SSAValue, loop: Operation | None) -> bool:
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


class _Node(NamedTuple):
    """A scalar: a function of others by place, or a leaf. How it goes with the numbers fixed at
    launch: not at all (0), with them (1), as their quotient by -`period`, or it repeats (`period`
    above 1).
    """

    inputs: tuple[int, ...] = ()
    function: str = ""
    period: int = 0


_LEAF = _Node()


class Formula:
    """What computes a scalar from those that loops carry (`turning`, with their places), and from
    numbers fixed at launch: the `amounts` by place, each with what it is less than, or 0. What a
    loop `begins` with is of such numbers alone. Results of conditions are what is `chosen`; `taken`
    is what of that it goes by.
    """

    def __init__(
        self, carried: Carried, loop: Operation | None, begins: bool, chosen: Chosen
    ) -> None:
        self.loop, self.chosen = loop, chosen
        self.turning: dict[SSAValue, tuple[BlockArgument, int]] = {}
        self.amounts: dict[int, int] = {}
        self.taken: dict[SSAValue, SSAValue] = {}
        self._carried, self._begins = carried, begins
        self._nodes: list[_Node] = []
        self._places: dict[SSAValue, int] = {}
        self._constants: dict[int, int] = {}

    @property
    def shape(self) -> tuple[object, ...]:
        """What the formula computes, whatever its leaves are."""
        constants, amounts = tuple(self._constants.items()), tuple(self.amounts.items())
        return tuple(self._nodes), constants, amounts

    def place(self, value: SSAValue) -> int:
        """Return where a scalar stands. Raises Unseen, Either."""
        scalar = self._carried.scalar(value)
        while scalar.value in self.chosen:
            chosen = self.taken[scalar.value] = self.chosen[scalar.value]
            scalar = self._carried.scalar(chosen)
        found = self._places.get(scalar.value)
        if found is None:
            is_leaf = scalar.number is not None or scalar.argument is not None
            node = _LEAF if is_leaf else self._node(scalar)
            found = self._places[scalar.value] = len(self._nodes)
            self._nodes.append(node)
            if scalar.number is not None:
                self._constants[found] = scalar.number
            elif scalar.argument is not None:
                self.turning[scalar.value] = scalar.argument, found
            elif not node.function:
                self.amounts[found] = node.period if node.period > 1 else 0
        return found

    def _node(self, scalar: _Scalar) -> _Node:
        value, owner = scalar.value, scalar.value.owner
        whole = not self._carried.turns(value) and self._carried.is_fixed(value, self.loop)
        if whole and not (self._begins and _repeats(owner)):
            return _Node(period=_bound(owner) or 1)
        if isinstance(owner, scf.IfOp):
            raise Either(owner)
        inputs = tuple([self.place(each) for each in scalar.inputs])
        if not scalar.function:
            raise Unseen
        return _Node(inputs, scalar.function, self._period(scalar.function, inputs))

    def _period(self, function: str, inputs: tuple[int, ...]) -> int:
        """Return how a function of others goes with the numbers fixed at launch."""
        periods = [self._nodes[each].period for each in inputs]
        if not any(periods):
            return 0
        if all(each == 0 or each > 1 for each in periods):
            return lcm(*(each for each in periods if each))
        one, *others = periods
        by = self._constants.get(inputs[-1], 0)
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
        raise Unseen

    def ranges(self, out: int, around: int) -> list[range]:
        """Return the numbers that amounts are tried with: a period of what they decide."""
        period = self._nodes[out].period
        if period < 0 or period == 1:
            raise Unseen  # it grows with them
        period = lcm(around, period or 1)
        if period ** max(1, len(self.amounts)) > _MOST:
            raise Unseen
        return [range(bound or period) for bound in self.amounts.values()]

    def columns(self, given: Mapping[int, list[int]], tries: int) -> list[list[int]]:
        """Return what each node is in each of some tries, of which the leaves are given."""
        found: list[list[int]] = []
        for place, node in enumerate(self._nodes):
            inputs = [found[each] for each in node.inputs]
            if not node.function:
                found.append(given.get(place) or [self._constants[place]] * tries)
            elif node.function == "select":
                found.append([one if chosen else other for chosen, one, other in zip(*inputs)])
            elif node.function in _DIVIDES and (min(inputs[0]) < 0 or min(inputs[1]) <= 0):
                raise Unseen  # below zero they do not go on as they do above
            else:
                found.append(list(map(FUNCTIONS[node.function], *inputs)))
        return found


def _passed(value: SSAValue) -> SSAValue:
    """Return what the test of a while loop passes on."""
    while isinstance(value, BlockArgument):
        loop = value.owner.parent_op()
        if not isinstance(loop, scf.WhileOp) or value.owner is loop.before_region.block:
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
