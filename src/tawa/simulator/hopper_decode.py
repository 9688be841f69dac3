"""Decoding hopper IR: the tile rules with registers, threads and time added.

Registers that a wgmma uses are followed through control flow, so that an ordinary read of an
accumulator in flight and a write without fence are seen; a global access knows its warp, and in a
kernel that is launched early whether its threads have waited; what an atomic gave to one thread is
not what others have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from xdsl.dialects import scf
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, OpResult, SSAValue

from tawa.analysis.statements import is_volatile
from tawa.errors import ProtocolError
from tawa.ir import hopper, tile
from tawa.ir.walk import passed_on, reach
from tawa.layouts.convert import is_replicated
from tawa.layouts.register import RegisterLayout
from tawa.simulator.copy_rules import COPY_RULES, VIEW_RULES
from tawa.simulator.decode import Decoder, Frame, Rule, Step, Wait, step_of
from tawa.simulator.footprints import first_owner, register_layout
from tawa.simulator.mma_rules import MMA_RULES
from tawa.simulator.role import Fragment, Role
from tawa.simulator.rules import RULES
from tawa.simulator.sync_rules import SYNC_RULES
from tawa.simulator.trace import tile_time
from tawa.simulator.values import place_of

HOPPER_RULES: dict[type[Operation], Rule] = {
    **RULES,
    **SYNC_RULES,
    **VIEW_RULES,
    **COPY_RULES,
    **MMA_RULES,
}
"""Every operation of hopper IR, by class."""

_ATOMICS = (tile.Atomic, tile.CompareExchange)
_ASKS = (*_ATOMICS, hopper.NextProgram)
_GLOBAL = (
    *(*_ASKS, tile.Load, tile.Store, tile.DescLoad, tile.DescStore, tile.DescAtomic),
    *(hopper.TmaLoad, hopper.TmaStore, hopper.CopyAsync),
)
"""What reads or writes global memory."""
_KEEPS = (hopper.Wgmma, hopper.WgmmaWait, hopper.Pin, scf.ForOp, scf.IfOp, scf.WhileOp)


def _sources(value: SSAValue) -> list[SSAValue]:
    """Return the values that may become this one without an instruction."""
    match value:
        case OpResult(owner=hopper.WgmmaWait() | hopper.Pin() as owner):
            return [owner.operands[value.index]]
        case OpResult(owner=hopper.Wgmma() as product):
            return [product.acc]
        case _:
            return passed_on(value)


def _wgmma_registers(kernel: tile.Kernel) -> set[SSAValue]:
    """Return the values whose registers a wgmma reads or writes: accumulators and A fragments."""
    todo: list[SSAValue] = []
    for op in kernel.walk():
        if isinstance(op, hopper.Wgmma):
            todo += [op.acc, op.result]
            todo += [op.a] if isinstance(op.a.type, TensorType) else []
    return set(reach(todo, _sources))


class HopperDecoder(Decoder):
    """Adds to the tile rules what registers, threads and time need.

    Ordinary instructions read fragments only when they may; what they write into registers that a
    wgmma uses is stamped; global accesses know which warp makes them, and in an `early` kernel that
    it has waited.
    """

    def __init__(self, kernel: tile.Kernel, early: bool) -> None:
        super().__init__(HOPPER_RULES)
        self.registers = _wgmma_registers(kernel)
        self.early = early

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
        if step is not None and isinstance(operation, _ASKS) and _has_other_users(operation):
            step = _checked(step, lambda role: _check_owner(role, operation))
        if step is not None and self.early and isinstance(operation, _GLOBAL):
            step = _checked(step, lambda role: role.check_begun(operation))
        polls = isinstance(operation, _ATOMICS) or is_volatile(operation)
        if step is None or step.blocking or not polls:
            return step
        return Step(step.alone, True)

    def compute(
        self, operation: Operation, function: Callable[..., Any], *, world: bool = False
    ) -> Step:
        """Return the step of an ordinary instruction."""
        fragile = any(isinstance(value.type, TensorType) for value in operation.operands)
        if self.registers and fragile:
            function = _reading(function, operation)
        step = super().compute(operation, function, world=world)
        if (layout := _access_layout(operation)) is not None:
            step = _owned(step, layout)
        marked = [v for v in operation.results if v in self.registers]
        if marked and not isinstance(operation, _KEEPS):
            step = _stamped(step, self.numbered(marked))
        return timed(step, operation)


def _checked(step: Step, check: Callable[[Role], None]) -> Step:
    """Return a step before which the role is checked."""

    def wait(frame: Frame) -> Wait:
        check(frame.world)
        yield from step.within(frame)

    return step_of(wait, step.blocking)


def _has_other_users(operation: Operation) -> bool:
    """Tell whether a result is used by more than the owners of its elements."""
    users = [use.operation for use in operation.results[0].uses]
    return not all(isinstance(user, hopper.SharedStore) and bool(user.owners) for user in users)


def _check_owner(role: Role, operation: Operation) -> None:
    """Raise ProtocolError where more threads than one go on with what an atomic gives to it."""
    layout = register_layout(operation.results[0].type)
    if role.one or (layout is not None and not is_replicated(layout, role.warps)):
        return
    raise ProtocolError(
        f"{role.where} goes on with what {operation.name} gave to one of its threads",
        place=place_of(operation),
        why="the others have nothing in their registers",
        remedy="have its owner write it to shared memory, and read it there",
    )


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


def _access_layout(operation: Operation) -> RegisterLayout | None:
    """Return the register layout that says which warp makes each global access, if any does."""
    match operation:
        case tile.Load() | tile.Store() | tile.Atomic():
            return register_layout(operation.pointer.type)
        case tile.DescLoad():
            return register_layout(operation.result.type)
        case tile.DescStore() | tile.DescAtomic():
            return register_layout(operation.value.type)
        case _:
            return None


def _owned(step: Step, layout: RegisterLayout) -> Step:
    owner, run = first_owner(layout), step.run

    def own(frame: Frame) -> None:
        frame.world.owners = owner
        run(frame)
        frame.world.owners = None

    return Step(own)


def timed(step: Step, operation: Operation) -> Step:
    """Return a step that lets virtual time pass for what an instruction does to a tile."""
    kinds = [value.type for value in (*operation.results, *operation.operands)]
    sizes = [kind.get_shape() for kind in kinds if isinstance(kind, TensorType)]
    elements = max((int(np.prod(shape)) for shape in sizes), default=0)
    if not elements:
        return step
    run, name = step.run, operation.name.partition(".")[2]

    def spend(frame: Frame) -> None:
        run(frame)
        role: Role = frame.world
        role.spent(tile_time(elements, role.warps), name)

    return Step(spend)
