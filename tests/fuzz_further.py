"""Random kernels of products, with more still: see `fuzz_products` and `fuzz_wider` for the rest.

Quotients of negative numbers, loops that count down, counters of 8 and 16 bits, words of memory of
every type (volatile and masked ones too), 64-bit offsets, rows gathered and scattered by
descriptors, scans of operands, accumulators chosen and exchanged, `while` loops over data, branches
on constants, helpers with several returns, tiles taken by tickets and by hand-written loops,
returns after the loops, a second result in another layout.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from random import Random

from fuzz_case import WORDS, Array, headed, indented
from fuzz_products import PROGRAMS, Scope
from fuzz_wider import WiderWriter

NARROW = ("int8", "uint8", "int16", "uint16", "uint32", "int64")
LARGEST = 1 << 17  # elements of all results, times iterations along K: what a second may simulate
FLAT = 128 * 64  # elements of a second result, at most


class FurtherWriter(WiderWriter):
    """Writes one kernel; every choice is drawn."""

    def __init__(self, random: Random) -> None:
        while True:
            super().__init__(random)
            if self.m * self.n * prod(self.grid) * (self.iterations + 1) <= LARGEST:
                break
        self.known: dict[str, int] = {}  # constants of the kernel's own
        self.across = self.grid[1]  # blocks of columns
        if self.walks and self.pick(True, False):
            self.across = self.pick(2, 3)
            self.columns += (self.across - 1) * self.n
            self.grid = (self.grid[0], self.across, self.grid[2])

    def kinds(self, scope: Scope) -> list[str]:
        more = ["signed", "signed", "gathered", "running", "kept", "kept", "word", "word", "long"]
        more += ["helped"]
        if scope.depth < 3:
            more += ["backwards", "backwards", "narrow", "until", "decided"]
        return super().kinds(scope) + more

    def inside(self, along: str) -> str:
        return f"({along} >= 0) & ({along} < K)"

    # --- scalars ----------------------------------------------------------------------------------

    def number(self, scope: Scope) -> str:
        """A number of the program or of an iteration, none negative and none above 7."""
        return self.pick("tl.program_id(0)", "tl.program_id(1)", *scope.counters, *scope.counters)

    def divisor(self) -> str:
        found = self.pick("2", "3", "-2", "-3", "4", "D")
        if found == "D":
            self.argument("D", self.pick(-3, -2, 2, 3))
        return found

    def signed(self, scope: Scope) -> list[str]:
        """An offset from the quotient or the remainder of numbers of either sign."""
        name, by = self.fresh("o"), self.divisor()
        value = f"({self.number(scope)} * {self.pick(1, 3, -5)} - {self.pick(1, 3, 5)})"
        how = self.pick("{0} // {1}", "{0} % {1}", "({0} // {1}) % {1}", "-({0} % {1})",
                        "{0} // {1} * {1}", "tl.cdiv({0}, 2)", "{0} >> 1")  # fmt: skip
        # TMA takes boxes that begin at multiples of 16 bytes.
        scope.offsets.append(f"{name} * {self.pick('BK', 'BK', self.unit)}")
        scope.counters.append(f"({name} & 3)")
        return [f"{name} = {how.format(value, by)}"]

    def word(self, scope: Scope) -> list[str]:
        """A number from memory, of any type: volatile, or only where a condition holds."""
        kind, name = self.pick("i8", "u8", "i16", "u16", "i32", "u32", "i64"), self.fresh("w")
        words = self.argument(f"words_{kind}_ptr", Array((PROGRAMS,), kind, (), 0, 3))
        at = self.number(scope)
        more = self.pick("", ", volatile=True", ", volatile=True",
                         f", mask={at} > 0, other={self.pick(0, 1, 3)}",
                         f", mask={at} % 2 == 0, other={self.number(scope)}")  # fmt: skip
        text = f"tl.load({words} + {at}{more})"
        # Numbers with and without sign do not divide one another, and offsets have 32 bits.
        if kind in ("u32", "i64") or (kind != "i32" and self.pick(True, False)):
            text += ".to(tl.int32)"
        scope.offsets.append(f"{name} * BK")
        scope.counters.append(name if kind[0] == "i" else f"{name}.to(tl.int32)")
        return [f"{name} = {text}"]

    def long(self, scope: Scope) -> list[str]:
        """An offset of 64 bits."""
        name, at = self.fresh("z"), self.number(scope)
        if self.pick(True, False):
            text = f"({self.argument('BIG', 1 << 33)} + {at} - 1) % BIG"
            text = self.pick(text, f"(BIG - {at}) // BIG", f"(1 - BIG * {at}) // BIG")
        else:
            text = f"{at}.to(tl.int64) - 1" if at.isidentifier() else f"tl.cast({at}, tl.int64) - 1"
        scope.offsets.append(f"({name} * BK).to(tl.int32)")  # a block's offsets have 32 bits
        return [f"{name} = {text}"]

    # --- tiles ------------------------------------------------------------------------------------

    def rows_of(self, stem: str, first: str, extent: int, over: str) -> tuple[list[str], str]:
        """Numbers of rows, of which a few are none of an array's."""
        picks = self.argument(f"{stem}_picks", Array((extent,), "i32", (), -2, extent + 1))
        lane, rows = self.fresh("i"), self.fresh("r")
        lines = [
            f"{lane} = {first} + tl.arange(0, {over})",
            f"{rows} = tl.load({picks} + {lane}, mask={lane} < {extent}, other=-1)",
        ]
        return lines, rows

    def gathered(self, scope: Scope) -> list[str]:
        """Rows of an operand, gathered by a descriptor; it may be made in the kernel."""
        kind = self.pick("mk", "kn")
        stem, first, extent, over = self.sides(kind)
        lines, rows = self.rows_of(stem, first, extent, over)
        name = self.fresh("a" if kind == "mk" else "b")
        scope.tiles[kind].append(name)
        if self.pick(True, True, False):
            shape = (extent, self.wide(self.deep))
            desc = self.argument(f"{stem}r_desc", Array(shape, self.dtype, (1, self.k)))
        else:
            desc = f"{stem}rm_desc"
            line = f"{desc} = tl.make_tensor_descriptor({self.base(stem, extent)}, "
            line += f"shape=[{extent}, K], strides=[stride, 1], block_shape=[1, BK])"
            self.tops += [line] if line not in self.tops else []
        turned = "" if kind == "mk" else ".T"
        return [*lines, f"{name} = {desc}.gather({rows}, {self.pick(*scope.offsets)}){turned}"]

    def running(self, scope: Scope) -> list[str]:
        """The running sums of an operand along either dimension, reduced along the other or it."""
        kind = self.pick("mk", "kn")
        if not scope.tiles[kind]:
            return self.load(scope, kind)
        x, acc = f"{self.pick(*scope.tiles[kind])}.to({WORDS[self.sums]})", self.pick(*self.accs)
        scan = self.pick(f"tl.cumsum({x}, 0)", f"tl.cumsum({x}, 1)",
                         f"tl.cumsum({x}, 1, reverse=True)",
                         f"tl.associative_scan({x}, 0, lib.larger)")  # fmt: skip
        how, index = self.pick("sum", "max", "min"), "[:, None]" if kind == "mk" else "[None, :]"
        text = f"tl.{how}({scan}, {1 if kind == 'mk' else 0})"
        if self.pick(True, False):
            text = f"tl.cumsum({text}, 0)"
        return [f"{acc} += {self.clamp(text)}{index}"]

    # --- accumulators -----------------------------------------------------------------------------

    def kept(self, scope: Scope) -> list[str]:
        """An accumulator that stays, changes or changes places, as a condition says."""
        acc, other = self.pick(*self.accs), self.pick(*self.accs)
        self.argument("flag", self.pick(0, 1))
        number = self.number(scope)
        test = self.pick("flag > 0", f"{number} > 0", f"({number} - 2) % 2 == -1")
        lanes = f"(tl.arange(0, BM) - {self.pick(8, 40, 'row')})"
        chosen = f"({lanes} {self.pick('//', '%')} {self.divisor()} {self.pick('>=', '==')} 0)"
        match self.pick("where", "rows", "exchange", "one", "less"):
            case "where":
                value = self.pick("0", f"{acc} - 1", other)
                return [f"{acc} = tl.where({test}, {acc}, {value})"]
            case "rows":
                return [f"{acc} = tl.where({chosen}[:, None], {acc}, {self.clamp(other)})"]
            case "exchange" if acc != other:
                return [f"{acc}, {other} = {other}, {acc}"]
            case "one":
                return [f"{acc} = {acc} if {test} else {self.clamp(other)}"]
            case _:
                return [f"{acc} = tl.where({chosen}[:, None] & ({test}), {acc}, 0)"]

    def helped(self, scope: Scope) -> list[str]:
        """A helper that returns early, or by a constant."""
        acc, name = self.pick(*self.accs), self.fresh("h")
        if self.pick(True, False):
            return [f"{acc} = lib.by_mode({acc}, {self.low}, {self.high}, {self.pick(0, 1, 2)})"]
        scope.offsets.append(f"{name} * BK")
        call = f"lib.bounded({acc}, {self.low}, {self.high}, {self.number(scope)})"
        return [f"{acc}, {name} = {call}"]

    # --- control ----------------------------------------------------------------------------------

    def backwards(self, scope: Scope) -> list[str]:
        """A loop that counts down."""
        inner, index = scope.inner(1), self.fresh("d")
        match self.pick("K", "K", "two", "below", "constant", "unrolled"):
            case "K":
                self.argument("K", self.deep)
                bounds = f"K - BK, {self.pick('-BK', '-1', '0')}, -BK"
                inner.offsets.append(index)
                inner.counters.append(f"(K - 1 - {index}) // BK")
            case "two":
                iterations = self.argument(f"T{scope.depth}", self.pick(0, 1, 2))
                bounds = f"{iterations} + {self.pick(0, 3)}, -1, -2"
                inner.offsets.append(f"{index} * BK")
                inner.counters.append(index)
            case "below":
                bounds = f"2, {self.pick(-5, -2)}, -2"
                inner.offsets.append(f"{index} * BK")
                inner.counters.append(f"({index} + 4)")
            case "constant":
                self.known["STEP"] = self.known.get("STEP", self.pick(-1, -3))
                bounds = f"{self.pick(2, 4)}, -3, STEP"
                inner.offsets.append(f"{index} * BK")
                inner.counters.append(f"({index} + 2)")
            case _:
                inner.offsets.append(f"{index} * BK")
                inner.depth = 3  # not many copies
                body = indented(self.block(inner))
                return [f"for {index} in tl.static_range({self.pick(1, 2)}, -2, -2):", *body]
        stages = self.pick("", "", *(f", num_stages={n}" for n in (1, 2, 3, 4)))
        head = f"tl.range({bounds}{stages})" if stages else f"range({bounds})"
        return [f"for {index} in {head}:", *indented(self.block(inner))]

    def narrow(self, scope: Scope) -> list[str]:
        """A counter of a narrow type that a loop carries; it may wrap."""
        inner, index, count = scope.inner(1), self.fresh("j"), self.fresh("c")
        kind = self.pick(*NARROW)
        lines = [f"{count} = tl.cast({self.number(scope)} - {self.pick(0, 1)}, tl.{kind})"]
        by = self.divisor()
        by = "3" if kind.startswith("u") else by
        inner.offsets.append(f"({count} % {by}).to(tl.int32) * BK")
        inner.offsets.append(f"({count} // 50).to(tl.int32) * BK")
        inner.counters.append(f"({count} & 3).to(tl.int32)")
        step = self.pick(1, 77, 100)
        move = self.pick(f"{count} += {step}", f"{count} = ({count} + {step}).to(tl.{kind})")
        last = self.pick("3", "tl.program_id(0) + 1", f"({count} & 3)")
        head = f"for {index} in range(0, {last}):"
        return [*lines, head, *indented([*self.block(inner), move])]

    def until(self, scope: Scope) -> list[str]:
        """A `while` loop that ends by data, by halves, or below zero."""
        inner, index = scope.inner(1), self.fresh("w")
        inner.offsets.append(f"{index} * BK")
        start, move, test = "0", f"{index} += 1", f"{index} < 3"
        match self.pick("data", "halves", "below", "sums", "both"):
            case "data":
                more = self.pick("", ", volatile=True")
                word = f"tl.load({self.counts()} + {index}{more})"
                test = f"({index} < 4) & ({word} {self.pick('< 3', '> 0')})"
            case "halves":
                start = self.argument("T8", self.pick(0, 1, 5, 6))
                test, move = f"{index} > 0", f"{index} = {index} {self.pick('// 2', '>> 1', '- 2')}"
            case "below":
                start, test, move = self.pick("1", "2"), f"{index} > -3", f"{index} -= 2"
            case "sums":
                test = f"({index} < 3) & (tl.max({self.pick(*self.accs)}) < {self.pick(2, 9)})"
            case _:
                self.argument("flag", self.pick(0, 1))
                test = f"{index} < 3 and {self.number(scope)} < flag + 1"
        if start == "0":
            inner.counters.append(index)
        return [
            f"{index} = {start}",
            f"while {test}:",
            *indented([*self.block(inner), move]),
        ]

    def decided(self, scope: Scope) -> list[str]:
        """A branch on constants, or on a constant and a number."""
        self.known["WIDE"] = self.known.get("WIDE", self.pick(0, 1))
        test = self.pick("WIDE", "not WIDE", "BM > 64", "BN == BK", "WIDE == 1 and BM >= BN")
        if self.pick(True, False):
            self.argument("flag", self.pick(0, 1))
            test = f"{test} {self.pick('and', 'or')} {self.pick('flag > 0', self.number(scope))}"
        lines = [f"if {test}:", *indented(self.block(scope.inner()))]
        if self.pick(True, False):
            lines += ["else:", *indented(self.block(scope.inner()))]
        return lines

    # --- results ----------------------------------------------------------------------------------

    def leave(self) -> list[str]:
        """Some programs end here."""
        self.counts()
        self.argument("flag", self.pick(0, 1))
        test = self.pick(
            "tl.load(counts_ptr + tl.program_id(0), volatile=True) > 1",
            "tl.load(counts_ptr + tl.program_id(1)) == 0",
            "flag > 0 and tl.program_id(0) == 1",
            f"row >= {self.rows - self.m}",
            f"tl.max({self.accs[0]}) > 3",
        )
        return [f"if {test}:", "    return"]

    def second(self) -> list[str]:
        """An accumulator once more, in another order of its elements."""
        x, part = self.accs[-1], f"(tl.program_id(2) * {self.bands} + row // BM) * {self.across}"
        size, kind = self.m * self.n, self.sums
        ways = ["turned"] + (["flat", "joined", "halves", "apart"] if size <= FLAT else [])
        way = self.pick(*ways)
        count = 2 * size if way in ("joined", "halves") else size
        total = self.grid[2] * self.bands * self.across * count
        out = self.argument("second_ptr", Array((total,), kind, (), 0, 0))
        lines = [f"part = {out} + ({part} + col // BN) * {count}"]
        i, j = "tl.arange(0, BM)", "tl.arange(0, BN)"
        match way:
            case "turned":
                place = f"part + {j}[:, None] * BM + {i}[None, :]"
                return [*lines, f"tl.store({place}, tl.trans({x}))"]
            case "flat":
                return [*lines, f"tl.store(part + tl.arange(0, {size}), tl.reshape({x}, {size}))"]
            case "joined":
                place = f"part + ({i}[:, None, None] * BN + {j}[None, :, None]) * 2"
                value = f"tl.join({x}, {self.clamp(self.accs[0])})"
                return [*lines, f"tl.store({place} + tl.arange(0, 2)[None, None, :], {value})"]
            case "halves":
                place = f"part + {i}[:, None] * {self.n // 2} + tl.arange(0, {self.n // 2})"
                return [
                    *lines,
                    f"left, right = lib.halves({x}, BM, BN)",
                    f"tl.store({place}[None, :], left)",
                    f"tl.store({place}[None, :] + {size // 2}, right + 1)",
                ]
            case _:
                value = f"tl.permute(tl.reshape({x}, (2, {self.m // 2}, BN)), (1, 0, 2))"
                place = f"part + (tl.arange(0, {self.m // 2})[:, None, None] * 2"
                place += f" + tl.arange(0, 2)[None, :, None]) * BN + {j}[None, None, :]"
                return [*lines, f"tl.store({place}, {value})"]

    def scattered(self) -> list[str]:
        """Rows of the result, upside down within their block."""
        total = " + ".join([*self.accs, *(f"{row}[:, None]" for row in self.vectors)])
        out = "i32" if self.sums == "i32" else self.pick("f32", "f16")
        tall = self.grid[2] * self.bands * self.m
        shape = (tall, self.wide(self.columns, out))
        desc = self.argument("cr_desc", Array(shape, out, (1, self.n), 0, 0))
        rows = f"tl.program_id(2) * {self.bands * self.m} + row + BM - 1 - tl.arange(0, BM)"
        return [f"{desc}.scatter(({total}).to({WORDS[out]}), {rows}, col)"]

    def finish(self) -> list[str]:
        lines = self.scattered() if self.pick(True, *[False] * 4) else super().finish()
        more = self.second() if self.pick(True, False) else []
        if self.walks:
            return [*lines, *more]
        before = self.leave() if self.pick(True, *[False] * 3) else []
        between = self.leave() if more and self.pick(True, *[False] * 3) else []
        return [*before, *lines, *between, *more]

    # --- the kernel -------------------------------------------------------------------------------

    def kernel(self) -> tuple[str, dict[str, int]]:
        source, constants = super().kernel()
        lines = source.splitlines()[1:]
        if self.walks:
            lines = self.walk(lines)
        constants |= self.known
        return headed(lines, self.arguments, constants), constants

    def walk(self, lines: list[str]) -> list[str]:
        """The walk over tiles: by rows or by rows and columns, in a `for` or by tickets."""
        self.grid = (self.grid[0], 1, self.grid[2])
        self.arguments["bands"] = self.bands * self.across
        head = next(at for at, line in enumerate(lines) if line.startswith("    for band in"))
        before, body = lines[:head], lines[head + 1 :]
        if self.across > 1:
            up, over = f"row = band // {self.across} * BM", f"col = band % {self.across} * BN"
            body = [*indented(indented([up, over])), *body[1:]]
        match self.pick("for", "for", "while", "ticket", "ticket", "one ticket"):
            case "while":
                walk = ["band = tl.program_id(0)", "while band < bands:"]
                step = ["band += tl.num_programs(0)"]
            case "ticket":
                take = f"band = {self.ticket()}"
                walk, step = [take, "while band < bands:"], [take]
                body = self.by_band(body)
            case "one ticket":
                self.grid = (self.bands * self.across, *self.grid[1:])
                walk, step = [f"band = {self.ticket()}", "if band < bands:"], []
                body = self.by_band(body)
            case _:
                walk, step = [lines[head].strip()], []
        return [*before, *indented(walk), *body, *indented(indented(step))]

    def by_band(self, lines: list[str]) -> list[str]:
        """Lines with a tile's number in place of a program's: each, and the next, has its words."""
        count = self.bands * self.across + 1
        for name, array in self.arguments.items():
            if isinstance(array, Array) and array.shape == (PROGRAMS,) and count > PROGRAMS:
                self.arguments[name] = replace(array, shape=(count,))
        return [line.replace("tl.program_id(0)", "band") for line in lines]

    def ticket(self) -> str:
        """The number of a tile that no other program has."""
        words = self.argument("tickets_ptr", Array((2,), "i32", (), 0, 0, 0))
        return f"tl.atomic_add({words} + tl.program_id(2), 1)"
