"""Atomics whose result more threads use than act: one thread acts, and tells the others.

Purpose: make an atomic happen once for each element, though several threads hold its result.
Before -> after:
                                  hopper.named_barrier (role)
    %old = tile.atomic "add"  ->  hopper.one_thread { %x = tile.atomic; hopper.shared_store %x }
                                  hopper.named_barrier (role); %old = hopper.shared_load
    %old = tile.atomic %tile  ->  %x = tile.atomic %tile; hopper.named_barrier (role)
                                  hopper.shared_store %x {owners}; barrier; %old = shared_load
Requires: roles formed; for tiles, layouts. Ensures: all threads go on with what the one got.
Declines when: never. Roles that run on one thread need none of this, nor do unused results.
"""

from __future__ import annotations

from xdsl.dialects.builtin import UnitAttr

from tawa.ir import hopper, tile
from tawa.ir.types import layout_of
from tawa.ir.walk import walk
from tawa.layouts.convert import is_replicated
from tawa.passes.lower.context import Lowering
from tawa.passes.lower.convert import exchange, scratch
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


def share_atomics(lowering: Lowering, role: hopper.Role) -> None:
    """Tell all who hold an element of a tile what its owner got for it."""
    for atomic in walk(role.body):
        if not isinstance(atomic, (tile.Atomic, tile.CompareExchange)):
            continue
        result = atomic.result
        if not is_tensor(result) or result.first_use is None:
            continue
        layout = layout_of(result.type)
        if is_replicated(layout, role.warps.data):
            following = atomic.next_op
            assert following is not None, "a result that is used is not the last"
            uses = list(result.uses)
            (shared,) = exchange(lowering, role, Emitter.before(following), [result], layout)
            for use in result.uses:
                if isinstance(use.operation, hopper.SharedStore):
                    use.operation.owners = UnitAttr()
            for use in uses:
                use.operation.operands[use.index] = shared


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
