"""Scalars that are needed only after a loop of products are computed after it.

Purpose: keep the tile's place (divisions and remainders, hundreds of cycles) off the path from one
tile's epilogue to the next tile's first product; after the loop the tensor cores are still busy.
Before -> after:
    %m = ...                                  %acc = scf.for ... { hopper.wgmma ... }
    %acc = scf.for ... { hopper.wgmma ... }   %m = ...
    hopper.tma_store %map[%m, ..]             hopper.tma_store %map[%m, ..]
Requires: waits placed; what is sunk lands before the wait that drains the loop.
Ensures: the same values. Declines when: a use stands before or inside the loop; a block takes
turns: there scalars are computed while another instance has the turn, and nothing may come between
the last product of a turn and its end.
"""

from __future__ import annotations

from xdsl.dialects import scf
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Block, Operation

from tawa.ir import aref, hopper
from tawa.ir.walk import has, is_terminator, marked_pure, walk
from tawa.passes.lower.layouts import cheap_values


def sink_scalars(role: hopper.Role) -> None:
    """Move scalar statements of every block of `role` past the loops that do not need them."""
    for operation in walk(role):
        for region in operation.regions:
            for block in region.blocks:
                _sink(block)


def _sink(block: Block) -> None:
    order = {operation: float(place) for place, operation in enumerate(block.ops)}
    loops = [op for op in order if _multiplies(op)]
    if not loops or has(block, aref.Turn):
        return
    # Last first: what a statement feeds has found its place before the statement is looked at, and
    # of two that move to one place the earlier ends up in front.
    for operation in reversed(list(order)):
        if not _is_scalar(operation):
            continue
        first = min((order[_in_block(use, block)] for use in _users(operation)), default=-1)
        passed = [loop for loop in loops if order[operation] < order[loop] < first]
        if not passed:
            continue
        operation.detach()
        block.insert_op_after(operation, passed[-1])
        # After the loop, before everything that stood there.
        order[operation] = order[passed[-1]] + 0.5


def sink_into_branches(role: hopper.Role) -> None:
    """Move cheap tensors that one of two sides alone uses to that side: addresses of the rarer
    would be computed for both.
    """
    cheap = set(cheap_values(role))
    for branch in [op for op in walk(role) if isinstance(op, scf.IfOp) and _acts(op)]:
        block = branch.parent_block()
        assert block is not None, "a branch stands in a block"
        above = list(block.ops)
        for operation in reversed(above[: above.index(branch)]):
            if not operation.results or any(value not in cheap for value in operation.results):
                continue
            sides = {_side_of(use, branch) for use in _users(operation)}
            side = sides.pop() if len(sides) == 1 else None
            if side is not None and side.first_op is not None:
                operation.detach()
                side.insert_op_before(operation, side.first_op)


def _acts(branch: scf.IfOp) -> bool:
    """Tell whether both sides of a branch do something and give nothing."""
    sides = [region.block for region in branch.regions if region.blocks]
    return not branch.results and len(sides) == 2 and all(len(side.ops) > 1 for side in sides)


def _side_of(operation: Operation, branch: scf.IfOp) -> Block | None:
    """Return the side of `branch` that an operation stands on, None for elsewhere."""
    for region in branch.regions:
        if region.blocks and region.is_ancestor(operation):
            return region.block
    return None


def _multiplies(operation: Operation) -> bool:
    return type(operation) is scf.ForOp and has(operation, hopper.Wgmma)


def _is_scalar(operation: Operation) -> bool:
    return (
        marked_pure(operation)
        and not is_terminator(operation)
        and not operation.regions
        and bool(operation.results)
        and not any(isinstance(value.type, TensorType) for value in operation.results)
    )


def _users(operation: Operation) -> list[Operation]:
    return [use.operation for value in operation.results for use in value.uses]


def _in_block(operation: Operation, block: Block) -> Operation:
    """Return the operation of `block` that is or contains `operation`."""
    while operation.parent_block() is not block:
        parent = operation.parent_op()
        assert parent is not None, "a use of a value stands below the value's block"
        operation = parent
    return operation
