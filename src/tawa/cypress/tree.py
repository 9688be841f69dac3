"""The instantiated tree as a value: nodes, and how a tensor is parted inside of a block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tawa.cypress.machine import BLOCK, Level, Memory
from tawa.cypress.mapping import Instance
from tawa.cypress.size import Int
from tawa.cypress.tensor import Tensor
from tawa.cypress.trace import Launch, Loop, Statement


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
    """How one step parts one tensor: the dimensions it cuts, or what it holds of wgmma."""

    level: Level
    extent: int
    dims: tuple[int, ...]
    held: str = ""

    def __str__(self) -> str:
        """Return the step in words."""
        axes = "by rows" if self.dims == (0,) else "by columns" if self.dims == (1,) else "whole"
        how = self.held or f"{self.extent} {axes}"
        return f"{how} over {self.level}"


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """The leaf under a spread node, and for each of its tensors the node's tensor and the parts."""

    leaf: Instance
    tensors: tuple[Tensor, ...]
    parts: tuple[tuple[Part, ...], ...]
    memories: tuple[tuple[Memory, ...], ...]

    def over(self, level: Level) -> int:
        """Return how many processors of a level share the leaf."""
        counts = {part.extent for parts in self.parts for part in parts if part.level == level}
        return max(counts, default=1)
