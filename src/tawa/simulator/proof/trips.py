"""The trips of a loop as a function of the unknowns in its bounds, of many numbers at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tawa.simulator.proof.cells import Question
from tawa.simulator.proof.columns import Column, Columns
from tawa.simulator.proof.expressions import Expr, parts_of
from tawa.simulator.proof.functions import FUNCTIONS
from tawa.simulator.proof.scalars import Scalars

Numbers: TypeAlias = NDArray[np.int64]
Point: TypeAlias = Mapping[Expr, int]
"""Numbers of unknowns that are not what they were."""

QUOTIENTS = frozenset({"idiv", "irem"})


@dataclass(frozen=True, slots=True)
class Step:
    """A function of places, the place of its value, and the unknowns that it depends on. With the
    numbers of the survey it is the `same`, which is `kept` where it was given that number.
    """

    function: str
    parts: list[int]
    out: int
    unknowns: frozenset[Expr]
    same: int
    kept: bool


class Trips:
    """The trips of a loop as a function of the unknowns that are `free`, the others as they are: -1
    where something that has changed is divided by zero.
    """

    def __init__(self, scalars: Scalars, question: Question, free: Iterable[Expr]) -> None:
        self._outcome, bounds = question
        self._scalars = scalars
        self._start: list[int] = []
        self._places: dict[object, int] = {}
        self._steps: list[Step] = []
        for item in free:
            self._places[item] = self._put(item)
        changing, unknowns_of = frozenset(free), scalars.expressions.unknowns_of
        for item in in_order(bounds):
            if unknowns := unknowns_of(item) & changing:
                parts = [self._place_of(part) for part in item.args]
                self._places[item] = out = self._put(item)
                same, kept = self._start[out], item in scalars.assigned
                self._steps.append(Step(item.function, parts, out, unknowns, same, kept))
        self._wanted = [self._place_of(item) for item in bounds]

    def _place_of(self, item: object) -> int:
        found = self._places.get(item)
        return self._put(item) if found is None else found

    def _put(self, item: object) -> int:
        assert isinstance(item, (int, Expr))
        # What stayed open, where the ends of loops were chosen freely, may be any number.
        self._start.append(self._scalars.value(item) or 0)
        return len(self._start) - 1

    def at(self, given: Point) -> int:
        """Return the trips that numbers give."""
        known = [*self._start]
        for item, number in given.items():
            known[self._places[item]] = number
        for step in self._steps:
            parts = [known[place] for place in step.parts]
            same = step.unknowns.isdisjoint(given)
            if step.function in QUOTIENTS and not parts[1] and not same:
                return -1
            kept = same and step.kept
            known[step.out] = step.same if kept else FUNCTIONS[step.function](*parts)
        return self._outcome(*[known[place] for place in self._wanted])

    def of(self, several: Sequence[tuple[Numbers, Expr, Point]]) -> list[Numbers]:
        """Return the trips that the numbers of one unknown each give, with one number of others."""
        many = [len(numbers) for numbers, _, _ in several]
        changed = [{unknown, *others} for _, unknown, others in several]
        columns: list[Column] = [*self._start]
        begin = 0
        for numbers, unknown, others in several:
            end = begin + len(numbers)
            for item, given in (*others.items(), (unknown, numbers)):
                place = self._places[item]
                if isinstance(columns[place], int):
                    columns[place] = np.full(sum(many), columns[place])
                columns[place][begin:end] = given
            begin = end
        known = Columns(columns, sum(many))
        failed = np.zeros(sum(many), np.bool_)
        for step in self._steps:

            def does(unknowns: frozenset[Expr] = step.unknowns) -> NDArray[np.bool_]:
                return np.repeat([not unknowns.isdisjoint(items) for items in changed], many)

            known.compute(step.function, step.parts, step.out, does, step.same)
            if step.function in QUOTIENTS and _has_zero(known.all[step.parts[1]]):
                failed |= does() & np.equal(known.all[step.parts[1]], 0)
            if step.kept:
                known.put(np.where(does(), known.all[step.out], step.same), step.out)
        found = np.where(failed, -1, known.ask(self._outcome, self._wanted))
        return np.split(found, np.cumsum(many)[:-1])


def in_order(scalars: Iterable[object]) -> list[Expr]:
    """Return what scalars are computed by from unknowns, the parts of each before it."""
    found = (item for item in parts_of(scalars) if isinstance(item, Expr))
    return sorted((item for item in found if not item.unknown), key=_serial)


def _serial(item: Expr) -> int:
    """Return the place of an expression among all: its parts were made before it."""
    return item.serial


def _has_zero(column: Column) -> bool:
    return not column.all() if isinstance(column, np.ndarray) else not column
