"""The steps of agents: what is left of a role's operations, in order, with jumps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from xdsl.dialects import scf
from xdsl.ir import Operation, SSAValue

from tawa.ir import hopper
from tawa.verify.conditions import Condition
from tawa.verify.decisions import Loop

Ref: TypeAlias = "int | tuple[int]"
"""A scalar by its number, or (a number in the text,)."""
Moves: TypeAlias = tuple[tuple[Ref, int], ...]
"""(from, to): what is known of one scalar is known of another."""


@dataclass(frozen=True, slots=True, eq=False)
class Wait:
    """Wait for a number of a ring; `alone`: by one thread."""

    operation: hopper.Wait
    ring: int
    alone: bool
    slot: Ref
    phase: Ref


@dataclass(frozen=True, slots=True, eq=False)
class Arrive:
    """So many arrivals, `alone` by one thread."""

    operation: hopper.Arrive | hopper.Expect | hopper.CopyAsyncArrive
    ring: int
    units: int
    slot: Ref
    alone: bool


@dataclass(frozen=True, slots=True, eq=False)
class Compute:
    """What is known of a scalar follows from its operands; a step over numbers adds `skip`."""

    name: str
    inputs: tuple[Ref, ...]
    result: int
    skip: SSAValue | None


@dataclass(frozen=True, slots=True, eq=False)
class Move:
    """Scalars are handed on, all at once."""

    moves: Moves


@dataclass(frozen=True, slots=True, eq=False)
class Jump:
    """Go on elsewhere."""

    target: int


@dataclass(frozen=True, slots=True, eq=False)
class Branch:
    """Go on where the condition holds, else at `otherwise`."""

    condition: Condition
    otherwise: int
    operation: Operation


@dataclass(frozen=True, slots=True, eq=False)
class Enter:
    """A loop begins."""

    loop: Loop


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """Where iterations begin: runs that come here alike go on alike."""


@dataclass(frozen=True, slots=True, eq=False)
class Next:
    """The next iteration."""

    target: int


@dataclass(frozen=True, slots=True, eq=False)
class Leave:
    """The loop has ended."""


@dataclass(frozen=True, slots=True, eq=False)
class Choose:
    """Go on with the instance whose tile it is."""

    targets: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Done:
    """An instance has done its tile."""

    operation: scf.ForOp


@dataclass(frozen=True, slots=True, eq=False)
class Meet:
    """All threads of the role meet; warpgroups that are agents wait for one another."""

    operation: hopper.NamedBarrier


@dataclass(frozen=True, slots=True, eq=False)
class Token:
    """A named barrier between instances: "sync" takes what "arrive" has handed on."""

    operation: hopper.NamedBarrier


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """A turn of warpgroups is announced, or waited for."""

    operation: hopper.Turn
    barrier: int
    """Named barrier that is announced or waited for."""
    waits: bool


@dataclass(frozen=True, slots=True, eq=False)
class End:
    """The role has ended."""


Step: TypeAlias = (
    Wait | Arrive | Compute | Move | Jump | Branch | Enter | Head | Next | Leave | Choose | Done
    | Meet | Token | Turn | End
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Agent:
    """What an agent does. `instances` are the roles of a group, else one role stands alone."""

    name: str
    roles: tuple[hopper.Role, ...]
    code: tuple[Step, ...]
    group: int = 0
    """Which warpgroup of the role it is, where these are agents."""
    groups: int = 1
    tiles: tuple[scf.ForOp, ...] = ()
    """The loops over tiles of instances, one of each."""

    @property
    def share(self) -> int:
        """How many instances there are."""
        return len(self.roles)
