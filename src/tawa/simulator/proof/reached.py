"""What a search for a number can reach at most, told of all unknowns and defaults at once.

Most searches that find no number for a wish look at some sixty numbers of each unknown, none of
which gives as much as it asks for. Columns of all these numbers tell so in a moment; then none of
them is nearer than what is at hand, and the search goes on without them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tawa.simulator.proof.columns import OUTCOMES, Columns
from tawa.simulator.proof.functions import NAMES
from tawa.simulator.proof.numbers import LARGE, NOWHERE, halves

if TYPE_CHECKING:
    from tawa.simulator.proof.probing import Formula, Function

Numbers: TypeAlias = NDArray[np.int64]

_WORTH = 100  # functions of one number after the other, that columns take as long as


def most_reached(
    formula: Formula,
    outcome: Function,
    defaults: Sequence[tuple[int, ...]],
    units: Sequence[int],
    tries: dict[int, list[int]],
) -> list[int] | None:
    """Return the greatest outcomes of what is looked at for each default and unknown, if all of
    them are less than the wish; of what divides by 0 throughout less than any. None where to ask
    is not worth it.
    """
    count = len(defaults) * len(units)
    worth = count * len(formula.operations) > _WORTH and outcome in OUTCOMES
    if not worth or any(LARGE % unit for unit in units):
        return None
    tried = {unit: _tried(unit, numbers) for unit, numbers in tries.items()}
    rows = [tried[unit] for _ in defaults for unit in units]
    sizes = [len(row) for row in rows]
    starts, varied = np.cumsum([0, *sizes[:-1]]), np.concatenate(rows)
    many = len(varied)
    given = np.repeat(np.repeat(np.array(defaults, np.int64), len(units), axis=0), sizes, axis=0)
    given[np.arange(many), np.repeat(np.arange(count) % len(units), sizes)] = varied
    columns = Columns([*np.ascontiguousarray(given.T), *formula.rest], many)
    everywhere = np.ones(many, np.bool_)
    for function, out, one, two, several in formula.operations:
        columns.compute(NAMES[function], several or (one, two), out, lambda: everywhere, 0)
    divided = np.zeros(many, np.bool_)
    for place in formula.divisors:
        divided |= np.equal(columns.all[place], 0)
    reached = np.clip(columns.ask(outcome, formula.wanted), -NOWHERE, NOWHERE).astype(np.int64)
    reached[divided] = NOWHERE
    # Where 0 divides by 0 the next number is looked at instead: nothing is halved so far.
    reached[divided & (varied == 0)] = -NOWHERE
    most = np.maximum.reduceat(reached, starts)
    most[np.logical_and.reduceat(divided, starts)] = -NOWHERE
    return most.tolist()


def _tried(unit: int, numbers: list[int]) -> Numbers:
    """Return what may be looked at where no outcome is as much as the wish: the numbers to try, and
    those between that lead to one end (see `number_for`).
    """
    return np.array([*dict.fromkeys((*numbers, *_between(unit)))], np.int64)


@lru_cache(maxsize=64)
def _between(unit: int) -> tuple[int, ...]:
    ways = [*halves(0, LARGE, unit, True), *halves(0, LARGE, unit, False)]
    return 0, unit, LARGE, *[way // unit * unit for way in ways]
