"""How often something happens, as a function of the launch: in normal form, for all trip counts.

A `Count` is a sum of products of factors with whole coefficients. The factors:

- `Holds`: 1 where x > 0, x = 0, or a condition x holds, else 0
- `Ramp`: the iterations of a loop, max(0, ceil(n / s)), or those of them that an instance makes
- `Over`: a count that differs from iteration to iteration, summed over a loop
- `Until`: the same for a loop that a condition ends
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from tawa.verify.terms import Leaf, Term, Terms
from tawa.verify.values import Span


@dataclass(frozen=True, slots=True)
class Holds:
    """1 where the term is "positive", "zero" or "true", else 0."""

    what: Literal["positive", "zero", "true"]
    x: Term


@dataclass(frozen=True, slots=True)
class Ramp:
    """The iterations of a loop."""

    span: Span
    copy: int = 0
    """How many of the same stand beside it in a product: T * T is no T."""


@dataclass(frozen=True, slots=True)
class Over:
    """The sum over the iterations of a loop, `depth` loops deep, of what each makes."""

    span: Span
    depth: int
    inside: Count
    copy: int = 0


@dataclass(frozen=True, slots=True)
class Until:
    """The sum over the iterations of a loop that goes on while a condition holds."""

    depth: int
    condition: Term
    inside: Count
    copy: int = 0


Factor: TypeAlias = Holds | Ramp | Over | Until
Product: TypeAlias = frozenset[Factor]
Count: TypeAlias = "frozenset[tuple[Product, int]]"

ONE: Product = frozenset()


@dataclass(frozen=True, slots=True)
class Sums:
    """The arithmetic of counts over one table of terms."""

    terms: Terms

    # --- making -----------------------------------------------------------------------------------

    def constant(self, value: int) -> Count:
        """Return a count that is a number."""
        return frozenset({(ONE, value)} if value else ())

    def sum(self, counts: Iterable[tuple[Count, int]]) -> Count:
        """Return the sum of counts, each so many times."""
        total: dict[Product, int] = {}
        for count, times in counts:
            for product, factor in count:
                total[product] = total.get(product, 0) + times * factor
        return kept(total)

    def add(self, a: Count, b: Count, times: int = 1) -> Count:
        """Return a + times * b."""
        return self.sum(((a, 1), (b, times)))

    def mul(self, a: Count, b: Count) -> Count:
        """Return a * b."""
        total: dict[Product, int] = {}
        for one, x in a:
            for other, y in b:
                for product, z in self.join(together(one, other)):
                    total[product] = total.get(product, 0) + x * y * z
        return kept(total)

    def join(self, product: Product) -> Count:
        """Leave out of a product what its other factors imply, and multiply conditions on how
        often a loop iterates with how often it does.
        """
        kept = set(product)
        for factor in product:
            if not isinstance(factor, Holds) or factor.what != "positive":
                continue
            if any(self._implies(other, factor.x) for other in kept if other is not factor):
                kept.discard(factor)
        for factor in kept:
            for ramp in kept:
                if isinstance(factor, Holds) and isinstance(ramp, Ramp):
                    made = self._from_on(factor, ramp)
                    if made is not None:
                        rest: Count = frozenset({(frozenset(kept - {factor, ramp}), 1)})
                        return self.mul(rest, made)
        return frozenset({(frozenset(kept), 1)})

    def _from_on(self, factor: Holds, ramp: Ramp) -> Count | None:
        """Write [T > k] * T as max(0, T - k) + k * [T > k], and [T <= k] * T as what is left."""
        terms, span = self.terms, ramp.span
        if factor.what != "positive" or span.share != 1:
            return None
        for x, more in ((factor.x, True), (terms.sub(terms.one, factor.x), False)):
            k = terms.ratio(terms.sub(span.length, x), span.step)
            if k is None:
                continue
            if k <= 0:
                return once(ramp) if more else frozenset()
            beyond = self.ramp(x, span)
            if more:
                return self.add(beyond, once(factor), k)
            return self.sum(
                ((once(ramp), 1), (beyond, -1), (self.constant(1), -k), (once(factor), k))
            )
        return None

    def _implies(self, factor: Factor, x: Term) -> bool:
        """Tell whether a factor is 0 wherever x <= 0: where it is not, a number y > 0 that is no
        larger than x.
        """
        match factor:
            case Holds("positive", y):
                difference = self.terms.number(self.terms.sub(x, y))
                return difference is not None and difference > 0
            case Ramp(span) | Over(span):
                more = self.terms.sub(x, span.length)
                number = self.terms.number(more)
                if number is not None and number >= 0:
                    return True
                times = self.terms.ratio(more, span.step)
                return times is not None and times >= 0
            case _:
                return False

    def positive(self, x: Term) -> Count:
        """Return 1 where x > 0, else 0."""
        number = self.terms.number(x)
        if number is not None:
            return self.constant(int(number > 0))
        iterations = self._of_iterations(x)
        if iterations is not None:
            length, step, times, more = iterations
            if times > 0 and more > 0:
                return self.constant(1)
            if times > 0:  # times * iterations > -more, so iterations > j
                return self.positive(self.terms.add(length, step, -(-more // times)))
            if more <= 0:
                return frozenset()
            # more > -times * iterations, so not iterations > (more - 1) // -times
            enough = self.positive(self.terms.add(length, step, -((more - 1) // -times)))
            return self.add(self.constant(1), enough, -1)
        if (self.terms.least(x, self.terms.natural) or 0) > 0:
            return self.constant(1)
        if (capped := self.terms.capped(x)) is not None:
            least, most, rest = capped
            if most > 0:
                return self.positive(rest) if least else self.constant(1)
            return frozenset() if least else self.positive(rest)
        return once(Holds("positive", x))

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

    def equal(self, a: Term, b: Term) -> Count:
        """Return 1 where a = b, else 0."""
        x = self.terms.sub(a, b)
        number = self.terms.number(x)
        if number is not None:
            return self.constant(int(number == 0))
        match self._of_iterations(x):
            case (length, step, 1, more):
                if more > 0:
                    return frozenset()
                at = self.positive(self.terms.add(length, step, more + 1))
                after = self.positive(self.terms.add(length, step, more))
                return self.add(at if more else self.constant(1), after, -1)
            case _:
                x = min(x, self.terms.scale(x, -1))
                return once(Holds("zero", x))

    def condition(self, term: Term) -> Count:
        """Return 1 where a condition (i1) holds, else 0."""
        number = self.terms.number(term)
        if number is not None:
            return self.constant(int(number != 0))
        one, terms = self.constant(1), self.terms
        match terms.key(term):
            case ("function", "lt", str(kind), int(a), int(b)) if kind[0] == "i" and kind != "i1":
                return self.positive(terms.sub(b, a))
            case ("function", "gt", str(kind), int(a), int(b)) if kind[0] == "i" and kind != "i1":
                return self.positive(terms.sub(a, b))
            case ("function", "le", str(kind), int(a), int(b)) if kind[0] == "i" and kind != "i1":
                return self.add(one, self.positive(terms.sub(a, b)), -1)
            case ("function", "ge", str(kind), int(a), int(b)) if kind[0] == "i" and kind != "i1":
                return self.add(one, self.positive(terms.sub(b, a)), -1)
            case ("function", "eq", str(kind), int(a), int(b)) if kind[0] in "iu" and kind != "i1":
                return self.equal(a, b)
            case ("function", "ne", str(kind), int(a), int(b)) if kind[0] in "iu" and kind != "i1":
                return self.add(one, self.equal(a, b), -1)
            case ("function", "and", "i1", int(a), int(b)):
                return self.mul(self.condition(a), self.condition(b))
            case ("function", "or", "i1", int(a), int(b)):
                x, y = self.condition(a), self.condition(b)
                return self.sum(((x, 1), (y, 1), (self.mul(x, y), -1)))
            case ("function", "xor", "i1", int(a), int(b)):
                x, y = self.condition(a), self.condition(b)
                return self.sum(((x, 1), (y, 1), (self.mul(x, y), -2)))
            case ("function", "not", "i1", int(a)):
                return self.add(one, self.condition(a), -1)
            case ("function", "select", "i1", int(c), int(a), int(b)):
                return self.choose(self.condition(c), self.condition(a), self.condition(b))
            case _:
                return once(Holds("true", term))

    def choose(self, condition: Count, then: Count, other: Count) -> Count:
        """Return `then` where a condition holds, else `other`."""
        return self.add(other, self.mul(condition, self.add(then, other, -1)))

    # --- loops ------------------------------------------------------------------------------------

    def over(self, span: Span, depth: int, count: Count) -> Count:
        """Return the sum of a count over the iterations of a loop `depth` loops deep."""
        total: dict[Product, int] = {}
        for product, times in count:
            inside = frozenset(f for f in product if self.depends(f, ("iteration", depth)))
            for made, factor in self._summed(span, depth, inside):
                for joined, z in self.join(together(made, product - inside)):
                    total[joined] = total.get(joined, 0) + times * factor * z
        return kept(total)

    def _summed(self, span: Span, depth: int, inside: Product) -> Count:
        terms = self.terms
        if span.share == 1:
            found: Count | None = None
            match list(inside):
                case []:
                    return self.ramp(span.length, span)
                case [Holds("positive", x)]:
                    found = self._guarded(span, depth, x)
                case [Holds("positive", x), Holds("positive", y)]:
                    found = self._between(span, depth, x, y)
                case [Holds("zero", x)]:
                    found = self._at_once(span, depth, x)
                case _:
                    pass
            if found is not None:
                return found
        elif not inside:
            return once(Ramp(span))
        number = terms.number(span.length)
        if number is not None and number <= 0:
            return frozenset()
        return once(Over(span, depth, frozenset({(inside, 1)})))

    def ramp(self, length: Term, span: Span) -> Count:
        """Return max(0, ceil(length / step)): a number where both are numbers."""
        number, step = self.terms.number(length), self.terms.number(span.step)
        if number is not None and (number <= 0 or (step is not None and step > 0)):
            return self.constant(max(0, -(-number // step)) if step else 0)
        capped = self.terms.capped(length)
        if capped is not None and step is not None and step > 0:
            least, most, rest = capped
            if most <= 0:
                return frozenset() if least else self.ramp(rest, span)
            if most % step == 0:
                beyond = self.ramp(self.terms.sub(rest, self.terms.constant(most)), span)
                if least:
                    return self.add(self.ramp(rest, span), beyond, -1)
                return self.add(self.constant(most // step), beyond)
        return once(Ramp(Span(length, span.step)))

    def _between(self, span: Span, depth: int, x: Term, y: Term) -> Count | None:
        """Sum x > 0 and y > 0 over a loop, of which one leaves out first iterations and the other
        last ones."""
        terms, at = self.terms, self.terms.iteration(depth)
        for late, ahead in ((x, y), (y, x)):
            first = terms.number(terms.sub(at, late))
            left = terms.sub(terms.add(ahead, terms.mul(span.step, at)), span.length)
            times = terms.ratio(left, span.step)
            if first is not None and times is not None:
                fewer = min(0, times) - max(0, first + 1)
                return self.ramp(terms.add(span.length, span.step, fewer), span)
        return None

    def _guarded(self, span: Span, depth: int, x: Term) -> Count | None:
        """Sum x > 0 over a loop: x is the end of the loop seen some iterations ahead, or what is
        left of some first iterations."""
        terms, at = self.terms, self.terms.iteration(depth)
        ahead = terms.sub(terms.add(x, terms.mul(span.step, at)), span.length)
        times = terms.ratio(ahead, span.step)
        if times is not None:
            return self.ramp(terms.add(span.length, span.step, min(0, times)), span)
        first = terms.number(terms.sub(at, x))
        if first is not None:  # iteration > first
            return self.ramp(terms.add(span.length, span.step, -max(0, first + 1)), span)
        last = terms.number(terms.add(x, at))
        if last is not None:  # iteration < last
            rest = self.ramp(terms.add(span.length, span.step, -max(0, last)), span)
            return self.add(self.ramp(span.length, span), rest, -1)
        return None

    def _at_once(self, span: Span, depth: int, x: Term) -> Count | None:
        """Sum x = 0 over a loop: one iteration of it."""
        terms, at = self.terms, self.terms.iteration(depth)
        for when in (terms.number(terms.sub(at, x)), terms.number(terms.add(at, x))):
            if when is not None:
                if when < 0:
                    return frozenset()
                one = self.ramp(terms.add(span.length, span.step, -when), span)
                rest = self.ramp(terms.add(span.length, span.step, -when - 1), span)
                return self.add(one, rest, -1)
        return None

    def until(self, depth: int, condition: Term, count: Count) -> Count:
        """Return the sum of a count over the iterations of a loop that a condition ends."""
        total: dict[Product, int] = {}
        for product, times in count:
            inside = frozenset(f for f in product if self.depends(f, ("iteration", depth)))
            factor = Until(depth, condition, frozenset({(inside, 1)}))
            for joined, z in self.join(together(frozenset({factor}), product - inside)):
                total[joined] = total.get(joined, 0) + times * z
        return kept(total)

    def depends(self, factor: Factor, leaf: Leaf) -> bool:
        """Tell whether a factor depends on an iteration around it, or on the block's rank."""
        return leaf in self.support(factor)

    def support(self, factor: Factor) -> frozenset[Leaf]:
        """Return the iterations around a factor, and the block's rank, that it depends on."""
        match factor:
            case Holds(_, x):
                return self.terms.support(x)
            case Ramp(span):
                return self.terms.support_of((span.length, span.step))
            case Over(span, own, count):
                around = self.terms.support_of((span.length, span.step))
            case Until(own, condition, count):
                around = self.terms.support(condition) - {("iteration", own)}
        inside = frozenset(
            leaf for product, _ in count for each in product for leaf in self.support(each)
        )
        return around | (inside - {("iteration", own)})

    def count_depends(self, count: Count, leaf: Leaf) -> bool:
        """Tell whether a count depends on an iteration around it, or on the block's rank."""
        return any(self.depends(factor, leaf) for product, _ in count for factor in product)


def together(one: Product, other: Product) -> Product:
    """Multiply two products: a condition twice is the condition, a number twice is its square."""
    found = set(one)
    for factor in other:
        while not isinstance(factor, Holds) and factor in found:
            factor = replace(factor, copy=factor.copy + 1)
        found.add(factor)
    return frozenset(found)


def once(factor: Factor) -> Count:
    """Return the count that is one factor."""
    return frozenset({(frozenset({factor}), 1)})


def kept(total: Mapping[Product, int]) -> Count:
    """Return the sum of products that are left where factors of 0 are left out."""
    return frozenset(item for item in total.items() if item[1])


__all__ = [
    "ONE",
    "Count",
    "Factor",
    "Holds",
    "Over",
    "Product",
    "Ramp",
    "Sums",
    "Until",
    "once",
    "together",
]
