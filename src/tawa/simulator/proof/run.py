"""One run of a kernel: the block (or cluster) is set up, the roles run, and nothing is left over.

A `Run` is one configuration of a model: the trip counts and conditions that the unknowns are bound
to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from xdsl.ir import Operation

from tawa.ir import line_of
from tawa.simulator.proof.accesses import WARPGROUP
from tawa.simulator.proof.answers import Answers, Loop
from tawa.simulator.proof.barriers import Mbarrier, Named, NamedBarrier, Pool
from tawa.simulator.proof.cells import Question
from tawa.simulator.proof.choices import Choices
from tawa.simulator.proof.configuration import Configuration, Site
from tawa.simulator.proof.copies import Groups
from tawa.simulator.proof.expressions import Expr, Facts, Scalar
from tawa.simulator.proof.globals import GlobalMemory
from tawa.simulator.proof.leftovers import check_end
from tawa.simulator.proof.machine import Agent, Script, World
from tawa.simulator.proof.memory import Bucket, Memory
from tawa.simulator.proof.model import Model, RoleModel
from tawa.simulator.proof.numbers import trip_count
from tawa.simulator.proof.orbits import Group, Orbit, Turning
from tawa.simulator.proof.places import Read
from tawa.simulator.proof.products import Engine
from tawa.simulator.proof.registers import Registers
from tawa.simulator.proof.rules import OutOfSteps, Row
from tawa.simulator.proof.scalars import Scalars, truth
from tawa.simulator.proof.steps import in_turn

_TRIPS, _HASTY = 4096, 128  # of loops whose ends the program computes
_KEPT = 8  # trips of a long loop that are run beyond whole turns of its rings


@dataclass(eq=False)
class BlockState:
    """What one block owns."""

    arrays: list[list[Mbarrier]]
    pool: Pool
    groups: dict[int, int]
    named: Named
    memory: Memory


Entry = tuple[Operation, int]
"""A loop or condition and one of its regions."""


class Run(World):
    """One run under a configuration, of at most `budget` steps; `short` leaves out turns of long
    loops. `limit` bounds the trips of a while loop, `answers` are those of earlier runs. Raises
    Repeated.
    """

    def __init__(
        self,
        model: Model,
        configuration: Configuration,
        budget: int,
        trace: bool = False,
        short: bool = True,
        answers: Answers | None = None,
    ) -> None:
        scalars = Scalars(configuration, model.numbers, model.questions, answers, model.expressions)
        if scalars.course is not None and configuration.given:
            scalars.course.look_ahead(scalars)
        super().__init__(scalars, trace)
        self.model = model
        self.configuration = configuration
        self.choices = Choices(configuration, scalars)
        self.cluster = model.cluster
        self.limit = _TRIPS if not configuration.free else _TRIPS // 16
        self.patience = max(_HASTY, 2 * model.shape.long) if configuration.hasty else _TRIPS
        self.budget = budget
        self.watched = budget if not trace else 0  # steps that are only counted
        self.short = short
        self.shortened: dict[int, int] = {}
        self.turn, self.settled = model.turn, model.steady.trips
        self.entered: set[Entry] = set()
        self.orbits: dict[Group, Orbit] = {}
        self.asked: dict[Question, Operation] = {}
        self.askers: dict[Question, dict[Operation, list[Facts]]] = {}
        self.longest = 0  # trips of a loop
        self.turned: dict[Operation, set[int]] = {}  # trips of loops that have none inside
        self.bounds: dict[Operation, dict[Question, None]] = {}  # what they asked in a survey
        self.flying: list[tuple[int, Agent, Operation]] = []
        self.globals = GlobalMemory(model.decoder.followed, scalars)
        self.blocks = [self._block(rank) for rank in range(model.cluster)]
        self.environment = self._environment()
        self._make_agents()

    # --- set-up ---------------------------------------------------------------------------------

    def _block(self, rank: int) -> BlockState:
        model, arrays = self.model, list[list[Mbarrier]]()
        for number, (array, names) in enumerate(zip(model.arrays, model.names[rank], strict=True)):
            arrivals, slots, shared = array.arrivals, array.slots, number in model.shared
            arrays.append(
                [
                    self.mbarrier(name, rank, arrivals, number, slot, slots, shared)
                    for slot, name in enumerate(names)
                ]
            )
        groups = {index: -(-role.warps // WARPGROUP) for index, role in enumerate(self.model.roles)}
        named = Named(lambda number: self.named_barrier(number, rank))
        memory = Memory(model.places, self.bucket)
        return BlockState(arrays, self.pool(rank), groups, named, memory)

    # A run of several orders (`orders`) has kinds of its own of these.

    def mbarrier(
        self, name: str, block: int, arrivals: int, array: int, slot: int, size: int, shared: bool
    ) -> Mbarrier:
        """Make a barrier of an array of `size`, which may be `shared` by roles that wait."""
        return Mbarrier(name, block, arrivals, array, slot, size, shared)

    def named_barrier(self, number: int, block: int) -> NamedBarrier:
        """Make a hardware barrier of a block."""
        return NamedBarrier(number, block)

    def pool(self, block: int) -> Pool:
        """Make the pool of registers of a block."""
        return Pool(block)

    def bucket(self, name: str) -> Bucket:
        """Make a piece of shared memory."""
        return Bucket(name)

    def _make_agents(self) -> None:
        for rank, block in enumerate(self.blocks):
            for index, role in enumerate(self.model.roles):
                scripts: list[Script] = []
                for group in range(block.groups[index]):
                    self._make_group(rank, index, role, group, scripts)
        for number, agent in enumerate(self.agents):
            agent.number = number

    def _make_group(
        self, rank: int, index: int, role: RoleModel, group: int, scripts: list[Script]
    ) -> None:
        warps = range(WARPGROUP * group, min(role.warps, WARPGROUP * (group + 1)))
        shares = [[warps[place] for place in part if place < len(warps)] for part in role.parts]
        parts = [(warps[0],), *(tuple(share) for share in shares if share)]
        block = self.blocks[rank]
        whole = len(warps) == WARPGROUP and (role.first_warp % WARPGROUP == 0)
        engine = Engine(len(parts)) if whole else None
        for place, part in enumerate(parts):
            label = role.label
            if block.groups[index] > 1:
                label += f", warpgroup {group}"
            if self.cluster > 1:
                label += f" (block {rank})"
            leader = place == 0
            if not leader:
                label += f", {_spelled(part)}"
            first = leader and group == 0
            # The one thread may have a script of its own, the first; all others share the last.
            if first or (role.alone and len(scripts) == 1):
                scripts.append(self._script(rank, index, role, label, first, whole))
            agent = Agent(
                label,
                rank,
                index,
                group,
                part,
                leader,
                first,
                first and role.first_warp == 0,
                self,
                block,
                scripts[-1],
                engine,
                Groups(),
                Groups(),
                registers=self.model.registers,
            )
            self.agents.append(agent)

    def _script(
        self, rank: int, index: int, role: RoleModel, label: str, first: bool, whole: bool
    ) -> Script:
        follows = first and whole
        home, registers = self.blocks[rank], Registers()
        env = self.environment.copy()
        script = Script(self, home, label, rank, index, follows, first, registers, env)
        script.sources = [in_turn(script, self.model.preamble, role.program)]
        return script

    def _environment(self) -> list[Any]:
        """Return the environment that each script begins with: constants and arguments."""
        env = self.model.constants.copy()
        for place, unknown in self.model.unknowns:
            env[place] = self.scalars.take(unknown)
        return env

    def execute(self) -> None:
        """Set up, run the roles to their end, and check what is left."""
        self.set_up()
        self.run()
        check_end(self)

    def again(self) -> Run:
        """Return the same run with a trace, not yet executed: it has more steps."""
        fresh = replace(self.configuration, outcomes={})
        return Run(self.model, fresh, 2 * self.budget, trace=True, short=self.short)

    def release(self) -> None:
        """Let go of what holds itself in circles, after a run on which there is nothing to report:
        its memory is used by the next, and the garbage collector has nothing to look for.
        """
        for agent in self.agents:
            agent.script.actions.clear()
            agent.script.sources.clear()
            if agent.engine is not None:
                agent.engine.reading.clear()
            if agent.blocked is not None:
                agent.blocked.queue.clear()
        for block in self.blocks:
            block.memory.clear()
        for held in (self.agents, self.ready, self.blocks, self.flying, self.remote):
            held.clear()
        self.globals.accesses.clear()

    def set_up(self) -> None:
        """Do what comes before the roles."""
        for operation in self.model.setup:
            operation(self)

    def origins(self) -> list[Agent]:
        """Return the agents that hold thread 0 of a block."""
        return [agent for agent in self.agents if agent.origin]

    # --- choices --------------------------------------------------------------------------------

    def step(
        self, agent: Agent, operation: Operation, what: str, whom: object = "", phase: object = "-"
    ) -> None:
        """Count a step against the budget; `what` is done to `whom`, which its braces stand for.
        What is done most often counts by itself, and says so past `watched`.
        """
        self.steps += 1
        if self.steps > self.watched:
            self.watch(agent, operation, what, whom, phase)

    def watch(
        self, agent: Agent, operation: Operation, what: str, whom: object = "", phase: object = "-"
    ) -> None:
        """Look at a step that was counted: trace it, and stop where it is one too many."""
        if self.trace is not None:
            done = (agent.label, line_of(operation), what.format(whom), str(phase))
            self.trace.append(Row(self.steps, *done))
        self._check_budget(operation)

    def count(self) -> None:
        """Count a step of nobody: a trip of a loop that has nothing to do."""
        self.steps += 1
        self._check_budget()

    def _check_budget(self, operation: Operation | None = None) -> None:
        if self.steps > self.budget:
            raise OutOfSteps(
                f"a run takes more than {self.budget} steps; nothing is known about it", operation
            )

    def trips(
        self,
        site: Site,
        low: Scalar,
        high: Scalar,
        by: Scalar,
        facts: Facts,
        longer: Loop | None = None,
    ) -> Sequence[int]:
        """Return the trips of a loop: those its bounds give, or those the configuration wants. Of a
        `longer` one that comes after it they are chosen first.
        """
        if longer is not None and self.scalars.open((low, high, by)):
            self._trips(longer, facts, False)
        count = self._trips((site, (low, high, by)), facts, longer is None)
        return range(count) if site.kind == "pure" else self._shorten(count)

    def _trips(self, loop: Loop, facts: Facts, again: bool) -> int:
        site, (low, high, by) = loop
        if self.configuration.survey:
            self.ask(site.operation, facts, trip_count, high, low, by)
        count = self.choices.trips(site, low, high, by, again)
        self.longest = max(self.longest, count)
        if site.kind == "inner":
            self.turned.setdefault(site.operation, set()).add(count)
            if self.configuration.survey:
                self.bounds.setdefault(site.operation, {})[trip_count, (high, low, by)] = None
        return count

    def _shorten(self, count: int) -> Sequence[int]:
        """Leave out whole turns of all rings from the middle of a long loop.

        Slots and phases are the same after them. Loops whose counts are close to one another, such
        as one with its first trip peeled off, leave out the same turns.
        """
        turn, settle = self.turn, self.settled
        if not self.short or count <= 3 * turn + _KEPT + settle:
            return range(count)
        close = (left for other, left in self.shortened.items() if abs(other - count) <= turn)
        left = next(close, (count - 2 * turn - _KEPT - settle) // turn * turn)
        self.shortened.setdefault(count, left)
        first = settle + (count - settle - left + 1) // 2
        return (*range(first), *range(first + left, count))

    def entering(self, groups: tuple[Group, ...], env: list[Any]) -> Turning:
        """Return what notes the values of the carried scalars of a loop that must recur."""
        orbits, found = self.orbits, list[tuple[Read, Orbit]]()
        for group in groups:
            orbit = orbits.get(group)
            if orbit is None:
                orbit = orbits[group] = Orbit()
            found.append((group.read, orbit))
        return Turning(self.scalars, env, found)

    def condition(self, site: Site, scalar: Scalar, inside: Loop | None, facts: Facts) -> bool:
        """Return a condition: what it is, or what the configuration wants. `inside` is a loop that
        runs where it holds.
        """
        if self.configuration.survey:
            self.ask(site.operation, facts, truth, scalar)
        return self.choices.condition(site, scalar, inside)

    def ask(
        self, who: Operation, facts: Facts, outcome: Callable[..., int], *scalars: Scalar
    ) -> None:
        """Keep a question of a survey (see `cells`), who was the first to ask it, and who did,
        with what held there.
        """
        if any(isinstance(item, Expr) for item in scalars):
            self.asked.setdefault((outcome, scalars), who)
            askers = self.askers.setdefault((outcome, scalars), {})
            askers.setdefault(who, []).append(facts)


def _spelled(warps: tuple[int, ...]) -> str:
    """Return the name of some warps of a role."""
    first, last = warps[0], warps[-1]
    if len(warps) == 1:
        return f"warp {first}"
    return (
        f"warps {first}-{last}" if last - first == len(warps) - 1 else f"warps {first} and {last}"
    )
