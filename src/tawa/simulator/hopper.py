"""The concurrent run of hopper IR: all roles of all blocks as coroutines, under one scheduler.

A launch is a queue of clusters; as many as the machine holds run at a time. Each block runs its
set-up, then its roles at once, then what stands after them. Data moves tile by tile in NumPy, by
the rules of the sequential oracle; what is added here is when it moves and who may see it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from xdsl.ir import Operation

from tawa.errors import ArgumentError, ProtocolError
from tawa.ir import hopper, tile
from tawa.simulator.arguments import bind_arguments
from tawa.simulator.barriers import RegisterPool
from tawa.simulator.clocks import Clocks
from tawa.simulator.decode import Frame, Step
from tawa.simulator.hopper_decode import HopperDecoder
from tawa.simulator.machine import Block, Cluster, Coroutine, Machine, launch_blocks, launch_number
from tawa.simulator.memory import GlobalMemory
from tawa.simulator.races import GlobalRaces, written_arguments
from tawa.simulator.role import Role
from tawa.simulator.scheduler import BLOCK, Blocked, Need, Scheduler, Task, check_schedule
from tawa.simulator.shared import SharedMemory
from tawa.simulator.tile import checked_grid
from tawa.simulator.trace import Trace
from tawa.simulator.values import place_of
from tawa.target import H200


@dataclass(frozen=True, slots=True)
class _Program:
    """A decoded kernel: set-up, one body for each role, and what stands after them."""

    decoder: HopperDecoder
    setup: Step
    roles: tuple[tuple[hopper.Role, Step], ...]
    ending: Step


def _decode(kernel: tile.Kernel, arguments: list[Any]) -> _Program:
    decoder = HopperDecoder(kernel, bool(launch_number(kernel, "early", 0)))
    for number, value in zip(decoder.numbered(kernel.body.block.args), arguments):
        decoder.template[number] = value
    before: list[Operation] = []
    roles: list[hopper.Role] = []
    after: list[Operation] = []
    for op in kernel.body.block.ops:
        if isinstance(op, hopper.Role):
            roles.append(op)
        else:
            (after if roles else before).append(op)
    setup = decoder.steps(before)
    bodies = tuple((role, decoder.body(role.body.block).step) for role in roles)
    return _Program(decoder, setup, bodies, decoder.steps(after))


# --- the launch -------------------------------------------------------------------------------


def _threads(kernel: tile.Kernel) -> int:
    roles = [op for op in kernel.body.block.ops if isinstance(op, hopper.Role)]
    if not roles:
        raise ArgumentError("the kernel has no roles", why="hopper IR runs roles")
    warps = max(role.first_warp.data + role.warps.data for role in roles)
    return launch_number(kernel, "threads", 32 * warps)


def _shared_bytes(kernel: tile.Kernel) -> int:
    sizes = [0]
    for op in kernel.body.block.ops:
        match op:
            case hopper.Shared():
                kind: Any = op.result.type
                sizes.append(op.offset.data + kind.bytes)
            case hopper.Barriers():
                kind = op.result.type
                sizes.append(op.offset.data + 8 * kind.count.data)
            case _:
                pass
    return launch_number(kernel, "shared", max(sizes))


class _Launch:
    """Runs clusters, a number of them at a time, until all have ended."""

    def __init__(self, program: _Program, machine: Machine, resident: int) -> None:
        self.program = program
        self.machine = machine
        x, y, z = machine.blocks
        size = machine.cluster
        starts = product(range(z), range(y), range(0, x, size))
        self.todo = [(i, j, k) for k, j, i in starts]
        self.todo.reverse()
        self.count = 0
        machine.scheduler.resident = size * min(resident, len(self.todo))
        for _ in range(min(resident, len(self.todo))):
            self.next_cluster()

    def next_cluster(self) -> None:
        """Start one more cluster, if any is left."""
        if not self.todo:
            return
        i, j, k = self.todo.pop()
        machine = self.machine
        machine.scheduler.later = machine.cluster * len(self.todo)
        warps = machine.threads // 32
        cluster = Cluster(machine, self.count, Clocks(warps * machine.cluster))
        self.count += 1
        for rank in range(machine.cluster):
            index = (i + rank, j, k)
            shared = SharedMemory(machine.shared, cluster.clocks, f"block {index}")
            pool = RegisterPool(machine.scheduler)
            block = Block(cluster, index, rank, rank * warps, shared, pool)
            cluster.blocks.append(block)
        for block in cluster.blocks:
            whole = Role(BLOCK, block, 0, warps, machine.registers, machine.registers)
            body = self._block(block, whole)
            task = Task(BLOCK, whole.where, body, partial(self._end_block, block))
            machine.scheduler.start(task)

    def _block(self, block: Block, whole: Role) -> Coroutine:
        """The life of a block: set-up, roles, ending."""
        program, machine = self.program, self.machine
        frame = program.decoder.frame(whole)
        yield from program.setup.alone(frame)
        for op, body in program.roles:
            role = Role(
                op.label.data,
                block,
                op.first_warp.data,
                op.warps.data,
                op.registers.data,
                machine.registers,
                time=whole.time,
            )
            role.begin()
            block.running += 1
            coroutine = body.alone(Frame(frame.values.copy(), role))
            on_end = partial(self._end_role, role, op)
            machine.scheduler.start(Task(role.label, role.where, coroutine, on_end))

        def need() -> Need:
            return Need("its roles", "-", f"{block.running} still run")

        yield Blocked(lambda: block.running == 0, block.queue, need, program.roles[0][0])
        yield from program.ending.alone(frame)

    def _end_role(self, role: Role, operation: hopper.Role) -> None:
        block = role.block
        if left := _left_open(role):
            raise ProtocolError(
                f"{role.where} ends with work in flight: {left}",
                place=place_of(operation),
                remedy="wait for it before the role ends",
            )
        if self.program.decoder.early and not role.begun_alone:
            raise ProtocolError(
                f"{role.where} ends without having waited for the kernels before this one",
                place=place_of(operation),
                why="the kernel is launched early: those after it take its end for theirs too",
                remedy="put hopper.grid_wait above its first effect",
            )
        if role.registers > role.held:
            raise ProtocolError(
                f"{role.where} is built for {role.registers} registers a thread, holds {role.held}",
                place=place_of(operation),
                remedy='take them with set_registers "inc"',
            )
        block.running -= 1
        self.machine.scheduler.wake(block.queue)

    def _end_block(self, block: Block) -> None:
        cluster, clocks = block.cluster, block.cluster.clocks
        rows = slice(block.first_row, block.first_row + self.machine.threads // 32)
        for access in block.shared.records:
            if not access.asynchronous or not access.write:
                continue
            if not clocks.known(rows, access.columns, access.clocks).all(axis=1).any():
                raise ProtocolError(
                    f"{block.label} ends with a copy in flight\n  {access}",
                    place=place_of(access.operation),
                    why="no thread of the block has waited for it",
                )
        owed = [text for barrier in block.barriers.values() if (text := barrier.leftover())]
        if owed:
            raise ProtocolError(
                f"{block.label} ends with barriers in mid-phase: {'; '.join(owed)}",
                why="somebody arrived or expected bytes for nothing",
            )
        if half := [b for b in block.named.values() if b.arrived]:
            raise ProtocolError(
                f"{block.label} ends with {half[0].arrived} of {half[0].threads} threads at named "
                f"barrier {half[0].number}"
            )
        block.ended = True
        if all(other.ended for other in cluster.blocks):
            self.next_cluster()


def _left_open(role: Role) -> str:
    """Return what a role has started and never waited for, or the empty string."""
    if role.committed < role.issued:
        return f"{role.issued - role.committed} wgmmas never committed"
    if role.waited < role.issued:
        return f"wgmma groups up to product {role.issued}, waited for {role.waited}"
    for groups in role.bulk.values():
        if groups.open:
            return f"{len(groups.open)} TMA stores never committed"
        if left := sum(map(bool, groups.groups)):  # a group of no stores is complete at once
            return f"{left} groups of TMA stores never waited for"
    if role.copies.told < role.copies.started:
        return f"cp.async copies after number {role.copies.told}"
    return ""


def run_hopper(
    kernel: tile.Kernel,
    grid: tuple[int, ...],
    arguments: Mapping[str, object],
    *,
    seed: int = 0,
    schedule: str = "random",
    late: str = "random",
    multiprocessors: int = H200.multiprocessors,
    defined: frozenset[Operation] = frozenset(),
) -> Trace:
    """Run hopper IR concurrently, in place on the argument arrays, and return the timeline.

    `grid` is the user's grid of programs; arguments as for `run_tile`. Equal `seed`, `schedule`
    (see `tawa.simulator.scheduler`) and `late` give equal runs; as many blocks are resident at a
    time as `multiprocessors` hold by the kernel's `launch`.
    Raises ProtocolError for a race, a deadlock, an early read or anything left over, LaunchError
    for an access out of bounds and for loops that wait for what no resident block writes.
    """
    check_schedule(kernel, schedule)
    blocks = launch_blocks(kernel, grid, multiprocessors)
    scheduler, trace = Scheduler(seed, schedule, late), Trace()
    memory = GlobalMemory(scheduler.wake, defined)
    program = _decode(kernel, bind_arguments(kernel, arguments, memory))
    threads = _threads(kernel)
    machine = Machine(
        memory,
        GlobalRaces(memory.segments, written_arguments(kernel)),
        scheduler,
        trace,
        checked_grid(grid),
        blocks,
        threads,
        launch_number(kernel, "registers", H200.registers_at_launch(threads)),
        _shared_bytes(kernel),
        launch_number(kernel, "cluster", 1),
    )
    with np.errstate(all="ignore"):
        resident = multiprocessors * launch_number(kernel, "blocks", 1) // machine.cluster
        _Launch(program, machine, max(1, resident))
        scheduler.run()
    trace.steps = scheduler.step
    return trace
