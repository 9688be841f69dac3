"""Whole numbers with which sums are not negative, or that there are none.

Fourier and Motzkin: what stands in the sums is eliminated, one after the other, by adding those
where its factor is positive to those where it is negative. A sum that is a number below zero then
says that there are no such numbers. What is left of a sum of whole numbers is rounded down.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction
from itertools import count
from math import gcd
from typing import TypeAlias

Row: TypeAlias = dict[int, int]
"""A sum that is not negative: factors by the place of what they multiply, 0 is the place of 1."""
Key: TypeAlias = tuple[tuple[int, int], ...]
"""The factors of a sum in lowest terms."""
Numbers: TypeAlias = defaultdict[int, Fraction | int]
"""Numbers by place."""
Sum: TypeAlias = tuple[Key, int, int]
"""The factors of a sum, its number, and the one factor that it was taken out for, without sign."""
Split: TypeAlias = list[list[tuple[Key, int]]]
"""Cases of which one holds: sums, with their numbers."""

_ROWS = 120  # at a time; nothing is said of more
_CASES = 60  # of one question


def fit(rows: list[Row], splits: list[list[list[Row]]]) -> bool:
    """Tell whether there may be numbers with which sums are not negative, and those of one case of
    each split: of the splits, the one that numbers found for the rest keep to least is looked at
    case by case, then the next.
    """
    known = Rows.of(rows)
    if known is None:
        return False
    return _may(known, [[[*map(parted, case)] for case in split] for split in splits], count(1))


def _may(known: Rows, splits: list[Split], cases: Iterator[int]) -> bool:
    numbers = known.copy().numbers()
    if numbers is None:
        return False
    broken = [each for each in splits if not numbers or not hold(each, numbers)]
    if next(cases) > _CASES or not broken:
        return True
    least = max(broken, key=lambda split: _lacks(split, numbers)) if numbers else broken[0]
    others = [split for split in splits if split is not least]
    for case in least:
        more = known.copy()
        if all(more.keep(*row) for row in case) and _may(more, others, cases):
            return True
    return False


class Rows:
    """Sums in lowest terms, with their numbers: of those that differ in a number alone, the least.
    The factors that a place has are kept by place, positive and negative ones, without their signs;
    and how many of these are larger than 1.
    """

    __slots__ = ("_downs", "_large", "_ups", "all")

    def __init__(self) -> None:
        self.all: dict[Key, int] = {}
        self._ups: dict[int, dict[Key, int]] = {}
        self._downs: dict[int, dict[Key, int]] = {}
        self._large: tuple[dict[int, int], dict[int, int]] = {}, {}

    @staticmethod
    def of(rows: list[Row]) -> Rows | None:
        """Return sums, None where one of them is a number below zero."""
        found = Rows()
        return found if all(found.keep(*parted(row)) for row in rows) else None

    def copy(self) -> Rows:
        """Return the same sums, to be taken out one by one."""
        found = Rows()
        found.all = self.all.copy()
        found._ups = {place: sums.copy() for place, sums in self._ups.items()}
        found._downs = {place: sums.copy() for place, sums in self._downs.items()}
        found._large = self._large[0].copy(), self._large[1].copy()
        return found

    def keep(self, factors: Key, number: int) -> bool:
        """Add a sum. Return False where it is a number below zero."""
        if not factors:
            return number >= 0
        by = gcd(*[factor for _, factor in factors])
        if by > 1:
            factors = tuple([(place, factor // by) for place, factor in factors])
            number //= by
        known = self.all.get(factors)
        if known is not None:
            self.all[factors] = min(known, number)
            return True
        self.all[factors] = number
        for place, factor in factors:
            if place not in self._ups:
                self._ups[place], self._downs[place] = {}, {}
            if factor > 0:
                self._ups[place][factors] = factor
            else:
                self._downs[place][factors] = -factor
            if not -1 <= factor <= 1:
                large = self._large[factor > 0]
                large[place] = large.get(place, 0) + 1
        return True

    def _take(self, place: int) -> tuple[list[Sum], list[Sum]]:
        """Remove the sums that a place is in: where its factor is positive, and where negative."""
        ups, downs, numbers, large = self._ups, self._downs, self.all, self._large
        up = [(key, numbers.pop(key), factor) for key, factor in ups.pop(place).items()]
        down = [(key, numbers.pop(key), factor) for key, factor in downs.pop(place).items()]
        for key, _, _ in (*up, *down):
            for other, factor in key:
                if other != place:
                    del (ups if factor > 0 else downs)[other][key]
                    if not -1 <= factor <= 1:
                        large[factor > 0][other] -= 1
        return up, down

    def _cheapest(self, places: list[int]) -> int:
        """Return the place of what is eliminated next: what adds the fewest sums, of those whose
        factors are 1 on one side at least, if there are any. That loses no whole number: where all
        are larger, a fraction may be between two sums (Pugh, The Omega test, 1991).
        """
        ups, downs, (small, great) = self._ups, self._downs, self._large
        best: tuple[bool, int, int] | None = None
        for place in places:
            up, down = ups[place], downs[place]
            if up and down:
                found = bool(small.get(place) and great.get(place)), len(up) * len(down), place
                if best is None or found < best:
                    best = found
            elif up or down:
                return place  # nothing is less than none, and places are in order
        assert best is not None
        return best[2]

    def numbers(self) -> Numbers | None:
        """Return numbers with which all sums are not negative, by place: none where that takes too
        many sums, None where there are no such numbers. Eliminates what stands in the sums, one
        after the other; then the last of it is given a number first.
        """
        gone: list[tuple[int, list[Sum], list[Sum]]] = []
        places = sorted(self._ups)
        while self.all:
            if len(self.all) > _ROWS:
                return defaultdict(int)
            place = self._cheapest(places)
            places.remove(place)
            up, down = self._take(place)
            for one, number, a in up:
                for other, less, b in down:
                    joint = {at: b * factor for at, factor in one}
                    for at, factor in other:
                        joint[at] = joint.get(at, 0) + a * factor
                    factors = tuple(sorted([term for term in joint.items() if term[1]]))
                    if not self.keep(factors, b * number + a * less):
                        return None
            gone.append((place, up, down))
        return _found(gone)


def parted(row: Row) -> tuple[Key, int]:
    """Return the factors of a sum, in order, and its number."""
    return tuple(sorted([term for term in row.items() if term[0] and term[1]])), row.get(0, 0)


def _found(gone: list[tuple[int, list[Sum], list[Sum]]]) -> Numbers:
    """Return numbers for what was eliminated with the sums that it was in, where its factor is
    positive and where it is negative: of whole ones the nearest to zero.
    """
    found: Numbers = defaultdict(int, {0: 1})
    for place, up, down in reversed(gone):
        found[place] = 0
        ups = [(_sum(key, number, found), factor) for key, number, factor in up]
        downs = [(_sum(key, number, found), factor) for key, number, factor in down]
        low = max([-(rest // factor) for rest, factor in ups], default=None)
        high = min([rest // factor for rest, factor in downs], default=None)
        if low is not None and low > 0:
            found[place] = low
            if high is not None and low > high:
                found[place] = max([_over(-rest, factor) for rest, factor in ups])
        elif high is not None and high < 0:
            found[place] = high
            if low is not None and high < low:
                found[place] = min([_over(rest, factor) for rest, factor in downs])
    return found


def _over(one: Fraction | int, other: int) -> Fraction | int:
    if isinstance(one, int) and one % other == 0:
        return one // other
    return Fraction(one, other)


def _sum(factors: Key, number: int, numbers: Numbers) -> Fraction | int:
    found: Fraction | int = number
    for place, factor in factors:
        found += factor * numbers[place]
    return found


def hold(split: Split, numbers: Numbers) -> bool:
    """Tell whether numbers keep to one of some cases."""
    for case in split:
        for factors, number in case:
            if _sum(factors, number, numbers) < 0:
                break
        else:
            return True
    return False


def _lacks(split: Split, numbers: Numbers) -> Fraction | int:
    """Return by how much numbers do not keep to the cases of a split."""
    return sum(max(0, -_sum(*row, numbers)) for case in split for row in case)
