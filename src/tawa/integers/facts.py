"""What is known of an expression from what is known of its symbols: ranges."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tawa.integers.expressions import Apply, Atom, Expr, Quotient, Symbol, remainders


@dataclass(frozen=True, slots=True)
class Range:
    """The least and the greatest number, both included; None where there is no bound."""

    low: int | None = None
    high: int | None = None

    @property
    def is_natural(self) -> bool:
        """Whether no number is negative."""
        return self.low is not None and self.low >= 0

    def holds(self, other: Range) -> bool:
        """Tell whether every number of another range lies in this one."""
        low = self.low is None or (other.low is not None and self.low <= other.low)
        return low and (self.high is None or (other.high is not None and other.high <= self.high))

    def meet(self, other: Range) -> Range:
        """Return the numbers of both."""
        return Range(_best(max, (self.low, other.low)), _best(min, (self.high, other.high)))

    def __add__(self, other: Range) -> Range:
        return Range(_plus(self.low, other.low), _plus(self.high, other.high))

    def scaled(self, number: int) -> Range:
        """Return the range of `number` times what is in this one."""
        if number == 0:
            return Range(0, 0)
        low, high = (None if end is None else end * number for end in (self.low, self.high))
        return Range(low, high) if number > 0 else Range(high, low)

    def __mul__(self, other: Range) -> Range:
        ends = (self.low, self.high, other.low, other.high)
        if None not in ends:
            a, b, c, d = (end for end in ends if end is not None)
            corners = (a * c, a * d, b * c, b * d)
            return Range(min(corners), max(corners))
        if self.low == self.high and self.low is not None:
            return other.scaled(self.low)
        if other.low == other.high and other.low is not None:
            return self.scaled(other.low)
        if self.low is not None and other.low is not None and min(self.low, other.low) >= 0:
            return Range(self.low * other.low, None)
        return Range()


EVERYTHING = Range()
NATURAL = Range(0, None)
Bounds = Mapping[Symbol, Range]


def _plus(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def _best(choose: Callable[[list[int]], int], ends: Iterable[int | None]) -> int | None:
    known = [end for end in ends if end is not None]
    return choose(known) if known else None


def range_of(expr: Expr, bounds: Bounds, default: Range = EVERYTHING) -> Range:
    """Return a range that has every value of `expr`; symbols without bounds are in `default`."""
    found = Range(expr.offset, expr.offset)
    for monomial, coefficient in expr.terms.items():
        if monomial:
            product = Range(coefficient, coefficient)
            for atom in monomial:
                product = product * _of_atom(atom, bounds, default)
            found = found + product
    for _, count, by, rest in remainders(expr):
        inner = Range(0, by - 1).scaled(count)
        found = found.meet(inner + range_of(rest, bounds, default))
    return found


def _of_atom(atom: Atom, bounds: Bounds, default: Range) -> Range:
    match atom:
        case Symbol():
            return bounds.get(atom, default)
        case Quotient():
            over = range_of(atom.dividend, bounds, default)
            by = range_of(atom.divisor, bounds, default)
            if by.low is not None and by.low == by.high and by.low > 0:
                low, high = (
                    None if end is None else end // by.low for end in (over.low, over.high)
                )
                return Range(low, high)
            if over.is_natural and by.is_natural:
                return Range(0, over.high)
            return EVERYTHING
        case Apply():
            inputs = [range_of(item, bounds, default) for item in atom.inputs]
            lows, highs = [item.low for item in inputs], [item.high for item in inputs]
            match atom.function:
                case "min":
                    low = None if None in lows else _best(min, lows)
                    return Range(low, _best(min, highs))
                case "max":
                    high = None if None in highs else _best(max, highs)
                    return Range(_best(max, lows), high)
                case "broadcast":
                    # It is one of its inputs.
                    low = None if None in lows else _best(min, lows)
                    return Range(low, None if None in highs else _best(max, highs))
                case _:
                    return EVERYTHING
