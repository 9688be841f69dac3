"""Whole numbers with which sums are not negative, or that there are none.

Fourier and Motzkin: what stands in the sums is eliminated, one after the other, by adding those
where its factor is positive to those where it is negative. A sum that is a number below zero then
says that there are no such numbers. What is left of a sum of whole numbers is rounded down.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import count
from math import gcd
from typing import TypeAlias

Key: TypeAlias = tuple[tuple[int, int], ...]
"""The factors of a sum, by the place of what they multiply, in order."""
Row: TypeAlias = tuple[Key, int]
"""A sum that is not negative: its factors, and its number."""
Sums: TypeAlias = dict[Key, int]
"""The numbers of sums, by their factors in lowest terms."""
Numbers: TypeAlias = defaultdict[int, Fraction | int]
"""Numbers by place."""
Sides: TypeAlias = tuple[dict[Key, int], dict[Key, int]]
"""Factors of one place, without signs, by the sums that it is in: positive, and negative ones."""
Sum: TypeAlias = tuple[Key, int, int]
"""The factors of a sum, its number, and the one factor that it was taken out for, without sign."""
Cases: TypeAlias = tuple[tuple[Row, ...], ...]
"""Cases of which one holds: the sums of each."""

_ROWS = 120  # at a time; nothing is said of more
_CASES = 60  # of one question


@dataclass(eq=False, slots=True)
class _Seen:
    """What was found beside some splits: sums that `none` do, and that `some` may do; the sums of
    the cases that were chosen last where some may.
    """

    none: list[Sums] = field(default_factory=lambda: [])
    some: list[Sums] = field(default_factory=lambda: [])
    chosen: list[Row] = field(default_factory=lambda: [])


class Fits:
    """Sums and splits that were looked at: much the same is asked of each loop. What no numbers do,
    none do either where sums are smaller or there are more.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[Cases, ...], _Seen] = {}

    def fit(self, known: Rows, splits: tuple[Cases, ...]) -> bool:
        """Tell whether there may be numbers with which sums are not negative, and those of one case
        of each split.
        """
        seen = self._seen.get(splits)
        if seen is None:
            seen = self._seen[splits] = _Seen()
        elif any(_holds_all(known.all, each) for each in seen.none):
            return False
        elif known.all in seen.some or _is_done(known, seen.chosen, splits):
            return True
        chosen = _chosen(known, splits, count(1))
        if chosen is None:
            seen.none.append(known.all)
            return False
        seen.some.append(known.all)
        seen.chosen = chosen
        return True


def _holds_all(sums: Sums, others: Sums) -> bool:
    """Tell whether sums are at most what others are, of these each."""
    for factors, number in others.items():
        if (own := sums.get(factors)) is None or own > number:
            return False
    return True


def _is_done(known: Rows, chosen: Iterable[Row], splits: Iterable[Cases]) -> bool:
    """Tell whether whole numbers are found at once that do all of it, with the sums of some cases:
    then they would be found case by case.
    """
    more = known.copy()
    numbers = more.numbers() if all(more.keep(*row) for row in chosen) else None
    return (
        bool(numbers)
        and all(isinstance(number, int) for number in numbers.values())
        and all(hold(split, numbers) for split in splits)
    )


def _chosen(known: Rows, splits: Sequence[Cases], looked: Iterator[int]) -> list[Row] | None:
    """Return the sums of cases that numbers may do together with what is known, None where none do:
    of the splits, the one that numbers found for the rest keep to least is looked at case by case,
    then the next. After too many cases there may be such numbers, for all that is known.
    """
    numbers = known.copy().numbers()
    if numbers is None:
        return None
    broken = [each for each in splits if not numbers or not hold(each, numbers)]
    if next(looked) > _CASES or not broken:
        return []
    least = max(broken, key=lambda split: _lacks(split, numbers)) if numbers else broken[0]
    others = [split for split in splits if split is not least]
    # The case that numbers found lack least may well be one that holds: so it is the first.
    for case in sorted(least, key=lambda case: _lacks((case,), numbers)) if numbers else least:
        more = known.copy()
        if all(more.keep(*row) for row in case):
            chosen = _chosen(more, others, looked)
            if chosen is not None:
                return [*case, *chosen]
    return None


class Rows:
    """Sums in lowest terms, with their numbers: of those that differ in a number alone, the least.
    The sums that a place is in are kept by place, with the factors that it has there: those where
    it is positive, and those where it is negative, without signs.
    """

    __slots__ = ("_sides", "all")

    def __init__(self) -> None:
        self.all: Sums = {}
        self._sides: dict[int, Sides] = {}

    @staticmethod
    def of(rows: Iterable[Row]) -> Rows | None:
        """Return sums, None where one of them is a number below zero."""
        found = Rows()
        return found if all(found.keep(*row) for row in rows) else None

    def copy(self) -> Rows:
        """Return the same sums, to be taken out one by one."""
        found = Rows()
        found.all = self.all.copy()
        sides = self._sides.items()
        found._sides = {place: (up.copy(), down.copy()) for place, (up, down) in sides}
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
            if number < known:
                self.all[factors] = number
            return True
        self.all[factors] = number
        sides = self._sides
        for place, factor in factors:
            found = sides.get(place)
            if found is None:
                found = sides[place] = {}, {}
            if factor > 0:
                found[0][factors] = factor
            else:
                found[1][factors] = -factor
        return True

    def _take(self, place: int) -> tuple[list[Sum], list[Sum]]:
        """Remove the sums that a place is in: where its factor is positive, and where negative."""
        sides, numbers = self._sides, self.all
        ups, downs = sides.pop(place)
        up = [(key, numbers.pop(key), factor) for key, factor in ups.items()]
        down = [(key, numbers.pop(key), factor) for key, factor in downs.items()]
        for taken in (ups, downs):
            for key in taken:
                for other, factor in key:
                    if other != place:
                        del sides[other][factor < 0][key]
        return up, down

    def _cheapest(self, places: list[int]) -> int:
        """Return the place of what is eliminated next: what adds the fewest sums, of those whose
        factors are 1 on one side at least, if there are any. That loses no whole number: where all
        are larger, a fraction may be between two sums (Pugh, The Omega test, 1991).
        """
        sides = self._sides
        best = exact = None
        fewest = least = 0
        for place in places:
            up, down = sides[place]
            if up and down:
                adds = len(up) * len(down)
                if exact is not None and adds >= least:
                    continue
                if max(up.values()) == 1 or max(down.values()) == 1:
                    exact, least = place, adds
                elif best is None or adds < fewest:
                    best, fewest = place, adds
            elif up or down:
                return place  # nothing is less than none, and places are in order
        found = best if exact is None else exact
        assert found is not None
        return found

    def numbers(self) -> Numbers | None:
        """Return numbers with which all sums are not negative, by place: none where that takes too
        many sums, None where there are no such numbers. Eliminates what stands in the sums, one
        after the other; then the last of it is given a number first.
        """
        gone: list[tuple[int, list[Sum], list[Sum]]] = []
        places = sorted(self._sides)
        while self.all:
            if len(self.all) > _ROWS:
                return defaultdict(int)
            place = self._cheapest(places)
            places.remove(place)
            up, down = self._take(place)
            for one, number, a in up:
                for other, less, b in down:
                    if not self.keep(_joint(one, other, a, b, place), b * number + a * less):
                        return None
            gone.append((place, up, down))
        return _found(gone)


def _joint(one: Key, other: Key, a: int, b: int, place: int) -> Key:
    """Return the factors of `b` times one sum and `a` times another, which a place is not in."""
    if len(one) == 1:  # in lowest terms: the place, once
        return tuple([term for term in other if term[0] != place])
    if len(other) == 1:
        return tuple([term for term in one if term[0] != place])
    joint = dict(one) if b == 1 else {at: b * factor for at, factor in one}
    for at, factor in other:
        joint[at] = joint.get(at, 0) + a * factor
    return tuple(sorted([term for term in joint.items() if term[1]]))


def parted(factors: Iterable[tuple[int, int]]) -> Row:
    """Return a sum by its factors, each place once: 0 is the place of 1."""
    ordered = sorted([term for term in factors if term[1]])
    if ordered and not ordered[0][0]:
        return tuple(ordered[1:]), ordered[0][1]
    return tuple(ordered), 0


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


def hold(split: Cases, numbers: Numbers) -> bool:
    """Tell whether numbers keep to one of some cases."""
    for case in split:
        for factors, number in case:
            if _sum(factors, number, numbers) < 0:
                break
        else:
            return True
    return False


def _lacks(split: Cases, numbers: Numbers) -> Fraction | int:
    """Return by how much numbers do not keep to the cases of a split."""
    return sum(max(0, -_sum(*row, numbers)) for case in split for row in case)
