"""Other inputs that answer some questions of a run alike and others not: what roles disagree on.

A run binds an unknown when the first loop or condition asks for it; what asks later follows. The
number chosen stands for all that give the first question this outcome, which is enough for that
question alone: ``K / 64`` trips of one role and ``(K + 63) / 64`` of another are as many where the
first was asked for a round length. So all questions about an unknown are looked at together: one
number of each *cell*, of those that give all of them the same outcomes, is run. Numbers are tried
where outcomes may change: about the constants and lengths that the questions have, their multiples
and differences, and below zero.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import combinations, islice, product, repeat
from operator import attrgetter
from typing import TypeAlias

from tawa.simulator.proof.expressions import Expr, Scalar
from tawa.simulator.proof.functions import FUNCTIONS
from tawa.simulator.proof.numbers import LARGE
from tawa.simulator.proof.rules import Unproved
from tawa.simulator.proof.scalars import Name, Scalars, itself
from tawa.simulator.proof.words import least_of

Question: TypeAlias = tuple[Callable[..., int], tuple[Scalar, ...]]
"""What is asked of some scalars: the trips of a loop by its bounds, whether a condition holds."""

Given: TypeAlias = Mapping[Name, int]
Vector: TypeAlias = tuple[int, ...]
Column: TypeAlias = "list[int] | int | None"
"""What a scalar is for each number, or for all of them where that is the same; None: unknown."""

_FEW = 8  # constants whose differences are tried, and the least numbers
_LONG = 200  # trips; a step that is not positive gives more
_MOST = 64  # cells of one unknown that are run
_PAIRS = 10
_NEAR = sorted(product(range(-6, 7), repeat=2), key=lambda pair: abs(pair[0]) + abs(pair[1]))


def cells(
    scalars: Scalars,
    questions: list[Question],
    many: int,
    seen: Iterable[Given],
    new: Collection[Question],
) -> Iterator[Given]:
    """Yield what unknowns are to be in another run for each cell that no run was in.

    `questions` are those of a run with `scalars`; more than `many` trips are all alike. `seen` are
    the numbers of runs that went wherever this one did; what has none of the `new` questions is
    left. Raises Unproved where an unknown has more
    cells than are run.
    """
    bound = scalars.names()
    here = {name: scalars.bound[unknown] for name, unknown in bound.items()}
    others = [*seen]
    about = _about(scalars, questions)
    for name, unknown in bound.items():
        of_it = about.get(unknown, [])
        few = len(of_it) < 2 or not any(each in new for each in of_it)
        if few or not is_free(unknown, bound):
            continue
        asked = _Asked(scalars, unknown, of_it)
        beside = {item: here[item] for item, expr in bound.items() if expr in asked.others}
        ran = {here[name], *(run[name] for run in others if _differ_in(name, beside, run))}
        known = set(asked.outcomes([*ran], many))
        found = 0
        numbers = asked.numbers()
        for number, outcomes in zip(numbers, asked.outcomes(numbers, many)):
            if outcomes is None or outcomes in known:
                continue
            known.add(outcomes)
            yield here | {name: number}
            found += 1
            if found > _MOST:
                raise Unproved(
                    f"one number of the input has more than {_MOST} outcomes that roles may "
                    "disagree on"
                )


def pairs(units: Mapping[Name, int]) -> Iterator[Given]:
    """Yield small numbers of two unknowns at a time, each in its units, of a few of them."""
    for one, other in islice(combinations(units, 2), _PAIRS):
        for first, second in _NEAR:
            yield {one: units[one] * first, other: units[other] * second}


def _differ_in(name: Name, here: Given, run: Given) -> bool:
    """Tell whether a run had a number of this name, and those that are here."""
    return name in run and all(run.get(item, number) == number for item, number in here.items())


def is_free(unknown: Expr, bound: Mapping[Name, Expr]) -> bool:
    """Tell whether an unknown may be any number from its least one on, whatever the others are:
    blocks are numbered below the size of the grid.
    """
    match unknown.function:
        case "num_blocks" | "num_clusters" | "grid_extent":
            return False
        case "block_id":
            return not any(
                other.function in ("num_blocks", "grid_extent") and other.args == unknown.args
                for other in bound.values()
            )
        case "cluster_id":
            grid = ("num_clusters", "grid_extent")
            return not any(other.function in grid for other in bound.values())
        case _:
            return True


def _about(scalars: Scalars, questions: list[Question]) -> dict[Expr, list[Question]]:
    """Return the questions about each unknown."""
    unknowns_of = scalars.expressions.unknowns_of
    found: dict[Expr, list[Question]] = {}
    for question in questions:
        for unknown in set[Expr]().union(*map(unknowns_of, question[1])):
            found.setdefault(unknown, []).append(question)
    return found


class _Asked:
    """The questions about one unknown, as a function of its number; the others stay as they are."""

    def __init__(self, scalars: Scalars, unknown: Expr, questions: list[Question]) -> None:
        self.scalars, self.unknown, self.questions = scalars, unknown, questions
        scalars_asked = tuple([item for _, parts in questions for item in parts])
        self.parts = scalars.expressions.parts_of(scalars_asked)
        self.others = {part for part in self.parts if part is not unknown}
        unknowns_of = scalars.expressions.unknowns_of
        parts = (item for item in self.parts if isinstance(item, Expr) and not item.unknown)
        depend = (item for item in parts if unknown in unknowns_of(item))
        # Laid out in a row: the number, what does not depend on it, what does.
        self.order = sorted(depend, key=attrgetter("serial"))  # what it is made of was made before
        self._start: list[int | None] = [None]
        self._places: dict[object, int] = {unknown: 0}
        self._program = [
            (FUNCTIONS[item.function], self._places_of(item.args), self._put(item, None))
            for item in self.order
        ]
        self._asks = [(outcome, self._places_of(parts)) for outcome, parts in questions]

    def _places_of(self, scalars: tuple[object, ...]) -> list[int]:
        """Return where scalars stand; what does not depend on the unknown gets a place here."""
        found: list[int] = []
        for item in scalars:
            place = self._places.get(item)
            if place is None:
                assert isinstance(item, (int, Expr))
                place = self._put(item, self.scalars.value(item))
            found.append(place)
        return found

    def _put(self, item: object, number: int | None) -> int:
        place = self._places[item] = len(self._start)
        self._start.append(number)
        return place

    def outcomes(self, numbers: list[int], many: int) -> list[Vector | None]:
        """Return the outcomes for each number, None where it is not to be run: loops would be very
        long, or something is asked that nothing was bound for.
        """
        columns: list[Column] = [numbers, *self._start[1:]]
        for function, places, place in self._program:
            columns[place] = _each(function, [columns[part] for part in places])
        found: list[list[int]] = []
        for outcome, places in self._asks:
            results = _each(outcome, [columns[part] for part in places])
            if results is None:
                return [None] * len(numbers)
            found.append(results)
        most = [many + 1 if outcome is not itself else _LONG for outcome, _ in self._asks]
        return [None if max(each) > _LONG else (*map(min, each, most),) for each in zip(*found)]

    def numbers(self) -> list[int]:
        """Return the numbers to try, small ones first."""
        constants = self._constants()
        steps = {0, *constants, *(b - a for a, b in combinations(constants[:_FEW], 2))}
        tried = set(range(-2, _FEW))
        for size in steps:
            for base in (size, 2 * size, -size):
                tried |= {base - 1, base, base + 1}
        if any(" " in item.function for item in self.order):  # of integers that wrap
            tried |= {(1 << bits) + more for bits in (7, 8, 15, 16) for more in (-1, 0, 1)}
        unit = self.scalars.units.get(self.unknown, 1)
        least = least_of(self.unknown)
        low = -LARGE if least is None else least
        units = {number // unit * unit for number in tried}
        return sorted((n for n in units if low <= n < LARGE), key=lambda n: (abs(n), n))

    def _constants(self) -> list[int]:
        found: set[int] = set()
        for item in self.parts:
            number = self.scalars.bound.get(item) if isinstance(item, Expr) else item
            if isinstance(number, int) and item is not self.unknown:
                found.add(abs(number))
        return sorted(number for number in found if 0 < number < LARGE)


def _each(function: Callable[..., int], columns: list[Column]) -> list[int] | None:
    """Return what a function gives for each number: of scalars in columns, or that are the same for
    all; None where one of them is not known.
    """
    if None in columns:
        return None
    return [*map(function, *(repeat(one) if isinstance(one, int) else one for one in columns))]  # pyright: ignore
