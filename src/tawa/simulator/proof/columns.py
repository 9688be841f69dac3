"""The functions of the proof for many numbers at a time: columns of them.

Numbers of the proof have no end, those of a column have 64 bits. So it is known of each how large
its numbers may be; where they may be too large, columns of Python's own numbers are computed.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tawa.simulator.proof.functions import FUNCTIONS
from tawa.simulator.proof.numbers import itself, trip_count, truth

Column: TypeAlias = Any
"""Numbers in a row, or one that stands for all of them."""

Changed: TypeAlias = Callable[[], NDArray[np.bool_]]
"""Tells in which places of a column something is another number."""

_MOST = 1 << 62
_SIGN = 63  # bits that a number is shifted by for its sign alone: -1 or 0


class Columns:
    """Columns by place: some are given, the others computed from them."""

    def __init__(self, given: Sequence[Column], many: int) -> None:
        self.all: list[Column] = [*given]
        self._many = many
        self._sizes = [_size(column) for column in given]
        self._wide = False
        if max(self._sizes, default=0) > _MOST:
            self._widen()

    def compute(
        self, function: str, places: Sequence[int], out: int, changed: Changed, same: int
    ) -> None:
        """Put a function of columns in a place. What has no vectors is computed where something has
        `changed` that it depends on, and is the `same` elsewhere.
        """
        columns = self.all
        parts = [columns[place] for place in places]
        size_of = None if self._wide else _SIZES.get(function)
        if size_of is not None:
            sizes = self._sizes
            size = size_of(*[sizes[place] for place in places])
            if size > _MOST:
                size = size_of(*map(_size, parts))
            if size <= _MOST:
                columns[out], sizes[out] = computed(function, parts), size
                return
        where = changed()
        some = [part if isinstance(part, int) else part[where] for part in parts]
        found = np.full(self._many, same, object)
        found[where] = _one_by_one(FUNCTIONS[function], some)
        self.put(found if self._wide or _size(found) > _MOST else found.astype(np.int64), out)

    def put(self, column: Column, out: int) -> None:
        """Put numbers in a place."""
        self._sizes[out] = _size(column)
        if self._sizes[out] > _MOST and not self._wide:
            self._widen()
        self.all[out] = _widened(column) if self._wide else column

    def ask(self, outcome: Callable[..., int], places: Sequence[int]) -> NDArray[Any]:
        """Return what is asked of columns, for each of their numbers."""
        parts = [self.all[place] for place in places]
        if self._wide:
            found = _one_by_one(outcome, parts)
        else:
            found = OUTCOMES[outcome](*parts)
        return np.broadcast_to(found, (self._many,))

    def _widen(self) -> None:
        """Go on with numbers without end."""
        self._wide = True
        self.all = [_widened(column) for column in self.all]


def computed(function: str, parts: Sequence[Column]) -> Column:
    """Compute a function of numbers and columns."""
    if np.ndarray not in map(type, parts):
        return FUNCTIONS[function](*parts)
    vector = VECTORS.get(function)
    if vector is not None:
        return vector(*parts)
    return np.asarray(_one_by_one(FUNCTIONS[function], parts), np.int64)


def _one_by_one(function: Callable[..., int], parts: Sequence[Column]) -> Column:
    """Compute a function as the proof does, of numbers without end."""
    found: Any = np.frompyfunc(function, len(parts), 1)(*parts)
    return found


def _widened(column: Column) -> Column:
    return column if isinstance(column, int) else column.astype(object)


def _size(column: Column) -> int:
    """Return how large the numbers of a column are at most, below zero too."""
    if isinstance(column, int):
        return abs(column)
    return max(abs(int(column.min())), abs(int(column.max()))) if len(column) else 0


def _first(size: int, _: int) -> int:
    return size


def _larger(_: int, size: int, other: int) -> int:
    return max(size, other)


def _of_bits(size: int, other: int) -> int:
    return 2 * max(size, other) + 1


def _of_truth(_: int, __: int) -> int:
    return 1


def _divided(a: Any, b: Any) -> Any:
    if isinstance(b, int) and b > 0:
        return (a + ((a >> _SIGN) & (b - 1))) // b  # towards zero: what is negative is rounded up
    by: Any = np.abs(b)
    zero = not np.all(by)
    quotient: NDArray[np.int64] = np.abs(a) // (np.maximum(by, 1) if zero else by)
    unlike = (a ^ b) >> _SIGN
    turned = (quotient ^ unlike) - unlike  # the negative one where signs are unlike
    return np.where(np.equal(b, 0), 0, turned) if zero else turned


def _remainder(a: Any, b: Any) -> Any:
    return a - _divided(a, b) * b


def _selected(condition: Any, a: Any, b: Any) -> Any:
    holds = np.not_equal(condition, 0).astype(np.int64)
    return holds * a + (1 - holds) * b


def _comparing(compare: np.ufunc) -> Callable[..., Any]:
    def compared(a: Any, b: Any) -> Any:
        found: NDArray[Any] = compare(a, b)
        return np.asarray(found, np.int64)

    return compared


def _trips(high: Any, low: Any, by: Any) -> Any:
    if isinstance(by, int) and by > 0:
        return np.maximum(-(np.subtract(low, high) // by), 0)
    turned = np.maximum(-(-np.subtract(high, low) // np.maximum(by, 1)), 0)
    return np.where(np.greater(by, 0), turned, trip_count(0, 0, 0))


def _held(value: Any) -> Any:
    return np.not_equal(value, 0)


_SIZES: dict[str, Callable[..., int]] = {
    **dict.fromkeys(("add", "sub"), operator.add),
    "mul": operator.mul,
    **dict.fromkeys(("idiv", "irem"), _first),
    **dict.fromkeys(("min", "max"), max),
    **dict.fromkeys(("and", "or", "xor"), _of_bits),
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge"), _of_truth),
    "select": _larger,
}
"""How large what a function gives is at most, by the sizes of its arguments, if that is known."""

OUTCOMES: dict[Callable[..., int], Callable[..., Any]] = {
    trip_count: _trips,
    truth: _held,
    itself: np.asarray,
}
"""What may be asked of scalars, of columns of them."""

VECTORS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "idiv": _divided,
    "irem": _remainder,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "eq": _comparing(np.equal),
    "ne": _comparing(np.not_equal),
    "lt": _comparing(np.less),
    "le": _comparing(np.less_equal),
    "gt": _comparing(np.greater),
    "ge": _comparing(np.greater_equal),
    "select": _selected,
}
"""Of columns. Others are computed number by number."""
