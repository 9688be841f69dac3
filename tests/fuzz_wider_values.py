"""Random kernels of values, with more of what users write: see `fuzz_values` for the rest.

More element types, tensors of three dimensions from memory, gathers, pointers chosen by masks,
atomics whose old values are used, sorting, tuples, reductions of pairs, scalars, `while` loops.
"""

from __future__ import annotations

from math import prod

from fuzz_case import WORDS, Array, indented
from fuzz_values import ELEMENTS, Value, Writer

TABLE = 64  # words in the memory that gathers read


class WiderValues(Writer):
    """Writes one kernel; every choice is drawn."""

    def kinds(self) -> list[str]:
        more = ["gather", "gather", "chosen", "taken", "swapped", "sorted", "pair", "kept", "whole"]
        more += ["numbers", "wide", "cube", "concatenated", "bits"]
        return super().kinds() + more + (["repeat", "ladder"] if self.left > 2 else [])

    def whole_value(self, pool: list[Value]) -> Value | None:
        """An int32 tensor of the pool."""
        found = [v for v in pool if v.dtype == "i32"]
        return self.pick(*found[-6:]) if found else None

    # --- memory -----------------------------------------------------------------------------------

    def gather(self, pool: list[Value]) -> list[str]:
        """Elements at computed places."""
        v = self.whole_value(pool)
        if v is None:
            return self.load(pool)
        dtype = self.pick("f32", "i32", "f16", "bf16")
        table = self.argument(f"table_{dtype}_ptr", Array((TABLE,), dtype))
        mask = self.pick(
            "", f", mask={v.name} > 0, other={self.pick(0, 1)}", f", mask={v.name} > 1"
        )
        mask = mask if "other" in mask or not mask else mask + ", other=-1"
        text = f"tl.load({table} + ({v.name} & {TABLE - 1}){mask})"
        return self.made(pool, text, v.shape, dtype, near=False)

    def chosen(self, pool: list[Value]) -> list[str]:
        """Each element from one of two arrays, as a mask over pointers says."""
        v = self.of(pool)
        assert v is not None
        dtype = self.pick("f32", "i32", "f16")
        one, two = (
            self.argument(f"{name}_{dtype}_ptr", Array((prod(v.shape),), dtype))
            for name in ("one", "two")
        )
        at = f"tl.arange(0, {prod(v.shape)}).reshape({v.shape})"
        if len(v.shape) == 1:
            at = f"tl.arange(0, {v.shape[0]})"
        text = f"tl.load(tl.where({v.name} > 0, {one}, {two}) + {at})"
        return self.made(pool, text, v.shape, dtype, near=False)

    def cube(self, pool: list[Value]) -> list[str]:
        """A tensor of three dimensions, through a descriptor or pointers."""
        shape = (self.pick(2, 4), self.pick(4, 8, 16), self.pick(16, 32))
        dtype = self.pick("f32", "f16", "i32")
        tall = (shape[0] * self.grid[0], shape[1], shape[2])
        first = f"tl.program_id(0) * {shape[0]}"
        if self.pick(True, False):
            name = self.argument("cube_" + "x".join(map(str, shape)) + f"_{dtype}_desc",
                                 Array(tall, dtype, shape))  # fmt: skip
            return self.made(pool, f"{name}.load([{first}, 0, 0])", shape, dtype, near=False)
        name = self.argument("cube_" + "x".join(map(str, shape)) + f"_{dtype}_ptr",
                             Array(tall, dtype))  # fmt: skip
        i, j, k = self.fresh("i"), self.fresh("i"), self.fresh("i")
        place = f"({i} * {shape[1]} + {j}) * {shape[2]} + {k}"
        lines = [
            f"{i} = ({first} + tl.arange(0, {shape[0]}))[:, None, None]",
            f"{j} = tl.arange(0, {shape[1]})[None, :, None]",
            f"{k} = tl.arange(0, {shape[2]})[None, None, :]",
        ]
        mask = f"({j} < {shape[1] - self.pick(0, 1)}) & ({k} < {shape[2] - self.pick(0, 3)})"
        text = f"tl.load({name} + {place}, mask={mask}, other=0)"
        return [*lines, *self.made(pool, text, shape, dtype, near=False)]

    def slots(self, name: str, count: int, start: int) -> str:
        """Words of this program's own, and where they begin."""
        out = self.argument(name, Array((self.grid[0] * count,), "i32", (), 0, 0, start))
        return f"{out} + tl.program_id(0) * {count}"

    def taken(self, pool: list[Value]) -> list[str]:
        """The old values of atomics on words of the program's own, all different."""
        v = self.whole_value(pool)
        if v is None or len(v.shape) != 1:
            return self.gather(pool)
        at = f"{self.slots(f'own{v.shape[0]}_ptr', v.shape[0], 1)} + tl.arange(0, {v.shape[0]})"
        verb = self.pick("add", "max", "min", "and", "or", "xor", "xchg")
        mask = self.pick("", f", mask={v.name} >= 0") if verb != "xchg" else ""
        text = f"tl.atomic_{verb}({at}, {v.name}{mask})"
        if mask:  # what a masked atomic gives is not defined
            text = f"tl.where({v.name} >= 0, {text}, 0)"
        return self.made(pool, text, v.shape, "i32")

    def swapped(self, pool: list[Value]) -> list[str]:
        """The old values of compare-and-swap, of one word or a tensor of them."""
        v = self.whole_value(pool)
        if v is None:
            return self.load(pool)
        if len(v.shape) == 1:
            at = f"{self.slots(f'own{v.shape[0]}_ptr', v.shape[0], 1)} + tl.arange(0, {v.shape[0]})"
            text = f"tl.atomic_cas({at}, tl.full(({v.shape[0]},), 1, tl.int32), {v.name})"
            return self.made(pool, text, v.shape, "i32")
        at, old = self.slots("word_ptr", 1, 1), self.fresh("o")
        text = self.pick(f"tl.atomic_cas({at}, 1, 2)", f"tl.atomic_add({at}, 3)")
        return [f"{old} = {text}", *self.made(pool, f"{v.name} + {old}", v.shape, "i32")]

    def wide(self, pool: list[Value]) -> list[str]:
        """Elements of other types: 64, 16 and 8 bits, with and without sign."""
        rows, columns = self.size
        dtype = self.pick("i64", "i16", "u8", "u32", "u16", "i8")
        low = 0 if dtype.startswith("u") else -2
        name = self.argument(f"w_{dtype}_ptr", Array((rows, columns), dtype, (), low, 2))
        i, j = f"tl.arange(0, {rows})[:, None]", f"tl.arange(0, {columns})[None, :]"
        text = f"tl.load({name} + {i} * {columns} + {j})"
        how = self.pick("{0}", "{0} + {0}", "{0} * 3", "{0} >> 1", "{0} // 2", "tl.maximum({0}, 1)")
        value = self.fresh("w")
        lines = [f"{value} = {text}"]
        return lines + self.made(
            pool, f"({how.format(value)}).to(tl.int32)", (rows, columns), "i32"
        )

    # --- values -----------------------------------------------------------------------------------

    def sorted(self, pool: list[Value]) -> list[str]:
        v = self.of(pool)
        if v is None or v.shape[-1] > 64 or prod(v.shape) > 1024:
            return self.binary(pool)
        way = self.pick("sort", "down", "flip", "topk")
        match way:
            case "sort":
                return self.made(pool, f"tl.sort({v.name})", v.shape, v.dtype, near=False)
            case "down":
                text = f"tl.sort({v.name}, descending=True)"
                return self.made(pool, text, v.shape, v.dtype, near=False)
            case "topk" if v.shape[-1] >= 8 and len(v.shape) < 3:
                shape = (*v.shape[:-1], 4)
                return self.made(pool, f"tl.topk({v.name}, 4)", shape, v.dtype, near=False)
            case _:
                return self.made(pool, f"tl.flip({v.name})", v.shape, v.dtype, near=False)

    def pair(self, pool: list[Value]) -> list[str]:
        """Two values at once: extrema with places, reductions of pairs, a helper's tuple."""
        v = self.of(pool)
        assert v is not None
        one, two = self.fresh(), self.fresh()
        if len(v.shape) < 2 or v.dtype in ("f16", "bf16") or self.pick(True, False):
            w = self.pick(*[w for w in pool if w.shape == v.shape and w.dtype == v.dtype])
            pool += [Value(one, v.shape, v.dtype), Value(two, v.shape, v.dtype)]
            return [f"{one}, {two} = lib.ordered({v.name}, {w.name})"]
        axis = self.pick(*range(len(v.shape)))
        shape = v.shape[:axis] + v.shape[axis + 1 :]
        pool += [Value(one, shape, v.dtype), Value(two, shape, "i32")]
        if self.pick(True, False):
            how = self.pick("max", "min")
            lines = [f"{one}, {two} = tl.{how}({v.name}, {axis}, return_indices=True)"]
        else:
            index = [None if at != axis else slice(None) for at in range(len(v.shape))]
            text = ", ".join("None" if at is None else ":" for at in index)
            places = f"tl.broadcast_to(tl.arange(0, {v.shape[axis]})[{text}], {v.shape})"
            lines = [f"{one}, {two} = tl.reduce(({v.name}, {places}), {axis}, lib.later)"]
        return [*lines, f"{two} = {two} & 7"]

    def kept(self, pool: list[Value]) -> list[str]:
        """A reduction that keeps its dimension, taken from what was reduced."""
        v = self.of(pool, 2)
        if v is None or v.dtype == "bf16":
            return self.load(pool)
        axis = self.pick(*range(len(v.shape)))
        how = self.pick("tl.max({0}, {1}, keep_dims=True)", "tl.sum({0}, {1}, keep_dims=True)",
                        "tl.reduce({0}, {1}, lib.larger, keep_dims=True)",
                        "tl.argmin({0}, {1}, keep_dims=True)")  # fmt: skip
        text = f"({v.name} - {how.format(v.name, axis)}).to({WORDS[v.dtype]})"
        return self.made(pool, text, v.shape, v.dtype)

    def whole(self, pool: list[Value]) -> list[str]:
        """All elements reduced to a scalar, which a value then meets."""
        v, w = self.of(pool), self.of(pool)
        assert v is not None
        assert w is not None
        s = self.fresh("s")
        how = self.pick("tl.sum({0}.to(tl.int32))", "tl.max({0}.to(tl.float32))",
                        "tl.min({0}.to(tl.int32), axis=None)",
                        "tl.xor_sum(tl.ravel({0}.to(tl.int32)), 0)")  # fmt: skip
        text = f"({w.name} + {s}).to({WORDS[w.dtype]})"
        clamped = f"lib.near({how.format(v.name)}).to(tl.int32)"
        return [f"{s} = {clamped}", *self.made(pool, text, w.shape, w.dtype)]

    def numbers(self, pool: list[Value]) -> list[str]:
        """Random bits, and functions of bits."""
        v = self.whole_value(pool)
        if v is None:
            return self.load(pool)
        ways = ["(tl.randint(7, {0}) & 7).to(tl.int32)", "tl.umulhi({0}, 1 << 20)"]
        ways += ["tl.extra.libdevice.popc({0})", "tl.extra.libdevice.clz({0})"]
        ways += [
            "tl.extra.libdevice.ffs({0})",
            "tl.clamp({0}.to(tl.float32), -3.0, 5.0).to(tl.int32)",
        ]
        ways += ["tl.fma({0}.to(tl.float32), 2.0, 1.0).to(tl.int32)"]
        ways += ["tl.ceil({0}.to(tl.float32) * 0.5).to(tl.int32)", "tl.cdiv({0} & 63, 3)"]
        return self.made(pool, self.pick(*ways).format(v.name), v.shape, "i32")

    def bits(self, pool: list[Value]) -> list[str]:
        """The bits of floats as integers, and conditions as values."""
        v = self.of(pool)
        assert v is not None
        if v.dtype == "f32" and self.pick(True, False):
            text = f"({v.name}.to(tl.int32, bitcast=True) >> 23) & 15"
            return self.made(pool, text, v.shape, "i32")
        tests = ["({0} > 0) & ({0} < 3)", "({0} == 1) | ({0} == 2)", "~({0} > 0)"]
        test = self.pick(*tests, "({0} != 0) ^ ({0} > 1)")
        return self.made(pool, f"({test.format(v.name)}).to(tl.int32)", v.shape, "i32")

    def concatenated(self, pool: list[Value]) -> list[str]:
        v = self.of(pool)
        assert v is not None
        if len(v.shape) == 1 and v.shape[0] * 2 <= ELEMENTS:
            text = f"tl.cat({v.name}, {v.name} + 1, can_reorder=False)"
            return self.made(pool, text, (2 * v.shape[0],), v.dtype)
        if len(v.shape) < 3 and prod(v.shape) * 2 <= ELEMENTS:
            text = f"tl.join({v.name}, -{v.name})"
            return self.made(pool, text, (*v.shape, 2), v.dtype)
        return self.unary(pool)

    # --- control ----------------------------------------------------------------------------------

    def repeat(self, pool: list[Value]) -> list[str]:
        """A `while` loop that ends by what it computes."""
        v = self.of(pool)
        assert v is not None
        carried, index, limit = self.fresh("c"), self.fresh("w"), self.pick(1, 2, 4)
        inner = [*pool, Value(carried, v.shape, v.dtype)]
        body = self.statement(inner)
        found = [w for w in inner if w.shape == v.shape and w.dtype == v.dtype][-1]
        body += [f"{carried} = lib.near({carried} + {found.name})", f"{index} += 1"]
        pool.append(Value(carried, v.shape, v.dtype))
        tests = [f"{index} < {limit}"]
        tests += [f"({index} < {limit}) & (tl.max({carried}.to(tl.float32)) < 4)"]
        test = self.pick(*tests)
        return [f"{carried} = {v.name} * 1", f"{index} = 0", f"while {test}:", *indented(body)]

    def ladder(self, pool: list[Value]) -> list[str]:
        """A choice of three, of which one may do nothing; scalars are computed in it too."""
        v = self.of(pool)
        assert v is not None
        name, number = self.fresh("b"), self.fresh("n")
        self.argument("flag", self.pick(0, 1))
        lines = [f"{name} = {v.name} + 0", f"{number} = tl.program_id(0) % 3"]
        sides: list[list[str]] = []
        for step in range(2):
            inner = list(pool)
            body = self.statement(inner)
            found = [w for w in inner if w.shape == v.shape and w.dtype == v.dtype][-1]
            value = f"({found.name} + {number}).to({WORDS[v.dtype]})"
            sides.append(indented([*body, f"{name} = {value}", f"{number} += {step}"]))
        pool.append(Value(name, v.shape, v.dtype))
        cast = f"{name} = ({name} + {number}).to({WORDS[v.dtype]})"
        return [*lines, f"if {number} == flag:", *sides[0], f"elif {number} == 2:", *sides[1], cast]
