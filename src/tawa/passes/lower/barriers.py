"""The order of the program between the threads of a role, where they access memory by themselves.

Purpose: what one thread wrote is there when another thread of the role reads it in a later
statement, and what one thread reads is not yet overwritten by another.
Before -> after:
    tile.store %p, %v               tile.store %p, %v
                               ->   hopper.named_barrier (role)
    %x = tile.load %q               %x = tile.load %q
bar.sync orders the memory accesses of the threads that meet there (PTX ISA, "bar"). A release is
made after a barrier, for all threads; after an acquire all meet, too. Control flow is uniform in a
role, so a barrier may stand in any branch or loop.
Requires: layouts assigned, descriptor stores not yet lowered. Ensures: between two accesses of one
role that may meet there is a barrier, except where each thread meets only its own elements.
Declines when: never.

Barriers that keep nothing apart are dropped.

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

from collections.abc import Iterable
from itertools import product
from math import prod

from xdsl.dialects import scf
from xdsl.ir import Block, Operation, Region, SSAValue

from tawa.analysis.index import is_spread
from tawa.analysis.memory import reached, roots_of
from tawa.analysis.statements import ATOMICS, WRITES, accessed, clobbers, releases
from tawa.ir import hopper, tile
from tawa.ir.types import ViewType, is_tensor, layout_of
from tawa.ir.walk import all_of
from tawa.passes.lower.context import Lowering
from tawa.passes.lower.emit import Emitter, erase
from tawa.passes.lower.shared import lies_apart

_WARPGROUP = 4
_BULK = (tile.DescStore, tile.DescAtomic)
_WRITES = (*WRITES, tile.AsmEffect)

_Open = frozenset[tuple[Operation, bool]]
"""Accesses since the last barrier, and whether the same pointers still name the same elements."""

_NONE: _Open = frozenset()


def separate_accesses(lowering: Lowering, role: hopper.Role) -> None:
    """Insert the barriers that keep the program's order between the threads of `role`."""
    if role not in lowering.single:
        _Walk(lowering, role).block(role.body.block, _NONE)


class _Walk:
    """A walk along the program that knows what was accessed since all threads met."""

    def __init__(self, lowering: Lowering, role: hopper.Role) -> None:
        self._lowering = lowering
        self._role = role

    def block(self, block: Block, open_: _Open) -> _Open:
        """Separate the accesses of a block that is entered with `open_`; return what it leaves."""
        for operation in list(block.ops):
            open_ = self._step(operation, open_)
        return open_

    def _step(self, operation: Operation, open_: _Open) -> _Open:
        match operation:
            case hopper.NamedBarrier():
                return _NONE if self._is_of_all(operation) else open_
            case scf.IfOp():
                return _NONE.union(*(self._region(r, open_) for r in operation.regions))
            case scf.ForOp():
                return self._loop(operation, open_)
            case scf.WhileOp():
                return self._while(operation, open_)
            case hopper.OneThread():
                for inner in operation.body.block.ops:
                    open_ = self._access(inner, operation, open_)
                return open_
            case _:
                return self._access(operation, operation, open_)

    def _region(self, region: Region, open_: _Open) -> _Open:
        return self.block(region.block, open_) if region.blocks else open_

    def _loop(self, loop: scf.ForOp, open_: _Open) -> _Open:
        left = self.block(loop.body.block, open_)
        if not self._gives_programs(loop):
            # Barriers only take away: what the second walk leaves, the first has left as well.
            left |= self.block(loop.body.block, open_ | _next_iteration(left, loop))
        return open_ | left

    def _while(self, loop: scf.WhileOp, open_: _Open) -> _Open:
        first, second = loop.before_region.block, loop.after_region.block
        left = self.block(second, self.block(first, open_))
        if self._gives_programs(loop):
            return open_ | left
        out = self.block(first, open_ | _next_iteration(left, loop))
        self.block(second, out)
        return out

    def _gives_programs(self, loop: scf.ForOp | scf.WhileOp) -> bool:
        """Tell whether a loop runs over the programs of a persistent kernel: they have no order."""
        return self._lowering.plan.persistent and loop.parent_op() is self._role

    def _access(self, access: Operation, anchor: Operation, open_: _Open) -> _Open:
        if not _goes_to_memory(access):
            return open_
        if isinstance(access, _BULK) and self._role.warps.data <= _WARPGROUP:
            return _NONE  # who stores meets before the copy leaves (`stores`): here it is everybody
        if (releases(access) and open_) or any(self._meet(access, *each) for each in open_):
            Emitter.before(anchor).put(self._lowering.role_barrier(self._role))
            open_ = _NONE
        if _acquires(access):
            if not self._is_of_all(anchor.next_op):
                Emitter.after(anchor).put(self._lowering.role_barrier(self._role))
            return _NONE
        # Bulk stores are waited for (`order`), where somebody may meet them.
        return open_ if isinstance(access, _BULK) else open_ | {(access, True)}

    def _is_of_all(self, operation: Operation | None) -> bool:
        """Tell whether all threads of the role meet at `operation`."""
        if not isinstance(operation, hopper.NamedBarrier) or operation.kind.data != "sync":
            return False
        scope = operation.scope.data
        return scope == "role" or (scope == "warpgroup" and self._role.warps.data == _WARPGROUP)

    def _meet(self, access: Operation, earlier: Operation, same: bool) -> bool:
        """Tell whether `earlier` may touch in one thread what `access` touches in another."""
        if not isinstance(access, _WRITES) and not isinstance(earlier, _WRITES):
            return False
        if _commute(access, earlier) or not self._share(access, earlier):
            return False
        return not (same and self._own_elements(access, earlier))

    def _share(self, access: Operation, earlier: Operation) -> bool:
        """Tell whether both may go to the same memory, as far as the plan's guards tell."""
        mine, theirs = _reached(access), _reached(earlier)
        if mine is None or theirs is None or mine & theirs:
            return True
        lowering = self._lowering
        return not lowering.plan.keeps_apart(lowering.kernel.argument_names, product(mine, theirs))

    def _own_elements(self, access: Operation, earlier: Operation) -> bool:
        """Tell whether each thread goes through the same pointers, and no two to one element."""
        if isinstance(access, tile.AsmEffect) or isinstance(earlier, tile.AsmEffect):
            return False
        pointer = _pointer(access)
        if pointer is not _pointer(earlier) or not is_tensor(pointer):
            return False
        layout = layout_of(pointer.type)
        held = layout.register_count * 32 * self._role.warps.data
        return held == prod(layout.shape) and is_spread(pointer)


def _pointer(access: Operation) -> SSAValue:
    return access.pointer if isinstance(access, hopper.CopyAsync) else accessed(access)


def _goes_to_memory(operation: Operation) -> bool:
    """Tell whether threads access memory, as inline PTX may."""
    if isinstance(operation, tile.AsmEffect):
        return reached(operation) != frozenset()
    return isinstance(operation, (*WRITES, tile.Load, hopper.CopyAsync))


def _reached(access: Operation) -> frozenset[int] | None:
    """Return the arguments through which an access goes; None where they are not known."""
    return roots_of(access.pointer) if isinstance(access, hopper.CopyAsync) else reached(access)


def _acquires(access: Operation) -> bool:
    """Tell whether what other programs published may be read after `access`.

    An atomic whose old value nobody looks at synchronizes with nobody.
    """
    if isinstance(access, tile.AsmEffect):
        return clobbers(access)
    if not isinstance(access, ATOMICS) or access.order.data not in ("acquire", "acq_rel"):
        return False
    return access.result.first_use is not None


def _commute(a: Operation, b: Operation) -> bool:
    """Tell whether two atomics leave the same memory in either order, and nobody asks more."""
    if not isinstance(a, ATOMICS) or not isinstance(b, ATOMICS):
        return False
    if not isinstance(a, tile.Atomic) or not isinstance(b, tile.Atomic):
        return False
    function = a.function.data
    if function != b.function.data or function == "exchange":
        return False
    return a.result.first_use is None and b.result.first_use is None


def _next_iteration(left: Iterable[tuple[Operation, bool]], loop: Operation) -> _Open:
    """Return what an iteration left, as the next one sees it: pointers made in the loop are others,
    unless each place in memory is that of one element of the tile in all iterations.
    """

    def is_apart(access: Operation) -> bool:
        if isinstance(access, tile.AsmEffect):
            return False
        pointer = _pointer(access)
        if not loop.is_ancestor(pointer.owner):
            return True
        return is_tensor(pointer) and isinstance(loop, scf.ForOp) and is_spread(pointer, loop)

    return frozenset((access, same and is_apart(access)) for access, same in left)


# --- barriers that are not needed -----------------------------------------------------------------


_Used = frozenset[hopper.Shared]
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
        walk = _Search(candidates, needed)
        walk.block(role.body.block, frozenset())
        if not walk.found:
            break
        needed |= walk.found
    for barrier in [each for each in candidates if each not in needed]:
        erase(barrier)


def _stored_next(barrier: hopper.NamedBarrier) -> _Used:
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


def _buffer_of(value: SSAValue) -> _Used:
    """Return the buffer that a view is of."""
    while isinstance(value.owner, Operation) and not isinstance(value.owner, hopper.Shared):
        if not value.owner.operands:
            return frozenset()
        value = value.owner.operands[0]
    return frozenset({value.owner}) if isinstance(value.owner, hopper.Shared) else frozenset()


class _Search:
    """A walk along a role without the candidates that are not `needed`; finds more that are."""

    def __init__(
        self, candidates: dict[hopper.NamedBarrier, _Used], needed: set[Operation]
    ) -> None:
        self._candidates = candidates
        self._needed = needed
        self.found: set[Operation] = set()

    def block(self, block: Block, open_: _Used) -> _Used:
        """Walk a block that is entered with `open_`; return what it leaves."""
        for operation in block.ops:
            open_ = self._step(operation, open_)
        return open_

    def _step(self, operation: Operation, open_: _Used) -> _Used:
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

    def _region(self, region: Region, open_: _Used) -> _Used:
        return self.block(region.block, open_) if region.blocks else open_

    def _barrier(self, barrier: hopper.NamedBarrier, open_: _Used) -> _Used:
        if barrier.kind.data != "sync" or barrier.scope.data != "role":
            return open_
        if barrier not in self._candidates or barrier in self._needed:
            return frozenset()
        if self._candidates[barrier] & open_:
            self.found.add(barrier)
        return open_
