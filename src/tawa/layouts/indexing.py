"""Index maps as arithmetic: from a table of integers to the C expression that computes it.

Layouts give tables (register -> register, lane -> byte offset). Code wants formulas over digits,
``r / 2 % 2``, which fold to constants once a loop over registers is unrolled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from tawa.errors import InternalError


@dataclass(frozen=True, slots=True)
class Digit:
    """One term of a mixed-radix sum: ``index / divisor % extent * factor``."""

    divisor: int
    extent: int
    factor: int


@dataclass(frozen=True, slots=True)
class Formula:
    """``start`` plus a sum of digits of an index below `length`."""

    length: int
    start: int
    digits: tuple[Digit, ...]

    def __call__(self, index: int) -> int:
        """Return the value at `index`."""
        return self.start + sum(
            index // digit.divisor % digit.extent * digit.factor for digit in self.digits
        )

    def render(self, index: str) -> str:
        """Return a C expression of `index` (an atom: a name, a number or in parentheses)."""
        if index.isdigit():
            return str(self(int(index)))
        terms = [self._term(digit, index) for digit in self.digits]
        if self.start or not terms:
            terms.append(str(self.start))
        return " + ".join(terms)

    def _term(self, digit: Digit, index: str) -> str:
        text = index
        if digit.divisor > 1:
            text += f" / {digit.divisor}"
        if digit.divisor * digit.extent < self.length:
            text += f" % {digit.extent}"
        if digit.factor != 1:
            text += f" * {digit.factor}"
        return text


def fit(table: Sequence[int], uneven: bool = False) -> Formula | None:
    """Return the formula of a table, None where no sum of digits equals it. In an `uneven` one the
    last digit may have fewer than all of its values: of 48 columns in panels of 32, say.
    """
    return _fit(tuple(table), uneven)


def formula_of(table: Sequence[int], what: str) -> Formula:
    """Return the formula of a table that must have one. Raises InternalError, of `what`."""
    if (found := fit(table)) is None:
        raise InternalError(f"{what} at {tuple(table)} have no formula")
    return found


@lru_cache(maxsize=1024)
def _fit(table: tuple[int, ...], uneven: bool) -> Formula | None:
    length = len(table)
    digits: list[Digit] = []
    reach = 1
    while reach < length:
        if length % reach and not uneven:
            return None
        if (extent := _run(table, reach, uneven)) == 1:
            return None
        factor = table[reach] - table[0]
        if factor:
            digits.append(Digit(reach, extent, factor))
        reach *= extent
    formula = Formula(length, table[0], tuple(digits))
    agrees = all(formula(index) == value for index, value in enumerate(table))
    return formula if agrees else None


def _run(table: Sequence[int], reach: int, uneven: bool) -> int:
    """Return how many multiples of `reach` continue the first step, dividing the table evenly where
    it is not to be `uneven`; 1 where none do.
    """
    factor = table[reach] - table[0]
    places = -(-len(table) // reach)
    run = next((j for j in range(1, places) if table[reach * j] != table[0] + factor * j), places)
    return run if uneven else next(each for each in range(run, 0, -1) if places % each == 0)


def is_identity(table: Sequence[int]) -> bool:
    """Tell whether a table maps every index to itself."""
    return all(index == value for index, value in enumerate(table))
