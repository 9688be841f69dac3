"""Random kernels for the fuzz tests: Triton-language source, arguments, launch options and pins.

`cases()` is a hypothesis strategy. A kernel has one block of `BM` x `BN` results a program and
draws its statements: loads (descriptors either way round, pointers, gathers), arithmetic on
operands, products (chained ones too), reductions, loops nested up to three of four kinds, branches
and stores. All data are small integers and every narrow value is clamped, so each order of sums is
exact and runs agree bit for bit.
"""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any
from zlib import crc32

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

DTYPES: dict[str, Any] = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "f8e4m3": ml_dtypes.float8_e4m3fn,
    "f8e5m2": ml_dtypes.float8_e5m2,
    "i32": np.int32,
}
WORDS = {
    "f16": "tl.float16",
    "bf16": "tl.bfloat16",
    "f32": "tl.float32",
    "f8e4m3": "tl.float8e4nv",
    "f8e5m2": "tl.float8e5",
}
STORE_ROWS = 4  # results a program may store from inside a loop
PROGRAMS = 4  # more than any grid has along an axis


@dataclass(frozen=True)
class Array:
    """An argument with data: `block` makes it a descriptor; `limit` bounds its integers.

    `limit` 0 is an array of results: it starts as NaN.
    """

    shape: tuple[int, ...]
    dtype: str
    block: tuple[int, ...] = ()
    low: int = -2
    limit: int = 2


@dataclass(frozen=True)
class Case:
    """One kernel and one launch of it. `options` are wishes and pins."""

    source: str
    arguments: dict[str, Array | int]
    constants: dict[str, int]
    grid: tuple[int, int, int]
    options: dict[str, Any] = field(default_factory=dict)
    seed: int = 0

    def function(self) -> FunctionType:
        """The kernel; its source is found as that of a file."""
        import tawa.language as tl

        name = f"<fuzz {crc32(self.source.encode()):08x}>"
        linecache.cache[name] = (len(self.source), None, self.source.splitlines(True), name)
        scope: dict[str, Any] = {"tl": tl, "__name__": "fuzz"}
        exec(compile(self.source, name, "exec"), scope)
        return scope["kernel"]

    def data(self) -> dict[str, Any]:
        """Fresh arrays and numbers by name: equal at every call."""
        random = np.random.default_rng(self.seed)
        made: dict[str, Any] = {}
        for name, kind in self.arguments.items():
            if isinstance(kind, int):
                made[name] = kind
            elif kind.limit == 0:
                made[name] = np.full(kind.shape, np.nan, DTYPES[kind.dtype])
            else:
                numbers = random.integers(kind.low, kind.limit + 1, kind.shape)
                made[name] = numbers.astype(DTYPES[kind.dtype])
        return made

    def given(self, data: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a launch on `data`: descriptors of the arrays that have blocks."""
        import tawa

        made = dict(data)
        for name, kind in self.arguments.items():
            if isinstance(kind, Array) and kind.block:
                made[name] = tawa.TensorDescriptor.from_tensor(data[name], list(kind.block))
        return made

    def __str__(self) -> str:
        arguments = ", ".join(f"{name}={kind}" for name, kind in self.arguments.items())
        return (
            f"{self.source}\ngrid {self.grid}, {self.constants}, options {self.options}, "
            f"seed {self.seed}\n{arguments}"
        )


def written(
    function: Callable[..., None], arguments: dict[str, Array | int], **launch: Any
) -> Case:
    """A case of a kernel that stands in a test's file."""
    source = inspect.getsource(function).replace(f"def {function.__name__}(", "def kernel(", 1)
    return Case(source, arguments, **launch)


@dataclass
class Scope:
    """What a statement may use: operand tiles by type ("mk", "kn", "nn"), offsets and counters."""

    tiles: dict[str, list[str]]
    offsets: list[str]  # along K, in elements
    counters: list[str]
    depth: int = 0
    doubled: bool = False  # inside a loop whose body already has a loop

    def inner(self) -> Scope:
        tiles = {kind: list(names) for kind, names in self.tiles.items()}
        return Scope(tiles, list(self.offsets), list(self.counters), self.depth + 1)


class Writer:
    """Writes one kernel; every choice is drawn."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self.draw = draw
        self.arguments: dict[str, Array | int] = {}
        self.count = 0
        self.statements = 0
        self.stored = False
        self.prologue: list[str] = []
        self.dtype = self.pick("f16", "f16", "bf16", "f32", "f8e4m3", "f8e5m2")
        size = np.dtype(DTYPES[self.dtype]).itemsize
        self.unit = 16 // size  # elements in the 16 bytes that strides of descriptors count
        self.m = self.pick(128, 64, 32, 16, 256, 192)
        self.n = self.pick(64, 32, 128, 16, 96)
        self.k = self.pick(32, 64, 16, 128) if size < 4 else self.pick(32, 16)
        self.k = max(self.k, 32) if size == 1 else self.k
        # Chained products sum over N: the rows of a tile of V.
        self.chained = self.n * size >= 32
        self.grid = (self.pick(1, 2, 3), self.pick(1, 2), 1)
        self.rows = self.grid[0] * self.m - self.pick(0, 0, 1, self.m // 2)
        columns = self.grid[1] * self.n
        self.columns = columns - min(self.pick(0, 0, self.unit), columns - self.unit)
        self.trips = self.pick(2, 1, 0, 3, 5, 7)
        self.deep = max(self.unit, self.trips * self.k - self.pick(0, 0, self.unit))
        self.accs = [f"acc{i}" for i in range(self.pick(1, 1, 2, 3))]
        if self.m * self.n * len(self.accs) > 128 * 192:
            self.accs = self.accs[:1]

    # --- choices ----------------------------------------------------------------------------------

    def pick(self, *items: Any) -> Any:
        return self.draw(st.sampled_from(items))

    def often(self) -> bool:
        return self.pick(True, True, False)

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def argument(self, name: str, kind: Array | int) -> str:
        self.arguments.setdefault(name, kind)
        return name

    # --- statements -------------------------------------------------------------------------------

    def block(self, scope: Scope) -> list[str]:
        """Return statements; each draws its kind."""
        lines: list[str] = []
        for _ in range(self.pick(1, 2, 3, 4)):
            if self.statements > 14:
                break
            self.statements += 1
            kinds = ["load", "load", "dot", "dot", "dot", "compute", "add", "chain", "reduce"]
            if scope.depth < 3:
                kinds += ["loop", "loop", "loop", "branch"]
            if scope.counters and not self.stored and scope.depth == 1:
                kinds += ["store"]
            lines += getattr(self, self.pick(*kinds))(scope)
        return lines or ["pass"]

    def load(self, scope: Scope, kind: str = "") -> list[str]:
        """A tile of A [M, K] or B [K, N]: descriptor, its transpose, pointers or a gather."""
        kind = kind or self.pick("mk", "kn")
        name = self.fresh("a" if kind == "mk" else "b")
        scope.tiles[kind].append(name)
        at = self.pick(*scope.offsets)
        first, extent, size = (
            ("row", self.rows, self.m) if kind == "mk" else ("col", self.columns, self.n)
        )
        way = self.pick("tma", "tma", "tma", "turned", "turned", "pointer", "gather")
        stem = kind[0] if kind == "mk" else kind[1]
        straight = (way == "turned") != (kind == "mk")
        if way in ("tma", "turned"):
            block = (size, self.k) if straight else (self.k, size)
            shape = (extent, self.deep) if straight else (self.deep, extent)
            inner = -(-shape[1] // self.unit) * self.unit
            letter = f"{stem}{'' if way == 'tma' else 't'}{self.pick('', '', '2')}_desc"
            self.argument(letter, Array((shape[0], inner), self.dtype, block))
            where = f"{first}, {at}" if straight else f"{at}, {first}"
            return [f"{name} = {letter}.load([{where}]){'.T' if way == 'turned' else ''}"]
        return self.load_by_threads(name, kind, stem, first, extent, at, way)

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
        valid = f"({lane} < {extent})"
        if way == "gather":
            index = self.argument(f"{stem}_rows", Array((extent,), "i32", (), 0, extent - 1))
            rows = f"{lane}r"
            lines.append(f"{rows} = tl.load({index} + {lane}, mask={valid}, other=0)")
        else:
            rows = lane
        along = f"({at} + tl.arange(0, BK))"
        if kind == "mk":
            place, mask = f"{rows}[:, None] * stride + {along}[None, :]", "{0}[:, None] & {1}"
            inside = f"({along}[None, :] < K)"
        else:
            place, mask = f"{rows}[None, :] * stride + {along}[:, None]", "{0}[None, :] & {1}"
            inside = f"({along}[:, None] < K)"
        if "-" in at:
            inside += f" & ({inside[1:].partition('<')[0]}>= 0)"
        text = mask.format(valid, inside)
        return [*lines, f"{name} = tl.load({base} + {place}, mask={text}, other=0.0)"]

    def compute(self, scope: Scope) -> list[str]:
        """Arithmetic on an operand: it must pass through registers."""
        kind = self.pick("mk", "kn")
        if not scope.tiles[kind] or self.dtype.startswith("f8"):
            return self.load(scope, kind)
        source, name = self.pick(*scope.tiles[kind]), self.fresh("x")
        scope.tiles[kind].append(name)
        how = self.pick("{0} * 2", "-{0}", "{0} + 1", "tl.where({0} > 0, {0}, 0.0)")
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
        match self.pick("into", "into", "into", "plus", "minus"):
            case "into":
                return [*lines, f"{acc} = tl.dot({a}, {b}, {acc})"]
            case "plus":
                return [*lines, f"{acc} += tl.dot({a}, {b})"]
            case _:
                return [*lines, f"{acc} = {acc} - tl.dot({a}, {b})"]

    def clamp(self, value: str) -> str:
        return f"tl.minimum(tl.maximum({value}, -2.0), 2.0)"

    def chain(self, scope: Scope) -> list[str]:
        """P = clamp(A B) and a second product with P, as attention has."""
        if not self.chained:
            return self.dot(scope)
        acc, p = self.pick(*self.accs), self.fresh("p")
        if self.pick(True, False):
            lines, a, b = self.operands(scope)
            lines.append(f"{p} = {self.clamp(f'tl.dot({a}, {b})')}.to({WORDS[self.dtype]})")
        else:
            lines = [f"{p} = {self.clamp(self.pick(*self.accs))}.to({WORDS[self.dtype]})"]
        if not scope.tiles["nn"] or self.pick(True, False):
            v = self.fresh("v")
            scope.tiles["nn"].append(v)
            turned = self.pick(False, False, True)
            width = -(-self.columns // self.unit) * self.unit
            name = "vt_desc" if turned else "v_desc"
            high = max(self.n, self.deep) if not turned else width
            across = width if not turned else -(-max(self.n, self.deep) // self.unit) * self.unit
            self.argument(name, Array((high, across), self.dtype, (self.n, self.n)))
            at = self.pick(*scope.offsets)
            where = f"col, {at}" if turned else f"{at}, col"
            lines.append(f"{v} = {name}.load([{where}]){'.T' if turned else ''}")
        v = self.pick(*scope.tiles["nn"])
        return [*lines, f"{acc} = tl.dot({p}, {v}, {acc})"]

    def add(self, scope: Scope) -> list[str]:
        """A tile of the result's shape, or the sums of an operand, added to an accumulator."""
        acc = self.pick(*self.accs)
        ways = ["tile", *(["rows"] if scope.tiles["mk"] else [])]
        ways += ["columns"] if scope.tiles["kn"] else []
        match self.pick(*ways):
            case "rows":
                x = self.pick(*scope.tiles["mk"])
                return [f"{acc} += tl.sum({x}.to(tl.float32), 1)[:, None]"]
            case "columns":
                x = self.pick(*scope.tiles["kn"])
                return [f"{acc} += tl.max({x}.to(tl.float32), 0)[None, :]"]
            case _:
                width = -(-self.columns // self.unit) * self.unit
                d = self.argument("d_desc", Array((self.rows, width), self.dtype, (self.m, self.n)))
                return [f"{acc} += {d}.load([row, col]).to(tl.float32)"]

    def reduce(self, scope: Scope) -> list[str]:
        """An accumulator from its own reduction, clamped: its registers are read in between."""
        acc, axis = self.pick(*self.accs), self.pick(1, 0)
        index = "[:, None]" if axis else "[None, :]"
        how = self.pick("tl.max", "tl.sum", "tl.min")
        return [f"{acc} = {self.clamp(f'{acc} - {how}({acc}, {axis}){index}')}"]

    def loop(self, scope: Scope) -> list[str]:
        inner = scope.inner()
        match self.pick("K", "K", "count", "data", "range", "while", "unrolled"):
            case "K":
                self.argument("K", self.deep)
                index = self.fresh("k")
                inner.offsets += [index, *([f"{index} + BK"] if self.pick(False, True) else [])]
                inner.counters.append(f"{index} // BK")
                stages = self.pick("", "", "", ", num_stages=1", ", num_stages=3")
                made = f"tl.range(0, K, BK{stages})" if stages else "range(0, K, BK)"
                head = f"for {index} in {made}:"
            case "count":
                index, trips = self.fresh("j"), self.argument(f"T{scope.depth}", self.pick(0, 1, 2))
                inner.offsets.append(f"{index} * BK")
                inner.counters.append(index)
                head = f"for {index} in range({self.pick('0', '0', '1')}, {trips}):"
            case "data":
                index, trips = self.fresh("j"), self.fresh("t")
                counts = self.argument("counts_ptr", Array((PROGRAMS,), "i32", (), 0, 3))
                inner.offsets.append(f"{index} * BK")
                inner.counters.append(index)
                axis = self.pick(0, 1)
                body = self.block(inner)
                return [
                    f"{trips} = tl.load({counts} + tl.program_id({axis}))",
                    f"for {index} in range(0, {trips}):",
                    *indented(body),
                ]
            case "range":
                index = self.fresh("j")
                inner.offsets.append(f"{index} * BK")
                inner.counters.append(index)
                head = f"for {index} in range(tl.program_id(0), 3, 2):"
            case "while":
                index, trips = self.fresh("w"), self.argument("T9", self.pick(0, 1, 3))
                inner.offsets.append(f"{index} * BK")
                body = self.block(inner)
                return [
                    f"{index} = 0",
                    f"while {index} < {trips}:",
                    *indented([*body, f"{index} += 1"]),
                ]
            case _:
                index = self.fresh("u")
                inner.offsets.append(f"{index} * BK")
                inner.depth = 3  # not many copies of more loops
                head = f"for {index} in tl.static_range({self.pick(2, 1, 3)}):"
        return [head, *indented(self.block(inner))]

    def branch(self, scope: Scope) -> list[str]:
        tests = ["flag > 0", "tl.program_id(0) == 0", "tl.load(counts_ptr) > 1"]
        tests += [f"{counter} % 2 == 0" for counter in scope.counters]
        tests += [f"{counter} >= 1" for counter in scope.counters]
        test = self.pick(*reversed(tests))
        if "flag" in test:
            self.argument("flag", self.pick(0, 1))
        if "counts_ptr" in test:
            self.argument("counts_ptr", Array((PROGRAMS,), "i32", (), 0, 3))
        lines = [f"if {test}:", *indented(self.block(scope.inner()))]
        if self.pick(False, True):
            lines += ["else:", *indented(self.block(scope.inner()))]
        return lines

    def store(self, scope: Scope) -> list[str]:
        """A store in a loop, to a place of its own for each of the first trips."""
        counter = self.pick(*scope.counters)
        self.stored = True
        width = -(-self.columns // 8) * 8
        rows = self.grid[0] * self.m
        more = self.argument("more_desc", Array((STORE_ROWS * rows, width), "f16",
                                                (self.m, self.n), 0, 0))  # fmt: skip
        value = f"{self.clamp(self.pick(*self.accs))}.to(tl.float16)"
        return [
            f"if {counter} < {STORE_ROWS}:",
            f"    {more}.store([({counter}) * {rows} + row, col], {value})",
        ]

    # --- the kernel -------------------------------------------------------------------------------

    def finish(self) -> list[str]:
        total = " + ".join(self.accs)
        out = self.pick("f32", "f16", "bf16")
        width = -(-self.columns // 8) * 8
        if self.often():
            c = self.argument("c_desc", Array((self.rows, width), out, (self.m, self.n), 0, 0))
            return [f"{c}.store([row, col], ({total}).to({WORDS[out]}))"]
        c = self.argument("c_ptr", Array((self.rows, width), out, (), 0, 0))
        self.argument("ldc", width)
        return [
            "om = row + tl.arange(0, BM)",
            "on = col + tl.arange(0, BN)",
            f"inside = (om[:, None] < {self.rows}) & (on[None, :] < {self.columns})",
            f"place = {c} + om[:, None] * ldc + on[None, :]",
            f"tl.store(place, ({total}).to({WORDS[out]}), mask=inside)",
        ]

    def kernel(self) -> tuple[str, dict[str, int]]:
        start = [
            "row = tl.program_id(0) * BM",
            "col = tl.program_id(1) * BN",
            *(f"{acc} = tl.zeros((BM, BN), dtype=tl.float32)" for acc in self.accs),
        ]
        scope = Scope({"mk": [], "kn": [], "nn": []}, ["0", "BK"], [])
        body = [*self.block(scope)]
        if not any("dot" in line for line in body):
            body += self.dot(scope)
        lines = indented([*start, *body, *self.finish()])
        constants = {"BM": self.m, "BN": self.n, "BK": self.k}
        text = "\n".join(lines)
        names = [*self.arguments, *(f"{name}: tl.constexpr" for name in constants)]
        return f"def kernel({', '.join(names)}):\n{text}\n", constants

    def options(self) -> dict[str, Any]:
        """Wishes and pins: most launches have few."""
        found: dict[str, Any] = {}
        menu: dict[str, tuple[Any, ...]] = {
            "num_stages": (2, 1, 3, 4, 5),
            "num_warps": (4, 8),
            "depth": (2, 1, 3, 4, 5),
            "mma_depth": (1, 2, 3),
            "consumers": (1, 2, 3),
            "specialize": (True, False),
            "persistent": (False, True),
            "schedule": ("fine", "coarse", "none"),
            "cluster": (2,),
            "arrangement": ("pingpong", "cooperative"),
            "store": ("registers", "tma"),
            "parts": (2, 4),
            "strict": (True,),
        }
        for _ in range(self.pick(0, 1, 1, 2, 3)):
            name = self.pick(*menu)
            found[name] = self.pick(*menu[name])
        return found


def indented(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


@st.composite
def cases(draw: Any) -> Case:
    """Kernels with arguments, a grid, options and a seed for data and schedules."""
    writer = Writer(draw)
    source, constants = writer.kernel()
    seed = draw(st.integers(0, 1 << 16))
    return Case(source, writer.arguments, constants, writer.grid, writer.options(), seed)
