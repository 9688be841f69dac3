"""Forms that are functions of one sum, and whether one of them decides another.

``high - low > 0``, the trips of a loop from `low` to `high` by 64, and those of one that begins at
``low + 64``, are all functions of ``high - low``, whatever that is made of. Such functions are
computed for all numbers that matter: comparisons change near their constants, quotients repeat with
what they divide by, and both go on in one way beyond.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import lcm
from typing import TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

from tawa.simulator.proof import tails
from tawa.simulator.proof.expressions import Expr
from tawa.simulator.proof.forms import Form, Forms, Terms, direction
from tawa.simulator.proof.tails import Tail

Numbers: TypeAlias = NDArray[np.int64]
Chosen: TypeAlias = tuple[Numbers, Numbers, Numbers]
Facts: TypeAlias = tuple[Form, ...]

_MOST = 1 << 16  # numbers on each side of 0 that functions are computed for
_PERIOD = 4  # trips after which what follows from them goes on as before


@dataclass(frozen=True, eq=False, slots=True)
class Table:
    """Functions of a sum, for numbers in a row that it may be; `held` is where facts hold."""

    number: Terms
    numbers: Numbers
    known: dict[Form, Numbers] = field(default_factory=dict[Form, Numbers])
    held: dict[Facts, Numbers] = field(default_factory=dict[Facts, Numbers])
    chosen: dict[tuple[Form, Facts], Chosen] = field(
        default_factory=dict[tuple[Form, Facts], Chosen]
    )


class Singles:
    """What the forms of a kernel are functions of; more than `many` trips are all alike."""

    def __init__(self, forms: Forms, many: int) -> None:
        self._forms, self._many = forms, many
        self._numbers: dict[Form, list[Terms]] = {}
        self._of: dict[tuple[Form, Terms], bool] = {}
        self._gone_on: dict[tuple[Form, Terms], list[Tail] | None] = {}
        self._tables: dict[tuple[Terms, int], Table] = {}
        self._decided: dict[tuple[Form, Form, Terms, Facts], bool] = {}

    def numbers(self, form: Form) -> list[Terms]:
        """Return the sums that a form is a function of, outside first."""
        found = self._numbers.get(form)
        if found is None:
            sums = dict.fromkeys(self._sums(form))
            found = self._numbers[form] = [each for each in sums if self.is_of(form, each)]
        return found

    def _sums(self, form: Form) -> Iterator[Terms]:
        """Yield the sums that a form may be a function of: itself, and what all arguments of an
        atom are functions of, which is what is left where the sum is taken out of the form.
        """
        if form[0]:
            yield direction(form)
        for place, _ in form[0]:
            atom = self._forms.atoms[place]
            if not isinstance(atom, Expr) and atom[0] in _FUNCTIONS:
                first, *others = [self.numbers(arg) for arg in atom[1] if arg[0]] or [[]]
                yield from (each for each in first if all(each in other for other in others))

    def is_of(self, form: Form, number: Terms) -> bool:
        """Tell whether a form is a function of a sum alone, which can be computed."""
        if not form[0]:
            return True
        key = form, number
        found = self._of.get(key)
        if found is None:
            found = True
            for place, _ in _beside(form, number)[1][0]:
                if not self._atom_is_of(place, number):
                    found = False
                    break
            self._of[key] = found
        return found

    def _atom_is_of(self, place: int, number: Terms) -> bool:
        atom = self._forms.atoms[place]
        if isinstance(atom, Expr) or atom[0] not in _FUNCTIONS:
            return False
        return all(self.is_of(arg, number) for arg in atom[1])

    def decides(self, one: Form, other: Form, number: Terms, facts: Sequence[Form]) -> bool:
        """Tell whether a function of a sum decides another, for all numbers where the facts are
        positive; and beyond so many trips goes on in one way.
        """
        told = tuple([fact for fact in facts if self.is_of(fact, number)])
        key = one, other, number, told
        found = self._decided.get(key)
        if found is None:
            found = self._decided[key] = self._decides(*key)
        return found

    def _decides(self, one: Form, other: Form, number: Terms, facts: Facts) -> bool:
        # What holds only further away than anybody looks is left out: more is compared then.
        facts = tuple([fact for fact in facts if self._span((one, other, fact), number)])
        span = self._span((one, other, *facts), number)
        if span is None:
            return False
        table = self._table(number, _rounded_up(span))
        order, first, chosen = self._chosen(one, facts, table)
        others = self._values(other, table)[order]
        alike = others[1:] == others[:-1]
        alike[first[1:] - 1] = True
        return bool(alike.all()) and _is_steady(chosen, others[first], self._many)

    def _span(self, forms: Iterable[Form], number: Terms) -> int | None:
        """Return how far functions of a sum are looked at: where they change as they like, and so
        many turns of all of them beyond. None where that is too far.
        """
        found = [self._tails(form, number) for form in forms]
        if None in found:
            return None
        all_of = [tail for each in found for tail in each or ()]
        turn = lcm(*[tail.period for tail in all_of])
        span = 2 * max(tail.bound for tail in all_of) + (self._many + 4 * _PERIOD) * turn
        return span if span <= _MOST else None

    def _chosen(self, form: Form, facts: Facts, table: Table) -> Chosen:
        """Return the places of the numbers where facts hold, in the order of what a function of
        them is; where in this order it changes, and what it is from there.
        """
        found = table.chosen.get((form, facts))
        if found is None:
            order, values = self._held(facts, table), self._values(form, table)
            values = (values - _least(values))[order]
            if len(values) and values[0] > values[-1]:
                # What rises is sorted in no time; how equal ones stand decides nothing.
                order, values = order[::-1], values[::-1]
            rising = np.argsort(values, kind="stable")
            order, values = order[rising], values[rising]
            changes = np.flatnonzero(values[1:] != values[:-1]) + 1
            first = np.concatenate(([0], changes)) if len(values) else changes
            found = table.chosen[form, facts] = order, first, values[first]
        return found

    def _held(self, facts: Facts, table: Table) -> Numbers:
        """Return the places of the numbers where facts hold."""
        found = table.held.get(facts)
        if found is None:
            held = np.ones(len(table.numbers), np.bool_)
            for fact in facts:
                held &= self._values(fact, table) > 0
            found = table.held[facts] = np.flatnonzero(held)
        return found

    def _tails(self, form: Form, number: Terms) -> list[Tail] | None:
        """Return how a function of a sum goes on, on each side; None where that is not known."""
        key = form, number
        if key not in self._gone_on:
            found = [self._tail(form, number, side) for side in (-1, 1)]
            self._gone_on[key] = None if None in found else found  # pyright: ignore
        return self._gone_on[key]

    def _tail(self, form: Form, number: Terms, side: int) -> Tail | None:
        whole, (terms, constant) = _beside(form, number)
        parts = [(whole, Tail(side, gain=1))] if whole else []
        for place, factor in terms:
            atom = self._forms.atoms[place]
            assert not isinstance(atom, Expr)
            tail = self._atom_tail(*atom, number, side)
            if tail is None:
                return None
            parts.append((factor, tail))
        return tails.total(side, parts, constant)

    def _atom_tail(
        self, function: str, args: Sequence[Form], number: Terms, side: int
    ) -> Tail | None:
        found = [self._tail(arg, number, side) for arg in args]
        if None in found:
            return None
        one, *others = found
        assert one is not None
        if function in _QUOTIENTS:
            by = others[0].value  # pyright: ignore
            return _GOING_ON[function](one, by) if by is not None and by > 0 else None
        return _GOING_ON[function](one, *others)

    def _table(self, number: Terms, span: int) -> Table:
        """Return what is kept of the functions of a sum, for numbers that are so large at most."""
        found = self._tables.get((number, span))
        if found is None:
            found = self._tables[number, span] = Table(number, np.arange(-span, span + 1))
        return found

    def _values(self, form: Form, table: Table) -> Numbers:
        """Return a function of a sum, for many numbers that it may be."""
        found = table.known.get(form)
        if found is None:
            whole, (terms, number) = _beside(form, table.number)
            found = _times(whole, table.numbers) if whole else None
            for place, factor in terms:
                values = _times(factor, self._atom_values(place, table))
                found = values if found is None else found + values
            if found is None:
                found = np.full(len(table.numbers), number)
            elif number:
                found = found + number
            table.known[form] = found
        return found

    def _atom_values(self, place: int, table: Table) -> Numbers:
        atom = self._forms.atoms[place]
        assert not isinstance(atom, Expr)
        function, args = atom
        if function in _QUOTIENTS and not args[1][0]:
            # By one number for all a division is much faster than by as many.
            return _QUOTIENTS[function](self._values(args[0], table), args[1][1])
        return _FUNCTIONS[function](*[self._values(arg, table) for arg in args])


def _rounded_up(span: int) -> int:
    """Return a few more, as many for most: what is computed for one question serves others."""
    step = 1 << max(0, span.bit_length() - 3)
    return -(-span // step) * step


def _times(factor: int, values: Numbers) -> Numbers:
    return values if factor == 1 else factor * values


def _beside(form: Form, number: Terms) -> tuple[int, Form]:
    """Return how many times a form has a sum, and what it has besides."""
    if len(number) > len(form[0]):
        return 0, form
    terms, (place, factor) = dict(form[0]), number[0]
    whole = terms.get(place, 0) // factor
    if not whole or any(terms.get(at) != whole * many for at, many in number):
        return 0, form
    if len(number) == len(terms):
        return whole, ((), form[1])
    for at, _ in number:
        del terms[at]
    return whole, (tuple(terms.items()), form[1])


def _least(chosen: Numbers) -> int:
    """Return what a number of trips is where there are none, which is for all numbers on one side;
    forms are known but for a number.
    """
    far = len(chosen) // 4
    ends = (end for end in (chosen[:far], chosen[-far:]) if not (end != end[0]).any())
    return next((int(end[0]) for end in ends), 0)


def _is_steady(chosen: Numbers, others: Numbers, many: int) -> bool:
    """Tell whether what follows from so many trips goes on with more as it began."""
    values = others[np.abs(chosen) > many]
    if len(values) <= 2 * _PERIOD:
        return True
    more = (values[period:] - values[:-period] for period in range(1, _PERIOD + 1))
    return any(bool((each == each[0]).all()) for each in more)


def _positive(a: Numbers) -> Numbers:
    return (a > 0).astype(np.int64)


def _zero(a: Numbers) -> Numbers:
    return (a == 0).astype(np.int64)


def _above(a: Numbers) -> Numbers:
    return np.maximum(a, 0)


def _down(a: Numbers, by: Numbers | int) -> Numbers:
    # Most divide by a power of 2, and a shift rounds down as well, in a tenth of the time.
    return a >> by.bit_length() - 1 if _is_power(by) else a // by


def _rounded(a: Numbers, by: Numbers | int) -> Numbers:
    rest = a & by - 1 if _is_power(by) else a % by
    return ((a < 0) & (rest != 0)).astype(np.int64)


def _is_power(by: Numbers | int) -> TypeGuard[int]:
    return isinstance(by, int) and by > 0 and by & (by - 1) == 0


def _unlike(a: Numbers, b: Numbers) -> Numbers:
    return (a != b).astype(np.int64)


_QUOTIENTS = {"down": _down, "rounded": _rounded}
_FUNCTIONS = {
    **_QUOTIENTS,
    "positive": _positive,
    "zero": _zero,
    "above": _above,
    "both": np.multiply,
    "unlike": _unlike,
    "select": np.multiply,
}
"""What is computed of numbers, many at a time; both sides of a quotient are known."""
_GOING_ON: dict[str, Callable[..., Tail | None]] = {
    "down": tails.down,
    "rounded": tails.rounded,
    "positive": tails.positive,
    "zero": tails.zero,
    "above": tails.above,
    "both": tails.times,
    "unlike": tails.unlike,
    "select": tails.times,
}
"""How these go on, by how what they are computed from does."""
