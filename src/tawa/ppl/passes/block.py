"""Purpose: compute the terms of sums over rows side by side, and add them up in order.

Before -> after::

    for %i in 100 {                     for %b in 4 { of the rows of a block
      %t = exp ...                        for %r { %t = exp ...; terms[%r] = %t }
      set s (add (get s) %t)              for %r { set s (add (get s) terms[%r]) }
    }                                   }

LLVM makes vectors of the first loop, whose rows depend on none of each other; the second adds as
before, so that bits are those of a loop that was left as it is. For the CPU.

Requires: no effects. Ensures: the same values, of the same operations in the same order.
Declines: a loop shorter than a block, one that carries values, and rows with a branch or a loop of
unknown length, of which LLVM makes no vectors.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from tawa.ppl.ir.core import I32, Builder, Op, Program, Region, Type, Value, clone, walk
from tawa.ppl.ir.operations import ADJOINTS, PURE

ROWS = 32
"""Rows of a block: terms of some sums stay in the first cache."""
_MEMORY = ("get", "loadvar", "set", "storevar")
_PLAIN = PURE.union(ADJOINTS, _MEMORY, ("for",))


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
    """What rows do: what each write that can be one of a sum adds, who makes a value, and reads of
    the lane's memory, the last one of a name with the loops around it.
    """

    adds: dict[Op, Value] = field(default_factory=lambda: {})
    makers: dict[Value, Op] = field(default_factory=lambda: {})
    latest: dict[str, tuple[Op, Loops]] = field(default_factory=lambda: {})


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
                rows = _Rows()
                self.look(op.regions[0], rows, ())
                if self.sums(op.regions[0], rows):
                    b = Builder(self.program.dtype)
                    b.place = op.place
                    with b.inside(region):
                        self.blocks(b, op.regions[0], count, rows)
                    continue
            for inner in op.regions:
                self.region(inner)
            region.ops.append(op)

    # -- what a row does

    def look(self, region: Region, rows: _Rows, loops: Loops) -> None:
        """Find writes that add to what was read last, in no loop around the read."""
        for op in region.ops:
            rows.makers.update(dict.fromkeys(op.results, op))
            name = op.attrs.get("name", "")
            if op.code in ("get", "loadvar"):
                rows.latest[name] = op, loops
            if op.code in ("set", "storevar"):
                added = rows.makers.get(op.operands[-1])
                before = rows.makers.get(added.operands[0]) if added and added.operands else None
                last = rows.latest.pop(name, None)
                match added, before:
                    case Op("add", (_, amount)), Op(_, at) if last == (before, loops):
                        rows.adds |= {op: amount} if at == op.operands[:-1] else {}
                    case _:
                        pass
            for inner in op.regions:
                self.look(inner, rows, (*loops, (0, (*inner.args, Value(I32))[0])))

    def sums(self, region: Region, rows: _Rows) -> bool:
        """Leave those writes alone whose variable is a sum; tell whether it is worth its while.

        No row looks at a sum but to add to it, at indices that the second loop has too. Rows are
        worth it that do nothing in turn: they leave no other memory to the next one.
        """
        ops = list(walk(region))
        uses = Counter(value for op in ops for value in op.operands)
        uses.update(value for op in ops for inner in op.regions for value in inner.yields)
        first: dict[str, Op] = {}
        others, written, reads = set[str](), set[str](), Counter[str]()
        for op in ops:
            name = op.attrs.get("name", "")
            if op.code in _MEMORY:
                first.setdefault(name, op)
            if op.code in ("get", "loadvar"):
                reads[name] += 1
                others |= {name} if uses[op.result] != 1 else set()
            if op.code in ("set", "storevar"):
                written.add(name)
                known = all(self.known(at, rows) for at in op.operands[:-1])
                others |= {name} if op not in rows.adds or not known else set()
            if op.results:  # of what a loop carries, or of an array's items
                others |= {i.attrs.get("name", "") for r in op.regions for i in walk(r)}
        writes = Counter(op.attrs["name"] for op in rows.adds)
        others |= {name for name, count in writes.items() if reads[name] != count}
        rows.adds = {op: at for op, at in rows.adds.items() if op.attrs["name"] not in others}
        plain = all(
            op.code in _PLAIN and (op.code != "for" or op.operands[0] in self.constants)
            for op in ops
        )
        left = any(
            name in others and name in written and op.code in ("get", "loadvar")
            for name, op in first.items()
            if not any(self.moves(at, region.args[0], rows) for at in op.operands)
        )
        return plain and not left and bool(rows.adds)

    def moves(self, index: Value, row: Value, rows: _Rows) -> bool:
        """Whether an index depends on the row."""
        made = rows.makers.get(index)
        return index is row or any(
            self.moves(at, row, rows) for at in (made.operands if made else ())
        )

    def known(self, index: Value, rows: _Rows) -> bool:
        """Whether an index can be computed of those of loops."""
        made = rows.makers.get(index)
        if made is None or index in self.constants:
            return True
        return made.code in _INDEX and all(self.known(value, rows) for value in made.operands)

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
            if op in rows.adds:
                kind = op.operands[-1].type.kind
                # A row's terms lie beside those of the next one.
                shape, place = zip(*loops[1:], loops[0], strict=True)
                if not adding:
                    terms[op] = f"terms{len(self.program.variables)}"
                    self.program.variables[terms[op]] = Type(kind, shape)
                    term = known.get(rows.adds[op], rows.adds[op])
                    b.op("storevar", (*place, term), name=terms[op])
                    continue
                at = tuple(self.index(b, value, rows, known) for value in op.operands[:-1])
                read, name = ("loadvar" if at else "get"), op.attrs["name"]
                held = b.make(read, *at, type=Type(kind), name=name)
                total = b.make("add", held, b.loadvar(terms[op], kind, *place))
                b.op(op.code, (*at, total), name=name)
            elif any(inner in rows.adds for inside in op.regions for inner in walk(inside)):
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
