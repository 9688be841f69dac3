"""The steps of agents: what is left of a role's operations, in order, with jumps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from xdsl.ir import Operation

from tawa.ir import hopper
from tawa.verify.conditions import Condition
from tawa.verify.decisions import Loop


@dataclass(frozen=True, slots=True, eq=False)
class Wait:
    """Wait for the next number of a ring."""

    operation: hopper.Wait
    ring: int


@dataclass(frozen=True, slots=True, eq=False)
class Arrive:
    """So many arrivals for the next number of a ring."""

    operation: hopper.Arrive | hopper.Expect | hopper.CopyAsyncArrive
    ring: int
    units: int


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
    Wait | Arrive | Jump | Branch | Enter | Head | Next | Leave | Choose
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

    @property
    def share(self) -> int:
        """How many instances there are."""
        return len(self.roles)
