"""Barriers that keep nothing apart are dropped.

Purpose: a reduction across warps meets once, not twice.
Before -> after (a buffer of its own, and all have met since it was last read):
    hopper.named_barrier (role)                  hopper.shared_store %x, %scratch
    hopper.shared_store %x, %scratch      ->     hopper.named_barrier (role)
    hopper.named_barrier (role)                  %y = hopper.shared_load %scratch
    %y = hopper.shared_load %scratch
The first of the two keeps the last use of the scratch memory apart. Where that lies under no other
buffer, a barrier in between that belongs to another exchange does as well.
Requires: exchanges through scratch memory written out, accesses of global memory not yet separated.
Ensures: a barrier still stands between any two uses of a buffer. Declines when: never.
"""

from __future__ import annotations

from xdsl.dialects import scf
from xdsl.ir import Block, Operation, Region, SSAValue

from tawa.ir import hopper, tile
from tawa.ir.types import ViewType
from tawa.ir.walk import all_of
from tawa.passes.lower.context import Lowering
from tawa.passes.lower.emit import erase
from tawa.passes.lower.shared import lies_apart

_Open = frozenset[hopper.Shared]
"""Buffers that were used since all threads of the role last met."""


def drop_redundant_barriers(lowering: Lowering, role: hopper.Role) -> None:
    """Drop the barriers of `role` before stores to buffers that nobody can be using."""
    candidates = {
        barrier: buffers
        for barrier in all_of(role, hopper.NamedBarrier)
        if (buffers := _stored_next(barrier))
        and all(lies_apart(lowering, buffer) for buffer in buffers)
    }
    needed: set[Operation] = set()
    while True:
        walk = _Walk(candidates, needed)
        walk.block(role.body.block, frozenset())
        if not walk.found:
            break
        needed |= walk.found
    for barrier in [each for each in candidates if each not in needed]:
        erase(barrier)


def _stored_next(barrier: hopper.NamedBarrier) -> _Open:
    """Return the buffers that the role writes right after it has met; none if it does not."""
    if barrier.kind.data != "sync" or barrier.scope.data != "role":
        return frozenset()
    found: set[hopper.Shared] = set()
    following = barrier.next_op
    while isinstance(following, (tile.Constant, hopper.Slot, hopper.SharedStore)):
        if isinstance(following, hopper.SharedStore):
            found |= _buffer_of(following.view)
        following = following.next_op
    return frozenset(found)


def _buffer_of(value: SSAValue) -> _Open:
    """Return the buffer that a view is of."""
    while isinstance(value.owner, Operation) and not isinstance(value.owner, hopper.Shared):
        if not value.owner.operands:
            return frozenset()
        value = value.owner.operands[0]
    return frozenset({value.owner}) if isinstance(value.owner, hopper.Shared) else frozenset()


class _Walk:
    """A walk along a role without the candidates that are not `needed`; finds more that are."""

    def __init__(
        self, candidates: dict[hopper.NamedBarrier, _Open], needed: set[Operation]
    ) -> None:
        self._candidates = candidates
        self._needed = needed
        self.found: set[Operation] = set()

    def block(self, block: Block, open_: _Open) -> _Open:
        """Walk a block that is entered with `open_`; return what it leaves."""
        for operation in block.ops:
            open_ = self._step(operation, open_)
        return open_

    def _step(self, operation: Operation, open_: _Open) -> _Open:
        match operation:
            case hopper.NamedBarrier():
                return self._barrier(operation, open_)
            case scf.ForOp():
                left = self._region(operation.body, open_)
                return open_ | self._region(operation.body, open_ | left)
            case scf.WhileOp():  # it ends behind its test
                test, body = operation.before_region, operation.after_region
                left = self._region(body, self._region(test, open_))
                out = self._region(test, open_ | left)
                self._region(body, out)
                return out
            case _ if operation.regions:
                # A branch may be the empty one.
                return open_.union(*(self._region(each, open_) for each in operation.regions))
            case _:
                views = [v for v in operation.operands if isinstance(v.type, ViewType)]
                return open_.union(*map(_buffer_of, views))

    def _region(self, region: Region, open_: _Open) -> _Open:
        return self.block(region.block, open_) if region.blocks else open_

    def _barrier(self, barrier: hopper.NamedBarrier, open_: _Open) -> _Open:
        if barrier.kind.data != "sync" or barrier.scope.data != "role":
            return open_
        if barrier not in self._candidates or barrier in self._needed:
            return frozenset()
        if self._candidates[barrier] & open_:
            self.found.add(barrier)
        return open_
