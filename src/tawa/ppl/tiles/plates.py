"""Purpose: take big plates out of a lane program, for a tile kernel to compute for all chains.

Before -> after::

    for 131072 [%i]                           %p = build 54 [%k] load %beta, %k
      %e = for 54, 0.0 [%k, %s]               %v = plate %p, %sigma
        yield fma(load(%x, %i, %k),           factor %v
                  load(%beta, %k), %s)
      factor f(%e, load(%y, %i), %sigma)

A plate is what it says: the *products* of a matrix of data and a vector of the lane, the *scalars*
of the lane, the *columns* of data, and the term `f` of one row. What depends on the row and on data
alone (matrices, columns) is computed once, by a program whose lanes are the rows; what depends on
the lane alone stays in the lane.

Requires: a body of `passes/density.py` without its records. Ensures: each `plate` operation stands
for the sum of its term over the rows; reverse mode knows its gradient (`passes/reverse.py`).
Declines: a term without a product, or one that reads a parameter of each row's own, loops, or has a
function that tiles do not have: ModelError, with the reason.

Length: one walk over a loop, and a home for each value that it finds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tawa.errors import ModelError
from tawa.ppl.ir.core import (
    BOOL,
    I32,
    Builder,
    Kind,
    Op,
    Program,
    Region,
    Type,
    Value,
    clone,
    free_values,
    walk,
)
from tawa.ppl.passes.reverse import gradient, plain
from tawa.ppl.tiles.terms import FUNCTIONS
from tawa.runtime.grid import next_power_of_2

ROWS = 2048
WIDTH = 128  # columns of a plate's matrices: a block holds a sum for each of them and each chain
PLATE = 5  # how a lane is suspended that waits for its plates
F32 = Type("f32")
_EFFECTS = ("factor", "set", "storevar", "accumulate", "write", "call", "run", "suspend")
# What a value depends on: the row, the lane, neither or both.
_ROW, _LANE, _BOTH = 1, 2, 3


@dataclass(frozen=True, slots=True, eq=False)
class Plate:
    """A sum of terms over rows of data.

    `inputs` are, in the order of the term's `z`, widths of products (columns of a matrix) and 0 for
    scalars of the lane. `data` is a program of a lane a row: it writes f32 buffers `matrix0`, ..
    (columns, rows), one a product, and `column0`, .. (1, rows) of f32 or i32; `sizes` are how many
    rows the buffers have. `term` has the variables `z`, `logw`, `g` (f32), its parameters are the
    columns.
    """

    number: int
    rows: int
    inputs: tuple[int, ...]
    sizes: dict[str, int]
    data: Program
    term: Program


def width_of(columns: int) -> int:
    """Return the columns of a matrix with the zeros that fill a tile."""
    return max(16, next_power_of_2(columns))


def ask(program: Program, region: Region, parts: Sequence[int]) -> None:
    """Replace `plate` operations: write what the tile kernels take, suspend, read what they give.

    Buffers by number of the plate: `given0` f32 (words, lanes), `slopes0` alike, `value0` f32
    (2 * parts, lanes), sums and their rounding errors.
    """
    b = Builder(program.dtype)
    plates = [op for op in region.ops if op.code == "plate"]
    with b.inside(Region()) as made:
        for op in region.ops:
            if op is plates[0]:
                for each in plates:
                    name = f"given{each.attrs['number']}"

                    def give(
                        value: Value, at: tuple[Value, ...], place: Value, name: str = name
                    ) -> None:
                        b.op("write", (place, b.cast(b.load(value, *at), F32)), name=name)

                    b.words(each.operands, give)
                b.op("suspend", kind=PLATE)
            if op.code != "plate":
                made.ops.append(op)
                continue
            number: int = op.attrs["number"]
            total = b.const(0.0, b.real)
            for k in range(2 * parts[number]):
                part = b.row(f"value{number}", "f32", b.const(k, I32))
                total = b.make("add", total, part)
            made.ops[-1].results = op.results
    region.ops = made.ops


def take(program: Program, method: str) -> list[Plate]:
    """Replace the big plates of a program's body by `plate` operations, and drop its records.

    Raises ModelError where there is none, and for the first that tiles cannot compute.
    """
    body = program.body = plain(program.body)
    plates: list[Plate] = []
    ends: list[Op] = []
    whole = [op for op in body.ops if op.code == "const" and op.result.type == I32]
    counts = {op.result: int(op.attrs["value"]) for op in whole}
    for op in list(body.ops):
        terms = op.code == "for" and any(inner.code == "factor" for inner in walk(op.regions[0]))
        rows = counts.get(op.operands[0], 0) if terms else 0
        if rows < ROWS:
            continue
        at = body.ops.index(op)
        taker = _Taker(program, body.ops[:at], op, rows, len(plates), method)
        plates.append(taker.plate())
        body.ops[at : at + 1] = taker.lane.ops
        ends += taker.end.ops
    if not plates:
        raise ModelError(
            f"{program.name} has no big plate for tiles=True",
            why=f"a big plate is a loop over {ROWS} rows of data or more, outside of other loops, "
            "that observes in each, or adds a factor",
            remedy="leave tiles=True out",
        )
    body.ops = needed([*body.ops, *ends])  # plates are last: a lane waits once for all
    return plates


class _Taker:
    def __init__(
        self, program: Program, before: list[Op], op: Op, rows: int, number: int, method: str
    ) -> None:
        self.program, self.before, self.op, self.rows = program, before, op, rows
        self.number, self.method = number, method
        self.b = Builder(program.dtype)
        self.whole = Region()
        self.same: dict[tuple[Any, ...], Value] = {}
        """What is computed in every iteration, by what it is computed from."""
        self.built: dict[Value, tuple[Region, int, dict[Value, Value]]] = {}
        """Vectors that are made item by item: the body, which of its results, names around it."""
        self.depends: dict[Value, int] = {}
        self.constants: dict[Value, Op] = {}
        self.defined: dict[Value, Op] = {}
        for outer in before:
            self.remember(outer)
        self.lane, self.end, self.data, self.term = Region(), Region(), Region(), Region()
        self.head = Region()
        """What the term begins with: constants and inputs, which branches share."""
        self.inputs: list[int] = []
        self.operands: list[Value] = []
        self.columns: list[Value] = []
        self.kinds: dict[str, Kind] = {}
        self.rows_of: dict[str, int] = {}
        self.known: dict[Value, Value] = {}
        """Values of the loop as the term knows them."""

    def remember(self, op: Op) -> None:
        """Note what an operation makes, and what that depends on."""
        if op.code == "const":
            self.constants[op.result] = op
        for number, result in enumerate(op.results):
            self.defined[result] = op
            self.depends[result] = self.of(op)
            if op.code == "build":
                self.built[result] = op.regions[0], number, {}

    def of(self, op: Op) -> int:
        """Return what the results of an operation depend on."""
        used = [*op.operands, *(v for region in op.regions for v in free_values(region))]
        total = 0
        for value in used:
            total |= self.depends.get(value, 0)
        if any(one.code in ("loadvar", "get", "lane") for one in (op, *_inside(op))):
            total |= _LANE
        return total

    def decline(self, why: str, op: Op | None = None) -> ModelError:
        return ModelError(
            f"tiles cannot compute this plate of {self.program.name}: {why}",
            place=(op or self.op).place or self.op.place,
            why="tile kernels compute sums over rows of a term whose predictors are products of a "
            "matrix of data and vectors of parameters",
            remedy="write it so, or leave tiles=True out",
        )

    # -- the loop's body without vectors of its own

    def flat(self) -> tuple[Value, list[Op]]:
        """Return the index and the operations of a copy of the loop's body that is needed.

        An item of a vector that is made item by item is computed where it is read.
        """
        region = self.op.regions[0]
        index = Value(I32)
        with self.b.inside(self.whole):
            self.copy(region.ops, {region.args[0]: index})
        return index, needed(self.whole.ops)

    def copy(self, ops: Iterable[Op], known: dict[Value, Value]) -> None:
        for op in ops:
            operands = tuple(known.get(value, value) for value in op.operands)
            if op.code == "build":
                for number, result in enumerate(op.results):
                    known[result] = Value(result.type)
                    self.built[known[result]] = op.regions[0], number, known
                continue
            if op.code == "load":
                known[op.result] = self.element(operands[0], operands[1:])
                continue
            if any(value in self.built for value in operands):
                raise self.decline("it uses a vector of its own whole", op)
            regions: list[Region] = []
            for inner in op.regions:
                args = tuple(Value(value.type) for value in inner.args)
                within = {**known, **dict(zip(inner.args, args, strict=True))}
                with self.b.inside(Region(args)) as region:
                    self.copy(inner.ops, within)
                region.yields = tuple(within.get(value, value) for value in inner.yields)
                regions.append(region)
            key = (op.code, operands, str(op.attrs), op.results and op.results[0].type)
            if not regions and key in self.same:
                known[op.result] = self.same[key]
                continue
            results = tuple(Value(value.type) for value in op.results)
            known.update(zip(op.results, results, strict=True))
            made = Op(op.code, operands, results, dict(op.attrs), tuple(regions), op.place)
            self.b.region.ops.append(made)
            if self.b.region is self.whole and len(results) == 1:
                self.same[key] = results[0]

    def element(self, array: Value, at: tuple[Value, ...]) -> Value:
        """Append an element of an array."""
        if array not in self.built:
            return self.b.load(array, *at)
        body, number, around = self.built[array]
        known = {**around, body.args[0]: at[0]}
        self.copy((op for op in body.ops if op.code != "factor"), known)
        item = known.get(body.yields[number], body.yields[number])
        return item if len(at) == 1 else self.element(item, at[1:])

    # -- a home for each value

    def plate(self) -> Plate:
        """Divide the body among the lane, the data and the term."""
        index, ops = self.flat()
        self.depends[index] = _ROW
        for op in ops:
            self.remember(op)
        for op in ops:
            self.place(op)
        if not any(self.inputs):
            raise self.decline("no product of a matrix of data and a vector of parameters is in it")
        width = sum(width_of(columns) for columns in self.inputs if columns)
        if width > WIDTH:
            raise self.decline(f"its matrices fill {width} columns, tiles hold {WIDTH}")
        with self.b.inside(self.end):
            made = self.b.op("plate", tuple(self.operands), (self.b.real,), number=self.number)
            made.place = self.op.place
            self.b.op("factor", (made.result,))
        self.term.ops[:0] = self.head.ops
        body = gradient(self.narrow(), self.term, self.method)
        self.program_of_term.body = body
        inputs = tuple(self.inputs)
        data = self.rowwise(index)
        return Plate(self.number, self.rows, inputs, self.rows_of, data, self.program_of_term)

    def place(self, op: Op) -> None:
        if op.code == "const":
            self.lane.ops.append(op)
            self.data.ops.append(op)
            return
        if op.code == "factor":
            with self.b.inside(self.term):
                self.b.op("factor", (self.termed(op.operands[0]),))
            return
        effects = {one.code for one in (op, *_inside(op))}.intersection(_EFFECTS)
        if effects - {"factor"} or (effects and op.code != "if"):
            raise self.decline("it observes in an inner loop, or draws, or writes", op)
        depends = self.of(op)
        if effects or (op.code == "if" and depends == _BOTH):
            self.branch(op)
        elif depends != _BOTH:  # what depends on neither, as a place in a vector, both may need
            if not depends & _ROW:
                self.lane.ops.append(op)
            if not depends & _LANE:
                self.data.ops.append(op)
        elif op.code == "for":
            self.product(op)
        elif op.code in ("load", "loadvar"):
            raise self.decline("it reads a parameter of each row's own", op)
        elif op.regions or op.code not in FUNCTIONS:
            raise self.decline(f"its terms have {op.code}, which tiles do not have", op)
        else:
            operands = tuple(map(self.termed, op.operands))
            made = Op(op.code, operands, (Value(_narrow(op.result.type)),), op.attrs, (), op.place)
            self.known[op.result] = made.result
            self.term.ops.append(made)

    def branch(self, op: Op) -> None:
        """Append an `if` to the term; what a branch has of the lane or of data alone is outside."""
        outer, regions = self.term, list[Region]()
        for region in op.regions:
            self.term = Region()
            for inner in region.ops:
                self.remember(inner)
                self.place(inner)
            self.term.yields = tuple(map(self.termed, region.yields))
            regions.append(self.term)
        self.term = outer
        results = tuple(Value(_narrow(value.type)) for value in op.results)
        self.known |= dict(zip(op.results, results, strict=True))
        condition = self.termed(op.operands[0])
        self.term.ops.append(Op("if", (condition,), results, {}, tuple(regions), op.place))

    def termed(self, value: Value) -> Value:
        """Return a value of the loop as the term knows it: a constant, an input or a column."""
        if value in self.known:
            return self.known[value]
        with self.b.inside(self.head):
            if value in self.constants:
                number = self.constants[value].attrs["value"]
                made = self.b.const(number, _narrow(value.type))
            elif self.depends.get(value, 0) == _LANE:
                made = self.scalar(value)
            else:
                made = self.column(value)
        self.known[value] = made
        return made

    def input(self, width: int, operand: Value) -> Value:
        self.inputs.append(width)
        self.operands.append(operand)
        return self.b.loadvar("z", "f32", self.b.const(len(self.inputs) - 1, I32))

    def scalar(self, value: Value) -> Value:
        """Append a number of the lane; whole ones come as reals."""
        with self.b.inside(self.lane):
            given = self.b.cast(value, self.b.real)
        made = self.input(0, given)
        if value.type == BOOL:
            return self.b.compare("ne", made, self.b.const(0.0, F32))
        return self.b.cast(made, _narrow(value.type))

    def column(self, value: Value) -> Value:
        """Append a column of data."""
        name = f"column{len(self.columns)}"
        self.columns.append(Value(_narrow(value.type), name))
        with self.b.inside(self.data):
            kind = F32 if value.type.is_float else I32
            self.write(name, kind.kind, 1, self.b.const(0, I32), value)
        return self.columns[-1]

    def write(self, name: str, kind: Kind, rows: int, row: Value, value: Value) -> None:
        self.kinds[name], self.rows_of[name] = kind, rows
        self.b.op("write", (row, self.b.cast(value, Type(kind))), name=name)

    def product(self, op: Op) -> None:
        """Take a sum over columns of an item of data times an item of the lane."""
        region = op.regions[0]
        width = self.constants.get(op.operands[0])
        if len(op.results) != 1 or width is None:
            raise self.decline("a loop of it is not the sum of a product", op)
        for inner in region.ops:
            self.remember(inner)
        index, total = region.args
        factors = _factors(region.yields[0], total, self.defined)
        sides = Region((index,), _slice(region.ops, *(factors or ())))
        if factors is None or total in (*factors, *free_values(sides)):
            raise self.decline("a loop of it is not the sum of a product", op)
        one, other = factors
        if self.depends.get(one, 0) & _LANE:
            one, other = other, one
        if self.depends.get(one, 0) & _LANE or self.depends.get(other, 0) & _ROW:
            raise self.decline("a product of it is not of data and a vector of parameters", op)
        count = int(width.attrs["value"])
        matrix = f"matrix{sum(map(bool, self.inputs))}"
        # Each side is a part of the loop's body, of which it needs not all.
        with self.b.inside(Region((index,), _slice(region.ops, one))) as side:
            self.write(matrix, "f32", count, index, one)
        self.data.ops.append(Op("for", (op.operands[0],), (), {}, (side,), op.place))
        side = clone(Region((index,), _slice(region.ops, other), (other,)), {})
        vector = Value(Type(side.yields[0].type.kind, (count,)))
        self.lane.ops.append(Op("build", (), (vector,), {"count": count}, (side,), op.place))
        with self.b.inside(self.head):
            made = self.input(count, vector)
        with self.b.inside(self.term):
            start = op.operands[1]
            if start not in self.constants or self.constants[start].attrs["value"] != 0:
                made = self.b.make("add", self.termed(start), made)
            self.known[op.result] = made

    # -- programs

    def narrow(self) -> Program:
        size = len(self.inputs)
        variables = {"z": Type("f32", (size,)), "g": Type("f32", (size,)), "logw": F32}
        self.program_of_term = Program(
            f"{self.program.name}_term", "f32", tuple(self.columns), Region(), variables=variables
        )
        return self.program_of_term

    def rowwise(self, index: Value) -> Program:
        """Return the program of a lane a row, with what it needs of what comes before the loop."""
        wanted = free_values(self.data)
        before = [op for op in _slice(self.before, *wanted) if not self.of(op) & _LANE]
        lane = Op("lane", (), (index,))
        made = clone(
            Region((), [lane, *before, *self.data.ops]), {}, lambda op: op.code == "factor"
        )
        name = f"{self.program.name}_rows"
        return Program(name, self.program.dtype, self.program.params, made, buffers=self.kinds)


def _inside(op: Op) -> Iterable[Op]:
    for region in op.regions:
        yield from walk(region)


def needed(ops: list[Op]) -> list[Op]:
    """Return the operations that have effects, and those that they need, in order."""
    return _slice(ops, effects=True)


def _slice(ops: list[Op], *wanted: Value, effects: bool = False) -> list[Op]:
    """Return the operations that values need, in order, and if asked those that have effects."""
    used = set(wanted)
    kept: list[Op] = []
    for op in reversed(ops):
        effect = effects and any(one.code in _EFFECTS for one in (op, *_inside(op)))
        if effect or used & set(op.results):
            kept.append(op)
            used.update(op.operands)
            for region in op.regions:
                used.update(free_values(region))
    return kept[::-1]


def _factors(end: Value, total: Value, defined: dict[Value, Op]) -> tuple[Value, Value] | None:
    """Return a and b where a loop ends with total + a * b."""
    op = defined.get(end)
    match op:
        case Op(code="fma", operands=(a, b, c)) if c is total:
            return a, b
        case Op(code="add", operands=(a, b)):
            rest = b if a is total else a
            product = defined.get(rest)
            if total in (a, b) and product is not None and product.code == "mul":
                return product.operands[0], product.operands[1]
        case _:
            pass
    return None


def _narrow(type_: Type) -> Type:
    """Terms are computed in float32."""
    return Type("f32", type_.shape) if type_.kind == "f64" else type_
