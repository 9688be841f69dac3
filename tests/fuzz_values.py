"""Random kernels of values: elements, shapes, reductions, scans, atomics; integers and floats.

A pool of tensors with known shapes and types; each statement makes one of those before, clamped, so
that sums are exact in every order.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from random import Random

from fuzz_case import WORDS, Array, Drawn, indented

ELEMENTS = 4096  # of a tensor, at most


@dataclass(frozen=True)
class Value:
    """A tensor: its name, shape and element type."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def whole(self) -> bool:
        """Whether it holds integers."""
        return self.dtype.startswith("i")


class Writer(Drawn):
    """Writes one kernel; every choice is drawn."""

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.left = 12  # statements
        self.grid = (self.pick(1, 2, 3), 1, 1)
        self.size = (self.pick(32, 64, 128, 16), self.pick(64, 32, 16, 128))

    def made(
        self, pool: list[Value], text: str, shape: tuple[int, ...], dtype: str, near: bool = True
    ) -> list[str]:
        """A statement that adds a value to the pool."""
        name = self.fresh()
        pool.append(Value(name, shape, dtype))
        return [f"{name} = lib.near({text})" if near else f"{name} = {text}"]

    def of(self, pool: list[Value], rank: int = 1, floats: bool = False) -> Value | None:
        """A value of at least that rank, if there is one."""
        found = [v for v in pool if len(v.shape) >= rank and not (floats and v.whole)]
        return self.pick(*found[-6:]) if found else None

    # --- statements -------------------------------------------------------------------------------

    def load(self, pool: list[Value]) -> list[str]:
        rows, columns = self.size
        dtype = self.pick("f32", "f16", "i32", "bf16", "f8e5m2", "i8")
        where = f"tl.program_id(0) * {rows}"
        tall = self.grid[0] * rows
        if self.pick(True, False):
            desc = Array((tall, columns), dtype, (rows, columns))
            name = self.argument(f"x_{dtype}_desc", desc)
            text = f"{name}.load([{where}, 0])"
        else:
            name = self.argument(f"x_{dtype}_ptr", Array((tall, columns), dtype))
            text = f"lib.tile_of({name}, {where} + tl.arange(0, {rows}), tl.arange(0, {columns}), "
            text += f"{columns}, {tall - self.pick(0, 0, 3)}, {columns - self.pick(0, 0, 5)})"
        if dtype.startswith("f8"):
            text, dtype = f"{text}.to(tl.float32)", "f32"
        if dtype == "i8":
            text, dtype = f"{text}.to(tl.int32)", "i32"
        return self.made(pool, text, (rows, columns), dtype, near=False)

    def unary(self, pool: list[Value]) -> list[str]:
        v = self.of(pool)
        assert v is not None
        ways = ["-{0}", "{0} * 3", "tl.abs({0})", "{0} + 1", "lib.steps({0}, 2)"]
        if v.whole:
            ways += ["{0} & 5", "{0} ^ 3", "{0} // 2", "{0} % 3", "({0} << 1)", "{0} >> 1", "~{0}"]
        else:
            ways += ["tl.where({0} > 0, {0}, 2.0)", "tl.floor({0}.to(tl.float32) * 0.5)"]
        text = f"({self.pick(*ways).format(v.name)}).to({WORDS[v.dtype]})"
        return self.made(pool, text, v.shape, v.dtype)

    def binary(self, pool: list[Value]) -> list[str]:
        v = self.of(pool)
        assert v is not None
        others = [w for w in pool if w.shape == v.shape and w.dtype == v.dtype]
        w = self.pick(*others)
        ways = [
            "{0} + {1}",
            "{0} - {1}",
            "{0} * {1}",
            "tl.minimum({0}, {1})",
            "lib.larger({0}, {1})",
        ]
        ways += [
            "tl.where({0} > {1}, {0}, {1} - 1)",
            "tl.where(({0} == {1}) | ({1} < 0), {1}, {0})",
        ]
        return self.made(pool, self.pick(*ways).format(v.name, w.name), v.shape, v.dtype)

    def cast(self, pool: list[Value]) -> list[str]:
        v = self.of(pool)
        assert v is not None
        to = self.pick("f32", "i32", "f16", "bf16")
        return self.made(pool, f"{v.name}.to({WORDS[to]})", v.shape, to, near=False)

    def reduce(self, pool: list[Value]) -> list[str]:
        v = self.of(pool, 2)
        if v is None:
            return self.load(pool)
        axis = self.pick(*range(len(v.shape)))
        shape = v.shape[:axis] + v.shape[axis + 1 :]
        dtype = v.dtype if v.dtype != "bf16" else "f32"
        ways = ["tl.sum({0}, {1})", "tl.max({0}, axis={1})", "tl.min({0}, {1})"]
        ways += ["tl.reduce({0}, {1}, lib.total)"]
        if v.whole:
            ways += ["tl.xor_sum({0}, {1})"]
        how = self.pick(*ways, "tl.argmax({0}, {1})", "tl.argmin({0}, {1})").format(v.name, axis)
        kind = "i32" if "arg" in how else dtype
        lines = self.made(pool, f"{how}.to({WORDS[kind]})", shape, kind)
        if self.pick(True, False):
            index = ", ".join("None" if at == axis else ":" for at in range(len(v.shape)))
            r = pool[-1].name
            lines += self.made(pool, f"({v.name} - {r}[{index}]).to(tl.float32)", v.shape, "f32")
        return lines

    def scan(self, pool: list[Value]) -> list[str]:
        v = self.of(pool)
        assert v is not None
        v = Value(f"{v.name}.to(tl.float32)", v.shape, "f32") if v.dtype == "bf16" else v
        axis = self.pick(*range(len(v.shape)))
        ways = ["tl.cumsum({0}, {1})", "tl.cumsum({0}, {1}, reverse=True)"]
        ways += ["tl.associative_scan({0}, {1}, lib.larger)"]
        text = self.pick(*ways).format(v.name, axis)
        return self.made(pool, f"{text}.to({WORDS[v.dtype]})", v.shape, v.dtype)

    def reshape(self, pool: list[Value]) -> list[str]:
        v = self.of(pool)
        assert v is not None
        ways = ["flat", "expand", "apart"]
        ways += ["trans", "trans", "join", "halves"] if len(v.shape) == 2 else []
        match self.pick(*ways):
            case "trans":
                return self.made(pool, f"tl.trans({v.name})", v.shape[::-1], v.dtype, near=False)
            case "flat":
                return self.made(pool, f"{v.name}.reshape({prod(v.shape)})", (prod(v.shape),),
                                 v.dtype, near=False)  # fmt: skip
            case "apart" if len(v.shape) < 3 and v.shape[0] >= 4:
                shape = (2, v.shape[0] // 2, *v.shape[1:])
                lines = self.made(
                    pool, f"tl.reshape({v.name}, {shape})", shape, v.dtype, near=False
                )
                order = self.pick(*((0, 2, 1), (1, 0, 2), (2, 1, 0))) if len(shape) == 3 else (1, 0)
                turned = tuple(shape[at] for at in order)
                text = f"tl.permute({pool[-1].name}, {order})"
                return [*lines, *self.made(pool, text, turned, v.dtype, near=False)]
            case "join" if prod(v.shape) < ELEMENTS:
                text = f"tl.interleave({v.name}, {v.name} + 1)"
                return self.made(pool, text, (v.shape[0], v.shape[1] * 2), v.dtype)
            case "halves" if v.shape[1] >= 4:
                one, other = self.fresh(), self.fresh()
                shape = (v.shape[0], v.shape[1] // 2)
                pool += [Value(one, shape, v.dtype), Value(other, shape, v.dtype)]
                return [f"{one}, {other} = lib.halves({v.name}, {v.shape[0]}, {v.shape[1]})"]
            case _:
                rows = self.pick(1, 2, 4) if prod(v.shape) * 4 <= ELEMENTS else 1
                shape = (rows, *v.shape)
                text = f"tl.broadcast_to(tl.expand_dims({v.name}, 0), {shape})"
                if len(shape) > 3:
                    return self.unary(pool)
                return self.made(pool, text, shape, v.dtype, near=False)

    def dot(self, pool: list[Value]) -> list[str]:
        """A small product, or one for each matrix of a batch."""
        v = self.of(pool, 2, floats=True)
        if v is None or min(v.shape[-2:]) < 16 or (len(v.shape) == 3 and v.shape[0] > 4):
            return self.binary(pool)
        turned = f"tl.trans({v.name})" if len(v.shape) == 2 else f"tl.permute({v.name}, (0, 2, 1))"
        shape = (*v.shape[:-1], v.shape[-2])
        return self.made(pool, f"tl.dot({v.name}, {turned})", shape, "f32")

    def loop(self, pool: list[Value]) -> list[str]:
        """A value that is carried; what the body makes stays inside."""
        v = self.of(pool)
        assert v is not None
        carried, index = self.fresh("c"), self.fresh("j")
        inner = [*pool, Value(carried, v.shape, v.dtype)]
        body = [line for _ in range(2) for line in self.statement(inner)]
        found = [w for w in inner if w.shape == v.shape and w.dtype == v.dtype][-1]
        body.append(f"{carried} = lib.near({carried} + {found.name})")
        count = self.pick(self.argument("T", self.pick(0, 1, 2, 3)), "2", "tl.program_id(0) + 1")
        pool.append(Value(carried, v.shape, v.dtype))
        head = f"for {index} in range(0, {count}):"
        return [f"{carried} = {v.name} * 1", head, *indented(body)]

    def branch(self, pool: list[Value]) -> list[str]:
        v = self.of(pool)
        assert v is not None
        name = self.fresh("b")
        sides: list[list[str]] = []
        for _ in range(2):
            inner = list(pool)
            lines = self.statement(inner)
            found = [w for w in inner if w.shape == v.shape and w.dtype == v.dtype][-1]
            sides.append(indented([*lines, f"{name} = {found.name} + {self.pick(0, 1)}"]))
        pool.append(Value(name, v.shape, v.dtype))
        test = self.pick("flag > 0", "tl.program_id(0) == 1", f"tl.max({v.name}) > 3")
        if "flag" in test:
            self.argument("flag", self.pick(0, 1))
        if len(v.shape) > 1:
            test = test.replace(f"tl.max({v.name})", f"tl.max({v.name}.reshape({prod(v.shape)}))")
        return [f"if {test}:", *sides[0], "else:", *sides[1]]

    def statement(self, pool: list[Value]) -> list[str]:
        self.left -= 1
        return getattr(self, self.pick(*self.kinds()))(pool)

    def kinds(self) -> list[str]:
        """The names of the statements to draw from."""
        kinds = ["unary", "binary", "binary", "cast", "reduce", "reduce", "scan", "reshape"]
        kinds += ["reshape", "dot", "load"]
        return [*kinds, "loop", "branch"] if self.left > 2 else kinds

    def store(self, value: Value, number: int) -> list[str]:
        """One result of all programs, each its own part; or sums over the programs."""
        count, dtype = prod(value.shape), value.dtype
        flat = f"{value.name}.reshape({count})" if len(value.shape) > 1 else value.name
        at = f"tl.arange(0, {count})"
        if dtype in ("i32", "f32") and self.pick(True, False, False):
            out = self.argument(f"y{number}_ptr", Array((count,), dtype, (), 0, 0, 0))
            verb = self.pick("add", "max", "add", *(["or", "xor"] if value.whole else []))
            return [f"tl.atomic_{verb}({out} + {at}, {flat}, mask={at} < {count - 2})"]
        out = self.argument(f"y{number}_ptr", Array((self.grid[0] * count,), dtype, (), 0, 0))
        mask = f"{at} < {count - self.pick(0, 0, 1)}"
        return [f"tl.store({out} + tl.program_id(0) * {count} + {at}, {flat}, mask={mask})"]

    def kernel(self) -> tuple[str, dict[str, int]]:
        """The source and its constants."""
        pool: list[Value] = []
        lines = self.load(pool)
        for _ in range(self.pick(2, 4, 6, 8)):
            lines += self.statement(pool)
        last = pool[-1]
        for number, value in enumerate(dict.fromkeys([last, self.pick(*pool), self.pick(*pool)])):
            lines += self.store(value, number)
        return f"def kernel({', '.join(self.arguments)}):\n" + "\n".join(indented(lines)) + "\n", {}
