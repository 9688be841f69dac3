"""Purpose: load what the next iteration computes with while this iteration computes.

Before -> after::

    scf.for %k .. (%p = %p0, %x = %x0) {       %a0 = tile.load %p0
      %a = tile.load %p                        scf.for %k .. (%p = .., %x = %x0, %a = %a0) {
      %x2 = tile.dot %a, .., %x           ->     %a2 = tile.load %p
      %p2 = tile.ptr_add %p, ..                  %x2 = tile.dot %a, .., %x
      scf.yield %p2, %x2                         scf.yield .., %x2, %a2
    }                                          }
                                               tile.dot %a, .., %x

In a kernel without roles these are all tiles; in one with roles they are the indices of rows that
a producer's threads copy (what a consumer reads for itself: `passes.ahead`). The loads, and what
their addresses come from, are the first stage of the software pipeline, all else is the second: no
load is done that the loop would not have done.
Requires: aref IR, or tile IR of an ordinary kernel. Ensures: the same values; each load once.
Declines when: the loop writes memory that no guard of the plan keeps apart from what it loads, or
waits for other programs; an address depends on what the
loop loads; what is loaded for two iterations does not fit the registers; a loop stands in it.

Purpose: let an ordinary kernel copy the tiles of later iterations under the products of this
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
from math import prod

from xdsl.dialects import scf
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint

from tawa.analysis.memory import meetings
from tawa.analysis.ranges import range_of
from tawa.analysis.stages import Root, Stages, defined_in, root_of, statements, used_by
from tawa.analysis.statements import children, has_effect, is_volatile, name_of
from tawa.ir import aref, tile
from tawa.ir.types import bit_width, element_type, shape_of
from tawa.ir.walk import all_of, around, reach, terminator, walk
from tawa.passes.coarse import settle_carried
from tawa.passes.dead import sweep
from tawa.passes.lower.emit import Emitter, append_operands, erase, new_region, widen_for
from tawa.passes.software_pipeline import Schedule, pipeline_loop
from tawa.plan.plan import Declined, Plan
from tawa.plan.resources import SLACK, held_registers, producer_need
from tawa.target import Target

MOST = 240
"""Registers a thread of an ordinary kernel may need: above it ptxas spills."""
SPARE = 32
"""Registers a thread has for what it loads an iteration ahead where no product computes with it."""

FEW = 8
"""The same past a store: where an iteration reads more, what other warps read is enough on its
way.
"""

PIECES = 8
"""Row numbers a copying thread may hold for the next iteration without registers for them."""

_LONG = ("idiv", "irem")
_QUIET = (tile.Load, tile.DescLoad, aref.PutEnter, aref.PutExit)


def prefetch(kernel: tile.Kernel, plan: Plan, target: Target) -> tuple[Declined, ...]:
    """Load an iteration ahead in the loops of an ordinary kernel, and in those of a producer that
    fill rings by copies.
    """
    reasons: dict[scf.ForOp, str] = {}
    chosen: dict[scf.ForOp, list[tile.Load]] = {}
    for loop in all_of(kernel, scf.ForOp):
        if not (loads := _loads(loop, plan)):
            continue
        reason = _why_not(kernel, plan, loop, loads)
        match reason or _parted(loop, loads):
            case str() as reason:
                reasons[loop] = reason
            case _:
                chosen[loop] = loads
    for loop in reversed(chosen):  # what is inside a loop is copied where that one is split
        if not plan.specialized:
            _part_indices(loop.body.block, chosen[loop])
        match _parted(loop, chosen[loop]):
            case str() as reason:
                reasons[loop] = reason
            case schedule:
                pipeline_loop(loop, schedule)
    return tuple(
        Declined(f"loads an iteration ahead in {name_of(loop)}", reason)
        for loop, reason in reasons.items()
    )


def _loads(loop: scf.ForOp, plan: Plan) -> list[tile.Load]:
    """Return the loads directly in such a loop, but for the copies themselves."""
    body = list(loop.body.block.ops)
    copied = _copied(loop)
    if plan.specialized and not copied:
        return []
    return [
        op
        for op in body
        if isinstance(op, tile.Load)
        and shape_of(op.result.type)
        and not is_volatile(op)
        and op.result not in copied
    ]


def _copied(loop: scf.ForOp) -> set[SSAValue]:
    """Return the tiles that a producer's loop puts into rings."""
    puts = [op for op in loop.body.block.ops if isinstance(op, aref.PutExit)]
    return {value for put in puts for value in put.values}


def _pieces(tensor: SSAValue, warps: int) -> int:
    """Return how many pieces of 16 bytes, each of a row of its own, a thread copies of a tile."""
    bits = prod(shape_of(tensor.type)) * bit_width(element_type(tensor.type))
    return -(-bits // (128 * 32 * warps))


def _why_not(kernel: tile.Kernel, plan: Plan, loop: scf.ForOp, loads: list[tile.Load]) -> str:
    """Return why tiles of two iterations cannot be under way at once, or nothing."""
    for operation in walk(loop.body):
        if not has_effect(operation) and not is_volatile(operation):
            continue
        if not isinstance(operation, _QUIET) and not _passed(kernel, plan, operation, loads):
            return f"{operation.name} stands in the loop"
    if plan.specialized:
        role = next(each for each in around(loop) if isinstance(each, aref.Role))
        copied = _copied(loop)
        need = len(loads) * max(_pieces(value, role.warps.data) for value in copied)
        owners = [value.owner for value in copied if isinstance(value.owner, tile.Load)]
        have = role.registers.data if role.registers is not None else 0
        short = need > PIECES and have < producer_need(owners)
        return f"they take {need} registers a thread" if short else ""
    if any(isinstance(operation, (scf.ForOp, scf.WhileOp)) for operation in walk(loop.body)):
        return "a loop stands in it, whose text would be there twice"
    dots = [op.result for op in walk(loop.body) if isinstance(op, tile.Dot)]
    if not dots:
        # More would cost a block that runs beside this one.
        need = sum(_words(load.result.type) for load in loads) // (32 * plan.warps)
        stores = any(isinstance(operation, tile.Store) for operation in walk(loop.body))
        return f"they take {need} registers a thread" if need > (FEW if stores else SPARE) else ""
    held = [*(load.result for load in (*loads, *loads)), *dots]
    need = 2 * SLACK + sum(held_registers(value.type, plan.warps) for value in held)
    if need > MOST:
        return f"tiles of two iterations need {need} registers a thread"
    return ""


def _passed(kernel: tile.Kernel, plan: Plan, store: Operation, loads: list[tile.Load]) -> bool:
    """Tell whether `loads` may pass a store: the plan's guards keep their memory apart."""
    if not isinstance(store, tile.Store):
        return False
    met = [meetings(load, [store]) for load in loads]
    if any(meeting.unknown or meeting.writers for meeting in met):
        return False
    return all(plan.keeps_apart(kernel.argument_names, meeting.guards) for meeting in met)


def _words(kind: Attribute) -> int:
    """Return the words of a tile in registers."""
    return -(-prod(shape_of(kind)) * max(8, bit_width(element_type(kind))) // 32)


def _parted(loop: scf.ForOp, loads: list[tile.Load]) -> Schedule | str:
    """Return the two stages of a loop, the reason where they cannot overlap."""
    settle_carried(loop)
    block = loop.body.block
    roots: dict[SSAValue, Root] = {}
    for argument in block.args[1:]:
        if (root := root_of(loop, argument)) is None:
            return "its carried values exchange places"
        roots[argument] = root
    late = _fed_by(loads, statements(block), roots)
    if stuck := next((load for load in loads if load in late), None):
        return f"the address of {name_of(stuck)} depends on a tile that the loop loads"
    early = _needed_by(loads, roots)
    of = {op: int(op in late or op not in early) for op in statements(block)}
    stages = Stages(of, roots)
    order = [*(op for op in of if not of[op]), *(op for op in of if of[op])]
    if stages.count < 2 or stages.broken(order) is not None:
        return "an address depends on what the iteration before computes"
    return Schedule(tuple(order), of)


def _part_indices(block: Block, loads: list[tile.Load]) -> None:
    """Let what uses loaded tiles compute indices and masks from the iteration's number for itself:
    carried from the iteration before they would take registers, and hide where a store goes.
    """
    early = _needed_by(loads, {})
    again: dict[SSAValue, SSAValue] = {}
    for operation in statements(block):
        known = (
            v is block.args[0] or v in again or _is_outside(v, block) for v in used_by(operation)
        )
        if operation in early and _is_index(operation) and all(known):
            copy = operation.clone(dict(again))
            block.insert_op_after(copy, operation)
            again[operation.results[0]] = copy.results[0]
            copy.results[0].name_hint = operation.results[0].name_hint
    copies = {copy.owner for copy in again.values()}
    for value, copy in again.items():
        for use in list(value.uses):
            user = block.find_ancestor_op_in_block(use.operation)
            if user is not block.last_op and user not in early and user not in copies:
                use.operation.operands[use.index] = copy
    for copy in reversed(again.values()):
        if copy.first_use is None and isinstance(copy.owner, Operation):
            erase(copy.owner)


def _is_index(operation: Operation) -> bool:
    """Tell whether an operation is computed anew in a few instructions. Quotients are not."""
    if isinstance(operation, tile.Elementwise) and operation.function.data in _LONG:
        return False
    kinds = (tile.Elementwise, tile.Cast, tile.Constant, tile.Splat, tile.Arange, tile.ExpandDims)
    return isinstance(operation, (*kinds, tile.Broadcast, tile.PtrAdd))


def _is_outside(value: SSAValue, block: Block) -> bool:
    return value.owner is not block and not defined_in(value, block)


def _fed_by(
    loads: list[tile.Load], body: list[Operation], roots: dict[SSAValue, Root]
) -> set[Operation]:
    """Return the statements that read a loaded tile, or what was computed from one."""
    found: set[Operation] = set()
    before = -1
    while before < len(found):  # what is carried to the next iteration feeds statements further up
        before = len(found)
        for operation in body:
            sources = {_source(value, roots) for value in used_by(operation)}
            if sources & found or any(load in sources for load in loads):
                found.add(operation)
    return found


def _source(value: SSAValue, roots: dict[SSAValue, Root]) -> Operation | None:
    """Return the statement a value comes from, in this iteration or an earlier one."""
    owner = roots[value].value.owner if value in roots else value.owner
    return owner if isinstance(owner, Operation) else None


def _needed_by(loads: list[tile.Load], roots: dict[SSAValue, Root]) -> set[Operation]:
    """Return the loads and the statements of the body that their addresses and masks come from."""
    block = loads[0].parent

    def makers(operation: Operation) -> list[Operation]:
        found = [_source(value, roots) for value in used_by(operation)]
        return [made for made in found if made is not None and made.parent is block]

    return set(reach(list[Operation](loads), makers))


# --- tiles that are copied ahead ------------------------------------------------------------------


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
    block = loop.body.block
    starts = [loop.iter_args[argument.index - 1] for argument in part.carried]
    before = Emitter(InsertPoint.before(loop))
    lead = before.apply("mul", loop.step, before.constant(ahead, loop.step.type))
    first = before.apply("min", before.apply("sub", loop.ub, loop.lb), lead)
    stop = before.apply("add", loop.lb, first)
    inner = Block(arg_types=[loop.lb.type, *(value.type for value in starts)])
    inner.add_op(scf.YieldOp(*_copy(block, part, inner, inner.args[0], inner.args[1:])))
    fill = before.put(scf.ForOp(loop.lb, stop, loop.step, starts, Region(inner)))
    fill.location = loop.location

    end, loop = terminator(block), widen_for(loop, fill.results)
    given = block.args[len(block.args) - len(part.carried) :]
    for argument, new in zip(part.carried, given):
        new.name_hint = argument.name_hint
    inside = Emitter(InsertPoint.before(end))
    more = inside.apply("gt", inside.apply("sub", loop.ub, block.args[0]), lead)
    later = inside.apply("add", block.args[0], lead)
    then = Block()
    then.add_op(scf.YieldOp(*_copy(block, part, then, later, given)))
    kinds = [argument.type for argument in part.carried]
    put = scf.IfOp(more, kinds, Region(then), new_region(scf.YieldOp(*given)))
    append_operands(end, inside.put(put).results)
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
