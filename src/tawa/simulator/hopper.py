"""The concurrent run of hopper IR: all roles of all blocks as coroutines, under one scheduler.

A launch is a queue of clusters; as many as the machine holds run at a time. Each block runs its
set-up, then its roles at once, then what stands after them. Data moves tile by tile in NumPy, by the
same rules as in the sequential oracle; what is added here is when it moves and who may see it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from xdsl.dialects import scf
from xdsl.dialects.builtin import IntAttr, IntegerAttr, TensorType
from xdsl.ir import BlockArgument, Operation, SSAValue

from tawa.errors import ArgumentError, ProtocolError
from tawa.ir import hopper, tile
from tawa.simulator.barriers import RegisterPool
from tawa.simulator.clocks import Clocks
from tawa.simulator.copy_rules import COPY_RULES
from tawa.simulator.decode import Decoder, Frame, Rule, Step, Wait
from tawa.simulator.footprints import first_owner, register_layout
from tawa.simulator.machine import Block, Cluster, Coroutine, Fragment, Grid, Machine, Role
from tawa.simulator.memory import GlobalMemory, bind_arguments
from tawa.simulator.mma_rules import MMA_RULES
from tawa.simulator.races import GlobalRaces, written_arguments
from tawa.simulator.rules import RULES
from tawa.simulator.scheduler import Blocked, Need, Scheduler, Task
from tawa.simulator.shared import SharedMemory
from tawa.simulator.sync_rules import SYNC_RULES
from tawa.simulator.tile import checked_grid
from tawa.simulator.trace import Trace, tile_time
from tawa.simulator.values import place_of
from tawa.target import H200

_RULES: dict[type[Operation], Rule] = {**RULES, **SYNC_RULES, **COPY_RULES, **MMA_RULES}
_ATOMICS = (tile.Atomic, tile.CompareExchange)
_KEEPS = (hopper.Wgmma, hopper.WgmmaWait, hopper.Pin, scf.ForOp, scf.IfOp, scf.WhileOp)


# --- decoding ---------------------------------------------------------------------------------


def _sources(value: SSAValue) -> list[SSAValue]:
    """Return the values that may become this one without an instruction: through control flow."""
    if isinstance(value, BlockArgument):
        parent = value.block.parent_op()
        match parent:
            case scf.ForOp() if value.index > 0:
                return [parent.iter_args[value.index - 1], _yielded(parent, 0, value.index - 1)]
            case scf.WhileOp() if value.block is parent.before_region.block:
                return [parent.arguments[value.index], _yielded(parent, 1, value.index)]
            case scf.WhileOp():
                return [_yielded(parent, 0, value.index + 1)]
            case _:
                return []
    owner = value.owner
    position = list(owner.results).index(value)  # pyright: ignore[reportAttributeAccessIssue]
    match owner:
        case scf.ForOp():
            return [owner.iter_args[position], _yielded(owner, 0, position)]
        case scf.WhileOp():
            return [_yielded(owner, 0, position + 1)]
        case scf.IfOp():
            return [_yielded(owner, region, position) for region in range(len(owner.regions))]
        case hopper.WgmmaWait() | hopper.Pin():
            return [owner.operands[position]]
        case hopper.Wgmma():
            return [owner.acc]
        case _:
            return []


def _yielded(owner: Operation, region: int, position: int) -> SSAValue:
    last = owner.regions[region].block.last_op
    assert last is not None, "a region with results ends in a terminator; report this"
    return last.operands[position]


def _wgmma_registers(kernel: tile.Kernel) -> set[SSAValue]:
    """Return the values whose registers a wgmma reads or writes: accumulators and A fragments."""
    todo: list[SSAValue] = []
    for op in kernel.walk():
        if isinstance(op, hopper.Wgmma):
            todo += [op.acc, op.result]
            todo += [op.a] if isinstance(op.a.type, TensorType) else []
    found: set[SSAValue] = set()
    while todo:
        value = todo.pop()
        if value not in found:
            found.add(value)
            todo += _sources(value)
    return found


class _HopperDecoder(Decoder):
    """Adds to the tile rules what registers, threads and time need.

    Ordinary instructions read fragments only when they may; what they write into registers that a
    wgmma uses is stamped; global accesses know which warp makes them.
    """

    def __init__(self, kernel: tile.Kernel) -> None:
        super().__init__(_RULES)
        self.registers = _wgmma_registers(kernel)

    def reader(self, value: SSAValue, operation: Operation) -> Callable[[list[Any]], Any]:
        """Return the function that reads a tensor, which must not be in flight."""
        number = self.number(value)

        def read(values: list[Any]) -> Any:
            found = values[number]
            return found.read(operation) if type(found) is Fragment else found

        return read

    def operation(self, operation: Operation) -> Step | None:
        """Decode one operation; atomics and volatile loads let others run first."""
        step = super().operation(operation)
        polls = isinstance(operation, _ATOMICS) or (
            isinstance(operation, tile.Load) and operation.volatile is not None
        )
        if step is None or step.blocking or not polls:
            return step
        run = step.run

        def wait(frame: Frame) -> Wait:
            yield None
            run(frame)

        return Step(wait, True)

    def compute(
        self, operation: Operation, function: Callable[..., Any], *, world: bool = False
    ) -> Step:
        """Return the step of an ordinary instruction."""
        fragile = any(isinstance(value.type, TensorType) for value in operation.operands)
        if self.registers and fragile:
            function = _reading(function, operation)
        step = super().compute(operation, function, world=world)
        if isinstance(operation, tile.Load | tile.Store | tile.Atomic):
            step = _owned(step, operation)
        marked = [v for v in operation.results if v in self.registers]
        if marked and not isinstance(operation, _KEEPS):
            step = _stamped(step, self.numbered(marked))
        return _timed(step, operation)


def _reading(function: Callable[..., Any], operation: Operation) -> Callable[..., Any]:
    def read(*operands: Any) -> Any:
        return function(*[x.read(operation) if type(x) is Fragment else x for x in operands])

    return read


def _stamped(step: Step, outputs: tuple[int, ...]) -> Step:
    run = step.run

    def stamp(frame: Frame) -> None:
        run(frame)
        role: Role = frame.world
        for out in outputs:
            frame.values[out] = Fragment(role, frame.values[out], born=role.fences)

    return Step(stamp)


def _owned(step: Step, operation: tile.Load | tile.Store | tile.Atomic) -> Step:
    layout = register_layout(operation.pointer.type)
    if layout is None:
        return step
    owner, run = first_owner(layout), step.run

    def own(frame: Frame) -> None:
        frame.world.owners = owner
        run(frame)
        frame.world.owners = None

    return Step(own)


def _timed(step: Step, operation: Operation) -> Step:
    kinds = [value.type for value in (*operation.results, *operation.operands)]
    sizes = [kind.get_shape() for kind in kinds if isinstance(kind, TensorType)]
    elements = max((int(np.prod(shape)) for shape in sizes), default=0)
    if not elements:
        return step
    run, name = step.run, operation.name.partition(".")[2]

    def timed(frame: Frame) -> None:
        run(frame)
        role: Role = frame.world
        role.spent(tile_time(elements, role.warps), name)

    return Step(timed)


@dataclass(frozen=True, slots=True)
class _Program:
    """A decoded kernel: set-up, one body for each role, and what stands after them."""

    decoder: Decoder
    setup: Step
    roles: tuple[tuple[hopper.Role, Step], ...]
    ending: Step


def _decode(kernel: tile.Kernel, arguments: list[Any]) -> _Program:
    decoder = _HopperDecoder(kernel)
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


def _number(kernel: tile.Kernel, name: str, default: int) -> int:
    launch = kernel.launch.data if kernel.launch is not None else {}
    match launch.get(name):
        case IntAttr() as found:
            return found.data
        case IntegerAttr() as found:
            return int(found.value.data)
        case _:
            return default


def launch_blocks(
    kernel: tile.Kernel, grid: tuple[int, ...], multiprocessors: int = H200.multiprocessors
) -> tuple[int, int, int]:
    """Return the grid of blocks that a launch of hopper IR has, given the user's grid.

    A persistent kernel gets one block for each multiprocessor (whole clusters), at most one for each
    program; any other one block for each program, rounded up to whole clusters along x.
    """
    x, y, z = checked_grid(grid)
    cluster = _number(kernel, "cluster", 1)
    if _number(kernel, "persistent", 0):
        count = min(max(1, multiprocessors // cluster), -(-x * y * z // cluster))
        return count * cluster, 1, 1
    return -(-x // cluster) * cluster, y, z


def _threads(kernel: tile.Kernel) -> int:
    roles = [op for op in kernel.body.block.ops if isinstance(op, hopper.Role)]
    if not roles:
        raise ArgumentError("the kernel has no roles", why="hopper IR runs roles")
    warps = max(role.first_warp.data + role.warps.data for role in roles)
    return _number(kernel, "threads", 32 * warps)


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
    return _number(kernel, "shared", max(sizes))


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
        for _ in range(min(resident, len(self.todo))):
            self.next_cluster()

    def next_cluster(self) -> None:
        """Start one more cluster, if any is left."""
        if not self.todo:
            return
        i, j, k = self.todo.pop()
        machine = self.machine
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
            whole = Role("block", block, 0, warps, machine.registers, machine.registers)
            body = self._block(block, whole)
            task = Task("block", whole.where, body, lambda b=block: self._end_block(b))
            machine.scheduler.start(task)

    def _block(self, block: Block, whole: Role) -> Coroutine:
        """The life of a block: set-up, roles, ending."""
        program, machine = self.program, self.machine
        frame = program.decoder.frame(whole)
        yield from _through(program.setup, frame)
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
            block.running += 1
            coroutine = _through(body, Frame(frame.values.copy(), role))
            on_end: Callable[[], None] = lambda r=role, o=op: self._end_role(r, o)
            machine.scheduler.start(Task(role.label, role.where, coroutine, on_end))

        def need() -> Need:
            return Need("its roles", "-", f"{block.running} still run")

        yield Blocked(lambda: block.running == 0, block.queue, need, program.roles[0][0])
        yield from _through(program.ending, frame)

    def _end_role(self, role: Role, operation: hopper.Role) -> None:
        block = role.block
        if left := _left_open(role):
            raise ProtocolError(
                f"{role.where} ends with work in flight: {left}",
                place=place_of(operation),
                remedy="wait for it before the role ends",
            )
        if role.registers > role.held:
            raise ProtocolError(
                f"{role.where} is built for {role.registers} registers a thread and holds {role.held}",
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


def _through(step: Step, frame: Frame) -> Coroutine:
    if step.blocking:
        yield from step.run(frame)
    else:
        yield None
        step.run(frame)


def _left_open(role: Role) -> str:
    """Return what a role has started and never waited for, or the empty string."""
    if role.committed < role.issued:
        return f"{role.issued - role.committed} wgmmas never committed"
    if role.waited < role.issued:
        return f"wgmma groups up to product {role.issued}, waited for {role.waited}"
    for groups in role.bulk.values():
        if groups.open:
            return f"{len(groups.open)} TMA stores never committed"
        if groups.groups:
            return f"{len(groups.groups)} groups of TMA stores never waited for"
    if role.copies.waited < role.copies.started:
        return f"cp.async copies after number {role.copies.waited}"
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
) -> Trace:
    """Run hopper IR concurrently, in place on the argument arrays, and return the timeline.

    `grid` is the user's grid of programs; arguments as for `run_tile`. Equal `seed`, `schedule` (see
    `Scheduler`) and `late` give equal runs. `multiprocessors` blocks are resident at a time.
    Raises ProtocolError for a race, a deadlock, an early read or anything left over; LaunchError for
    an access out of bounds.
    """
    blocks = launch_blocks(kernel, grid, multiprocessors)
    memory = GlobalMemory()
    program = _decode(kernel, bind_arguments(kernel, arguments, memory))
    threads = _threads(kernel)
    scheduler, trace = Scheduler(seed, schedule, late), Trace()
    machine = Machine(
        memory,
        GlobalRaces(memory.segments, written_arguments(kernel)),
        scheduler,
        trace,
        checked_grid(grid),
        blocks,
        threads,
        _number(kernel, "registers", H200.registers_at_launch(threads)),
        _shared_bytes(kernel),
        _number(kernel, "cluster", 1),
    )
    with np.errstate(all="ignore"):
        _Launch(program, machine, max(1, multiprocessors // machine.cluster))
        scheduler.run()
    trace.steps = scheduler.step
    return trace


def as_grid(grid: tuple[int, ...]) -> Grid:
    """Return a grid as three extents."""
    return checked_grid(grid)
