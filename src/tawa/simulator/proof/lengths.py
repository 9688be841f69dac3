"""Inputs that should give a loop a number of trips.

What bounds the loop is a function of the unknowns that a survey bound, as it was asked there. It is
looked at along *lines*: one unknown varies, the others as they are, and again with a second so
large that it bounds nothing, as one of two numbers of a minimum. On each line multiples of the
constants at hand are tried, small numbers one by one, and powers of two; between two that give too
few trips and too many, the number in the middle, and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from xdsl.ir import Operation

from tawa.simulator.proof.cells import Given, Question, is_free
from tawa.simulator.proof.expressions import Expr, parts_of
from tawa.simulator.proof.functions import FUNCTIONS
from tawa.simulator.proof.numbers import LARGE
from tawa.simulator.proof.scalars import Name, Scalars
from tawa.simulator.proof.words import least_of

_LONG = 200  # trips of any loop; a step that is not positive gives more
_FEW = 4  # constants of the bounds whose multiples are tried, the largest
_REST = 256  # numbers in a row, on each side of zero
_QUOTIENTS = frozenset({"idiv", "irem"})


@dataclass(frozen=True, slots=True)
class Trips:
    """The trips of a loop as a function of one unknown: `start` are values by their place, that of
    the unknown first; `program` computes others of them from two or more, `wanted` are the bounds.
    """

    outcome: Callable[..., int]
    start: list[int]
    program: list[tuple[Callable[..., int], int, list[int], bool]]
    wanted: list[int]

    def __call__(self, number: int) -> int:
        """Return the trips that a number gives, -1 where something is divided by zero."""
        return self.of((number,))[0]

    def of(self, numbers: Sequence[int]) -> list[int]:
        """Return the trips that each of some numbers gives."""
        columns: list[Sequence[int]] = [[value] * len(numbers) for value in self.start]
        columns[0] = numbers
        failed: set[int] = set()
        for function, out, parts, divides in self.program:
            inputs = [columns[part] for part in parts]
            if divides and 0 in inputs[1]:
                failed.update(place for place, by in enumerate(inputs[1]) if not by)
            columns[out] = list(map(function, *inputs))
        found = list(map(self.outcome, *[columns[place] for place in self.wanted]))
        for place in failed:
            found[place] = -1
        return found


@dataclass(frozen=True, slots=True)
class Line:
    """Numbers of one unknown, `more` those of others that are not what they were: the trips that
    multiples of `unit` give, by what they are multiples of.
    """

    name: Name
    more: Mapping[Name, int]
    trips: Trips
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


class Asked:
    """What the loops of a survey asked, in `questions`."""

    def __init__(self, scalars: Scalars, questions: Collection[Question]) -> None:
        self.scalars = scalars
        self.questions = questions

    @cached_property
    def _expressions(self) -> list[Expr]:
        return _in_order(bound for _, bounds in self.questions for bound in bounds)

    def is_short(self, changed: Mapping[Expr, int]) -> bool:
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
        if None in numbers or (item.function in _QUOTIENTS and not numbers[1]):
            return None
        return FUNCTIONS[item.function](*numbers)

    def _number(self, known: Mapping[object, int | None], item: object) -> int | None:
        return known[item] if item in known else _number(self.scalars, {}, item)


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of one question of a survey."""

    scalars: Scalars
    question: Question

    def make(self, free: Mapping[Name, Expr], most: int, pairs: bool) -> Iterator[Line]:
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
            case "block_id" if not is_free(unknown, self.scalars.names()):
                most = self.scalars.bound[unknown]
            case _:
                pass
        least = -LARGE if least is None else least
        placed = sorted(at for at in places if least <= at * unit <= most)
        given = trips.of([at * unit for at in placed])
        return Line(name, more, trips, unit, list(zip(placed, given, strict=True)))

    def _multiples(self, unknown: Expr, most: int) -> set[int]:
        """Return multiples of the constants, and what a remainder by one of them tells apart."""
        sizes = self._sizes()
        found = {
            number
            for size in sizes
            for base in (0, self.scalars.bound[unknown])
            for number in range(base, base + (most + 4) * size, size)
        }
        rest = min(sizes[-1], _REST)
        return found.union(range(-rest, rest))

    def _sizes(self) -> list[int]:
        numbers = {abs(item) for item in parts_of(self.question[1]) if isinstance(item, int)}
        return sorted({1, *(number for number in numbers if 0 < number < LARGE)})[-_FEW:]


@dataclass(eq=False, slots=True)
class Lengths:
    """What a loop asked in a survey, and what all loops did there."""

    scalars: Scalars
    question: Question
    asked: Asked
    lines: dict[bool, tuple[list[Line], Iterator[Line]]] = field(default_factory=lambda: {})

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
            for line in self._kept(free, most, pairs):
                for more in line.give(count):
                    changed = {bound[name]: number for name, number in more.items()}
                    if self.asked.is_short(changed):
                        yield {**inside, **more}, False
                        yield {**here, **more}, True

    def _kept(self, free: Mapping[Name, Expr], most: int, pairs: bool) -> Iterator[Line]:
        """Yield the lines, each made once, and not before it is looked at."""
        if pairs not in self.lines:
            self.lines[pairs] = [], Lines(self.scalars, self.question).make(free, most, pairs)
        made, others = self.lines[pairs]
        yield from made
        for line in others:
            made.append(line)
            yield line


def _trips(
    scalars: Scalars, question: Question, changed: Mapping[Expr, int], unknown: Expr
) -> Trips:
    """Return the trips of a loop as a function of one more unknown, for other numbers of some."""
    outcome, bounds = question
    start: list[int] = [0]
    places: dict[object, int] = {unknown: 0}  # of what varies
    known: dict[object, int] = {**changed}  # what differs from the survey

    def place_of(item: object) -> int:
        if item in places:
            return places[item]
        start.append(_number(scalars, known, item))
        return len(start) - 1

    program: list[tuple[Callable[..., int], int, list[int], bool]] = []
    for item in _in_order(bounds):
        divides = item.function in _QUOTIENTS
        if any(part in places for part in item.parts):
            parts = [place_of(part) for part in item.args]
            places[item] = len(start)
            start.append(0)
            program.append((FUNCTIONS[item.function], places[item], parts, divides))
        elif any(part in known for part in item.parts):
            numbers = [_number(scalars, known, part) for part in item.args]
            if divides and not numbers[1]:
                return Trips(_failed, [0], [], [0])
            known[item] = FUNCTIONS[item.function](*numbers)
    return Trips(outcome, start, program, [place_of(item) for item in bounds])


def _failed(_: int) -> int:
    return -1


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


def _in_order(scalars: Iterable[object]) -> list[Expr]:
    """Return what scalars are computed by from unknowns, the parts of each before it."""
    found = (item for item in parts_of(scalars) if isinstance(item, Expr))
    return sorted((item for item in found if not item.unknown), key=_serial)


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
    asked = Asked(scalars, dict.fromkeys(each for several in bounds.values() for each in several))
    for loop, questions in bounds.items():
        known = [each for each in questions if any(isinstance(item, Expr) for item in each[1])]
        for question in known[:2]:
            if question not in alike:
                alike[question] = Lengths(scalars, question, asked)
            yield loop, alike[question]
