"""Purpose: add up sums over rows in parts, side by side: in vectors of a CPU, on threads of a GPU.

Before -> after, for a CPU and for T threads of a GPU::

    for %n {sums=("s",)}    for %b in %n / 32 {          for %k in 32 / T { a thread's parts
      [0] %i: ...             for %p in 32 {               for %j in %n / 32 {
        accumulate %t {s}       %i = 32 %b + %p              %i = 32 %j + T %k + thread
                                ...                          ...
                                accumulate %p, %t {parts}    accumulate %t {part}
                            for %h in 16, 8, 4, 2, 1 {     accumulate part {sum}
                              for %p in %h { parts[%p]   for %h in T / 2, ..., 2, 1 {
                                += parts[%p + %h]          %o = shuffle_xor sum, %h
                            accumulate parts[0] {s}        accumulate %o {sum}
                                                         accumulate sum {s}

LLVM makes vectors of the inner loop of a CPU, as its rows depend on none of each other. On a GPU
all threads of a lane hold all its variables; what rows have of their own is given to the other
threads behind the loop. The parts that are one thread's are added by nested loops of two.

Requires: `passes/rows.py`. Ensures: the same values, of the same operations in the same order.
Declines: nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from tawa.ppl.ir.core import I32, Builder, Kind, Op, Program, Region, Type, Value, clone, walk
from tawa.ppl.ir.operations import NEUTRAL, PARTS


def in_blocks(program: Program) -> Program:
    """Return a program for a CPU."""
    made = program.copy()
    _Blocks(made).whole()
    return made


def on_threads(program: Program, threads: int) -> Program:
    """Return a program for lanes of so many threads, a power of two up to PARTS."""
    made = program.copy(threads)
    _Threads(made).whole()
    return made


def has_sums(program: Program) -> bool:
    """Whether threads of a lane have something to share."""
    return any("sums" in op.attrs for op in program.operations())


class _Parts:
    """Puts other loops in the place of those with sums."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.b = Builder(program.dtype)
        self.constants = {
            op.result: int(op.attrs["value"])
            for op in program.operations()
            if op.code == "const" and op.result.type == I32
        }

    def whole(self) -> None:
        """Rewrite all procedures."""
        for region in (*self.program.procedures.values(), self.program.body):
            self.region(region)

    def region(self, region: Region) -> None:
        """Rewrite a region."""
        ops, region.ops = region.ops, []
        with self.b.inside(region):
            for op in ops:
                if "sums" in op.attrs:
                    self.b.place = op.place
                    self.loop(op, self.constants[op.operands[0]])
                    continue
                for inner in op.regions:
                    self.region(inner)
                region.ops.append(op)

    def loop(self, op: Op, count: int) -> None:
        raise NotImplementedError

    def number(self, value: int) -> Value:
        """Append a whole number."""
        return self.b.const(value, I32)

    def repeat(self, count: Value, body: Callable[[Value], None]) -> None:
        """Append a loop."""
        with self.b.inside(Region((Value(I32),))) as made:
            body(made.args[0])
        self.b.op("for", (count,), (), (made,))

    def variables(self, op: Op, *more: int) -> dict[str, str]:
        """Declare a variable for each sum, with a further axis or none."""
        made: dict[str, str] = {}
        for name in op.attrs["sums"]:
            type_ = self.program.variables[name]
            made[name] = f"part{len(self.program.variables)}"
            self.program.variables[made[name]] = Type(type_.kind, (*type_.shape, *more))
        return made

    def elements(self, held: dict[str, str], body: Callable[..., None]) -> None:
        """Append loops over each sum's elements: `body` gets what is held of it, indices."""
        for name, other in held.items():
            type_ = self.program.variables[name]

            def item(*at: Value, n: str = other, k: Kind = type_.kind) -> None:
                body(n, k, *at)

            self.b.each(type_.shape, item)

    def fill(self, held: dict[str, str], *part: Value) -> None:
        """Append what makes sums, or a part of them, of nothing."""

        def store(name: str, kind: Kind, *at: Value) -> None:
            self.b.storevar(name, *at, *part, self.b.const(NEUTRAL[kind], Type(kind)))

        self.elements(held, store)

    def gather(self, held: dict[str, str], totals: dict[str, str], *part: Value) -> None:
        """Append the addition of sums, or a part of them, to totals."""
        to = dict(zip(held.values(), totals.values(), strict=True))

        def add(name: str, kind: Kind, *at: Value) -> None:
            self.b.accumulate(to[name], *at, self.b.loadvar(name, kind, *at, *part))

        self.elements(held, add)

    def row(self, op: Op, row: Value, parts: dict[str, str], *part: Value) -> None:
        """Append what a row does, with its sums to a part."""
        made = clone(Region((), op.regions[0].ops), {op.regions[0].args[0]: row})
        for inner in walk(made):
            if inner.code == "accumulate" and (name := parts.get(inner.attrs["name"])):
                *at, amount = inner.operands
                inner.operands, inner.attrs["name"] = (*at, *part, amount), name
        self.b.region.ops += made.ops


class _Blocks(_Parts):
    def loop(self, op: Op, count: int) -> None:
        """Append a loop over blocks of rows, and the sum of the parts."""
        b = self.b
        parts = self.variables(op, PARTS)
        # Parts are the outer loops: LLVM makes vectors of these once it has unrolled the others.
        self.repeat(self.number(PARTS), lambda part: self.fill(parts, part))

        def block(number: Value) -> None:
            first = b.make("mul", number, self.number(PARTS))
            left, size = b.make("sub", self.number(count), first), self.number(PARTS)
            many = b.make("select", b.compare("lt", left, size), left, size, type=I32)
            with b.inside(Region((Value(I32),))) as made:
                (part,) = made.args
                self.row(op, b.make("add", first, part), parts, part)
            b.op("for", (many,), (), (made,))

        b.each((-(-count // PARTS),), block)
        half = PARTS // 2
        while half:

            def join(part: Value, half: int = half) -> None:
                other = b.make("add", part, self.number(half))

                def add(name: str, kind: Kind, *at: Value) -> None:
                    b.accumulate(name, *at, part, b.loadvar(name, kind, *at, other))

                self.elements(parts, add)

            b.each((half,), join)
            half //= 2
        self.gather(parts, {name: name for name in parts}, self.number(0))


class _Threads(_Parts):
    def loop(self, op: Op, count: int) -> None:
        """Append the rows of a thread, and exchange sums and what rows have of their own."""
        b, threads = self.b, self.program.threads
        thread = b.make("thread", type=I32) if threads > 1 else self.number(0)
        totals = self.part(op, count, thread, threads)
        half = threads // 2
        while half:

            def add(name: str, kind: Kind, *at: Value, half: int = half) -> None:
                held = b.loadvar(name, kind, *at)
                b.accumulate(name, *at, b.make("shuffle_xor", held, mask=half))

            self.elements(totals, add)
            half //= 2
        self.gather(totals, {name: name for name in totals})
        if threads > 1 and op.attrs["own"]:
            self.share(op, count)

    def part(self, op: Op, count: int, first: Value, apart: int) -> dict[str, str]:
        """Append the sum of the parts that lie so far `apart`, from a first one on."""
        b = self.b
        totals = self.variables(op)
        self.fill(totals)
        if apart == PARTS:
            behind = b.make("sub", self.number(count + PARTS - 1), first)

            def row(number: Value) -> None:
                place = b.make("add", b.make("mul", number, self.number(PARTS)), first)
                self.row(op, place, totals)

            self.repeat(b.make("lshr", behind, self.number(PARTS.bit_length() - 1)), row)
            return totals

        def half(number: Value) -> None:
            begin = b.make("add", first, b.make("mul", number, self.number(apart)))
            self.gather(self.part(op, count, begin, 2 * apart), totals)

        self.repeat(self.number(2), half)
        return totals

    def share(self, op: Op, count: int) -> None:
        """Append what gives each thread the elements of the others' rows."""
        b = self.b

        def give(row: Value) -> None:
            owner = b.make("and", row, self.number(self.program.threads - 1))
            for name, scale, offset in op.attrs["own"]:
                type_ = self.program.variables[name]
                place = b.make("mul", row, self.number(scale))
                place = b.make("add", place, self.number(offset))

                def item(*at: Value, n: str = name, k: Kind = type_.kind, p: Value = place) -> None:
                    held = b.make("shuffle", b.loadvar(n, k, p, *at), owner)
                    b.storevar(n, p, *at, held)

                b.each(type_.shape[1:], item)

        self.repeat(self.number(count), give)
