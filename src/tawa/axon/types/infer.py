"""Inference: one walk over the tree unifies types and collects constraints on shapes.

Length: a case for each kind of node, and the state they share.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any

from tawa.axon.shapes.constraints import Base, Holds
from tawa.axon.shapes.words import Source, Span
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
)
from tawa.axon.types.elaborate import Scope
from tawa.axon.types.kinds import (
    Arrow,
    ElementVar,
    Int,
    Options,
    Product,
    Scheme,
    Tensor,
    Text,
    Type,
    TypeVar,
)
from tawa.axon.types.unify import Bound, Env, Mismatch, Unifier
from tawa.errors import AxonError
from tawa.integers import Expr, Symbol, at_least, constant

OPERATORS = {
    "+": "add", "-": "sub", "*": "mul", "/": "div", "//": "floordiv", "%": "mod",
    "++": "append", "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal",
}  # fmt: skip
# Operators of integers: of those that are known when a program is checked, and when it runs.
ARITHMETIC: dict[str, Callable[..., Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul,
    "//": operator.floordiv,  # pyright: ignore[reportUnknownMemberType]
    "%": operator.mod,
}  # fmt: skip


@dataclass
class Overload:
    """An operator between values that may be integers or tensors."""

    tree: Binary
    left: Type
    right: Type
    result: Type
    source: Source


@dataclass
class Inferred:
    """What one top-level declaration came to. `posted` are all constraints, for explanations."""

    name: str
    scheme: Scheme
    place: Span
    posted: list[Base] = field(default_factory=list[Base])
    promised: dict[str, Symbol] = field(default_factory=dict[str, Symbol])
    assumed: tuple[Base, ...] = ()
    locals: dict[str, Type] = field(default_factory=dict[str, Type])


class Inference(Unifier):
    """Infers declarations one after the other; raises AxonError, or Conflict for shapes."""

    def __init__(
        self,
        library: Callable[[str], Scheme | None],
        wrong: Callable[[Span, str], AxonError],
        names: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        super().__init__(library, wrong)
        self.names = names
        self.overloads: list[Overload] = []
        self.scopes: list[Scope] = []

    # Overloads.

    def settle(self, final: bool = False) -> None:
        """Use what is known by now; `final`: operators of which nothing is known are tensors'."""
        progress = True
        while progress and self.overloads:
            progress = False
            for overload in list(self.overloads):
                if self._overload(overload, final and not progress):
                    self.overloads.remove(overload)
                    progress = True
        self.solver.settle()

    def _overload(self, overload: Overload, final: bool) -> bool:
        left, right = self.resolve(overload.left), self.resolve(overload.right)
        tree, source = overload.tree, overload.source
        if isinstance(left, Int) and isinstance(right, Int):
            value = self._integers(tree.operator, left.value, right.value, source)
            if value is None:
                raise self.wrong(tree.at, f"`{tree.operator}` is not for integers")
            self._unify_at(tree.place, overload.result, Int(value), source)
            return True
        known = isinstance(left, Tensor) or isinstance(right, Tensor) or tree.operator == "++"
        if not final and not known:
            return False
        scheme = self.library(OPERATORS[tree.operator])
        assert scheme is not None
        mark, kind = len(self.held), self.instantiate(scheme, source)
        for argument, given in ((tree.left, left), (tree.right, right)):
            assert isinstance(kind, Arrow)
            self._argument(kind.argument, given, argument, source)
            kind = kind.result
        self.release(mark)
        self._unify_at(tree.place, overload.result, kind, source)
        return True

    def _integers(self, sign: str, a: Expr, b: Expr, source: Source) -> Expr | None:
        if sign in ("//", "%"):
            if b.value == 0:
                raise self.wrong(source.place, "an integer is divided by 0")
            if b.value is None:
                self.post(Holds(source, at_least(b, 1)))
        meaning = ARITHMETIC.get(sign)
        return None if meaning is None else meaning(a, b)

    # Expressions.

    def infer(self, tree: Tree, env: Env) -> Type:
        """Return the type of an expression."""
        match tree:
            case Name():
                return self._name(tree, env)
            case Literal(value):
                return self._literal(value)
            case Call():
                return self._call(tree, env)
            case Binary():
                return self._binary(tree, env)
            case Group(items):
                return Product(tuple([self.infer(item, env) for item in items]))
            case Lambda(pattern, body):
                inner = dict(env)
                argument = self.pattern(pattern, inner)
                return Arrow(argument, self.infer(body, inner))
            case Let(declarations, body):
                inner = dict(env)
                for declaration in declarations:
                    self.declare(declaration, inner)
                return self.infer(body, inner)
            case Annotated(value, node):
                found = self.infer(value, env)
                self._annotate(found, node, value)
                return found
            case Record():
                raise self.wrong(tree.place, "options stand only after the name of an operator")

    def _literal(self, value: int | float | str) -> Type:
        match value:
            case int():
                return Int(constant(value))
            case float():
                return Tensor(ElementVar("float", self.fresh.number()), ())
            case _:
                return Text()

    def _name(self, tree: Name, env: Env) -> Type:
        source = Source(self.fresh.number(), tree.name, tree.place, tree.place)
        mark, kind = len(self.held), self._head(tree, source, env)
        if isinstance(kind, Arrow) and isinstance(kind.argument, Options):
            self._options(kind.argument, (), tree.place, source, env)
            kind = kind.result
        self.release(mark)
        return kind

    def _call(self, tree: Call, env: Env) -> Type:
        arguments: list[Tree] = []
        head: Tree = tree
        while isinstance(head, Call):
            arguments.append(head.argument)
            head = head.function
        arguments.reverse()
        label = head.name if isinstance(head, Name) else "the function"
        source = Source(self.fresh.number(), label, head.place, head.place)
        mark = len(self.held)
        if isinstance(head, Name):
            first = arguments[0] if arguments else None
            written = first.value if isinstance(first, Literal) else None
            kind = self._head(head, source, env, written if isinstance(written, str) else "")
            taken = self.resolve(kind)
            if isinstance(taken, Arrow) and isinstance(taken.argument, Options):
                fields: tuple[tuple[str, Tree], ...] = ()
                if arguments and isinstance(arguments[0], Record):
                    fields = arguments[0].fields
                    del arguments[0]
                self._options(taken.argument, fields, head.place, source, env)
                kind = taken.result
        else:
            taken = kind = self.infer(head, env)
        for argument in arguments:
            if not isinstance(self.resolve(kind), (Arrow, TypeVar)):
                text = f"`{label}` takes no further argument: it is {self._shown(taken)}"
                raise self.wrong(argument.place, text)
            kind = self._apply(kind, argument, source, env)
        self.release(mark)
        return kind

    def _head(self, head: Name, source: Source, env: Env, text: str = "") -> Type:
        """Return the type of a name: bound here, a size of an annotation, or of the library.

        That of an operator may follow from a text, its first argument.
        """
        bound = env.get(head.name)
        sizes = self.scopes[-1].dims if self.scopes else {}
        if bound is None and head.name in sizes:
            return Int(sizes[head.name])
        name = f"{head.name} {text}" if text else head.name
        try:
            found = bound.type if bound is not None else self.library(name)
        except ValueError as error:
            raise self.wrong(head.place, f"`{name}`: {error}") from error
        if found is None:
            near = get_close_matches(head.name, [*env, *self.names()], 1)
            hint = f"; did you mean `{near[0]}`?" if near else ""
            raise self.wrong(head.place, f"`{head.name}` is not defined{hint}")
        return self.instantiate(found, source) if isinstance(found, Scheme) else found

    def _apply(self, kind: Type, argument: Tree, source: Source, env: Env) -> Type:
        kind = self.resolve(kind)
        if isinstance(argument, Record):
            text = f"`{source.operator}` takes no options here: it is {self._shown(kind)}"
            raise self.wrong(argument.place, text)
        if isinstance(argument, Group):
            given = self._group(argument, env)
        else:
            given = self.infer(argument, env)
        if isinstance(kind, TypeVar):
            result = TypeVar(self.fresh.number())
            self._unify_at(argument.place, kind, Arrow(given, result), source)
            return result
        assert isinstance(kind, Arrow)
        bound = env.get(argument.name) if isinstance(argument, Name) else None
        place = bound.place if bound is not None else None
        at = replace(source, at=argument.place, name=_label(argument), bound=place)
        self._argument(kind.argument, given, argument, at)
        return kind.result

    def _group(self, tree: Group, env: Env) -> Product:
        """Infer a written-out list; remember where its items stand."""
        items: list[Type] = []
        for item in tree.items:
            kind = self.infer(item, env)
            full = self.resolve(kind)
            if isinstance(full, Tensor):
                kind = Tensor(full.element, full.word)  # an object of its own, as a key
            bound = env.get(item.name) if isinstance(item, Name) else None
            self.listed[id(kind)] = item.place, _label(item), bound.place if bound else None
            items.append(kind)
        self.kept.append(items)
        return Product(tuple(items))

    def _argument(self, wanted: Type, given: Type, tree: Tree, source: Source) -> None:
        if source.at is not tree.place:
            source = replace(source, at=tree.place, name=source.name or _label(tree))
        self._unify_at(tree.place, wanted, given, source)

    def _unify_at(self, place: Span, wanted: Type, given: Type, source: Source) -> None:
        try:
            self.unify(wanted, given, source)
        except Mismatch as error:
            why = f"; {error.why}" if error.why else ""
            if not why and isinstance(error.given, Arrow) and not isinstance(error.wanted, Arrow):
                why = ", a function that waits for another argument"
                why += " (a negative one is written ~1)" if source.operator == "-" else ""
            a, b = self._shown(error.wanted), self._shown(error.given)
            text = f"`{source.operator}` wants {a} here, this is {b}{why}"
            raise self.wrong(place, text) from error

    def _shown(self, kind: Type) -> str:
        from tawa.axon.types.show import show

        return show(self.full(kind))

    def _binary(self, tree: Binary, env: Env) -> Type:
        left, right = self.infer(tree.left, env), self.infer(tree.right, env)
        result = TypeVar(self.fresh.number())
        source = Source(self.fresh.number(), tree.operator, tree.at, tree.at)
        overload = Overload(tree, left, right, result, source)
        if not self._overload(overload, final=False):
            self.overloads.append(overload)
        return result

    def _options(
        self,
        wanted: Options,
        fields: tuple[tuple[str, Tree], ...],
        place: Span,
        source: Source,
        env: Env,
    ) -> None:
        given = dict(fields)
        known = [name for name, _, _ in wanted.fields]
        for name, tree in fields:
            if name not in known:
                text = f"`{source.operator}` has no option `{name}`; it has {', '.join(known)}"
                raise self.wrong(tree.place, text)
        for name, kind, default in wanted.fields:
            tree = given.get(name, default)
            if tree is None:
                raise self.wrong(place, f"`{source.operator}` needs the option `{name}`")
            at = replace(source, at=tree.place if name in given else place, name=name)
            found = self.infer(tree, env)
            self._unify_at(at.at, kind, found, at)

    # Declarations.

    def pattern(self, pattern: Pattern, env: Env) -> Type:
        """Bind the names of a parameter to new types."""
        if pattern.parts:
            kind: Type = Product(tuple([self.pattern(part, env) for part in pattern.parts]))
        else:
            kind = TypeVar(self.fresh.number(), pattern.name)
            if pattern.type is not None:
                kind = self.scopes[-1].type(pattern.type)
                self._take_constraints()
            if pattern.name != "_":
                env[pattern.name] = Bound(kind, pattern.place)
            return kind
        if pattern.type is not None:
            source = Source(0, "the annotation", pattern.place, pattern.place)
            self._unify_at(pattern.place, self.scopes[-1].type(pattern.type), kind, source)
            self._take_constraints()
        return kind

    def _take_constraints(self) -> None:
        scope = self.scopes[-1]
        for constraint in scope.constraints:
            self.post(constraint)
        scope.constraints = []

    def _annotate(self, kind: Type, node: TypeNode, tree: Tree) -> None:
        source = Source(self.fresh.number(), "the annotation", node.place, tree.place)
        wanted = self.scopes[-1].type(node)
        self._take_constraints()
        self._unify_at(node.place, wanted, kind, source)

    def declare(self, declaration: Declaration, env: Env) -> None:
        """Bind the names of a declaration."""
        match declaration:
            case Fun():
                mark = self.fresh.number()
                kind = self.function(declaration, env)
                env[declaration.name] = Bound(self.generalize(kind, env, mark))
            case Val(pattern, value):
                mark = self.fresh.number()
                found = self.infer(value, env)
                # The value restriction: an application may not be general.
                if pattern.name and isinstance(value, Lambda | Name):
                    if pattern.type is not None:
                        self._annotate(found, pattern.type, value)
                    env[pattern.name] = Bound(self.generalize(found, env, mark))
                    return
                self._bind(pattern, found, value, env)

    def _bind(self, pattern: Pattern, kind: Type, value: Tree, env: Env) -> None:
        if pattern.type is not None:
            self._annotate(kind, pattern.type, value)
        if not pattern.parts:
            env[pattern.name] = Bound(kind)
            self.locals[pattern.name] = kind
            return
        kind = self.resolve(kind)
        if isinstance(kind, TypeVar):
            made = Product(tuple([TypeVar(self.fresh.number()) for _ in pattern.parts]))
            self.types[kind] = made
            kind = made
        if not isinstance(kind, Product) or len(kind.items) != len(pattern.parts):
            raise self.wrong(pattern.place, f"a tuple of {len(pattern.parts)} is wanted")
        for part, item in zip(pattern.parts, kind.items):
            self._bind(part, item, value, env)

    def function(self, tree: Fun, env: Env) -> Type:
        """Return the type of a declared function, without generalising it."""
        outer = self.scopes[-1].dims if self.scopes else {}
        place = tree.place
        source = Source(0, tree.name, place, place)
        scope = Scope(self.fresh, self.wrong, source, dims=dict(outer))
        self.scopes.append(scope)
        for name in tree.promised:
            scope.dims[name] = self.fresh.dim(name)
            self.solver.promised.update(scope.dims[name].symbols)
        inner = dict(env)
        arguments = [self.pattern(pattern, inner) for pattern in tree.parameters]
        for relation in tree.requires:
            scope.relation(relation)
        self.assumed += tuple(scope.constraints)
        self._take_constraints()
        kind = self.infer(tree.body, inner)
        if tree.result is not None:
            self._annotate(kind, tree.result, tree.body)
        self.scopes.pop()
        self.promised.update({name: next(iter(scope.dims[name].symbols)) for name in tree.promised})
        for argument in reversed(arguments):
            kind = Arrow(argument, kind)
        return kind

    def one(self, declaration: Declaration, env: Env) -> Inferred:
        """Infer one top-level declaration."""
        self.begin()
        mark = self.fresh.number()
        match declaration:
            case Fun(name=name, place=place):
                kind = self.function(declaration, env)
                scheme = self.generalize(kind, env, mark)
                env[name] = Bound(scheme)
            case Val(pattern, value, place):
                source = Source(0, pattern.name, pattern.place, pattern.place)
                self.scopes.append(Scope(self.fresh, self.wrong, source))
                found = self.infer(value, env)
                self._bind(pattern, found, value, env)
                self.scopes.pop()
                name = pattern.name
                # Nothing outside can say more of it: what is left unknown is general.
                scheme = self.generalize(found, {}, mark)
                if isinstance(value, Lambda | Name) or not scheme.general:
                    env[name] = Bound(scheme)
        found = {local: self.full(kind) for local, kind in self.locals.items()}
        return Inferred(name, scheme, place, self.posted, self.promised, self.assumed, found)


def _label(tree: Tree) -> str:
    return tree.name if isinstance(tree, Name) else ""
