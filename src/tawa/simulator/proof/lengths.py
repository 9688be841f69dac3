"""Trip counts that a loop inside was not seen to make, and the inputs that give them.

The theorem wants each loop that turns rings run with 0, 1, ... D+c+1 trips. Each is asked for as
many, but one number often bounds several loops and the first to ask chooses: the rest of a loop
whose first trip is peeled off makes one trip less, the last part of a split one what is left. So
when all else was run, each count that a loop was not seen to make is looked for: by one unknown of
its bounds, the others as in a survey that entered it; by one and a second that is larger, where a
minimum of both is what ends the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

from xdsl.ir import Operation

from tawa.simulator.proof.cells import Given, Question, is_free
from tawa.simulator.proof.expressions import Expr, parts_of
from tawa.simulator.proof.functions import FUNCTIONS
from tawa.simulator.proof.numbers import LARGE
from tawa.simulator.proof.scalars import Name, Scalars

_LONG = 200  # trips of any loop; a step that is not positive gives more
_FEW = 4  # constants of the bounds whose multiples are tried, the largest
_QUOTIENTS = frozenset({"idiv", "irem"})


@dataclass(eq=False, slots=True)
class Lengths:
    """What a loop asked in a survey, and what all loops did there: trips are functions of the
    numbers of unknowns. `found` are numbers of one unknown, and of pairs, by the trips they give.
    """

    scalars: Scalars
    question: Question
    questions: Collection[Question]
    found: dict[bool, dict[int, list[dict[Name, int]]]] = field(
        default_factory=dict[bool, dict[int, list[dict[Name, int]]]]
    )

    def give(self, count: int, most: int) -> Iterator[Given]:
        """Yield numbers with which the loop makes so many trips, `most` that are ever asked for: of
        the unknowns of its bounds alone, so that the conditions around it are chosen anew, then of
        all.
        """
        bound = self.scalars.names()
        here = {name: self.scalars.bound[item] for name, item in bound.items()}
        parts = set(parts_of(self.question[1]))
        inside = {name: item for name, item in bound.items() if item in parts}
        free = {name: item for name, item in inside.items() if is_free(item, bound)}
        for pairs in (False, True):
            if pairs not in self.found:
                self.found[pairs] = self._search(free, most, pairs)
            found = self.found[pairs].get(count, ())
            yield from self._checked(found, bound, {name: here[name] for name in inside}, here)

    def _checked(
        self,
        found: Collection[dict[Name, int]],
        bound: Mapping[Name, Expr],
        inside: dict[Name, int],
        here: dict[Name, int],
    ) -> Iterator[Given]:
        """Yield what lets no loop make very many trips, nor a step of a loop be zero."""
        for more in found:
            changed = {bound[name]: number for name, number in more.items()}
            trips = [_trips(self.scalars, each, changed)(0) for each in self.questions]
            if all(0 <= each <= _LONG for each in trips):
                yield inside | more
                yield here | more

    def _search(
        self, free: Mapping[Name, Expr], most: int, pairs: bool
    ) -> dict[int, list[dict[Name, int]]]:
        """Return numbers of one unknown, or of pairs, by the trips that they give."""
        bound, units = self.scalars.bound, self.scalars.units
        numbers = {abs(item) for item in parts_of(self.question[1]) if isinstance(item, int)}
        sizes = sorted({1, *(number for number in numbers if 0 < number < LARGE)})[-_FEW:]
        found: dict[int, list[dict[Name, int]]] = {}
        for second in free if pairs else (None,):
            more: dict[Name, int] = {}
            if second is not None:
                unit = units.get(free[second], 1)
                far = -(-(most + 4) * sizes[-1] // unit) * unit
                more[second] = bound[free[second]] + far
            for name, unknown in free.items():
                if name == second:
                    continue
                changed = {free[item]: number for item, number in more.items()}
                trips = _trips(self.scalars, self.question, changed, unknown)
                unit, here = units.get(unknown, 1), bound[unknown]
                tried = {
                    number // unit * unit
                    for size in sizes
                    for base in (0, here)
                    for number in range(base, base + (most + 4) * size, size)
                }
                for number in sorted(tried):
                    found.setdefault(trips(number), []).append(more | {name: number})
        return found


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


def _expressions(bounds: tuple[object, ...]) -> list[Expr]:
    return [item for item in parts_of(bounds) if isinstance(item, Expr)]


def _serial(item: Expr) -> int:
    """Return the place of an expression among all: its parts were made before it."""
    return item.serial


def lengths_of(
    scalars: Scalars, bounds: Mapping[Operation, Question]
) -> Iterator[tuple[Operation, Lengths]]:
    """Yield the loops of a survey with what they asked; those that ask alike share it."""
    alike: dict[Question, Lengths] = {}
    for loop, question in bounds.items():
        if question not in alike:
            alike[question] = Lengths(scalars, question, bounds.values())
        yield loop, alike[question]
