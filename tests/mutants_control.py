"""Mutants of control flow: one role makes an iteration more or less than the others, for some
lengths or for all, takes the other side of a condition, or hands on a wrong phase from one position
of a ring.

Loops are broken in each iteration of which a role meets others at barriers, and conditions under
which it does, in kernels of several roles: what a loop computes is not for the proof to see. Phases
are where a loop carries them, also around loops that wait with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from xdsl.dialects import scf
from xdsl.dialects.builtin import IntAttr, StringAttr, i1
from xdsl.ir import BlockArgument, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from tawa.ir import hopper, tile
from tawa.ir.types import i32

MEETS = (hopper.Wait, hopper.Arrive, hopper.Expect, hopper.CopyAsyncArrive)

Change = Callable[[Operation], None]


def control_changes(kernel: tile.Kernel) -> Iterator[tuple[int, Operation, str, Change]]:
    """Yield where an operation stands in the walk, itself, and each change of it, by kind."""
    if sum(isinstance(operation, hopper.Role) for operation in kernel.walk()) < 2:
        return
    rings = _rings(kernel)
    for index, operation in enumerate(kernel.walk()):
        for ring in rings.get(operation, ()):
            yield index, operation, "a phase lost", _lost(*ring)
        match operation:
            case scf.ForOp() | scf.IfOp() if not _meets(operation):
                continue
            case scf.ForOp() if operation.ub.type == i32:
                yield index, operation, "an iteration more", _longer("add")
                yield index, operation, "an iteration less", _longer("sub")
                yield index, operation, "a number less", _shorter
            case scf.IfOp():
                yield index, operation, "other side", _turned
            case _:
                continue


def _meets(around: scf.ForOp | scf.IfOp) -> bool:
    """Tell whether a barrier is met wherever an operation comes to its body."""
    blocks = [region.block for region in around.regions if region.blocks]
    work = [inner for block in blocks for inner in block.ops]
    while work:
        inner = work.pop()
        if isinstance(inner, MEETS):
            return True
        if isinstance(inner, hopper.OneThread):
            work += inner.body.block.ops
    return False


def _longer(function: str) -> Change:
    def change(loop: Operation) -> None:
        assert isinstance(loop, scf.ForOp)
        loop.operands[1] = _computed(loop, function, loop.ub, loop.step)

    return change


def _shorter(loop: Operation) -> None:
    assert isinstance(loop, scf.ForOp)
    one = tile.Constant(attributes={"value": IntAttr(1)}, result_types=[i32])
    Rewriter.insert_op(one, InsertPoint.before(loop))
    loop.operands[1] = _computed(loop, "sub", loop.ub, one.result)


def _rings(kernel: tile.Kernel) -> dict[Operation, dict[tuple[int, int, int], None]]:
    """Return where loops carry the slot and the phase of rings, with the last slot."""
    found: dict[Operation, dict[tuple[int, int, int], None]] = {}
    work = [
        (wait.slot, wait.phase, wait.barriers.type.count.data - 1)
        for wait in kernel.walk()
        if isinstance(wait, hopper.Wait)
    ]
    while work:
        slot, phase, last = work.pop()
        if not isinstance(slot, BlockArgument) or not isinstance(phase, BlockArgument):
            continue
        loop = slot.owner.parent_op()
        if isinstance(loop, scf.ForOp) and phase.owner is slot.owner and phase.index and slot.index:
            found.setdefault(loop, {})[slot.index, phase.index, last] = None
            work.append((loop.iter_args[slot.index - 1], loop.iter_args[phase.index - 1], last))
    return found


def _lost(slot: int, phase: int, last: int) -> Change:
    """Hand on the other phase where an iteration begins in the last slot, in phase 1."""

    def change(loop: Operation) -> None:
        assert isinstance(loop, scf.ForOp)
        block = loop.body.block
        end = block.last_op
        assert end is not None
        numbers = [
            tile.Constant(attributes={"value": IntAttr(each)}, result_types=[i32])
            for each in (last, 1)
        ]
        for number in numbers:
            Rewriter.insert_op(number, InsertPoint.before(end))
        in_slot = _computed(end, "eq", block.args[slot], numbers[0].result, to=i1)
        in_phase = _computed(end, "eq", block.args[phase], numbers[1].result, to=i1)
        there = _computed(end, "and", in_slot, in_phase)
        right = end.operands[phase - 1]
        wrong = _computed(end, "xor", right, numbers[1].result)
        end.operands[phase - 1] = _computed(end, "select", there, wrong, right, to=i32)

    return change


def _turned(branch: Operation) -> None:
    assert isinstance(branch, scf.IfOp)
    branch.operands[0] = _computed(branch, "not", branch.cond)


def _computed(before: Operation, name: str, *inputs: SSAValue, to: object = None) -> SSAValue:
    made = tile.Elementwise(
        operands=[list(inputs)],
        attributes={"function": StringAttr(name)},
        result_types=[to or (i1 if inputs[0].type == i1 else i32)],
    )
    Rewriter.insert_op(made, InsertPoint.before(before))
    return made.result
