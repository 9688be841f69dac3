"""What lowering a word of the language knows, and what of the lowering it may ask for."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tawa.errors import ModelError
from tawa.ppl.frontend.arithmetic import Arithmetic, Misfit
from tawa.ppl.frontend.source import Closure, Holder, Source
from tawa.ppl.ir.core import Builder, Program, Type, Value


@dataclass(eq=False, slots=True)
class Specialised:
    """A function for one form of its arguments; its result's types are found as it is lowered."""

    name: str
    template: Any = None
    types: tuple[Type, ...] | None = None
    incomplete: bool = False


class Context(ABC):
    """The program under construction, and the sites and functions that were met.

    `limits` are what integers are known not to reach; a site is named by `path` and `active`, the
    functions under way. `uses` is what names of functions' surroundings and of modules stood for.
    """

    def __init__(self, program: Program, builder: Builder) -> None:
        self.program = program
        self.b = builder
        self.numbers = Arithmetic(builder)
        self.source: Source | None = None
        self.active: list[object] = []
        self.path: tuple[int, ...] = ()
        self.naming = ""
        self.site = 0
        self.sites: dict[tuple[object, ...], int] = {}
        self.titles: dict[tuple[object, ...], str] = {}
        self.specialised: dict[tuple[Any, ...], Specialised] = {}
        self.limits: dict[Value, int] = {}
        self.uses: dict[tuple[Holder, str], Any] = {}

    def error(self, what: str, node: ast.AST, why: str = "", remedy: str = "") -> ModelError:
        """Return an error at a node of the source that is being lowered."""
        place = self.source.place(node) if self.source else None
        return ModelError(what, place=place, why=why, remedy=remedy)

    def guarded(self, node: ast.AST, work: Callable[[], Any]) -> Any:
        """Do something; a misfit becomes an error at a node."""
        try:
            return work()
        except Misfit as misfit:
            raise self.error(str(misfit), node, remedy=misfit.remedy) from None

    @abstractmethod
    def call(
        self,
        function: Callable[..., Any] | Closure,
        args: tuple[Any, ...],
        named: dict[str, Any] | None = None,
    ) -> Any:
        """Lower a call of a function of the subset; return what it returns."""

    @abstractmethod
    def body(self, closure: Closure, bound: dict[str, Any]) -> Any:
        """Lower the body of a function whose parameters are bound."""

    @abstractmethod
    def expression(self, node: ast.expr, scope: dict[str, Any]) -> Any:
        """Lower an expression; return what it is."""

    @abstractmethod
    def indices(self, node: ast.expr, scope: dict[str, Any]) -> tuple[Value, ...]:
        """Lower the indices of a variable of the lane."""
