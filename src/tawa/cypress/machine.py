"""Machines: levels of processors, and memories with the levels that see them.

Source: Yadav et al., "Task-Based Tensor Computations on Modern GPUs" (PLDI 2025), section 3.1.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Level:
    """A level of the machine; `depth` grows inward."""

    name: str
    depth: int

    def __str__(self) -> str:
        """Return the name, as mappings print it."""
        return self.name

    __repr__ = __str__


@dataclass(frozen=True, slots=True)
class Memory:
    """A place for tensors. NONE is none: the tensor exists only as its parts further down."""

    name: str

    def __str__(self) -> str:
        """Return the name, as mappings print it."""
        return self.name

    __repr__ = __str__


HOST, BLOCK = Level("HOST", 0), Level("BLOCK", 1)
WARPGROUP, WARP, THREAD = Level("WARPGROUP", 2), Level("WARP", 3), Level("THREAD", 4)
GLOBAL, SHARED = Memory("GLOBAL"), Memory("SHARED")
REGISTER, NONE = Memory("REGISTER"), Memory("NONE")


@dataclass(frozen=True, slots=True)
class Auto:
    """What a mapping leaves to the compiler: `cy.auto`."""

    def __str__(self) -> str:
        """Return the name, as mappings print it."""
        return "cy.auto"

    __repr__ = __str__


auto = Auto()


@dataclass(frozen=True, slots=True)
class Machine:
    """Levels from the outermost in, and of each memory the levels that see it.

    What a warpgroup or a warp sees of registers is what its threads hold together.
    """

    name: str
    levels: tuple[Level, ...]
    seen: tuple[tuple[Memory, tuple[Level, ...]], ...]

    def sees(self, level: Level, memory: Memory) -> bool:
        """Tell whether a processor of `level` reads and writes `memory`."""
        return memory == NONE or level in dict(self.seen).get(memory, ())

    def seen_by(self, level: Level) -> tuple[Memory, ...]:
        """Return the memories that `level` sees."""
        return tuple(memory for memory, levels in self.seen if level in levels)


HOPPER = Machine(
    "sm_90a",
    (HOST, BLOCK, WARPGROUP, WARP, THREAD),
    (
        (GLOBAL, (HOST, BLOCK, WARPGROUP, WARP, THREAD)),
        (SHARED, (BLOCK, WARPGROUP, WARP, THREAD)),
        (REGISTER, (WARPGROUP, WARP, THREAD)),
    ),
)
