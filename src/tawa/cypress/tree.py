"""The instantiated tree as a value: nodes, and how a tensor is parted inside of a block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from tawa.cypress.machine import BLOCK, NONE, THREAD, Level, Memory
from tawa.cypress.mapping import Instance
from tawa.cypress.size import Int
from tawa.cypress.tensor import Held, Tensor
from tawa.cypress.trace import Launch, Loop, Statement
from tawa.layouts.register import Axis, RegisterLayout


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """An instance at one launch: its parameters, its statements, and the nodes it launches."""

    instance: Instance
    parameters: tuple[Tensor, ...]
    statements: tuple[Statement, ...]
    children: tuple[tuple[Launch, Node], ...]
    equal: tuple[tuple[Int, Int], ...] = ()  # extents that are one

    def child(self, launch: Launch) -> Node:
        """Return the node that a launch became."""
        return next(node for made, node in self.children if made is launch)

    @property
    def spread(self) -> bool:
        """Whether parts of its tensors go to processors inside of a block."""
        if self.instance.level.depth > BLOCK.depth:
            return True
        loops = [each for each in self.statements if isinstance(each, Loop)]
        launches = [each for loop in loops if loop.kind == "prange" for each in loop.body]
        below = [self.child(each).instance for each in launches if isinstance(each, Launch)]
        return any(each.level.depth > BLOCK.depth and not each.like for each in below)

    def walk(self) -> Iterator[Node]:
        """Return this node and all below."""
        yield self
        for _, node in self.children:
            yield from node.walk()


@dataclass(frozen=True, slots=True)
class Part:
    """How one step parts one tensor: the dimensions it cuts, or what it holds of wgmma.

    `grid` has of each index of the prange how many processors it counts, the last first, and the
    dimension along which it moves through blocks (-1: none).
    """

    level: Level
    extent: int
    dims: tuple[int, ...]
    held: Held | None = None
    grid: tuple[tuple[int, int], ...] = ()

    def __str__(self) -> str:
        """Return the step in words."""
        words: dict[tuple[int, ...], str] = {(0,): "by rows", (1,): "by columns", (): "whole"}
        axes = words.get(self.dims) or "by " + "x".join(str(n) for n, _ in reversed(self.grid))
        how = str(self.held or f"{self.extent} {axes}")
        return f"{how} over {self.level}"


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """A tensor of a leaf: its parameter, the spread node's tensor, the part that each level has,
    and the memories from the node down to the leaf.
    """

    name: str
    tensor: Tensor
    parts: tuple[Part, ...]
    memories: tuple[Memory, ...]

    @property
    def memory(self) -> Memory:
        """The memory that it is first wanted in."""
        return next(each for each in self.memories if each != NONE)

    def layout(self, shape: tuple[int, ...]) -> RegisterLayout | None:
        """Return which thread has which element, where blocks are parted down to THREAD."""
        if not any(part.level == THREAD and part.grid for part in self.parts):
            return None
        box, lanes, warps = list(shape), list[Axis](), list[Axis]()

        def step(dim: int) -> tuple[int, ...]:
            return tuple(box[d] if d == dim else 0 for d in range(len(shape)))

        for part in self.parts:  # outermost first: the inner one of an axis list is the fastest
            box = [n // prod(c for c, at in part.grid if at == d) for d, n in enumerate(box)]
            own = [Axis(count, step(dim)) for count, dim in part.grid if count > 1]
            lanes, warps = (own, warps) if part.level == THREAD else (lanes, [*own, *warps])
        box, within = [1] * len(shape), list(box)
        held = [Axis(n, step(d)) for d, n in enumerate(within) if n > 1]
        return RegisterLayout(shape, tuple(reversed(held)), tuple(lanes), tuple(warps))

    @property
    def of_wgmma(self) -> str:
        """Which operand of wgmma it is: "A", "B", "BT", "C", or "" where it is none."""
        return next((part.held.operand for part in self.parts if part.held), "")


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """The leaf under a spread node, and its tensors."""

    leaf: Instance
    operands: tuple[Operand, ...]

    def over(self, level: Level) -> int:
        """Return how many processors of a level share the leaf."""
        parts = (part for operand in self.operands for part in operand.parts)
        return max((part.extent for part in parts if part.level == level), default=1)
