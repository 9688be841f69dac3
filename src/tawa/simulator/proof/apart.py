"""Inputs that tell apart what answered alike in every run so far.

``cells`` changes one number of an input at a time. What two roles ask may differ where two numbers
meet only: one leaves something out where ``F == 13`` and ``K > 6``, and K was never more while F
was 13. So when all else was run, the questions of a survey are put in *classes* of those that had
one answer in each run that went there; what was always answered in one way is in a class with this
answer. For each class an input is looked for that divides it, and run. Each run divides a class, so
there are fewer of them than questions.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tawa.simulator.proof.cells import Given, Question, is_free
from tawa.simulator.proof.columns import OUTCOMES, computed
from tawa.simulator.proof.expressions import Expr, parts_of
from tawa.simulator.proof.functions import FUNCTIONS
from tawa.simulator.proof.numbers import LARGE
from tawa.simulator.proof.scalars import Scalars
from tawa.simulator.proof.words import least_of

_LONG = 64  # trips of any loop
_NUMBERS = 40  # of one unknown that are tried, the least
_FEW = 5  # constants whose sums and differences are tried
_TRIED = 3000  # inputs for one class
_DIVISIONS = ("idiv", "irem")
_LOOKED_AT = 200  # of those that divide it

Point: TypeAlias = dict[Expr, int]
Columns: TypeAlias = dict[Expr, NDArray[np.int64]]


class Apart:
    """The questions of a survey, and the inputs of runs that went wherever it did. What is `common`
    all roles ask that do something by the answer (`sharing.py`): they agree on what it is.
    """

    def __init__(
        self,
        scalars: Scalars,
        questions: Sequence[Question],
        common: Container[Question],
        runs: Iterable[Given],
    ) -> None:
        self.scalars, self.common = scalars, common
        self.names = scalars.names()
        self.here: Point = {item: scalars.bound[item] for item in self.names.values()}
        # What nothing was bound for did not matter.
        self.questions = [each for each in questions if _unknowns(each) <= self.here.keys()]
        self.unknowns = [_unknowns(question) for question in self.questions]
        self.all = _Table(self.questions)
        self.rows: list[tuple[int, ...]] = [self.all.answers(self.here)]
        for run in runs:
            if run.keys() >= self.names.keys():
                self.rows.append(self.all.answers({e: run[n] for n, e in self.names.items()}))

    def inputs(self) -> Iterator[Given]:
        """Yield inputs that divide classes; each is to be run before the next."""
        done = set[tuple[int, ...]]()
        while members := next((each for each in self._classes() if each not in done), None):
            found = self._dividing(members)
            if found is None or found[0]:
                done.add(members)
            else:
                self.rows.append(self.all.answers(found[1]))
            if found is not None:
                yield {name: found[1][item] for name, item in self.names.items()}

    def _classes(self) -> list[tuple[int, ...]]:
        """Return the classes that an input may divide."""
        alike: dict[tuple[Callable[..., int], tuple[int, ...]], list[int]] = {}
        for place, (outcome, _) in enumerate(self.questions):
            if self.unknowns[place]:
                answers = tuple([row[place] for row in self.rows])
                alike.setdefault((outcome, answers), []).append(place)
        return [
            tuple(places)
            for (_, answers), places in alike.items()
            if (len(places) > 1 or len(set(answers)) == 1)
            and not all(self.questions[place] in self.common for place in places)
        ]

    def _dividing(self, members: tuple[int, ...]) -> tuple[int, Point] | None:
        """Return an input that divides a class, if there is one, and how many questions beside it
        have there another answer than in the survey: the run may not come so far then.
        """
        columns = self._columns(members)
        if not columns:
            return None
        table = _Table([self.questions[place] for place in members])
        answers = table.columns(columns, self.here)
        divided = np.any(answers != answers[0], axis=0)
        first = self.rows[0][members[0]]
        if all(row[members[0]] == first for row in self.rows):
            divided |= np.any(answers != first, axis=0)
        some = np.flatnonzero(divided)
        some = some[:: max(1, len(some) // _LOOKED_AT)]
        columns = {item: column[some] for item, column in columns.items()}
        answers = self.all.columns(columns, self.here)
        short = np.max(answers, axis=0, initial=0) <= _LONG
        here = np.array(self.rows[0])[:, None]
        unlike = (answers != 0) != (here != 0)
        unlike[list(members)] = False
        beside = np.where(short, np.sum(unlike, axis=0), len(answers) + 1)
        if not np.any(short):
            return None
        place = int(np.argmin(beside))
        point = {item: int(column[place]) for item, column in columns.items()}
        return int(beside[place]), {**self.here, **point}

    def _columns(self, members: tuple[int, ...]) -> Columns:
        """Return the inputs to try: of two unknowns of a class at a time, then of all at random."""
        asked = frozenset[Expr]().union(*[self.unknowns[place] for place in members])
        free = [item for item in self.names.values() if item in asked]
        free = [item for item in free if is_free(item, self.names)]
        numbers = {item: self._numbers(members, item) for item in free}
        random = np.random.default_rng(0)
        found: dict[Expr, list[NDArray[np.int64]]] = {item: [] for item in free}
        pairs = list(combinations(free, 2)) or [(item, item) for item in free]
        for one, other in pairs:
            a, b = np.meshgrid(numbers[one], numbers[other], indexing="ij")
            a, b = a.ravel(), b.ravel()
            if len(a) * len(pairs) > _TRIED:
                some = np.sort(random.choice(len(a), max(1, _TRIED // len(pairs)), replace=False))
                a, b = a[some], b[some]
            for item, parts in found.items():
                parts.append(a if item is one else b if item is other else a * 0 + self.here[item])
        if len(free) > 2:
            for item, parts in found.items():
                parts.append(random.choice(numbers[item], _TRIED // 4))
        return {item: np.concatenate(parts) for item, parts in found.items()}

    def _numbers(self, members: tuple[int, ...], unknown: Expr) -> NDArray[np.int64]:
        parts = parts_of(part for place in members for part in self.questions[place][1])
        sizes = sorted({abs(item) for item in parts if isinstance(item, int)})
        sizes = [size for size in sizes if 0 < size < LARGE]
        sums = {b + sign * a for a, b in combinations(sizes[:_FEW], 2) for sign in (1, -1)}
        tried = set(range(-2, 9))
        for size in (*sizes, *sums):
            for base in (size, 2 * size, -size):
                tried |= {base - 1, base, base + 1}
        unit = self.scalars.units.get(unknown, 1)
        least = least_of(unknown)
        low = -LARGE if least is None else least
        units = {number // unit * unit for number in tried}
        found = sorted((n for n in units if low <= n < LARGE), key=lambda n: (abs(n), n))
        return np.array(found[:_NUMBERS], np.int64)


def _unknowns(question: Question) -> frozenset[Expr]:
    parts = parts_of(question[1])
    return frozenset(item for item in parts if isinstance(item, Expr) and item.unknown)


class _Table:
    """Computes the answers of questions, for an input or for many."""

    def __init__(self, questions: Sequence[Question]) -> None:
        self.questions = questions
        parts = parts_of(part for _, asked in questions for part in asked)
        expressions = [item for item in parts if isinstance(item, Expr) and not item.unknown]
        self.program = sorted(expressions, key=_serial)

    def answers(self, point: Point) -> tuple[int, ...]:
        """Return the answers for an input."""
        known: dict[object, int] = {**point}
        for item in self.program:
            known[item] = FUNCTIONS[item.function](*[known.get(part, part) for part in item.args])
        return tuple(
            [outcome(*[known.get(a, a) for a in asked]) for outcome, asked in self.questions]
        )

    def columns(self, columns: Columns, here: Point) -> NDArray[np.int64]:
        """Return the answers (questions x inputs) for what columns give, the rest as `here`; more
        than any number of trips where something is divided by 0, as in no launch that ends.
        """
        known: dict[object, Any] = {**here, **columns}
        count = len(next(iter(columns.values()), ()))
        endless = np.zeros(count, np.bool_)
        for item in self.program:
            parts = [known.get(part, part) for part in item.args]
            known[item] = computed(item.function, parts)
            if item.function.startswith(_DIVISIONS):
                endless |= np.equal(parts[1], 0)
        found = np.empty((len(self.questions), count), np.int64)
        for place, (outcome, asked) in enumerate(self.questions):
            parts = [known.get(part, part) for part in asked]
            found[place] = OUTCOMES[outcome](*parts)
        found[:, endless] = LARGE
        return found


def _serial(item: Expr) -> int:
    return item.serial
