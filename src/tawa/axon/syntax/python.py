"""Functions written in a subset of Python, as trees of the language.

The subset: assignments, `return`, expressions, calls of `axon.<operator>` and of other graphs,
`for` over a range of known length, which is unrolled, and `if` on what Python knows when the
function is decorated. A keyword of a call is an option of the operator.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tawa.axon.shapes.words import Span
from tawa.axon.syntax.parser import parse_type, quoted
from tawa.axon.syntax.tree import (
    Binary,
    Call,
    Declaration,
    Fun,
    Group,
    Lambda,
    Let,
    Literal,
    Name,
    Pattern,
    Record,
    Tree,
    TypeNode,
    Val,
)
from tawa.errors import AxonError

_OPERATORS: dict[type, str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
}  # fmt: skip
# In Python the array comes first, and some options are positional.
_WEIGHT_LAST = ("conv", "conv_transpose")
_POSITIONAL = {"concat": "axis", "stack": "axis"}
_OPTION = {"upsample": "scale"}


class Reader:
    """Reads one Python function; `file` and `lines` are those of its source."""

    def __init__(self, function: Callable[..., Any], graphs: Callable[[Any], Fun | None]) -> None:
        source, start = inspect.getsourcelines(function)
        self.file = inspect.getsourcefile(function) or "?"
        text = textwrap.dedent("".join(source))
        self._indent = len(source[0]) - len(source[0].lstrip())
        self._start = start - 1
        self.lines = [""] * self._start + [line.rstrip("\n") for line in source]
        closure = inspect.getclosurevars(function)
        self._known: Mapping[str, Any] = {
            **closure.builtins,
            **closure.globals,
            **closure.nonlocals,
        }
        self._graphs = graphs
        self._bound: set[str] = set()
        self.needed: dict[str, Declaration] = {}
        (definition,) = ast.parse(text).body
        assert isinstance(definition, ast.FunctionDef)
        self.fun = self._function(definition)

    def _place(self, node: ast.AST) -> Span:
        line = getattr(node, "lineno", 1)
        column = getattr(node, "col_offset", 0) + self._indent + 1
        same = getattr(node, "end_lineno", line) == line
        end = getattr(node, "end_col_offset", 0) + self._indent + 1 if same else column + 1
        return Span(self._start + line, column, end)

    def _refuse(self, node: ast.AST, why: str, remedy: str = "") -> AxonError:
        place = self._place(node)
        shown = quoted(self.lines, place)
        return AxonError(f"{self.file}:{place}: error: {why}\n{shown}", remedy=remedy)

    def _function(self, node: ast.FunctionDef) -> Fun:
        arguments = node.args
        if arguments.vararg or arguments.kwarg or arguments.kwonlyargs or arguments.defaults:
            raise self._refuse(node, "a graph has plain parameters", "leave out * and defaults")
        parameters: list[Pattern] = []
        for argument in [*arguments.posonlyargs, *arguments.args]:
            self._bound.add(argument.arg)
            kind = self._type(argument.annotation)
            parameters.append(Pattern(self._place(argument), argument.arg, type=kind))
        declarations: list[Declaration] = []
        result = self._block(node.body, declarations)
        if result is None:
            raise self._refuse(node, "a graph returns a value", "end it with `return`")
        body = Let(tuple(declarations), result, self._place(node))
        return Fun(node.name, tuple(parameters), body, self._place(node))

    def _type(self, node: ast.expr | None) -> TypeNode | None:
        if node is None:
            return None
        written = isinstance(node, ast.Constant) and isinstance(node.value, str)
        text = str(node.value) if written else ast.unparse(node)  # pyright: ignore
        place = self._place(node)
        found = parse_type(text, f"{self.file}:{place}")
        return TypeNode(found.kind, place, found.name, found.parts, found.sizes)

    def _block(self, body: Sequence[ast.stmt], out: list[Declaration]) -> Tree | None:
        """Add the declarations of statements; return what they return, None if nothing."""
        for statement in body:
            match statement:
                case ast.Return(value) if value is not None:
                    return self._tree(value)
                case ast.Assign(targets=[target], value=value):
                    out.append(self._val(target, self._tree(value)))
                case ast.AugAssign(target=ast.Name() as target, op=op, value=value):
                    left = Name(target.id, self._place(target))
                    made = self._operation(op, left, self._tree(value), statement)
                    out.append(self._val(target, made))
                case ast.For(target=ast.Name() as target, iter=over, body=inner, orelse=[]):
                    for number in self._range(over):
                        out.append(self._val(target, Literal(number, self._place(target))))
                        if (found := self._block(inner, out)) is not None:
                            return found
                case ast.If(test=test, body=inner, orelse=other):
                    found = self._block(inner if self._fact(test) else other, out)
                    if found is not None:
                        return found
                case ast.Expr(value=ast.Constant(value=str())) | ast.Pass():
                    pass
                case _:
                    raise self._refuse(statement, "a graph cannot have this statement")
        return None

    def _val(self, target: ast.expr, value: Tree) -> Val:
        return Val(self._pattern(target), value, self._place(target))

    def _pattern(self, target: ast.expr) -> Pattern:
        match target:
            case ast.Name(id=name):
                self._bound.add(name)
                return Pattern(self._place(target), name)
            case ast.Tuple(elts=items):
                return Pattern(self._place(target), parts=tuple(map(self._pattern, items)))
            case _:
                raise self._refuse(target, "only names are assigned to")

    def _fact(self, test: ast.expr) -> Any:
        """Return what Python knows: an expression of constants from outside."""
        names = {node.id for node in ast.walk(test) if isinstance(node, ast.Name)}
        if names & self._bound:
            name = next(iter(names & self._bound))
            raise self._refuse(test, f"`{name}` is not known when the graph is made")
        code = compile(ast.Expression(test), self.file, "eval")
        return eval(code, dict(self._known))

    def _range(self, over: ast.expr) -> Sequence[int]:
        found = self._fact(over)
        if not isinstance(found, range):
            raise self._refuse(over, "a loop of a graph is over a range", "write `range(n)`")
        return found

    def _operation(self, operator: ast.AST, left: Tree, right: Tree, node: ast.AST) -> Tree:
        place = self._place(node)
        if isinstance(operator, ast.MatMult):
            return Call(Call(Name("matmul", place), left, place), right, place)
        if type(operator) not in _OPERATORS:
            raise self._refuse(node, "graphs do not have this operator")
        return Binary(_OPERATORS[type(operator)], left, right, place, place)

    def _tree(self, node: ast.expr) -> Tree:
        place = self._place(node)
        match node:
            case ast.Constant(value=bool() | int() | float() | str() as value):
                return Literal(int(value) if isinstance(value, bool) else value, place)
            case ast.Name(id=name):
                return self._name(name, node)
            case ast.Attribute(attr=name):
                return Name(name, place)
            case ast.BinOp(left=left, op=op, right=right):
                return self._operation(op, self._tree(left), self._tree(right), node)
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self._operation(op, self._tree(left), self._tree(right), node)
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                made = self._tree(inner)
                if isinstance(made, Literal) and not isinstance(made.value, str):
                    return Literal(-made.value, place)
                return Call(Name("neg", place), made, place)
            case ast.Tuple(elts=items) | ast.List(elts=items):
                trees = tuple([self._tree(item) for item in items])
                return Group(trees, place, is_list=isinstance(node, ast.List))
            case ast.Lambda(args=arguments, body=body) if len(arguments.args) == 1:
                name = arguments.args[0].arg
                self._bound.add(name)
                return Lambda(Pattern(place, name), self._tree(body), place)
            case ast.Call():
                return self._call(node)
            case _:
                raise self._refuse(node, "a graph cannot have this expression")

    def _name(self, name: str, node: ast.expr) -> Tree:
        place = self._place(node)
        if name in self._bound:
            return Name(name, place)
        value = self._known.get(name)
        if isinstance(value, int | float):
            return Literal(value, place)
        fun = self._graphs(value)
        if fun is None:
            raise self._refuse(node, f"`{name}` is no number, graph or parameter")
        self.needed[fun.name] = fun
        return Name(fun.name, place)

    def _call(self, node: ast.Call) -> Tree:
        place = self._place(node)
        function = self._tree(node.func)
        name = function.name if isinstance(function, Name) else ""
        operator = isinstance(node.func, ast.Attribute)
        arguments = [self._tree(item) for item in node.args]
        options = {str(item.arg): self._tree(item.value) for item in node.keywords}
        if operator and name in _WEIGHT_LAST and len(arguments) == 2:
            arguments.reverse()
        if operator and (key := _POSITIONAL.get(name)) in options:
            arguments.append(options.pop(str(key)))
        if operator and name in _OPTION and len(arguments) == 2:
            options[_OPTION[name]] = arguments.pop()
        if options:
            function = Call(function, Record(tuple(options.items()), place), place)
        for argument in arguments:
            function = Call(function, argument, place)
        return function
