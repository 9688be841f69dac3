"""Purpose: have a lane's arrays lie in its record, not in memory of a thread's own.

Before -> after::

    for 54 [%i]: storevar %i, read state_real[7 + %i] {z}     (nothing)
    %v = loadvar %i {z}                                       %v = read state_real[7 + %i]
    for 54 [%i]: write state_real[7 + %i], loadvar %i {z}     (nothing)

A launch that uses a few arrays of a record moves these alone, and none is zeroed at its start.

Requires: one thread a lane, `Program.places`. Ensures: the same values.
Declines: numbers, which are registers.
"""

from __future__ import annotations

from tawa.ppl.ir.core import I32, Builder, Op, Program, Region, Type, Value


def reside(program: Program) -> Program:
    """Return a program whose arrays with a place in buffers are these."""
    made = program.copy()
    arrays = {name for name in made.places if made.variables[name].shape}
    resident = _Resident(made, arrays)
    for region in (*made.procedures.values(), made.body):
        resident.region(region)
    made.variables = {n: type_ for n, type_ in made.variables.items() if n not in arrays}
    return made


class _Resident:
    def __init__(self, program: Program, arrays: set[str]) -> None:
        self.program, self.arrays = program, arrays
        self.b = Builder(program.dtype)

    def region(self, region: Region) -> None:
        ops, region.ops = region.ops, []
        with self.b.inside(region):
            for op in ops:
                for inner in op.regions:
                    self.region(inner)
                if op.attrs.get("name") in self.arrays and op.code not in ("read", "write"):
                    self.b.place = op.place
                    self.operation(op, self.program.variables[op.attrs["name"]])
                else:
                    region.ops.append(op)

    def operation(self, op: Op, type_: Type) -> None:
        b, name, given = self.b, op.attrs["name"], op.operands
        match op.code:
            case "loadvar":
                self.read(name, type_, *given)
            case "storevar":
                self.write(name, type_, *given)
            case "accumulate":
                *at, amount = given
                held = self.read(name, type_, *at)
                if type_.is_float:
                    total = b.make("add", held, amount)
                else:
                    total = b.make("select", b.compare("lt", held, amount), amount, held)
                self.write(name, type_, *at, total)
            case "get":
                b.build(type_.shape, lambda *at: self.read(name, type_, *at))
            case _:  # set
                b.each(type_.shape, lambda *at: self.write(name, type_, *at, b.load(given[0], *at)))
        if op.results:
            b.region.ops[-1].results = op.results

    def at(self, name: str, type_: Type, *at: Value) -> tuple[str, Value]:
        """Return the buffer of an element and its row."""
        buffer, row = self.program.places[name]
        return buffer, self.b.offset(type_.shape, self.b.const(row, I32), *at)

    def read(self, name: str, type_: Type, *at: Value) -> Value:
        buffer, row = self.at(name, type_, *at)
        stored = Type(self.program.buffers[buffer])
        held = self.b.op("read", (row,), (stored,), name=buffer).result
        return self.b.cast(held, Type(type_.kind))

    def write(self, name: str, type_: Type, *at_and_item: Value) -> None:
        *at, item = at_and_item
        buffer, row = self.at(name, type_, *at)
        item = self.b.cast(item, Type(self.program.buffers[buffer]))
        self.b.op("write", (row, item), name=buffer)
