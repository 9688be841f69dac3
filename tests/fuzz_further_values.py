"""Random kernels of values, with more still: see `fuzz_values`, `fuzz_wider_values` for the rest.

Quotients of negative and unsigned numbers, of narrow types too, that become places in memory; the
old values of atomics as places (histograms, tickets for programs); rows gathered and scattered by
descriptors; masked loads whose other value is a tensor; 64-bit places; loops that count down,
narrow counters, branches on constants, helpers with several returns, returns before the last store.
"""

from __future__ import annotations

from math import prod
from random import Random

from fuzz_case import WORDS, Array, headed, indented
from fuzz_values import ELEMENTS, Value
from fuzz_wider_values import TABLE, WiderValues

BINS = 8
DIVISORS = ("2", "3", "-2", "-3", "-5", "7", "4")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")


class FurtherValues(WiderValues):
    """Writes one kernel; every choice is drawn."""

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.known: dict[str, int] = {}  # constants of the kernel's own
        self.stores = 0

    def kinds(self) -> list[str]:
        more = ["divided", "divided", "divided", "unsigned", "placed", "placed", "binned", "rows"]
        more += ["binned", "far", "picked", "returned", "scalar"]
        more += ["backwards", "narrow", "decided"] if self.left > 2 else []
        return super().kinds() + more

    def divisor(self, pool: list[Value], shape: tuple[int, ...]) -> str:
        """A divisor of either sign: a constant, an argument, or the numbers of a tensor."""
        others = [f"({v.name} | 1)" for v in pool if v.shape == shape and v.dtype == "i32"]
        found = self.pick(*DIVISORS, "D", "D", *others[-2:])
        if found == "D":
            self.argument("D", self.pick(-3, -2, 2, 3))
        return found

    # --- numbers ----------------------------------------------------------------------------------

    def divided(self, pool: list[Value]) -> list[str]:
        """Quotients and remainders of numbers of either sign."""
        v = self.whole_value(pool)
        if v is None:
            return self.wide(pool)
        value = f"({v.name} * {self.pick(1, 3, -5)} - {self.pick(0, 1, 4)})"
        if self.pick(True, False, False):
            value = f"{value}.to(tl.{self.pick(*SIGNED)})"
        how = self.pick("{0} // {1}", "{0} % {1}", "{0} // {1} * {1} - {0}", "({0} % {1}) // 2",
                        "tl.cdiv({0}, 3)", "{0} >> 1", "({0} // {1}) % 3")  # fmt: skip
        text = how.format(value, self.divisor(pool, v.shape))
        return self.made(pool, f"({text}).to(tl.int32)", v.shape, "i32")

    def unsigned(self, pool: list[Value]) -> list[str]:
        """Numbers without sign: what is below zero is large."""
        v = self.whole_value(pool)
        if v is None:
            return self.wide(pool)
        value = f"{v.name}.to(tl.{self.pick(*UNSIGNED)})"
        how = self.pick("{0} // 3", "{0} % 5", "{0} >> 3", "tl.maximum({0}, 2)", "{0} * 7 // 9",
                        "tl.where({0} > 5, {0} % 7, {0})", "{0} - 3", "{0}.to(tl.float32) * 0.5",
                        "tl.minimum({0}, 200) // 50")  # fmt: skip
        kind = self.pick("tl.int32", "tl.float32")
        if "float32" in how or kind == "tl.float32":
            # A float beyond int32 has no number there: hardware and hosts differ.
            return self.made(pool, f"lib.near(({how.format(value)}).to(tl.float32)).to(tl.int32)",
                             v.shape, "i32")  # fmt: skip
        return self.made(pool, f"({how.format(value)}).to({kind})", v.shape, "i32")

    def scalar(self, pool: list[Value]) -> list[str]:
        """A scalar of either sign, from memory or a reduction; it divides, or chooses a place."""
        v, s = self.whole_value(pool), self.fresh("s")
        if v is None:
            return self.wide(pool)
        kind = self.pick("i8", "u8", "i16", "u32", "i64")
        words = self.argument(f"words_{kind}_ptr", Array((8,), kind, (), 0, 3))
        more = self.pick("", ", volatile=True", ", mask=tl.program_id(0) > 0, other=2")
        cast = ".to(tl.int32)" if kind.startswith("u") else ""  # they do not divide signed ones
        text = self.pick(f"tl.load({words} + tl.program_id(0){more}){cast}",
                         f"lib.near(tl.sum({v.name}) - 9) // {self.divisor(pool, ())}",
                         f"(tl.program_id(0) * 3 - 4) % {self.divisor(pool, ())}")  # fmt: skip
        value = self.pick("{0} * {1}", "({0} - 3) // ({1} | 1)", "{0} % ({1} | 1)",
                          "tl.where({1} > 0, {0}, {1})").format(v.name, s)  # fmt: skip
        made = self.made(pool, f"({value}).to(tl.int32)", v.shape, "i32")
        return [f"{s} = {text}", *made]

    # --- memory -----------------------------------------------------------------------------------

    def placed(self, pool: list[Value]) -> list[str]:
        """Elements at places before and after a pointer; a tensor where a condition fails."""
        v = self.whole_value(pool)
        if v is None:
            return self.load(pool)
        dtype = self.pick("f32", "i32", "f16", "bf16")
        table = self.argument(f"table_{dtype}_ptr", Array((TABLE,), dtype))
        place = f"({v.name} - 3) % {self.divisor(pool, v.shape)}"
        place = self.pick(place, f"{place}.to(tl.int64)" if place.isidentifier() else place,
                          f"lib.near({v.name}) // {self.pick('-2', '3')}")  # fmt: skip
        others = [w.name for w in pool if w.shape == v.shape and w.dtype == dtype]
        mask = self.pick("", f", mask={v.name} > 0, other={self.pick(0, -1, *others)}")
        text = f"tl.load({table} + {TABLE // 2} + lib.near({place}){mask})"
        return self.made(pool, text, v.shape, dtype, near=False)

    def binned(self, pool: list[Value]) -> list[str]:
        """A histogram: old counts are places in its bins, which hold their own numbers alone."""
        v, b, p = self.whole_value(pool), self.fresh("b"), self.fresh("p")
        if v is None:
            return self.gather(pool)
        count, mine = prod(v.shape), self.pick(True, False)
        size = count * (1 if mine else self.grid[0])
        stem = "own" if mine else "all"
        if mine:
            counts = self.slots(f"own{count}_counts_ptr", BINS, 0)
        else:
            counts = self.argument(f"all{count}_counts_ptr", Array((BINS,), "i32", (), 0, 0, 0))
        bins = self.argument(
            f"{stem}{count}_bins_ptr",
            Array(((self.grid[0] if mine else 1) * BINS * size,), "i32", (), 0, 0),
        )
        first = f"tl.program_id(0) * {BINS}" if mine else "0"
        lines = [
            f"{b} = {v.name} & {BINS - 1}",
            f"{p} = tl.atomic_add({counts} + {b}, 1)",
            f"tl.store({bins} + ({first} + {b}) * {size} + {p}, {b}, mask={p} < {size})",
        ]
        if not mine:
            return lines
        # Which of equals comes first is open; the sum of all places is not.
        text = f"{v.name} + (tl.sum({p}.reshape({count})) & 7)"
        return [*lines, *self.made(pool, text, v.shape, "i32")]

    def rows(self, pool: list[Value]) -> list[str]:
        """Rows that a descriptor gathers, a few of them outside."""
        tall, width, dtype = 9, self.pick(16, 32), self.pick("f32", "f16", "i32")
        found = [v for v in pool if v.dtype == "i32" and len(v.shape) == 1]
        vectors = [v for v in found if 8 <= v.shape[0] <= ELEMENTS // width]
        count, rows = 16, "((tl.arange(0, 16) * 5 - 20) // 3)"
        if vectors:
            v = self.pick(*vectors)
            count, rows = v.shape[0], f"({v.name} {self.pick('+ 2', '% 5', '// 2', '& 7')})"
        desc = Array((tall, 2 * width), dtype, (1, width))
        name = self.argument(f"rows_{dtype}{width}_desc", desc)
        at = self.pick("0", str(width), "-8", "tl.program_id(0) * 8")
        text = f"{name}.gather({rows}, {at})"
        return self.made(pool, text, (count, width), dtype, near=False)

    def far(self, pool: list[Value]) -> list[str]:
        """Places that are sums of 64 bits."""
        v = self.whole_value(pool)
        if v is None:
            return self.load(pool)
        big = self.argument("BIG", 1 << 33)
        table = self.argument("table_f32_ptr", Array((TABLE,), "f32"))
        place = self.pick(
            "({1} + ({0} & 7)) % {1}",
            "({1} * ({0} & 3)) // {1}",
            "({0} & 7) + {1} - {1}",
            "((({0} - 8).to(tl.int64) + {1} * 2) % {1} & 15)",
        )
        text = f"tl.load({table} + {place.format(v.name, big)})"
        return self.made(pool, text, v.shape, "f32", near=False)

    def picked(self, pool: list[Value]) -> list[str]:
        """Elements of a tensor by numbers of a tensor."""
        v = self.of(pool)
        assert v is not None
        axis = self.pick(*range(len(v.shape)))
        found = [w for w in pool if w.shape == v.shape and w.dtype == "i32"]
        if not found or len(v.shape) > 2:
            return self.divided(pool)
        text = (
            f"tl.gather({v.name}, {self.pick(*found).name} & {min(v.shape[axis], 8) - 1}, {axis})"
        )
        return self.made(pool, text, v.shape, v.dtype, near=False)

    # --- control ----------------------------------------------------------------------------------

    def carried(self, pool: list[Value]) -> tuple[str, str, list[str], str]:
        """A value that a loop carries: its name, how it begins, the body, what to add."""
        v = self.of(pool)
        assert v is not None
        name = self.fresh("c")
        inner = [*pool, Value(name, v.shape, v.dtype)]
        body = self.statement(inner)
        found = [w for w in inner if w.shape == v.shape and w.dtype == v.dtype][-1]
        pool.append(Value(name, v.shape, v.dtype))
        return name, v.name, body, f"lib.near(({name} + {found.name} * {{0}}).to({WORDS[v.dtype]}))"

    def backwards(self, pool: list[Value]) -> list[str]:
        name, start, body, value = self.carried(pool)
        index = self.fresh("d")
        if self.pick(True, False):
            bounds = f"{self.argument('T', self.pick(0, 1, 2, 3))}, {self.pick(-1, -3)}, -2"
        else:
            bounds = self.pick("2, -1, -1", "tl.program_id(0), -3, -2", "1, -6, -3")
        body.append(f"{name} = {value.format(index)}")
        head = f"for {index} in range({bounds}):"
        return [f"{name} = {start} * 1", head, *indented(body)]

    def narrow(self, pool: list[Value]) -> list[str]:
        """A counter of a narrow type, which may wrap, ends a loop or meets its values."""
        name, start, body, value = self.carried(pool)
        index, kind = self.fresh("n"), self.pick("int8", "uint8", "int16", "uint16", "uint32")
        first = self.pick("tl.program_id(0)", "250", "-1") if kind != "uint32" else "5"
        lines = [f"{name} = {start} * 1", f"{index} = tl.cast({first}, tl.{kind})"]
        body.append(f"{name} = {value.format(f'({index} // 3 % 4).to(tl.int32)')}")
        if self.pick(True, False):
            head, step = f"for {self.fresh('j')} in range(0, 3):", f"{index} += 77"
        else:
            head, step = f"while {index} % 4 != 0:", f"{index} += 1"
        return [*lines, head, *indented([*body, step])]

    def decided(self, pool: list[Value]) -> list[str]:
        """A branch on a constant, or on a constant and a number."""
        v, name = self.of(pool), self.fresh("k")
        assert v is not None
        self.known["WIDE"] = self.known.get("WIDE", self.pick(0, 1))
        test = self.pick(
            "WIDE", "WIDE and tl.program_id(0) > 0", "not WIDE or tl.program_id(0) > 0"
        )
        inner = list(pool)
        body = self.statement(inner)
        found = [w for w in inner if w.shape == v.shape and w.dtype == v.dtype][-1]
        pool.append(Value(name, v.shape, v.dtype))
        return [
            f"{name} = {v.name} + 0",
            f"if {test}:",
            *indented([*body, f"{name} = lib.near({found.name} + 1).to({WORDS[v.dtype]})"]),
        ]

    def returned(self, pool: list[Value]) -> list[str]:
        """Helpers that return early: by a number, or by a constant."""
        v, n = self.of(pool), self.fresh("n")
        assert v is not None
        low, high = ("-4", "4") if v.whole else ("-4.0", "4.0")
        if self.pick(True, False):
            text = f"lib.by_mode({v.name}, {low}, {high}, {self.pick(0, 1, 2)})"
            return self.made(pool, f"({text}).to({WORDS[v.dtype]})", v.shape, v.dtype)
        one = self.fresh()
        call = f"{one}, {n} = lib.bounded({v.name}, {low}, {high}, tl.program_id(0) + 1)"
        return [call, *self.made(pool, f"({one} + {n}).to({WORDS[v.dtype]})", v.shape, v.dtype)]

    # --- results ----------------------------------------------------------------------------------

    def store(self, value: Value, number: int) -> list[str]:
        self.stores += 1
        lines: list[str] = []
        if self.stores > 1 and self.pick(True, *[False] * 3):
            flag = self.argument("flag", self.pick(0, 1))
            test = self.pick(f"{flag} > 0", "tl.program_id(0) == 1")
            lines = [f"if {test}:", "    return"]
        plain = value.dtype in ("f32", "f16", "i32")
        if (
            len(value.shape) == 2
            and value.shape[0] >= 8
            and plain
            and self.pick(True, False, False)
        ):
            rows, columns = value.shape
            if columns >= 16:
                tall = self.grid[0] * rows
                out = Array((tall, columns), value.dtype, (1, columns), 0, 0)
                desc = self.argument(f"y{number}_desc", out)
                place = f"tl.program_id(0) * {rows} + {rows - 1} - tl.arange(0, {rows})"
                return [*lines, f"{desc}.scatter({value.name}, {place}, 0)"]
        return [*lines, *super().store(value, number)]

    def kernel(self) -> tuple[str, dict[str, int]]:
        source, _ = super().kernel()
        lines = source.splitlines()[1:]
        if self.pick(True, False, False):  # programs take their numbers themselves
            words = self.argument("tickets_ptr", Array((1,), "i32", (), 0, 0, 0))
            lines = [line.replace("tl.program_id(0)", "mine") for line in lines]
            lines = [f"    mine = tl.atomic_add({words}, 1)", *lines]
        return headed(lines, self.arguments, self.known), self.known
