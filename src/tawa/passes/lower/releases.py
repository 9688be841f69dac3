"""Releases that lag: a slot is freed P - 1 trips after the product that reads it was issued.

So that products of several trips are in flight at once (the tensor cores stay fed across the wait),
each trip frees the slot of the trip P - 1 before, and what is still lent is freed after the loop.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects import scf
from xdsl.dialects.builtin import IntAttr
from xdsl.ir import Block, Operation, SSAValue

from tawa.ir import hopper
from tawa.ir.control import terminator
from tawa.passes.lower.context import Lowering
from tawa.passes.lower.dots import trip_counter
from tawa.passes.lower.emit import Emitter, append_operands, new_region, widen_for
from tawa.passes.lower.flight import Flight, Read, follows, used_from
from tawa.passes.lower.relate import is_tensor
from tawa.passes.lower.views import root_slot


@dataclass(slots=True)
class Held:
    """A release waiting for the wait that covers it, and what comes after it in its block."""

    arrive: hopper.Arrive
    reads: list[Read]
    next_op: Operation


def let_lag(
    lowering: Lowering, loop: scf.ForOp, held: list[Held], depth: int, flight: Flight
) -> scf.ForOp:
    """Free slots `depth` trips after their reads were issued, the last ones after the loop.

    Returns the loop rebuilt, with the slots still lent carried through it; `flight` is empty then.
    """
    block = loop.body.block
    groups = sum(isinstance(op, hopper.WgmmaCommit) for op in block.ops)
    results = list(loop.results)
    trip = trip_counter(lowering, loop)
    loop = _loop_of(block)
    zero = Emitter.before(loop).constant(0)
    wide = widen_for(loop, [zero] * (depth * len(held)))
    flight.rename(list(zip(results, wide.results)))
    olds = list(block.args[-depth * len(held) :])
    end = terminator(block)
    results = list(wide.results[-depth * len(held) :])
    after = Emitter.after(wide)
    _drain(wide, flight, after)
    trips = wide.results[lowering.trips[block].index - 1]
    for index, item in enumerate(held):
        mine = olds[index * depth : (index + 1) * depth]
        # mine[0] is the slot of the trip before this one, mine[-1] the oldest still lent.
        append_operands(end, [item.arrive.slot, *mine[:-1]])
        for number, old in enumerate(mine):
            hint = "oldest" if number == depth - 1 else f"older{number + 1}"
            old.name_hint = hint
            results[index * depth + number].name_hint = f"{hint}_end"
        before = Emitter.before(item.next_op)
        age = _groups_between(item) + depth * groups - 1
        if not _waited(item.next_op, age):
            before.put(_bare_wait(age))
        due = (
            before.apply("ge", trip, before.constant(depth))
            if depth > 1
            else (before.apply("gt", trip, before.constant(0)))
        )
        _arrive_if(before, due, item.arrive, mine[-1])
        for number in range(depth):
            left = after.apply("gt", trips, after.constant(number))
            _arrive_if(after, left, item.arrive, results[index * depth + number])
        item.arrive.detach()
        item.arrive.erase()
    return wide


def _drain(loop: scf.ForOp, flight: Flight, after: Emitter) -> None:
    """Wait for all products; accumulators are readable from here on, also those that were in flight
    round the loop.
    """
    in_flight = [thing for thing in flight.ages if isinstance(thing, SSAValue)]
    values = [value for value in loop.results if value in flight.ages and value.first_use]
    values += [v for v in in_flight if v.owner is not loop and used_from(v, loop)]
    flight.wait(0)
    wait = after.put(
        hopper.WgmmaWait(
            operands=[values],
            attributes={"pending": IntAttr(0)},
            result_types=[[value.type for value in values]],
        )
    )
    for value, ready in zip(values, wait.res):
        ready.name_hint = value.name_hint
        value.replace_uses_with_if(
            ready, lambda use: use.operation is not wait and follows(use.operation, wait)
        )


def _bare_wait(pending: int) -> hopper.WgmmaWait:
    return hopper.WgmmaWait(
        operands=[[]], attributes={"pending": IntAttr(pending)}, result_types=[[]]
    )


def _arrive_if(emitter: Emitter, condition: SSAValue, like: hopper.Arrive, slot: SSAValue) -> None:
    arrive = hopper.Arrive(operands=[like.barriers, slot], attributes=dict(like.attributes))
    emitter.put(scf.IfOp(condition, [], new_region(arrive, scf.YieldOp())))


def _groups_between(item: Held) -> int:
    """Count the groups from the last product reading the slot to the release, inclusive."""
    count, operation = 0, item.arrive.prev_op
    indices = {read.index for read in item.reads}
    while operation is not None:
        if isinstance(operation, hopper.WgmmaCommit):
            count += 1
            product = operation.prev_op
            assert isinstance(product, hopper.Wgmma)
            views = [view for view in (product.a, product.b) if not is_tensor(view)]
            if any(root_slot(view).index in indices for view in views):
                return count
        operation = operation.prev_op
    return count


def _waited(before: Operation, pending: int) -> bool:
    """Tell whether a wait as strict stands just before an operation, releases aside."""
    operation = before.prev_op
    while isinstance(operation, (hopper.Arrive, scf.IfOp)) or (
        operation is not None and operation.dialect_name() == "tile"
    ):
        operation = operation.prev_op
    return isinstance(operation, hopper.WgmmaWait) and operation.pending.data <= pending


def _loop_of(block: Block) -> scf.ForOp:
    loop = block.parent_op()
    assert isinstance(loop, scf.ForOp)
    return loop


def move_before(operation: Operation, anchor: Operation) -> None:
    """Move an operation to the place just before another."""
    if operation.next_op is anchor:
        return
    operation.detach()
    block = anchor.parent
    assert block is not None
    block.insert_op_before(operation, anchor)
