"""One run of a kernel: the block (or cluster) is set up, the roles run, and nothing is left over.

`Model` is what is read from a kernel once; a `Run` is one configuration of it: the trip counts and
conditions that the unknowns are bound to.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator
from dataclasses import dataclass, field

from xdsl.ir import Operation, SSAValue

from tawa.ir import hopper, tile
from tawa.ir.types import BarriersType, DescType, PtrType
from tawa.simulator.proof.barriers import Mbarrier, NamedBarrier, Pool
from tawa.simulator.proof.configuration import Configuration, Site
from tawa.simulator.proof.copies import Groups
from tawa.simulator.proof.decode import Control, Decoder
from tawa.simulator.proof.globals import GlobalMemory
from tawa.simulator.proof.machine import Agent, Blocked, World
from tawa.simulator.proof.memory import Bucket
from tawa.simulator.proof.products import Engine, Products
from tawa.simulator.proof.rules import Unproved, Violation
from tawa.simulator.proof.scalars import Scalar, Scalars

_WARPGROUP = 4


@dataclass(frozen=True, slots=True)
class RoleModel:
    """A role as the proof runs it: `waits` are the arrays its agents wait on, `waits_alone` those
    its one thread does; `split` tells warps apart, `loads` says that it starts copies by TMA.
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
    operation: hopper.Role


@dataclass(frozen=True, slots=True)
class Model:
    """A kernel read once."""

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


@dataclass(eq=False)
class BlockState:
    """What one block owns."""

    arrays: list[list[Mbarrier]]
    pool: Pool
    groups: dict[int, int]
    memory: dict[tuple[int, int], Bucket] = field(default_factory=dict[tuple[int, int], Bucket])
    scalars: dict[tuple[int, int], Scalar] = field(default_factory=dict[tuple[int, int], Scalar])
    named: defaultdict[int, NamedBarrier] = field(
        default_factory=lambda: defaultdict[int, NamedBarrier]()
    )
    engines: dict[tuple[int, int], Engine] = field(default_factory=dict[tuple[int, int], Engine])


class _Named(defaultdict[int, NamedBarrier]):
    def __missing__(self, number: int) -> NamedBarrier:
        made = self[number] = NamedBarrier(number)
        return made


class Run(World):
    """One run under a configuration. `limit` bounds the trips of a loop."""

    def __init__(
        self, model: Model, configuration: Configuration, budget: int, trace: bool = False
    ) -> None:
        scalars = Scalars(configuration.block, configuration.blocks, configuration.turn)
        super().__init__(scalars, trace)
        self.model = model
        self.configuration = configuration
        self.cluster = model.cluster
        self.limit = 4096
        self.budget = budget
        self.reached: set[Operation] = set()
        self.flying: list[tuple[int, Agent, Operation]] = []
        self.globals = GlobalMemory(model.decoder.followed, scalars)
        self.blocks = [self._block(rank) for rank in range(model.cluster)]
        self._make_agents()

    # --- set-up ---------------------------------------------------------------------------------

    def _block(self, rank: int) -> BlockState:
        arrays: list[list[Mbarrier]] = []
        suffix = f" of block {rank}" if self.model.cluster > 1 else ""
        for number, array in enumerate(self.model.arrays):
            kind = array.result.type
            assert isinstance(kind, BarriersType)
            label, count = array.label.data, kind.count.data
            arrays.append(
                [
                    Mbarrier(
                        f"{label}[{slot}]{suffix}", rank, array.arrivals.data, number, slot, count
                    )
                    for slot in range(count)
                ]
            )
        groups = {
            index: -(-role.warps // _WARPGROUP) for index, role in enumerate(self.model.roles)
        }
        state = BlockState(arrays, Pool(), groups)
        state.named = _Named()
        return state

    def _make_agents(self) -> None:
        for rank, block in enumerate(self.blocks):
            for index, role in enumerate(self.model.roles):
                for group in range(block.groups[index]):
                    self._make_group(rank, index, role, group)
        for number, agent in enumerate(self.agents):
            agent.number = number

    def _make_group(self, rank: int, index: int, role: RoleModel, group: int) -> None:
        warps = range(_WARPGROUP * group, min(role.warps, _WARPGROUP * (group + 1)))
        parts = [(warp,) for warp in warps] if role.split else [(warps[0],), tuple(warps[1:])]
        parts = [part for part in parts if part]
        block = self.blocks[rank]
        whole = len(warps) == _WARPGROUP and (role.first_warp % _WARPGROUP == 0)
        engine = Engine(len(parts)) if whole else None
        for place, part in enumerate(parts):
            label = role.label
            if block.groups[index] > 1:
                label += f", warpgroup {group}"
            if self.cluster > 1:
                label += f" (block {rank})"
            leader = place == 0
            agent = Agent(
                label,
                rank,
                index,
                group,
                part,
                leader,
                leader and group == 0,
                leader and group == 0 and role.first_warp == 0,
            )
            agent.env = [None] * (len(self.model.decoder.numbers) + 1)
            agent.registers = self.model.registers
            agent.world, agent.home = self, block
            agent.bulk, agent.copies = Groups(), Groups()
            if engine is not None:
                agent.products = Products(engine, leader and group == 0)
            self.agents.append(agent)

    def execute(self) -> None:
        """Set up, run the roles to their end, and check what is left."""
        for operation in self.model.setup:
            self._set_up(operation)
        self.run(self._start)
        self._finish()

    def _set_up(self, operation: Operation) -> None:
        origins = [agent for agent in self.agents if agent.origin]
        match operation:
            case hopper.InitBarriers():
                array = self.model.decoder.arrays[operation.barriers]
                for agent in origins:
                    for barrier in self.blocks[agent.block].arrays[array]:
                        if barrier.init:
                            raise Violation(
                                "barrier initialised",
                                f"{barrier.name} is initialised twice.",
                                operation,
                            )
                        barrier.init, barrier.pending = self.event(), barrier.arrivals
                        agent.known |= barrier.init
            case hopper.FenceBarrierInit():
                for agent in origins:
                    self._fence_barriers(agent)
            case hopper.BlockSync() | hopper.ClusterSync():
                self._meet(isinstance(operation, hopper.ClusterSync))
            case _:
                raise Unproved(f"the proof does not know {operation.name} in the set-up", operation)

    def _fence_barriers(self, agent: Agent) -> None:
        event = self.event()
        agent.known |= event
        for barriers in self.blocks[agent.block].arrays:
            for barrier in barriers:
                barrier.ready = event if barrier.init else 0

    def _meet(self, everybody: bool) -> None:
        for block in range(len(self.blocks)):
            inside = [agent for agent in self.agents if everybody or agent.block == block]
            known = 0
            for agent in inside:
                known |= agent.known
            for agent in inside:
                agent.known |= known

    def _start(self, agent: Agent) -> Generator[Blocked, None, None]:
        env, scalars = agent.env, self.scalars
        for place, value, unit in self.model.arguments:
            match value.type:
                case PtrType():
                    env[place] = scalars.unknown("pointer", place)
                case DescType():
                    env[place] = scalars.unknown("descriptor", place)
                case _:
                    env[place] = scalars.unknown("argument", place, unit=unit)
        yield from self.model.preamble(agent)
        yield from self.model.roles[agent.role].program(agent)

    # --- choices --------------------------------------------------------------------------------

    def step(self, agent: Agent, operation: Operation, what: str, phase: object = "-") -> None:
        """Count a step against the budget."""
        super().step(agent, operation, what, phase)
        self.reached.add(operation)
        if self.steps > self.budget:
            raise Unproved(
                f"a run takes more than {self.budget} steps; nothing is known about it", operation
            )

    def trips(self, site: Site, low: Scalar, high: Scalar, by: Scalar) -> range:
        """Return the trips of a loop: those its bounds give, or those the configuration wants."""
        value = self.scalars.value
        a, b, c = value(low), value(high), value(by)
        if a is None or b is None or c is None:
            wish = self.configuration.wish(site)
            reached = self.scalars.settle((high, low, by), _count, wish, self.configuration.ragged)
            self.configuration.reached(site, reached)
            a, b, c = value(low), value(high), value(by)
        if a is None or b is None or c is None or c <= 0:
            raise Unproved(f"a loop runs from {a} to {b} by {c}", site.operation)
        return range(_count(b, a, c))

    def condition(self, site: Site, scalar: Scalar) -> bool:
        """Return a condition: what it is, or what the configuration wants."""
        known = self.scalars.value(scalar)
        if known is None:
            wish = self.configuration.wish(site)
            known = self.scalars.settle((scalar,), _truth, wish, self.configuration.ragged)
            self.configuration.reached(site, known)
        return bool(known)

    # --- the end --------------------------------------------------------------------------------

    def _finish(self) -> None:
        final = any(isinstance(op, hopper.ClusterSync) for op in self.model.final)
        known = [0] * len(self.blocks)
        for agent in self.agents:
            known[agent.block] |= agent.known
            self._finish_agent(agent)
        everything = 0
        for part in known:
            everything |= part
        for event, agent, operation in self.flying:
            if not everything & event:
                sentence = (
                    f"a copy that {agent.label} started is never waited for: the block may end "
                    "while it writes to shared memory."
                )
                raise Violation("nothing is left", sentence, operation)
        for event, block, what, operation in self.remote:
            if not final and not known[block] & event:
                sentence = f"block {block} may end before {what} from a peer reaches it."
                raise Violation("peers alive", sentence, operation)
        for block in self.blocks:
            for barriers in block.arrays:
                for barrier in barriers:
                    self._finish_barrier(barrier)
            for number, meeting in block.named.items():
                if meeting.arrived:
                    sentence = (
                        f"named barrier {number} ends with {meeting.arrived} of {meeting.threads} "
                        "threads."
                    )
                    raise Violation("nothing is left", sentence)
        self._finish_rings()

    def _finish_agent(self, agent: Agent) -> None:
        products: Products | None = agent.products
        if products is not None and products.issued > products.finished:
            committed = products.groups[-1] if products.groups else 0
            rule = "nothing is left" if products.issued == committed else "wgmma commit"
            did = "waited for" if products.issued == committed else "committed"
            sentence = f"{agent.label} ends with wgmmas that were never {did}."
            raise Violation(rule, sentence, products.last)
        bulk: Groups = agent.bulk
        if bulk.open:
            sentence = f"{agent.label} ends with TMA stores that were never committed."
            raise Violation("bulk groups", sentence, bulk.last)
        if bulk.written < len(bulk.reads):
            sentence = (
                f"{agent.label} ends before its TMA stores are known to have been written: "
                "no bulk_wait with read = false covers them."
            )
            raise Violation("nothing is left", sentence, bulk.last)
        copies: Groups = agent.copies
        if copies.open or copies.written < len(copies.reads):
            did = "committed" if copies.open else "waited for"
            sentence = f"{agent.label} ends with cp.async copies that were never {did}."
            raise Violation("nothing is left", sentence, copies.last)

    def _finish_barrier(self, barrier: Mbarrier) -> None:
        if not barrier.init:
            return
        if barrier.pending != barrier.arrivals or barrier.due:
            sentence = (
                f"{barrier.name} ends inside phase {barrier.done}: "
                f"{barrier.arrivals - barrier.pending} of {barrier.arrivals} arrivals, "
                f"{barrier.delivered} of {barrier.expected} bytes."
            )
            raise Violation("nothing is left", sentence)

    def _finish_rings(self) -> None:
        """Every completed phase was waited for, and every slot taken was given back."""
        instances = self._instances()
        for array, roles in instances.items():
            for block in self.blocks:
                for barrier in block.arrays[array]:
                    self._finish_shared(barrier, roles)
        for agent in self.agents:
            role = self.model.roles[agent.role]
            waits = role.waits | role.waits_alone if agent.first else role.waits
            for array in waits - instances.keys():
                barriers = self.blocks[agent.block].arrays[array]
                credit = any(-1 in barrier.waits for barrier in barriers)
                for barrier in barriers:
                    last = agent.waits.get(barrier)
                    count = 0 if last is None else last + 1 + credit
                    # A role that loads may know its slots to be free at first: it skips that wait.
                    spared = role.loads and not credit and count > 0
                    if count == barrier.done or (spared and count + 1 == barrier.done):
                        continue
                    sentence = (
                        f"{agent.label} waits {count} times for {barrier.name}, which completes "
                        f"{barrier.done} times: "
                    )
                    sentence += (
                        "a slot it took is never given back."
                        if count > barrier.done
                        else "what was put there last is never taken."
                    )
                    raise Violation("nothing is left", sentence)

    def _instances(self) -> dict[int, set[int]]:
        """Return the arrays that several roles wait for, with these roles."""
        found: dict[int, set[int]] = {}
        for index, role in enumerate(self.model.roles):
            for array in role.waits | role.waits_alone:
                found.setdefault(array, set()).add(index)
        return {array: roles for array, roles in found.items() if len(roles) > 1}

    def _finish_shared(self, barrier: Mbarrier, roles: set[int]) -> None:
        """A phase is seen by all roles that wait for the barrier, or by one: its instance."""
        sizes: set[int] = set()
        for phase in range(barrier.done):
            takers = barrier.takers.get(phase, set[int]())
            seen = {self.agents[number].role for number in takers}
            sizes.add(len(seen))
            here = [a for a in self.agents if a.role in seen and a.block == barrier.block]
            late = [a for a in here if a.number not in takers and self._waits(a, barrier)]
            if not seen or late:
                who = late[0].label if late else "any role"
                sentence = f"{barrier.name} completes phase {phase}, which {who} never waits for: "
                raise Violation("nothing is left", sentence + "what was put there is never taken.")
        if len(sizes) > 1 or sizes - {1, len(roles)}:
            sentence = f"the phases of {barrier.name} are taken by {sorted(sizes)} roles each."
            raise Violation("nothing is left", sentence)

    def _waits(self, agent: Agent, barrier: Mbarrier) -> bool:
        """Tell whether an agent waits for the barriers a barrier is one of."""
        role = self.model.roles[agent.role]
        arrays = role.waits | role.waits_alone if agent.first else role.waits
        return any(barrier in self.blocks[agent.block].arrays[array] for array in arrays)


def _count(high: int, low: int, by: int) -> int:
    return max(0, -(-(high - low) // by)) if by > 0 else 1 << 24


def _truth(value: int) -> int:
    return int(bool(value))
