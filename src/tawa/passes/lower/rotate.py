"""Rotate: a pipelined loop waits for the next iteration's tile under the product still in flight.

Purpose: end the overlap of a coarse schedule where the code of it ends. ptxas moves arithmetic
across `wgmma.wait_group` but not across the blocks of its control-flow graph, and pins alone leave
no trace in PTX; the spin wait for the next tile, which must come anyway, is such a block boundary.
Before -> after:
    scf.for %j (.. %slot, %phase ..) {            scf.if %lb < %ub { hopper.wait %f[%slot0], %p0 }
      hopper.wait %filled[%slot], %phase    ->    scf.for %j (.. %slot, %phase ..) {
      ..                                            ..
      hopper.pin %p                                 hopper.pin %p
      ..                                            scf.if %j + step < %ub {
    }                                                 hopper.wait %filled[%next_slot], %next_phase
                                                    }
                                                  }
An iteration with several stretches of pinned work ends the last of them with the wait for its first
tile, and the earlier ones, in order, with those for its next tiles. Requires: rings lowered.
Ensures: each wait is done once for each iteration, as before, and before what it stood before.
Declines when: never; a loop whose first wait is not for a carried slot stays, and one that would
wait for a slot while it holds all slots of the ring.
"""

from __future__ import annotations

from xdsl.dialects import scf
from xdsl.ir import Block, BlockArgument, Operation, Region, SSAValue

from tawa.ir import hopper
from tawa.ir.walk import all_of, marked_pure, terminator
from tawa.passes.lower.context import Lowering
from tawa.passes.lower.emit import Emitter, erase, new_region


def rotate_waits(lowering: Lowering, role: hopper.Role) -> None:
    """Rotate the first waits of each loop of `role` that pins values."""
    for loop in all_of(role, scf.ForOp):
        ends = _ends(loop.body.block)
        for end in ends and (ends[-1], *ends[:-1]):
            _rotate(lowering, loop, end)


def _ends(block: Block) -> list[hopper.Pin]:
    """Return the last pin of each stretch of work whose values are pinned."""
    pins = [op for op in block.ops if isinstance(op, hopper.Pin)]
    return [pin for pin in pins if not isinstance(pin.next_op, hopper.Pin)]


def _rotate(lowering: Lowering, loop: scf.ForOp, pin: hopper.Pin) -> None:
    """Move the first wait of an iteration that is not rotated yet to after `pin` of the iteration
    before.
    """
    block = loop.body.block
    wait = _first_wait(block)
    anchor = pin.next_op
    if wait is None or anchor is None or not wait.is_before_in_block(pin):
        return
    if _holds_all(lowering, wait, anchor):
        return
    end = terminator(block)
    slot, phase = wait.slot, wait.phase
    carried = [value.index - 1 for value in (slot, phase) if isinstance(value, BlockArgument)]
    following = [end.operands[index] for index in carried]
    if not all(_hoist(value, anchor) for value in following):
        return
    first = Emitter.before(loop)
    begins = first.apply("lt", loop.lb, loop.ub)
    initial = [loop.iter_args[index] for index in carried]
    first.put(scf.IfOp(begins, [], _waiting(wait, initial)))
    emitter = Emitter.before(anchor)
    after = emitter.apply("add", block.args[0], loop.step)
    more = emitter.apply("lt", after, loop.ub, hint="another")
    emitter.put(scf.IfOp(more, [], _waiting(wait, following)))
    erase(wait)


def _holds_all(lowering: Lowering, wait: hopper.Wait, anchor: Operation) -> bool:
    """Tell whether at `anchor` the role may hold every slot of the ring that it would wait for.

    What it frees after `anchor` it holds there: the iteration's own slot, and one more for a slot
    of the iteration before, whose release the schedule has put off.
    """
    ring = next(r for r in lowering.rings.values() if r.filled.result is wait.barriers)
    late = [
        op.slot
        for op in wait.parent_block().ops  # pyright: ignore[reportOptionalMemberAccess]
        if isinstance(op, hopper.Arrive)
        and op.barriers is ring.freed.result
        and not op.is_before_in_block(anchor)
    ]
    held = 1 + any(slot is not wait.slot for slot in late)
    return bool(late) and ring.depth <= held


def _first_wait(block: Block) -> hopper.Wait | None:
    """Return the wait for a carried slot before the first product of an iteration."""
    for operation in block.ops:
        match operation:
            case hopper.Wait(slot=BlockArgument() as slot, phase=BlockArgument() as phase):
                return operation if slot.owner is block and phase.owner is block else None
            case _ if operation.regions:
                return None
            case _:
                continue
    return None


def _waiting(like: hopper.Wait, place: list[SSAValue]) -> Region:
    wait = hopper.Wait.make(like.barriers, *place)
    wait.location = like.location
    return new_region(wait, scf.YieldOp())


def _hoist(value: SSAValue, anchor: Operation) -> bool:
    """Make `value` available before `anchor`, moving pure scalars up; tell whether it is."""
    owner = value.owner
    if not isinstance(owner, Operation) or owner.parent is not anchor.parent:
        return True
    if owner.is_before_in_block(anchor):
        return True
    if not marked_pure(owner) or not all(_hoist(operand, anchor) for operand in owner.operands):
        return False
    block = anchor.parent
    assert block is not None
    owner.detach()
    block.insert_op_before(owner, anchor)
    return True
