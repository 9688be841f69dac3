"""Unification, schemes and their variables: the state of an inference.

Length: what is known of variables, and the rules that make more known, share that state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from tawa.axon.shapes.constraints import Base, Holds, SameDim, SameWord, uniform
from tawa.axon.shapes.solver import Solver, variables_of
from tawa.axon.shapes.words import Fresh, Row, Source, Span, Word, kind_of, number_of
from tawa.axon.types.kinds import (
    CLASSES,
    Arrow,
    Each,
    Element,
    ElementVar,
    Int,
    ListOf,
    Product,
    Rename,
    Scheme,
    Shape,
    Tensor,
    Text,
    Type,
    TypeVar,
    arrows,
    spine,
    variables,
)
from tawa.errors import AxonError
from tawa.integers import Expr, Symbol, constant
from tawa.integers.expressions import of_atom

Variables = TypeVar | ElementVar | Row | Symbol


class Mismatch(Exception):  # noqa: N818
    """Two types that cannot be one."""

    def __init__(self, wanted: Type, given: Type, why: str = "") -> None:
        super().__init__(why)
        self.wanted = wanted
        self.given = given
        self.why = why


@dataclass
class Bound:
    """What a name stands for: a scheme or a type, and where it was bound as a parameter."""

    type: Scheme | Type
    place: Span | None = None


Env = dict[str, Bound]
Listed = dict[int, tuple[Span, str, Span | None]]


class Unifier:
    """What is known of variables, and constraints on shapes, which go to `solver`.

    `library` gives the scheme of an operator by name, None where there is none.
    """

    def __init__(
        self, library: Callable[[str], Scheme | None], wrong: Callable[[Span, str], AxonError]
    ) -> None:
        self.library = library
        self.wrong = wrong
        self.fresh = Fresh()
        self.solver = Solver(self.fresh)
        self.types: dict[TypeVar, Type] = {}
        self.elements: dict[ElementVar, Element] = {}
        self.begin()

    def begin(self) -> None:
        """Forget what belonged to one declaration."""
        self.posted: list[Base] = []
        self.held: list[Base] = []
        self.hints: dict[Row | Symbol, str] = {}
        self.assumed: tuple[Base, ...] = ()
        self.promised: dict[str, Symbol] = {}
        self.locals: dict[str, Type] = {}
        # Places of the items of written-out lists, by the identity of their types, which are kept.
        self.listed: Listed = {}
        self.kept: list[list[Type]] = []

    # What is known.

    def resolve(self, kind: Type) -> Type:
        """Return a type with its outermost variable replaced."""
        while isinstance(kind, TypeVar) and kind in self.types:
            kind = self.types[kind]
        return kind

    def element(self, element: Element) -> Element:
        """Return an element type with what is known put in."""
        while isinstance(element, ElementVar) and element in self.elements:
            element = self.elements[element]
        return element

    def full(self, kind: Type) -> Type:
        """Return a type with all that is known put in."""
        rename = Rename(self._variable, self.element, self._row, self.solver.expr)
        return rename.type(kind)

    def _variable(self, variable: TypeVar) -> Type:
        found = self.resolve(variable)
        return found if isinstance(found, TypeVar) else self.full(found)

    def _row(self, row: Row) -> Word:
        return self.solver.word((row,))

    def post(self, constraint: Base) -> None:
        """Add a constraint."""
        self.posted.append(constraint)
        self.solver.post(constraint)

    # Unification. Errors have no place here; callers give them one.

    def unify(self, wanted: Type, given: Type, source: Source) -> None:
        """Make two types one; shapes become constraints."""
        wanted, given = self.resolve(wanted), self.resolve(given)
        if wanted is given:
            return
        match wanted, given:
            case TypeVar(), _:
                self._assign(wanted, given)
            case _, TypeVar():
                self._assign(given, wanted)
            case Tensor(), Tensor():
                self.unify_element(wanted, given)
                at = replace(source, word=given.word)
                self.post(SameWord(at, wanted.word, given.word))
            case Tensor(element, word), Int():
                self._narrow(element, "number", wanted, given)
                self.post(SameWord(source, word, ()))
            case Int(a), Int(b):
                self.post(SameDim(source, a, b))
            case Shape(a), Shape(b):
                self.post(SameWord(source, a, b))
            case (Shape(word), Product(items)) | (Product(items), Shape(word)):
                self.post(SameWord(source, word, self._numbers(items, source)))
            case Each(word), Int(value):
                self.post(uniform(source, word, value))
            case Each(word), Shape(given_word):
                self.post(SameWord(source, word, given_word))
            case Each(word), Product(items):
                self.post(SameWord(source, word, self._numbers(items, source)))
            case Arrow(a, b), Arrow(c, d):
                self.unify(a, c, source)
                self.unify(b, d, source)
            case Product(a), Product(b) if len(a) == len(b):
                for one, other in zip(a, b):
                    self.unify(one, other, source)
            case ListOf(), Product(items) if items:
                self._list(wanted, items, source)
            case ListOf(), ListOf() if not (wanted.each or given.each):
                self.unify(wanted.item, given.item, source)
                self.post(SameDim(source, wanted.count, given.count))
            case Text(), Text():
                pass
            case _:
                raise Mismatch(wanted, given)

    def _assign(self, variable: TypeVar, kind: Type) -> None:
        if any(found is variable for found in variables(self.full(kind))):
            raise Mismatch(variable, kind, "it would have to contain itself")
        self.types[variable] = kind

    def _numbers(self, items: Iterable[Type], source: Source) -> Word:
        out: list[Expr] = []
        for item in items:
            found = self.resolve(item)
            if isinstance(found, TypeVar):
                number = Int(self.fresh.dim("", "int"))
                self.types[found] = number
                found = number
            if not isinstance(found, Int):
                raise Mismatch(Int(constant(0)), found)
            out.append(found.value)
        return tuple(out)

    def _list(self, wanted: ListOf, items: tuple[Type, ...], source: Source) -> None:
        sums: list[Expr] = [constant(0) for _ in wanted.each]
        for item in items:
            sizes = {symbol: self.fresh.dim() for symbol in wanted.each}
            values = Rename(
                lambda v: v,
                lambda e: e,
                lambda r: (r,),
                lambda e, sizes=sizes: e.substitute(sizes),
            )
            at = source
            place = self.listed.get(id(item))
            if place is not None:
                at = replace(source, at=place[0], name=place[1], bound=place[2])
            self.unify(values.type(wanted.item), item, at)
            sums = [total + sizes[symbol] for total, symbol in zip(sums, wanted.each)]
        for total, found in zip(wanted.totals, sums):
            self.post(SameDim(source, total, found))
        self.post(SameDim(source, wanted.count, constant(len(items))))

    def unify_element(self, wanted: Tensor, given: Tensor) -> None:
        """Make two element types one."""
        a, b = self.element(wanted.element), self.element(given.element)
        if a is b or a == b:
            return
        if isinstance(a, ElementVar) and isinstance(b, ElementVar):
            shared = [k for k in CLASSES if set(CLASSES[k]) <= set(CLASSES[a.kind])]
            shared = [k for k in shared if set(CLASSES[k]) <= set(CLASSES[b.kind])]
            if not shared:
                raise Mismatch(wanted, given, f"one is {a.kind}, the other {b.kind}")
            kind = max(shared, key=lambda k: len(CLASSES[k]))
            fresh = b if kind == b.kind else ElementVar(kind, self.fresh.number())
            self.elements[a] = fresh
            if fresh is not b:
                self.elements[b] = fresh
            return
        variable, fixed = (a, b) if isinstance(a, ElementVar) else (b, a)
        if not isinstance(variable, ElementVar) or fixed not in CLASSES[variable.kind]:
            raise Mismatch(wanted, given, "cast one of them")
        self.elements[variable] = fixed

    def _narrow(self, element: Element, kind: str, wanted: Type, given: Type) -> None:
        one = Tensor(ElementVar(kind, self.fresh.number()), ())
        try:
            self.unify_element(one, Tensor(element, ()))
        except Mismatch as error:
            raise Mismatch(wanted, given) from error

    # Schemes.

    def instantiate(self, scheme: Scheme, source: Source, inside: bool = False) -> Type:
        """Return the scheme's type with new variables, and hold its constraints for `release`.

        They are asked for by `source`; `inside`: by what asked for them in the function.
        """
        if not scheme.general:
            return scheme.type
        made: dict[Variables, object] = {}
        general = scheme.general

        def variable(v: TypeVar) -> Type:
            if v not in general:
                return v
            if v not in made:
                made[v] = TypeVar(self.fresh.number())
            return made[v]  # pyright: ignore[reportReturnType]

        def element(v: ElementVar) -> Element:
            if v not in general:
                return v
            if v not in made:
                made[v] = ElementVar(v.kind, self.fresh.number())
            return made[v]  # pyright: ignore[reportReturnType]

        def row(v: Row) -> Word:
            if v not in general:
                return (v,)
            if v not in made:
                made[v] = self.fresh.row()
                hints[made[v]] = v.name  # pyright: ignore[reportArgumentType]
            return (made[v],)  # pyright: ignore[reportReturnType]

        def dim(e: Expr) -> Expr:
            values: dict[Symbol, Expr] = {}
            for s in e.symbols:
                if s in general:
                    if s not in made:
                        fresh = self.fresh.symbol("", kind_of(s))
                        hints[fresh] = s.name
                        made[s] = of_atom(fresh)
                    values[s] = made[s]  # pyright: ignore[reportArgumentType]
            return e.substitute(values) if values else e

        hints = self.hints
        rename = Rename(variable, element, row, dim)
        kind = self._renamed(rename, scheme.type, made)
        for constraint in scheme.constraints:
            self.held.append(constraint.mapped(row, dim, None if inside else source))
        return kind

    def release(self, mark: int = 0) -> None:
        """Post the constraints of schemes that were held since there were `mark` of them.

        They come after those of the arguments, so that most are asked of numbers.
        """
        for constraint in self.held[mark:]:
            self.post(constraint)
        del self.held[mark:]

    def _renamed(self, rename: Rename, kind: Type, made: dict[Variables, object]) -> Type:
        """Return a renamed type; what differs in a list is bound there and keeps its name."""
        if isinstance(kind, ListOf):
            for symbol in kind.each:
                made[symbol] = of_atom(symbol)
        if isinstance(kind, Arrow):
            arguments, result = spine(kind)
            left = [self._renamed(rename, argument, made) for argument in arguments]
            return arrows(left, self._renamed(rename, result, made))
        return rename.type(kind)

    def generalize(self, kind: Type, env: Env, mark: int) -> Scheme:
        """Return a type as a scheme over what is not known from outside.

        `mark` is a number of `fresh` from before the type was inferred. Constraints that mention a
        general variable go with the scheme.
        """
        self.settle(final=True)
        outside = self._outside(env)

        def is_new(variable: Variables) -> bool:
            number = number_of(variable) if isinstance(variable, Symbol) else variable.uid
            return number > mark and variable not in outside

        full = self.full(kind)
        general: dict[Variables, None] = {v: None for v in variables(full) if is_new(v)}
        solver = self.solver
        kept: list[Base] = []
        known = Rename(self._variable, self.element, self._row, solver.expr)
        for constraint in list(solver.waiting.values()):
            found = [v for item in variables_of(constraint) for v in solver.variables(item)]
            new = [v for v in found if is_new(v)]
            if new:
                general.update(dict.fromkeys(new))
                del solver.waiting[id(constraint)]
                assert isinstance(constraint, Base)
                kept.append(constraint.mapped(known.row, known.dim))
        facts, solver.facts = solver.facts, []
        for fact in facts:
            new = [s for s in variables_of(Holds(fact.asked.source, fact.condition)) if is_new(s)]
            if new:
                general.update(dict.fromkeys(new))
                kept.append(Holds(fact.asked.source, fact.condition))
            else:
                solver.facts.append(fact)
        return Scheme(full, frozenset(general), tuple(kept))

    def _outside(self, env: Env) -> set[Variables]:
        found: set[Variables] = set()
        for bound in env.values():
            if isinstance(bound.type, Scheme):
                if bound.type.general:
                    found.update(
                        v for v in variables(self.full(bound.type.type))
                        if v not in bound.type.general
                    )  # fmt: skip
                    continue
                found.update(variables(self.full(bound.type.type)))
            else:
                found.update(variables(self.full(bound.type)))
        return found

    def settle(self, final: bool = False) -> None:
        """Use what is known by now; raises Conflict."""
        self.solver.settle()
