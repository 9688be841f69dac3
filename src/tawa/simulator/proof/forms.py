"""What a scalar is in normal form, by which two roles that say one thing in two ways are seen to.

    min(a, b) - 64 > 0        0 < a - 64 & 64 < b        !(a <= 64 | b < 65)

A *form* is a sum of *atoms*, each with a factor, and a number. Comparisons are atoms of what their
sides differ by: `positive` or `zero`; a minimum and a maximum are sums with the `above` part of a
difference, max(0, x); the trips of a loop are the above part of a quotient rounded up. An atom is
what no rule takes apart: an unknown, or a function of forms. Forms are computed as the proof does,
with integers without end; equal forms are equal for all numbers, unlike ones may be.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from math import gcd
from typing import TypeAlias

from tawa.simulator.proof.expressions import Expr, Scalar
from tawa.simulator.proof.words import least_of

Terms: TypeAlias = tuple[tuple[int, int], ...]
"""Atoms by place, the first ones first, and the factor of each."""
Form: TypeAlias = tuple[Terms, int]
Atom: TypeAlias = "tuple[str, tuple[Form, ...]] | Expr"
"""An unknown, or a function of forms."""

ZERO: Form = ((), 0)
ONE: Form = ((), 1)

_BELOW = {"lt": 0, "le": 1}  # b - a, and so much more, is positive
_OVER = {"gt": 0, "ge": 1}


class Forms:
    """The forms of a kernel's expressions; `units` are what unknowns are multiples of, `steps` the
    unknowns by which loops advance, none of them below one.
    """

    def __init__(self, units: Mapping[Expr, int], steps: Collection[Expr] = ()) -> None:
        self.atoms: list[Atom] = []
        self._units, self._steps = units, steps
        self._places: dict[Atom, int] = {}
        self._truths: set[int] = set()
        self._known: dict[Expr, Form] = {}

    def of(self, scalar: Scalar) -> Form:
        """Return the form of a scalar."""
        if not isinstance(scalar, Expr):
            return (), scalar
        if scalar not in self._known:
            parts, work = {scalar}, [scalar]
            for item in work:
                if not item.unknown:
                    more = [part for part in item.parts if part not in self._known]
                    work += [part for part in dict.fromkeys(more) if part not in parts]
                    parts.update(more)
            for item in sorted(work, key=_serial):  # what it is made of was made before it
                self._known[item] = self._make(item)
        return self._known[scalar]

    def trips(self, high: Form, low: Form, by: Form) -> Form:
        """Return the trips of a loop."""
        return self.above(self._up(plus(high, low, -1), by))

    def by_steps(self, form: Form) -> Iterator[Form]:
        """Yield a form over each step, rounded up: it is positive where the form is."""
        for step in self._steps:
            yield self._over(form, self.of(step))

    def truth(self, form: Form) -> Form:
        """Return 1 where a form is not 0, else 0."""
        return form if self._is_truth(form) else plus(ONE, self.zero(form), -1)

    def _make(self, item: Expr) -> Form:
        if item.unknown:
            return self._atom(item, self._units.get(item, 1))
        args = [self.of(arg) if isinstance(arg, (int, Expr)) else ZERO for arg in item.args]
        return self._apply(item.function, *args)

    def _apply(self, function: str, *args: Form) -> Form:
        match function, args:
            case "add", (a, b):
                return plus(a, b)
            case "sub", (a, b):
                return plus(a, b, -1)
            case "neg", (a,):
                return times(a, -1)
            case "mul", (a, b):
                return self._product(a, b)
            case "fma", (a, b, c):
                return plus(self._product(a, b), c)
            case "shl", (a, ((), int(by))) if 0 <= by < 64:
                return times(a, 1 << by)
            case "lt" | "le", (a, b):
                return self.positive(plus(plus(b, a, -1), ((), _BELOW[function])))
            case "gt" | "ge", (a, b):
                return self.positive(plus(plus(a, b, -1), ((), _OVER[function])))
            case "eq", (a, b):
                return self.zero(plus(a, b, -1))
            case "ne", (a, b):
                return plus(ONE, self.zero(plus(a, b, -1)), -1)
            case "max", (a, b):
                return plus(a, self.above(plus(b, a, -1)))
            case "min", (a, b):
                return plus(a, self.above(plus(a, b, -1)), -1)
            case "and", (a, b) if self._is_truth(a) and self._is_truth(b):
                return self._both(a, b)
            case "or", (a, b) if self._is_truth(a) and self._is_truth(b):
                return _not(self._both(_not(a), _not(b)))
            case "xor", (a, b) if self._is_truth(a) and self._is_truth(b):
                return self._unlike(a, b)
            case "select", (c, a, b):
                return self._select(self.truth(c), a, b)
            case "idiv", (a, by) if self._is_step(by):
                return self._quotient(a, by)
            case "irem", (a, ((), int(by))) if by > 0:
                return plus(a, self._quotient(a, ((), by)), -by)
            case (("and" | "or" | "xor"), (a, b)):
                return self._function(function, *sorted((a, b)))
            case _:
                return self._function(function, *args)

    # --- atoms ------------------------------------------------------------------------------------

    def _atom(self, atom: Atom, factor: int = 1) -> Form:
        place = self._places.get(atom)
        if place is None:
            place = self._places[atom] = len(self.atoms)
            self.atoms.append(atom)
        return ((place, factor),), 0

    def _function(self, name: str, *args: Form) -> Form:
        return self._atom((name, args))

    def _truth(self, name: str, *args: Form) -> Form:
        found = self._function(name, *args)
        self._truths.add(found[0][0][0])
        return found

    def _is_truth(self, form: Form) -> bool:
        """Tell whether a form is 0 or 1."""
        match form:
            case (), (0 | 1):
                return True
            case ((place, 1),), 0:
                return place in self._truths
            case ((place, -1),), 1:
                return place in self._truths
            case _:
                return False

    def positive(self, form: Form) -> Form:
        """Return 1 where a form is more than 0, else 0."""
        terms, number = form
        if not terms:
            return (), int(number > 0)
        if (step := self._step_in(terms)) is not None:
            return self.positive(self._over(form, plain(step)))
        by = _factor(terms)
        terms, number = _scaled(terms, by), -(-number // by)
        if terms[0][1] > 0:
            return self._truth("positive", (terms, number))
        return _not(self._truth("positive", (_scaled(terms, -1), 1 - number)))

    def zero(self, form: Form) -> Form:
        """Return 1 where a form is 0, else 0."""
        terms, number = form
        if not terms:
            return (), int(number == 0)
        if self._is_truth(form):
            return _not(form)
        by = _factor(terms) * (1 if terms[0][1] > 0 else -1)
        if number % by:
            return ZERO
        return self._truth("zero", (_scaled(terms, by), number // by))

    def above(self, form: Form) -> Form:
        """Return max(0, form)."""
        terms, number = form
        if not terms:
            return (), max(0, number)
        by = gcd(_factor(terms), number)
        one: Form = _scaled(terms, by), number // by
        if terms[0][1] > 0:
            return times(self._function("above", one), by)
        return times(plus(one, self._function("above", times(one, -1))), by)

    def _up(self, form: Form, by: Form) -> Form:
        """Return a quotient rounded up, by something that is positive."""
        if by[0]:
            return self._over(form, by)
        return times(self._down(times(form, -1), by[1]), -1)

    def _down(self, form: Form, by: int) -> Form:
        """Return a quotient rounded down, by a positive number. Sums stay whole: what is compared
        with the quotient is mostly a function of the same sum.
        """
        terms, number = form
        common = gcd(_factor(terms), by)
        terms, number, by = _scaled(terms, common), number // common, by // common
        if by == 1:
            return terms, number
        return plus(self._function("down", (terms, number % by), ((), by)), ((), number // by))

    def _over(self, form: Form, by: Form) -> Form:
        """Return a quotient rounded up, by what is no number: whole ones of it are taken out."""
        match by:
            case ((place, factor),), 0 if factor > 0:
                whole = dict(form[0]).get(place, 0)
                rest: Form = tuple([term for term in form[0] if term[0] != place]), form[1]
                found: Form = (), whole
                if rest != ZERO:
                    found = plus(self._function("over", rest, plain(place)), found)
                return self._up(found, ((), factor))
            case _:
                return self._function("over", form, by)

    def _is_step(self, form: Form) -> bool:
        """Tell whether a form is a positive number, or one of the steps."""
        if not form[0]:
            return form[1] > 0
        one = form[1] == 0 and len(form[0]) == 1 and form[0][0][1] > 0
        return one and self._step_in(form[0]) is not None

    def _step_in(self, terms: Terms) -> int | None:
        """Return the place of a step that a sum has whole ones of."""
        for place, _ in terms:
            atom = self.atoms[place]
            if isinstance(atom, Expr) and atom in self._steps:
                return place
        return None

    def _quotient(self, form: Form, by: Form) -> Form:
        """Return a quotient rounded towards zero, as the machine does, by something positive: that
        rounded down, and what it differs by where the form is below zero.
        """
        if not form[0] and not by[0]:
            return (), abs(form[1]) // by[1] * (1 if form[1] >= 0 else -1)
        if by[0]:
            down = plus(self._over(plus(form, ONE), by), ONE, -1)
        else:
            down = self._down(form, by[1])
        if self.is_natural(form):
            return down
        return plus(down, self._function("rounded", form, by))

    def is_natural(self, form: Form) -> bool:
        """Tell whether a form is surely not below zero."""
        return form[1] >= 0 and all(many > 0 and self._is_least(at) for at, many in form[0])

    def _is_least(self, place: int) -> bool:
        atom = self.atoms[place]
        if isinstance(atom, Expr):
            return least_of(atom) is not None
        function, args = atom
        if function in ("down", "product"):
            return all(self.is_natural(arg) for arg in args)
        return function == "above" or place in self._truths

    def _product(self, a: Form, b: Form) -> Form:
        if not a[0]:
            return times(b, a[1])
        if not b[0]:
            return times(a, b[1])
        found = ZERO
        for one, factor in _parts(a):
            for other, more in _parts(b):
                if one is None or other is None:
                    place = other if one is None else one
                    term: Form = (((place, 1),), 0) if place is not None else ONE
                else:
                    term = self._function("product", *sorted((plain(one), plain(other))))
                found = plus(found, term, factor * more)
        return found

    def _both(self, a: Form, b: Form) -> Form:
        if not a[0]:
            return b if a[1] else ZERO
        if not b[0]:
            return a if b[1] else ZERO
        if a == b:
            return a
        if a == _not(b):
            return ZERO
        return self._truth("both", *sorted((a, b)))

    def _unlike(self, a: Form, b: Form) -> Form:
        if not a[0]:
            return _not(b) if a[1] else b
        if not b[0]:
            return _not(a) if b[1] else a
        (one, odd), (other, even) = _sided(a), _sided(b)
        if one == other:
            return (), odd ^ even
        found = self._truth("unlike", *sorted((one, other)))
        return _not(found) if odd ^ even else found

    def _select(self, condition: Form, a: Form, b: Form) -> Form:
        if not condition[0]:
            return a if condition[1] else b
        condition, negated = _sided(condition)
        if negated:
            a, b = b, a
        apart = plus(a, b, -1)
        if apart == ZERO:
            return b
        if not apart[0]:
            return plus(b, condition, apart[1])
        return plus(b, self._function("select", condition, apart))


# --- sums -----------------------------------------------------------------------------------------


def plus(one: Form, other: Form, factor: int = 1) -> Form:
    """Return one + factor * other."""
    if not other[0]:
        return one[0], one[1] + factor * other[1]
    terms = dict(one[0])
    for place, many in other[0]:
        terms[place] = terms.get(place, 0) + factor * many
    kept = sorted([term for term in terms.items() if term[1]])
    return tuple(kept), one[1] + factor * other[1]


def times(form: Form, factor: int) -> Form:
    """Return factor * form."""
    if not factor:
        return ZERO
    return tuple([(place, factor * many) for place, many in form[0]]), factor * form[1]


def direction(form: Form) -> Terms:
    """Return what a form that is no number says but for a factor and a number: forms of one
    direction are known together.
    """
    terms = form[0]
    return _scaled(terms, _factor(terms) * (1 if terms[0][1] > 0 else -1))


def _not(form: Form) -> Form:
    return plus(ONE, form, -1)


def _sided(form: Form) -> tuple[Form, int]:
    """Return what is 0 or 1 without a negation, and whether it had one."""
    return (_not(form), 1) if form[1] else (form, 0)


def _parts(form: Form) -> Iterable[tuple[int | None, int]]:
    yield from form[0]
    if form[1]:
        yield None, form[1]


def plain(place: int) -> Form:
    """Return the form that is one atom."""
    return ((place, 1),), 0


def _factor(terms: Terms) -> int:
    return gcd(*[many for _, many in terms])


def _scaled(terms: Terms, by: int) -> Terms:
    return tuple([(place, many // by) for place, many in terms])


def _serial(item: Expr) -> int:
    return item.serial
