"""Lowering: statements and expressions of the subset to IR.

Functions are inlined where they are called, with what is known about their arguments; so functions
are values that cost nothing. A function that calls itself is found on the way: lowering
begins again, and makes it a `Function` of the IR whose arguments are all dynamic.

Length: one visitor; words of the language are in `words.py`, numbers in `arithmetic.py`.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

from tawa.ppl.frontend import indexing, loops, memory, recursion, vectors, words
from tawa.ppl.frontend.arithmetic import RANK, Misfit, describe, is_array
from tawa.ppl.frontend.context import Context
from tawa.ppl.frontend.family import Distribution
from tawa.ppl.frontend.recursion import Recursive, Unknown
from tawa.ppl.frontend.source import (
    MISSING,
    Closure,
    Holder,
    as_load,
    held,
    read,
    returns,
    stored,
)
from tawa.ppl.frontend.values import (
    Hole,
    Lane,
    List,
    View,
    is_record,
    rebuild,
)
from tawa.ppl.ir.core import BOOL, I32, Builder, Program, Region, Value, walk

_SUBSET = "a model has assignments, if, for, while, return, def, lambda and expressions"
_REMEDIES: dict[type[ast.expr], str] = {
    ast.Dict: "return a tuple: a site has the name of the variable it is assigned to",
    ast.ListComp: "ppl.filter(lambda v: ..., vector) chooses by a condition, before map",
}


def _not_as_python(operator: str, *sides: tuple[ast.expr, Any]) -> None:
    """Raise Misfit where Python would repeat or join lists that are vectors here."""
    lists = [isinstance(node, ast.List | ast.ListComp) for node, _ in sides]
    whole = [
        value.type.kind != "bool" and not value.type.is_float
        if isinstance(value, (Value, View))
        else isinstance(value, int)
        for _, value in sides
    ]
    repeats = any(a and b for a, b in zip(lists, reversed(whole), strict=True))
    if (operator == "Add" and all(lists)) or (operator == "Mult" and repeats):
        raise Misfit(
            "a list in brackets is a vector here, which * and + take element by element; "
            "Python would repeat or join it",
            "write ppl.repeat(n, lambda: x), or give the vector a name",
        )


class Lowering(Context):
    """Appends what functions of the subset mean to a program."""

    def __init__(self, program: Program, builder: Builder, recursive: frozenset[object]) -> None:
        super().__init__(program, builder)
        self.recursive = recursive

    # -- functions

    def call(
        self,
        function: Callable[..., Any] | Closure,
        args: tuple[Any, ...],
        named: dict[str, Any] | None = None,
    ) -> Any:
        """Lower a call of a function of the subset; return what it returns."""
        if word := words.lowering(function):
            return word(self, *args, **(named or {}))
        if not isinstance(function, Closure | FunctionType):
            raise Misfit(f"a function is needed here, not {describe(function)}")
        closure = function if isinstance(function, Closure) else read(function)
        # Lowering may begin again with another tree: a function is known by its place.
        key: object = closure.source.place(closure.node)
        names = closure.parameters
        node = closure.node.args
        if node.vararg or node.kwarg or node.kwonlyargs or node.posonlyargs:
            raise self.error("* and / in parameters have no meaning in a model", closure.node)
        bound = dict(zip(names, args, strict=False)) | (named or {})
        # An argument by place and by name, or a place too many, is missing here.
        all_bound = len(bound) == len(args) + len(named or ())
        own = isinstance(function, Closure)
        defaults = function.defaults if own else function.__defaults__ or ()
        for name, default in zip(names[len(names) - len(defaults) :], defaults, strict=True):
            if name not in bound:
                bound[name] = default if own else words.resolve(default)
        if not all_bound or bound.keys() != set(names):
            wanted = f"{len(names)} arguments ({', '.join(names)})" if names else "no arguments"
            have = [str(len(args)), *(f"{name}=" for name in named or ())]
            raise Misfit(f"{closure.name} takes {wanted}, not {', '.join(have)}")
        args = tuple(bound[name] for name in names)
        if key in self.recursive:
            return recursion.call(self, closure, key, args)
        if key in self.active:
            raise Recursive(key)
        self.active.append(key)
        try:
            return self.body(closure, dict(zip(names, args, strict=True)))
        finally:
            self.active.pop()

    def _closure(self, node: ast.FunctionDef | ast.Lambda, scope: dict[str, Any]) -> Closure:
        """Return a function that a model defines, with its defaults as they are now."""
        assert self.source is not None
        defaults = tuple(self.expression(each, scope) for each in node.args.defaults)
        return Closure(node, self.source, scope, defaults)

    def body(self, closure: Closure, bound: dict[str, Any]) -> Any:
        """Lower the body of a function whose parameters are bound."""
        scope = closure.scope | bound
        outer = self.source, self.naming, self.b.place
        self.source = closure.source
        try:
            if isinstance(closure.node, ast.Lambda):
                return self.expression(closure.node.body, scope)
            self.naming = ""
            body = closure.node.body
            return self.statements(body, scope)
        finally:
            self.source, self.naming, self.b.place = outer

    # -- statements

    def statements(self, body: list[ast.stmt], scope: dict[str, Any]) -> Any:
        """Lower statements; return what they return (None where they do not)."""
        for number, statement in enumerate(body):
            rest = body[number + 1 :]
            match statement:
                case ast.Return():
                    return (
                        None if statement.value is None else self.expression(statement.value, scope)
                    )
                case ast.If():
                    test = self.truth(statement.test, scope)
                    if isinstance(test, bool):
                        chosen = statement.body if test else statement.orelse
                        return self.statements([*chosen, *rest], scope)
                    if returns(statement):
                        return self._fork(test, statement, rest, scope)
                    self._if(test, statement, scope)
                case ast.For():
                    self._for(statement, scope)
                case ast.While():
                    self._while(statement, scope)
                case ast.FunctionDef():
                    scope[statement.name] = self._closure(statement, scope)
                case ast.Assign(targets=targets):
                    self._named(targets[0])
                    value = self.expression(statement.value, scope)
                    self.naming = ""
                    for target in targets:
                        self.bind(target, value, scope)
                case ast.AnnAssign(target=target, value=ast.expr() as given):
                    self._named(target)
                    value = self.expression(given, scope)
                    self.naming = ""
                    self.bind(target, value, scope)
                case ast.AugAssign(target=ast.Name() | ast.Subscript() | ast.Attribute() as target):
                    held = ast.copy_location(as_load(target), target)
                    value = self.guarded(
                        statement,
                        lambda held=held, s=statement: self.numbers.binary(
                            type(s.op).__name__,
                            self.expression(held, scope),
                            self.expression(s.value, scope),
                        ),
                    )
                    self.bind(target, value, scope)
                case ast.Expr(value=ast.Constant()) | ast.Pass():
                    continue
                case ast.Expr():
                    self.expression(statement.value, scope)
                case _:
                    kind = type(statement).__name__.lower()
                    raise self.error(f"{kind} cannot stand in a model", statement, why=_SUBSET)
        return None

    def _named(self, target: ast.expr) -> None:
        self.naming = target.id if isinstance(target, ast.Name) else ""

    def bind(self, target: ast.expr, value: Any, scope: dict[str, Any]) -> None:
        """Give a name, several names, or an item of the lane's memory a value."""
        match target:
            case ast.Name(id=name):
                scope[name] = value
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                items = self._items(value)
                if items is None or len(items) != len(targets):
                    raise self.error(
                        f"{describe(value)} cannot be taken apart into {len(targets)} names", target
                    )
                for inner, item in zip(targets, items, strict=True):
                    self.bind(inner, item, scope)
            case ast.Subscript(value=held, slice=index):
                array = self.expression(held, scope)
                if (whole := memory.variable(array)) is None:
                    raise self.error(
                        "an item of a vector cannot be assigned",
                        target,
                        why="vectors are values",
                        remedy="make a new vector with ppl.map, or x = ppl.put(x, i, value)",
                    )
                memory.store(self, whole, (*array.at, *self.indices(index, scope)), value)
            case ast.Attribute(value=held, attr=name) if isinstance(
                self.expression(held, scope), Lane
            ):
                memory.assign(self, name, value)
            case _:
                raise self.error("this cannot be assigned in a model", target, why=_SUBSET)

    def _items(self, value: Any) -> tuple[Any, ...] | None:
        if isinstance(value, tuple):
            return value  # type: ignore[reportUnknownVariableType]
        if is_array(value):
            return tuple(indexing.at(self, value, (k,)) for k in range(value.type.shape[0]))
        return None

    def _region(self, run: Callable[[], Any], args: tuple[Value, ...] = ()) -> tuple[Region, Any]:
        region = Region(args)
        with self.b.inside(region):
            return region, run()

    def _fork(self, test: Value, node: ast.If, rest: list[ast.stmt], scope: dict[str, Any]) -> Any:
        """An `if` with a return in it: what follows belongs to the branches that go on."""
        yes, no = ([*branch, *rest] for branch in (node.body, node.orelse))
        return self._either(
            test,
            node,
            lambda: self.statements(yes, dict(scope)),
            lambda: self.statements(no, dict(scope)),
        )

    def _branches(self, *work: Callable[[], Any]) -> list[tuple[Region, Any]]:
        """Lower branches; one whose recursive call has no type yet is left out for now.

        If one is left, it is lowered again when the other's type is known: its operations go to the
        region at hand.
        """
        known: list[tuple[Region, Any]] = []
        for branch in work:
            try:
                known.append(self._region(branch))
            except Unknown:
                continue
        if not known:
            raise Unknown
        if len(known) == 1:
            self.b.region.ops.extend(known[0][0].ops)
        return known

    def _either(self, test: Value, node: ast.AST, *work: Callable[[], Any]) -> Any:
        """Lower two branches; return what one of them gives."""
        known = self._branches(*work)
        return known[0][1] if len(known) == 1 else self.join(test, known[0], known[1], node)

    def join(
        self, test: Value, yes: tuple[Region, Any], no: tuple[Region, Any], node: ast.AST
    ) -> Any:
        """Make an `if` of two lowered branches; return the record that one of them gave."""
        columns: list[tuple[Value, Value]] = []

        def merge(a: Any, b: Any) -> Any:
            if is_record(a) and is_record(b) and len(a) == len(b):
                pairs: Any = zip(a, b, strict=True)
                return tuple(merge(x, y) for x, y in pairs)
            if a is b or (type(a) is type(b) and isinstance(a, (int, float)) and a == b):
                return a
            if isinstance(a, (Value, View, bool, int, float)) and isinstance(
                b, (Value, View, bool, int, float)
            ):
                columns.append(self._same(yes[0], a, no[0], b))
                return Hole(len(columns) - 1)
            if isinstance(a, List) and isinstance(b, List) and repr(a.item) == repr(b.item):
                columns.append(self._same(yes[0], a.place, no[0], b.place))
                return List(Hole(len(columns) - 1), a.item, a.types)  # type: ignore[arg-type]
            if a is None and b is None:
                return None
            raise Misfit(f"one branch gives {describe(a)}, the other {describe(b)}")

        template = self.guarded(node, lambda: merge(yes[1], no[1]))
        yes[0].yields = tuple(a for a, _ in columns)
        no[0].yields = tuple(b for _, b in columns)
        types = tuple(a.type for a, _ in columns)
        made = self.b.op("if", (test,), types, (yes[0], no[0]))
        return rebuild(template, list(made.results))

    def _same(self, left: Region, a: Any, right: Region, b: Any) -> tuple[Value, Value]:
        """Return two numbers or arrays, each computed in its region, as values of one type."""
        with self.b.inside(left):
            first = self.numbers.value(a)
        with self.b.inside(right):
            second = self.numbers.value(b)
        if first.type != second.type:
            if RANK[first.type.kind] < RANK[second.type.kind]:
                with self.b.inside(left):
                    first = self.numbers.value(first, second.type)
            else:
                with self.b.inside(right):
                    second = self.numbers.value(second, first.type)
        return first, second

    def _if(self, test: Value, node: ast.If, scope: dict[str, Any]) -> None:
        def run(body: list[ast.stmt]) -> dict[str, Any]:
            inner = dict(scope)
            self.statements(body, inner)
            return inner

        known = self._branches(lambda: run(node.body), lambda: run(node.orelse))
        if len(known) == 1:
            scope.update(known[0][1])
            return
        (_, yes), (_, no) = known
        changed = [n for n in yes if n in no and (yes[n] is not no[n] or n not in scope)]
        one, other = ((part, tuple(ends[n] for n in changed)) for part, ends in known)
        scope.update(zip(changed, self.join(test, one, other, node), strict=True))

    def _no_jumps(self, node: ast.For | ast.While) -> None:
        if node.orelse:
            raise self.error("else cannot follow a loop in a model", node, why=_SUBSET)
        for inner in ast.walk(node):
            if isinstance(inner, (ast.Return, ast.Break, ast.Continue)):
                word = type(inner).__name__.lower()
                raise self.error(
                    f"{word} cannot stand in a loop",
                    inner,
                    why="a loop of a model ends by its condition or its count",
                    remedy="use while with a condition, or a function that calls itself",
                )

    def _for(self, node: ast.For, scope: dict[str, Any]) -> None:
        self._no_jumps(node)
        over = self.expression(node.iter, scope)
        if isinstance(over, tuple):
            for item in over:  # type: ignore[reportUnknownVariableType]
                self.bind(node.target, item, scope)
                self.statements(node.body, scope)
            return
        sequence = self.guarded(node.iter, lambda: indexing.sequence(self, over))
        names = [n for n in stored(node.body) if n in scope and n not in stored([node.target])]

        def step(inner: dict[str, Any], item: Any) -> None:
            self.bind(node.target, item, inner)
            self.statements(node.body, inner)

        loops.counted(self, sequence, names, scope, step, node)

    def _while(self, node: ast.While, scope: dict[str, Any]) -> None:
        self._no_jumps(node)
        names = [n for n in stored(node.body) if n in scope]

        def make(starts: tuple[Value, ...], enter: Any) -> Any:
            types = tuple(start.type for start in starts)
            head, body = Region(tuple(map(Value, types))), Region(tuple(map(Value, types)))
            with self.b.inside(head):
                inner, _ = enter(head.args)
                head.yields = (self.numbers.value(self.truth(node.test, inner), BOOL),)
            with self.b.inside(body):
                inner, close = enter(body.args)
                self.statements(node.body, inner)
                body.yields = close(inner)
            faults = (op.attrs.get("name") == "fault" for r in (head, body) for op in walk(r))
            if any(faults):  # what a lane computes behind a fault may be without an end
                with self.b.inside(head):
                    none = self.b.compare("eq", self.b.get("fault", I32), self.b.const(0, I32))
                    head.yields = (self.b.make("and", head.yields[0], none),)
            return list(self.b.op("while", starts, types, (head, body)).results)

        loops.carry(self, names, scope, node, make)

    # -- expressions

    def truth(self, node: ast.expr, scope: dict[str, Any]) -> Value | bool:
        """Lower a condition."""
        given = self.expression(node, scope)
        return self.guarded(node, lambda: self.numbers.truth(given))

    def expression(self, node: ast.expr, scope: dict[str, Any]) -> Any:
        """Lower an expression; return what it is."""
        assert self.source is not None
        self.b.place = self.source.place(node)
        return self.guarded(node, lambda: self._expression(node, scope))

    def _expression(self, node: ast.expr, scope: dict[str, Any]) -> Any:
        assert self.source is not None
        match node:
            case ast.Constant(value=value):
                if not isinstance(value, (bool, int, float, str, type(None))):
                    raise Misfit(f"{value!r} has no meaning in a model")
                return value
            case ast.Name(id=name):
                return self._name(name, node, scope)
            case ast.Attribute(value=inner, attr=attr):
                holder = self.expression(inner, scope)
                if isinstance(holder, Lane):
                    return memory.read(self, holder, attr)
                if isinstance(holder, ModuleType):
                    found = self._outside(holder, attr)
                    if found is MISSING:
                        raise Misfit(f"there is no {attr}")
                    return words.resolve(found)
                if attr == "shape" and is_array(holder):
                    return holder.type.shape
                remedy = "write ppl.log_prob(distribution, value)" if attr == "log_prob" else ""
                raise Misfit(f"{describe(holder)} has no attribute {attr} in a model", remedy)
            case ast.Tuple(elts=items):
                return tuple(self.expression(item, scope) for item in items)
            case ast.List(elts=items):
                parts = [self.expression(item, scope) for item in items]
                return vectors.pack(self, parts)
            case ast.ListComp(elt=body, generators=[ast.comprehension(ifs=[]) as over]):
                rows = self.expression(over.iter, scope)

                def item(given: Any) -> Any:
                    inner = dict(scope)
                    self.bind(over.target, given, inner)
                    return self.expression(body, inner)

                return vectors.mapped(self, item, (rows,))
            case ast.Lambda():
                return self._closure(node, scope)
            case ast.BinOp(left=left, op=op, right=right):
                name = type(op).__name__
                a, b = self.expression(left, scope), self.expression(right, scope)
                self.b.place = self.source.place(node)
                _not_as_python(name, (left, a), (right, b))
                if name == "MatMult":
                    return vectors.matmul(self, a, b)
                return self.numbers.binary(name, a, b)
            case ast.UnaryOp(op=op, operand=inner):
                given = self.expression(inner, scope)
                match op:
                    case ast.USub():
                        return self.numbers.minus(given)
                    case ast.Not():
                        return self.numbers.negate(given)
                    case ast.UAdd():
                        return given
                    case _:
                        raise Misfit("~ has no meaning in a model")
            case ast.Compare(left=left, ops=ops, comparators=rights):
                held = self.expression(left, scope)
                result: Any = True
                for op, right in zip(ops, rights, strict=True):
                    after = self.expression(right, scope)
                    name = {"Is": "Eq", "IsNot": "NotEq"}.get(type(op).__name__, type(op).__name__)
                    part = self.numbers.compare(name, held, after)
                    result = part if result is True else self.numbers.binary("BitAnd", result, part)
                    held = after
                return result
            case ast.BoolOp(op=op, values=[first, *others]):
                test = self.truth(first, scope)
                stops = isinstance(op, ast.Or)
                rest = others[0] if len(others) == 1 else ast.BoolOp(op=op, values=others)
                ast.copy_location(rest, node)
                if isinstance(test, bool):
                    return test if test == stops else self.truth(rest, scope)
                known = self._region(lambda: stops)
                other = self._region(lambda: self.truth(rest, scope))
                return self.join(test, *((known, other) if stops else (other, known)), node)
            case ast.IfExp(test=condition, body=body, orelse=orelse):
                test = self.truth(condition, scope)
                if isinstance(test, bool):
                    return self.expression(body if test else orelse, scope)
                return self._either(
                    test,
                    node,
                    lambda: self.expression(body, scope),
                    lambda: self.expression(orelse, scope),
                )
            case ast.Subscript(value=inner, slice=index):
                return indexing.subscript(self, self.expression(inner, scope), index, scope)
            case ast.Call():
                return self._call(node, scope)
            case _:
                kind, remedy = type(node).__name__, _REMEDIES.get(type(node), "")
                raise self.error(f"{kind} cannot stand in a model", node, _SUBSET, remedy)

    def _outside(self, holder: Holder, name: str) -> Any:
        """Return what is used of a function's surroundings or of a module, and note that."""
        self.uses[holder, name] = found = held(holder, name)
        return found

    def _name(self, name: str, node: ast.AST, scope: dict[str, Any]) -> Any:
        assert self.source is not None
        if name in scope:
            return scope[name]
        found = self._outside(self.source.function, name)
        if found is not MISSING:
            return words.resolve(found)
        if hasattr(builtins, name):
            if words.lowering(getattr(builtins, name)):
                return getattr(builtins, name)
            why = f"of Python's builtins it has {', '.join(each.__name__ for each in words.PYTHON)}"
            raise self.error(f"{name} has no meaning in a model", node, why=why)
        raise self.error(
            f"{name} is not defined here",
            node,
            why="a name is visible after an assignment on every way to it",
        )

    def indices(self, node: ast.expr, scope: dict[str, Any]) -> tuple[Value, ...]:
        """Lower the indices of a variable of the lane."""
        parts = node.elts if isinstance(node, ast.Tuple) else [node]
        return tuple(self.numbers.value(self.expression(part, scope), I32) for part in parts)

    def _call(self, node: ast.Call, scope: dict[str, Any]) -> Any:
        callee = self.expression(node.func, scope)
        if any(isinstance(arg, ast.Starred) for arg in node.args):
            raise Misfit("* in a call has no meaning in a model")
        outer = self.naming
        if not isinstance(callee, Closure) and not words.is_basic(callee):
            self.naming = ""
        args = tuple(self.expression(arg, scope) for arg in node.args)
        self.naming = outer
        assert self.source is not None
        named = {str(k.arg): self.expression(k.value, scope) for k in node.keywords}
        self.b.place = self.source.place(node)
        outer_path, self.path = self.path, (*self.path, node.lineno, node.col_offset)
        try:
            if isinstance(callee, Distribution):
                return words.distribution(self, callee, args, named)
            return self.call(callee, args, named)
        except TypeError as error:
            if not str(error).startswith(("_", "words")) and "argument" not in str(error):
                raise
            raise Misfit(f"wrong arguments: {error}") from None
        finally:
            self.path = outer_path
