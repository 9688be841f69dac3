"""Random kernels of products: tiles come by descriptors and pointers, sums go through loops.

A kernel has one block of `BM` x `BN` results a program, or walks over several, and draws its
statements: loads (descriptors either way round, pointers, gathers), arithmetic on operands,
products (chained ones too), reductions, rows of statistics, loops nested up to three, branches,
calls and stores.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import numpy as np

from fuzz_case import DTYPES, WORDS, Array, Drawn, indented

STORE_ROWS = 4  # results a program may store from inside a loop
PROGRAMS = 8  # more than any grid has along an axis
STATEMENTS = 14


@dataclass
class Scope:
    """What a statement may use: operand tiles by type ("mk", "kn", "nn"), offsets and counters."""

    tiles: dict[str, list[str]]
    offsets: list[str]  # along K, in elements
    counters: list[str]
    depth: int = 0
    nested: int = 0  # loops around

    def inner(self, loops: int = 0) -> Scope:
        tiles = {kind: list(names) for kind, names in self.tiles.items()}
        offsets, counters = list(self.offsets), list(self.counters)
        return Scope(tiles, offsets, counters, self.depth + 1, self.nested + loops)


class Writer(Drawn):
    """Writes one kernel; every choice is drawn."""

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.statements = self.stores = 0
        self.tops: list[str] = []  # what is made once, before all else
        self.dtype = self.pick("f16", "f16", "f16", "bf16", "bf16", "f32", "f8e4m3", "f8e5m2", "i8")
        self.sums = "i32" if self.dtype == "i8" else "f32"
        self.low, self.high = ("-2", "2") if self.sums == "i32" else ("-2.0", "2.0")
        size = np.dtype(DTYPES[self.dtype]).itemsize
        self.unit = 16 // size  # elements in the 16 bytes that strides of descriptors count
        self.m, self.n = self.pick(128, 128, 64, 32, 16, 256, 192), self.pick(64, 32, 128, 16, 96)
        self.k = self.pick(32, 64, 16, 128) if size < 4 else self.pick(32, 16)
        self.k = max(self.k, 32) if size == 1 else self.k
        # Chained products sum over N: the rows of a tile of V.
        self.chained = self.n * size >= 32
        self.walks = self.pick(0, 0, 0, 1)
        self.grid = (self.pick(1, 2, 3), 1 if self.walks else self.pick(1, 2), self.pick(1, 1, 2))
        self.bands = self.pick(2, 3) if self.walks else self.grid[0]  # blocks of rows
        self.rows = self.bands * self.m - self.pick(0, 0, 1, self.m // 2)
        columns = self.grid[1] * self.n
        self.columns = columns - min(self.pick(0, 0, self.unit), columns - self.unit)
        self.iterations = self.pick(2, 1, 0, 3, 5, 7)
        self.deep = max(self.unit, self.iterations * self.k - self.pick(0, 0, self.unit))
        self.accs = [f"acc{i}" for i in range(self.pick(1, 1, 2, 3))]
        if self.m * self.n * len(self.accs) > 128 * 192:
            self.accs = self.accs[:1]
        self.vectors = [f"row{i}" for i in range(self.pick(0, 0, 1, 2))]  # a number a row

    def counts(self) -> str:
        return self.argument("counts_ptr", Array((PROGRAMS,), "i32", (), 0, 3))

    def wide(self, extent: int, dtype: str = "") -> int:
        """An extent as rows of descriptors have it: whole 16 bytes."""
        unit = 16 // np.dtype(DTYPES[dtype or self.dtype]).itemsize
        return -(-extent // unit) * unit

    # --- statements -------------------------------------------------------------------------------

    def block(self, scope: Scope) -> list[str]:
        """Return statements; each draws its kind."""
        lines: list[str] = []
        for _ in range(self.pick(1, 2, 3, 4)):
            if self.statements > STATEMENTS:
                break
            self.statements += 1
            lines += getattr(self, self.pick(*self.kinds(scope)))(scope)
        return lines or ["pass"]

    def kinds(self, scope: Scope) -> list[str]:
        """The names of the statements to draw from."""
        kinds = ["load", "load", "dot", "dot", "dot", "compute", "add", "chain", "reduce", "mask"]
        kinds += ["row", "row"] if self.vectors else []
        if scope.depth < 3:
            kinds += ["loop", "loop", "loop", "branch", *(["loop"] * 4 * (not scope.nested))]
        if scope.counters and self.stores < 2 and scope.nested:
            kinds += ["store"]
        return kinds

    def load(self, scope: Scope, kind: str = "") -> list[str]:
        """A tile of A [M, K] or B [K, N]: descriptor, its transpose, pointers or a gather."""
        kind = kind or self.pick("mk", "kn")
        name = self.fresh("a" if kind == "mk" else "b")
        scope.tiles[kind].append(name)
        at = self.pick(*scope.offsets)
        first, extent, size = (
            ("row", self.rows, self.m) if kind == "mk" else ("col", self.columns, self.n)
        )
        way = self.pick("tma", "tma", "tma", "turned", "turned", "pointer", "gather", "ranked")
        stem = kind[0] if kind == "mk" else kind[1]
        straight = (way == "turned") != (kind == "mk")
        if way not in ("tma", "turned", "ranked"):
            return self.load_by_threads(name, kind, stem, first, extent, at, way)
        block = (size, self.k) if straight else (self.k, size)
        shape = (extent, self.deep) if straight else (self.deep, extent)
        shape = (shape[0], self.wide(shape[1]))
        where = f"{first}, {at}" if straight else f"{at}, {first}"
        if way == "ranked":
            desc = self.argument(f"{stem}3_desc", Array((2, *shape), self.dtype, (1, *block)))
            names = "BM, BK" if kind == "mk" else "BK, BN"
            z = self.pick("tl.program_id(2)", "0", "1")
            return [f"{name} = {desc}.load([{z}, {where}]).reshape({names})"]
        letter = f"{stem}{'' if way == 'tma' else 't'}{self.pick('', '', '2')}_desc"
        self.argument(letter, Array(shape, self.dtype, block))
        return [f"{name} = {letter}.load([{where}]){'.T' if way == 'turned' else ''}"]

    def inside(self, along: str) -> str:
        """Whether places along K are an operand's."""
        return f"({along} < K)"

    def load_by_threads(
        self, name: str, kind: str, stem: str, first: str, extent: int, at: str, way: str
    ) -> list[str]:
        """A tile through pointers; K runs along memory. A gather takes rows from an index array."""
        stride = -(-max(self.deep, self.k) // 16) * 16
        base = self.argument(f"{stem}_ptr", Array((extent, stride), self.dtype))
        self.argument("stride", stride)
        self.argument("K", self.deep)
        lane = self.fresh("i")
        over = "BM" if kind == "mk" else "BN"
        lines = [f"{lane} = {first} + tl.arange(0, {over})"]
        along = f"({at} + tl.arange(0, BK))"
        if way == "pointer" and self.pick(True, False):
            call = f"lib.tile_of({base}, {lane}, {along}, stride, {extent}, K)"
            return [*lines, f"{name} = {call}{'' if kind == 'mk' else '.T'}"]
        valid = f"({lane} < {extent})"
        if way == "gather":
            index = self.argument(f"{stem}_rows", Array((extent,), "i32", (), 0, extent - 1))
            rows = f"{lane}r"
            lines.append(f"{rows} = tl.load({index} + {lane}, mask={valid}, other=0)")
        else:
            rows = lane
        if kind == "mk":
            row, along, mask = f"{rows}[:, None]", f"{along}[None, :]", f"{valid}[:, None]"
        else:
            row, along, mask = f"{rows}[None, :]", f"{along}[:, None]", f"{valid}[None, :]"
        place, text = f"{row} * stride + {along}", f"{mask} & {self.inside(along)}"
        return [*lines, f"{name} = tl.load({base} + {place}, mask={text}, other=0)"]

    def compute(self, scope: Scope) -> list[str]:
        """Arithmetic on an operand: it must pass through registers."""
        kind = self.pick("mk", "kn")
        if not scope.tiles[kind] or self.dtype.startswith("f8"):
            return self.load(scope, kind)
        source, name = self.pick(*scope.tiles[kind]), self.fresh("x")
        scope.tiles[kind].append(name)
        how = self.pick("{0} * 2", "-{0}", "{0} + 1", "tl.where({0} > 0, {0}, 0)", "tl.abs({0})")
        return [f"{name} = ({how.format(source)}).to({WORDS[self.dtype]})"]

    def operands(self, scope: Scope) -> tuple[list[str], str, str]:
        lines: list[str] = []
        for kind in ("mk", "kn"):
            if not scope.tiles[kind] or self.pick(True, False):
                lines += self.load(scope, kind)
        return lines, self.pick(*scope.tiles["mk"]), self.pick(*scope.tiles["kn"])

    def dot(self, scope: Scope) -> list[str]:
        lines, a, b = self.operands(scope)
        acc = self.pick(*self.accs)
        match self.pick("into", "into", "into", "plus", "minus", "called"):
            case "into":
                return [*lines, f"{acc} = tl.dot({a}, {b}, {acc})"]
            case "plus":
                return [*lines, f"{acc} += tl.dot({a}, {b})"]
            case "called":
                return [*lines, f"{acc} = lib.product({acc}, {a}, {b}, {self.pick(True, False)})"]
            case _:
                return [*lines, f"{acc} = {acc} - tl.dot({a}, {b})"]

    def clamp(self, value: str) -> str:
        return f"lib.clamped({value}, {self.low}, {self.high})"

    def chain(self, scope: Scope) -> list[str]:
        """P = clamp(A B) and a second product with P, as attention has."""
        if not self.chained:
            return self.dot(scope)
        acc, p = self.pick(*self.accs), self.fresh("p")
        lines: list[str] = []
        value = self.pick(*self.accs)
        if self.pick(True, False):
            lines, a, b = self.operands(scope)
            value = f"tl.dot({a}, {b})"
        lines.append(f"{p} = {self.clamp(value)}.to({WORDS[self.dtype]})")
        if not scope.tiles["nn"] or self.pick(True, False):
            v = self.fresh("v")
            scope.tiles["nn"].append(v)
            turned = self.pick(False, False, True)
            width, high = self.wide(self.columns), max(self.n, self.deep)
            shape = (width, self.wide(high)) if turned else (high, width)
            name = self.argument("vt_desc" if turned else "v_desc",
                                 Array(shape, self.dtype, (self.n, self.n)))  # fmt: skip
            at = self.pick(*scope.offsets)
            where = f"col, {at}" if turned else f"{at}, col"
            lines.append(f"{v} = {name}.load([{where}]){'.T' if turned else ''}")
        v = self.pick(*scope.tiles["nn"])
        return [*lines, f"{acc} = tl.dot({p}, {v}, {acc})"]

    def add(self, scope: Scope) -> list[str]:
        """A tile of the result's shape, or the sums of an operand, added to an accumulator."""
        acc, sums = self.pick(*self.accs), WORDS[self.sums]
        ways = ["tile", *(["rows"] if scope.tiles["mk"] else [])]
        ways += ["columns"] if scope.tiles["kn"] else []
        match self.pick(*ways):
            case "rows":
                x = self.pick(*scope.tiles["mk"])
                return [f"{acc} += tl.sum({x}.to({sums}), 1)[:, None]"]
            case "columns":
                x = self.pick(*scope.tiles["kn"])
                return [f"{acc} += tl.max({x}.to({sums}), 0)[None, :]"]
            case _:
                d = Array((self.rows, self.wide(self.columns)), self.dtype, (self.m, self.n))
                return [f"{acc} += {self.argument('d_desc', d)}.load([row, col]).to({sums})"]

    def reduce(self, scope: Scope) -> list[str]:
        """An accumulator from its own reduction, clamped: its registers are read in between."""
        acc, axis = self.pick(*self.accs), self.pick(1, 0)
        index = "[:, None]" if axis else "[None, :]"
        how = self.pick("tl.max({0}, {1})", "tl.sum({0}, {1})", "tl.min({0}, {1})",
                        "tl.reduce({0}, {1}, lib.larger)")  # fmt: skip
        return [f"{acc} = {self.clamp(f'{acc} - {how.format(acc, axis)}{index}')}"]

    def mask(self, scope: Scope) -> list[str]:
        """An accumulator where a condition on rows, columns and iterations holds."""
        acc = self.pick(*self.accs)
        shift = self.pick("0", "row", "8", *scope.offsets)
        left = f"(tl.arange(0, BM) + {shift})[:, None]"
        test = f"{left} {self.pick('>=', '<', '!=')} tl.arange(0, BN)[None, :]"
        return [f"{acc} = tl.where({test}, {acc}, {self.pick('0', acc + ' - 1', '1')})"]

    def row(self, scope: Scope) -> list[str]:
        """A number for each row, carried like the statistics of a softmax."""
        acc, row = self.pick(*self.accs), self.pick(*self.vectors)
        match self.pick("max", "sum", "scale", "sub"):
            case "max":
                return [f"{row} = {self.clamp(f'tl.maximum({row}, tl.max({acc}, 1))')}"]
            case "sum":
                return [f"{row} = {self.clamp(f'{row} * 2 + tl.sum({acc}, 1)')}"]
            case "scale":
                return [f"{acc} = {self.clamp(f'{acc} * {row}[:, None]')}"]
            case _:
                return [f"{acc} -= tl.expand_dims({row}, 1)"]

    def loop(self, scope: Scope) -> list[str]:
        inner = scope.inner(1)
        match self.pick("K", "K", "K", "count", "data", "range", "while", "unrolled", "down"):
            case "K":
                self.argument("K", self.deep)
                index = self.fresh("k")
                inner.offsets += [index, *([f"{index} + BK"] if self.pick(False, True) else [])]
                inner.counters.append(f"{index} // BK")
                stages = self.pick("", "", "", *(f", num_stages={n}" for n in range(1, 6)),
                                   ", loop_unroll_factor=2", ", warp_specialize=True")  # fmt: skip
                made = f"tl.range(0, K, BK{stages})" if stages else "range(0, K, BK)"
                head = f"for {index} in {made}:"
            case "count":
                index, iterations = (
                    self.fresh("j"),
                    self.argument(f"T{scope.depth}", self.pick(0, 1, 2)),
                )
                inner.offsets.append(f"{index} * BK")
                inner.counters.append(index)
                head = f"for {index} in range({self.pick('0', '0', '1')}, {iterations}):"
            case "data":
                return self.data_loop(inner)
            case "range":
                index = self.fresh("j")
                inner.offsets.append(f"{index} * BK")
                inner.counters.append(index)
                head = f"for {index} in range(tl.program_id(0), 3, 2):"
            case "while":
                index, iterations = self.fresh("w"), self.argument("T9", self.pick(0, 1, 3))
                inner.offsets.append(f"{index} * BK")
                body = indented([*self.block(inner), f"{index} += 1"])
                return [f"{index} = 0", f"while {index} < {iterations}:", *body]
            case "down":
                index = self.fresh("e")
                inner.offsets.append(f"{index} * BK")
                inner.counters.append(index)
                head = f"for {index} in range({self.pick(1, 2, 4)}, -1, -1):"
            case _:
                index = self.fresh("u")
                inner.offsets.append(f"{index} * BK")
                inner.depth = 3  # not many copies
                head = f"for {index} in tl.static_range({self.pick(2, 1, 3)}):"
        return [head, *indented(self.block(inner))]

    def data_loop(self, inner: Scope) -> list[str]:
        """A loop whose iterations a word of memory says, of this program or of this iteration."""
        index, iterations = self.fresh("j"), self.fresh("t")
        which = self.pick("tl.program_id(0)", "tl.program_id(1)", *inner.counters)
        inner.offsets.append(f"{index} * BK")
        inner.counters.append(index)
        return [
            f"{iterations} = tl.load({self.counts()} + {which})",
            f"for {index} in range(0, {iterations}):",
            *indented(self.block(inner)),
        ]

    def branch(self, scope: Scope) -> list[str]:
        tests = ["flag > 0", "tl.program_id(0) == 0", "tl.load(counts_ptr) > 1"]
        tests += ["flag > 0 and tl.program_id(1) == 0"]
        for counter in scope.counters:
            tests += [f"{counter} % 2 == 0", f"{counter} >= 1", f"({counter}) & 1"]
            tests += [f"tl.load(counts_ptr + {counter}) > 1", f"{counter} < flag"]
        test = self.pick(*tests)
        if "flag" in test:
            self.argument("flag", self.pick(0, 1))
        if "counts_ptr" in test:
            self.counts()
        lines = [f"if {test}:", *indented(self.block(scope.inner()))]
        if self.pick(False, True):
            lines += ["else:", *indented(self.block(scope.inner()))]
        return lines

    def store(self, scope: Scope) -> list[str]:
        """A store in a loop, to a place of its own for each of the first iterations."""
        counter = self.pick(*scope.counters)
        self.stores += 1
        more = f"more{self.stores}_"
        width, rows = self.wide(self.columns, "f16"), self.bands * self.m
        value = f"{self.clamp(self.pick(*self.accs))}.to(tl.float16)"
        shape = (self.grid[2] * STORE_ROWS * rows, width)
        first = f"(tl.program_id(2) * {STORE_ROWS} + {counter}) * {rows} + row"
        guard = f"if {counter} < {STORE_ROWS}:"
        if self.pick(True, False):
            more = self.argument(f"{more}desc", Array(shape, "f16", (self.m, self.n), 0, 0))
            return [guard, f"    {more}.store([{first}, col], {value})"]
        more = self.argument(f"{more}ptr", Array(shape, "f16", (), 0, 0))
        self.argument("wide", width)
        place = f"({first} + tl.arange(0, BM))[:, None] * wide + (col + tl.arange(0, BN))[None, :]"
        mask = f"(col + tl.arange(0, BN))[None, :] < {self.columns}"
        return [guard, f"    tl.store({more} + {place}, {value}, mask={mask})"]

    # --- the kernel -------------------------------------------------------------------------------

    def place(self, row: str) -> list[str]:
        """Which rows and columns a program has."""
        return [row, "col = tl.program_id(1) * BN"]

    def finish(self) -> list[str]:
        """The results leave: by descriptor, through pointers, or added to what is there."""
        total = " + ".join([*self.accs, *(f"{row}[:, None]" for row in self.vectors)])
        out = "i32" if self.sums == "i32" else self.pick("f32", "f16", "bf16")
        width, batch = self.wide(self.columns, out), self.grid[2]
        value = f"({total}).to({WORDS[out]})"
        way = self.pick("tma", "tma", "tma", "pointer", "pointer", "atomic", "atomic tma")
        shape = (batch * self.bands * self.m if batch > 1 else self.rows, width)
        first = f"tl.program_id(2) * {self.bands * self.m} + row" if batch > 1 else "row"
        start = 3 if way.startswith("atomic") else None
        if way.endswith("tma"):
            c = Array(shape, out, (self.m, self.n), 0, 0, start)
            verb = "store" if way == "tma" else "atomic_add"
            return [f"{self.argument('c_desc', c)}.{verb}([{first}, col], {value})"]
        c = self.argument("c_ptr", Array(shape, out, (), 0, 0, start))
        self.argument("ldc", width)
        return [
            f"om = {first} + tl.arange(0, BM)",
            "on = col + tl.arange(0, BN)",
            f"inside = (om[:, None] < {shape[0]}) & (on[None, :] < {self.columns})",
            f"place = {c} + om[:, None] * ldc + on[None, :]",
            f"tl.{'store' if way == 'pointer' else 'atomic_add'}(place, {value}, mask=inside)",
        ]

    def kernel(self) -> tuple[str, dict[str, int]]:
        """The source and its constants."""
        sums = WORDS[self.sums]
        start = [
            *(f"{acc} = tl.zeros((BM, BN), dtype={sums})" for acc in self.accs),
            *(f"{row} = tl.full((BM,), {i}, {sums})" for i, row in enumerate(self.vectors)),
        ]
        tiles: dict[str, list[str]] = {"mk": [], "kn": [], "nn": []}
        body = self.block(Scope(tiles, ["0", "BK"], [], self.walks, self.walks))
        if not any("dot" in line for line in body):
            body += self.dot(Scope(tiles, ["0", "BK"], []))
        text = [*start, *body, *self.finish()]
        row = "row = tl.program_id(0) * BM"
        if self.walks:
            self.argument("bands", self.bands)
            head = self.pick("", ", flatten=True", ", num_stages=2")
            made = f"tl.range(tl.program_id(0), bands, tl.num_programs(0){head})"
            text = [f"for band in {made}:", *indented(["row = band * BM", *text])]
            row = "pass"
        lines = indented([*self.place(row), *self.tops, *text])
        constants = {"BM": self.m, "BN": self.n, "BK": self.k}
        names = [*self.arguments, *(f"{name}: tl.constexpr" for name in constants)]
        return f"def kernel({', '.join(names)}):\n" + "\n".join(lines) + "\n", constants
