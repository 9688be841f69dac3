"""Inputs that should give a loop a number of trips.

What bounds the loop is a function of the unknowns that a survey bound, as it was asked there. It is
looked at along *lines*: one unknown varies, the others as they are, and again with a second so
large that it bounds nothing, as one of two numbers of a minimum. On each line multiples of the
constants at hand are tried, and powers of two; between two that give too few trips and too many,
the number in the middle, and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from xdsl.ir import Operation

from tawa.simulator.proof.cells import Given, Question, is_free, least_of
from tawa.simulator.proof.expressions import Expr, parts_of
from tawa.simulator.proof.functions import FUNCTIONS
from tawa.simulator.proof.numbers import LARGE
from tawa.simulator.proof.scalars import Name, Scalars

_LONG = 200  # trips of any loop; a step that is not positive gives more
_FEW = 4  # constants of the bounds whose multiples are tried, the largest
_QUOTIENTS = frozenset({"idiv", "irem"})


@dataclass(frozen=True, slots=True)
class Line:
    """Numbers of one unknown, `more` those of others that are not what they were: the trips that
    multiples of `unit` give, by what they are multiples of.
    """

    name: Name
    more: Mapping[Name, int]
    trips: Callable[[int], int]
    unit: int
    tried: list[tuple[int, int]]

    def give(self, count: int) -> Iterator[Mapping[Name, int]]:
        """Yield numbers that give so many trips: of those tried the one nearest to zero and the one
        farthest from it, else one between two.
        """
        found = sorted((at for at, trips in self.tried if trips == count), key=abs)
        found = [*dict.fromkeys((found[0], found[-1]))] if found else self._between(count)
        for at in found:
            yield {**self.more, self.name: at * self.unit}

    def _between(self, count: int) -> list[int]:
        for (low, few), (high, many) in pairwise(self.tried):
            if few < 0 or many < 0 or (few < count) is (many < count):
                continue
            while high - low > 1:
                middle = (low + high) // 2
                trips = self.trips(middle * self.unit)
                if trips == count:
                    return [middle]
                if (trips < count) is (few < count):
                    low = middle
                else:
                    high = middle
        return []


@dataclass(eq=False, slots=True)
class Lengths:
    """What a loop asked in a survey, and what all loops did there."""

    scalars: Scalars
    question: Question
    questions: Collection[Question]
    lines: dict[bool, list[Line]] = field(default_factory=dict[bool, list[Line]])

    def give(self, count: int, most: int) -> Iterator[tuple[Given, bool]]:
        """Yield numbers with which the loop makes so many trips, `most` that are ever asked for: of
        the unknowns of its bounds alone, so that the conditions around it are chosen anew; then, as
        is told, of all.
        """
        bound = self.scalars.names()
        here = {name: self.scalars.bound[item] for name, item in bound.items()}
        parts = set(parts_of(self.question[1]))
        inside = {name: here[name] for name, item in bound.items() if item in parts}
        free = {name: bound[name] for name in inside if _may_vary(bound[name], bound)}
        for pairs in (False, True):
            if pairs not in self.lines:
                self.lines[pairs] = [*self._lines(free, most, pairs)]
            for line in self.lines[pairs]:
                for more in line.give(count):
                    if self._is_short({bound[name]: number for name, number in more.items()}):
                        yield {**inside, **more}, False
                        yield {**here, **more}, True

    def _is_short(self, changed: Mapping[Expr, int]) -> bool:
        """Tell whether no loop makes very many trips, nor a step of one is zero."""
        trips = [_trips(self.scalars, each, changed)(0) for each in self.questions]
        return all(0 <= each <= _LONG for each in trips)

    def _lines(self, free: Mapping[Name, Expr], most: int, pairs: bool) -> Iterator[Line]:
        """Yield a line of each unknown; of each with each other, large, where `pairs`."""
        if not pairs:
            for name in free:
                yield self._line(name, {}, free, self._multiples(free[name], most))
            return
        few = {*range(most + 4)}
        for second, other in free.items():
            if other.function == "block_id":
                continue  # there may be no larger one
            unit = self.scalars.units.get(other, 1)
            for far in (self.scalars.bound[other] + most * max(self._sizes()), LARGE):
                for name in free:
                    if name != second:
                        yield self._line(name, {second: far // unit * unit}, free, few)

    def _line(
        self, name: Name, more: Mapping[Name, int], free: Mapping[Name, Expr], tried: set[int]
    ) -> Line:
        unknown = free[name]
        unit, least = self.scalars.units.get(unknown, 1), least_of(unknown)
        changed = {free[item]: number for item, number in more.items()}
        trips = _trips(self.scalars, self.question, changed, unknown)
        powers = {0, self.scalars.bound[unknown], *(1 << bit for bit in range(LARGE.bit_length()))}
        places = {number // unit for number in (*tried, *powers, *(-each for each in powers))}
        most = LARGE
        match unknown.function:
            case "grid_extent":
                least = self.scalars.bound[unknown]
            case "block_id":
                most = self.scalars.bound[unknown]
            case _:
                pass
        least = -LARGE if least is None else least
        placed = sorted(at for at in places if least <= at * unit <= most)
        return Line(name, more, trips, unit, [(at, trips(at * unit)) for at in placed])

    def _multiples(self, unknown: Expr, most: int) -> set[int]:
        return {
            number
            for size in self._sizes()
            for base in (0, self.scalars.bound[unknown])
            for number in range(base, base + (most + 4) * size, size)
        }

    def _sizes(self) -> list[int]:
        numbers = {abs(item) for item in parts_of(self.question[1]) if isinstance(item, int)}
        return sorted({1, *(number for number in numbers if 0 < number < LARGE)})[-_FEW:]


def _trips(
    scalars: Scalars, question: Question, changed: Mapping[Expr, int], unknown: Expr | None = None
) -> Callable[[int], int]:
    """Return the trips of a loop as a function of one more unknown, for other numbers of some: -1
    where what bounds it is divided by zero.
    """
    outcome, bounds = question
    start: list[int] = [0]
    places: dict[Expr | None, int] = {unknown: 0}  # of what varies
    known: dict[object, int] = {**changed}  # what differs from the survey

    def place_of(item: object) -> int:
        if isinstance(item, Expr) and item in places:
            return places[item]
        start.append(_number(scalars, known, item))
        return len(start) - 1

    program: list[tuple[Callable[..., int], int, list[int], bool]] = []
    for item in sorted(_expressions(bounds), key=_serial):
        divides = item.function in _QUOTIENTS
        if any(isinstance(part, Expr) and part in places for part in item.args):
            parts = [place_of(part) for part in item.args]
            places[item] = len(start)
            start.append(0)
            program.append((FUNCTIONS[item.function], places[item], parts, divides))
        elif any(part in known for part in item.args):
            numbers = [_number(scalars, known, part) for part in item.args]
            if divides and not numbers[1]:
                return lambda _: -1
            known[item] = FUNCTIONS[item.function](*numbers)
    wanted = [place_of(item) for item in bounds]

    def trips(number: int) -> int:
        values = start.copy()
        values[0] = number
        for function, place, parts, divides in program:
            if len(parts) == 2:
                one, two = values[parts[0]], values[parts[1]]
                if divides and not two:
                    return -1
                values[place] = function(one, two)
            else:
                values[place] = function(*[values[part] for part in parts])
        return outcome(*[values[place] for place in wanted])

    return trips


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


def _expressions(bounds: tuple[object, ...]) -> list[Expr]:
    return [item for item in parts_of(bounds) if isinstance(item, Expr)]


def _serial(item: Expr) -> int:
    """Return the place of an expression among all: its parts were made before it."""
    return item.serial


def lengths_of(
    scalars: Scalars, bounds: Mapping[Operation, Collection[Question]]
) -> Iterator[tuple[Operation, Lengths]]:
    """Yield the loops of a survey with what they asked in the first tile, and in the second; those
    that ask alike share it.
    """
    alike: dict[Question, Lengths] = {}
    asked = {question: None for questions in bounds.values() for question in questions}
    for loop, questions in bounds.items():
        known = [each for each in questions if any(isinstance(item, Expr) for item in each[1])]
        for question in known[:2]:
            if question not in alike:
                alike[question] = Lengths(scalars, question, asked)
            yield loop, alike[question]
