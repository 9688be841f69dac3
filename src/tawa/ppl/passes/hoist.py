"""Purpose: compute once in a run what depends on data alone, not at each leapfrog.

Before -> after::

    for %i in 8 {                       before the run: for %i in 8 { write log %sigma[%i] to %h }
      %s = load %sigma, %i
      %l = log %s                       for %i in 8 {
      ... %l ...                          %l = load %h, %i; ...

Requires: no effects. Ensures: the same values, of the same operations.
Declines: what lies in a branch or in a loop of unknown length (it may not be reached), and what has
no function, division or root in it (a load costs as much).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tawa.ppl.ir.core import I32, Builder, Kind, Op, Program, Region, Type, Value, clone, walk
from tawa.ppl.ir.operations import FUNCTIONS, MATRICES, PURE

_COSTLY = {*FUNCTIONS, *MATRICES, "div", "sqrt"}
_PURE = PURE | {"for", "if"}


def hoist(program: Program) -> tuple[Program, Program | None]:
    """Return a program with arrays of what was hoisted as further parameters.

    The second program takes the parameters of the first and writes buffers of their names, for one
    lane; None where nothing was hoisted.
    """
    looped = [op for op in program.body.ops if op.code in ("for", "while")]
    runs = {op.attrs["name"] for outer in looped for op in _within(outer) if op.code == "run"}
    made = _Hoist(program)
    procedures = {
        name: made.procedure(region) if name in runs else region
        for name, region in program.procedures.items()
    }
    if not made.arrays:
        return program, None
    params = (*program.params, *made.arrays)
    buffers: dict[str, Kind] = {array.name: array.type.kind for array in made.arrays}
    before = Program(program.name, program.dtype, program.params, made.before, buffers=buffers)
    return replace(program, params=params, procedures=procedures), before


def _within(op: Op) -> Iterator[Op]:
    yield op
    for region in op.regions:
        yield from walk(region)


def _pure(op: Op, known: set[Value]) -> bool:
    """Whether an operation computes its results of known values, and does nothing else."""
    if op.code not in _PURE or not known.issuperset(op.operands):
        return False
    for region in op.regions:
        inner = known | set(region.args)
        for item in region.ops:
            if not _pure(item, inner):
                return False
            inner.update(item.results)
        if not inner.issuperset(region.yields):
            return False
    return True


class _Hoist:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.arrays: list[Value] = []
        self.before = Region()
        self.constants: dict[Value, int] = {}
        self.loads: dict[Op, list[Op]] = {}
        self.known: dict[Value, Value] = {}
        self.pure: set[Op] = set()

    def procedure(self, region: Region) -> Region:
        """Return a copy of a procedure that loads what `before` computes."""
        copy = clone(region, {})
        found = self.nest(copy, set(self.program.params), ())
        self.before.ops += clone(found, {}).ops
        self.rewrite(copy, set())
        return copy

    def nest(self, region: Region, known: set[Value], at: tuple[tuple[int, Value], ...]) -> Region:
        """Return what of a region depends on data alone, with writes of what is worth keeping.

        `at` are the loops around it: count and index.
        """
        found = Region()
        costly: set[Value] = set()
        wanted = set(region.yields)
        for op in region.ops:
            if op.code == "const" and op.result.type == I32:
                self.constants[op.result] = int(op.attrs["value"])
            if _pure(op, known):
                known.update(op.results)
                self.pure.add(op)
                found.ops.append(op)
                codes = {inner.code for inner in _within(op)}
                if codes & _COSTLY or costly.intersection(op.operands):
                    costly.update(op.results)
                continue
            wanted.update(value for inner in _within(op) for value in inner.operands)
            wanted.update(value for inner in op.regions for value in _yielded(inner))
            count = op.attrs.get("count", 0)
            if op.code == "for":
                count = self.constants.get(op.operands[0], 0)
            if op.code in ("for", "build") and count > 0:
                index = op.regions[0].args[0]
                inside = self.nest(op.regions[0], known | {index}, (*at, (count, index)))
                inside.args = (index,)
                b = Builder(self.program.dtype)
                with b.inside(found):
                    b.op("for", (b.const(count, I32),), (), (inside,))
        for op in tuple(found.ops):
            for value in op.results:
                if value in costly & wanted and not value.type.shape:
                    self.keep(op, value, found, at)
        return found

    def keep(self, op: Op, value: Value, found: Region, at: tuple[tuple[int, Value], ...]) -> None:
        """Write a value, and have it loaded behind the operation that makes it."""
        shape = tuple(count for count, _ in at)
        array = Value(Type(value.type.kind, shape or (1,)), f"hoisted{len(self.arrays)}")
        self.arrays.append(array)
        indices = tuple(index for _, index in at)
        b = Builder(self.program.dtype)
        with b.inside(found):
            b.op("write", (b.offset(shape, b.const(0, I32), *indices), value), name=array.name)
        with b.inside(Region()) as region:
            self.known[value] = b.load(array, *(indices or (b.const(0, I32),)))
        self.loads.setdefault(op, []).extend(region.ops)

    def rewrite(self, region: Region, used: set[Value]) -> None:
        """Put the loads where they belong, and leave out what has no use any more."""
        region.yields = tuple(self.known.get(value, value) for value in region.yields)
        used.update(region.yields)
        kept: list[Op] = []
        for op in reversed(region.ops):
            for load in self.loads.get(op, ()):
                used.update(load.operands)
            kept += reversed(self.loads.get(op, ()))
            if op in self.pure and used.isdisjoint(op.results):
                continue
            op.operands = tuple(self.known.get(value, value) for value in op.operands)
            used.update(op.operands)
            for inner in op.regions:
                self.rewrite(inner, used)
            kept.append(op)
        region.ops = kept[::-1]


def _yielded(region: Region) -> Iterator[Value]:
    yield from region.yields
    for op in region.ops:
        for inner in op.regions:
            yield from _yielded(inner)
