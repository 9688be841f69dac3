"""Loops and branches of a kernel that is being built, as context managers hand them out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from tawa.errors import DefinitionError, TypeMismatch
from tawa.ir.build.builder import Builder
from tawa.ir.build.handles import Operand, Value
from tawa.ir.build.values import caller, describe


class Yields:
    """What the body of a region hands on: once, at its end, values of types that are known."""

    __slots__ = ("_open", "_take", "builder", "place", "what", "yielded")

    def __init__(self, builder: Builder, what: str, take: Callable[[Operand], Value]) -> None:
        self.builder = builder
        self.what = what
        self.place = builder.place
        self.yielded: list[Value] | None = None
        self._take = take
        self._open = True

    def give(self, values: Sequence[Operand]) -> None:
        """Note what the region hands on; raises DefinitionError."""
        if not self._open or self.yielded is not None:
            raise DefinitionError(
                f"this {self.what} yields {'twice' if self._open else 'after its end'}",
                place=caller(),
                why=f"the {self.what} at line {self.place.line} yields once, at the end of its "
                "region",
            )
        self.yielded = [self._take(value) for value in values]

    def close(self, types: Sequence[Value] | None) -> list[Value]:
        """Return what was yielded; with `types`, it must be as many values of these types."""
        self._open = False
        given = self.yielded or []
        if types is None:
            return given
        if len(given) != len(types):
            raise DefinitionError(
                f"this {self.what} yields {len(given)} values and carries {len(types)}",
                place=self.place,
                why=f"a {self.what} hands on as many values as it carries",
                remedy=f"call yield_ with {len(types)} values at the end of its region",
            )
        for index, (old, new) in enumerate(zip(types, given)):
            if old.type != new.type:
                raise TypeMismatch(
                    f"carried value {index} ({old.ssa.name_hint or 'unnamed'}) changes its type: "
                    f"{describe(old)} before, {describe(new)} after an iteration",
                    place=self.place,
                    why="what a loop carries has one type in all iterations",
                    remedy="start with a value of the final type, or cast before yield_",
                )
        return given


class Loop:
    """A loop: `index` (of a counted one) and `carried` in its body, `results` after it.

    `carried` are the values at the top of an iteration, `results` those after the last one: the
    initial values where there is none.
    """

    __slots__ = ("_index", "_results", "carried", "yields")

    def __init__(self, yields: Yields, carried: tuple[Value, ...], index: Value | None) -> None:
        self.yields = yields
        self.carried = carried
        self._index = index
        self._results: tuple[Value, ...] | None = None

    @property
    def index(self) -> Value:
        """The index of a counted loop; DefinitionError in another one."""
        if self._index is None:
            raise DefinitionError(
                "a loop over a condition has no index",
                place=caller(),
                remedy="carry a number, and add to it in each iteration",
            )
        return self._index

    def yield_(self, *values: Operand) -> None:
        """Hand the carried values on to the next iteration; once, at the end of the body."""
        self.yields.give(values)

    @property
    def results(self) -> tuple[Value, ...]:
        """The carried values after the loop; DefinitionError inside it."""
        if self._results is None:
            raise DefinitionError(
                "the results of a loop are asked for in its body",
                place=caller(),
                why=f"the loop at line {self.yields.place.line} has not ended",
                remedy="in the body use `carried`",
            )
        return self._results

    def end(self, results: tuple[Value, ...]) -> None:
        """Note what the loop gives."""
        self._results = results


class Branch:
    """A branch: its body is one side, `otherwise` the other; `results` is what both yielded."""

    __slots__ = ("_otherwise", "_results", "given", "yields")

    def __init__(
        self, yields: Yields, otherwise: Callable[[Branch], AbstractContextManager[None]]
    ) -> None:
        self.yields = yields
        self.given: list[Value] = []
        self._otherwise = otherwise
        self._results: tuple[Value, ...] | None = None

    def yield_(self, *values: Operand) -> None:
        """Hand on what this side of the branch gives; once, at its end."""
        self.yields.give(values)

    def otherwise(self) -> AbstractContextManager[None]:
        """Build the other side: a context manager that stands right behind the first."""
        return self._otherwise(self)

    @property
    def results(self) -> tuple[Value, ...]:
        """What the side that runs has yielded; DefinitionError where a side is missing."""
        if self._results is None:
            raise DefinitionError(
                "a branch of one side has no results",
                place=caller(),
                why=f"the branch at line {self.yields.place.line} may leave them undefined",
                remedy="yield values from `with branch.otherwise():` as well",
            )
        return self._results

    def end(self, results: tuple[Value, ...]) -> None:
        """Note what both sides gave."""
        self._results = results
