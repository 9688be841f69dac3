"""Programs: checked declarations with their schemes, guards and values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any

from tawa.axon.library import names as operators
from tawa.axon.library import scheme_of
from tawa.axon.run.evaluate import Evaluation, meaning
from tawa.axon.shapes.constraints import Holds
from tawa.axon.shapes.presburger import decided, implied, simplify
from tawa.axon.shapes.solver import Conflict, variables_of
from tawa.axon.shapes.words import Source, Span
from tawa.axon.syntax.parser import parse_program, quoted
from tawa.axon.syntax.tree import Declaration, Fun
from tawa.axon.types.explain import Case, explain, impossible
from tawa.axon.types.infer import Bound, Inference, Inferred
from tawa.axon.types.kinds import Arrow, Rename, Type, variables
from tawa.axon.types.show import Names, name_parameters, show_scheme
from tawa.axon.types.unify import Mismatch
from tawa.errors import AxonError, AxonGuard
from tawa.integers import Condition, Expr, Symbol
from tawa.integers.conditions import symbols_of


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition on the sizes of inputs, in Python's syntax, and the operation that asks it."""

    text: str
    at: Span
    operator: str

    def __str__(self) -> str:
        return self.text


class Function:
    """A checked function: `scheme` and `guards` print what was inferred; a call checks and runs.

    Arguments are arrays, integers, tuples of these, or other functions. Arrays are NumPy's, or
    tensors of torch on one device, which is where results are then.
    """

    def __init__(self, inferred: Inferred, names: Names, evaluation: Evaluation) -> None:
        self.name = inferred.name
        self.inferred = inferred
        self.names = names
        self._evaluation = evaluation
        self._checked: dict[Any, None] = {}
        self.declarations: tuple[Declaration, ...] = ()  # of a graph: its own, after those it needs

    @cached_property
    def conditions(self) -> list[Condition]:
        """The conditions on sizes that inference left, as weak as they can be."""
        scheme = self.inferred.scheme
        held = [c for c in scheme.constraints if isinstance(c, Holds)]
        seen = {*variables(scheme.type)}.union(
            *(variables_of(c) for c in scheme.constraints if not isinstance(c, Holds))
        )
        hidden = {s for c in held for s in symbols_of(c.condition)} - seen
        return simplify([c.condition for c in held], hidden=hidden)

    @cached_property
    def scheme(self) -> str:
        """The scheme as text."""
        shown = replace(self.inferred.scheme, type=self.known(self.inferred.scheme.type))
        return show_scheme(shown, self.conditions, self.names)

    def known(self, kind: Type) -> Type:
        """Return a type whose sizes are as short as the conditions on sizes make them."""

        @cache
        def size(expr: Expr) -> Expr:
            return decided(expr, self.conditions)

        return Rename(lambda v: v, lambda e: e, lambda r: (r,), size).type(kind)

    @cached_property
    def guards(self) -> list[Guard]:
        """The conditions as guards, each with the operation that asked for it first."""
        from tawa.integers.conditions import render_condition

        held = [c for c in self.inferred.scheme.constraints if isinstance(c, Holds)]
        found: list[Guard] = []
        assert self.scheme  # names the variables
        for condition in self.conditions:
            symbols = symbols_of(condition)
            near = [c for c in held if symbols & symbols_of(c.condition)]
            asked = next((c for c in near if implied(condition, [c.condition])), near[-1])
            text = render_condition(condition, self.names.dims)
            found.append(Guard(text, asked.source.place, asked.source.operator))
        return found

    def check(self, *arguments: Any) -> Type:
        """Check the guards for arguments; return the type of the result. Raises AxonGuard."""
        from tawa.axon.run.values import type_of

        inference = Inference(scheme_of, lambda place, why: AxonError(f"{place}: {why}"))
        inference.begin()
        place = self.inferred.place
        source = Source(0, self.name, place, place)
        kind = inference.instantiate(self.inferred.scheme, source, inside=True)
        try:
            for number, argument in enumerate(arguments):
                kind = inference.resolve(kind)
                if not isinstance(kind, Arrow):
                    raise AxonGuard(f"{self.name} takes {number} arguments, not {len(arguments)}")
                given = type_of(argument, inference)
                inference.unify(kind.argument, given, source)
                kind = kind.result
            inference.release()
            inference.settle(final=True)
        except Conflict as conflict:
            raise self._refused(conflict, arguments) from conflict
        except Mismatch as error:
            from tawa.axon.types.show import show

            wanted, given = show(inference.full(error.wanted)), show(inference.full(error.given))
            raise AxonGuard(
                f"an argument of {self.name} does not fit: {wanted} is wanted, {given} given",
                why=f"{self.name} : {self.scheme}",
            ) from error
        left = [*inference.solver.waiting.values(), *(f.asked for f in inference.solver.facts)]
        if left:
            asked = left[0].source
            raise AxonGuard(
                f"whether `{asked.operator}` at {asked.place} fits cannot be told from the "
                f"arguments of {self.name} alone",
                why="a size that it needs depends on data",
            )
        return inference.full(kind)

    def _refused(self, conflict: Conflict, arguments: tuple[Any, ...]) -> AxonGuard:
        """Return the error for arguments that break what some operation asks for."""
        assert self.scheme  # names the variables
        at, fact = conflict.asked.source, conflict.fact
        own = next((c for c in self.inferred.scheme.constraints if c.source is at), None)
        shown = ", ".join(_shown(argument) for argument in arguments)
        if own is not None:
            need = f"it needs {self.names.constraint(own)}, for `{at.operator}` at {at.place}"
        elif at.word is not None and fact is not None and fact.axis is not None and fact.left:
            axis = fact.axis % len(at.word)
            need = f"axis {axis} of {list(at.word)} is {at.word[axis]}, {fact.left} is wanted"
        else:
            need = conflict.why if at.word is None else f"{list(at.word)}: {conflict.why}"
        return AxonGuard(
            f"{self.name} cannot take {shown}: {need}", why=f"{self.name} : {self.scheme}"
        )

    def __call__(self, *arguments: Any) -> Any:
        """Check the guards, once for shapes and numbers that are new, and run."""
        from tawa.axon.library.untyped import fixed
        from tawa.axon.run.values import key_of, others

        foreign = others(arguments)
        key = key_of(arguments)
        if key not in self._checked:
            self.check(*arguments)
            self._checked[key] = None
        try:
            if foreign:
                return self._on_tensors(arguments, foreign)
            return fixed(self.run(*arguments))
        except OverflowError as error:
            raise AxonGuard(
                f"{self.name}: a number does not fit its element type: {error}",
                why="a number has the element type of the array that it meets",
                remedy="cast the array to a wider type",
            ) from None
        except RecursionError:
            raise AxonGuard(
                f"{self.name} is nested too deeply to be run", remedy="name parts of it with `let`"
            ) from None

    def _on_tensors(self, arguments: tuple[Any, ...], foreign: Sequence[Any]) -> Any:
        from tawa.axon.run import tensors

        if left := [_shown(each) for each in foreign if not tensors.is_tensor(each)]:
            raise AxonGuard(
                f"{self.name} is given {', '.join(left)}, of a library that it does not compute by",
                remedy="pass arrays of NumPy or torch; `tawa.axon.fuse` takes those of others",
            )
        device = tensors.device_of(arguments)
        found = self.run(*tensors.wrapped(arguments, device), meaning=tensors.meaning)
        return tensors.unwrapped(found, device)

    def run(self, *arguments: Any, meaning: Callable[[str], Any] = meaning) -> Any:
        """Return the value for arguments, unchecked, computed by what their operators mean."""
        value = self._evaluation.by(meaning).value(self.name)
        for argument in arguments:
            function = isinstance(argument, Function)
            value = value(argument.run(meaning=meaning) if function else argument)
        return value

    def __repr__(self) -> str:
        return f"{self.name} : {self.scheme}"


def _shown(argument: Any) -> str:
    if isinstance(argument, tuple | list):
        return f"({', '.join(map(_shown, argument))})"  # pyright: ignore
    return str(list(argument.shape)) if hasattr(argument, "shape") else str(argument)


@dataclass
class Module:
    """The checked declarations of a program, by name."""

    file: str
    functions: dict[str, Function] = field(default_factory=dict[str, Function])

    def __getattr__(self, name: str) -> Function:
        try:
            return self.__dict__["functions"][name]
        except KeyError:
            raise AttributeError(f"{self.file} declares no {name}") from None

    def __str__(self) -> str:
        width = max((len(name) for name in self.functions), default=0)
        return "\n".join(f"{n:<{width}} : {f.scheme}" for n, f in self.functions.items())


def load(text: str, file: str = "program.axon") -> Module:
    """Check a program and return its functions; raises AxonError with places."""
    return of_declarations(parse_program(text, file), text.split("\n"), file)


def of_declarations(declarations: Sequence[Declaration], lines: Sequence[str], file: str) -> Module:
    """Check declarations and return their functions."""

    def wrong(place: Span, why: str) -> AxonError:
        return AxonError(f"{file}:{place}: error: {why}\n{quoted(lines, place)}")

    inference = Inference(scheme_of, wrong, operators)
    evaluation = Evaluation(declarations)
    env: dict[str, Bound] = {}
    module = Module(file)
    for declaration in declarations:
        names = Names()
        try:
            inferred = inference.one(declaration, env)
            names.hints = inference.hints
            if isinstance(declaration, Fun):
                parameters = declaration.parameters
                patterns = [p.name or tuple(q.name for q in p.parts) for p in parameters]
                name_parameters(names, inferred.scheme.type, patterns)
            _judge(inferred, inference, names, lines, file)
        except Conflict:
            promised = frozenset(inference.solver.promised)
            raise explain(_case(inference, lines, file, promised), names) from None
        except RecursionError:
            raise wrong(declaration.place, "this is nested too deeply; name parts of it") from None
        module.functions[inferred.name] = Function(inferred, names, evaluation)
    return module


def _case(
    inference: Inference, lines: Sequence[str], file: str, promised: frozenset[Symbol]
) -> Case:
    return Case(file, lines, inference.fresh, inference.posted, promised, inference.assumed)


def _judge(
    inferred: Inferred, inference: Inference, names: Names, lines: Sequence[str], file: str
) -> None:
    """Refuse what no sizes satisfy, and what not all promised sizes do."""
    held = [c for c in inferred.scheme.constraints if isinstance(c, Holds)]
    promised = frozenset(inferred.promised.values())
    if not held and not promised:
        return
    case = _case(inference, lines, file, promised)
    if promised and (case.conflict(inferred.posted)):
        raise explain(case, names)
    if len(held) > 1:
        from tawa.axon.shapes.solver import Fact

        if impossible([Fact(c.condition, c) for c in held]):
            raise explain(case, names)


def graph(function: Callable[..., Any]) -> Function:
    """Make a graph of a function that is written in a subset of Python.

    Raises AxonError, with places in the Python source.

    Example::

        @axon.graph
        def block(x, w):
            h = axon.relu(axon.conv(x, w, stride=2, pad=1))
            return axon.concat([x, axon.upsample(h, 2)], axis=1)

        print(block.scheme, block.guards)
    """
    from tawa.axon.syntax.python import Reader

    needed: dict[str, Declaration] = {}

    def known(value: Any) -> Fun | None:
        if not isinstance(value, Function) or not value.declarations:
            return None
        needed.update({d.name: d for d in value.declarations if isinstance(d, Fun)})
        last = value.declarations[-1]
        return last if isinstance(last, Fun) else None

    reader = Reader(function, known)
    declarations = (*needed.values(), reader.fun)
    made = of_declarations(declarations, reader.lines, reader.file).functions[reader.fun.name]
    made.declarations = declarations
    return made


def check(text: str, file: str = "program.axon") -> str:
    """Return the schemes of a program as text; raises AxonError with places."""
    return str(load(text, file))
