"""Barriers, fences, elections and what a block is: one call for each operation."""

from __future__ import annotations

from collections.abc import Callable

from xdsl.ir import Operation

from tawa.codegen.emit.emitter import Emitter
from tawa.codegen.wrappers import barriers as w
from tawa.codegen.wrappers.core import Wrapper
from tawa.codegen.wrappers.memory import NEXT_PROGRAM
from tawa.errors import InternalError
from tawa.ir import hopper, tile

_AXES = "xyz"


def wait(e: Emitter, op: hopper.Wait) -> None:
    """Every thread of the role (or the one thread) waits."""
    e.do(w.BARRIER_WAIT, e.barrier(op.barriers, op.slot), e.scalar(op.phase).text)


def arrive(e: Emitter, op: hopper.Arrive) -> None:
    """The elected threads arrive, here or (lane i for block i) in every block of the cluster."""
    barrier = e.barrier(op.barriers, op.slot)
    if op.by.data == "warp":
        # The arrive stands for what all lanes have done, and lanes may have drifted apart.
        e.do(w.WARP_SYNC)
    if op.cluster is None or op.cluster.data == 1:
        with e.when(e.elected(op.by.data)):
            e.do(w.BARRIER_ARRIVE, barrier)
        return
    blocks = op.cluster.data
    if e.one_thread:
        with e.unrolled("block", blocks) as block:
            e.do(w.BARRIER_ARRIVE_CLUSTER, barrier, block)
        return
    match op.by.data:
        case "warp":
            thread = e.lane
        case "warpgroup":
            thread = f"{e.thread} % 128" if e.role.warpgroups > 1 else e.thread
        case "role":
            thread = e.thread
        case other:
            raise InternalError(f"a cluster arrive by {other}")
    with e.block(f"if ({thread} < {blocks})"):
        e.do(w.BARRIER_ARRIVE_CLUSTER, barrier, thread)


def calls(wrapper: Wrapper) -> Callable[[Emitter, Operation], None]:
    """Return the rule that every thread which is here calls a function without arguments."""
    return lambda e, op: e.do(wrapper)


def expect(e: Emitter, op: hopper.Expect) -> None:
    """One thread arrives and announces the payload's bytes."""
    e.elected("thread")
    e.do(w.BARRIER_EXPECT, e.barrier(op.barriers, op.slot), op.bytes.data)


def named_barrier(e: Emitter, op: hopper.NamedBarrier) -> None:
    """Threads meet at a hardware barrier; ids are immediates but for several warpgroups."""
    arrives = op.kind.data == "arrive"
    number, threads = op.id.data, op.threads.data
    if op.scope.data == "warpgroup" and e.role.warpgroups > 1:
        wrapper = w.NAMED_ARRIVE_OF_GROUP if arrives else w.NAMED_SYNC_OF_GROUP
        e.do(wrapper, f"{number} + {e.warpgroup}", template=str(threads))
        return
    wrapper = w.NAMED_ARRIVE if arrives else w.NAMED_SYNC
    e.do(wrapper, template=f"{number}, {threads}")


def turn(e: Emitter, op: hopper.Turn) -> None:
    """Each warpgroup waits for its turn at its own barrier, and passes it on at the next one's."""
    first, groups, threads = op.id.data, op.groups.data, 256
    match op.kind.data:
        case "open":
            with e.block(f"if ({e.warpgroup} == {groups - 1})"):
                e.do(w.NAMED_ARRIVE, template=f"{first}, {threads}")
        case "take":
            e.do(w.NAMED_SYNC_OF_GROUP, f"{first} + {e.warpgroup}", template=str(threads))
        case "pass":
            after = f"({e.warpgroup} + 1) % {groups}"
            e.do(w.NAMED_ARRIVE_OF_GROUP, f"{first} + {after}", template=str(threads))
        case "close":
            with e.block(f"if ({e.warpgroup} == 0)"):
                e.do(w.NAMED_SYNC, template=f"{first}, {threads}")
        case other:
            raise InternalError(f"a turn cannot be {other}")


def set_registers(e: Emitter, op: hopper.SetRegisters) -> None:
    """Every warp of the role gives registers back or takes them."""
    wrapper = w.TAKE_REGISTERS if op.direction.data == "inc" else w.GIVE_REGISTERS
    e.do(wrapper, template=str(op.count.data))


def one_thread(e: Emitter, op: hopper.OneThread) -> None:
    """The body is for one thread of the role's first warp."""
    one = e.call(w.ELECT_ONE)
    with e.block(f"if ({one})" if e.role.warps == 1 else f"if ({e.warp} == 0 && {one})"):
        e.one_thread = True
        e.run(op.body.block)
        e.one_thread = False


def cluster_sync(e: Emitter, op: hopper.ClusterSync) -> None:
    """All threads of the cluster meet."""
    e.do(w.CLUSTER_SYNC if op.relaxed is None else w.CLUSTER_SYNC_RELAXED)


def block_id(e: Emitter, op: hopper.BlockId) -> None:
    """blockIdx along an axis."""
    e.define(op.result, f"(int)blockIdx.{_AXES[op.axis.data]}")


def num_blocks(e: Emitter, op: hopper.NumBlocks) -> None:
    """gridDim along an axis."""
    e.define(op.result, f"(int)gridDim.{_AXES[op.axis.data]}")


def cluster_rank(e: Emitter, op: hopper.ClusterRank) -> None:
    """The rank of the block in its cluster."""
    e.define(op.result, e.call(w.CLUSTER_RANK))


def kernel_parameter(e: Emitter, op: Operation) -> None:
    """A grid extent or a descriptor's extent: a parameter of the kernel, named from the start."""


def next_program(e: Emitter, op: hopper.NextProgram) -> None:
    """One thread takes the next program of the launch."""
    place, programs = (e.scalar(value).text for value in (op.counter, op.programs))
    e.define(op.result, e.call(NEXT_PROGRAM, place, programs), name=True)


RULES = {
    hopper.GridExtent: kernel_parameter,
    hopper.Counter: kernel_parameter,
    hopper.NextProgram: next_program,
    tile.DescExtent: kernel_parameter,
    hopper.Wait: wait,
    hopper.Arrive: arrive,
    hopper.Expect: expect,
    hopper.ProxyFence: calls(w.FENCE_PROXY_ASYNC),
    hopper.NamedBarrier: named_barrier,
    hopper.Turn: turn,
    hopper.SetRegisters: set_registers,
    hopper.OneThread: one_thread,
    hopper.BlockSync: calls(w.BLOCK_SYNC),
    hopper.ClusterSync: cluster_sync,
    hopper.GridWait: calls(w.GRID_WAIT),
    hopper.LaunchDependents: calls(w.LAUNCH_DEPENDENTS),
    hopper.BlockId: block_id,
    hopper.NumBlocks: num_blocks,
    hopper.ClusterRank: cluster_rank,
}
