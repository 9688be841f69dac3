"""Purpose: vectors and numbers that a consumer reads in a loop of products are read an iteration
ahead.

Before -> after::

    scf.for %i .. (%n = %n0) {              %first = load f(%lb, %n0), where there is an iteration
      %m = load f(%i, %n)                   scf.for %i .. (%n = %n0, %m = %first) {
      .. use %m                      ->       .. use %m
      %n2 = g(%n)                             %n2 = g(%n)
      scf.yield %n2                           %m2 = load f(%i + step, %n2)
    }                                         scf.yield %n2, %m2
                                            }

Where the tiles come from a ring, the latency of such a read would be all that an iteration waits
for. It stands right after the last use of what was read before, so that it fills the same
registers; where that is under products, past the first stretch of pinned work, it stands after the
last such stretch (ptxas 13.0 moves exponentials over the waits that loads stand between). The last
iteration reads its own addresses once more. Requires: aref IR, roles distributed, loops pipelined.
Ensures: the same values; nothing is read that the program does not read. Declines when: never; a
read stays where the loop writes memory that it may read (the plan asks a launch whether arrays
overlap), or has inline PTX that may, where its address needs more than the iteration's number and
carried scalars, where it is volatile, where it decides about control (roles find that out alike, in
the same iteration), or where its registers are too many.
"""

from __future__ import annotations

from xdsl.dialects import scf
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from tawa.analysis.cluster import influenced
from tawa.analysis.memory import meetings
from tawa.analysis.stages import defined_in
from tawa.analysis.statements import (
    ATOMICS,
    VIEWS,
    children,
    is_pure,
    is_volatile,
    is_write,
    readers,
)
from tawa.ir import aref, hopper, tile
from tawa.ir.types import bit_width, element_type, shape_of
from tawa.ir.walk import all_of, decisive, terminator, walk
from tawa.passes.lower.emit import Emitter, append_operands, erase, widen_for
from tawa.plan.plan import Declined, Plan
from tawa.target import Target

MOST_REGISTERS = 40
"""Registers a thread that what is read ahead in one loop may take, counted as columns are held."""

_NAMED_AGAIN = (tile.Broadcast, *VIEWS)


def load_ahead(kernel: tile.Kernel, plan: Plan, target: Target) -> tuple[Declined, ...]:
    """Read vectors and numbers an iteration ahead in the loops of products of all consumers."""
    roles = [op for op in kernel.body.block.ops if isinstance(op, aref.Role)]
    for role in roles:
        for loop in all_of(role, scf.ForOp):
            if any(isinstance(op, tile.Dot) for op in children(loop)):
                _read_ahead(kernel, plan, loop)
    return ()


def _read_ahead(kernel: tile.Kernel, plan: Plan, loop: scf.ForOp) -> None:
    """Read ahead what can be, while there are registers for it."""
    if any(is_volatile(op) or isinstance(op, (*ATOMICS, tile.AsmEffect)) for op in walk(loop)):
        return
    writes = [op for op in walk(loop) if is_write(op)]
    room = MOST_REGISTERS
    products = influenced([op.result for op in children(loop) if isinstance(op, tile.Dot)])
    for load in [op for op in loop.body.block.ops if isinstance(op, tile.Load)]:
        met = meetings(load, writes)
        if met.writers or not plan.keeps_apart(kernel.argument_names, met.guards):
            continue
        need = _registers(load, products)
        slice_ = _slice(loop, load) if need <= room else None
        if slice_ is not None:
            loop = _move(loop, load, slice_)
            room -= need


def _registers(load: tile.Load, products: set[SSAValue]) -> int:
    """Return the registers a thread holds of a vector along the columns of a fragment.

    A quarter of them: four lanes share a row. Of one that goes into an operand only, and meets no
    value of `products`, a warp's lanes hold each their part. A number takes its words; a tile, and
    what decides about control, more than any loop has.
    """
    shape = shape_of(load.result.type)
    if not shape and not _decides(load):
        return -(-bit_width(element_type(load.result.type)) // 32)
    if len(shape) != 1:
        return MOST_REGISTERS + 1
    beside = influenced([load.result], lambda op: isinstance(op, tile.Dot))
    lanes = 4 if _meet(beside, products) else 32
    return -(-shape[0] * bit_width(element_type(load.result.type)) // (32 * lanes))


def _decides(load: tile.Load) -> bool:
    """Tell whether a loop or a condition depends on what is read."""
    found = influenced([load.result])
    return any(value in decisive(use.operation) for value in found for use in value.uses)


def _meet(values: set[SSAValue], products: set[SSAValue]) -> bool:
    """Tell whether some operation takes one of `values` together with one of `products`."""
    users = {use.operation for value in values for use in value.uses}
    return any(
        operand in products
        for user in users
        if not isinstance(user, tile.Dot)
        for operand in user.operands
    )


def _slice(loop: scf.ForOp, load: tile.Load) -> list[Operation] | None:
    """Return the statements that make what `load` reads through, in order, those for the next
    iteration included; None where they are not the iteration's number, carried scalars and pure
    functions.
    """
    block = loop.body.block
    end = terminator(block)
    if load.result in end.operands:
        return None
    needed: set[Operation] = set()
    seen: set[SSAValue] = set()
    pending = list(load.operands)
    while pending:
        value = pending.pop()
        if value in seen:
            continue
        seen.add(value)
        if value in block.args and value is not block.args[0]:
            if shape_of(value.type):
                return None
            pending.append(end.operands[block.args.index(value) - 1])
        elif defined_in(value, block):
            owner = value.owner
            assert isinstance(owner, Operation)
            if not is_pure(owner) or owner.regions:
                return None
            needed.add(owner)
            pending.extend(owner.operands)
    return [op for op in block.ops if op in needed]


def _move(loop: scf.ForOp, load: tile.Load, slice_: list[Operation]) -> scf.ForOp:
    """Read what `load` reads an iteration ahead; return the loop that has taken the place of
    `loop`.
    """
    block = loop.body.block
    wide = widen_for(loop, [_first(loop, load, slice_)])
    carried = block.args[-1]
    carried.name_hint = load.result.name_hint
    load.result.replace_all_uses_with(carried)
    following = _following(wide, load, slice_, _place(carried, load))
    append_operands(terminator(block), [following])
    erase(load)
    return wide


def _first(loop: scf.ForOp, load: tile.Load, slice_: list[Operation]) -> SSAValue:
    """Read before the loop what its first iteration uses; nothing where it makes none."""
    before = Emitter.before(loop)
    values: dict[SSAValue, SSAValue] = dict(zip(loop.body.block.args, (loop.lb, *loop.iter_args)))
    for operation in slice_:
        before.put(_copy(operation, values))
    mask = before.apply("lt", loop.lb, loop.ub)
    if shape := shape_of(load.result.type):
        mask = before.splat(mask, shape)
    if load.mask is not None:
        mask = before.apply("and", mask, values.get(load.mask, load.mask))
    return before.put(_load(load, values, mask), load.result.name_hint).result


def _following(
    loop: scf.ForOp, load: tile.Load, slice_: list[Operation], after: Operation
) -> SSAValue:
    """Read after `after` what the next iteration uses; in the last iteration, what it used
    itself.
    """
    block = loop.body.block
    end = terminator(block)
    emitter = Emitter.after(after)
    here: dict[SSAValue, SSAValue] = {}
    for operation in slice_:
        emitter.put(_copy(operation, here))
    iteration = block.args[0]
    beyond = emitter.apply("add", iteration, loop.step)
    more = emitter.apply("lt", beyond, loop.ub)
    values: dict[SSAValue, SSAValue] = {iteration: emitter.apply("select", more, beyond, iteration)}
    used = {value for operation in (*slice_, load) for value in operation.operands}
    for argument in block.args[1:-1]:
        if argument in used:
            value = end.operands[argument.index - 1]
            value = here.get(value, value)
            values[argument] = emitter.apply("select", more, value, argument)
    for operation in slice_:
        emitter.put(_copy(operation, values))
    return emitter.put(_load(load, values, load.mask), load.result.name_hint).result


def _copy(operation: Operation, values: dict[SSAValue, SSAValue]) -> Operation:
    """Return a copy that reads `values`, to which its results are added."""
    again = operation.clone(dict(values))
    for old, new in zip(operation.results, again.results):
        new.name_hint = old.name_hint
        values[old] = new
    return again


def _load(like: tile.Load, values: dict[SSAValue, SSAValue], mask: SSAValue | None) -> tile.Load:
    """Return a load that reads `values`, where `mask` lets it."""
    read = (like.pointer, mask, like.other)
    given = (None if value is None else values.get(value, value) for value in read)
    return tile.Load.make(*given, results=[like.result.type], attributes=like.attributes)


def _place(carried: BlockArgument, load: tile.Load) -> Operation:
    """Return the statement after which what the next iteration uses is read."""
    block = carried.owner
    after = _last_use(carried, block) or load
    pins = [op for op in block.ops if isinstance(op, hopper.Pin)]
    if pins and pins[0].is_before_in_block(after) and after.is_before_in_block(pins[-1]):
        return pins[-1]
    return after


def _last_use(value: SSAValue, block: Block) -> Operation | None:
    """Return the last statement of `block` that reads a value, through other names of it too."""
    found = map(block.find_ancestor_op_in_block, readers(value, _NAMED_AGAIN))
    return max(filter(None, found), key=block.get_operation_index, default=None)
