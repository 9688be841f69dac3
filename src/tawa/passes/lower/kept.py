"""Accumulators that are read after a product has taken their registers are copied before.

Purpose: a product adds to its accumulator in place; what the program still needs of the old value
must lie elsewhere, and be at rest when it is copied.
Before -> after:
    %y = hopper.wgmma %a, %b, %x          %kept = tile.cast %x
    tile.elementwise "sub"(%y, %x)   ->   %y = hopper.wgmma %a, %b, %kept
                                          tile.elementwise "sub"(%y, %x)
A value is handed on in its registers by loops, branches and pins as well, so the copy may stand
before a loop, or before the end of a branch.
Requires: layouts assigned, no waits yet. Ensures: who uses a value after a product took its
registers uses other registers; what threads compute for a product is pinned before it.
Declines when: never.
"""

from __future__ import annotations

from xdsl.dialects import scf
from xdsl.ir import Block, SSAValue, Use

from tawa.ir import hopper, tile
from tawa.ir.walk import all_of, has, walk
from tawa.passes.lower.emit import Emitter
from tawa.passes.lower.flight import lives_on
from tawa.passes.lower.relate import is_tensor

_ACC = 2  # the operand of a wgmma
_ITER_ARGS = 3  # the first of them among the operands of a loop
_FILLED = (tile.Constant, hopper.Uninitialized)  # written where they are used


def keep_accumulators(role: hopper.Role) -> None:
    """Copy each value of `role` that outlives the product that takes its registers."""
    if not has(role, hopper.Wgmma):
        return
    for operation in walk(role):
        for index, value in enumerate(operation.operands):
            if not is_tensor(value) or isinstance(value.owner, _FILLED):
                continue
            use = Use(operation, index)
            if _takes(use, set()) and lives_on(value, operation, index):
                copy = tile.Cast(operands=[value], result_types=[value.type])
                kept = Emitter.before(operation).put(copy).result
                kept.name_hint = value.name_hint
                operation.operands[index] = kept


def pin_computed(role: hopper.Role) -> None:
    """Pin what the threads of `role` compute for a product to add to, before its fence.

    Else the C++ compiler may leave copies of one value, or a choice between two, to where the
    product is, and ptxas serialises the product (C7520).
    """
    for product in all_of(role, hopper.Wgmma):
        if _is_computed(value := product.acc):
            pin = hopper.Pin(operands=[[value]], result_types=[[value.type]])
            product.operands[_ACC] = Emitter.before(product).put(pin).res[0]


def _is_computed(value: SSAValue) -> bool:
    """Tell whether an operation of threads gives a value, or a branch without products."""
    match value.owner:
        case scf.IfOp() as branch:
            return not has(branch, hopper.Wgmma)
        case hopper.Wgmma() | hopper.Pin() | scf.ForOp() | scf.WhileOp() | Block():
            return False
        case owner:
            return not isinstance(owner, _FILLED)


def _takes(use: Use, seen: set[SSAValue]) -> bool:
    """Tell whether the registers of an operand become those of a product's sum."""
    if isinstance(use.operation, hopper.Wgmma):
        return use.index == _ACC
    for value in _handed_on(use):
        if value not in seen:
            seen.add(value)
            if any(_takes(further, seen) for further in value.uses):
                return True
    return False


def _handed_on(use: Use) -> list[SSAValue]:
    """Return the values that an operand is from then on, in the same registers."""
    operation, index = use.operation, use.index
    match operation:
        case scf.ForOp() if index >= _ITER_ARGS:
            place = index - _ITER_ARGS
            return [operation.body.block.args[place + 1], operation.results[place]]
        case scf.WhileOp():
            return [operation.before_region.block.args[index]]
        case hopper.Pin():
            return [operation.res[index]]
        case scf.ConditionOp() if index and isinstance(loop := operation.parent_op(), scf.WhileOp):
            return [loop.after_region.block.args[index - 1], loop.results[index - 1]]
        case scf.YieldOp():
            return _yielded_to(operation, index)
        case _:
            return []


def _yielded_to(end: scf.YieldOp, index: int) -> list[SSAValue]:
    match end.parent_op():
        case scf.ForOp() as loop:
            return [loop.body.block.args[index + 1], loop.results[index]]
        case scf.WhileOp() as loop:
            return [loop.before_region.block.args[index]]
        case scf.IfOp() as branch:
            return [branch.results[index]]
        case _:
            return []
