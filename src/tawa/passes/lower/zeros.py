"""An accumulator that its first product overwrites is not filled with zeros first.

Purpose: 96 to 128 moves a thread less between a tile and the first product of the next.
Before -> after:
    %acc = scf.for .. iter_args(%a = %zero) {     %acc = scf.for .. iter_args(%a = %any) {
      hopper.wgmma .., %a if %more                  hopper.wgmma .., %a if %more
    }                                             }
    %c = hopper.wgmma_wait of %acc                %d = hopper.wgmma_wait of %acc
    use %c                                        %c = scf.if %trips > 0 { %d }
                                                       else { hopper.pin %zero }
Requires: waits placed. Ensures: zeros where the loop does not run.
Declines when: the accumulator is used otherwise than by that product, or read inside the loop; a
branch hands it on, whose other side gives another: ptxas would serialise the products (C7515).
"""

from __future__ import annotations

from xdsl.dialects import scf
from xdsl.ir import Block, Operation, Region, SSAValue

from tawa.ir import hopper, tile
from tawa.ir.types import Real
from tawa.ir.walk import all_of
from tawa.passes.lower.context import Lowering
from tawa.passes.lower.dots import is_zero
from tawa.passes.lower.emit import Emitter


def drop_zero_fills(lowering: Lowering, role: hopper.Role) -> None:
    """Leave accumulators of `role` that start from zero uninitialized."""
    for loop in all_of(role, scf.ForOp):
        for index, start in enumerate(loop.iter_args):
            if is_zero(start) and _is_overwritten(loop, index):
                _leave(lowering, loop, index)


def _is_overwritten(loop: scf.ForOp, index: int) -> bool:
    """Tell whether the first trip's product is all that sees the carried value's start."""
    argument = loop.body.block.args[index + 1]
    use = argument.get_unique_use()
    if use is None or not isinstance(product := use.operation, hopper.Wgmma):
        return False
    # In the loop's own block it runs in every trip; elsewhere the first trip might pass it by.
    return product.accumulate is not None and product.parent is loop.body.block and use.index == 2


def _leave(lowering: Lowering, loop: scf.ForOp, index: int) -> None:
    block = loop.body.block
    if block not in lowering.trips:
        return
    zero, result = loop.iter_args[index], loop.results[index]
    ready = _ready(result)
    if ready is None or any(_is_chosen(use.operation) for use in ready.uses):
        return
    before = Emitter.before(loop)
    empty = before.put(hopper.Uninitialized(result_types=[result.type]))
    loop.operands[3 + index] = empty.result
    wait = ready.owner
    assert isinstance(wait, Operation)
    after = Emitter.after(wait)
    trips = loop.results[lowering.trips[block].index - 1]
    ran = after.apply("gt", trips, after.constant(0), hint="ran")
    fill = tile.Constant(attributes={"value": Real(0.0)}, result_types=[zero.type])
    # Pinned, the zeros stay in a branch of their own that is not taken; else the compiler would
    # choose between each register and zero, one instruction each, in every tile.
    pinned = hopper.Pin(operands=[[fill.result]], result_types=[[zero.type]])
    other = Block([fill, pinned, scf.YieldOp(pinned.res[0])])
    choice = scf.IfOp(ran, [result.type], Region(Block([scf.YieldOp(ready)])), Region(other))
    uses = [use for use in ready.uses if use.operation.parent_op() is not choice]
    after.put(choice)
    for use in uses:
        use.operation.operands[use.index] = choice.results[0]
    choice.results[0].name_hint = ready.name_hint


def _is_chosen(user: Operation) -> bool:
    """Tell whether a value leaves a branch here whose other side gives another."""
    return isinstance(user, scf.YieldOp) and isinstance(user.parent_op(), scf.IfOp)


def _ready(result: SSAValue) -> SSAValue | None:
    """Return the finished accumulator after the loop: its result, or what the drain gives."""
    use = result.get_unique_use()
    if use is not None and isinstance(wait := use.operation, hopper.WgmmaWait):
        return wait.res[use.index]
    return None
