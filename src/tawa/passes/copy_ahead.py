"""Purpose: let an ordinary kernel copy the tiles of later iterations under the products of this
one.

Before -> after (D = 4 slots, P = 2 products in flight)::

    scf.for %k .. (%p = %p0) {                  %p3 = scf.for %j .. (%p = %p0) {  // at most 3
      %slot = aref.put_enter %ab                  put of what %p names
      %a, %b = copies of what %p names            scf.yield %p + ..
      aref.put_exit %slot(%a, %b)               }
      %a2, %b2 = aref.get_enter %ab       ->    scf.for %k .. (%p = %p3) {
      %acc2 = tile.dot %a2, %b2, %acc             %a2, %b2 = aref.get_enter %ab
      aref.get_exit %ab                           %acc2 = tile.dot %a2, %b2, %acc
      scf.yield %p + .., %acc2                    aref.get_exit %ab
    }                                             scf.if %ub - %k > 3 * step { put .. }
                                                }

The puts, and what their addresses come from, are D - max(P, 2) + 1 iterations ahead of the rest: a
put finds the slot free that a product of the iteration before has read, whose wait the program has
passed. Requires: arefs inserted, no roles. Ensures: the same values; each copy once, in order.
Declines when: what is copied depends on what the loop computes; a bound below zero or a step so
large that the iterations ahead may wrap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects import scf
from xdsl.ir import Block, BlockArgument, Operation, Region, SSAValue

from tawa.analysis.ranges import range_of
from tawa.analysis.stages import used_by
from tawa.analysis.statements import children, has_effect, name_of
from tawa.ir import aref, tile
from tawa.ir.walk import all_of, terminator
from tawa.passes.dead import sweep
from tawa.passes.fold import constant, elementwise
from tawa.passes.lower.emit import append_operands, erase, widen_for
from tawa.plan.plan import Declined, Plan
from tawa.target import Target

_PUTS = (aref.PutEnter, aref.PutExit)
_LARGEST_STEP = 1 << 24


def copy_ahead(kernel: tile.Kernel, plan: Plan, target: Target) -> tuple[Declined, ...]:
    """Let the puts of each loop of an ordinary kernel run ahead of its gets."""
    if plan.specialized:
        return ()
    notes: list[Declined] = []
    for loop in all_of(kernel, scf.ForOp):
        if not any(isinstance(op, _PUTS) for op in children(loop)):
            continue
        part = _part_of_puts(loop)
        if any(isinstance(op, (aref.GetEnter, tile.Dot)) for op in part.statements):
            reason = "an address depends on what the loop computes"
            notes.append(Declined(f"copies ahead in {name_of(loop)}", reason))
            continue
        if not _is_counted_in_words(loop):
            reason = "its bounds may be so large that they wrap some iterations ahead"
            notes.append(Declined(f"copies ahead in {name_of(loop)}", reason))
            continue
        _run_ahead(loop, part, _ahead(plan, loop))
    sweep(kernel.body.block, has_effect)
    return tuple(notes)


def _is_counted_in_words(loop: scf.ForOp) -> bool:
    """Tell whether the iterations that are ahead, and those that are left, do not wrap as
    numbers.
    """
    return range_of(loop.step).high <= _LARGEST_STEP and range_of(loop.lb).is_natural


def _ahead(plan: Plan, loop: scf.ForOp) -> int:
    """Return how many iterations the copies are ahead of the products."""
    rings = (op.aref.owner for op in children(loop) if isinstance(op, aref.PutEnter))
    depth = min(ring.depth.data for ring in rings if isinstance(ring, aref.Create))
    flying = {item.loop: item.mma_depth for item in plan.loops}
    return depth - max(flying.get(name_of(loop), 1), 2) + 1


@dataclass(frozen=True, slots=True)
class _Part:
    """The statements of a loop that its puts need, in order, and the carried values."""

    statements: tuple[Operation, ...]
    carried: tuple[BlockArgument, ...]


def _part_of_puts(loop: scf.ForOp) -> _Part:
    block = loop.body.block
    end = terminator(block)
    found: set[Operation] = set()
    carried: set[SSAValue] = set()
    pending: list[SSAValue] = []

    def need(operation: Operation) -> None:
        if operation not in found:
            found.add(operation)
            pending.extend(used_by(operation))

    for operation in block.ops:
        if isinstance(operation, _PUTS):
            need(operation)
    while pending:
        value = pending.pop()
        if isinstance(value, BlockArgument):
            if value.owner is block and value.index and value not in carried:
                carried.add(value)
                pending.append(end.operands[value.index - 1])
        elif isinstance(value.owner, Operation) and value.owner.parent is block:
            need(value.owner)
    return _Part(
        tuple(op for op in block.ops if op in found),
        tuple(argument for argument in block.args if argument in carried),
    )


def _run_ahead(loop: scf.ForOp, part: _Part, ahead: int) -> None:
    """Put `ahead` tiles before the loop, and in each iteration the one so many iterations later."""
    around, block = loop.parent, loop.body.block
    assert around is not None, "a loop stands in a block"
    starts = [loop.iter_args[argument.index - 1] for argument in part.carried]
    number = constant(ahead, loop.step.type)
    lead = elementwise("mul", loop.step, number.results[0])
    span = elementwise("sub", loop.ub, loop.lb)
    first = elementwise("min", span.results[0], lead.results[0])
    stop = elementwise("add", loop.lb, first.results[0])
    inner = Block(arg_types=[loop.lb.type, *(value.type for value in starts)])
    inner.add_op(scf.YieldOp(*_copy(block, part, inner, inner.args[0], inner.args[1:])))
    fill = scf.ForOp(loop.lb, stop.results[0], loop.step, starts, Region(inner))
    fill.location = loop.location
    around.insert_ops_before([number, lead, span, first, stop, fill], loop)

    end, loop = terminator(block), widen_for(loop, fill.results)
    given = block.args[len(block.args) - len(part.carried) :]
    for argument, new in zip(part.carried, given):
        new.name_hint = argument.name_hint
    left = elementwise("sub", loop.ub, block.args[0])
    more = elementwise("gt", left.results[0], lead.results[0])
    later = elementwise("add", block.args[0], lead.results[0])
    then = Block()
    then.add_op(scf.YieldOp(*_copy(block, part, then, later.results[0], given)))
    otherwise = Block([scf.YieldOp(*given)])
    kinds = [argument.type for argument in part.carried]
    put = scf.IfOp(more.results[0], kinds, Region(then), Region(otherwise))
    block.insert_ops_before([left, more, later, put], end)
    append_operands(end, put.results)
    for operation in reversed(part.statements):
        if isinstance(operation, _PUTS):
            erase(operation)


def _copy(
    block: Block, part: _Part, target: Block, iteration: SSAValue, carried: Sequence[SSAValue]
) -> list[SSAValue]:
    """Append the part of a loop's `block` to `target` for one iteration; return what it carries to
    the next.
    """
    mapping: dict[SSAValue, SSAValue] = {
        block.args[0]: iteration,
        **dict(zip(part.carried, carried)),
    }
    for operation in part.statements:
        target.add_op(operation.clone(mapping))
    end = terminator(block)
    values = (end.operands[argument.index - 1] for argument in part.carried)
    return [mapping.get(value, value) for value in values]
