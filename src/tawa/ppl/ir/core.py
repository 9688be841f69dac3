"""The IR: values, operations with regions, programs, and a builder.

A program is what *one lane* does: one chain or one particle. Scalars are SSA values. Arrays have a
fixed shape and are either immutable values (arguments, results of `build`) or *variables*, the
mutable memory of a lane. Control flow is structured: `if`, `for`, `while`, `switch`.

What a probabilistic program does beyond computing is an effect: `sample`, `observe`, `factor` and
`record`. An inference method gives them a meaning (`passes/handle.py`); a program in which none is
left can be interpreted and compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, Literal

from tawa.errors import Place

Kind = Literal["f32", "f64", "i32", "i64", "bool"]
FLOATS = ("f32", "f64")


@dataclass(frozen=True, slots=True)
class Type:
    """An element kind and a shape; a scalar has the shape ()."""

    kind: Kind
    shape: tuple[int, ...] = ()

    @property
    def is_float(self) -> bool:
        """Whether elements are floating-point numbers."""
        return self.kind in FLOATS

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    def __str__(self) -> str:
        return self.kind + ("[" + ", ".join(map(str, self.shape)) + "]" if self.shape else "")


I32, I64, BOOL = Type("i32"), Type("i64"), Type("bool")


@dataclass(eq=False, slots=True)
class Value:
    """A result of an operation, an argument of a region or of the program."""

    type: Type
    name: str = ""


@dataclass(eq=False, slots=True)
class Region:
    """Operations in order, and the values that leave them."""

    args: tuple[Value, ...] = ()
    ops: list[Op] = field(default_factory=lambda: [])
    yields: tuple[Value, ...] = ()


@dataclass(eq=False, slots=True)
class Op:
    """One operation. `attrs` hold what is known when the program is made."""

    code: str
    operands: tuple[Value, ...] = ()
    results: tuple[Value, ...] = ()
    attrs: dict[str, Any] = field(default_factory=lambda: {})
    regions: tuple[Region, ...] = ()
    place: Place | None = None

    @property
    def result(self) -> Value:
        """The only result."""
        (value,) = self.results
        return value


@dataclass(eq=False, slots=True)
class Function:
    """A function that calls itself (`call` operations name it), or one of `math/`, which may have
    variables of its own.
    """

    name: str
    body: Region
    place: Place | None = None
    variables: dict[str, Type] = field(default_factory=lambda: {})


@dataclass(eq=False, slots=True)
class Program:
    """What a lane does.

    `params` are the same for all lanes: scalars and arrays of data. `variables` is the lane's own
    memory, zero at the start. `buffers` are arrays of rows by lanes that outlive the run:
    `read` and `write` name a row, the column is the lane, or another where one is named; lanes run
    in no order, so a buffer of which others are read is not written. `procedures` are bodies
    without arguments that work on the variables; `run` names them. A lane is `threads` threads of a
    GPU, which compute the same but where an operation asks which `thread` it is.
    """

    name: str
    dtype: Kind
    params: tuple[Value, ...]
    body: Region
    functions: dict[str, Function] = field(default_factory=lambda: {})
    variables: dict[str, Type] = field(default_factory=lambda: {})
    buffers: dict[str, Kind] = field(default_factory=lambda: {})
    procedures: dict[str, Region] = field(default_factory=lambda: {})
    threads: int = 1

    def copy(self, threads: int = 1) -> Program:
        """Return a program of its own operations and variables, for lanes of so many threads."""
        return replace(
            self,
            body=clone(self.body, {}),
            procedures={name: clone(region, {}) for name, region in self.procedures.items()},
            variables=dict(self.variables),
            threads=threads,
        )

    def regions(self) -> Iterator[Region]:
        """Yield the outermost regions: functions, procedures and the body."""
        yield from (function.body for function in self.functions.values())
        yield from self.procedures.values()
        yield self.body

    def operations(self) -> Iterator[Op]:
        """Yield every operation, those of nested regions after the one that holds them."""
        for region in self.regions():
            yield from walk(region)


def walk(region: Region) -> Iterator[Op]:
    """Yield every operation of a region and of the regions in it."""
    for op in region.ops:
        yield op
        for inner in op.regions:
            yield from walk(inner)


def free_values(region: Region) -> list[Value]:
    """Return what a region uses and does not define, in order of first use."""
    found: dict[Value, None] = {}
    inside = set(region.args)
    for op in region.ops:
        for value in op.operands:
            if value not in inside:
                found[value] = None
        for inner in op.regions:
            for value in free_values(inner):
                if value not in inside:
                    found[value] = None
        inside.update(op.results)
    for value in region.yields:
        if value not in inside:
            found[value] = None
    return list(found)


class Builder:
    """Appends operations to a region; `place` is that of the source now being lowered."""

    def __init__(self, dtype: Kind) -> None:
        self.dtype: Kind = dtype
        self.real = Type(dtype)
        self.region = Region()
        self.place: Place | None = None

    @property
    def word(self) -> Type:
        """What memory of mixed numbers is made of: whole numbers as wide as reals."""
        return Type("i64") if self.dtype == "f64" else I32

    @contextmanager
    def inside(self, region: Region) -> Generator[Region]:
        """Append to another region for a while."""
        outer, self.region = self.region, region
        try:
            yield region
        finally:
            self.region = outer

    def op(
        self,
        code: str,
        operands: tuple[Value, ...] = (),
        types: tuple[Type, ...] = (),
        regions: tuple[Region, ...] = (),
        **attrs: Any,
    ) -> Op:
        """Append an operation."""
        made = Op(code, operands, tuple(map(Value, types)), attrs, regions, self.place)
        self.region.ops.append(made)
        return made

    def make(self, code: str, *operands: Value, type: Type | None = None, **attrs: Any) -> Value:
        """Append an operation of one result, by default of the first operand's type."""
        return self.op(code, operands, (type or operands[0].type,), **attrs).result

    def const(self, number: float | int | bool, type: Type) -> Value:
        """Append a constant."""
        return self.make("const", type=type, value=number)

    def compare(self, relation: str, left: Value, right: Value) -> Value:
        """Append a comparison: `lt`, `le`, `eq` or `ne`."""
        return self.make(relation, left, right, type=BOOL)

    def get(self, name: str, type: Type) -> Value:
        """Read a scalar variable."""
        return self.make("get", type=type, name=name)

    def set(self, name: str, value: Value) -> None:
        """Write a scalar variable, or copy an array into an array variable."""
        self.op("set", (value,), name=name)

    def accumulate(self, name: str, *at_and_amount: Value) -> None:
        """Add to a real variable or an element of one; make a whole one at least so large."""
        self.op("accumulate", at_and_amount, name=name)

    def load(self, array: Value, *at: Value) -> Value:
        """Read an element of an array value."""
        return self.make("load", array, *at, type=Type(array.type.kind)) if at else array

    def same_word(self, value: Value, type: Type) -> Value:
        """Return a number as the type of a memory word, or back."""
        if value.type == type:
            return value
        code = "bits" if value.type.is_float or type.is_float else "cast"
        return self.make(code, value, type=type)

    def cast(self, value: Value, type: Type) -> Value:
        """Return a number as one of a type."""
        return value if value.type == type else self.make("cast", value, type=type)

    def row(self, name: str, kind: Kind, row: Value) -> Value:
        """Read a row of a buffer of a kind, as a real."""
        return self.cast(self.op("read", (row,), (Type(kind),), name=name).result, self.real)

    def loadvar(self, name: str, kind: Kind, *at: Value) -> Value:
        """Read an element of an array variable; without indices, a scalar one."""
        return self.make("loadvar" if at else "get", *at, type=Type(kind), name=name)

    def storevar(self, name: str, *at_and_item: Value) -> None:
        """Write an element of an array variable; without indices, a scalar one."""
        self.op("storevar" if len(at_and_item) > 1 else "set", at_and_item, name=name)

    def build(self, shape: tuple[int, ...], item: Callable[..., Value], *at: Value) -> Value:
        """Make an array value element by element, row-major."""
        if not shape:
            return item(*at)
        with self.inside(Region((Value(I32),))) as region:
            region.yields = (self.build(shape[1:], item, *at, *region.args),)
        type_ = Type(region.yields[0].type.kind, (shape[0], *region.yields[0].type.shape))
        return self.op("build", (), (type_,), (region,), count=shape[0]).result

    def offset(self, shape: tuple[int, ...], first: Value, *at: Value) -> Value:
        """Append where an element of an array lies that begins at `first`."""
        if not shape:
            return first
        offset = self.const(0, I32)
        for size, index in zip(shape, at, strict=True):
            offset = self.make("add", self.make("mul", offset, self.const(size, I32)), index)
        return self.make("add", first, offset)

    def put(self, name: str, first: Value, value: Value) -> None:
        """Write a number or an array as words of a variable, from a place on."""

        def store(*at: Value) -> None:
            item = self.same_word(self.load(value, *at), self.word)
            self.storevar(name, self.offset(value.type.shape, first, *at), item)

        self.each(value.type.shape, store)

    def taken(self, name: str, first: Value, type: Type) -> Value:
        """Read what `put` wrote."""

        def item(*at: Value) -> Value:
            word = self.loadvar(name, self.word.kind, self.offset(type.shape, first, *at))
            return self.same_word(word, Type(type.kind))

        return self.build(type.shape, item)

    def words(
        self, values: Iterable[Value], body: Callable[[Value, tuple[Value, ...], Value], None]
    ) -> None:
        """Append a loop for each value; `body` gets it, an item's indices, and the item's place."""
        row = 0
        for value in values:
            first = self.const(row, I32)
            row += value.type.size

            def item(*at: Value, v: Value = value, first: Value = first) -> None:
                body(v, at, self.offset(v.type.shape, first, *at))

            self.each(value.type.shape, item)

    def each(self, shape: tuple[int, ...], body: Callable[..., None], *at: Value) -> None:
        """Append a loop for each axis of a shape, row-major; `body` gets the indices."""
        if not shape:
            body(*at)
            return
        with self.inside(Region((Value(I32),))) as region:
            self.each(shape[1:], body, *at, *region.args)
        self.op("for", (self.const(shape[0], I32),), (), (region,))


def clone(
    region: Region, known: dict[Value, Value], but: Callable[[Op], bool] = lambda op: False
) -> Region:
    """Return a copy of a region `but` for some operations.

    `known` maps values from outside, and gets those inside.
    """

    def fresh(value: Value) -> Value:
        known[value] = Value(value.type, value.name)
        return known[value]

    args = tuple(map(fresh, region.args))
    ops: list[Op] = []
    for op in region.ops:
        if but(op):
            continue
        operands = tuple(known.get(value, value) for value in op.operands)
        regions = tuple(clone(inner, known, but) for inner in op.regions)
        results = tuple(map(fresh, op.results))
        ops.append(Op(op.code, operands, results, dict(op.attrs), regions, op.place))
    return Region(args, ops, tuple(known.get(value, value) for value in region.yields))
