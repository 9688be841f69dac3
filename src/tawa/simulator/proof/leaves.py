"""What a scalar depends on, and when the conditions of a loop are steady."""

from __future__ import annotations

from dataclasses import dataclass, field

from xdsl.dialects import scf
from xdsl.ir import BlockArgument, SSAValue

from tawa.simulator.proof.counting import Loop


@dataclass(eq=False, slots=True)
class Leaves:
    """What a scalar depends on: loops whose trips it counts, conditions that choose between its
    values, carried values, loops that it is a result of, numbers that the program does not say
    (`open`), and memory (`reads`).
    """

    loops: dict[Loop, None] = field(default_factory=lambda: {})
    ended: dict[Loop, None] = field(default_factory=lambda: {})
    branches: dict[scf.IfOp, None] = field(default_factory=lambda: {})
    carried: dict[BlockArgument, None] = field(default_factory=lambda: {})
    open: bool = False
    reads: bool = False

    def add(self, other: Leaves) -> None:
        """Add what another scalar depends on."""
        self.loops.update(other.loops)
        self.ended.update(other.ended)
        self.branches.update(other.branches)
        self.carried.update(other.carried)
        self.open |= other.open
        self.reads |= other.reads


@dataclass(eq=False, slots=True)
class Origin:
    """What one scalar is computed from: other scalars, and what it adds to the leaves."""

    values: tuple[SSAValue, ...] = ()
    loop: Loop | None = None
    ended: Loop | None = None
    branch: scf.IfOp | None = None
    carried: BlockArgument | None = None
    open: bool = False
    reads: bool = False

    def add_to(self, leaves: Leaves) -> None:
        """Add what the scalar itself is."""
        if self.loop is not None:
            leaves.loops[self.loop] = None
        if self.ended is not None:
            leaves.ended[self.ended] = None
        if self.branch is not None:
            leaves.branches[self.branch] = None
        if self.carried is not None:
            leaves.carried[self.carried] = None
        leaves.open |= self.open
        leaves.reads |= self.reads


@dataclass(eq=False, slots=True)
class Steadiness:
    """After `trips` trips of a loop its conditions repeat every `period` trips."""

    trips: int = 0
    period: int = 1

    @property
    def settled(self) -> int:
        """The trip from which on its conditions only repeat, and their period less one."""
        return self.trips + self.period - 1
