"""The constraints of shapes. Each steps when its words are known enough, and waits otherwise.

Length: one class a constraint, all of one form; they are read side by side.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce
from operator import mul
from typing import Any, TypeVar

from tawa.axon.shapes.solver import Conflict, Solver, compatible, variables_of
from tawa.axon.shapes.words import Row, Source, Word, dims_in, is_known, rows_in
from tawa.integers import Condition, Expr, Symbol, at_least, broadcast, constant, equal
from tawa.integers.conditions import substituted
from tawa.integers.expressions import ONE

Ranks = Iterable[tuple[Word, Word, int]]
C = TypeVar("C", bound="Base")


@dataclass(frozen=True, slots=True, eq=False)
class Base(ABC):
    """A constraint and why it is there."""

    source: Source

    def step(self, solver: Solver) -> bool:
        """Do what can be done; tell whether that was all."""
        return self._step(solver)

    @abstractmethod
    def _step(self, solver: Solver) -> bool: ...

    def rank_equations(self, solver: Solver) -> Ranks:
        """Yield (a, b, n): the rank of word a is that of b plus n."""
        return self._rank_equations(solver)

    def _rank_equations(self, solver: Solver) -> Ranks:
        return ()

    def mapped(self: C, row: Any, dim: Any) -> C:
        """Return the constraint with each row replaced by the word `row(r)`, each dimension by
        `dim(e)`.
        """
        values = {f.name: _mapped(getattr(self, f.name), row, dim) for f in fields(self)}
        return type(self)(**values)

    def at(self: C, source: Source) -> C:
        """Return the constraint asked for by another source."""
        return replace(self, source=source)


def _mapped(value: Any, row: Any, dim: Any) -> Any:
    if isinstance(value, Expr):
        return dim(value)
    if isinstance(value, tuple):
        out: list[Any] = []
        for item in value:  # pyright: ignore[reportUnknownVariableType]
            if isinstance(item, Row):
                out.extend(row(item))
            else:
                out.append(_mapped(item, row, dim))
        return tuple(out)
    if hasattr(value, "expr") or hasattr(value, "parts"):
        symbols = _symbols(value)
        return substituted(value, {s: dim(e) for s, e in symbols.items()})
    return value


def _symbols(condition: Condition) -> dict[Symbol, Expr]:
    from tawa.integers.conditions import symbols_of
    from tawa.integers.expressions import of_atom

    return {symbol: of_atom(symbol) for symbol in symbols_of(condition)}


@dataclass(frozen=True, slots=True, eq=False)
class SameWord(Base):
    """Two words are equal. `left` is what is wanted, `right` what is given."""

    left: Word
    right: Word

    def _step(self, solver: Solver) -> bool:
        left, right = list(solver.word(self.left)), list(solver.word(self.right))
        front = 0
        while left and right and self._peel(left[0], right[0], front, solver):
            left.pop(0)
            right.pop(0)
            front += 1
        back = -1
        while left and right and self._peel(left[-1], right[-1], back, solver):
            left.pop()
            right.pop()
            back -= 1
        return self._ends(tuple(left), tuple(right), solver)

    def _peel(self, a: Expr | Row, b: Expr | Row, axis: int, solver: Solver) -> bool:
        if isinstance(a, Row) or isinstance(b, Row):
            return a is b
        solver.equate(a, b, self, axis)
        return True

    def _ends(self, left: Word, right: Word, solver: Solver) -> bool:
        """Solve for what is left: the first and last items of the words cannot be compared."""
        for one, other in ((left, right), (right, left)):
            if not one:
                if dims_in(other):
                    raise Conflict(self, self._ranks(solver))
                for row in dict.fromkeys(rows_in(other)):
                    solver.bind(row, (), self)
                return True
        for one, other in ((left, right), (right, left)):
            if is_known(one) and len(dims_in(other)) > len(one):
                raise Conflict(self, self._ranks(solver))
        lone = [
            (word[0], other)
            for word, other in ((left, right), (right, left))
            if len(word) == 1 and isinstance(word[0], Row)
        ]
        if not lone:
            return False
        # Of two variables the one without a name goes, then the newer.
        lone.sort(key=lambda pair: (bool(pair[0].name), -pair[0].uid))
        row, other = lone[0]
        if len(lone) == 1 and row in rows_in(other):
            rest = list(other)
            rest.remove(row)
            return self._ends((), tuple(rest), solver)
        solver.bind(row, other, self)
        return True

    def _ranks(self, solver: Solver) -> str:
        wanted, given = solver.word(self.left), solver.word(self.right)
        return f"{_axes(wanted)} wanted, {_axes(given)} given"

    def _rank_equations(self, solver: Solver) -> Ranks:
        return [(self.left, self.right, 0)]


def _axes(word: Word) -> str:
    number = len(dims_in(word))
    text = f"{number} {'axis' if number == 1 else 'axes'}"
    return text if is_known(word) else f"at least {text}"


@dataclass(frozen=True, slots=True, eq=False)
class SameDim(Base):
    """Two dimensions are equal."""

    left: Expr
    right: Expr

    def _step(self, solver: Solver) -> bool:
        solver.equate(self.left, self.right, self)
        return True


@dataclass(frozen=True, slots=True, eq=False)
class Holds(Base):
    """A condition on dimensions holds."""

    condition: Condition

    def _step(self, solver: Solver) -> bool:
        solver.require(self.condition, self)
        return True


@dataclass(frozen=True, slots=True, eq=False)
class Broadcast(Base):
    """`result` is what the words are broadcast to, as in NumPy."""

    result: Word
    words: tuple[Word, ...]

    def _step(self, solver: Solver) -> bool:
        words = [word for word in map(solver.word, self.words) if word]
        words = list(dict.fromkeys(words))
        if len(words) <= 1:
            solver.post(SameWord(self.source, self.result, words[0] if words else ()))
            return True
        sizes: list[tuple[Expr, ...]] = []
        while len(words) > 1 and all(isinstance(word[-1], Expr) for word in words):
            column = tuple([word[-1] for word in words if isinstance(word[-1], Expr)])
            for condition in compatible([solver.expr(size) for size in column]):
                solver.require(condition, self)
            sizes.insert(0, column)
            words = list(dict.fromkeys([word[:-1] for word in words if len(word) > 1]))
        if not sizes:
            return False
        tail = tuple([broadcast(*map(solver.expr, column)) for column in sizes])
        if len(words) <= 1:
            head = words[0] if words else ()
            solver.post(SameWord(self.source, self.result, (*head, *tail)))
            return True
        row = solver.fresh.row()
        solver.post(SameWord(self.source, self.result, (row, *tail)))
        solver.post(Broadcast(self.source, (row,), tuple(words)))
        return True


@dataclass(frozen=True, slots=True, eq=False)
class Pointwise(Base):
    """On each axis `condition` holds of the sizes that `words` have there, named by `symbols`."""

    condition: Condition
    symbols: tuple[Symbol, ...]
    words: tuple[Word, ...]

    def _step(self, solver: Solver) -> bool:
        words = [solver.word(word) for word in self.words]
        known = next((word for word in words if is_known(word)), None)
        if known is None:
            return False
        ready = True
        for place, word in enumerate(words):
            if not is_known(word):
                sizes = tuple([solver.fresh.dim() for _ in known])
                same = SameWord(self.source, word, sizes)
                if same.step(solver):
                    words[place] = solver.word(word)
                else:
                    ready = False
                    solver.post(same)
            elif len(word) != len(known):
                raise Conflict(self, f"{_axes(word)} and {_axes(known)}")
        if not ready:
            return False
        for axis in range(len(known)):
            values = {s: word[axis] for s, word in zip(self.symbols, words)}
            condition = substituted(self.condition, values)  # pyright: ignore[reportArgumentType]
            solver.require(condition, self)
        return True

    def mapped(self, row: Any, dim: Any) -> Pointwise:
        """Return the constraint with its words replaced; `symbols` are names of its own."""
        own = set(self.symbols)
        values = {s: dim(e) for s, e in _symbols(self.condition).items() if s not in own}
        condition = substituted(self.condition, values)
        words = _mapped(self.words, row, dim)
        return Pointwise(self.source, condition, self.symbols, words)

    def _rank_equations(self, solver: Solver) -> Ranks:
        return [(word, self.words[0], 0) for word in self.words[1:]]


@dataclass(frozen=True, slots=True, eq=False)
class Uniform(Base):
    """Every dimension of a word is `size`."""

    word: Word
    size: Expr

    def _step(self, solver: Solver) -> bool:
        word = solver.word(self.word)
        if not is_known(word):
            return False
        for dim in dims_in(word):
            solver.equate(dim, self.size, self)
        return True


@dataclass(frozen=True, slots=True, eq=False)
class Product(Base):
    """`size` is the product of a word's dimensions."""

    size: Expr
    word: Word

    def _step(self, solver: Solver) -> bool:
        word = solver.word(self.word)
        if not is_known(word):
            return False
        solver.equate(self.size, product_of(word), self)
        return True


def product_of(word: Word) -> Expr:
    """Return the product of a known word's dimensions."""
    return reduce(mul, dims_in(word), ONE)


@dataclass(frozen=True, slots=True, eq=False)
class SameProduct(Base):
    """Two words have as many elements."""

    left: Word
    right: Word

    def _step(self, solver: Solver) -> bool:
        left, right = list(solver.word(self.left)), list(solver.word(self.right))
        if is_known(tuple(left)) and is_known(tuple(right)):
            solver.equate(product_of(tuple(left)), product_of(tuple(right)), self)
            return True
        return left == right


@dataclass(frozen=True, slots=True, eq=False)
class Rank(Base):
    """`size` is the rank of a word."""

    size: Expr
    word: Word

    def _step(self, solver: Solver) -> bool:
        word = solver.word(self.word)
        if is_known(word):
            solver.equate(self.size, constant(len(word)), self)
            return True
        number = solver.expr(self.size).value
        if number is None:
            return False
        sizes = tuple([solver.fresh.dim() for _ in range(max(0, number))])
        solver.post(SameWord(self.source, sizes, word))
        return number >= 0


@dataclass(frozen=True, slots=True, eq=False)
class At(Base):
    """`size` is the dimension number `index` of a word; from the end where it is negative."""

    size: Expr
    word: Word
    index: Expr

    def _step(self, solver: Solver) -> bool:
        index = solver.expr(self.index).value
        if index is None:
            return False
        word = solver.word(self.word)
        count = index + 1 if index >= 0 else -index
        ends = word[:count] if index >= 0 else word[-count:]
        if is_known(word) and len(word) < count:
            raise Conflict(self, f"axis {index} of a shape with {_axes(word)}")
        if len(ends) == count and is_known(ends):
            item = word[index]
            assert isinstance(item, Expr)
            solver.equate(self.size, item, self)
            return True
        if len(word) == 1 and isinstance(word[0], Row):
            sizes = tuple([solver.fresh.dim() for _ in range(count)])
            rest = solver.fresh.row()
            split = (*sizes, rest) if index >= 0 else (rest, *sizes)
            solver.bind(word[0], split, self)
            solver.equate(self.size, sizes[-1] if index >= 0 else sizes[0], self)
            return True
        return False


@dataclass(frozen=True, slots=True, eq=False)
class Axis(Base):
    """`index` is an axis: `before` has that many axes, or `after` one less from the end."""

    index: Expr
    before: Word
    after: Word

    def _step(self, solver: Solver) -> bool:
        index = solver.expr(self.index).value
        if index is None:
            return False
        word, rank = (self.before, index) if index >= 0 else (self.after, -index - 1)
        sizes = tuple([solver.fresh.dim() for _ in range(rank)])
        solver.post(SameWord(self.source, sizes, word))
        return True


def _numbers(word: Word) -> list[int] | None:
    """Return the numbers of a word, None where not all are known."""
    found: list[int] = []
    for item in word:
        number = None if isinstance(item, Row) else item.value
        if number is None:
            return None
        found.append(number)
    return found


def _chosen(numbers: list[int], rank: int, asked: Base) -> list[int]:
    """Return axes as numbers from the front; raises Conflict where one is not there or twice."""
    if any(not -rank <= number < rank for number in numbers):
        raise Conflict(asked, f"axes {numbers} of a shape with {rank} axes")
    axes = [number % rank for number in numbers]
    if len(set(axes)) < len(axes):
        raise Conflict(asked, f"axes {numbers} name one axis twice")
    return axes


@dataclass(frozen=True, slots=True, eq=False)
class Permute(Base):
    """`result` has the dimensions of `word` in the order of the numbers `order`."""

    result: Word
    word: Word
    order: Word

    def _step(self, solver: Solver) -> bool:
        order = _numbers(solver.word(self.order))
        if order is None:
            return False
        axes = _chosen(order, len(order), self)
        sizes = tuple([solver.fresh.dim() for _ in axes])
        solver.post(SameWord(self.source, sizes, self.word))
        solver.post(SameWord(self.source, self.result, tuple([sizes[axis] for axis in axes])))
        return True

    def _rank_equations(self, solver: Solver) -> Ranks:
        return [(self.result, self.word, 0), (self.order, self.word, 0)]


@dataclass(frozen=True, slots=True, eq=False)
class Drop(Base):
    """`result` is `word` without `axes`; or, where `kept`, with the size 1 there."""

    result: Word
    word: Word
    axes: Word
    kept: bool

    def _step(self, solver: Solver) -> bool:
        axes, word = _numbers(solver.word(self.axes)), solver.word(self.word)
        if axes is None:
            return False
        if not is_known(word):
            return self._partial(axes, word, solver)
        left = self._left(dims_in(word), _chosen(axes, len(word), self))
        solver.post(SameWord(self.source, self.result, left))
        return True

    def _left(self, sizes: Sequence[Expr], gone: list[int]) -> tuple[Expr, ...]:
        kept = (ONE,) if self.kept else ()
        parts = [kept if axis in gone else (size,) for axis, size in enumerate(sizes)]
        return tuple([size for part in parts for size in part])

    def _partial(self, axes: list[int], word: Word, solver: Solver) -> bool:
        """Make the axes that are counted from one end known."""
        if len(word) != 1 or not axes or (min(axes) < 0 <= max(axes)):
            return False
        row, rest = word[0], solver.fresh.row()
        assert isinstance(row, Row)
        front = max(axes) >= 0
        count = max(axes) + 1 if front else -min(axes)
        gone = _chosen(axes, count, self)
        sizes = tuple([solver.fresh.dim() for _ in range(count)])
        solver.bind(row, (*sizes, rest) if front else (rest, *sizes), self)
        left = self._left(sizes, gone)
        out = (*left, rest) if front else (rest, *left)
        solver.post(SameWord(self.source, self.result, out))
        return True

    def _rank_equations(self, solver: Solver) -> Ranks:
        if self.kept:
            return [(self.result, self.word, 0)]
        return [((*self.result, *self.axes), self.word, 0)]


@dataclass(frozen=True, slots=True, eq=False)
class Insert(Base):
    """`result` is `word` with dimensions of size 1 put in, so that they are its `axes`."""

    result: Word
    word: Word
    axes: Word

    def _step(self, solver: Solver) -> bool:
        axes, word = _numbers(solver.word(self.axes)), solver.word(self.word)
        if axes is None or not is_known(word):
            return False
        rank = len(word) + len(axes)
        new = _chosen(axes, rank, self)
        old = iter(word)
        out = tuple([ONE if axis in new else next(old) for axis in range(rank)])
        solver.post(SameWord(self.source, self.result, out))
        return True

    def _rank_equations(self, solver: Solver) -> Ranks:
        return [(self.result, (*self.word, *self.axes), 0)]


@dataclass(frozen=True, slots=True, eq=False)
class Fill(Base):
    """`result` is the shape `target` for the elements of `word`: one of its sizes may be -1."""

    result: Word
    target: Word
    word: Word

    def _step(self, solver: Solver) -> bool:
        target, word = solver.word(self.target), solver.word(self.word)
        if not is_known(target) or not is_known(word):
            return False
        sizes = dims_in(target)
        unknown = [axis for axis, size in enumerate(sizes) if size.value == -1]
        if len(unknown) > 1:
            raise Conflict(self, "more than one size is -1")
        total = product_of(word)
        if unknown:
            (axis,) = unknown
            known = reduce(mul, [size for a, size in enumerate(sizes) if a != axis], ONE)
            if known.value == 0:
                raise Conflict(self, "a size is 0, so any number could stand for -1")
            solver.require(at_least(known, 1), self)
            sizes[axis] = total // known
            solver.require(equal(sizes[axis] * known, total), self)
        else:
            solver.equate(reduce(mul, sizes, ONE), total, self)
        for size in sizes:
            solver.require(at_least(size), self)
        solver.post(SameWord(self.source, self.result, tuple(sizes)))
        return True

    def _rank_equations(self, solver: Solver) -> Ranks:
        return [(self.result, self.target, 0)]


@dataclass(frozen=True, slots=True, eq=False)
class Natural(Base):
    """Every number of a word is a size: not negative."""

    word: Word

    def _step(self, solver: Solver) -> bool:
        word = solver.word(self.word)
        for dim in dims_in(word):
            solver.require(at_least(dim), self)
        return is_known(word)


def rows_of(constraint: Base) -> list[Row]:
    """Return the row variables that stand in a constraint."""
    return [item for item in variables_of(constraint) if isinstance(item, Row)]
