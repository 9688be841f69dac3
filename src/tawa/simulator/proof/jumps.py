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
from itertools import product
from typing import TypeAlias

from xdsl.dialects import scf
from xdsl.ir import BlockArgument, Operation, SSAValue

from tawa.analysis.polynomial import Known
from tawa.ir import hopper
from tawa.ir.control import terminator
from tawa.simulator.proof.counting import recurrence_of
from tawa.simulator.proof.formulas import Carried, Chosen, Either, Formula, Unseen
from tawa.simulator.proof.leaves import Leaves

Uses: TypeAlias = Mapping[BlockArgument, Mapping[str, set[int | None]]]
"""Where carried scalars decide a "slot" or a "phase": of rings that are so deep."""
Group: TypeAlias = tuple[BlockArgument, ...]
"""Scalars that a loop carries and that depend on one another."""
Asked: TypeAlias = tuple[tuple[SSAValue, str], ...]
"""Scalars that are a "slot" or a "phase" together."""
_Further: TypeAlias = frozenset[tuple[int, bool]]
"""How far on a scalar may be said to be, and whether by the sum as well."""
_Fits: TypeAlias = tuple[SSAValue | None, frozenset[BlockArgument], _Further]
"""The slot that a scalar is computed from, all that loops carry of what it is computed from, and
how far on it is.
"""

_Wanted: TypeAlias = tuple[SSAValue, str, int, "Operation | None"]
"""A scalar, whether it is a "slot" or a "phase", how deep the ring is, and the loop that it is
handed to.
"""

_WAYS = 32  # through the conditions that scalars are results of


class Jumps:
    """The carried scalars of a kernel that jump by numbers fixed at launch.

    Where it is said which scalars turn `together`, all that are asked for or none go by those of
    one group: what is another counter, or one number, is where it should be now and then.
    """

    def __init__(
        self,
        arguments: Collection[BlockArgument],
        uses: Uses,
        leaves: Callable[[SSAValue], Leaves],
        known: Known,
        together: Collection[Group] | None = None,
    ) -> None:
        self._uses, self._carried = uses, Carried(arguments, leaves, known)
        self._together = None if together is None else [frozenset(group) for group in together]
        # Several operations mean one slot, and loops hand on what was asked for inside of them.
        self._alike: dict[tuple[Asked, int, Operation | None], bool] = {}
        self._further: dict[tuple[object, ...], _Further] = {}  # by what formulas look like
        self._found: dict[_Wanted, list[tuple[Chosen, _Fits | scf.IfOp]]] = {}

    def turns(self, value: SSAValue) -> bool:
        """Tell whether a scalar depends on what is carried so."""
        return self._carried.turns(value)

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

    def are_alike(self, asked: Asked, depth: int, loop: Operation | None = None) -> bool:
        """Tell whether scalars are the position of a ring, so many trips further, wherever it is:
        phases as far as one of the slots, on either side of the conditions they are results of.
        What a loop over tiles begins with, or is handed, may be further by numbers fixed at launch.
        """
        key = asked, depth, loop
        found = self._alike.get(key)
        if found is None:
            found = self._alike[key] = self._are_alike(asked, depth, loop)
        return found

    def _are_alike(self, asked: Asked, depth: int, loop: Operation | None) -> bool:
        work: list[Chosen] = [{}]
        for chosen in work:
            try:
                if not self._is_alike(asked, depth, loop, chosen):
                    return False
            except Unseen:
                return False
            except Either as found:
                if len(work) > _WAYS:
                    return False
                results = found.branch.results
                for region in found.branch.regions:
                    given = terminator(region.block).operands
                    work.append({**chosen, **dict(zip(results, given, strict=True))})
        return True

    def _is_alike(self, asked: Asked, depth: int, loop: Operation | None, chosen: Chosen) -> bool:
        """Tell it of one side of conditions. Raises Unseen, Either."""
        slots: list[_Fits] = []
        phases: list[_Fits] = []
        for value, what in asked:
            fits = self._fits((value, what, depth, loop), chosen)
            (slots if what == "slot" else phases).append(fits)
        if self._together is not None:
            turning = [of for _, of, _ in (*(slots if depth > 1 else ()), *phases)]
            moved = frozenset[BlockArgument]().union(*turning)
            if moved and not (all(turning) and any(moved <= group for group in self._together)):
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

    def _fits(self, wanted: _Wanted, chosen: Chosen) -> _Fits:
        """Return how far a scalar is from the position that it is computed from. It goes by the
        sides of those conditions alone that it is a result of. Raises Unseen, Either.
        """
        known = self._found.setdefault(wanted, [])
        for taken, found in known:
            if taken.items() <= chosen.items():
                if not isinstance(found, scf.IfOp):
                    return found
                if found.results[0] not in chosen:
                    raise Either(found)
        value, what, depth, loop = wanted
        formula = Formula(self._carried, loop, not self.turns(value), chosen)
        try:
            out = formula.place(value)
        except Either as open_:
            known.append((formula.taken, open_.branch))
            raise
        fits = self._fit(formula, out, what, depth)
        known.append((formula.taken, fits))
        return fits

    def _fit(self, formula: Formula, out: int, what: str, depth: int) -> _Fits:
        """Return it of a formula, by trying all positions with a period of all amounts."""
        leaves: dict[str, tuple[SSAValue, int]] = {}
        for leaf, (argument, place) in formula.turning.items():
            kind = self.kind_of(argument)
            if kind in leaves or self.depth_of([argument]) != depth:
                raise Unseen  # positions of two rings, or of two times
            leaves[kind] = leaf, place
        places = {kind: place for kind, (_, place) in leaves.items()}
        key = formula.shape, tuple(places.items()), out, what, depth, formula.loop is None
        further = self._further.get(key)
        if further is None:
            further = self._further[key] = _further_by(formula, places, out, what, depth)
        return (
            leaves["slot"][0] if "slot" in leaves else None,
            frozenset([argument for argument, _ in formula.turning.values()]),
            further,
        )


def _further_by(
    formula: Formula, places: Mapping[str, int], out: int, what: str, depth: int
) -> _Further:
    """Return how far on the scalar at `out` is from the slot and phase at `places`."""
    around = 2 * depth
    tried = product(range(around if places else 1), *formula.ranges(out, around))
    columns: list[list[int]] = [list(column) for column in zip(*tried)]
    positions, *amounts = columns
    given = dict(zip(formula.amounts, amounts))
    if "slot" in places:
        given[places["slot"]] = [at % depth for at in positions]
    if "phase" in places:
        given[places["phase"]] = [at // depth for at in positions]
    found = formula.columns(given, len(positions))[out]
    ends = [each % depth if what == "slot" else each // depth for each in range(around)]
    # A ring of one slot is where it was with each sum.
    by_sums = formula.loop is not None and (depth == 1 or bool(amounts))
    ways = (False, True) if by_sums else (False,)
    if not amounts:
        twice = 2 * ends  # at each position in turn, or at the first one alone
        reached = [by for by in range(around) if twice[by : by + len(found)] == found]
        return frozenset(product(reached, ways))
    sums = [sum(each) for each in zip(*amounts)]
    return frozenset(
        (by, more)
        for by in range(around)
        if ends[by] == found[0]  # at 0, where all numbers are 0
        for more in ways
        if all(
            one == ends[(at + by + more * far) % around]
            for one, at, far in zip(found, positions, sums)
        )
    )
