"""Host expressions: the values a launcher computes from the arguments of a call.

Code generation writes them in Python over the names of the arguments (see
`tawa.codegen.parameters`). Here they are rewritten once to the local names of a launcher: an array
is its address, ``d.extents[i]`` and ``d.strides[i]`` are a descriptor's. What is called is ours,
all else the user's: an argument may be named as a function is.
"""

from __future__ import annotations

import ast
from collections.abc import Collection
from dataclasses import dataclass
from types import CodeType

from tawa.errors import InternalError
from tawa.syntax import parse

_ALLOWED = (
    ast.Expression, ast.Name, ast.Load, ast.Constant, ast.BinOp, ast.UnaryOp, ast.BoolOp,
    ast.Compare, ast.IfExp, ast.Call, ast.Subscript, ast.Attribute, ast.operator, ast.unaryop,
    ast.boolop, ast.cmpop,
)  # fmt: skip
_CALLS = frozenset(("min", "max", "abs", "int", "float", "bool", "divmod"))


@dataclass(frozen=True, slots=True)
class Names:
    """The arguments of a launcher by kind; `own`: functions, and numbers that the launcher has
    besides (``program0`` for ``program(0)``).
    """

    numbers: Collection[str]
    arrays: Collection[str]
    descriptors: Collection[str]
    own: Collection[str] = ()


def value_of(argument: str) -> str:
    """Return what launchers call an argument; other facts of it are called ``x__at`` and so on."""
    return f"{argument}__value"


class _Rewrite(ast.NodeTransformer):
    def __init__(self, names: Names, whole: ast.AST) -> None:
        self.names = names
        self.whole = whole

    def refuse(self, node: ast.AST) -> InternalError:
        """Return the error for a node no host expression has."""
        return InternalError(
            f"the host expression {ast.unparse(self.whole)!r} has {ast.unparse(node)!r}",
            why="it may use numbers, arguments, arithmetic and a descriptor's extents and strides",
            remedy="this is a fault of the compiler: please report it with the kernel",
        )

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """``d.extents`` → ``d__shape``, ``d.strides`` → ``d__strides``."""
        suffix = {"extents": "shape", "strides": "strides", "base": "at"}.get(node.attr)
        base = node.value
        if suffix is None or not isinstance(base, ast.Name):
            raise self.refuse(node)
        if base.id not in self.names.descriptors:
            raise self.refuse(node)
        return ast.Name(f"{base.id}__{suffix}", ast.Load())

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """A function; of the number of an axis or a loop, the number that the launcher has."""
        match node:
            case ast.Call(ast.Name(name), [ast.Constant(int(place))], []) if (
                f"{name}{place}" in self.names.own
            ):
                return ast.Name(f"{name}{place}", ast.Load())
            case ast.Call(ast.Name(name), args, []) if name in _CALLS or name in self.names.own:
                return ast.Call(node.func, [self.visit(each) for each in args], [])
            case _:
                raise self.refuse(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """An array, or a descriptor, as a value is its address."""
        if node.id in self.names.arrays or node.id in self.names.descriptors:
            return ast.Name(f"{node.id}__at", ast.Load())
        if node.id not in self.names.numbers:
            raise self.refuse(node)
        return ast.Name(value_of(node.id), ast.Load())

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Refuse what is no arithmetic."""
        if not isinstance(node, _ALLOWED):
            raise self.refuse(node)
        return super().generic_visit(node)


def rewrite(expression: str, names: Names) -> str:
    """Return an expression over the launcher's local names."""
    tree = parse(expression, "eval")
    return ast.unparse(_Rewrite(names, tree).visit(tree))


def compiled(expression: ast.expr, names: Names) -> CodeType:
    """Return the code of an expression over the launcher's local names; changes `expression`."""
    made = ast.Expression(_Rewrite(names, expression).visit(expression))
    return compile(ast.fix_missing_locations(made), "<host expression>", "eval")
