"""What everybody asks of structured control flow (`scf`): how a block ends, and what decides."""

from __future__ import annotations

from xdsl.dialects import scf
from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue


def terminator(block: Block) -> Operation:
    """Return the operation that ends a block of `scf`, a kernel or a body."""
    last = block.last_op
    assert last is not None, "a block ends with its terminator"
    return last


def yielded(block: Block, index: int) -> SSAValue:
    """Return what the end of a block of `scf` hands on at `index`."""
    return terminator(block).operands[index]


def passed_on(value: SSAValue) -> list[SSAValue]:
    """Return the values that control flow hands on under a name: of a loop's argument its start and
    what an iteration hands on, of a condition's result both sides; none where a value is made.
    """
    if isinstance(value, BlockArgument):
        loop, place = value.block.parent_op(), value.index
        match loop:
            case scf.ForOp() if place:
                return [loop.iter_args[place - 1], yielded(value.block, place - 1)]
            case scf.WhileOp() if value.block is loop.before_region.block:
                return [loop.arguments[place], yielded(loop.after_region.block, place)]
            case scf.WhileOp():
                return [yielded(loop.before_region.block, place + 1)]
            case _:
                return []
    match value:
        case OpResult(op=scf.IfOp() as branch, index=place):
            return [yielded(region.block, place) for region in branch.regions]
        case OpResult(op=scf.ForOp() as loop, index=place):
            return [loop.body.block.args[place + 1]]
        case OpResult(op=scf.WhileOp() as loop, index=place):
            return [yielded(loop.before_region.block, place + 1)]
        case _:
            return []


def handed_on(user: Operation, index: int) -> list[SSAValue]:
    """Return the values that operand `index` of control flow is from there on: what a loop starts
    from, or an iteration ends with, its argument and then its result, a side of a condition its
    result; none of what computes with the operand, or decides by it.
    """
    around = user.parent_op()
    match user:
        case scf.ForOp() if index >= 3:
            return [user.body.block.args[index - 2], user.results[index - 3]]
        case scf.WhileOp():
            return [user.before_region.block.args[index]]
        case scf.ConditionOp() if index and isinstance(around, scf.WhileOp):
            return [around.after_region.block.args[index - 1], around.results[index - 1]]
        case scf.YieldOp() if isinstance(around, scf.ForOp):
            return [around.body.block.args[index + 1], around.results[index]]
        case scf.YieldOp() if isinstance(around, scf.WhileOp):
            return [around.before_region.block.args[index]]
        case scf.YieldOp() if isinstance(around, scf.IfOp):
            return [around.results[index]]
        case _:
            return []


def decisive(control: Operation) -> list[SSAValue]:
    """Return the scalars that decide what a loop or condition does; of others, none."""
    match control:
        case scf.ForOp():
            return [control.lb, control.ub, control.step]
        case scf.IfOp():
            return [control.cond]
        case scf.WhileOp():
            return [yielded(control.before_region.block, 0)]
        case _:
            return []
