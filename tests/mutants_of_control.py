"""Kernels broken in what decides how often a role synchronizes, whatever the numbers in it.

Each change stands in one role and leaves the others as they are: the roles part at some input,
which may be far from all that a run would try.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from xdsl.dialects import scf
from xdsl.dialects.builtin import IntAttr, StringAttr
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from tawa.ir import hopper, tile
from tawa.ir.types import i1, i32

AT_BARRIERS = (
    hopper.Wait,
    hopper.Arrive,
    hopper.Expect,
    hopper.TmaLoad,
    hopper.CopyAsyncArrive,
)
Change = Callable[[scf.ForOp], None]


@dataclass(frozen=True)
class ControlMutant:
    name: str
    make: Callable[[], tile.Kernel]


def _constant(before: Operation, number: int) -> SSAValue:
    made = tile.Constant(attributes={"value": IntAttr(number)}, result_types=[i32])
    Rewriter.insert_op(made, InsertPoint.before(before))
    return made.result


def _apply(before: Operation, function: str, *inputs: SSAValue) -> SSAValue:
    kind = i1 if function in ("lt", "gt", "eq", "ne") else inputs[-1].type
    made = tile.Elementwise(
        operands=[list(inputs)],
        attributes={"function": StringAttr(function)},
        result_types=[kind],
    )
    Rewriter.insert_op(made, InsertPoint.before(before))
    return made.result


def _end(loop: scf.ForOp, value: SSAValue) -> None:
    loop.operands[1] = value


def _later(loop: scf.ForOp, iterations: int) -> SSAValue:
    """The first number of a loop, so many iterations later."""
    return _apply(loop, "add", loop.lb, _apply(loop, "mul", loop.step, _constant(loop, iterations)))


def capped(function: str, iterations: int) -> Change:
    return lambda loop: _end(loop, _apply(loop, function, loop.ub, _later(loop, iterations)))


def longer(iterations: int) -> Change:
    """More iterations, as many as whole ring revolutions may have."""

    def change(loop: scf.ForOp) -> None:
        more = _apply(loop, "mul", loop.step, _constant(loop, iterations))
        _end(loop, _apply(loop, "add", loop.ub, more))

    return change


def beyond(iterations: int) -> Change:
    """One iteration more, where there are more than so many."""

    def change(loop: scf.ForOp) -> None:
        many = _apply(loop, "gt", loop.ub, _later(loop, iterations))
        more = _apply(loop, "select", many, loop.step, _constant(loop, 0))
        _end(loop, _apply(loop, "add", loop.ub, more))

    return change


def constant(iterations: int) -> Change:
    return lambda loop: _end(loop, _later(loop, iterations))


def left_out(iterations: int) -> Change:
    """What synchronizes in a loop is left out in one late iteration."""

    def change(loop: scf.ForOp) -> None:
        body = loop.body.block
        places = [op for op in body.ops if isinstance(op, AT_BARRIERS)]
        first = body.first_op
        assert first is not None
        at = _apply(loop, "sub", _later(loop, iterations), _constant(loop, 0))
        goes = _apply(first, "ne", body.args[0], at)
        for place in places:
            branch = scf.IfOp(goes, [], Region(Block([scf.YieldOp()])))
            Rewriter.insert_op(branch, InsertPoint.before(place))
            place.detach()
            Rewriter.insert_op(place, InsertPoint.at_start(branch.true_region.block))

    return change


CHANGES: dict[str, Change] = {
    "at most 8 iterations": capped("min", 8),
    "at most 2^20 iterations": capped("min", 1 << 20),
    "at least 8 iterations": capped("max", 8),
    "at least 3 iterations": capped("max", 3),
    "6 iterations more": longer(6),
    "24 iterations more": longer(24),
    "2^24 iterations more": longer(1 << 24),
    "one more beyond 127": beyond(127),
    "one more beyond 201": beyond(201),
    "one more beyond 10^6": beyond(10**6),
    "112 iterations": constant(112),
    "30 iterations": constant(30),
    "left out in iteration 12": left_out(12),
    "left out in iteration 10^5": left_out(10**5),
}


def control_mutants(kernel: tile.Kernel) -> Iterator[ControlMutant]:
    """Yield a kernel for each loop of each role that synchronizes with others, and each change."""
    walked = list(kernel.walk())
    for index, loop in enumerate(walked):
        if not isinstance(loop, scf.ForOp) or not _meets_others(loop):
            continue
        for name, change in CHANGES.items():
            if name.startswith("left out") and not _directly(loop):
                continue

            def make(index: int = index, change: Change = change) -> tile.Kernel:
                copy = kernel.clone()
                found = list(copy.walk())[index]
                assert isinstance(found, scf.ForOp)
                change(found)
                return copy

            yield ControlMutant(f"{name}, loop #{index}", make)


def _directly(loop: scf.ForOp) -> bool:
    return any(isinstance(op, AT_BARRIERS) for op in loop.body.block.ops)


def _meets_others(loop: scf.ForOp) -> bool:
    return any(
        isinstance(op, (hopper.Wait, hopper.Arrive, hopper.Expect))
        and len({id(_role_of(use.operation)) for use in op.barriers.uses} - {id(None)}) > 1
        for op in loop.walk()
    )


def _role_of(operation: Operation) -> Operation | None:
    parent: Operation | None = operation
    while parent is not None and not isinstance(parent, hopper.Role):
        parent = parent.parent_op()
    return parent
