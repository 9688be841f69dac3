"""Mutants of control flow: one role makes a trip more or less than the others, for some lengths or
for all, or takes the other side of a condition.

Loops are broken in each trip of which a role meets others at barriers, and conditions under which
it does, in kernels of several roles: what a loop computes is not for the proof to see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from xdsl.dialects import scf
from xdsl.dialects.builtin import IntAttr, StringAttr, i1
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from tawa.ir import hopper, tile
from tawa.ir.types import i32

MEETS = (hopper.Wait, hopper.Arrive, hopper.Expect, hopper.CopyAsyncArrive)

Change = Callable[[Operation], None]


def control_changes(kernel: tile.Kernel) -> Iterator[tuple[int, Operation, str, Change]]:
    """Yield where an operation stands in the walk, itself, and each change of it, by kind."""
    if sum(isinstance(operation, hopper.Role) for operation in kernel.walk()) < 2:
        return
    for index, operation in enumerate(kernel.walk()):
        match operation:
            case scf.ForOp() | scf.IfOp() if not _meets(operation):
                continue
            case scf.ForOp() if operation.ub.type == i32:
                yield index, operation, "a trip more", _longer("add")
                yield index, operation, "a trip less", _longer("sub")
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


def _turned(branch: Operation) -> None:
    assert isinstance(branch, scf.IfOp)
    branch.operands[0] = _computed(branch, "not", branch.cond)


def _computed(before: Operation, name: str, *inputs: SSAValue) -> SSAValue:
    made = tile.Elementwise(
        operands=[list(inputs)],
        attributes={"function": StringAttr(name)},
        result_types=[i1 if inputs[0].type == i1 else i32],
    )
    Rewriter.insert_op(made, InsertPoint.before(before))
    return made.result
