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
from itertools import combinations, islice, product
from operator import attrgetter
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tawa.simulator.proof.columns import Column, Columns
from tawa.simulator.proof.expressions import Expr, Scalar
from tawa.simulator.proof.numbers import LARGE
from tawa.simulator.proof.rules import Unproved
from tawa.simulator.proof.scalars import Name, Scalars, itself
from tawa.simulator.proof.words import least_of

Question: TypeAlias = tuple[Callable[..., int], tuple[Scalar, ...]]
"""What is asked of some scalars: the trips of a loop by its bounds, whether a condition holds."""

Given: TypeAlias = Mapping[Name, int]
Vector: TypeAlias = tuple[int, ...]

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
    asked: list[_Asked] = []
    for name, unknown in bound.items():
        of_it = about.get(unknown, [])
        few = len(of_it) < 2 or not any(each in new for each in of_it)
        if not few and is_free(unknown, bound):
            each = _Asked(scalars, name, unknown, of_it)
            beside = {item: here[item] for item, expr in bound.items() if expr in each.others}
            each.ran |= {run[name] for run in others if _differ_in(name, beside, run)}
            asked.append(each)
    for each, results in zip(asked, _outcomes(scalars, asked, many), strict=True):
        known, found = set(results[: len(each.ran)]), 0
        for number, outcomes in zip(each.tried, results[len(each.ran) :], strict=True):
            if outcomes is None or outcomes in known:
                continue
            known.add(outcomes)
            yield here | {each.name: number}
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
    """The questions about one unknown, as a function of its number; the others stay as they are.
    Those that it `ran` with, and those to be `tried`, small ones first.
    """

    def __init__(
        self, scalars: Scalars, name: Name, unknown: Expr, questions: list[Question]
    ) -> None:
        self.scalars, self.name, self.unknown, self.questions = scalars, name, unknown, questions
        scalars_asked = tuple([item for _, parts in questions for item in parts])
        self.parts = scalars.expressions.parts_of(scalars_asked)
        self.others = {part for part in self.parts if part is not unknown}
        self.ran = {scalars.bound[unknown]}
        self.tried = self._numbers()

    def _wraps(self) -> bool:
        """Tell whether integers that wrap are computed from the unknown."""
        unknowns_of = self.scalars.expressions.unknowns_of
        parts = (item for item in self.parts if isinstance(item, Expr) and not item.unknown)
        return any(" " in item.function and self.unknown in unknowns_of(item) for item in parts)

    def _numbers(self) -> list[int]:
        constants = self._constants()
        steps = {0, *constants, *(b - a for a, b in combinations(constants[:_FEW], 2))}
        tried = set(range(-2, _FEW))
        for size in steps:
            for base in (size, 2 * size, -size):
                tried |= {base - 1, base, base + 1}
        if self._wraps():
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


def _outcomes(scalars: Scalars, asked: list[_Asked], many: int) -> Iterator[list[Vector | None]]:
    """Yield the outcomes for each number of each unknown, None where it is not to be run: loops
    would be very long, or something is asked that nothing was bound for.
    """
    if not asked:
        return
    numbers = [[*each.ran, *each.tried] for each in asked]
    ends = np.cumsum([len(each) for each in numbers])
    table = _Table(scalars, asked, numbers)
    for each, end, tried in zip(asked, ends.tolist(), numbers, strict=True):
        here = slice(end - len(tried), end)
        if any(scalars.value(item) is None for _, parts in each.questions for item in parts):
            yield [None] * len(tried)
            continue
        found = np.array([table.answers(question)[here] for question in each.questions])
        most = [many + 1 if outcome is not itself else _LONG for outcome, _ in each.questions]
        long = np.max(found, axis=0) > _LONG
        rows = np.minimum(found, np.array(most)[:, None]).T.tolist()
        yield [None if late else tuple(row) for row, late in zip(rows, long.tolist(), strict=True)]


class _Table:
    """The questions about some unknowns, with numbers of one after the other, the others as they
    are.
    """

    def __init__(self, scalars: Scalars, asked: list[_Asked], numbers: list[list[int]]) -> None:
        self._scalars, total = scalars, sum(map(len, numbers))
        self._places: dict[object, int] = {}
        self._start: list[Column] = []
        self._answers: dict[Question, NDArray[Any]] = {}
        begin = 0
        for each, tried in zip(asked, numbers, strict=True):
            column = np.full(total, scalars.value(each.unknown), np.int64)
            column[begin : begin + len(tried)] = tried
            begin += len(tried)
            self._places[each.unknown] = len(self._start)
            self._start.append(column)
        changing = frozenset(self._places)
        parts = dict.fromkeys(item for each in asked for item in each.parts)
        made = [item for item in parts if isinstance(item, Expr) and not item.unknown]
        unknowns_of = scalars.expressions.unknowns_of
        order: list[tuple[Expr, list[int], int]] = []
        for item in sorted(made, key=attrgetter("serial")):  # what it is made of was made before
            if not changing.isdisjoint(unknowns_of(item)):
                places = [self._place_of(part) for part in item.args]
                order.append((item, places, self._place_of(item)))
        for item in parts:
            self._place_of(item)
        self._columns = Columns(self._start, total)
        for item, places, out in order:

            def changed(unknowns: frozenset[Expr] = unknowns_of(item)) -> NDArray[np.bool_]:
                return np.repeat([e.unknown in unknowns for e in asked], [*map(len, numbers)])

            self._columns.compute(item.function, places, out, changed, self._start[out])

    def _place_of(self, item: object) -> int:
        place = self._places.get(item)
        if place is None:
            assert isinstance(item, (int, Expr))
            place = self._places[item] = len(self._start)
            self._start.append(self._scalars.value(item) or 0)  # what is open is not looked at
        return place

    def answers(self, question: Question) -> NDArray[Any]:
        """Return the outcomes of a question."""
        found = self._answers.get(question)
        if found is None:
            outcome, parts = question
            places = [self._place_of(part) for part in parts]
            found = self._answers[question] = self._columns.ask(outcome, places)
        return found
