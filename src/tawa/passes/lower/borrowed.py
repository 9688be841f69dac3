"""Tiles of a slot that a loop carries to its next trip: the number of the slot is carried instead.

Purpose: a tile that two trips under way at once both read stays where it lies, and products read it
there; carried as a tensor it would go through registers and a second buffer.
Before -> after:
    %y = scf.for iter_args(%x = %x0) {           %y = scf.for iter_args(%s = %slot0) {
      use %x                                       use shared_load (hopper.slot %ring[%s])
      %x2 = shared_load (slot %ring[%slot])   ->
      yield %x2                                    yield %slot
    }                                            }
    use %y                                       use shared_load (hopper.slot %ring[%y])
Requires: rings lowered. Ensures: the same values.
Declines when: never; a tile that is computed, or comes from another ring, or whose slot is given
back in the trip that reads it, stays carried.
"""

from __future__ import annotations

from xdsl.dialects import scf
from xdsl.ir import SSAValue

from tawa.ir import hopper
from tawa.ir.control import terminator
from tawa.ir.walk import all_of
from tawa.passes.lower.emit import Emitter, append_operands, widen_for
from tawa.passes.lower.relate import is_tensor


def carry_slots(role: hopper.Role) -> None:
    """Carry slots instead of their tiles round all loops of `role`, outermost first."""
    for loop in all_of(role, scf.ForOp):
        while (wide := _carry_one(loop)) is not None:
            loop = wide


def _carry_one(loop: scf.ForOp) -> scf.ForOp | None:
    """Carry the slot of the first carried tile that lies in one; None where there is none.

    What is done may let another be done: a tile of two trips ago is carried twice.
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
    """Tell whether a slot is given back in its own trip: later ones name it by a carried number."""
    return any(isinstance(use.operation, hopper.Arrive) for use in slot.index.uses)


def _load_again(emitter: Emitter, like: SSAValue, index: SSAValue) -> SSAValue:
    """Read the tile of slot `index` as `like` was read from its own."""
    load = like.owner
    assert isinstance(load, hopper.SharedLoad)
    slot = load.view.owner
    assert isinstance(slot, hopper.Slot)
    again = hopper.Slot(operands=[slot.buffer, index], result_types=[slot.result.type])
    view = emitter.put(again, slot.result.name_hint).result
    read = hopper.SharedLoad(
        operands=[view], attributes={"via": load.via}, result_types=[like.type]
    )
    return emitter.put(read, like.name_hint).result
