"""Evaluation: call by value, with the operators' meaning from `tawa.axon.library.reference`.

NumPy's functions, of which meanings are made, compute with arrays of other libraries as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, cached_property, partial
from typing import Any

from tawa.axon.library import DIRECTED, composed, signatures
from tawa.axon.run.values import converted
from tawa.axon.syntax.parser import parse_type
from tawa.axon.syntax.tree import (
    Annotated,
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
    Variable,
)
from tawa.axon.types.infer import ARITHMETIC, OPERATORS
from tawa.errors import InternalError

Values = dict[str, Any]


def meaning(name: str) -> Callable[..., Any]:
    """Return what an operator computes by NumPy, which is imported where it is first needed."""
    from tawa.axon.library import reference

    return reference.meaning(name)


@cache
def _options_of(name: str) -> tuple[tuple[str, Tree | None], ...] | None:
    """Return the options of an operator with their defaults; None where it takes none."""
    text = signatures().get(name, "")
    if not text.startswith("{"):
        return None
    node = parse_type(text)
    while node.kind != "options":
        node = node.parts[0]
    return tuple([(option, default) for option, _, default in node.options])


def arity(name: str) -> int:
    """Return how many arguments an operator takes, options apart."""
    own = name in signatures()
    return len(_takes_arrays(name)) if own else len(composed()[name].parameters)


@cache
def _takes_arrays(name: str) -> tuple[bool, ...]:
    """Return which arguments of an operator are arrays, or lists of them."""
    node = parse_type(signatures()[name])
    node = node.parts[0] if node.kind == "where" else node
    found: list[bool] = []
    while node.kind == "fun":
        if node.parts[0].kind != "options":
            found.append(node.parts[0].kind in ("tensor", "list"))
        node = node.parts[1]
    return tuple(found)


def _as_arrays(arguments: tuple[Any, ...], places: Sequence[bool]) -> Sequence[Any]:
    """Return numbers in the place of arrays as such, of no type, where no array has theirs.

    So what is made of numbers alone has the element type of what it meets, as numbers have.
    """
    import numpy as np

    from tawa.axon.library.untyped import arrays, untyped

    given = [each for each, array in zip(arguments, places) if array]
    if any(not str(each.dtype).endswith("bool") for each in arrays(given)):
        return arguments

    def one(value: Any) -> Any:
        if isinstance(value, tuple | list):
            return tuple([one(item) for item in value])  # pyright: ignore
        if type(value) not in (int, float):  # what is traced has sizes that are integers
            return value
        return untyped(np.asarray(value, np.int64 if isinstance(value, int) else np.float32))

    return [one(each) if array else each for each, array in zip(arguments, places)]


def curried(function: Callable[..., Any], count: int, given: tuple[Any, ...] = ()) -> Any:
    """Return a function that takes its arguments one by one."""
    if len(given) == count:
        return function(*given)

    def partial(argument: Any) -> Any:
        return curried(function, count, (*given, argument))

    return partial


class Evaluation:
    """Values of the declarations of a program, computed when the first of them is used."""

    def __init__(
        self,
        declarations: Sequence[Declaration],
        meaning: Callable[[str], Callable[..., Any]] = meaning,
    ) -> None:
        self.declarations = declarations
        self.meaning = meaning  # of an operator: what it computes
        self._others: dict[Any, Evaluation] = {}

    def by(self, meaning: Callable[[str], Callable[..., Any]]) -> Evaluation:
        """Return the evaluation of the same program by another meaning of its operators."""
        if meaning is self.meaning:
            return self
        return self._others.setdefault(meaning, Evaluation(self.declarations, meaning))

    def value(self, name: str) -> Any:
        """Return the value of a declaration."""
        return self._values[name]

    @cached_property
    def _values(self) -> Values:
        values: Values = {}
        for declaration in self.declarations:
            self._declare(declaration, values)
        return values

    def _declare(self, declaration: Declaration, values: Values) -> None:
        match declaration:
            case Fun(name=name, parameters=parameters, body=body):
                body = _typed(body, declaration.result)
                values[name] = self._function(parameters, body, dict(values))
            case Val(pattern, value):
                _bind(pattern, self.evaluate(_typed(value, pattern.type), values), values)

    def _function(self, parameters: Sequence[Pattern], body: Tree, values: Values) -> Any:
        def function(*arguments: Any) -> Any:
            inner = dict(values)
            for pattern, argument in zip(parameters, arguments):
                _bind(pattern, argument, inner)
            return self.evaluate(body, inner)

        return curried(function, len(parameters))

    def evaluate(self, tree: Tree, values: Values) -> Any:
        """Return the value of an expression."""
        match tree:
            case Name(name):
                return values[name] if name in values else self._operator(name, (), values)
            case Literal(value):
                return value
            case Call(Name(name), Record(fields)) if name not in values:
                return self._operator(name, fields, values)
            case Call(Name(name), Literal(str() as text)) if (
                name in DIRECTED and name not in values
            ):
                return curried(partial(self.meaning(name), text), text.count(",") + 1)
            case Call(function, argument):
                value = self.evaluate(function, values)
                return value(self.evaluate(argument, values))
            case Binary(operator, left, right):
                one, other = self.evaluate(left, values), self.evaluate(right, values)
                if isinstance(one, int) and isinstance(other, int):
                    return ARITHMETIC[operator](one, other)
                return self.meaning(OPERATORS[operator])(one, other)
            case Group(items):
                return tuple([self.evaluate(item, values) for item in items])
            case Lambda(pattern, body):
                return self._function([pattern], body, dict(values))
            case Let(declarations, body):
                inner = dict(values)
                for declaration in declarations:
                    self._declare(declaration, inner)
                return self.evaluate(body, inner)
            case Annotated(inner, kind):
                match inner:
                    case Call(Name("cast"), argument) if "cast" not in values:
                        inner = argument  # at once to what is wanted
                    case _:
                        pass
                value = converted(self.evaluate(inner, values), kind)
                _sizes(kind, value, values)
                return value
            case Record():
                raise InternalError("options without an operator", remedy="please report it")

    def _operator(self, name: str, fields: tuple[tuple[str, Tree], ...], values: Values) -> Any:
        if name not in signatures():
            fun = composed()[name]
            return self._function(fun.parameters, fun.body, {})
        meaning, loose = self.meaning(name), _takes_arrays(name)

        def function(*arguments: Any, **options: Any) -> Any:
            return meaning(*_as_arrays(arguments, loose), **options)

        options = _options_of(name)
        if options is None:
            return curried(function, arity(name))
        given = dict(fields)
        chosen = {
            option: self.evaluate(given.get(option, default), values)  # pyright: ignore
            for option, default in options
        }
        return curried(lambda *arguments: function(*arguments, **chosen), arity(name))


def _typed(value: Tree, kind: TypeNode | None) -> Tree:
    return value if kind is None else Annotated(value, kind, value.place)


def _bind(pattern: Pattern, value: Any, values: Values) -> None:
    if pattern.type is not None:
        _sizes(pattern.type, value, values)
    if pattern.parts:
        for part, item in zip(pattern.parts, value, strict=True):
            _bind(part, item, values)
    elif pattern.name != "_":
        values[pattern.name] = value


def _sizes(kind: TypeNode, value: Any, values: Values) -> None:
    """Bind the dimension variables that a type names to the sizes of a value."""
    match kind.kind:
        case "tensor":
            shape = tuple(getattr(value, "shape", ()))
            rows = [i for i, s in enumerate(kind.sizes) if isinstance(s, Variable) and s.row]
            for index, size in enumerate(kind.sizes):
                if isinstance(size, Variable) and not size.row and size.name != "_":
                    behind = bool(rows) and index > rows[0]
                    values[size.name] = shape[index - len(kind.sizes) if behind else index]
        case "tuple":
            for part, item in zip(kind.parts, value):
                _sizes(part, item, values)
        case "int" if kind.sizes and isinstance(kind.sizes[0], Variable):
            values[kind.sizes[0].name] = value
        case _:
            pass
