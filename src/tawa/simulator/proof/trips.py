"""The trips of a loop as a function of the unknowns in its bounds, of many numbers at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tawa.simulator.proof.cells import Question
from tawa.simulator.proof.columns import Column, Columns
from tawa.simulator.proof.expressions import Expr, Expressions, Scalar, parts_of
from tawa.simulator.proof.scalars import Scalars

Numbers: TypeAlias = NDArray[np.int64]
Point: TypeAlias = Mapping[Expr, int]
"""Numbers of unknowns that are not what they were."""

QUOTIENTS = frozenset({"idiv", "irem"})


@dataclass(frozen=True, slots=True)
class Step:
    """An expression that is computed from places, its own, and the unknowns that it depends on. One
    that `divides` is not to be computed with a second part that is zero.
    """

    item: Expr
    parts: list[int]
    out: int
    unknowns: frozenset[Expr]
    divides: bool


class Plan:
    """How bounds are computed from unknowns that are `free`: the same in all surveys. `items` stand
    in places, `steps` compute some of them, `wanted` are the places of the bounds.
    """

    def __init__(
        self, expressions: Expressions, bounds: Sequence[Scalar], free: Sequence[Expr]
    ) -> None:
        self.places: dict[Scalar, int] = {}
        self.steps: list[Step] = []
        for item in free:
            self._place_of(item)
        changing, unknowns_of = frozenset(free), expressions.unknowns_of
        for item in in_order(bounds):
            if unknowns := unknowns_of(item) & changing:
                parts = [self._place_of(part) for part in item.args]
                out, divides = self._place_of(item), item.function in QUOTIENTS
                self.steps.append(Step(item, parts, out, unknowns, divides))
        self.wanted = [self._place_of(item) for item in bounds]

    @property
    def items(self) -> Iterable[Scalar]:
        """What stands in places, in their order."""
        return self.places

    def _place_of(self, item: object) -> int:
        assert isinstance(item, (int, Expr))
        return self.places.setdefault(item, len(self.places))


class Plans:
    """The plans of a proof, each made once."""

    def __init__(self) -> None:
        self._made: dict[tuple[object, ...], Plan] = {}

    def of(
        self, expressions: Expressions, bounds: tuple[Scalar, ...], free: Iterable[Expr]
    ) -> Plan:
        """Return how bounds are computed from free unknowns."""
        unknowns = tuple(free)
        found = self._made.get((bounds, unknowns))
        if found is None:
            found = self._made[bounds, unknowns] = Plan(expressions, bounds, unknowns)
        return found


class Trips:
    """The trips of a loop as a function of the unknowns that a plan is made for, the others as they
    are: -1 where something that has changed is divided by zero.
    """

    def __init__(self, scalars: Scalars, question: Question, plan: Plan) -> None:
        self._outcome = question[0]
        self._plan = plan
        # What stayed open, where the ends of loops were chosen freely, may be any number.
        self._start = [scalars.value(item) or 0 for item in plan.items]
        # What was given a number is that, whatever its parts are, as long as these do not change.
        self._kept = scalars.assigned.intersection([step.item for step in plan.steps])
        self._others: dict[frozenset[Expr], tuple[list[int], list[Step]]] = {}

    def at(self, given: Point) -> int:
        """Return the trips that numbers give."""
        plan = self._plan
        start, steps = self._changing(frozenset(given))
        known = [*start]
        for item, number in given.items():
            known[plan.places[item]] = number
        for step in steps:
            parts = [known[place] for place in step.parts]
            if step.divides and not parts[1]:
                return -1
            known[step.out] = step.item.meaning(*parts)
        return self._outcome(*[known[place] for place in plan.wanted])

    def _changing(self, unknowns: frozenset[Expr]) -> tuple[list[int], list[Step]]:
        """Return the numbers of what some unknowns do not change, and the steps of what they do."""
        found = self._others.get(unknowns)
        if found is None:
            known = [*self._start]
            steps: list[Step] = []
            for step in self._plan.steps:
                if not step.unknowns.isdisjoint(unknowns):
                    steps.append(step)
                elif step.item not in self._kept:
                    known[step.out] = step.item.meaning(*[known[place] for place in step.parts])
            found = self._others[unknowns] = known, steps
        return found

    def of(self, several: Sequence[tuple[Numbers, Expr, Point]]) -> list[Numbers]:
        """Return the trips that the numbers of one unknown each give, with one number of others."""
        plan = self._plan
        many = [len(numbers) for numbers, _, _ in several]
        total = sum(many)
        changed = [{unknown, *others} for _, unknown, others in several]
        columns: list[Column] = [*self._start]
        begin = 0
        for numbers, unknown, others in several:
            end = begin + len(numbers)
            for item, given in (*others.items(), (unknown, numbers)):
                place = plan.places[item]
                if isinstance(columns[place], int):
                    columns[place] = np.full(total, columns[place])
                columns[place][begin:end] = given
            begin = end
        known = Columns(columns, total)
        failed: NDArray[np.bool_] | None = None
        for step in plan.steps:

            def does(unknowns: frozenset[Expr] = step.unknowns) -> NDArray[np.bool_]:
                return np.repeat([not unknowns.isdisjoint(items) for items in changed], many)

            same = self._start[step.out]
            known.compute(step.item.function, step.parts, step.out, does, same)
            if step.divides and _has_zero(known.all[step.parts[1]]):
                zero = does() & np.equal(known.all[step.parts[1]], 0)
                failed = zero if failed is None else failed | zero
            if step.item in self._kept:
                known.put(np.where(does(), known.all[step.out], same), step.out)
        found = known.ask(self._outcome, plan.wanted)
        if failed is not None:
            found = np.where(failed, -1, found)
        ends = np.cumsum(many).tolist()
        return [found[end - count : end] for end, count in zip(ends, many, strict=True)]


def in_order(scalars: Iterable[object]) -> list[Expr]:
    """Return what scalars are computed by from unknowns, the parts of each before it."""
    found = (item for item in parts_of(scalars) if isinstance(item, Expr))
    return sorted((item for item in found if not item.unknown), key=_serial)


def _serial(item: Expr) -> int:
    """Return the place of an expression among all: its parts were made before it."""
    return item.serial


def _has_zero(column: Column) -> bool:
    return not column.all() if isinstance(column, np.ndarray) else not column
