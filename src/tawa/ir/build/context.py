"""What an operation of the language is given besides its arguments: the builder, the options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

from tawa.errors import UnsupportedSyntax
from tawa.ir.build.builder import Builder
from tawa.ir.build.values import Const, Tensor, Value

Elements: TypeAlias = Callable[[Sequence[Value]], Value]
"""A function of elements, as reductions take: of the left ones, then of the right ones."""


@dataclass(slots=True)
class Context:
    """Where operations go, and the options that change what some of them are.

    The frontend's knows the names and functions of the source besides (`tawa.frontend.context`).
    """

    builder: Builder
    options: Mapping[str, object]

    def unsupported(self, what: str, *, why: str = "", remedy: str = "") -> UnsupportedSyntax:
        """Make an UnsupportedSyntax error at the current expression."""
        return self.builder.error(UnsupportedSyntax, what, why=why, remedy=remedy)

    def means_to_wrap(self) -> bool:
        """Tell whether the integers of the current function are meant to wrap."""
        return False

    def in_loop(self) -> bool:
        """Tell whether the current place is in a loop of the run."""
        return False

    def replace(self, value: Tensor, other: Tensor) -> None:
        """Let what is written from here on mean `other` where it says `value`."""

    def function_of(self, value: Value) -> str | Elements | None:
        """Return the function that a value is: one of the language by name; None for none."""
        match value:
            case Const(value=str() as name):
                return name
            case Const(value=function) if callable(function):
                elements = cast("Callable[..., Value]", function)
                return lambda given: elements(*given)
            case _:
                return None
