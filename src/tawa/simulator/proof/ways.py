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
from xdsl.ir import Operation

from tawa.ir import hopper, line_of
from tawa.simulator.proof.configuration import Configuration, Shape, Wishes, uniform
from tawa.simulator.proof.control import has_steps
from tawa.simulator.proof.counting import constant_of
from tawa.simulator.proof.decode import Decoder

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
    known: set[frozenset[Hashable]] = field(default_factory=set[frozenset[Hashable]])

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
        """Yield a way that was not gone yet."""
        key = frozenset((_place(branch), side) for branch, side in path)
        if key in self.known:
            return
        self.known.add(key)
        wishes: dict[Operation, Wishes] = {}
        wishes |= {like: (1 - side,) for branch, side in path for like in self._alike(branch)}
        equal, unlike = _asked_for(path, 0), _asked_for(path, 1)
        # Unlike several numbers is what is beyond them all: 2, where it is neither 0 nor 1.
        beyond = (max(unlike) + 1,) if len(unlike) > 1 else ()
        yield Way(wishes, (*equal, *beyond))

    def _alike(self, branch: scf.IfOp) -> list[scf.IfOp]:
        """Return the copies of a condition in all roles."""
        place = _place(branch)
        branches = (b for role in self.roles for b in self.decoder.census.of(scf.IfOp, within=role))
        return [other for other in branches if _place(other) == place]


def _place(branch: scf.IfOp) -> Hashable:
    """Return where a condition stands in the source; itself, where that is unknown."""
    return branch.location if line_of(branch) else branch


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
