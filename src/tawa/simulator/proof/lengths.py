"""Inputs that should give a loop a number of trips.

What bounds the loop is a function of the unknowns that a survey bound, as it was asked there. It is
looked at along *lines*: one unknown varies, the others as they are, and again with a second so
large that it bounds nothing, as one of two numbers of a minimum. On each line multiples of the
constants at hand are tried, small numbers one by one, and powers of two; between two that give too
few trips and too many, the number in the middle, and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import NamedTuple

import numpy as np
from xdsl.ir import Operation

from tawa.simulator.proof.cells import Given, Question, is_free
from tawa.simulator.proof.expressions import Expr
from tawa.simulator.proof.numbers import LARGE
from tawa.simulator.proof.scalars import Name, Scalars
from tawa.simulator.proof.trips import Numbers, Plans, Point, Trips
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


class Among(NamedTuple):
    """What an unknown may be: multiples of `unit` from `least` to `most`. It was `here`."""

    unit: int
    least: int
    most: int
    here: int


class Worked:
    """What lengths of several surveys have in common, worked out once in a proof."""

    def __init__(self) -> None:
        self.plans = Plans()
        self._tried: dict[tuple[object, ...], Numbers] = {}

    def near(self, count: int, among: Among) -> Numbers:
        """Return small numbers to be tried, as what the unit of an unknown is multiplied by."""
        found = self._tried.get((count, among))
        if found is None:
            found = self._tried[count, among] = _places(among, np.arange(count))
        return found

    def about(self, count: int, sizes: tuple[int, ...], among: Among) -> Numbers:
        """Return so many multiples of some sizes to be tried, from zero and from where an unknown
        was, and what a remainder by the largest tells apart.
        """
        found = self._tried.get((count, sizes, among))
        if found is None:
            multiples = np.multiply.outer(sizes, np.arange(count)).ravel()
            rest = np.arange(-min(sizes[-1], _REST), min(sizes[-1], _REST))
            tried = _places(among, rest, multiples, multiples + among.here)
            found = self._tried[count, sizes, among] = tried
        return found


def _places(among: Among, *tried: Numbers) -> Numbers:
    """Return what a unit is multiplied by, in order."""
    unit, least, most, here = among
    places = np.unique(np.concatenate((_POWERS, (here, -here), *tried)) // unit)
    first, last = np.searchsorted(places, (-(-least // unit), most // unit + 1))
    return places[first:last]


class Asked:
    """What the loops of a survey asked, in `questions`."""

    def __init__(self, scalars: Scalars, questions: Collection[Question], worked: Worked) -> None:
        self.scalars, self.questions, self._worked = scalars, questions, worked
        self._bounds = tuple([bound for _, bounds in questions for bound in bounds])

    def is_short(self, changed: Point) -> bool:
        """Tell whether with other numbers for some unknowns no loop makes very many trips, nor a
        step of one is zero, nor is anything that they are computed from divided by zero.
        """
        plan = self._worked.plans.of(self.scalars.expressions, self._bounds, changed)
        numbers: dict[object, int] = {**changed}
        value = self.scalars.value
        known = [numbers[item] if item in numbers else value(item) for item in plan.items]
        for step in plan.steps:
            parts = _numbers(known, step.parts)
            if step.divides and not parts[1]:
                return False
            known[step.out] = step.item.meaning(*parts)
        wanted = iter(plan.wanted)
        for outcome, bounds in self.questions:
            if not 0 <= outcome(*_numbers(known, islice(wanted, len(bounds)))) <= _LONG:
                return False
        return True


def _numbers(known: Sequence[int | None], places: Iterable[int]) -> list[int]:
    numbers = [known[place] for place in places]
    assert None not in numbers, "asked of loops only whose bounds were numbers in the end"
    return numbers  # pyright: ignore[reportReturnType]


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of one question of a survey, along unknowns that are `free`."""

    scalars: Scalars
    question: Question
    free: Mapping[Name, Expr]
    worked: Worked

    def make(self, most: int, pairs: bool) -> Iterator[Line]:
        """Yield a line of each unknown; of each with each other, large, where `pairs`."""
        if len(self.free) <= pairs:
            return
        sizes = self._sizes()
        plan = self.worked.plans.of(self.scalars.expressions, self.question[1], self.free.values())
        trips = Trips(self.scalars, self.question, plan)
        count = most + 4
        if not pairs:
            about = self.worked.about
            tried = {name: about(count, sizes, self._among(name)) for name in self.free}
            yield from self._lines(trips, [(name, tried[name], {}) for name in self.free])
            return
        near = self.worked.near
        few = {name: near(count, self._among(name)) for name in self.free}
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
                        near(count, self._among(name, far))
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

    def _among(self, name: Name, end: int = 0) -> Among:
        """Return what an unknown may be: a block one below `end`."""
        unknown = self.free[name]
        least, most, here = least_of(unknown), LARGE, self._here(name)
        match unknown.function:
            case "grid_extent":
                least = here
            case "block_id" if not is_free(unknown, self.scalars.names()):
                most = max(here, end - 1)
            case _:
                pass
        unit = self.scalars.units.get(unknown, 1)
        return Among(unit, -LARGE if least is None else least, most, here)

    def _here(self, name: Name) -> int:
        return self.scalars.bound[self.free[name]]

    def _sizes(self) -> tuple[int, ...]:
        parts = self.scalars.expressions.parts_of(self.question[1])
        numbers = {abs(item) for item in parts if isinstance(item, int)}
        return tuple(sorted({1, *(number for number in numbers if 0 < number < LARGE)})[-_FEW:])


class Lengths:
    """What a loop asked in a survey, and what all loops did there."""

    def __init__(self, scalars: Scalars, question: Question, asked: Asked, worked: Worked) -> None:
        self.scalars, self.question, self.asked, self.worked = scalars, question, asked, worked
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
            lines = Lines(self.scalars, self.question, free, self.worked)
            self._lines[pairs] = [], lines.make(most, pairs)
        made, others = self._lines[pairs]
        yield from made
        for line in others:
            made.append(line)
            yield line


def _may_vary(unknown: Expr, bound: Mapping[Name, Expr]) -> bool:
    """Tell whether an unknown may be another number, the others as they are: blocks do not mind a
    larger grid, and before a block there are others.
    """
    return unknown.function in ("grid_extent", "block_id") or is_free(unknown, bound)


def lengths_of(
    scalars: Scalars, bounds: Mapping[Operation, Collection[Question]], worked: Worked
) -> Iterator[tuple[Operation, Lengths]]:
    """Yield the loops of a survey with what they asked in the first tile, and in the second; those
    that ask alike share it.
    """
    alike: dict[Question, Lengths] = {}
    asked = Asked(
        scalars, dict.fromkeys(each for several in bounds.values() for each in several), worked
    )
    for loop, questions in bounds.items():
        known = [each for each in questions if any(isinstance(item, Expr) for item in each[1])]
        for question in known[:2]:
            if question not in alike:
                alike[question] = Lengths(scalars, question, asked, worked)
            yield loop, alike[question]
