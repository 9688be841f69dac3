"""Outcomes of many numbers at a time are those of each, and searches try the same numbers."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from random import Random

import pytest

from tawa.simulator.proof import probing
from tawa.simulator.proof.functions import FUNCTIONS
from tawa.simulator.proof.numbers import LARGE, NOWHERE, number_for, numbers_to_try, trip_count
from tawa.simulator.proof.probing import Formula, Function, Operation, Question, Wanted

DIVIDE = FUNCTIONS["idiv"]


def question(operations: list[Operation], outcome: Function = int) -> Question:
    """Ask for the last of some places: two unknowns, a 7 and a 0, and what is computed."""
    rest = (7, 0, *[0 for _ in operations])
    divisors = tuple([operation[3] for operation in operations if operation[0] is DIVIDE])
    return Question(Formula(tuple(operations), rest, (3 + len(operations),), divisors), outcome)


@pytest.mark.parametrize(
    "operations",
    [
        [(DIVIDE, 4, 2, 0, ())],  # by the unknown itself
        [(operator.sub, 4, 0, 2, ()), (DIVIDE, 5, 1, 4, ())],  # by what is 0 for one number
        [(operator.mul, 4, 0, 3, ()), (DIVIDE, 5, 1, 4, ())],  # by what is 0 for all numbers
        [(DIVIDE, 4, 1, 3, ()), (operator.add, 5, 4, 0, ())],  # by 0
        [(FUNCTIONS["select"], 4, 0, 0, (0, 1, 2)), (operator.add, 5, 4, 4, ())],
        [(operator.add, 4, 1, 2, ())],  # whatever the number is
    ],
)
def test_many_numbers_at_a_time_are_as_one_after_the_other(operations: list[Operation]) -> None:
    numbers = [7, 0, -7, 3, 14, 1 << 40]
    line = question(operations).line((5, 9), 0)
    together = line.look(numbers)
    alone = [question(operations).line((5, 9), 0).look([number])[0] for number in numbers]
    assert together == alone == line.look(numbers)
    assert all(found == NOWHERE for found in together) or not line.never


@pytest.mark.parametrize(("most", "wish", "found"), [(9, 3, 129), (2, 3, 65), (2, 7, 65)])
def test_of_trips_that_are_too_few_the_nearest_is_chosen(most: int, wish: int, found: int) -> None:
    looked: set[int] = set()

    def look(numbers: Sequence[int]) -> list[int]:
        looked.update(numbers)
        return [min(trip_count(number, 0, 64), most) for number in numbers]

    numbers = numbers_to_try(wish, 1, [64])
    assert number_for(look, wish, 1, [numbers], 64, True) == found
    assert all(0 <= number <= LARGE or most == 9 for number in looked)


def drawn(random: Random) -> Formula:
    """Return a formula of three unknowns: the bounds of a loop by 64."""
    operations: list[Operation] = []
    divisors: list[int] = []
    for out in range(8, 24):
        name = random.choice(["add", "sub", "mul", "idiv", "irem", "min", "max", "max"])
        one, two = (random.randrange(out) for _ in range(2))
        operations.append((FUNCTIONS[name], out, one, two, ()))
        if name in ("idiv", "irem"):
            divisors.append(two)
    rest = (1, 0, 64, 127, 63, *[0 for _ in operations])
    return Formula(tuple(operations), rest, (23, random.randrange(24), 5), tuple(divisors))


def test_what_is_not_looked_at_one_by_one_is_no_nearer(monkeypatch: pytest.MonkeyPatch) -> None:
    random, asked = Random(1), 0
    for number in range(60):
        formula = drawn(random)
        wanted = [
            Wanted(
                *(wish, bool(number % 2), 1, (1, 63, 64), (1, 16, 1)),
                *(((256, 256, 3), (64, 64, 2), (0, 0, 0)), (None, None, 0), bool(number % 3)),
            )
            for wish in (2, 3, 7, 18)
        ]
        found = Question(formula, trip_count)
        answers = [found.answer(each) for each in wanted]
        with monkeypatch.context() as without:
            without.setattr(probing, "most_reached", lambda *_: None)  # pyright: ignore
            slow = Question(formula, trip_count)
            assert answers == [slow.answer(each) for each in wanted]
        asked += len(slow.lines) > len(found.lines)
    assert asked > 12
