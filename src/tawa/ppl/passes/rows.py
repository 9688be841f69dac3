"""Purpose: find loops over rows that depend on none of each other but for sums, and join them.

Before -> after::

    %m = build {count=100}              for %n {sums=("logw", "d1")}
      [0] %i: ... yield %e                [0] %i: ...
    for %n                                    accumulate %t {name="logw"}
      [0] %i: load %m, %i                     %d = get d2
        accumulate %t {name="logw"}           accumulate %u {name="d1"}
        accumulate %a, %i {name="d2"}
    for %n
      [0] %i: %d = loadvar %i {name="d2"}
        accumulate %u {name="d1"}

`sums` are the variables that rows add to and do not look at: they are added up in PARTS parts, in
an order that depends on the number of rows alone (`interpret.py` defines it), whoever computes
which row. `own` are those in which each row has an element of its own that others look at later:
the name, and a and b of its index a * row + b.

Requires: no effects. Ensures: the same values, but for the order of sums.
Declines: a loop of fewer rows than parts or of an unknown number, one that carries values, and one
in which a row sees what another one left, or adds to more numbers than there are rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tawa.ppl.ir.core import I32, Op, Program, Region, Value, clone, walk
from tawa.ppl.ir.operations import ADJOINTS, PARTS, PURE

READS = ("get", "loadvar")
WRITES = ("set", "storevar", "accumulate")
_CROSSED = PURE.union(ADJOINTS, READS, WRITES, ("for", "if", "while", "switch", "philox", "lane"))
"""What can be done before or after other rows, as far as its variables allow it."""


def rows(program: Program) -> Program:
    """Return a program whose loops over rows are joined, with attributes `sums` and `own`."""
    made = program.copy()
    found = _Rows(made)
    for region in (*made.procedures.values(), made.body):
        found.join(region)
    found.look()
    for region in (*made.procedures.values(), made.body):
        found.contract(region)
    found.look()
    for region in (*made.procedures.values(), made.body):
        found.mark(region)
    return made


@dataclass(frozen=True, slots=True)
class _Access:
    """A use of a variable, with the loops around it in its row: index and length, 0 if not known.

    `sure` is whether it is reached in each of their iterations.
    """

    op: Op
    loops: dict[Value, int]
    sure: bool

    @property
    def name(self) -> str:
        return self.op.attrs["name"]

    @property
    def at(self) -> tuple[Value, ...]:
        """The indices."""
        return self.op.operands if self.op.code in READS else self.op.operands[:-1]


class _Rows:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.look()

    def look(self) -> None:
        """Look up constants, who makes an index, and who uses what in the whole program."""
        self.constants: dict[Value, int] = {}
        self.makers: dict[Value, Op] = {}
        self.named: dict[str, set[Op]] = {}
        self.users: dict[Value, list[Op]] = {}
        for op in self.program.operations():
            for value in op.operands:
                self.users.setdefault(value, []).append(op)
            for inner in op.regions:
                for value in inner.yields:
                    self.users.setdefault(value, []).append(op)
            if op.code in (*READS, *WRITES):
                self.named.setdefault(op.attrs["name"], set()).add(op)
            if op.results and op.results[0].type == I32:
                self.makers[op.results[0]] = op
                if op.code == "const":
                    self.constants[op.result] = int(op.attrs["value"])

    def count(self, op: Op) -> int:
        """Return how many rows a loop has, 0 where it is none."""
        if op.code == "build":
            return op.attrs["count"]
        return self.constants.get(op.operands[0], 0) if op.code == "for" and not op.results else 0

    def accesses(
        self, region: Region, loops: dict[Value, int] | None = None, *, sure: bool = True
    ) -> Iterator[_Access]:
        """Yield the uses of variables in order."""
        around = loops or {}
        for op in region.ops:
            if op.code in (*READS, *WRITES):
                yield _Access(op, around, sure)
            count = self.constants.get(op.operands[0], 0) if op.code == "for" else 0
            count = op.attrs["count"] if op.code == "build" else count
            for inner in op.regions:
                within = around | dict.fromkeys(inner.args[:1], count)
                yield from self.accesses(inner, within, sure=sure and count > 0)

    # -- joining

    def join(self, region: Region) -> None:
        """Put a loop into the next one over as many rows, the last pair first."""
        for op in region.ops:
            for inner in op.regions:
                self.join(inner)
        for first in range(len(region.ops) - 1, -1, -1):
            loop = region.ops[first]
            if self.count(loop) < PARTS or not _crosses(loop):
                continue
            for second in range(first + 1, len(region.ops)):
                other = region.ops[second]
                if self.joins(loop, other):
                    region.ops[second] = _joined(loop, other)
                    del region.ops[first]
                    self.look()
                    break
                if not self.passes(loop, other):
                    break

    def passes(self, loop: Op, other: Op) -> bool:
        """Whether a loop can as well come after another operation."""
        if not _crosses(other) or any(self.uses(other, value) for value in loop.results):
            return False
        one, two = (self.touched(Region((), [op])) for op in (loop, other))
        return not any(one[name] or two[name] for name in one.keys() & two.keys())

    def touched(self, region: Region) -> dict[str, bool]:
        """Return the variables of a region, and whether it writes them."""
        found: dict[str, bool] = {}
        for access in self.accesses(region):
            found[access.name] = found.get(access.name, False) or access.op.code in WRITES
        return found

    def uses(self, op: Op, value: Value) -> bool:
        inside = {op, *(inner for region in op.regions for inner in walk(region))}
        return any(user in inside for user in self.users.get(value, ()))

    def joins(self, loop: Op, other: Op) -> bool:
        """Whether rows of one loop can follow rows of the other: each sees its own row alone."""
        if other.code != "for" or self.count(other) != self.count(loop) or not _crosses(other):
            return False
        row = other.regions[0].args[0]
        inside = set(walk(other.regions[0]))
        for value in loop.results:
            for user in self.users.get(value, ()):
                if user not in inside or user.code != "load" or user.operands[1] is not row:
                    return False
        one, two = (self.touched(op.regions[0]) for op in (loop, other))
        both = {name for name in one.keys() & two.keys() if one[name] or two[name]}
        return all(
            (self.aligned(loop, name) and self.aligned(other, name))
            or self.codes(loop, name) == self.codes(other, name) == {"accumulate"}
            for name in both
        )

    def codes(self, loop: Op, name: str) -> set[str]:
        """Return what a loop does with a variable."""
        return {a.op.code for a in self.accesses(loop.regions[0]) if a.name == name}

    def aligned(self, loop: Op, name: str) -> bool:
        """Whether each row uses its own element of a variable alone."""
        (row, *_) = loop.regions[0].args
        found = (a for a in self.accesses(loop.regions[0]) if a.name == name)
        return all(a.at and a.at[0] is row for a in found)

    # -- contraction

    def contract(self, region: Region) -> None:
        """Make a number of a vector of which each row uses its own element, and nobody another."""
        for op in region.ops:
            for inner in op.regions:
                self.contract(inner)
            if op.code != "for" or self.count(op) < PARTS:
                continue
            for name, found in self.by_name(op).items():
                type_ = self.program.variables[name]
                alone = {a.op for a in found} == self.named[name]
                if alone and self.aligned(op, name) and self.private(found, 1):
                    self.program.variables[name] = replace(type_, shape=type_.shape[1:])
                    for access in found:
                        given = access.op
                        given.operands = given.operands[1:]
                        if len(type_.shape) == 1:
                            new = {"loadvar": "get", "storevar": "set"}
                            given.code = new.get(given.code, given.code)

    def by_name(self, loop: Op) -> dict[str, list[_Access]]:
        found: dict[str, list[_Access]] = {}
        for access in self.accesses(loop.regions[0]):
            found.setdefault(access.name, []).append(access)
        return found

    def private(self, found: Sequence[_Access], outer: int = 0) -> bool:
        """Whether a row writes all of a variable before it reads some; `outer` indices are left
        out.
        """
        first, shape = found[0], self.program.variables[found[0].name].shape[outer:]
        at = first.at[outer:]
        sizes = (first.loops.get(index) for index in at)
        whole = first.op.code == "set" or (
            first.op.code == "storevar" and len(set(at)) == len(at) and tuple(sizes) == shape
        )
        return (
            whole
            and first.sure
            and all(a.at[outer:] == at or a.loops.keys().isdisjoint(at) for a in found)
        )

    # -- marking

    def mark(self, region: Region) -> None:
        """Tell the sums of loops over rows, and what rows have of their own."""
        for op in region.ops:
            if op.code == "for" and self.count(op) >= PARTS and self.independent(op):
                continue
            for inner in op.regions:
                self.mark(inner)

    def independent(self, loop: Op) -> bool:
        """Set the attributes of a loop whose rows add up something; tell whether it is one."""
        if not _crosses(loop):
            return False
        sums: list[str] = []
        own: list[tuple[str, int, int]] = []
        for name, found in self.by_name(loop).items():
            codes = {a.op.code for a in found}
            alone = {a.op for a in found} == self.named[name]
            if codes.isdisjoint(WRITES) or (alone and self.private(found)):
                continue
            if line := self.one_each(loop, found):
                own += () if alone else ((name, *line),)
            elif codes == {"accumulate"}:
                if self.program.variables[name].size > self.count(loop):
                    return False
                sums.append(name)
            else:
                return False
        if sums:
            loop.attrs |= {"sums": tuple(sums), "own": tuple(own)}
        return bool(sums)

    def one_each(self, loop: Op, found: Sequence[_Access]) -> tuple[int, int] | None:
        """Return a and b where all accesses of a row are at a * row + b."""
        row = loop.regions[0].args[0]
        lines = {self.line(a.at[0], row) if a.at else None for a in found}
        line = lines.pop()
        return None if lines or line is None or line[0] == 0 else line

    def line(self, index: Value, row: Value) -> tuple[int, int] | None:
        """Return a and b of an index that is a * row + b."""
        if index is row:
            return 1, 0
        if index in self.constants:
            return 0, self.constants[index]
        made = self.makers.get(index)
        if made is None or made.code not in ("add", "sub", "mul"):
            return None
        one, other = (self.line(value, row) for value in made.operands)
        if one is None or other is None:
            return None
        match made.code:
            case "add":
                return one[0] + other[0], one[1] + other[1]
            case "sub":
                return one[0] - other[0], one[1] - other[1]
            case _ if one[0] * other[0] == 0:
                return one[0] * other[1] + one[1] * other[0], one[1] * other[1]
            case _:
                return None


def _crosses(op: Op) -> bool:
    """Whether an operation touches nothing but its lane's variables."""
    return op.code in _CROSSED and all(
        inner.code in _CROSSED for region in op.regions for inner in walk(region)
    )


def _joined(loop: Op, other: Op) -> Op:
    """Return the loop whose rows do first what those of one loop do, then those of the other."""
    (first,), (second,) = loop.regions, other.regions
    row = Value(I32)
    known = {first.args[0]: row, second.args[0]: row}
    made = clone(Region((), first.ops, first.yields), known)
    made_of = dict(zip(loop.results, made.yields, strict=True))
    dropped: set[Op] = set()
    for op in walk(second):
        if op.code == "load" and (item := made_of.get(op.operands[0])) is not None:
            if item.type.shape:
                op.operands = (item, *op.operands[2:])
            else:
                known[op.result] = item
                dropped.add(op)
    rest = clone(Region((), second.ops), known, lambda op: op in dropped)
    body = Region((row,), [*made.ops, *rest.ops])
    return Op("for", other.operands, (), dict(other.attrs), (body,), other.place)
