"""What is read from a kernel once."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cached_property
from math import lcm
from typing import Any, TypeAlias

from xdsl.dialects import scf
from xdsl.ir import Operation, SSAValue

from tawa.ir import hopper, tile
from tawa.ir.types import DescType, PtrType
from tawa.simulator.proof.configuration import PURE, Shape
from tawa.simulator.proof.decode import Decoder
from tawa.simulator.proof.exchange import Parts
from tawa.simulator.proof.expressions import Expr, Expressions
from tawa.simulator.proof.form import role_of
from tawa.simulator.proof.leaves import Steadiness
from tawa.simulator.proof.probing import Questions
from tawa.simulator.proof.rules import Unproved
from tawa.simulator.proof.setting import SetUp
from tawa.simulator.proof.sites import is_around, is_pure
from tawa.simulator.proof.steps import Control

_Turning: TypeAlias = hopper.Wait | hopper.Arrive | hopper.Expect | hopper.CopyAsyncArrive
_TURNING = (hopper.Wait, hopper.Arrive, hopper.Expect, hopper.CopyAsyncArrive)


def joint(loops: Collection[Steadiness]) -> Steadiness:
    """Return after how many trips all of some loops are steady, and their common period."""
    trips = max((item.trips for item in loops), default=0)
    return Steadiness(trips, lcm(*(item.period for item in loops)))


@dataclass(frozen=True, slots=True)
class RoleModel:
    """A role as the proof runs it: `waits` are the arrays its agents wait on, `waits_alone` those
    its one thread does; `parts` are the agents of a warpgroup beside its leader, `loads` says that
    it starts copies by TMA, `alone` that its one thread has a script of its own.
    """

    label: str
    first_warp: int
    warps: int
    registers: int
    program: Control
    waits: frozenset[int]
    waits_alone: frozenset[int]
    parts: Parts
    loads: bool
    alone: bool
    operation: hopper.Role


@dataclass(frozen=True, slots=True)
class ArrayModel:
    """An array of mbarriers: one for each slot, which completes after so many arrivals."""

    label: str
    slots: int
    arrivals: int

    @staticmethod
    def of(array: hopper.Barriers) -> ArrayModel:
        """Return the model of an array."""
        return ArrayModel(array.label.data, array.result.type.count.data, array.arrivals.data)


@dataclass(frozen=True, slots=True)
class ArgumentModel:
    """An argument: its place in the environment, its kind, and what it is a multiple of."""

    value: SSAValue
    place: int
    kind: str
    unit: int

    @staticmethod
    def of(value: SSAValue, place: int, unit: int) -> ArgumentModel:
        """Return the model of an argument."""
        match value.type:
            case PtrType():
                return ArgumentModel(value, place, "pointer", unit)
            case DescType():
                return ArgumentModel(value, place, "descriptor", unit)
            case _:
                return ArgumentModel(value, place, "argument", unit)


@dataclass(frozen=True)
class Model:
    """A kernel read once. `numbers` are its positive constants, in order, `questions` what the runs
    asked about its scalars, `expressions` those.
    """

    kernel: tile.Kernel
    decoder: Decoder
    setup: tuple[SetUp, ...]
    final: tuple[Operation, ...]
    arrays: tuple[ArrayModel, ...]
    roles: tuple[RoleModel, ...]
    arguments: tuple[ArgumentModel, ...]
    preamble: Control
    registers: int
    threads: int
    cluster: int
    numbers: tuple[int, ...]
    questions: Questions = field(default_factory=Questions)
    expressions: Expressions = field(default_factory=Expressions)

    @cached_property
    def unknowns(self) -> tuple[tuple[int, Expr], ...]:
        """The place of each argument in the environment, and the unknown that it is."""
        found: list[tuple[int, Expr]] = []
        for argument in self.arguments:
            unit = argument.unit if argument.kind == "argument" else 1
            unknown = self.expressions.unknown(argument.kind, (argument.place,), unit)
            found.append((argument.place, unknown))
        return tuple(found)

    @cached_property
    def shared(self) -> dict[int, set[int]]:
        """The arrays that several roles wait for, with these roles."""
        found: dict[int, set[int]] = {}
        for index, role in enumerate(self.roles):
            for array in role.waits | role.waits_alone:
                found.setdefault(array, set()).add(index)
        return {array: roles for array, roles in found.items() if len(roles) > 1}

    @cached_property
    def constants(self) -> list[Any]:
        """The environment before anything runs: constants, and nothing else."""
        found: list[Any] = [None] * (len(self.decoder.numbers) + 1)
        for place, number in self.decoder.constants.items():
            found[place] = number
        return found

    @cached_property
    def names(self) -> list[list[list[str]]]:
        """What the barriers of each block are called, by array and slot."""
        blocks = [f" of block {rank}" for rank in range(self.cluster)] if self.cluster > 1 else [""]
        arrays = [(array.label, range(array.slots)) for array in self.arrays]
        return [
            [[f"{label}[{slot}]{block}" for slot in slots] for label, slots in arrays]
            for block in blocks
        ]

    @cached_property
    def places(self) -> dict[tuple[int, int], str]:
        """What the pieces of shared memory are called that are checked on their own."""
        found: dict[tuple[int, int], str] = {}
        for buffer in self.decoder.buffers.values():
            for slot, place in enumerate(buffer.buckets):
                name = f"slot {slot} of {buffer.label}"
                found.setdefault(place, name if buffer.alone else f"memory of {buffer.label}")
        return found

    @cached_property
    def turn(self) -> int:
        """Trips after which all rings are where they were: slot and phase."""
        return 2 * lcm(*(array.slots for array in self.arrays)) * self.steady.period

    @cached_property
    def steady(self) -> Steadiness:
        """After how many trips all loops are steady, and the period of their conditions then."""
        return joint(self.decoder.uniform.steady.values())

    @cached_property
    def shape(self) -> Shape:
        """What decides how many trips the configurations make."""
        decoder = self.decoder
        depths = [array.slots for array in self.arrays]
        inner, outer = self._waited()
        inside: list[Steadiness] = []
        around: list[Steadiness] = []
        for loop, steady in decoder.uniform.steady.items():
            (around if is_around(loop, decoder) else inside).append(steady)
        varying = bool(decoder.uniform.varying)
        seldom, tiles = self._seldom(depths)
        together = self._turned_by_all(around=True)
        rounds = [
            -(-depths[array] // (decoder.instances if array in together else 1))
            for array in outer - inner
        ]
        return Shape(
            max(depths, default=1),
            max(tiles, *rounds, 1),
            joint(inside).settled,
            joint(around).settled,
            decoder.instances,
            max((depths[array] for array in inner - self._turned_by_all()), default=0),
            varying,
            seldom,
            decoder.uniform.everywhere,
        )

    def check_pure(self) -> None:
        """Raise Unproved where what is synchronized changes with the trips of a loop that does not
        synchronize, beyond those that it is given.
        """
        uniform = self.decoder.uniform
        for loop, steady in uniform.steady.items():
            if steady.settled > PURE and loop not in uniform.fixed and is_pure(loop, self.decoder):
                raise Unproved(
                    "what a loop without synchronization counts decides what is synchronized, and "
                    f"may do so in other ways after more than the {PURE} trips that are run",
                    loop,
                )

    def _seldom(self, depths: list[int]) -> tuple[int, int]:
        """Return over how many trips rings go that only some trips of a period turn, where the
        number of the trip alone says which: in loops inside, and in loops around.
        """
        decoder = self.decoder
        found = {False: 0, True: 1}
        for wait in decoder.census.of(hopper.Wait):
            loop, guarded = wait.parent_op(), False
            while isinstance(loop, (scf.IfOp, hopper.OneThread)):
                guarded |= loop in decoder.uniform.fixed
                loop = loop.parent_op()
            if guarded and isinstance(loop, (scf.ForOp, scf.WhileOp)):
                period = decoder.uniform.steady.get(loop, Steadiness()).period
                place = is_around(loop, decoder)
                reach = depths[decoder.arrays[wait.barriers]] * period
                found[place] = max(found[place], reach if period > 1 else 0)
        return found[False], found[True]

    def _waited(self) -> tuple[set[int], set[int]]:
        """Return the arrays that each trip of a loop of open count with no loop inside waits for or
        arrives on, and those that are waited for elsewhere: under a condition, in a loop of so many
        trips, around.
        """
        inner: set[int] = set()
        outer: set[int] = set()
        for kind in _TURNING:
            for use in self.decoder.census.of(kind):
                array = self.decoder.arrays[use.barriers]
                if self._turns(use):
                    inner.add(array)
                elif kind is hopper.Wait:
                    outer.add(array)
        return inner, outer

    def _turned_by_all(self, around: bool = False) -> set[int]:
        """Return the arrays that go on in each trip of each instance's loops, or of those around
        (tiles): all instances wait for them or arrive on them there, or another role waits for them
        there and all instances meet it in trips that no input decides (where they arrive later).
        """
        census = self.decoder.census
        meetings = census.of(hopper.NamedBarrier)
        instances = {role_of(meet) for meet in meetings if meet.scope.data == "roles"}
        if len(instances) != self.decoder.instances:
            return set()
        others = [role for role in census.of(hopper.Role) if role not in instances]
        met = [self._met(role, _TURNING) for role in instances]
        turned = [self._met(role, _TURNING, around) for role in instances]
        waits = [self._met(role, (hopper.Wait,), around) for role in others]
        shared = set[int].intersection(*met) & set[int]().union(*waits)
        return set[int].intersection(*turned) | shared

    def _met(
        self, role: Operation, kinds: tuple[type[_Turning], ...], around: bool | None = None
    ) -> set[int]:
        """Return the arrays of operations that no input keeps from a trip of a role's loops;
        `around` says of which, and of each.
        """
        census, arrays = self.decoder.census, self.decoder.arrays
        return {
            arrays[use.barriers]
            for kind in kinds
            for use in census.of(kind, within=role)
            if self._is_free(use) and (around is None or self._turns(use, around))
        }

    def _is_free(self, use: Operation) -> bool:
        """Tell whether no input decides conditions around an operation, and no loop around it makes
        so many trips.
        """
        around = use.parent_op()
        while around is not None and not isinstance(around, hopper.Role):
            counted = isinstance(around, scf.ForOp) and _is_counted(around)
            asked = isinstance(around, scf.IfOp) and around not in self.decoder.uniform.fixed
            if counted or asked:
                return False
            around = around.parent_op()
        return True

    def _turns(self, use: Operation, around: bool = False) -> bool:
        """Tell whether a use stands in each trip of a loop of open count with no loop inside, or
        of one around others.
        """
        loop = use.parent_op()
        while not isinstance(loop, (scf.ForOp, scf.WhileOp, hopper.Role)):
            if loop is None or isinstance(loop, scf.IfOp):
                return False
            loop = loop.parent_op()
        once = isinstance(loop, hopper.Role) and around
        if once or (isinstance(loop, scf.ForOp) and _is_counted(loop)):
            return False
        return is_around(loop, self.decoder) == around


def _is_counted(loop: scf.ForOp) -> bool:
    return all(isinstance(bound.owner, tile.Constant) for bound in (loop.lb, loop.ub, loop.step))
