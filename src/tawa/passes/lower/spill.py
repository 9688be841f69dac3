"""Tensors that a plan keeps in shared memory from iteration to iteration of a loop.

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
from xdsl.ir import SSAValue

from tawa.analysis.statements import name_of
from tawa.errors import PlanError
from tawa.ir import hopper
from tawa.ir.types import element_type, shape_of
from tawa.ir.walk import all_of, terminator
from tawa.passes.lower.context import Lowering
from tawa.passes.lower.emit import Emitter
from tawa.passes.lower.relate import is_tensor
from tawa.passes.lower.views import load_view, store_shared, whole_buffer


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
