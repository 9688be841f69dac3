"""Rules of hopper IR's tensor cores and registers.

A wgmma is recorded when it is issued; it reads its operands and makes its accumulator in an event
between then and the wait that covers it, in the role's order. Until that wait the accumulator is a
`Fragment` that ordinary instructions may not read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation

from tawa.errors import ProtocolError
from tawa.ir import hopper
from tawa.ir.types import shape_of
from tawa.simulator.decode import (
    Decoder,
    Frame,
    Rule,
    Step,
    Ternary,
    Unary,
    Wait,
    computes,
    effect,
    pure,
)
from tawa.simulator.dot import dot
from tawa.simulator.footprints import groups_of, operand_owners, register_layout, touch
from tawa.simulator.role import Fragment, Product, Role
from tawa.simulator.scheduler import Blocked, Need
from tawa.simulator.shared import Access, Footprint, View
from tawa.simulator.sync_rules import acting
from tawa.simulator.trace import product_time
from tawa.simulator.values import dtype_of, place_of


def _check_fence(role: Role, value: Any, operation: Operation) -> None:
    # R3 (wgmma.fence): registers that ordinary instructions wrote are read by wgmma only after a
    # fence, and the first wgmma needs one (PTX ISA, "wgmma.fence").
    unfenced = isinstance(value, Fragment) and value.born == role.fences
    if role.fences == 0 or unfenced:
        raise ProtocolError(
            f"{role.where} issues wgmma without wgmma.fence after a register write",
            place=place_of(operation),
            why="the tensor cores may read registers before they are written",
            remedy="put wgmma_fence between the write and the wgmma",
        )


def _record(
    role: Role, view: View, held: NDArray[np.bool_] | None, operand: str, operation: Operation
) -> None:
    """Record that each warpgroup reads the part of an operand that it needs."""
    for warp, rows in groups_of(role):
        spans = view.spans()
        if held is not None and role.warps > 4:
            key = (operation, operand)
            spans = Footprint(key, view.place, view.base, warp, 1, held).spans(4)
        columns = np.array([role.engine(warp // 4)])
        clocks = np.array([role.issued], np.int32)
        access = Access(spans, False, True, columns, clocks, role.where, operation)
        role.block.shared.access(access, rows)


def _wgmma(decoder: Decoder, operation: hopper.Wgmma) -> Step:
    a, b, acc, out = decoder.numbered((operation.a, operation.b, operation.acc, operation.result))
    condition = decoder.number(operation.accumulate) if operation.accumulate is not None else -1
    m, n = shape_of(operation.result.type)
    layout = register_layout(operation.result.type)
    view = operation.b.type
    k = view.shape[0]
    held_a = None if layout is None else operand_owners(layout, "a", k)
    held_b = None if layout is None else operand_owners(layout, "b", k)

    def issue(role: Role, frame: Frame) -> None:
        values, block = frame.values, role.block
        role.check_warpgroups(operation)
        left, right, before = values[a], values[b], values[acc]
        accumulate = condition < 0 or bool(values[condition])
        _check_fence(role, before, operation)
        role.issued += 1
        if isinstance(left, View):
            _record(role, left, held_a, "a", operation)
        else:
            _check_fence(role, left, operation)
            left = left.read(operation) if isinstance(left, Fragment) else left
        _record(role, right, held_b, "b", operation)
        result = Fragment(role, None, role.issued, readable=False)
        values[out] = result

        def run() -> None:
            first = left
            if isinstance(first, View):
                first = block.shared.read(first, role.where, operation)
            second = block.shared.read(right, role.where, operation)
            start = before.array if isinstance(before, Fragment) else before
            if not accumulate:
                start = np.zeros_like(start)
            result.array = dot(first, second, start)

        start = max(role.time, block.mma_time)
        end = block.mma_time = start + product_time(m, n, k, right.dtype)
        name = f"{m}x{n}x{k}"
        trace = block.machine.trace
        trace.add(role.label, "tensor cores", start, end, name, block.label)
        role.products.append(Product(run, end))
        role.scheduler.post(f"wgmma of {role.where}", lambda: _compute(role))

    return acting(issue)


def _compute(role: Role) -> None:
    """Do the oldest product of a role: products of a warpgroup complete in order."""
    product = role.products.pop(0)
    product.run()
    role.computed += 1
    role.scheduler.wake(role.queue)


def _fence(operation: hopper.WgmmaFence) -> Callable[..., Any]:
    def fence(world: Role) -> None:
        world.check_warpgroups(operation)
        world.fences += 1

    return fence


def _commit(decoder: Decoder, operation: hopper.WgmmaCommit) -> Step:
    def commit(role: Role, frame: Frame) -> None:
        role.check_warpgroups(operation)
        time = role.products[-1].time if role.products else role.block.mma_time
        role.groups.append((role.issued, time))
        role.committed = role.issued

    return acting(commit)


def _wait(decoder: Decoder, operation: hopper.WgmmaWait) -> Step:
    pending = operation.pending.data
    values, results = decoder.numbered(operation.values), decoder.numbered(operation.res)

    def wait(role: Role, frame: Frame) -> Wait:
        role.check_warpgroups(operation)
        count = max(0, len(role.groups) - pending)
        last, time = role.groups[count - 1] if count else (role.waited, 0.0)
        if role.computed < last:

            def need() -> Need:
                arrived = f"{role.computed}/{last}"
                return Need("wgmma groups", "-", arrived, "for its products")

            yield Blocked(lambda: role.computed >= last, role.queue, need, operation)
        del role.groups[:count]
        role.waited = last
        for warp, rows in groups_of(role):
            role.clocks.learn(rows, role.engine(warp // 4), last)
        for source, target in zip(values, results):
            frame.values[target] = _settled(role, frame.values[source], operation)
        role.stall(time, "wait for products")

    return acting(wait)


def _settled(role: Role, value: Any, operation: Operation) -> Any:
    if not isinstance(value, Fragment) or value.readable:
        return value
    if value.number > role.waited:
        raise ProtocolError(
            f"{role.where} waits for an accumulator that the wait does not cover",
            place=place_of(operation),
            why=f"product {value.number} is in flight, products up to {role.waited} are complete",
            remedy="commit the group, or let fewer groups be pending",
        )
    return Fragment(role, value.array)


def _mma(operation: hopper.Mma) -> Ternary:
    precision = operation.precision.data
    return lambda a, b, acc: dot(a, b, acc, precision)


def _fma_dot(decoder: Decoder, operation: hopper.FmaDot) -> Step:
    a, b, out = decoder.numbered((operation.a, operation.b, operation.result))
    acc = decoder.reader(operation.acc, operation)

    def run(role: Role, frame: Frame) -> None:
        values, shared = frame.values, role.block.shared
        for view in (values[a], values[b]):
            touch(role, view, False, None, operation)
        left = shared.read(values[a], role.where, operation)
        right = shared.read(values[b], role.where, operation)
        values[out] = dot(left, right, acc(values), "ieee")

    return acting(run)


def _columns(operation: hopper.Columns) -> Unary:
    start = operation.start.data
    stop = start + shape_of(operation.result.type)[-1]
    return lambda value: value[..., start:stop]


def _pick(operation: hopper.Pick) -> Unary:
    axis, at = operation.axis.data, operation.at.data
    return lambda value: np.take(value, at, axis)


def _pin(decoder: Decoder, operation: hopper.Pin) -> Step:
    """hopper.pin: the same registers, which must be readable."""
    values, results = decoder.numbered(operation.values), decoder.numbered(operation.res)

    def pin(frame: Frame) -> None:
        held = [frame.values[value] for value in values]
        for result, value in zip(results, held):
            if isinstance(value, Fragment):
                value.read(operation)
            frame.values[result] = value

    return Step(pin)


def _uninitialized(operation: hopper.Uninitialized) -> Callable[[], Any]:
    dtype = dtype_of(operation.result.type)
    poison = np.frombuffer(b"\xff" * dtype.itemsize, dtype)[0]  # a NaN in every float type
    shape = shape_of(operation.result.type)
    return lambda: np.full(shape, poison, dtype)


MMA_RULES: dict[type[Operation], Rule] = {
    hopper.WgmmaFence: effect(_fence),
    hopper.Wgmma: _wgmma,
    hopper.WgmmaCommit: _commit,
    hopper.WgmmaWait: _wait,
    hopper.Mma: pure(_mma),
    hopper.FmaDot: _fma_dot,
    hopper.ConvertLayout: computes(lambda value: value),
    hopper.Columns: pure(_columns),
    hopper.Pick: pure(_pick),
    hopper.Uninitialized: pure(_uninitialized),
    hopper.Pin: _pin,
}
"""Tensor cores and registers, by class."""
