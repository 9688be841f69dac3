"""Rules of hopper IR's set-up, mbarriers, named barriers and registers.

Every rule that synchronises yields once before it acts, so that other roles may run between any
two of them.

Rules of the operations that tell where a block stands in its launch, and what comes next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from xdsl.ir import Operation

from tawa.errors import InternalError, ProtocolError
from tawa.ir import hopper
from tawa.simulator.barriers import Mbarrier, NamedBarrier, check_made
from tawa.simulator.decode import (
    Decoder,
    Frame,
    Rule,
    Step,
    Wait,
    acts,
    along,
    computes,
    effect,
    step_of,
)
from tawa.simulator.role import Role
from tawa.simulator.shared import View, placement
from tawa.simulator.values import dtype_of, place_of

_BARRIER_BYTES = 8


def acting(run: Callable[[Role, Frame], Wait | None]) -> Step:
    """Return a step that lets others run and then acts, at once or with waits of its own."""

    def wait(frame: Frame) -> Wait:
        yield None
        if (waits := run(frame.world, frame)) is not None:
            yield from waits

    return Step(wait, True)


# --- set-up -----------------------------------------------------------------------------------


def _shared(operation: hopper.Shared) -> Callable[..., Any]:
    kind, offset, label = operation.result.type, operation.offset.data, operation.label.data
    layout, dtype, step = kind.layout.data, dtype_of(kind.element), kind.slot_bytes
    size = (kind.slots.data - 1) * step + layout.bytes
    place = placement(layout)
    if offset % layout.alignment:
        raise ProtocolError(
            f"buffer {label} lies at byte {offset} of shared memory",
            why=f"its layout ({layout}) repeats every {layout.alignment} bytes",
        )

    def views(world: Role) -> list[View]:
        world.block.reserve(offset, size, f"buffer {label}")
        bases = [offset + slot * step for slot in range(kind.slots.data)]
        return [
            View(f"{label}[{slot}]", base, place, dtype, layout) for slot, base in enumerate(bases)
        ]

    return views


def _barriers(operation: hopper.Barriers) -> Callable[..., Any]:
    kind, offset, label = operation.result.type, operation.offset.data, operation.label.data
    count, arrivals = kind.count.data, operation.arrivals.data
    if offset % _BARRIER_BYTES:
        raise ProtocolError(f"barriers {label} at byte {offset}, not a multiple of 8")

    def make(world: Role) -> list[Mbarrier]:
        block = world.block
        block.reserve(offset, count * _BARRIER_BYTES, f"barriers {label}")
        block.reserved.append((offset, offset + count * _BARRIER_BYTES, label))
        where = "" if int(np.prod(block.machine.blocks)) == 1 else f" of {block.label}"
        barriers = [
            Mbarrier(f"{label}[{slot}]{where}", arrivals, world.scheduler) for slot in range(count)
        ]
        for slot, barrier in enumerate(barriers):
            block.barriers[offset + slot * _BARRIER_BYTES] = barrier
        return barriers

    return make


def _init_barriers(world: Role, barriers: list[Mbarrier]) -> None:
    row = world.first_row
    for barrier in barriers:
        barrier.init(row, int(world.clocks.now[row, row]))


def _fence_barrier_init(world: Role) -> None:
    for barrier in world.block.barriers.values():
        barrier.fenced = barrier.made is not None


def _nothing(world: Role, *_: object) -> None:
    """A hint; or who follows the launch, which is the only one."""


def _block_sync(operation: hopper.BlockSync) -> Callable[..., Any]:
    def sync(world: Role) -> None:
        if world.one or world.threads != world.block.machine.threads:
            raise ProtocolError(
                f"block_sync inside {world.where}, which is not the whole block",
                place=place_of(operation),
            )
        world.clocks.meet(world.active)

    return sync


def _cluster_sync(decoder: Decoder, operation: hopper.ClusterSync) -> Step:
    relaxed = operation.relaxed is not None

    def meet(role: Role, _: Frame) -> Wait:
        if (blocked := role.block.cluster.sync(operation, relaxed)) is not None:
            yield blocked

    return acting(meet)


def _set_registers(decoder: Decoder, operation: hopper.SetRegisters) -> Step:
    count, direction = operation.count.data, operation.direction.data

    def change_held(role: Role, _: Frame) -> Wait:
        role.check_warpgroups(operation)
        change = count - role.held
        if count % 8 or not 24 <= count <= 256 or (change > 0) != (direction == "inc"):
            raise ProtocolError(
                f'setmaxnreg "{direction}" to {count} in {role.where}, which holds {role.held}',
                place=place_of(operation),
                why="a multiple of 8 in 24..256; inc must rise, dec must fall",
            )
        pool = role.block.pool
        if direction == "dec":
            pool.give(-change * role.threads)
        else:
            if pool.free < change * role.threads:
                yield pool.wait(change * role.threads, operation)
            pool.free -= change * role.threads
        role.held = count

    return acting(change_held)


def _one_thread(decoder: Decoder, operation: hopper.OneThread) -> Step:
    body = decoder.body(operation.body.block).step

    def wait(frame: Frame) -> Wait:
        if frame.world.one:
            raise InternalError("one_thread inside one_thread", place=place_of(operation))
        frame.world.one = True
        yield from body.within(frame)
        frame.world.one = False

    return step_of(wait, body.blocking)


# --- mbarriers --------------------------------------------------------------------------------


def pick(items: list[Any], index: Any, what: str, operation: Operation) -> Any:
    """Return items[index]; raises ProtocolError for an index out of range."""
    if not 0 <= index < len(items):
        raise ProtocolError(
            f"{what} {int(index)} of {len(items)}",
            place=place_of(operation),
            why=f"{operation.name} takes an index in 0..{len(items) - 1}",
        )
    return items[index]


def _wait(decoder: Decoder, operation: hopper.Wait) -> Step:
    barriers, slot, phase = decoder.numbered((operation.barriers, operation.slot, operation.phase))

    def wait(role: Role, frame: Frame) -> Wait:
        values = frame.values
        barrier: Mbarrier = pick(values[barriers], values[slot], "barrier", operation)
        parity = int(values[phase])
        if parity not in (0, 1):
            raise ProtocolError(f"wait for parity {parity}", place=place_of(operation))
        for row in role.clocks.numbers(role.active).tolist():
            check_made(barrier, role.clocks, row, False, operation)
        if not barrier.completed(parity):
            yield barrier.wait(parity, operation)
        role.clocks.acquire(role.active, barrier.done)
        role.stall(barrier.done_time, f"wait {barrier.name}")

    return acting(wait)


def _arrive(decoder: Decoder, operation: hopper.Arrive) -> Step:
    barriers, slot = decoder.numbered((operation.barriers, operation.slot))
    by = operation.by.data
    blocks = operation.cluster.data if operation.cluster is not None else 0

    def arrive(role: Role, frame: Frame) -> Wait:
        values = frame.values
        local: Mbarrier = pick(values[barriers], values[slot], "barrier", operation)
        targets = [local]
        if blocks:
            targets = [role.remote(local, rank, operation) for rank in range(blocks)]
        for number, row in enumerate(role.elected(by, operation)):
            if number and by != "all":
                yield None  # warps drift apart: others may see the first arrival alone
            clock = role.clocks.release(row)
            for target in targets:
                check_made(target, role.clocks, row, target is not local, operation)
                target.arrive(1, clock, role.time, operation)

    return acting(arrive)


def _expect(decoder: Decoder, operation: hopper.Expect) -> Step:
    barriers, slot = decoder.numbered((operation.barriers, operation.slot))
    count = operation.bytes.data

    def expect(role: Role, frame: Frame) -> None:
        values = frame.values
        barrier: Mbarrier = pick(values[barriers], values[slot], "barrier", operation)
        row = role.single(operation)
        check_made(barrier, role.clocks, row, False, operation)
        barrier.expect(count, operation)
        barrier.arrive(1, role.clocks.release(row), role.time, operation)

    return acting(expect)


# --- named barriers and fences ----------------------------------------------------------------


def _named_barrier(decoder: Decoder, operation: hopper.NamedBarrier) -> Step:
    number, scope = operation.id.data, operation.scope.data
    sync, threads = operation.kind.data == "sync", operation.threads.data

    def groups(role: Role) -> list[tuple[int, slice]]:
        if role.one:
            raise ProtocolError("a named barrier inside one_thread", place=place_of(operation))
        if scope != "warpgroup":
            return [(number, role.rows)]
        role.check_warpgroups(operation)
        first = role.first_row
        return [
            (number + group, slice(first + 4 * group, first + 4 * group + 4))
            for group in range(role.warps // 4)
        ]

    def meet(role: Role, _: Frame) -> Wait:
        begun: list[tuple[Any, int, slice]] = []
        for identity, rows in groups(role):
            if not 0 < identity < 16:
                raise ProtocolError(
                    f"named barrier {identity} in {role.where}",
                    place=place_of(operation),
                    why="roles use 1..15; 0 is the block's",
                )
            barrier = role.block.named_barrier(identity)
            count = 32 * (rows.stop - rows.start)
            clock = role.clocks.release(rows)
            begun.append(
                (barrier, barrier.arrive(count, threads, clock, role.time, operation), rows)
            )
        if not sync:
            return
        for barrier, generation, rows in begun:
            if barrier.generation <= generation:
                yield barrier.wait(generation, operation)
            role.clocks.acquire(rows, barrier.done)
            role.stall(barrier.done_time, f"named barrier {barrier.number}")

    return acting(meet)


def _turn(decoder: Decoder, operation: hopper.Turn) -> Step:
    """Take and pass turns, warpgroups in step.

    A role runs as one: all its warpgroups take the turn at once, where on hardware each would wait
    for the one before. What is kept is the count at each barrier, so that turns must alternate and
    be opened and closed; the order that turns give is not used, and the proof looks at who waits.
    """
    first, groups, kind = operation.id.data, operation.groups.data, operation.kind.data

    def turn(role: Role, _: Frame) -> Wait:
        role.check_warpgroups(operation)
        if role.warps != 4 * groups:
            raise ProtocolError(
                f"turns of {groups} warpgroups in {role.where}", place=place_of(operation)
            )
        begin = role.first_row
        barriers = [role.block.named_barrier(first + group) for group in range(groups)]
        holds = barriers[1].arrived > 0
        if holds != (kind == "pass"):
            raise ProtocolError(
                f"{role.where} comes to turn {kind!r} while it holds {'the' if holds else 'no'} "
                "turn",
                place=place_of(operation),
                why="warpgroups take turns and pass them on, one after the other",
            )

        def announce(group: int, barrier: NamedBarrier) -> int:
            rows = slice(begin + 4 * group, begin + 4 * group + 4)
            return barrier.arrive(128, 256, role.clocks.release(rows), role.time, operation)

        if kind == "open":
            announce(groups - 1, barriers[0])
            return
        for group in range(1 if kind == "close" else groups):
            taken = group + 1 if kind == "pass" else group
            generation = announce(group, barriers[taken % groups])
            if kind != "pass" and group == 0 and barriers[0].generation <= generation:
                yield barriers[0].wait(generation, operation)

    return acting(turn)


# --- where a block stands -------------------------------------------------------------------------


def _next_program(world: Role, counter: Any, programs: Any) -> Any:
    return np.int32(world.block.machine.next_program())


ID_RULES: dict[type[Operation], Rule] = {
    hopper.BlockId: along(lambda world: world.block.index),
    hopper.NumBlocks: along(lambda world: world.block.machine.blocks),
    hopper.ClusterRank: acts(lambda world: np.int32(world.block.rank)),
    hopper.GridExtent: along(lambda world: world.grid),
    hopper.Counter: acts(lambda world: np.int32(0)),
    hopper.NextProgram: acts(_next_program),
}
"""Where a block stands, by class: these operations appear from persistence on."""


SYNC_RULES: dict[type[Operation], Rule] = {
    **ID_RULES,
    hopper.TensorMap: computes(lambda desc: desc),
    hopper.Shared: effect(_shared),
    hopper.Barriers: effect(_barriers),
    hopper.InitBarriers: acts(_init_barriers),
    hopper.FenceBarrierInit: acts(_fence_barrier_init),
    hopper.PrefetchMap: acts(_nothing),
    hopper.BlockSync: effect(_block_sync),
    hopper.ClusterSync: _cluster_sync,
    hopper.GridWait: acts(Role.wait_for_kernels),
    hopper.LaunchDependents: acts(_nothing),
    hopper.SetRegisters: _set_registers,
    hopper.OneThread: _one_thread,
    hopper.Wait: _wait,
    hopper.Arrive: _arrive,
    hopper.Expect: _expect,
    hopper.NamedBarrier: _named_barrier,
    hopper.Turn: _turn,
    hopper.ProxyFence: acts(lambda world: world.clocks.fence(world.active)),
}
"""Set-up and synchronisation, by class."""
