"""What everybody asks of structured control flow (`scf`): how a block ends, and what decides."""

from __future__ import annotations

from xdsl.dialects import scf
from xdsl.ir import Block, Operation, SSAValue


def terminator(block: Block) -> Operation:
    """Return the operation that ends a block of `scf`, a kernel or a body."""
    last = block.last_op
    assert last is not None, "a block ends with its terminator"
    return last


def yielded(block: Block, index: int) -> SSAValue:
    """Return what the end of a block of `scf` hands on at `index`."""
    return terminator(block).operands[index]


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
