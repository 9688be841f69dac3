"""Whole numbers with which sums are not negative, or that there are none.

Fourier and Motzkin: what stands in the sums is eliminated, one after the other, by adding those
where its factor is positive to those where it is negative. A sum that is a number below zero then
says that there are no such numbers. What is left of a sum of whole numbers is rounded down.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from itertools import count, product
from math import ceil, floor, gcd
from typing import TypeAlias

Row: TypeAlias = dict[int, int]
"""A sum that is not negative: factors by the place of what they multiply, 0 is the place of 1."""
Key: TypeAlias = tuple[tuple[int, int], ...]
"""The factors of a sum in lowest terms."""
Numbers: TypeAlias = dict[int, Fraction | int]
"""Numbers by place."""

_ROWS = 120  # at a time; nothing is said of more
_CASES = 60  # of one question


def fit(rows: list[Row], splits: list[list[list[Row]]]) -> bool:
    """Tell whether there may be numbers with which sums are not negative, and those of one case of
    each split: of the splits, the one that numbers found for the rest keep to least is looked at
    case by case, then the next.
    """
    return _may(rows, splits, count(1))


def _may(rows: list[Row], splits: list[list[list[Row]]], cases: Iterator[int]) -> bool:
    numbers = numbers_of(rows)
    if numbers is None:
        return False
    broken = [each for each in splits if not numbers or not hold(each, numbers)]
    if next(cases) > _CASES or not broken:
        return True
    broken = max(broken, key=lambda split: _lacks(split, numbers))
    others = [split for split in splits if split is not broken]
    return any(_may([*rows, *case], others, cases) for case in broken)


class _Rows:
    """Sums that are left, in lowest terms: of those that differ in a number alone, the least. Those
    in which a place has a positive factor, and a negative one, are kept by place; and how many of
    these factors are larger than 1.
    """

    def __init__(self) -> None:
        self.all: dict[Key, Row] = {}
        self._ups: dict[int, dict[Key, Row]] = {}
        self._downs: dict[int, dict[Key, Row]] = {}
        self._large: tuple[Counter[int], Counter[int]] = Counter(), Counter()

    def keep(self, row: Row) -> bool:
        """Add a sum. Return False where it is a number below zero."""
        number = row.get(0, 0)
        factors = sorted([term for term in row.items() if term[0] and term[1]])
        if not factors:
            return number >= 0
        by = gcd(*[factor for _, factor in factors])
        if by > 1:
            factors, number = [(place, factor // by) for place, factor in factors], number // by
        key = tuple(factors)
        found = self.all.get(key)
        if found is not None:
            found[0] = min(found[0], number)
            return True
        row = self.all[key] = {0: number, **dict(factors)}
        for place, factor in factors:
            side = self._ups if factor > 0 else self._downs
            if place in side:
                side[place][key] = row
            else:
                side[place] = {key: row}
            if not -1 <= factor <= 1:
                self._large[factor > 0][place] += 1
        return True

    def take(self, place: int) -> tuple[list[Row], list[Row]]:
        """Remove the sums that a place is in: where its factor is positive, and where negative."""
        sides = [list(side.get(place, {}).items()) for side in (self._ups, self._downs)]
        for key, _ in (*sides[0], *sides[1]):
            del self.all[key]
            for other, factor in key:
                side = self._ups if factor > 0 else self._downs
                del side[other][key]
                if not side[other]:
                    del side[other]
                if not -1 <= factor <= 1:
                    self._large[factor > 0][other] -= 1
        up, down = ([row for _, row in side] for side in sides)
        return up, down

    def cheapest(self) -> int:
        """Return the place of what is eliminated next: what adds the fewest sums, of those whose
        factors are 1 on one side at least, if there are any. That loses no whole number: where all
        are larger, a fraction may be between two sums (Pugh, The Omega test, 1991).
        """
        ups, downs, (small, great) = self._ups, self._downs, self._large
        best: tuple[bool, int, int] | None = None
        for place in ups.keys() | downs.keys():
            adds = len(ups[place]) * len(downs[place]) if place in ups and place in downs else 0
            found = (bool(small[place] and great[place]), adds, place)
            if best is None or found < best:
                best = found
        assert best is not None
        return best[2]


def numbers_of(given: list[Row]) -> Numbers | None:
    """Return numbers with which all sums are not negative, by place: none where that takes too many
    sums, None where there are no such numbers. Eliminates what stands in the sums, one after the
    other; then the last of it is given a number first.
    """
    rows = _Rows()
    if not all(map(rows.keep, given)):
        return None
    gone: list[tuple[int, list[Row], list[Row]]] = []
    while rows.all:
        if len(rows.all) > _ROWS:
            return {}
        place = rows.cheapest()
        up, down = rows.take(place)
        for one, other in product(up, down):
            a, b = one[place], -other[place]
            joint = {at: b * factor for at, factor in one.items()}
            for at, factor in other.items():
                joint[at] = joint.get(at, 0) + a * factor
            if not rows.keep(joint):
                return None
        gone.append((place, up, down))
    return _found(gone)


def _found(gone: list[tuple[int, list[Row], list[Row]]]) -> Numbers:
    """Return numbers for what was eliminated with the sums that it was in, where its factor is
    positive and where it is negative.
    """
    found: Numbers = {0: 1}
    for place, up, down in reversed(gone):
        found[place] = 0
        low = max((_over(-_sum(row, found), row[place]) for row in up), default=None)
        high = min((_over(_sum(row, found), -row[place]) for row in down), default=None)
        if low is not None and low > 0:
            found[place] = low if high is not None and ceil(low) > high else ceil(low)
        elif high is not None and high < 0:
            found[place] = high if low is not None and floor(high) < low else floor(high)
    return found


def _over(one: Fraction | int, other: int) -> Fraction | int:
    if isinstance(one, int) and one % other == 0:
        return one // other
    return Fraction(one, other)


def _sum(row: Row, numbers: Numbers) -> Fraction | int:
    return sum(factor * numbers.get(place, 0) for place, factor in row.items())


def hold(split: list[list[Row]], numbers: Numbers) -> bool:
    """Tell whether numbers keep to one of some cases."""
    return any(all(_sum(row, numbers) >= 0 for row in case) for case in split)


def _lacks(split: list[list[Row]], numbers: Numbers) -> Fraction | int:
    """Return by how much numbers do not keep to the cases of a split."""
    return sum(max(0, -_sum(row, numbers)) for case in split for row in case)
