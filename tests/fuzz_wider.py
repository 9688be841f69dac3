"""Random kernels of products, with more of what users write: see `fuzz_products` for the rest.

Descriptors and block pointers made in the kernel, pointers that a loop carries, grouped tiles,
programs that return at once, precisions of fp32, sweeps in a helper, statistics stored by rows,
atomic extrema through descriptors, narrow results.
"""

from __future__ import annotations

from fuzz_case import WORDS, Array, indented
from fuzz_products import PROGRAMS, Scope, Writer


class WiderWriter(Writer):
    """Writes one kernel; every choice is drawn."""

    def kinds(self, scope: Scope) -> list[str]:
        more = ["made", "made", "whole", "scan", "precise", "statistics"]
        if scope.depth < 3:
            more += ["carried", "carried", "sweep", "between", "ladder"]
        return super().kinds(scope) + more

    # --- loads ------------------------------------------------------------------------------------

    def base(self, stem: str, extent: int) -> str:
        """The pointer to an operand, K along memory; its stride is an argument."""
        stride = -(-max(self.deep, self.k) // 16) * 16
        self.argument("stride", stride)
        self.argument("K", self.deep)
        return self.argument(f"{stem}_ptr", Array((extent, stride), self.dtype))

    def sides(self, kind: str) -> tuple[str, str, int, str]:
        """The letter, first row, extent and constant of the rows of an operand."""
        if kind == "mk":
            return "m", "row", self.rows, "BM"
        return "n", "col", self.columns, "BN"

    def made(self, scope: Scope) -> list[str]:
        """A tile by what the kernel makes: a descriptor, a block pointer, pointers of 64 bits."""
        kind = self.pick("mk", "kn")
        stem, first, extent, over = self.sides(kind)
        base, at = self.base(stem, extent), self.pick(*scope.offsets)
        name = self.fresh("a" if kind == "mk" else "b")
        scope.tiles[kind].append(name)
        turned = "" if kind == "mk" else ".T"
        match self.pick("descriptor", "descriptor", "block", "long", "chosen"):
            case "descriptor":
                desc = f"{stem}m_desc"
                line = f"{desc} = tl.make_tensor_descriptor({base}, shape=[{extent}, K], "
                line += f"strides=[stride, 1], block_shape=[{over}, BK])"
                if line not in self.tops:
                    self.tops.append(line)
                return [f"{name} = {desc}.load([{first}, {at}]){turned}"]
            case "block":
                text = f"tl.make_block_ptr({base}, ({extent}, K), (stride, 1), "
                moved = self.pick(True, False)
                text += f"({first}, {0 if moved else at}), ({over}, BK), (1, 0))"
                text = f"tl.advance({text}, (0, {at}))" if moved else text
                more = 'boundary_check=(0, 1), padding_option="zero"'
                return [f"{name} = tl.load({text}, {more}){turned}"]
            case "long":
                lane, along = self.fresh("i"), f"({at} + tl.arange(0, BK))[None, :]"
                place = f"{base} + {lane}[:, None].to(tl.int64) * stride + {along}"
                mask = f"({lane}[:, None] < {extent}) & {self.inside(along)}"
                other = self.pick(0, 1)
                hint = self.pick("", ', eviction_policy="evict_last"', ', cache_modifier=".cg"')
                return [
                    f"{lane} = {first} + tl.arange(0, {over})",
                    f"{name} = tl.load({place}, mask={mask}, other={other}{hint}){turned}",
                ]
            case _:
                lane, along = self.fresh("i"), f"({at} + tl.arange(0, BK))[None, :]"
                place = f"{base} + {lane}[:, None] * stride + {along}"
                inside = f"({lane}[:, None] < {extent}) & {self.inside(along)}"
                return [
                    f"{lane} = {first} + tl.arange(0, {over})",
                    f"{name} = tl.load(tl.where({inside}, {place}, {base})){turned}",
                ]

    def carried(self, scope: Scope) -> list[str]:
        """A loop along K over pointers that each iteration moves on."""
        inner = scope.inner(1)
        lines: list[str] = []
        body: list[str] = []
        moves: list[str] = []
        index = self.fresh("k")
        kinds = self.pick(["mk"], ["kn"], ["mk", "kn"], ["mk", "kn"])
        for kind in kinds:
            stem, first, extent, over = self.sides(kind)
            base = self.base(stem, extent)
            pointers = self.fresh(f"{stem}_ptrs")
            rows, along = f"({first} + tl.arange(0, {over}))", "tl.arange(0, BK)"
            mask = f"({rows}[:, None] < {extent}) & ({along}[None, :] < K - {index} * BK)"
            name = self.fresh("a" if kind == "mk" else "b")
            turned = "" if kind == "mk" else ".T"
            lines.append(f"{pointers} = {base} + {rows}[:, None] * stride + {along}[None, :]")
            body.append(f"{name} = tl.load({pointers}, mask={mask}, other=0){turned}")
            moves.append(f"{pointers} += BK")
            inner.tiles[kind].append(name)
        inner.counters.append(index)
        inner.offsets.append(f"{index} * BK")
        head = self.pick("range(0, tl.cdiv(K, BK))", "tl.range(tl.cdiv(K, BK), num_stages=3)")
        body += [*self.block(inner), *moves]
        return [*lines, f"for {index} in {head}:", *indented(body)]

    # --- statements -------------------------------------------------------------------------------

    def sweep(self, scope: Scope) -> list[str]:
        """A helper with a loop over products, which returns two values."""
        shapes = {
            "m_desc": ((self.rows, self.wide(self.deep)), (self.m, self.k)),
            "n_desc": ((self.deep, self.wide(self.columns)), (self.k, self.n)),
        }
        for name, (shape, block) in shapes.items():
            self.argument(name, Array(shape, self.dtype, block))
        self.argument("K", self.deep)
        acc, count = self.pick(*self.accs), self.fresh("s")
        last = self.pick("K", "BK", "2 * BK", *scope.offsets)
        call = f"lib.sweep({acc}, m_desc, n_desc, row, col, {self.pick('0', 'BK')}, {last}, BK)"
        return [f"{acc}, {count} = {call}", f"{acc} += {count}"]

    def precise(self, scope: Scope) -> list[str]:
        """A product of a named precision; another statement where it is not of fp32."""
        if self.dtype != "f32":
            return self.dot(scope)
        lines, a, b = self.operands(scope)
        acc = self.pick(*self.accs)
        how = self.pick("ieee", "tf32", "tf32x3")
        return [*lines, f'{acc} = tl.dot({a}, {b}, {acc}, input_precision="{how}")']

    def whole(self, scope: Scope) -> list[str]:
        """An accumulator from a reduction that keeps its dimension, or of all its elements."""
        acc, axis = self.pick(*self.accs), self.pick(0, 1)
        text = self.pick(
            f"tl.max({acc}, {axis}, keep_dims=True)",
            f"tl.sum({acc}, {axis}, keep_dims=True)",
            f"tl.max({acc})",
            f"tl.min({acc}, axis=None)",
            f"tl.argmax({acc}, {axis}, keep_dims=True).to({WORDS[self.sums]})",
        )
        return [f"{acc} = {self.clamp(f'{acc} - {text}')}"]

    def scan(self, scope: Scope) -> list[str]:
        """An accumulator from its running sums or maxima."""
        acc, axis = self.pick(*self.accs), self.pick(0, 1)
        how = self.pick(
            f"tl.cumsum({acc}, {axis})", f"tl.associative_scan({acc}, {axis}, lib.larger)"
        )
        return [f"{acc} = {self.clamp(how)}"]

    def statistics(self, scope: Scope) -> list[str]:
        """A number of each row is stored for this program, over what it may have stored before."""
        values = [f"tl.max({acc}, 1)" for acc in self.accs] + self.vectors
        columns, rows = self.grid[1], self.bands * self.m
        shape = (self.grid[2] * columns * rows,)
        name = self.argument("rows_ptr", Array(shape, "f32", (), 0, 0))
        first = f"(tl.program_id(2) * {columns} + col // BN) * {rows}"
        lane = "row + tl.arange(0, BM)"
        mask = f"{lane} < {self.rows}"
        value = f"{self.pick(*values)}.to(tl.float32)"
        return [f"tl.store({name} + {first} + {lane}, {value}, mask={mask})"]

    def between(self, scope: Scope) -> list[str]:
        """A loop whose two bounds are in memory."""
        inner, index, low = scope.inner(1), self.fresh("j"), self.fresh("t")
        self.counts()
        inner.offsets.append(f"{index} * BK")
        inner.counters.append(index)
        which = self.pick("tl.program_id(0)", "tl.program_id(1)", *scope.counters)
        more = self.pick("", "", ", flatten=True", ", disallow_acc_multi_buffer=True")
        more += self.pick("", ", num_stages=4")
        return [
            f"{low} = tl.load(counts_ptr + {which})",
            f"for {index} in tl.range({low}, {low} + tl.load(counts_ptr + {which} + 1){more}):",
            *indented(self.block(inner)),
        ]

    def ladder(self, scope: Scope) -> list[str]:
        """A choice of three."""
        self.argument("flag", self.pick(0, 1))
        scalar = self.pick("flag", "tl.program_id(0)", *scope.counters)
        bodies = [indented(self.block(scope.inner())) for _ in range(3)]
        one, two, other = bodies
        return [f"if {scalar} == 0:", *one, f"elif {scalar} == 1:", *two, "else:", *other]

    # --- the kernel -------------------------------------------------------------------------------

    def place(self, row: str) -> list[str]:
        """Programs may be numbered in groups of rows, and some may have nothing to do."""
        lines = super().place(row)
        high, across, deep = self.grid
        if not self.walks and self.pick(True, False, False):
            self.grid = (high * across, 1, deep)
            group = self.pick(1, 2, 3)
            if self.pick(True, False):
                pair = f"tl.swizzle2d(pid // {across}, pid % {across}, {high}, {across}, {group})"
                lines = ["pid = tl.program_id(0)", f"pid_m, pid_n = {pair}"]
            else:
                width = group * across
                lines = [
                    "pid = tl.program_id(0)",
                    f"first = pid // {width} * {group}",
                    f"high = min({high} - first, {group})",
                    f"pid_m = first + pid % {width} % high",
                    f"pid_n = pid % {width} // high",
                ]
            lines += ["row = pid_m * BM", "col = pid_n * BN"]
        if self.pick(True, *[False] * 7):
            self.counts()
            lines += ["if tl.load(counts_ptr + tl.program_id(0)) == 0:", "    return"]
        return lines

    def finish(self) -> list[str]:
        """The results leave; narrow ones are clamped first."""
        if self.pick(True, True, True, False):
            return super().finish()
        total = " + ".join([*self.accs, *(f"{row}[:, None]" for row in self.vectors)])
        batch, tall = self.grid[2], self.bands * self.m
        first = f"tl.program_id(2) * {tall} + row"
        if self.pick(True, False):  # the larger of what all programs of a place have
            kind = "i32"
            verb, start = self.pick("atomic_max", "atomic_min", "atomic_add"), 3
        else:
            kind, verb, start = self.pick("f8e5m2", "f8e4m3", "i8"), "store", None
        shape = (batch * tall, self.wide(self.columns, kind))
        value = f"lib.clamped({total}, -8, 8)" if self.sums == "i32" else f"lib.near({total})"
        c = self.argument("c_desc", Array(shape, kind, (self.m, self.n), 0, 0, start))
        return [f"{c}.{verb}([{first}, col], {value}.to({WORDS[kind]}))"]


assert PROGRAMS >= 7, "programs of a grouped grid, and one more, have counts"
