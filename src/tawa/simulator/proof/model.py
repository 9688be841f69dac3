"""What is read from a kernel once."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import lcm

from xdsl.ir import Operation, SSAValue

from tawa.ir import hopper, tile
from tawa.simulator.proof.configuration import Shape
from tawa.simulator.proof.decode import Decoder
from tawa.simulator.proof.probing import Questions
from tawa.simulator.proof.steps import Control
from tawa.simulator.proof.uniform import Steadiness


@dataclass(frozen=True, slots=True)
class RoleModel:
    """A role as the proof runs it: `waits` are the arrays its agents wait on, `waits_alone` those
    its one thread does; `split` tells warps apart, `loads` says that it starts copies by TMA,
    `alone` that something is for the one thread.
    """

    label: str
    first_warp: int
    warps: int
    registers: int
    program: Control
    waits: frozenset[int]
    waits_alone: frozenset[int]
    split: bool
    loads: bool
    alone: bool
    operation: hopper.Role


@dataclass(frozen=True, slots=True)
class Model:
    """A kernel read once. `numbers` are its positive constants, in order, `questions` what the runs
    asked about its scalars.
    """

    kernel: tile.Kernel
    decoder: Decoder
    setup: tuple[Operation, ...]
    final: tuple[Operation, ...]
    arrays: tuple[hopper.Barriers, ...]
    roles: tuple[RoleModel, ...]
    arguments: tuple[tuple[int, SSAValue, int], ...]
    preamble: Control
    registers: int
    threads: int
    cluster: int
    numbers: tuple[int, ...]
    questions: Questions = field(default_factory=Questions)

    @property
    def turn(self) -> int:
        """Trips after which all rings are where they were: slot and phase."""
        counts = (array.result.type for array in self.arrays)
        return 2 * lcm(*(kind.count.data for kind in counts)) * self.steady.period

    @property
    def steady(self) -> Steadiness:
        """After how many trips all loops are steady, and the period of their conditions then."""
        found = self.decoder.uniform.steady.values()
        trips = max((item.trips for item in found), default=0)
        return Steadiness(trips, lcm(*(item.period for item in found)))

    @property
    def shape(self) -> Shape:
        """What decides how many trips the configurations make."""
        steady = self.steady
        depth = max((item.result.type.count.data for item in self.arrays), default=1)
        settle = steady.trips + steady.period - 1
        varying = bool(self.decoder.uniform.varying)
        return Shape(depth, settle, self.decoder.instances, varying)
