"""Whole numbers of arguments as trees: their value, and the text of the hopper IR that computes
them. ``("min", "K", ("add", "F", 4))`` is min(K, F + 4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

from ring_text import following, of, start, turn
from tawa.simulator.proof.functions import FUNCTIONS

Tree: TypeAlias = "int | str | tuple[str | Tree, ...]"
Given: TypeAlias = Mapping[str, int]

CONSTANTS = (10, 11, 12, 13, 14, 15, 63, 127, 128)
"""Those that `ring_text.kernel` is to declare beyond its own."""
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_TRUTHS = {"both": "and", "either": "or"}  # of two comparisons


def value(tree: Tree, given: Given) -> int:
    """The value of a tree for these arguments."""
    if isinstance(tree, tuple):
        name = str(tree[0])
        return FUNCTIONS[_TRUTHS.get(name, name)](*[value(each, given) for each in tree[1:]])
    return given[tree] if isinstance(tree, str) else tree


@dataclass(frozen=True)
class Bounds:
    """A loop from `low` to `end`, under conditions, the outermost first: those that are to fail
    have False beside them. `tiles` puts it into a loop of so many trips, whose number is `T`.
    """

    end: Tree
    low: Tree = 0
    step: Tree = 1
    under: Sequence[tuple[Tree, bool]] = ()
    tiles: int = 0

    def trips(self, given: Given) -> int | None:
        """The trips it makes, None where the conditions keep it from running."""
        if any(bool(value(tree, given)) is not holds for tree, holds in self.under):
            return None
        low, end, step = (value(item, given) for item in (self.low, self.end, self.step))
        return max(0, -(-(end - low) // step)) if step > 0 else None

    def text(self, role: str, depth: int) -> str:
        """The text of a role that turns the ring "r" in each trip."""
        return _Writer(role).write(self, depth)


@dataclass
class _Writer:
    """The text of one role so far."""

    role: str
    text: str = ""
    count: int = 0

    def put(self, tree: Tree) -> str:
        """Write what computes a tree; its name."""
        if not isinstance(tree, tuple):
            return f"%{tree}" if isinstance(tree, str) else f"%c{tree}"
        name, inputs = str(tree[0]), [self.put(part) for part in tree[1:]]
        self.count += 1
        out = f"%{self.role}_{self.count}"
        if name in _TRUTHS:
            self.text += of(out, _TRUTHS[name], *inputs, kind="i1", result="i1")
        else:
            self.text += of(out, name, *inputs, result="i1" if name in _COMPARISONS else "i32")
        return out

    def write(self, bounds: Bounds, depth: int) -> str:
        """Write a loop, and what is around it."""
        slot, phase, ends = "%c0", start(self.role), ""
        for tree, holds in bounds.under:
            condition = self.put(tree)
            self.text += f"scf.if {condition} {{\n" + ("" if holds else "} else {\n")
            ends = ("} else {\n}\n" if holds else "}\n") + ends
        if bounds.tiles:
            self.text += (
                f"%t_e:2 = scf.for %T = %c0 to %c{bounds.tiles} step %c1 "
                f"iter_args(%t_s = {slot}, %t_p = {phase}) -> (i32, i32) : i32 {{\n"
            )
            slot, phase = "%t_s", "%t_p"
            ends = "scf.yield %r_e#0, %r_e#1 : i32, i32\n}\n" + ends
        low, end, step = (self.put(item) for item in (bounds.low, bounds.end, bounds.step))
        self.text += (
            f"%r_e:2 = scf.for %r_k = {low} to {end} step {step} "
            f"iter_args(%r_s = {slot}, %r_p = {phase}) -> (i32, i32) : i32 {{\n"
            + turn(self.role, "r", "%r_s", "%r_p", depth)
            + following("%r_s", "%r_p", depth, ("%r_t", "%r_q"))
            + "scf.yield %r_t, %r_q : i32, i32\n}\n"
        )
        return self.text + ends


def drawn(random: Random, deep: int, names: Sequence[str]) -> Tree:
    """A tree drawn at random."""
    if deep == 0 or random.random() < 0.25:
        return random.choice(names) if random.random() < 0.75 else random.choice((0, 1, 2, 3, 4, 8))
    name = random.choice(("add", "sub", "min", "max", "min", "max", "idiv", "mul", "irem"))
    one = drawn(random, deep - 1, names)
    if name in ("idiv", "irem"):
        return (name, one, random.choice((2, 3, 4, 8)))
    if name == "mul" and random.random() < 0.7:
        return (name, one, random.choice((2, 4)))
    return (name, one, drawn(random, deep - 1, names))


def drawn_bounds(random: Random, names: Sequence[str]) -> Bounds:
    """A loop drawn at random, under up to two conditions, some of which bind what bounds it."""
    tiles = 3 if random.random() < 0.3 else 0
    inside = (*names, "T") if tiles else tuple(names)
    under = tuple(
        ((random.choice(("eq", "eq", "eq", *_COMPARISONS)), random.choice(names), tree), True)
        for tree in [drawn(random, 2, names) for _ in range(random.choice((0, 1, 1, 2, 2)))]
    )
    part: Tree = ("mul", 4, ("idiv", drawn(random, 1, inside), 4))
    low = random.choice((0, 0, part, drawn(random, 1, inside)))
    end = drawn(random, 3, inside)
    if low and random.random() < 0.5:
        end = ("min", ("add", low, 8), end)
    return Bounds(end, low, random.choice((1, 1, 2, 4)), under, tiles)
