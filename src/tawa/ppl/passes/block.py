"""Purpose: compute the terms of sums over rows side by side, and add them up in order.

Before -> after::

    for %i in 100 {                     for %b in 4 { of the rows of a block
      %t = exp ...                        for %r { %t = exp ...; terms[%r] = %t }
      set s (add (get s) %t)              for %r { set s (add (get s) terms[%r]) }
    }                                   }

LLVM makes vectors of the first loop, whose rows depend on none of each other; the second adds as
before, so that bits are those of a loop that was left as it is. For the CPU.

Requires: no effects. Ensures: the same values, of the same operations in the same order.
Declines: a loop shorter than a block; one with a branch, with a loop of unknown length, or with
memory that a row leaves to the next and that is no sum.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from tawa.ppl.ir.core import I32, Builder, Op, Program, Region, Type, Value, clone, walk
from tawa.ppl.ir.operations import ADJOINTS, ELEMENTARY, MATRICES

ROWS = 32
"""Rows of a block: terms of some sums stay in the first cache."""
_PURE = {*ELEMENTARY, *MATRICES, *ADJOINTS, "const", "pack", "select", "cast", "bits", "load"}


def in_blocks(program: Program) -> Program:
    """Return a program whose sums over rows are computed in blocks."""
    made = replace(
        program,
        body=clone(program.body, {}),
        procedures={name: clone(region, {}) for name, region in program.procedures.items()},
        variables=dict(program.variables),
    )
    constants = {
        op.result: int(op.attrs["value"])
        for op in made.operations()
        if op.code == "const" and op.result.type == I32
    }
    for region in (*made.procedures.values(), made.body):
        _Blocks(made, constants).region(region)
    return made


_INDEX = ("add", "sub", "mul")
Loops = tuple[tuple[int, Value], ...]
"""Loops around an operation: count and index."""


@dataclass(eq=False, slots=True)
class _Rows:
    """What a row does: its sums (the operation that writes, and what it adds), memory of its own
    (written in full before it is read) or of which each row has other elements (by an index), and
    what it reads; and who makes a value.
    """

    row: Value
    sums: dict[Op, Value] = field(default_factory=lambda: {})
    own: set[str] = field(default_factory=lambda: set[str]())
    apart: dict[str, Value] = field(default_factory=lambda: {})
    reads: list[Op] = field(default_factory=lambda: [])
    makers: dict[Value, Op] = field(default_factory=lambda: {})
    indices: set[Value] = field(default_factory=lambda: set[Value]())


class _Blocks:
    def __init__(self, program: Program, constants: dict[Value, int]) -> None:
        self.program = program
        self.constants = constants

    def region(self, region: Region) -> None:
        """Put loops of blocks in the place of loops of rows."""
        ops, region.ops = region.ops, []
        for op in ops:
            count = self.constants.get(op.operands[0], 0) if op.code == "for" else 0
            if count >= ROWS and not op.results:
                rows = _Rows(op.regions[0].args[0])
                if self.found(op.regions[0], rows, ()) and self.sound(op.regions[0], rows):
                    b = Builder(self.program.dtype)
                    b.place = op.place
                    with b.inside(region):
                        self.blocks(b, op.regions[0], count, rows)
                    continue
            for inner in op.regions:
                self.region(inner)
            region.ops.append(op)

    # -- what a row does

    def found(self, region: Region, rows: _Rows, loops: Loops, summing: bool = True) -> bool:
        """Whether rows only compute, use memory of their own, and add to sums where `summing`."""
        for op in region.ops:
            rows.makers.update(dict.fromkeys(op.results, op))
            match op.code:
                case "for" | "build":
                    count = op.attrs.get("count", 0) or self.constants.get(op.operands[0], 0)
                    inner = op.regions[0]
                    rows.indices.add(inner.args[0])
                    around = (*loops, (count, inner.args[0]))
                    if not count or not self.found(inner, rows, around, summing and not op.results):
                        return False
                case "get" | "loadvar":
                    rows.reads.append(op)
                case "set" | "storevar":
                    if not self.written(op, rows, loops, summing):
                        return False
                case code if code not in _PURE:
                    return False
                case _:
                    pass
        return True

    def written(self, op: Op, rows: _Rows, loops: Loops, summing: bool) -> bool:
        """Whether a write is to memory of the row's own, or adds to a sum."""
        name, at = op.attrs["name"], op.operands[:-1]
        if name in rows.own:
            return True
        if alone := [index for index in at if self.moves(index, rows)]:
            return rows.apart.setdefault(name, alone[0]) in alone
        added = rows.makers.get(op.operands[-1])
        before = rows.makers.get(added.operands[0]) if added and added.code == "add" else None
        if added and before in rows.reads and before.attrs["name"] == name:
            rows.sums[op] = added.operands[1]
            return summing and before.operands == at
        shape = self.program.variables[name].shape
        inner = loops[len(loops) - len(shape) :]
        rows.own.add(name)
        fills = (shape, at) == (tuple(n for n, _ in inner), tuple(index for _, index in inner))
        return fills and all(read.attrs["name"] != name for read in rows.reads)

    def moves(self, index: Value, rows: _Rows) -> bool:
        """Whether no two rows have the same index: the row's, or that and what no row changes."""
        made = rows.makers.get(index)
        if index is rows.row or made is None or made.code not in ("add", "sub"):
            return index is rows.row
        one, other = made.operands
        for moving, still in ((one, other), (other, one)):
            fixed = still in self.constants or not (still in rows.makers or still in rows.indices)
            if fixed and still is not rows.row and self.moves(moving, rows):
                return True
        return False

    def known(self, index: Value, rows: _Rows) -> bool:
        """Whether an index can be computed of those of loops."""
        made = rows.makers.get(index)
        if made is None or index in self.constants:
            return True
        return made.code in _INDEX and all(self.known(value, rows) for value in made.operands)

    def sound(self, region: Region, rows: _Rows) -> bool:
        """Whether a sum is read to be added to alone, at indices that the second loop has too."""
        uses = Counter(value for op in walk(region) for value in op.operands)
        uses.update(value for op in walk(region) for r in op.regions for value in r.yields)
        sums = Counter(op.attrs["name"] for op in rows.sums)
        reads = [read for read in rows.reads if read.attrs["name"] in sums]
        return (
            bool(sums)
            and rows.own.isdisjoint(sums)
            and rows.apart.keys().isdisjoint((*sums, *rows.own))
            and all(
                rows.apart[op.attrs["name"]] in op.operands
                for op in rows.reads
                if op.attrs["name"] in rows.apart
            )
            and sums == Counter(read.attrs["name"] for read in reads)
            and all(uses[read.result] == 1 for read in reads)
            and all(self.known(at, rows) for op in rows.sums for at in op.operands[:-1])
        )

    # -- what stands for it

    def blocks(self, b: Builder, region: Region, count: int, rows: _Rows) -> None:
        """Append the loop over blocks."""
        size, total = b.const(ROWS, I32), b.const(count, I32)
        terms: dict[Op, str] = {}
        with b.inside(Region((Value(I32),))) as block:
            first = b.make("mul", block.args[0], size)
            left = b.make("sub", total, first)
            many = b.make("select", b.compare("lt", left, size), left, size, type=I32)
            for adding in (False, True):
                with b.inside(Region((Value(I32),))) as made:
                    (row,) = made.args
                    known = {region.args[0]: b.make("add", first, row)}
                    self.rows(b, region, rows, terms, known, ((ROWS, row),), adding)
                b.op("for", (many,), (), (made,))
        b.op("for", (b.const(-(-count // ROWS), I32),), (), (block,))

    def rows(
        self,
        b: Builder,
        region: Region,
        rows: _Rows,
        terms: dict[Op, str],
        known: dict[Value, Value],
        loops: Loops,
        adding: bool,
    ) -> None:
        """Append what the rows compute, with the terms of sums stored; or only add these."""
        for op in region.ops:
            if op in rows.sums:
                kind = op.operands[-1].type.kind
                # A row's terms lie beside those of the next one.
                shape, place = zip(*loops[1:], loops[0], strict=True)
                if not adding:
                    terms[op] = f"terms{len(self.program.variables)}"
                    self.program.variables[terms[op]] = Type(kind, shape)
                    term = known.get(rows.sums[op], rows.sums[op])
                    b.op("storevar", (*place, term), name=terms[op])
                    continue
                at = tuple(self.index(b, value, rows, known) for value in op.operands[:-1])
                read, name = ("loadvar" if at else "get"), op.attrs["name"]
                held = b.make(read, *at, type=Type(kind), name=name)
                total = b.make("add", held, b.loadvar(terms[op], kind, *place))
                b.op(op.code, (*at, total), name=name)
            elif any(inner in rows.sums for inside in op.regions for inner in walk(inside)):
                with b.inside(Region((Value(I32),))) as made:
                    (index,) = made.args
                    known[op.regions[0].args[0]] = index
                    count = self.constants[op.operands[0]]
                    around = (*loops, (count, index))
                    self.rows(b, op.regions[0], rows, terms, known, around, adding)
                b.op("for", (b.const(count, I32),), (), (made,))
            elif not adding:
                b.region.ops += clone(Region((), [op]), known).ops

    def index(self, b: Builder, value: Value, rows: _Rows, known: dict[Value, Value]) -> Value:
        if value in self.constants:
            return b.const(self.constants[value], I32)
        if value in known or value not in rows.makers:
            return known.get(value, value)
        made = rows.makers[value]
        return b.make(made.code, *(self.index(b, part, rows, known) for part in made.operands))
