"""Random small programs: simplified, specialized and lowered runs leave memory as the oracle."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tawa.ir import parse, verify
from tawa.passes import pipeline
from tawa.passes.simplify import simplify_kernel
from tawa.plan.pins import Pins
from tawa.plan.plan import Plan
from tawa.plan.planner import rank_plans
from tawa.plan.text import parse_plan, print_plan
from tawa.target import H200
from tile_shapes import (
    D,
    F,
    Shape,
    T,
    dot,
    full,
    give,
    half,
    load,
    loop,
    number,
    op,
    outputs,
    shape,
    store,
    when,
)


class Writer:
    """Writes a random program: loads, products, sums, loops and branches around one accumulator."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.count = 0
        self.stored = False

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def block(
        self, level: int, tiles: list[str], scalars: list[str], acc: str
    ) -> tuple[list[str], str]:
        """Return statements and the name of the accumulator after them."""
        lines: list[str] = []
        tiles = list(tiles)
        for _ in range(self.random.randint(1, 4)):
            kinds = ["load", "load", "dot", "sum"] + (["loop", "if", "view"] if level < 2 else [])
            kind = self.random.choice(kinds)
            made, acc = getattr(self, kind)(level, tiles, scalars, acc)
            lines.extend(made)
        return lines, acc

    def load(
        self, level: int, tiles: list[str], scalars: list[str], acc: str
    ) -> tuple[list[str], str]:
        name = self.fresh("t")
        tiles.append(name)
        desc, row = self.random.choice("xyz"), self.random.choice(scalars)
        if self.random.random() < 0.1:
            desc, row = "out", "m"  # its own rows: programs may not race
        return [load(name, desc, row, self.random.choice(scalars))], acc

    def view(
        self, level: int, tiles: list[str], scalars: list[str], acc: str
    ) -> tuple[list[str], str]:
        if not tiles:
            return [], acc
        name = self.fresh("v")
        source = self.random.choice(tiles)
        tiles.append(name)
        swap = "{permutation = [#builtin.int<1>, #builtin.int<0>]}"
        return [f"%{name} = tile.transpose %{source} {swap} : ({T}) -> {T}"], acc

    def dot(
        self, level: int, tiles: list[str], scalars: list[str], acc: str
    ) -> tuple[list[str], str]:
        if not tiles:
            return [], acc
        name = self.fresh("acc")
        a, b = self.random.choice(tiles), self.random.choice(tiles)
        return [dot(name, a, b, acc)], name

    def sum(
        self, level: int, tiles: list[str], scalars: list[str], acc: str
    ) -> tuple[list[str], str]:
        if not tiles:
            return [], acc
        wide, name = self.fresh("w"), self.fresh("acc")
        return [
            full(wide, self.random.choice(tiles)),
            op(name, "add", acc, wide, kind=F),
        ], name

    def loop(
        self, level: int, tiles: list[str], scalars: list[str], acc: str
    ) -> tuple[list[str], str]:
        index, inner, after = self.fresh("k"), self.fresh("acc"), self.fresh("acc")
        body, last = self.block(level + 1, tiles, [*scalars, index], inner)
        if level == 0 and not self.stored and self.random.random() < 0.5:
            self.stored = True  # once, so that each element is written once
            body += [half("h", last), store("out", "m", index, "h")]
        end = self.random.choice(["c0", "c16", "c32", "K"])
        return loop([*body, give(last)], index=index, end=end, carry={after: (inner, acc)}), after

    def branch_side(self, level: int, tiles: list[str], scalars: list[str], acc: str) -> list[str]:
        body, last = self.block(level + 1, tiles, scalars, acc)
        return [*body, give(last)]

    def __getattr__(self, name: str) -> object:
        if name == "if":
            return self.branch
        raise AttributeError(name)

    def branch(
        self, level: int, tiles: list[str], scalars: list[str], acc: str
    ) -> tuple[list[str], str]:
        test, after = self.fresh("b"), self.fresh("acc")
        yes = self.branch_side(level, tiles, scalars, acc)
        no = self.branch_side(level, tiles, scalars, acc)
        condition = op(test, "lt", self.random.choice(scalars), "c32", to="i1")
        return [condition, *when(test, yes, after, no)], after


def program(seed: int) -> Shape:
    body, last = Writer(Random(seed)).block(0, [], ["c0", "c16", "m"], "zero")
    end = [half("result", last), store("out", "m", "c48", "result")]
    return shape("x y z out K", number("c32", 32), number("c48", 48), body, end)


def arguments(seed: int) -> dict[str, object]:
    import numpy as np

    from tawa.simulator.memory import HostDescriptor

    rng = np.random.default_rng(seed)
    values: dict[str, object] = {"K": seed % 4 * 16}
    for name in ("x", "y", "z", "out"):
        base = rng.integers(-1, 2, (64, 64)).astype(np.float16)
        values[name] = HostDescriptor(base, (64, 64), (64, 1), (16, 16))
    return values


@given(st.integers(0, 1 << 30))
def test_all_levels_agree(seed: int) -> None:
    from tawa.simulator.hopper import run_hopper
    from tawa.simulator.tile import run_tile

    made = program(seed)
    assert D in made.arguments.values()
    text = made.text("random")
    expected = arguments(seed)
    run_tile(parse(text), made.grid, expected)
    kernel = parse(text)
    simplify_kernel(kernel)
    verify(kernel)
    simple = arguments(seed)
    run_tile(kernel, made.grid, simple)
    assert outputs(simple) == outputs(expected)
    depth = [None, 1, 2][seed % 3]
    pins = Pins(depth=depth, persistent=[None, False][seed % 2]) if depth else Pins()
    plan: Plan = rank_plans(kernel, H200, pins)[0]
    assert parse_plan(print_plan(plan)) == plan
    pipeline.run((*pipeline.AREF, *pipeline.HOPPER), kernel, plan, H200)
    actual = arguments(seed)
    run_hopper(kernel, made.grid, actual, seed=seed, multiprocessors=2)
    assert outputs(actual) == outputs(expected)
