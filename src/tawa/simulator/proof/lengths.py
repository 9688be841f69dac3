"""Inputs that should give a loop a number of trips.

What bounds the loop is a function of the unknowns that a survey bound, as it was asked there. It is
looked at along *lines*: one unknown varies, the others as they are, and again with a second so
large that it bounds nothing, as one of two numbers of a minimum. On each line multiples of the
constants at hand are tried, small numbers one by one, and powers of two; between two that give too
few trips and too many, the number in the middle, and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from xdsl.ir import Operation

from tawa.simulator.proof.cells import Given, Question, is_free
from tawa.simulator.proof.expressions import Expr, parts_of
from tawa.simulator.proof.functions import FUNCTIONS
from tawa.simulator.proof.numbers import LARGE
from tawa.simulator.proof.scalars import Name, Scalars
from tawa.simulator.proof.trips import QUOTIENTS, Numbers, Point, Trips, in_order
from tawa.simulator.proof.words import least_of

_LONG = 200  # trips of any loop; a step that is not positive gives more
_FEW = 4  # constants of the bounds whose multiples are tried, the largest
_REST = 256  # numbers in a row, on each side of zero
_POWERS = np.array([0, *(sign << bit for bit in range(LARGE.bit_length()) for sign in (-1, 1))])


@dataclass(frozen=True, slots=True)
class Line:
    """Numbers of one unknown, `more` those of others that are not what they were: `places` are the
    multiples of `unit` that were tried, in order, `given` the trips that they give: from `least` to
    `most` of them.
    """

    name: Name
    more: Mapping[Name, int]
    unit: int
    places: Numbers
    given: Numbers
    least: int
    most: int
    trips: Callable[[int], int]

    def give(self, count: int) -> Iterator[Mapping[Name, int]]:
        """Yield numbers that give so many trips: of those tried the one nearest to zero and the one
        farthest from it, else one between two.
        """
        if not self.least <= count <= self.most:
            return
        found = self.places[self.given == count]
        if len(found):
            far = np.abs(found)
            last = len(far) - 1 - np.argmax(far[::-1])
            tried = [int(found[np.argmin(far)]), int(found[last])]
        else:
            tried = self._between(count)
        for at in dict.fromkeys(tried):
            yield {**self.more, self.name: at * self.unit}

    def _between(self, count: int) -> list[int]:
        below, here = self.given < count, self.given >= 0
        apart = (below[1:] != below[:-1]) & here[1:] & here[:-1]
        for place in np.flatnonzero(apart).tolist():
            low, high = int(self.places[place]), int(self.places[place + 1])
            while high - low > 1:
                middle = (low + high) // 2
                trips = self.trips(middle * self.unit)
                if trips == count:
                    return [middle]
                if (trips < count) is bool(below[place]):
                    low = middle
                else:
                    high = middle
        return []


class Asked:
    """What the loops of a survey asked, in `questions`."""

    def __init__(self, scalars: Scalars, questions: Collection[Question]) -> None:
        self.scalars = scalars
        self.questions = questions

    @cached_property
    def _expressions(self) -> list[Expr]:
        return in_order(bound for _, bounds in self.questions for bound in bounds)

    def is_short(self, changed: Point) -> bool:
        """Tell whether with other numbers for some unknowns no loop makes very many trips, nor a
        step of one is zero.
        """
        known: dict[object, int | None] = {**changed}  # None: something is divided by zero
        for item in self._expressions:
            if any(part in known for part in item.parts):
                known[item] = self._compute(item, known)
        for outcome, bounds in self.questions:
            numbers = [self._number(known, item) for item in bounds]
            if None in numbers or not 0 <= outcome(*numbers) <= _LONG:
                return False
        return True

    def _compute(self, item: Expr, known: Mapping[object, int | None]) -> int | None:
        numbers = [self._number(known, part) for part in item.args]
        if None in numbers or (item.function in QUOTIENTS and not numbers[1]):
            return None
        return FUNCTIONS[item.function](*numbers)

    def _number(self, known: Mapping[object, int | None], item: object) -> int | None:
        return known[item] if item in known else _number(self.scalars, {}, item)


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of one question of a survey, along unknowns that are `free`."""

    scalars: Scalars
    question: Question
    free: Mapping[Name, Expr]

    def make(self, most: int, pairs: bool) -> Iterator[Line]:
        """Yield a line of each unknown; of each with each other, large, where `pairs`."""
        if len(self.free) <= pairs:
            return
        sizes = self._sizes()
        trips = Trips(self.scalars, self.question, self.free.values())
        if not pairs:
            # Multiples of the constants, and what a remainder by one of them tells apart.
            multiples = np.concatenate([np.arange(most + 4) * size for size in sizes])
            rest = np.arange(-min(sizes[-1], _REST), min(sizes[-1], _REST))
            tried = {
                name: self._places(name, rest, multiples, multiples + self._here(name))
                for name in self.free
            }
            yield from self._lines(trips, [(name, tried[name], {}) for name in self.free])
            return
        near = np.arange(most + 4)
        few = {name: self._places(name, near) for name in self.free}
        for second, other in self.free.items():
            if other.function == "block_id":
                continue  # there may be no larger one
            unit = self.scalars.units.get(other, 1)
            large = (self.scalars.bound[other] + most * sizes[-1], LARGE)
            yield from self._lines(
                trips,
                [
                    (name, here, {second: far // unit * unit})
                    for far in large
                    for name in self.free
                    for here in [
                        # On a larger grid there are other blocks.
                        self._places(name, near, end=far)
                        if self._is_block_of(name, other)
                        else few[name]
                    ]
                    if name != second
                ],
            )

    def _is_block_of(self, name: Name, other: Expr) -> bool:
        unknown = self.free[name]
        within = unknown.function == "block_id" and other.function == "grid_extent"
        return within and unknown.args == other.args

    def _lines(
        self, trips: Trips, several: Sequence[tuple[Name, Numbers, Mapping[Name, int]]]
    ) -> Iterator[Line]:
        """Yield lines of which all trips are computed together."""
        asked = [
            (
                places * self.scalars.units.get(self.free[name], 1),
                self.free[name],
                {self.free[other]: number for other, number in more.items()},
            )
            for name, places, more in several
        ]
        for (name, places, more), (_, unknown, others), given in zip(
            several, asked, trips.of(asked), strict=True
        ):
            unit = self.scalars.units.get(unknown, 1)

            def at(number: int, unknown: Expr = unknown, others: Point = others) -> int:
                return trips.at({**others, unknown: number})

            counts = given[given >= 0]
            least, most = (int(counts.min()), int(counts.max())) if len(counts) else (0, -1)
            yield Line(name, more, unit, places, given, least, most, at)

    def _places(self, name: Name, *tried: Numbers, end: int = 0) -> Numbers:
        """Return what the unit of an unknown is multiplied by, in order: of a block below `end`."""
        unknown = self.free[name]
        unit, least, here = self.scalars.units.get(unknown, 1), least_of(unknown), self._here(name)
        most = LARGE
        match unknown.function:
            case "grid_extent":
                least = here
            case "block_id" if not is_free(unknown, self.scalars.names()):
                most = max(here, end - 1)
            case _:
                pass
        places = np.unique(np.concatenate((_POWERS, (here, -here), *tried)) // unit)
        least = -LARGE if least is None else least
        return places[(least <= places * unit) & (places * unit <= most)]

    def _here(self, name: Name) -> int:
        return self.scalars.bound[self.free[name]]

    def _sizes(self) -> list[int]:
        numbers = {abs(item) for item in parts_of(self.question[1]) if isinstance(item, int)}
        return sorted({1, *(number for number in numbers if 0 < number < LARGE)})[-_FEW:]


class Lengths:
    """What a loop asked in a survey, and what all loops did there."""

    def __init__(self, scalars: Scalars, question: Question, asked: Asked) -> None:
        self.scalars, self.question, self.asked = scalars, question, asked
        self._lines: dict[bool, tuple[list[Line], Iterator[Line]]] = {}

    def give(self, count: int, most: int) -> Iterator[tuple[Given, bool]]:
        """Yield numbers with which the loop makes so many trips, `most` that are ever asked for: of
        the unknowns of its bounds alone, so that the conditions around it are chosen anew; then, as
        is told, of all.
        """
        bound = self._bound
        here = {name: self.scalars.bound[item] for name, item in bound.items()}
        for pairs in (False, True):
            for line in self._kept(most, pairs):
                for more in line.give(count):
                    changed = {bound[name]: number for name, number in more.items()}
                    if self.asked.is_short(changed):
                        yield {**{name: here[name] for name in self._inside}, **more}, False
                        yield {**here, **more}, True

    @cached_property
    def _bound(self) -> dict[Name, Expr]:
        return self.scalars.names()

    @cached_property
    def _inside(self) -> dict[Name, Expr]:
        """The unknowns of the bounds."""
        unknowns_of = self.scalars.expressions.unknowns_of
        asked = frozenset[Expr]().union(*map(unknowns_of, self.question[1]))
        return {name: item for name, item in self._bound.items() if item in asked}

    def _kept(self, most: int, pairs: bool) -> Iterator[Line]:
        """Yield the lines, each made once, and none before it is looked at or one beside it."""
        if pairs not in self._lines:
            inside, bound = self._inside, self._bound
            free = {name: item for name, item in inside.items() if _may_vary(item, bound)}
            self._lines[pairs] = [], Lines(self.scalars, self.question, free).make(most, pairs)
        made, others = self._lines[pairs]
        yield from made
        for line in others:
            made.append(line)
            yield line


def _number(scalars: Scalars, known: Mapping[object, int], item: object) -> int:
    """Return what a scalar is with other numbers for some, or was in the survey."""
    found = known.get(item)
    if found is None:
        assert isinstance(item, (int, Expr))
        found = scalars.value(item)
        assert found is not None, "asked of loops only whose bounds were numbers in the end"
    return found


def _may_vary(unknown: Expr, bound: Mapping[Name, Expr]) -> bool:
    """Tell whether an unknown may be another number, the others as they are: blocks do not mind a
    larger grid, and before a block there are others.
    """
    return unknown.function in ("grid_extent", "block_id") or is_free(unknown, bound)


def lengths_of(
    scalars: Scalars, bounds: Mapping[Operation, Collection[Question]]
) -> Iterator[tuple[Operation, Lengths]]:
    """Yield the loops of a survey with what they asked in the first tile, and in the second; those
    that ask alike share it.
    """
    alike: dict[Question, Lengths] = {}
    asked = Asked(scalars, dict.fromkeys(each for several in bounds.values() for each in several))
    for loop, questions in bounds.items():
        known = [each for each in questions if any(isinstance(item, Expr) for item in each[1])]
        for question in known[:2]:
            if question not in alike:
                alike[question] = Lengths(scalars, question, asked)
            yield loop, alike[question]
