"""Kernels in tile IR, one for each shape of program: what the middle end is tested on.

All tiles are 16 x 16, f16 in memory and f32 in products; every kernel stores to `out`.
`inputs(name, seed)` gives fresh arguments of small integers, so that every order of sums is exact.
"""

from __future__ import annotations

from dataclasses import dataclass

T = "tensor<16x16xf16>"
F = "tensor<16x16xf32>"
D = f"!tile.desc<{T}>"
P = "!tile.ptr<i32>"


def load(result: str, desc: str, i: str, j: str) -> str:
    return f"%{result} = tile.desc_load %{desc}[%{i}, %{j}] : ({D}, i32, i32) -> {T}"


def store(desc: str, i: str, j: str, value: str) -> str:
    return f"tile.desc_store %{desc}[%{i}, %{j}], %{value} : {D}, i32, i32, {T}"


def dot(result: str, a: str, b: str, acc: str) -> str:
    return (
        f'%{result} = tile.dot %{a}, %{b}, %{acc} {{precision = "tf32", '
        f"max_imprecise = #builtin.int<0>}} : ({T}, {T}, {F}) -> {F}"
    )


def half(result: str, value: str) -> str:
    return f"%{result} = tile.cast %{value} : ({F}) -> {T}"


def full(result: str, value: str) -> str:
    return f"%{result} = tile.cast %{value} : ({T}) -> {F}"


def op(result: str, function: str, *inputs: str, kind: str = "i32", to: str = "") -> str:
    kinds = ", ".join([kind] * len(inputs))
    names = ", ".join(f"%{name}" for name in inputs)
    return f'%{result} = tile.elementwise "{function}"({names}) : ({kinds}) -> {to or kind}'


def number(result: str, value: int, kind: str = "i32") -> str:
    return f"%{result} = tile.constant {{value = #builtin.int<{value}>}} : {kind}"


def scalar_load(result: str, pointer: str) -> str:
    return (
        f'%{result} = "tile.load"(%{pointer}) '
        f"{{operandSegmentSizes = array<i32: 1, 0, 0>}} : ({P}) -> i32"
    )


def atomic_add(result: str, pointer: str, value: str, order: str) -> str:
    return (
        f'%{result} = "tile.atomic"(%{pointer}, %{value}) {{function = "add", order = "{order}", '
        f'scope = "gpu"}} : ({P}, i32) -> i32'
    )


SETUP = [
    number("c0", 0),
    number("c16", 16),
    number("zero", 0, F),
    "%pid = tile.program_id {axis = #builtin.int<0>} : i32",
    op("m", "mul", "pid", "c16"),
]


def loop(
    body: list[str],
    *,
    index: str = "k",
    first: str = "c0",
    end: str = "K",
    carry: dict[str, tuple[str, str]] | None = None,
    kind: str = F,
) -> list[str]:
    """`carry` maps a result to (argument, initial value); the body ends with its own yield."""
    carry = carry or {}
    head = f"scf.for %{index} = %{first} to %{end} step %c16"
    if carry:
        results = ", ".join(f"%{name}" for name in carry)
        pairs = ", ".join(f"%{argument} = %{init}" for argument, init in carry.values())
        kinds = ", ".join([kind] * len(carry))
        head = f"{results} = {head} iter_args({pairs}) -> ({kinds})"
    return [f"{head} : i32 {{", *body, "}"]


def give(*values: str, kind: str = F) -> str:
    return f"scf.yield {', '.join(f'%{v}' for v in values)} : {', '.join([kind] * len(values))}"


def when(
    condition: str, body: list[str], result: str = "", other: list[str] | None = None
) -> list[str]:
    head = f"%{result} = scf.if %{condition} -> ({F}) {{" if result else f"scf.if %{condition} {{"
    return [head, *body, *(["} else {", *other] if other else []), "}"]


@dataclass(frozen=True)
class Shape:
    """A kernel's arguments (name -> type) and body, and the grid it is run on."""

    arguments: dict[str, str]
    body: tuple[str, ...]
    grid: tuple[int, int, int] = (3, 1, 1)

    def text(self, name: str) -> str:
        arguments = ", ".join(f"%{n} : {kind}" for n, kind in self.arguments.items())
        facts = ", ".join(f'{{name = "{n}"}}' for n in self.arguments)
        lines = "\n".join(self.body)
        return (
            f'"tile.kernel"() ({{\n^bb0({arguments}):\n{lines}\n}}) '
            f'{{sym_name = "{name}", arguments = [{facts}], options = {{}}}} : () -> ()'
        )


def shape(arguments: str, *body: str | list[str], grid: tuple[int, int, int] = (3, 1, 1)) -> Shape:
    """Arguments: names of descriptors, then ``K`` for an i32, ``*n`` for a pointer to i32."""
    kinds: dict[str, str] = {}
    for name in arguments.split():
        if name.startswith("*"):
            kinds[name[1:]] = P
        else:
            kinds[name] = "i32" if name.isupper() else D
    lines = list(SETUP)
    for item in body:
        lines.extend([item] if isinstance(item, str) else item)
    return Shape(kinds, tuple(lines), grid)


def finish(value: str = "acc") -> list[str]:
    return [half("result", value), store("out", "m", "c0", "result")]


SHAPES: dict[str, Shape] = {
    "gemm": shape(
        "x y out K",
        loop(
            [
                load("a", "x", "m", "k"),
                load("b", "y", "k", "c0"),
                dot("acc2", "a", "b", "acc1"),
                give("acc2"),
            ],
            carry={"acc": ("acc1", "zero")},
        ),
        finish(),
    ),
    "two dots in one loop": shape(
        "x y z out out2 K",
        loop(
            [
                load("a", "x", "m", "k"),
                load("b", "y", "k", "c0"),
                load("c", "z", "k", "c0"),
                dot("p2", "a", "b", "p1"),
                dot("q2", "a", "c", "q1"),
                give("p2", "q2"),
            ],
            carry={"p": ("p1", "zero"), "q": ("q1", "zero")},
        ),
        finish("p"),
        half("result2", "q"),
        store("out2", "m", "c0", "result2"),
    ),
    "two dots in sequence": shape(  # attention without the softmax
        "x y z out K",
        load("q", "x", "m", "c0"),
        loop(
            [
                load("kt", "y", "k", "c0"),
                "%kv = tile.transpose %kt {permutation = [#builtin.int<1>, #builtin.int<0>]} : "
                f"({T}) -> {T}",
                dot("s", "q", "kv", "zero"),
                half("p", "s"),
                load("v", "z", "k", "c0"),
                dot("acc2", "p", "v", "acc1"),
                give("acc2"),
            ],
            carry={"acc": ("acc1", "zero")},
        ),
        finish(),
    ),
    "load used by a dot and by arithmetic": shape(
        "x y out K",
        loop(
            [
                load("a", "x", "m", "k"),
                load("b", "y", "k", "c0"),
                dot("d", "a", "b", "acc1"),
                full("af", "a"),
                op("acc2", "add", "d", "af", kind=F),
                give("acc2"),
            ],
            carry={"acc": ("acc1", "zero")},
        ),
        finish(),
    ),
    "loop-invariant load": shape(
        "x y out K",
        loop(
            [
                load("a", "x", "m", "c0"),
                load("b", "y", "k", "c0"),
                dot("acc2", "a", "b", "acc1"),
                give("acc2"),
            ],
            carry={"acc": ("acc1", "zero")},
        ),
        finish(),
    ),
    "two loops sharing a load": shape(
        "x y z out K",
        load("q", "x", "m", "c0"),
        loop(
            [load("b", "y", "k", "c0"), dot("acc2", "q", "b", "acc1"), give("acc2")],
            carry={"acc": ("acc1", "zero")},
        ),
        loop(
            [load("c", "z", "k2", "c0"), dot("sum2", "q", "c", "sum1"), give("sum2")],
            index="k2",
            carry={"sum": ("sum1", "acc")},
        ),
        finish("sum"),
    ),
    "three nested loops": shape(
        "x y out K L",
        loop(
            [
                *loop(
                    [
                        load("w", "x", "i", "j"),
                        *loop(
                            [
                                load("a", "x", "m", "k"),
                                load("b", "y", "k", "j"),
                                dot("acc2", "a", "b", "acc1"),
                                dot("acc3", "w", "b", "acc2"),
                                give("acc3"),
                            ],
                            carry={"in3": ("acc1", "in1")},
                        ),
                        give("in3"),
                    ],
                    index="j",
                    end="L",
                    carry={"in2": ("in1", "out1")},
                ),
                give("in2"),
            ],
            index="i",
            end="L",
            carry={"acc": ("out1", "zero")},
        ),
        finish(),
    ),
    "load under an if": shape(
        "x y out K",
        number("c32", 32),
        loop(
            [
                load("b", "y", "k", "c0"),
                op("early", "lt", "k", "c32", to="i1"),
                *when(
                    "early",
                    [load("a", "x", "m", "k"), dot("yes", "a", "b", "acc1"), give("yes")],
                    "acc2",
                    [full("bf", "b"), op("no", "add", "acc1", "bf", kind=F), give("no")],
                ),
                give("acc2"),
            ],
            carry={"acc": ("acc1", "zero")},
        ),
        finish(),
    ),
    "trip count read from memory": shape(
        "x y out *counts",
        f"%at = tile.ptr_add %counts, %pid : ({P}, i32) -> {P}",
        scalar_load("iterations", "at"),
        op("end", "mul", "iterations", "c16"),
        loop(
            [
                load("a", "x", "m", "k"),
                load("b", "y", "k", "c0"),
                dot("acc2", "a", "b", "acc1"),
                give("acc2"),
            ],
            end="end",
            carry={"acc": ("acc1", "zero")},
        ),
        finish(),
    ),
    "operand computed in registers": shape(
        "x y out K",
        loop(
            [
                load("a", "x", "m", "k"),
                op("twice", "add", "a", "a", kind=T),
                load("b", "y", "k", "c0"),
                dot("acc2", "twice", "b", "acc1"),
                give("acc2"),
            ],
            carry={"acc": ("acc1", "zero")},
        ),
        finish(),
    ),
    "loop without a dot": shape(
        "x y out K",
        loop(
            [
                load("a", "x", "m", "k"),
                load("b", "y", "k", "c0"),
                op("ab", "add", "a", "b", kind=T),
                full("abf", "ab"),
                op("acc2", "add", "acc1", "abf", kind=F),
                give("acc2"),
            ],
            carry={"acc": ("acc1", "zero")},
        ),
        finish(),
    ),
    "dot without a loop": shape(
        "x y out",
        load("a", "x", "m", "c0"),
        load("b", "y", "c0", "c0"),
        dot("acc", "a", "b", "zero"),
        finish(),
    ),
    "no load": shape("out", finish("zero")),
    "stores to what it later loads": shape(
        "x y out K",
        loop(
            [
                load("a", "out", "m", "c0"),
                load("b", "y", "k", "c0"),
                dot("d", "a", "b", "zero"),
                half("h", "d"),
                store("out", "m", "c0", "h"),
            ]
        ),
    ),
    "updates in place": shape(
        "x y out",
        load("a", "x", "m", "c0"),
        load("c", "out", "m", "c0"),
        full("cf", "c"),
        load("b", "y", "c0", "c0"),
        dot("acc", "a", "b", "cf"),
        finish(),
    ),
    "tile handed on to the next iteration": shape(
        "x y out K",
        load("first", "x", "m", "c0"),
        *[
            "%last, %acc = scf.for %k = %c0 to %K step %c16 "
            f"iter_args(%a = %first, %acc1 = %zero) -> ({T}, {F}) : i32 {{",
            load("b", "y", "k", "c0"),
            dot("acc2", "a", "b", "acc1"),
            op("next", "add", "k", "c16"),
            load("a2", "x", "m", "next"),
            f"scf.yield %a2, %acc2 : {T}, {F}",
            "}",
        ],
        finish(),
    ),
    "atomic tile counter": shape(
        "x y out *counter TILES",
        number("one", 1),
        atomic_add("tile0", "counter", "one", "relaxed"),
        "%end = scf.while (%tile = %tile0) : (i32) -> i32 {",
        op("go", "lt", "tile", "TILES", to="i1"),
        "scf.condition(%go) %tile : i32",
        "} do {",
        "^bb0(%t : i32):",
        op("row", "mul", "t", "c16"),
        loop(
            [
                load("a", "x", "row", "k"),
                load("b", "y", "k", "c0"),
                dot("acc2", "a", "b", "acc1"),
                give("acc2"),
            ],
            end="c32",
            carry={"acc": ("acc1", "zero")},
        ),
        half("result", "acc"),
        store("out", "row", "c0", "result"),
        atomic_add("tile2", "counter", "one", "relaxed"),
        "scf.yield %tile2 : i32",
        "}",
    ),
}
# `c32` must stand before its first use in the counter's loop.
_COUNTER = SHAPES["atomic tile counter"]
SHAPES["atomic tile counter"] = Shape(
    _COUNTER.arguments, (number("c32", 32), *_COUNTER.body), _COUNTER.grid
)


def text_of(name: str) -> str:
    """Return the tile IR of a shape."""
    return SHAPES[name].text(name)


def inputs(name: str, seed: int, **scalars: int) -> dict[str, object]:
    """Return fresh arguments for a shape: arrays of small integers, so that sums are exact.

    Descriptors are 64 x 64; `K` is 48 and `L` 32 unless given.
    """
    import numpy as np

    from tawa.simulator.memory import HostDescriptor

    rng = np.random.default_rng(seed)
    values: dict[str, object] = {}
    for argument, kind in SHAPES[name].arguments.items():
        if kind == D:
            base = rng.integers(-2, 3, (64, 64)).astype(np.float16)
            values[argument] = HostDescriptor(base, (64, 64), (64, 1), (16, 16))
        elif kind == P and argument == "counts":
            values[argument] = np.array([2, 0, 3], np.int32)
        elif kind == P:
            values[argument] = np.zeros(4, np.int32)
        else:
            values[argument] = scalars.get(argument, {"K": 48, "L": 32, "TILES": 3}[argument])
    return values


def outputs(arguments: dict[str, object]) -> dict[str, bytes]:
    """Return all memory after a run, by argument."""
    found: dict[str, bytes] = {}
    for name, value in arguments.items():
        array = getattr(value, "base", value)
        if hasattr(array, "tobytes"):
            found[name] = array.tobytes()
    return found
