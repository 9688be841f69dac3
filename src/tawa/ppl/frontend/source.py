"""The source of a function: its tree, its names, and places in its file."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType, ModuleType
from typing import Any

from tawa.errors import ModelError, Place
from tawa.syntax import parse


@dataclass(frozen=True, slots=True)
class Source:
    """A function's file, and how far its tree's lines and columns are from those of the file."""

    file: str
    line: int
    column: int
    function: Callable[..., Any]

    def place(self, node: ast.AST) -> Place:
        """Return the span of a node; of one over several lines, its first."""
        line = getattr(node, "lineno", 1)
        column = getattr(node, "col_offset", 0)
        end = getattr(node, "end_col_offset", column + 1)
        if getattr(node, "end_lineno", line) != line:
            end = column + 1
        return Place(self.file, self.line + line - 1, self.column + column, self.column + end)


MISSING = object()
Holder = Callable[..., Any] | ModuleType


def held(holder: Holder, name: str) -> Any:
    """Return what a function or a module has by a name now; `MISSING` where it has nothing."""
    if isinstance(holder, ModuleType):
        return getattr(holder, name, MISSING)
    free = holder.__code__.co_freevars
    if name in free:
        try:
            return (holder.__closure__ or ())[free.index(name)].cell_contents
        except ValueError:  # not assigned yet: using it is an error with a place
            return MISSING
    return holder.__globals__.get(name, MISSING)


@dataclass(eq=False, slots=True)
class Closure:
    """A function of the subset: a `def` or a `lambda`, and the variables it can see."""

    node: ast.FunctionDef | ast.Lambda
    source: Source
    scope: dict[str, Any]

    @property
    def name(self) -> str:
        """Its name, for messages."""
        return self.node.name if isinstance(self.node, ast.FunctionDef) else "lambda"

    @property
    def parameters(self) -> list[str]:
        """The names of its parameters."""
        return [argument.arg for argument in self.node.args.args]


def read(function: Callable[..., Any]) -> Closure:
    """Return a Python function as a function of the subset.

    Raises ModelError where its source cannot be read.
    """
    code = function.__code__
    file, line, column, node = _parsed(code)
    source = Source(file, line, column, function)
    if not isinstance(node, ast.FunctionDef):
        raise ModelError(
            f"{code.co_name} is not defined with def",
            place=source.place(node),
            why="the text of a lambda outside of a model cannot be told from its line",
            remedy="define it with def, or write the lambda inside of the model",
        )
    return Closure(node, source, {})


@lru_cache(maxsize=1024)  # a program calls the functions of a distribution again and again
def _parsed(code: CodeType) -> tuple[str, int, int, ast.stmt]:
    """Return the file of a function, its line and column, and its tree."""
    try:
        lines, first = inspect.getsourcelines(code)
        file = inspect.getsourcefile(code) or "?"
    except (OSError, TypeError) as error:
        raise ModelError(
            f"the source of {code.co_name} cannot be read",
            why="a model is compiled from its source text",
            remedy="define it with def in a file, not in exec or at an interactive prompt",
        ) from error
    column = len(lines[0]) - len(lines[0].lstrip())
    return file, first, column, parse(textwrap.dedent("".join(lines))).body[0]


def returns(node: ast.If) -> bool:
    """Whether a branch of an if returns."""
    inner = [n for branch in (node.body, node.orelse) for s in branch for n in _outer_walk(s)]
    return any(isinstance(n, ast.Return) for n in inner)


def _outer_walk(node: ast.AST) -> list[ast.AST]:
    if isinstance(node, (ast.FunctionDef, ast.Lambda)):
        return []
    return [node, *(n for child in ast.iter_child_nodes(node) for n in _outer_walk(child))]


def as_load(target: ast.Name | ast.Subscript | ast.Attribute) -> ast.expr:
    """Return what is assigned, as it is read."""
    if isinstance(target, ast.Name):
        return ast.Name(id=target.id, ctx=ast.Load())
    if isinstance(target, ast.Attribute):
        return ast.Attribute(value=target.value, attr=target.attr, ctx=ast.Load())
    return ast.Subscript(value=target.value, slice=target.slice, ctx=ast.Load())
