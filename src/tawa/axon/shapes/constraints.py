"""The constraints of shapes. Each steps when its words are known enough, and waits otherwise."""
# ruff: noqa: D102 - `step` and `rank_equations` are what Base says

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache, lru_cache, partial, reduce
from operator import mul
from typing import Any, TypeVar

from tawa.axon.shapes.solver import Conflict, Solver, compatible, variables_of
from tawa.axon.shapes.words import Row, Source, Word, dims_in, is_known, rows_in
from tawa.integers import Condition, Expr, Symbol, at_least, broadcast, constant, equal
from tawa.integers.conditions import substituted, symbols_of
from tawa.integers.expressions import ONE, of_atom

Ranks = Iterable[tuple[Word, Word]]
C = TypeVar("C", bound="Base")


@dataclass(frozen=True, slots=True, eq=False)
class Base(ABC):
    """A constraint and why it is there."""

    source: Source

    @abstractmethod
    def step(self, solver: Solver) -> bool:
        """Do what can be done; tell whether that was all."""

    def rank_equations(self) -> Ranks:
        """Return pairs of words of one rank."""
        return ()

    def mapped(self: C, row: Any, dim: Any, source: Source | None = None) -> C:
        """Return the constraint with each row replaced by the word `row(r)`, each dimension by
        `dim(e)`; asked for by another source, if that is given.
        """
        values = [_mapped(getattr(self, name), row, dim) for name in names_of(type(self))]
        return type(self)(source or self.source, *values)


@cache
def names_of(kind: type[Base]) -> tuple[str, ...]:
    """Return the names of what a kind of constraint has, but for its source."""
    return tuple([field.name for field in fields(kind)][1:])


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
        return substituted(value, {s: dim(of_atom(s)) for s in symbols_of(value)})
    return value


@dataclass(frozen=True, slots=True, eq=False)
class SameWord(Base):
    """Two words are equal. `left` is what is wanted, `right` what is given."""

    left: Word
    right: Word

    def step(self, solver: Solver) -> bool:
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

    def rank_equations(self) -> Ranks:
        return [(self.left, self.right)]


def _axes(word: Word) -> str:
    number = len(dims_in(word))
    text = f"{number} {'axis' if number == 1 else 'axes'}"
    return text if is_known(word) else f"at least {text}"


@dataclass(frozen=True, slots=True, eq=False)
class SameDim(Base):
    """Two dimensions are equal."""

    left: Expr
    right: Expr

    def step(self, solver: Solver) -> bool:
        solver.equate(self.left, self.right, self)
        return True


@dataclass(frozen=True, slots=True, eq=False)
class Holds(Base):
    """A condition on dimensions holds."""

    condition: Condition

    def step(self, solver: Solver) -> bool:
        solver.require(self.condition, self)
        return True


@dataclass(frozen=True, slots=True, eq=False)
class Computed(Base):
    """`result` is what a function of FUNCTIONS makes of words, as far as they are known."""

    result: Word
    function: str
    words: tuple[Word, ...]

    def step(self, solver: Solver) -> bool:
        found = FUNCTIONS[self.function](self, solver, *map(solver.word, self.words))
        if found is None:
            return False
        solver.post(SameWord(self.source, self.result, found))
        return True

    def rank_equations(self) -> Ranks:
        match self.function, self.words:
            case (("ones" | "fill"), (word, _)):
                return [(self.result, word)]
            case "permute", (word, order):
                return [(self.result, word), (order, word)]
            case "drop", (word, axes):
                return [((*self.result, *axes), word)]
            case "insert", (word, axes):
                return [(self.result, (*word, *axes))]
            case _:
                return ()


@dataclass(frozen=True, slots=True, eq=False)
class Pointwise(Base):
    """On each axis conditions hold of the sizes that `words` have there, named by `symbols`."""

    conditions: tuple[Condition, ...]
    symbols: tuple[Symbol, ...]
    words: tuple[Word, ...]

    def step(self, solver: Solver) -> bool:
        words = [solver.word(word) for word in self.words]
        known = next((word for word in words if is_known(word)), None)
        if known is None:
            return False
        unknown = [word for word in words if not is_known(word)]
        ready = all(len(rows_in(word)) == 1 for word in unknown)
        if unknown and ready:
            solver.post(self)  # after what waits for these ranks, which gives them numbers
        for word in unknown:
            solver.post(SameWord(self.source, word, solver.fresh.dims(len(known))))
        if unknown:
            return ready
        if any(len(word) != len(known) for word in words):
            raise Conflict(self, " and ".join(dict.fromkeys(map(_axes, words))))
        for sizes in zip(*words):
            values = dict(zip(self.symbols, sizes))
            for condition in self.conditions:
                solver.require(solver.instance(condition, values), self)
        return True

    def mapped(self, row: Any, dim: Any, source: Source | None = None) -> Pointwise:
        """Return the constraint with its words replaced; `symbols` are names of its own."""
        values = {s: dim(of_atom(s)) for s in _outside(self.conditions, self.symbols)}
        conditions = self.conditions
        if values:
            conditions = tuple([substituted(each, values) for each in conditions])
        words = _mapped(self.words, row, dim)
        return Pointwise(source or self.source, conditions, self.symbols, words)

    def rank_equations(self) -> Ranks:
        return [(word, self.words[0]) for word in self.words[1:]]


@lru_cache(1024)
def _outside(conditions: tuple[Condition, ...], own: tuple[Symbol, ...]) -> set[Symbol]:
    """Return the symbols of conditions that are not names of their own."""
    return {s for each in conditions for s in symbols_of(each)} - set(own)


def uniform(source: Source, word: Word, size: Expr) -> Pointwise:
    """Return the constraint that every dimension of a word is a size."""
    item = Symbol("item", (0, "int"))
    return Pointwise(source, (equal(of_atom(item), size),), (item,), (word,))


@dataclass(frozen=True, slots=True, eq=False)
class Product(Base):
    """`size` is the product of a word's dimensions."""

    size: Expr
    word: Word

    def step(self, solver: Solver) -> bool:
        word = solver.word(self.word)
        if not is_known(word):
            return False
        solver.equate(self.size, product_of(word), self)
        return True


def product_of(word: Word) -> Expr:
    """Return the product of a known word's dimensions."""
    return reduce(mul, dims_in(word), ONE)


@dataclass(frozen=True, slots=True, eq=False)
class Rank(Base):
    """`size` is the rank of a word."""

    size: Expr
    word: Word

    def step(self, solver: Solver) -> bool:
        word = solver.word(self.word)
        if is_known(word):
            solver.equate(self.size, constant(len(word)), self)
            return True
        number = solver.expr(self.size).value
        if number is None:
            return False
        sizes = solver.fresh.dims(max(0, number))
        solver.post(SameWord(self.source, sizes, word))
        return number >= 0


@dataclass(frozen=True, slots=True, eq=False)
class At(Base):
    """`size` is the dimension number `index` of a word; from the end where it is negative."""

    size: Expr
    word: Word
    index: Expr

    def step(self, solver: Solver) -> bool:
        index = solver.expr(self.index).value
        if index is None:
            return False
        word, rest = solver.word(self.word), solver.fresh.row()
        if is_known(word) and not -len(word) <= index < len(word):
            raise Conflict(self, f"axis {index} of a shape with {_axes(word)}")
        others = solver.fresh.dims(index if index >= 0 else -index - 1)
        split = (*others, self.size, rest) if index >= 0 else (rest, self.size, *others)
        solver.post(SameWord(self.source, word, split))
        return True


@dataclass(frozen=True, slots=True, eq=False)
class Axis(Base):
    """`index` is an axis: `before` has that many axes, or `after` one less from the end."""

    index: Expr
    before: Word
    after: Word

    def step(self, solver: Solver) -> bool:
        index = solver.expr(self.index).value
        if index is None:
            return False
        word, rank = (self.before, index) if index >= 0 else (self.after, -index - 1)
        sizes = solver.fresh.dims(rank)
        solver.post(SameWord(self.source, sizes, word))
        return True


# Functions of words, for the constraint that asks: they return a word, None where too little is
# known.


def _broadcast(asked: Base, solver: Solver, *given: Word) -> Word | None:
    """As in NumPy, from the last axes on; what is before them is asked for again."""
    words = list(dict.fromkeys(word for word in given if word))
    sizes: list[tuple[Expr, ...]] = []
    while len(words) > 1 and all(isinstance(word[-1], Expr) for word in words):
        column = tuple([word[-1] for word in words if isinstance(word[-1], Expr)])
        for condition in compatible([solver.expr(size) for size in column]):
            solver.require(condition, asked)
        sizes.insert(0, column)
        words = list(dict.fromkeys([word[:-1] for word in words if len(word) > 1]))
    tail = tuple([broadcast(*map(solver.expr, column)) for column in sizes])
    if len(words) <= 1:
        return (*(words[0] if words else ()), *tail)
    if not sizes:
        return None
    row = solver.fresh.row()
    solver.post(Computed(asked.source, (row,), "broadcast", tuple(words)))
    return (row, *tail)


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


def _permute(asked: Base, solver: Solver, word: Word, order: Word) -> Word | None:
    """The dimensions of `word` in the order of the numbers `order`."""
    numbers = _numbers(order)
    if numbers is None:
        return None
    axes = _chosen(numbers, len(numbers), asked)
    sizes = solver.fresh.dims(len(axes))
    solver.post(SameWord(asked.source, sizes, word))
    return tuple([sizes[axis] for axis in axes])


def _at_end(
    asked: Base, solver: Solver, word: Word, numbers: list[int], new: int = 0
) -> tuple[Word, Word, Word] | None:
    """Return a word in which axes are counted as what is before these, they, and what is after.

    Of a word of unknown rank they are the axes at the end from which they are counted, `new` of
    which are put in; None where they are counted from both.
    """
    if is_known(word):
        return (), word, ()
    if not numbers or (min(numbers) < 0 <= max(numbers)):
        return None
    front, rest = max(numbers) >= 0, solver.fresh.row()
    sizes = solver.fresh.dims((max(numbers) + 1 if front else -min(numbers)) - new)
    before, after = ((), (rest,)) if front else ((rest,), ())
    solver.post(SameWord(asked.source, word, (*before, *sizes, *after)))
    return before, sizes, after


def _drop(
    put: tuple[Expr, ...], asked: Base, solver: Solver, word: Word, axes: Word
) -> Word | None:
    """`word` with each of its `axes` replaced by what is put there: nothing, or the size 1."""
    numbers = _numbers(axes)
    if numbers is None or (found := _at_end(asked, solver, word, numbers)) is None:
        return None
    before, sizes, after = found
    gone = _chosen(numbers, len(sizes), asked)
    kept = [put if axis in gone else (size,) for axis, size in enumerate(sizes)]
    return (*before, *[size for part in kept for size in part], *after)


def _insert(asked: Base, solver: Solver, word: Word, axes: Word) -> Word | None:
    """`word` with dimensions of size 1 put in, so that they are its `axes`."""
    numbers = _numbers(axes)
    if numbers is None:
        return None
    if (found := _at_end(asked, solver, word, numbers, len(numbers))) is None:
        return None
    before, sizes, after = found
    rank, old = len(sizes) + len(numbers), iter(sizes)
    new = _chosen(numbers, rank, asked)
    return (*before, *[ONE if axis in new else next(old) for axis in range(rank)], *after)


def _fill(asked: Base, solver: Solver, target: Word, word: Word) -> Word | None:
    """The shape `target` for the elements of `word`: one of its sizes may be -1."""
    if not is_known(target) or not is_known(word):
        return None
    sizes, total = dims_in(target), product_of(word)
    unknown = [axis for axis, size in enumerate(sizes) if size.value == -1]
    if len(unknown) > 1:
        raise Conflict(asked, "more than one size is -1")
    if unknown:
        (axis,) = unknown
        known = reduce(mul, [size for a, size in enumerate(sizes) if a != axis], ONE)
        if known.value == 0:
            raise Conflict(asked, "a size is 0, so any number could stand for -1")
        solver.require(at_least(known, 1), asked)
        sizes[axis] = total // known
        solver.require(equal(sizes[axis] * known, total), asked)
    else:
        solver.equate(reduce(mul, sizes, ONE), total, asked)
    for size in sizes:
        solver.require(at_least(size), asked)
    return tuple(sizes)


FUNCTIONS: Mapping[str, Callable[..., Word | None]] = {
    "broadcast": _broadcast, "permute": _permute, "drop": partial(_drop, ()),
    "ones": partial(_drop, (ONE,)), "insert": _insert, "fill": _fill,
}  # fmt: skip


def rows_of(constraint: Base) -> list[Row]:
    """Return the row variables that stand in a constraint."""
    return [item for item in variables_of(constraint) if isinstance(item, Row)]
