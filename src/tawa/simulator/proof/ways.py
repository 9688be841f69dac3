"""Ways to the other sides of conditions: loops there are run as often as loops anywhere.

The theorem is one of a program, and a condition that no trip changes makes two programs of one. All
trip counts are run with every condition held, which leaves out the loops on other sides, and the
programs without what a condition holds. A *way* says what the conditions on the way to such a
loop are to be, in all roles that ask the same; and which numbers they compare alike. Who chooses
`flag` for the first of ``if flag == 0: .. elif flag == 1: ..`` must know of the second.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field

from xdsl.dialects import scf
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from tawa.analysis.naming import unlabelled
from tawa.ir import hopper, line_of
from tawa.simulator.proof.configuration import Configuration, Shape, Wishes, uniform
from tawa.simulator.proof.counting import constant_of
from tawa.simulator.proof.decode import Decoder
from tawa.simulator.proof.sites import has_steps

Path = tuple[tuple[scf.IfOp, int], ...]
"""Conditions, and the side of each: 0 where it holds."""

_EQUAL = {"eq": 0, "ne": 1}


@dataclass(frozen=True, slots=True)
class Way:
    """What conditions are to be, and the numbers that those which compare alike ask for."""

    wishes: Mapping[Operation, Wishes]
    equal: tuple[int, ...]

    def configurations(self, shape: Shape) -> Iterator[Configuration]:
        """Yield every trip count on this way."""
        for configuration in uniform(shape):
            configuration.sites, configuration.equal = self.wishes, self.equal
            yield configuration


@dataclass(eq=False, slots=True)
class Ways:
    """The conditions of a kernel that an input decides, and those that are asked in each place."""

    decoder: Decoder
    roles: tuple[Operation, ...]
    known: set[frozenset[Hashable]] = field(default_factory=lambda: set())

    def to_loops(self) -> Iterator[Way]:
        """Yield the ways to loops for which some condition must not hold."""
        for role in self.roles:
            for loop in self.decoder.census.of(scf.ForOp, scf.WhileOp, within=role):
                path = self._around(loop)
                bodies = (region.block for region in loop.regions if region.blocks)
                if any(side for _, side in path) and any(
                    has_steps(body, self.decoder) for body in bodies
                ):
                    yield from self._way(path)

    def without(self, branch: scf.IfOp) -> Iterator[Way]:
        """Yield the way on which a condition does not hold, where a loop beside it runs there."""
        role = self._role(branch)
        loops = self.decoder.census.of(scf.ForOp, scf.WhileOp, within=role)
        if any(not loop.is_ancestor(branch) and not branch.is_ancestor(loop) for loop in loops):
            yield from self._way(((branch, 1), *self._around(branch)))

    def to(self, operation: Operation) -> Iterator[Way]:
        """Yield the way to an operation."""
        yield from self._way(self._around(operation))

    def _around(self, operation: Operation) -> Path:
        """Return the conditions around an operation, inside first."""
        found: list[tuple[scf.IfOp, int]] = []
        region = operation.parent_region()
        while region is not None and not isinstance(around := region.parent, hopper.Role):
            if isinstance(around, scf.IfOp) and around not in self.decoder.uniform.fixed:
                found.append((around, around.regions.index(region)))
            region = around.parent_region() if around is not None else None
        return tuple(found)

    def _role(self, operation: Operation) -> Operation:
        return next(role for role in self.roles if role.is_ancestor(operation))

    def _way(self, path: Path) -> Iterator[Way]:
        """Yield the ways that were not gone yet: what asks the same as the conditions on the path,
        and, since one number may decide several, all that stands in their places of the source. A
        function that is called twice has two conditions in one place.
        """
        equal, unlike = _asked_for(path, 0), _asked_for(path, 1)
        # Unlike several numbers is what is beyond them all: 2, where it is neither 0 nor 1.
        beyond = (max(unlike) + 1,) if len(unlike) > 1 else ()
        for copies in (self._alike, self._there):
            wishes: dict[Operation, Wishes] = {}
            for branch, side in path:
                wishes |= dict.fromkeys(copies(branch), (1 - side,))
            key = frozenset(wishes.items())
            if key not in self.known:
                self.known.add(key)
                yield Way(wishes, (*equal, *beyond))

    def _there(self, branch: scf.IfOp) -> list[scf.IfOp]:
        """Return the conditions in the place of one, in all roles."""
        return [other for role in self.roles for other in self._there_in(role, branch)]

    def _there_in(self, role: Operation, branch: scf.IfOp) -> list[scf.IfOp]:
        place = _place(branch)
        branches = self.decoder.census.of(scf.IfOp, within=role)
        return [other for other in branches if _place(other) == place]

    def _alike(self, branch: scf.IfOp) -> list[scf.IfOp]:
        """Return the copies of a condition in all roles: those in its place that ask the same."""
        found: list[scf.IfOp] = []
        for role in self.roles:
            there = self._there_in(role, branch)
            same = [other for other in there if asks_the_same(branch.cond, other.cond)]
            # Where none is seen to be the same, any may be: who asks first must know of the wish.
            found += same or ([branch] if branch in there else there)
        return found


def _place(branch: scf.IfOp) -> Hashable:
    """Return where a condition stands in the source; itself, where that is unknown."""
    return branch.location if line_of(branch) else branch


def asks_the_same(one: SSAValue, other: SSAValue) -> bool:
    """Tell whether two scalars, perhaps of two roles, are one function of the same numbers; loops
    and conditions are those of one place in the source.
    """
    work, seen = [(one, other)], set[tuple[SSAValue, SSAValue]]()
    while work:
        pair = first, second = work.pop()
        if first is second or pair in seen:
            continue
        seen.add(pair)
        match first, second:
            case BlockArgument(), BlockArgument():
                above, beside = first.owner.parent_op(), second.owner.parent_op()
                if not isinstance(above, (scf.ForOp, scf.WhileOp)) or beside is None:
                    return False
                # Roles carry what they need: carried values have other places in each.
                if bool(first.index) != bool(second.index) or not _in_place(above, beside):
                    return False
            case OpResult(), OpResult():
                if not _in_place(first.op, second.op):
                    return False
                work += zip(first.op.operands, second.op.operands)
            case _:
                return False
    return True


def _in_place(one: Operation, other: Operation) -> bool:
    """Tell whether two operations do the same to as many operands; of loops and conditions, whether
    they stand in one place of the source.
    """
    if type(one) is not type(other):
        return False
    if one.regions:
        return one.location == other.location
    return (
        len(one.operands) == len(other.operands)
        and unlabelled(one) == unlabelled(other)
        and one.properties == other.properties
    )


def _asked_for(path: Path, differ: int) -> tuple[int, ...]:
    """Return the numbers that something must be equal to on a path, or (1) differ from."""
    found: list[int] = []
    for branch, side in path:
        condition = branch.cond.owner
        function = getattr(condition, "function", None)
        if function is not None and _EQUAL.get(function.data) == side ^ differ:
            numbers = (constant_of(value) for value in condition.operands)  # pyright: ignore
            found += [number for number in numbers if number is not None][:1]
    return tuple(found)


def controls(operation: Operation) -> Iterator[tuple[Operation, int]]:
    """Yield the loops and conditions around an operation, inside first, and the region it is in."""
    parent = operation.parent_region()
    while parent is not None:
        owner = parent.parent
        if owner is None or isinstance(owner, hopper.Role):
            return
        if isinstance(owner, (scf.ForOp, scf.IfOp, scf.WhileOp)):
            yield owner, owner.regions.index(parent)
        parent = owner.parent_region()
