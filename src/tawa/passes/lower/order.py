"""The order of the program where stores are asynchronous.

Purpose: a statement that may touch what an earlier TMA store wrote sees it, or comes after it.
Before -> after:
    tile.desc_store %d[..], %v              tile.desc_store %d[..], %v
    %x = tile.desc_load %d[..]       ->     hopper.bulk_wait {read = false}; hopper.named_barrier
                                            %x = tile.desc_load %d[..]
Bulk stores are complete for the thread that committed them by `bulk_wait`, and for the role's other
threads by its barrier. A TMA load after a store by threads would need a fence between the proxies
for global memory; such a load goes through pointers instead.
Requires: descriptor accesses that are no TMA accesses are expanded. Ensures: the waits, done by
"all"; `stores` names the threads when it knows them.
Declines when: `TMA for a@12`: a store through pointers may have written what it loads.
"""

from __future__ import annotations

from xdsl.dialects import scf
from xdsl.dialects.builtin import BoolAttr, IntAttr, StringAttr
from xdsl.ir import Operation

from tawa.analysis.effects import WRITES, accessed
from tawa.analysis.memory import may_meet, roots_of
from tawa.analysis.naming import name_of
from tawa.ir import hopper, tile
from tawa.passes.lower.context import Lowering
from tawa.passes.lower.emit import Emitter
from tawa.passes.lower.pointers import expand_load

_BULK = (tile.DescStore, tile.DescAtomic)
_READS = (tile.Load, tile.DescLoad)


def order_accesses(lowering: Lowering, role: hopper.Role) -> None:
    """Insert the waits that keep the program's order in `role`."""
    order = {operation: index for index, operation in enumerate(role.walk())}
    accesses = [op for op in order if isinstance(op, (*WRITES, *_READS))]
    bulk = [op for op in accesses if isinstance(op, _BULK)]
    plain = [op for op in accesses if isinstance(op, WRITES) and op not in bulk]
    for access in accesses:
        before = _Before(lowering, role, order, access)
        if isinstance(access, tile.DescLoad) and any(map(before.conflicts, plain)):
            lowering.note(f"TMA for {name_of(access)}", "a store through pointers may precede it")
            expand_load(access)
            continue
        if any(map(before.conflicts, bulk)):
            emitter = Emitter.before(access)
            emitter.put(bulk_wait("all", read=False))
            emitter.put(lowering.role_barrier(role))


def bulk_wait(by: str, *, read: bool) -> hopper.BulkWait:
    """Return a wait of the threads `by` for all their bulk stores."""
    return hopper.BulkWait(
        attributes={"pending": IntAttr(0), "read": BoolAttr.from_bool(read), "by": StringAttr(by)}
    )


class _Before:
    """What may come before one access and touch the same memory."""

    def __init__(
        self,
        lowering: Lowering,
        role: hopper.Role,
        order: dict[Operation, int],
        access: Operation,
    ) -> None:
        self._lowering = lowering
        self._role = role
        self._order = order
        self._access = access

    def conflicts(self, store: Operation) -> bool:
        """Tell whether `store` may precede the access and meet it."""
        return self._may_precede(store) and self._may_meet(store)

    def _may_precede(self, store: Operation) -> bool:
        """Earlier in the text, or in a loop around both.

        The loop over the programs of a persistent kernel is none: programs have no order.
        """
        if self._order[store] < self._order[self._access]:
            return True
        parent = store.parent_op()
        while parent is not None and parent is not self._role:
            is_loop = isinstance(parent, (scf.ForOp, scf.WhileOp))
            over_programs = self._lowering.plan.persistent and parent.parent_op() is self._role
            if is_loop and not over_programs and parent.is_ancestor(self._access):
                return True
            parent = parent.parent_op()
        return False

    def _may_meet(self, store: Operation) -> bool:
        """Tell whether both may touch one element.

        Outputs passed as different arguments are taken to be different memory; what is loaded and
        what is stored only where the plan guards it.
        """
        mine, theirs = roots_of(accessed(self._access)), roots_of(accessed(store))
        if mine is None or theirs is None:
            return True
        if mine & theirs:
            return may_meet(store, self._access)
        if not isinstance(self._access, _READS):
            return False
        names = self._lowering.kernel.argument_names
        guarded = set(self._lowering.plan.guards)
        return not all((names[a], names[b]) in guarded for a in mine for b in theirs)
