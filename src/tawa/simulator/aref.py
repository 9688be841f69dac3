"""The concurrent run of aref IR: roles as coroutines, arefs as rings of slots.

Work inside a role is done when its statement is reached; what is tested is the links. A slot's
content lives in the slot: it becomes poison when the producer enters the slot again, so that a
consumer that reads what it has already given back reads poison.

What an aref is while it runs: slots, how often each was filled, and by whom it was freed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
from xdsl.ir import Operation, SSAValue

from tawa.errors import ArgumentError, ProtocolError
from tawa.ir import aref, hopper, tile
from tawa.simulator.arguments import bind_arguments
from tawa.simulator.barriers import RegisterPool
from tawa.simulator.clocks import Clock, Clocks
from tawa.simulator.decode import Decoder, Frame, Rule, Step, Wait
from tawa.simulator.hopper_decode import timed
from tawa.simulator.machine import Block, Cluster, Machine, launch_blocks, launch_number
from tawa.simulator.memory import GlobalMemory
from tawa.simulator.mma_rules import MMA_RULES
from tawa.simulator.races import GlobalRaces, written_arguments
from tawa.simulator.role import Role
from tawa.simulator.rules import RULES
from tawa.simulator.scheduler import Blocked, Need, Scheduler, Task, check_schedule
from tawa.simulator.shared import SharedMemory
from tawa.simulator.sync_rules import ID_RULES, acting
from tawa.simulator.tile import checked_grid
from tawa.simulator.trace import Trace
from tawa.simulator.values import is_array, place_of, poison
from tawa.target import H200


@dataclass(frozen=True, slots=True)
class _Put:
    """A slot that its producer has entered: the value of an aref.slot."""

    ring: Ring
    nth: int


def _free_storage(slot: Slot) -> None:
    for value in slot.values:
        if is_array(value):
            value[...] = poison(value.shape, value.dtype)


def _put_enter(decoder: Decoder, operation: aref.PutEnter) -> Step:
    number, out = decoder.number(operation.aref), decoder.number(operation.slot)

    def enter(role: Role, frame: Frame) -> Wait:
        ring: Ring = frame.values[number]
        nth = ring.puts
        ring.puts += 1
        slot = ring.slots[nth % ring.depth]
        if not ring.is_free(nth):
            yield _blocked(ring, nth, "freed", operation, lambda: ring.is_free(nth))
        for clock in slot.freed:
            role.clocks.acquire(role.rows, clock)
        slot.freed.clear()
        role.stall(slot.freed_time, f"wait {ring.label} freed")
        _free_storage(slot)
        frame.values[out] = _Put(ring, nth)

    return acting(enter)


def _blocked(ring: Ring, nth: int, what: str, operation: Operation, ready: Any) -> Blocked:
    index = nth % ring.depth
    slot = ring.slots[index]

    def need() -> Need:
        freed = ", ".join(f"{c} {slot.frees[c]}" for c in ring.consumers)
        state = f"filled {slot.fills}, freed by {freed or 'nobody'}"
        sentence = f"for slot {index} of {ring.label} to be {what} (round {nth // ring.depth})"
        return Need(f"{ring.label}[{index}] {what}", str(nth // ring.depth), state, sentence)

    return Blocked(ready, ring.queue, need, operation)


def _put_exit(decoder: Decoder, operation: aref.PutExit) -> Step:
    number, payload = decoder.number(operation.slot), decoder.numbered(operation.values)

    def publish(role: Role, frame: Frame) -> None:
        put: _Put = frame.values[number]
        ring = put.ring
        slot = ring.slots[put.nth % ring.depth]
        values = [frame.values[i] for i in payload]
        slot.values = [np.array(v) if is_array(v) else v for v in values]
        if ring.published != put.nth:
            raise ProtocolError(
                f"{ring.label}: put {put.nth} is published as number {ring.published}",
                place=place_of(operation),
                why="slots are published once each, in the order they were entered",
            )
        ring.published += 1
        slot.fills += 1
        slot.filled = role.clocks.release(role.rows)
        slot.filled_time = role.time
        role.scheduler.wake(ring.queue)

    return acting(publish)


def _get_enter(decoder: Decoder, operation: aref.GetEnter) -> Step:
    number, outputs = decoder.number(operation.aref), decoder.numbered(operation.values)

    def take(role: Role, frame: Frame) -> Wait:
        ring: Ring = frame.values[number]
        nth = ring.gets[role.label]
        ring.gets[role.label] += 1
        ring.passed.pop(role.label, None)
        if not ring.is_filled(nth):
            yield _blocked(ring, nth, "filled", operation, lambda: ring.is_filled(nth))
        slot = ring.slots[nth % ring.depth]
        role.clocks.acquire(role.rows, slot.filled)
        role.stall(slot.filled_time, f"wait {ring.label} filled")
        for out, value in zip(outputs, slot.values, strict=True):
            frame.values[out] = value

    return acting(take)


def _get_exit(decoder: Decoder, operation: aref.GetExit) -> Step:
    number = decoder.number(operation.aref)

    def free(role: Role, frame: Frame) -> Wait:
        ring: Ring = frame.values[number]
        nth = ring.exits[role.label]
        if nth >= ring.gets[role.label]:
            raise ProtocolError(
                f"{role.where} frees a slot of {ring.label} that it has not taken",
                place=place_of(operation),
            )
        ring.exits[role.label] += 1
        slot = ring.slots[nth % ring.depth]
        slot.frees[role.label] += 1
        slot.freed.append(role.clocks.release(role.rows))
        slot.freed_time = max(slot.freed_time, role.time)
        role.scheduler.wake(ring.queue)
        yield None  # the producer may refill the slot before the next statement here

    return acting(free)


def _get_skip(decoder: Decoder, operation: aref.GetSkip) -> Step:
    number, count = decoder.numbered((operation.aref, operation.count))

    def skip(role: Role, frame: Frame) -> None:
        ring: Ring = frame.values[number]
        if ring.exits[role.label] != ring.gets[role.label]:
            raise ProtocolError(
                f"{role.where} skips in {ring.label} while it holds a slot",
                place=place_of(operation),
            )
        ring.passed.setdefault(role.label, ring.gets[role.label])
        for _ in range(int(frame.values[count])):
            ring.slots[ring.gets[role.label] % ring.depth].frees[role.label] += 1
            ring.gets[role.label] += 1
        ring.exits[role.label] = ring.gets[role.label]
        role.scheduler.wake(ring.queue)

    return acting(skip)


def _turn(decoder: Decoder, operation: aref.Turn) -> None:
    """Turns order who may use the tensor cores; at this level nothing depends on that."""


def _create(decoder: Decoder, operation: aref.Create) -> None:
    """Rings belong to a program: each makes its own when it begins."""


_RULES: dict[type[Operation], Rule] = {
    **RULES,
    **ID_RULES,
    hopper.Pin: MMA_RULES[hopper.Pin],
    aref.Create: _create,
    aref.PutEnter: _put_enter,
    aref.PutExit: _put_exit,
    aref.GetEnter: _get_enter,
    aref.GetExit: _get_exit,
    aref.GetSkip: _get_skip,
    aref.Turn: _turn,
}


class _ArefDecoder(Decoder):
    """Adds virtual time to the tile rules."""

    def __init__(self) -> None:
        super().__init__(_RULES)

    def compute(
        self, operation: Operation, function: Callable[..., Any], *, world: bool = False
    ) -> Step:
        """Return the step of an ordinary statement."""
        return timed(super().compute(operation, function, world=world), operation)


@dataclass(frozen=True, slots=True)
class _RoleCode:
    """One instance of a role: its name, the value that holds its index, and its body."""

    label: str
    index: int
    instance: int
    operation: Operation
    step: Step


def _instances(decoder: Decoder, operation: aref.Role) -> list[_RoleCode]:
    count = operation.instances.data if operation.instances is not None else 1
    body = decoder.body(operation.body.block)
    index = body.arguments[0] if body.arguments else -1
    label = operation.label.data
    names = [label] if count == 1 else [f"{label}{i}" for i in range(count)]
    return [_RoleCode(name, index, i, operation, body.step) for i, name in enumerate(names)]


def _users(ring: SSAValue, roles: list[_RoleCode], kind: type[Operation]) -> tuple[str, ...]:
    return tuple(
        role.label
        for role in roles
        if any(isinstance(op, kind) and op.operands[0] is ring for op in role.operation.walk())
    )


@dataclass(frozen=True, slots=True)
class _Program:
    """A decoded kernel and, for each aref, who gets from it."""

    decoder: Decoder
    setup: Step
    roles: list[_RoleCode]
    rings: list[tuple[aref.Create, tuple[str, ...]]]


def _decode(kernel: tile.Kernel, arguments: list[Any]) -> _Program:
    decoder = _ArefDecoder()
    for number, value in zip(decoder.numbered(kernel.body.block.args), arguments):
        decoder.template[number] = value
    operations = list(kernel.body.block.ops)
    if not any(isinstance(op, aref.Role) for op in operations):
        # An ordinary kernel: one role, and no ring.
        main = _RoleCode("main", -1, 0, kernel, decoder.steps(operations))
        return _Program(decoder, decoder.steps(()), [main], [])
    setup = decoder.steps(op for op in operations if not isinstance(op, aref.Role))
    roles = [r for op in operations if isinstance(op, aref.Role) for r in _instances(decoder, op)]
    creates = [op for op in operations if isinstance(op, aref.Create)]
    rings = [(op, _users(op.result, roles, aref.GetEnter)) for op in creates]
    for op in creates:
        if len(producers := _users(op.result, roles, aref.PutEnter)) > 1:
            raise ProtocolError(
                f"{op.label.data} has {len(producers)} producers: {', '.join(producers)}",
                place=place_of(op),
                why="a slot has one producer",
            )
    return _Program(decoder, setup, roles, rings)


def _start(program: _Program, machine: Machine, number: int, index: tuple[int, int, int]) -> None:
    """Start all roles of one program of the grid."""
    cluster = Cluster(machine, number, Clocks(len(program.roles) + 1))
    label = f"program {index}"
    shared = SharedMemory(0, cluster.clocks, label)
    rank = index[0] % machine.cluster
    block = Block(cluster, index, rank, 0, shared, RegisterPool(machine.scheduler))
    setup = Role("setup", block, len(program.roles), 1, 0, 0)
    frame = program.decoder.frame(setup)
    program.setup.run(frame)
    rings: list[Ring] = []
    for op, consumers in program.rings:
        depth = op.depth.data
        ring = Ring(op.label.data, depth, consumers, [Slot() for _ in range(depth)])
        frame.values[program.decoder.number(op.result)] = ring
        rings.append(ring)
    block.running = len(program.roles)
    begun = cluster.clocks.release(setup.rows)

    def end() -> None:
        block.running -= 1
        if block.running:
            return
        for ring in rings:
            if owed := ring.owed():
                raise ProtocolError(f"{ring.label} of {label} is not whole at the end: {owed}")

    for warp, code in enumerate(program.roles):
        role = Role(code.label, block, warp, 1, 0, 0)
        role.begin()
        cluster.clocks.acquire(role.rows, begun)
        values = frame.values.copy()
        if code.index >= 0:
            values[code.index] = np.int32(code.instance)
        body = code.step.alone(Frame(values, role))
        machine.scheduler.start(Task(role.label, role.where, body, end))


def run_aref(
    kernel: tile.Kernel,
    grid: tuple[int, ...],
    arguments: Mapping[str, object],
    *,
    seed: int = 0,
    schedule: str = "random",
    multiprocessors: int = H200.multiprocessors,
    cluster: int | None = None,
    defined: frozenset[Operation] = frozenset(),
) -> Trace:
    """Run aref IR concurrently, in place on the argument arrays.

    All programs run at the same time (all blocks, when the kernel is persistent: at most
    `multiprocessors`). A kernel without roles runs as one role. Blocks of a cluster do not meet at
    this level; `cluster` says how many make up one where the kernel asks (by default its `launch`
    attribute does). Arguments as for `run_tile`. Raises ProtocolError for a deadlock, a race on
    global memory, or a slot left entered, filled or borrowed at the end.
    """
    check_schedule(kernel, schedule)
    size = launch_number(kernel, "cluster", 0) if cluster is None else cluster
    blocks = launch_blocks(kernel, grid, multiprocessors, size or 1)
    if not size and any(isinstance(op, hopper.ClusterRank) for op in kernel.walk()):
        raise ArgumentError(
            "this aref IR asks for its rank in a cluster and does not say how large that is",
            why="its `launch` attribute has no `cluster`",
            remedy="pass cluster=, the plan's",
        )
    scheduler, trace = Scheduler(seed, schedule), Trace()
    memory = GlobalMemory(scheduler.wake, defined)
    program = _decode(kernel, bind_arguments(kernel, arguments, memory))
    races = GlobalRaces(memory.segments, written_arguments(kernel))
    user_grid = checked_grid(grid)
    machine = Machine(memory, races, scheduler, trace, user_grid, blocks, 32, 0, 0, size or 1)
    x, y, z = blocks
    with np.errstate(all="ignore"):
        for number, (k, j, i) in enumerate(product(range(z), range(y), range(x))):
            _start(program, machine, number, (i, j, k))
        scheduler.run()
    trace.steps = scheduler.step
    return trace


# --- rings ----------------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class Slot:
    """One slot: its values, how often it was filled, and by whom each filling was freed."""

    values: list[Any] = field(default_factory=list[Any])
    fills: int = 0
    frees: Counter[str] = field(default_factory=Counter[str])
    filled: Clock = field(default_factory=lambda: np.zeros(0, np.int32))
    filled_time: float = 0.0
    freed_time: float = 0.0
    freed: list[Clock] = field(default_factory=list[Clock])


@dataclass(eq=False, slots=True)
class Ring:
    """An aref of one program: D slots, one producer, and every role that gets from it."""

    label: str
    depth: int
    consumers: tuple[str, ...]
    slots: list[Slot]
    puts: int = 0
    published: int = 0
    gets: Counter[str] = field(default_factory=Counter[str])
    exits: Counter[str] = field(default_factory=Counter[str])
    passed: dict[str, int] = field(default_factory=dict[str, int])
    """By consumer: the number from which on it has only passed over fillings, whether or not there
    are so many."""
    queue: list[Task] = field(default_factory=list[Task])

    def is_free(self, nth: int) -> bool:
        """Tell whether the slot of the producer's `nth`-th put has been freed by all."""
        slot, before = self.slots[nth % self.depth], nth // self.depth
        return all(slot.frees[consumer] >= before for consumer in self.consumers)

    def is_filled(self, nth: int) -> bool:
        """Tell whether the slot of a consumer's `nth`-th get has been published."""
        return self.slots[nth % self.depth].fills > nth // self.depth

    def owed(self) -> str:
        """Return what is left over at the end, or the empty string."""
        if self.published < self.puts:
            return f"{self.puts - self.published} slots entered and never published"
        for consumer in self.consumers:
            got, freed = self.gets[consumer], self.exits[consumer]
            if not self.passed.get(consumer, got) <= self.published <= got:
                return f"{self.published} slots published, {got} taken by {consumer}"
            if freed != got:
                return f"{got - freed} slots taken by {consumer} and never freed"
        return ""
