"""The source of a function: its tree, its names, and places in its file."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType, ModuleType
from typing import Any

from tawa.errors import ModelError, Place
from tawa.syntax import parse


@dataclass(frozen=True, slots=True)
class Source:
    """A function's file, and the function."""

    file: str
    function: Callable[..., Any]

    def place(self, node: ast.AST) -> Place:
        """Return the span of a node; of one over several lines, its first."""
        line = getattr(node, "lineno", 1)
        column = getattr(node, "col_offset", 0)
        end = getattr(node, "end_col_offset", column + 1)
        if getattr(node, "end_lineno", line) != line:
            end = column + 1
        return Place(self.file, line, column, end)


_Node = ast.FunctionDef | ast.Lambda
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
    """A function of the subset: a `def` or a `lambda`, the variables it can see, and what its last
    parameters are by default, as of its definition.
    """

    node: _Node
    source: Source
    scope: dict[str, Any]
    defaults: tuple[Any, ...] = ()

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
    file, node = _found(code, code.co_filename)
    return Closure(node, Source(file, function), {})


@lru_cache(maxsize=1024)  # a program calls the functions of a distribution again and again
def _found(code: CodeType, file: str) -> tuple[str, _Node]:
    """Return the file of a function, and its tree. Codes of two files may be equal."""
    try:
        lines, _ = inspect.findsource(code)
        node = _node(code, _functions("".join(lines)).get(code.co_firstlineno, ()))
    except (OSError, TypeError, SyntaxError) as error:
        raise ModelError(
            f"the source of {code.co_name} cannot be read",
            why=f"a model is compiled from its source text: {error}",
            remedy="define it in a file, not in exec or at an interactive prompt",
        ) from error
    return inspect.getsourcefile(code) or file, node


@lru_cache(maxsize=64)
def _functions(text: str) -> dict[int, list[_Node]]:
    """Return the functions of a file by the line on which they begin."""
    found: dict[int, list[_Node]] = {}
    for node in ast.walk(parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            first, *_ = (*getattr(node, "decorator_list", ()), node)
            found.setdefault(first.lineno, []).append(node)
    return found


def _node(code: CodeType, nodes: Iterable[_Node]) -> _Node:
    """Return the one that a code is of: of lambdas of a line, the inner one around all of it."""
    named = [node for node in nodes if getattr(node, "name", "<lambda>") == code.co_name]
    if len(named) == 1:
        return named[0]
    spans = [(line, at, column) for line, _, at, column in code.co_positions() if column]
    around = [
        node
        for node in named
        if all(
            (node.lineno, node.col_offset) <= (line, at)
            and (line, column) <= (node.end_lineno, node.end_col_offset)
            for line, at, column in spans
        )
        and (spans or _compiles_to(node, code))
    ]
    if not around:
        raise OSError("which of the lambdas of its line it is cannot be told")
    return max(around, key=lambda node: (node.lineno, node.col_offset))


def _compiles_to(node: _Node, code: CodeType) -> bool:
    """Whether a lambda has this code, of which no columns are known: in 3.12 so of a constant."""
    outer = compile(ast.Expression(node), "", "eval")  # type: ignore[arg-type]
    made = next(each for each in outer.co_consts if isinstance(each, CodeType))
    facts = "co_code", "co_consts", "co_names", "co_varnames"
    # By repr: 1 is True, and 0.0 is -0.0, to `==`.
    return all(repr(getattr(made, fact)) == repr(getattr(code, fact)) for fact in facts)


def returns(node: ast.If) -> bool:
    """Whether a branch of an if returns."""
    inner = [n for branch in (node.body, node.orelse) for s in branch for n in _outer_walk(s)]
    return any(isinstance(n, ast.Return) for n in inner)


def _outer_walk(node: ast.AST) -> list[ast.AST]:
    if isinstance(node, (ast.FunctionDef, ast.Lambda)):
        return []
    return [node, *(n for child in ast.iter_child_nodes(node) for n in _outer_walk(child))]


def stored(nodes: Iterable[ast.AST]) -> dict[str, None]:
    """Return the names that something assigns, in order."""
    names = (n for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name))
    return dict.fromkeys(n.id for n in names if isinstance(n.ctx, ast.Store))


def as_load(target: ast.Name | ast.Subscript | ast.Attribute) -> ast.expr:
    """Return what is assigned, as it is read."""
    if isinstance(target, ast.Name):
        return ast.Name(id=target.id, ctx=ast.Load())
    if isinstance(target, ast.Attribute):
        return ast.Attribute(value=target.value, attr=target.attr, ctx=ast.Load())
    return ast.Subscript(value=target.value, slice=target.slice, ctx=ast.Load())
