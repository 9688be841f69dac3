"""Scalars of the proof: numbers where they are known, expressions over unknowns where not.

An *unknown* is an argument, a block id, an extent of the grid, or a word of memory. Memory that
nobody writes gives one unknown for each address, so that two roles that compute the same bound
agree on it; memory that may change gives a new unknown at each read. An unknown is bound to a
number only when a trip count or a condition depends on it: then the number that gives the wanted
outcome is searched for. Everything that depends on it follows, in every role: no combination of
outcomes is tried that no input produces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import TYPE_CHECKING, Any, TypeAlias

from tawa.simulator.proof.answers import Answers, Asker, Course, is_same_word
from tawa.simulator.proof.expressions import Expr, Expressions, Scalar
from tawa.simulator.proof.formula import formula_of
from tawa.simulator.proof.functions import FUNCTIONS
from tawa.simulator.proof.numbers import LARGE, NOWHERE, itself, truth
from tawa.simulator.proof.probing import Answer, Questions, Wanted
from tawa.simulator.proof.words import Value, Words, least_of, name_of, placed, preference

if TYPE_CHECKING:
    from tawa.simulator.proof.configuration import Configuration

_LAUNCH = ("block_id", "cluster_id", "num_blocks", "num_clusters", "grid_extent")
_EQUAL = {"eq": 1, "ne": 0}
_DRAWS = 60

Name: TypeAlias = "tuple[object, ...]"
"""What an unknown is called: its kind and key, or the function and the arguments of a word."""


class Scalars:
    """What the unknowns of one run are bound to. `questions` and `expressions` are kept over the
    runs of a kernel, and so are their `answers`: Repeated is raised when all that is to come is
    known to be answered as in another run.
    """

    def __init__(
        self,
        configuration: Configuration,
        numbers: tuple[int, ...] = (),
        questions: Questions | None = None,
        answers: Answers | None = None,
        expressions: Expressions | None = None,
    ) -> None:
        self.course = Course(answers) if answers is not None else None
        # Drawn from in every other search: few constants are worth more where they suffice.
        self.numbers = numbers if configuration.seed % 2 else ()
        self.questions = questions or Questions()
        self.block = configuration.block
        self.blocks = configuration.blocks
        self.turn = configuration.turn
        # What is large bounds nothing, and a survey asks what is asked then; what is small makes
        # other loops, and so a run, short.
        large = configuration.survey or configuration.large
        self.scales = (4, 1, 0) if large else (1, 4, 0)
        self.late, self.equal = configuration.late, configuration.equal
        self.launched = configuration.launched
        # What numbers are chosen by, besides what they are chosen for (see `settle`).
        self._manner = (self.block, self.blocks, self.turn, self.scales, self.late, self.launched)
        self.given = configuration.given
        self.random = Random(configuration.seed) if configuration.seed else None
        self.anywhere = configuration.anywhere
        self.folds = not configuration.survey
        """Whether a choice is what it is: a survey keeps it, and what the other side would be."""
        self.expressions = expressions or Expressions()
        self.units = self.expressions.units
        self.bound: dict[Expr, int] = {}
        self.assigned: set[Expr] = set()
        self._known: dict[Expr, int] = {}
        # Those found open, by an unknown that kept each so: they are until it is bound.
        self._open: dict[Expr, Expr] = {}
        self._words = Words()
        self._met: dict[Expr, Expr] = {}  # unknowns of this run, words with those they are the same

    def unknown(self, kind: str, *key: object, unit: int = 1) -> Expr:
        """Return the unknown of a key; `unit` is a number its value is a multiple of."""
        return self.take(self.expressions.unknown(kind, key, unit))

    def take(self, unknown: Expr) -> Expr:
        """Take an unknown up that is no word, and return it."""
        if unknown not in self._met:
            self._meet(unknown)
        return unknown

    def _meet(self, item: Expr) -> Expr:
        """Take an unknown up, which has the number that it is given; return the word that it is."""
        found = item
        if item.function == "load":
            self.expressions.words.add(item)
            found = self._words.find(item, self.value)
            if found is not item:
                self.answered(is_same_word, (item, found), 1)
        self._met[item] = found
        if self.given and found not in self.bound:
            number = self.given.get(name_of(found, self.value))
            if number is not None:
                self._bind([found], [number])
        return found

    def made(self) -> int:
        """Return how much was read and chosen: what is computed follows from the rest alone."""
        return len(self._met) + len(self.bound) + len(self.assigned)

    def known(self) -> dict[Any, Any]:
        """Return the numbers of unknowns and expressions that were looked at so far."""
        return self._known.copy()

    def to_be_given(self, item: Expr, value: Value) -> int | None:
        """Return the number that an unknown has, or will be given when it is met, by what its parts
        will be; None where it will be open.
        """
        met = self._met.get(item)
        if met is not None or not self.given:
            return self.bound.get(met or item)
        if item.function == "load" and (word := self._words.at(placed(item, value))) is not None:
            return self.bound.get(word)
        return self.given.get(name_of(item, value))

    def answered(
        self,
        outcome: Callable[..., int],
        scalars: tuple[Scalar, ...],
        answer: int | None,
        by: Asker | None = None,
    ) -> None:
        """Note what was asked of scalars, and the answer. Raises Repeated."""
        if self.course is not None:
            for item in scalars:
                if item.__class__ is not int:
                    self.course.answered(self, (outcome, scalars), answer, by)
                    return

    def names(self) -> dict[Name, Expr]:
        """Return the unknowns that are bound, by name."""
        return {name_of(item, self.value): item for item in self.bound}

    def is_launch(self) -> bool:
        """Tell whether the numbers of blocks and extents are such as some launch has."""
        bound = self.bound.items()
        return all((least := least_of(item)) is None or least <= n for item, n in bound)

    def of_launch(self) -> dict[tuple[object, ...], int]:
        """Return the numbers of the block and of the grid, by name, as far as they are chosen."""
        bound = self.bound.items()
        return {(item.function, *item.args): n for item, n in bound if item.function in _LAUNCH}

    def apply(self, function: str, *args: Scalar) -> Scalar:
        """Return function(args): a number where all are known, else an expression."""
        meaning = FUNCTIONS.get(function)
        if meaning is not None:
            for arg in args:
                if arg.__class__ is not int:
                    break
            else:
                return meaning(*args)
        if function == "select":
            condition = self.value(args[0])
            self.answered(itself, args[:1], condition)
            if condition is not None and (self.folds or not isinstance(args[0], Expr)):
                return args[1] if condition else args[2]
        found = self.expressions.apply(function, args)
        if meaning is None and function != "not":
            return self._met.get(found) or self._meet(found)
        return found

    def value(self, scalar: Scalar) -> int | None:
        """Return the number a scalar is under the present binding, None when still open."""
        if not isinstance(scalar, Expr):
            return scalar
        known = self._known.get(scalar)
        if known is None:
            unknown = self._open.get(scalar)
            if unknown is None or unknown in self.bound:
                return self._evaluate(scalar)
        return known

    def _evaluate(self, scalar: Expr) -> int | None:
        """Compute a scalar from its parts, without recursion: a while loop's are thousands deep."""
        known: dict[Any, Any] = self._known
        still_open, bound = self._open, self.bound
        path = [scalar]
        while path:
            item = path[-1]
            if item.unknown:
                unknown = item
            else:
                for part in item.parts:
                    if part not in known:
                        path.append(part)
                        break
                else:
                    path.pop()
                    args = item.args
                    if len(args) == 2:
                        one, other = args
                        number = item.meaning(known.get(one, one), known.get(other, other))
                    else:
                        number = item.meaning(*[known.get(part, part) for part in args])
                    known[item] = number
                    continue
                unknown = still_open.get(path[-1])
            if unknown is not None and unknown not in bound:
                for item in path:
                    still_open[item] = unknown
                return None
        return known[scalar]

    def _bind(self, unknowns: list[Expr], numbers: Iterable[int]) -> None:
        bound, known = self.bound, self._known
        for item, number in zip(unknowns, numbers, strict=True):
            bound[item] = number
            known.setdefault(item, number)
        self._words.bound(unknowns)

    def _choose(self, unknowns: list[Expr], numbers: Iterable[int]) -> None:
        self._bind(unknowns, numbers)
        if self.course is not None:
            self.course.new = True

    def assign(self, scalar: Expr, number: int) -> None:
        """Give an expression a number, whatever its parts are."""
        self.assigned.add(scalar)
        self._known[scalar] = number
        self._open.clear()
        self._words.assigned()

    def open(self, scalars: tuple[Scalar, ...]) -> list[Expr]:
        """Return the unbound unknowns of some scalars, in order of appearance."""
        return self._unbound(self.expressions.parts_of(scalars))

    def _unbound(self, parts: Iterable[object]) -> list[Expr]:
        bound = self.bound
        return [
            item for item in parts if isinstance(item, Expr) and item.unknown and item not in bound
        ]

    def settle(
        self, scalars: tuple[Scalar, ...], outcome: Callable[..., int], wish: int, ragged: bool
    ) -> int:
        """Bind the unknowns of `scalars` so that outcome(*values) is `wish`, or near it.

        `ragged` prefers the smallest number that gives the wish to the largest. Returns the
        outcome reached.
        """
        if self.random is not None:
            parts = self.expressions.parts_of(scalars)
            # What is chosen here may be compared with any constant of the kernel later.
            pool = [*self._sizes(parts), *self.numbers]
            return self._draw(scalars, outcome, wish, self._in_turn(parts), pool)
        if self.assigned:  # what is known does not follow from what is bound alone
            found = self._found(scalars, outcome, wish, ragged)
        else:
            known = [self.bound.get(item) for item in self.expressions.unknown_parts_of(scalars)]
            asked = scalars, outcome, wish, ragged, self._manner, tuple(known)
            found = self.questions.settled.get(asked)
            if found is None:
                found = self._found(scalars, outcome, wish, ragged)
                self.questions.settled[asked] = found
        unknowns, (reached, numbers) = found
        self._choose(unknowns, numbers)
        return reached

    def _found(
        self, scalars: tuple[Scalar, ...], outcome: Callable[..., int], wish: int, ragged: bool
    ) -> tuple[list[Expr], Answer]:
        """Return the open unknowns of some scalars and the numbers that are looked for."""
        parts = self.expressions.parts_of(scalars)
        unknowns, constants = self._in_turn(parts), self._sizes(parts)
        question = self.questions.ask(formula_of(scalars, unknowns, self.value), outcome)
        # Where one is chosen, no others have defaults.
        scales = self.scales if len(unknowns) > 1 else (0,)
        wanted = Wanted(
            wish,
            ragged,
            self.late,
            tuple(constants),
            tuple([self.units.get(item, 1) for item in unknowns]),
            tuple([self._defaults(unknowns, scale, constants) for scale in scales]),
            tuple([least_of(item) for item in unknowns]),
            self.launched,
        )
        return unknowns, question.answer(wanted)

    def _in_turn(self, parts: Iterable[object]) -> list[Expr]:
        """Return the unknowns that are open, in the order in which they are chosen."""
        unknowns = sorted(self._unbound(parts), key=preference)
        first = self.turn % len(unknowns)
        return unknowns[first:] + unknowns[:first]

    def decide(self, condition: Scalar, wish: int, ragged: bool) -> int:
        """Bind what a condition depends on to what gives the wish; returns the outcome."""
        if isinstance(condition, Expr) and _EQUAL.get(condition.function) == wish:
            # Two numbers that are to be equal are looked for by how far they are apart.
            one, other = condition.args
            apart = self.settle((one, other), int.__sub__, 0, ragged)  # pyright: ignore[reportArgumentType]
            return wish if apart == 0 else 1 - wish
        if isinstance(condition, Expr) and condition.function in _EQUAL and self.equal:
            self._tell_apart(condition, ragged)
            if (known := self.value(condition)) is not None:
                return known
        return self.settle((condition,), truth, wish, ragged)

    def _tell_apart(self, condition: Expr, ragged: bool) -> None:
        """Bind one of two scalars that are to be unlike to a number that the way asks for."""
        one, other = condition.args[::-1]
        assert isinstance(one, (int, Expr))
        assert isinstance(other, (int, Expr))
        if self.value(one) is not None:
            one, other = other, one
        known = self.value(other)
        wanted = next((number for number in self.equal if number != known), None)
        if known is not None and wanted is not None:
            self.settle((one,), itself, wanted, ragged)

    def _draw(
        self,
        scalars: tuple[Scalar, ...],
        outcome: Callable[..., int],
        wish: int,
        unknowns: list[Expr],
        constants: list[int],
    ) -> int:
        """Bind the unknowns to numbers drawn at random: the best of some draws."""
        assert self.random is not None
        compute = formula_of(scalars, unknowns, self.value)
        best: tuple[int, int, list[int]] | None = None
        for _ in range(_DRAWS):
            trial = [self._random(item, constants) for item in unknowns]
            values, exact = compute(trial)
            reached = outcome(*values)
            away = abs(reached - wish) if exact else NOWHERE
            if best is None or away < best[0]:
                best = (away, reached, trial)
            if away == 0:
                break
        assert best is not None
        self._choose(unknowns, best[2])
        return best[1]

    def _random(self, item: Expr, constants: list[int]) -> int:
        assert self.random is not None
        if self.anywhere and item.function == "block_id":
            return self.random.choice(constants) * self.random.randrange(3) + self.random.randrange(
                2
            )
        if item.function in ("block_id", "cluster_id", "num_blocks", "num_clusters"):
            return self._default(item, 0, constants)
        number = self.random.choice(constants) * self.random.randrange(6)
        number += self.random.choice((0, 0, self.random.randrange(1 + constants[-1])))
        unit = self.units.get(item, 1)
        return max(number // unit * unit, least_of(item) or -LARGE)

    def _defaults(self, unknowns: list[Expr], scale: int, constants: list[int]) -> tuple[int, ...]:
        return tuple([self._default(item, scale, constants) for item in unknowns])

    def _default(self, item: Expr, scale: int, constants: list[int]) -> int:
        match item.function:
            case "block_id" | "cluster_id":
                return self.block
            case "num_blocks" | "num_clusters":
                return self.blocks
            case "grid_extent":
                return 1
            case _:
                unit = self.units.get(item, 1)
                return -(-scale * max(constants[-1], 1) // unit) * unit

    def _sizes(self, parts: Iterable[object]) -> list[int]:
        """Return the numbers that stand in scalars, or are bound, in order."""
        bound = self.bound
        found = [bound.get(item, 0) if isinstance(item, Expr) else item for item in parts]
        return sorted({item for item in found if isinstance(item, int) and 0 < item < LARGE}) or [1]
