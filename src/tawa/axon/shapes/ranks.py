"""Ranks: linear equations over the ranks of row variables, solved exactly."""

from __future__ import annotations

from fractions import Fraction

from tawa.axon.shapes.solver import Conflict, Constraint, Solver
from tawa.axon.shapes.words import Row, Word


def solve_ranks(solver: Solver) -> bool:
    """Give every row variable whose rank follows from what waits that many dimensions.

    Tells whether one was found. Raises Conflict where ranks contradict one another.
    """
    pivots: list[tuple[Row, dict[Row, Fraction], Fraction, Constraint]] = []
    for constraint in list(solver.waiting.values()):
        for left, right, more in constraint.rank_equations(solver):
            terms, number = _equation(solver.word(left), solver.word(right), more)
            for row, other, offset, _ in pivots:
                if factor := terms.get(row):
                    _subtract(terms, other, factor)
                    number -= factor * offset
            if not terms:
                if number:
                    raise Conflict(constraint, "the ranks differ")
                continue
            pivot = next(iter(terms))
            scale = terms[pivot]
            terms = {row: value / scale for row, value in terms.items()}
            number /= scale
            for index, (row, other, offset, asked) in enumerate(pivots):
                if factor := other.get(pivot):
                    other = dict(other)
                    _subtract(other, terms, factor)
                    pivots[index] = row, other, offset - factor * number, asked
            pivots.append((pivot, terms, number, constraint))
    found: dict[Row, int] = {}
    for row, terms, number, asked in pivots:
        # sum of coefficient * rank == number, every rank at least 0
        if all(value > 0 for value in terms.values()) and number <= 0:
            if number < 0:
                raise Conflict(asked, "a rank would be negative")
            found.update(dict.fromkeys(terms, 0))
        elif len(terms) == 1:
            if number.denominator != 1:
                raise Conflict(asked, "a rank would be a fraction")
            found[row] = int(number)
        if row in found and row not in solver.rows:
            solver.dims_for(row, found[row], asked)
    for row, rank in found.items():
        if row not in solver.rows:
            solver.dims_for(row, rank, pivots[0][3])
    return bool(found)


def _equation(left: Word, right: Word, more: int) -> tuple[dict[Row, Fraction], Fraction]:
    """Return (terms, number) with sum(terms) == number for rank(left) == rank(right) + more."""
    terms: dict[Row, Fraction] = {}
    number = Fraction(more)
    for word, sign in ((left, 1), (right, -1)):
        for item in word:
            if isinstance(item, Row):
                terms[item] = terms.get(item, Fraction(0)) + sign
            else:
                number -= sign
    return {row: value for row, value in terms.items() if value}, number


def _subtract(terms: dict[Row, Fraction], other: dict[Row, Fraction], factor: Fraction) -> None:
    for row, value in other.items():
        total = terms.get(row, Fraction(0)) - factor * value
        if total:
            terms[row] = total
        else:
            terms.pop(row, None)
