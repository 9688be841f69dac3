"""The solver: what constraints say of row variables and dimensions, to a fixpoint.

A constraint steps when enough is known; else it waits for the variables it needs and nothing is
guessed. When none can step, ranks are found from linear equations (`solve_ranks`). Equations of
dimensions are solved by elimination of variables with coefficient 1 or -1; what is left becomes
a condition.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, Protocol

from tawa.axon.shapes.words import (
    Fresh,
    Row,
    Source,
    Word,
    dims_in,
    is_size,
    number_of,
    rows_in,
)
from tawa.integers import (
    AtLeast,
    Condition,
    Equal,
    Expr,
    Range,
    Symbol,
    any_of,
    at_least,
    equal,
    range_of,
)
from tawa.integers.conditions import FALSE, TRUE, decide, substituted, symbols_of
from tawa.integers.expressions import of_atom
from tawa.integers.facts import EVERYTHING, NATURAL


class Constraint(Protocol):
    """What must hold. `step` does what can be done and tells whether nothing is left to do."""

    @property
    def source(self) -> Source:
        """Why the constraint is there."""
        ...

    def step(self, solver: Solver) -> bool:
        """Do what can be done; tell whether that was all."""
        ...

    def rank_equations(self) -> Iterable[tuple[Word, Word]]:
        """Return pairs of words of one rank."""
        ...


@dataclass(frozen=True, slots=True)
class Fact:
    """A condition on dimensions and the constraint that asks for it.

    `left` and `right` are what an equation equates, on axis `axis` (None where it is no shape's).
    """

    condition: Condition
    asked: Constraint
    left: Expr | None = None
    right: Expr | None = None
    axis: int | None = None


class Conflict(Exception):  # noqa: N818
    """What cannot hold for any size; `fact` is set where it is about dimensions."""

    def __init__(self, asked: Constraint, why: str, fact: Fact | None = None) -> None:
        super().__init__(why)
        self.asked = asked
        self.why = why
        self.fact = fact


class Solver:
    """What is known of variables so far. Variables in `promised` stand for all sizes."""

    def __init__(self, fresh: Fresh, promised: Iterable[Symbol] = ()) -> None:
        self.fresh = fresh
        self.promised = set(promised)
        self.dims: dict[Symbol, Expr] = {}
        self.rows: dict[Row, Word] = {}
        self.facts: list[Fact] = []
        self.waiting: dict[int, Constraint] = {}  # by id, in the order in which they came
        self._watched: dict[Row | Symbol, list[Constraint]] = {}
        self._queue: deque[Constraint] = deque()
        self._running = False
        self._instances: dict[tuple[Condition, tuple[Any, ...]], Condition] = {}
        self._asked: set[Condition] = set()

    def post(self, constraint: Constraint) -> None:
        """Add a constraint. One that a step adds comes before what was added from outside."""
        if self._running:
            self._queue.appendleft(constraint)
        else:
            self._queue.append(constraint)

    def settle(self) -> None:
        """Step until nothing changes; raises Conflict."""
        self._running = True
        while True:
            self._run()
            if self.waiting and solve_ranks(self):
                continue
            if not self._again():
                break
        self._running = False

    def _run(self) -> None:
        while self._queue:
            constraint = self._queue.popleft()
            self.waiting.pop(id(constraint), None)
            try:
                done = constraint.step(self)
            except ZeroDivisionError:
                # Whoever divides by a size asks for it to be 1 at least: that cannot hold.
                raise Conflict(constraint, "a size that divides is 0") from None
            if not done:
                self.waiting[id(constraint)] = constraint
                for item in variables_of(constraint):
                    for found in self.variables(item):
                        self._watched.setdefault(found, []).append(constraint)

    def _again(self) -> bool:
        """Look at the conditions again, where more is known by now; tell whether one was used."""
        before = len(self.dims)
        facts, self.facts, self._asked = self.facts, [], set()
        for fact in facts:
            try:
                values = self._values(symbols_of(fact.condition))
                condition = substituted(fact.condition, values)
            except ZeroDivisionError:
                raise Conflict(fact.asked, "a size that divides is 0") from None
            self._keep(condition, fact)
        return len(self.dims) != before or bool(self._queue)

    # What is known.

    def _values(self, symbols: Iterable[Symbol]) -> dict[Symbol, Expr]:
        known = self.dims
        return {each: self._value(each) for each in symbols if each in known}

    def _value(self, symbol: Symbol) -> Expr:
        found = self.dims[symbol]
        last = self.expr(found)
        if last is not found:
            self.dims[symbol] = last
        return last

    def expr(self, expr: Expr) -> Expr:
        """Return an expression with all that is known put in."""
        symbols = expr.symbols
        if not symbols:
            return expr
        values = self._values(symbols)
        return expr.substitute(values) if values else expr

    def word(self, word: Word) -> Word:
        """Return a word with all that is known put in."""
        out: list[Expr | Row] = []
        for item in word:
            if isinstance(item, Row):
                found = self.rows.get(item)
                if found is None:
                    out.append(item)
                else:
                    last = self.word(found)
                    self.rows[item] = last
                    out.extend(last)
            else:
                out.append(self.expr(item))
        return tuple(out)

    def variables(self, item: Row | Symbol) -> list[Row | Symbol]:
        """Return the unknowns that a variable stands for by now."""
        if isinstance(item, Symbol):
            return list(self.expr(of_atom(item)).symbols)
        word = self.word((item,))
        return [*rows_in(word), *(s for dim in dims_in(word) for s in dim.symbols)]

    def range_of(self, expr: Expr) -> Range:
        """Return the range of an expression, sizes being natural."""
        return range_of(expr, bounds(expr.symbols))

    # What becomes known.

    def bind(self, row: Row, word: Word, asked: Constraint) -> None:
        """Say that a row variable is a word."""
        if row in rows_in(word):
            raise Conflict(asked, "a shape would have to be longer than itself")
        self.rows[row] = word
        self._wake(row)

    def _wake(self, item: Row | Symbol) -> None:
        for constraint in self._watched.pop(item, ()):
            if self.waiting.pop(id(constraint), None) is not None:
                self.post(constraint)

    def dims_for(self, row: Row, rank: int, asked: Constraint) -> None:
        """Say that a row variable has a rank."""
        self.bind(row, self.fresh.dims(rank), asked)

    def equate(self, left: Expr, right: Expr, asked: Constraint, axis: int | None = None) -> None:
        """Say that two dimensions are equal."""
        one, other = self.expr(left), self.expr(right)
        if one is other or self._bound(one, other) or self._bound(other, one):
            return
        condition = equal(one, other)
        self._keep(condition, Fact(condition, asked, left, right, axis))

    def _bound(self, one: Expr, other: Expr) -> bool:
        """Let a size that has no name be another size, which needs no more than that."""
        if len(one.terms) != 1:
            return False
        ((monomial, count),) = one.terms.items()
        if count != 1 or len(monomial) != 1 or not isinstance(symbol := monomial[0], Symbol):
            return False
        if symbol.name or not is_size(symbol) or symbol in self.promised:
            return False
        if len(other.terms) == 1:
            ((factors, number),) = other.terms.items()
            if number < 0 or len(factors) > 1:
                return False
            if factors:
                atom = factors[0]
                if number != 1 or not isinstance(atom, Symbol) or not is_size(atom):
                    return False
                if not atom.name and number_of(atom) > number_of(symbol):
                    return False  # the newer one goes
        elif other.terms:
            return False
        self.dims[symbol] = other
        self._wake(symbol)
        return True

    def instance(self, condition: Condition, values: Mapping[Symbol, Any]) -> Condition:
        """Return a condition with values put in, computed once for each of them.

        Layers of a network ask the same of the same numbers again and again.
        """
        key = condition, tuple([values[each] for each in symbols_of(condition) if each in values])
        found = self._instances.get(key)
        if found is None:
            found = self._instances[key] = substituted(condition, values)
        return found

    def require(self, condition: Condition, asked: Constraint) -> None:
        """Say that a condition holds."""
        if condition in self._asked:
            return
        if values := self._values(symbols_of(condition)):
            condition = substituted(condition, values)
        self._keep(condition, Fact(condition, asked))

    def _keep(self, condition: Condition, fact: Fact) -> None:
        """Use a condition that is up to date: solve it, drop it, or keep it."""
        if condition == TRUE:
            return
        if condition == FALSE:
            raise Conflict(fact.asked, "no sizes satisfy it", fact)
        if isinstance(condition, Equal) and self._eliminate(condition.expr, fact.asked):
            return
        verdict = decide(condition, bounds(symbols_of(condition)))
        if verdict is False:
            raise Conflict(fact.asked, "no sizes satisfy it", fact)
        if verdict is None:
            self.facts.append(Fact(condition, fact.asked, fact.left, fact.right, fact.axis))
            self._asked.add(condition)

    def _eliminate(self, expr: Expr, asked: Constraint) -> bool:
        """Solve `expr == 0` for a variable with coefficient 1 or -1.

        The newest without a name goes first, so that what a user has named stays.
        """
        best: tuple[tuple[bool, bool, int], Symbol, Expr] | None = None
        for monomial, coefficient in expr.terms.items():
            if coefficient not in (1, -1) or len(monomial) != 1:
                continue
            (atom,) = monomial
            if not isinstance(atom, Symbol) or atom in self.promised:
                continue
            value = expr.solved(atom)
            if value is None:
                continue
            # An integer may take every value, a size only natural ones: eliminate the first.
            rank = (not is_size(atom), not atom.name, number_of(atom))
            if best is None or rank > best[0]:
                best = rank, atom, value
        if best is None:
            return False
        _, symbol, value = best
        self.dims[symbol] = value
        self._wake(symbol)
        if is_size(symbol):
            self.require(at_least(value), asked)
        return True


def bounds(symbols: Iterable[Symbol]) -> dict[Symbol, Range]:
    """Return the ranges of symbols by their kind."""
    return {each: NATURAL if is_size(each) else EVERYTHING for each in symbols}


def variables_of(constraint: Any) -> list[Row | Symbol]:
    """Return the variables that stand in a constraint, in order."""
    found: dict[Row | Symbol, None] = {}
    for field in fields(constraint):
        _collect(getattr(constraint, field.name), found)
    own = getattr(constraint, "symbols", ())  # names of what stands on an axis
    return [item for item in found if item not in own]


def _collect(value: Any, found: dict[Row | Symbol, None]) -> None:
    match value:
        case Row():
            found[value] = None
        case Expr():
            for symbol in sorted(value.symbols, key=number_of):
                found[symbol] = None
        case tuple():
            for item in value:  # pyright: ignore[reportUnknownVariableType]
                _collect(item, found)
        case Equal() | AtLeast():
            _collect(value.expr, found)
        case _ if hasattr(value, "parts"):
            _collect(value.parts, found)
        case _:
            pass


def compatible(sizes: Sequence[Expr]) -> list[Condition]:
    """Return the conditions under which sizes are broadcast to one."""
    kept = list(dict.fromkeys(size for size in sizes if size.value != 1))
    return [
        any_of([equal(a, b), equal(a, 1), equal(b, 1)])
        for index, a in enumerate(kept)
        for b in kept[index + 1 :]
    ]


def solve_ranks(solver: Solver) -> bool:
    """Give every row variable whose rank follows from what waits that many dimensions.

    Tells whether one was found. Raises Conflict where ranks contradict one another.
    """
    pivots: list[tuple[Row, dict[Row, Fraction], Fraction, Constraint]] = []
    for constraint in list(solver.waiting.values()):
        for left, right in constraint.rank_equations():
            terms, number = _equation(solver.word(left), solver.word(right))
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


def _equation(left: Word, right: Word) -> tuple[dict[Row, Fraction], Fraction]:
    """Return (terms, number) with sum(terms) == number for rank(left) == rank(right)."""
    terms: dict[Row, Fraction] = {}
    number = Fraction(0)
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
