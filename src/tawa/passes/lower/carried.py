"""Tensors carried round a loop only to be moved by a uniform step: a scalar is carried instead.

Purpose: keep loops over pointers from holding a register pair for each element.
Before -> after:
    %p = scf.for iter_args(%p = %start)          %o = scf.for iter_args(%o = 0)
      tile.load %p                          ->     tile.load (%start + splat %o)
      yield tile.ptr_add %p, splat %step           yield %o + %step
`%start` is cheap (a function of ranges and scalars), so that it is recomputed, or kept for the
first element of each vector only, as the register allocator likes.
Requires: tile operations in loops. Ensures: the same values; integers wrap alike.
Declines when: never; a tensor moved otherwise stays carried.

Tiles of a slot that a loop carries to its next iteration: the number of the slot is carried
instead.

Purpose: a tile that two iterations under way at once both read stays where it lies, and products
read it there; carried as a tensor it would go through registers and a second buffer. Before ->
after:
    %y = scf.for iter_args(%x = %x0) {           %y = scf.for iter_args(%s = %slot0) {
      use %x                                       use shared_load (hopper.slot %ring[%s])
      %x2 = shared_load (slot %ring[%slot])   ->
      yield %x2                                    yield %slot
    }                                            }
    use %y                                       use shared_load (hopper.slot %ring[%y])
Requires: rings lowered. Ensures: the same values.
Declines when: never; a tile that is computed, or comes from another ring, or whose slot is given
back in the iteration that reads it, stays carried.

Tensors that a plan keeps in shared memory from iteration to iteration of a loop.

Purpose: what a loop carries takes registers only where an iteration uses it.
Before -> after (`LoopPlan.shared` names x):
    %end = scf.for iter_args(%x = %start)          shared_store %start, %x
      .. %x ..                              ->     scf.for
      scf.yield %y                                   .. shared_load %x ..
                                                     shared_store %y, %x
                                                   %end = shared_load %x
All threads of the role meet before each store, so that all have read, and after it. Loops of a role
that carry a tensor of one name and type, one after the other or one in the other, have one buffer:
each reads it at once, and stores when what is inside of it has been read. The items of a tuple
have one name in one loop: there is a buffer for the first, one for the second ..
Requires: products lowered, so that none reads such a tensor as an operand in place; layouts not yet
assigned. Ensures: the same values. Declines when: never; a name that no such loop carries raises.
"""

from __future__ import annotations

from collections import Counter

from xdsl.dialects import scf
from xdsl.ir import BlockArgument, SSAValue

from tawa.analysis.statements import name_of
from tawa.errors import PlanError
from tawa.ir import hopper, tile
from tawa.ir.types import PtrType, element_type, i64, is_tensor, shape_of
from tawa.ir.walk import all_of, terminator
from tawa.passes.lower.context import Lowering
from tawa.passes.lower.emit import Emitter, append_operands, widen_for
from tawa.passes.lower.layouts import cheap_values
from tawa.passes.lower.views import load_view, store_shared, whole_buffer


def split_carried(role: hopper.Role) -> None:
    """Split the carried tensors of all loops of `role`, outermost first."""
    for loop in all_of(role, scf.ForOp):
        _split_loop(role, loop)


def _split_loop(role: hopper.Role, loop: scf.ForOp) -> None:
    block = loop.body.block
    cheap: set[SSAValue] | None = None
    for index in range(len(block.args) - 1):
        argument, start = block.args[index + 1], loop.iter_args[index]
        end = terminator(block)
        if not is_tensor(argument):
            continue
        cheap = set(cheap_values(role)) if cheap is None else cheap
        if start not in cheap:
            continue
        step = _step(end.operands[index], argument)
        if step is None:
            continue
        loop, cheap = _split(loop, index, step), None


def _step(value: SSAValue, argument: BlockArgument) -> SSAValue | None:
    """Return the scalar by which `value` is `argument` moved, None when it is anything else."""
    match value.owner:
        case tile.PtrAdd() as move if move.pointer is argument:
            return _uniform(move.offset)
        case tile.Elementwise() as sum_ if sum_.function.data == "add":
            first, second = sum_.inputs
            if first is argument:
                return _uniform(second)
            return _uniform(first) if second is argument else None
        case _:
            return None


def _uniform(value: SSAValue) -> SSAValue | None:
    """Return the scalar that fills a tensor; a constant tensor is made a scalar beside it."""
    match value.owner:
        case tile.Splat() as splat:
            return splat.value
        case tile.Broadcast() | tile.ExpandDims() as inner:
            return _uniform(inner.value)
        case tile.Constant() as constant:
            scalar = tile.Constant.make(results=[element_type(value.type)], value=constant.value)
            return Emitter.after(constant).put(scalar).result
        case _:
            return None


def _split(loop: scf.ForOp, index: int, step: SSAValue) -> scf.ForOp:
    """Carry an offset beside the tensor at `index`, which then stays as it starts."""
    block = loop.body.block
    argument, start = block.args[index + 1], loop.iter_args[index]
    pointers = isinstance(element_type(argument.type), PtrType)
    kind = i64 if pointers else element_type(argument.type)
    zero = Emitter.before(loop).constant(0, kind)
    wide = widen_for(loop, [zero])
    offset = block.args[-1]
    offset.name_hint = f"{argument.name_hint or 'tensor'}_moved"
    end = terminator(block)
    emitter = Emitter.before(end)
    append_operands(end, [emitter.apply("add", offset, emitter.cast(step, kind))])
    inside = _moved(Emitter.at_start(block), start, offset, pointers)
    outside = _moved(Emitter.after(wide), start, wide.results[-1], pointers)
    # Dead now: it goes round unchanged until it is dropped. What else is carried may become it.
    end.operands[index] = argument
    argument.replace_uses_with_if(inside, lambda use: (use.operation, use.index) != (end, index))
    wide.results[index].replace_all_uses_with(outside)
    return wide


def _moved(emitter: Emitter, start: SSAValue, offset: SSAValue, pointers: bool) -> SSAValue:
    spread = emitter.splat(offset, shape_of(start.type))
    if pointers:
        return emitter.made(tile.PtrAdd, [start, spread], start.type)
    return emitter.apply("add", start, spread)


# --- tiles of slots -------------------------------------------------------------------------------


def carry_slots(role: hopper.Role) -> None:
    """Carry slots instead of their tiles round all loops of `role`, outermost first."""
    for loop in all_of(role, scf.ForOp):
        while (wide := _carry_one(loop)) is not None:
            loop = wide


def _carry_one(loop: scf.ForOp) -> scf.ForOp | None:
    """Carry the slot of the first carried tile that lies in one; None where there is none.

    What is done may let another be done: a tile of two iterations ago is carried twice.
    """
    block = loop.body.block
    end = terminator(block)
    for index, argument in enumerate(block.args[1:]):
        if not is_tensor(argument) or not (argument.uses or loop.results[index].uses):
            continue
        first, next_ = _slot_of(loop.iter_args[index]), _slot_of(end.operands[index])
        if first is None or next_ is None or first.buffer is not next_.buffer:
            continue
        if _is_freed(first) or _is_freed(next_):
            continue
        wide = widen_for(loop, [first.index])
        append_operands(end, [next_.index])
        carried = block.args[-1]
        carried.name_hint = wide.results[-1].name_hint = "lent"
        inside = _load_again(Emitter.at_start(block), end.operands[index], carried)
        outside = _load_again(Emitter.after(wide), end.operands[index], wide.results[-1])
        wide.results[index].replace_all_uses_with(outside)
        # Dead now: it goes round unchanged until it is dropped.
        end.operands[index] = argument
        argument.replace_uses_with_if(inside, lambda use: use.operation is not end)
        return wide
    return None


def _slot_of(value: SSAValue) -> hopper.Slot | None:
    """Return the slot that holds the whole of a tile, None for a tile that lies in none."""
    load = value.owner
    if not isinstance(load, hopper.SharedLoad) or not isinstance(load.view.owner, hopper.Slot):
        return None
    return load.view.owner


def _is_freed(slot: hopper.Slot) -> bool:
    """Tell whether a slot is given back in its own iteration: later ones name it by a carried
    number.
    """
    return any(isinstance(use.operation, hopper.Arrive) for use in slot.index.uses)


def _load_again(emitter: Emitter, like: SSAValue, index: SSAValue) -> SSAValue:
    """Read the tile of slot `index` as `like` was read from its own."""
    load = like.owner
    assert isinstance(load, hopper.SharedLoad)
    slot = load.view.owner
    assert isinstance(slot, hopper.Slot)
    again = hopper.Slot.make(slot.buffer, index, results=[slot.result.type])
    view = emitter.put(again, slot.result.name_hint).result
    read = hopper.SharedLoad.make(view, results=[like.type], via=load.via)
    return emitter.put(read, like.name_hint).result


# --- tensors in shared memory ---------------------------------------------------------------------


def spill_carried(lowering: Lowering) -> None:
    """Move to shared memory what the plan's loops name; raises PlanError for what is not there."""
    missing = {(loop.loop, name) for loop in lowering.plan.loops for name in loop.shared}
    for role in lowering.roles if missing else ():
        buffers: dict[object, hopper.Shared] = {}
        for loop in all_of(role, scf.ForOp):
            names = lowering.loop_plan(loop).shared
            before: Counter[object] = Counter()
            for index, argument in enumerate(loop.body.block.args[1:]):
                name = argument.name_hint
                if name not in names or not is_tensor(argument):
                    continue
                missing.discard((name_of(loop), name))
                before[like := (name, argument.type)] += 1
                if (kind := (*like, before[like])) not in buffers:
                    element = element_type(argument.type)
                    layout = lowering.placement(shape_of(argument.type), element)
                    buffers[kind] = lowering.new_buffer(name, layout, element)
                _spill(lowering, role, loop, index, buffers[kind])
    for loop, name in missing:
        raise PlanError(
            f"loop {loop} shared={name}",
            why=f"the loop carries no tensor {name} to its next iteration, or, in a coarse "
            "schedule, others in its place",
            remedy=f"leave {name} out, or write schedule=fine",
        )


def _spill(
    lowering: Lowering, role: hopper.Role, loop: scf.ForOp, index: int, buffer: hopper.Shared
) -> None:
    block = loop.body.block
    argument, end = block.args[index + 1], terminator(block)

    def store(emitter: Emitter, value: SSAValue) -> None:
        emitter.put(lowering.role_barrier(role))
        store_shared(emitter, value, whole_buffer(emitter, buffer))
        emitter.put(lowering.role_barrier(role))

    def load(emitter: Emitter) -> SSAValue:
        return load_view(emitter, whole_buffer(emitter, buffer), argument.type, argument.name_hint)

    store(Emitter.before(loop), loop.iter_args[index])
    held = load(Emitter.at_start(block))
    argument.replace_all_uses_with(held)
    store(Emitter.before(end), end.operands[index])
    end.operands[index] = argument  # dead now: it goes round until it is dropped
    loop.results[index].replace_all_uses_with(load(Emitter.after(loop)))
