"""From the text of types to types and constraints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tawa.axon.shapes.constraints import (
    FUNCTIONS,
    At,
    Axis,
    Base,
    Computed,
    Holds,
    Pointwise,
    Rank,
    SameDim,
    SameWord,
)
from tawa.axon.shapes.constraints import Product as ProductOf
from tawa.axon.shapes.words import Fresh, Row, Source, Span, Word
from tawa.axon.syntax.tree import Listed, Number, Operation, Relation, Size, TypeNode, Variable
from tawa.axon.types.kinds import (
    CLASS_OF_LETTER,
    Arrow,
    Each,
    Element,
    ElementVar,
    Int,
    ListOf,
    Options,
    Product,
    Scheme,
    Shape,
    Tensor,
    Text,
    Type,
    TypeVar,
    variables,
)
from tawa.integers import (
    Condition,
    Expr,
    Symbol,
    at_least,
    broadcast,
    ceildiv,
    constant,
    equal,
    maximum,
    minimum,
)
from tawa.integers.conditions import symbols_of

Wrong = Callable[[Span, str], Exception]


@dataclass
class Scope:
    """Names of variables in the types of one declaration, and the constraints met in them."""

    fresh: Fresh
    wrong: Wrong
    source: Source
    integers: bool = False  # whether names are of integers (signatures: what stands after `int`)
    types: dict[str, TypeVar] = field(default_factory=dict[str, TypeVar])
    elements: dict[str, ElementVar] = field(default_factory=dict[str, ElementVar])
    rows: dict[str, Row] = field(default_factory=dict[str, Row])
    dims: dict[str, Expr] = field(default_factory=dict[str, Expr])
    totals: dict[str, Expr] = field(default_factory=dict[str, Expr])
    constraints: list[Base] = field(default_factory=list[Base])

    def dim(self, name: str, kind: str = "size") -> Expr:
        """Return the dimension of a name."""
        if name == "_":
            return self.fresh.dim()
        if name not in self.dims:
            self.dims[name] = self.fresh.dim(name, kind)
        return self.dims[name]

    def row(self, name: str) -> Row:
        """Return the row variable of a name; without a name it is new."""
        if not name:
            return self.fresh.row()
        if name not in self.rows:
            self.rows[name] = self.fresh.row(name)
        return self.rows[name]

    def element(self, name: str) -> Element:
        """Return an element type, by its name or the name of its variable."""
        if not name.startswith("'"):
            return name
        if name not in self.elements:
            kind = CLASS_OF_LETTER.get(name[1:2], "any")
            self.elements[name] = ElementVar(kind, self.fresh.number())
        return self.elements[name]

    def type(self, node: TypeNode) -> Type:
        """Return the type of a text; constraints of `where` are added."""
        match node.kind:
            case "where":
                found = self.type(node.parts[0])
                for relation in node.where:
                    self.relation(relation)
                return found
            case "tensor":
                return Tensor(self.element(node.name), self.word(node.sizes))
            case "var":
                if node.name not in self.types:
                    self.types[node.name] = TypeVar(self.fresh.number(), node.name)
                return self.types[node.name]
            case "fun":
                return Arrow(self.type(node.parts[0]), self.type(node.parts[1]))
            case "tuple":
                return Product(tuple([self.type(part) for part in node.parts]))
            case "int":
                return Int(self._int(node.sizes[0]) if node.sizes else self.fresh.dim("", "int"))
            case "shape":
                if not node.sizes:
                    return Shape((self.fresh.row(),))
                return Shape(self.word(_items(node.sizes[0])))
            case "each":
                return Each(self.word(node.sizes))
            case "text":
                return Text()
            case "list":
                return self._list(node)
            case _:
                return Options(tuple([(n, self.type(kind), d) for n, kind, d in node.options]))

    def _int(self, size: Size) -> Expr:
        if isinstance(size, Variable) and not size.row:
            return self.dim(size.name, "int")
        return self.size(size)

    def _list(self, node: TypeNode) -> ListOf:
        inner = node.parts[0]
        names = [s.name for s in inner.sizes if isinstance(s, Variable) and s.each]
        item = self.type(inner)
        each = tuple([next(iter(self.dim(name).symbols)) for name in names])
        for name in names:
            self.totals[name] = self.fresh.dim()
        count = self.size(node.sizes[0]) if node.sizes else self.fresh.dim()
        return ListOf(item, each, tuple([self.totals[name] for name in names]), count)

    def word(self, sizes: tuple[Size, ...]) -> Word:
        """Return a word of items."""
        out: list[Expr | Row] = []
        for size in sizes:
            if isinstance(size, Variable) and size.row:
                out.append(self.row(size.name))
            elif isinstance(size, Operation) and size.name == "++":
                out.extend(self.word(tuple([i for s in size.inputs for i in _items(s)])))
            else:
                out.append(self.size(size))
        return tuple(out)

    def size(self, size: Size) -> Expr:
        """Return a dimension; one that needs a word's rank or product is a new variable."""
        match size:
            case Number():
                return constant(size.value)
            case Variable() if not size.row:
                return self.dim(size.name)
            case Operation(name="sum", inputs=(Variable() as inner,)) if inner.name in self.totals:
                return self.totals[inner.name]
            case Operation(name="prod" | "rank" | "at"):
                return self._of_word(size)
            case Operation():
                return self._arithmetic(size, [self.size(item) for item in size.inputs])
            case _:
                raise self.wrong(size.place, "a dimension is wanted here, not a shape")

    def _of_word(self, size: Operation) -> Expr:
        word = self.word(_items(size.inputs[0]))
        found = self.fresh.dim()
        match size.name:
            case "prod":
                self.constraints.append(ProductOf(self.source, found, word))
            case "rank":
                self.constraints.append(Rank(self.source, found, word))
            case _:
                index = self.size(size.inputs[1])
                self.constraints.append(At(self.source, found, word, index))
        return found

    def _arithmetic(self, size: Operation, inputs: list[Expr]) -> Expr:
        match size.name, inputs:
            case "+", [a, b]:
                return a + b
            case "-", [a, b]:
                return a - b
            case "*", [a, b]:
                return a * b
            case (("//" | "%" | "ceildiv"), [a, b]):
                if b.value == 0:
                    raise self.wrong(size.place, "a dimension is divided by 0")
                if b.value is None:
                    self.constraints.append(Holds(self.source, at_least(b, 1)))
                return a // b if size.name == "//" else a % b if size.name == "%" else ceildiv(a, b)
            case "min", [_, *_]:
                return minimum(*inputs)
            case "max", [_, *_]:
                return maximum(*inputs)
            case "broadcast", [_, *_]:
                return broadcast(*inputs)
            case _:
                raise self.wrong(size.place, f"there is no function `{size.name}` of dimensions")

    def relation(self, relation: Relation) -> None:
        """Add the constraint of a relation."""
        left, right = relation.left, relation.right
        if right is None:
            assert isinstance(left, Operation)
            self.constraints.append(self._predicate(left))
            return
        match left, right:
            case _, Operation() if right.name in FUNCTIONS and _is_word(left):
                self.constraints.append(self._function(self.word(_items(left)), right))
            case _ if relation.sign == "=" and _is_word(left) and _is_word(right):
                words = [self.word(_items(side)) for side in (left, right)]
                self.constraints.append(SameWord(self.source, *words))
            case _:
                self._compare(relation.sign, left, right)

    def _compare(self, sign: str, left: Size, right: Size) -> None:
        """Compare dimensions; those of rows on each axis."""
        rows: dict[str, Symbol] = {}
        a, b = self.size(_named(left, rows)), self.size(_named(right, rows))
        condition: Condition
        match sign:
            case "=":
                condition = equal(a, b)
            case ">=":
                condition = at_least(a, b)
            case _:
                condition = at_least(b, a)
        if not rows:
            same = sign == "="
            made = SameDim(self.source, a, b) if same else Holds(self.source, condition)
            self.constraints.append(made)
            return
        symbols = tuple([next(iter(self.dim(f"..{name}").symbols)) for name in rows])
        # Relations that share a row are one constraint, whose axes are looked at once; and that a
        # divisor is at least 1 is part of it.
        conditions = [condition]
        words = {symbol: (self.row(name),) for symbol, name in zip(symbols, rows)}
        apart: list[Base] = []
        for other in reversed(self.constraints):
            match other:
                case Pointwise(_, held, own, theirs) if not words.keys().isdisjoint(own):
                    conditions[:0] = held
                    words = dict(zip(own, theirs)) | words
                case Holds(_, held) if not words.keys().isdisjoint(symbols_of(held)):
                    conditions.insert(0, held)
                case _:
                    apart.insert(0, other)
        made = Pointwise(self.source, tuple(conditions), tuple(words), tuple(words.values()))
        self.constraints[:] = [*apart, made]

    def _function(self, result: Word, call: Operation) -> Base:
        words = tuple([self.word(_items(item)) for item in call.inputs])
        if not words or (call.name != "broadcast" and len(words) != 2):
            raise self.wrong(call.place, f"`{call.name}` has another number of inputs")
        return Computed(self.source, result, call.name, words)

    def _predicate(self, call: Operation) -> Base:
        match call.name, call.inputs:
            case "axis", (index, before, after):
                words = [self.word(_items(side)) for side in (before, after)]
                return Axis(self.source, self._int(index), *words)
            case _:
                raise self.wrong(call.place, f"there is no predicate `{call.name}` of these")

    def scheme(self, kind: Type) -> Scheme:
        """Return the scheme that has all variables met so far general."""
        from tawa.axon.shapes.solver import variables_of

        each = {symbol for e in self.dims.values() for symbol in e.symbols}
        found = {*variables(kind), *each, *self.rows.values(), *self.elements.values()}
        for constraint in self.constraints:
            found.update(variables_of(constraint))
        return Scheme(kind, frozenset(found), tuple(self.constraints))


def _items(size: Size) -> tuple[Size, ...]:
    return size.items if isinstance(size, Listed) else (size,)


def _is_word(size: Size) -> bool:
    """Tell whether a size is written as a shape."""
    match size:
        case Variable():
            return size.row
        case Operation():
            return size.name == "++"
        case _:
            return isinstance(size, Listed)


def _named(size: Size, rows: dict[str, Symbol]) -> Size:
    """Return a size whose rows, outside of `prod`, `rank` and `at`, are dimensions `..name`."""
    match size:
        case Variable(row=True):
            rows.setdefault(size.name, Symbol(size.name))
            return Variable(f"..{size.name}", size.place)
        case Operation() if size.name not in ("prod", "rank", "at", "sum"):
            return Operation(
                size.name, tuple([_named(item, rows) for item in size.inputs]), size.place
            )
        case _:
            return size
