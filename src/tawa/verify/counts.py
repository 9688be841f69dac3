"""Whether two counts are the same for every launch.

For one loop the functions T -> max(0, T - k), k any whole number, are linearly independent, so
`is_zero` decides what is made of them and of conditions on T: a loop whose first iterations are
peeled off and whose last are guarded happens as often as the loop that was written, and no number
in it is too large to be seen. Products of conditions on different things are compared as they are:
what differs there may be equal, and is not said to be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeAlias

from tawa.verify.sums import (
    ONE,
    Count,
    Factor,
    Holds,
    Over,
    Product,
    Ramp,
    Sums,
    Until,
    once,
    together,
)
from tawa.verify.values import Span

Rises: TypeAlias = dict[int, tuple[Product, int]]


@dataclass(frozen=True, slots=True)
class Counts(Sums):
    """Sums that can be compared and told."""

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
            made: Count = frozenset({(ONE, times)})
            for factor in product:
                made = self.mul(made, self._turned(factor))
            for each, number in made:
                total[each] = total.get(each, 0) + number
        return self._gathered({product: n for product, n in total.items() if n})

    def _turned(self, factor: Factor) -> Count:
        if isinstance(factor, Holds) and factor.what == "positive":
            other = self.terms.sub(self.terms.one, factor.x)
            if other < factor.x:
                return self.add(self.constant(1), once(Holds("positive", other)), -1)
        return once(factor)

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
                    made = together(rest, frozenset({whole}))
                    count[made] = count.get(made, 0) + number
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

        There are as many of these as conditions left to cancel them, or the count is not 0; some
        may always hold, and cancel a number: the first ones, as T > i is less with each i.
        """
        places, height, runs = sorted(rises), 0, list[tuple[int, int, int]]()
        for place, following in pairwise(places):
            height += rises[place][1]
            if height:
                runs.append((place, following, height))

        def beyond(place: int) -> Count:
            return self.positive(self.terms.add(span.length, span.step, -place))

        left = sum(isinstance(factor, Holds) for product in count for factor in product)
        if sum(stop - start for start, stop, _ in runs) > left + abs(count.get(rest, 0)):
            return False
        for start, stop, _ in runs:
            for place in range(stop - 1, start - 1, -1):
                if beyond(place) == self.constant(1):
                    break
                left -= 1
                if left < 0:
                    return False
        for product, _ in rises.values():
            del count[product]
        for start, stop, high in runs:
            for place in range(start, stop):
                for product, times in self.mul(frozenset({(rest, 1)}), beyond(place)):
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


__all__ = ["Count", "Counts"]
