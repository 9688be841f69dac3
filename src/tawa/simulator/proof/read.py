"""Reading a kernel: its set-up, buffers, barriers and roles, and the static rules they keep."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects import scf
from xdsl.dialects.builtin import IntAttr, IntegerAttr
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.traits import Pure

from tawa.ir import hopper, tile
from tawa.ir.types import BarriersType, BufferType
from tawa.simulator.proof import accesses, control, copies, effects, products
from tawa.simulator.proof.agreement import Agreement
from tawa.simulator.proof.census import Census
from tawa.simulator.proof.counting import carries_scalar
from tawa.simulator.proof.decode import Decoder, Rule
from tawa.simulator.proof.early import check_early
from tawa.simulator.proof.exchange import told_apart
from tawa.simulator.proof.fences import Fences
from tawa.simulator.proof.form import check_form
from tawa.simulator.proof.globals import followed_accesses, offsets_of, written_roots
from tawa.simulator.proof.model import ArgumentModel, ArrayModel, Model, RoleModel
from tawa.simulator.proof.numbers import LARGE
from tawa.simulator.proof.owners import check_owners
from tawa.simulator.proof.regions import collect_buffers
from tawa.simulator.proof.registers import follow_registers, touch_rule
from tawa.simulator.proof.rings import RING, ring_operands
from tawa.simulator.proof.roles import check_roles, enclosing
from tawa.simulator.proof.rules import Unproved
from tawa.simulator.proof.setting import set_up
from tawa.simulator.proof.steps import run_steps
from tawa.simulator.proof.uniform import read_uniform
from tawa.target import Target

_SETUP = (hopper.InitBarriers, hopper.FenceBarrierInit, hopper.BlockSync, hopper.ClusterSync)
_DECLARED = (hopper.Shared, hopper.Barriers, hopper.TensorMap, hopper.PrefetchMap)
_CONTROLS = (scf.ForOp, scf.IfOp, scf.WhileOp)


def _nothing(decoder: Decoder, operation: Operation) -> None:
    """Slots and views are followed back where they are used; `early` sees to other kernels."""


RULES: dict[type[Operation], Rule] = {
    scf.ForOp: control.for_rule,
    scf.IfOp: control.if_rule,
    scf.WhileOp: control.while_rule,
    hopper.OneThread: control.one_thread_rule,
    hopper.Wait: effects.wait_rule,
    hopper.Arrive: effects.arrive_rule,
    hopper.Expect: effects.expect_rule,
    hopper.NamedBarrier: effects.named_barrier_rule,
    hopper.Turn: effects.turn_rule,
    hopper.SetRegisters: effects.set_registers_rule,
    hopper.ProxyFence: effects.proxy_fence_rule,
    hopper.BlockSync: effects.sync_rule,
    hopper.ClusterSync: effects.sync_rule,
    hopper.GridWait: _nothing,
    hopper.LaunchDependents: _nothing,
    hopper.SharedLoad: accesses.shared_load_rule,
    hopper.SharedGather: accesses.shared_gather_rule,
    hopper.SharedStore: accesses.shared_store_rule,
    hopper.SharedTranspose: accesses.shared_transpose_rule,
    hopper.FmaDot: accesses.fma_dot_rule,
    hopper.TmaLoad: copies.tma_load_rule,
    hopper.TmaStore: copies.tma_store_rule,
    hopper.BulkCommit: copies.bulk_commit_rule,
    hopper.BulkWait: copies.bulk_wait_rule,
    hopper.CopyAsync: copies.copy_async_rule,
    hopper.CopyAsyncArrive: copies.copy_async_arrive_rule,
    hopper.Wgmma: products.wgmma_rule,
    hopper.WgmmaFence: products.wgmma_fence_rule,
    hopper.WgmmaCommit: products.wgmma_commit_rule,
    hopper.WgmmaWait: products.wgmma_wait_rule,
    hopper.Slot: _nothing,
    hopper.TransposeView: _nothing,
    hopper.SliceView: _nothing,
    hopper.ReshapeView: _nothing,
    hopper.NextProgram: effects.next_program_rule,
    tile.Load: accesses.global_rule,
    tile.Store: accesses.global_rule,
    tile.Atomic: accesses.global_rule,
    tile.CompareExchange: accesses.global_rule,
}
# Those that count as steps: what synchronizes, or touches shared memory.
STEPPED = (
    hopper.Wait,
    hopper.Arrive,
    hopper.Expect,
    hopper.NamedBarrier,
    hopper.SetRegisters,
    hopper.ProxyFence,
    hopper.SharedLoad,
    hopper.SharedGather,
    hopper.SharedStore,
    hopper.SharedTranspose,
    hopper.FmaDot,
    hopper.TmaLoad,
    hopper.TmaStore,
    hopper.BulkCommit,
    hopper.BulkWait,
    hopper.CopyAsync,
    hopper.CopyAsyncArrive,
    hopper.Wgmma,
    hopper.WgmmaFence,
    hopper.WgmmaCommit,
    hopper.WgmmaWait,
)


def read_kernel(kernel: tile.Kernel, target: Target, idle: bool = True) -> Model:
    """Read a kernel, whose first trips may have `idle` scalars (see `positions`). Raises Violation
    where a static rule is broken, Unproved for other forms.
    """
    block = kernel.body.block
    operations = list(block.ops)
    roles = [op for op in operations if isinstance(op, hopper.Role)]
    if not roles:
        raise Unproved("the kernel has no roles: it is not hopper IR")
    first, last = operations.index(roles[0]), operations.index(roles[-1])
    _check_top(operations, first, last)
    launch = _launch(kernel)
    target = target.shared_by(launch.get("blocks", 1) or 1)
    arrays = tuple(op for op in operations if isinstance(op, hopper.Barriers))
    shared = [op for op in operations if isinstance(op, hopper.Shared)]
    limit = launch.get("shared", 0) or target.shared_per_block
    census = Census(kernel)
    decoder = Decoder(
        census,
        RULES,
        collect_buffers(shared, list(arrays), limit),
        {array.result: number for number, array in enumerate(arrays)},
        touch_rule,
        written_roots(census),
        followed_accesses(census),
        bool(launch.get("persistent")),
        _instances(census),
    )
    for role in roles:
        follow_registers(decoder, role)
    decoder.slice(_roots(decoder))
    decoder.uniform = read_uniform(
        ring_operands(census),
        _conditions(decoder, roles),
        census.of(*_CONTROLS),
        decoder.polynomials,
        _depth,
        [value for value, buffer in decoder.buffers.items() if buffer.alone],
        list(_elsewhere(decoder)),
        idle,
    )
    preamble = [
        step
        for op in operations[:first]
        if not isinstance(op, (*_SETUP, *_DECLARED)) and (step := decoder.operation(op)) is not None
    ]
    threads = launch.get("threads", 0) or _threads(roles)
    registers = launch.get("registers", 0) or target.registers_at_launch(threads)
    check_form(census, launch, threads, registers, decoder.buffers, target)
    check_early(roles, bool(launch.get("early")))
    check_owners(census)
    check_roles(census, roles, threads, registers, target)
    for role in roles:
        Fences(role.label.data, decoder.running, decoder.tracked, decoder.touching).check(role)
        Agreement(census, role, decoder.written).check()
    arguments = tuple(
        ArgumentModel.of(value, decoder.number(value), _unit(kernel, index))
        for index, value in enumerate(block.args)
    )
    return Model(
        kernel,
        decoder,
        tuple(set_up(op, decoder.arrays) for op in operations[:first] if isinstance(op, _SETUP)),
        tuple(operations[last + 1 :]),
        tuple(map(ArrayModel.of, arrays)),
        tuple(_role(decoder, role) for role in roles),
        arguments,
        run_steps(preamble),
        registers,
        threads,
        launch.get("cluster", 1) or 1,
        _numbers(census),
    )


def _numbers(census: Census) -> tuple[int, ...]:
    """Return the positive constants of a kernel, in order."""
    found: set[int] = set()
    for constant in census.of(tile.Constant):
        match constant.value:
            case IntAttr(data=int() as number) if 0 < number < LARGE:
                found.add(number)
            case _:
                pass
    return tuple(sorted(found))


def _check_top(operations: list[Operation], first: int, last: int) -> None:
    for operation in operations[:first]:
        if not isinstance(operation, (*_SETUP, *_DECLARED)) and not operation.has_trait(Pure):
            raise Unproved(f"the proof does not know {operation.name} before the roles", operation)
    for operation in operations[first : last + 1]:
        if not isinstance(operation, hopper.Role):
            raise Unproved(f"the proof does not know {operation.name} between roles", operation)
    for operation in operations[last + 1 :]:
        if not isinstance(operation, (hopper.ClusterSync, hopper.BlockSync)):
            raise Unproved(f"the proof does not know {operation.name} after the roles", operation)


def _launch(kernel: tile.Kernel) -> dict[str, int]:
    if kernel.launch is None:
        return {}
    return {name: _integer(value, 0) for name, value in kernel.launch.data.items()}


def _integer(value: Attribute | None, default: int) -> int:
    match value:
        case IntAttr(data=int() as number):
            return number
        case IntegerAttr():
            return value.value.data
        case _:
            return default


def _instances(census: Census) -> int:
    """Return how many roles take tiles in turn: each has a barrier to meet the one before."""
    barriers = census.of(hopper.NamedBarrier)
    return max(1, len({op.id.data for op in barriers if op.scope.data == "roles"}))


def _depth(operation: Operation) -> int | None:
    """Return how deep the ring of barriers, or of buffers, is that an operation means."""
    for kind in [operand.type for operand in operation.operands]:
        match kind:
            case BarriersType():
                return kind.count.data
            case BufferType():
                return kind.slots.data
            case _:
                pass
    return None


def _threads(roles: list[hopper.Role]) -> int:
    return 32 * max(role.first_warp.data + role.warps.data for role in roles)


def _unit(kernel: tile.Kernel, index: int) -> int:
    return _integer(kernel.arguments.data[index].data.get("divisible"), 1)


_DECIDING = (*_CONTROLS, *RING)


def _elsewhere(decoder: Decoder) -> Iterator[SSAValue]:
    """Yield the scalars that decide something, but no slot, phase, loop or condition."""
    for operation in decoder.followed:
        yield from offsets_of(operation)
    for operation in decoder.census.of(hopper.Wgmma, hopper.SharedStore):
        match operation:
            case hopper.Wgmma() if operation.accumulate is not None:
                yield operation.accumulate
            case hopper.SharedStore() if carries_scalar(operation.value):
                yield operation.value
            case _:
                continue


def _roots(decoder: Decoder) -> Iterator[SSAValue]:
    """Yield the scalars that decide what synchronization does, and where followed copies go."""
    yield from _elsewhere(decoder)
    for operation in decoder.census.of(*_DECIDING):
        match operation:
            case hopper.Wait():
                yield from (operation.slot, operation.phase)
            case hopper.Arrive() | hopper.Expect() | hopper.TmaLoad() | hopper.CopyAsyncArrive():
                yield operation.slot
            case hopper.Slot():
                yield operation.index
            case scf.ForOp() | scf.IfOp() | scf.WhileOp():
                yield from control.control_roots(operation, decoder)
            case _:
                continue


def _conditions(decoder: Decoder, roles: list[hopper.Role]) -> Iterator[tuple[Operation, SSAValue]]:
    """Yield what decides whether something that synchronizes, or registers in flight, is run."""
    for role in roles:
        for operation in decoder.census.of(scf.IfOp, scf.WhileOp, within=role):
            for condition in control.control_roots(operation, decoder):
                yield operation, condition


def _role(decoder: Decoder, role: hopper.Role) -> RoleModel:
    program = run_steps(decoder.block(role.body.block))
    together: set[int] = set()
    alone: set[int] = set()
    census = decoder.census
    for wait in census.of(hopper.Wait, within=role):
        (alone if _inside_one_thread(wait) else together).add(decoder.arrays[wait.barriers])
    return RoleModel(
        role.label.data,
        role.first_warp.data,
        role.warps.data,
        role.registers.data,
        program,
        frozenset(together),
        frozenset(alone),
        told_apart(decoder, role),
        bool(census.of(hopper.TmaLoad, within=role)),
        not decoder.scripted.isdisjoint(census.of(hopper.OneThread, within=role)),
        role,
    )


def _inside_one_thread(operation: Operation) -> bool:
    return any(isinstance(around, hopper.OneThread) for around in enclosing(operation))
