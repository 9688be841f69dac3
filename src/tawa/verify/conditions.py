"""Conditions as sums of products: what decides whether operations happen, in normal form.

A `Condition` is a sum of products of factors with whole coefficients, of which one is 1 and all
others are 0: 1 where it holds. A factor `Holds` is 1 where x > 0, where x = 0, or where a condition
x of which no more is known holds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tawa.verify.terms import Term, Terms


@dataclass(frozen=True, slots=True)
class Holds:
    """1 where the term is "positive", "zero" or "true", else 0."""

    what: Literal["positive", "zero", "true"]
    x: Term


Product: TypeAlias = frozenset[Holds]
Condition: TypeAlias = frozenset[tuple[Product, int]]

NEVER: Condition = frozenset()
ALWAYS: Condition = frozenset({(frozenset[Holds](), 1)})


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions over one table of terms."""

    terms: Terms

    def sum(self, conditions: Iterable[tuple[Condition, int]]) -> Condition:
        """Return the sum of conditions, each so many times."""
        total: dict[Product, int] = {}
        for condition, times in conditions:
            for product, factor in condition:
                total[product] = total.get(product, 0) + times * factor
        return frozenset(item for item in total.items() if item[1])

    def both(self, a: Condition, b: Condition) -> Condition:
        """Return the product: 1 where both hold."""
        return self.sum((frozenset({(one | other, 1)}), x * y) for one, x in a for other, y in b)

    def negated(self, a: Condition) -> Condition:
        """Return 1 where a condition does not hold."""
        return self.sum(((ALWAYS, 1), (a, -1)))

    def chosen(self, condition: Condition, then: Condition, other: Condition) -> Condition:
        """Return `then` where a condition holds, else `other`."""
        return self.sum(
            ((self.both(condition, then), 1), (other, 1), (self.both(condition, other), -1))
        )

    def positive(self, x: Term) -> Condition:
        """Return 1 where x > 0, else 0."""
        number = self.terms.number(x)
        if number is not None:
            return ALWAYS if number > 0 else NEVER
        iterations = self._of_iterations(x)
        if iterations is not None:
            length, step, times, more = iterations
            if times > 0 and more > 0:
                return ALWAYS
            if times > 0:  # times * iterations > -more, so iterations > j
                return self.positive(self.terms.add(length, step, -(-more // times)))
            if more <= 0:
                return NEVER
            # more > -times * iterations, so not iterations > (more - 1) // -times
            enough = self.positive(self.terms.add(length, step, -((more - 1) // -times)))
            return self.negated(enough)
        if (self.terms.least(x, self.terms.natural) or 0) > 0:
            return ALWAYS
        if (capped := self.terms.capped(x)) is not None:
            least, most, rest = capped
            if most > 0:
                return self.positive(rest) if least else ALWAYS
            return NEVER if least else self.positive(rest)
        return _once("positive", x)

    def _of_iterations(self, x: Term) -> tuple[Term, Term, int, int] | None:
        """Split times * iterations + more: (length and step of the loop, times, more)."""
        offset = self.terms.offset(x)
        rest = self.terms.add(x, self.terms.one, -offset)
        if len(self.terms.atoms(rest)) != 1:
            return None
        times = self.terms.leading(rest)
        match self.terms.key(self.terms.divided(rest, times)):
            case ("iterations", int(length), int(step)):
                return length, step, times, offset
            case _:
                return None

    def equal(self, a: Term, b: Term) -> Condition:
        """Return 1 where a = b, else 0."""
        x = self.terms.sub(a, b)
        number = self.terms.number(x)
        if number is not None:
            return NEVER if number else ALWAYS
        match self._of_iterations(x):
            case (length, step, 1, more):
                if more > 0:
                    return NEVER
                at = self.positive(self.terms.add(length, step, more + 1))
                after = self.positive(self.terms.add(length, step, more))
                return self.sum(((at if more else ALWAYS, 1), (after, -1)))
            case _:
                return _once("zero", min(x, self.terms.scale(x, -1)))

    def of(self, term: Term) -> Condition:
        """Return 1 where a condition (i1) holds, else 0."""
        number = self.terms.number(term)
        if number is not None:
            return ALWAYS if number else NEVER
        terms = self.terms
        match terms.key(term):
            case ("function", ("lt" | "ge") as name, str(kind), int(a), int(b)) if _is_signed(kind):
                less = self.positive(terms.sub(b, a))
                return less if name == "lt" else self.negated(less)
            case ("function", ("gt" | "le") as name, str(kind), int(a), int(b)) if _is_signed(kind):
                more = self.positive(terms.sub(a, b))
                return more if name == "gt" else self.negated(more)
            case ("function", ("eq" | "ne") as name, str(kind), int(a), int(b)) if (
                _is_signed(kind) or kind[0] == "u"
            ):
                same = self.equal(a, b)
                return same if name == "eq" else self.negated(same)
            case ("function", "and", "i1", int(a), int(b)):
                return self.both(self.of(a), self.of(b))
            case ("function", "or", "i1", int(a), int(b)):
                return self.chosen(self.of(a), ALWAYS, self.of(b))
            case ("function", "xor", "i1", int(a), int(b)):
                return self.chosen(self.of(a), self.negated(self.of(b)), self.of(b))
            case ("function", "not", "i1", int(a)):
                return self.negated(self.of(a))
            case ("function", "select", "i1", int(c), int(a), int(b)):
                return self.chosen(self.of(c), self.of(a), self.of(b))
            case _:
                return _once("true", term)

    def text(self, factor: Holds) -> str:
        """Return a factor as a reader sees it."""
        x = self.terms.text(factor.x)
        return x if factor.what == "true" else f"{x} {'>' if factor.what == 'positive' else '='} 0"


def _is_signed(kind: str) -> bool:
    return kind[0] == "i" and kind != "i1"


def _once(what: Literal["positive", "zero", "true"], x: Term) -> Condition:
    return frozenset({(frozenset({Holds(what, x)}), 1)})
