"""Which numbers of trips a loop cannot make, by its bounds and the conditions around it.

    for k in range(low, min(low + 64, K), 16)    # never more than 4
    if first != last: for p in range(first, last + 1)    # never 1, where it counts upwards

What is known is written as sums that are not negative: of a minimum, a quotient by a constant, a
condition, and of the number of trips asked about. Then all unknowns are eliminated, one after the
other (Fourier and Motzkin); where that leaves a number below zero, no input does all of it. A
minimum is one of two numbers and unlike ones differ up or down: such cases are looked at one by one
where numbers found without them do not keep to any. Nothing here is of a run: it holds for every
input, and every trip of the loops around.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from xdsl.dialects import scf
from xdsl.dialects.builtin import IntegerType
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from tawa.analysis.polynomial import Atom, Call, Known, Leaf, Monomial, Polynomial, Trip, polynomial
from tawa.analysis.ranges import Known as Ranges
from tawa.analysis.ranges import range_of, range_of_type
from tawa.ir import hopper, tile
from tawa.simulator.proof.closed import Fact
from tawa.simulator.proof.elimination import Cases, Fits, Row, Rows, Table, parted
from tawa.simulator.proof.functions import NARROW

Split: TypeAlias = tuple[tuple[Polynomial, ...], ...]
"""Cases of which one holds, a single one surely: what is not negative then."""

_BITS = 32  # more than these a number is not shifted by
_ONE = Polynomial.constant(1)

# Where a comparison of two sides holds: which is larger, by how much at least; and where it fails.
_TRUE = {"lt": (1, 1), "le": (1, 0), "gt": (0, 1), "ge": (0, 0)}
_FALSE = {"lt": (0, 0), "le": (0, 1), "gt": (1, 0), "ge": (1, 1)}
_EQUAL = {"eq": True, "ne": False}
_BOTH = {"and": True, "or": False}

_AROUND = (scf.IfOp, scf.ForOp, scf.WhileOp, hopper.OneThread)


@dataclass(eq=False, slots=True)
class Term:
    """What stands in sums, each once: a number of `unit`."""

    monomial: Monomial
    unit: int


Sum: TypeAlias = tuple[tuple[Term, int], ...]
"""Terms in order, with their factors."""
Told: TypeAlias = tuple[tuple[Sum, ...], ...]
"""A split, made of terms."""


class Terms:
    """What stands in sums; `units` are what numbers are multiples of, `places` where operations
    stand, so that all is told in the same order in every process; `polynomials` are those that were
    worked out so far. A grid has whole clusters of so many blocks.
    """

    def __init__(
        self,
        units: Mapping[SSAValue, int],
        places: Mapping[Operation, int],
        polynomials: Known,
        cluster: int = 1,
    ) -> None:
        self.units, self.places, self.polynomials = units, places, polynomials
        self.cluster = cluster
        self._terms: dict[Monomial, Term] = {}
        # Beside the terms: what is known of one speaks of it, and nothing is to hold itself.
        self._known: dict[Term, tuple[Told, ...]] = {}
        self._told: dict[scf.ForOp | Fact, tuple[Told, ...]] = {}
        self._held = Ranges()

    @property
    def one(self) -> Term:
        """What stands in sums as a number."""
        return self._term(())

    def sum(self, value: Polynomial) -> Sum:
        """Return a polynomial as a sum of terms."""
        ordered = sorted(value.terms, key=self._order)
        return tuple([(self._term(monomial), factor) for monomial, factor in ordered])

    def known(self, term: Term) -> tuple[Told, ...]:
        """Return what holds of a term wherever it stands: by where its atoms lie, and by what
        defines it.
        """
        found = self._known.get(term)
        if found is None:
            monomial = term.monomial
            splits: list[Split] = [((e,),) for e in _ranges(monomial, self.cluster, self._held)]
            if len(monomial) == 1 and isinstance(monomial[0], Call):
                splits += _defined(monomial[0])
            found = self._known[term] = self._sums(splits)
        return found

    def told(self, around: scf.ForOp | Fact) -> tuple[Told, ...]:
        """Return what holds inside of a loop, or where a condition has an outcome."""
        found = self._told.get(around)
        if found is None:
            found = self._told[around] = self._sums(_told(around, self.polynomials))
        return found

    def _sums(self, splits: Iterable[Split]) -> tuple[Told, ...]:
        return tuple([tuple([tuple(map(self.sum, case)) for case in split]) for split in splits])

    def _term(self, monomial: Monomial) -> Term:
        found = self._terms.get(monomial)
        if found is None:
            units = self.units
            unit = prod([units.get(leaf.value, 1) for leaf in monomial if isinstance(leaf, Leaf)])
            found = self._terms[monomial] = Term(monomial, unit)
        return found

    def _order(self, term: tuple[Monomial, int]) -> list[tuple[int, int]]:
        """Return what orders the terms of a sum."""
        return sorted([self._place(atom) for atom in term[0]])

    def _place(self, atom: Atom) -> tuple[int, int]:
        if isinstance(atom, Trip):
            return self.places[atom.loop], 0
        if isinstance(atom.value, OpResult):
            return self.places[atom.value.op], 0
        return -1, atom.value.index if isinstance(atom.value, BlockArgument) else 0


class Spans:
    """The loops of a kernel."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._facts: dict[tuple[Operation, tuple[Term, ...]], _Facts] = {}
        self._fits = Fits()

    def may_make(self, loop: scf.ForOp, least: int, most: int | None) -> bool:
        """Tell whether a loop may make so many trips (`most` None: any number): nothing known says
        that no input gives them.
        """
        known = self._terms.polynomials
        span = polynomial(loop.ub, known) - polynomial(loop.lb, known)
        step = polynomial(loop.step, known)
        asked = [step - _ONE]  # a step that is not positive is no loop
        if least:
            asked.append(span - Polynomial.constant(least - 1) * step - _ONE)
        if most is not None:
            asked.append(Polynomial.constant(most) * step - span)
        sums = [*map(self._terms.sum, asked)]
        asked_of = dict.fromkeys([term for each in sums for term, _ in each])
        return self._fit(self._facts_of(loop, tuple(asked_of)), sums)

    def may_run(self, operation: Operation) -> bool:
        """Tell whether an operation may run: nothing known says that no input comes to it."""
        return self._fit(self._facts_of(operation, ()), [])

    def may_take(self, branch: scf.IfOp, side: int) -> bool:
        """Tell whether a side of a condition may be taken, where it has nothing in it too."""
        around = (*_around(branch), Fact.of(branch, side))
        return self._fit(_Facts((), around, self._terms, self._fits.table), [])

    def _fit(self, facts: _Facts, asked: Iterable[Sum]) -> bool:
        """Tell whether there may be numbers that do all of it, and with which sums are not
        negative. Roles ask much the same: what stands in sums is known by its place in them.
        """
        rows = facts.sure.copy()
        holds = facts.holds and all(rows.keep(*facts.row(each)) for each in asked)
        return holds and self._fits.fit(rows, tuple(facts.open))

    def _facts_of(self, inside: Operation, asked_of: tuple[Term, ...]) -> _Facts:
        """Return what is known where an operation runs, and of some terms, worked out once."""
        found = self._facts.get((inside, asked_of))
        if found is None:
            found = _Facts(asked_of, _around(inside), self._terms, self._fits.table)
            self._facts[inside, asked_of] = found
        return found


# --- what is known --------------------------------------------------------------------------------


def _around(inside: Operation) -> Iterator[scf.ForOp | Fact]:
    """Yield the loops and conditions around an operation, up to its role."""
    while isinstance(around := inside.parent_op(), _AROUND):
        if isinstance(around, scf.ForOp):
            yield around
        elif isinstance(around, scf.IfOp):
            yield Fact.of(around, around.regions.index(inside.parent_region()))  # pyright: ignore
        inside = around


def _told(around: scf.ForOp | Fact, known: Known) -> Iterator[Split]:
    """Yield what holds inside of a loop, or where a condition has an outcome."""
    if isinstance(around, scf.ForOp):
        index, end = (polynomial(item, known) for item in (around.body.block.args[0], around.ub))
        yield ((end - index - _ONE,),)
        return
    condition = around.value.owner
    if not isinstance(condition, tile.Elementwise) or len(condition.inputs) != 2:
        return
    function, inputs = condition.function.data, condition.inputs
    if _BOTH.get(function) is around.holds and str(around.value.type) == "i1":
        for each in inputs:
            yield from _told(Fact.that(each, around.holds), known)
        return
    if not isinstance(inputs[0].type, IntegerType):
        return
    one, other = (polynomial(side, known) for side in inputs)
    if (equal := _EQUAL.get(function)) is not None:
        if equal is around.holds:
            yield ((one - other, other - one),)
        else:
            yield ((one - other - _ONE,), (other - one - _ONE,))
    elif (says := (_TRUE if around.holds else _FALSE).get(function)) is not None:
        larger, by = says
        sides = (one, other)
        yield ((sides[larger] - sides[1 - larger] - Polynomial.constant(by),),)


def _defined(call: Call) -> Iterator[Split]:
    """Yield what holds of the result of a function."""
    result, inputs = Polynomial.atom(call), call.inputs
    numbers = [item.as_constant for item in inputs]
    match call.function, inputs, numbers:
        case "min", (one, other), _:
            yield ((one - result, other - result),)
            yield ((result - one,), (result - other,))
        case "max", (one, other), _:
            yield ((result - one, result - other),)
            yield ((one - result,), (other - result,))
        case "select", (_, one, other), _:
            yield ((one - result, result - one), (other - result, result - other))
        case "idiv", (one, _), [_, int(by)] if by > 0:
            yield from _divided(one, result, by)
        case "irem", (one, _), [_, int(by)] if by > 0:
            quotient = Polynomial.atom(Call("idiv", inputs, call.value))
            rest = one - Polynomial.constant(by) * quotient - result
            yield ((rest, -rest),)
        case "shr", (one, _), [_, int(by)] if 0 <= by < _BITS:
            rest = one - Polynomial.constant(1 << by) * result
            yield ((rest, Polynomial.constant((1 << by) - 1) - rest),)
        case "shl", (one, _), [_, int(by)] if 0 <= by < _BITS:
            rest = one * Polynomial.constant(1 << by) - result
            yield ((rest, -rest),)
        case "and", _, [int(mask), _] | [_, int(mask)] if mask >= 0:
            yield ((result, Polynomial.constant(mask) - result),)
        case _:
            return


def _divided(number: Polynomial, quotient: Polynomial, by: int) -> Iterator[Split]:
    """Yield what holds of a quotient: it is towards zero."""
    rest = number - Polynomial.constant(by) * quotient
    below = Polynomial.constant(by - 1)
    yield ((rest + below, below - rest),)
    yield ((number, quotient, rest), (-number - _ONE, -quotient, -rest))


def _range(atom: Atom, cluster: int, known: Ranges) -> tuple[int | None, int | None]:
    """Return what an atom is at least and at most, None for what its type alone says of a whole
    number. A quotient is told by what defines it.
    """
    if isinstance(atom, Trip):
        return 0, None
    if isinstance(owner := atom.value.owner, hopper.NumBlocks) and not owner.axis.data:
        return cluster, None
    kind, told = str(atom.value.type), isinstance(atom, Leaf) or atom.function != "idiv"
    narrow = kind in NARROW
    if not told or not (narrow or kind in ("i32", "i64")):
        return None, None
    held, whole = range_of(atom.value, known), range_of_type(atom.value.type)
    least = held.low if narrow or held.low > whole.low else None
    return least, held.high if narrow or held.high < whole.high else None


# --- whether there are such numbers ---------------------------------------------------------------


class _Facts:
    """What is known together inside of loops and conditions, and of all that stands in sums about
    it: of what a question is asked of first. What is `sure`, and whether it `holds` at all; of
    splits in `open` one case holds each.
    """

    def __init__(
        self,
        asked_of: Iterable[Term],
        around: Iterable[scf.ForOp | Fact],
        terms: Terms,
        table: Table,
    ) -> None:
        self._terms = terms
        self._places: dict[Term, int] = {terms.one: 0}
        self._new: list[Term] = []
        self.sure, self.holds = Rows(table), True
        self.open: list[Cases] = []
        for term in asked_of:
            self._place(term)
        self._define()
        for each in around:
            for told in terms.told(each):
                self._put(told)

    def _put(self, split: Told) -> None:
        """Add sums, and what defines what they are made of."""
        cases = tuple([tuple(map(self.row, case)) for case in split])
        if len(cases) == 1:
            self.holds &= all(self.sure.keep(*row) for row in cases[0])
        else:
            self.open.append(cases)
        self._define()

    def _define(self) -> None:
        """Add what defines what sums are made of."""
        while self._new:
            for told in self._terms.known(self._new.pop(0)):
                self._put(told)

    def row(self, terms: Sum) -> Row:
        """Return a sum by places, which hold what is multiplied by the units."""
        factors = [(self._place(term), factor * term.unit) for term, factor in terms]
        return parted(factors)

    def _place(self, term: Term) -> int:
        found = self._places.get(term)
        if found is None:
            found = self._places[term] = len(self._places)
            self._new.append(term)
        return found


def _ranges(monomial: Monomial, cluster: int, held: Ranges) -> Iterator[Polynomial]:
    """Yield what is not negative because of where atoms lie."""
    value = Polynomial.make({monomial: 1})
    if len(monomial) > 1:
        if all(isinstance(atom, Trip) or range_of(atom.value, held).low >= 0 for atom in monomial):
            yield value
        return
    for least, most in (_range(atom, cluster, held) for atom in monomial):
        if least is not None:
            yield value - Polynomial.constant(least)
        if most is not None:
            yield Polynomial.constant(most) - value
