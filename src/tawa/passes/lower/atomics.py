"""Atomics of one element whose result a whole role uses: one thread acts, and tells the others.

Purpose: make a scalar atomic happen once, though every thread of the role holds its result.
Before -> after:
                                  hopper.named_barrier (role)
    %old = tile.atomic "add"  ->  hopper.one_thread { %x = tile.atomic; hopper.shared_store %x }
                                  hopper.named_barrier (role); %old = hopper.shared_load
Requires: roles formed. Ensures: the element is changed once; all threads go on with one value.
Declines when: never. Roles that run on one thread need none of this, nor do unused results.
"""

from __future__ import annotations

from tawa.ir import hopper, tile
from tawa.ir.walk import walk
from tawa.passes.lower.context import Lowering
from tawa.passes.lower.convert import scratch
from tawa.passes.lower.emit import Emitter, new_region, replace
from tawa.passes.lower.relate import is_tensor
from tawa.passes.lower.scalars import load_scalar, store_scalar, stored_as, word_layout
from tawa.passes.lower.views import whole_buffer


def broadcast_atomics(lowering: Lowering, role: hopper.Role) -> None:
    """Let one thread of `role` perform each scalar atomic whose result is used."""
    if role in lowering.single:
        return
    for operation in walk(role.body):
        if not isinstance(operation, (tile.Atomic, tile.CompareExchange, hopper.NextProgram)):
            continue
        if not is_tensor(operation.result) and operation.result.first_use is not None:
            _broadcast(lowering, role, operation)


def _broadcast(
    lowering: Lowering,
    role: hopper.Role,
    atomic: tile.Atomic | tile.CompareExchange | hopper.NextProgram,
) -> None:
    kind = atomic.result.type
    (buffer,) = scratch(lowering, role, [(word_layout(kind), stored_as(kind))])
    emitter = Emitter.before(atomic)
    emitter.put(lowering.role_barrier(role))
    view = whole_buffer(emitter, buffer)
    one = Emitter.at_end(emitter.put(hopper.OneThread(regions=[new_region()])).body.block)
    store_scalar(one, one.put(atomic.clone()).result, view, role)
    emitter.put(lowering.role_barrier(role))
    replace(atomic, [load_scalar(emitter, view, kind, role)])
