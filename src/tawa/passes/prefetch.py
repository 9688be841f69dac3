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
loop loads; what is loaded for two iterations does not fit the registers.
"""

from __future__ import annotations

from math import prod

from xdsl.dialects import scf
from xdsl.ir import Attribute, Block, Operation, SSAValue

from tawa.analysis.memory import meetings
from tawa.analysis.stages import Root, Stages, defined_in, root_of, statements, used_by
from tawa.analysis.statements import has_effect, is_volatile, name_of
from tawa.ir import aref, tile
from tawa.ir.types import bit_width, element_type, shape_of
from tawa.ir.walk import all_of, walk
from tawa.passes.coarse import settle_carried
from tawa.passes.lower.emit import erase
from tawa.passes.software_pipeline import Schedule, pipeline_loop
from tawa.plan.budgets import producer_need
from tawa.plan.plan import Declined, Plan
from tawa.plan.resources import SLACK, held_registers
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
        # What loops around it have ahead is held while it iterates.
        held = [load for outer in chosen if outer.is_ancestor(loop) for load in chosen[outer]]
        reason = _why_not(kernel, plan, loop, loads, held)
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


def _role(loop: scf.ForOp) -> aref.Role:
    parent = loop.parent_op()
    while not isinstance(parent, aref.Role):
        assert parent is not None, "a loop of a specialized kernel stands in a role"
        parent = parent.parent_op()
    return parent


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


def _why_not(
    kernel: tile.Kernel,
    plan: Plan,
    loop: scf.ForOp,
    loads: list[tile.Load],
    around: list[tile.Load],
) -> str:
    """Return why tiles of two iterations cannot be under way at once, or nothing. Those that
    `around` loads are under way as well.
    """
    for operation in walk(loop.body):
        if not has_effect(operation) and not is_volatile(operation):
            continue
        if not isinstance(operation, _QUIET) and not _passed(kernel, plan, operation, loads):
            return f"{operation.name} stands in the loop"
    if plan.specialized:
        role, copied = _role(loop), _copied(loop)
        need = len(loads) * max(_pieces(value, role.warps.data) for value in copied)
        owners = [value.owner for value in copied if isinstance(value.owner, tile.Load)]
        have = role.registers.data if role.registers is not None else 0
        short = need > PIECES and have < producer_need(owners)
        return f"they take {need} registers a thread" if short else ""
    dots = [op.result for op in walk(loop.body) if isinstance(op, tile.Dot)]
    if not dots:
        # More would cost a block that runs beside this one.
        under_way = (*loads, *around)
        need = sum(_words(load.result.type) for load in under_way) // (32 * plan.warps)
        stores = any(isinstance(operation, tile.Store) for operation in walk(loop.body))
        return f"they take {need} registers a thread" if need > (FEW if stores else SPARE) else ""
    held = [*(load.result for load in (*loads, *loads, *around)), *dots]
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
    names, guards = kernel.argument_names, {frozenset(pair) for pair in plan.guards}
    pairs = {pair for meeting in met for pair in meeting.guards}
    return all(frozenset((names[a], names[b])) in guards for a, b in pairs)


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
    found: set[Operation] = set()
    pending: list[Operation] = list(loads)
    block = loads[0].parent
    while pending:
        operation = pending.pop()
        if operation in found or operation.parent is not block:
            continue
        found.add(operation)
        pending.extend(s for v in used_by(operation) if (s := _source(v, roots)) is not None)
    return found
