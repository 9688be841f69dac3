"""Which number gives a wanted outcome: a search among multiples of the constants at hand."""

from __future__ import annotations

from collections.abc import Callable

LARGE = 1 << 20
"""Numbers from here on are not chosen, nor scales of what is."""
NOWHERE = LARGE * LARGE
"""The outcome of a number that is not to be chosen."""


def number_for(
    probe: Callable[[int], int], wish: int, unit: int, constants: list[int], ragged: bool
) -> int:
    """Return a multiple of `unit` for which probe gives `wish`, else the nearest one tried."""
    tried: dict[int, int] = {}

    def at(number: int) -> int:
        number = number // unit * unit
        found = tried.get(number)
        if found is None:
            found = tried[number] = probe(number)
        return found

    sizes = [1, *constants]
    for size in sizes:
        for number in (wish * size, (wish - 1) * size, (wish + 1) * size, size - 1, size + 1):
            if number >= 0 and at(number) == wish:
                return _edge(at, number // unit * unit, wish, unit, constants[-1], ragged)
    number = constants[-1]
    while (number := 2 * number) < LARGE:  # the least that will do: the run is as long as it says
        if at(number) == wish:
            return _edge(at, number // unit * unit, wish, unit, constants[-1], ragged)
    if (found := _between(at, 0, LARGE, wish, unit)) is not None:
        return _edge(at, found, wish, unit, constants[-1], ragged)
    # What asks for one bit of a word, the sign or a flag, no size answers; no count of trips does.
    bits = range(31, -1, -1) if wish in (0, 1) else ()
    for number in (sign << bit for bit in bits for sign in (-1, 1)):
        if at(number) == wish:
            return number // unit * unit
    return min(tried, key=lambda number: (abs(tried[number] - wish), number))


def number_below(probe: Callable[[int], int], wish: int, unit: int, number: int) -> int:
    """Return a multiple of `unit` below 0 for which probe gives `wish`, else `number`: labels that
    say "none" are such.
    """
    found = _between(lambda low: probe(low // unit * unit), -LARGE, 0, wish, unit)
    return number if found is None else found


def _between(at: Callable[[int], int], low: int, high: int, wish: int, unit: int) -> int | None:
    """Return a number in a range that gives the wish, where outcomes rise or fall throughout."""
    rising = at(low if at(low) != NOWHERE else low + unit) <= at(high)
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
