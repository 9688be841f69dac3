"""Which number gives a wanted outcome: a search among multiples of the constants at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

LARGE = 1 << 20
"""Numbers from here on are not chosen, nor scales of what is."""
NOWHERE = LARGE * LARGE
"""The outcome of a number that is not to be chosen."""

Look: TypeAlias = Callable[[Sequence[int]], list[int]]
"""Returns the outcomes of numbers: many at a time cost little more than a few."""


def numbers_to_try(wish: int, unit: int, constants: Sequence[int]) -> list[int]:
    """Return the multiples of `unit` that may well give `wish`, first those of the constants."""
    tried = _about(wish, constants)
    return list(dict.fromkeys([number // unit * unit for number in tried if number >= 0]))


def _about(wish: int, constants: Sequence[int]) -> Iterator[int]:
    for size in (1, *constants):
        yield from (wish * size, (wish - 1) * size, (wish + 1) * size, size - 1, size + 1)
    number = constants[-1]
    while (number := 2 * number) < LARGE:  # the least that will do: the run is as long as it says
        yield number


def number_for(
    look: Look, wish: int, unit: int, numbers: Sequence[Sequence[int]], span: int, ragged: bool
) -> int:
    """Return a multiple of `unit` for which the outcome is `wish`: the first one of the `numbers`
    to try, some after the other, or one between; else the nearest of all that were tried. Others
    that give the wish too are at most a `span` away.
    """
    tried: dict[int, int] = {}

    def at(number: int) -> int:
        number = number // unit * unit
        found = tried.get(number)
        if found is None:
            (found,) = look((number,))
            tried[number] = found
        return found

    for some in numbers:
        if (found := _first(look, some, wish, tried)) is not None:
            return _edge(at, found, wish, unit, span, ragged)
    if (found := _between(look, tried, 0, LARGE, wish, unit)) is not None:
        return _edge(at, found, wish, unit, span, ragged)
    # What asks for one bit of a word, the sign or a flag, no size answers; no count of trips does.
    if wish in (0, 1):
        bits = [sign << bit for bit in range(31, -1, -1) for sign in (-1, 1)]
        found = _first(look, [number // unit * unit for number in bits], wish, tried)
        if found is not None:
            return found
    away = [abs(reached - wish) for reached in tried.values()]
    least = min(away)
    return min([number for number, far in zip(tried, away, strict=True) if far == least])


def _first(look: Look, numbers: Sequence[int], wish: int, tried: dict[int, int]) -> int | None:
    """Return the first of some numbers that gives the wish; note what was `tried`."""
    outcomes = look(numbers)
    if wish in outcomes:
        return numbers[outcomes.index(wish)]
    tried.update(zip(numbers, outcomes, strict=True))
    return None


def number_below(look: Look, wish: int, unit: int, number: int) -> int:
    """Return a multiple of `unit` below 0 for which the outcome is `wish`, else `number`: labels
    that say "none" are such.
    """
    found = _between(look, {}, -LARGE, 0, wish, unit)
    return number if found is None else found


def _between(
    look: Look, tried: dict[int, int], low: int, high: int, wish: int, unit: int
) -> int | None:
    """Return a number in a range that gives the wish, where outcomes rise or fall throughout; note
    what was `tried`.
    """

    def at(number: int) -> int:
        number = number // unit * unit
        (tried[number],) = look((number,))
        return tried[number]

    first = at(low)
    if first == NOWHERE:
        first = at(low + unit)
    last = at(high)
    below, rising = first < wish, first <= last
    if below == (last < wish):
        # There is no such number, unless what is between is unlike both ends: mostly all that is
        # tried leads to one end. So it is looked at at once.
        way = [number // unit * unit for number in halves(low, high, unit, below == rising)]
        outcomes = look(way)
        if max(outcomes, default=wish) < wish if below else min(outcomes, default=wish) > wish:
            tried.update(zip(way, outcomes, strict=True))
            return None
    while high - low > unit:
        middle = (low + high) // 2
        reached = at(middle)
        if reached == wish:
            return middle // unit * unit
        if (reached < wish) == rising:
            low = middle
        else:
            high = middle
    return None


def halves(low: int, high: int, unit: int, up: bool) -> Iterator[int]:
    """Yield the middle of a range, then that of the upper or lower half of it, and so on."""
    while high - low > unit:
        middle = (low + high) // 2
        yield middle
        low, high = (middle, high) if up else (low, middle)


def _edge(
    at: Callable[[int], int], number: int, wish: int, unit: int, span: int, ragged: bool
) -> int:
    """Move along the numbers that give the wish: down to the first if `ragged`."""
    if not ragged:
        return number
    low, high = max(-unit, (number - max(span, unit) - unit) // unit * unit), number
    while high - low > unit:
        middle = (low + high) // 2 // unit * unit
        if middle in (low, high):
            break
        if at(middle) == wish:
            high = middle
        else:
            low = middle
    return high


def trip_count(high: int, low: int, by: int) -> int:
    """Return the trips of a loop; more than any for a step that is not positive."""
    return max(0, -(-(high - low) // by)) if by > 0 else 1 << 24


def itself(value: int) -> int:
    """Return a number: the outcome asked of a slot."""
    return value


def truth(value: int) -> int:
    """Return 1 for what holds, else 0."""
    return int(bool(value))
