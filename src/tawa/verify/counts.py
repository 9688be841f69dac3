"""How often something happens, as a function of the launch: in normal form, for all trip counts.

A `Count` is a sum of products of factors with whole coefficients. The factors:

- `Holds`: 1 where x > 0, x = 0, or a condition x holds, else 0
- `Ramp`: the iterations of a loop, max(0, ceil(n / s)), or those of them that an instance makes
- `Over`: a count that differs from iteration to iteration, summed over a loop
- `Until`: the same for a loop that a condition ends

For one loop the functions T -> max(0, T - k), k any whole number, are linearly independent, so
`is_zero` decides what is made of them and of conditions on T: a loop whose first iterations are
peeled off and whose last are guarded happens as often as the loop that was written, and no number
in it is too large to be seen. Products of conditions on different things are compared as they are:
what differs there may be equal, and is not said to be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, TypeAlias

from tawa.verify.terms import Term, Terms
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


@dataclass(frozen=True, slots=True)
class Over:
    """The sum over the iterations of a loop, `depth` loops deep, of what each makes."""

    span: Span
    depth: int
    inside: Count


@dataclass(frozen=True, slots=True)
class Until:
    """The sum over the iterations of a loop that goes on while a condition holds."""

    depth: int
    condition: Term
    inside: Count


Factor: TypeAlias = Holds | Ramp | Over | Until
Product: TypeAlias = frozenset[Factor]
Count: TypeAlias = "frozenset[tuple[Product, int]]"

Rises: TypeAlias = dict[int, tuple[Product, int]]

_ONE: Product = frozenset()


@dataclass(frozen=True, slots=True)
class Counts:
    """The arithmetic of counts over one table of terms."""

    terms: Terms

    # --- making -----------------------------------------------------------------------------------

    def constant(self, value: int) -> Count:
        """Return a count that is a number."""
        return frozenset({(_ONE, value)} if value else ())

    def sum(self, counts: Iterable[tuple[Count, int]]) -> Count:
        """Return the sum of counts, each so many times."""
        total: dict[Product, int] = {}
        for count, times in counts:
            for product, factor in count:
                total[product] = total.get(product, 0) + times * factor
        return _made(total)

    def add(self, a: Count, b: Count, times: int = 1) -> Count:
        """Return a + times * b."""
        return self.sum(((a, 1), (b, times)))

    def mul(self, a: Count, b: Count) -> Count:
        """Return a * b."""
        total: dict[Product, int] = {}
        for one, x in a:
            for other, y in b:
                for product, z in self._join(one | other):
                    total[product] = total.get(product, 0) + x * y * z
        return _made(total)

    def _join(self, product: Product) -> Count:
        """Leave out of a product what its other factors imply."""
        kept = set(product)
        for factor in product:
            if not isinstance(factor, Holds) or factor.what != "positive":
                continue
            if any(self._implies(other, factor.x) for other in kept if other is not factor):
                kept.discard(factor)
        return frozenset({(frozenset(kept), 1)})

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
        trips = self._of_trips(x)
        if trips is not None:
            length, step, times, more = trips
            if times > 0 and more > 0:
                return self.constant(1)
            if times > 0:  # times * trips > -more, so trips > j
                return self.positive(self.terms.add(length, step, -(-more // times)))
            if more <= 0:
                return frozenset()
            # more > -times * trips, so not trips > (more - 1) // -times
            enough = self.positive(self.terms.add(length, step, -((more - 1) // -times)))
            return self.add(self.constant(1), enough, -1)
        return _once(Holds("positive", x))

    def _of_trips(self, x: Term) -> tuple[Term, Term, int, int] | None:
        """Split times * trips + more: (length and step of the loop, times, more)."""
        offset = self.terms.offset(x)
        rest = self.terms.add(x, self.terms.one, -offset)
        if len(self.terms.atoms(rest)) != 1:
            return None
        times = self.terms.leading(rest)
        match self.terms.key(self.terms.divided(rest, times)):
            case ("trips", int(length), int(step)):
                return length, step, times, offset
            case _:
                return None

    def equal(self, a: Term, b: Term) -> Count:
        """Return 1 where a = b, else 0."""
        x = self.terms.sub(a, b)
        number = self.terms.number(x)
        if number is not None:
            return self.constant(int(number == 0))
        match self._of_trips(x):
            case (length, step, 1, more):
                if more > 0:
                    return frozenset()
                at = self.positive(self.terms.add(length, step, more + 1))
                after = self.positive(self.terms.add(length, step, more))
                return self.add(at if more else self.constant(1), after, -1)
            case _:
                x = min(x, self.terms.scale(x, -1))
                return _once(Holds("zero", x))

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
                return _once(Holds("true", term))

    def choose(self, condition: Count, then: Count, other: Count) -> Count:
        """Return `then` where a condition holds, else `other`."""
        return self.add(other, self.mul(condition, self.add(then, other, -1)))

    # --- loops ------------------------------------------------------------------------------------

    def over(self, span: Span, depth: int, count: Count) -> Count:
        """Return the sum of a count over the iterations of a loop `depth` loops deep."""
        total: dict[Product, int] = {}
        for product, times in count:
            inside = frozenset(f for f in product if self._depends(f, depth))
            for made, factor in self._summed(span, depth, inside):
                for joined, z in self._join(made | (product - inside)):
                    total[joined] = total.get(joined, 0) + times * factor * z
        return _made(total)

    def _summed(self, span: Span, depth: int, inside: Product) -> Count:
        terms = self.terms
        if span.share == 1:
            found: Count | None = None
            match list(inside):
                case []:
                    return self.ramp(span.length, span)
                case [Holds("positive", x)]:
                    found = self._guarded(span, depth, x)
                case [Holds("zero", x)]:
                    found = self._at_once(span, depth, x)
                case _:
                    pass
            if found is not None:
                return found
        elif not inside:
            return _once(Ramp(span))
        number = terms.number(span.length)
        if number is not None and number <= 0:
            return frozenset()
        return _once(Over(span, depth, frozenset({(inside, 1)})))

    def ramp(self, length: Term, span: Span) -> Count:
        """Return max(0, ceil(length / step)): a number where both are numbers."""
        number, step = self.terms.number(length), self.terms.number(span.step)
        if number is not None and (number <= 0 or (step is not None and step > 0)):
            return self.constant(max(0, -(-number // step)) if step else 0)
        return _once(Ramp(Span(length, span.step)))

    def _at(self, depth: int) -> Term:
        return self.terms.atom(("iteration", depth), frozenset({("iteration", depth)}))

    def _guarded(self, span: Span, depth: int, x: Term) -> Count | None:
        """Sum x > 0 over a loop: x is the end of the loop seen some iterations ahead, or what is
        left of some first iterations."""
        terms, at = self.terms, self._at(depth)
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
        terms, at = self.terms, self._at(depth)
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
            inside = frozenset(f for f in product if self._depends(f, depth))
            factor = Until(depth, condition, frozenset({(inside, 1)}))
            for joined, z in self._join(frozenset({factor}) | (product - inside)):
                total[joined] = total.get(joined, 0) + times * z
        return _made(total)

    def _depends(self, factor: Factor, depth: int) -> bool:
        leaf = ("iteration", depth)
        match factor:
            case Holds(_, x):
                return leaf in self.terms.support(x)
            case Ramp(span):
                return leaf in self.terms.support_of((span.length, span.step))
            case Over(span, own, count):
                around = self.terms.support_of((span.length, span.step))
                return leaf in around or (own != depth and self._count_depends(count, depth))
            case Until(own, condition, count):
                if own == depth:
                    return False
                return leaf in self.terms.support(condition) or self._count_depends(count, depth)

    def _count_depends(self, count: Count, depth: int) -> bool:
        return any(self._depends(factor, depth) for product, _ in count for factor in product)

    # --- comparing --------------------------------------------------------------------------------

    def is_zero(self, count: Count) -> bool:
        """Tell whether a count is shown to be 0 for every launch."""
        left: dict[Product, int] = dict(count)
        left = self._one_sense(left)
        while True:
            self._drop_sums(left)
            for rest, span in self._ramps(left):
                rises = self._family(left, rest, span)
                if len(rises) > 1 and not sum(times for _, times in rises.values()):
                    break
            else:
                break
            if not self._spread(left, rest, span, rises):
                return False
            left = self._one_sense(left)
        return not any(left.values())

    def same(self, a: Count, b: Count) -> bool:
        """Tell whether two counts are shown to be the same for every launch."""
        return a == b or self.is_zero(self.add(a, b, -1))

    def _one_sense(self, count: Mapping[Product, int]) -> dict[Product, int]:
        """Write x > 0 or 1 - (1 - x > 0), whichever of the two is the first one made; then leave
        out what is implied, and add up what an iteration of each instance makes."""
        total: dict[Product, int] = {}
        for product, times in count.items():
            made: Count = frozenset({(_ONE, times)})
            for factor in product:
                made = self.mul(made, self._turned(factor))
            for each, number in made:
                total[each] = total.get(each, 0) + number
        return self._gathered({product: n for product, n in total.items() if n})

    def _turned(self, factor: Factor) -> Count:
        if isinstance(factor, Holds) and factor.what == "positive":
            other = self.terms.sub(self.terms.one, factor.x)
            if other < factor.x:
                return self.add(self.constant(1), _once(Holds("positive", other)), -1)
        return _once(factor)

    def _gathered(self, count: dict[Product, int]) -> dict[Product, int]:
        """Make one of the parts that instances have, where each of them has its part."""
        for product in list(count):
            for factor in product:
                if not isinstance(factor, Ramp | Over) or factor.span.share == 1:
                    continue
                share, rest = factor.span.share, product - {factor}
                parts = [
                    rest | {replace(factor, span=replace(factor.span, part=part))}
                    for part in range(share)
                ]
                numbers = {count.get(each, 0) for each in parts}
                if len(numbers) == 1 and 0 not in numbers:
                    (number,) = numbers
                    for each in parts:
                        del count[each]
                    whole = replace(factor, span=replace(factor.span, share=1, part=0))
                    count[rest | {whole}] = count.get(rest | {whole}, 0) + number
                    return self._gathered(count)
        return count

    def _drop_sums(self, count: dict[Product, int]) -> None:
        """Leave out sums over one loop whose insides are 0 together, iteration for iteration."""
        groups: dict[tuple[Product, Over | Until], list[tuple[Product, Count, int]]] = {}
        none: Count = frozenset()
        for product, times in count.items():
            for factor in product:
                if isinstance(factor, Over | Until):
                    at = product - {factor}, replace(factor, inside=none)
                    groups.setdefault(at, []).append((product, factor.inside, times))
        for items in groups.values():
            if not all(product in count for product, _, _ in items):
                continue
            if self.is_zero(self.sum((inside, times) for _, inside, times in items)):
                for product, _, _ in items:
                    del count[product]

    def _ramps(self, count: Mapping[Product, int]) -> Iterator[tuple[Product, Span]]:
        for product in count:
            for factor in product:
                if isinstance(factor, Ramp) and factor.span.share == 1:
                    yield product - {factor}, factor.span

    def _family(
        self, count: Mapping[Product, int], rest: Product, span: Span
    ) -> dict[int, tuple[Product, int]]:
        """Return the products of `rest` and ramps of one loop, by how many iterations later than
        `span` they begin, with what each stands for.
        """
        rises: dict[int, tuple[Product, int]] = {}
        for product, times in count.items():
            extra = product - rest
            if not rest <= product or len(extra) != 1:
                continue
            (factor,) = extra
            if not isinstance(factor, Ramp) or factor.span.share != 1:
                continue
            if factor.span.step != span.step:
                continue
            later = self.terms.ratio(self.terms.sub(span.length, factor.span.length), span.step)
            if later is not None:
                rises[later] = product, times
        return rises

    def _spread(self, count: dict[Product, int], rest: Product, span: Span, rises: Rises) -> bool:
        """Write max(0, T - j) - max(0, T - k) as the sum of T > i for j <= i < k.

        There are as many of these as conditions left to cancel them, or the count is not 0.
        """
        places, height, runs = sorted(rises), 0, list[tuple[int, int, int]]()
        for place, following in pairwise(places):
            height += rises[place][1]
            if height:
                runs.append((place, following, height))
        conditions = sum(isinstance(factor, Holds) for product in count for factor in product)
        if sum(stop - start for start, stop, _ in runs) > conditions:
            return False
        for product, _ in rises.values():
            del count[product]
        for start, stop, high in runs:
            for place in range(start, stop):
                x = self.terms.add(span.length, span.step, -place)
                for product, times in self.mul(frozenset({(rest, 1)}), self.positive(x)):
                    count[product] = count.get(product, 0) + high * times
        return True

    # --- telling ----------------------------------------------------------------------------------

    def text(self, count: Count) -> str:
        """Return a count as a reader sees it."""
        parts: list[str] = []
        for product, times in sorted(count, key=lambda item: sorted(map(str, item[0]))):
            names = [self._factor_text(factor) for factor in sorted(product, key=str)]
            size = [] if abs(times) == 1 and names else [str(abs(times))]
            parts.append(("- " if times < 0 else "+ ") + " * ".join(size + names))
        return " ".join(parts).removeprefix("+ ") or "0"

    def _factor_text(self, factor: Factor) -> str:
        match factor:
            case Holds("true", x):
                return f"[{self.terms.text(x)}]"
            case Holds(what, x):
                return f"[{self.terms.text(x)} {'>' if what == 'positive' else '='} 0]"
            case Ramp(span):
                return self._span_text(span)
            case Over(span, _, count):
                return f"sum over {self._span_text(span)} of ({self.text(count)})"
            case Until(_, condition, count):
                return f"sum while {self.terms.text(condition)} of ({self.text(count)})"

    def _span_text(self, span: Span) -> str:
        own = f", each {span.share}. from {span.part}" if span.share > 1 else ""
        length, step = self.terms.text(span.length), self.terms.text(span.step)
        return f"iterations({length}, step {step}{own})"


def _once(factor: Factor) -> Count:
    return frozenset({(frozenset({factor}), 1)})


def _made(total: Mapping[Product, int]) -> Count:
    return frozenset(item for item in total.items() if item[1])


__all__ = ["Count", "Counts", "Factor", "Holds", "Over", "Product", "Ramp", "Until"]
