"""Whole numbers with which sums are not negative, or that there are none.

Fourier and Motzkin: what stands in the sums is eliminated, one after the other, by adding those
where its factor is positive to those where it is negative. A sum that is a number below zero then
says that there are no such numbers. What is left of a sum of whole numbers is rounded down.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import product
from math import ceil, floor, gcd
from typing import TypeAlias

Row: TypeAlias = dict[int, int]
"""A sum that is not negative: factors by the place of what they multiply, 0 is the place of 1."""
Rows: TypeAlias = dict[tuple[tuple[int, int], ...], int]
"""Such sums in lowest terms: the number in each, by its factors."""
Numbers: TypeAlias = dict[int, Fraction | int]
"""Numbers by place."""

_ROWS = 120  # at a time; nothing is said of more


def numbers_of(given: list[Row]) -> Numbers | None:
    """Return numbers with which all sums are not negative, by place: none where that takes too many
    sums, None where there are no such numbers. Eliminates what stands in the sums, one after the
    other; then the last of it is given a number first.
    """
    rows: Rows = {}
    if not all(_keep(rows, row) for row in given):
        return None
    gone: list[tuple[int, list[Row], list[Row]]] = []
    while rows:
        if len(rows) > _ROWS:
            return {}
        place = _cheapest(rows)
        up: list[Row] = []
        down: list[Row] = []
        others: Rows = {}
        for key, number in rows.items():
            row = {0: number, **dict(key)}
            factor = row.get(place, 0)
            if factor:
                (up if factor > 0 else down).append(row)
            else:
                others[key] = number
        rows = others
        for one, other in product(up, down):
            a, b = one[place], -other[place]
            joint = {at: b * factor for at, factor in one.items()}
            for at, factor in other.items():
                joint[at] = joint.get(at, 0) + a * factor
            if not _keep(rows, joint):
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
        low = max((Fraction(-_sum(row, found), row[place]) for row in up), default=None)
        high = min((Fraction(_sum(row, found), -row[place]) for row in down), default=None)
        if low is not None and low > 0:
            found[place] = low if high is not None and ceil(low) > high else ceil(low)
        elif high is not None and high < 0:
            found[place] = high if low is not None and floor(high) < low else floor(high)
    return found


def _sum(row: Row, numbers: Numbers) -> Fraction | int:
    return sum(factor * numbers.get(place, 0) for place, factor in row.items())


def hold(split: list[list[Row]], numbers: Numbers) -> bool:
    """Tell whether numbers keep to one of some cases."""
    return any(all(_sum(row, numbers) >= 0 for row in case) for case in split)


def _keep(rows: Rows, row: Row) -> bool:
    """Add a sum in lowest terms: of those that differ in a number alone, the least. Return False
    where it is a number below zero.
    """
    factors = [(place, factor) for place, factor in sorted(row.items()) if place and factor]
    number = row.get(0, 0)
    if not factors:
        return number >= 0
    by = gcd(*(factor for _, factor in factors))
    key = tuple([(place, factor // by) for place, factor in factors])
    rows[key] = min(rows.get(key, number // by), number // by)
    return True


def _cheapest(rows: Rows) -> int:
    """Return the place of what is eliminated next: what adds the fewest sums, of those whose
    factors are 1 on one side at least, if there are any. That loses no whole number: where all are
    larger, a fraction may be between two sums (Pugh, The Omega test, 1991).
    """
    ups: Counter[int] = Counter()
    downs: Counter[int] = Counter()
    large: tuple[set[int], set[int]] = set(), set()
    for key in rows:
        for place, factor in key:
            (ups if factor > 0 else downs)[place] += 1
            if not -1 <= factor <= 1:
                large[factor > 0].add(place)
    inexact = large[0] & large[1]
    return min(
        {*ups, *downs}, key=lambda place: (place in inexact, ups[place] * downs[place], place)
    )
