"""Purpose: make a machine of a model: blocks, a program counter, an explicit stack.

Before -> after::

    %a = call f(%x)                     case 3:  push what lives after; push 4; f.0 = x; pc = 0
    %b = call f(%y)                     case 4:  a = result; pop; push; push 5; f.0 = y; pc = 0
    yield add(%a, %b)                   case 5:  b = result; pop; result = a + b; pc = pop

A `suspend` ends a case in the same way, with `going` false: the lane's variables are then all that
the rest of the model needs. That record is the delimited continuation; copying it and going on
twice is resuming it twice.

Requires: effects handled, but for `suspend`. Ensures: no `call` is left; `resume` goes on from
`pc`.
Declines: nothing. What has neither a call nor a suspension inside stays as it is, in one case.

Length: one machine, from blocks to cases.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tawa.ppl.ir.core import (
    BOOL,
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
from tawa.ppl.ir.operations import FAULTS, STACK

CUTS = ("call", "suspend")


def needs_cut(program: Program, region: Region) -> bool:
    """Whether a region calls a recursive function or suspends, also in a procedure that it runs."""
    return any(
        op.code in CUTS
        or (op.code == "run" and needs_cut(program, program.procedures[op.attrs["name"]]))
        for op in walk(region)
    )


@dataclass(eq=False, slots=True)
class _Block:
    """Straight code, and how it ends: at most one of `call`, `test`, `suspend`, else a jump."""

    number: int
    ops: list[Op] = field(default_factory=lambda: [])
    moves: list[tuple[Value, Value]] = field(default_factory=lambda: [])
    cut: Op | None = None
    test: Value | None = None
    after: tuple[_Block, ...] = ()
    returns: tuple[Value, ...] | None = None
    called: Op | None = None
    """The call that ended the block before this one."""

    @property
    def takes(self) -> tuple[Value, ...]:
        """The results of that call."""
        return self.called.results if self.called else ()


@dataclass(eq=False, slots=True)
class _Part:
    """A function's blocks, its entry first."""

    name: str
    args: tuple[Value, ...]
    yields: tuple[Value, ...]
    blocks: list[_Block] = field(default_factory=lambda: [])


def cut(program: Program, stack: int) -> None:
    """Make the body the procedure `resume`; the new body starts it and runs it to its first stop.

    The body becomes `start`: it sets the variables of a fresh run. `stack` is the size of the
    stack in words.
    """
    _Cutter(program, stack).run()


class _Cutter:
    def __init__(self, program: Program, stack: int) -> None:
        self.program = program
        self.b = Builder(program.dtype)
        self.stack = stack
        self.blocks: list[_Block] = []
        self.part = _Part("", (), ())
        self.home: dict[Value, str] = {}
        self.local: dict[Value, Value] = {}

    def run(self) -> None:
        body = self.program.body
        parts: dict[str, _Part] = {}
        main = self.flatten("", body)
        for function in self.program.functions.values():
            parts[function.name] = self.flatten(function.name, function.body)
        for part in (main, *parts.values()):
            self.assign_homes(part)
        cases = tuple(
            self.emit(block, part, parts)
            for part in (main, *parts.values())
            for block in part.blocks
        )
        declared = self.program.variables
        declared |= {"pc": I32, "sp": I32, "depth": I32, "going": BOOL, "kind": I32}
        declared.setdefault("fault", I32)
        if parts:
            declared[STACK] = Type(self.b.word.kind, (self.stack,))
        head, loop, resume = Region(), Region(), Region()
        with self.b.inside(head):
            head.yields = (self.b.get("going", BOOL),)
        with self.b.inside(loop):
            self.b.op("switch", (self.b.get("pc", I32),), (), cases)
        with self.b.inside(resume):
            self.b.set("going", self.b.const(True, BOOL))
            self.b.op("while", (), (), (head, loop))
        start = Region()
        with self.b.inside(start):
            for name in ("pc", "sp", "depth", "kind"):
                self.b.set(name, self.b.const(0, I32))
        self.program.functions = {}
        self.program.procedures |= {"start": start, "resume": resume}
        self.program.body = Region()

    # -- to blocks

    def block(self) -> _Block:
        made = _Block(len(self.blocks))
        self.blocks.append(made)
        self.part.blocks.append(made)
        return made

    def flatten(self, name: str, region: Region) -> _Part:
        self.part = _Part(name, region.args, region.yields)
        end = self.ops(region.ops, self.block())
        end.returns = region.yields
        return self.part

    def ops(self, ops: list[Op], now: _Block) -> _Block:
        for op in ops:
            if op.code in CUTS:
                now.cut = op
                after = self.block()
                after.called = op if op.code == "call" else None
                now.after = (after,)
                now = after
            elif op.code == "run" and needs_cut(self.program, Region((), [op])):
                now = self.ops(clone(self.program.procedures[op.attrs["name"]], {}).ops, now)
            elif any(needs_cut(self.program, inner) for inner in op.regions):
                now = self.structured(op, now)
            else:
                now.ops.append(op)
        return now

    def structured(self, op: Op, now: _Block) -> _Block:
        match op.code:
            case "if":
                branches = [self.block(), self.block()]
                now.test, now.after = op.operands[0], tuple(branches)
                ends = [self.ops(r.ops, k) for r, k in zip(op.regions, branches, strict=True)]
                after = self.block()
                for end, inner in zip(ends, op.regions, strict=True):
                    end.moves = list(zip(op.results, inner.yields, strict=True))
                    end.after = (after,)
                return after
            case "for":  # a while whose first value is the index
                (inner,) = op.regions
                count, *starts = op.operands
                head, body = Region(tuple(Value(v.type) for v in inner.args)), Region(inner.args)
                with self.b.inside(Region(ops=now.ops)):
                    zero = self.b.const(0, I32)
                with self.b.inside(head):
                    head.yields = (self.b.compare("lt", head.args[0], count),)
                body.ops = [*inner.ops]
                with self.b.inside(body):
                    after = self.b.make("add", inner.args[0], self.b.const(1, I32))
                body.yields = (after, *inner.yields)
                results = (Value(I32), *op.results)
                made = Op("while", (zero, *starts), results, {}, (head, body))
                return self.structured(made, now)
            case "while":
                head, body, after = self.block(), self.block(), self.block()
                now.moves = list(zip(op.regions[0].args, op.operands, strict=True))
                now.after = (head,)
                test = self.ops(op.regions[0].ops, head)
                test.test, test.after = op.regions[0].yields[0], (body, after)
                for inner, held in zip(op.regions[1].args, op.regions[0].args, strict=True):
                    self.local[inner] = held
                end = self.ops(op.regions[1].ops, body)
                end.moves = list(zip(op.regions[0].args, op.regions[1].yields, strict=True))
                end.after = (head,)
                for result, held in zip(op.results, op.regions[0].args, strict=True):
                    self.local[result] = held
                return after
            case _:  # build: its results are memory, stored into iteration by iteration
                inner = op.regions[0]
                count = Op("const", (), (Value(I32),), {"value": op.attrs["count"]})
                now.ops.append(count)
                for result in op.results:
                    self.memory(result)
                stores = [
                    Op("store_row", (inner.args[0], value, result))
                    for value, result in zip(inner.yields, op.results, strict=True)
                ]
                body = Region(inner.args, [*inner.ops, *stores], ())
                return self.structured(Op("for", (count.result,), (), {}, (body,)), now)

    # -- homes of values

    def name(self, value: Value) -> Value:
        """Return the value that another one is a name of."""
        while value in self.local:
            value = self.local[value]
        return value

    def memory(self, value: Value) -> str:
        if value not in self.home:
            self.home[value] = f"r{len(self.home)}"
            self.program.variables[self.home[value]] = value.type
        return self.home[value]

    @staticmethod
    def result(part: _Part, number: int) -> str:
        return f"{part.name}.{number}"

    def uses(self, block: _Block) -> list[Value]:
        """Return what a block uses and does not define, in order."""
        region = Region((), block.ops, ())
        used = free_values(region)
        defined = {result for op in block.ops for result in op.results}
        others = [source for _, source in block.moves]
        others += list(block.returns or ())
        others += list(block.cut.operands) if block.cut else []
        others += [block.test] if block.test is not None else []
        used += [value for value in others if value not in defined]
        named = dict.fromkeys(self.name(value) for value in used)
        return [value for value in named if value not in self.program.params]

    def assign_homes(self, part: _Part) -> None:
        """Give memory to what one block defines and another uses, and to what moves define."""
        for value in part.args:
            self.memory(value)
        for number, value in enumerate(part.yields if part.name else ()):
            self.program.variables[self.result(part, number)] = value.type
        for block in part.blocks:
            for target, _ in block.moves:
                self.memory(self.name(target))
            for value in (*block.takes, *self.uses(block)):
                self.memory(self.name(value))

    def live(self, part: _Part) -> dict[_Block, set[Value]]:
        """Return what is live at the start of each block."""
        live: dict[_Block, set[Value]] = {block: set() for block in part.blocks}
        changed = True
        while changed:
            changed = False
            for block in reversed(part.blocks):
                out: set[Value] = set()
                for after in block.after:
                    out |= live[after]
                out -= {self.name(target) for target, _ in block.moves}
                defined = {self.name(r) for op in block.ops for r in op.results}
                now = (out - defined) | set(self.uses(block))
                now -= set(block.takes)
                # A vector that is stored into row by row is live from its first row on.
                if now != live[block]:
                    live[block], changed = now, True
        return live

    # -- to cases

    def emit(self, block: _Block, part: _Part, parts: dict[str, _Part]) -> Region:
        region = Region()
        with self.b.inside(region):
            self.values: dict[Value, Value] = {}
            if block.called is not None:
                self.returned(block, part, parts[block.called.attrs["name"]])
            for op in block.ops:
                self.operation(op)
            self.end(block, part, parts)
        return region

    def operation(self, op: Op) -> None:
        if op.code == "store_row":
            self.store_row(op)
            return
        if op.code == "load" and self.name(op.operands[0]) in self.home:
            held = self.name(op.operands[0])
            if held not in self.values:
                at = tuple(self.read(value) for value in op.operands[1:])
                loaded = self.b.op("loadvar", at, (op.result.type,), name=self.home[held])
                self.define(op.result, loaded.result)
                return
        op.operands = tuple(self.read(value) for value in op.operands)
        self.inner(op)
        self.b.region.ops.append(op)
        for result in op.results:
            self.define(result, result)

    def inner(self, op: Op) -> None:
        """Read what nested regions use before the operation."""
        for region in op.regions:
            renamed = {value: self.read(value) for value in free_values(region)}
            _rename(region, renamed)

    def store_row(self, op: Op) -> None:
        index, row, target = op.operands
        name = self.memory(target)
        at, value = self.read(index), self.read(row)

        def store(*place: Value) -> None:
            self.b.op("storevar", (at, *place, self.b.load(value, *place)), name=name)

        self.b.each(row.type.shape, store)

    def read(self, value: Value) -> Value:
        value = self.name(value)
        if value in self.values:
            return self.values[value]
        if value not in self.home:
            return value
        self.values[value] = self.b.get(self.home[value], value.type)
        return self.values[value]

    def define(self, value: Value, now: Value) -> None:
        self.values[value] = now
        if value in self.home:
            self.b.set(self.home[value], now)

    def end(self, block: _Block, part: _Part, parts: dict[str, _Part]) -> None:
        sources = [(self.name(target), self.read(source)) for target, source in block.moves]
        for target, value in sources:
            self.b.set(self.home[target], value)
        if block.returns is not None:
            self.returns(block.returns, part)
        elif block.cut is not None and block.cut.code == "call":
            self.calls(block, part, parts[block.cut.attrs["name"]])
        elif block.cut is not None:
            self.jump(block.after[0])
            self.stop(block.cut.attrs["kind"])
        elif block.test is not None:
            test = self.read(block.test)
            yes, no = (self.b.const(after.number, I32) for after in block.after)
            self.b.set("pc", self.b.make("select", test, yes, no, type=I32))
        else:
            self.jump(block.after[0])

    def jump(self, block: _Block) -> None:
        self.b.set("pc", self.b.const(block.number, I32))

    def stop(self, kind: int) -> None:
        self.b.set("kind", self.b.const(kind, I32))
        self.b.set("going", self.b.const(False, BOOL))

    def returns(self, values: tuple[Value, ...], part: _Part) -> None:
        if not part.name:
            self.stop(DONE)
            return
        for number, value in enumerate([self.read(v) for v in values]):
            self.b.set(self.result(part, number), value)
        self.b.set("depth", self.b.make("sub", self.b.get("depth", I32), self.b.const(1, I32)))
        self.b.set("pc", self.pop(I32))

    # -- the stack

    def saved(self, block: _Block, part: _Part) -> list[Value]:
        live = self.live(part)[block.after[0]]
        return [value for value in self.home if value in live]

    def calls(self, block: _Block, part: _Part, callee: _Part) -> None:
        assert block.cut is not None
        saved = self.saved(block, part)
        words = 1 + sum(value.type.size for value in saved)
        sp = self.b.get("sp", I32)
        top = self.b.make("add", sp, self.b.const(words, I32))
        fits = self.b.compare("le", top, self.b.const(self.stack, I32))
        args = [self.read(value) for value in block.cut.operands]
        good, bad = Region(), Region()
        with self.b.inside(good):
            for value in saved:
                self.push(self.b.get(self.home[value], value.type))
            self.push(self.b.const(block.after[0].number, I32))
            for target, value in zip(callee.args, args, strict=True):
                self.b.set(self.memory(target), value)
            depth = self.b.make("add", self.b.get("depth", I32), self.b.const(1, I32))
            self.b.set("depth", depth)
            self.jump(callee.blocks[0])
        with self.b.inside(bad):
            self.b.set("fault", self.b.const(FAULTS.index("stack"), I32))
            self.stop(DONE)
        self.b.op("if", (fits,), (), (good, bad))

    def returned(self, block: _Block, part: _Part, callee: _Part) -> None:
        results = [
            self.b.get(self.result(callee, number), value.type)
            for number, value in enumerate(callee.yields)
        ]
        before = next(k for k in part.blocks if k.after and k.after[0] is block and k.cut)
        for value in reversed(self.saved(before, part)):
            self.b.set(self.home[value], self.pop(value.type))
        for taken, result in zip(block.takes, results, strict=True):
            self.define(taken, result)

    def push(self, value: Value) -> None:
        sp = self.b.get("sp", I32)
        self.b.put(STACK, sp, value)
        self.b.set("sp", self.b.make("add", sp, self.b.const(value.type.size, I32)))

    def pop(self, type_: Type) -> Value:
        sp = self.b.make("sub", self.b.get("sp", I32), self.b.const(type_.size, I32))
        self.b.set("sp", sp)
        return self.b.taken(STACK, sp, type_)


DONE = 1


def _rename(region: Region, names: dict[Value, Value]) -> None:
    for op in region.ops:
        op.operands = tuple(names.get(value, value) for value in op.operands)
        for inner in op.regions:
            _rename(inner, names)
    region.yields = tuple(names.get(value, value) for value in region.yields)
