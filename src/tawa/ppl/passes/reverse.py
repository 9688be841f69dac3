"""Purpose: the gradient of a log density by reverse mode.

Before -> after::

    %e = exp %x                         %e = exp %x          (forward)
    factor %e                           logw += %e
                                        dx += 1 * %e; g[...] += dx     (backward)

A loop's body is computed again, iteration by iteration and in reverse, from the values that the
iteration began with; only those are kept. So memory is what loops carry, and each nesting costs one
more evaluation of its body. Terms are added to the log weight where their body is computed for the
backward sweep, once. A quotient is a product by a reciprocal, forward and backward the same one: a
division is a chain of instructions with a branch, and that of data is hoisted. A divisor below the
least normal number counts as that number: 0 times an infinite reciprocal would be no number.

Requires: a body of `passes/density.py`. Ensures: `logw` is the log density, `g` its gradient at
`z`.
Declines: a loop of unknown length, or `while`, through which the density depends on `z`:
GradientError.

Length: one sweep, and a rule for each operation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tawa.errors import GradientError, InternalError
from tawa.ppl.ir.core import (
    I32,
    Builder,
    Op,
    Program,
    Region,
    Type,
    Value,
    clone,
    free_values,
    walk,
)
from tawa.ppl.ir.operations import KEPT, MATRICES

Seed = Value | tuple[Any, ...] | None
"""An adjoint: a value, or a variable that has it, with the indices of a row; None of nothing."""
LEAST = {"f32": 2.0**-126, "f64": 2.0**-1022}
"""The least normal number of a kind."""


def gradient(program: Program, region: Region, method: str) -> Region:
    """Return a body that sets `logw` and `g`."""
    return _Reverse(program, method).whole(plain(region))


def plain(region: Region) -> Region:
    """Return a copy of a body that keeps no records and divides nothing but 1."""
    made = clone(region, {}, lambda op: op.code == "storevar" and op.attrs["name"] == KEPT)
    _invert(made)
    return made


def _invert(region: Region) -> None:
    ops, region.ops = region.ops, []
    b = Builder("f32")
    with b.inside(region):
        for op in ops:
            for inner in op.regions:
                _invert(inner)
            if op.code == "div":
                b.place, (above, below) = op.place, op.operands
                inverse = b.make("div", b.const(1.0, below.type), _normal(b, below))
                op = Op("mul", (above, inverse), op.results, {}, (), op.place)
            region.ops.append(op)


def _normal(b: Builder, value: Value) -> Value:
    """Return a number, or for one below the least normal number, but 0, that: its inverse is
    finite.
    """
    type_, zero = value.type, b.const(0.0, value.type)
    least, most = (b.const(sign * LEAST[type_.kind], type_) for sign in (1.0, -1.0))
    inside = b.make("and", b.compare("lt", most, value), b.compare("lt", value, least))
    small = b.make("and", inside, b.compare("ne", value, zero))
    nearest = b.make("select", b.compare("lt", value, zero), most, least, type=type_)
    return b.make("select", small, nearest, value, type=type_)


class _Reverse:
    def __init__(self, program: Program, method: str) -> None:
        self.program = program
        self.method = method
        self.b = Builder(program.dtype)
        self.active: set[Value] = set()
        self.adjoints: dict[Value, str] = {}
        self.local: dict[Value, Value] = {}
        self.here: set[Value] = set()
        self.tapes: dict[Op, list[str]] = {}
        self.constants: dict[Value, int] = {}

    def whole(self, region: Region) -> Region:
        """Emit the zeros, the forward and the backward sweep of the body."""
        made = Region()
        real = self.b.real
        with self.b.inside(made):
            self.b.set("logw", self.b.const(0.0, real))
            self.fill("g")
            self.mark(region)
            self.sweep(region)
        return made

    # -- what depends on z

    def mark(self, region: Region) -> None:
        """Find the values that depend on z, and constants."""
        before = -1
        while before != len(self.active):
            before = len(self.active)
            self._mark(region)

    def _mark(self, region: Region) -> None:
        for op in region.ops:
            if op.code == "const" and op.result.type == I32:
                self.constants[op.result] = int(op.attrs["value"])
            if op.regions:
                match op.code:
                    case "for":
                        self._flow(op.operands[1:], op.regions[0].args[1:])
                        self._flow(op.regions[0].yields, op.regions[0].args[1:])
                    case "while":
                        for inner in op.regions:
                            self._flow(op.operands, inner.args)
                            self._flow(op.regions[1].yields, inner.args)
                    case _:
                        pass
                for inner in op.regions:
                    self._mark(inner)
                    if inner.yields and op.code != "while":
                        self._flow(inner.yields, op.results)
                if op.code == "for":
                    self._flow(op.operands[1:], op.results)
                if op.code == "while":
                    self._flow(op.regions[1].yields, op.results)
                    self._flow(op.operands, op.results)
                continue
            depends = any(value in self.active for value in op.operands)
            if op.code == "loadvar" and op.attrs["name"] == "z":
                depends = True
            if depends:
                self.active |= {value for value in op.results if value.type.is_float}

    def _flow(self, sources: tuple[Value, ...], targets: tuple[Value, ...]) -> None:
        for source, target in zip(sources, targets, strict=True):
            if source in self.active:
                self.active.add(target)

    def matters(self, op: Op) -> bool:
        """Whether the backward sweep has something to do for an operation."""
        if any(value in self.active for value in op.results):
            return True
        return op.code == "factor" or any(
            inner.code == "factor" for region in op.regions for inner in walk(region)
        )

    # -- sweeps

    def sweep(self, region: Region, seeds: Sequence[Seed] = ()) -> dict[Value, Value]:
        """Emit a region's operations, then their backward sweep, in the region at hand.

        `seeds` are the adjoints of what it yields. Returns those of scalars that are values.
        """
        outer_local, self.local = self.local, {}
        outer_here, self.here = self.here, set(region.args)
        defined = [*region.args, *(value for op in region.ops for value in op.results)]
        self.here.update(defined)
        inner: set[Value] = set()
        for op in region.ops:
            for nested in op.regions:
                inner.update(free_values(nested))
        for value in defined:
            if value in self.active and (value.type.shape or value in inner):
                self.adjoints[value] = self.variable(value.type)
                self.fill(self.adjoints[value])
        for op in region.ops:
            self.forward(op)
        for value, seed in zip(region.yields, seeds, strict=False):  # a loop of terms has none
            self.seed(value, seed)
        for op in reversed(region.ops):
            if self.matters(op):
                self.b.place = op.place
                self.backward(op)
        for value, amount in self.local.items():
            if value not in self.here:
                self.b.accumulate(self.adjoints[value], amount)
        local, self.local, self.here = self.local, outer_local, outer_here
        return local

    def seed(self, value: Value, seed: Seed) -> None:
        """Add to the adjoint of a value, if it depends on z."""
        if value not in self.active or seed is None:
            return
        if isinstance(seed, Value):
            self.add(value, seed)
            return
        name, *row = seed

        def item(*at: Value) -> None:
            self.add(value, self.b.loadvar(name, value.type.kind, *row, *at), *at)

        self.b.each(value.type.shape, item)

    def variable(self, type_: Type, stem: str = "d") -> str:
        name = f"{stem}{len(self.program.variables)}"
        self.program.variables[name] = type_
        return name

    def fill(self, name: str) -> None:
        """Emit zeros into a variable."""
        type_ = self.program.variables[name]
        zero = self.b.const(0.0, Type(type_.kind))
        self.b.each(type_.shape, lambda *at: self.b.storevar(name, *at, zero))

    def add(self, value: Value, amount: Value, *at: Value) -> None:
        """Add to the adjoint of a scalar, or of an element of an array value."""
        if value not in self.active:
            return
        if at:
            self.b.accumulate(self.adjoints[value], *at, amount)
            return
        held = self.local.get(value)
        self.local[value] = amount if held is None else self.b.make("add", held, amount)

    def add_product(self, value: Value, one: Value, other: Value) -> None:
        """Add a product to the adjoint of a scalar."""
        if value in self.active:
            held = self.local.get(value)
            code, *more = ("mul",) if held is None else ("fma", held)
            self.local[value] = self.b.make(code, one, other, *more)

    def adjoint(self, value: Value, local: dict[Value, Value] | None = None) -> Value | None:
        """Return the adjoint of a scalar of this region, or of the one that was swept with `local`;
        None where nothing was added.
        """
        held = (self.local if local is None else local).get(value)
        if value in self.adjoints:
            far = self.b.get(self.adjoints[value], value.type)
            return far if held is None else self.b.make("add", held, far)
        return held

    def forward(self, op: Op) -> None:
        """Emit an operation. Nested terms are left to the backward sweep of their body."""
        if op.code == "factor":
            self.b.accumulate("logw", op.operands[0])
            return
        if not op.regions or not self.matters(op):
            self.b.region.ops.append(op)
            return
        if not op.results:
            return  # nothing but terms: computed in the backward sweep alone
        known: dict[Value, Value] = {}
        regions = tuple(self.bare(inner, known) for inner in op.regions)
        made = Op(op.code, op.operands, op.results, op.attrs, regions, op.place)
        if op.code == "for" and len(op.results):
            self.iterations(op)
            tapes = self.tapes[op] = []
            index, *carried = regions[0].args
            head = Region()
            with self.b.inside(head):
                for value in carried:
                    shape = (max(1, self.iterations(op)), *value.type.shape)
                    tapes.append(self.variable(Type(value.type.kind, shape), "tape"))
                    self.keep(tapes[-1], index, value)
            regions[0].ops[:0] = head.ops
        self.b.region.ops.append(made)

    def keep(self, tape: str, index: Value, value: Value) -> None:
        self.b.each(
            value.type.shape,
            lambda *at: self.b.storevar(tape, index, *at, self.b.load(value, *at)),
        )

    def bare(self, region: Region, known: dict[Value, Value]) -> Region:
        return clone(region, known, lambda op: op.code == "factor")

    def iterations(self, op: Op) -> int:
        """Return a bound of the number of iterations."""
        most: int = op.attrs.get("most", -1)
        count = self.constants.get(op.operands[0], most)
        if count < 0:
            raise GradientError(
                "the number of iterations of this loop is not known",
                place=op.place,
                why=f"{self.method} goes backward through a loop, from what each iteration left",
                remedy="loop over an array, or over range of a number known when "
                "the model is compiled",
            )
        return count

    def again(self, region: Region, args: tuple[Value, ...]) -> tuple[Region, dict[Value, Value]]:
        """Return a copy of a body for its backward sweep, with its facts."""
        known: dict[Value, Value] = dict(zip(region.args, args, strict=True))
        made = clone(Region((), region.ops, region.yields), known)
        for old, new in known.items():
            if old in self.active:
                self.active.add(new)
            if old in self.constants:
                self.constants[new] = self.constants[old]
        made.args = args
        return made, known

    # -- rules

    def backward(self, op: Op) -> None:
        match op.code:
            case "factor":
                self.add(op.operands[0], self.b.const(1.0, self.b.real))
            case "if":
                self.if_(op)
            case "build":
                self.build(op)
            case "for":
                self.loop(op)
            case "while":
                raise GradientError(
                    "the log density depends on this loop",
                    place=op.place,
                    why=f"{self.method} needs the number of iterations of a loop before it runs",
                    remedy="loop over an array, or over range of a number known when "
                    "the model is compiled",
                )
            case "pack":
                for number, value in enumerate(op.operands):
                    self.seed(value, (self.adjoints[op.result], self.b.const(number, I32)))
            case "loadvar" if op.attrs["name"] == "z":
                if (g := self.adjoint(op.result)) is not None:
                    self.b.accumulate("g", *op.operands, g)
            case "load":
                if (g := self.adjoint(op.result)) is not None:
                    self.add(op.operands[0], g, *op.operands[1:])
            case code if code in MATRICES:
                self.matrices(op)
            case "plate":
                if (g := self.adjoint(op.result)) is not None:
                    self.plate(op, g)
            case _:
                if (g := self.adjoint(op.result)) is not None:
                    self.scalar(op, g)

    def seeds(self, results: tuple[Value, ...]) -> tuple[Seed, ...]:
        return tuple(
            None
            if value not in self.active
            else (self.adjoints[value],)
            if value.type.shape
            else self.adjoint(value)
            for value in results
        )

    def if_(self, op: Op) -> None:
        seeds = self.seeds(op.results)
        regions: list[Region] = []
        for inner in op.regions:
            body, _ = self.again(inner, ())
            with self.b.inside(Region()) as made:
                self.sweep(body, seeds)
            regions.append(made)
        self.b.op("if", (op.operands[0],), (), tuple(regions))

    def build(self, op: Op) -> None:
        count = op.attrs["count"]

        def iteration(index: Value) -> None:
            body, _ = self.again(op.regions[0], (index,))
            active = (value in self.active for value in op.results)
            self.sweep(
                body,
                [
                    (self.adjoints[value], index) if holds else None
                    for value, holds in zip(op.results, active, strict=True)
                ],
            )

        self.b.each((count,), iteration)

    def loop(self, op: Op) -> None:
        """Go through the iterations backward; adjoints of what is carried live in variables."""
        region = op.regions[0]
        if not op.results:
            with self.b.inside(Region((Value(I32),))) as made:
                body, _ = self.again(region, made.args)
                self.sweep(body)
            self.b.op("for", (op.operands[0],), (), (made,))
            return
        last = self.b.make("sub", op.operands[0], self.b.const(1, I32))
        carried: list[str | None] = []
        for result, seed in zip(op.results, self.seeds(op.results), strict=True):
            if result not in self.active:
                carried.append(None)
                continue
            name = self.variable(result.type)
            carried.append(name)
            self.fill(name)
            if isinstance(seed, Value):
                self.b.set(name, seed)
            elif seed is not None:
                self.copy(seed[0], name)

        def iteration(step: Value) -> None:
            index = self.b.make("sub", last, step)
            starts = tuple(
                self.taken(tape, value.type, index)
                for tape, value in zip(self.tapes[op], region.args[1:], strict=True)
            )
            body, _ = self.again(region, (index, *starts))
            local = self.sweep(body, [name if name is None else (name,) for name in carried])
            for start, name in zip(starts, carried, strict=True):
                if name is not None and start.type.shape:
                    self.copy(self.adjoints[start], name)
                elif name is not None:
                    total = self.adjoint(start, local)
                    zero = self.b.const(0.0, start.type)
                    self.b.set(name, zero if total is None else total)

        with self.b.inside(Region((Value(I32),))) as made:
            iteration(made.args[0])
        self.b.op("for", (op.operands[0],), (), (made,))
        for start, name in zip(op.operands[1:], carried, strict=True):
            self.seed(start, None if name is None else (name,))

    def matrices(self, op: Op) -> None:
        """Add what the adjoint function of an operation of arrays gives."""
        seed = self.b.get(self.adjoints[op.result], op.result.type)
        types = tuple(value.type for value in op.operands)
        made = self.b.op(f"{op.code}_adjoint", (*op.operands, op.result, seed), types)
        for value, slope in zip(op.operands, made.results, strict=True):
            if value in self.active:

                def item(*at: Value, value: Value = value, slope: Value = slope) -> None:
                    self.add(value, self.b.load(slope, *at), *at)

                self.b.each(value.type.shape, item)

    def plate(self, op: Op, g: Value) -> None:
        """Take the derivatives of a plate from the rows of its buffer, in order of its operands."""

        def item(value: Value, at: tuple[Value, ...], place: Value) -> None:
            slope = self.b.row(f"slopes{op.attrs['number']}", "f32", place)
            self.add(value, self.b.make("mul", g, slope), *at)

        self.b.words(op.operands, item)

    def copy(self, source: str, target: str) -> None:
        """Emit the copy of a variable into another."""
        type_ = self.program.variables[target]
        self.b.each(
            type_.shape,
            lambda *at: self.b.storevar(target, *at, self.b.loadvar(source, type_.kind, *at)),
        )

    def taken(self, tape: str, type_: Type, index: Value) -> Value:
        """Emit the reading of what an iteration began with."""
        return self.b.build(type_.shape, lambda *at: self.b.loadvar(tape, type_.kind, index, *at))

    def scalar(self, op: Op, g: Value) -> None:
        """The derivative of each elementary operation."""
        b, make = self.b, self.b.make
        r = op.result
        x = op.operands

        def const(number: float) -> Value:
            return b.const(number, r.type)

        def inverse(value: Value) -> Value:
            return make("div", const(1.0), value)

        match op.code:
            case "add":
                self.add(x[0], g)
                self.add(x[1], g)
            case "sub":
                self.add(x[0], g)
                if x[1] in self.active:
                    self.add(x[1], make("neg", g))
            case "mul" | "fma":
                self.add_product(x[0], g, x[1])
                self.add_product(x[1], g, x[0])
                if op.code == "fma":
                    self.add(x[2], g)
            case "div":  # 1 / x: there is no other
                self.add_product(x[1], make("mul", make("neg", g), r), r)
            case "neg":
                self.add(x[0], make("neg", g))
            case "abs":
                below = b.compare("lt", x[0], const(0.0))
                self.add(x[0], make("select", below, make("neg", g), g, type=r.type))
            case "sqrt":
                self.add_product(x[0], make("mul", g, const(0.5)), inverse(r))
            case "exp":
                self.add_product(x[0], g, r)
            case "expm1":
                self.add_product(x[0], g, make("add", r, const(1.0)))
            case "log":
                self.add_product(x[0], g, inverse(x[0]))
            case "log1p":
                self.add_product(x[0], g, inverse(make("add", x[0], const(1.0))))
            case "sinturn":
                slope = make("mul", make("costurn", x[0]), const(2 * math.pi))
                self.add_product(x[0], g, slope)
            case "costurn":
                slope = make("mul", make("sinturn", x[0]), const(-2 * math.pi))
                self.add_product(x[0], g, slope)
            case "lgamma":
                self.add_product(x[0], g, make("digamma", x[0]))
            case "erf":
                square = make("neg", make("mul", x[0], x[0]))
                slope = make("mul", make("exp", square), const(2 / math.sqrt(math.pi)))
                self.add_product(x[0], g, slope)
            case "select":
                zero = const(0.0)
                if x[1] in self.active:
                    self.add(x[1], make("select", x[0], g, zero, type=r.type))
                if x[2] in self.active:
                    self.add(x[2], make("select", x[0], zero, g, type=r.type))
            case "cast":
                self.add(x[0], make("cast", g, type=x[0].type))
            case "floor" | "rint":
                pass
            case _:
                raise InternalError(f"reverse mode has no rule for {op.code}")
