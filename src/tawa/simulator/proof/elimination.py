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
Sums: TypeAlias = dict[int, int]
"""The numbers of sums, by where their factors stand in a table."""
Numbers: TypeAlias = defaultdict[int, Fraction | int]
"""Numbers by place."""
Sides: TypeAlias = tuple[dict[int, int], dict[int, int]]
"""Factors of one place, without signs, by the sums that it is in: positive, and negative ones."""
Taken: TypeAlias = list[tuple[int, int, int]]
"""Sums that were taken out for a place, with their numbers and the factor of it, without sign."""
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
    """Sums and splits that were looked at, and what was found: much the same is asked of each loop.
    What no numbers do, none do either where sums are smaller or there are more. What numbers do of
    which cases, others may well do of the same ones where sums are a little smaller.
    """

    def __init__(self) -> None:
        self.table = Table()  # of all rows: these are known by it
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
    # The case that numbers found lack least is the likeliest to hold. The order of cases changes
    # nothing of what is told: where one holds, or there are too many, there may be such numbers.
    for case in sorted(least, key=lambda case: _lacks((case,), numbers)) if numbers else least:
        more = known.copy()
        if all(more.keep(*row) for row in case):
            chosen = _chosen(more, others, looked)
            if chosen is not None:
                return [*case, *chosen]
    return None


class Table:
    """The factors of sums in lowest terms, each once: sums are known by where these stand, and what
    two of them give where a place is eliminated is worked out once.
    """

    __slots__ = ("_found", "_joints", "keys", "parts")

    def __init__(self) -> None:
        self.keys: list[Key] = []
        self.parts: list[list[tuple[int, int, int]]] = []  # place, side of it, factor without sign
        self._found: dict[Key, tuple[int, int]] = {}
        self._joints: dict[tuple[int, int, int], tuple[int, int, int, int]] = {}

    def find(self, factors: Key) -> tuple[int, int]:
        """Return where factors stand in lowest terms, and what they are divided by for that: -1 and
        1 where there are none.
        """
        found = self._found.get(factors)
        if found is None:
            found = self._found[factors] = self._place_of(factors)
        return found

    def _place_of(self, factors: Key) -> tuple[int, int]:
        if not factors:
            return -1, 1
        by = gcd(*[factor for _, factor in factors])
        if by > 1:
            return self.find(tuple([(place, factor // by) for place, factor in factors]))[0], by
        self.keys.append(factors)
        self.parts.append([(place, int(factor < 0), abs(factor)) for place, factor in factors])
        return len(self.keys) - 1, 1

    def joint(self, one: int, other: int, place: int) -> tuple[int, int, int, int]:
        """Return what is left of two sums, so often each that a place is gone whose factor in one
        is positive and in the other negative: where its factors stand, what it is divided by, and
        how often.
        """
        found = self._joints.get((one, other, place))
        if found is None:
            up, down = dict(self.keys[one]), dict(self.keys[other])
            often, less = -down[place], up[place]
            joint = {at: often * factor for at, factor in up.items()}
            for at, factor in down.items():
                joint[at] = joint.get(at, 0) + less * factor
            factors = tuple(sorted([term for term in joint.items() if term[1]]))
            found = self._joints[one, other, place] = (*self.find(factors), often, less)
        return found


class Rows:
    """Sums in lowest terms, with their numbers: of those that differ in a number alone, the least.
    The sums that a place is in are kept by place, with the factors that it has there: those where
    it is positive, and those where it is negative, without signs.
    """

    __slots__ = ("_sides", "_table", "all")

    def __init__(self, table: Table) -> None:
        self.all: Sums = {}
        self._table = table
        self._sides: dict[int, Sides] = {}

    @staticmethod
    def of(rows: Iterable[Row]) -> Rows | None:
        """Return sums, None where one of them is a number below zero."""
        found = Rows(Table())
        return found if all(found.keep(*row) for row in rows) else None

    def copy(self) -> Rows:
        """Return the same sums, to be taken out one by one."""
        found = Rows(self._table)
        found.all = self.all.copy()
        sides = self._sides.items()
        found._sides = {place: (up.copy(), down.copy()) for place, (up, down) in sides}
        return found

    def keep(self, factors: Key, number: int) -> bool:
        """Add a sum. Return False where it is a number below zero."""
        found, by = self._table.find(factors)
        return self._add(found, number // by)

    def _add(self, item: int, number: int) -> bool:
        if item < 0:
            return number >= 0
        known = self.all.get(item)
        if known is None:
            sides = self._sides
            for place, side, factor in self._table.parts[item]:
                found = sides.get(place)
                if found is None:
                    found = sides[place] = {}, {}
                found[side][item] = factor
            self.all[item] = number
        elif number < known:
            self.all[item] = number
        return True

    def _take(self, place: int) -> tuple[Taken, Taken]:
        """Remove the sums that a place is in: where its factor is positive, and where negative."""
        sides, numbers, parts = self._sides, self.all, self._table.parts
        ups, downs = sides.pop(place)
        for taken in (ups, downs):
            for item in taken:
                for other, side, _ in parts[item]:
                    if other != place:
                        del sides[other][side][item]
        up = [(item, numbers.pop(item), factor) for item, factor in ups.items()]
        down = [(item, numbers.pop(item), factor) for item, factor in downs.items()]
        return up, down

    def _cheapest(self) -> int:
        """Return the place of what is eliminated next: what adds the fewest sums, of those whose
        factors are 1 on one side at least, if there are any. That loses no whole number: where all
        are larger, a fraction may be between two sums (Pugh, The Omega test, 1991).
        """
        best = exact = None
        fewest = least = 0
        for place, (up, down) in self._sides.items():
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
        gone: list[tuple[int, Taken, Taken]] = []
        joint = self._table.joint
        self._sides = dict(sorted(self._sides.items()))  # no place is added from here on
        while self.all:
            if len(self.all) > _ROWS:
                return defaultdict(int)
            place = self._cheapest()
            up, down = self._take(place)
            for one, number, _ in up:
                for other, more, _ in down:
                    found, by, often, less = joint(one, other, place)
                    if not self._add(found, (often * number + less * more) // by):
                        return None
            gone.append((place, up, down))
        return _found(gone, self._table.keys)


def parted(factors: Iterable[tuple[int, int]]) -> Row:
    """Return a sum by its factors, each place once: 0 is the place of 1."""
    ordered = sorted([term for term in factors if term[1]])
    if ordered and not ordered[0][0]:
        return tuple(ordered[1:]), ordered[0][1]
    return tuple(ordered), 0


def _found(gone: list[tuple[int, Taken, Taken]], keys: list[Key]) -> Numbers:
    """Return numbers for what was eliminated with the sums that it was in, where its factor is
    positive and where it is negative: of whole ones the nearest to zero.
    """
    found: Numbers = defaultdict(int, {0: 1})
    for place, up, down in reversed(gone):
        found[place] = 0
        ups = [(_sum(keys[item], number, found), factor) for item, number, factor in up]
        downs = [(_sum(keys[item], number, found), factor) for item, number, factor in down]
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
